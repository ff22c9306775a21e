//! The account of one acquisition, over as many connections as it took.
//!
//! ```text
//! samples     0 … missed │ certified │ withheld │ … │ missed' │ certified │ … │ captured
//! account     missing    │ written   │ damaged  │ missing     │ written   │ missing
//!             └ joined late            └ first connection      └ joined again
//! ```
//!
//! A sample's index is `missed` of the header plus its place after it, so a connection that joins an
//! acquisition again says to the sample what lies between. What it sends twice is skipped by the
//! reader and counted as duplicates.
//!
//! No count of a PandA is believed beyond [`MOST_SAMPLES`](super::MOST_SAMPLES), so sums of two of them fit 64 bits.

use serde::{Deserialize, Serialize};

use super::certify::{Ending, Tally};
use super::codec::EndReason;
use super::header::Header;
use super::notes::Notes;
use super::triggers::Falls;
use crate::account::{Account, CountedBy, Edge, Verdict};
use crate::gap::{Cause, Gap};
use crate::time::Tai;

/// Connections of one acquisition that are listed; further ones are counted only.
const CONNECTIONS_LISTED: usize = 1000;

/// The books of an acquisition that has not ended.
#[derive(Clone, Debug)]
pub struct Books {
    /// Where the acquisition and this connection's part of it began.
    joined_at: u64,
    /// Samples at the head of this connection that the one before had brought.
    skipped: u64,
    /// First index that is in no term yet.
    next: u64,
    /// Samples after `next` that came and cannot be trusted.
    withheld: u64,
    /// Certified samples, in runs without a hole: first index and how many.
    runs: Vec<(u64, u64)>,
    account: Account,
    tallies: Vec<Tally>,
    unlisted: u64,
    notes: Notes,
    falls: Falls,
    /// Whether others may arm it as soon as it has ended.
    others_arm: bool,
}

/// What a connection brings of an acquisition that another one had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Samples that come again and are to be skipped.
    pub skip: u64,
    /// Samples between, which nobody has.
    pub gap: u64,
}

/// The books of an acquisition that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Closed {
    /// The balance, in samples.
    pub account: Account,
    /// How it ended.
    pub ending: Ending,
    /// What the PandA says that it took, if it could be asked.
    pub captured: Option<u64>,
    /// What each connection brought.
    pub connections: Vec<Tally>,
    /// Connections beyond those listed.
    pub connections_unlisted: u64,
    /// What was lost or is in doubt, in sentences.
    pub notes: Vec<String>,
    /// Trigger times that lie before the one they follow, which those of true samples never do.
    #[serde(default, skip_serializing_if = "is_none")]
    pub times_fell: u64,
    #[serde(skip)]
    runs: Vec<(u64, u64)>,
}

impl Books {
    /// For the acquisition that begins with this header, or is joined.
    pub fn new(header: &Header) -> Self {
        let mut books = Books {
            joined_at: header.missed,
            skipped: 0,
            next: 0,
            withheld: 0,
            runs: Vec::new(),
            account: Account::new(CountedBy::ServerCount),
            tallies: Vec::new(),
            unlisted: 0,
            notes: Notes::default(),
            falls: Falls::default(),
            others_arm: false,
        };
        if header.missed > 0 {
            books.notes.push(format!("joined late: {} samples went before", header.missed));
            books.pass_to(header.missed);
        }
        books
    }

    /// The first index that is neither certified nor lost.
    pub fn next_index(&self) -> u64 {
        self.next
    }

    /// Somebody else has armed it, and may arm it anew as soon as it has ended: what the PandA counts when it is asked
    /// then can be of the next one.
    pub fn armed_by_others(&mut self) {
        self.others_arm = true;
    }

    /// What the times of triggers show.
    pub fn times_fell(&mut self, falls: Falls) {
        self.falls = falls;
    }

