//! Detection of format, streams and rate from the first datagrams of a port.
//!
//! One datagram is not enough: it may be there by mistake, and the port would take its format for good. So the detector
//! holds datagrams until several agree on their length and station. Then the port sorts all of them in receive order.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fullbore_core::endpoint::{PACKET_NUMBER_BYTES, SourceFormat, Threads, UdpSource};
use fullbore_core::frame_index::{FrameIndexer, IndexResult};
use fullbore_core::layout::{BLOCK_BYTES, Geometry};
use fullbore_core::manifest::Fill;
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::sequence::Field;
use fullbore_formats::vdif::Header;
use fullbore_time::Tai;

use super::sequential::SubStreams;
use super::unclaimed::{Key, excludes};

/// The detector decides after this many datagrams …
const ENOUGH: usize = 64;

/// … or after the datagrams that arrive within this time of the first agreeing one …
const PATIENCE: Duration = Duration::from_millis(20);

/// … but at least this many must agree, as long as more may arrive.
const AGREE: usize = 3;

/// The most datagrams that are held without agreement.
const MOST: usize = 1024;

/// The largest distance between first frames.
const NEAR: u64 = 4 * MOST as u64;

/// The number of datagrams without a counting packet number after which the stream is assumed to have none.
const TELLING: usize = 8;

/// The rate is measured over this last period, if enough datagrams arrived in it: earlier ones may be there by mistake.
const RECENT: Duration = Duration::from_secs(1);

/// The detector of a port. It holds the first datagrams until enough of them agree.
#[derive(Default)]
pub struct Detector {
    held: Vec<Held>,
}

struct Held {
    at: Instant,
    datagram: Vec<u8>,
}

impl Held {
    /// Splits a datagram into the stripped bytes and the frame.
    fn split(&self, strip: usize) -> (&[u8], &[u8]) {
        self.datagram.split_at(strip.min(self.datagram.len()))
    }
}

/// The datagrams that may still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upcoming {
    /// More datagrams may arrive.
    More,
    /// More arrive in the next scan: the present agreement belongs to this one.
    NextScan,
    /// No more datagrams arrive: a single frame is a stream.
    Nothing,
}

/// The detected format of a port's frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedFormat {
    /// Bytes of each frame as it is stored; 0 if they vary.
    pub frame_bytes: u32,
    /// Stations and threads in receive order; those of the station that sends most come first.
    pub flows: Vec<(u16, u16)>,
    /// Frames per second of each thread, if known.
    pub frames_per_second: Option<u64>,
    /// The field of a packet number in the bytes before each frame, if one counts the frames.
    pub packet_number: Option<Field>,
}

/// A detected format, and the number of held datagrams that agree with it.
struct Agreed {
    facts: DetectedFormat,
    count: usize,
    /// The arrival time of the first of them.
    since: Instant,
}

/// The contents of a datagram that is not exactly one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramContents {
    /// A frame behind a packet number.
    BehindNumber,
    /// A frame without the expected bytes before it.
    Plain,
    /// Several frames of one length, back to back.
    Several { frames: usize, frame_bytes: usize },
}

impl DatagramContents {
    /// Examines a datagram at a port for frames.
    pub fn of(source: &UdpSource, datagram: &[u8]) -> Option<Self> {
        Self::beside(any_day(source)?, datagram, stripped_bytes(source) as usize)
    }

    /// Examines a datagram that holds no whole frame behind `strip` bytes.
    pub fn beside(codec: FrameCodec, datagram: &[u8], strip: usize) -> Option<Self> {
        if strip == 0 && Key::of(codec, datagram, PACKET_NUMBER_BYTES as usize).is_some() {
            return Some(Self::BehindNumber);
        }
        if strip > 0 && Key::of(codec, datagram, 0).is_some() {
            return Some(Self::Plain);
        }
        let behind = datagram.get(strip..)?;
        let frame_bytes = codec.frame_bytes(&codec.read(behind)?) as usize;
        let mut frames = behind.chunks(frame_bytes.max(1));
        let several =
            frames.len() > 1 && frames.all(|frame| codec.check(frame, frame_bytes).is_ok());
        several.then(|| Self::Several { frames: behind.len() / frame_bytes, frame_bytes })
    }

