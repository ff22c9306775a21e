//! Batches: runs of segments of one thread, as packed bytes.
//!
//! ```text
//! payloads   │ 0      │ 1      │   absent   │ 4      │
//! segments   0    1    2    3    4    5    6    7    8      whole: 0 1 2, 7 …
//! batches    │ 0                 │ 1                 │
//! ```
//!
//! Payloads of a thread come in order. A segment whose payloads do not is left out.

use std::collections::BTreeMap;

/// The most segments of a batch: one bit each.
const MOST_SEGMENTS: u64 = 64;
/// The usual number of samples of a batch, of all channels together.
const USUAL_SAMPLES: u64 = 1 << 18;

/// A run of segments of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The thread.
    pub thread: u16,
    /// The number of the first segment.
    pub first: u64,
    /// The segments that are whole, the first in the lowest bit.
    pub whole: u64,
    /// Packed samples. Those of segments that are not whole mean nothing.
    pub bytes: Vec<u8>,
}

impl Batch {
    /// The bytes of each whole segment, and its number.
    pub fn segments(&self, segment_bytes: usize) -> impl Iterator<Item = (u64, &[u8])> {
        let segments = self.bytes.chunks_exact(segment_bytes).enumerate();
        let whole = segments.filter(|(place, _)| self.whole >> place & 1 == 1);
        whole.map(|(place, bytes)| (self.first + place as u64, bytes))
    }
}

/// Cuts the payloads of a stream into batches.
#[derive(Debug)]
pub struct Batcher {
    /// Samples of a segment.
    segment: u64,
    /// Bits of a sample of all channels.
    sample_bits: u64,
    /// Segments of a batch.
    segments: u64,
    open: BTreeMap<u16, Open>,
    /// The lowest number of the next batch of each thread.
    next: BTreeMap<u16, u64>,
    /// Bytes that came after their batch was complete.
    late: u64,
}

/// A batch that is being filled.
#[derive(Debug)]
struct Open {
    number: u64,
    bytes: Vec<u8>,
    /// Bytes from the start of each segment that are there.
    came: Vec<usize>,
}

