//! The account of a stream: the expected frames, the outcome of each, and the certainty of both.
//!
//! The terms balance: `expected = written + missing + overrun + damaged + late + not_transferred`. Each term is defined
//! once, here.
//! Beside the terms are the [`DropCounter`]es, the counters of every layer before and after. The [`Verdict`] follows
//! from both.

mod document;

use std::fmt;

use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

use crate::clock_check::ClockOffset;
use crate::completeness::{Completeness, grouped};
use crate::gap::{Cause, Gap};
use crate::high_water::HighWaterHistory;

pub use self::document::DocumentError;

/// The terms of the balance, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Frames from the first to the last of the scan, by the stream's own count.
    pub expected: u64,
    /// Frames that arrived and are in the recording.
    pub written: u64,
    /// Frames that never reached this host.
    pub missing: u64,
    /// Frames that arrived while no block was free, or whose block no member accepted.
    pub overrun: u64,
    /// Frames that failed their own check (length, header) although their index was known.
    pub damaged: u64,
    /// Frames that arrived after their position was written.
    pub late: u64,
    /// Frames of the source of an incomplete copy that have not arrived here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_transferred: u64,
}

impl Terms {
    /// Returns the sum of all terms except `expected`. The sum saturates, because the terms of a damaged account may be
    /// absurd.
    pub fn sum(&self) -> u64 {
        let lost = [self.missing, self.overrun, self.damaged, self.late, self.not_transferred];
        lost.into_iter().fold(self.written, u64::saturating_add)
    }

    /// True if the terms balance.
    pub fn balance(&self) -> bool {
        self.expected == self.sum()
    }

    /// Adds the terms of another flow.
    pub fn add(&mut self, other: &Terms) {
        for (term, more) in [
            (&mut self.expected, other.expected),
            (&mut self.written, other.written),
            (&mut self.missing, other.missing),
            (&mut self.overrun, other.overrun),
            (&mut self.damaged, other.damaged),
            (&mut self.late, other.late),
            (&mut self.not_transferred, other.not_transferred),
        ] {
            *term = term.saturating_add(more);
        }
    }
}

/// The number by which the frames of a stream are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountedBy {
    /// The time in each frame (VDIF second and frame number).
    FrameTime,
    /// A packet sequence number before each frame; only in recordings of earlier versions.
    PacketNumber,
    /// A sequence field that the user described, the heaps of SPEAD, or the packet count of VITA-49 context.
    SequenceField,
    /// The packet count of VITA-49 data without a time. It shows no loss of 16, 32 … packets in a row.
    PacketCount,
    /// The count of the device that took the samples: it reports the numbers sent and taken.
    ServerCount,
    /// Nothing: the format carries no number.
    Nothing,
    /// Nothing: the stream is bytes without frames, and its terms are numbers of bytes.
    Bytes,
}

impl CountedBy {
    /// True if no number shows a loss before this host.
    pub fn is_blind(self) -> bool {
        matches!(self, Self::Nothing | Self::Bytes)
    }

    /// The unit of the terms of an account.
    pub fn unit(self) -> &'static str {
        match self {
            Self::ServerCount => "sample",
            Self::Bytes => "byte",
            Self::FrameTime
            | Self::PacketNumber
            | Self::SequenceField
            | Self::PacketCount
            | Self::Nothing => "frame",
        }
    }
}

/// One end of a stream within a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Index of the frame, in the stream's own count.
    pub index: i64,
    /// The frame's own time, if the format carries one.
    pub time: Option<Tai>,
    /// Time of reception, by the host's clock.
    pub seen: Tai,
}

/// A fact about a stream's presence in the scan that its own numbers cannot show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Presence {
    /// No frame of the stream arrived.
    NeverCame,
    /// Datagrams arrived, but none of them was a frame of the stream's format.
    OnlyForeign {
        /// The number of datagrams.
        datagrams: u64,
    },
    /// Datagrams arrived, but the endpoint's own filter excluded all of them.
    OnlyExcluded {
        /// The number of datagrams.
        datagrams: u64,
    },
    /// Unknown: no data was kept, and the recorder that saw the frames left no account.
    NotKnown,
    /// Silent, and not expected: an undeclared sender opened the stream in one scan of the series, and sent nothing in
    /// the scans since.
    NotExpected,
    /// The first frame arrived this much after the scan was armed. The scan had a limit.
    CameLate {
        /// The duration without data, in nanoseconds.
        ns: i64,
    },
    /// The last frame arrived this much before the limit of the scan.
    WentEarly {
        /// The duration without data, in nanoseconds.
        ns: i64,
    },
    /// The first frame arrived this much after that of the earliest stream.
    StartedLate {
        /// The duration without data, in nanoseconds.
        ns: i64,
    },
    /// The last frame arrived this much before that of the latest stream.
    DiedEarly {
        /// The duration without data, in nanoseconds.
        ns: i64,
    },
    /// The first frame arrived this much after the planned start of the scan. For a stream that never arrived: the
    /// planned duration of the scan.
    LacksBeginning {
        /// The duration without data, in nanoseconds.
        ns: i64,
        /// The frames that belong to that time, if the rate is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        frames: Option<u64>,
    },
    /// The last frame arrived this much before the planned end of the scan.
    LacksEnd {
        /// The duration without data, in nanoseconds.
        ns: i64,
        /// The frames that belong to that time, if the rate is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        frames: Option<u64>,
    },
}