    /// A connection ended, and brought this. The acquisition may go on over another one.
    pub fn left(&mut self, tally: Tally) {
        let certified_to = tally.missed + tally.certified;
        let came_to = tally.missed + tally.received;
        self.account.duplicates += tally.received.min(self.skipped);
        self.write_to(certified_to);
        self.withheld = came_to.saturating_sub(self.next);
        if self.withheld > 0 {
            let (withheld, ending) = (self.withheld, &tally.ending);
            self.notes.push(format!("{ending}: the last {withheld} samples cannot be trusted"));
        } else if !is_good(&tally.ending) {
            self.notes.push(tally.ending.to_string());
        }
        if !tally.agrees() {
            let sent = tally.sent_by_server.unwrap_or(0);
            let came = tally.received;
            self.notes.push(format!("the server counts {sent} samples, and {came} came"));
        }
        if self.tallies.len() < CONNECTIONS_LISTED {
            self.tallies.push(tally);
        } else {
            // The last one decides how it ended, so it is always there.
            self.unlisted += 1;
            self.tallies[CONNECTIONS_LISTED - 1] = tally;
        }
    }

    /// Another connection takes the acquisition up again.
    pub fn joined(&mut self, header: &Header) -> Joined {
        let gap = header.missed.saturating_sub(self.next);
        let skip = self.next.saturating_sub(header.missed);
        if gap > 0 {
            self.notes.push(format!("joined again: {gap} samples lie between"));
            self.pass_to(header.missed);
        }
        // What was withheld before comes again, and is judged anew.
        self.withheld = 0;
        (self.joined_at, self.skipped) = (header.missed, skip);
        Joined { skip, gap }
    }

    /// Ends the books. `captured` is what the PandA says it took in all, if it could be asked; `seen` is
    /// when the first and the last sample came.
    pub fn close(mut self, captured: Option<u64>, seen: Option<(Tai, Tai)>) -> Closed {
        let last = self.tallies.last().cloned().unwrap_or_else(|| nothing_came(self.joined_at));
        let sent_to = last.sent_by_server.map(|sent| last.missed + sent);
        let came_to = self.next + self.withheld;
        // A count below what came here is that of another acquisition.
        let captured = captured.filter(|&captured| captured >= came_to);
        let is_of_another = |captured: &u64| {
            self.others_arm
                && is_good(&last.ending)
                && sent_to.is_some_and(|sent| sent != *captured)
        };
        let of_another = captured.filter(is_of_another);
        let captured = captured.filter(|_| of_another.is_none());
        if let (Some(counted), Some(sent_to)) = (of_another, sent_to) {
            self.notes.push(format!(
                "its end counts {sent_to} samples, and the PandA said {counted} when it was asked then: it has probably been \
                 armed anew by others"
            ));
        }
        if last.ending == Ending::Left && captured.is_none() {
            self.notes.push("how many samples the PandA took in all is not known".to_owned());
        }
        let end = [captured, sent_to, Some(came_to)].into_iter().flatten().max().unwrap_or(0);
        self.pass_to(end);
        if let (Some(captured), Some(sent_to)) = (captured, sent_to)
            && is_good(&last.ending)
            && captured != sent_to
        {
            self.notes
                .push(format!("the PandA took {captured} samples, and its end counts {sent_to}"));
        }
        if self.falls.count > 0 {
            let Falls { count, first } = self.falls;
            self.notes.push(format!(
                "the time of the trigger falls {count} times, first at sample {first}: \
                 samples are out of order or not what was taken"
            ));
        }
        self.account.terms.expected = end;
        if let (Some((first, last)), Some(&(low, _)), Some(&(at, count))) =
            (seen, self.runs.first(), self.runs.last())
        {
            let edge = |index: u64, seen| Edge { index: index as i64, time: None, seen };
            self.account.first = Some(edge(low, first));
            self.account.last = Some(edge(at + count.max(1) - 1, last));
        }
        assert!(self.account.terms.balance(), "a PandA's books: {:?}", self.account.terms);
        let mut closed = Closed {
            account: self.account,
            ending: last.ending,
            captured,
            connections: self.tallies,
            connections_unlisted: self.unlisted,
            notes: self.notes.into_texts(),
            times_fell: self.falls.count,
            runs: self.runs,
        };
        closed.account.verdict = closed.judge();
        closed
    }

    /// All up to `end` was certified.
    fn write_to(&mut self, end: u64) {
        let count = end.saturating_sub(self.next);
        if count == 0 {
            return;
        }
        match self.runs.last_mut() {
            Some((first, run)) if *first + *run == self.next => *run += count,
            _ => self.runs.push((self.next, count)),
        }
        self.account.terms.written += count;
        self.next = end;
    }

