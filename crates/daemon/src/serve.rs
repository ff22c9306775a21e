//! Starts the daemon: its own files, the recorders that run already, and the listener.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_linux::stop_handle::StopHandle;
use rustix::fs::{FlockOperation, flock};
use tokio::sync::watch;

use crate::alerts::Alerts;
use crate::auth::sessions::Sessions;
use crate::auth::tokens::{self, Tokens};
use crate::bound::Bound;
use crate::config::Config;
use crate::demo::Demo;
use crate::disks;
use crate::http::{Seen, Station, router};
use crate::jobs::Jobs;
use crate::jobs::process::Program;
use crate::machine;
use crate::net::{Entrance, tls};
use crate::recorder::Recorders;
use crate::reload::{Reloaded, Reloading};
use crate::schedules::Schedules;
use crate::settings::{Current, Settings};
use crate::station_file::Listen;
use crate::status;
use crate::systemd::Manager;
use crate::systemd::movement::{self, Movement};
use crate::transfers::{self, Listening, QueueOptions, Transfers};
use crate::vsi;

/// Time between two looks at the stop handle.
const LOOK: Duration = Duration::from_millis(50);

/// The daemon serves.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The first address; none if there is only a Unix socket.
    pub address: Option<SocketAddr>,
    /// Where it listens: `http://…`, `https://…`, `unix:…`.
    pub urls: Vec<String>,
    /// The address of the dashboard, which logs a browser in once.
    pub login_url: Option<String>,
    /// The SHA-256 of the certificate.
    pub fingerprint: Option<String>,
    /// What of the file could not be done.
    pub problems: Vec<String>,
    /// Recordings that earlier daemons started, and that run.
    pub found: usize,
    /// The directory of its own files.
    pub state: PathBuf,
    /// Where it listens for VSI-S.
    pub vsi: Option<SocketAddr>,
    /// Where it listens in the dialect of a Mark6.
    pub mark6: Option<SocketAddr>,
    /// Where it listens for transfers of other sites, and its key.
    pub receive: Option<Listening>,
}

/// The daemon cannot serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address can be reached from other hosts, and there is no token.
    #[error(
        "{address}: other hosts reach this address, and there is no token by which a client could prove who it is"
    )]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// The address can be reached from other hosts, in clear.
    #[error("{address}: other hosts reach this address, and it has no TLS")]
    Clear {
        /// The address.
        address: SocketAddr,
    },
    /// The certificate.
    #[error("the certificate")]
    Certificate(#[from] tls::Error),
    /// The sockets of systemd.
    #[error("taking the sockets of systemd")]
    Passed(#[source] io::Error),
    /// systemd passes a socket that is not described.
    #[error("systemd passes {shown}, at which this station does not listen")]
    Unlisted {
        /// Its address.
        shown: String,
    },
    /// The Unix socket.
    #[error("listening on {}", path.display())]
    Socket {
        /// Its file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
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
    /// Transfers.
    #[error(transparent)]
    Transfers(#[from] transfers::Error),
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
                "add --tokens FILE, or listen on 127.0.0.1 and reach it from elsewhere with `ssh -L 8480:127.0.0.1:8480 HOST`"
            }
            Self::Clear { .. } => "move it from `http` to `https`",
            Self::Certificate(error) => return error.hint(),
            Self::Socket { .. } => "does another daemon listen there?",
            Self::Unlisted { .. } => {
                "write the address into [listen] of the file, or take it out of the socket unit"
            }
            Self::Listen { .. } => {
                "does another program use the port? `--listen 127.0.0.1:0` takes a free one"
            }
            Self::NoDirectory => "set FULLBORE_STATE to a directory that stays",
            Self::Tokens(_) => "docs/howto/station.md shows such a file",
            Self::Vsi(error) => return error.hint(),
            Self::Transfers(error) => return error.hint(),
            Self::File { .. }
            | Self::Twice { .. }
            | Self::Member { .. }
            | Self::Passed(_)
            | Self::Start(_) => return None,
        }))
    }
}

/// What the daemon tells its owner.
#[derive(Clone, Debug)]
pub enum Told {
    /// It serves.
    Ready(Box<Ready>),
    /// It has read the file of the station again.
    Reloaded(Reloaded),
}

