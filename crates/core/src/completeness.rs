//! Whether a recording is complete, in the words of every screen and of every JSON document.
//!
//! A recording answers two questions. Is everything there? And how well is it known why something is not? The
//! [`Verdict`] answers the second. This module answers the first, and words both: nowhere else are they worded.
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
//! | `INCOMPLETE` | no frame is known to be lost, but a stream never came, lacks an end, does not cover the plan, or frames came and were not kept |
//! | `UNKNOWN` | nothing is known to be lost, and nobody can say whether anything was |

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::account::{Account, CountedBy, Edge, Flow, Presence, Terms, Verdict};
use crate::manifest::{Manifest, State, Summary, Wanting};
use crate::time::Tai;

/// A stream that lacks no more than this at an end that was planned covers it: nobody begins to the nanosecond.
pub const TOLERANCE_NS: i64 = 250_000_000;

/// … or no more than so many of its own frames.
const TOLERANCE_FRAMES: i64 = 4;

/// The time in a frame is compared with the plan if it is as near as this to the time of its arrival. Else it was
/// recorded earlier and is played back, or a clock is wrong, and the time of arrival counts.
const LIVE_NS: u64 = 250_000_000;

/// A second, in nanoseconds.
const S: i64 = 1_000_000_000;

/// Names that a headline lists.
const NAMES: usize = 3;

/// When a scan was to begin and to end, as far as that was said beforehand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// When it was to begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Tai>,
    /// When it was to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Tai>,
}

impl Planned {
    /// Whether anything was planned.
    pub fn is_any(&self) -> bool {
        self.begin.is_some() || self.end.is_some()
    }

    /// How long it was to last.
    pub fn lasts_ns(&self) -> Option<i64> {
        Some(self.end?.since(self.begin?))
    }

    /// What a stream lacks of the plan, at either end. A device that counts for itself is not compared: its acquisition
    /// begins when it is armed. Nor is a stream of several threads that came: each of these is compared.
    /// `armed` stands for a beginning that was not planned, `stopped` for such an end.
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

    /// What a thread of a stream that holds several lacks of the plan.
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
        let when = |edge: Edge| match edge.time {
            Some(time) if edge.seen.since(time).unsigned_abs() <= LIVE_NS => time,
            _ => edge.seen,
        };
        let between = i64::try_from(expected.saturating_sub(1)).unwrap_or(i64::MAX);
        let period = last.seen.since(first.seen).checked_div(between).unwrap_or(0);
        let tolerance = TOLERANCE_NS.max(period.saturating_mul(TOLERANCE_FRAMES));
        let late = self.begin.map_or(0, |begin| when(first).since(begin));
        // The last frame lasts until the next one would have begun.
        let frame_ns =
            frames_per_second.map_or(period, |rate| S.checked_div(rate.cast_signed()).unwrap_or(0));
        let early = self.end.map_or(0, |end| end.since(when(last)).saturating_sub(frame_ns));
        let beginning = Presence::LacksBeginning { ns: late, frames: frames(late) };
        let ending = Presence::LacksEnd { ns: early, frames: frames(early) };
        [(late, beginning), (early, ending)]
            .into_iter()
            .filter(|(ns, _)| *ns > tolerance)
            .map(|(_, presence)| presence)
            .collect()
    }
}

/// From when to when there is data: by the time in the frames where they carry one, else by their arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Time of the first frame.
    pub from: Tai,
    /// Time of the last frame.
    pub to: Tai,
}

impl Covered {
    /// What the first and the last frame of an account say: the time in them, and their arrival.
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

/// What the balance of an account does not tell, for a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beside {
    /// Whole frames that came and were not kept.
    #[serde(default)]
    pub not_kept: u64,
    /// Times the sender's count started anew.
    #[serde(default)]
    pub restarts: u64,
    /// From when to when there is data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<Covered>,
    /// The same by the arrival of frames, where `covered` is by the time in them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Covered>,
    /// Why frames were overrun, where any were and it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_overrun: Option<String>,
    /// Frames whose second count is not that of their time.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub disagreements: u64,
    /// Whether a loss counter of this host moved, or could not be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counters_moved: bool,
    /// Of a stream of several threads: those that were not there all the time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub threads: Vec<ThreadPresence>,
}

/// A thread of a stream that holds several, and what its numbers alone cannot show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadPresence {
    /// Station, as in the frames.
    pub station: u16,
    /// Thread, as in the frames.
    pub thread: u16,
    /// When it was not there.
    pub presence: Vec<Presence>,
}

