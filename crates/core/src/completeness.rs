//! The completeness of a recording, in the same words on every screen and in every JSON document.
//!
//! A recording has two properties: its completeness, and the certainty of the reasons for what is missing. The
//! [`Verdict`] gives the second. This module gives the first, and the words for both: no other module words them.
//!
//! ```text
//! LOST 8404 of 12 500 frames (67 %): the disk is full          headline
//! consistent: every lost frame is counted, with its cause      explanation
//! ```
//!
//! | first word | means |
//! |---|---|
//! | `COMPLETE` | every frame that was expected is recorded, and the plan, if there was one, is covered |
//! | `LOST` | frames are missing, overrun, damaged or late |
//! | `INCOMPLETE` | no frame is known to be lost, but a stream never arrived, lacks an end or does not cover the plan,
//! or frames arrived and were not kept, or frames are on a member that cannot be reached |
//! | `UNKNOWN` | no loss is known, and none can be ruled out |

use std::fmt::{self, Write};

use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

use crate::account::{Account, CountedBy, Edge, Flow, Presence, Terms, Unreachable, Verdict};
use crate::manifest::{Degradation, Manifest, State, Summary};

/// A stream covers a planned start or end if it lacks no more than this: starts are not exact to the nanosecond.
pub const TOLERANCE_NS: i64 = 250_000_000;

/// … or no more than this many of its own frames.
const TOLERANCE_FRAMES: i64 = 4;

/// … but no more than this part of a planned scan, unless that is less than one of its frames.
const TOLERANCE_PART: i64 = 4;

/// The time in a frame is compared with the plan if it is this near to its arrival time. Otherwise the data is played
/// back or a clock is wrong, and the arrival time counts.
const LIVE_NS: u64 = 250_000_000;

/// A second, in nanoseconds.
const S: i64 = 1_000_000_000;

/// The maximum number of names in a headline.
const NAMES: usize = 3;

/// The planned start and end of a scan, as far as they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// The planned start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Tai>,
    /// The planned end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Tai>,
}

impl Planned {
    /// True if a start or an end is planned.
    pub fn is_any(&self) -> bool {
        self.begin.is_some() || self.end.is_some()
    }

    /// Returns the planned duration.
    pub fn lasts_ns(&self) -> Option<i64> {
        Some(self.end?.since(self.begin?))
    }

    /// Returns the parts of the plan that a stream does not cover, at either end. A device that counts for itself is
    /// not compared: its acquisition begins when it is armed. A stream of several threads is not compared either: each
    /// of its threads is. `armed` replaces a start that was not planned, `stopped` such an end.
    pub fn lacking(
        &self,
        account: &Account,
        frames_per_second: Option<u64>,
        armed: Tai,
        stopped: Option<Tai>,
    ) -> Vec<Presence> {
        let ends = account.first.zip(account.last);
        let by_thread = ends.is_some() && !account.flows.is_empty();
        if by_thread || account.counted_by == CountedBy::ServerCount {
            return Vec::new();
        }
        self.lacks(ends, account.terms.expected, frames_per_second, (armed, stopped))
    }

    /// Returns the parts of the plan that a thread of a stream of several threads does not cover.
    pub fn lacking_of(
        &self,
        flow: &Flow,
        frames_per_second: Option<u64>,
        armed: Tai,
        stopped: Option<Tai>,
    ) -> Vec<Presence> {
        let ends = flow.first.zip(flow.last);
        self.lacks(ends, flow.terms.expected, frames_per_second, (armed, stopped))
    }

    fn lacks(
        &self,
        ends: Option<(Edge, Edge)>,
        expected: u64,
        frames_per_second: Option<u64>,
        (armed, stopped): (Tai, Option<Tai>),
    ) -> Vec<Presence> {
        if !self.is_any() {
            return Vec::new();
        }
        let frames = |ns: i64| {
            let frames = i128::from(ns) * i128::from(frames_per_second?);
            u64::try_from((frames + i128::from(S / 2)) / i128::from(S)).ok()
        };
        let Some((first, last)) = ends else {
            let end = self.end.or(stopped);
            let ns = end.map_or(0, |end| end.since(self.begin.unwrap_or(armed))).max(0);
            return vec![Presence::LacksBeginning { ns, frames: frames(ns) }];
        };
        let live =
            |edge: Edge| edge.time.filter(|time| edge.seen.since(*time).unsigned_abs() <= LIVE_NS);
        let when = |edge: Edge| live(edge).unwrap_or(edge.seen);
        let between = i64::try_from(expected.saturating_sub(1)).unwrap_or(i64::MAX);
        let period = last.seen.since(first.seen).checked_div(between).unwrap_or(0);
        let planned = self.lasts_ns();
        let tolerance = TOLERANCE_NS
            .max(period.saturating_mul(TOLERANCE_FRAMES))
            .min(planned.map_or(i64::MAX, |ns| ns / TOLERANCE_PART))
            .max(period);
        let late = self.begin.map_or(0, |begin| when(first).since(begin));
        // The last frame lasts until the start of the next one.
        let frame_ns =
            frames_per_second.map_or(period, |rate| S.checked_div(rate.cast_signed()).unwrap_or(0));
        let mut early = self.end.map_or(0, |end| end.since(when(last)).saturating_sub(frame_ns));
        // A slow sender goes on to the end and delivers too little data by then.
        if let (Some(planned), Some(from), Some(to)) = (planned, first.time, last.time)
            && (live(first).is_none() || live(last).is_none())
        {
            let data_ns = to.since(from).saturating_add(frame_ns);
            early = early.max(planned.saturating_sub(data_ns).saturating_sub(late.max(0)));
        }
        let beginning = Presence::LacksBeginning { ns: late, frames: frames(late) };
        let ending = Presence::LacksEnd { ns: early, frames: frames(early) };
        [(late, beginning), (early, ending)]
            .into_iter()
            .filter(|(ns, _)| *ns > tolerance)
            .map(|(_, presence)| presence)
            .collect()
    }
}

