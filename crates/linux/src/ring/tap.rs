//! Taps: readers of the newest written block of each stream. No capture thread waits for one.
//!
//! ```text
//! capture thread: a written block comes back ──► TapFeed::written ──► the newest block of its stream
//!                 the block kept before goes to the pool                      │ copied
//! any thread:                                           Tap::next ◄───────────┘
//! ```
//!
//! A feed keeps one block of each stream, and only while there are taps. While a tap that reads *every* block is open
//! ([`Taps::open_for_every`]), it keeps up to [`MOST_KEPT`] of them until that tap has copied them. The capture thread
//! never waits: locks are held for the time of a list operation, and if one is taken, the new block goes to the pool, and
//! the taps have skipped it. If no block is free, the capture thread takes the kept blocks back. A tap that hangs holds no
//! block, because it has a copy. While a tap copies (a millisecond for 4 MiB), the pool has one block less.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::{Duration, Instant};

use fullbore_core::manifest::Format;
use fullbore_core::name::{Name, ScanName};
use fullbore_formats::samples::SampleLayout;

use super::{Block, StreamRef};

/// The most blocks of a stream that are kept for a tap that reads every block: what writers complete at once.
pub const MOST_KEPT: usize = 8;

/// Attempts to take a lock that is held only for the time of a list operation.
const ATTEMPTS: usize = 64;

/// The taps of a recording. Clones are handles of the same taps.
#[derive(Clone, Debug, Default)]
pub struct Taps(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// The number of open taps.
    taps: AtomicUsize,
    /// Those among them that read every block.
    of_every: AtomicUsize,
    slots: Mutex<Vec<Arc<Slot>>>,
    /// The streams as the recorder knows them.
    streams: Mutex<BTreeMap<u16, Arc<TapStream>>>,
    /// Threads that wait for a block.
    waiting: Mutex<Vec<Thread>>,
}

/// A stream, as its first frames have shown it.
#[derive(Clone, Debug)]
pub struct TapStream {
    /// The scan.
    pub scan: ScanName,
    /// The name of the stream.
    pub name: Name,
    /// The format of its frames.
    pub format: Format,
    /// Its samples, as its endpoint describes them.
    pub samples: Option<SampleLayout>,
}

/// The newest blocks of a stream.
#[derive(Debug)]
struct Slot {
    stream: u16,
    /// The oldest first.
    kept: Mutex<VecDeque<Arc<Kept>>>,
    /// The number of written blocks of the stream.
    written: AtomicU64,
}

#[derive(Debug)]
struct Kept {
    block: Block,
    stream_ref: Arc<StreamRef>,
    bytes: u32,
    /// Its number among the written blocks, from 1.
    number: u64,
    /// Taps of every block that have not copied it yet.
    wanted: AtomicUsize,
}

impl Taps {
    /// Opens a tap on every stream, which reads the newest blocks.
    pub fn open(&self) -> Tap {
        self.open_as(false)
    }

    /// Opens a tap on every stream, which reads one block after the other, and skips only those that are taken back
    /// before it comes to them.
    pub fn open_for_every(&self) -> Tap {
        self.0.of_every.fetch_add(1, Ordering::Relaxed);
        self.open_as(true)
    }

    fn open_as(&self, every: bool) -> Tap {
        self.0.taps.fetch_add(1, Ordering::Relaxed);
        // Blocks written before do not count as skipped.
        let written = |slot: &Arc<Slot>| slot.written.load(Ordering::Relaxed);
        let seen = locked(&self.0.slots).iter().map(written).collect();
        Tap { taps: self.clone(), every, seen, turn: 0, only: None, most_bytes: u32::MAX }
    }

    /// Describes a stream, for the blocks that follow.
    pub fn describe(&self, number: u16, stream: TapStream) {
        locked(&self.0.streams).insert(number, Arc::new(stream));
    }

    /// The feed of a capture thread, or of one of its pools.
    pub fn feed(&self) -> TapFeed {
        TapFeed { taps: self.clone(), slots: Vec::new(), leaving: Vec::new() }
    }

    /// True if a tap is open.
    pub fn are_open(&self) -> bool {
        self.0.taps.load(Ordering::Relaxed) > 0
    }

    /// Wakes waiting taps. If one of them is just about to wait, it finds the block itself or at the next wake-up.
    fn wake(&self) {
        if let Ok(mut waiting) = self.0.waiting.try_lock() {
            waiting.drain(..).for_each(|thread| thread.unpark());
        }
    }
}

/// The capture thread's side of taps. It never waits.
#[derive(Debug)]
pub struct TapFeed {
    taps: Taps,
    slots: Vec<Arc<Slot>>,
    /// Blocks that are no longer kept, as soon as no tap copies them.
    leaving: Vec<Arc<Kept>>,
}