impl fmt::Display for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ns: i64| ns as f64 / 1e9;
        let that_is = |frames: Option<u64>| match frames {
            Some(1) => ": 1 frame is not covered".to_owned(),
            Some(frames) => format!(": {} frames are not covered", grouped(frames)),
            None => String::new(),
        };
        match *self {
            Presence::NeverCame => write!(f, "never came"),
            Presence::OnlyForeign { datagrams } => {
                write!(
                    f,
                    "{datagrams} datagrams arrived, but none of them is a frame of this format"
                )
            }
            Presence::OnlyExcluded { datagrams } => {
                write!(
                    f,
                    "{datagrams} datagrams arrived, but the filter of the endpoint excluded all of them"
                )
            }
            Presence::NotKnown => {
                write!(f, "not known: the recorder died before anything of it was durable")
            }
            Presence::NotExpected => {
                write!(f, "silent and not expected: it was there in one earlier scan only")
            }
            Presence::CameLate { ns } => {
                write!(f, "began {:.3} s after the scan was armed", seconds(ns))
            }
            Presence::WentEarly { ns } => {
                write!(f, "ended {:.3} s before the limit of the scan", seconds(ns))
            }
            Presence::StartedLate { ns } => write!(f, "started {:.3} s late", seconds(ns)),
            Presence::DiedEarly { ns } => write!(f, "ended {:.3} s before the scan", seconds(ns)),
            Presence::LacksBeginning { ns, frames } => {
                let (seconds, frames) = (seconds(ns), that_is(frames));
                write!(f, "does not cover the first {seconds:.3} s of the plan{frames}")
            }
            Presence::LacksEnd { ns, frames } => {
                let (seconds, frames) = (seconds(ns), that_is(frames));
                write!(f, "does not cover the last {seconds:.3} s of the plan{frames}")
            }
        }
    }
}

/// A layer between the network and the disk that counts its losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// A network interface (`rx_dropped`, `rx_missed_errors`, `rx_fifo_errors` …).
    Device,
    /// The backlog queue of a CPU (`softnet_stat`, second column).
    Backlog,
    /// UDP of this network namespace (checksum errors).
    Udp,
    /// The stream's own socket (`SO_MEMINFO`, drops).
    Socket,
    /// The packet ring that the stream was received from (`PACKET_STATISTICS`).
    PacketRing,
    /// The XDP sockets that the stream was received from (`XDP_STATISTICS`), and the recorder's own checks there.
    Xdp,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Layer::Device => "device",
            Layer::Backlog => "backlog",
            Layer::Udp => "udp",
            Layer::Socket => "socket",
            Layer::PacketRing => "packet ring",
            Layer::Xdp => "xdp",
        })
    }
}

/// A drop counter of one layer, read when the scan was armed and again after its last frame was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCounter {
    /// The layer that counts.
    pub layer: Layer,
    /// The kernel's name of the counter.
    pub counter: String,
    /// The interface, CPU or socket.
    pub scope: String,
    /// True if only this stream moves the counter.
    pub own: bool,
    /// True if one step may represent several frames (the kernel counts merged messages, not packets).
    pub coarse: bool,
    /// The value when the scan was armed.
    pub before: u64,
    /// The value after the last read.
    pub after: u64,
}

impl DropCounter {
    /// Returns the difference between both values.
    pub fn moved(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    /// The largest number of frames whose loss the counter explains. This is the difference itself, or `merged` times
    /// that (`merged`: the most frames in a message) for a socket or a ring that counted merged messages. An empty fill
    /// ring of XDP explains none: the packets that found no room are in `rx_dropped`, or in the device's counter. A wrong
    /// descriptor in it is no packet.
    pub fn explains(&self, merged: u64) -> u64 {
        if matches!(&*self.counter, "rx_fill_ring_empty_descs" | "rx_invalid_descs") {
            return 0;
        }
        match self.coarse && matches!(self.layer, Layer::Socket | Layer::PacketRing) {
            true => self.moved().saturating_mul(merged),
            false => self.moved(),
        }
    }

    /// True if both are the same counter.
    fn is(&self, other: &DropCounter) -> bool {
        self.layer == other.layer && self.counter == other.counter && self.scope == other.scope
    }
}

/// Counters of a layer that exist, or existed, and could not be read. Counters that a host does not have are not
/// included: they cannot have moved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnavailableCounter {
    /// The layer of the counters.
    pub layer: Layer,
    /// The interface, CPU or socket; empty: all of them.
    pub scope: String,
    /// The reason why the counters could not be read.
    pub why: String,
}

impl fmt::Display for UnavailableCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let space = if self.scope.is_empty() { "" } else { " " };
        let Self { layer, scope, why } = self;
        write!(f, "{layer}{space}{scope}: what it lost is not known: {why}")
    }
}

/// The certainty of the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No frame is missing, every frame that arrived is in the recording, and no counter of any layer moved.
    Proven,
    /// Counters that moved explain the missing frames. Or no frame is missing, but a counter moved or could not be
    /// read, or whole frames arrived that are not in the recording.
    Consistent,
    /// Frames are missing that no counter of this host explains: they were lost before it.
    Unexplained,
    /// The format carries no number to count by: only the losses of this host are known.
    Unproven,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Proven => "proven",
            Verdict::Consistent => "consistent",
            Verdict::Unexplained => "unexplained",
            Verdict::Unproven => "unproven",
        })
    }
}

/// The balance of one thread of a stream that holds several threads in order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Station, as in the frames.
    pub station: u16,
    /// Thread, as in the frames.
    pub thread: u16,
    /// Its own balance.
    pub terms: Terms,
    /// Its own gaps, by its own index.
    pub gaps: Vec<Gap>,
    /// First frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<Edge>,
    /// Last frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Edge>,
    /// Facts that the numbers alone cannot show: the flow began late, ended early or was not present in this scan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub presence: Vec<Presence>,
}