/// Serves until it is stopped. Recordings go on afterwards.
pub fn serve(config: &Config, stop: &StopHandle, mut tell: impl FnMut(&Told)) -> Result<(), Error> {
    let manager = Manager::of_environment();
    let store = store_of(&config.members)?;
    let program = Program { path: config.program.clone(), store: store.clone() };
    let settings = settings_of(config)?;
    let listen = listen_of(config, &settings)?;
    let state = config.state_directory().ok_or(Error::NoDirectory)?;
    let _lock = lock(&state)?;
    let bound = Bound::bind(&listen, &settings.names, &state)?;
    let folder = state.join("recordings");
    let found = Recorders::find(config.program.clone(), store, folder.clone());
    let what = "finding recorders that run";
    let recorders = found.map_err(|source| Error::File { path: folder, what, source })?;
    let count = recorders.all().iter().filter(|it| it.pid.is_some()).count();
    let (jobs, alerts, current) = (Jobs::default(), Alerts::default(), Current::new(settings));
    let folder = state.join("schedules");
    let schedules = Schedules::open(folder.clone(), recorders.clone(), current.clone());
    let what = "finding schedules";
    let schedules = schedules.map_err(|source| Error::File { path: folder, what, source })?;
    let mut problems = Vec::new();
    if let Some(file) = &config.station {
        problems = file.warnings.iter().map(ToString::to_string).collect();
        problems.extend(schedules.take_over(&file.schedules));
        alerts.set(&file.alerts).map_err(Error::Start)?;
    }
    schedules.keep().map_err(Error::Start)?;
    let demo = config.demo.as_ref().map(|_| Demo::start(recorders.clone())).transpose();
    let demo = demo.map_err(Error::Start)?;
    let (followed, members) = (recorders.clone(), config.members.clone());
    let (transfers, exchange) = transfers_of(config)?;
    let (news_of, keeping) = (recorders.clone(), jobs.clone());
    let news = status::keep(
        &members,
        news_of,
        keeping,
        schedules.clone(),
        alerts.clone(),
        transfers.clone(),
        demo.is_some(),
    );
    let news = news.map_err(Error::Start)?;
    let vsi = config.vsi.as_ref();
    let vsi = vsi.map(|it| vsi::Port::open(it, &members, recorders.clone(), &state));
    let vsi = vsi.transpose()?;
    let sessions = Sessions::open(&state.join("sessions.json"));
    let path = state.join("sessions.json");
    let what = "writing the sessions";
    let kept = sessions.keep_only(&current.get().tokens);
    kept.map_err(|source| Error::File { path, what, source })?;
    let disks = disks::keep(&members).map_err(Error::Start)?;
    let machine = machine::keep(&members, disks.clone(), recorders.clone(), current.clone());
    let machine = machine.map_err(Error::Start)?;
    let seen = Seen { disks, machine, log: config.log.clone(), alerts: alerts.history().clone() };
    let (base, audit) = (bound.base(), state.join("audit.log"));
    let station = Station::new(
        members,
        recorders,
        jobs,
        schedules.clone(),
        program,
        news.clone(),
        current.clone(),
        seen,
        sessions,
        base,
        audit,
    );
    let station = station.with_demo(demo.as_ref().map(Demo::controls));
    let station = Arc::new(station.with_transfers(transfers));
    let login_url = bound.has_web().then(|| station.login_url()).transpose();
    let mut login_url = login_url.map_err(Error::Start)?;
    if demo.is_some() {
        // The page that a demonstration begins with.
        login_url = login_url.map(|it| it + "/stream");
    }
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().map_err(Error::Start)?;
    let (urls, address) = (bound.urls(), bound.address());
    let fingerprint = bound.certificate.as_ref().map(|it| it.fingerprint());
    let limits = (current.get().limits, current.get().patience);
    let entrance = Entrance::new(limits.0, limits.1, router(station.clone()));
    let (certificate, directory) = (bound.certificate.clone(), state.clone());
    let vsi_s = vsi.as_ref().map(vsi::Port::address);
    let mark6 = vsi.as_ref().and_then(vsi::Port::mark6);
    let receive = exchange.listening.clone();
    let served = runtime.block_on(async {
        let _files = bound.accept(&entrance)?;
        let found = count;
        let vsi = vsi_s;
        let ready = Ready {
            address,
            urls,
            login_url,
            fingerprint,
            found,
            state,
            problems,
            vsi,
            mark6,
            receive,
        };
        tell(&Told::Ready(Box::new(ready.clone())));
        manager.ready(&format!("serving on {}", ready.urls.join(", ")));
        let reloading = Reloading {
            file: config.station.clone(),
            settings: current,
            entrance,
            certificate: certificate.zip(Some(directory)),
            alerts,
            schedules,
            station,
        };
        follow(config, stop, &manager, reloading, &followed, news, &mut tell).await;
        Ok::<(), Error>(())
    });
    drop(demo);
    manager.stopping();
    drop(exchange);
    // A request that waits for a disk does not hold the end up.
    runtime.shutdown_background();
    served
}

