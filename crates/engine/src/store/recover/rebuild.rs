//! The sequence, the gaps and the account of a stream, from what was found to be true.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use fullbore_core::account::{
    Account, CountedBy, Edge, Flow, GAPS_LISTED, Presence, Terms, Verdict,
};
use fullbore_core::endpoint::UdpSource;
use fullbore_core::format::vdif::{Header, NOWHERE, Second, Timeline};
use fullbore_core::gap::{Cause, Gap, Ranges};
use fullbore_core::index::Block;
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{Fill, Format, Manifest, Stream, Summary};
use fullbore_core::time::{Tai, frame_ns};
use fullbore_core::wall::{Wall, Watch};

use super::examine::{Chunk, Examined, Found, Part};
use super::remake::rate_of as rate_of_times;
use super::times::Span;
use super::{Error, Recovered, intact};
use crate::store::gaps::Gaps;
use crate::store::inventory::Inventory;
use crate::store::read::{ExtentReader, pool};

/// A stream as it will be.
#[derive(Debug)]
pub struct Rebuilt {
    pub number: usize,
    pub geometry: Option<Geometry>,
    pub parts: Vec<Part>,
    /// All blocks in order, with who holds each.
    pub blocks: Vec<Whole>,
    /// Gaps that no index tells of.
    pub new_gaps: Vec<Gap>,
    pub account: Account,
    /// Nothing of it was lost, so its account is the one that was there.
    pub intact: bool,
    name: String,
    format: Format,
    cut: u64,
    damaged: u64,
    lost: u64,
}

/// A block that stays.
#[derive(Clone, Debug)]
pub struct Whole {
    /// Which of the parts.
    pub part: usize,
    pub block: Block,
    /// It had no record.
    pub found: bool,
    /// Its index is its own, and not merely that behind the block before.
    pub placed: bool,
}

/// Puts a stream together again.
pub fn rebuild(
    inventory: &Inventory,
    number: usize,
    examined: Examined,
    progress: &dyn Fn(u64),
) -> Result<Rebuilt, Error> {
    let Examined { geometry, parts, cut, damaged } = examined;
    let mut told = inventory.manifest.streams[number].clone();
    learn_rate(&mut told, &parts);
    let told = &told;
    let (blocks, fill) = match geometry {
        Some(geometry) => order(told, &geometry, &parts),
        None => (Vec::new(), Vec::new()),
    };
    let (new_gaps, gaps, lost) = gaps(told, &parts, &blocks, fill);
    let mut rebuilt = Rebuilt {
        number,
        geometry,
        account: Account::new(CountedBy::Nothing),
        intact: false,
        parts,
        blocks,
        new_gaps,
        name: told.name.to_string(),
        format: told.format.clone(),
        cut,
        damaged,
        lost,
    };
    let kept = intact::account(inventory, &rebuilt);
    rebuilt.intact = kept.is_some();
    rebuilt.account = match kept {
        Some(account) => account,
        None => rebuilt.count(inventory, told, &gaps, progress)?,
    };
    Ok(rebuilt)
}

/// A rate that was learnt while recording stands in no manifest yet, but the times of blocks tell it.
fn learn_rate(told: &mut Stream, parts: &[Part]) {
    let by_place = told.fill != Fill::Omit;
    let count = threads_of(told);
    let Format::Vdif { frames_per_second: rate @ None, derived, threads } = &mut told.format else {
        return;
    };
    if threads.is_empty() || !by_place {
        return;
    }
    let kept = chunks(parts).flat_map(|(_, chunk)| &chunk.kept);
    let timed: Vec<(i64, Tai)> =
        kept.filter_map(|block| Some((block.first, block.time?))).collect();
    if let Some(near) = rate_of_times(&timed, count) {
        (*rate, *derived) = (Some(near), true);
    }
}