/// The state of the recorder when a stream ended. It gives the reason if no block was free or a member stopped
/// accepting data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Memory blocks in the stream's pool.
    pub pool_blocks: u64,
    /// The largest number of blocks in use at once since the scan was armed.
    pub high_water: u64,
    /// The members of the disk set.
    pub members: Vec<HostMember>,
    /// The largest number of blocks in use at once, over the time of the scan.
    #[serde(alias = "tide", default, skip_serializing_if = "Option::is_none")]
    pub high_water_history: Option<HighWaterHistory>,
}

/// The state of a member of the disk set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMember {
    /// The directory of the member.
    pub path: String,
    /// The longest time that writing a block took since the scan was armed, in nanoseconds.
    pub longest_write_ns: u64,
    /// The reason why the member stopped accepting data, if it did.
    pub failure: Option<String>,
}

/// The largest number of datagrams that the kernel merges into one message.
const MOST_MERGED: u64 = 128;

/// The largest size of such a message, in bytes.
const MERGED_BYTES: u64 = u16::MAX as u64;

/// The largest number of gaps that an account lists; further ones are only counted.
pub const GAPS_LISTED: usize = 100_000;

/// Written frames on members that failed and could not be read when the scan was sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreachable {
    /// The number of frames.
    pub frames: u64,
    /// The directories of the members.
    pub members: Vec<String>,
}

/// The part of a stream's source that has not arrived, in the account of a copy that was sealed incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotTransferred {
    /// Blocks that have not arrived.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks of the source, as far as it has told.
    pub of_blocks: u64,
    /// Bytes of the source, as far as it has told.
    pub of_bytes: u64,
    /// True if the source was still being recorded: what it recorded later is in no number here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_recording: bool,
}

