//! The account of a stream: what was expected, what became of it, and how sure that is.
//!
//! The books balance: `expected = written + missing + overrun + damaged + late`. Each term is
//! defined once, here. Beside the terms stand the [`Witness`]es, the counters of every layer before
//! and after; from both follows the [`Verdict`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::completeness::{Completeness, grouped};
use crate::gap::{Cause, Gap};
use crate::tide::Tide;
use crate::time::Tai;
use crate::wall::Wall;

/// The balance, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// Frames from the first to the last of the scan, by the stream's own count.
    pub expected: u64,
    /// Frames that came and are in the recording.
    pub written: u64,
    /// Frames that never reached us.
    pub missing: u64,
    /// Frames that reached us with no block free, or whose block no member would take.
    pub overrun: u64,
    /// Frames that came and failed their own check (length, header), though their place was known.
    pub damaged: u64,
    /// Frames that came after their place was written.
    pub late: u64,
}

impl Terms {
    /// What the terms beside `expected` add up to. Those of a damaged account may be absurd: sums stop at the largest
    /// number there is.
    pub fn sum(&self) -> u64 {
        let terms = [self.written, self.missing, self.overrun, self.damaged, self.late];
        terms.into_iter().fold(0, u64::saturating_add)
    }

    /// Whether the books balance.
    pub fn balance(&self) -> bool {
        self.expected == self.sum()
    }

    /// Adds another flow's terms.
    pub fn add(&mut self, other: &Terms) {
        for (term, more) in [
            (&mut self.expected, other.expected),
            (&mut self.written, other.written),
            (&mut self.missing, other.missing),
            (&mut self.overrun, other.overrun),
            (&mut self.damaged, other.damaged),
            (&mut self.late, other.late),
        ] {
            *term = term.saturating_add(more);
        }
    }
}

/// By what a stream's frames were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CountedBy {
    /// The time in each frame (VDIF second and frame number).
    FrameTime,
    /// A packet sequence number before each frame: in recordings of earlier versions.
    PacketNumber,
    /// A sequence field that the user described.
    SequenceField,
    /// The count of the device that took them: it says how many it sent, and how many it took.
    ServerCount,
    /// Nothing: the format carries no number.
    Nothing,
}

/// One end of a stream within a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Index of the frame, counted as the stream counts.
    pub index: i64,
    /// The frame's own time, where the format tells it.
    pub time: Option<Tai>,
    /// When it was received, by the host's clock.
    pub seen: Tai,
}

/// Something about a stream's presence in the scan that its own numbers cannot show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum Presence {
    /// No frame of it came at all.
    NeverCame,
    /// Datagrams came, and none of them was a frame of the stream's format.
    OnlyForeign {
        /// How many.
        datagrams: u64,
    },
    /// Datagrams came, and the endpoint's own filter left all of them out.
    OnlyExcluded {
        /// How many.
        datagrams: u64,
    },
    /// Nothing of it was kept, and nobody who saw what came is left to say.
    NotKnown,
    /// Its first frame came this much after the scan was armed, which had a limit.
    CameLate {
        /// Nanoseconds without it.
        ns: i64,
    },
    /// Its last frame came this much before the limit of the scan.
    WentEarly {
        /// Nanoseconds without it.
        ns: i64,
    },
    /// Its first frame came this much after that of the earliest stream.
    StartedLate {
        /// Nanoseconds without it.
        ns: i64,
    },
    /// Its last frame came this much before that of the latest stream.
    DiedEarly {
        /// Nanoseconds without it.
        ns: i64,
    },
    /// Its first frame came this much after the planned beginning of the scan. Of a stream that never came: how long the
    /// scan was to last.
    LacksBeginning {
        /// Nanoseconds without it.
        ns: i64,
        /// Frames that it would have had in that time, where its rate is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        frames: Option<u64>,
    },
    /// Its last frame came this much before the planned end of the scan.
    LacksEnd {
        /// Nanoseconds without it.
        ns: i64,
        /// Frames that it would have had in that time, where its rate is known.
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
                write!(f, "{datagrams} datagrams came, and none of them is a frame of this format")
            }
            Presence::OnlyExcluded { datagrams } => {
                write!(
                    f,
                    "{datagrams} datagrams came, and the filter of its endpoint left them all out"
                )
            }
            Presence::NotKnown => {
                write!(f, "not known: the recorder died before anything of it was durable")
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

/// A layer between the wire and the disk that counts what it loses.
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
}

