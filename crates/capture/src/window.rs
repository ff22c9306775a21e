//! The window of a stream: it restores order within a few pages and counts absent frames.
//!
//! Indices are divided into pages, one for each block. A page stays open while its frames may still arrive. When the
//! highest frame seen is `depth` pages ahead, the page is closed: its absent frames are certain, and it leaves with its
//! block:
//!
//! ```text
//!            closed          │        open (depth = 2)       │ ahead
//!   … ██████████ ██░███████ │ ███████░██ ███▒██             │
//!                            │                 └ next         │
//!   late, duplicate  ◄───────┼──────── placed ───────────────►┼── a jump? wait for more of them
//! ```
//!
//! The environment determines the order of arrivals and the availability of memory. The window never waits, allocates
//! no blocks and reads no clock. Every index from the first to the last seen is in exactly one term of the balance.

use std::collections::VecDeque;

use fullbore_core::account::Terms;
use fullbore_core::gap::{Cause, Gap, Ranges};

/// The number of consecutive datagrams that must agree on a distant index before it is accepted.
pub const BELIEVED_AFTER: usize = 8;

/// The largest number of runs of absent frames that are stored one by one, per cause.
const RUNS_REMEMBERED: usize = 1 << 20;

/// The state of a slot in an open page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Absent,
    Present,
    Overrun,
    Damaged,
}

/// The classification of an arriving frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A frame with a position: a slot of a page's block.
    Placed {
        /// Number of the page.
        page: i64,
        /// The slot.
        slot: u32,
    },
    /// A frame with a position but without memory: counted as overrun.
    NoBlock,
    /// A damaged frame with a known position.
    Damaged,
    /// A damaged frame whose position is already taken.
    Occupied,
    /// The frame was already present.
    Duplicate,
    /// Its page was closed without it.
    Late,
    /// Its index is before the scan: an earlier scan has counted it.
    BeforeScan,
    /// The frame is so far from the last frames that it is accepted only after more frames of the same kind.
    OutOfWindow,
}

/// A closed page with its block.
#[derive(Debug)]
pub struct ClosedPage<B> {
    /// Number of the page; pages without frames are skipped.
    pub page: i64,
    /// Index of its first slot.
    pub first: i64,
    /// Number of slots, fewer than a page's only at the end.
    pub slots: u32,
    /// Frames present.
    pub present: u32,
    /// The memory, if it had any.
    pub block: Option<B>,
    /// Its scan: the number of cuts before it.
    pub scan: u32,
    /// Runs of absent slots, with causes.
    pub gaps: Vec<Gap>,
}

/// An open page.
pub struct OpenPage<'a, B> {
    /// Number of the page.
    pub page: i64,
    /// Index of its first slot.
    pub first: i64,
    /// Frames present.
    pub present: u32,
    /// The memory, if it has any.
    pub block: Option<&'a B>,
    places: &'a [Place],
}

impl<B> OpenPage<'_, B> {
    /// Returns the number of slots, up to the highest frame seen.
    pub fn slots(&self) -> u32 {
        self.places.len() as u32
    }

    /// True if a slot has a frame.
    pub fn is_present(&self, slot: u32) -> bool {
        self.places[slot as usize] == Place::Present
    }

    /// Returns the runs of absent slots so far, with causes.
    pub fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        if self.present < self.slots() {
            list_gaps(self.first, self.places, &mut gaps);
        }
        gaps
    }
}

struct Page<B> {
    number: i64,
    block: Option<B>,
    places: Box<[Place]>,
    present: u32,
}

/// The window of one stream. `B` is the memory of a page.
pub struct Window<B> {
    frames_per_page: u32,
    depth: usize,
    /// Index of slot 0 of page 0.
    base: i64,
    /// Lowest index counted.
    low: i64,
    /// Index after the highest counted.
    next: i64,
    open: VecDeque<Page<B>>,
    closed: VecDeque<ClosedPage<B>>,
    spare: Vec<Box<[Place]>>,
    /// The lowest index of this scan, if there was an earlier one.
    floor: Option<i64>,
    /// The first page of the next scan, if a cut was requested.
    cut: Option<i64>,
    scan: u32,
    counters: Counters,
    /// The largest number of runs of absent frames that are stored one by one, per cause.
    remembered: usize,
    finished: VecDeque<ScanTotals>,
}

/// The counters of the current scan.
#[derive(Default)]
struct Counters {
    terms: Terms,
    missing: Runs,
    overrun: Runs,
    damaged: Runs,
    late: Runs,
    duplicates: u64,
    replaced: u64,
    reordered: u64,
    reorder_extent: u64,
}

/// Runs of absent frames of one cause. The terms count every frame; the number of stored runs is bounded to limit
/// memory.
#[derive(Default)]
struct Runs {
    known: Ranges,
    /// The number of further runs.
    unlisted: u64,
    /// The end of the last of those: a run that begins there extends it.
    end: i64,
}