/// The account of one stream of one scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The terms of the balance.
    pub terms: Terms,
    /// The number by which the frames were counted.
    pub counted_by: CountedBy,
    /// Bytes of received frames in the recording, without fill.
    pub bytes: u64,
    /// Fill frames in the recording, in place of absent frames.
    pub filled: u64,
    /// Written frames that the sender marked invalid.
    pub invalid: u64,
    /// Written frames in blocks that `recover` found without an index record: their checksums cover the data found
    /// then, not the data received. Also written frames in blocks whose sync failed and that were read back from a
    /// member without a later successful sync: they may not survive a loss of power.
    #[serde(default)]
    pub unverified: u64,
    /// Written frames that could not be reached when the scan was sealed, if any. `recover` removes it once they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<Unreachable>,
    /// The part of the source that has not arrived, if this is an incomplete copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_transferred: Option<NotTransferred>,
    /// Frames that arrived more than once (not part of the balance).
    pub duplicates: u64,
    /// Frames that arrived after one with a higher index and were still written to their position.
    pub reordered: u64,
    /// The largest distance of a reordered frame behind the newest one, in frames.
    pub reorder_extent: u64,
    /// Datagrams that were not frames of this stream and had no index: invalid data or other lengths.
    pub foreign: u64,
    /// Whole frames of this stream that were discarded because their index was not plausible: too far from the frames
    /// around them, or before the scan.
    #[serde(alias = "astray", default)]
    pub out_of_window: u64,
    /// Whole frames of the stream's format that arrived at its port and are in no recording: their length does not fit
    /// the port's memory, their threads exceed the limit of a port, or they are too few to open a stream.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unrecorded: u64,
    /// Datagrams that the user's own filter (`threads=`, `source=`) excluded.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub excluded: u64,
    /// Number of restarts of the sender's count.
    pub restarts: u64,
    /// First frame.
    pub first: Option<Edge>,
    /// Last frame.
    pub last: Option<Edge>,
    /// Facts that the numbers alone cannot show. In a stream of several threads, each flow has its own.
    pub presence: Vec<Presence>,
    /// Frames not in the recording, in order, at most [`GAPS_LISTED`].
    pub gaps: Vec<Gap>,
    /// Gaps beyond those listed.
    pub gaps_unlisted: u64,
    /// The threads of a stream that holds several in order of arrival; the sum of their terms is that of the stream.
    #[serde(default)]
    pub flows: Vec<Flow>,
    /// Frames whose second count does not match their time: a discontinuous packet number before them or in their
    /// extended data, a Mark 5B header of another second, or a mask that leaves no data valid.
    #[serde(default)]
    pub disagreements: u64,
    /// Written frames with channels that have no data, by the mask in their extended data.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub masked: u64,
    /// Written packets in which the sender says that it lost samples before them or within them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub sample_loss: u64,
    /// Written packets with samples out of range, as the sender says.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub over_range: u64,
    /// The drop counters of the layers that this stream passed.
    #[serde(alias = "witnesses")]
    pub drop_counters: Vec<DropCounter>,
    /// The counters that could not be read: they may have moved.
    #[serde(alias = "unread", default, skip_serializing_if = "Vec::is_empty")]
    pub unavailable_counters: Vec<UnavailableCounter>,
    /// The state of ring and writers; `None` for a recovered scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// The offset of the frames' time from the host's clock, if the frames carry a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
    /// The missing frames that the loss counters of this host explain. Counters that several streams share explain each
    /// frame once. `None` if no frame is missing, or a device counts for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<u64>,
    /// The resulting verdict.
    pub verdict: Verdict,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Account {
    /// Returns an empty account.
    pub fn new(counted_by: CountedBy) -> Self {
        Self {
            terms: Terms::default(),
            counted_by,
            bytes: 0,
            filled: 0,
            invalid: 0,
            unverified: 0,
            unreachable: None,
            not_transferred: None,
            duplicates: 0,
            reordered: 0,
            reorder_extent: 0,
            foreign: 0,
            out_of_window: 0,
            unrecorded: 0,
            excluded: 0,
            restarts: 0,
            first: None,
            last: None,
            presence: Vec::new(),
            gaps: Vec::new(),
            gaps_unlisted: 0,
            flows: Vec::new(),
            disagreements: 0,
            masked: 0,
            sample_loss: 0,
            over_range: 0,
            drop_counters: Vec::new(),
            unavailable_counters: Vec::new(),
            host: None,
            clock: None,
            explained: None,
            verdict: Verdict::Unproven,
        }
    }

    /// Lists a gap. It is joined to the previous one if both touch and have the same cause.
    pub fn push_gap(&mut self, gap: Gap) {
        if gap.count == 0 {
            return;
        }
        if let Some(last) = self.gaps.last_mut()
            && last.cause == gap.cause
            && last.first.checked_add_unsigned(last.count) == Some(gap.first)
        {
            last.count = last.count.saturating_add(gap.count);
        } else if self.gaps.len() < GAPS_LISTED {
            self.gaps.push(gap);
        } else {
            self.gaps_unlisted += 1;
        }
    }

    /// Returns the reason why frames were overrun, as far as ring and writers show it.
    pub fn why_overrun(&self) -> Option<String> {
        let host = self.host.as_ref().filter(|_| self.terms.overrun > 0)?;
        let failures: Vec<&str> =
            host.members.iter().filter_map(|member| member.failure.as_deref()).collect();
        if let Some(first) = failures.first() {
            // The operation that failed is in parentheses behind the reason.
            let mut reasons: Vec<&str> = Vec::new();
            for reason in failures.iter().filter_map(|why| why.split(" (").next()) {
                if !reasons.contains(&reason) {
                    reasons.push(reason);
                }
            }
            let (failed, members) = (failures.len(), host.members.len());
            return Some(match failed == members {
                true if reasons.len() == 1 => first.to_string(),
                true => format!("{failed} of {members} members failed: {}", reasons.join("; ")),
                false => format!("{failed} of {members} members failed: {first}"),
            });
        }
        let longest = host.members.iter().map(|member| member.longest_write_ns).max()?;
        (host.high_water >= host.pool_blocks).then(|| {
            format!(
                "all {} blocks of memory were in use; the longest write took {:.0} ms",
                host.pool_blocks,
                longest as f64 / 1e6
            )
        })
    }

    /// Returns the number of whole frames that arrived and were not kept.
    pub fn not_kept(&self) -> u64 {
        self.out_of_window.saturating_add(self.unrecorded)
    }

    /// Returns the completeness of the stream, in words.
    pub fn completeness(&self) -> Completeness {
        Completeness::of_account(self)
    }

    /// True if no frame arrived.
    pub fn never_came(&self) -> bool {
        let absent = |it: &Presence| {
            matches!(
                it,
                Presence::NeverCame | Presence::OnlyForeign { .. } | Presence::OnlyExcluded { .. }
            )
        };
        self.presence.iter().any(absent)
    }

    /// Returns the presence of a stream without frames: whether anything else arrived.
    pub fn absence(&self) -> Presence {
        match (self.foreign, self.excluded) {
            (0, 0) => Presence::NeverCame,
            (0, datagrams) => Presence::OnlyExcluded { datagrams },
            (datagrams, _) => Presence::OnlyForeign { datagrams },
        }
    }

    /// Marks each thread without data as never received, if other threads have data.
    pub fn name_absent_threads(&mut self) {
        let absent = self.flows.iter_mut().filter(|flow| flow.first.is_none());
        absent.for_each(|flow| flow.presence = vec![Presence::NeverCame]);
    }

    /// Frames listed in the gaps for `cause`.
    pub fn listed(&self, cause: Cause) -> u64 {
        let gaps = self.gaps.iter().filter(|gap| gap.cause == cause);
        gaps.fold(0, |sum, gap| sum.saturating_add(gap.count))
    }

    /// Returns the verdict that follows from terms, presence and drop counters.
    pub fn judge(&self) -> Verdict {
        if self.counted_by == CountedBy::ServerCount {
            // The device already judged its own counts; nothing here improves on that.
            let whole = self.terms.written == self.terms.expected && self.is_on_disk();
            return self.verdict.max(if whole { Verdict::Proven } else { Verdict::Consistent });
        }
        if self.counted_by.is_blind()
            || self.presence.contains(&Presence::NotKnown)
            || (self.terms.expected == 0 && self.presence.is_empty())
        {
            return Verdict::Unproven;
        }
        // A thread of one frame has no neighbours that could be missing.
        if self.terms.expected == 1 || self.flows.iter().any(|flow| flow.terms.expected == 1) {
            return Verdict::Unproven;
        }
        if self.not_transferred.is_some_and(|it| it.was_recording) {
            return Verdict::Unproven;
        }
        let still = self.unavailable_counters.is_empty()
            && self.drop_counters.iter().all(|counter| counter.moved() == 0);
        let whole = self.terms.written == self.terms.expected
            && self.not_kept() == 0
            && self.disagreements + self.sample_loss == 0;
        let explained = self.explained_by(|_| true);
        // A stream that never arrived, started late or ended early left no number that a counter could explain.
        if self.terms.missing > explained || self.lacks_an_end() || self.restarts > 0 {
            Verdict::Unexplained
        } else if self.counted_by == CountedBy::PacketCount && whole {
            Verdict::Unproven
        } else if whole && still && self.is_on_disk() {
            Verdict::Proven
        } else {
            Verdict::Consistent
        }
    }

    /// True if all written frames are certainly on disks that can be reached.
    fn is_on_disk(&self) -> bool {
        self.unverified == 0 && self.unreachable.is_none()
    }

    /// True if other streams or threads show that a part of it is missing. A start or an end within the scan shows no
    /// loss: senders start and stop at any time.
    fn lacks_an_end(&self) -> bool {
        let of_the_scan = |it: &Presence| {
            matches!(
                it,
                Presence::CameLate { .. } | Presence::WentEarly { .. } | Presence::NotExpected
            )
        };
        let of_flows = self.flows.iter().flat_map(|flow| &flow.presence);
        !self.presence.iter().chain(of_flows).all(of_the_scan)
    }

    /// Returns the largest number of frames whose loss the matching counters explain together.
    fn explained_by(&self, of: impl Fn(&DropCounter) -> bool) -> u64 {
        let merged = self.most_merged();
        let chosen = self.drop_counters.iter().filter(|counter| of(counter));
        together(chosen.map(|counter| (counter, counter.explains(merged))))
    }

    /// The largest number of its frames in one message.
    fn most_merged(&self) -> u64 {
        match self.bytes.checked_div(self.terms.written) {
            None | Some(0) => MOST_MERGED,
            Some(frame) => (MERGED_BYTES / frame).clamp(1, MOST_MERGED),
        }
    }

    /// Missing frames that only counters shared with other streams could explain. Losses that a device reports need no
    /// counter of this host.
    fn left_to_shared(&self) -> u64 {
        if self.counted_by == CountedBy::ServerCount {
            return 0;
        }
        self.terms.missing.saturating_sub(self.explained_by(|counter| counter.own))
    }
}

