//! Resynchronisation: frames outside the window are held until the stream's new position is certain.
//!
//! ```text
//! ahead    a pause of the stream, if enough in a row agree: frames in between are missing
//! behind   a burst of old frames, unless it continues while no other frame of the stream arrives:
//!          then the sender's count has restarted
//! ```

use crate::window::BELIEVED_AFTER;
use fullbore_time::Tai;

/// A count that goes back is accepted when no other frame has arrived for this time …
const ALONE_NS: i64 = 20_000_000;

/// … or when this many frames in a row continued it.
const MOST: usize = 4096;

/// Datagrams outside the window, each with its index; neighbouring indices agree.
#[derive(Default)]
pub struct FarFrames {
    held: Vec<(i64, Vec<u8>)>,
    since: Option<Tai>,
}

/// The new position of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resync {
    /// The stream continues further on, at this index.
    Jump(i64),
    /// The stream has restarted: the sender's frame with this index follows the last frame.
    Restart(i64),
}

impl FarFrames {
    /// True if an index is within `reach` of the previous out-of-window index.
    pub fn agrees(&self, index: i64, reach: u64) -> bool {
        self.held.last().is_none_or(|(before, _)| index.abs_diff(*before) < reach)
    }

    /// Keeps a datagram that agrees with the earlier ones.
    pub fn hear(&mut self, index: i64, datagram: Vec<u8>, now: Tai) {
        self.since.get_or_insert(now);
        self.held.push((index, datagram));
    }

    /// True if no datagram is kept.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns all kept datagrams without accepting them. Some may be near the window by now.
    pub fn give_up(&mut self) -> Vec<(i64, Vec<u8>)> {
        self.since = None;
        std::mem::take(&mut self.held)
    }

    /// Returns the datagrams in the order of their indices.
    pub fn take(&mut self) -> Vec<Vec<u8>> {
        self.since = None;
        self.held.sort_by_key(|(index, _)| *index);
        self.held.drain(..).map(|(_, datagram)| datagram).collect()
    }

    /// Returns the new position of a stream that expects index `next`, if it is certain. A pause has at most `longest`
    /// frames.
    pub fn decide(&self, next: i64, longest: i64, now: Tai) -> Option<Resync> {
        let belief = self.likely(next, longest, BELIEVED_AFTER)?;
        let alone = self.since.is_some_and(|since| now.since(since) >= ALONE_NS);
        let enough = match belief {
            Resync::Jump(_) => true,
            Resync::Restart(_) => alone || self.held.len() >= MOST,
        };
        enough.then_some(belief)
    }

    /// Returns the likely position when no more frames will arrive and at least `least` agree.
    pub fn likely(&self, next: i64, longest: i64, least: usize) -> Option<Resync> {
        let first = self.held.iter().map(|(index, _)| *index).min()?;
        let ahead = (0..=longest).contains(&first.saturating_sub(next));
        let belief = if ahead { Resync::Jump(first) } else { Resync::Restart(first) };
        (self.held.len() >= least).then_some(belief)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(indices: impl Iterator<Item = i64>, now: Tai) -> FarFrames {
        let mut far = FarFrames::default();
        for index in indices {
            assert!(far.agrees(index, 100));
            far.hear(index, Vec::new(), now);
        }
        far
    }

    #[test]
    fn a_silence_is_believed_at_once_and_a_count_that_goes_back_when_it_is_alone() {
        let ahead = heard(5000..5008, Tai(0));
        assert_eq!(ahead.decide(1000, 1 << 20, Tai(0)), Some(Resync::Jump(5000)));
        assert_eq!(ahead.decide(1000, 100, Tai(0)), None, "too long a silence");
        let behind = heard(0..500, Tai(0));
        assert_eq!(behind.decide(1000, 1 << 20, Tai(0)), None, "a burst of old frames");
        assert_eq!(behind.decide(1000, 1 << 20, Tai(ALONE_NS)), Some(Resync::Restart(0)));
        let long = heard(0..MOST as i64, Tai(0));
        assert_eq!(long.decide(10_000, 1 << 20, Tai(0)), Some(Resync::Restart(0)));
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