impl From<&Account> for Beside {
    fn from(account: &Account) -> Self {
        let amiss = account.flows.iter().filter(|flow| !flow.presence.is_empty());
        let threads = amiss.map(|flow| ThreadPresence {
            station: flow.station,
            thread: flow.thread,
            presence: flow.presence.clone(),
        });
        let moved = account.witnesses.iter().any(|witness| witness.moved() > 0);
        let (by_time, received) = Covered::of(account);
        Self {
            not_kept: account.not_kept(),
            restarts: account.restarts,
            covered: by_time.or(received),
            received: by_time.and(received),
            why_overrun: account.why_overrun(),
            disagreements: account.disagreements,
            counters_moved: moved || !account.unread.is_empty(),
            threads: threads.collect(),
        }
    }
}

/// The first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Every frame that was expected is recorded, and what was planned is covered.
    Complete,
    /// Nothing is known to be lost, and nobody can say whether anything was.
    Unknown,
    /// No frame is known to be lost, and something is not there all the same.
    Incomplete,
    /// Frames are missing, overrun, damaged or late.
    Lost,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Status::Complete => "COMPLETE",
            Status::Unknown => "UNKNOWN",
            Status::Incomplete => "INCOMPLETE",
            Status::Lost => "LOST",
        }
    }
}

/// What was planned and is not covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Uncovered {
    /// The most that a stream lacks of the plan, in nanoseconds.
    pub ns: i64,
    /// Frames that all streams lack of it together, where each one's rate is known.
    pub frames: Option<u64>,
    /// Streams that lack something of it.
    pub streams: usize,
}

/// One stream, as its account or the manifest has it.
#[derive(Clone, Debug)]
pub struct Part {
    /// The stream's name.
    pub name: String,
    /// Its balance.
    pub terms: Terms,
    /// By what it was counted, where that is known.
    pub counted_by: Option<CountedBy>,
    /// How sure the balance is.
    pub verdict: Verdict,
    /// What its numbers alone cannot show.
    pub presence: Vec<Presence>,
    /// What its balance does not tell.
    pub beside: Beside,
}

impl Part {
    /// By its account.
    pub fn of_account(name: &str, account: &Account) -> Self {
        Self {
            name: name.to_owned(),
            terms: account.terms,
            counted_by: Some(account.counted_by),
            verdict: account.verdict,
            presence: account.presence.clone(),
            beside: Beside::from(account),
        }
    }

    /// By its account in short.
    fn of_summary(name: &str, summary: &Summary) -> Self {
        Self {
            name: name.to_owned(),
            terms: summary.terms,
            counted_by: Some(summary.counted_by),
            verdict: summary.verdict,
            presence: summary.presence.clone(),
            beside: summary.beside.clone().unwrap_or_else(|| Beside {
                covered: summary.first.zip(summary.last).map(|(from, to)| Covered { from, to }),
                ..Beside::default()
            }),
        }
    }

    fn lost(&self) -> u64 {
        let Terms { missing, overrun, damaged, late, .. } = self.terms;
        [missing, overrun, damaged, late].into_iter().fold(0, u64::saturating_add)
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

    /// Whether its presence says that something of it is not there.
    fn lacks_an_end(&self) -> bool {
        let of_the_scan = |it: &Presence| {
            matches!(
                it,
                Presence::CameLate { .. } | Presence::WentEarly { .. } | Presence::NotKnown
            )
        };
        let of_threads = self.beside.threads.iter().flat_map(|thread| &thread.presence);
        !self.presence.iter().chain(of_threads).all(of_the_scan)
    }

    /// What is told of its presence, and whose: its own, or that of one of its threads.
    fn presences(&self) -> impl Iterator<Item = (String, &Presence)> {
        let own = self.presence.iter().map(|it| (format!("stream {}", self.name), it));
        let of_threads = self.beside.threads.iter().flat_map(|of| {
            let ThreadPresence { station, thread, presence } = of;
            let whose = format!("stream {}, station {station}, thread {thread}:", self.name);
            presence.iter().map(move |it| (whose.clone(), it))
        });
        own.chain(of_threads)
    }

    /// What it lacks of the plan: nanoseconds, and frames where its rate is known. Of several threads: the most
    /// nanoseconds, and the frames of all.
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

    /// Why nobody can say whether anything of it is lost. The second is whether that speaks against the recording: a
    /// format without numbers can have no better account.
    fn doubt(&self) -> Option<(&'static str, bool)> {
        let panda = self.counted_by == Some(CountedBy::ServerCount);
        if self.beside.restarts > 0 {
            let text = "the sender restarted its count, and what it sent in between is not known";
            return Some((text, true));
        }
        if self.has(|it| *it == Presence::NotKnown) {
            return Some(("the recorder died before anything of it was durable", false));
        }
        match self.verdict {
            Verdict::Unproven if panda => {
                Some(("the PandA could not be asked how many samples it took", true))
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
                Some(("what the PandA says it sent is not what came", true))
            }
            Verdict::Unexplained if self.lost() == 0 && !self.lacks_an_end() => {
                Some(("what came is not what its sender counted", true))
            }
            Verdict::Proven | Verdict::Consistent | Verdict::Unexplained => None,
        }
    }
}

/// Whether a recording is complete, and how well it is known why it is not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Completeness {
    /// Whether everything is there; nothing where nobody can say.
    pub complete: Option<bool>,
    /// The first word of the headline.
    #[serde(rename = "completeness")]
    pub status: Status,
    /// The first line: whether everything is there, what is not, and why.
    pub headline: String,
    /// The second line: how sure that is.
    pub explanation: String,
    /// Frames from the first to the last of each stream.
    pub expected: u64,
    /// Frames recorded.
    pub recorded: u64,
    /// Frames of those expected that are not recorded.
    pub lost: u64,
    /// Whole frames that came and were not kept, since their place was not to be believed. They are no part of `expected`.
    pub not_kept: u64,
    /// From when to when there is data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub covered: Option<Covered>,
    /// When it was to begin and to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub planned: Option<Planned>,
    /// What of that is not covered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uncovered: Option<Uncovered>,
    /// Whether something speaks against it although no frame is known to be lost.
    #[serde(skip)]
    doubtful: bool,
}

