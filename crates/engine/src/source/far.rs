//! Frames from far off: kept until it is clear whether the stream is there now.
//!
//! ```text
//! ahead    a silence, if enough in a row agree: what lies between is missing
//! behind   a burst of old frames, unless it goes on with nothing of the stream beside it:
//!          then the sender's count has started anew
//! ```

use fullbore_core::time::Tai;
use fullbore_core::window::BELIEVED_AFTER;

/// A count that goes back is believed when nothing else has come for so long …
const ALONE_NS: i64 = 20_000_000;

/// … or when so many frames in a row went on with it.
const MOST: usize = 4096;

/// Datagrams from far off, each with its index; neighbours agree.
#[derive(Default)]
pub struct Far {
    held: Vec<(i64, Vec<u8>)>,
    since: Option<Tai>,
}

/// Where the stream is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// Further on, at this index.
    Ahead(i64),
    /// It has begun anew: what the sender calls this index follows the last frame.
    Anew(i64),
}

impl Far {
    /// Whether an index lies within `reach` of the one heard before.
    pub fn agrees(&self, index: i64, reach: u64) -> bool {
        self.held.last().is_none_or(|(before, _)| index.abs_diff(*before) < reach)
    }

    /// Keeps a datagram that agrees with those before.
    pub fn hear(&mut self, index: i64, datagram: Vec<u8>, now: Tai) {
        self.since.get_or_insert(now);
        self.held.push((index, datagram));
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Believes none of them. Some may be near by now.
    pub fn give_up(&mut self) -> Vec<(i64, Vec<u8>)> {
        self.since = None;
        std::mem::take(&mut self.held)
    }

    /// Takes the datagrams in the order of their indices, to be placed.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        self.since = None;
        self.held.sort_by_key(|(index, _)| *index);
        self.held.drain(..).map(|(_, datagram)| datagram).collect()
    }

    /// What can be believed of the stream that expects `next`, where a silence has `longest` frames at most.
    pub fn belief(&self, next: i64, longest: i64, now: Tai) -> Option<Belief> {
        let belief = self.likely(next, longest, BELIEVED_AFTER)?;
        let alone = self.since.is_some_and(|since| now.since(since) >= ALONE_NS);
        let enough = match belief {
            Belief::Ahead(_) => true,
            Belief::Anew(_) => alone || self.held.len() >= MOST,
        };
        enough.then_some(belief)
    }

    /// What is likely once nothing more will come and at least so many agree.
    pub fn likely(&self, next: i64, longest: i64, least: usize) -> Option<Belief> {
        let first = self.held.iter().map(|(index, _)| *index).min()?;
        let ahead = (0..=longest).contains(&first.saturating_sub(next));
        let belief = if ahead { Belief::Ahead(first) } else { Belief::Anew(first) };
        (self.held.len() >= least).then_some(belief)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(indices: impl Iterator<Item = i64>, now: Tai) -> Far {
        let mut far = Far::default();
        for index in indices {
            assert!(far.agrees(index, 100));
            far.hear(index, Vec::new(), now);
        }
        far
    }

    #[test]
    fn a_silence_is_believed_at_once_and_a_count_that_goes_back_when_it_is_alone() {
        let ahead = heard(5000..5008, Tai(0));
        assert_eq!(ahead.belief(1000, 1 << 20, Tai(0)), Some(Belief::Ahead(5000)));
        assert_eq!(ahead.belief(1000, 100, Tai(0)), None, "too long a silence");
        let behind = heard(0..500, Tai(0));
        assert_eq!(behind.belief(1000, 1 << 20, Tai(0)), None, "a burst of old frames");
        assert_eq!(behind.belief(1000, 1 << 20, Tai(ALONE_NS)), Some(Belief::Anew(0)));
        let long = heard(0..MOST as i64, Tai(0));
        assert_eq!(long.belief(10_000, 1 << 20, Tai(0)), Some(Belief::Anew(0)));
    }

    #[test]
    fn those_that_do_not_agree_are_given_up() {
        let mut far = heard(5000..5003, Tai(0));
        assert!(!far.agrees(9000, 100));
        let given_up: Vec<i64> = far.give_up().into_iter().map(|(index, _)| index).collect();
        assert_eq!(given_up, [5000, 5001, 5002]);
        assert!(far.agrees(9000, 100) && far.is_empty());
    }
}
