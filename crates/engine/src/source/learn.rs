//! Whose frames are these? What the first datagrams of a port say of its streams.
//!
//! One datagram says nothing: somebody may have sent it here by mistake, and what it is would be what the port
//! takes for ever. So datagrams are held until several agree on their length and station; then all of them
//! are sorted out, in the order in which they came.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fullbore_core::count::{Count, Reading};
use fullbore_core::endpoint::{PACKET_NUMBER_BYTES, SourceFormat, Threads, UdpSource};
use fullbore_core::format::sequence::Field;
use fullbore_core::format::vdif::{self, Header};
use fullbore_core::layout::{BLOCK_BYTES, Geometry};
use fullbore_core::manifest::Fill;

use super::arrived::Flows;
use super::unclaimed::{Key, excludes};

/// So many datagrams are looked at before anything is decided …
const ENOUGH: usize = 64;

/// … or as many as came within this time of the first of those that agree …
const PATIENCE: Duration = Duration::from_millis(20);

/// … but so many must agree, as long as more may come.
const AGREE: usize = 3;

/// The most that are held while nothing is agreed on.
const MOST: usize = 1024;

/// The first frames lie no further from one another than this.
const NEAR: u64 = 4 * MOST as u64;

/// So many datagrams without a packet number that counts are enough to believe that there is none.
const TELLING: usize = 8;

/// The rate is that of the last so long, where enough came in it: what came before may be by mistake.
const RECENT: Duration = Duration::from_secs(1);

/// The first datagrams of a port.
#[derive(Default)]
pub struct Learning {
    held: Vec<Held>,
}

struct Held {
    at: Instant,
    datagram: Vec<u8>,
}

impl Held {
    /// What is received and not kept, and the frame.
    fn split(&self, strip: usize) -> (&[u8], &[u8]) {
        self.datagram.split_at(strip.min(self.datagram.len()))
    }
}

/// What may come after the datagrams held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// More of them.
    More,
    /// More, in the next scan: what is agreed on by now belongs to this one.
    NextScan,
    /// Nothing: a single frame is the stream.
    Nothing,
}

/// What a port's frames are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Bytes of each frame as it is kept; 0: they vary.
    pub frame_bytes: u32,
    /// Stations and threads, in the order they came; those of the station that sends most come first.
    pub flows: Vec<(u16, u16)>,
    /// Frames per second of each thread, if known.
    pub frames_per_second: Option<u64>,
    /// Where in the bytes before each frame a packet number stands that counts them.
    pub packet_number: Option<Field>,
}

/// Facts, and how many of the datagrams held agree on them.
struct Agreed {
    facts: Facts,
    count: usize,
    /// When the first of them came.
    since: Instant,
}

/// Frames that stand in a datagram, but not as one frame in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// One behind a packet number.
    BehindNumber,
    /// So many of the same length, one behind the other.
    Several { frames: usize, frame_bytes: usize },
}

impl Holds {
    fn of(source: &UdpSource, datagram: &[u8]) -> Option<Self> {
        if source.format != SourceFormat::Vdif {
            return None;
        }
        if source.strip == 0 && Key::of(datagram, PACKET_NUMBER_BYTES as usize).is_some() {
            return Some(Self::BehindNumber);
        }
        let behind = datagram.get(stripped_bytes(source) as usize..)?;
        let frame_bytes = Header::read(behind).ok()?.frame_bytes() as usize;
        let mut frames = behind.chunks(frame_bytes.max(1));
        let several =
            frames.len() > 1 && frames.all(|frame| vdif::check(frame, frame_bytes).is_ok());
        several.then(|| Self::Several { frames: behind.len() / frame_bytes, frame_bytes })
    }
}

/// Datagrams given up before any stream was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sifted {
    /// They were no frames.
    pub foreign: u64,
    /// Length of the last of these.
    pub foreign_bytes: usize,
    /// What the last of these hold instead, if that can be seen.
    pub holds: Option<Holds>,
    /// They were frames that did not agree with one another.
    pub unrecorded: u64,
    /// They were frames that the user's own filter leaves out.
    pub excluded: u64,
}

impl Sifted {
    fn take_foreign(&mut self, source: &UdpSource, datagram: &[u8]) {
        self.foreign += 1;
        self.foreign_bytes = datagram.len();
        self.holds = Holds::of(source, datagram).or(self.holds);
    }
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
    /// Holds a datagram.
    pub fn hold(&mut self, datagram: &[u8]) {
        self.held.push(Held { at: Instant::now(), datagram: datagram.to_vec() });
    }

    /// Whether so many are held that something must be decided.
    pub fn is_full(&self) -> bool {
        self.held.len() >= ENOUGH
    }

    /// Whether it is time to see what they agree on.
    pub fn is_time(&self) -> bool {
        self.is_full() || self.held.first().is_some_and(|first| first.at.elapsed() >= PATIENCE)
    }

