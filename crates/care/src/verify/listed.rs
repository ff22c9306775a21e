//! Checks the gaps listed in an account against its terms, the index, and the frames.
//!
//! ```text
//!               indexed streams                      sequential streams
//! terms ──────► gaps listed, by cause                the same, of every thread
//! gaps ───────► gap records of the index             numbers in the frames (VDIF by time)
//! overrun ────► the same, by cause                   + blocks that no member took, by the index
//! edges ──────► frames expected between them         the same, or arrivals
//! ```
//!
//! Three things are correct although they look like faults:
//!
//! * A frame that is missing in the index may have come late since.
//! * A rate that was learnt late shows missing frames that have no number, and frames with a number beyond their second
//!   have no place: only the sum of either is known, as a gap that is not listed.
//! * Of a block lost in a sequential stream, only the number of its frames is known.

use std::ops::Range;

use fullbore_core::account::{Account, CountedBy, Flow, GAPS_LISTED, Terms};
use fullbore_core::endpoint::UdpSource;
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::manifest::{Format, State};
use fullbore_store::gaps::Gaps;

use super::numbers::Rate;
use super::recount::{Counted, Recount, Threads};
use super::walk::ThreadSpan;

const CAUSES: [(Cause, &str); 5] = [
    (Cause::Missing, "missing"),
    (Cause::Overrun, "overrun"),
    (Cause::Damaged, "damaged"),
    (Cause::Late, "late"),
    (Cause::NotTransferred, "not transferred"),
];

/// The gaps of an account, and the losses in its terms beyond them.
pub(super) struct Listed<'a> {
    stored: &'a Account,
    /// The gaps of the account; none in a stream of several threads.
    gaps: Gaps,
    /// The sums of the gaps of the account or of its threads.
    sums: Terms,
    /// True if the list has its maximum length, so that there may be more gaps.
    full: bool,
    recovered: bool,
    /// True if a member failed while it was recorded.
    failed: bool,
    filled: bool,
    /// True if frames carry their own time.
    timed: bool,
}

impl<'a> Listed<'a> {
    pub(super) fn of(recount: &Recount<'_>, stored: &'a Account) -> Self {
        let gaps = Gaps::paint(stored.gaps.iter().copied());
        let mut sums = sums(&gaps);
        let mut full = stored.gaps.len() >= GAPS_LISTED;
        for flow in &stored.flows {
            // Losses of a thread beyond its list are found by the check of the thread.
            sums.add(&flow.terms);
            full |= flow.gaps.len() >= GAPS_LISTED;
        }
        let members = stored.host.iter().flat_map(|host| &host.members);
        let mut failures = members.map(|member| member.failure.is_some());
        Self {
            stored,
            gaps,
            sums,
            full,
            recovered: recount.scan.manifest.state == State::Recovered && stored.host.is_none(),
            failed: failures.any(|failed| failed)
                || recount.scan.manifest.members.iter().any(|member| member.failure.is_some()),
            filled: recount.stream.is_filled(),
            timed: recount.stream.format.is_frames(),
        }
    }

    /// Checks the account itself: its lists against its terms and its edges.
    pub(super) fn check(&self, recount: &mut Recount<'_>) {
        let listed: u64 = self.stored.gaps.iter().map(|gap| gap.count).sum();
        recount.compare("gaps (frames told of twice)", listed, self.gaps.frames());
        for flow in &self.stored.flows {
            check_flow(recount, flow, self.recovered);
        }
        if self.is_of_frames() {
            self.check_recovered(recount);
        } else if !self.full {
            self.check_sums(recount);
        }
        self.check_edges(recount);
    }

    /// Returns true if `recover` counted the frames themselves, some of which may have no trustworthy number.
    fn is_of_frames(&self) -> bool {
        self.recovered && self.timed && !self.filled
    }

    fn check_sums(&self, recount: &mut Recount<'_>) {
        let Terms { missing, damaged, late, overrun, .. } = self.stored.terms;
        let unlisted = self.stored.gaps_unlisted;
        recount.compare("late", late, self.sums.late);
        if unlisted == 0 {
            recount.compare("missing", missing, self.sums.missing);
            recount.compare("damaged", damaged, self.sums.damaged);
        } else {
            recount.compare("missing", missing, missing.max(self.sums.missing));
            recount.compare("damaged", damaged, damaged.max(self.sums.damaged));
            let kinds = [(missing, self.sums.missing), (damaged, self.sums.damaged)];
            let kinds = kinds.into_iter().filter(|(term, listed)| term > listed).count() as u64;
            recount.compare("gaps_unlisted", unlisted, kinds);
        }
        let lost = self.lost();
        // A PandA's own report is listed, except for data lost with a member after it had all been written.
        let told = self.stored.counted_by == CountedBy::ServerCount && !self.failed;
        let exact = self.filled || told;
        let least = self.sums.overrun;
        recount.compare("overrun", overrun, if exact { least } else { least + lost });
    }

