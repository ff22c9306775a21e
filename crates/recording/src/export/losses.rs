//! The account of an exported file: the frames of the recording that it lacks.
//!
//! ```text
//! the recording   expected = written + missing + …
//! the file        expected = written + missing + … + damaged     frames that were there, and could not be read
//! ```

use std::ops::Range;

use fullbore_core::account::{Account, CountedBy, Verdict};
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::index::Block;
use fullbore_store::gaps::Gaps;
use fullbore_store::reader::StoredStream;

/// The account of the blocks in a file.
#[derive(Clone, Debug, Default)]
pub struct ExportAccount {
    /// Received frames in them, and fill frames.
    present: u64,
    filled: u64,
    /// Frames in damaged blocks.
    unsure: u64,
    bytes: u64,
    /// All of their frames, by the numbers of the index.
    runs: Vec<Range<i64>>,
}

/// The meaning of the index's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Numbers {
    /// Places of frames, in this range.
    Places(Range<i64>),
    /// The order of arrival; gaps of the account lie between the numbers.
    Arrivals,
    /// The same, without known places.
    Unplaced,
}

impl ExportAccount {
    /// Adds a block.
    pub fn add(&mut self, block: &Block, is_damaged: bool) {
        let (frames, present) = (u64::from(block.frames), u64::from(block.present));
        self.present += present;
        self.filled += frames.saturating_sub(present);
        self.bytes += u64::from(block.bytes);
        if is_damaged {
            self.unsure += present;
        }
        let run = block.first..block.first.saturating_add(block.frames.into());
        match self.runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => self.runs.push(run),
        }
    }

    /// Received frames in the file.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// The account of a file with these blocks of a stream, and the number of frames missing from it.
    pub fn account(&self, stream: &StoredStream) -> (Option<Account>, u64) {
        let frame_bytes = stream.geometry.map_or(0, |geometry| u64::from(geometry.frame_bytes));
        let Some(mut account) = stream.account.clone() else { return (None, 0) };
        let numbers = match stream.placed_edges() {
            Some((first, last)) => Numbers::Places(first..last.saturating_add(1)),
            None if account.counted_by == CountedBy::ServerCount => Numbers::Arrivals,
            None => Numbers::Unplaced,
        };
        let lost = self.lose(&mut account, &numbers, frame_bytes);
        (Some(account), lost)
    }

    /// Removes frames outside these blocks from the account. Returns their number.
    fn lose(&self, account: &mut Account, numbers: &Numbers, frame_bytes: u64) -> u64 {
        let written = account.terms.written;
        let lost = written.saturating_sub(self.present);
        account.unverified = account.unverified.saturating_add(self.unsure);
        if lost > 0 {
            let gaps = self.gaps(account, numbers);
            account.terms.written -= lost;
            account.terms.damaged = account.terms.damaged.saturating_add(lost);
            account.filled = self.filled;
            account.bytes = match frame_bytes {
                0 => account.bytes.min(self.bytes),
                _ => account.bytes.saturating_sub(lost.saturating_mul(frame_bytes)),
            };
            // The threads of those frames are not known.
            account.flows.clear();
            account.gaps_unlisted += u64::from(gaps.is_empty());
            let mut all: Vec<Gap> = std::mem::take(&mut account.gaps);
            all.extend(gaps);
            all.sort_unstable_by_key(|gap| gap.first);
            all.into_iter().for_each(|gap| account.push_gap(gap));
        }
        if lost > 0 || self.unsure > 0 {
            let judged = account.judge().max(Verdict::Consistent);
            account.verdict = account.verdict.max(judged);
        }
        lost
    }

    /// The places of frames outside these blocks, as far as they are known.
    fn gaps(&self, account: &Account, numbers: &Numbers) -> Vec<Gap> {
        let known = Gaps::paint(account.gaps.iter().copied());
        let places = match numbers {
            Numbers::Places(range) => {
                let holes = self.holes(range.clone());
                holes.into_iter().flat_map(|hole| known.uncovered(hole)).collect()
            }
            Numbers::Arrivals if account.gaps_unlisted == 0 => {
                let expected = i64::try_from(account.terms.expected).unwrap_or(i64::MAX);
                let written = i64::try_from(account.terms.written).unwrap_or(i64::MAX);
                places_of(&self.holes(0..written), &known.uncovered(0..expected))
            }
            Numbers::Arrivals | Numbers::Unplaced => Vec::new(),
        };
        let gap = |place: Range<i64>| Gap {
            first: place.start,
            count: place.end.abs_diff(place.start),
            cause: Cause::Damaged,
        };
        places.into_iter().map(gap).collect()
    }

    /// The parts of a range outside these blocks.
    fn holes(&self, range: Range<i64>) -> Vec<Range<i64>> {
        let there = self.runs.iter().map(|run| Gap {
            first: run.start,
            count: run.end.abs_diff(run.start),
            cause: Cause::Missing,
        });
        Gaps::paint(there).uncovered(range)
    }
}

