//! The samples of VITA-49 packets that stand back to back in blocks, in the order of their index.
//!
//! ```text
//! block k     …│ packet │ packet │ pack         a packet may begin in one block and end in the next
//! block k + 1  et │ packet │ …
//!
//! arrived      0 1 3 2 4 7 8 …                  3 is held until 2 has come
//! passed on    0 1 2 3 4 │absent│ 7 8 …         7 is held until 64 packets are, or the stream ends
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use fullbore_formats::samples::SampleLayout;
use fullbore_formats::vita49::listing::ListedChange;
use fullbore_formats::vita49::samples::{PacketPlaces, PacketSamples, SamplesError, layout};
use fullbore_formats::vita49::{PacketError, Prologue};
use fullbore_time::Tai;

use crate::payload::Part;

/// The most packets that are held behind samples that have not come.
const MOST_HELD: usize = 64;

/// The packets of a stream.
pub struct PacketPayloads {
    /// The stream id.
    stream: Option<u32>,
    places: PacketPlaces,
    /// The start of a packet that ends in the next block.
    rest: Vec<u8>,
    /// The number of the packet that begins first in the next block, if no block is lost.
    expected: Option<i64>,
    /// The sample behind those that were passed on.
    next: u64,
    /// The samples of packets that came before others, by their first sample.
    held: BTreeMap<u64, Vec<u8>>,
    /// The first packet of each block, and its first sample.
    blocks: Vec<(i64, u64)>,
    /// Samples of the latest packet, and the first one.
    length: u64,
    latest: Option<u64>,
    /// Packets whose samples came after those behind them were passed on.
    late: u64,
}

impl PacketPayloads {
    /// Finds out what the samples are, from the endpoint or context packets, and from the first block.
    pub fn of(
        described: Option<&SampleLayout>,
        context: &[ListedChange],
        block: &[u8],
    ) -> Result<Self, SamplesError> {
        let begin = start_of_chain(block, |_| true).unwrap_or(block.len());
        let first = Prologue::read(&block[begin..]).map_err(|_| SamplesError::NoData)?;
        if !first.kind.is_data() {
            return Err(SamplesError::NoData);
        }
        let layout = layout(first.stream, described, context)?;
        let length = block.len().min(begin + 4 * usize::from(first.words));
        Ok(Self {
            stream: first.stream,
            places: PacketPlaces::new(layout, &block[begin..length])?,
            rest: Vec::new(),
            expected: None,
            next: 0,
            held: BTreeMap::new(),
            blocks: Vec::new(),
            length: 0,
            latest: None,
            late: 0,
        })
    }

    /// The samples.
    pub fn layout(&self) -> &SampleLayout {
        self.places.layout()
    }

    /// The stream id, if packets have one.
    pub fn stream(&self) -> Option<u32> {
        self.stream
    }

    /// The time of the first sample, if packets tell it.
    pub fn start(&self) -> Option<Tai> {
        self.places.start()
    }

    /// Packets whose samples are left out, because they came too late.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// The number of the first packet of the next block, if no block is lost before it.
    pub fn expected(&self) -> Option<i64> {
        self.expected
    }

    /// Forgets which sample each block has begun with, for a reader that never asks [`sample_at`](Self::sample_at).
    pub fn forget_blocks(&mut self) {
        self.blocks.clear();
    }

    /// Lists the parts of a block, whose first packet has this number.
    pub fn read(
        &mut self,
        first: i64,
        block: &[u8],
        parts: &mut Vec<Part>,
    ) -> Result<(), SamplesError> {
        let mut at = match self.expected {
            Some(expected) if expected == first => self.complete(block, parts)?,
            None if self.may_begin(block) => 0,
            _ => {
                // The start of the block belongs to a packet of a block that is not there.
                self.rest.clear();
                self.find(block, 0)
            }
        };
        self.latest = None;
        let mut begun = 0;
        while at < block.len() {
            let here = &block[at..];
            if !self.may_begin(here) {
                at = self.find(block, at + 4);
                continue;
            }
            begun += 1;
            let Some(length) = length_of(here).filter(|length| *length <= here.len()) else {
                // Its end is in the next block.
                self.rest.extend_from_slice(here);
                break;
            };
            self.take(&here[..length], Some(at), parts)?;
            if begun == 1 {
                self.blocks.extend(self.latest.take().map(|sample| (first, sample)));
            }
            at += length;
        }
        self.expected = Some(first.saturating_add(begun));
        Ok(())
    }

    /// True if bytes begin with a packet of the stream, or with the start of a header.
    fn may_begin(&self, bytes: &[u8]) -> bool {
        match Prologue::read(bytes) {
            Ok(_) => self.places.owns(bytes),
            Err(error) => matches!(error, PacketError::Short { .. }),
        }
    }