impl Completeness {
    /// Of a scan that is over, by its accounts in the order of the manifest's streams.
    pub fn of_accounts(manifest: &Manifest, accounts: &[Account]) -> Self {
        let name = |number: usize| manifest.streams.get(number).map_or("", |it| it.name.as_str());
        let parts = accounts.iter().enumerate();
        let parts = parts.map(|(number, it)| Part::of_account(name(number), it)).collect();
        Self::judged(parts, manifest.planned, manifest.state, &manifest.wanting())
    }

    /// Of a scan by its manifest, once each stream has an account.
    pub fn of_manifest(manifest: &Manifest) -> Option<Self> {
        let part = |stream: &crate::manifest::Stream| {
            Some(Part::of_summary(stream.name.as_str(), stream.account.as_ref()?))
        };
        let parts = manifest.streams.iter().map(part).collect::<Option<Vec<_>>>()?;
        Some(Self::judged(parts, manifest.planned, manifest.state, &manifest.wanting()))
    }

    /// Of a scan in several parts, recorded one after the other, of which each stands by itself.
    pub fn of_parts<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) -> Option<Self> {
        let each = manifests.into_iter().map(Self::of_manifest).collect::<Option<Vec<_>>>()?;
        each.into_iter().max_by_key(|it| (it.status, it.lost))
    }

    /// Of one stream, or one acquisition.
    pub fn of_account(account: &Account) -> Self {
        let part = Part { name: String::new(), ..Part::of_account("", account) };
        Self::judged(vec![part], None, State::Sealed, &[])
    }

    /// Where nothing but balance and verdict is known.
    pub fn of_terms(terms: Terms, verdict: Verdict, state: State) -> Self {
        let part = Part {
            name: String::new(),
            terms,
            counted_by: None,
            verdict,
            presence: Vec::new(),
            beside: Beside::default(),
        };
        Self::judged(vec![part], None, state, &[])
    }

    /// By the streams of a scan, its plan, how far it came, and what its disk set lacked.
    pub fn judged(
        parts: Vec<Part>,
        planned: Option<Planned>,
        state: State,
        wanting: &[Wanting],
    ) -> Self {
        let mut terms = Terms::default();
        parts.iter().for_each(|part| terms.add(&part.terms));
        let lost = parts.iter().map(Part::lost).fold(0, u64::saturating_add);
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
            complete: match status {
                Status::Complete => Some(true),
                Status::Unknown => None,
                Status::Incomplete | Status::Lost => Some(false),
            },
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

    /// Whether nothing speaks against it: the exit code of `record` is 0 then, unless the disk set was found wanting.
    /// A format without numbers cannot be shown to be complete, and is good if nothing is known to be lost.
    pub fn is_good(&self) -> bool {
        !self.doubtful
    }

    /// For the cell of a table.
    pub fn short(&self) -> String {
        match (self.status, &self.uncovered) {
            (Status::Complete, _) => "complete".to_owned(),
            (Status::Unknown, _) => "unknown".to_owned(),
            (Status::Incomplete, Some(Uncovered { ns, .. })) => {
                format!("INCOMPLETE, {} not covered", seconds(*ns))
            }
            (Status::Incomplete, None) => "INCOMPLETE".to_owned(),
            (Status::Lost, _) => {
                format!("LOST {} ({})", grouped(self.lost), percent(self.lost, self.expected))
            }
        }
    }

    /// What is to be said while it is still being recorded: frames lost, and datagrams of sources that have sent no
    /// frame yet.
    pub fn so_far(lost: u64, not_frames: u64) -> String {
        match (lost, not_frames) {
            (0, 0) => "nothing lost so far".to_owned(),
            (0, some) => format!("{} came that are no frames", counted(some, "datagram")),
            (lost, _) => format!("LOST {} so far", frames(lost)),
        }
    }
}

