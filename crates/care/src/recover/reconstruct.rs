//! Reconstructs the block sequence, the gaps and the account of a stream from its good blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use fullbore_core::account::{
    Account, CountedBy, Edge, Flow, GAPS_LISTED, Presence, Terms, Verdict,
};
use fullbore_core::clock_check::{ClockMonitor, ClockOffset};
use fullbore_core::endpoint::{Threads, UdpSource};
use fullbore_core::gap::{Cause, Gap, Ranges};
use fullbore_core::index::Block;
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{Fill, Format, Manifest, SourceStream, Stream, Summary};
use fullbore_formats::vdif::{Header, NOWHERE, Second, Timeline};
use fullbore_store::gaps::Gaps;
use fullbore_store::inventory::Inventory;
use fullbore_store::read::{ExtentReader, pool};
use fullbore_time::{Tai, frame_ns};

use super::rebuild_manifest::rate_of as rate_of_times;
use super::scan_chunks::{Chunk, MemberPart, ScannedStream, UnindexedBlock};
use super::times::Span;
use super::{Error, Recovered, copy, unchanged_account};

/// A reconstructed stream.
#[derive(Debug)]
pub struct Reconstructed {
    pub number: usize,
    pub geometry: Option<Geometry>,
    pub parts: Vec<MemberPart>,
    /// All blocks in order, each with its member.
    pub blocks: Vec<GoodBlock>,
    /// Gaps that are in no index.
    pub new_gaps: Vec<Gap>,
    pub account: Account,
    /// True if the stream lost nothing, so it keeps its former account.
    pub intact: bool,
    name: String,
    format: Format,
    cut: u64,
    damaged: u64,
    lost: u64,
}

/// A good block, which is kept.
#[derive(Clone, Debug)]
pub struct GoodBlock {
    /// The index of the part.
    pub part: usize,
    pub block: Block,
    /// True if it had no record.
    pub found: bool,
    /// True if the frame index is known by itself, and not only from the block before.
    pub in_place: bool,
}