    /// Completes the packet that began in the block before. Returns the place behind it.
    fn complete(&mut self, block: &[u8], parts: &mut Vec<Part>) -> Result<usize, SamplesError> {
        let mut at = 0;
        while !self.rest.is_empty() {
            let wanted = length_of(&self.rest).unwrap_or(4).max(4);
            let missing = wanted.saturating_sub(self.rest.len());
            if missing == 0 {
                let packet = std::mem::take(&mut self.rest);
                self.take(&packet, None, parts)?;
                break;
            }
            let more = missing.min(block.len() - at);
            if more == 0 {
                break;
            }
            self.rest.extend_from_slice(&block[at..at + more]);
            at += more;
        }
        Ok(at)
    }

    /// The place of the next packet of the stream, from this one on.
    fn find(&self, block: &[u8], from: usize) -> usize {
        let rest = block.get(from..).unwrap_or_default();
        match start_of_chain(rest, |packet| self.places.owns(packet)) {
            Some(at) => from + at,
            None => block.len(),
        }
    }

    /// Takes a whole packet, which begins at this place of the block.
    fn take(
        &mut self,
        packet: &[u8],
        at: Option<usize>,
        parts: &mut Vec<Part>,
    ) -> Result<(), SamplesError> {
        let Some(placed) = self.places.place(packet)? else { return Ok(()) };
        let PacketSamples { sample, samples, payload } = placed;
        self.length = samples;
        self.latest = Some(sample);
        if sample < self.next {
            self.late += 1;
        } else if sample == self.next {
            parts.push(match at {
                Some(at) => Part::Here(at + payload.start..at + payload.end),
                None => Part::Carried(packet[payload].to_vec()),
            });
            self.next = sample + samples;
            self.release(parts);
        } else {
            self.held.insert(sample, packet[payload].to_vec());
            if self.held.len() > MOST_HELD {
                self.pass_over(parts);
            }
        }
        Ok(())
    }

    /// Passes on the held samples that follow.
    fn release(&mut self, parts: &mut Vec<Part>) {
        while let Some(held) = self.held.first_entry().filter(|held| *held.key() <= self.next) {
            let (sample, bytes) = held.remove_entry();
            if sample < self.next {
                self.late += 1;
                continue;
            }
            self.next += self.layout().samples_in(bytes.len() as u64).unwrap_or(0);
            parts.push(Part::Carried(bytes));
        }
    }

    /// Gives the samples before the held ones up.
    fn pass_over(&mut self, parts: &mut Vec<Part>) {
        let Some((&sample, _)) = self.held.first_key_value() else { return };
        parts.push(Part::Absent(sample - self.next));
        self.next = sample;
        self.release(parts);
    }

    /// Passes on all held samples: the stream has ended.
    pub fn end(&mut self, parts: &mut Vec<Part>) {
        while !self.held.is_empty() {
            self.pass_over(parts);
        }
    }

    /// The sample at a packet, by its number in the order of arrival. It is exact if no packet between it and the start of
    /// its block is lost or of another length.
    pub fn sample_at(&self, number: i64) -> u64 {
        let place = self.blocks.partition_point(|(first, _)| *first <= number);
        let Some((first, sample)) = place.checked_sub(1).map(|at| self.blocks[at]) else {
            return 0;
        };
        let packets = number.saturating_sub(first).max(0).unsigned_abs();
        sample.saturating_add(packets.saturating_mul(self.length)).min(self.next)
    }
}

/// The length that the header of a packet states, if it is whole.
fn length_of(packet: &[u8]) -> Option<usize> {
    let word = packet.first_chunk::<4>()?;
    Some(4 * usize::from(u16::from_be_bytes([word[2], word[3]]))).filter(|length| *length > 0)
}

/// The place from which packets follow one another to the end of the bytes. The last one may be longer than they are.
fn start_of_chain(bytes: &[u8], is_packet: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let reaches_end = |start: &usize| {
        let mut at = *start;
        while at < bytes.len() {
            let here: Range<usize> = match length_of(&bytes[at..]) {
                Some(length) => at..at + length,
                None => return at != *start && bytes.len() - at < 4,
            };
            if here.end > bytes.len() {
                return at != *start;
            }
            let packet = &bytes[here.clone()];
            if Prologue::read(packet).is_err() || !is_packet(packet) {
                return false;
            }
            at = here.end;
        }
        true
    };
    (0..bytes.len()).step_by(4).find(reaches_end)
}

#[cfg(test)]
mod tests {
    use fullbore_formats::vita49::Kind;
    use fullbore_formats::vita49::write::{self, Stamp, difi_prologue};

    use super::*;

    const SAMPLES: u64 = 5;

    /// A packet of complex samples of 8 bits, whose values are the low bytes of the sample's number.
    fn packet(number: u64) -> Vec<u8> {
        let stamp = Stamp { seconds: 1_700_000_000, picoseconds: number * 5_000_000 };
        let mut start = difi_prologue(Kind::Data, 7, stamp, (number % 16) as u8, 3);
        start.class =
            start.class.map(|class| fullbore_formats::vita49::ClassId { pad_bits: 16, ..class });
        let mut packet = vec![0xEE; 40];
        write::prologue(&start, &mut packet).unwrap();
        for sample in 0..SAMPLES {
            let value = value(number * SAMPLES + sample);
            packet[28 + 2 * sample as usize..][..2].copy_from_slice(&value);
        }
        packet
    }