    /// What lies before `end` is lost: first what was withheld, then what never came.
    fn pass_to(&mut self, end: u64) {
        let lost = end.saturating_sub(self.next);
        let damaged = lost.min(self.withheld);
        let missing = lost - damaged;
        let gap = |first: u64, count, cause| Gap { first: first as i64, count, cause };
        self.account.push_gap(gap(self.next, damaged, Cause::Damaged));
        self.account.push_gap(gap(self.next + damaged, missing, Cause::Missing));
        self.account.terms.damaged += damaged;
        self.account.terms.missing += missing;
        self.withheld = 0;
        self.next = self.next.max(end);
    }
}

impl Closed {
    /// Of what a manifest and an account keep of it.
    pub fn restored(
        account: Account,
        ending: Ending,
        captured: Option<u64>,
        connections: Vec<Tally>,
        notes: Vec<String>,
    ) -> Self {
        let (connections_unlisted, times_fell, runs) = (0, 0, Vec::new());
        Closed {
            account,
            ending,
            captured,
            connections,
            connections_unlisted,
            notes,
            times_fell,
            runs,
        }
    }

    /// Only the first `kept` of the certified samples could be written: the rest reached us and had
    /// nowhere to go.
    pub fn keep(&mut self, kept: u64, why: &str) {
        let lost = self.account.terms.written.saturating_sub(kept);
        if lost == 0 {
            return;
        }
        let mut before = 0;
        for &(first, count) in &self.runs {
            let keep = kept.saturating_sub(before).min(count);
            before += count;
            let gap =
                Gap { first: (first + keep) as i64, count: count - keep, cause: Cause::Overrun };
            self.account.push_gap(gap);
        }
        self.account.gaps.sort_by_key(|gap| gap.first);
        self.account.terms.written -= lost;
        self.account.terms.overrun += lost;
        self.notes.push(format!("{lost} samples could not be written: {why}"));
        self.account.verdict = self.judge();
    }

    /// How sure the account is.
    ///
    /// *Proven*: all from the first sample to the last, by the server's own counts. *Consistent*: some
    /// are lost, and the server or the connection says why and how many. *Unexplained*: counts that
    /// should be equal are not, or trigger times fall. *Unproven*: nobody says how many there were after the last that
    /// came, be it that the connection died or that we left.
    fn judge(&self) -> Verdict {
        let terms = &self.account.terms;
        let sums_differ = self.connections.iter().any(|tally| !tally.agrees());
        let end = self
            .connections
            .last()
            .and_then(|tally| tally.sent_by_server.map(|sent| tally.missed + sent));
        let good = is_good(&self.ending);
        let captured_differs = good && self.captured.zip(end).is_some_and(|(a, b)| a != b);
        let end_known = good || self.captured.is_some();
        if sums_differ || captured_differs || self.times_fell > 0 {
            Verdict::Unexplained
        } else if !end_known {
            Verdict::Unproven
        } else if terms.written == terms.expected {
            Verdict::Proven
        } else {
            Verdict::Consistent
        }
    }
}