impl Runs {
    /// Adds a run; beyond `most` runs, the highest is only counted.
    fn add(&mut self, run: std::ops::Range<i64>, most: usize) {
        self.known.insert(run);
        while self.known.runs() > most {
            let Some(last) = self.known.pop_last() else { return };
            self.unlisted += u64::from(self.unlisted == 0 || last.start != self.end);
            self.end = last.end;
        }
    }

    /// Removes one index of the stored runs, which may split a run in two; returns true if it was stored.
    fn remove(&mut self, index: i64, most: usize) -> bool {
        let was_there = self.known.remove(index);
        self.add(0..0, most);
        was_there
    }
}

/// The totals of a scan that a cut ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanTotals {
    /// Its number, as in [`ClosedPage::scan`].
    pub scan: u32,
    /// The totals.
    pub tally: WindowTotals,
    /// All frames that are not in the recording, in order of index.
    pub gaps: Vec<Gap>,
}

/// The totals of a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowTotals {
    /// The terms of the balance.
    pub terms: Terms,
    /// Frames that arrived more than once.
    pub duplicates: u64,
    /// Damaged frames whose positions valid frames have taken since.
    pub replaced: u64,
    /// Frames that were overtaken and still written to their position.
    pub reordered: u64,
    /// The largest distance that one of them was behind.
    pub reorder_extent: u64,
    /// Lowest index, if any frame was counted.
    pub low: Option<i64>,
    /// Highest index.
    pub high: Option<i64>,
    /// Runs of absent frames that are in the terms but in no list of gaps.
    pub gaps_unlisted: u64,
}

impl<B> Window<B> {
    /// Returns a window whose first page begins with `first`, the lowest index known so far.
    pub fn new(frames_per_page: u32, depth: usize, first: i64) -> Self {
        assert!(frames_per_page > 0 && depth > 0, "a window has at least one page of one frame");
        Self {
            frames_per_page,
            depth,
            base: first,
            low: first,
            next: first,
            open: VecDeque::new(),
            closed: VecDeque::new(),
            spare: Vec::new(),
            floor: None,
            cut: None,
            scan: 0,
            counters: Counters::default(),
            remembered: RUNS_REMEMBERED,
            finished: VecDeque::new(),
        }
    }

    /// Limits the number of stored runs of absent frames.
    #[cfg(test)]
    fn remembering(self, remembered: usize) -> Self {
        Self { remembered, ..self }
    }

    /// Ends the scan with the current page; the next page begins the next scan.
    pub fn cut(&mut self) {
        let (current, _) = self.page_of(self.next - 1);
        self.cut.get_or_insert(current + 1);
    }

    /// True if a cut was requested and pages before it are still open.
    pub fn cutting(&self) -> bool {
        self.cut.is_some()
    }

    /// True if an index belongs to the scan whose cut is not reached yet.
    pub fn is_before_cut(&self, index: i64) -> bool {
        self.cut.is_some_and(|cut| self.page_of(index).0 < cut)
    }

    /// Ends the scan at once: at the requested cut if it has been reached, otherwise after the highest frame seen,
    /// whose page is closed short.
    pub fn cut_short(&mut self) {
        if let Some(cut) = self.cut.filter(|&cut| self.first_of(cut) < self.next) {
            self.close_before(cut);
            self.cut = None;
            self.begin_scan(self.first_of(cut));
            return;
        }
        self.cut = None;
        self.finish();
        let next = self.next;
        self.begin_scan(next);
        // Page numbers continue from here, each page full again.
        let (page, slot) = self.page_of(next);
        if slot > 0 {
            self.base = next - (page + 1) * i64::from(self.frames_per_page);
        }
    }

    /// True if the totals of an ended scan are available.
    pub fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Returns the totals of the oldest ended scan that was not yet taken.
    pub fn take_finished(&mut self) -> Option<ScanTotals> {
        self.finished.pop_front()
    }

    /// Ends the counters of a scan and starts new ones; everything from `first` on belongs to the next scan.
    fn begin_scan(&mut self, first: i64) {
        let tally = self.tally_until(first);
        self.finished.push_back(ScanTotals { scan: self.scan, tally, gaps: self.gaps() });
        self.scan += 1;
        self.counters = Counters::default();
        (self.low, self.floor) = (first, Some(first));
    }

    /// The lowest index of the scan.
    pub fn low(&self) -> i64 {
        self.low
    }

    /// Returns the next index of an orderly stream.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// Returns page and slot of an index.
    pub fn page_of(&self, index: i64) -> (i64, u32) {
        let distance = index.saturating_sub(self.base);
        let frames = i64::from(self.frames_per_page);
        (distance.div_euclid(frames), distance.rem_euclid(frames) as u32)
    }

    /// Returns the index of the first slot of a page.
    pub fn first_of(&self, page: i64) -> i64 {
        self.base + page * i64::from(self.frames_per_page)
    }

