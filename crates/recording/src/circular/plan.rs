//! Which pieces a trigger covers, when it is complete, and which pieces go.

use std::ops::Range;

use fullbore_core::name::ScanName;
use fullbore_core::retention::Retention;
use fullbore_time::Tai;

/// A stream can be cut this much after the piece has ended, at its next block. Frames of that time are in the piece.
const CUT_NS: i64 = 1_000_000_000;

/// A sealed piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The scan.
    pub name: ScanName,
    /// Its begin, by the host's clock. It equals the end of the piece before.
    pub armed: Tai,
    /// Its end.
    pub stopped: Tai,
    /// Bytes of all streams.
    pub bytes: u64,
}

/// The time that a trigger keeps, by the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its begin.
    pub from: Tai,
    /// Its end.
    pub to: Tai,
}

impl Window {
    /// True if the piece may have frames of this time.
    pub fn covers(&self, piece: &Piece) -> bool {
        piece.armed <= self.to && piece.stopped.plus_ns(CUT_NS) >= self.from
    }

    /// The pieces that this window covers, once no other one follows: the recorder has sealed a later time, or has
    /// `ended`. `None` before that. The pieces are in the order of time.
    pub fn pieces(&self, pieces: &[Piece], ended: bool) -> Option<Range<usize>> {
        let is_past = pieces.last().is_some_and(|last| last.stopped > self.to);
        if !is_past && !ended {
            return None;
        }
        let first = pieces.iter().position(|piece| self.covers(piece)).unwrap_or(pieces.len());
        let count = pieces[first..].iter().take_while(|piece| self.covers(piece)).count();
        Some(first..first + count)
    }
}

/// Divides pieces where one does not continue the one before: the recorder was started again, or one is not sealed.
pub fn chains(pieces: &[Piece]) -> Vec<&[Piece]> {
    pieces.chunk_by(|piece, next| piece.stopped == next.armed).collect()
}

/// The pieces that go, the oldest first: those behind the limit that no waiting trigger covers. What is newer than a time
/// limit, or within a size limit, stays whole.
pub fn excess(pieces: &[Piece], limit: Retention, waiting: &[Window], now: Tai) -> Vec<usize> {
    let mut newer = 0u64;
    let mut go = Vec::new();
    for (place, piece) in pieces.iter().enumerate().rev() {
        let is_behind = match limit {
            Retention::Age(age) => {
                let age_ns = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
                now.since(piece.stopped) > age_ns
            }
            Retention::Size(size) => newer >= size.0,
        };
        newer = newer.saturating_add(piece.bytes);
        if is_behind && !waiting.iter().any(|window| window.covers(piece)) {
            go.push(place);
        }
    }
    go.reverse();
    go
}