/// One counter of one layer, read when the scan was armed and again when its last frame was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Witness {
    /// Where it counts.
    pub layer: Layer,
    /// The kernel's name of it.
    pub counter: String,
    /// Which interface, CPU or socket.
    pub scope: String,
    /// Whether only this stream moves it.
    pub own: bool,
    /// Whether one step may stand for several frames (merged messages are counted, not packets).
    pub coarse: bool,
    /// When armed.
    pub before: u64,
    /// After the last read.
    pub after: u64,
}

impl Witness {
    /// How far it moved.
    pub fn moved(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }

    /// The most frames whose loss it explains: what it counted; or as many times `merged`, the most frames of
    /// a message, where it is a socket that counted merged messages.
    pub fn explains(&self, merged: u64) -> u64 {
        match self.coarse && self.layer == Layer::Socket {
            true => self.moved().saturating_mul(merged),
            false => self.moved(),
        }
    }

    /// Whether both are one counter.
    fn is(&self, other: &Witness) -> bool {
        self.layer == other.layer && self.counter == other.counter && self.scope == other.scope
    }
}

/// Counters of a layer that are there, or were, and could not be read. What a host does not count at all
/// is none of them: there is nothing that could have moved.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unread {
    /// Where they count.
    pub layer: Layer,
    /// Which interface, CPU or socket; empty: all of them.
    pub scope: String,
    /// What stood in the way.
    pub why: String,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = match self.layer {
            Layer::Device => "device",
            Layer::Backlog => "backlog",
            Layer::Udp => "udp",
            Layer::Socket => "socket",
        };
        let space = if self.scope.is_empty() { "" } else { " " };
        write!(f, "{layer}{space}{}: what it lost is not known: {}", self.scope, self.why)
    }
}

/// How sure the account is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Nothing is missing, every frame that came is in the recording, and no counter of any layer moved.
    Proven,
    /// What is missing is explained by counters that moved. Or nothing is missing, but a counter moved or could not
    /// be read, or whole frames arrived that are not in the recording.
    Consistent,
    /// Frames are missing that no counter of this host explains: lost before it.
    Unexplained,
    /// The format carries nothing to count by: only what this host did is known.
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

/// The balance of one of several threads that lie in a stream as they came.
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
    /// What its numbers alone cannot show: that it began late, ended early or was not there in this scan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub presence: Vec<Presence>,
}

/// How the recorder itself stood when a stream ended: where a block was wanted and none was free, or a member
/// took no more, this says why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Blocks of memory that the stream drew on.
    pub pool_blocks: u64,
    /// The most of them in use at once since it was armed.
    pub high_water: u64,
    /// The members of the disk set.
    pub members: Vec<HostMember>,
    /// The most blocks in use at once, over the time of the scan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tide: Option<Tide>,
}

/// How a member of the disk set stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostMember {
    /// Its directory.
    pub path: String,
    /// The longest time that writing a block took since it was armed, in nanoseconds.
    pub longest_write_ns: u64,
    /// Why it took no more data, if it stopped doing so.
    pub failure: Option<String>,
}

/// The most datagrams that the kernel merges into one message.
const MOST_MERGED: u64 = 128;

/// The most bytes of such a message.
const MERGED_BYTES: u64 = u16::MAX as u64;

/// The most gaps an account lists; further ones are counted.
pub const GAPS_LISTED: usize = 100_000;