/// All blocks in the order of the stream, those without a record put where they belong, and the gaps
/// that fill among them tells of.
fn order(told: &Stream, geometry: &Geometry, parts: &[Part]) -> (Vec<Whole>, Vec<Gap>) {
    let mut all: Vec<(Whole, Option<&Found>)> = Vec::new();
    let mut taken: BTreeSet<u64> = BTreeSet::new();
    for (part, chunk) in chunks(parts) {
        for block in &chunk.kept {
            if taken.insert(block.sequence) {
                all.push((Whole { part, block: *block, found: false, placed: true }, None));
            }
        }
    }
    let starts = Starts::of(parts, geometry);
    let recorded = Recorded::of(told, &all);
    for (part, chunk) in chunks(parts).filter(|(_, chunk)| !chunk.found.is_empty()) {
        let mut next = match chunk.kept.last() {
            Some(last) => last.sequence + 1,
            None => recorded.in_order(starts.of_chunk(chunk.number), chunk),
        };
        for found in &chunk.found {
            // A number that is taken would make two blocks one.
            while !taken.insert(next) {
                next += 1;
            }
            let block = block_of(chunk.number, next, found);
            all.push((Whole { part, block, found: true, placed: false }, Some(found)));
            next += 1;
        }
    }
    all.sort_by_key(|(whole, _)| whole.block.sequence);
    let fill = give_indices(told, &mut all);
    (all.into_iter().map(|(whole, _)| whole).collect(), fill)
}

fn chunks(parts: &[Part]) -> impl Iterator<Item = (usize, &Chunk)> {
    parts.iter().enumerate().flat_map(|(at, part)| part.chunks.iter().map(move |it| (at, it)))
}

/// Where the chunks with records begin, by their numbers, and which of them are the rest of one that was cut.
struct Starts {
    starts: BTreeMap<u32, u64>,
    rests: BTreeSet<u32>,
    chunk_blocks: u64,
}

impl Starts {
    fn of(parts: &[Part], geometry: &Geometry) -> Self {
        let begin = |block: &Block| {
            let before = block.offset / u64::from(geometry.block_bytes);
            block.sequence.saturating_sub(before)
        };
        let recorded = chunks(parts).filter_map(|(_, it)| Some((it.number, it.kept.first()?)));
        let all: BTreeMap<u32, u64> =
            recorded.map(|(number, first)| (number, begin(first))).collect();
        let (mut starts, mut rests) = (BTreeMap::new(), BTreeSet::new());
        let mut highest = 0;
        for (number, start) in all {
            // A rest goes on under the next free number: it begins before the chunks below it.
            if start < highest {
                rests.insert(number);
            } else {
                highest = start;
                starts.insert(number, start);
            }
        }
        Self { starts, rests, chunk_blocks: geometry.chunk_blocks.into() }
    }

    /// The place of a chunk among those that are no rest.
    fn place(&self, number: u32) -> u64 {
        u64::from(number).saturating_sub(self.rests.range(..number).count() as u64)
    }

    /// Where a chunk without records begins: full chunks away from the nearest one below, or above.
    fn of_chunk(&self, number: u32) -> u64 {
        let blocks = |from: u32, to: u32| {
            self.place(to).saturating_sub(self.place(from)).saturating_mul(self.chunk_blocks)
        };
        if let Some((&below, start)) = self.starts.range(..number).next_back() {
            return start.saturating_add(blocks(below, number));
        }
        match self.starts.range(number..).next() {
            Some((&above, start)) => start.saturating_sub(blocks(number, above)),
            None => u64::from(number).saturating_mul(self.chunk_blocks),
        }
    }
}

/// Blocks with a record, where places follow from the time in the frames.
struct Recorded<'a> {
    places: Option<Places<'a>>,
    /// Number of each, by the index of its first frame.
    sequences: BTreeMap<i64, u64>,
}

impl<'a> Recorded<'a> {
    fn of(told: &'a Stream, all: &[(Whole, Option<&Found>)]) -> Self {
        let blocks = all.iter().map(|(whole, _)| (whole.block.first, whole.block.sequence));
        Self { places: Places::of(told, all), sequences: blocks.collect() }
    }

    /// Where a chunk without records begins: as reckoned, unless the time in its frames says that it lies between
    /// others. Then it is the rest of one that was cut, and no number tells where that goes on.
    fn in_order(&self, reckoned: u64, chunk: &Chunk) -> u64 {
        let timed = || chunk.found.iter().find_map(|found| found.salvage.timed);
        let place = self.places.as_ref().and_then(|places| places.first(timed()?));
        let Some(place) = place else { return reckoned };
        let before = self.sequences.range(..place).next_back().map(|(_, sequence)| *sequence);
        let behind = self.sequences.range(place..).next().map(|(_, sequence)| *sequence);
        let fits = before.is_none_or(|it| it < reckoned) && behind.is_none_or(|it| reckoned < it);
        match (fits, before, behind) {
            (true, ..) | (false, None, None) => reckoned,
            (false, Some(before), _) => before + 1,
            (false, None, Some(behind)) => behind.saturating_sub(chunk.found.len() as u64),
        }
    }
}

