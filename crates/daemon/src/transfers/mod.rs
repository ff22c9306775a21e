//! Transfers of the station: a listener for other sites, and the queue of what is sent to them.
//!
//! ```text
//!  other sites ──► listener ──► the store of the station          REST, `fullbore transfers`, rules
//!                     │ events                                          │
//!                     ▼                                                 ▼
//!                  arrivals ──► state: 1 look per second ◄─────── queue (a folder) ──► runner ──► other sites,
//!                                 │                                                               object stores
//!                                 └──► status, metrics, alerts
//! ```
//!
//! Both are those of `fullbore receive` and `fullbore transfers run`, on threads of the daemon. The queue is the folder of
//! the daemon's user, so the command line sees the same one (`docs/decisions/0044-the-queue-of-the-station.md`). A daemon
//! that dies leaves nothing to repair: the next one begins with the same folder, and each destination says what it has.

mod listener;
mod runner;
pub mod state;

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::hint::Hint;
use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_recording::transfers::answers::{InvitationAnswer, OpenAnswer, PeerAnswer, Sites};
use fullbore_recording::transfers::arrivals::Arrivals;
pub use fullbore_recording::transfers::arrivals::Listening;
use fullbore_transfer::channel::LinkSettings;
use fullbore_transfer::error::TransferError;
use fullbore_transfer::governor::{Limits, Window};
use fullbore_transfer::identity::{
    self, Identity, IdentityError, Peers, Permissions, open_invitations,
};
use fullbore_transfer::queue::{Queue, QueueError};

pub use self::state::TransferState;

/// How long the daemon waits at its end until transfers have stopped. One that waits for a disk does not hold it up.
const UNTIL_STOPPED: Duration = Duration::from_secs(5);

/// How transfers use their link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkOptions {
    /// The most bytes per second of all together.
    pub rate: Option<u64>,
    /// The time of day in which they send, UTC.
    pub window: Option<Window>,
    /// Congestion control. None: the system's; on a WAN cubic, and BBR where losses hold that down.
    pub congestion: Option<String>,
}

impl LinkOptions {
    fn limits(&self) -> Limits {
        Limits { rate: self.rate, window: self.window }
    }

    fn settings(&self) -> LinkSettings {
        LinkSettings { congestion: self.congestion.clone(), rate: None }
    }
}

/// The listener for transfers of other sites.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveOptions {
    /// Its address. Port 0: any free port.
    pub listen: SocketAddr,
    /// Host and port by which other sites reach it, for invitations.
    pub address: Option<String>,
    /// Data connections that one transfer may have.
    pub connections: u16,
    /// Limits of what other sites fetch.
    pub link: LinkOptions,
}

/// How the queue runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueOptions {
    /// False: the daemon changes the queue, and another runner runs it.
    pub run: bool,
    /// Transfers that run at once.
    pub parallel: usize,
    /// Of these, transfers to one destination.
    pub per_destination: usize,
    /// Limits of what the queue sends.
    pub link: LinkOptions,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self { run: true, parallel: 2, per_destination: 1, link: LinkOptions::default() }
    }
}

/// The transfers of a station cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory of the queue.
    #[error(transparent)]
    Queue(#[from] QueueError),
    /// The listener.
    #[error(transparent)]
    Listener(#[from] TransferError),
    /// A thread.
    #[error("starting the threads of transfers")]
    Start(#[source] io::Error),
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Queue(error) => error.hint(),
            Self::Listener(TransferError::Listen { .. }) => Some(
                "does `fullbore receive` use the port? Stop it: the station takes its place".into(),
            ),
            Self::Listener(error) => error.hint(),
            Self::Start(_) => None,
        }
    }
}

/// The transfers of a station. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct Transfers(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The folder of the queue.
    queue: PathBuf,
    /// The folder of keys and known sites.
    keys: PathBuf,
    /// The members, as other processes find them.
    store: Vec<PathBuf>,
    /// By which other sites reach this one.
    address: Option<String>,
    arrivals: Arrivals,
    /// Why the runner cannot run, if it cannot.
    problem: Mutex<Option<String>>,
    state: Mutex<Arc<TransferState>>,
}

/// The threads of transfers. They end when this is dropped.
#[derive(Debug)]
pub struct Running {
    /// The listener, if there is one.
    pub listening: Option<Listening>,
    stop: Arc<StopHandle>,
    threads: Vec<JoinHandle<()>>,
}