/// The time range of the data: by the time in the frames if they carry one, else by their arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Time of the first frame.
    pub from: Tai,
    /// Time of the last frame.
    pub to: Tai,
}

impl Covered {
    /// Returns the range of an account by the time in its first and last frame, and by their arrival.
    fn of(account: &Account) -> (Option<Self>, Option<Self>) {
        let ends = account.first.zip(account.last);
        let by_time =
            ends.and_then(|(first, last)| Some(Self { from: first.time?, to: last.time? }));
        (by_time, ends.map(|(first, last)| Self { from: first.seen, to: last.seen }))
    }

    fn lasts_ns(&self) -> i64 {
        self.to.since(self.from).max(0)
    }
}

/// The facts of an account beside its balance, for a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherCounts {
    /// Whole frames that arrived and were not kept.
    #[serde(default)]
    pub not_kept: u64,
    /// Number of restarts of the sender's count.
    #[serde(default)]
    pub restarts: u64,
    /// The time range of the data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<Covered>,
    /// The same by arrival time, if `covered` is by the time in the frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Covered>,
    /// The reason why frames were overrun, if any were and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_overrun: Option<String>,
    /// Frames whose second count does not match their time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disagreements: u64,
    /// True if a loss counter of this host moved, or could not be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counters_moved: bool,
    /// The missing frames that counters of this host explain, if any frame is missing and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explained: Option<u64>,
    /// Written frames that could not be reached when the scan was sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<Unreachable>,
    /// For a stream of several threads: the threads that were not present all the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadPresence>,
}

/// A thread of a stream of several threads, and the facts that its numbers alone cannot show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadPresence {
    /// Station, as in the frames.
    pub station: u16,
    /// Thread, as in the frames.
    pub thread: u16,
    /// The times at which it was not present.
    pub presence: Vec<Presence>,
}

impl From<&Account> for OtherCounts {
    fn from(account: &Account) -> Self {
        let amiss = account.flows.iter().filter(|flow| !flow.presence.is_empty());
        let threads = amiss.map(|flow| ThreadPresence {
            station: flow.station,
            thread: flow.thread,
            presence: flow.presence.clone(),
        });
        let moved = account.drop_counters.iter().any(|counter| counter.moved() > 0);
        let (by_time, received) = Covered::of(account);
        Self {
            not_kept: account.not_kept(),
            restarts: account.restarts,
            covered: by_time.or(received),
            received: by_time.and(received),
            why_overrun: account.why_overrun(),
            disagreements: account.disagreements,
            counters_moved: moved || !account.unavailable_counters.is_empty(),
            explained: account.explained,
            unreachable: account.unreachable.clone(),
            threads: threads.collect(),
        }
    }
}

/// The first word of a headline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every expected frame is recorded, and the plan is covered.
    Complete,
    /// No loss is known, and none can be ruled out.
    Unknown,
    /// No frame is known to be lost, but something is missing.
    Incomplete,
    /// Frames are missing, overrun, damaged or late.
    Lost,
}

impl Status {
    /// Returns the status of a headline, by its first word.
    pub fn of_headline(headline: &str) -> Option<Self> {
        let first = headline.split([' ', ':']).next();
        [Status::Complete, Status::Unknown, Status::Incomplete, Status::Lost]
            .into_iter()
            .find(|it| first == Some(it.word()))
    }

    /// True if everything is present; `None` if this is unknown.
    pub fn complete(self) -> Option<bool> {
        match self {
            Status::Complete => Some(true),
            Status::Unknown => None,
            Status::Incomplete | Status::Lost => Some(false),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Status::Complete => "COMPLETE",
            Status::Unknown => "UNKNOWN",
            Status::Incomplete => "INCOMPLETE",
            Status::Lost => "LOST",
        }
    }
}

/// The planned time that is not covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Uncovered {
    /// The longest time that a stream lacks, in nanoseconds.
    pub ns: i64,
    /// Frames that all streams lack together, if each stream's rate is known.
    pub frames: Option<u64>,
    /// Number of streams that lack part of the plan.
    pub streams: usize,
}

/// The completeness of one stream, from its account or the manifest.
#[derive(Clone, Debug)]
pub struct StreamCompleteness {
    /// The stream's name.
    pub name: String,
    /// The terms of its balance.
    pub terms: Terms,
    /// The number by which it was counted, if known.
    pub counted_by: Option<CountedBy>,
    /// The certainty of the balance.
    pub verdict: Verdict,
    /// Facts that its numbers alone cannot show.
    pub presence: Vec<Presence>,
    /// Facts beside its balance.
    pub beside: OtherCounts,
    /// Number of threads that were not present all the time, if nothing else is known of them.
    pub unnamed_threads: u32,
}