fn block_of(chunk: u32, sequence: u64, found: &Found) -> Block {
    Block {
        sequence,
        offset: found.offset,
        chunk,
        bytes: found.salvage.bytes as u32,
        crc: found.crc,
        frames: found.salvage.frames,
        present: found.salvage.present(),
        invalid: found.salvage.invalid,
        first: 0,
        time: None,
        seen: Tai(0),
    }
}

/// Gives blocks without a record the index of their first frame: by the time in the frames where places
/// follow from it, else by the block before. Returns the gaps that their fill tells of.
fn give_indices(told: &Stream, all: &mut [(Whole, Option<&Found>)]) -> Vec<Gap> {
    let places = Places::of(told, all);
    let mut fill = Vec::new();
    let (mut end, mut seen) = (0, None);
    for (whole, found) in all.iter_mut() {
        let block = &mut whole.block;
        if let Some(found) = found {
            let timed = found.salvage.timed;
            let place = places.as_ref().zip(timed).and_then(|(places, timed)| places.first(timed));
            whole.placed = place.is_some();
            block.first = place.unwrap_or(end);
            block.time = timed.map(|timed| time_of_first(told, block, timed));
            block.seen = seen.or(block.time).unwrap_or(Tai(0));
            fill.extend(found.salvage.fill.iter().map(|run| Gap {
                first: block.first + i64::from(run.start),
                count: u64::from(run.end - run.start),
                cause: Cause::Missing,
            }));
        }
        end = block.first.saturating_add(block.frames.into());
        seen = Some(block.seen);
    }
    count_between(all);
    fill
}

/// Where lengths vary, a block without a record does not tell how many frames begin in it; the next
/// block that has one tells how many began before it. They are all counted in the first of a run.
fn count_between(all: &mut [(Whole, Option<&Found>)]) {
    let unknown = |whole: &Whole| whole.found && whole.block.frames == 0;
    let mut at = 0;
    while at < all.len() {
        let run = all[at..].iter().take_while(|(whole, _)| unknown(whole)).count();
        let (start, next) = (at, at + run);
        at = next + 1;
        let Some((after, _)) = all.get(next).filter(|_| run > 0) else { continue };
        let (first, end, sequence) =
            (all[start].0.block.first, after.block.first, after.block.sequence);
        if sequence != all[start].0.block.sequence + run as u64 {
            continue;
        }
        let frames = u32::try_from(end.saturating_sub(first)).unwrap_or(0);
        let block = &mut all[start].0.block;
        (block.frames, block.present) = (frames, frames);
        for (whole, _) in &mut all[start + 1..next] {
            whole.block.first = end;
        }
    }
}

fn rate_of(told: &Stream) -> Option<u64> {
    match &told.format {
        Format::Vdif { frames_per_second, .. } => frames_per_second.filter(|rate| *rate > 0),
        Format::Panda { .. } | Format::Raw => None,
    }
}

/// The time of a block's first frame, from that of its first true one.
fn time_of_first(told: &Stream, block: &Block, timed: (u32, Second, u32, u16)) -> Tai {
    let (number, second, frame, _) = timed;
    let Some(rate) = rate_of(told) else { return second.start() };
    let time = second.start().plus_ns(frame_ns(frame.into(), rate));
    let threads = threads_of(told);
    let before =
        (block.first + i64::from(number)).div_euclid(threads) - block.first.div_euclid(threads);
    time.plus_ns(-frame_ns(before.unsigned_abs(), rate))
}

fn threads_of(told: &Stream) -> i64 {
    match &told.format {
        Format::Vdif { threads, .. } => threads.len().max(1) as i64,
        Format::Panda { .. } | Format::Raw => 1,
    }
}

/// How the index of a frame follows from its time.
struct Places<'a> {
    threads: &'a [u16],
    rate: i64,
    /// Frames of a thread since 1970, minus the place.
    offset: i64,
}