    /// Returns the pages that may still receive frames, in order, up to the page of the highest frame seen.
    pub fn open_pages(&self) -> impl Iterator<Item = OpenPage<'_, B>> {
        let frames = i64::from(self.frames_per_page);
        let of_page =
            move |page: &'_ Page<B>| (self.next - self.first_of(page.number)).clamp(0, frames);
        self.open.iter().filter(move |page| of_page(page) > 0).map(move |page| OpenPage {
            page: page.number,
            first: self.first_of(page.number),
            present: page.present,
            block: page.block.as_ref(),
            places: &page.places[..of_page(page) as usize],
        })
    }

    /// Returns the memory of `page`. Opens the page if it is the current one or a near one ahead.
    ///
    /// Calls `provide` if the page has no memory yet. `None`: no such page, or no memory.
    pub fn block(&mut self, page: i64, provide: impl FnOnce() -> Option<B>) -> Option<&mut B> {
        let place = self.open_page(page)?;
        let page = &mut self.open[place];
        if page.block.is_none() {
            page.block = provide();
        }
        page.block.as_mut()
    }

    /// Returns the memory from `index` on, page by page, up to the first page without: each with the slot at which the
    /// range begins.
    pub fn blocks_from(&mut self, index: i64) -> impl Iterator<Item = (u32, &mut B)> {
        let (page, slot) = self.page_of(index);
        let place = usize::try_from(page - self.oldest_open()).unwrap_or(usize::MAX);
        let pages = self.open.iter_mut().skip(place).map_while(|page| page.block.as_mut());
        pages.enumerate().map(move |(number, block)| (if number == 0 { slot } else { 0 }, block))
    }

    /// Counts `count` frames that arrived in order, exactly at [`Window::next`], all with memory.
    pub fn arrive_in_order(&mut self, count: u32) {
        let mut left = count;
        while left > 0 {
            let (number, slot) = self.page_of(self.next);
            let run = left.min(self.frames_per_page - slot);
            let place = self.open_page(number).expect("memory for it was asked for before");
            let page = &mut self.open[place];
            assert!(page.block.is_some(), "a frame was received into a page without memory");
            page.places[slot as usize..(slot + run) as usize].fill(Place::Present);
            page.present += run;
            self.next += i64::from(run);
            left -= run;
            self.close_behind();
        }
    }

    /// Counts one valid frame at `index`, and returns its position.
    pub fn arrive(&mut self, index: i64, provide: impl FnOnce() -> Option<B>) -> Arrival {
        match self.find(index) {
            Err(arrival) => arrival,
            Ok((place, slot)) => {
                let page = &mut self.open[place];
                if self.counters.comes_again(page.places[slot]) {
                    return Arrival::Duplicate;
                }
                if page.block.is_none() {
                    page.block = provide();
                }
                if page.block.is_none() {
                    page.places[slot] = Place::Overrun;
                    self.reached(index);
                    return Arrival::NoBlock;
                }
                page.places[slot] = Place::Present;
                page.present += 1;
                let page = page.number;
                if index + 1 < self.next {
                    self.counters.reordered += 1;
                    self.counters.reorder_extent =
                        self.counters.reorder_extent.max((self.next - 1 - index) as u64);
                }
                self.reached(index);
                Arrival::Placed { page, slot: slot as u32 }
            }
        }
    }

    /// Counts one valid frame without memory, though its page may have some.
    pub fn arrive_without_memory(&mut self, index: i64) -> Arrival {
        match self.find(index) {
            Err(arrival) => arrival,
            Ok((place, slot)) => {
                let state = &mut self.open[place].places[slot];
                if self.counters.comes_again(*state) {
                    return Arrival::Duplicate;
                }
                *state = Place::Overrun;
                self.reached(index);
                Arrival::NoBlock
            }
        }
    }

    /// Counts a frame that failed its own check, though its index could be read.
    ///
    /// An index of a damaged frame before all others is not accepted.
    pub fn arrive_damaged(&mut self, index: i64) -> Arrival {
        if index < self.low && !self.is_out_of_window(index) {
            return Arrival::BeforeScan;
        }
        match self.find(index) {
            Err(arrival) => arrival,
            Ok((place, slot)) => {
                let state = &mut self.open[place].places[slot];
                if *state != Place::Absent {
                    return Arrival::Occupied;
                }
                *state = Place::Damaged;
                self.reached(index);
                Arrival::Damaged
            }
        }
    }

    /// Returns the page and slot for an index, or the reason why it has none.
    fn find(&mut self, index: i64) -> Result<(usize, usize), Arrival> {
        if self.is_out_of_window(index) {
            return Err(Arrival::OutOfWindow);
        }
        let (number, slot) = self.page_of(index);
        if number < self.oldest_open() {
            return Err(self.arrive_late(index));
        }
        if number > self.oldest_open() + self.depth as i64 {
            self.close_before(number - self.depth as i64 + 1);
        }
        let place = self.open_page(number).expect("the window was moved to it");
        Ok((place, slot as usize))
    }

    /// True if `index` is too far from the frames seen to be accepted at once. A frame that fits a known gap is never
    /// too far, at any delay.
    pub fn is_out_of_window(&self, index: i64) -> bool {
        if index < self.next && self.counters.missing.known.contains(index) {
            return false;
        }
        let reach = 8 * self.depth as i64 * i64::from(self.frames_per_page);
        // One frame may open the page after the expected one, and so closes no page that may still receive frames.
        self.page_of(index).0 > self.page_of(self.next).0 + 1
            || index < self.next.saturating_sub(reach)
    }

    /// Moves to a distant index that enough datagrams agreed on: the frames in between are missing.
    pub fn jump_to(&mut self, index: i64) {
        assert!(index >= self.next, "a window only moves on");
        let (number, _) = self.page_of(index);
        self.close_before(number);
        self.open_page(number).expect("the window was moved to it");
        self.next = self.next.max(index);
    }

    /// Handles a frame of a closed page: it was missing and becomes late, or it is a duplicate.
    fn arrive_late(&mut self, index: i64) -> Arrival {
        if self.floor.is_some_and(|floor| index < floor) {
            return Arrival::BeforeScan;
        }
        if index < self.low {
            self.counters.missing.add(index + 1..self.low, self.remembered);
            self.counters.terms.missing += (self.low - index - 1) as u64;
            self.low = index;
        } else if self.counters.missing.remove(index, self.remembered) {
            self.counters.terms.missing -= 1;
        } else {
            self.counters.duplicates += 1;
            return Arrival::Duplicate;
        }
        self.counters.late.add(index..index + 1, self.remembered);
        self.counters.terms.late += 1;
        Arrival::Late
    }

    /// Drops an out-of-window frame. Returns true if its index had been counted, so that the frame is a duplicate.
    pub fn give_up(&mut self, index: i64) -> bool {
        let counted = (self.low..self.next).contains(&index);
        self.counters.duplicates += u64::from(counted);
        counted
    }

    fn oldest_open(&self) -> i64 {
        self.open.front().map_or_else(|| self.page_of(self.next).0, |page| page.number)
    }

    /// Returns the position of a page in `open`. Opens pages up to it, but not far beyond the current one.
    fn open_page(&mut self, number: i64) -> Option<usize> {
        let oldest = self.oldest_open();
        let place = usize::try_from(number - oldest).ok()?;
        if place > 2 * self.depth + 2 {
            return None;
        }
        while self.open.len() <= place {
            let number = oldest + self.open.len() as i64;
            let places = self.spare.pop().unwrap_or_else(|| {
                vec![Place::Absent; self.frames_per_page as usize].into_boxed_slice()
            });
            self.open.push_back(Page { number, block: None, places, present: 0 });
        }
        Some(place)
    }

    /// Records that `index` was counted, and closes the pages that have fallen behind.
    fn reached(&mut self, index: i64) {
        if index >= self.next {
            self.next = index + 1;
            self.close_behind();
        }
    }

    fn close_behind(&mut self) {
        let (current, _) = self.page_of(self.next - 1);
        self.close_before(current - self.depth as i64 + 1);
    }

    /// Closes every page below `number`; pages that were never opened are missing as a whole.
    fn close_before(&mut self, number: i64) {
        while self.open.front().is_some_and(|page| page.number < number) {
            let page = self.open.pop_front().expect("just seen");
            let end = self.first_of(page.number) + i64::from(self.frames_per_page);
            // All indices below a page that the stream has left are expected.
            self.next = self.next.max(end);
            self.close(page, self.frames_per_page);
        }
        let first = self.first_of(number);
        if self.open.is_empty() && first > self.next {
            if let Some(cut) = self.cut
                && cut <= number
            {
                self.skip_to(self.first_of(cut));
                self.cut = None;
                self.begin_scan(self.next);
            }
            self.skip_to(first);
        }
    }

    /// Counts everything up to `index` as missing.
    fn skip_to(&mut self, index: i64) {
        if index > self.next {
            self.counters.missing.add(self.next..index, self.remembered);
            self.counters.terms.missing += (index - self.next) as u64;
            self.next = index;
        }
    }

    fn close(&mut self, mut page: Page<B>, slots: u32) {
        let first = self.first_of(page.number);
        if self.cut.is_some_and(|cut| page.number >= cut) {
            self.cut = None;
            self.begin_scan(first);
        }
        let mut gaps: Vec<Gap> = Vec::new();
        if page.present < slots {
            list_gaps(first, &page.places[..slots as usize], &mut gaps);
        }
        for gap in &gaps {
            let run = gap.first..gap.first + gap.count as i64;
            let (term, runs) = match gap.cause {
                Cause::Missing => (&mut self.counters.terms.missing, &mut self.counters.missing),
                Cause::Overrun => (&mut self.counters.terms.overrun, &mut self.counters.overrun),
                Cause::Damaged => (&mut self.counters.terms.damaged, &mut self.counters.damaged),
                Cause::Late => unreachable!("a late frame's page is closed already"),
                Cause::NotTransferred => unreachable!("nothing is transferred here"),
            };
            *term += gap.count;
            runs.add(run, self.remembered);
        }
        self.counters.terms.written += u64::from(page.present);
        let block = page.block.take();
        self.closed.push_back(ClosedPage {
            page: page.number,
            first,
            slots,
            present: page.present,
            block,
            scan: self.scan,
            gaps,
        });
        page.places.fill(Place::Absent);
        self.spare.push(page.places);
    }

    /// Returns the oldest closed page not yet taken.
    pub fn take_closed(&mut self) -> Option<ClosedPage<B>> {
        self.closed.pop_front()
    }

    /// Closes all pages: the stream ends with the highest frame seen. Memory ahead of it is in closed pages with no
    /// slots.
    pub fn finish(&mut self) {
        let next = self.next;
        while let Some(page) = self.open.pop_front() {
            let first = self.first_of(page.number);
            let slots = (next - first).clamp(0, i64::from(self.frames_per_page)) as u32;
            self.close(page, slots);
        }
    }

    /// True if a frame has taken an index; `None` if its page is closed.
    pub fn is_taken(&self, index: i64) -> Option<bool> {
        let (number, slot) = self.page_of(index);
        let place = usize::try_from(number - self.oldest_open()).ok()?;
        let page = self.open.get(place);
        Some(page.is_some_and(|page| page.places[slot as usize] != Place::Absent))
    }

    /// Ends the stream before the highest frames seen: those from `end` on are not part of it. All of them are in open
    /// pages.
    pub fn end_at(&mut self, end: i64) {
        let pages = self.open.iter_mut();
        for page in pages {
            let first = self.base + page.number * i64::from(self.frames_per_page);
            let kept = (end - first).clamp(0, i64::from(self.frames_per_page)) as usize;
            let gone = &mut page.places[kept..];
            page.present -= gone.iter().filter(|place| **place == Place::Present).count() as u32;
            gone.fill(Place::Absent);
        }
        self.next = self.next.min(end);
    }

    /// Returns the totals of the current scan. They balance once every page is closed.
    pub fn tally(&self) -> WindowTotals {
        self.tally_until(self.next)
    }

    fn tally_until(&self, end: i64) -> WindowTotals {
        let mut terms = self.counters.terms;
        terms.expected = (end - self.low).max(0) as u64;
        let counted = terms.expected > 0;
        WindowTotals {
            terms,
            duplicates: self.counters.duplicates,
            replaced: self.counters.replaced,
            reordered: self.counters.reordered,
            reorder_extent: self.counters.reorder_extent,
            low: counted.then_some(self.low),
            high: counted.then_some(end - 1),
            gaps_unlisted: self.counters.runs().map(|(_, runs)| runs.unlisted).sum(),
        }
    }

    /// Returns the current terms, including the open pages: for display.
    pub fn so_far(&self) -> Terms {
        let mut terms = self.counters.terms;
        terms.written += self.open.iter().map(|page| u64::from(page.present)).sum::<u64>();
        terms.expected = (self.next - self.low) as u64;
        terms
    }

    /// Returns all frames that are not in the recording, in order of index, except [`WindowTotals::gaps_unlisted`].
    pub fn gaps(&self) -> Vec<Gap> {
        let listed = |(cause, runs): (Cause, &Runs)| {
            let gap = |run: std::ops::Range<i64>| Gap {
                first: run.start,
                count: (run.end - run.start) as u64,
                cause,
            };
            runs.known.iter().map(gap).collect::<Vec<_>>()
        };
        let mut gaps: Vec<Gap> = self.counters.runs().flat_map(listed).collect();
        gaps.sort_unstable();
        gaps
    }
}