impl StreamCompleteness {
    /// Builds it from balance and verdict alone.
    pub fn of_terms(terms: Terms, verdict: Verdict) -> Self {
        Self {
            name: String::new(),
            terms,
            counted_by: None,
            verdict,
            presence: Vec::new(),
            beside: OtherCounts::default(),
            unnamed_threads: 0,
        }
    }

    /// Builds it from an account.
    pub fn of_account(name: &str, account: &Account) -> Self {
        Self {
            name: name.to_owned(),
            terms: account.terms,
            counted_by: Some(account.counted_by),
            verdict: account.verdict,
            presence: account.presence.clone(),
            beside: OtherCounts::from(account),
            unnamed_threads: 0,
        }
    }

    /// Builds it from the summary of an account.
    fn of_summary(name: &str, summary: &Summary) -> Self {
        Self {
            name: name.to_owned(),
            terms: summary.terms,
            counted_by: Some(summary.counted_by),
            verdict: summary.verdict,
            presence: summary.presence.clone(),
            beside: summary.beside.clone().unwrap_or_else(|| OtherCounts {
                covered: summary.first.zip(summary.last).map(|(from, to)| Covered { from, to }),
                ..OtherCounts::default()
            }),
            unnamed_threads: 0,
        }
    }

    fn lost(&self) -> u64 {
        let Terms { missing, overrun, damaged, late, .. } = self.terms;
        [missing, overrun, damaged, late].into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the missing frames by the place of the loss.
    fn missing(&self) -> Missing {
        let missing = self.terms.missing;
        // An account of an earlier version gives only its verdict.
        let of_verdict = if self.verdict == Verdict::Consistent { missing } else { 0 };
        let here = self.beside.explained.unwrap_or(of_verdict).min(missing);
        match self.verdict {
            Verdict::Unproven => Missing { here, unknown: missing - here, before: 0 },
            _ => Missing { here, unknown: 0, before: missing - here },
        }
    }

    fn has(&self, of: impl Fn(&Presence) -> bool) -> bool {
        self.presence.iter().any(of)
    }

    fn never_came(&self) -> bool {
        self.has(|it| {
            matches!(
                it,
                Presence::NeverCame | Presence::OnlyForeign { .. } | Presence::OnlyExcluded { .. }
            )
        })
    }

    /// True if its presence shows that a part of it is missing.
    fn lacks_an_end(&self) -> bool {
        let of_the_scan = |it: &Presence| {
            matches!(
                it,
                Presence::CameLate { .. }
                    | Presence::WentEarly { .. }
                    | Presence::NotKnown
                    | Presence::NotExpected
            )
        };
        let of_threads = self.beside.threads.iter().flat_map(|thread| &thread.presence);
        self.unnamed_threads > 0 || !self.presence.iter().chain(of_threads).all(of_the_scan)
    }

    /// Returns the facts about its presence, each with its subject: the stream or one of its threads.
    fn presences(&self) -> impl Iterator<Item = (Whose<'_>, &Presence)> {
        let whose = |thread| Whose { stream: &self.name, thread };
        let own = self.presence.iter().map(move |it| (whose(None), it));
        let of_threads = self.beside.threads.iter().flat_map(move |of| {
            let whose = whose(Some((of.station, of.thread)));
            of.presence.iter().map(move |it| (whose, it))
        });
        own.chain(of_threads)
    }

    /// Returns the part of the plan that it lacks: nanoseconds, and frames if its rate is known. For several threads:
    /// the longest time, and the frames of all.
    fn uncovered(&self) -> Option<(i64, Option<u64>)> {
        let of_threads = self.beside.threads.iter().map(|thread| &thread.presence);
        let each = std::iter::once(&self.presence).chain(of_threads);
        let sum = |a: Option<u64>, b: Option<u64>| Some(a?.saturating_add(b?));
        let lacks = each.filter_map(|presence| {
            let ends = presence.iter().filter_map(|it| match *it {
                Presence::LacksBeginning { ns, frames } | Presence::LacksEnd { ns, frames } => {
                    Some((ns, frames))
                }
                _ => None,
            });
            ends.reduce(|a, b| (a.0.saturating_add(b.0), sum(a.1, b.1)))
        });
        lacks.reduce(|a, b| (a.0.max(b.0), sum(a.1, b.1)))
    }

    /// Returns the reason why a loss of this stream cannot be ruled out. The second value is true if that counts
    /// against the recording: a format without numbers can have no better account.
    fn doubt(&self) -> Option<(&'static str, bool)> {
        let panda = self.counted_by == Some(CountedBy::ServerCount);
        if self.beside.restarts > 0 {
            let text = "the sender restarted its count, and what it sent in between is not known";
            return Some((text, true));
        }
        if self.has(|it| *it == Presence::NotKnown) {
            return Some(("the recorder died before any of its data was durable", false));
        }
        match self.verdict {
            Verdict::Unproven if panda => {
                Some(("the PandA could not be asked how many samples it took", true))
            }
            Verdict::Unproven if self.counted_by == Some(CountedBy::Bytes) => {
                Some(("bytes carry no number, so losses before this host cannot be seen", false))
            }
            Verdict::Unproven if self.counted_by == Some(CountedBy::Nothing) => Some((
                "the frames carry no number, so losses before this host cannot be seen",
                false,
            )),
            Verdict::Unproven if self.lacks_an_end() => None,
            Verdict::Unproven if self.counted_by.is_none() => {
                Some(("its frames were not counted, or too few came to show a loss", false))
            }
            Verdict::Unproven => Some(("too few frames came to show a loss", false)),
            Verdict::Unexplained if panda && self.lost() == 0 => {
                Some(("the PandA's count of sent samples differs from the received samples", true))
            }
            Verdict::Unexplained if self.lost() == 0 && !self.lacks_an_end() => {
                Some(("the received frames differ from the sender's count", true))
            }
            Verdict::Proven | Verdict::Consistent | Verdict::Unexplained => None,
        }
    }
}

/// A stream, or one of its threads, as the subject of a clause.
#[derive(Clone, Copy)]
struct Whose<'a> {
    /// Empty if there is only one stream, which needs no name.
    stream: &'a str,
    /// Station and thread.
    thread: Option<(u16, u16)>,
}