impl<'a> Places<'a> {
    /// From a recorded block that tells its time; without one, the first second found begins at 0.
    fn of(told: &'a Stream, all: &[(Whole, Option<&Found>)]) -> Option<Self> {
        let Format::Vdif { threads, .. } = &told.format else { return None };
        if threads.is_empty() || told.fill == Fill::Omit {
            return None;
        }
        let rate = i64::try_from(rate_of(told)?).ok()?;
        let slot = |index: i64| index.div_euclid(threads.len() as i64);
        let recorded = all.iter().filter(|(whole, _)| !whole.found).find_map(|(whole, _)| {
            let time = whole.block.time?;
            let (second, ns) = (time.0.div_euclid(NS), time.0.rem_euclid(NS));
            let frame = (i128::from(ns) * i128::from(rate) + i128::from(NS / 2)) / i128::from(NS);
            Some(second * rate + frame as i64 - slot(whole.block.first))
        });
        let first_second =
            all.iter().filter_map(|(_, found)| (*found)?.salvage.timed).map(|timed| timed.1).min();
        let offset = recorded.or_else(|| first_second?.0.checked_mul(rate))?;
        Some(Self { threads, rate, offset })
    }

    /// The index of a block's first frame, from that of its first true one.
    fn first(&self, timed: (u32, Second, u32, u16)) -> Option<i64> {
        let (number, second, frame, thread) = timed;
        let rank = self.threads.iter().position(|&it| it == thread)? as i64;
        let time = second.0.checked_mul(self.rate)?.checked_add(frame.into())?;
        let slot = time.checked_sub(self.offset)?;
        slot.checked_mul(self.threads.len() as i64)?.checked_add(rank - i64::from(number))
    }
}

const NS: i64 = 1_000_000_000;

/// Gaps that no record tells of, all gaps, and blocks that must have been and are nowhere.
fn gaps(told: &Stream, parts: &[Part], blocks: &[Whole], fill: Vec<Gap>) -> (Vec<Gap>, Gaps, u64) {
    let recorded: Vec<Gap> = parts.iter().flat_map(Part::gaps).collect();
    let known = Gaps::paint(recorded.iter().chain(&fill).copied());
    let mut new = fill;
    let mut lost = 0;
    let mut tell = |frames: Range<i64>, cause| {
        for hole in known.uncovered(frames) {
            let count = hole.end.abs_diff(hole.start);
            new.push(Gap { first: hole.start, count, cause });
        }
    };
    for (whole, next) in blocks.iter().zip(blocks.iter().skip(1)) {
        let end = whole.block.first.saturating_add(whole.block.frames.into());
        let unseen = next.block.sequence - whole.block.sequence - 1;
        // A block that was numbered had been filled: its frames had reached us.
        let cause = if unseen > 0 { Cause::Overrun } else { Cause::Missing };
        if end < next.block.first {
            let explained = known.uncovered(end..next.block.first).is_empty();
            lost += if explained { 0 } else { unseen };
            tell(end..next.block.first, cause);
        } else if !(next.placed && next.block.frames > 0 && told.fill != Fill::Omit) {
            // Where the next frame has a place of its own, and no frame is missing before it, there was no block
            // between: numbers of blocks without a record are reckoned, and may be too high.
            lost += unseen;
        }
    }
    if told.fill != Fill::Omit
        && let (Some(first), Some(last)) = (blocks.first(), blocks.last())
    {
        // A gap is told with a later block: what lies between was there once.
        let end = last.block.first.saturating_add(last.block.frames.into());
        tell(end..known.end().unwrap_or(end).max(end), Cause::Overrun);
        let start = known.start().unwrap_or(first.block.first);
        tell(start.min(first.block.first)..first.block.first, Cause::Overrun);
    }
    let all = Gaps::paint(recorded.into_iter().chain(new.iter().copied()));
    (new, all, lost)
}

impl Rebuilt {
    /// Whether every block that was numbered is there, and every frame between the first and the last is told of.
    pub fn lacks_nothing(&self) -> bool {
        self.cut == 0 && self.lost == 0 && self.new_gaps.is_empty()
    }