    /// Returns the number of its frames that the user's filter does not exclude.
    pub fn wanted(self, source: &UdpSource, datagram: &[u8]) -> usize {
        let Some(codec) = any_day(source) else { return 0 };
        let key = |frame: &[u8], strip| Key::of(codec, frame, strip).map(|(key, _)| key);
        let keys: Vec<Key> = match self {
            Self::BehindNumber => key(datagram, PACKET_NUMBER_BYTES as usize).into_iter().collect(),
            Self::Plain => key(datagram, 0).into_iter().collect(),
            Self::Several { frame_bytes, .. } => {
                let behind = datagram.get(stripped_bytes(source) as usize..).unwrap_or_default();
                behind.chunks(frame_bytes).filter_map(|frame| key(frame, 0)).collect()
            }
        };
        keys.into_iter().filter(|key| !excludes(source, *key)).count()
    }
}

/// Counts of datagrams that were given up before a stream was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sifted {
    /// Datagrams that were no frames.
    pub foreign: u64,
    /// Length of the last of these.
    pub foreign_bytes: usize,
    /// The contents of the last of these, if recognised.
    pub holds: Option<DatagramContents>,
    /// The number of these that hold whole frames, and the number of those frames.
    pub within: (u64, u64),
    /// Frames that did not agree with one another.
    pub unrecorded: u64,
    /// Frames that the user's filter excludes.
    pub excluded: u64,
}

impl Sifted {
    fn take_foreign(&mut self, source: &UdpSource, datagram: &[u8]) {
        self.foreign += 1;
        self.foreign_bytes = datagram.len();
        if let Some(holds) = DatagramContents::of(source, datagram) {
            self.holds = Some(holds);
            self.within.0 += 1;
            self.within.1 += holds.wanted(source, datagram) as u64;
        }
    }
}

/// The decision about the port's frames.
pub enum Decision {
    /// One indexed stream, from this index on.
    Indexed(FrameIndexer, i64),
    /// One sequential stream.
    Unindexed(SubStreams, FrameIndexer),
    /// An indexed stream for each thread.
    Split,
}

impl Detector {
    /// Holds a datagram.
    pub fn hold(&mut self, datagram: &[u8]) {
        self.held.push(Held { at: Instant::now(), datagram: datagram.to_vec() });
    }

    /// True if so many are held that a decision is due.
    pub fn is_full(&self) -> bool {
        self.held.len() >= ENOUGH
    }

    /// True if it is time to check for agreement.
    pub fn is_time(&self) -> bool {
        self.is_full() || self.held.first().is_some_and(|first| first.at.elapsed() >= PATIENCE)
    }

    /// Returns the bytes per second of one stream: from the endpoint or the frames, else from the recent datagrams.
    pub fn rate(&self, source: &UdpSource, facts: &DetectedFormat) -> Option<u64> {
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
        let now = Instant::now();
        let old = self.held.partition_point(|held| now - held.at > RECENT);
        let recent = self.held.get(old..).filter(|recent| recent.len() >= AGREE);
        let counted = recent.unwrap_or(&self.held);
        let millis = (now - counted.first()?.at).as_millis().max(1) as u64;
        let bytes: usize = counted.iter().map(|held| held.datagram.len()).sum();
        let parts = if alone { several as u64 } else { 1 };
        Some(bytes as u64 * 1000 / millis / parts)
    }