impl TapFeed {
    /// Keeps a written block if there are taps, and gives every block that is free now to `free`.
    pub fn written(
        &mut self,
        block: Block,
        stream_ref: &Arc<StreamRef>,
        bytes: u32,
        mut free: impl FnMut(Block),
    ) {
        if self.taps.are_open() {
            self.keep(block, stream_ref, bytes).into_iter().for_each(&mut free);
            std::iter::from_fn(|| self.left()).for_each(free);
        } else {
            std::iter::from_fn(|| self.take_back()).for_each(&mut free);
            free(block);
        }
    }

    /// Keeps a block as the newest of its stream. Returns it if that is not possible.
    fn keep(&mut self, block: Block, stream_ref: &Arc<StreamRef>, bytes: u32) -> Option<Block> {
        let Some(slot) = self.slot_of(stream_ref.number) else { return Some(block) };
        let number = slot.written.fetch_add(1, Ordering::Relaxed) + 1;
        let free = match soon(&slot.kept) {
            Some(mut kept) => {
                let wanted = self.taps.0.of_every.load(Ordering::Relaxed);
                // With taps of the newest block alone, the one before is of no use.
                let most = if wanted > 0 { MOST_KEPT } else { 1 };
                let (stream_ref, wanted) = (stream_ref.clone(), AtomicUsize::new(wanted));
                kept.push_back(Arc::new(Kept { block, stream_ref, bytes, number, wanted }));
                let is_done = |kept: &Arc<Kept>| kept.wanted.load(Ordering::Acquire) == 0;
                while kept.len() > most || (kept.len() > 1 && is_done(&kept[0])) {
                    self.leaving.extend(kept.pop_front());
                }
                None
            }
            None => Some(block),
        };
        self.taps.wake();
        free
    }

    /// Takes back a kept block, because no other is free or the taps are closed.
    pub fn take_back(&mut self) -> Option<Block> {
        loop {
            if let Some(block) = self.left() {
                return Some(block);
            }
            let oldest = |slot: &Arc<Slot>| soon(&slot.kept)?.pop_front();
            let kept = self.slots.iter().find_map(oldest)?;
            self.leaving.push(kept);
        }
    }

    /// A block that is no longer kept, and that no tap copies.
    fn left(&mut self) -> Option<Block> {
        // Nobody but this thread hands out more references to it.
        let place = self.leaving.iter().position(|kept| Arc::strong_count(kept) == 1)?;
        Arc::into_inner(self.leaving.swap_remove(place)).map(|kept| kept.block)
    }

    /// The slot of a stream. `None` if it is new and a tap reads the list at this moment.
    fn slot_of(&mut self, stream: u16) -> Option<Arc<Slot>> {
        if let Some(slot) = self.slots.iter().find(|slot| slot.stream == stream) {
            return Some(slot.clone());
        }
        let mut all = self.taps.0.slots.try_lock().ok()?;
        let slot = Arc::new(Slot { stream, kept: Mutex::default(), written: AtomicU64::default() });
        all.push(slot.clone());
        self.slots.push(slot.clone());
        Some(slot)
    }
}

/// A reader of the newest blocks.
#[derive(Debug)]
pub struct Tap {
    taps: Taps,
    /// True if it reads one block after the other instead of the newest.
    every: bool,
    /// For each slot, the number of the last block that was copied.
    seen: Vec<u64>,
    /// The slot that is looked at first, so that each stream has its turn.
    turn: usize,
    /// The only stream that is read, if not all are.
    only: Option<Name>,
    /// The most bytes of a block that are copied.
    most_bytes: u32,
}

/// A copy of a written block.
#[derive(Clone, Debug)]
pub struct TapBlock {
    /// The identity of the stream, and the division of its bytes.
    pub stream_ref: Arc<StreamRef>,
    /// The stream; `None` if the recorder has not described it yet.
    pub stream: Option<Arc<TapStream>>,
    /// The number of the block among the written blocks of the stream, from 1.
    pub number: u64,
    /// Written blocks of the stream that this tap has skipped since its last one.
    pub skipped: u64,
    /// The bytes, or the first of them ([`Tap::at_most`]): whole frames, if the frames have one length.
    pub bytes: Vec<u8>,
}