    /// What was done, for people.
    pub fn told(&self) -> Recovered {
        let chunks = || chunks(&self.parts);
        let unfinished = |(_, chunk): &(usize, &Chunk)| {
            chunk.file.as_ref().is_some_and(|file| file.unfinished)
                && chunk.end > 0
                && !chunk.superseded
        };
        Recovered {
            name: self.name.clone(),
            blocks: self.blocks.len() as u64,
            bytes: self.bytes(),
            found: self.blocks.iter().filter(|whole| whole.found).count() as u64,
            cut: self.cut,
            lost: self.lost,
            damaged: self.damaged,
            placed: chunks().filter(unfinished).count() as u64,
            superseded: chunks().filter(|(_, chunk)| chunk.superseded).count() as u64,
            terms: self.account.terms,
            verdict: Some(self.account.verdict),
            intact: self.intact,
            tail: 0,
            tails_ignored: 0,
        }
    }

    /// Says in the manifest what the stream is now.
    pub fn write_into(&self, manifest: &mut Manifest) {
        let stream = &mut manifest.streams[self.number];
        stream.geometry = self.geometry;
        stream.format = self.format.clone();
        stream.blocks = self.blocks.len() as u64;
        stream.bytes = self.bytes();
        stream.account = Some(Summary::from(&self.account));
        let seen =
            self.received().map_or_else(|| self.account.last.map(|it| it.seen), |it| Some(it.1));
        manifest.stopped = manifest.stopped.max(seen.filter(|seen| *seen > manifest.armed));
    }

    /// When the first and the last block were handed on of those that the recorder has a record of.
    fn received(&self) -> Option<(Tai, Tai)> {
        let seen = || self.blocks.iter().filter(|it| !self.was_found(it)).map(|it| it.block.seen);
        seen().min().zip(seen().max())
    }

    /// All that tells when it was recorded.
    pub fn span(&self) -> Span {
        let edges = (self.account.first, self.account.last);
        let kept = Some(edges).filter(|_| self.intact && self.account.unverified == 0);
        let received = kept.and_then(|(first, last)| Some((first?.seen, last?.seen)));
        let frames = edges.0.zip(edges.1).and_then(|(first, last)| first.time.zip(last.time));
        Span { received: received.or_else(|| self.received()), frames }
    }

    fn bytes(&self) -> u64 {
        self.blocks.iter().map(|whole| u64::from(whole.block.bytes)).sum()
    }

    fn count(
        &self,
        inventory: &Inventory,
        told: &Stream,
        gaps: &Gaps,
        progress: &dyn Fn(u64),
    ) -> Result<Account, Error> {
        let mut account = Account::new(counted_by(told));
        let sum = |of: &dyn Fn(&Block) -> u32| {
            self.blocks.iter().map(|whole| u64::from(of(&whole.block))).sum::<u64>()
        };
        let written = sum(&|block| block.present);
        account.terms = Terms { expected: written, written, ..Terms::default() };
        account.filled = sum(&|block| block.frames - block.present);
        account.invalid = sum(&|block| block.invalid);
        let found = self.blocks.iter().filter(|whole| self.was_found(whole));
        account.unverified = found.map(|whole| u64::from(whole.block.present)).sum();
        let frame_bytes = self.geometry.map_or(0, |geometry| u64::from(geometry.frame_bytes));
        account.bytes = if frame_bytes > 0 { written * frame_bytes } else { self.bytes() };
        self.edges(told, gaps, &mut account);
        account.clock = self.clock();
        let by_arrival = told.fill == Fill::Omit;
        match &told.format {
            Format::Vdif { .. } if by_arrival && frame_bytes > 0 => {
                let flows = self.flows(inventory, told, progress)?;
                tell_flows(&mut account, flows);
            }
            // Only the frames of lost blocks are known to have been: nothing else was counted.
            _ => tell_gaps(&mut account, gaps),
        }
        if self.blocks.is_empty() {
            account.presence.push(Presence::NotKnown);
        }
        if let Some(planned) = inventory.manifest.planned {
            let rate = told.frames_per_second(&account);
            let (armed, stopped) = (inventory.manifest.armed, inventory.manifest.stopped);
            let lacking = planned.lacking(&account, rate, armed, stopped);
            let each = told.frames_per_second_of_thread();
            account.flows.iter_mut().for_each(|flow| {
                flow.presence.extend(planned.lacking_of(flow, each, armed, stopped));
            });
            account.presence.extend(lacking);
        }
        // The counters of the layers died with the recorder, so nothing can be proven any more.
        account.verdict = account.judge().max(Verdict::Consistent);
        Ok(account)
    }

