//! The words of a completeness: headline and explanation.

use std::fmt::Write;

use crate::account::{CountedBy, NotTransferred, Presence, Terms, Verdict};
use crate::manifest::{Degradation, State};

use super::{Covered, Missing, Planned, Status, StreamCompleteness, Uncovered};

/// The maximum number of names in a headline.
const NAMES: usize = 3;

/// The facts that the words of a completeness are made from.
pub(super) struct Judged<'a> {
    pub(super) parts: &'a [StreamCompleteness],
    pub(super) terms: Terms,
    pub(super) lost: u64,
    pub(super) not_kept: u64,
    pub(super) planned: Option<Planned>,
    pub(super) state: State,
    pub(super) wanting: &'a [Degradation],
}

impl Judged<'_> {
    pub(super) fn headline(
        &self,
        status: Status,
        lacks: Vec<String>,
        doubts: Vec<String>,
    ) -> String {
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
            State::Recovered if !of_device && part.beside.not_transferred.is_none() => {
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
            (
                sum(&|it| it.terms.not_transferred),
                "they were not transferred to this copy".into(),
                "not transferred".into(),
            ),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .collect()
    }

    /// Returns the missing parts other than lost frames.
    pub(super) fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        lacks.extend(self.not_transferred());
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
    pub(super) fn doubts(&self) -> (Vec<String>, bool) {
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
        let is_copy = self.parts.iter().any(|part| part.beside.not_transferred.is_some());
        if self.state == State::Recovered
            && !is_copy
            && self.parts.iter().any(|it| it.verdict != Verdict::Proven)
        {
            texts.push(
                "it was recovered, and what was not on the disk by then is not known".to_owned(),
            );
        }
        (texts, doubtful)
    }

    /// Returns the remarks that do not affect the completeness.
    pub(super) fn remarks(&self) -> Vec<String> {
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

    pub(super) fn uncovered(&self) -> Option<Uncovered> {
        let lacking: Vec<_> = self.parts.iter().filter_map(StreamCompleteness::uncovered).collect();
        let ns = lacking.iter().map(|(ns, _)| *ns).max()?;
        let frames = lacking.iter().map(|(_, frames)| *frames).collect::<Option<Vec<u64>>>();
        let frames = frames.map(|it| it.into_iter().fold(0, u64::saturating_add));
        Some(Uncovered { ns, frames, streams: lacking.len() })
    }

    /// Returns the number of frames that are out of reach, and the members that they are on.
    pub(super) fn unreachable(&self) -> Option<(u64, Vec<&str>)> {
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

    /// `12 of 40 blocks were not transferred (3145728 of 10485760 bytes)`.
    fn not_transferred(&self) -> Option<String> {
        let each = || self.parts.iter().filter_map(|part| part.beside.not_transferred);
        let sum = |of: fn(NotTransferred) -> u64| each().map(of).fold(0, u64::saturating_add);
        let blocks = sum(|it| it.blocks);
        (blocks > 0).then(|| {
            format!(
                "{} of {} {} not transferred ({} of {})",
                grouped(blocks),
                counted(sum(|it| it.of_blocks), "block"),
                was(blocks),
                grouped(sum(|it| it.bytes)),
                counted(sum(|it| it.of_bytes), "byte"),
            )
        })
    }

    pub(super) fn disagreements(&self) -> u64 {
        let each = self.parts.iter().map(|it| it.beside.disagreements);
        each.fold(0, u64::saturating_add)
    }

    pub(super) fn covered(&self) -> Option<Covered> {
        // Two clocks are not mixed: if one stream has no time, arrival time counts for all.
        let each = || self.parts.iter().map(|part| &part.beside).filter(|it| it.covered.is_some());
        let by_time = each().all(|it| it.received.is_some());
        let all = || {
            each().filter_map(|it| if by_time { it.covered } else { it.received.or(it.covered) })
        };
        Some(Covered { from: all().map(|it| it.from).min()?, to: all().map(|it| it.to).max()? })
    }

    /// Returns the certainty: the verdict, and its meaning here.
    pub(super) fn explanation(&self) -> String {
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

pub(super) fn was(number: u64) -> &'static str {
    if number == 1 { "was" } else { "were" }
}

pub(super) fn frames(number: u64) -> String {
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
pub(super) fn percent(part: u64, whole: u64) -> String {
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
