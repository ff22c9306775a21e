//! The truth of a run: the frames sent, for comparison with an account.
//!
//! Lists hold *places*: the place of a frame counts the frames of its port from frame 0 of the first second, place =
//! index × threads + rank of the thread, as in [`crate::generate`]. The truth of a single thread holds indices instead.

use std::collections::BTreeMap;

use fullbore_core::gap::Ranges;
use fullbore_time::Tai;
use serde::{Serialize, Serializer};

use super::fault::{Damage, Faults};
use super::payload::PayloadSource;
use super::vita49::Vita49Form;

/// The fates of the frames of a port, or of one of its threads.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// The first frame to send.
    pub first: Option<i64>,
    /// The last one.
    pub last: Option<i64>,
    /// Frames to send: all from first to last.
    pub meant: u64,
    /// Frames sent whole, each counted once.
    pub sent: u64,
    /// The first frame sent whole.
    pub first_sent: Option<i64>,
    /// The last one, by its number.
    pub last_sent: Option<i64>,
    /// Frames dropped deliberately.
    pub dropped: Set,
    /// Frames not sent because the stream was silent.
    pub silent: Set,
    /// Frames sent damaged (and never whole), by kind.
    pub damaged: BTreeMap<Damage, Harm>,
    /// Frames that the kernel refused to send.
    pub refused: Set,
    /// Frames sent whole whose second count did not match their time.
    pub miscounted: Set,
    /// Frames sent a second time.
    pub duplicated: Vec<i64>,
    /// Frames sent after a higher one with a readable place, and the largest number of frames that overtook them.
    pub reordered: Vec<(i64, u64)>,
    /// Those of them that the rule for late frames delayed.
    pub late: Vec<(i64, u64)>,
    /// Datagrams of random content.
    pub rubbish: u64,
    /// Context and version packets.
    pub beside: u64,
    /// All datagrams sent.
    pub datagrams: u64,
    /// The highest frame sent whose place can be read.
    #[serde(skip)]
    highest: Option<i64>,
}

/// Damaged frames of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Harm {
    /// Frames whose place can still be read from the datagram.
    pub readable: Set,
    /// Frames whose place cannot be read.
    pub unreadable: Set,
}

/// A set of frames: `{"count": 3, "runs": [[17, 2], [40, 1]]}`; each run is its first frame and the number of frames.
#[derive(Clone, Debug, Default)]
pub struct Set(pub Ranges);

impl Set {
    pub(super) fn add(&mut self, frame: i64) {
        self.0.insert(frame..frame + 1);
    }

    /// The number of frames in the set.
    pub fn count(&self) -> u64 {
        self.0.total()
    }
}

impl Serialize for Set {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form {
            count: u64,
            runs: Vec<(i64, i64)>,
        }
        let runs = self.0.iter().map(|run| (run.start, run.end - run.start)).collect();
        Form { count: self.0.total(), runs }.serialize(serializer)
    }
}

/// The fate of a datagram, or of a frame without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Sent whole.
    Sent {
        /// True if delayed by the rule for late frames.
        late: bool,
    },
    /// Sent whole again.
    Copy,
    /// Sent damaged.
    Damaged {
        /// The kind of damage.
        damage: Damage,
        /// True if its place can still be read.
        readable: bool,
    },
    /// A datagram of random content was sent.
    Rubbish,
    /// A context or version packet was sent.
    Beside,
    /// Dropped deliberately.
    Dropped,
    /// Not sent because of a silence.
    Silent,
    /// A frame, whole or damaged, that the kernel refused.
    Refused,
    /// A copy, rubbish or context that the kernel refused; it is not counted.
    RefusedExtra,
}

impl Tally {
    /// Records the fate of a frame.
    #[inline]
    pub fn note(&mut self, frame: i64, done: Done) {
        if !matches!(done, Done::Copy | Done::Rubbish | Done::Beside | Done::RefusedExtra) {
            self.meant += 1;
            self.first = Some(self.first.map_or(frame, |first| first.min(frame)));
            self.last = Some(self.last.map_or(frame, |last| last.max(frame)));
        }
        match done {
            Done::Sent { late } => self.sent(frame, late),
            Done::Copy => {
                self.datagrams += 1;
                self.duplicated.push(frame);
            }
            Done::Damaged { damage, readable } => {
                self.datagrams += 1;
                let harm = self.damaged.entry(damage).or_default();
                let set = if readable { &mut harm.readable } else { &mut harm.unreadable };
                set.add(frame);
                self.highest = self.highest.max(readable.then_some(frame));
            }
            Done::Rubbish => {
                self.datagrams += 1;
                self.rubbish += 1;
            }
            Done::Beside => {
                self.datagrams += 1;
                self.beside += 1;
            }
            Done::Dropped => self.dropped.add(frame),
            Done::Silent => self.silent.add(frame),
            Done::Refused => self.refused.add(frame),
            Done::RefusedExtra => {}
        }
    }