    /// Acts as if the first datagram had arrived long ago.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        for held in &mut self.held {
            held.at = held.at.checked_sub(PATIENCE).unwrap_or(held.at);
        }
    }

    /// Returns the held datagrams in receive order.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.held.iter().map(|held| held.datagram.as_slice())
    }

    /// Gives up all held datagrams. Frames among them count as unrecorded.
    pub fn give_up(&mut self, source: &UdpSource) -> Sifted {
        let mut sifted = self.sift(source);
        sifted.unrecorded += std::mem::take(&mut self.held).len() as u64;
        sifted
    }

    /// True if the sender marked every held frame invalid.
    pub fn all_invalid(&self, source: &UdpSource) -> bool {
        let strip = stripped_bytes(source) as usize;
        let Some(codec) = any_day(source) else { return false };
        let mut headers = self.held.iter().map(|held| Key::of(codec, &held.datagram, strip));
        headers.all(|key| key.is_some_and(|(_, header)| header.invalid()))
    }

    /// Holds all of these datagrams.
    pub fn of_all(datagrams: &[Vec<u8>]) -> Self {
        let mut all = Self::default();
        datagrams.iter().for_each(|datagram| all.hold(datagram));
        all
    }

    /// Gives up datagrams that are no frames, and the oldest of too many frames that do not agree.
    pub fn sift(&mut self, source: &UdpSource) -> Sifted {
        let mut sifted = Sifted::default();
        let strip = stripped_bytes(source) as usize;
        self.held.retain(|held| {
            let whole = match any_day(source) {
                Some(codec) => match Key::of(codec, &held.datagram, strip) {
                    Some((key, _)) if excludes(source, key) => {
                        sifted.excluded += 1;
                        return false;
                    }
                    key => key.is_some(),
                },
                None if excludes_length(source, held.split(strip).1) => {
                    sifted.excluded += 1;
                    return false;
                }
                None => frame_of(source, &held.datagram).is_some(),
            };
            if !whole {
                sifted.take_foreign(source, &held.datagram);
            }
            whole
        });
        let surplus = self.held.len().saturating_sub(MOST);
        self.held.drain(..surplus);
        sifted.unrecorded = surplus as u64;
        sifted
    }

    /// Finds the packet number in the 8 bytes before each frame: the field where most numbers are near the previous one
    /// and the bytes beside it are constant. Returns `None` if there is no such field.
    pub fn packet_number(&self) -> Option<Field> {
        let heads: Vec<&[u8]> =
            self.held.iter().filter_map(|held| held.datagram.get(..Field::PSN.end())).collect();
        let most = |steps: usize| 2 * steps >= heads.len();
        let goes_on = |field: &Field| {
            let beside = |head: &[u8]| [&head[..field.offset], &head[field.end()..]].concat();
            let steps = heads.windows(2).map(|pair| {
                let step = field.read(pair[0])?.abs_diff(field.read(pair[1])?);
                (beside(pair[0]) == beside(pair[1])).then_some(step)
            });
            let near: Vec<u64> = steps.flatten().filter(|step| *step < NEAR).collect();
            let moving = near.iter().filter(|step| **step > 0).count();
            // A constant number counts nothing.
            most(near.len()) && most(moving)
        };
        let found = Field::PACKET_NUMBERS.into_iter().find(goes_on);
        // A few datagrams are not enough evidence, so the expected field is assumed.
        found.or_else(|| (heads.len() < TELLING).then_some(Field::PSN))
    }

    /// Returns the format of the held datagrams; `None` while too few of them agree, or more should arrive first.
    pub fn facts(&self, source: &UdpSource, then: Upcoming) -> Option<DetectedFormat> {
        let frames: Vec<(Instant, &[u8])> = self
            .held
            .iter()
            .filter_map(|held| Some((held.at, frame_of(source, &held.datagram)?)))
            .collect();
        let Agreed { facts, count, since } = match any_day(source) {
            Some(codec) => framed_facts(codec, source, &frames)?,
            None => raw_facts(source, &frames)?,
        };
        // If the length is given, or may vary, there is nothing to agree on.
        let given = source.varying || source.frame_bytes.is_some();
        let agreed = count >= AGREE || (given && !matches!(source.format, SourceFormat::Frames(_)));
        let decided = match then {
            Upcoming::More => agreed && (self.is_full() || since.elapsed() >= PATIENCE),
            Upcoming::NextScan => agreed,
            Upcoming::Nothing => true,
        };
        let packet_number = source.packet_number.then(|| self.packet_number()).flatten();
        decided.then_some(DetectedFormat { packet_number, ..facts })
    }

    /// Returns the earliest index among the held datagrams, and the indexer for the stream. Their time is near `now`.
    pub fn decide(&self, source: &UdpSource, facts: &DetectedFormat, now: Tai) -> Decision {
        if matches!(source.format, SourceFormat::Packets { .. }) {
            return Decision::Split;
        }
        let strip = stripped_bytes(source) as usize;
        // The indexer reads a rate from headers itself, and frames may correct it.
        let rate = source.frames_per_second;
        let bytes = facts.frame_bytes as usize;
        let in_order = source.fill != Fill::Omit && facts.frame_bytes > 0;
        let by_time = |codec, station, threads| {
            let count = FrameIndexer::by_time(codec, station, threads, bytes, rate);
            count.behind(strip).beside(facts.packet_number)
        };
        let mut count = match (codec(source, now), source.sequence, &source.threads) {
            (None, Some(field), _) => FrameIndexer::by_field(field, strip, bytes),
            (None, None, _) => {
                return Decision::Unindexed(
                    SubStreams::None,
                    FrameIndexer::by_arrival(strip, bytes),
                );
            }
            (Some(_), _, Threads::Split) => return Decision::Split,
            (Some(codec), _, Threads::Listed(list)) if in_order => {
                by_time(codec, facts.flows[0].0, list.clone())
            }
            (Some(codec), _, Threads::Together) if in_order && facts.flows.len() == 1 => {
                let (station, thread) = facts.flows[0];
                by_time(codec, station, vec![thread])
            }
            (Some(codec), ..) => {
                let flows = SubStreams::Threads {
                    codec,
                    frames_per_second: source.frames_per_second,
                    packet_number: facts.packet_number,
                };
                return Decision::Unindexed(flows, FrameIndexer::by_arrival(strip, bytes));
            }
        };
        if !in_order {
            return Decision::Unindexed(SubStreams::One, count);
        }
        let first = self.earliest(&mut count, strip).unwrap_or(0);
        Decision::Indexed(count, first)
    }

    /// Returns the lowest index among held frames that are near one another, so that no
    /// overtaken frame is before the start. A single wrong header, even the first, must not define the start.
    pub fn earliest(&self, count: &mut FrameIndexer, strip: usize) -> Option<i64> {
        let read = |count: &FrameIndexer, held: &Held| {
            let (head, frame) = held.split(strip);
            match count.read(head, frame, held.datagram.len()) {
                IndexResult::Frame { index, invalid } => Some((index, invalid)),
                IndexResult::Early { index } => Some((index, false)),
                _ => None,
            }
        };
        let indices = |count: &FrameIndexer, of: bool| -> Vec<i64> {
            let all = self.held.iter().filter_map(|held| read(count, held));
            all.filter(|(_, invalid)| *invalid == of).map(|(index, _)| index).collect()
        };
        let good = self.held.iter().filter(|held| matches!(read(count, held), Some((_, false))));
        let mut best: Option<(usize, i64, FrameIndexer)> = None;
        for held in good {
            let mut learnt = count.clone();
            let (head, frame) = held.split(strip);
            learnt.learn(head, frame);
            let Some((own, _)) = read(&learnt, held) else { continue };
            let others = indices(&learnt, false);
            let near = || others.iter().copied().filter(|index| index.abs_diff(own) < NEAR);
            let (agree, lowest) = (near().count(), near().min().unwrap_or(own));
            if best.as_ref().is_none_or(|(most, ..)| agree > *most) {
                best = Some((agree, lowest, learnt));
            }
            if agree >= AGREE {
                break;
            }
        }
        // The time of frames marked invalid may be wrong: they count if they fit, or if there are no others.
        let Some((_, lowest, learnt)) = best else { return indices(count, true).into_iter().min() };
        let before = indices(&learnt, true).into_iter().filter(|&index| index < lowest);
        let before = before.filter(|index| lowest.abs_diff(*index) < ENOUGH as u64).min();
        *count = learnt;
        Some(before.unwrap_or(lowest))
    }
}