/// The places of frames by order of arrival, if all arrivals fill these places in order.
fn places_of(arrivals: &[Range<i64>], filled: &[Range<i64>]) -> Vec<Range<i64>> {
    let mut places = Vec::new();
    let mut before = 0;
    for run in filled {
        let here = before..before + (run.end - run.start);
        for arrival in arrivals {
            let (start, end) = (arrival.start.max(here.start), arrival.end.min(here.end));
            if start < end {
                places.push(run.start + start - before..run.start + end - before);
            }
        }
        before = here.end;
    }
    places
}

#[cfg(test)]
mod tests {
    use fullbore_core::account::Terms;
    use fullbore_time::Tai;

    use super::*;

    /// A block of frames with this number of received ones.
    fn block(first: i64, frames: u32, present: u32) -> Block {
        Block {
            sequence: 0,
            offset: 0,
            chunk: 0,
            bytes: frames * 10,
            crc: 0,
            frames,
            present,
            invalid: 0,
            first,
            time: None,
            seen: Tai(0),
        }
    }

    fn account(counted_by: CountedBy, terms: Terms, gaps: &[Gap]) -> Account {
        let gaps = gaps.to_vec();
        Account { terms, gaps, verdict: Verdict::Proven, ..Account::new(counted_by) }
    }

    #[test]
    fn samples_of_a_block_that_is_gone_are_damaged_where_they_would_be() {
        // 100 arrived, then 50 were lost, then 100 arrived again.
        let gap = Gap { first: 100, count: 50, cause: Cause::Missing };
        let terms = Terms { expected: 250, written: 200, missing: 50, ..Terms::default() };
        let mut account = account(CountedBy::ServerCount, terms, &[gap]);
        let mut poured = ExportAccount::default();
        poured.add(&block(0, 80, 80), false);
        poured.add(&block(130, 70, 70), false);
        assert_eq!(poured.lose(&mut account, &Numbers::Arrivals, 10), 50);
        assert!(account.terms.balance());
        assert_eq!((account.terms.written, account.terms.damaged), (150, 50));
        let gaps: Vec<_> = account.gaps.iter().map(|it| (it.first, it.count, it.cause)).collect();
        let damaged = |first, count| (first, count, Cause::Damaged);
        assert_eq!(gaps, [damaged(80, 20), (100, 50, Cause::Missing), damaged(150, 30)]);
        assert_eq!(account.verdict, Verdict::Consistent);
    }

    #[test]
    fn frames_that_have_places_leave_their_gaps_beside_those_that_never_came() {
        let gap = Gap { first: 15, count: 2, cause: Cause::Missing };
        let terms = Terms { expected: 30, written: 28, missing: 2, ..Terms::default() };
        let mut account = account(CountedBy::FrameTime, terms, &[gap]);
        let mut poured = ExportAccount::default();
        poured.add(&block(0, 10, 10), false);
        poured.add(&block(20, 10, 10), true);
        assert_eq!(poured.lose(&mut account, &Numbers::Places(0..30), 10), 8);
        assert!(account.terms.balance());
        assert_eq!(account.listed(Cause::Damaged), 8);
        assert_eq!((account.unverified, account.gaps.len()), (10, 3));
        assert_ne!(account.verdict, Verdict::Proven);
    }

    #[test]
    fn a_file_that_has_every_block_has_the_account_of_the_recording() {
        let terms = Terms { expected: 10, written: 10, ..Terms::default() };
        let mut account = account(CountedBy::ServerCount, terms, &[]);
        let before = account.clone();
        let mut poured = ExportAccount::default();
        poured.add(&block(0, 10, 10), false);
        assert_eq!(poured.lose(&mut account, &Numbers::Arrivals, 10), 0);
        assert_eq!(account, before);
    }
}