impl Whose<'_> {
    /// The subject for the only stream: `it`, or its thread.
    fn of_the_only_one(self) -> String {
        match self.thread {
            Some((station, thread)) => format!("station {station}, thread {thread}"),
            None => "it".to_owned(),
        }
    }
}

impl fmt::Display for Whose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.stream, self.thread) {
            ("", None) => write!(f, "it"),
            ("", Some((station, thread))) => write!(f, "station {station}, thread {thread}:"),
            (stream, None) => write!(f, "stream {stream}"),
            (stream, Some((station, thread))) => {
                write!(f, "stream {stream}, station {station}, thread {thread}:")
            }
        }
    }
}

/// Missing frames of a stream, by the place of the loss.
struct Missing {
    /// Lost on this host, by its counters.
    here: u64,
    /// Lost before this host.
    before: u64,
    /// The place is unknown.
    unknown: u64,
}

/// The completeness of a recording, and the certainty of the reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Completeness {
    /// True if everything is present; `None` if this is unknown.
    pub complete: Option<bool>,
    /// The first word of the headline.
    #[serde(rename = "completeness")]
    pub status: Status,
    /// The first line: the completeness, the missing parts and the reason.
    pub headline: String,
    /// The second line: the certainty of that.
    pub explanation: String,
    /// Frames from the first to the last of each stream.
    pub expected: u64,
    /// Frames recorded.
    pub recorded: u64,
    /// Frames of those expected that are not recorded.
    pub lost: u64,
    /// Whole frames that arrived and were not kept because their index was not plausible. They are not part of
    /// `expected`.
    pub not_kept: u64,
    /// The time range of the data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covered: Option<Covered>,
    /// The planned start and end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<Planned>,
    /// The part of the plan that is not covered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncovered: Option<Uncovered>,
    /// True if something counts against it although no frame is known to be lost.
    #[serde(skip)]
    doubtful: bool,
}

impl Completeness {
    /// Completeness of a finished scan, from its accounts in the order of the manifest's streams.
    pub fn of_accounts(manifest: &Manifest, accounts: &[Account]) -> Self {
        let name = |number: usize| manifest.streams.get(number).map_or("", |it| it.name.as_str());
        let parts = accounts.iter().enumerate();
        let parts =
            parts.map(|(number, it)| StreamCompleteness::of_account(name(number), it)).collect();
        Self::judged(parts, manifest.planned, manifest.state, &manifest.wanting())
    }

    /// Completeness of a scan from its manifest, once each stream has an account.
    pub fn of_manifest(manifest: &Manifest) -> Option<Self> {
        let part = |stream: &crate::manifest::Stream| {
            Some(StreamCompleteness::of_summary(stream.name.as_str(), stream.account.as_ref()?))
        };
        let parts = manifest.streams.iter().map(part).collect::<Option<Vec<_>>>()?;
        Some(Self::judged(parts, manifest.planned, manifest.state, &manifest.wanting()))
    }

    /// Completeness of a scan in several independent parts, recorded one after the other.
    pub fn of_parts<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Option<Self> {
        let each = manifests.into_iter().map(Self::of_manifest).collect::<Option<Vec<_>>>()?;
        each.into_iter().max_by_key(|it| (it.status, it.lost))
    }

    /// Completeness of one stream, or one acquisition.
    pub fn of_account(account: &Account) -> Self {
        Self::of_account_in(State::Sealed, account)
    }

    /// Completeness of one stream of a finished scan.
    pub fn of_account_in(state: State, account: &Account) -> Self {
        Self::judged(vec![StreamCompleteness::of_account("", account)], None, state, &[])
    }

    /// Completeness from balance and verdict alone.
    pub fn of_terms(terms: Terms, verdict: Verdict, state: State) -> Self {
        Self::judged(vec![StreamCompleteness::of_terms(terms, verdict)], None, state, &[])
    }

