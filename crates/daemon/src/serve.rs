//! Starts the daemon: its own files, the recorders that run already, and the listener.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::hint::Hint;
use fullbore_linux::stop_handle::StopHandle;
use rustix::fs::{FlockOperation, flock};

use crate::auth::sessions::Sessions;
use crate::auth::tokens::{self, Tokens};
use crate::config::Config;
use crate::http::{Station, router};
use crate::jobs::Jobs;
use crate::recorder::Recorders;
use crate::status;
use crate::vsi;

/// Time between two looks at the stop handle.
const LOOK: Duration = Duration::from_millis(50);

/// The daemon serves.
#[derive(Clone, Debug)]
pub struct Ready {
    /// Where it listens.
    pub address: SocketAddr,
    /// The address of the dashboard, which logs a browser in once.
    pub login_url: String,
    /// Recordings that earlier daemons started, and that run.
    pub found: usize,
    /// The directory of its own files.
    pub state: PathBuf,
    /// Where it listens for VSI-S.
    pub vsi: Option<SocketAddr>,
}

/// The daemon cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address can be reached from other hosts.
    #[error("--listen {address}: other hosts reach this address, and the daemon has no TLS yet")]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// There is no directory for its own files.
    #[error("no directory for the station: FULLBORE_STATE, XDG_STATE_HOME and HOME are not set")]
    NoDirectory,
    /// Its own files.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What was done.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// Another daemon serves the store.
    #[error("another daemon serves this store: {} is locked", path.display())]
    Twice {
        /// The locked file.
        path: PathBuf,
    },
    /// The path of a member has a comma, or is not text.
    #[error("{}: the path of a member must be text without a comma", path.display())]
    Member {
        /// The member.
        path: PathBuf,
    },
    /// The tokens.
    #[error(transparent)]
    Tokens(#[from] tokens::Error),
    /// The port for VSI-S.
    #[error(transparent)]
    Vsi(#[from] vsi::Error),
    /// The listener.
    #[error("listening on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        source: io::Error,
    },
    /// A thread, or the runtime.
    #[error("starting the threads of the daemon")]
    Start(#[source] io::Error),
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Open { .. } => {
                "listen on 127.0.0.1 or [::1], and reach it from elsewhere with `ssh -L 8480:127.0.0.1:8480 HOST`"
            }
            Self::Listen { .. } => {
                "does another program use the port? `--listen 127.0.0.1:0` takes a free one"
            }
            Self::NoDirectory => "set FULLBORE_STATE to a directory that stays",
            Self::Tokens(_) => "docs/howto/station.md shows such a file",
            Self::Vsi(error) => return error.hint(),
            Self::File { .. } | Self::Twice { .. } | Self::Member { .. } | Self::Start(_) => {
                return None;
            }
        }))
    }
}

/// Serves until it is stopped. Recordings go on afterwards. `ready` is called when it listens.
pub fn serve(config: &Config, stop: &StopHandle, ready: impl FnOnce(&Ready)) -> Result<(), Error> {
    let address = config.listen;
    if !address.ip().is_loopback() {
        return Err(Error::Open { address });
    }
    let store = store_of(&config.members)?;
    let tokens = config.tokens.as_deref().map(Tokens::read).transpose()?.unwrap_or_default();
    let state = config.state_directory().ok_or(Error::NoDirectory)?;
    let _lock = lock(&state)?;
    let listener = TcpListener::bind(address);
    let listen = |source| Error::Listen { address, source };
    let listener = listener.map_err(listen)?;
    listener.set_nonblocking(true).map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let folder = state.join("recordings");
    let found = Recorders::find(config.program.clone(), store, folder.clone());
    let what = "finding recorders that run";
    let recorders = found.map_err(|source| Error::File { path: folder, what, source })?;
    let count = recorders.all().iter().filter(|it| it.pid.is_some()).count();
    let vsi = config.vsi.as_ref();
    let vsi = vsi.map(|it| vsi::Port::open(it, &config.members, recorders.clone(), &state));
    let vsi = vsi.transpose()?;
    let jobs = Jobs::default();
    let news = status::keep(&config.members, recorders.clone(), jobs.clone());
    let station = Arc::new(Station::new(
        config.members.clone(),
        recorders,
        jobs,
        news.map_err(Error::Start)?,
        tokens,
        Sessions::open(&state.join("sessions.json")),
        address,
        state.join("audit.log"),
    ));
    let login_url = station.login_url().map_err(Error::Start)?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().map_err(Error::Start)?;
    let vsi = vsi.as_ref().map(vsi::Port::address);
    ready(&Ready { address, login_url, found: count, state, vsi });
    let served = runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let stopped = async {
            while !stop.is_requested() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            served = axum::serve(listener, router(station)) => served,
            () = stopped => Ok(()),
        }
    });
    // A request that waits for a disk does not hold the end up.
    runtime.shutdown_background();
    served.map_err(listen)
}

/// The members as `--store` takes them.
fn store_of(members: &[PathBuf]) -> Result<String, Error> {
    let whole = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let text = |path: &PathBuf| {
        let whole = whole(path).to_str().map(str::to_owned);
        let plain = whole.filter(|it| !it.contains(','));
        plain.ok_or_else(|| Error::Member { path: path.clone() })
    };
    Ok(members.iter().map(text).collect::<Result<Vec<_>, _>>()?.join(","))
}

/// Makes the directory of the station, and locks it as long as the file is open.
fn lock(state: &Path) -> Result<File, Error> {
    let failed = |path: &Path, what| {
        let path = path.to_owned();
        move |source| Error::File { path, what, source }
    };
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(state);
    made.map_err(failed(state, "making the directory of the station"))?;
    let path = state.join("lock");
    let file = File::create(&path).map_err(failed(&path, "making the lock"))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Twice { path }),
        Err(error) => Err(failed(&path, "locking")(error.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_other_hosts_reach_is_refused() {
        for address in ["0.0.0.0:8480", "192.168.1.5:8480", "[::]:8480"] {
            let config = Config {
                members: vec!["/nowhere".into()],
                listen: address.parse().unwrap(),
                tokens: None,
                program: "/nowhere".into(),
                vsi: None,
            };
            let error = serve(&config, &StopHandle::default(), |_| panic!()).unwrap_err();
            assert!(matches!(error, Error::Open { .. }) && error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn one_daemon_serves_a_store() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path().join("a/b");
        let first = lock(&state).unwrap();
        assert!(matches!(lock(&state), Err(Error::Twice { .. })));
        drop(first);
        lock(&state).unwrap();
    }

    #[test]
    fn members_become_one_word() {
        assert_eq!(store_of(&["/a".into(), "/b".into()]).unwrap(), "/a,/b");
        assert!(matches!(store_of(&["/a,b".into()]), Err(Error::Member { .. })));
    }
}