    /// Bytes per second of one stream: by what was given or the frames tell, else by what came of late.
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
        let now = Instant::now();
        let old = self.held.partition_point(|held| now - held.at > RECENT);
        let recent = self.held.get(old..).filter(|recent| recent.len() >= AGREE);
        let counted = recent.unwrap_or(&self.held);
        let millis = (now - counted.first()?.at).as_millis().max(1) as u64;
        let bytes: usize = counted.iter().map(|held| held.datagram.len()).sum();
        let parts = if alone { several as u64 } else { 1 };
        Some(bytes as u64 * 1000 / millis / parts)
    }

    /// The first came long ago.
    #[cfg(test)]
    pub(super) fn hurry(&mut self) {
        for held in &mut self.held {
            held.at = held.at.checked_sub(PATIENCE).unwrap_or(held.at);
        }
    }

    /// The datagrams held, in the order in which they came.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.held.iter().map(|held| held.datagram.as_slice())
    }

    /// Gives up all that are held, and says how many they were.
    pub fn give_up(&mut self) -> u64 {
        std::mem::take(&mut self.held).len() as u64
    }

    /// Holds all of these.
    pub fn of_all(datagrams: &[Vec<u8>]) -> Self {
        let mut all = Self::default();
        datagrams.iter().for_each(|datagram| all.hold(datagram));
        all
    }

    /// Gives up what is no frame at all, and the oldest of too many frames that do not agree.
    pub fn sift(&mut self, source: &UdpSource) -> Sifted {
        let mut sifted = Sifted::default();
        let strip = stripped_bytes(source) as usize;
        self.held.retain(|held| {
            let whole = match source.format {
                SourceFormat::Vdif => match Key::of(&held.datagram, strip) {
                    Some((key, _)) if excludes(source, key) => {
                        sifted.excluded += 1;
                        return false;
                    }
                    key => key.is_some(),
                },
                SourceFormat::Raw => frame_of(source, &held.datagram).is_some(),
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

    /// Where the packet number lies in the 8 bytes before each frame: where most numbers lie near the one before, and
    /// the bytes beside them stand still. `None`: nowhere do they.
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
            // A number that stands still counts nothing.
            most(near.len()) && most(moving)
        };
        let found = Field::PACKET_NUMBERS.into_iter().find(goes_on);
        // Little is known of a few datagrams, so they are believed to be what they should.
        found.or_else(|| (heads.len() < TELLING).then_some(Field::PSN))
    }

    /// What the datagrams held are; `None` while too few of them agree, or more are worth waiting for.
    pub fn facts(&self, source: &UdpSource, then: Then) -> Option<Facts> {
        let frames: Vec<(Instant, &[u8])> = self
            .held
            .iter()
            .filter_map(|held| Some((held.at, frame_of(source, &held.datagram)?)))
            .collect();
        let Agreed { facts, count, since } = match source.format {
            SourceFormat::Vdif => vdif_facts(source, &frames)?,
            SourceFormat::Raw => raw_facts(source, &frames)?,
        };
        // Where the length was given, or none is asked for, there is nothing to agree on.
        let given = source.varying || source.frame_bytes.is_some();
        let agreed = count >= AGREE || (given && source.format == SourceFormat::Raw);
        let decided = match then {
            Then::More => agreed && (self.is_full() || since.elapsed() >= PATIENCE),
            Then::NextScan => agreed,
            Then::Nothing => true,
        };
        let packet_number = source.packet_number.then(|| self.packet_number()).flatten();
        decided.then_some(Facts { packet_number, ..facts })
    }

    /// Index of the earliest of the datagrams held, and what counting them needs.
    pub fn decide(&self, source: &UdpSource, facts: &Facts) -> Decision {
        let strip = stripped_bytes(source) as usize;
        // A rate that headers tell is read by the count itself, which frames may teach better.
        let rate = source.frames_per_second;
        let bytes = facts.frame_bytes as usize;
        let in_order = source.fill != Fill::Omit && facts.frame_bytes > 0;
        let mut count = match (&source.sequence, &source.threads) {
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
                let flows = Flows::Vdif {
                    frames_per_second: source.frames_per_second,
                    packet_number: facts.packet_number,
                };
                return Decision::Arrived(flows, Count::by_arrival(strip, bytes));
            }
        };
        if source.format == SourceFormat::Vdif {
            count = count.beside(facts.packet_number);
        }
        if !in_order {
            return Decision::Arrived(Flows::One, count);
        }
        let first = self.earliest(&mut count, strip).unwrap_or(0);
        Decision::Placed(count, first)
    }

    /// The lowest index among the frames held that lie near one another: none of these was overtaken by the
    /// first. One lying header, not even the first of all, must not become the beginning of everything.
    pub fn earliest(&self, count: &mut Count, strip: usize) -> Option<i64> {
        let read = |count: &Count, held: &Held| {
            let (head, frame) = held.split(strip);
            match count.read(head, frame, held.datagram.len()) {
                Reading::Frame { index, invalid } => Some((index, invalid)),
                Reading::Early { index } => Some((index, false)),
                _ => None,
            }
        };
        let indices = |count: &Count, of: bool| -> Vec<i64> {
            let all = self.held.iter().filter_map(|held| read(count, held));
            all.filter(|(_, invalid)| *invalid == of).map(|(index, _)| index).collect()
        };
        let good = self.held.iter().filter(|held| matches!(read(count, held), Some((_, false))));
        let mut best: Option<(usize, i64, Count)> = None;
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

/// Bytes of each datagram that are received and not kept.
pub fn stripped_bytes(source: &UdpSource) -> u32 {
    if source.packet_number { PACKET_NUMBER_BYTES } else { source.strip }
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

/// The frame in a datagram, if it has one, of the length that was given.
fn frame_of<'a>(source: &UdpSource, datagram: &'a [u8]) -> Option<&'a [u8]> {
    let frame = datagram.get(stripped_bytes(source) as usize..)?;
    let fits = source.frame_bytes.is_none_or(|bytes| frame.len() == bytes as usize);
    (fits && !frame.is_empty()).then_some(frame)
}

/// The commonest length and station of frames that agree with their own header, and all threads of that length. Frames
/// that the user's filter leaves out say nothing.
fn vdif_facts(source: &UdpSource, frames: &[(Instant, &[u8])]) -> Option<Agreed> {
    let good: Vec<(Instant, Header)> = frames
        .iter()
        .filter_map(|(at, frame)| {
            let (key, header) = Key::of(frame, 0)?;
            (!excludes(source, key)).then_some((*at, header))
        })
        .collect();
    let kind = |header: &Header| (header.frame_bytes(), header.station());
    let ((frame_bytes, station), count) = commonest(good.iter().map(|(_, it)| kind(it)))?;
    let mut agreeing = good.iter().filter(|(_, it)| kind(it) == (frame_bytes, station));
    let since = agreeing.next()?.0;
    let mut flows: Vec<(u16, u16)> = Vec::new();
    let mut rate = source.frames_per_second;
    for (_, header) in good.iter().filter(|(_, header)| header.frame_bytes() == frame_bytes) {
        let flow = (header.station(), header.thread());
        if !flows.contains(&flow) {
            flows.push(flow);
        }
        if header.station() == station {
            rate = rate.or_else(|| header.frames_per_second());
        }
    }
    flows.sort_by_key(|(of, _)| *of != station);
    let facts = Facts { frame_bytes, flows, frames_per_second: rate, packet_number: None };
    Some(Agreed { facts, count, since })
}

fn raw_facts(source: &UdpSource, frames: &[(Instant, &[u8])]) -> Option<Agreed> {
    let length = |frame: &[u8]| frame.len() as u32;
    let (common, alike) = commonest(frames.iter().map(|(_, frame)| length(frame)))?;
    // A few odd ones among many alike are rubbish; more than that, and lengths vary.
    let varying = source.varying || (source.frame_bytes.is_none() && alike * 4 < frames.len() * 3);
    let frame_bytes = if varying { 0 } else { source.frame_bytes.unwrap_or(common) };
    // Of lengths that vary, so many tell that as one frame and as many mistakes would not.
    let count = if varying && frames.len() >= 2 * AGREE { frames.len() } else { alike };
    let mut agreeing = frames.iter().filter(|(_, frame)| varying || length(frame) == common);
    let since = agreeing.next()?.0;
    let rate = source.frames_per_second;
    let flows = Vec::new();
    let facts = Facts { frame_bytes, flows, frames_per_second: rate, packet_number: None };
    Some(Agreed { facts, count, since })
}

/// The value that comes most often, and how often.
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

    fn held(datagrams: &[&[u8]]) -> Learning {
        let mut learning = Learning::default();
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
        assert_eq!(learning.facts(&source, Then::More), None);
        assert_eq!(learning.facts(&source, Then::NextScan), None);
        assert_eq!(learning.facts(&source, Then::Nothing).unwrap().frame_bytes, 1032);
        let frames: Vec<Vec<u8>> = (0..3).map(|n| vdif(8032, 9, n)).collect();
        frames.iter().for_each(|frame| learning.hold(frame));
        assert_eq!(learning.facts(&source, Then::More), None, "more may come in a moment");
        assert_eq!(learning.facts(&source, Then::NextScan).unwrap().frame_bytes, 8032);
        learning.hurry();
        let facts = learning.facts(&source, Then::More).unwrap();
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
            learning.facts(&source, Then::More).map(|facts| facts.frame_bytes)
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
        assert_eq!(learning.facts(&source, Then::More), None);
        let sifted = learning.sift(&source);
        assert_eq!((sifted.foreign, sifted.unrecorded), (2, 0));
        assert_eq!(learning.give_up(), 1);
    }

    #[test]
    fn the_beginning_is_the_first_of_the_frames_that_lie_together() {
        let frames = [[9_000_000u32, 501], [500, 502], [499, 503]].concat();
        let all: Vec<Vec<u8>> = frames.iter().map(|&n| vdif(1032, 7, n)).collect();
        let learning = held(&all.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut count = Count::by_time(7, vec![0], 1032, None);
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