impl Transfers {
    /// The transfers of a store. `demo`: the directory of a demonstration, whose queue is not that of the user.
    pub fn new(
        members: &[PathBuf],
        demo: Option<&Path>,
        receive: Option<&ReceiveOptions>,
    ) -> Result<Self, Error> {
        let queue = match demo {
            Some(directory) => directory.join("transfers"),
            None => fullbore_transfer::queue::default_directory()?,
        };
        // A service may have a directory for its state alone.
        let keys = identity::default_directory().unwrap_or_else(|_| queue.with_file_name("keys"));
        Ok(Self::in_folders(members, queue, keys, receive))
    }

    fn in_folders(
        members: &[PathBuf],
        queue: PathBuf,
        keys: PathBuf,
        receive: Option<&ReceiveOptions>,
    ) -> Self {
        // A member that is not there now has the path of the file. It keeps the others from nothing.
        let found = |path: &PathBuf| {
            path.canonicalize()
                .or_else(|_| std::path::absolute(path))
                .unwrap_or_else(|_| path.clone())
        };
        Self(Arc::new(Inner {
            queue,
            keys,
            store: members.iter().map(found).collect(),
            address: receive.and_then(|it| it.address.clone()),
            arrivals: Arrivals::default(),
            problem: Mutex::default(),
            state: Mutex::default(),
        }))
    }

    /// Starts the listener, the runner, and the thread that keeps the state current.
    pub fn start(
        &self,
        receive: Option<&ReceiveOptions>,
        queue: &QueueOptions,
    ) -> Result<Running, Error> {
        let stop = Arc::new(StopHandle::default());
        let mut running = Running { listening: None, stop: stop.clone(), threads: Vec::new() };
        if let Some(options) = receive {
            let (listening, thread) = listener::start(self, options, stop.clone())?;
            running.listening = Some(listening);
            running.threads.push(thread);
        }
        if queue.run {
            running.threads.push(runner::start(self, queue, stop.clone()).map_err(Error::Start)?);
        }
        running.threads.push(state::keep(self, stop).map_err(Error::Start)?);
        Ok(running)
    }

    /// The queue, as it is in its folder now.
    pub fn queue(&self) -> Result<Queue, QueueError> {
        Queue::open(&self.0.queue)
    }

    /// The members, as other processes find them.
    pub fn store(&self) -> &[PathBuf] {
        &self.0.store
    }

    /// What is known of transfers: at most some seconds old.
    pub fn state(&self) -> Arc<TransferState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same, with what the listener does at this moment.
    pub fn current(&self) -> TransferState {
        TransferState { receive: self.0.arrivals.state(), ..TransferState::clone(&self.state()) }
    }

    /// The transfers with other sites that began there, and what the listener told.
    pub fn arrivals(&self) -> &Arrivals {
        &self.0.arrivals
    }

    /// This site, and those that it knows.
    pub fn sites(&self) -> Result<Sites, IdentityError> {
        let keys = &self.0.keys;
        Ok(Sites {
            key: Identity::load_or_create(keys)?.fingerprint().to_string(),
            peers: Peers::load(keys)?.iter().map(PeerAnswer::from).collect(),
            invitations: open_invitations(keys)?.iter().map(OpenAnswer::from).collect(),
        })
    }

    /// The address for invitations, if the file gives one.
    pub fn address(&self) -> Option<&str> {
        self.0.address.as_deref()
    }

    /// Makes an invitation to this site.
    pub fn invite(
        &self,
        address: &str,
        may: Permissions,
        lifetime: Duration,
        name: Option<&str>,
    ) -> Result<InvitationAnswer, IdentityError> {
        let keys = &self.0.keys;
        let key = Identity::load_or_create(keys)?.fingerprint();
        let invitation = identity::invite(keys, address, key, may, lifetime, name)?;
        let lifetime_ns = i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX / 4);
        let expires = Clock::new().now().plus_ns(lifetime_ns).to_string();
        Ok(InvitationAnswer { invitation: invitation.to_string(), key: key.to_string(), expires })
    }

    /// Withdraws an invitation. Returns false if there is none.
    pub fn withdraw(&self, id: &str) -> Result<bool, IdentityError> {
        identity::withdraw(&self.0.keys, id)
    }

    /// Forgets a site.
    pub fn forget(&self, name_or_key: &str) -> Result<PeerAnswer, IdentityError> {
        identity::remove(&self.0.keys, name_or_key).map(|peer| PeerAnswer::from(&peer))
    }

    fn set_problem(&self, problem: Option<String>) {
        *self.0.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    fn problem(&self) -> Option<String> {
        self.0.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        let until = Instant::now() + UNTIL_STOPPED;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            if thread.is_finished() {
                // One that panicked has said why.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests;
