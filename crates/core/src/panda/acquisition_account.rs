//! The account of one acquisition, over all its connections.
//!
//! ```text
//! samples     0 … missed │ certified │ withheld │ … │ missed' │ certified │ … │ captured
//! account     missing    │ written   │ damaged  │ missing     │ written   │ missing
//!             └ joined late            └ first connection      └ joined again
//! ```
//!
//! A sample's index is `missed` of the header plus its position after it. A connection that joins an acquisition again
//! therefore shows the exact number of samples in between. The reader skips repeated samples and counts them as
//! duplicates.
//!
//! Counts of a PandA above [`MOST_SAMPLES`](fullbore_formats::panda::MOST_SAMPLES) are refused, so the sum of two fits
//! 64 bits.

use fullbore_formats::panda::codec::EndReason;
use fullbore_formats::panda::header::Header;
use fullbore_formats::panda::triggers::Falls;
use fullbore_formats::panda::validate::{ConnectionTotals, Ending};
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

use super::notes::Notes;
use crate::account::{Account, CountedBy, Edge, Verdict};
use crate::gap::{Cause, Gap};

/// The largest number of connections of one acquisition that are listed; further ones are only counted.
const CONNECTIONS_LISTED: usize = 1000;

/// The account of a running acquisition.
#[derive(Clone, Debug)]
pub struct AcquisitionAccount {
    /// The start of the acquisition and of this connection's part of it.
    joined_at: u64,
    /// Samples at the start of this connection that the previous one had already delivered.
    skipped: u64,
    /// The first index that is in no term yet.
    next: u64,
    /// Samples after `next` that arrived and cannot be trusted.
    withheld: u64,
    /// Certified samples in contiguous runs: first index and number.
    runs: Vec<(u64, u64)>,
    account: Account,
    tallies: Vec<ConnectionTotals>,
    unlisted: u64,
    notes: Notes,
    falls: Falls,
    /// True if another client may arm the acquisition as soon as it has ended.
    others_arm: bool,
}

/// The samples to skip and the gap when a new connection continues an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejoin {
    /// Repeated samples to skip.
    pub skip: u64,
    /// Lost samples in between.
    pub gap: u64,
}

/// The result of a finished acquisition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcquisitionResult {
    /// The balance, in samples.
    pub account: Account,
    /// The end of the acquisition.
    pub ending: Ending,
    /// The number of samples that the PandA reports, if it could be asked.
    pub captured: Option<u64>,
    /// The totals of each connection.
    pub connections: Vec<ConnectionTotals>,
    /// Connections beyond those listed.
    pub connections_unlisted: u64,
    /// Sentences about losses and doubts.
    pub notes: Vec<String>,
    /// Trigger times that are before the previous one. Valid samples have none.
    #[serde(default, skip_serializing_if = "is_none")]
    pub times_fell: u64,
    #[serde(skip)]
    runs: Vec<(u64, u64)>,
}

impl AcquisitionAccount {
    /// Returns the account of the acquisition that begins with this header, or is joined.
    pub fn new(header: &Header) -> Self {
        let mut account = AcquisitionAccount {
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
            account.notes.push(format!("joined late: {} samples were sent before", header.missed));
            account.pass_to(header.missed);
        }
        account
    }

    /// Returns the first index that is neither certified nor lost.
    pub fn next_index(&self) -> u64 {
        self.next
    }

    /// Notes that another client armed the acquisition and may arm it again when it ends: the PandA's count may then be
    /// that of the next acquisition.
    pub fn armed_by_others(&mut self) {
        self.others_arm = true;
    }

    /// Adds the findings of the trigger times.
    pub fn times_fell(&mut self, falls: Falls) {
        self.falls = falls;
    }

