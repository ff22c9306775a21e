//! How fast a transfer may send now: the user's cap and time window, and what the recorder on this host needs.
//!
//! ```text
//!  locks, load files, sockets, pressure ──► host ──► machine ──► allowance ──► connections
//!                                        every 40 ms                 ▲
//!                                                    cap ──► bucket ─┘
//! ```
//!
//! Recording comes first: a transfer pauses within 100 ms when the memory of a recorder fills, its receive queue grows,
//! or anything is dropped (`machine`). A pause means that connections send nothing. Their pacing stays as it is, since
//! congestion control forgets a path on which the pacing was lowered.

mod bucket;
mod host;
mod machine;
mod shares;
mod window;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::sys::sched;

use self::bucket::Bucket;
pub use self::host::Host;
pub use self::machine::{Machine, Observation};
use self::shares::Shares;
pub use self::window::{Window, WindowError};

/// Time between two observations of the host.
const PERIOD: Duration = Duration::from_millis(40);

/// The niceness of threads of a transfer beside a recorder.
const NICENESS: i32 = 19;

/// The limits of a transfer, from its user.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// The most bytes per second.
    pub rate: Option<u64>,
    /// The time of day in which to send, UTC.
    pub window: Option<Window>,
}

/// What a transfer may do now, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowance {
    /// Send at up to this many bytes per second; without one, as fast as it goes.
    Go(Option<u64>),
    /// Send nothing for now.
    Pause(Reason),
}

/// The reason for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Outside the time window.
    OutsideWindow,
    /// The recorder needs the machine.
    Recording(Signal),
}

/// A sign that the recorder needs the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// The memory of a recorder fills.
    Ring {
        /// Thousandths in use.
        permille: u32,
    },
    /// Frames arrived when no block was free.
    Overrun,
    /// A receive queue grows.
    ReceiveQueue {
        /// Bytes in it.
        bytes: u64,
    },
    /// A socket dropped datagrams.
    Drops,
    /// The host could not be observed in time.
    Busy,
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowance::Go(None) => write!(f, "not limited"),
            Allowance::Go(Some(rate)) => write!(f, "capped at {}", ByteRate(*rate)),
            Allowance::Pause(reason) => reason.fmt(f),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::OutsideWindow => write!(f, "outside window"),
            Reason::Recording(signal) => write!(f, "yielding to recording: {signal}"),
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Signal::Ring { permille } => write!(f, "ring {} % full", permille / 10),
            Signal::Overrun => write!(f, "frames overrun"),
            Signal::ReceiveQueue { bytes } => {
                write!(f, "{} in a receive queue", ByteSize(*bytes))
            }
            Signal::Drops => write!(f, "packets dropped by a socket"),
            Signal::Busy => write!(f, "the host is busy"),
        }
    }
}

/// The governor of all transfers of a process, or the [share](Governor::share) of one of them. The host is watched until
/// the governor of all is dropped.
#[derive(Debug)]
pub struct Governor {
    shared: Arc<Shared>,
    role: GovernorRole,
}

#[derive(Debug)]
enum GovernorRole {
    All { watcher: Option<JoinHandle<()>> },
    Share(u64),
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    begun: Instant,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    bucket: Option<Bucket>,
    shares: Shares,
    recording: bool,
    closed: bool,
}

impl Governor {
    /// Starts to watch this host for the recorders that publish their load.
    pub fn start(limits: Limits) -> Self {
        Self::start_on(limits, &[])
    }

    /// The same, and watches the members with these roots for scans that are being recorded.
    pub fn start_on(limits: Limits, roots: &[PathBuf]) -> Self {
        Self::watching(limits, Host::here(roots))
    }