    /// Judges a scan by its streams, its plan, its state, and the shortcomings of its disk set.
    pub fn judged(
        parts: Vec<StreamCompleteness>,
        planned: Option<Planned>,
        state: State,
        wanting: &[Degradation],
    ) -> Self {
        let mut terms = Terms::default();
        parts.iter().for_each(|part| terms.add(&part.terms));
        let lost = parts.iter().map(StreamCompleteness::lost).fold(0, u64::saturating_add);
        let not_kept = parts.iter().map(|it| it.beside.not_kept).fold(0, u64::saturating_add);
        let scan = Judged { parts: &parts, terms, lost, not_kept, planned, state, wanting };
        let lacks = scan.lacks();
        let (doubts, mut doubtful) = scan.doubts();
        let status = match (lost > 0, lacks.is_empty(), doubts.is_empty()) {
            (true, ..) => Status::Lost,
            (false, false, _) => Status::Incomplete,
            (false, true, false) => Status::Unknown,
            (false, true, true) => Status::Complete,
        };
        doubtful |= status == Status::Lost || status == Status::Incomplete;
        Self {
            complete: status.complete(),
            status,
            headline: scan.headline(status, lacks, doubts),
            explanation: scan.explanation(),
            expected: terms.expected,
            recorded: terms.written,
            lost,
            not_kept,
            covered: scan.covered(),
            planned: planned.filter(Planned::is_any),
            uncovered: scan.uncovered(),
            doubtful,
        }
    }

    /// True if nothing counts against it: the exit code of `record` is 0 then, unless the disk set is degraded. A
    /// format without numbers cannot be shown to be complete, and is good if no loss is known.
    pub fn is_good(&self) -> bool {
        !self.doubtful
    }

    /// Returns a short text for a table cell.
    pub fn short(&self) -> String {
        match (self.status, &self.uncovered) {
            (Status::Complete, _) => "complete".to_owned(),
            (Status::Unknown, _) => "unknown".to_owned(),
            (Status::Incomplete, Some(Uncovered { ns, frames, .. })) => {
                let frames =
                    frames.map_or(String::new(), |it| format!(" ({} frames)", grouped(it)));
                format!("INCOMPLETE, {} not covered{frames}", seconds(*ns))
            }
            (Status::Incomplete, None) => "INCOMPLETE".to_owned(),
            (Status::Lost, _) => {
                format!("LOST {} ({})", grouped(self.lost), percent(self.lost, self.expected))
            }
        }
    }
}

/// The counts of a recording while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoFar {
    /// Frames lost.
    pub lost: u64,
    /// Whole frames that arrived and were not kept.
    pub not_kept: u64,
    /// Datagrams that are not frames.
    pub not_frames: u64,
    /// Datagrams that the filter of an endpoint excluded, if nothing else arrived.
    pub left_out: u64,
}

impl fmt::Display for SoFar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let datagrams = |number| counted(number, "datagram");
        let told = [
            (self.lost, format!("LOST {} so far", frames(self.lost))),
            (
                self.not_kept,
                format!("{} came and {} not kept", frames(self.not_kept), was(self.not_kept)),
            ),
            (
                self.not_frames,
                format!("{} received that are not frames", datagrams(self.not_frames)),
            ),
            (
                self.left_out,
                format!("{} came, all left out by the filter", datagrams(self.left_out)),
            ),
        ];
        let told: Vec<String> =
            told.into_iter().filter(|(number, _)| *number > 0).map(|(_, text)| text).collect();
        match told.is_empty() {
            true => f.write_str("nothing lost so far"),
            false => f.write_str(&told.join(", ")),
        }
    }
}

/// The facts that the words of a completeness are made from.
struct Judged<'a> {
    parts: &'a [StreamCompleteness],
    terms: Terms,
    lost: u64,
    not_kept: u64,
    planned: Option<Planned>,
    state: State,
    wanting: &'a [Degradation],
}