impl Tap {
    /// Returns the newest block of the next stream that has a new one, or `None` after this time.
    pub fn next(&mut self, within: Duration) -> Option<TapBlock> {
        let until = Instant::now() + within;
        loop {
            self.announce();
            if let Some(block) = self.copy_next() {
                return Some(block);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            std::thread::park_timeout(left);
        }
    }

    /// Adds this thread to those that the next block wakes.
    fn announce(&self) {
        let (mut waiting, this) = (locked(&self.taps.0.waiting), std::thread::current());
        if waiting.iter().all(|thread| thread.id() != this.id()) {
            waiting.push(this);
        }
    }

    fn copy_next(&mut self) -> Option<TapBlock> {
        let slots = locked(&self.taps.0.slots).clone();
        self.seen.resize(slots.len(), 0);
        let places = (0..slots.len()).map(|place| (self.turn + place) % slots.len().max(1));
        for place in places {
            let stream = locked(&self.taps.0.streams).get(&slots[place].stream).cloned();
            let is_wanted =
                |only: &Name| stream.as_ref().is_some_and(|stream| stream.name == *only);
            if !self.only.as_ref().is_none_or(is_wanted) {
                continue;
            }
            let Some(kept) = self.unseen(&slots[place], self.seen[place]) else { continue };
            let before = std::mem::replace(&mut self.seen[place], kept.number);
            self.turn = place + 1;
            let block = TapBlock {
                stream_ref: kept.stream_ref.clone(),
                stream,
                number: kept.number,
                skipped: kept.number - before - 1,
                bytes: kept.block[..self.copied(&kept) as usize].to_vec(),
            };
            if self.every {
                let _ = kept
                    .wanted
                    .fetch_update(Ordering::AcqRel, Ordering::Acquire, |it| it.checked_sub(1));
            }
            return Some(block);
        }
        None
    }
}

impl Tap {
    /// The same tap, which reads one stream alone: the one of this name, once the recorder has described it.
    pub fn only(mut self, stream: Name) -> Self {
        self.only = Some(stream);
        self
    }

    /// From now on, copies at most so many bytes from the start of each block, and at least one frame. A block is held
    /// only while it is copied, so a short copy holds it for a short time.
    pub fn at_most(&mut self, bytes: u32) {
        self.most_bytes = bytes;
    }

    /// The bytes of a block that are copied.
    fn copied(&self, kept: &Kept) -> u32 {
        let frame = kept.stream_ref.geometry.frame_bytes.max(1);
        let whole = (self.most_bytes / frame).max(1).saturating_mul(frame);
        kept.bytes.min(whole)
    }