/// Whether the server says that it has sent all there was, and that it can be trusted.
fn is_good(ending: &Ending) -> bool {
    matches!(ending, Ending::End(EndReason::Ok | EndReason::Disarmed))
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

fn nothing_came(missed: u64) -> Tally {
    let (sent_by_server, received, certified, withheld, cut) = (None, 0, 0, 0, 0);
    let ending = Ending::ConnectionLost;
    Tally { missed, sent_by_server, received, certified, withheld, cut, ending }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::account::Terms;
    use crate::format::panda::Process;

    fn header(missed: u64) -> Header {
        Header {
            arm_time: None,
            start_time: None,
            hw_time_offset_ns: None,
            missed,
            process: Process::Raw,
            sample_bytes: 4,
            fields: Vec::new(),
        }
    }

    fn tally(missed: u64, certified: u64, withheld: u64, ending: Ending) -> Tally {
        let received = certified + withheld;
        let sent_by_server = matches!(ending, Ending::End(_)).then_some(received);
        Tally { missed, sent_by_server, received, certified, withheld, cut: 0, ending }
    }

    fn close(tally: Tally, captured: Option<u64>) -> Closed {
        let mut books = Books::new(&header(tally.missed));
        books.left(tally);
        books.close(captured, None)
    }

    fn terms(expected: u64, written: u64, missing: u64, damaged: u64) -> Terms {
        Terms { expected, written, missing, damaged, ..Terms::default() }
    }

    #[test]
    fn an_acquisition_that_ends_well_is_proven() {
        let closed = close(tally(0, 5000, 0, Ending::End(EndReason::Ok)), Some(5000));
        assert_eq!(closed.account.terms, terms(5000, 5000, 0, 0));
        assert_eq!(closed.account.verdict, Verdict::Proven);
        assert!(closed.notes.is_empty());
        let other = close(tally(0, 5000, 0, Ending::End(EndReason::Ok)), Some(5001));
        assert_eq!(other.account.verdict, Verdict::Unexplained);
    }

    #[test]
    fn a_count_of_what_others_armed_next_speaks_against_nothing() {
        for (later, is_noted) in [(5001, true), (5000, false), (7, false)] {
            let mut books = Books::new(&header(0));
            books.armed_by_others();
            books.left(tally(0, 5000, 0, Ending::End(EndReason::Ok)));
            let closed = books.close(Some(later), None);
            assert_eq!(closed.account.verdict, Verdict::Proven);
            assert_eq!(closed.account.terms, terms(5000, 5000, 0, 0));
            assert_eq!(closed.notes.iter().any(|note| note.contains("armed anew")), is_noted);
        }
        // After an end that is not good, its count is all there is.
        let mut books = Books::new(&header(0));
        books.armed_by_others();
        books.left(tally(0, 100, 10, Ending::End(EndReason::DataOverrun)));
        assert_eq!(books.close(Some(150), None).account.terms, terms(150, 100, 40, 10));
    }

    #[test]
    fn an_overrun_is_balanced_to_the_sample_once_the_panda_says_how_many_it_took() {
        // Measured with server 4.1: overrun, joined again at 7 829 368, and the end.
        let mut books = Books::new(&header(0));
        books.left(tally(0, 1_293_244, 34_952, Ending::End(EndReason::DataOverrun)));
        let joined = books.joined(&header(7_829_368));
        assert_eq!(joined, Joined { skip: 0, gap: 7_829_368 - 1_293_244 });
        books.left(tally(7_829_368, 3_704_968, 0, Ending::End(EndReason::Ok)));
        let closed = books.close(Some(11_534_336), None);
        let missing = 7_829_368 - 1_328_196;
        assert_eq!(closed.account.terms, terms(11_534_336, 4_998_212, missing, 34_952));
        assert_eq!(closed.account.verdict, Verdict::Consistent);
        let gaps: Vec<_> = closed.account.gaps.iter().map(|gap| (gap.first, gap.cause)).collect();
        assert_eq!(gaps, [(1_293_244, Cause::Damaged), (1_328_196, Cause::Missing)]);
    }

    #[test]
    fn trigger_times_that_fall_are_unexplained_whatever_the_counts_say() {
        let mut books = Books::new(&header(0));
        books.times_fell(Falls { count: 3, first: 17 });
        books.left(tally(0, 100, 0, Ending::End(EndReason::Ok)));
        let mut closed = books.close(Some(100), None);
        assert_eq!(closed.account.verdict, Verdict::Unexplained);
        assert!(closed.notes[0].contains("sample 17"), "{:?}", closed.notes);
        closed.keep(50, "the disk is full");
        assert_eq!(closed.account.verdict, Verdict::Unexplained);
    }

    #[test]
    fn what_nobody_counted_is_unproven() {
        let overrun = || tally(0, 100, 10, Ending::End(EndReason::DataOverrun));
        assert_eq!(close(overrun(), None).account.verdict, Verdict::Unproven);
        let known = close(overrun(), Some(150));
        assert_eq!(known.account.terms, terms(150, 100, 40, 10));
        assert_eq!(known.account.verdict, Verdict::Consistent);
        let lost = close(tally(0, 100, 10, Ending::ConnectionLost), None);
        assert_eq!(lost.account.verdict, Verdict::Unproven);
        // A count below what came is that of another acquisition.
        assert_eq!(close(overrun(), Some(7)).captured, None);
    }

    #[test]
    fn what_was_left_is_proven_only_if_the_panda_took_no_more() {
        let left = |captured| close(tally(0, 100, 0, Ending::Left), captured);
        assert_eq!(left(None).account.verdict, Verdict::Unproven);
        assert!(left(None).notes.iter().any(|note| note.contains("not known")));
        assert_eq!(left(Some(100)).account.verdict, Verdict::Proven);
        let more = left(Some(150));
        assert_eq!(more.account.terms, terms(150, 100, 50, 0));
        assert_eq!(more.account.verdict, Verdict::Consistent);
        assert!(more.notes[0].contains("left by the recorder"), "{:?}", more.notes);
    }

    #[test]
    fn joined_late_is_missing_and_said() {
        let closed = close(tally(34_953, 100, 0, Ending::End(EndReason::Disarmed)), Some(35_053));
        assert_eq!(closed.account.terms, terms(35_053, 100, 34_953, 0));
        assert_eq!(closed.account.verdict, Verdict::Consistent);
        assert!(closed.notes[0].contains("joined late"), "{:?}", closed.notes);
    }

    #[test]
    fn an_end_that_counts_otherwise_is_unexplained() {
        let mut odd = tally(0, 100, 0, Ending::End(EndReason::Ok));
        odd.sent_by_server = Some(120);
        let closed = close(odd, None);
        assert_eq!(closed.account.verdict, Verdict::Unexplained);
        assert_eq!(closed.account.terms, terms(120, 100, 20, 0));
    }

    #[test]
    fn what_no_file_took_is_overrun() {
        let mut closed = close(tally(10, 100, 0, Ending::End(EndReason::Ok)), Some(110));
        closed.keep(60, "the disk is full");
        assert_eq!((closed.account.terms.written, closed.account.terms.overrun), (60, 40));
        assert!(closed.account.terms.balance());
        let last = *closed.account.gaps.last().unwrap();
        assert_eq!(last, Gap { first: 70, count: 40, cause: Cause::Overrun });
    }

    proptest! {
        #[test]
        fn every_sample_is_in_one_term_however_often_the_connection_dies(
            parts in prop::collection::vec((0u64..50, 0u64..40, 0u64..9, 0u64..30), 1..12),
            captured in prop::option::of(0u64..900), kept in 0u64..300
        ) {
            // An oracle that knows of each index what became of it.
            let mut state = [None::<Cause>; 4000];
            let mut written = [false; 4000];
            let mut missed = parts[0].0;
            let mut books = Books::new(&header(missed));
            for (n, &(_, certified, withheld, step)) in parts.iter().enumerate() {
                if n > 0 {
                    // Further on, or back to what has been certified already.
                    missed = (books.next_index() + step).saturating_sub(12);
                    let joined = books.joined(&header(missed));
                    prop_assert!(joined.skip == 0 || joined.gap == 0);
                }
                let from = missed as usize;
                let (good, all) = (from + certified as usize, from + (certified + withheld) as usize);
                // What has passed stays as it is, so that rows only ever go on.
                let passed = books.next_index() as usize;
                written[passed.max(from).min(good)..good].fill(true);
                state[good..all].fill(Some(Cause::Damaged));
                books.left(tally(missed, certified, withheld, Ending::ConnectionLost));
            }
            let mut closed = books.close(captured, None);
            let terms = closed.account.terms;
            prop_assert!(terms.balance());
            let count = written.iter().filter(|&&written| written).count() as u64;
            prop_assert_eq!(terms.written, count);
            for gap in &closed.account.gaps {
                for index in gap.first..gap.first + gap.count as i64 {
                    prop_assert!(!written[index as usize], "{} is written and lost", index);
                    if gap.cause == Cause::Damaged {
                        prop_assert_eq!(state[index as usize], Some(Cause::Damaged));
                    }
                }
            }
            let listed: u64 = closed.account.gaps.iter().map(|gap| gap.count).sum();
            prop_assert_eq!(listed + terms.written, terms.expected);
            closed.keep(kept, "full");
            prop_assert!(closed.account.terms.balance());
            prop_assert_eq!(closed.account.terms.written, count.min(kept));
        }
    }
}