impl Judged<'_> {
    fn headline(&self, status: Status, lacks: Vec<String>, doubts: Vec<String>) -> String {
        let mut text = format!("{} ", status.word());
        match status {
            Status::Lost => text += &self.losses(),
            Status::Incomplete if self.terms.written == 0 => text += "nothing was recorded",
            // If a loss cannot be ruled out, the text says nothing about it here.
            Status::Incomplete if !doubts.is_empty() || self.unreachable().is_some() => {
                text += &format!("{} recorded", self.units(self.terms.written));
            }
            Status::Incomplete => {
                text += &format!("{} recorded, no loss among them", self.units(self.terms.written));
            }
            Status::Unknown => text += &format!("{} recorded{}", self.frames(), self.time()),
            Status::Complete => text += &format!("all {}{}", self.frames(), self.time()),
        }
        if status != Status::Lost {
            text = text.replacen(' ', ": ", 1);
        }
        for clause in lacks.into_iter().chain(doubts).chain(self.remarks()) {
            text += &format!("; {clause}");
        }
        text
    }

    /// `12 500 frames of 4 streams`.
    fn frames(&self) -> String {
        let mut text = self.units(self.terms.written);
        if self.parts.len() > 1 {
            let _ = write!(text, " of {} streams", self.parts.len());
        }
        text
    }

    /// `, 10.0 s`, and what part of the plan that is.
    fn time(&self) -> String {
        let planned = self.planned.and_then(|it| it.lasts_ns()).map(seconds);
        let covered = self.covered().map(|it| seconds(self.data_ns(it)));
        match (planned, covered) {
            (Some(planned), Some(covered)) if covered != planned => {
                format!(", {covered} of the {planned} planned")
            }
            (Some(planned), _) => format!(", the {planned} planned"),
            (None, Some(covered)) => format!(", {covered}"),
            (None, None) => String::new(),
        }
    }

    /// Returns the duration of the data: the last frame lasts until the start of the next one.
    fn data_ns(&self, covered: Covered) -> i64 {
        let lasts = covered.lasts_ns();
        let most = self.parts.iter().map(|it| it.terms.expected).max().unwrap_or(0);
        let between = i64::try_from(most).unwrap_or(i64::MAX) - 1;
        lasts.saturating_add(lasts.checked_div(between.max(0)).unwrap_or(0))
    }

    /// `8404 of 12 500 frames (67 %): the disk is full`.
    fn losses(&self) -> String {
        let expected = self.units(self.terms.expected);
        let share = percent(self.lost, self.terms.expected);
        let mut text = format!("{} of {expected} ({share})", grouped(self.lost));
        let with = self.parts.iter().filter(|part| part.lost() > 0).count();
        if self.parts.len() > 1 {
            let _ = write!(text, " in {with} of {} streams", self.parts.len());
        }
        let causes = self.causes();
        match causes.as_slice() {
            [(_, alone, _)] => text + ": " + alone,
            several => {
                let each =
                    several.iter().map(|(count, _, name)| format!("{} {name}", grouped(*count)));
                text + ": " + &each.collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// Returns the missing frames of a stream by the place of the loss. A recorder that died took its loss counters with
    /// it, so the place is not known; a device has its own count.
    fn missing_of(&self, part: &StreamCompleteness) -> Missing {
        let Missing { here, before, unknown } = part.missing();
        let of_device = part.counted_by == Some(CountedBy::ServerCount);
        match self.state {
            State::Recovered if !of_device => {
                Missing { here, before: 0, unknown: unknown.saturating_add(before) }
            }
            _ => Missing { here, before, unknown },
        }
    }

    /// Returns the causes of the absent frames: the number, the reason if it is the only cause, and the reason beside
    /// others.
    fn causes(&self) -> Vec<(u64, String, String)> {
        let sum = |of: &dyn Fn(&StreamCompleteness) -> u64| {
            self.parts.iter().map(of).fold(0, u64::saturating_add)
        };
        let device = self.parts.iter().any(|it| it.counted_by == Some(CountedBy::ServerCount));
        let dropped = match device {
            true => "not sent in time, or not received, by the device's own count",
            false => "dropped by this host before fullbore could read them",
        };
        let why = self.parts.iter().find_map(|part| part.beside.why_overrun.clone());
        // The account has the operation that failed.
        let why = why.map(|why| why.split(" (").next().unwrap_or_default().to_owned());
        let why = why.or_else(|| {
            self.wanting.iter().find_map(|it| match it {
                Degradation::Failed { why, .. } => Some(why.split(" (").next()?.to_owned()),
                _ => None,
            })
        });
        let why = why.unwrap_or_else(|| match self.state {
            State::Recovered => "they arrived, but no member stored them".to_owned(),
            State::Aborted => "the abort discarded them".to_owned(),
            _ => "they arrived while no block was free".to_owned(),
        });
        let before = "lost before they reached this host".to_owned();
        let nowhere = match self.state {
            State::Recovered => (
                "where is not known, since no loss counter survived the recorder",
                "lost where no loss counter survived",
            ),
            _ => ("where they were lost is not known", "lost at an unknown place"),
        };
        [
            (sum(&|it| it.terms.overrun), why.clone(), format!("could not be stored ({why})")),
            (sum(&|it| self.missing_of(it).before), before.clone(), before),
            (sum(&|it| self.missing_of(it).here), dropped.to_owned(), dropped.to_owned()),
            (sum(&|it| self.missing_of(it).unknown), nowhere.0.to_owned(), nowhere.1.to_owned()),
            (sum(&|it| it.terms.damaged), "they were damaged".into(), "came damaged".into()),
            (sum(&|it| it.terms.late), "they came too late".into(), "came too late".into()),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .collect()
    }

    /// Returns the missing parts other than lost frames.
    fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        if let Some((frames, members)) = self.unreachable() {
            let (count, are) = (self.units(frames), if frames == 1 { "is" } else { "are" });
            lacks.push(format!("{count} {are} on {}, which cannot be reached", members.join(", ")));
        }
        if self.parts.is_empty() && self.state != State::Recording {
            lacks.push("no stream began: no frame of the expected format came".to_owned());
        }
        let silent = self.named(|it| it.has(|it| *it == Presence::NeverCame));
        if !silent.is_empty() {
            lacks.push(format!("{} never delivered a frame", self.streams(&silent)));
        }
        lacks.extend(few(self.clauses(|it| match *it {
            Presence::OnlyForeign { datagrams } => {
                let came = counted(datagrams, "datagram");
                Some(format!("got {came}, of which none is a frame of its format"))
            }
            Presence::OnlyExcluded { datagrams } => {
                let came = counted(datagrams, "datagram");
                Some(format!("got {came}, and the filter of its endpoint left all of them out"))
            }
            _ => None,
        })));
        if let Some(uncovered) = self.uncovered() {
            lacks.push(self.not_covered(uncovered));
        }
        lacks.extend(few(self.clauses(|it| match *it {
            Presence::StartedLate { ns } => {
                Some(format!("began {} after the first one", seconds(ns)))
            }
            Presence::DiedEarly { ns } => {
                Some(format!("ended {} before the last one", seconds(ns)))
            }
            _ => None,
        })));
        let of_threads = self.parts.iter().flat_map(StreamCompleteness::presences);
        let absent =
            of_threads.filter(|(whose, it)| **it == Presence::NeverCame && whose.thread.is_some());
        lacks.extend(few(absent.map(|(whose, _)| format!("{whose} sent nothing in this scan"))));
        let unnamed = self.parts.iter().map(|it| u64::from(it.unnamed_threads)).sum::<u64>();
        if unnamed > 0 {
            let were = was(unnamed);
            lacks.push(format!("{} {were} not there all the time", counted(unnamed, "thread")));
        }
        if self.not_kept > 0 {
            let were = was(self.not_kept);
            lacks.push(format!("{} came and {were} not kept", self.units(self.not_kept)));
        }
        lacks
    }

    /// Returns a clause for each fact about a stream or a thread that `word` has words for.
    fn clauses(&self, word: impl Fn(&Presence) -> Option<String>) -> impl Iterator<Item = String> {
        let all = self.parts.iter().flat_map(StreamCompleteness::presences);
        all.filter_map(move |(whose, it)| Some(format!("{whose} {}", word(it)?)))
    }

    fn not_covered(&self, uncovered: Uncovered) -> String {
        let planned = self.planned.and_then(|it| it.lasts_ns());
        let of = planned
            .map_or("what was planned".to_owned(), |ns| format!("the {} planned", seconds(ns)));
        let mut text = format!("{} of {of} are not covered", seconds(uncovered.ns));
        if let Some(count) = uncovered.frames {
            text += &format!(" ({})", self.units(count));
        }
        if self.parts.len() > 1 {
            text += &format!(" in {} of {} streams", uncovered.streams, self.parts.len());
        }
        if let [part] = self.parts {
            let ends = part.presences().filter_map(|(whose, it)| {
                let it = match *it {
                    _ if part.never_came() => return None,
                    Presence::LacksBeginning { ns, .. } => format!("began {} late", seconds(ns)),
                    Presence::LacksEnd { ns, .. } => format!("ended {} early", seconds(ns)),
                    _ => return None,
                };
                Some(format!("{} {it}", whose.of_the_only_one()))
            });
            let ends = few(ends);
            if !ends.is_empty() {
                text += &format!(": {}", ends.join(", "));
            }
        }
        text
    }

    /// Returns the reasons why a loss cannot be ruled out, and whether any of them counts against the recording.
    fn doubts(&self) -> (Vec<String>, bool) {
        let mut doubts: Vec<(&'static str, bool)> = Vec::new();
        for doubt in self.parts.iter().filter_map(StreamCompleteness::doubt) {
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
        let doubtful = doubts.iter().any(|(_, against)| *against);
        let mut texts: Vec<String> = doubts
            .into_iter()
            .map(|(text, _)| {
                let named = self.named(|part| part.doubt().is_some_and(|(of, _)| of == text));
                match named.len() == self.parts.len() {
                    true => text.to_owned(),
                    false => format!("{}: {text}", self.streams(&named)),
                }
            })
            .collect();
        if self.state == State::Recovered
            && self.parts.iter().any(|it| it.verdict != Verdict::Proven)
        {
            texts.push(
                "it was recovered, and what was not on the disk by then is not known".to_owned(),
            );
        }
        (texts, doubtful)
    }

    /// Returns the remarks that do not affect the completeness.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let disagreements = self.disagreements();
        if disagreements > 0 {
            remarks.push(format!(
                "the second count of {} disagrees with their time",
                self.units(disagreements)
            ));
        }
        if self.state == State::Aborted {
            remarks.push("it was aborted".to_owned());
        }
        // A failure for lack of space is the cause of the loss, and is named as such.
        if self.terms.overrun == 0 && !self.wanting.is_empty() {
            let listed: Vec<String> = self.wanting.iter().map(ToString::to_string).collect();
            remarks.push(format!("it is degraded: {}", listed.join(", ")));
        }
        remarks
    }

    fn uncovered(&self) -> Option<Uncovered> {
        let lacking: Vec<_> = self.parts.iter().filter_map(StreamCompleteness::uncovered).collect();
        let ns = lacking.iter().map(|(ns, _)| *ns).max()?;
        let frames = lacking.iter().map(|(_, frames)| *frames).collect::<Option<Vec<u64>>>();
        let frames = frames.map(|it| it.into_iter().fold(0, u64::saturating_add));
        Some(Uncovered { ns, frames, streams: lacking.len() })
    }

    /// Returns the number of frames that are out of reach, and the members that they are on.
    fn unreachable(&self) -> Option<(u64, Vec<&str>)> {
        let each = || self.parts.iter().filter_map(|part| part.beside.unreachable.as_ref());
        let frames = each().map(|it| it.frames).fold(0, u64::saturating_add);
        let mut members: Vec<&str> = Vec::new();
        for member in each().flat_map(|it| &it.members) {
            if !members.contains(&member.as_str()) {
                members.push(member);
            }
        }
        (frames > 0).then_some((frames, members))
    }

    fn disagreements(&self) -> u64 {
        let each = self.parts.iter().map(|it| it.beside.disagreements);
        each.fold(0, u64::saturating_add)
    }

    fn covered(&self) -> Option<Covered> {
        // Two clocks are not mixed: if one stream has no time, arrival time counts for all.
        let each = || self.parts.iter().map(|part| &part.beside).filter(|it| it.covered.is_some());
        let by_time = each().all(|it| it.received.is_some());
        let all = || {
            each().filter_map(|it| if by_time { it.covered } else { it.received.or(it.covered) })
        };
        Some(Covered { from: all().map(|it| it.from).min()?, to: all().map(|it| it.to).max()? })
    }

    /// Returns the certainty: the verdict, and its meaning here.
    fn explanation(&self) -> String {
        let Some(verdict) = self.parts.iter().map(|part| part.verdict).max() else {
            return "unproven: there are no streams".to_owned();
        };
        let of_it = || self.parts.iter().filter(|part| part.verdict == verdict);
        let text = match verdict {
            Verdict::Proven => {
                "no frame is missing by the stream's own count, and no loss counter of this host moved".to_owned()
            }
            Verdict::Consistent if self.lost > 0 => {
                "every frame that is not recorded is counted, with its cause".to_owned()
            }
            Verdict::Consistent if self.not_kept > 0 => {
                "the frames that came and were not kept are counted".to_owned()
            }
            Verdict::Consistent => {
                let mut why = Vec::new();
                if of_it().any(|it| it.beside.counters_moved) {
                    why.push("a loss counter of this host moved or could not be read");
                }
                if of_it().any(|it| it.beside.unreachable.is_some()) {
                    why.push("some of its data could not be read when it was sealed");
                }
                if of_it().any(|it| it.beside.disagreements > 0) {
                    why.push("the second count of frames disagrees with their time");
                }
                if self.state == State::Recovered {
                    why.push("the loss counters of this host are not known: its recorder died");
                }
                let but = if why.is_empty() { "" } else { ", but " };
                format!("no frame is missing by the stream's own count{but}{}", why.join(", and "))
            }
            Verdict::Unexplained => {
                let before = of_it().map(|it| it.missing().before).fold(0, u64::saturating_add);
                let foreign = |it: &Presence| matches!(it, Presence::OnlyForeign { .. });
                let excluded = |it: &Presence| matches!(it, Presence::OnlyExcluded { .. });
                match before {
                    0 if of_it().all(|it| it.has(foreign)) => {
                        "the received data is not of the format that was expected".to_owned()
                    }
                    0 if of_it().all(|it| it.has(excluded)) => {
                        "what came was left out, as threads=, source= or frame= of the endpoint says".to_owned()
                    }
                    0 => "no counter of this host explains why it is not complete".to_owned(),
                    before if self.state == State::Recovered => format!(
                        "{} missing, and no loss counter of this host survived the recorder",
                        if before == 1 { "1 frame is".to_owned() } else { format!("{} are", frames(before)) }
                    ),
                    before => format!(
                        "{} lost before this host, and no counter here accounts for {}",
                        match before {
                            1 => "1 frame was".to_owned(),
                            _ => format!("{} were", frames(before)),
                        },
                        if before == 1 { "it" } else { "them" }
                    ),
                }
            }
            Verdict::Unproven => "only the losses on this host are known".to_owned(),
        };
        format!("{verdict}: {text}")
    }

    fn named(&self, of: impl Fn(&StreamCompleteness) -> bool) -> Vec<&str> {
        self.parts.iter().filter(|part| of(part)).map(|part| part.name.as_str()).collect()
    }

    /// `stream a`, `streams a, b`, `all 8 streams`.
    fn streams(&self, names: &[&str]) -> String {
        match names {
            [""] => "it".to_owned(),
            [one] => format!("stream {one}"),
            all if all.len() == self.parts.len() => format!("all {} streams", all.len()),
            some => {
                let more = match some.len().saturating_sub(NAMES) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                let first: Vec<&str> = some.iter().take(NAMES).copied().collect();
                format!("streams {}{more}", first.join(", "))
            }
        }
    }

    /// Returns "frames", "samples" if a device counts them, or "bytes" if there are no frames.
    fn units(&self, number: u64) -> String {
        let mut units =
            self.parts.iter().map(|part| part.counted_by.map_or("frame", CountedBy::unit));
        let unit = units.next().filter(|first| units.all(|unit| unit == *first));
        counted(number, unit.unwrap_or("frame"))
    }
}

/// Returns the first of these clauses, and the number of the others.
fn few(clauses: impl Iterator<Item = String>) -> Vec<String> {
    let mut clauses: Vec<String> = clauses.collect();
    let more = clauses.len().saturating_sub(NAMES);
    if more > 1 {
        clauses.truncate(NAMES);
        clauses.push(format!("and {more} more like these"));
    }
    clauses
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn was(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
}

fn frames(number: u64) -> String {
    counted(number, "frame")
}

/// `1 frame`, `12 500 frames`.
pub fn counted(number: u64, unit: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {unit}{ending}", grouped(number))
}

/// `8404`, `12 500`: from five digits on in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// `67 %`. Never `0 %` of something, nor `100 %` of less than everything.
fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0 %".to_owned();
    }
    let percent = part as f64 / whole as f64 * 100.0;
    match percent {
        _ if part >= whole => "100 %".to_owned(),
        _ if percent >= 99.5 => "more than 99 %".to_owned(),
        _ if percent >= 9.95 => format!("{percent:.0} %"),
        _ if percent >= 0.995 => format!("{percent:.1} %"),
        _ if percent >= 0.01 => format!("{percent:.2} %"),
        _ if part == 0 => "0 %".to_owned(),
        _ => "less than 0.01 %".to_owned(),
    }
}

/// `0.25 s`, `2.3 s`, `3600 s`.
pub fn seconds(ns: i64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        _ if seconds < 0.995 => format!("{seconds:.2} s"),
        _ if seconds < 99.95 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

#[cfg(test)]
mod tests;