    /// The block that is to be read next of those after this number.
    fn unseen(&self, slot: &Slot, seen: u64) -> Option<Arc<Kept>> {
        let kept = locked(&slot.kept);
        let mut unseen = kept.iter().filter(|kept| kept.number > seen);
        if self.every { unseen.next() } else { unseen.next_back() }.cloned()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if self.every {
            self.taps.0.of_every.fetch_sub(1, Ordering::Relaxed);
        }
        self.taps.0.taps.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a lock that is held only for the time of a list operation, without waiting.
fn soon<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    (0..ATTEMPTS).find_map(|_| {
        std::hint::spin_loop();
        mutex.try_lock().ok()
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use fullbore_core::layout::Geometry;
    use uuid::Uuid;

    use super::*;
    use crate::ring::Pool;
    use crate::sys::memory::Region;

    fn stream(number: u16) -> Arc<StreamRef> {
        let geometry = Geometry::of_frames(64, 4096, 1 << 20).unwrap();
        Arc::new(StreamRef { scan: Uuid::nil(), number, directory: String::new(), geometry })
    }

    fn pool(taps: &Taps) -> Pool {
        let region = Arc::new(Region::new(1 << 20).unwrap());
        let mut pool = Pool::new(region, 256 << 10, 0);
        pool.feed(taps);
        pool
    }

    /// A block whose first byte is `mark` is filled and written.
    fn write(pool: &mut Pool, stream: &Arc<StreamRef>, mark: u8) {
        let mut block = pool.take().expect("a block is free");
        block[0] = mark;
        pool.put_written(block, stream, 4096);
    }

    const AT_ONCE: Duration = Duration::ZERO;

    #[test]
    fn a_tap_gets_the_newest_block_of_each_stream_and_counts_what_it_skips() {
        let taps = Taps::default();
        let (mut pool, one, two) = (pool(&taps), stream(1), stream(2));
        write(&mut pool, &one, 1);
        let mut tap = taps.open();
        assert!(tap.next(AT_ONCE).is_none(), "it was written before the tap was opened");
        (2..=4).for_each(|mark| write(&mut pool, &one, mark));
        write(&mut pool, &two, 9);
        let mut came: Vec<_> = std::iter::from_fn(|| tap.next(AT_ONCE)).collect();
        came.sort_by_key(|block| block.stream_ref.number);
        let told = came.iter().map(|it| (it.stream_ref.number, it.bytes[0], it.skipped));
        assert_eq!(told.collect::<Vec<_>>(), [(1, 4, 2), (2, 9, 0)]);
        assert_eq!(came[0].bytes.len(), 4096);
        write(&mut pool, &one, 5);
        assert_eq!(tap.next(AT_ONCE).map(|block| (block.bytes[0], block.skipped)), Some((5, 0)));
    }

    #[test]
    fn a_kept_block_is_taken_back_when_no_other_is_free_and_when_all_taps_are_closed() {
        let taps = Taps::default();
        let (mut pool, one) = (pool(&taps), stream(1));
        let tap = taps.open();
        write(&mut pool, &one, 1);
        assert_eq!(pool.free(), pool.blocks() - 1, "one is kept");
        let all: Vec<Block> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all.len(), pool.blocks(), "the tap has none");
        all.into_iter().for_each(|block| pool.put(block));
        write(&mut pool, &one, 2);
        drop(tap);
        write(&mut pool, &one, 3);
        assert_eq!(pool.free(), pool.blocks());
    }

    #[test]
    fn a_tap_that_hangs_in_the_middle_of_a_copy_costs_no_block_but_the_one_it_copies() {
        let taps = Taps::default();
        let (mut pool, one) = (pool(&taps), stream(1));
        let _tap = taps.open();
        write(&mut pool, &one, 1);
        let slot = taps.0.slots.lock().unwrap()[0].clone();
        let copying = slot.kept.lock().unwrap()[0].clone();
        for mark in 0..100 {
            write(&mut pool, &one, mark);
        }
        assert_eq!(pool.free(), pool.blocks() - 2, "one is copied, and one is kept");
        drop(copying);
        write(&mut pool, &one, 7);
        assert_eq!(pool.free(), pool.blocks() - 1);
        let listing = slot.kept.lock().unwrap();
        write(&mut pool, &one, 8);
        assert_eq!(pool.free(), pool.blocks() - 1, "the new one went to the pool");
        drop(listing);
    }

    #[test]
    fn a_tap_of_every_block_misses_none_of_those_that_come_back_together() {
        let region = Arc::new(Region::new(16 << 12).unwrap());
        let (taps, one) = (Taps::default(), stream(1));
        let mut pool = Pool::new(region, 4096, 0);
        pool.feed(&taps);
        let (mut every, mut newest) = (taps.open_for_every(), taps.open());
        let marks = |tap: &mut Tap| {
            let came: Vec<_> = std::iter::from_fn(|| tap.next(AT_ONCE)).collect();
            let skipped: u64 = came.iter().map(|it| it.skipped).sum();
            (came.iter().map(|it| it.bytes[0]).collect::<Vec<_>>(), skipped)
        };
        (1..=5).for_each(|mark| write(&mut pool, &one, mark));
        assert_eq!(marks(&mut every), (vec![1, 2, 3, 4, 5], 0));
        assert_eq!(marks(&mut newest), (vec![5], 4));
        write(&mut pool, &one, 6);
        assert_eq!(pool.free(), pool.blocks() - 1, "those that were copied are free");
        (7..=20).for_each(|mark| write(&mut pool, &one, mark));
        assert_eq!(pool.free(), pool.blocks() - MOST_KEPT);
        assert_eq!(marks(&mut every), ((13..=20).collect(), 7), "the oldest were given up");
        (21..=24).for_each(|mark| write(&mut pool, &one, mark));
        let all: Vec<Block> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(all.len(), pool.blocks(), "the taps have none");
        assert_eq!(marks(&mut every), (vec![], 0));
    }

    #[test]
    fn a_tap_of_one_stream_copies_whole_frames_from_the_start_of_its_blocks_alone() {
        let taps = Taps::default();
        let (mut pool, one, two) = (pool(&taps), stream(1), stream(2));
        let mut tap = taps.open().only("two".parse().unwrap());
        write(&mut pool, &one, 1);
        write(&mut pool, &two, 2);
        assert!(tap.next(AT_ONCE).is_none(), "neither is described");
        for (number, name) in [(1, "one"), (2, "two")] {
            let (scan, name) = ("s_a".parse().unwrap(), name.parse().unwrap());
            taps.describe(number, TapStream { scan, name, format: Format::Raw, samples: None });
        }
        for (most, copied) in [(u32::MAX, 4096), (200, 192), (1, 64)] {
            tap.at_most(most);
            write(&mut pool, &two, 3);
            write(&mut pool, &one, 1);
            let came: Vec<_> = std::iter::from_fn(|| tap.next(AT_ONCE)).collect();
            let told = came.iter().map(|it| (it.stream_ref.number, it.bytes[0], it.bytes.len()));
            assert_eq!(told.collect::<Vec<_>>(), [(2, 3, copied)]);
        }
    }

    #[test]
    fn a_waiting_tap_is_woken() {
        let taps = Taps::default();
        let mut tap = taps.open();
        let waiter = std::thread::spawn(move || tap.next(Duration::from_secs(60)));
        while taps.0.waiting.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        let (mut pool, one) = (pool(&taps), stream(1));
        let begun = Instant::now();
        while !waiter.is_finished() {
            write(&mut pool, &one, 1);
        }
        assert_eq!(waiter.join().unwrap().map(|block| block.bytes[0]), Some(1));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