/// The account of one stream of one scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The balance.
    pub terms: Terms,
    /// By what frames were counted.
    pub counted_by: CountedBy,
    /// Bytes of true frames in the recording, without fill.
    pub bytes: u64,
    /// Fill frames in the recording, in the place of frames that are not there.
    pub filled: u64,
    /// Written frames that their sender had marked invalid.
    pub invalid: u64,
    /// Written frames in blocks that `recover` found without an index record: their checksums say what
    /// was found then, not what was received. And those in blocks whose sync failed, and that were read back from a
    /// member that took no sync since: nobody knows whether they outlast a loss of power.
    #[serde(default)]
    pub unverified: u64,
    /// Frames that came more than once (apart from the balance).
    pub duplicates: u64,
    /// Frames that came after one with a higher index and were still put in place.
    pub reordered: u64,
    /// The furthest that a reordered frame lay behind, in frames.
    pub reorder_extent: u64,
    /// Datagrams that were no frame of this stream and told no place: rubbish, other lengths.
    pub foreign: u64,
    /// Whole frames of this stream that were thrown away, because where they say they belong was not to be
    /// believed: too far from the frames around them, or before the scan.
    #[serde(default)]
    pub astray: u64,
    /// Whole frames of the stream's format that arrived at its port and are in no recording: of a frame length that
    /// the port's memory cannot hold, of threads beyond the limit of a port, or too few to open a stream.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unrecorded: u64,
    /// Datagrams that the user's own filter (`threads=`, `source=`) left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub excluded: u64,
    /// Times the sender's count started anew.
    pub restarts: u64,
    /// First frame.
    pub first: Option<Edge>,
    /// Last frame.
    pub last: Option<Edge>,
    /// What the numbers alone cannot show. Of a stream of several threads, each of its flows says when it began and
    /// ended.
    pub presence: Vec<Presence>,
    /// Frames not in the recording, in order, at most [`GAPS_LISTED`].
    pub gaps: Vec<Gap>,
    /// Gaps beyond those listed.
    pub gaps_unlisted: u64,
    /// The threads of a stream that holds several as they came; their terms add up to the stream's.
    #[serde(default)]
    pub flows: Vec<Flow>,
    /// Frames whose second count is not that of their time: a packet number before them or in their extended
    /// data that does not go on with them, a Mark 5B header of another second, a mask that leaves nothing valid.
    #[serde(default)]
    pub disagreements: u64,
    /// Written frames of which channels have no data, by the mask in their extended data.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub masked: u64,
    /// The counters of the layers that this stream passed.
    pub witnesses: Vec<Witness>,
    /// The counters among them that could not be read: whether they moved is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<Unread>,
    /// Ring and writers; nothing in a scan that was recovered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// What the time in its frames was against the host's clock, where they carry one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<Wall>,
    /// The end of it.
    pub verdict: Verdict,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Account {
    /// An account of nothing yet.
    pub fn new(counted_by: CountedBy) -> Self {
        Self {
            terms: Terms::default(),
            counted_by,
            bytes: 0,
            filled: 0,
            invalid: 0,
            unverified: 0,
            duplicates: 0,
            reordered: 0,
            reorder_extent: 0,
            foreign: 0,
            astray: 0,
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
            witnesses: Vec::new(),
            unread: Vec::new(),
            host: None,
            clock: None,
            verdict: Verdict::Unproven,
        }
    }

    /// Lists a gap, joined to the one before where they touch and agree.
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

    /// Why frames were overrun, as far as ring and writers tell.
    pub fn why_overrun(&self) -> Option<String> {
        let host = self.host.as_ref().filter(|_| self.terms.overrun > 0)?;
        let failures: Vec<&str> =
            host.members.iter().filter_map(|member| member.failure.as_deref()).collect();
        if let Some(first) = failures.first() {
            return Some(match failures.len() == host.members.len() {
                true => first.to_string(),
                false => {
                    format!("{} of {} members failed: {first}", failures.len(), host.members.len())
                }
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

    /// Whole frames that came and were not kept.
    pub fn not_kept(&self) -> u64 {
        self.astray.saturating_add(self.unrecorded)
    }

    /// Whether it is complete, in words.
    pub fn completeness(&self) -> Completeness {
        Completeness::of_account(self)
    }

    /// Whether no frame of it came.
    pub fn never_came(&self) -> bool {
        let absent = |it: &Presence| {
            matches!(
                it,
                Presence::NeverCame | Presence::OnlyForeign { .. } | Presence::OnlyExcluded { .. }
            )
        };
        self.presence.iter().any(absent)
    }

    /// That no frame of it came, and whether anything else did.
    pub fn absence(&self) -> Presence {
        match (self.foreign, self.excluded) {
            (0, 0) => Presence::NeverCame,
            (0, datagrams) => Presence::OnlyExcluded { datagrams },
            (datagrams, _) => Presence::OnlyForeign { datagrams },
        }
    }

    /// Frames listed in the gaps for `cause`.
    pub fn listed(&self, cause: Cause) -> u64 {
        let gaps = self.gaps.iter().filter(|gap| gap.cause == cause);
        gaps.fold(0, |sum, gap| sum.saturating_add(gap.count))
    }

    /// The verdict that terms, presence and witnesses allow.
    pub fn judge(&self) -> Verdict {
        if self.counted_by == CountedBy::ServerCount {
            // What the device itself said of them was judged when it said so; nothing here betters it.
            let whole = self.terms.written == self.terms.expected && self.unverified == 0;
            return self.verdict.max(if whole { Verdict::Proven } else { Verdict::Consistent });
        }
        if self.counted_by == CountedBy::Nothing
            || self.presence.contains(&Presence::NotKnown)
            || (self.terms.expected == 0 && self.presence.is_empty())
        {
            return Verdict::Unproven;
        }
        // A thread of one frame has nothing before or after it that could be missing.
        if self.terms.expected == 1 || self.flows.iter().any(|flow| flow.terms.expected == 1) {
            return Verdict::Unproven;
        }
        let still =
            self.unread.is_empty() && self.witnesses.iter().all(|witness| witness.moved() == 0);
        let whole = self.terms.written == self.terms.expected
            && self.not_kept() == 0
            && self.disagreements == 0;
        let explained = self.explained(|_| true);
        // A stream that never came, started late or died early left no number that a counter could explain.
        if self.terms.missing > explained || self.lacks_an_end() || self.restarts > 0 {
            Verdict::Unexplained
        } else if whole && still && self.unverified == 0 {
            Verdict::Proven
        } else {
            Verdict::Consistent
        }
    }

    /// Whether other streams or threads show that a part of it is not there. That it came or went while the scan ran
    /// shows no loss: senders begin and end when they like.
    fn lacks_an_end(&self) -> bool {
        let of_the_scan =
            |it: &Presence| matches!(it, Presence::CameLate { .. } | Presence::WentEarly { .. });
        let of_flows = self.flows.iter().flat_map(|flow| &flow.presence);
        !self.presence.iter().chain(of_flows).all(of_the_scan)
    }

    /// The most frames whose loss some of the witnesses explain together.
    fn explained(&self, of: impl Fn(&Witness) -> bool) -> u64 {
        let merged = self.most_merged();
        let chosen = self.witnesses.iter().filter(|witness| of(witness));
        together(chosen.map(|witness| (witness.layer, witness.explains(merged))))
    }

    /// The most frames of it that one message may hold.
    fn most_merged(&self) -> u64 {
        match self.bytes.checked_div(self.terms.written) {
            None | Some(0) => MOST_MERGED,
            Some(frame) => (MERGED_BYTES / frame).clamp(1, MOST_MERGED),
        }
    }

    /// Frames missing that only counters shared with other streams could explain. What a device says it
    /// lost needs no counter of ours.
    fn left_to_shared(&self) -> u64 {
        if self.counted_by == CountedBy::ServerCount {
            return 0;
        }
        self.terms.missing.saturating_sub(self.explained(|witness| witness.own))
    }
}

/// How many frames these counters, each with what it explains, explain together. A frame is lost once and may be counted
/// twice: what a backlog drops its device counts, too, and what is thrown away for its checksum, the socket.
fn together(counted: impl Iterator<Item = (Layer, u64)>) -> u64 {
    let [mut device, mut backlog, mut udp, mut socket] = [0u64; 4];
    for (layer, frames) in counted {
        let sum = match layer {
            Layer::Device => &mut device,
            Layer::Backlog => &mut backlog,
            Layer::Udp => &mut udp,
            Layer::Socket => &mut socket,
        };
        *sum = sum.saturating_add(frames);
    }
    device.max(backlog).saturating_add(socket.max(udp))
}

/// Judges the streams of a scan. What a shared counter counted explains so many frames of all of them, not of
/// each: if they miss more together, none of those that lean on it is explained.
pub fn judge_together<'a>(accounts: impl IntoIterator<Item = &'a mut Account>) {
    let mut leaning: Vec<&mut Account> = Vec::new();
    for account in accounts {
        account.verdict = account.judge();
        if account.verdict == Verdict::Consistent && account.left_to_shared() > 0 {
            leaning.push(account);
        }
    }
    // Each counter once, with the most that it explains.
    let mut shared: Vec<(&Witness, u64)> = Vec::new();
    for account in &leaning {
        let merged = account.most_merged();
        for witness in account.witnesses.iter().filter(|it| !it.own && it.moved() > 0) {
            let explains = match witness.layer {
                // The rest of it stands in the stream's own socket.
                Layer::Udp => witness.moved().saturating_sub(account.explained(|it| it.own)),
                _ => witness.explains(merged),
            };
            match shared.iter_mut().find(|(known, _)| known.is(witness)) {
                Some((_, most)) => *most = explains.max(*most),
                None => shared.push((witness, explains)),
            }
        }
    }
    let sum = |frames: &mut dyn Iterator<Item = u64>| frames.fold(0, u64::saturating_add);
    let counted = together(shared.iter().map(|(witness, explains)| (witness.layer, *explains)));
    if sum(&mut leaning.iter().map(|account| account.left_to_shared())) > counted {
        leaning.into_iter().for_each(|account| account.verdict = Verdict::Unexplained);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(missing: u64, witnesses: &[(u64, bool)]) -> Account {
        let mut account = Account::new(CountedBy::FrameTime);
        account.terms =
            Terms { expected: 1000, written: 1000 - missing, missing, ..Terms::default() };
        account.witnesses = witnesses
            .iter()
            .map(|&(after, coarse)| Witness {
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
    fn nothing_is_proven_by_a_counter_that_could_not_be_read_or_with_frames_astray() {
        let unread = || Unread {
            layer: Layer::Socket,
            scope: "127.0.0.1:46220".into(),
            why: "Bad file descriptor".into(),
        };
        let mut blind = account(0, &[]);
        blind.unread.push(unread());
        assert_eq!(blind.judge(), Verdict::Consistent);
        let mut lost = account(5, &[(4, false)]);
        lost.unread.push(unread());
        assert_eq!(lost.judge(), Verdict::Unexplained, "what was not read explains nothing");
        let text = "socket 127.0.0.1:46220: what it lost is not known: Bad file descriptor";
        assert_eq!(unread().to_string(), text);
        let mut astray = account(0, &[(0, false)]);
        astray.astray = 1;
        assert_eq!(astray.judge(), Verdict::Consistent);
    }

    #[test]
    fn a_stream_that_came_or_went_while_the_scan_ran_has_lost_nothing_by_that() {
        let mut brief = account(0, &[(0, false)]);
        brief.presence = vec![Presence::CameLate { ns: 3 }, Presence::WentEarly { ns: 4 }];
        assert_eq!(brief.judge(), Verdict::Proven);
        brief.presence.push(Presence::DiedEarly { ns: 4 });
        assert_eq!(brief.judge(), Verdict::Unexplained);
    }

    fn shared(layer: Layer, coarse: bool, after: u64) -> Witness {
        let (counter, scope) = ("dropped".into(), "eth0".into());
        Witness { layer, counter, scope, own: false, coarse, before: 0, after }
    }

    #[test]
    fn a_shared_counter_explains_no_more_than_it_counted() {
        for layer in [Layer::Device, Layer::Backlog, Layer::Udp] {
            for coarse in [false, true] {
                let judged = |missing: u64, steps: u64| {
                    let mut account = account(missing, &[(0, false)]);
                    account.witnesses.push(shared(layer, coarse, steps));
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
            all.iter_mut().for_each(|it| it.witnesses.push(shared(Layer::Device, false, counted)));
            judge_together(&mut all);
            all.into_iter().map(|it| it.verdict).collect::<Vec<Verdict>>()
        };
        assert_eq!(judged(16, 5, 80), [Verdict::Consistent; 16]);
        assert_eq!(judged(16, 5, 79), [Verdict::Unexplained; 16]);
        assert_eq!(judged(16, 0, 0), [Verdict::Proven; 16]);
        assert_eq!(judged(16, 0, 5), [Verdict::Consistent; 16]);
        // What a socket explains by itself is no burden on the others.
        let mut mixed = [account(5, &[(5, false)]), account(5, &[]), account(0, &[])];
        mixed.iter_mut().for_each(|it| it.witnesses.push(shared(Layer::Device, false, 5)));
        judge_together(&mut mixed);
        assert_eq!(mixed.map(|it| it.verdict), [Verdict::Consistent; 3]);
    }

    #[test]
    fn a_socket_of_several_streams_explains_what_it_counted_in_all_of_them_once() {
        let judged = |counted: u64, coarse: bool| {
            let witness = |account: &mut Account| {
                account.bytes = account.terms.written * 8032;
                let witness = shared(Layer::Socket, coarse, counted);
                account.witnesses.push(witness);
            };
            let mut all = [account(5, &[]), account(5, &[]), account(5, &[])];
            all.iter_mut().for_each(witness);
            judge_together(&mut all);
            all.map(|it| it.verdict)
        };
        assert_eq!(judged(15, false), [Verdict::Consistent; 3]);
        assert_eq!(judged(14, false), [Verdict::Unexplained; 3]);
        assert_eq!(judged(2, true), [Verdict::Consistent; 3], "of eight frames each");
        assert_eq!(judged(1, true), [Verdict::Unexplained; 3]);
    }

    #[test]
    fn ring_and_writers_tell_why_frames_were_overrun() {
        let member = |failure: Option<&str>| HostMember {
            path: "/data".into(),
            longest_write_ns: 250_000_000,
            failure: failure.map(str::to_owned),
        };
        let mut full = account(0, &[]);
        let host = |members| Some(Host { pool_blocks: 64, high_water: 64, members, tide: None });
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
        both.witnesses.push(shared(Layer::Backlog, false, 3));
        assert_eq!(both.judge(), Verdict::Consistent);
        both.witnesses[1].after = 2;
        assert_eq!(both.judge(), Verdict::Unexplained);
    }

    #[test]
    fn what_two_layers_count_explains_one_loss() {
        let judged = |missing: u64, drops: u64, others: &[(Layer, u64)]| {
            let with = |missing| {
                let mut account = account(missing, &[(drops, false)]);
                let witnesses = others.iter().map(|&(layer, count)| shared(layer, false, count));
                account.witnesses.extend(witnesses);
                account
            };
            let mut all = [with(missing), with(0)];
            judge_together(&mut all);
            assert_eq!(all[0].verdict, all[0].judge());
            all[0].verdict
        };
        // What the backlog dropped, the device counts as well.
        let both = [(Layer::Device, 5), (Layer::Backlog, 5)];
        assert_eq!(judged(5, 0, &both), Verdict::Consistent);
        assert_eq!(judged(6, 0, &both), Verdict::Unexplained);
        let more = [(Layer::Device, 7), (Layer::Backlog, 5)];
        assert_eq!(judged(7, 0, &more), Verdict::Consistent);
        assert_eq!(judged(8, 0, &more), Verdict::Unexplained);
        // What was thrown away for its checksum, the socket counts as well.
        let wrong = [(Layer::Udp, 5)];
        assert_eq!(judged(8, 8, &wrong), Verdict::Consistent);
        assert_eq!(judged(9, 8, &wrong), Verdict::Unexplained);
        assert_eq!(judged(5, 0, &wrong), Verdict::Consistent, "where the socket does not tell");
        assert_eq!(judged(13, 8, &[(Layer::Udp, 5), (Layer::Device, 5)]), Verdict::Consistent);
        assert_eq!(judged(14, 8, &[(Layer::Udp, 5), (Layer::Device, 5)]), Verdict::Unexplained);
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
