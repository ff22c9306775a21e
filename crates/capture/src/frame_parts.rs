//! Joins frames that a sender splits over two datagrams, by the packet number before each part.
//!
//! ```text
//! datagram   number n      header and first half of the payload
//! datagram   number n + 1  second half of the payload, no header
//! joined     number n      the whole frame
//! ```
//!
//! The parts may arrive in any order within [`REACH`] datagrams. A first part whose second one is lost is passed on as it
//! is: it has a header, so its frame counts as damaged. A second part alone is no frame, and its frame is missing.

use std::collections::VecDeque;

use fullbore_core::endpoint::PACKET_NUMBER_BYTES;
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::sequence::Field;
use fullbore_time::Tai;

/// The datagrams for which a part waits for the other one …
const REACH: u64 = 64;

/// … and the longest time.
const PATIENCE_NS: i64 = 100_000_000;

/// Bytes before each part.
const HEAD: usize = PACKET_NUMBER_BYTES as usize;

/// The parts that wait for others.
pub struct FrameParts {
    codec: FrameCodec,
    /// Bytes of a part.
    part_bytes: usize,
    waiting: VecDeque<Part>,
    /// Datagrams taken.
    taken: u64,
}

struct Part {
    datagram: Vec<u8>,
    is_first: bool,
    number: u64,
    at: Tai,
}

impl FrameParts {
    /// Begins if a datagram is the first part of a frame of this format behind a packet number.
    pub fn begin(codec: FrameCodec, datagram: &[u8]) -> Option<Self> {
        let frame_bytes = codec.kind().fixed_frame_bytes()? as usize;
        let parts = codec.kind().parts();
        let part_bytes = frame_bytes.checked_div(parts).filter(|_| parts == 2)?;
        let part = datagram.get(HEAD..).filter(|part| part.len() == part_bytes)?;
        codec.read(part)?;
        Some(Self { codec, part_bytes, waiting: VecDeque::new(), taken: 0 })
    }

    /// Takes a datagram, and passes on whole ones in the order in which they are complete.
    pub fn take(&mut self, datagram: &[u8], now: Tai, mut pass: impl FnMut(&[u8])) {
        self.taken += 1;
        self.expire(now, &mut pass);
        if datagram.len() != HEAD + self.part_bytes {
            pass(datagram);
            return;
        }
        let is_first = self.codec.read(&datagram[HEAD..]).is_some();
        let fits = |part: &Part| match is_first {
            true => !part.is_first && follows(datagram, &part.datagram),
            false => part.is_first && follows(&part.datagram, datagram),
        };
        let Some(at) = self.waiting.iter().rposition(fits) else {
            let (datagram, number) = (datagram.to_vec(), self.taken);
            self.waiting.push_back(Part { datagram, is_first, number, at: now });
            return;
        };
        let mut other = self.waiting.remove(at).expect("it was found").datagram;
        match is_first {
            true => pass(&[datagram, &other[HEAD..]].concat()),
            false => {
                other.extend_from_slice(&datagram[HEAD..]);
                pass(&other);
            }
        }
    }

    /// Passes on the parts that have waited long enough.
    pub fn expire(&mut self, now: Tai, mut pass: impl FnMut(&[u8])) {
        let oldest = self.taken.saturating_sub(REACH);
        let is_old = |part: &Part| part.number < oldest || now.since(part.at) >= PATIENCE_NS;
        while self.waiting.front().is_some_and(is_old) {
            let part = self.waiting.pop_front().expect("there is one");
            pass(&part.datagram);
        }
    }

    /// Passes on all parts.
    pub fn finish(&mut self, mut pass: impl FnMut(&[u8])) {
        self.waiting.drain(..).for_each(|part| pass(&part.datagram));
    }
}

/// True if the packet number of a datagram is one more than that of another, in one of the usual fields.
fn follows(before: &[u8], after: &[u8]) -> bool {
    Field::PACKET_NUMBERS.iter().any(|field| {
        let (before, after) = (field.read(before), field.read(after));
        before.zip(after).is_some_and(|(before, after)| before.wrapping_add(1) == after)
    })
}

#[cfg(test)]
mod tests {
    use fullbore_formats::framed::FrameKind;
    use proptest::prelude::*;

    use super::*;