    /// Starts to watch a host.
    pub fn watching(limits: Limits, mut host: Host) -> Self {
        let bucket = limits.rate.map(|rate| Bucket::new(rate, host.now()));
        let mut machine = Machine::new(limits);
        let seen = host.observe();
        machine.step(&seen);
        let recording = seen.recording;
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                machine,
                bucket,
                shares: Shares::default(),
                recording,
                closed: false,
            }),
            changed: Condvar::new(),
            begun: host.begun(),
        });
        let watched = shared.clone();
        let thread = std::thread::Builder::new().name("transfer watch".into());
        // Without the thread, observations are late: the transfer pauses while a recorder is known, and else goes on.
        let watcher = thread.spawn(move || watched.watch(host)).ok();
        Self { shared, role: GovernorRole::All { watcher } }
    }

    /// The share of one transfer. All shares together stay below the cap, with the same rate for each destination and for
    /// each transfer to it. The transfer can have a cap of its own.
    pub fn share(&self, destination: &str, rate: Option<u64>) -> Self {
        let at = self.shared.begun.elapsed();
        let number = self.shared.lock().shares.add(destination, rate, at);
        Self { shared: self.shared.clone(), role: GovernorRole::Share(number) }
    }

    /// Gives a share another cap of its own.
    pub fn set_rate(&self, rate: Option<u64>) {
        if let GovernorRole::Share(number) = self.role {
            let at = self.shared.begun.elapsed();
            self.shared.lock().shares.set_rate(number, rate, at);
        }
    }

    /// Waits until sending is allowed, at most this long; returns the allowance.
    pub fn wait(&self, most: Duration) -> Allowance {
        let deadline = Instant::now() + most;
        let mut state = self.shared.lock();
        loop {
            let allowance = self.allowance(&state);
            let left = deadline.saturating_duration_since(Instant::now());
            if matches!(allowance, Allowance::Go(_)) || left.is_zero() || state.closed {
                return allowance;
            }
            state = self.shared.sleep(state, left.min(PERIOD));
        }
    }

    /// Waits while a recorder on this host needs the machine, at most this long; true if none does. Limits of the user do
    /// not count.
    pub fn wait_for_recorder(&self, most: Duration) -> bool {
        let deadline = Instant::now() + most;
        let mut state = self.shared.lock();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match state.machine.needed(self.shared.begun.elapsed()) {
                None => return true,
                Some(_) if left.is_zero() || state.closed => return false,
                Some(_) => state = self.shared.sleep(state, left.min(PERIOD)),
            }
        }
    }

    /// The allowance now.
    pub fn now(&self) -> Allowance {
        self.allowance(&self.shared.lock())
    }

    fn allowance(&self, state: &State) -> Allowance {
        let own = match self.role {
            GovernorRole::All { .. } => None,
            GovernorRole::Share(number) => state.shares.rate(number),
        };
        match state.machine.allowance(self.shared.begun.elapsed()) {
            Allowance::Go(all) => Allowance::Go(own.into_iter().chain(all).min()),
            pause @ Allowance::Pause(_) => pause,
        }
    }

    /// Waits until some of these bytes may be sent, at most this long, and returns how many: 0 if none. All connections
    /// together stay below the cap in every second. The caller sends what it got before it asks again.
    pub fn grant(&self, wanted: u64, most: Duration) -> u64 {
        let deadline = Instant::now() + most;
        let mut state = self.shared.lock();
        loop {
            let at = self.shared.begun.elapsed();
            let left = deadline.saturating_duration_since(Instant::now());
            let pause = match state.machine.allowance(at) {
                Allowance::Go(_) => match self.take(&mut state, wanted, at) {
                    Ok(granted) => return granted,
                    Err(pause) => pause,
                },
                Allowance::Pause(_) => PERIOD,
            };
            if left.is_zero() || state.closed {
                return 0;
            }
            state = self.shared.sleep(state, left.min(pause));
        }
    }

    /// Takes some of these bytes. Without any, returns the time after which to ask again.
    fn take(&self, state: &mut State, wanted: u64, at: Duration) -> Result<u64, Duration> {
        let State { shares, bucket, .. } = state;
        match (&self.role, bucket) {
            (GovernorRole::Share(number), all) => shares.take(*number, all, wanted, at),
            (GovernorRole::All { .. }, None) => Ok(wanted),
            (GovernorRole::All { .. }, Some(all)) => match all.take(wanted, at) {
                0 => Err(all.wait_for(wanted)),
                granted => Ok(granted),
            },
        }
    }

    /// True if a scan is being recorded on this host.
    pub fn is_recording(&self) -> bool {
        self.shared.lock().recording
    }
}

impl Drop for Governor {
    fn drop(&mut self) {
        match &mut self.role {
            GovernorRole::Share(number) => self.shared.lock().shares.remove(*number),
            GovernorRole::All { watcher } => {
                self.shared.lock().closed = true;
                self.shared.changed.notify_all();
                if let Some(watcher) = watcher.take() {
                    // A watcher that panicked has printed its message on standard error.
                    let _ = watcher.join();
                }
            }
        }
    }
}

impl Shared {
    fn watch(&self, mut host: Host) {
        let mut state = self.lock();
        while !state.closed {
            drop(state);
            let seen = host.observe();
            state = self.lock();
            state.recording = seen.recording;
            let before = state.machine.allowance(seen.at);
            if state.machine.step(&seen) != before {
                self.changed.notify_all();
            }
            let next = Instant::now() + PERIOD;
            while !state.closed && Instant::now() < next {
                let left = next.saturating_duration_since(Instant::now());
                state = self.sleep(state, left);
            }
        }
    }