    #[inline]
    fn sent(&mut self, frame: i64, late: bool) {
        self.datagrams += 1;
        self.sent += 1;
        self.first_sent = Some(self.first_sent.map_or(frame, |first| first.min(frame)));
        self.last_sent = self.last_sent.max(Some(frame));
        if let Some(highest) = self.highest
            && highest > frame
        {
            let distance = (highest - frame) as u64;
            self.reordered.push((frame, distance));
            if late {
                self.late.push((frame, distance));
            }
        }
        self.highest = self.highest.max(Some(frame));
    }

    /// Frames sent damaged.
    pub fn damaged_count(&self) -> u64 {
        self.damaged.values().map(|harm| harm.readable.count() + harm.unreadable.count()).sum()
    }

    /// True if every frame has exactly one fate.
    #[cfg(test)]
    pub fn balances(&self) -> bool {
        let apart = self.dropped.count() + self.silent.count() + self.refused.count();
        self.meant == self.sent + apart + self.damaged_count()
    }
}

/// The truth of one port.
#[derive(Clone, Debug, Serialize)]
pub struct StreamTruth {
    /// The name of the stream: the port, unless another name was given.
    pub name: String,
    /// The destination.
    pub target: String,
    /// `vdif`, `vtp`, `mark5b`, `vita49`, `difi`, `spead`, `rtp` or `raw`.
    pub format: &'static str,
    /// Bytes of each frame.
    pub frame_bytes: u32,
    /// Bytes of each whole datagram.
    pub datagram_bytes: u32,
    /// Frames per second of each thread.
    pub frames_per_second: u64,
    /// The threads, in the order in which their frames are sent.
    pub threads: Vec<u16>,
    /// The second of place 0, in UTC.
    pub first_second: Tai,
    /// The same in VDIF headers: reference epoch and seconds.
    pub vdif_second: Option<(u32, u32)>,
    /// The packet or sequence number of place 0, if the format has one. VITA-49 keeps its last four bits.
    pub first_number: Option<i64>,
    /// The stream id, samples and context of VITA-49 packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<Vita49Form>,
    /// Payload of place *n* is number `(n + payload_shift) mod payload count`.
    pub payload_shift: u64,
    /// The fates of the port's frames, by place.
    pub port: Tally,
    /// The fates of each thread's frames, by its own indices; only with several threads.
    pub by_thread: Vec<Tally>,
}

/// The truth of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Truth {
    /// The program and its version.
    pub software: String,
    /// The host's clock at the first datagram.
    pub started: Tai,
    /// The fault rules.
    pub faults: Faults,
    /// The payload source.
    pub payload: PayloadSource,
    /// The number of different payloads.
    pub payload_count: usize,
    /// The truth of each port.
    pub streams: Vec<StreamTruth>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_fate_is_written_down_once() {
        let mut tally = Tally::default();
        let damaged = Done::Damaged { damage: Damage::Truncated, readable: false };
        for (frame, done) in [
            (10, Done::Sent { late: false }),
            (11, Done::Dropped),
            (13, Done::Sent { late: false }),
            (12, Done::Sent { late: false }),
            (13, Done::Copy),
            (14, damaged),
            (15, Done::Silent),
            (16, Done::Refused),
            (17, Done::Sent { late: false }),
            (17, Done::Rubbish),
            (17, Done::Beside),
            (9, Done::Sent { late: true }),
        ] {
            tally.note(frame, done);
        }
        assert!(tally.balances());
        assert_eq!((tally.first, tally.last, tally.meant), (Some(9), Some(17), 9));
        assert_eq!((tally.sent, tally.datagrams), (5, 9));
        assert_eq!((tally.rubbish, tally.beside), (1, 1));
        assert_eq!(tally.reordered, [(12, 1), (9, 8)]);
        assert_eq!(tally.late, [(9, 8)]);
        assert_eq!(tally.duplicated, [13]);
        let json = serde_json::to_value(&tally).unwrap();
        assert_eq!(json["dropped"], serde_json::json!({"count": 1, "runs": [[11, 1]]}));
        assert_eq!(json["damaged"]["truncated"]["unreadable"]["count"], 1);
    }
}
