//! What was really sent, written down so that an account can be compared with it.
//!
//! Lists hold *places*: the place of a frame counts the frames of its port from frame 0 of the first
//! second, place = index × threads + rank of the thread, as [`crate::generate`] tells. The truth of
//! one thread holds indices in their stead.

use std::collections::BTreeMap;

use fullbore_core::gap::Ranges;
use fullbore_core::time::Tai;
use serde::{Serialize, Serializer};

use super::fault::{Damage, Faults};
use super::payload::PayloadSource;

/// What was done with the frames of a port, or of one thread on it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Tally {
    /// The first frame meant to be sent.
    pub first: Option<i64>,
    /// The last one.
    pub last: Option<i64>,
    /// Frames meant: all from first to last.
    pub meant: u64,
    /// Frames sent whole, each counted once.
    pub sent: u64,
    /// The first frame sent whole.
    pub first_sent: Option<i64>,
    /// The last one, by its number.
    pub last_sent: Option<i64>,
    /// Frames dropped on purpose.
    pub dropped: Set,
    /// Frames not sent because the stream was silent.
    pub silent: Set,
    /// Frames sent damaged (and never whole), by kind.
    pub damaged: BTreeMap<Damage, Harm>,
    /// Frames that the kernel refused to send.
    pub refused: Set,
    /// Frames sent whole whose second count was not that of their time.
    pub miscounted: Set,
    /// Frames sent a second time.
    pub duplicated: Vec<i64>,
    /// Frames sent after a higher one whose place can be read, with by how many at most they were overtaken.
    pub reordered: Vec<(i64, u64)>,
    /// Those of them that were held back by the rule for late frames.
    pub late: Vec<(i64, u64)>,
    /// Datagrams without sense that were sent.
    pub rubbish: u64,
    /// All datagrams sent.
    pub datagrams: u64,
    /// The highest frame sent whose place can be read.
    #[serde(skip)]
    highest: Option<i64>,
}

/// Damaged frames of one kind.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Harm {
    /// Those whose place can still be read from the datagram.
    pub readable: Set,
    /// Those whose place cannot.
    pub unreadable: Set,
}

/// A set of frames: `{"count": 3, "runs": [[17, 2], [40, 1]]}`, each run its first frame and how many.
#[derive(Clone, Debug, Default)]
pub struct Set(pub Ranges);

impl Set {
    pub(super) fn add(&mut self, frame: i64) {
        self.0.insert(frame..frame + 1);
    }

    /// How many frames are in it.
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

/// What became of one datagram, or of a frame without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// Sent whole.
    Sent {
        /// By the rule for late frames.
        late: bool,
    },
    /// Sent whole once more.
    Copy,
    /// Sent damaged.
    Damaged {
        /// In what way.
        damage: Damage,
        /// Its place can still be read.
        readable: bool,
    },
    /// Rubbish was sent.
    Rubbish,
    /// Dropped on purpose.
    Dropped,
    /// Not sent in a silence.
    Silent,
    /// Meant to be sent, whole or damaged, and refused by the kernel.
    Refused,
    /// A copy or rubbish, refused by the kernel: as if it had not been meant.
    RefusedExtra,
}

impl Tally {
    /// Writes down what became of a frame.
    #[inline]
    pub fn note(&mut self, frame: i64, done: Done) {
        if !matches!(done, Done::Copy | Done::Rubbish | Done::RefusedExtra) {
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

    /// Whether every frame meant has exactly one fate.
    #[cfg(test)]
    pub fn balances(&self) -> bool {
        let apart = self.dropped.count() + self.silent.count() + self.refused.count();
        self.meant == self.sent + apart + self.damaged_count()
    }
}

/// The truth of one port.
#[derive(Clone, Debug, Serialize)]
pub struct StreamTruth {
    /// Its name: the port, unless another was given.
    pub name: String,
    /// Where it was sent.
    pub target: String,
    /// `vdif`, `vtp` or `raw`.
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
    /// The same as VDIF headers tell it: reference epoch and seconds.
    pub vdif_second: Option<(u32, u32)>,
    /// The packet or sequence number of place 0, where the format has one.
    pub first_number: Option<i64>,
    /// Payload of place *n* is number `(n + payload_shift) mod payload count`.
    pub payload_shift: u64,
    /// What was done, by places.
    pub port: Tally,
    /// What was done with each thread, by its own indices; only if there are several.
    pub by_thread: Vec<Tally>,
}

/// The truth of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Truth {
    /// The program and its version.
    pub software: String,
    /// The host's clock when the first datagram went.
    pub started: Tai,
    /// The rules.
    pub faults: Faults,
    /// What payloads are made of.
    pub payload: PayloadSource,
    /// How many different payloads there are, before the first one comes again.
    pub payload_count: usize,
    /// One of each port.
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
            (9, Done::Sent { late: true }),
        ] {
            tally.note(frame, done);
        }
        assert!(tally.balances());
        assert_eq!((tally.first, tally.last, tally.meant), (Some(9), Some(17), 9));
        assert_eq!((tally.sent, tally.datagrams, tally.rubbish), (5, 8, 1));
        assert_eq!(tally.reordered, [(12, 1), (9, 8)]);
        assert_eq!(tally.late, [(9, 8)]);
        assert_eq!(tally.duplicated, [13]);
        let json = serde_json::to_value(&tally).unwrap();
        assert_eq!(json["dropped"], serde_json::json!({"count": 1, "runs": [[11, 1]]}));
        assert_eq!(json["damaged"]["truncated"]["unreadable"]["count"], 1);
    }
}
