//! The account of a sender: which packets went out on time, which late, which not at all, and why.
//!
//! It mirrors the account of a recorder: `planned = on time + late + not sent`, and each packet that is late or not sent
//! is in a gap, which names the stream, the packets and the cause.
//!
//! One thread sends all streams, so a stall delays all of them. Its cause is the one that took the most time since
//! packets last went out when they were due.

mod words;

use serde::Serialize;

pub use words::short_time;

/// The most gaps that are listed; further ones are counted.
pub const MOST_GAPS: usize = 1000;

/// A share of the bound below which the sender has caught up.
const CAUGHT_UP: u64 = 10;

/// Why packets are late, or were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The frames were not read in time.
    Disk,
    /// The socket was full: the link or the card takes less than the rate.
    Socket,
    /// The sending thread did not run, or the rate is more than it can send.
    Cpu,
    /// The kernel refused the packets, for example because a transmit queue was full.
    Refused,
    /// The frames cannot be read.
    Unreadable,
}

impl Cause {
    /// The cause in words.
    pub fn words(self) -> &'static str {
        match self {
            Cause::Disk => "the frames were not read in time",
            Cause::Socket => "the socket was full",
            Cause::Cpu => "the sending thread got too little CPU time",
            Cause::Refused => "the kernel refused them: a transmit queue was full",
            Cause::Unreadable => "the frames cannot be read",
        }
    }
}

/// The fate of the packets of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// They were sent later than the bound allows.
    Late,
    /// They were not sent.
    NotSent,
}

/// Packets of a stream, one after the other, that were late or not sent, for one cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gap {
    /// The stream.
    pub stream: String,
    /// Their fate.
    pub kind: Kind,
    /// The cause.
    pub cause: Cause,
    /// The number of the first packet, counted from 0 among the planned packets of the stream.
    pub first: u64,
    /// The number of packets.
    pub packets: u64,
    /// When the first packet was due, in seconds from the start; `None` if it had no due time.
    pub due_seconds: Option<f64>,
    /// The largest lateness of these packets, in seconds.
    pub most_late_seconds: f64,
}

/// The counts of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Packets that were due.
    pub planned: u64,
    /// Packets sent no later than the bound.
    pub on_time: u64,
    /// Packets sent later.
    pub late: u64,
    /// Packets not sent.
    pub not_sent: u64,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.planned += other.planned;
        self.on_time += other.on_time;
        self.late += other.late;
        self.not_sent += other.not_sent;
    }
}

/// The account in its final form.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UnderrunAccount {
    /// The counts of all streams.
    #[serde(flatten)]
    pub counts: Counts,
    /// A packet that is later than this is late, in nanoseconds.
    pub late_after_ns: u64,
    /// The counts of each stream, by name.
    pub streams: Vec<(String, Counts)>,
    /// The gaps, in the order in which they ended.
    pub gaps: Vec<Gap>,
    /// The number of gaps beyond those listed.
    pub gaps_not_listed: u64,
}

impl UnderrunAccount {
    /// True if each planned packet was sent on time.
    pub fn is_complete(&self) -> bool {
        self.counts.late == 0 && self.counts.not_sent == 0
    }
}

/// The account while packets are sent. It reads no clock: times are given to it.
#[derive(Clone, Debug)]
pub struct Underruns {
    late_after_ns: u64,
    streams: Vec<Stream>,
    /// Time spent waiting for frames and for sockets since the sender last kept its pace.
    disk_ns: u64,
    socket_ns: u64,
    /// The cause of the present stall.
    behind: Option<Cause>,
    /// The lateness of the last packet.
    latest_ns: u64,
    gaps: Vec<Gap>,
    gaps_not_listed: u64,
}

#[derive(Clone, Debug)]
struct Stream {
    name: String,
    counts: Counts,
    open: Option<Gap>,
}

impl Underruns {
    /// An account of these streams, in which packets are late after `late_after_ns`.
    pub fn new(streams: impl IntoIterator<Item = String>, late_after_ns: u64) -> Self {
        let stream = |name| Stream { name, counts: Counts::default(), open: None };
        Underruns {
            late_after_ns,
            streams: streams.into_iter().map(stream).collect(),
            disk_ns: 0,
            socket_ns: 0,
            behind: None,
            latest_ns: 0,
            gaps: Vec::new(),
            gaps_not_listed: 0,
        }
    }