/// Returns the codec for frames of a source near an instant, if they carry their own time.
pub fn codec(source: &UdpSource, near: Tai) -> Option<FrameCodec> {
    match source.format {
        SourceFormat::Frames(kind) => Some(FrameCodec::new(kind, near)),
        SourceFormat::Packets { .. } | SourceFormat::Raw => None,
    }
}

/// The same where only station, thread and length are read, and the day does not matter.
pub fn any_day(source: &UdpSource) -> Option<FrameCodec> {
    match source.format {
        SourceFormat::Frames(kind) => Some(FrameCodec::any_day(kind)),
        SourceFormat::Packets { .. } | SourceFormat::Raw => None,
    }
}

/// Bytes of each datagram that are received and not stored.
pub fn stripped_bytes(source: &UdpSource) -> u32 {
    if source.packet_number { PACKET_NUMBER_BYTES } else { source.strip }
}

/// The smallest block of a slow stream.
pub const LEAST_BLOCK_BYTES: u64 = 64 << 10;

/// Returns the division of frames of this length into blocks, in a pool of this size. If the stream's rate is known, a
/// block holds at most half a second: data in partly filled blocks is not durable.
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

/// Returns the block size for this rate, if known: at least sixteen blocks in the pool, for three in the window, a few
/// with each writer, and a reserve.
pub fn wanted_block_bytes(source: &UdpSource, pool_bytes: usize, rate: Option<u64>) -> u64 {
    let most = (pool_bytes as u64 / 16).max(4096);
    let usual = rate.map_or(BLOCK_BYTES, |rate| (rate / 2).clamp(LEAST_BLOCK_BYTES, BLOCK_BYTES));
    source.block.map_or(usual, |size| size.0).min(most)
}