    /// Adds the totals of a connection that ended. The acquisition may continue on another one.
    pub fn left(&mut self, tally: ConnectionTotals) {
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
            self.notes
                .push(format!("the server reports {sent} samples sent, but {came} were received"));
        }
        if self.tallies.len() < CONNECTIONS_LISTED {
            self.tallies.push(tally);
        } else {
            // The last connection determines the end, so it is always listed.
            self.unlisted += 1;
            self.tallies[CONNECTIONS_LISTED - 1] = tally;
        }
    }

    /// Continues the acquisition on another connection.
    pub fn joined(&mut self, header: &Header) -> Rejoin {
        let gap = header.missed.saturating_sub(self.next);
        let skip = self.next.saturating_sub(header.missed);
        if gap > 0 {
            self.notes.push(format!("joined again: {gap} samples in between are lost"));
            self.pass_to(header.missed);
        }
        // Samples that were withheld before arrive again, and are judged again.
        self.withheld = 0;
        (self.joined_at, self.skipped) = (header.missed, skip);
        Rejoin { skip, gap }
    }

    /// Closes the account. `captured` is the total that the PandA reports, if it could be asked; `seen` has the arrival
    /// times of the first and the last sample.
    pub fn close(mut self, captured: Option<u64>, seen: Option<(Tai, Tai)>) -> AcquisitionResult {
        let last = self.tallies.last().cloned().unwrap_or_else(|| nothing_came(self.joined_at));
        let sent_to = last.sent_by_server.map(|sent| last.missed + sent);
        let came_to = self.next + self.withheld;
        // A count below the number of received samples belongs to another acquisition.
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
            self.notes.push(format!(
                "the PandA reports {captured} samples, but its end counts {sent_to}"
            ));
        }
        if self.falls.count > 0 {
            let Falls { count, first } = self.falls;
            self.notes.push(format!(
                "the trigger time decreases {count} times, first at sample {first}: \
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
        let mut closed = AcquisitionResult {
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

    /// Counts all samples up to `end` as certified.
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

    /// Counts the samples before `end` as lost: first the withheld ones, then those that never arrived.
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

impl AcquisitionResult {
    /// Returns the result from the contents of a manifest and an account. If the account does not list all gaps, the
    /// places of further losses are not known.
    pub fn restored(
        account: Account,
        ending: Ending,
        captured: Option<u64>,
        connections: Vec<ConnectionTotals>,
        notes: Vec<String>,
    ) -> Self {
        let (connections_unlisted, times_fell) = (0, 0);
        let runs = runs_between(&account);
        AcquisitionResult {
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

    /// Keeps only the first `kept` certified samples, if the rest could not be stored.
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
        // A loss makes no account more certain.
        self.account.verdict = self.account.verdict.max(self.judge());
    }

    /// Returns the certainty of the account.
    ///
    /// * *Proven*: all samples from the first to the last, by the server's own counts.
    /// * *Consistent*: some are lost; the server or the connection gives the reason and the number.
    /// * *Unexplained*: counts that should be equal differ, or trigger times decrease.
    /// * *Unproven*: the number after the last received sample is unknown, because the connection broke or the reader
    ///   left.
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

/// True if the server reports that it has sent all samples and that they can be trusted.
fn is_good(ending: &Ending) -> bool {
    matches!(ending, Ending::End(EndReason::Ok | EndReason::Disarmed))
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// Returns the runs of written samples between the gaps of an account.
fn runs_between(account: &Account) -> Vec<(u64, u64)> {
    let mut runs = Vec::with_capacity(account.gaps.len() + 1);
    let mut next = 0;
    let end = Gap { first: account.terms.expected as i64, count: 0, cause: Cause::Missing };
    for gap in account.gaps.iter().chain([&end]) {
        let first = gap.first.max(0).unsigned_abs();
        if first > next {
            runs.push((next, first - next));
        }
        next = first + gap.count;
    }
    let listed: u64 = runs.iter().map(|(_, count)| count).sum();
    if listed == account.terms.written { runs } else { Vec::new() }
}

fn nothing_came(missed: u64) -> ConnectionTotals {
    let (sent_by_server, received, certified, withheld, cut) = (None, 0, 0, 0, 0);
    let ending = Ending::ConnectionLost;
    ConnectionTotals { missed, sent_by_server, received, certified, withheld, cut, ending }
}

#[cfg(test)]
mod tests {
    use fullbore_formats::panda::Process;
    use proptest::prelude::*;

    use super::*;
    use crate::account::Terms;

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

    fn tally(missed: u64, certified: u64, withheld: u64, ending: Ending) -> ConnectionTotals {
        let received = certified + withheld;
        let sent_by_server = matches!(ending, Ending::End(_)).then_some(received);
        ConnectionTotals { missed, sent_by_server, received, certified, withheld, cut: 0, ending }
    }

    fn close(tally: ConnectionTotals, captured: Option<u64>) -> AcquisitionResult {
        let mut account = AcquisitionAccount::new(&header(tally.missed));
        account.left(tally);
        account.close(captured, None)
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
    fn a_restored_account_knows_where_the_rest_is_lost() {
        let mut account = AcquisitionAccount::new(&header(10));
        account.left(tally(10, 40, 0, Ending::End(EndReason::DataOverrun)));
        account.joined(&header(80));
        account.left(tally(80, 20, 0, Ending::End(EndReason::Ok)));
        let closed = account.close(Some(100), None);
        for kept in [60, 50, 40, 7, 0] {
            let (mut one, account) = (closed.clone(), closed.account.clone());
            let (connections, notes) = (closed.connections.clone(), closed.notes.clone());
            let ending = closed.ending.clone();
            let mut other =
                AcquisitionResult::restored(account, ending, closed.captured, connections, notes);
            one.keep(kept, "the disk is full");
            other.keep(kept, "the disk is full");
            assert_eq!(one, other);
            assert!(one.account.terms.balance());
            assert_eq!((one.account.terms.written, one.account.terms.overrun), (kept, 60 - kept));
        }
    }

    #[test]
    fn a_count_of_what_others_armed_next_speaks_against_nothing() {
        for (later, is_noted) in [(5001, true), (5000, false), (7, false)] {
            let mut account = AcquisitionAccount::new(&header(0));
            account.armed_by_others();
            account.left(tally(0, 5000, 0, Ending::End(EndReason::Ok)));
            let closed = account.close(Some(later), None);
            assert_eq!(closed.account.verdict, Verdict::Proven);
            assert_eq!(closed.account.terms, terms(5000, 5000, 0, 0));
            assert_eq!(closed.notes.iter().any(|note| note.contains("armed anew")), is_noted);
        }
        // After a bad end, the PandA's count is the only information.
        let mut account = AcquisitionAccount::new(&header(0));
        account.armed_by_others();
        account.left(tally(0, 100, 10, Ending::End(EndReason::DataOverrun)));
        assert_eq!(account.close(Some(150), None).account.terms, terms(150, 100, 40, 10));
    }

    #[test]
    fn an_overrun_is_balanced_to_the_sample_once_the_panda_says_how_many_it_took() {
        // Measured with server 4.1: overrun, joined again at 7 829 368, and the end.
        let mut account = AcquisitionAccount::new(&header(0));
        account.left(tally(0, 1_293_244, 34_952, Ending::End(EndReason::DataOverrun)));
        let joined = account.joined(&header(7_829_368));
        assert_eq!(joined, Rejoin { skip: 0, gap: 7_829_368 - 1_293_244 });
        account.left(tally(7_829_368, 3_704_968, 0, Ending::End(EndReason::Ok)));
        let closed = account.close(Some(11_534_336), None);
        let missing = 7_829_368 - 1_328_196;
        assert_eq!(closed.account.terms, terms(11_534_336, 4_998_212, missing, 34_952));
        assert_eq!(closed.account.verdict, Verdict::Consistent);
        let gaps: Vec<_> = closed.account.gaps.iter().map(|gap| (gap.first, gap.cause)).collect();
        assert_eq!(gaps, [(1_293_244, Cause::Damaged), (1_328_196, Cause::Missing)]);
    }

    #[test]
    fn trigger_times_that_fall_are_unexplained_whatever_the_counts_say() {
        let mut account = AcquisitionAccount::new(&header(0));
        account.times_fell(Falls { count: 3, first: 17 });
        account.left(tally(0, 100, 0, Ending::End(EndReason::Ok)));
        let mut closed = account.close(Some(100), None);
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
        // A count below the number of received samples belongs to another acquisition.
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
            // The oracle has the outcome of each index.
            let mut state = [None::<Cause>; 4000];
            let mut written = [false; 4000];
            let mut missed = parts[0].0;
            let mut account = AcquisitionAccount::new(&header(missed));
            for (n, &(_, certified, withheld, step)) in parts.iter().enumerate() {
                if n > 0 {
                    // Further on, or back to certified samples.
                    missed = (account.next_index() + step).saturating_sub(12);
                    let joined = account.joined(&header(missed));
                    prop_assert!(joined.skip == 0 || joined.gap == 0);
                }
                let from = missed as usize;
                let (good, all) = (from + certified as usize, from + (certified + withheld) as usize);
                // Passed samples do not change, so rows only advance.
                let passed = account.next_index() as usize;
                written[passed.max(from).min(good)..good].fill(true);
                state[good..all].fill(Some(Cause::Damaged));
                account.left(tally(missed, certified, withheld, Ending::ConnectionLost));
            }
            let mut closed = account.close(captured, None);
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
