//! The recorder, as a dialect sees it. Everything here answers from memory at once.

use fullbore_time::Tai;

/// A recorder that a dialect commands.
///
/// A runtime is a name under which a client keeps a set-up; each has at most one recording at a time.
pub trait Station {
    /// The time.
    fn now(&self) -> Tai;

    /// What it is.
    fn identity(&self) -> &Identity;

    /// What the recording of a runtime does.
    fn activity(&self, runtime: &str) -> Activity;

    /// Begins a recording, or lets it begin as soon as that which is stopping has ended. It returns before the recorder has
    /// started; what fails later is among [`problems`](Self::problems).
    fn start(&mut self, runtime: &str, plan: Plan) -> Result<(), String>;

    /// Asks the recording of a runtime to end. What it holds is written first.
    fn stop(&mut self, runtime: &str);

    /// The members and their space.
    fn space(&self) -> Space;

    /// The stored scans in the order in which they began.
    fn scans(&self) -> &[StoredScan];

    /// What is known of a stored scan. [`Facts::Reading`] begins to read it.
    fn facts(&mut self, scan: &str) -> Facts;

    /// What is known of a file in the directory for files. [`Facts::Reading`] begins to read it.
    fn file_facts(&mut self, file: &str) -> Facts;

    /// Begins to copy a part of a scan into a file.
    fn copy(&mut self, runtime: &str, job: CopyJob) -> Result<(), String>;

    /// The newest copy of a runtime.
    fn copying(&self, runtime: &str) -> Option<CopyState>;

    /// What went wrong since the last call, in order.
    fn problems(&mut self) -> Vec<Problem>;
}

/// What a recorder is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The name of the host.
    pub host: String,
    /// The version of the program.
    pub version: String,
    /// The operating system.
    pub system: String,
}

/// What a recording does.
#[derive(Clone, Debug, PartialEq)]
pub enum Activity {
    /// There is none.
    Idle {
        /// The last one.
        last: Option<Ended>,
    },
    /// One runs.
    Running(Running),
}

/// A recording that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The label that was asked for.
    pub asked: String,
    /// The scan.
    pub scan: String,
    /// When it ended.
    pub at: Tai,
    /// True if it was asked to end.
    pub was_stopped: bool,
    /// Why it ended by itself.
    pub problem: Option<String>,
}

/// A command that comes again within this time is taken for a repetition: a client waits a few seconds for an answer,
/// connects again and sends it once more.
const REPEATED_WITHIN_NS: i64 = 30_000_000_000;

impl Ended {
    /// True if the command that stopped it may come again, because its answer was lost.
    pub(crate) fn was_stopped_now(&self, now: Tai) -> bool {
        self.was_stopped && self.is_recent(now)
    }

    /// True if it is the recording that this label asked for, and has failed a moment ago.
    pub(crate) fn has_failed_now(&self, asked: &str, now: Tai) -> bool {
        self.asked == asked && !self.was_stopped && self.problem.is_some() && self.is_recent(now)
    }

    fn is_recent(&self, now: Tai) -> bool {
        now.since(self.at) < REPEATED_WITHIN_NS
    }
}

/// A recording that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// The label that was asked for.
    pub asked: String,
    /// The scan, whose name has a letter more if the label was taken.
    pub scan: String,
    /// Its number among the recordings of this station.
    pub number: u64,
    /// Its phase.
    pub phase: Phase,
    /// What it has received.
    pub traffic: Traffic,
}

/// The phase of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The recorder maps its memory and opens its sockets.
    Starting,
    /// Data that arrives is recorded.
    On,
    /// It was asked to end, and writes what it holds.
    Stopping,
}

/// What a recording has received.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Bytes per second at the moment.
    pub rate: u64,
    /// Frames that arrived and have a place.
    pub frames: u64,
    /// Frames that are not recorded, for any reason.
    pub lost: u64,
    /// Frames that arrived when no block was free. They are among those lost.
    pub overrun: u64,
    /// Datagrams that are no frames.
    pub foreign: u64,
    /// The share of block memory in use, 0 to 1.
    pub fill: f64,
}

/// The members of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Their directories.
    pub members: Vec<String>,
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes of their file systems.
    pub total_bytes: u64,
}

/// A scan in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredScan {
    /// Its name.
    pub name: String,
    /// Its bytes, fill included.
    pub bytes: u64,
}

/// What is known of a stored scan.
#[derive(Clone, Debug, PartialEq)]
pub enum Facts {
    /// All that is needed.
    Known(ScanFacts),
    /// It is being read.
    Reading,
    /// It cannot be read.
    Failed(String),
}

/// What `scan_check?` tells.
#[derive(Clone, Debug, PartialEq)]
pub struct ScanFacts {
    /// The format of its frames, such as `VDIF`; `None` if it is not one of VLBI.
    pub format: Option<String>,
    /// Bits of all channels of a sample, over all threads.
    pub tracks: Option<u32>,
    /// The time of the first frame.
    pub start: Option<Tai>,
    /// Seconds from the first frame to the end of the last.
    pub seconds: Option<f64>,
    /// Bits of samples per second of all tracks together.
    pub bit_rate: Option<f64>,
    /// Bytes of the frames that are not recorded; `None` if no number shows a loss.
    pub missing_bytes: Option<u64>,
    /// Bytes of a frame, its header included.
    pub frame_bytes: Option<u32>,
    /// Bytes stored, fill included.
    pub bytes: u64,
}

/// A recording to be begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The label that was asked for.
    pub asked: String,
    /// The name of the scan.
    pub scan: String,
    /// Endpoints of the sources.
    pub sources: Vec<String>,
    /// The wished size of chunk files in bytes.
    pub chunk_bytes: Option<u64>,
    /// The planned start. Without it, data is recorded as soon as it arrives.
    pub starts: Option<Tai>,
    /// Seconds after which it ends by itself.
    pub seconds: Option<u64>,
}

/// A part of a scan to be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyJob {
    /// The scan, or one stream of it by the name of its directory.
    pub scan: String,
    /// The name of the file in the directory for such files.
    pub file: String,
    /// The first byte.
    pub start: u64,
    /// The byte after the last.
    pub end: u64,
}

/// The state of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyState {
    /// What is copied.
    pub job: CopyJob,
    /// True until its end.
    pub is_active: bool,
    /// The next byte.
    pub current: u64,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// When.
    pub at: Tai,
    /// What.
    pub text: String,
}