/// Reconstructs a stream.
pub fn rebuild(
    inventory: &Inventory,
    number: usize,
    examined: ScannedStream,
    progress: &dyn Fn(u64),
) -> Result<Reconstructed, Error> {
    let ScannedStream { geometry, parts, cut, damaged } = examined;
    let mut told = inventory.manifest.streams[number].clone();
    learn_rate(&mut told, &parts);
    let told = &told;
    let (blocks, fill) = match geometry {
        Some(geometry) => order(told, &geometry, &parts),
        None => (Vec::new(), Vec::new()),
    };
    let source = source_of(inventory, number);
    let (new_gaps, gaps, lost) = gaps(told, &parts, &blocks, fill, source.as_ref());
    let mut reconstructed = Reconstructed {
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
    let kept = unchanged_account::account(inventory, &reconstructed);
    reconstructed.intact = kept.is_some();
    reconstructed.account = match kept {
        Some(account) => account,
        None => reconstructed.count(inventory, told, &gaps, progress)?,
    };
    Ok(reconstructed)
}

/// Finds a rate that was learnt while recording and is not in the manifest yet: from the times of blocks, or from the
/// frames of those without a record.
fn learn_rate(told: &mut Stream, parts: &[MemberPart]) {
    let by_place = told.fill != Fill::Omit;
    let count = threads_of(told);
    let Format::Frames { frames_per_second: rate @ None, derived, threads, .. } = &mut told.format
    else {
        return;
    };
    if threads.is_empty() || !by_place {
        return;
    }
    let kept = chunks(parts).flat_map(|(part, chunk)| chunk.kept.iter().map(move |it| (part, it)));
    let recorded = kept.filter(|(part, block)| !parts[*part].index.was_found(block));
    let timed: Vec<(i64, Tai)> =
        recorded.filter_map(|(_, block)| Some((block.first, block.time?))).collect();
    if let Some(near) = rate_of_times(&timed, count).or_else(|| rate_of_found(parts, count)) {
        (*rate, *derived) = (Some(near), true);
    }
}

/// Finds the rate from blocks without a record that follow one another within their chunks: frames of one thread, by
/// their number within the second, from one second to another. All of them must agree.
fn rate_of_found(parts: &[MemberPart], threads: i64) -> Option<u64> {
    let mut rate: Option<i64> = None;
    for (_, chunk) in chunks(parts) {
        let mut begin = 0;
        let mut timed: Vec<(i64, (u32, Second, u32, u16))> = Vec::new();
        for UnindexedBlock { salvage, .. } in &chunk.found {
            timed.extend(salvage.timed.map(|it| (begin + i64::from(it.0), it)));
            begin += i64::from(salvage.frames);
        }
        for ((at, (_, second, frame, thread)), (later, (_, next, its, other))) in
            timed.iter().zip(timed.iter().skip(1))
        {
            let seconds = next.0 - second.0;
            if thread != other || seconds <= 0 {
                continue;
            }
            let slots = (later - at) / threads - i64::from(*its) + i64::from(*frame);
            let near = (slots % seconds == 0).then_some(slots / seconds)?;
            if rate.is_some_and(|it| it != near) || near <= i64::from(*frame.max(its)) {
                return None;
            }
            rate = Some(near);
        }
    }
    u64::try_from(rate?).ok()
}

/// Returns all blocks in the order of the stream, with those without a record at their places, and the gaps that fill
/// among them shows.
fn order(told: &Stream, geometry: &Geometry, parts: &[MemberPart]) -> (Vec<GoodBlock>, Vec<Gap>) {
    let mut all: Vec<(GoodBlock, Option<&UnindexedBlock>)> = Vec::new();
    let mut taken: BTreeSet<u64> = BTreeSet::new();
    for (part, chunk) in chunks(parts) {
        for block in &chunk.kept {
            if taken.insert(block.sequence) {
                all.push((GoodBlock { part, block: *block, found: false, in_place: true }, None));
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
            // A number that is in use would merge two blocks.
            while !taken.insert(next) {
                next += 1;
            }
            let block = block_of(chunk.number, next, found);
            all.push((GoodBlock { part, block, found: true, in_place: false }, Some(found)));
            next += 1;
        }
    }
    all.sort_by_key(|(whole, _)| whole.block.sequence);
    let fill = give_indices(told, &mut all);
    (all.into_iter().map(|(whole, _)| whole).collect(), fill)
}

fn chunks(parts: &[MemberPart]) -> impl Iterator<Item = (usize, &Chunk)> {
    parts.iter().enumerate().flat_map(|(at, part)| part.chunks.iter().map(move |it| (at, it)))
}

/// The first sequence of each chunk with records, by chunk number, and the chunks that are the rest of a cut one.
struct Starts {
    starts: BTreeMap<u32, u64>,
    rests: BTreeSet<u32>,
    chunk_blocks: u64,
}

impl Starts {
    fn of(parts: &[MemberPart], geometry: &Geometry) -> Self {
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
            // The rest of a cut chunk continues under the next free number: it begins before the chunks below it.
            if start < highest {
                rests.insert(number);
            } else {
                highest = start;
                starts.insert(number, start);
            }
        }
        Self { starts, rests, chunk_blocks: geometry.chunk_blocks.into() }
    }

    /// Returns the rank of a chunk among those that are not the rest of another.
    fn place(&self, number: u32) -> u64 {
        u64::from(number).saturating_sub(self.rests.range(..number).count() as u64)
    }

    /// Returns the first sequence of a chunk without records: full chunks away from the nearest one below, or above.
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

/// Blocks with a record, in a stream whose places follow from the time in the frames.
struct Recorded<'a> {
    places: Option<Places<'a>>,
    /// The sequence of each, by the index of its first frame.
    sequences: BTreeMap<i64, u64>,
}

impl<'a> Recorded<'a> {
    fn of(told: &'a Stream, all: &[(GoodBlock, Option<&UnindexedBlock>)]) -> Self {
        let blocks = all.iter().map(|(whole, _)| (whole.block.first, whole.block.sequence));
        Self { places: Places::of(told, all), sequences: blocks.collect() }
    }

    /// Returns the first sequence of a chunk without records: as computed, unless the time in its frames is between
    /// those of other blocks. Then the chunk is the rest of a cut one, whose number does not give its place.
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

fn block_of(chunk: u32, sequence: u64, found: &UnindexedBlock) -> Block {
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

/// Gives blocks without a record the index of their first frame: by the time in the frames if places follow from it,
/// else from the block before. Returns the gaps that their fill shows.
fn give_indices(told: &Stream, all: &mut [(GoodBlock, Option<&UnindexedBlock>)]) -> Vec<Gap> {
    let places = Places::of(told, all);
    let mut fill = Vec::new();
    let first_seen = all.iter().find(|(whole, _)| !whole.found).map(|(whole, _)| whole.block.seen);
    let (mut end, mut seen) = (0, first_seen);
    for (whole, found) in all.iter_mut() {
        let block = &mut whole.block;
        if let Some(found) = found {
            let timed = found.salvage.timed;
            let place = places.as_ref().zip(timed).and_then(|(places, timed)| places.first(timed));
            whole.in_place = place.is_some();
            block.first = place.unwrap_or(end);
            block.time = timed.and_then(|timed| time_of_first(told, block, timed));
            // The arrival time is not known from anything else.
            let sent = timed.map(|(_, second, ..)| block.time.unwrap_or(second.start()));
            block.seen = seen.or(sent).unwrap_or(Tai(0));
            fill.extend(found.salvage.fill.iter().map(|run| Gap {
                first: block.first + i64::from(run.start),
                count: u64::from(run.end - run.start),
                cause: Cause::Missing,
            }));
        }
        end = block.first.saturating_add(block.frames.into());
        seen = first_seen.map(|_| block.seen);
    }
    count_between(all);
    fill
}

/// If lengths vary, a block without a record does not show how many frames begin in it; the next block with a record
/// shows how many began before it. They are all counted in the first block of a run.
fn count_between(all: &mut [(GoodBlock, Option<&UnindexedBlock>)]) {
    let unknown = |whole: &GoodBlock| whole.found && whole.block.frames == 0;
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
        Format::Frames { frames_per_second, .. } => frames_per_second.filter(|rate| *rate > 0),
        Format::Panda { .. } | Format::Packets { .. } | Format::Raw => None,
    }
}

/// Returns the time of a block's first frame, from that of its first real one. Without the rate only the second is
/// known, which is not exact enough to derive a rate or a duration from.
fn time_of_first(told: &Stream, block: &Block, timed: (u32, Second, u32, u16)) -> Option<Tai> {
    let (number, second, frame, _) = timed;
    let rate = rate_of(told)?;
    let time = second.start().plus_ns(frame_ns(frame.into(), rate));
    let threads = threads_of(told);
    let before =
        (block.first + i64::from(number)).div_euclid(threads) - block.first.div_euclid(threads);
    Some(time.plus_ns(-frame_ns(before.unsigned_abs(), rate)))
}

fn threads_of(told: &Stream) -> i64 {
    match &told.format {
        Format::Frames { threads, .. } => threads.len().max(1) as i64,
        Format::Panda { .. } | Format::Packets { .. } | Format::Raw => 1,
    }
}

/// The conversion from the time of a frame to its index.
struct Places<'a> {
    threads: &'a [u16],
    rate: i64,
    /// Frames of a thread since 1970, minus the place.
    offset: i64,
}

impl<'a> Places<'a> {
    /// Derives the offset from a recorded block that has a time; without one, the first second found begins at 0.
    fn of(told: &'a Stream, all: &[(GoodBlock, Option<&UnindexedBlock>)]) -> Option<Self> {
        let Format::Frames { threads, .. } = &told.format else { return None };
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

    /// Returns the index of a block's first frame, from that of its first real one.
    fn first(&self, timed: (u32, Second, u32, u16)) -> Option<i64> {
        let (number, second, frame, thread) = timed;
        let rank = self.threads.iter().position(|&it| it == thread)? as i64;
        let time = second.0.checked_mul(self.rate)?.checked_add(frame.into())?;
        let slot = time.checked_sub(self.offset)?;
        slot.checked_mul(self.threads.len() as i64)?.checked_add(rank - i64::from(number))
    }
}

const NS: i64 = 1_000_000_000;

/// Returns the gaps that are in no record, all gaps, and the number of blocks that must have existed and cannot be
/// found.
fn gaps(
    told: &Stream,
    parts: &[MemberPart],
    blocks: &[GoodBlock],
    fill: Vec<Gap>,
    source: Option<&SourceStream>,
) -> (Vec<Gap>, Gaps, u64) {
    let recorded: Vec<Gap> = parts.iter().flat_map(MemberPart::gaps).collect();
    let known = Gaps::paint(recorded.iter().chain(&fill).copied());
    let mut new = fill;
    let mut lost = 0;
    let lost_with_block = source.map_or(Cause::Overrun, |_| Cause::NotTransferred);
    let mut tell = |frames: Range<i64>, cause| {
        for hole in known.uncovered(frames) {
            let count = hole.end.abs_diff(hole.start);
            new.push(Gap { first: hole.start, count, cause });
        }
    };
    for (whole, next) in blocks.iter().zip(blocks.iter().skip(1)) {
        let end = whole.block.first.saturating_add(whole.block.frames.into());
        let unseen = next.block.sequence - whole.block.sequence - 1;
        // A numbered block was full: its frames had been received, by the source if this is a copy.
        let cause = if unseen > 0 { lost_with_block } else { Cause::Missing };
        if end < next.block.first {
            let explained = known.uncovered(end..next.block.first).is_empty();
            lost += if explained { 0 } else { unseen };
            tell(end..next.block.first, cause);
        } else if !(next.in_place && next.block.frames > 0 && told.fill != Fill::Omit) {
            // If the next frame has a known place, and no frame is missing before it, no block existed in between:
            // sequences of blocks without a record are computed, and may be too high.
            lost += unseen;
        }
    }
    if told.fill != Fill::Omit
        && let (Some(first), Some(last)) = (blocks.first(), blocks.last())
    {
        // A gap record is written with a later block, so the data in between existed once.
        let end = last.block.first.saturating_add(last.block.frames.into());
        tell(end..known.end().unwrap_or(end).max(end), lost_with_block);
        let start = known.start().unwrap_or(first.block.first);
        tell(start.min(first.block.first)..first.block.first, lost_with_block);
    }
    if let Some(source) = source {
        let so_far = Gaps::paint(known.iter().chain(new.iter().copied()));
        new.extend(copy::ends(told, source, blocks, &so_far));
    }
    let all = Gaps::paint(recorded.into_iter().chain(new.iter().copied()));
    (new, all, lost)
}

impl Reconstructed {
    /// Returns true if every numbered block exists, and every frame between the first and the last is accounted for.
    pub fn lacks_nothing(&self) -> bool {
        self.cut == 0 && self.lost == 0 && self.new_gaps.is_empty()
    }

    /// Returns the result for the user.
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
            in_place: chunks().filter(unfinished).count() as u64,
            superseded: chunks().filter(|(_, chunk)| chunk.superseded).count() as u64,
            terms: self.account.terms,
            verdict: Some(self.account.verdict),
            intact: self.intact,
            tail: 0,
            tails_ignored: 0,
        }
    }

    /// Writes the new state of the stream into the manifest.
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

    /// Returns the arrival times of the first and the last block that have a record from the recorder.
    fn received(&self) -> Option<(Tai, Tai)> {
        let seen = || self.blocks.iter().filter(|it| !self.was_found(it)).map(|it| it.block.seen);
        seen().min().zip(seen().max())
    }

    /// Returns all sources of the recording times.
    pub fn span(&self) -> Span {
        let edges = (self.account.first, self.account.last);
        let kept = Some(edges).filter(|_| self.intact && self.account.unverified == 0);
        let received = kept.and_then(|(first, last)| Some((first?.seen, last?.seen)));
        let received = received.or_else(|| self.received());
        let both = edges.0.zip(edges.1);
        // Without a rate, frames tell their second alone. It stands for when they came if nothing else tells.
        let seconds =
            both.filter(|_| received.is_none()).map(|(first, last)| (first.seen, last.seen));
        let frames = both.and_then(|(first, last)| first.time.zip(last.time)).or(seconds);
        Span { received, frames }
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
        let mut account = Account::new(told.counted_by());
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
        let source = source_of(inventory, self.number);
        match &told.format {
            // The threads of the blocks that have not arrived are not known.
            Format::Frames { .. } if by_arrival && source.is_some() => {
                tell_gaps(&mut account, gaps)
            }
            Format::Frames { .. } if by_arrival && frame_bytes > 0 => {
                let mut flows = self.flows(inventory, told, progress)?;
                add_absent(&mut flows, &told.source);
                tell_flows(&mut account, flows);
                account.name_absent_threads();
            }
            // Only the frames of lost blocks are known to have existed: nothing else was counted.
            _ => tell_gaps(&mut account, gaps),
        }
        if let Some(source) = &source
            && copy::tell(&mut account, source, self.blocks.len() as u64, self.bytes())
        {
            return Ok(account);
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

    /// Returns the offset between the time in the frames and the host's clock, by the records of blocks: the first
    /// frame of a block cannot arrive before it was sent. This is coarser than the recorder's own check, which ran a
    /// hundred times a second.
    fn clock(&self) -> Option<ClockOffset> {
        let mut watch = ClockMonitor::default();
        for block in self.blocks.iter().filter(|it| !self.was_found(it)).map(|it| it.block) {
            if let Some(time) = block.time.filter(|_| watch.wants(block.seen)) {
                watch.look(time, block.seen);
            }
        }
        watch.clock_offset()
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
        let timed = self.blocks.iter().find_map(|it| Some((it.block.first, it.block.time?)));
        let time = |index: i64| {
            let rate = rate_of(told).filter(|_| told.fill != Fill::Omit)?;
            let threads = threads_of(told);
            let (from, time) = timed?;
            let slots = index.div_euclid(threads) - from.div_euclid(threads);
            let ns = frame_ns(slots.unsigned_abs(), rate);
            Some(time.plus_ns(if slots < 0 { -ns } else { ns }))
        };
        let first_time = time(low).or(first.block.time);
        account.first = Some(Edge { index: low, time: first_time, seen: first.block.seen });
        account.last = Some(Edge {
            index: high - 1,
            time: time(high - 1).or(last.block.time),
            seen: last.block.seen,
        });
    }

    /// Counts each thread by the time of its frames, and reads all of them.
    fn flows(
        &self,
        inventory: &Inventory,
        told: &Stream,
        progress: &dyn Fn(u64),
    ) -> Result<Vec<Walked>, Error> {
        let geometry = self.geometry.expect("a stream with blocks has a geometry");
        let mut memory = pool(1, geometry.block_bytes as usize)?.take().expect("it has a block");
        let mut reader = ExtentReader::default();
        let Some(codec) = told.format.codec(inventory.manifest.armed) else {
            return Ok(Vec::new());
        };
        let mut flows: Vec<Walked> = Vec::new();
        let mut read = 0;
        for whole in &self.blocks {
            let Some(path) = self.path_of(inventory, whole) else { continue };
            let wanted = whole.block.bytes as usize;
            let buffer = &mut memory[..fullbore_store::read::aligned(wanted)];
            let got = reader
                .read_at(&path, whole.block.offset, buffer)
                .map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
            read += got as u64;
            progress(read);
            let bytes = &memory[..got.min(wanted)];
            for frame in bytes.chunks_exact(geometry.frame_bytes as usize) {
                let Some(header) = codec.read(frame) else { continue };
                Walked::of(&mut flows, &header, rate_of(told)).add(&header, rate_of(told));
            }
        }
        Ok(flows)
    }

    /// Returns true if a block has no record from the recorder itself, now or at an earlier recovery.
    fn was_found(&self, whole: &GoodBlock) -> bool {
        whole.found || self.parts[whole.part].index.was_found(&whole.block)
    }

    fn path_of(&self, inventory: &Inventory, whole: &GoodBlock) -> Option<Arc<std::path::PathBuf>> {
        let holding = &inventory.holdings[self.parts[whole.part].holding];
        holding.chunk(whole.block.chunk).map(|file| Arc::new(file.path.clone()))
    }
}

/// The stream that an incomplete copy is made of; none if this is no incomplete copy.
fn source_of(inventory: &Inventory, number: usize) -> Option<SourceStream> {
    let copied = inventory.manifest.copied.as_ref().filter(|it| it.completed.is_none())?;
    let unknown = SourceStream { blocks: 0, bytes: 0, account: None };
    Some(copied.source.get(number).cloned().unwrap_or(unknown))
}

fn tell_gaps(account: &mut Account, gaps: &Gaps) {
    let terms = &mut account.terms;
    terms.missing = gaps.total(Cause::Missing);
    terms.overrun = gaps.total(Cause::Overrun);
    terms.damaged = gaps.total(Cause::Damaged);
    terms.late = gaps.total(Cause::Late);
    terms.not_transferred = gaps.total(Cause::NotTransferred);
    terms.expected = terms.sum();
    gaps.iter().for_each(|gap| account.push_gap(gap));
}

/// A thread of a sequential stream.
struct Walked {
    station: u16,
    thread: u16,
    timeline: Timeline,
    indices: Ranges,
    frames: u64,
    /// The earliest and the latest time in a valid frame.
    times: Option<(Tai, Tai)>,
}

impl Walked {
    fn new(station: u16, thread: u16, rate: Option<u64>) -> Self {
        let (timeline, indices) = (Timeline::new(rate), Ranges::default());
        Self { station, thread, timeline, indices, frames: 0, times: None }
    }

    /// Returns the flow of a frame.
    fn of<'a>(flows: &'a mut Vec<Self>, header: &Header, rate: Option<u64>) -> &'a mut Self {
        let key = (header.station(), header.thread());
        let known = flows.iter().position(|flow| (flow.station, flow.thread) == key);
        let at = known.unwrap_or_else(|| {
            flows.push(Self::new(key.0, key.1, rate));
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
        // An invalid frame is in a gap, and is one frame of it that exists.
        let doubtful = self.frames.saturating_sub(self.indices.total());
        let absent: u64 = gaps.iter().map(|gap| gap.count).sum();
        let missing = absent.saturating_sub(doubtful) + self.timeline.correction();
        let expected = self.frames + missing;
        let terms = Terms { expected, written: self.frames, missing, ..Terms::default() };
        Flow { station: self.station, thread: self.thread, terms, gaps, ..Flow::default() }
    }
}

/// Adds a flow for each thread that the source listed, even if no frame of it was stored.
fn add_absent(flows: &mut Vec<Walked>, source: &str) {
    let sources = UdpSource::parse(source).unwrap_or_default();
    let Some(UdpSource { threads: Threads::Listed(threads), .. }) = sources.first() else { return };
    let Some(station) = flows.first().map(|flow| flow.station) else { return };
    for thread in threads {
        if !flows.iter().any(|flow| flow.thread == *thread) {
            flows.push(Walked::new(station, *thread, None));
        }
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
    // The arrival of each flow's frames is not known, but the delay between the frames' own time and their arrival is.
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