/// What a completeness is worded from.
struct Judged<'a> {
    parts: &'a [Part],
    terms: Terms,
    lost: u64,
    not_kept: u64,
    planned: Option<Planned>,
    state: State,
    wanting: &'a [Wanting],
}

impl Judged<'_> {
    fn headline(&self, status: Status, lacks: Vec<String>, doubts: Vec<String>) -> String {
        let mut text = format!("{} ", status.word());
        match status {
            Status::Lost => text += &self.losses(),
            Status::Incomplete if self.terms.written == 0 => text += "nothing was recorded",
            // Where nobody can say whether anything was lost, nothing is said of it here.
            Status::Incomplete if !doubts.is_empty() => {
                text += &format!("{} recorded", self.units(self.terms.written));
            }
            Status::Incomplete => {
                text += &format!("{} recorded, no loss among them", self.units(self.terms.written));
            }
            Status::Unknown => text += &format!("{} recorded", self.recorded()),
            Status::Complete => text += &format!("all {}", self.recorded()),
        }
        if status != Status::Lost {
            text = text.replacen(' ', ": ", 1);
        }
        for clause in lacks.into_iter().chain(doubts).chain(self.remarks()) {
            text += &format!("; {clause}");
        }
        text
    }

    /// `12 500 frames of 4 streams, 10.0 s`.
    fn recorded(&self) -> String {
        let mut text = self.units(self.terms.written);
        if self.parts.len() > 1 {
            let _ = write!(text, " of {} streams", self.parts.len());
        }
        match self.planned.and_then(|it| it.lasts_ns()) {
            Some(ns) => text += &format!(", the {} planned", seconds(ns)),
            None => {
                text += &self
                    .covered()
                    .map_or_else(String::new, |it| format!(", {}", seconds(it.lasts_ns())));
            }
        }
        text
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

    /// Why frames are not there: how many, why if that is the only cause, and why beside others.
    fn causes(&self) -> Vec<(u64, String, String)> {
        let sum =
            |of: &dyn Fn(&Part) -> u64| self.parts.iter().map(of).fold(0, u64::saturating_add);
        let missing = |explained: bool| {
            sum(&|part| match (part.verdict == Verdict::Unexplained) == explained {
                true => 0,
                false => part.terms.missing,
            })
        };
        let device = self.parts.iter().any(|it| it.counted_by == Some(CountedBy::ServerCount));
        let dropped = match device {
            true => "not sent in time, or not received, as the device says",
            false => "dropped by this host before fullbore could read them",
        };
        let why = self.parts.iter().find_map(|part| part.beside.why_overrun.clone());
        // What was being done when it failed stands in the account.
        let why = why.map(|why| why.split(" (").next().unwrap_or_default().to_owned());
        let why = why.or_else(|| {
            self.wanting.iter().find_map(|it| match it {
                Wanting::Failed { why, .. } => Some(why.split(" (").next()?.to_owned()),
                _ => None,
            })
        });
        let why = why.unwrap_or_else(|| match self.state {
            State::Recovered => "they came, and no disk holds them".to_owned(),
            _ => "they came, and no memory was free for them".to_owned(),
        });
        let before = "lost before they reached this host".to_owned();
        [
            (sum(&|it| it.terms.overrun), why.clone(), format!("could not be stored ({why})")),
            (missing(false), before.clone(), before),
            (missing(true), dropped.to_owned(), dropped.to_owned()),
            (sum(&|it| it.terms.damaged), "they came damaged".into(), "came damaged".into()),
            (sum(&|it| it.terms.late), "they came too late".into(), "came too late".into()),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .collect()
    }

    /// What is not there beside frames that are lost.
    fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
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
        let of_threads = self.parts.iter().flat_map(Part::presences);
        let absent =
            of_threads.filter(|(whose, it)| **it == Presence::NeverCame && whose.ends_with(':'));
        lacks.extend(few(absent.map(|(whose, _)| format!("{whose} sent nothing in this scan"))));
        if self.not_kept > 0 {
            let were = if self.not_kept == 1 { "was" } else { "were" };
            lacks.push(format!("{} came and {were} not kept", self.units(self.not_kept)));
        }
        lacks
    }

    /// A clause for each thing told of a stream or a thread of which there is something to say.
    fn clauses(&self, word: impl Fn(&Presence) -> Option<String>) -> impl Iterator<Item = String> {
        let all = self.parts.iter().flat_map(Part::presences);
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
                // Of the only stream, its threads need to be named alone.
                let thread = whose.split_once(", ").map_or("it", |(_, thread)| thread);
                Some(format!("{} {it}", thread.trim_end_matches(':')))
            });
            let ends = few(ends);
            if !ends.is_empty() {
                text += &format!(": {}", ends.join(", "));
            }
        }
        text
    }

    /// Why nobody can say whether anything is lost, and whether any of it speaks against the recording.
    fn doubts(&self) -> (Vec<String>, bool) {
        let mut doubts: Vec<(&'static str, bool)> = Vec::new();
        for doubt in self.parts.iter().filter_map(Part::doubt) {
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

    /// What should be known beside, and makes no difference to what is there.
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
        // What failed for want of space is the cause of the loss, and told as such.
        if self.terms.overrun == 0 && !self.wanting.is_empty() {
            let listed: Vec<String> = self.wanting.iter().map(ToString::to_string).collect();
            remarks.push(format!("it is less safe than was asked for: {}", listed.join(", ")));
        }
        remarks
    }

    fn uncovered(&self) -> Option<Uncovered> {
        let lacking: Vec<_> = self.parts.iter().filter_map(Part::uncovered).collect();
        let ns = lacking.iter().map(|(ns, _)| *ns).max()?;
        let frames = lacking.iter().map(|(_, frames)| *frames).collect::<Option<Vec<u64>>>();
        let frames = frames.map(|it| it.into_iter().fold(0, u64::saturating_add));
        Some(Uncovered { ns, frames, streams: lacking.len() })
    }

    fn disagreements(&self) -> u64 {
        let each = self.parts.iter().map(|it| it.beside.disagreements);
        each.fold(0, u64::saturating_add)
    }

    fn covered(&self) -> Option<Covered> {
        // Two clocks are not mixed: where one stream tells no time, the arrival of all counts.
        let each = || self.parts.iter().map(|part| &part.beside).filter(|it| it.covered.is_some());
        let by_time = each().all(|it| it.received.is_some());
        let all = || {
            each().filter_map(|it| if by_time { it.covered } else { it.received.or(it.covered) })
        };
        Some(Covered { from: all().map(|it| it.from).min()?, to: all().map(|it| it.to).max()? })
    }

    /// How sure it is: the verdict, and what it means here.
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
                let missing = of_it().map(|it| it.terms.missing).fold(0, u64::saturating_add);
                let foreign = |it: &Presence| matches!(it, Presence::OnlyForeign { .. });
                let excluded = |it: &Presence| matches!(it, Presence::OnlyExcluded { .. });
                match missing {
                    0 if of_it().all(|it| it.has(foreign)) => {
                        "what came is not of the format that was expected".to_owned()
                    }
                    0 if of_it().all(|it| it.has(excluded)) => {
                        "what came was left out, as threads=, source= or frame= of the endpoint says".to_owned()
                    }
                    0 => "nothing on this host says why it is not complete".to_owned(),
                    missing => format!(
                        "{} lost before this host, and no counter here accounts for {}",
                        match missing {
                            1 => "1 frame was".to_owned(),
                            _ => format!("{} were", frames(missing)),
                        },
                        if missing == 1 { "it" } else { "them" }
                    ),
                }
            }
            Verdict::Unproven => "only what this host did is known".to_owned(),
        };
        format!("{verdict}: {text}")
    }

    fn named(&self, of: impl Fn(&Part) -> bool) -> Vec<&str> {
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

    /// Frames, or samples where a device counts them.
    fn units(&self, number: u64) -> String {
        let samples = |part: &Part| part.counted_by == Some(CountedBy::ServerCount);
        let unit = match !self.parts.is_empty() && self.parts.iter().all(samples) {
            true => "sample",
            false => "frame",
        };
        counted(number, unit)
    }
}

/// The first of these clauses, and how many more there are.
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