    /// In sequential streams, `recover` knows only that some frames are absent.
    fn check_recovered(&self, recount: &mut Recount<'_>) {
        // Its terms are those of the source, whose index is not here.
        if self.stored.not_transferred.is_some() {
            return;
        }
        let Terms { missing, damaged, late, overrun, .. } = self.stored.terms;
        recount.compare("late", late, 0);
        recount.compare("damaged", damaged, 0);
        recount.compare("overrun", overrun, 0);
        if !self.stored.flows.is_empty() {
            recount.compare("missing", missing, self.sums.missing);
        }
    }

    /// Returns the frames of blocks that no member took, by the terms: they are in no gap.
    pub(super) fn lost(&self) -> u64 {
        self.stored.terms.overrun.saturating_sub(self.sums.overrun)
    }

    /// Returns the frames that were expected and have no number: they are in no gap.
    fn beyond(&self) -> u64 {
        if self.stored.gaps_unlisted == 0 || self.full {
            return 0;
        }
        let Terms { missing, damaged, .. } = self.stored.terms;
        missing.saturating_sub(self.sums.missing) + damaged.saturating_sub(self.sums.damaged)
    }

    fn check_edges(&self, recount: &mut Recount<'_>) {
        let Account { first: Some(first), last: Some(last), terms, .. } = self.stored else {
            return;
        };
        if self.stored.counted_by == CountedBy::ServerCount {
            return;
        }
        let arrivals = !self.filled
            && (self.recovered
                || !self.stored.flows.is_empty()
                || self.stored.counted_by.is_blind());
        if arrivals {
            recount.compare("first.index", first.index, 0);
            let written = i64::try_from(terms.written).unwrap_or(i64::MAX);
            let least = if self.recovered { -1 } else { 0 };
            recount.compare("last.index", last.index, (written - 1).max(least));
            return;
        }
        let span = last.index.saturating_sub(first.index).saturating_add(1);
        let span = u64::try_from(span).unwrap_or(0);
        // If there are more gaps than listed, frames without a number may be hidden among them.
        let least = terms.expected.saturating_sub(self.beyond());
        let hidden = self.full && span <= terms.expected;
        // If none of the frames has a number, the edges are not known.
        if !hidden && least > 0 {
            recount.compare("expected (from the first frame to the last)", least, span);
        }
    }

    /// Checks against the gap records.
    pub(super) fn check_index(&self, recount: &mut Recount<'_>, counted: &Counted) {
        // For PandA samples, the index lists those that exist.
        if self.stored.counted_by == CountedBy::ServerCount {
            return;
        }
        let Some(absent) = counted.absent else {
            self.check_lost(recount, &counted.gaps);
            return;
        };
        let terms = &self.stored.terms;
        if self.full {
            self.check_by_sums(recount, &counted.gaps);
            return;
        }
        recount.compare("expected", terms.expected, counted.written + absent + self.beyond());
        let index = without_late(&counted.gaps);
        let listed = without_late(&self.gaps);
        if listed != index {
            recount.compare_gaps(&listed, &index);
            self.name_terms(recount, &index);
        }
    }

    /// Reports the terms that the gap records contradict.
    fn name_terms(&self, recount: &mut Recount<'_>, index: &Gaps) {
        let Terms { missing, late, overrun, damaged, .. } = self.stored.terms;
        if self.stored.gaps_unlisted == 0 {
            recount.compare("missing and late", missing + late, index.total(Cause::Missing));
            recount.compare("damaged", damaged, index.total(Cause::Damaged));
        }
        recount.compare("overrun", overrun, index.total(Cause::Overrun));
        let not_transferred = self.stored.terms.not_transferred;
        recount.compare("not transferred", not_transferred, index.total(Cause::NotTransferred));
    }