/// Returns the number of frames that these counters explain together. A frame is lost once but may be counted twice: a
/// device also counts the drops of a backlog, its driver those of an XDP socket, and a socket also counts the frames
/// discarded for their checksum.
fn together<'a>(counted: impl Iterator<Item = (&'a DropCounter, u64)>) -> u64 {
    let [mut device, mut behind, mut udp, mut socket, mut recorder] = [0u64; 5];
    for (counter, frames) in counted {
        let sum = match counter.layer {
            Layer::Device => &mut device,
            Layer::Backlog => &mut behind,
            Layer::Xdp if counter.counter.starts_with("rx_") => &mut behind,
            Layer::Udp => &mut udp,
            Layer::Socket => &mut socket,
            // The recorder has refused these packets itself.
            Layer::PacketRing | Layer::Xdp => &mut recorder,
        };
        *sum = sum.saturating_add(frames);
    }
    device.max(behind).saturating_add(socket.max(udp)).saturating_add(recorder)
}

/// Judges the streams of a scan. A shared counter explains its frames for all streams together, not for each. If the
/// streams miss more than that together, none of the streams that depend on it is explained.
pub fn judge_together<'a>(accounts: impl IntoIterator<Item = &'a mut Account>) {
    let mut all: Vec<&mut Account> = accounts.into_iter().collect();
    all.iter_mut().for_each(|account| account.verdict = account.judge());
    let leans =
        |account: &Account| account.verdict == Verdict::Consistent && account.left_to_shared() > 0;
    let leaning: Vec<&Account> = all.iter().map(|it| &**it).filter(|it| leans(it)).collect();
    let wanted = leaning.iter().map(|account| account.left_to_shared());
    if wanted.fold(0, u64::saturating_add) > counted_by_shared(&leaning) {
        let leaning = all.iter_mut().filter(|account| leans(account));
        leaning.for_each(|account| account.verdict = Verdict::Unexplained);
    }
    explain(all);
}

/// Returns the number of frames that the shared counters of these streams explain together: each counter once, with the
/// largest number that it explains.
fn counted_by_shared(accounts: &[&Account]) -> u64 {
    let mut shared: Vec<(&DropCounter, u64)> = Vec::new();
    for account in accounts {
        let merged = account.most_merged();
        for counter in account.drop_counters.iter().filter(|it| !it.own && it.moved() > 0) {
            let explains = match counter.layer {
                // The stream's own socket has the remainder.
                Layer::Udp => counter.moved().saturating_sub(account.explained_by(|it| it.own)),
                _ => counter.explains(merged),
            };
            match shared.iter_mut().find(|(known, _)| known.is(counter)) {
                Some((_, most)) => *most = explains.max(*most),
                None => shared.push((counter, explains)),
            }
        }
    }
    together(shared.into_iter())
}