impl Counters {
    /// Counts a valid frame by the state of its position. Returns true if the frame was already present.
    fn comes_again(&mut self, place: Place) -> bool {
        match place {
            Place::Absent => {}
            Place::Damaged => self.replaced += 1,
            Place::Present | Place::Overrun => self.duplicates += 1,
        }
        place == Place::Present
    }

    fn runs(&self) -> impl Iterator<Item = (Cause, &Runs)> {
        [
            (Cause::Missing, &self.missing),
            (Cause::Overrun, &self.overrun),
            (Cause::Damaged, &self.damaged),
            (Cause::Late, &self.late),
        ]
        .into_iter()
    }
}

impl ScanTotals {
    /// Counts a frame that arrived after the scan was cut off. Returns false if it is not within the scan.
    pub fn came_late(&mut self, index: i64) -> bool {
        let within = self.tally.low.is_some_and(|low| low <= index)
            && self.tally.high.is_some_and(|high| index <= high);
        if !within {
            return false;
        }
        let after = self.gaps.partition_point(|gap| gap.first <= index);
        let holds = |gap: &Gap| index < gap.first + gap.count as i64;
        let Some(place) = after.checked_sub(1).filter(|&place| holds(&self.gaps[place])) else {
            self.tally.duplicates += 1;
            return true;
        };
        let gap = self.gaps[place];
        if gap.cause != Cause::Missing {
            self.tally.duplicates += 1;
            return true;
        }
        self.tally.terms.missing -= 1;
        self.tally.terms.late += 1;
        let part = |first: i64, end: i64, cause| Gap { first, count: (end - first) as u64, cause };
        let end = gap.first + gap.count as i64;
        let parts = [
            part(gap.first, index, Cause::Missing),
            part(index, index + 1, Cause::Late),
            part(index + 1, end, Cause::Missing),
        ];
        self.gaps.splice(place..=place, parts.into_iter().filter(|gap| gap.count > 0));
        true
    }