    /// Checks an account with more gaps than it lists: the listed gaps one by one, and the sums of all.
    fn check_by_sums(&self, recount: &mut Recount<'_>, gaps: &Gaps) {
        let Terms { expected, written, missing, late, overrun, damaged, .. } = self.stored.terms;
        let index = without_late(gaps);
        let (Some(start), Some(end)) = (gaps.start(), self.gaps.end()) else { return };
        let (listed, told) = (without_late(&self.gaps), index.clipped(start..end));
        if listed != told {
            recount.compare_gaps(&listed, &told);
        }
        let least = |term: u64, index: u64| term.max(index);
        let came_not = index.total(Cause::Missing);
        recount.compare("missing and late", missing + late, least(missing + late, came_not));
        recount.compare("damaged", damaged, least(damaged, index.total(Cause::Damaged)));
        recount.compare("overrun", overrun, index.total(Cause::Overrun));
        let beyond = (missing + late).saturating_sub(came_not)
            + damaged.saturating_sub(index.total(Cause::Damaged));
        recount.compare("expected", expected, written + index.frames() + beyond);
        recount.compare("late", late, least(late, self.gaps.total(Cause::Late)));
    }

    /// Checks a sequential stream, whose index lists the frames of blocks that no member took.
    fn check_lost(&self, recount: &mut Recount<'_>, lost: &Gaps) {
        if self.full || self.is_of_frames() {
            return;
        }
        if self.recovered {
            if self.gaps != *lost {
                recount.compare_gaps(&self.gaps, lost);
            }
            return;
        }
        let told = lost.frames();
        // If a member failed or the recording was aborted, not every loss was recorded.
        let host = self.stored.host.as_ref();
        let short = host.is_some_and(|host| host.high_water >= host.pool_blocks);
        let uncounted = self.stored.counted_by.is_blind() && short;
        let (overrun, least) = (self.stored.terms.overrun, self.sums.overrun + told);
        if self.failed || uncounted || recount.scan.manifest.state == State::Aborted {
            recount.compare("overrun", overrun, overrun.max(least));
        } else {
            recount.compare("overrun", overrun, least);
        }
    }

    /// Checks against the numbers in the frames themselves. `readable`: all of them could be read.
    pub(super) fn check_frames(
        &self,
        recount: &mut Recount<'_>,
        threads: &Threads,
        readable: bool,
    ) {
        let frames =
            |flow: &Flow| threads.get(&(flow.station, flow.thread)).map_or(0, |it| it.frames);
        let lost = if self.filled { 0 } else { self.lost() };
        let mut lacking = 0;
        for flow in &self.stored.flows {
            let (written, counted) = (flow.terms.written, frames(flow));
            lacking += written.saturating_sub(counted);
            if lost == 0 || counted > written {
                recount.compare("written (of a thread, by the frames)", written, counted);
            }
        }
        if lost > 0 && !self.stored.flows.is_empty() {
            recount.compare("overrun (by the frames of all threads)", lost, lacking);
        }
        let by_time = self.stored.counted_by == CountedBy::FrameTime && self.timed && !self.filled;
        let part = self.stored.not_transferred.is_some();
        if !by_time || !readable || self.stored.restarts > 0 || lost > 0 || part {
            return;
        }
        let alone = self.stored.flows.is_empty();
        if alone || threads.len() > self.stored.flows.len() {
            recount.compare("threads", self.stored.flows.len().max(1), threads.len().max(1));
        }
        let rate = self.rate(recount, alone);
        for ((station, thread), span) in threads {
            let flow =
                self.stored.flows.iter().find(|it| (it.station, it.thread) == (*station, *thread));
            let (gaps, listed, terms) = match flow {
                Some(flow) => {
                    (Gaps::paint(flow.gaps.iter().copied()), flow.gaps.len(), &flow.terms)
                }
                None if alone && threads.len() == 1 => {
                    (self.gaps.clone(), self.stored.gaps.len(), &self.stored.terms)
                }
                None => continue,
            };
            if listed >= GAPS_LISTED {
                continue;
            }
            self.check_thread(recount, span, &gaps, terms, alone, rate);
        }
    }

    /// Returns the rate, with a flag if all frames were counted by it.
    fn rate(&self, recount: &Recount<'_>, alone: bool) -> Rate {
        let Format::Frames { frames_per_second, derived, .. } = &recount.stream.format else {
            return Rate { told: None, certain: false };
        };
        let told = frames_per_second.and_then(|rate| i64::try_from(rate).ok());
        let source = &recount.scan.manifest.streams[recount.stream.number].source;
        let given = || {
            let sources = UdpSource::parse(source).unwrap_or_default();
            sources.first().is_some_and(|source| source.frames_per_second.is_some())
        };
        // The manifest has the rate of the first thread; `recover` counted all threads by it.
        let certain = told.is_some() && (self.recovered || !derived && (alone || given()));
        Rate { told: told.filter(|_| certain || alone), certain }
    }