    const WHOLE: usize = 10_016;

    fn codec() -> FrameCodec {
        FrameCodec::any_day(FrameKind::Mark5b)
    }

    /// The two datagrams of a frame.
    fn parts(number: u64) -> [Vec<u8>; 2] {
        let mut frame = vec![number as u8; WHOLE];
        frame[..4].copy_from_slice(&0xABAD_DEEDu32.to_le_bytes());
        frame[4..16].fill(0);
        let part = |n: u64, bytes: &[u8]| [&(2 * number + n).to_le_bytes(), bytes].concat();
        [part(0, &frame[..WHOLE / 2]), part(1, &frame[WHOLE / 2..])]
    }

    fn joined(datagrams: &[Vec<u8>]) -> Vec<(u64, usize)> {
        let mut joined = Vec::new();
        let mut pass = |datagram: &[u8]| {
            let number = Field::PSN.read(datagram).unwrap();
            joined.push((number, datagram.len() - HEAD));
        };
        let mut parts = FrameParts::begin(codec(), &self::parts(0)[0]).unwrap();
        for datagram in datagrams {
            parts.take(datagram, Tai(0), &mut pass);
        }
        parts.finish(&mut pass);
        joined
    }

    #[test]
    fn only_the_first_part_of_a_frame_begins() {
        let [first, second] = parts(3);
        assert!(FrameParts::begin(codec(), &second).is_none());
        assert!(FrameParts::begin(codec(), &[&first, &second[HEAD..]].concat()).is_none());
        let vdif = FrameCodec::any_day(FrameKind::Vdif);
        assert!(FrameParts::begin(vdif, &first).is_none());
    }

    #[test]
    fn a_part_without_the_other_is_passed_on_after_a_while() {
        let mut parts = FrameParts::begin(codec(), &self::parts(0)[0]).unwrap();
        let mut passed = Vec::new();
        parts.take(&self::parts(0)[0], Tai(0), |it| passed.push(it.len()));
        for number in 1..40 {
            for datagram in self::parts(number) {
                parts.take(&datagram, Tai(0), |it| passed.push(it.len()));
            }
        }
        assert_eq!(passed.iter().filter(|it| **it == HEAD + WHOLE / 2).count(), 1);
        parts.take(&self::parts(50)[1], Tai(0), |_| unreachable!("it waits"));
        let mut late = 0;
        parts.expire(Tai(PATIENCE_NS), |_| late += 1);
        assert_eq!(late, 1);
    }

    proptest! {
        #[test]
        fn every_frame_of_which_both_parts_arrive_is_whole(
            lost in prop::collection::btree_set(0usize..80, 0..10),
            swaps in prop::collection::vec((0usize..80, 1usize..20), 0..30),
        ) {
            let mut sent: Vec<(usize, Vec<u8>)> = (0..40).flat_map(parts).enumerate().collect();
            for (at, by) in swaps {
                let to = (at + by).min(79);
                sent.swap(at, to);
            }
            sent.retain(|(number, _)| !lost.contains(number));
            let place = |part| sent.iter().position(|(number, _)| *number == part);
            // Swaps of swapped datagrams can bring the parts of a frame out of reach of each other.
            let beyond_reach: Vec<bool> = (0..40)
                .map(|frame| place(2 * frame).zip(place(2 * frame + 1)))
                .map(|it| it.is_some_and(|(first, second)| first.abs_diff(second) >= REACH as usize))
                .collect();
            let datagrams: Vec<Vec<u8>> = sent.into_iter().map(|(_, it)| it).collect();
            let mut seen = joined(&datagrams);
            seen.sort_unstable();
            for frame in 0..40 {
                let parts = [2 * frame, 2 * frame + 1].map(|part| !lost.contains(&(part as usize)));
                let of: Vec<_> = seen.iter().filter(|(number, _)| number / 2 == frame).collect();
                match parts {
                    [true, true] if beyond_reach[frame as usize] => {}
                    [true, true] => prop_assert_eq!(of, [&(2 * frame, WHOLE)]),
                    [false, false] => prop_assert!(of.is_empty()),
                    _ => prop_assert!(of.iter().all(|it| it.1 == WHOLE / 2) && of.len() == 1),
                }
            }
        }
    }
}