    /// What the time in the frames was against the host's clock, as the records of blocks tell: when the first of a
    /// block's frames came is no earlier than the first was sent. Coarser than what its recorder had seen, which looked
    /// a hundred times a second.
    fn clock(&self) -> Option<Wall> {
        let mut watch = Watch::default();
        for block in self.blocks.iter().filter(|it| !self.was_found(it)).map(|it| it.block) {
            if let Some(time) = block.time.filter(|_| watch.wants(block.seen)) {
                watch.look(time, block.seen);
            }
        }
        watch.wall()
    }

    fn edges(&self, told: &Stream, gaps: &Gaps, account: &mut Account) {
        let (Some(first), Some(last)) = (self.blocks.first(), self.blocks.last()) else { return };
        let end = last.block.first.saturating_add(last.block.frames.into());
        let (low, high) = if told.fill == Fill::Omit {
            (0, account.terms.written as i64)
        } else {
            let low = gaps.start().unwrap_or(first.block.first).min(first.block.first);
            (low, gaps.end().unwrap_or(end).max(end))
        };
        let time = |index: i64| {
            let rate = rate_of(told).filter(|_| told.fill != Fill::Omit)?;
            let threads = threads_of(told);
            let slots = index.div_euclid(threads) - first.block.first.div_euclid(threads);
            let ns = frame_ns(slots.unsigned_abs(), rate);
            Some(first.block.time?.plus_ns(if slots < 0 { -ns } else { ns }))
        };
        let first_time = time(low).or(first.block.time);
        account.first = Some(Edge { index: low, time: first_time, seen: first.block.seen });
        account.last = Some(Edge {
            index: high - 1,
            time: time(high - 1).or(last.block.time),
            seen: last.block.seen,
        });
    }

    /// Counts each thread by the time of its frames; all of them are read.
    fn flows(
        &self,
        inventory: &Inventory,
        told: &Stream,
        progress: &dyn Fn(u64),
    ) -> Result<Vec<Walked>, Error> {
        let geometry = self.geometry.expect("a stream with blocks has a geometry");
        let mut memory = pool(1, geometry.block_bytes as usize)?.take().expect("it has a block");
        let mut reader = ExtentReader::default();
        let mut flows: Vec<Walked> = Vec::new();
        let mut read = 0;
        for whole in &self.blocks {
            let Some(path) = self.path_of(inventory, whole) else { continue };
            let wanted = whole.block.bytes as usize;
            let buffer = &mut memory[..crate::store::read::aligned(wanted)];
            let got = reader
                .read_at(&path, whole.block.offset, buffer)
                .map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
            read += got as u64;
            progress(read);
            let bytes = &memory[..got.min(wanted)];
            for frame in bytes.chunks_exact(geometry.frame_bytes as usize) {
                let Ok(header) = Header::read(frame) else { continue };
                Walked::of(&mut flows, &header, rate_of(told)).add(&header, rate_of(told));
            }
        }
        Ok(flows)
    }

    /// Whether a block has no record of the recorder's own, now or when it was recovered before.
    fn was_found(&self, whole: &Whole) -> bool {
        whole.found || self.parts[whole.part].index.was_found(&whole.block)
    }

    fn path_of(&self, inventory: &Inventory, whole: &Whole) -> Option<Arc<std::path::PathBuf>> {
        let holding = &inventory.holdings[self.parts[whole.part].holding];
        holding.chunk(whole.block.chunk).map(|file| Arc::new(file.path.clone()))
    }
}

/// As the recorder counted: by the source, or by the frames' own times where they lie as they came.
fn counted_by(told: &Stream) -> CountedBy {
    match &told.format {
        Format::Vdif { .. } if told.fill == Fill::Omit => CountedBy::FrameTime,
        Format::Panda { .. } => CountedBy::ServerCount,
        Format::Raw if told.fill == Fill::Omit => CountedBy::Nothing,
        format => {
            let sources = UdpSource::parse(&told.source).unwrap_or_default();
            sources.first().map_or_else(|| by_format(format), UdpSource::counted_by)
        }
    }
}

/// Of a source that this version does not know.
fn by_format(format: &Format) -> CountedBy {
    match format {
        Format::Vdif { .. } => CountedBy::FrameTime,
        Format::Panda { .. } => CountedBy::ServerCount,
        Format::Raw => CountedBy::Nothing,
    }
}