    /// Checks one thread, if its frames have enough information.
    fn check_thread(
        &self,
        recount: &mut Recount<'_>,
        span: &ThreadSpan,
        gaps: &Gaps,
        terms: &Terms,
        alone: bool,
        rate: Rate,
    ) {
        let doubtful = span.doubtful.frames() > 0;
        if span.numbers.crowded || span.frames == 0 || (doubtful && !rate.certain) {
            return;
        }
        let numbers = match self.recovered {
            true => span.numbers.clone().within(rate.told),
            false => span.numbers.clone(),
        };
        // `recover` counts a frame with an unreliable number as absent.
        if self.recovered && (doubtful || !rate.certain || numbers.frames() < span.frames) {
            return;
        }
        let edges = self.stored.first.zip(self.stored.last).filter(|_| alone && !self.recovered);
        let edges = edges.map(|(first, last)| (first.index, last.index));
        if self.recovered {
            recount.compare("missing (by the numbers in the frames)", terms.missing, gaps.frames());
        }
        if numbers.fit(gaps, edges, rate) {
            return;
        }
        let holes = numbers.holes(rate.told);
        let counted = format!("{holes} frames between the first and the last");
        recount.compare("gaps (by the numbers in the frames)", describe(gaps), counted);
        if holes > terms.expected.saturating_sub(terms.written) {
            let expected = terms.written.saturating_add(holes);
            recount.compare("expected (by the numbers in the frames)", terms.expected, expected);
        }
    }
}

/// Checks the terms of one thread against its own gaps.
fn check_flow(recount: &mut Recount<'_>, flow: &Flow, recovered: bool) {
    if !flow.terms.balance() {
        recount.compare("expected (of a thread)", flow.terms.expected, flow.terms.sum());
    }
    // The count by `recover` of a thread may include frames with an unreliable number.
    if flow.gaps.len() >= GAPS_LISTED || recovered {
        return;
    }
    let listed = Gaps::paint(flow.gaps.iter().copied());
    let Terms { missing, overrun, damaged, late, .. } = flow.terms;
    let terms = [missing, overrun, damaged, late];
    let names = [
        "missing (of a thread)",
        "overrun (of a thread)",
        "damaged (of a thread)",
        "late (of a thread)",
    ];
    for (((cause, _), term), name) in CAUSES.into_iter().zip(terms).zip(names) {
        recount.compare(name, term, listed.total(cause));
    }
}

fn sums(gaps: &Gaps) -> Terms {
    Terms {
        expected: 0,
        written: 0,
        missing: gaps.total(Cause::Missing),
        overrun: gaps.total(Cause::Overrun),
        damaged: gaps.total(Cause::Damaged),
        late: gaps.total(Cause::Late),
        not_transferred: gaps.total(Cause::NotTransferred),
    }
}

/// Returns gaps with late frames as missing: a frame becomes late after it was recorded as missing, and only the
/// account has the change.
fn without_late(gaps: &Gaps) -> Gaps {
    let cause = |cause| if cause == Cause::Late { Cause::Missing } else { cause };
    Gaps::paint(gaps.iter().map(|gap| Gap { cause: cause(gap.cause), ..gap }))
}

impl Recount<'_> {
    /// Compares two lists of gaps: their sums, and if these agree, the first gap that differs.
    fn compare_gaps(&mut self, listed: &Gaps, index: &Gaps) {
        let (mut stored, mut counted) = (describe(listed), describe(index));
        if stored == counted
            && let Some((one, other)) =
                listed.iter().zip(index.iter()).find(|(one, other)| one != other)
        {
            stored += &format!(", {} at frame {}", one.count, one.first);
            counted += &format!(", {} at frame {}", other.count, other.first);
        }
        self.compare("gaps", stored, counted);
    }
}

fn describe(gaps: &Gaps) -> String {
    let first: Option<Range<i64>> = gaps.without_causes().into_iter().next();
    let first = first.map(|gap| format!(" from frame {} on", gap.start));
    let by_cause: Vec<String> = CAUSES
        .into_iter()
        .map(|(cause, name)| (gaps.total(cause), name))
        .filter(|(frames, _)| *frames > 0)
        .map(|(frames, name)| format!("{frames} {name}"))
        .collect();
    match by_cause.is_empty() {
        true => "none".into(),
        false => format!("{} ({}){}", gaps.len(), by_cause.join(", "), first.unwrap_or_default()),
    }
}
