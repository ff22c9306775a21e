//! Whose frames are these? What the first datagrams of a port say of its streams.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fullbore_core::count::{Count, Reading};
use fullbore_core::endpoint::{SourceFormat, Threads, UdpSource};
use fullbore_core::format::sequence::Field;
use fullbore_core::format::vdif::Header;
use fullbore_core::layout::{BLOCK_BYTES, Geometry};
use fullbore_core::manifest::Fill;

use super::arrived::Flows;

/// So many datagrams are looked at before anything is decided …
const ENOUGH: usize = 64;

/// … or as many as came within this time of the first.
const PATIENCE: Duration = Duration::from_millis(20);

/// The most that are held while nothing sensible has come.
const MOST: usize = 1024;

/// The first datagrams of a port.
#[derive(Default)]
pub struct Learning {
    held: Vec<Vec<u8>>,
    since: Option<Instant>,
    /// Datagrams given up because nothing sensible came for long.
    rubbish: u64,
}

/// What a port's frames are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of each frame as it is kept; 0: they vary.
    pub frame_bytes: u32,
    /// Stations and threads, in the order they came.
    pub flows: Vec<(u16, u16)>,
    /// Frames per second of each thread, if known.
    pub frames_per_second: Option<u64>,
}

/// What becomes of the port's frames.
pub enum Decision {
    /// One stream whose frames have places, from this index on.
    Placed(Count, i64),
    /// One stream whose frames lie as they come.
    Arrived(Flows, Count),
    /// A placed stream for each thread.
    Split,
}

impl Learning {
    /// Takes a datagram; `true` once enough has come to decide.
    pub fn hold(&mut self, datagram: &[u8]) {
        if self.held.len() == MOST {
            self.held.remove(0);
            self.rubbish += 1;
        }
        self.since.get_or_insert_with(Instant::now);
        self.held.push(datagram.to_vec());
    }

    /// Whether it is time to decide.
    pub fn is_time(&self) -> bool {
        self.held.len() >= ENOUGH || self.since.is_some_and(|since| since.elapsed() >= PATIENCE)
    }

    /// Bytes per second of one stream: by what was given or the frames tell, else by what came so far.
    pub fn rate(&self, source: &UdpSource, facts: &Facts) -> Option<u64> {
        let alone = matches!(source.threads, Threads::Split);
        let several = match &source.threads {
            Threads::Listed(list) => list.len(),
            _ => facts.flows.len().max(1),
        };
        let streams = if alone { 1 } else { several as u64 };
        let told = facts.frames_per_second.filter(|_| facts.frame_bytes > 0);
        if let Some(fps) = told {
            return Some(fps.saturating_mul(facts.frame_bytes.into()).saturating_mul(streams));
        }
        let millis = self.since?.elapsed().as_millis().max(1) as u64;
        let bytes: usize = self.held.iter().map(Vec::len).sum();
        let parts = if alone { several as u64 } else { 1 };
        Some(bytes as u64 * 1000 / millis / parts)
    }

    /// The first came long ago.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        self.since = self.since.and_then(|since| since.checked_sub(PATIENCE));
    }

    /// The datagrams held, and the number given up.
    pub fn take(&mut self) -> (Vec<Vec<u8>>, u64) {
        self.since = None;
        (std::mem::take(&mut self.held), std::mem::take(&mut self.rubbish))
    }

    /// What the datagrams held are; `None` while none of them is a frame.
    pub fn facts(&self, source: &UdpSource) -> Option<Facts> {
        let strip = stripped_bytes(source) as usize;
        let frames = self
            .held
            .iter()
            .filter(|d| from_length(source, d.len()))
            .filter_map(|d| d.get(strip..));
        match source.format {
            SourceFormat::Vdif => vdif_facts(source, frames),
            SourceFormat::Raw => raw_facts(source, frames),
        }
    }

    /// Index of the earliest of the datagrams held, and what counting them needs.
    pub fn decide(&self, source: &UdpSource, facts: &Facts) -> Decision {
        let strip = stripped_bytes(source) as usize;
        // A rate that headers tell is read by the count itself, which frames may teach better.
        let rate = source.frames_per_second;
        let bytes = facts.frame_bytes as usize;
        let in_order = source.fill != Fill::Omit && facts.frame_bytes > 0;
        let mut count = match (&source.sequence, &source.threads) {
            _ if source.packet_number => Count::by_packet_number(bytes, rate),
            (Some(field), _) => {
                let field = Field {
                    offset: field.offset,
                    width: field.width,
                    big_endian: field.big_endian,
                };
                Count::by_field(field, strip, bytes)
            }
            _ if source.format == SourceFormat::Raw => {
                return Decision::Arrived(Flows::None, Count::by_arrival(strip, bytes));
            }
            (None, Threads::Split) => return Decision::Split,
            (None, Threads::Listed(list)) if in_order => {
                Count::by_time(facts.flows[0].0, list.clone(), bytes, rate).behind(strip)
            }
            (None, Threads::Together) if in_order && facts.flows.len() == 1 => {
                let (station, thread) = facts.flows[0];
                Count::by_time(station, vec![thread], bytes, rate).behind(strip)
            }
            (None, _) => {
                let flows = Flows::Vdif { frames_per_second: source.frames_per_second };
                return Decision::Arrived(flows, Count::by_arrival(strip, bytes));
            }
        };
        if !in_order {
            return Decision::Arrived(Flows::One, count);
        }
        let first = self.earliest(&mut count, strip).unwrap_or(0);
        Decision::Placed(count, first)
    }

    /// The lowest index among the datagrams held: none of them was overtaken by the first.
    pub fn earliest(&self, count: &mut Count, strip: usize) -> Option<i64> {
        let mut lowest: Option<i64> = None;
        for datagram in &self.held {
            let (head, frame) = datagram.split_at(strip.min(datagram.len()));
            let Reading::Frame { invalid: false, .. } = count.read(head, frame, datagram.len())
            else {
                continue;
            };
            if lowest.is_none() {
                count.learn(head, frame);
            }
            let Reading::Frame { index, .. } = count.read(head, frame, datagram.len()) else {
                continue;
            };
            // One lying header among the first must not become the beginning of everything.
            let near = lowest.is_none_or(|low| (index - low).abs() < 4 * MOST as i64);
            if near {
                lowest = Some(lowest.map_or(index, |low| low.min(index)));
            }
        }
        lowest
    }
}