    fn value(sample: u64) -> [u8; 2] {
        [sample as u8, (sample >> 8) as u8]
    }

    fn payloads(first: &[u8]) -> PacketPayloads {
        let layout = SampleLayout::new("ci8".parse().unwrap(), 1);
        PacketPayloads::of(Some(&layout), &[], first).unwrap()
    }

    /// The samples of packets in blocks of this size: those that are there by their value, the others as `None`. `lost`
    /// is the number of a block that is not there.
    fn read(numbers: &[u64], size: usize, lost: Option<usize>) -> (Vec<Option<[u8; 2]>>, u64) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| packet(*number)).collect();
        let mut payloads = payloads(&bytes[..size.max(80).min(bytes.len())]);
        let mut samples = Vec::new();
        for (number, block) in bytes.chunks(size).enumerate() {
            let first = (number * size).div_ceil(40) as i64;
            let mut parts = Vec::new();
            if lost != Some(number) {
                payloads.read(first, block, &mut parts).unwrap();
            }
            list(&mut samples, block, parts);
        }
        let mut parts = Vec::new();
        payloads.end(&mut parts);
        list(&mut samples, &[], parts);
        (samples, payloads.late())
    }

    fn list(samples: &mut Vec<Option<[u8; 2]>>, block: &[u8], parts: Vec<Part>) {
        for part in parts {
            let bytes = match part {
                Part::Here(range) => block[range].to_vec(),
                Part::Carried(bytes) => bytes,
                Part::Absent(count) => {
                    samples.extend(vec![None; count as usize]);
                    continue;
                }
            };
            samples.extend(bytes.as_chunks().0.iter().map(|sample| Some(*sample)));
        }
    }

    fn expected(numbers: &[u64]) -> Vec<Option<[u8; 2]>> {
        let last = numbers.iter().max().unwrap();
        let is_there = |sample: u64| numbers.contains(&(sample / SAMPLES));
        (0..(last + 1) * SAMPLES).map(|n| is_there(n).then(|| value(n))).collect()
    }

    #[test]
    fn samples_are_the_same_at_every_split_of_blocks() {
        let mut numbers: Vec<u64> = (0..8).chain([9, 8, 10, 11, 14, 13]).chain(30..34).collect();
        for size in (4..=numbers.len() * 40).step_by(4) {
            assert_eq!(read(&numbers, size, None), (expected(&numbers), 0), "blocks of {size}");
        }
        // More packets behind a gap than are held.
        numbers.extend(40..140);
        assert_eq!(read(&numbers, 404, None), (expected(&numbers), 0));
    }

    #[test]
    fn a_packet_that_comes_after_all_that_are_held_is_left_out_and_counted() {
        let numbers: Vec<u64> = (0..4).chain(5..4 + 68).chain([4]).collect();
        let without: Vec<u64> = numbers[..numbers.len() - 1].to_vec();
        assert_eq!(read(&numbers, 400, None), (expected(&without), 1));
    }

    #[test]
    fn packets_behind_a_lost_block_are_found_again() {
        let numbers: Vec<u64> = (0..40).collect();
        for size in (80..400).step_by(4) {
            let from = size as u64;
            // Packets that begin or end in the second block are lost.
            let cut = |number: &u64| (number + 1) * 40 > from && number * 40 < 2 * from;
            let there: Vec<u64> = numbers.iter().copied().filter(|number| !cut(number)).collect();
            assert_eq!(read(&numbers, size, Some(1)), (expected(&there), 0), "blocks of {size}");
        }
    }

    #[test]
    fn bytes_that_are_no_packets_are_passed_over() {
        let mut block: Vec<u8> = (0..30).flat_map(packet).collect();
        block[6 * 40..8 * 40].fill(0xFF);
        let mut payloads = payloads(&block);
        let (mut samples, mut parts) = (Vec::new(), Vec::new());
        payloads.read(0, &block, &mut parts).unwrap();
        payloads.end(&mut parts);
        list(&mut samples, &block, parts);
        let there: Vec<u64> = (0..6).chain(8..30).collect();
        assert_eq!(samples, expected(&there));
    }

    #[test]
    fn the_sample_at_a_packet_counts_lost_ones_before_its_block() {
        let numbers: Vec<u64> = (0..10).chain(20..60).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| packet(*number)).collect();
        let mut payloads = payloads(&bytes);
        for (number, block) in bytes.chunks(400).enumerate() {
            payloads.read(number as i64 * 10, block, &mut Vec::new()).unwrap();
        }
        payloads.end(&mut Vec::new());
        assert_eq!(payloads.sample_at(5), 25);
        assert_eq!(payloads.sample_at(49), 59 * SAMPLES);
    }
}