/// Sets for each stream the number of missing frames that counters explain. Streams that are explained in full come
/// first. The remainder of the shared counters goes to the others, each frame once.
fn explain(mut accounts: Vec<&mut Account>) {
    accounts.retain(|it| it.terms.missing > 0 && it.counted_by != CountedBy::ServerCount);
    accounts.sort_by_key(|account| account.verdict != Verdict::Consistent);
    let leaning: Vec<&Account> =
        accounts.iter().map(|it| &**it).filter(|it| it.left_to_shared() > 0).collect();
    let mut counted = counted_by_shared(&leaning);
    for account in accounts {
        let missing = account.terms.missing;
        let by_own = account.explained_by(|counter| counter.own).min(missing);
        let by_all = account.explained_by(|_| true).min(missing);
        let by_shared = by_all.saturating_sub(by_own).min(counted);
        counted -= by_shared;
        account.explained = Some(match account.verdict {
            Verdict::Consistent => missing,
            _ => by_own + by_shared,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(missing: u64, counters: &[(u64, bool)]) -> Account {
        let mut account = Account::new(CountedBy::FrameTime);
        account.terms =
            Terms { expected: 1000, written: 1000 - missing, missing, ..Terms::default() };
        account.drop_counters = counters
            .iter()
            .map(|&(after, coarse)| DropCounter {
                layer: Layer::Socket,
                counter: "drops".into(),
                scope: "46220".into(),
                own: true,
                coarse,
                before: 0,
                after,
            })
            .collect();
        account
    }

    #[test]
    fn what_a_device_says_it_lost_is_explained_by_its_word() {
        let mut panda = account(300, &[]);
        panda.counted_by = CountedBy::ServerCount;
        panda.verdict = Verdict::Consistent;
        judge_together([&mut panda]);
        assert_eq!(panda.verdict, Verdict::Consistent);
    }

    #[test]
    fn the_verdict_follows_the_table_of_gaps_and_counters() {
        assert_eq!(account(0, &[(0, false)]).judge(), Verdict::Proven);
        assert_eq!(account(0, &[(3, false)]).judge(), Verdict::Consistent);
        assert_eq!(account(5, &[(5, false)]).judge(), Verdict::Consistent);
        assert_eq!(account(5, &[(1, true)]).judge(), Verdict::Consistent, "merged messages");
        assert_eq!(account(5, &[(4, false)]).judge(), Verdict::Unexplained);
        assert_eq!(account(5, &[]).judge(), Verdict::Unexplained);
        let mut uncounted = account(0, &[]);
        uncounted.counted_by = CountedBy::Nothing;
        assert_eq!(uncounted.judge(), Verdict::Unproven);
        let mut absent = Account::new(CountedBy::FrameTime);
        assert_eq!(absent.judge(), Verdict::Unproven);
        absent.presence = vec![Presence::NeverCame];
        assert_eq!(absent.judge(), Verdict::Unexplained);
        absent.presence = vec![Presence::NotKnown];
        assert_eq!(absent.judge(), Verdict::Unproven, "nobody can say that anything is missing");
    }

    #[test]
    fn nothing_is_proven_by_a_counter_that_could_not_be_read_or_with_frames_out_of_window() {
        let unread = || UnavailableCounter {
            layer: Layer::Socket,
            scope: "127.0.0.1:46220".into(),
            why: "Bad file descriptor".into(),
        };
        let mut blind = account(0, &[]);
        blind.unavailable_counters.push(unread());
        assert_eq!(blind.judge(), Verdict::Consistent);
        let mut lost = account(5, &[(4, false)]);
        lost.unavailable_counters.push(unread());
        assert_eq!(lost.judge(), Verdict::Unexplained, "what was not read explains nothing");
        let text = "socket 127.0.0.1:46220: what it lost is not known: Bad file descriptor";
        assert_eq!(unread().to_string(), text);
        let mut far = account(0, &[(0, false)]);
        far.out_of_window = 1;
        assert_eq!(far.judge(), Verdict::Consistent);
    }

    #[test]
    fn the_names_of_older_recordings_are_read() {
        let mut newer = account(3, &[(3, false)]);
        newer.out_of_window = 2;
        newer.unavailable_counters = vec![UnavailableCounter {
            layer: Layer::Socket,
            scope: "lo".into(),
            why: "gone".into(),
        }];
        let text = serde_json::to_string(&newer).unwrap();
        let older = [
            ("out_of_window", "astray"),
            ("drop_counters", "witnesses"),
            ("unavailable_counters", "unread"),
        ]
        .iter()
        .fold(text.clone(), |text, (new, old)| {
            assert!(text.contains(&format!("\"{new}\":")), "{new} in {text}");
            text.replace(&format!("\"{new}\":"), &format!("\"{old}\":"))
        });
        assert_ne!(older, text);
        assert_eq!(serde_json::from_str::<Account>(&older).unwrap(), newer);
        let host = r#"{"pool_blocks":4,"high_water":2,"members":[],"tide":{"step_ms":250,"blocks":[1,2]}}"#;
        let host: Host = serde_json::from_str(host).unwrap();
        assert_eq!(host.high_water_history.map(|it| it.blocks), Some(vec![1, 2]));
    }

    #[test]
    fn a_stream_that_came_or_went_while_the_scan_ran_has_lost_nothing_by_that() {
        let mut brief = account(0, &[(0, false)]);
        brief.presence = vec![Presence::CameLate { ns: 3 }, Presence::WentEarly { ns: 4 }];
        assert_eq!(brief.judge(), Verdict::Proven);
        brief.presence.push(Presence::DiedEarly { ns: 4 });
        assert_eq!(brief.judge(), Verdict::Unexplained);
    }

    fn shared(layer: Layer, coarse: bool, after: u64) -> DropCounter {
        let (counter, scope) = ("dropped".into(), "eth0".into());
        DropCounter { layer, counter, scope, own: false, coarse, before: 0, after }
    }

    #[test]
    fn a_shared_counter_explains_no_more_than_it_counted() {
        for layer in [Layer::Device, Layer::Backlog, Layer::Udp] {
            for coarse in [false, true] {
                let judged = |missing: u64, steps: u64| {
                    let mut account = account(missing, &[(0, false)]);
                    account.drop_counters.push(shared(layer, coarse, steps));
                    account.judge()
                };
                assert_eq!(judged(0, 0), Verdict::Proven);
                assert_eq!(judged(0, 1), Verdict::Consistent, "foreign traffic");
                assert_eq!(judged(5, 5), Verdict::Consistent);
                assert_eq!(judged(5, 4), Verdict::Unexplained);
                assert_eq!(judged(5, 0), Verdict::Unexplained);
            }
        }
    }

    #[test]
    fn a_merged_message_explains_as_many_frames_as_it_can_hold() {
        let judged = |missing: u64, frame_bytes: u64| {
            let mut account = account(missing, &[(1, true)]);
            account.bytes = account.terms.written * frame_bytes;
            account.judge()
        };
        assert_eq!(judged(8, 8032), Verdict::Consistent);
        assert_eq!(judged(9, 8032), Verdict::Unexplained, "64 KiB hold eight");
        assert_eq!(judged(128, 64), Verdict::Consistent);
        assert_eq!(judged(129, 64), Verdict::Unexplained);
        assert_eq!(judged(128, 0), Verdict::Consistent, "of unknown length");
        assert_eq!(judged(1, 100_000), Verdict::Consistent);
    }

    #[test]
    fn a_shared_counter_explains_the_loss_of_all_streams_together_once() {
        let judged = |streams: usize, missing: u64, counted: u64| {
            let mut all: Vec<Account> = (0..streams).map(|_| account(missing, &[])).collect();
            all.iter_mut()
                .for_each(|it| it.drop_counters.push(shared(Layer::Device, false, counted)));
            judge_together(&mut all);
            all.into_iter().map(|it| it.verdict).collect::<Vec<Verdict>>()
        };
        assert_eq!(judged(16, 5, 80), [Verdict::Consistent; 16]);
        assert_eq!(judged(16, 5, 79), [Verdict::Unexplained; 16]);
        assert_eq!(judged(16, 0, 0), [Verdict::Proven; 16]);
        assert_eq!(judged(16, 0, 5), [Verdict::Consistent; 16]);
        // The frames that a socket explains by itself do not count against the others.
        let mut mixed = [account(5, &[(5, false)]), account(5, &[]), account(0, &[])];
        mixed.iter_mut().for_each(|it| it.drop_counters.push(shared(Layer::Device, false, 5)));
        judge_together(&mut mixed);
        assert_eq!(mixed.map(|it| it.verdict), [Verdict::Consistent; 3]);
    }

    #[test]
    fn a_socket_of_several_streams_explains_what_it_counted_in_all_of_them_once() {
        let judged = |counted: u64, coarse: bool| {
            let counter = |account: &mut Account| {
                account.bytes = account.terms.written * 8032;
                let counter = shared(Layer::Socket, coarse, counted);
                account.drop_counters.push(counter);
            };
            let mut all = [account(5, &[]), account(5, &[]), account(5, &[])];
            all.iter_mut().for_each(counter);
            judge_together(&mut all);
            all.map(|it| it.verdict)
        };
        assert_eq!(judged(15, false), [Verdict::Consistent; 3]);
        assert_eq!(judged(14, false), [Verdict::Unexplained; 3]);
        assert_eq!(judged(2, true), [Verdict::Consistent; 3], "of eight frames each");
        assert_eq!(judged(1, true), [Verdict::Unexplained; 3]);
    }

    #[test]
    fn what_counters_account_for_is_said_of_each_stream_and_each_frame_once() {
        let explained = |mut all: Vec<Account>| {
            judge_together(&mut all);
            all.iter().map(|account| account.explained).collect::<Vec<_>>()
        };
        let with = |mut account: Account, layer, count| {
            account.drop_counters.push(shared(layer, false, count));
            account
        };
        assert_eq!(explained(vec![account(0, &[(9, false)])]), [None], "none is missing");
        assert_eq!(explained(vec![account(5, &[(9, false)])]), [Some(5)]);
        assert_eq!(explained(vec![account(573, &[(373, false)])]), [Some(373)]);
        let partly = with(account(9, &[(2, false)]), Layer::Device, 4);
        assert_eq!(explained(vec![partly]), [Some(6)]);
        let device = |missing| with(account(missing, &[]), Layer::Device, 8);
        assert_eq!(explained(vec![device(5), device(3)]), [Some(5), Some(3)]);
        assert_eq!(explained(vec![device(5), device(5)]), [Some(5), Some(3)], "eight in all");
        assert_eq!(explained(vec![device(20), device(5)]), [Some(3), Some(5)]);
        let mut brief = account(20, &[(0, false)]);
        brief.flows =
            vec![Flow { terms: Terms { expected: 1, ..Terms::default() }, ..Flow::default() }];
        brief.counted_by = CountedBy::FrameTime;
        assert_eq!(brief.judge(), Verdict::Unproven);
        assert_eq!(explained(vec![brief]), [Some(0)]);
        let mut panda = account(300, &[]);
        (panda.counted_by, panda.verdict) = (CountedBy::ServerCount, Verdict::Consistent);
        assert_eq!(explained(vec![panda]), [None], "its own word is the explanation");
    }

    #[test]
    fn ring_and_writers_tell_why_frames_were_overrun() {
        let member = |failure: Option<&str>| HostMember {
            path: "/data".into(),
            longest_write_ns: 250_000_000,
            failure: failure.map(str::to_owned),
        };
        let mut full = account(0, &[]);
        let host = |members| {
            Some(Host { pool_blocks: 64, high_water: 64, members, high_water_history: None })
        };
        full.host = host(vec![member(Some("the disk is full"))]);
        assert_eq!(full.why_overrun(), None, "nothing was");
        full.terms.overrun = 7;
        assert_eq!(full.why_overrun().unwrap(), "the disk is full");
        full.host = host(vec![member(None), member(Some("the disk is full"))]);
        assert_eq!(full.why_overrun().unwrap(), "1 of 2 members failed: the disk is full");
        full.host = host(vec![member(None)]);
        let slow = "all 64 blocks of memory were in use; the longest write took 250 ms";
        assert_eq!(full.why_overrun().unwrap(), slow);
    }

    #[test]
    fn counters_of_several_layers_explain_together() {
        let mut both = account(5, &[(2, false)]);
        both.drop_counters.push(shared(Layer::Backlog, false, 3));
        assert_eq!(both.judge(), Verdict::Consistent);
        both.drop_counters[1].after = 2;
        assert_eq!(both.judge(), Verdict::Unexplained);
    }

    #[test]
    fn what_two_layers_count_explains_one_loss() {
        let judged = |missing: u64, drops: u64, others: &[(Layer, u64)]| {
            let with = |missing| {
                let mut account = account(missing, &[(drops, false)]);
                let counters = others.iter().map(|&(layer, count)| shared(layer, false, count));
                account.drop_counters.extend(counters);
                account
            };
            let mut all = [with(missing), with(0)];
            judge_together(&mut all);
            assert_eq!(all[0].verdict, all[0].judge());
            all[0].verdict
        };
        // The device also counts the drops of the backlog.
        let both = [(Layer::Device, 5), (Layer::Backlog, 5)];
        assert_eq!(judged(5, 0, &both), Verdict::Consistent);
        assert_eq!(judged(6, 0, &both), Verdict::Unexplained);
        let more = [(Layer::Device, 7), (Layer::Backlog, 5)];
        assert_eq!(judged(7, 0, &more), Verdict::Consistent);
        assert_eq!(judged(8, 0, &more), Verdict::Unexplained);
        // The socket also counts the frames discarded for their checksum.
        let wrong = [(Layer::Udp, 5)];
        assert_eq!(judged(8, 8, &wrong), Verdict::Consistent);
        assert_eq!(judged(9, 8, &wrong), Verdict::Unexplained);
        assert_eq!(judged(5, 0, &wrong), Verdict::Consistent, "where the socket does not tell");
        assert_eq!(judged(13, 8, &[(Layer::Udp, 5), (Layer::Device, 5)]), Verdict::Consistent);
        assert_eq!(judged(14, 8, &[(Layer::Udp, 5), (Layer::Device, 5)]), Verdict::Unexplained);
    }

    #[test]
    fn a_packet_ring_explains_what_it_dropped_beside_wrong_checksums() {
        let judged = |missing: u64, coarse: bool| {
            let mut account = account(missing, &[]);
            account.bytes = account.terms.written * 8032;
            account.drop_counters =
                vec![shared(Layer::PacketRing, coarse, 5), shared(Layer::Udp, false, 2)];
            account.judge()
        };
        assert_eq!(judged(0, false), Verdict::Consistent, "no proof with a counter that moved");
        assert_eq!(judged(7, false), Verdict::Consistent);
        assert_eq!(judged(8, false), Verdict::Unexplained);
        assert_eq!(judged(42, true), Verdict::Consistent, "merged packets of eight frames");
        assert_eq!(judged(43, true), Verdict::Unexplained);
    }

    #[test]
    fn xdp_explains_what_it_dropped_and_an_empty_fill_ring_takes_the_proof_away() {
        let judged = |missing: u64, moved: &[(&str, u64)]| {
            let mut account = account(missing, &[]);
            let counter = |&(counter, moved): &(&str, u64)| {
                let shared = shared(Layer::Xdp, false, moved);
                DropCounter { counter: counter.to_owned(), ..shared }
            };
            account.drop_counters = moved.iter().map(counter).collect();
            account.judge()
        };
        let empty = ("rx_fill_ring_empty_descs", 9);
        assert_eq!(judged(0, &[("rx_dropped", 0)]), Verdict::Proven);
        assert_eq!(judged(0, &[empty]), Verdict::Consistent);
        assert_eq!(judged(1, &[empty]), Verdict::Unexplained);
        assert_eq!(
            judged(7, &[("rx_dropped", 5), ("rx_ring_full", 2), empty]),
            Verdict::Consistent
        );
        assert_eq!(
            judged(8, &[("rx_dropped", 5), ("rx_ring_full", 2), empty]),
            Verdict::Unexplained
        );
    }

    #[test]
    fn what_xdp_and_the_driver_both_count_explains_one_frame() {
        // veth counts each packet that a full XDP socket refuses.
        let judged = |missing: u64, checksums: u64| {
            let counter = |layer, counter: &str, moved| {
                let shared = shared(layer, false, moved);
                DropCounter { counter: counter.to_owned(), ..shared }
            };
            let mut account = account(missing, &[]);
            account.drop_counters = vec![
                counter(Layer::Device, "rx_dropped", 7),
                counter(Layer::Xdp, "rx_dropped", 7),
                counter(Layer::Xdp, "wrong_checksums", checksums),
            ];
            account.judge()
        };
        assert_eq!(judged(7, 0), Verdict::Consistent);
        assert_eq!(judged(8, 0), Verdict::Unexplained, "one was lost before this host");
        assert_eq!(judged(8, 1), Verdict::Consistent);
    }

    #[test]
    fn what_this_host_lost_itself_needs_no_counter() {
        let mut overrun = account(0, &[(0, false)]);
        (overrun.terms.written, overrun.terms.overrun) = (995, 5);
        assert_eq!(overrun.judge(), Verdict::Consistent);
        overrun.restarts = 1;
        assert_eq!(overrun.judge(), Verdict::Unexplained);
    }

    #[test]
    fn absurd_numbers_of_a_damaged_account_are_no_balance_and_no_panic() {
        let mut absurd = account(0, &[(u64::MAX, true)]);
        absurd.terms.missing = u64::MAX;
        absurd.terms.add(&absurd.terms.clone());
        absurd.push_gap(Gap { first: i64::MAX, count: u64::MAX, cause: Cause::Missing });
        absurd.push_gap(Gap { first: i64::MAX, count: u64::MAX, cause: Cause::Missing });
        assert!(!absurd.terms.balance());
        assert_eq!(absurd.listed(Cause::Missing), u64::MAX);
        assert_eq!(absurd.judge(), Verdict::Consistent);
    }

    #[test]
    fn touching_gaps_of_one_cause_are_one() {
        let mut account = account(0, &[]);
        for (first, cause) in [(5, Cause::Missing), (6, Cause::Missing), (7, Cause::Overrun)] {
            account.push_gap(Gap { first, count: 1, cause });
        }
        assert_eq!(account.gaps.len(), 2);
        assert_eq!(account.listed(Cause::Missing), 2);
    }
}
