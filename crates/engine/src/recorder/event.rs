//! What a recording tells while it runs: one line of JSON each, or a screen.

use std::path::PathBuf;

use fullbore_core::account::Account;
use fullbore_core::completeness::Completeness;
use fullbore_core::demand::Sum;
use fullbore_core::manifest::{Manifest, Pages};
use fullbore_core::name::{Name, ScanName};
use fullbore_core::place::Placement;
use fullbore_core::time::Tai;
use serde::Serialize;

use crate::posting::Standing;

/// Takes events as they happen.
pub type Tell<'a> = dyn FnMut(&Event) + 'a;

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// How much block memory there will be, before any of it is taken.
    Memory(Memory),
    /// Everything is mapped, faulted in and listening.
    Armed(Armed),
    /// It is armed, and waits for the time at which its first scan begins: told several times a second.
    Awaiting {
        /// The scan.
        scan: ScanName,
        /// When it begins.
        begins: Tai,
        /// Seconds until then, by the host's clock as it goes now.
        seconds: f64,
    },
    /// A stream's first frames came.
    Opened {
        /// The scan.
        scan: ScanName,
        /// The stream.
        stream: Name,
        /// Bytes of its frames; 0 when they vary.
        frame_bytes: u32,
        /// Frames per second of each thread, where known.
        frames_per_second: Option<u64>,
    },
    /// How things stand, several times a second.
    Progress(Progress),
    /// Something that should be known, and does not end the recording.
    Warning {
        /// What.
        text: String,
    },
    /// Something that was done and is as it should be.
    Note {
        /// What.
        text: String,
    },
    /// A scan is finished.
    Sealed(Box<Sealed>),
    /// A scan is over, and no member took its books: they are told here.
    Unsealed {
        /// Why it is not sealed.
        why: String,
        /// Its manifest and accounts as they would have been written down.
        #[serde(flatten)]
        books: Box<Sealed>,
    },
}

/// How much block memory there will be, and why.
#[derive(Clone, Debug, Serialize)]
pub struct Memory {
    /// All of it.
    pub bytes: u64,
    /// What PandAs get of it.
    pub of_pandas: u64,
    /// Whether somebody asked for that much.
    pub asked: bool,
    /// The stall that it rides out, in milliseconds, where the rate is known beforehand.
    pub rides_out_ms: Option<u64>,
    /// What it should be by its reasons, where the rate is known beforehand.
    pub sum: Option<Sum>,
}

/// What was prepared.
#[derive(Clone, Debug, Serialize)]
pub struct Armed {
    /// The first scan.
    pub scan: ScanName,
    /// When.
    pub at: Tai,
    /// When its first scan begins, if it is to wait for a time.
    pub begins: Option<Tai>,
    /// Each source with the receive buffer that the kernel gave, in bytes.
    pub sources: Vec<(String, usize)>,
    /// Bytes of block memory, and whether all of it is locked.
    pub pool_bytes: u64,
    /// Whether all block memory is locked.
    pub locked: bool,
    /// What pages it is on, as the kernel says, if it does.
    pub pages: Option<Pages>,
    /// Where threads were to run, and why there.
    pub placement: Placement,
    /// Where they do run and how urgently, as the kernel says: capture threads, then writers.
    pub threads: Vec<Standing>,
    /// The niceness of the whole session, if it was raised for them.
    pub autogroup: Option<i32>,
    /// The disk set.
    pub members: Vec<MemberState>,
}

/// How a member stands.
#[derive(Clone, Debug, Serialize)]
pub struct MemberState {
    /// Its directory.
    pub path: PathBuf,
    /// Whether writes go through the page cache.
    pub buffered: bool,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes per second since the last progress.
    pub rate: u64,
    /// Bytes handed to it and not yet written.
    pub backlog_bytes: u64,
    /// Bytes free on it.
    pub free_bytes: u64,
    /// Longest time that writing a block took, in nanoseconds.
    pub longest_write_ns: u64,
    /// Why it takes no more data.
    pub failure: Option<String>,
}

/// How a stream stands.
#[derive(Clone, Debug, Serialize)]
pub struct StreamState {
    /// Its name.
    pub name: Name,
    /// Whether nothing of it has come yet.
    pub silent: bool,
    /// Frames that came and have a place.
    pub frames: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes per second since the last progress.
    pub rate: u64,
    /// Frames missing.
    pub missing: u64,
    /// Frames without a block.
    pub overrun: u64,
    /// Frames that failed their check.
    pub damaged: u64,
    /// Frames that came too late.
    pub late: u64,
    /// Datagrams that were no frames.
    pub foreign: u64,
    /// The most blocks in use at once, and blocks in all.
    pub high_water: (u64, u64),
    /// Blocks in use.
    pub used_blocks: u64,
    /// Bytes from the start of the stream that are safe on disk.
    pub durable_bytes: u64,
}

/// How a recording stands.
#[derive(Clone, Debug, Serialize)]
pub struct Progress {
    /// The scan being recorded.
    pub scan: ScanName,
    /// Seconds since it began.
    pub seconds: f64,
    /// Bytes received in it.
    pub bytes: u64,
    /// Bytes of it that are safe on disk.
    pub durable_bytes: u64,
    /// Its streams.
    pub streams: Vec<StreamState>,
    /// The disk set.
    pub members: Vec<MemberState>,
    /// Bytes free on all members that take data. Members of one file system share its room, which counts once.
    pub free_bytes: u64,
    /// Seconds until its limit, if it has one.
    pub seconds_left: Option<f64>,
    /// Seconds until the disk set is full at this rate, redundancy counted.
    pub seconds_until_full: Option<f64>,
}

/// A finished scan.
#[derive(Clone, Debug, Serialize)]
pub struct Sealed {
    /// Its manifest.
    pub manifest: Manifest,
    /// The account of each of its streams.
    pub accounts: Vec<Account>,
    /// Whether it is complete.
    #[serde(flatten)]
    pub completeness: Completeness,
}

impl Sealed {
    /// A scan that is over, by its manifest and the accounts of its streams.
    pub fn of(manifest: Manifest, accounts: Vec<Account>) -> Self {
        let completeness = Completeness::of_accounts(&manifest, &accounts);
        Self { manifest, accounts, completeness }
    }
}