    /// Converts the frames of a closed page to overrun: no member accepted its block.
    pub fn lose_block(&mut self, first: i64, slots: u32, gaps: &[Gap]) {
        let mut at = first;
        let absent = gaps.iter().map(|gap| (gap.first, gap.first + gap.count as i64));
        for (start, end) in absent.chain([(first + i64::from(slots), i64::MAX)]) {
            let lost = (start - at).max(0) as u64;
            self.tally.terms.written -= lost;
            self.tally.terms.overrun += lost;
            if lost > 0 {
                self.gaps.push(Gap { first: at, count: lost, cause: Cause::Overrun });
            }
            at = end;
        }
        self.gaps.sort_unstable();
    }
}

/// Lists the runs of positions without a frame.
fn list_gaps(first: i64, places: &[Place], gaps: &mut Vec<Gap>) {
    let mut index = first;
    for run in places.chunk_by(|a, b| a == b) {
        let cause = match run[0] {
            Place::Present => None,
            Place::Absent => Some(Cause::Missing),
            Place::Overrun => Some(Cause::Overrun),
            Place::Damaged => Some(Cause::Damaged),
        };
        if let Some(cause) = cause {
            gaps.push(Gap { first: index, count: run.len() as u64, cause });
        }
        index += run.len() as i64;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// The next event of the network.
    #[derive(Clone, Debug)]
    enum Step {
        /// Frames in order, received as predicted.
        Run(u32),
        /// A frame at a distance from the next expected one.
        Frame(i64),
        /// A damaged one.
        Damaged(i64),
        /// No memory for the following steps, or memory again.
        Memory(bool),
        /// A jump that enough frames agree on.
        Jump(i64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (1u32..30).prop_map(Step::Run),
            6 => (-60i64..40).prop_map(Step::Frame),
            2 => (-30i64..20).prop_map(Step::Damaged),
            1 => any::<bool>().prop_map(Step::Memory),
            1 => (0i64..500).prop_map(Step::Jump),
        ];
        prop::collection::vec(step, 1..120)
    }

    /// Feeds the steps to a window, and tracks the state of each index by the plain definition.
    fn play(
        steps: &[Step],
        pages: u32,
        depth: usize,
    ) -> (Window<u32>, BTreeMap<i64, &'static str>, Vec<ClosedPage<u32>>) {
        let mut window = Window::new(pages, depth, 1000);
        let mut truth: BTreeMap<i64, &'static str> = BTreeMap::new();
        let (mut memory, mut blocks) = (true, 0);
        let mut closed = Vec::new();
        for step in steps {
            let mut provide = || {
                blocks += 1;
                memory.then_some(blocks)
            };
            match *step {
                Step::Memory(is) => memory = is,
                Step::Jump(distance) => window.jump_to(window.next() + distance),
                Step::Run(count) => {
                    for _ in 0..count {
                        let index = window.next();
                        let (page, _) = window.page_of(index);
                        if window.block(page, &mut provide).is_some() {
                            window.arrive_in_order(1);
                            truth.insert(index, "written");
                        }
                    }
                }
                Step::Frame(distance) => {
                    let index = window.next() + distance;
                    let before = truth.get(&index).copied();
                    match window.arrive(index, &mut provide) {
                        Arrival::Placed { page, slot } => {
                            assert_eq!(window.first_of(page) + i64::from(slot), index);
                            assert_ne!(before, Some("written"), "placed twice");
                            truth.insert(index, "written");
                        }
                        Arrival::NoBlock => {
                            truth.insert(index, "overrun");
                        }
                        Arrival::Late => {
                            assert_eq!(before, None, "late, but counted before");
                            truth.insert(index, "late");
                        }
                        Arrival::Duplicate => assert!(before.is_some(), "{index} was never there"),
                        Arrival::OutOfWindow => assert!(window.is_out_of_window(index)),
                        Arrival::BeforeScan => unreachable!("one scan only"),
                        Arrival::Damaged | Arrival::Occupied => unreachable!("a good frame"),
                    }
                }
                Step::Damaged(distance) => {
                    let index = window.next() + distance;
                    if window.arrive_damaged(index) == Arrival::Damaged {
                        truth.entry(index).or_insert("damaged");
                    } else if window.counters.late.known.contains(index) {
                        truth.entry(index).or_insert("late");
                    }
                }
            }
            closed.extend(std::iter::from_fn(|| window.take_closed()));
        }
        window.finish();
        closed.extend(std::iter::from_fn(|| window.take_closed()));
        (window, truth, closed)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn the_books_balance_and_equal_the_truth_in_any_order(
            steps in steps(), pages in 1u32..20, depth in 1usize..4
        ) {
            let (window, truth, closed) = play(&steps, pages, depth);
            let tally = window.tally();
            let count = |what| truth.values().filter(|&&kind| kind == what).count() as u64;
            prop_assert!(tally.terms.balance(), "{:?}", tally.terms);
            prop_assert_eq!(tally.terms.written, count("written"));
            prop_assert_eq!(tally.terms.overrun, count("overrun"));
            prop_assert_eq!(tally.terms.damaged, count("damaged"));
            prop_assert_eq!(tally.terms.late, count("late"));
            let present: u64 = closed.iter().map(|page| u64::from(page.present)).sum();
            prop_assert_eq!(present, tally.terms.written, "pages carry what was written");
            let listed: u64 = window.gaps().iter().map(|gap| gap.count).sum();
            prop_assert_eq!(listed, tally.terms.expected - tally.terms.written);
            let firsts: Vec<i64> = closed.iter().map(|page| page.page).collect();
            prop_assert!(firsts.is_sorted(), "pages leave in order");
        }

        #[test]
        fn books_whose_list_of_gaps_is_cut_balance_and_say_so(
            steps in steps(), remembered in 0usize..4
        ) {
            let mut window = Window::new(6, 2, 1000).remembering(remembered);
            let mut blocks = 0u32..;
            for step in &steps {
                match *step {
                    Step::Run(count) => for _ in 0..count {
                        window.arrive(window.next(), || blocks.next());
                    },
                    Step::Frame(distance) => {
                        window.arrive(window.next() + distance, || blocks.next());
                    }
                    Step::Damaged(distance) => {
                        window.arrive_damaged(window.next() + distance);
                    }
                    Step::Jump(distance) => window.jump_to(window.next() + distance),
                    Step::Memory(_) => window.cut_short(),
                }
            }
            window.cut_short();
            for ScanTotals { tally, gaps, .. } in std::iter::from_fn(|| window.take_finished()) {
                prop_assert!(tally.terms.balance(), "{:?}", tally);
                let absent = tally.terms.expected - tally.terms.written;
                let listed: u64 = gaps.iter().map(|gap| gap.count).sum();
                prop_assert_eq!(listed < absent, tally.gaps_unlisted > 0, "{:?} {:?}", tally, gaps);
                prop_assert!(tally.gaps_unlisted <= absent - listed);
                for cause in [Cause::Missing, Cause::Overrun, Cause::Damaged, Cause::Late] {
                    let runs = gaps.iter().filter(|gap| gap.cause == cause).count();
                    prop_assert!(runs <= remembered, "{} of {}", runs, cause);
                }
            }
        }

        #[test]
        fn a_block_that_no_member_takes_is_overrun(steps in steps()) {
            let (mut window, _, closed) = play(&steps, 8, 2);
            window.cut_short();
            let mut finished = window.take_finished().unwrap();
            for page in &closed {
                finished.lose_block(page.first, page.slots, &page.gaps);
            }
            prop_assert_eq!(finished.tally.terms.written, 0);
            prop_assert!(finished.tally.terms.balance());
            let listed: u64 = finished.gaps.iter().map(|gap| gap.count).sum();
            prop_assert_eq!(listed, finished.tally.terms.expected);
        }

        #[test]
        fn scans_cut_from_one_stream_lose_nothing_between_them(
            steps in steps(), cuts in prop::collection::vec((0usize..120, any::<bool>()), 0..5)
        ) {
            let mut window = Window::new(6, 2, 1000);
            let mut blocks = 0..;
            for (number, step) in steps.iter().enumerate() {
                for (_, short) in cuts.iter().filter(|(at, _)| *at == number) {
                    if *short { window.cut_short() } else { window.cut() }
                }
                match *step {
                    Step::Run(count) => for _ in 0..count {
                        window.arrive(window.next(), || blocks.next());
                    },
                    Step::Frame(distance) => {
                        window.arrive(window.next() + distance, || blocks.next());
                    }
                    Step::Damaged(distance) => {
                        window.arrive_damaged(window.next() + distance);
                    }
                    Step::Jump(distance) => window.jump_to(window.next() + distance),
                    Step::Memory(_) => {}
                }
            }
            window.cut_short();
            let scans: Vec<ScanTotals> = std::iter::from_fn(|| window.take_finished()).collect();
            let pages: Vec<ClosedPage<u32>> = std::iter::from_fn(|| window.take_closed()).collect();
            for scan in &scans {
                prop_assert!(scan.tally.terms.balance(), "{:?}", scan);
                let written: u64 =
                    pages.iter().filter(|p| p.scan == scan.scan).map(|p| u64::from(p.present)).sum();
                prop_assert_eq!(written, scan.tally.terms.written);
            }
            let edges: Vec<(i64, i64)> = scans
                .iter()
                .filter_map(|scan| Some((scan.tally.low?, scan.tally.high?)))
                .collect();
            for pair in edges.windows(2) {
                prop_assert_eq!(pair[0].1 + 1, pair[1].0, "frames between two scans");
            }
        }
    }

    #[test]
    fn a_frame_overtaken_inside_the_window_is_put_in_place() {
        let mut window: Window<()> = Window::new(4, 2, 0);
        for index in [0, 1, 3, 2, 5, 4] {
            let placed = matches!(window.arrive(index, || Some(())), Arrival::Placed { .. });
            assert!(placed, "{index}");
        }
        window.finish();
        let tally = window.tally();
        assert_eq!((tally.terms.written, tally.terms.missing), (6, 0));
        assert_eq!((tally.reordered, tally.reorder_extent), (2, 1));
    }

    #[test]
    fn a_frame_that_comes_after_its_scan_was_cut_off_was_late_and_not_missing() {
        let mut window: Window<()> = Window::new(8, 2, 0);
        for index in [0, 1, 2, 6] {
            window.arrive(index, || Some(()));
        }
        window.cut_short();
        assert_eq!(window.arrive(4, || Some(())), Arrival::BeforeScan);
        let mut finished = window.take_finished().unwrap();
        assert!(finished.came_late(4));
        assert!(finished.came_late(4), "twice");
        assert!(!finished.came_late(7) && !finished.came_late(-1), "of another scan");
        let tally = &finished.tally;
        assert_eq!((tally.terms.missing, tally.terms.late, tally.duplicates), (2, 1, 1));
        assert!(tally.terms.balance());
        let gap = |first, cause| Gap { first, count: 1, cause };
        let gaps = [gap(3, Cause::Missing), gap(4, Cause::Late), gap(5, Cause::Missing)];
        assert_eq!(finished.gaps, gaps);
    }

    #[test]
    fn a_damaged_frame_does_not_move_the_beginning() {
        let mut window: Window<()> = Window::new(4, 2, 100);
        window.arrive(100, || Some(()));
        assert_eq!(window.arrive_damaged(98), Arrival::BeforeScan);
        assert_eq!(window.tally().low, Some(100));
        assert_eq!(window.arrive(98, || Some(())), Arrival::Late, "a good one does");
        assert_eq!(window.tally().low, Some(98));
    }

    #[test]
    fn frames_behind_the_end_of_a_stream_are_no_part_of_it() {
        let mut window: Window<()> = Window::new(4, 2, 0);
        for index in [0, 1, 2, 3, 4, 6, 8] {
            window.arrive(index, || Some(()));
        }
        assert_eq!(
            [3, 5, 6, 7, 8].map(|index| window.is_taken(index)),
            [None, Some(false), Some(true), Some(false), Some(true)]
        );
        window.end_at(5);
        window.finish();
        let tally = window.tally();
        assert_eq!((tally.terms.expected, tally.terms.written, tally.high), (5, 5, Some(4)));
        assert!(tally.terms.balance() && window.gaps().is_empty());
        let present: u32 = std::iter::from_fn(|| window.take_closed()).map(|it| it.present).sum();
        assert_eq!(present, 5);
    }

    #[test]
    fn damaged_frames_that_share_a_place_with_others_are_counted() {
        let mut window: Window<()> = Window::new(4, 2, 0);
        window.arrive(0, || Some(()));
        assert_eq!(window.arrive_damaged(0), Arrival::Occupied, "a good one has the place");
        assert_eq!(window.arrive_damaged(1), Arrival::Damaged);
        assert_eq!(window.arrive_damaged(1), Arrival::Occupied, "another damaged one has it");
        assert!(matches!(window.arrive(1, || Some(())), Arrival::Placed { .. }));
        assert_eq!(window.arrive(4, || None), Arrival::NoBlock);
        assert!(matches!(window.arrive(4, || Some(())), Arrival::Placed { .. }));
        let tally = window.tally();
        assert_eq!((tally.replaced, tally.duplicates), (1, 1));
    }

    #[test]
    fn one_lying_header_does_not_move_the_window() {
        let mut window: Window<()> = Window::new(4, 2, 0);
        window.arrive(0, || Some(()));
        assert_eq!(window.arrive(1_000_000, || Some(())), Arrival::OutOfWindow);
        assert_eq!(window.arrive(-1_000_000, || Some(())), Arrival::OutOfWindow);
        assert_eq!(window.next(), 1);
    }
}