/// True if the user's filter excludes an unnumbered datagram by its length.
fn excludes_length(source: &UdpSource, frame: &[u8]) -> bool {
    let other = |bytes| frame.len() != bytes as usize;
    source.sequence.is_none() && !frame.is_empty() && source.frame_bytes.is_some_and(other)
}

/// Returns the frame in a datagram, if it has one of the given length.
fn frame_of<'a>(source: &UdpSource, datagram: &'a [u8]) -> Option<&'a [u8]> {
    let frame = datagram.get(stripped_bytes(source) as usize..)?;
    let fits = source.frame_bytes.is_none_or(|bytes| frame.len() == bytes as usize);
    let whole = match source.format {
        SourceFormat::Packets { format, .. } => format.stream_of(frame).is_some(),
        SourceFormat::Frames(_) | SourceFormat::Raw => true,
    };
    (fits && whole && !frame.is_empty()).then_some(frame)
}

/// Returns the most common length and station of frames that agree with their own header, and all threads of that
/// length. Frames that the user's filter excludes do not count. Nor do frames marked invalid if each thread is a
/// stream: they open none.
fn framed_facts(
    codec: FrameCodec,
    source: &UdpSource,
    frames: &[(Instant, &[u8])],
) -> Option<Agreed> {
    let good: Vec<(Instant, Header)> = frames
        .iter()
        .filter_map(|(at, frame)| {
            let (key, header) = Key::of(codec, frame, 0)?;
            let opens = source.threads != Threads::Split || !header.invalid();
            (opens && !excludes(source, key)).then_some((*at, header))
        })
        .collect();
    let kind = |header: &Header| (codec.frame_bytes(header), header.station());
    let ((frame_bytes, station), count) = commonest(good.iter().map(|(_, it)| kind(it)))?;
    let mut agreeing = good.iter().filter(|(_, it)| kind(it) == (frame_bytes, station));
    let since = agreeing.next()?.0;
    let mut flows: Vec<(u16, u16)> = Vec::new();
    let mut rate = source.frames_per_second;
    for (_, header) in good.iter().filter(|(_, it)| codec.frame_bytes(it) == frame_bytes) {
        let flow = (header.station(), header.thread());
        if !flows.contains(&flow) {
            flows.push(flow);
        }
        if header.station() == station {
            rate = rate.or_else(|| header.frames_per_second());
        }
    }
    flows.sort_by_key(|(of, _)| *of != station);
    let facts = DetectedFormat { frame_bytes, flows, frames_per_second: rate, packet_number: None };
    Some(Agreed { facts, count, since })
}

fn raw_facts(source: &UdpSource, frames: &[(Instant, &[u8])]) -> Option<Agreed> {
    let length = |frame: &[u8]| frame.len() as u32;
    let (common, alike) = commonest(frames.iter().map(|(_, frame)| length(frame)))?;
    // A few odd ones among many equal ones are stray datagrams. More than that means varying lengths.
    let varying = source.varying || (source.frame_bytes.is_none() && alike * 4 < frames.len() * 3);
    let frame_bytes = if varying { 0 } else { source.frame_bytes.unwrap_or(common) };
    // With varying lengths, this number of frames is needed to rule out one frame among mistakes.
    let count = if varying && frames.len() >= 2 * AGREE { frames.len() } else { alike };
    let mut agreeing = frames.iter().filter(|(_, frame)| varying || length(frame) == common);
    let since = agreeing.next()?.0;
    let rate = source.frames_per_second;
    let flows = Vec::new();
    let facts = DetectedFormat { frame_bytes, flows, frames_per_second: rate, packet_number: None };
    Some(Agreed { facts, count, since })
}

/// Returns the most common value and its number.
fn commonest<T: Ord>(values: impl Iterator<Item = T>) -> Option<(T, usize)> {
    let mut counts: BTreeMap<T, usize> = BTreeMap::new();
    values.for_each(|value| *counts.entry(value).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count)
}

#[cfg(test)]
mod tests {
    use fullbore_core::layout::CHUNK_BYTES;

    use super::*;

    fn source(text: &str) -> UdpSource {
        UdpSource::parse(text).unwrap().remove(0)
    }

