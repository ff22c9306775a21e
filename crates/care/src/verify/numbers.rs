//! Checks the numbers in the frames of a sequential stream against the gaps in the account.
//!
//! The index counts arrivals in such a stream, so only the frames themselves show which are absent:
//!
//! ```text
//! account   first ██████░░░███████████░████ last         places, as the sender's count gave them
//! frames          012345   9 …  99│0123 5678             seconds, and numbers in each
//! ```
//!
//! The place of a second's start in the account's count is not known beforehand. It follows from the first of its
//! frames. From there on, every hole between its numbers must be a gap of the same length, and if the rate is certain,
//! the next second begins that many places further on.

use std::collections::BTreeMap;
use std::ops::Range;

use fullbore_store::gaps::Gaps;

/// The maximum number of runs that are kept of a thread in a block; a block with more is not checked.
const RUNS_OF_BLOCK: usize = 1 << 14;

/// The number of ends of seconds that are tried as the place of the first gap, if no rate is known.
const TRIED: usize = 64;

/// The numbers of frames, second by second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Numbers {
    seconds: BTreeMap<i64, Vec<Range<i64>>>,
    runs: usize,
    /// True if there were more runs than are kept.
    pub(super) crowded: bool,
}

/// The known frame rate of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// The rate in the manifest.
    pub(super) told: Option<i64>,
    /// True if the rate was valid from the first frame on.
    pub(super) certain: bool,
}