/// Bytes of each datagram that are received and not kept.
pub fn stripped_bytes(source: &UdpSource) -> u32 {
    if source.packet_number { 8 } else { source.strip }
}

/// The smallest block that a slow stream is given.
pub const LEAST_BLOCK_BYTES: u64 = 64 << 10;

/// How frames of so many bytes are cut into blocks, in a pool of so many bytes. Where the stream's bytes
/// per second are known, a block holds half a second at most: what is in blocks not full is not durable.
pub fn geometry(
    source: &UdpSource,
    frame_bytes: u32,
    pool_bytes: usize,
    chunk_bytes: u64,
    rate: Option<u64>,
) -> Result<Geometry, fullbore_core::layout::Error> {
    let wanted = wanted_block_bytes(source, pool_bytes, rate);
    if frame_bytes == 0 {
        Ok(Geometry::of_bytes(wanted, chunk_bytes))
    } else {
        Geometry::of_frames(frame_bytes, wanted, chunk_bytes)
    }
}

/// How large blocks are to be at this rate, where it is known: at least sixteen in the pool, three in the
/// window, a few with each writer, and some to ride on.
pub fn wanted_block_bytes(source: &UdpSource, pool_bytes: usize, rate: Option<u64>) -> u64 {
    let most = (pool_bytes as u64 / 16).max(4096);
    let usual = rate.map_or(BLOCK_BYTES, |rate| (rate / 2).clamp(LEAST_BLOCK_BYTES, BLOCK_BYTES));
    source.block.map_or(usual, |size| size.0).min(most)
}

fn from_length(source: &UdpSource, bytes: usize) -> bool {
    let strip = stripped_bytes(source) as usize;
    source.frame_bytes.is_none_or(|frame| bytes == frame as usize + strip)
}

/// The commonest length of frames that agree with their own header, and their threads.
fn vdif_facts<'a>(source: &UdpSource, frames: impl Iterator<Item = &'a [u8]>) -> Option<Facts> {
    let good: Vec<Header> = frames
        .filter_map(|frame| fullbore_core::format::vdif::check(frame, frame.len()).ok())
        .collect();
    let frame_bytes = commonest(good.iter().map(Header::frame_bytes))?;
    let mut flows = Vec::new();
    let mut rate = source.frames_per_second;
    for header in good.iter().filter(|header| header.frame_bytes() == frame_bytes) {
        let flow = (header.station(), header.thread());
        if !flows.contains(&flow) {
            flows.push(flow);
        }
        rate = rate.or_else(|| header.frames_per_second());
    }
    Some(Facts { frame_bytes, flows, frames_per_second: rate })
}

fn raw_facts<'a>(source: &UdpSource, frames: impl Iterator<Item = &'a [u8]>) -> Option<Facts> {
    let lengths: Vec<u32> = frames.map(|frame| frame.len() as u32).collect();
    let common = commonest(lengths.iter().copied())?;
    let alike = lengths.iter().filter(|&&length| length == common).count();
    // A few odd ones among many alike are rubbish; more than that, and lengths vary.
    let varying = source.varying || (source.frame_bytes.is_none() && alike * 4 < lengths.len() * 3);
    let frame_bytes = if varying { 0 } else { source.frame_bytes.unwrap_or(common) };
    Some(Facts { frame_bytes, flows: Vec::new(), frames_per_second: source.frames_per_second })
}

fn commonest(values: impl Iterator<Item = u32>) -> Option<u32> {
    let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use fullbore_core::layout::CHUNK_BYTES;

    use super::*;

    #[test]
    fn a_slow_stream_is_cut_into_blocks_of_half_a_second() {
        let source = |text: &str| UdpSource::parse(text).unwrap().remove(0);
        let block = |text: &str, frame, rate| {
            let cut = geometry(&source(text), frame, 2 << 30, CHUNK_BYTES, rate).unwrap();
            (cut.block_bytes, u64::from(cut.block_bytes) % 4096)
        };
        assert_eq!(block("udp://:5000", 1024, Some(125_000)), (65_536, 0));
        assert_eq!(block("udp://:5000", 1024, Some(1_000_000)), (499_712, 0));
        assert_eq!(block("udp://:5000", 8032, Some(125_000)), (1_028_096, 0), "no smaller one");
        assert_eq!(block("udp://:5000", 8032, Some(256_000_000)), (4_112_384, 0));
        assert_eq!(block("udp://:5000", 8032, None), (4_112_384, 0));
        assert_eq!(block("udp://:5000?block=8MiB", 1024, Some(125_000)), (8 << 20, 0));
    }
}