    fn sleep<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets every other thread have the CPU and the disks before the calling one. A thread of a transfer calls it once, when
/// a recording runs or may begin: without privileges it cannot raise its niceness again, and without competition it loses
/// nothing. Refused requests are ignored: the governor protects the recording, too.
pub fn beside() {
    let _ = sched::be_nice(NICENESS);
    let _ = sched::use_disks_last();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use fullbore_linux::load_file::LoadFile;

    use super::*;

    /// A governor that sees no recorder but the one of the test.
    fn governor(limits: Limits) -> (tempfile::TempDir, LoadFile, Governor) {
        let root = tempfile::tempdir().unwrap();
        let load = LoadFile::create(root.path(), 0).unwrap();
        let host = Host::under(root.path(), root.path(), &[]);
        (root, load, Governor::watching(limits, host))
    }

    #[test]
    fn a_transfer_pauses_while_the_ring_of_a_recorder_is_full_and_goes_on_after_it() {
        let (_root, mut load, governor) = governor(Limits::default());
        assert_eq!(governor.wait(Duration::from_secs(5)), Allowance::Go(None));
        // A host that is too busy to be observed counts as one that needs the machine.
        assert_eq!(governor.grant(1 << 20, Duration::from_secs(5)), 1 << 20);
        load.put(900, 0);
        let since = Instant::now();
        while matches!(governor.now(), Allowance::Go(_)) {
            assert!(since.elapsed() < Duration::from_secs(5), "not paused");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(governor.is_recording() && !governor.wait_for_recorder(Duration::ZERO));
        assert_eq!(governor.grant(1, Duration::ZERO), 0);
        // A recorder on a busy host may be late with its file, and so may be the watcher.
        let since = Instant::now();
        while governor.grant(1, Duration::from_millis(20)) == 0 {
            load.put(100, 0);
            assert!(since.elapsed() < Duration::from_secs(10), "not resumed: {}", governor.now());
        }
    }

    #[test]
    fn many_connections_stay_below_the_cap() {
        const CAP: u64 = 10_000_000;
        let (_root, _load, governor) = governor(Limits { rate: Some(CAP), ..Limits::default() });
        let (begun, sent) = (Instant::now(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let is_short = || sent.load(Ordering::Relaxed) <= CAP / 20;
                    while begun.elapsed() < Duration::from_millis(500) || is_short() {
                        let granted = governor.grant(1 << 20, Duration::from_millis(50));
                        sent.fetch_add(granted, Ordering::Relaxed);
                    }
                });
            }
        });
        let most = (CAP as f64 * (begun.elapsed().as_secs_f64() + 0.05)) as u64;
        let sent = sent.into_inner();
        assert!(sent <= most, "{sent} bytes, more than {most}");
    }

    #[test]
    fn shares_stay_below_the_cap_together_and_are_equal() {
        const CAP: u64 = 10_000_000;
        let (_root, _load, governor) = governor(Limits { rate: Some(CAP), ..Limits::default() });
        let (one, other) = (governor.share("x", None), governor.share("y", None));
        let begun = Instant::now();
        let (mut one, mut other) = ((one, 0), (other, 0));
        // One thread asks for both: a kernel that runs one of two threads first would be no fault of the shares.
        while one.1 + other.1 < CAP / 2 {
            for (share, got) in [&mut one, &mut other] {
                *got += share.grant(1 << 16, Duration::ZERO);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let ((_one, one), (_other, other)) = (one, other);
        let most = (CAP as f64 * (begun.elapsed().as_secs_f64() + 0.05)) as u64;
        assert!(one + other <= most, "{one} and {other}, more than {most}");
        assert!(one.abs_diff(other) < CAP / 20, "{one} and {other}");
        let slow = governor.share("z", Some(1000));
        assert_eq!(slow.now(), Allowance::Go(Some(1000)));
        slow.set_rate(None);
        assert_eq!(slow.now(), Allowance::Go(Some(CAP)));
    }

    #[test]
    fn the_reason_is_told() {
        let told = [
            Allowance::Go(None),
            Allowance::Go(Some(125_000_000)),
            Allowance::Pause(Reason::OutsideWindow),
            Allowance::Pause(Reason::Recording(Signal::Ring { permille: 627 })),
            Allowance::Pause(Reason::Recording(Signal::ReceiveQueue { bytes: 2_000_000 })),
        ];
        assert_eq!(
            told.map(|it| it.to_string()),
            [
                "not limited",
                "capped at 1.00 Gbit/s",
                "outside window",
                "yielding to recording: ring 62 % full",
                "yielding to recording: 2.00 MB in a receive queue",
            ]
        );
    }

    #[test]
    fn a_thread_beside_a_recorder_is_nice() {
        std::thread::spawn(|| {
            beside();
            assert_eq!(sched::treatment().unwrap().nice, NICENESS);
        })
        .join()
        .unwrap();
    }
}