impl Numbers {
    pub(super) fn note(&mut self, second: i64, number: i64) {
        let runs = self.seconds.entry(second).or_default();
        match runs.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ if self.runs >= RUNS_OF_BLOCK => self.crowded = true,
            _ => {
                runs.push(number..number + 1);
                self.runs += 1;
            }
        }
    }

    /// Adds another block's numbers.
    pub(super) fn add(&mut self, more: &Self) {
        for (second, runs) in &more.seconds {
            self.seconds.entry(*second).or_default().extend(runs.iter().cloned());
        }
        self.crowded |= more.crowded;
    }

    /// Sorts the runs; duplicates count once.
    pub(super) fn settle(&mut self) {
        for runs in self.seconds.values_mut() {
            runs.sort_unstable_by_key(|run| run.start);
            let mut joined: Vec<Range<i64>> = Vec::with_capacity(runs.len());
            for run in runs.drain(..) {
                match joined.last_mut() {
                    Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                    _ => joined.push(run),
                }
            }
            *runs = joined;
        }
        self.seconds.retain(|_, runs| !runs.is_empty());
        self.runs = self.seconds.values().map(Vec::len).sum();
    }

    /// Removes numbers beyond the end of their second.
    pub(super) fn within(mut self, rate: Option<i64>) -> Self {
        let Some(rate) = rate else { return self };
        for runs in self.seconds.values_mut() {
            runs.iter_mut().for_each(|run| run.end = run.end.min(rate));
            runs.retain(|run| !run.is_empty());
        }
        self.seconds.retain(|_, runs| !runs.is_empty());
        self
    }

    /// The number of frames.
    pub(super) fn frames(&self) -> u64 {
        self.seconds.values().flatten().map(|run| run.end.abs_diff(run.start)).sum()
    }

    /// The number of absent frames between the first and the last; without a rate, between those of each second.
    pub(super) fn holes(&self, rate: Option<i64>) -> u64 {
        let span = |runs: &Vec<Range<i64>>| match (runs.first(), runs.last()) {
            (Some(first), Some(last)) => last.end.abs_diff(first.start),
            _ => 0,
        };
        let spans: u64 = match (rate, self.seconds.first_key_value(), self.seconds.last_key_value())
        {
            (Some(rate), Some((begin, first)), Some((end, last))) => {
                let time = |second: i64, number: i64| {
                    i128::from(second) * i128::from(rate) + i128::from(number)
                };
                let ends = first.first().zip(last.last());
                let span = ends
                    .map_or(0, |(first, last)| time(*end, last.end) - time(*begin, first.start));
                u64::try_from(span).unwrap_or(0)
            }
            _ => self.seconds.values().map(span).sum(),
        };
        spans.saturating_sub(self.frames())
    }

    /// Returns true if the frames are exactly those outside of these gaps. `edges` are the first and the last place, if
    /// known.
    pub(super) fn fit(&self, gaps: &Gaps, edges: Option<(i64, i64)>, rate: Rate) -> bool {
        if let Some((first, last)) = edges {
            let inside = gaps.start().is_none_or(|start| start >= first)
                && gaps.end().is_none_or(|end| end <= last.saturating_add(1));
            let places = gaps.uncovered(first..last.saturating_add(1));
            return inside && self.follow(&places, rate).is_some();
        }
        let Some(gap) = gaps.without_causes().into_iter().next() else {
            let all = 0..self.frames() as i64;
            return self.follow(std::slice::from_ref(&all), rate).is_some();
        };
        // The first gap is behind the first frames, or before all of them.
        let before = self.first_stretches(rate.told).into_iter();
        let firsts = before.map(|frames| gap.start.saturating_sub(frames)).chain([gap.end]);
        let mut tried = firsts.filter_map(|first| self.places_from(first, gaps));
        tried.any(|places| self.follow(&places, rate).is_some())
    }

    /// Returns the possible numbers of frames before the first gap.
    fn first_stretches(&self, rate: Option<i64>) -> Vec<i64> {
        let mut stretches = Vec::new();
        let mut frames = 0;
        let mut seconds = self.seconds.iter().peekable();
        while let Some((second, runs)) = seconds.next() {
            let Some(run) = runs.first() else { break };
            frames += run.end - run.start;
            let goes_on = runs.len() == 1
                && seconds.peek().is_some_and(|(next, later)| {
                    let whole = rate.is_none_or(|rate| run.end == rate);
                    whole && **next == second + 1 && later.first().is_some_and(|it| it.start == 0)
                });
            // A learnt rate may have left a gap behind any second.
            if !goes_on || stretches.len() < TRIED {
                stretches.push(frames);
            }
            if runs.len() > 1 || (!goes_on && stretches.len() >= TRIED) {
                break;
            }
        }
        stretches
    }

    /// Returns the places of all frames, if the first of them has this one; a single gap may be behind the last.
    fn places_from(&self, first: i64, gaps: &Gaps) -> Option<Vec<Range<i64>>> {
        let mut left = self.frames() as i64;
        let mut places = Vec::new();
        let mut at = first;
        let mut listed = gaps.without_causes().into_iter().peekable();
        while let Some(gap) = listed.next_if(|gap| gap.start < at) {
            if gap.end > at {
                return None;
            }
        }
        for gap in listed {
            let count = (gap.start - at).min(left);
            if count > 0 {
                places.push(at..at + count);
            }
            left -= count;
            if left == 0 && gap.start != at + count {
                return None;
            }
            at = gap.end;
        }
        if left > 0 {
            places.push(at..at.checked_add(left)?);
        }
        Some(places)
    }

    /// Compares frames and places in order, as far as they agree.
    fn follow(&self, places: &[Range<i64>], rate: Rate) -> Option<()> {
        let mut places = places.iter().filter(|place| !place.is_empty()).cloned();
        let mut place = 0..0;
        let mut before: Option<(i64, i64)> = None;
        for (second, runs) in &self.seconds {
            let Some(first) = runs.first() else { continue };
            if place.is_empty() {
                place = places.next()?;
            }
            let start = place.start.saturating_sub(first.start);
            if let (Some((earlier, from)), Some(told)) = (before, rate.told) {
                let whole = second.saturating_sub(earlier).saturating_mul(told);
                if rate.certain && start.saturating_sub(from) != whole {
                    return None;
                }
            }
            for (number, run) in runs.iter().enumerate() {
                if number > 0 {
                    if !place.is_empty() {
                        return None;
                    }
                    place = places.next()?;
                }
                let (from, end) = (start.saturating_add(run.start), start.saturating_add(run.end));
                if place.start != from || end > place.end {
                    return None;
                }
                place.start = end;
            }
            before = Some((*second, start));
        }
        (place.is_empty() && places.next().is_none()).then_some(())
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::gap::{Cause, Gap};
    use proptest::prelude::*;

    use super::*;

    const RATE: i64 = 10;

    /// Returns frames from `from` on except the absent ones, by their time.
    fn numbers(from: i64, count: i64, absent: &[i64]) -> Numbers {
        let mut numbers = Numbers::default();
        for frame in (from..from + count).filter(|frame| !absent.contains(frame)) {
            numbers.note(frame.div_euclid(RATE), frame.rem_euclid(RATE));
        }
        numbers.settle();
        numbers
    }

    fn gaps(absent: impl IntoIterator<Item = i64>) -> Gaps {
        let gap = |first| Gap { first, count: 1, cause: Cause::Missing };
        Gaps::paint(absent.into_iter().map(gap))
    }

    proptest! {
        #[test]
        fn the_gaps_of_frames_fit_and_no_others(
            from in 0i64..40, count in 30i64..90, off in -50i64..50, certain in any::<bool>(),
            absent in prop::collection::btree_set(0i64..90, 0..12), change in 0i64..90, known in any::<bool>(),
        ) {
            let list: Vec<i64> = absent.iter().filter(|&&it| it < count).map(|it| from + it).collect();
            let numbers = numbers(from, count, &list);
            prop_assert_eq!(numbers.frames(), count as u64 - list.len() as u64);
            let rate = Rate { told: Some(RATE), certain };
            let edges = known.then_some((from + off, from + off + count - 1));
            let shifted = |list: &[i64]| gaps(list.iter().map(|it| it + off));
            prop_assert!(numbers.fit(&shifted(&list), edges, rate));
            // One absent place more, or one less.
            let place = from + change % count;
            let mut other = list.clone();
            match list.iter().position(|&it| it == place) {
                Some(at) => drop(other.remove(at)),
                None => other.push(place),
            }
            // Without edges the number of frames before the first and behind the last is unknown, so one more gap may
            // be there. One gap less is found if all gaps are between frames.
            let inside = |it: &i64| {
                (from..*it).any(|it| !list.contains(&it))
                    && (it + 1..from + count).any(|it| !list.contains(&it))
            };
            if known || certain && list.contains(&place) && list.iter().all(inside) {
                prop_assert!(!numbers.fit(&shifted(&other), edges, rate));
            }
            let (first, last) = (from + off, from + off + count - 1);
            prop_assert!(!numbers.fit(&shifted(&list), Some((first + 1, last)), rate));
            prop_assert!(!numbers.fit(&shifted(&list), Some((first, last + 1)), rate));
        }
    }

    #[test]
    fn holes_are_counted_between_the_first_and_the_last() {
        let numbers = numbers(3, 30, &[5, 6, 19, 20]);
        assert_eq!(numbers.holes(Some(RATE)), 4);
        assert_eq!(numbers.holes(None), 2, "the border between two seconds is not known");
        assert_eq!(numbers.clone().within(Some(RATE)), numbers);
    }
}