/// Reloads and feeds the watchdog, until the daemon is stopped.
async fn follow(
    config: &Config,
    stop: &StopHandle,
    manager: &Manager,
    reloading: Reloading,
    recorders: &Recorders,
    mut news: watch::Receiver<Arc<str>>,
    tell: &mut impl FnMut(&Told),
) {
    let reloading = Arc::new(reloading);
    let mut running: Option<tokio::task::JoinHandle<Reloaded>> = None;
    let (mut fed, mut fresh, mut stands) = (Instant::now(), Instant::now(), None);
    let mut movement = Movement::default();
    while !stop.is_requested() {
        if running.is_none() && config.reload.swap(false, Ordering::SeqCst) {
            manager.reloading();
            let reloading = reloading.clone();
            // It reads files, which may wait for a disk.
            running = Some(tokio::task::spawn_blocking(move || reloading.reload()));
        }
        if running.as_ref().is_some_and(tokio::task::JoinHandle::is_finished)
            && let Some(done) = running.take()
            && let Ok(reloaded) = done.await
        {
            manager.ready(&reloaded.to_string());
            tell(&Told::Reloaded(reloaded));
        }
        if news.has_changed().unwrap_or(false) {
            news.mark_unchanged();
            fresh = Instant::now();
        }
        if manager.feeds_every().is_some_and(|every| fed.elapsed() >= every) {
            fed = Instant::now();
            let still = movement.step(Instant::now(), &recorders.all());
            let silent = || "the state of the station is not kept".to_owned();
            let now = still.or_else(|| (fresh.elapsed() >= movement::STILL).then(silent));
            match &now {
                None => manager.feed(),
                Some(why) if stands.as_ref() != Some(why) => {
                    tracing::error!(why, "the watchdog is not fed");
                    manager.status(why);
                }
                Some(_) => {}
            }
            stands = now;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// The transfers of the station, and their threads.
fn transfers_of(config: &Config) -> Result<(Transfers, transfers::Running), Error> {
    let receive = config.station.as_ref().and_then(|file| file.receive.as_ref());
    let usual = QueueOptions::default();
    let queue = config.station.as_ref().map_or(&usual, |file| &file.transfers);
    let transfers = Transfers::new(&config.members, config.demo.as_deref(), receive)?;
    let running = transfers.start(receive, queue)?;
    Ok((transfers, running))
}

/// The settings at the start.
fn settings_of(config: &Config) -> Result<Settings, Error> {
    match &config.station {
        Some(file) => Ok(file.settings.clone()),
        None => {
            let tokens = config.tokens.as_deref().map(Tokens::read).transpose()?;
            let (tokens, exports) = (tokens.unwrap_or_default(), config.exports.clone());
            Ok(Settings { tokens, exports, ..Settings::default() })
        }
    }
}

/// Where to listen. An address that other hosts reach needs TLS, and clients that can prove who they are.
fn listen_of(config: &Config, settings: &Settings) -> Result<Listen, Error> {
    let listen = match &config.station {
        Some(file) => file.listen.clone(),
        None if config.listen.ip().is_loopback() => {
            Listen { http: vec![config.listen], ..Listen::default() }
        }
        None => Listen { https: vec![config.listen], ..Listen::default() },
    };
    if let Some(address) = listen.http.iter().find(|it| !it.ip().is_loopback()) {
        return Err(Error::Clear { address: *address });
    }
    match listen.https.iter().find(|it| !it.ip().is_loopback()) {
        Some(address) if settings.tokens.is_empty() => Err(Error::Open { address: *address }),
        _ => Ok(listen),
    }
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
    fn an_address_that_other_hosts_reach_is_refused_without_tokens() {
        for address in ["0.0.0.0:8480", "192.168.1.5:8480", "[::]:8480"] {
            let config = Config {
                members: vec!["/nowhere".into()],
                listen: address.parse().unwrap(),
                tokens: None,
                station: None,
                reload: Arc::default(),
                program: "/nowhere".into(),
                demo: None,
                exports: None,
                vsi: None,
                log: Default::default(),
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