fn tell_gaps(account: &mut Account, gaps: &Gaps) {
    let terms = &mut account.terms;
    terms.missing = gaps.total(Cause::Missing);
    terms.overrun = gaps.total(Cause::Overrun);
    terms.damaged = gaps.total(Cause::Damaged);
    terms.late = gaps.total(Cause::Late);
    terms.expected = terms.sum();
    gaps.iter().for_each(|gap| account.push_gap(gap));
}

/// A thread whose frames lie as they came.
struct Walked {
    station: u16,
    thread: u16,
    timeline: Timeline,
    indices: Ranges,
    frames: u64,
    /// The earliest time in a valid frame and the latest.
    times: Option<(Tai, Tai)>,
}

impl Walked {
    /// The flow that a frame belongs to.
    fn of<'a>(flows: &'a mut Vec<Self>, header: &Header, rate: Option<u64>) -> &'a mut Self {
        let key = (header.station(), header.thread());
        let known = flows.iter().position(|flow| (flow.station, flow.thread) == key);
        let at = known.unwrap_or_else(|| {
            flows.push(Self {
                station: key.0,
                thread: key.1,
                timeline: Timeline::new(rate),
                indices: Ranges::default(),
                frames: 0,
                times: None,
            });
            flows.len() - 1
        });
        &mut flows[at]
    }

    fn add(&mut self, header: &Header, rate: Option<u64>) {
        self.frames += 1;
        if !header.invalid() {
            let within = rate.map_or(0, |rate| frame_ns(header.frame_number().into(), rate));
            let time = header.second().start().plus_ns(within);
            let (first, last) = self.times.unwrap_or((time, time));
            self.times = Some((first.min(time), last.max(time)));
        }
        let index = self.timeline.observe(header);
        if index != NOWHERE && !header.invalid() {
            self.indices.insert(index..index.saturating_add(1));
        }
    }

    fn flow(&self) -> Flow {
        let ends: Vec<Range<i64>> = self.indices.iter().collect();
        let holes = ends.iter().zip(ends.iter().skip(1)).map(|(run, next)| Gap {
            first: run.end,
            count: next.start.abs_diff(run.end),
            cause: Cause::Missing,
        });
        let gaps: Vec<Gap> = holes.collect();
        // An invalid frame lies in a hole, and is one frame of it that is there.
        let doubtful = self.frames.saturating_sub(self.indices.total());
        let absent: u64 = gaps.iter().map(|gap| gap.count).sum();
        let missing = absent.saturating_sub(doubtful) + self.timeline.correction();
        let expected = self.frames + missing;
        let terms = Terms { expected, written: self.frames, missing, ..Terms::default() };
        Flow { station: self.station, thread: self.thread, terms, gaps, ..Flow::default() }
    }
}

fn tell_flows(account: &mut Account, flows: Vec<Walked>) {
    let times = || flows.iter().filter_map(|flow| flow.times);
    let earliest = times().map(|it| it.0).min();
    let latest = times().map(|it| it.1).max();
    for (edge, time) in [(&mut account.first, earliest), (&mut account.last, latest)] {
        if let Some(edge) = edge {
            edge.time = time.or(edge.time);
        }
    }
    // When each one's frames were received is not known, but how long after their own time the stream's were.
    let edge = |of: Option<Edge>, time: Tai| {
        let Edge { time: its, seen, .. } = of?;
        Some(Edge { index: 0, time: Some(time), seen: time.plus_ns(seen.since(its?)) })
    };
    let told = |walked: &Walked| {
        let first = walked.times.and_then(|(first, _)| edge(account.first, first));
        let last = walked.times.and_then(|(_, last)| edge(account.last, last));
        Flow { first, last, ..walked.flow() }
    };
    let mut flows: Vec<Flow> = flows.iter().map(told).collect();
    account.terms = Terms::default();
    flows.iter().for_each(|flow| account.terms.add(&flow.terms));
    if let [only] = flows.as_mut_slice() {
        std::mem::take(&mut only.gaps).into_iter().for_each(|gap| account.push_gap(gap));
    } else {
        for flow in &mut flows {
            account.gaps_unlisted += flow.gaps.len().saturating_sub(GAPS_LISTED) as u64;
            flow.gaps.truncate(GAPS_LISTED);
        }
        account.flows = flows;
    }
}