/// The trigger that ends early, because the pieces that all of these cover have more bytes than there is room for: the one
/// that begins first.
pub fn overfull(pieces: &[Piece], waiting: &[Window], room: u64) -> Option<usize> {
    let covered = pieces.iter().filter(|piece| waiting.iter().any(|window| window.covers(piece)));
    let bytes = covered.fold(0u64, |sum, piece| sum.saturating_add(piece.bytes));
    let with_pieces =
        (0..waiting.len()).filter(|&place| pieces.iter().any(|piece| waiting[place].covers(piece)));
    with_pieces.min_by_key(|&place| waiting[place].from).filter(|_| bytes > room)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use fullbore_core::units::ByteSize;
    use proptest::prelude::*;

    use super::*;

    const MS: i64 = 1_000_000;

    fn piece(number: u64, armed_ms: i64, stopped_ms: i64) -> Piece {
        let name = format!("s_a-{number}").parse().unwrap();
        Piece { name, armed: Tai(armed_ms * MS), stopped: Tai(stopped_ms * MS), bytes: 10 }
    }

    fn window(from_ms: i64, to_ms: i64) -> Window {
        Window { from: Tai(from_ms * MS), to: Tai(to_ms * MS) }
    }

    #[test]
    fn trigger_waits_for_a_piece_that_ends_after_it() {
        let pieces = [piece(1, 0, 5000), piece(2, 5000, 10_000), piece(3, 10_000, 15_000)];
        assert_eq!(window(7000, 12_000).pieces(&pieces[..2], false), None);
        assert_eq!(window(7000, 12_000).pieces(&pieces[..2], true), Some(1..2));
        assert_eq!(window(7000, 12_000).pieces(&pieces, false), Some(1..3));
        assert_eq!(window(5500, 9000).pieces(&pieces, false), Some(0..2), "a late cut");
        assert_eq!(window(6500, 9000).pieces(&pieces, false), Some(1..2));
        assert_eq!(window(-9000, -5000).pieces(&pieces, false), Some(3..3));
    }

    #[test]
    fn pieces_of_two_recorders_are_two_chains() {
        let pieces = [piece(1, 0, 5000), piece(2, 5000, 9000), piece(3, 9500, 12_000)];
        let lengths: Vec<usize> = chains(&pieces).iter().map(|chain| chain.len()).collect();
        assert_eq!(lengths, [2, 1]);
    }

    #[test]
    fn size_limit_keeps_at_least_its_size() {
        let pieces: Vec<Piece> =
            (0..5).map(|it| piece(it as u64, it * 1000, it * 1000 + 1000)).collect();
        let size = |bytes| Retention::Size(ByteSize(bytes));
        assert_eq!(excess(&pieces, size(25), &[], Tai(0)), [0, 1]);
        assert_eq!(excess(&pieces, size(30), &[], Tai(0)), [0, 1]);
        assert_eq!(excess(&pieces, size(25), &[window(0, 500)], Tai(0)), [1]);
        assert_eq!(excess(&pieces, size(1000), &[], Tai(0)), [0usize; 0]);
    }

    #[test]
    fn triggers_that_cover_too_much_together_end_from_the_earliest_on() {
        let pieces: Vec<Piece> =
            (0..6).map(|it| piece(it as u64, it * 5000, it * 5000 + 5000)).collect();
        // Two pieces each, of which they share one, and one of a time to come.
        let windows = [window(90_000, 99_000), window(6500, 12_000), window(1500, 9000)];
        assert_eq!(overfull(&pieces, &windows, 30), None);
        assert_eq!(overfull(&pieces, &windows, 29), Some(2), "each alone has room");
        assert_eq!(overfull(&pieces, &windows[..2], 19), Some(1));
        assert_eq!(overfull(&pieces, &windows[..1], 0), None, "it has no piece");
    }

    /// A trigger of the simulation.
    struct Set {
        window: Window,
        /// The oldest piece that was there when it was set.
        oldest: usize,
    }

    proptest! {
        /// Pieces are recorded one after the other while triggers come at random. A trigger keeps every piece of its time
        /// that was there when it was set, and every later one. No other piece stays longer than the limit and a piece.
        #[test]
        fn triggers_keep_their_time_and_nothing_else_stays(
            lengths in prop::collection::vec(1000i64..4000, 5..60),
            triggers in prop::collection::vec((0usize..60, 0i64..12_000, 0i64..12_000), 0..12),
            limit_ms in 5000i64..20_000,
        ) {
            let limit = Retention::Age(Duration::from_millis(limit_ms as u64));
            let (mut pieces, mut all): (Vec<Piece>, Vec<Piece>) = (Vec::new(), Vec::new());
            let (mut waiting, mut now) = (Vec::<Set>::new(), 0);
            let mut kept = Vec::<(Set, BTreeSet<String>)>::new();
            for (number, length) in lengths.iter().enumerate() {
                for (_, before, after) in triggers.iter().filter(|it| it.0 == number) {
                    let at = now + length / 2;
                    let oldest = all.len() - pieces.len();
                    waiting.push(Set { window: window(at - before, at + after), oldest });
                }
                let new = piece(number as u64, now, now + length);
                now += length;
                all.push(new.clone());
                pieces.push(new);
                let is_last = number + 1 == lengths.len();
                let (ready, rest): (Vec<Set>, Vec<Set>) =
                    waiting.into_iter().partition(|it| it.window.pieces(&pieces, is_last).is_some());
                for set in ready {
                    let range = set.window.pieces(&pieces, is_last).unwrap();
                    let names = pieces[range].iter().map(|it| it.name.to_string()).collect();
                    kept.push((set, names));
                }
                waiting = rest;
                let windows: Vec<Window> = waiting.iter().map(|it| it.window).collect();
                let gone = excess(&pieces, limit, &windows, Tai(now * MS));
                for place in gone.into_iter().rev() {
                    pieces.remove(place);
                }
                for stays in &pieces {
                    let is_new = now - stays.stopped.0 / MS <= limit_ms;
                    prop_assert!(is_new || windows.iter().any(|it| it.covers(stays)));
                }
                let newest = all.iter().filter(|it| now - it.stopped.0 / MS <= limit_ms);
                prop_assert!(newest.clone().all(|it| pieces.contains(it)), "the limit is kept to");
            }
            prop_assert!(waiting.is_empty());
            for (Set { window, oldest }, names) in kept {
                let wanted = all[oldest..].iter().filter(|it| window.covers(it));
                let wanted: BTreeSet<String> = wanted.map(|it| it.name.to_string()).collect();
                prop_assert!(wanted.is_subset(&names), "{wanted:?} of {names:?}");
            }
        }
    }
}
