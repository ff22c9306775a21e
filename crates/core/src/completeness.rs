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
//! | `LOST` | frames are missing, overrun, damaged, late or not transferred |
//! | `INCOMPLETE` | no frame is known to be lost, but a stream never arrived, lacks an end or does not cover the plan,
//! or frames arrived and were not kept, or frames are on a member that cannot be reached |
//! | `UNKNOWN` | no loss is known, and none can be ruled out |

mod planned;
mod words;

use std::fmt;

use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

use crate::account::{Account, CountedBy, NotTransferred, Presence, Terms, Unreachable, Verdict};
use crate::manifest::{Degradation, Manifest, State, Summary};

pub use self::planned::{Planned, TOLERANCE_NS};
use self::words::{Judged, frames, percent, was};
pub use self::words::{counted, grouped, seconds};

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
    /// The part of the source that has not arrived, if this is an incomplete copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_transferred: Option<NotTransferred>,
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
            not_transferred: account.not_transferred,
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
    /// Frames are missing, overrun, damaged, late or not transferred.
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
        let Terms { missing, overrun, damaged, late, not_transferred, .. } = self.terms;
        [missing, overrun, damaged, late, not_transferred].into_iter().fold(0, u64::saturating_add)
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
        if self.beside.not_transferred.is_some_and(|it| it.was_recording) {
            let text = "its source was still recording: what it recorded later is not known here";
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

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests;