    /// Records that the sender waited `ns` for frames.
    pub fn waited_for_frames(&mut self, ns: u64) {
        self.disk_ns = self.disk_ns.saturating_add(ns);
    }

    /// Records that the sender waited `ns` for a full socket.
    pub fn waited_for_socket(&mut self, ns: u64) {
        self.socket_ns = self.socket_ns.saturating_add(ns);
    }

    /// Records the next packet of a stream: it went out `late_ns` after its due time. Streams follow each other in the
    /// order of sending.
    pub fn sent(&mut self, stream: usize, due_ns: Option<u64>, late_ns: u64) {
        if late_ns <= self.late_after_ns / CAUGHT_UP {
            (self.disk_ns, self.socket_ns, self.behind) = (0, 0, None);
        }
        if late_ns <= self.late_after_ns {
            self.latest_ns = late_ns;
            let counts = &mut self.streams[stream].counts;
            (counts.planned, counts.on_time) = (counts.planned + 1, counts.on_time + 1);
            self.close(stream);
            return;
        }
        let cause = self.cause_of(late_ns);
        self.extend(stream, Kind::Late, cause, due_ns, 1, late_ns);
    }

    /// Records that the next `packets` of a stream are not sent.
    pub fn not_sent(&mut self, stream: usize, due_ns: Option<u64>, packets: u64, cause: Cause) {
        if packets > 0 {
            self.extend(stream, Kind::NotSent, cause, due_ns, packets, 0);
        }
    }

    /// The cause of a late packet. A packet that is much later than the one before suffers from a new stall.
    fn cause_of(&mut self, late_ns: u64) -> Cause {
        let more_ns = late_ns.saturating_sub(self.latest_ns);
        self.latest_ns = late_ns;
        if let Some(cause) = self.behind.filter(|_| more_ns <= self.late_after_ns) {
            return cause;
        }
        let cpu_ns = more_ns.saturating_sub(self.disk_ns).saturating_sub(self.socket_ns);
        let cause = if self.disk_ns >= self.socket_ns.max(cpu_ns) {
            Cause::Disk
        } else if self.socket_ns >= cpu_ns {
            Cause::Socket
        } else {
            Cause::Cpu
        };
        (self.disk_ns, self.socket_ns, self.behind) = (0, 0, Some(cause));
        cause
    }

    /// Adds packets to the open gap of a stream, or opens another one.
    fn extend(
        &mut self,
        stream: usize,
        kind: Kind,
        cause: Cause,
        due_ns: Option<u64>,
        packets: u64,
        late_ns: u64,
    ) {
        let same = |gap: &Gap| (gap.kind, gap.cause) == (kind, cause);
        if !self.streams[stream].open.as_ref().is_some_and(same) {
            self.close(stream);
        }
        let Stream { name, counts, open } = &mut self.streams[stream];
        let gap = open.get_or_insert_with(|| Gap {
            stream: name.clone(),
            kind,
            cause,
            first: counts.planned,
            packets: 0,
            due_seconds: due_ns.map(|ns| ns as f64 / 1e9),
            most_late_seconds: 0.0,
        });
        gap.packets += packets;
        gap.most_late_seconds = gap.most_late_seconds.max(late_ns as f64 / 1e9);
        counts.planned += packets;
        match kind {
            Kind::Late => counts.late += packets,
            Kind::NotSent => counts.not_sent += packets,
        }
    }

    /// Lists the open gap of a stream.
    #[inline]
    fn close(&mut self, stream: usize) {
        let Some(gap) = self.streams[stream].open.take() else { return };
        if self.gaps.len() < MOST_GAPS {
            self.gaps.push(gap);
        } else {
            self.gaps_not_listed += 1;
        }
    }

    /// Closes the account.
    pub fn finish(mut self) -> UnderrunAccount {
        (0..self.streams.len()).for_each(|stream| self.close(stream));
        let mut counts = Counts::default();
        self.streams.iter().for_each(|stream| counts.add(&stream.counts));
        assert_eq!(
            counts.planned,
            counts.on_time + counts.late + counts.not_sent,
            "the account of the sender balances"
        );
        UnderrunAccount {
            counts,
            late_after_ns: self.late_after_ns,
            streams: self.streams.into_iter().map(|it| (it.name, it.counts)).collect(),
            gaps: self.gaps,
            gaps_not_listed: self.gaps_not_listed,
        }
    }
}

#[cfg(test)]
mod tests;