    fn held(datagrams: &[&[u8]]) -> Detector {
        let mut learning = Detector::default();
        datagrams.iter().for_each(|datagram| learning.hold(datagram));
        learning
    }

    fn vdif(bytes: u32, station: u16, frame: u32) -> Vec<u8> {
        let mut datagram = vec![0; bytes as usize];
        let header = Header::default().with_frame_bytes(bytes).with_station(station);
        header.with_frame_number(frame).write(&mut datagram).unwrap();
        datagram
    }

    #[test]
    fn one_datagram_says_nothing_until_no_other_can_come() {
        let source = source("udp://:5000");
        let stray = vdif(1032, 7, 0);
        let mut learning = held(&[&stray]);
        learning.hurry();
        assert!(learning.is_time());
        assert_eq!(learning.facts(&source, Upcoming::More), None);
        assert_eq!(learning.facts(&source, Upcoming::NextScan), None);
        assert_eq!(learning.facts(&source, Upcoming::Nothing).unwrap().frame_bytes, 1032);
        let frames: Vec<Vec<u8>> = (0..3).map(|n| vdif(8032, 9, n)).collect();
        frames.iter().for_each(|frame| learning.hold(frame));
        assert_eq!(learning.facts(&source, Upcoming::More), None, "more may come in a moment");
        assert_eq!(learning.facts(&source, Upcoming::NextScan).unwrap().frame_bytes, 8032);
        learning.hurry();
        let facts = learning.facts(&source, Upcoming::More).unwrap();
        assert_eq!((facts.frame_bytes, facts.flows), (8032, vec![(9, 0)]));
        assert_eq!(learning.datagrams().count(), 4, "all are still there to be sorted out");
    }

    #[test]
    fn raw_lengths_that_agree_are_the_streams_and_others_vary() {
        let source = source("udp://:5000?format=raw");
        let bytes = |lengths: &[usize]| {
            let all: Vec<Vec<u8>> = lengths.iter().map(|&length| vec![1; length]).collect();
            let mut learning = held(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
            learning.hurry();
            learning.facts(&source, Upcoming::More).map(|facts| facts.frame_bytes)
        };
        assert_eq!(bytes(&[90]), None);
        assert_eq!(bytes(&[90, 500, 500]), None);
        assert_eq!(bytes(&[90, 500, 500, 500]), Some(500));
        assert_eq!(bytes(&[1, 2, 3, 4, 5]), None);
        assert_eq!(bytes(&[1, 2, 3, 4, 5, 6]), Some(0));
    }

    #[test]
    fn rubbish_is_given_up_and_frames_that_do_not_agree_are_kept() {
        let source = source("udp://:5000");
        let mut learning = held(&[b"who is there?", &vdif(1032, 7, 0), b""]);
        assert_eq!(learning.facts(&source, Upcoming::More), None);
        let sifted = learning.sift(&source);
        assert_eq!((sifted.foreign, sifted.unrecorded), (2, 0));
        assert_eq!(learning.give_up(&source).unrecorded, 1);
    }

    #[test]
    fn frames_marked_invalid_decide_nothing_where_each_thread_is_a_stream() {
        let mut invalid = vdif(1032, 7, 0);
        Header::read(&invalid).unwrap().with_invalid(true).write(&mut invalid).unwrap();
        let mut learning = held(&[invalid.as_slice(); 5]);
        learning.hurry();
        assert!(learning.facts(&source("udp://:5000"), Upcoming::More).is_some());
        let split = source("udp://:5000?threads=split");
        assert_eq!(learning.facts(&split, Upcoming::Nothing), None);
        assert!(learning.all_invalid(&split));
        learning.hold(&vdif(1032, 7, 1));
        assert!(
            learning.facts(&split, Upcoming::Nothing).is_some() && !learning.all_invalid(&split)
        );
    }

    #[test]
    fn the_beginning_is_the_first_of_the_frames_that_lie_together() {
        let frames = [[9_000_000u32, 501], [500, 502], [499, 503]].concat();
        let all: Vec<Vec<u8>> = frames.iter().map(|&n| vdif(1032, 7, n)).collect();
        let learning = held(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut count = FrameIndexer::by_time(FrameCodec::VDIF, 7, vec![0], 1032, None);
        assert_eq!(learning.earliest(&mut count, 0), Some(499));
    }

    #[test]
    fn a_slow_stream_is_cut_into_blocks_of_half_a_second() {
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