impl Batcher {
    /// A batcher of segments of this many samples, each of which has this many bits. A segment has whole bytes.
    pub fn new(segment: usize, sample_bits: u64) -> Self {
        let segment = segment as u64;
        assert!((segment * sample_bits).is_multiple_of(8), "segments have whole bytes");
        let channels_bits = sample_bits.max(1) * segment.max(1);
        let segments = (USUAL_SAMPLES * 2 / channels_bits).clamp(2, MOST_SEGMENTS);
        let (open, next) = (BTreeMap::new(), BTreeMap::new());
        Self { segment, sample_bits, segments, open, next, late: 0 }
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> usize {
        (self.segment * self.sample_bits / 8) as usize
    }

    /// Bytes that came after their batch was complete.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Takes bytes of a thread that begin at byte `at` of it, and gives complete batches to `complete`. `spare` is memory
    /// for the next batch.
    pub fn take(
        &mut self,
        thread: u16,
        at: u64,
        mut bytes: &[u8],
        spare: &mut impl FnMut() -> Vec<u8>,
        complete: &mut impl FnMut(Batch),
    ) {
        let (batch_bytes, segments) =
            (self.segment_bytes() * self.segments as usize, self.segments);
        let mut position = at;
        while !bytes.is_empty() {
            let number = position / batch_bytes as u64;
            let into = (position % batch_bytes as u64) as usize;
            let (here, rest) = bytes.split_at(bytes.len().min(batch_bytes - into));
            (bytes, position) = (rest, position.saturating_add(here.len() as u64));
            let known = self.open.get(&thread).map(|open| open.number);
            let next = known.or_else(|| self.next.get(&thread).copied());
            if next.is_some_and(|next| number < next) {
                self.late += here.len() as u64;
                continue;
            }
            if known != Some(number) {
                self.close(thread, complete);
                let mut bytes = spare();
                bytes.resize(batch_bytes, 0);
                let came = vec![0; segments as usize];
                self.open.insert(thread, Open { number, bytes, came });
            }
            let segment_bytes = self.segment_bytes();
            let open = self.open.get_mut(&thread).expect("made above");
            open.bytes[into..into + here.len()].copy_from_slice(here);
            let mut covered = into..into + here.len();
            while !covered.is_empty() {
                let segment = covered.start / segment_bytes;
                let end = covered.end.min((segment + 1) * segment_bytes);
                // Bytes behind a hole, and those that come twice, do not make a segment whole.
                if open.came[segment] == covered.start - segment * segment_bytes {
                    open.came[segment] += end - covered.start;
                }
                covered.start = end;
            }
            if into + here.len() == batch_bytes && open.came.iter().all(|it| *it == segment_bytes) {
                self.close(thread, complete);
            }
        }
    }

    /// Gives the open batch of a thread to `complete`.
    fn close(&mut self, thread: u16, complete: &mut impl FnMut(Batch)) {
        let Some(open) = self.open.remove(&thread) else { return };
        self.next.insert(thread, open.number + 1);
        let segment_bytes = self.segment_bytes();
        let whole = open.came.iter().enumerate();
        let whole = whole.filter(|(_, came)| **came == segment_bytes);
        let whole = whole.fold(0, |mask, (place, _)| mask | 1 << place);
        let first = open.number * self.segments;
        complete(Batch { thread, first, whole, bytes: open.bytes });
    }

    /// Gives all open batches to `complete`.
    pub fn finish(&mut self, complete: &mut impl FnMut(Batch)) {
        let threads: Vec<u16> = self.open.keys().copied().collect();
        threads.into_iter().for_each(|thread| self.close(thread, complete));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The whole segments of payloads of 8-bit samples: number, first byte.
    fn whole(segment: usize, payloads: &[(u64, Vec<u8>)]) -> Vec<(u64, Vec<u8>)> {
        let mut batcher = Batcher::new(segment, 8);
        let mut found = Vec::new();
        let mut complete = |batch: Batch| {
            found.extend(batch.segments(segment).map(|(number, bytes)| (number, bytes.to_vec())));
        };
        for (at, bytes) in payloads {
            batcher.take(3, *at, bytes, &mut Vec::new, &mut complete);
        }
        batcher.finish(&mut complete);
        found
    }

    proptest! {
        #[test]
        fn segments_are_whole_exactly_if_all_of_their_samples_came(
            segment in 1usize..40,
            payload in 1usize..60,
            there in prop::collection::vec(any::<bool>(), 1..200),
        ) {
            let all: Vec<u8> = (0..payload * there.len()).map(|n| (n * 7) as u8).collect();
            let payloads: Vec<(u64, Vec<u8>)> = all
                .chunks(payload)
                .enumerate()
                .filter(|(number, _)| there[*number])
                .map(|(number, bytes)| ((number * payload) as u64, bytes.to_vec()))
                .collect();
            let expected: Vec<(u64, Vec<u8>)> = all
                .chunks_exact(segment)
                .enumerate()
                .filter(|(number, _)| {
                    (number * segment..(number + 1) * segment).all(|sample| there[sample / payload])
                })
                .map(|(number, bytes)| (number as u64, bytes.to_vec()))
                .collect();
            prop_assert_eq!(whole(segment, &payloads), expected);
        }
    }

    #[test]
    fn samples_that_come_twice_do_not_stand_for_others() {
        let twice = [(0, vec![1; 8]), (0, vec![1; 8])];
        assert_eq!(whole(16, &twice), []);
        let behind = [(8, vec![1; 8]), (0, vec![1; 8])];
        assert_eq!(whole(16, &behind), []);
        let again = [(0, vec![1; 8]), (0, vec![1; 8]), (8, vec![1; 8])];
        assert_eq!(whole(16, &again), [(0, vec![1; 16])]);
    }

    #[test]
    fn samples_of_a_completed_batch_are_late() {
        let mut batcher = Batcher::new(16, 8);
        let batch = batcher.segment_bytes() as u64 * batcher.segments;
        batcher.take(0, batch, &[0; 16], &mut Vec::new, &mut |_| ());
        batcher.take(0, 0, &[0; 16], &mut Vec::new, &mut |_| ());
        assert_eq!(batcher.late(), 16);
        let (all, mut batches) = (vec![0; batch as usize], 0);
        for at in [batch * 2, batch * 2] {
            batcher.take(0, at, &all, &mut Vec::new, &mut |_| batches += 1);
        }
        assert_eq!((batches, batcher.late()), (2, 16 + batch), "the second time it is late");
    }
}
