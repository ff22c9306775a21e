//! A stream within one scan: blocks dispatched so far, and the totals for its account.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use crate::window::{Arrival, ClosedPage, ScanTotals, WindowTotals};
use fullbore_core::account::{Account, CountedBy, Edge, Flow, GAPS_LISTED, Terms};
use fullbore_core::clock_check::{ClockMonitor, ClockStatus};
use fullbore_core::endpoint::samples_of_source;
use fullbore_core::frame_index::FrameIndexer;
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{Fill, Format, Stream};
use fullbore_core::name::{Name, ScanName};
use fullbore_core::panda::SourceReport;
use fullbore_formats::vdif::Found;
use fullbore_formats::vita49::history::History;
use fullbore_formats::vita49::listing::Listing;
use fullbore_linux::ring::{Block, FullBlock, Pool, StreamRef, Taps};
use fullbore_time::Tai;
use tracing::Span;
use uuid::Uuid;

use super::sink_chain::{ChainCursor, Share};

/// The context of a scan for capture threads.
#[derive(Debug)]
pub struct ScanContext {
    /// Identity of the scan.
    pub uuid: Uuid,
    /// The name.
    pub scan: ScanName,
    /// True if it has one stream only, whose directory then has the name of the scan.
    pub single: bool,
    /// The span of the scan in the log.
    pub span: Span,
    /// The taps of the recording.
    pub taps: Taps,
}

impl ScanContext {
    /// The context of a new scan.
    pub fn new(uuid: Uuid, scan: ScanName, single: bool) -> Self {
        let span = tracing::info_span!("scan", %scan);
        Self { uuid, scan, single, span, taps: Taps::default() }
    }

    /// The same, with the taps of the recording.
    pub fn with_taps(self, taps: Taps) -> Self {
        Self { taps, ..self }
    }

    /// Returns the directory of a stream. In a scan with one known stream, that stream's directory has the scan's name;
    /// a thread that begins late has a directory of its own name.
    pub fn directory(&self, number: u16, stream: &Name) -> String {
        self.scan.directory((!self.single || number > 0).then_some(stream))
    }
}

/// The end of a source of bytes, readable from any thread.
#[derive(Debug, Default)]
pub struct SourceEnd {
    /// True if the rest of the source was read and dropped.
    pub is_flushed: AtomicBool,
    /// Bytes of this rest.
    pub flushed_bytes: AtomicU64,
    /// The nominal rate of a paced source that had to wait for the sink, in bytes per second; else 0.
    pub held_up: AtomicU64,
    /// The reason why the source could not be read to its end.
    pub failure: OnceLock<String>,
}

/// Metrics of a stream, readable from any thread during the recording.
#[derive(Debug, Default)]
pub struct StreamMetrics {
    /// Frames received and indexed.
    pub frames: AtomicU64,
    /// Bytes of these frames.
    pub bytes: AtomicU64,
    /// Frames missing, as far as certain.
    pub missing: AtomicU64,
    /// Frames that arrived when no block was free.
    pub overrun: AtomicU64,
    /// Frames that failed their check.
    pub damaged: AtomicU64,
    /// Frames that arrived too late.
    pub late: AtomicU64,
    /// Datagrams that are no frames.
    pub foreign: AtomicU64,
    /// Whole frames that were dropped as out-of-window.
    pub out_of_window: AtomicU64,
    /// Whole frames of the stream's format that no stream of the port accepted.
    pub unrecorded: AtomicU64,
    /// Datagrams that the user's filter excluded.
    pub excluded: AtomicU64,
    /// The number of blocks of its pool.
    pub pool_blocks: AtomicU64,
    /// The most of them in use at once.
    pub high_water: AtomicU64,
    /// The number of them in use.
    pub used_blocks: AtomicU64,
    /// The most of them in use since the last reading for the high-water history.
    pub peak_blocks: AtomicU64,
    /// Frames of each thread per second, once known; else 0.
    pub frames_per_second: AtomicU64,
    /// Time for which the sender was paused for want of a block, if it can be paused.
    pub held_ns: AtomicU64,
    /// The end of a source of bytes.
    pub end: SourceEnd,
    /// The clock offset of its frames from the host's clock, if they carry a time; updated a few times a second.
    pub wall: Mutex<Option<ClockStatus>>,
}

impl StreamMetrics {
    /// Updates every counter.
    pub fn tell(&self, terms: &Terms, bytes: u64, newest: Option<&ScanStream>, pool: &Pool) {
        let beside = |of: fn(&ScanStream) -> u64| newest.map_or(0, of);
        let used = (pool.blocks() - pool.free()) as u64;
        self.peak_blocks.fetch_max(used, Ordering::Relaxed);
        for (counter, value) in [
            (&self.frames, terms.written),
            (&self.bytes, bytes),
            (&self.missing, terms.missing),
            (&self.overrun, terms.overrun),
            (&self.damaged, terms.damaged),
            (&self.late, terms.late),
            (&self.foreign, beside(|it| it.foreign)),
            (&self.out_of_window, beside(|it| it.out_of_window + it.differing)),
            (&self.unrecorded, beside(|it| it.unrecorded)),
            (&self.excluded, beside(|it| it.excluded)),
            (&self.pool_blocks, pool.blocks() as u64),
            (&self.high_water, pool.high_water() as u64),
            (&self.used_blocks, used),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }
}

impl StreamMetrics {
    /// Updates the clock offset. Skips the update if a reader holds the lock.
    pub(super) fn tell_wall(&self, watch: &ClockMonitor) {
        let state =
            || Some(ClockStatus { offset: watch.clock_offset()?, recent_ns: watch.recent_ns()? });
        if let Ok(mut wall) = self.wall.try_lock() {
            *wall = state();
        }
    }

    /// Returns the clock offset.
    pub fn clock_status(&self) -> Option<ClockStatus> {
        *self.wall.lock().ok()?
    }
}

/// The layout of a stream, fixed after its first frames.
#[derive(Clone, Debug)]
pub struct StreamLayout {
    /// The place in the manifest.
    pub number: u16,
    /// The name.
    pub name: Name,
    /// The endpoint it comes from.
    pub source: String,
    /// Bytes before each frame that are not stored.
    pub stripped_bytes: u32,
    /// The division of its bytes.
    pub geometry: Geometry,
    /// The replacement for missing frames.
    pub fill: Fill,
}

impl StreamLayout {
    /// Splits a datagram into the stripped bytes and the frame.
    pub fn split<'d>(&self, datagram: &'d [u8]) -> (&'d [u8], &'d [u8]) {
        datagram.split_at(datagram.len().min(self.stripped_bytes as usize))
    }
}

/// An event that a capture thread sends to the supervisor.
#[derive(Debug)]
pub enum CaptureEvent {
    /// The first frames of a stream arrived, and its layout is known.
    Opened {
        /// The scan.
        scan: Uuid,
        /// The stream.
        shape: StreamLayout,
        /// The format of its frames.
        format: Format,
        /// The metrics.
        metrics: Arc<StreamMetrics>,
    },
    /// The format of a stream's frames is known more completely.
    Described {
        /// The scan.
        scan: Uuid,
        /// The stream's place in the manifest.
        number: u16,
        /// The format of its frames.
        format: Format,
    },
    /// A stream has sent its last block of a scan, and all of its blocks are settled.
    Ended {
        /// The scan.
        scan: Uuid,
        /// The stream's place in the manifest.
        number: u16,
        /// The format of its frames, as known at the end.
        format: Format,
        /// Blocks written.
        blocks: u64,
        /// Bytes written.
        bytes: u64,
        /// The account with the socket's drop counter, but without presence and verdict.
        account: Box<Account>,
        /// What each sink has of it, if there are several.
        shares: Vec<SinkShare>,
    },
    /// The values in the context packets of a stream, which ends.
    Context {
        /// The scan.
        scan: Uuid,
        /// The stream's place in the manifest.
        number: u16,
        /// The values and their changes.
        listing: Box<Listing>,
    },
    /// Unrecorded datagrams arrive at a port that has no stream yet.
    Unrecognised {
        /// The scan.
        scan: Uuid,
        /// The endpoint.
        source: String,
        /// The metrics; only `foreign`, `unrecorded` and `excluded` change.
        metrics: Arc<StreamMetrics>,
    },
    /// A port opened no stream in a scan.
    Silent {
        /// The scan.
        scan: Uuid,
        /// The place in the manifest. A port that is split into threads has none: its threads are named as they appear.
        number: Option<u16>,
        /// The endpoint.
        source: String,
        /// The counts of datagrams that are no frames or were excluded, and the socket's drop counter.
        account: Box<Account>,
    },
    /// A source has no more bytes. They are in the scan that is being recorded.
    Exhausted {
        /// The place in the manifest. A source that is split into streams has none.
        number: Option<u16>,
    },
    /// A thread has received the end of the scan, and names no further stream of it.
    Closed {
        /// The scan.
        scan: Uuid,
    },
    /// The last scan stream of a thread's last scan has ended.
    Done,
    /// A warning. Capture continues.
    Warning {
        /// The text of the warning.
        text: String,
    },
    /// A report of a source with a connection.
    Source(SourceReport),
    /// A capture thread cannot continue.
    Broken {
        /// The cause.
        why: String,
    },
}

/// One stream of one scan.
pub struct ScanStream {
    /// The scan.
    pub context: Arc<ScanContext>,
    /// The span of the stream in the log.
    span: Span,
    /// The striping state of its blocks.
    pub cursor: ChainCursor,
    /// The totals, once the scan has ended.
    pub sums: Option<StreamTotals>,
    /// The arrival times of its first and last frame.
    pub seen: Option<(Tai, Tai)>,
    /// The time in its frames against the host's clock.
    pub watch: ClockMonitor,
    /// Datagrams that are no frames.
    pub foreign: u64,
    /// Good frames that were dropped as out-of-window.
    pub out_of_window: u64,
    /// Frames that the window counted as duplicates, but that differ from the recorded frames, or could no longer be
    /// compared with them.
    pub differing: u64,
    /// Whole frames of the stream's format that no stream of the port accepted.
    pub unrecorded: u64,
    /// Datagrams that the user's filter excluded.
    pub excluded: u64,
    /// Length of the last foreign datagram.
    pub foreign_bytes: usize,
    /// Length of the last datagram that was not recorded because its length differs from the first ones.
    pub other_length: Option<usize>,
    /// Good frames without an index, because their number is beyond the end of their second.
    pub beyond: u64,
    /// Frames marked invalid by their sender.
    pub invalid: u64,
    /// Fill frames.
    pub filled: u64,
    /// The number of restarts of the sender's count.
    pub restarts: u64,
    /// The findings of the second count in its frames.
    pub second_count: Found,
    /// Blocks that no member accepted.
    lost: Vec<Lost>,
    /// Gaps that the index does not contain yet.
    pub pending: Vec<Gap>,
    /// The values in its packets of context.
    pub history: History,
}

/// A block that no member accepted.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    first: i64,
    /// The number of its frames.
    pub frames: u32,
    invalid: u32,
    bytes: u32,
    /// Gaps among its frames.
    gaps: Vec<Gap>,
}

impl Lost {
    /// Counts a block. Returns it with the gaps that a later block has to carry: those that the block carried, and its
    /// frames.
    pub fn of(filled: &FullBlock) -> (Self, Vec<Gap>) {
        let &FullBlock { first, frames, invalid, bytes, .. } = filled;
        let gaps = inside(&filled.gaps, first, frames);
        let mut later = filled.gaps.clone();
        later.extend(between(&gaps, first, frames));
        (Self { first, frames, invalid, bytes, gaps }, later)
    }
}

/// What one of several sinks has of a stream.
#[derive(Clone, Debug)]
pub struct SinkShare {
    /// Blocks written.
    pub blocks: u64,
    /// Bytes written.
    pub bytes: u64,
    /// The format and the account of the stream in this sink, if the sink lacks frames that another one has.
    pub lacking: Option<Box<(Format, Account)>>,
}

/// The totals of a stream: of one window, or of several sub-streams added up.
#[derive(Clone, Debug)]
pub struct StreamTotals {
    /// True if frames are indexed. Then there is one sub-stream, and indices are positions.
    pub placed: bool,
    /// The totals of each sub-stream; an indexed stream has one.
    pub flows: Vec<SubStreamTotals>,
    /// Frames outside the windows: of streams without a count.
    pub uncounted: u64,
    /// Frames among these for which no block was free.
    pub uncounted_overrun: u64,
    /// Frames found missing at second boundaries, afterwards.
    pub correction: u64,
    /// Bytes of true frames.
    pub bytes: u64,
    /// Time of the first and the last frame.
    pub times: (Option<Tai>, Option<Tai>),
}

/// The totals of one sub-stream.
#[derive(Clone, Debug)]
pub struct SubStreamTotals {
    /// Station, as in its frames.
    pub station: u16,
    /// Thread, as in its frames.
    pub thread: u16,
    /// The counts of its window.
    pub finished: ScanTotals,
    /// The first and last frame, if the stream has several sub-streams.
    pub ends: Option<(Edge, Edge)>,
}

impl SubStreamTotals {
    /// The totals of the only sub-stream.
    pub fn only(finished: ScanTotals) -> Self {
        Self { station: 0, thread: 0, finished, ends: None }
    }

    /// The totals of a thread without frames.
    pub fn absent(station: u16, thread: u16) -> Self {
        let finished = ScanTotals { scan: 0, tally: WindowTotals::default(), gaps: Vec::new() };
        Self { station, thread, finished, ends: None }
    }

    fn told(&self) -> Flow {
        let Self { station, thread, finished, ends } = self;
        Flow {
            station: *station,
            thread: *thread,
            terms: finished.tally.terms,
            gaps: finished.gaps[..listed(finished)].to_vec(),
            first: ends.map(|it| it.0),
            last: ends.map(|it| it.1),
            presence: Vec::new(),
        }
    }
}

impl ScanStream {
    /// An empty scan stream.
    pub fn new(context: Arc<ScanContext>, shape: &StreamLayout) -> Self {
        let stream_ref = StreamRef {
            scan: context.uuid,
            number: shape.number,
            directory: context.directory(shape.number, &shape.name),
            geometry: shape.geometry,
        };
        let span = tracing::info_span!(parent: &context.span, "stream", stream = %shape.name);
        span.in_scope(|| {
            let Geometry { frame_bytes, block_bytes, .. } = shape.geometry;
            tracing::debug!(source = shape.source, frame_bytes, block_bytes, "begins in the scan");
        });
        Self {
            context,
            span,
            cursor: ChainCursor::new(Arc::new(stream_ref)),
            sums: None,
            seen: None,
            watch: ClockMonitor::default(),
            foreign: 0,
            out_of_window: 0,
            differing: 0,
            unrecorded: 0,
            excluded: 0,
            foreign_bytes: 0,
            other_length: None,
            beyond: 0,
            invalid: 0,
            filled: 0,
            restarts: 0,
            second_count: Found::default(),
            lost: Vec::new(),
            pending: Vec::new(),
            history: History::default(),
        }
    }

    /// Records the arrival of frames at this time.
    #[inline]
    pub fn seen(&mut self, now: Tai) {
        self.seen = Some((self.seen.map_or(now, |(first, _)| first), now));
    }

    /// Counts a datagram that is no frame.
    pub fn foreign(&mut self, bytes: usize) {
        self.foreign += 1;
        self.foreign_bytes = bytes;
    }

    /// Counts a damaged frame. If the window counts it as a duplicate, it differs from the earlier frame.
    pub fn damaged(&mut self, arrival: Arrival, now: Tai) {
        self.differing += u64::from(arrival == Arrival::Duplicate);
        self.seen(now);
    }

    /// Counts a good frame without an index.
    pub fn beyond(&mut self, now: Tai) {
        self.beyond += 1;
        self.seen(now);
    }

    /// Counts a block that no member accepted. The index gets its frames as gaps, and the gaps
    /// that it carried, with a later block.
    pub fn lose(&mut self, filled: FullBlock) -> Block {
        let (first, frames) = (filled.first, filled.frames);
        self.span.in_scope(|| tracing::debug!(first, frames, "no member accepted a block"));
        let (lost, gaps) = Lost::of(&filled);
        self.pending.extend(gaps);
        self.lost.push(lost);
        filled.block
    }

    /// True if it has ended and all of its blocks are settled.
    pub fn complete(&self) -> bool {
        self.sums.is_some() && self.cursor.settled()
    }

    /// Builds the account without drop counters, presence and verdict, and the share of each sink if there are several.
    /// `amend` adds the drop counters to each account.
    pub fn accounts(
        &mut self,
        counted_by: CountedBy,
        format: &Format,
        amend: impl Fn(&mut Account),
    ) -> (Account, Vec<SinkShare>) {
        let sums = self.sums.take().expect("the part is complete");
        let account_of = |sums: &StreamTotals, others: &[Lost]| {
            let lost: Vec<&Lost> = self.lost.iter().chain(others).collect();
            let mut account = self.account_of(sums.clone(), &lost, counted_by);
            amend(&mut account);
            account
        };
        let share = |((blocks, bytes), share): ((u64, u64), &Share)| {
            let lacks = !share.lost.is_empty();
            let lacking = lacks.then(|| Box::new((format.clone(), account_of(&sums, &share.lost))));
            SinkShare { blocks, bytes, lacking }
        };
        let account = account_of(&sums, &[]);
        let Terms { written, missing, overrun, damaged, late, .. } = account.terms;
        self.span.in_scope(|| {
            tracing::debug!(written, missing, overrun, damaged, late, "all blocks are settled");
        });
        (account, self.cursor.shares().map(share).collect())
    }

    /// Builds the account of a sink that lacks these blocks.
    fn account_of(&self, mut sums: StreamTotals, lost: &[&Lost], counted_by: CountedBy) -> Account {
        let mut account = Account::new(counted_by);
        (account.filled, account.invalid) = (self.filled, self.invalid);
        if sums.placed {
            let only = &mut sums.flows[0].finished;
            lost.iter().for_each(|lost| only.lose_block(lost.first, lost.frames, &lost.gaps));
            let frame_bytes = self.cursor.stream_ref().geometry.frame_bytes;
            sums.bytes = only.tally.terms.written * u64::from(frame_bytes);
            account.filled -=
                lost.iter().flat_map(|lost| &lost.gaps).map(|gap| gap.count).sum::<u64>();
        }
        account.invalid -= lost.iter().map(|lost| u64::from(lost.invalid)).sum::<u64>();
        for flow in sums.flows.iter().map(|flow| &flow.finished) {
            account.gaps_unlisted += flow.tally.gaps_unlisted;
            account.terms.add(&flow.tally.terms);
            account.duplicates += flow.tally.duplicates;
            account.foreign += flow.tally.replaced;
            account.reordered += flow.tally.reordered;
            account.reorder_extent = account.reorder_extent.max(flow.tally.reorder_extent);
        }
        account.terms.written += sums.uncounted;
        account.terms.overrun += sums.uncounted_overrun;
        // Frames without an index did arrive, so they are not among those found missing afterwards.
        let correction = sums.correction.saturating_sub(self.beyond);
        account.terms.missing += correction;
        account.terms.damaged += self.beyond;
        // Gaps without an index cannot be listed: if a rate was found late, only their sum is known.
        account.gaps_unlisted += u64::from(self.beyond > 0) + u64::from(correction > 0);
        account.terms.expected +=
            sums.uncounted + sums.uncounted_overrun + correction + self.beyond;
        if !sums.placed {
            // In a sequential stream, only the number of frames of a lost block is known.
            let frames: u64 = lost.iter().map(|lost| u64::from(lost.frames)).sum();
            account.terms.written -= frames;
            account.terms.overrun += frames;
            sums.bytes -= lost.iter().map(|lost| u64::from(lost.bytes)).sum::<u64>();
        }
        account.bytes = sums.bytes;
        let differing = self.differing.min(account.duplicates);
        account.duplicates -= differing;
        account.foreign += self.foreign;
        account.out_of_window = self.out_of_window + differing;
        (account.unrecorded, account.excluded) = (self.unrecorded, self.excluded);
        account.restarts = self.restarts;
        let disagreements = self.second_count.unexplained();
        (account.disagreements, account.masked) = (disagreements, self.second_count.masked);
        account.sample_loss = self.second_count.sample_loss;
        account.over_range = self.second_count.over_range;
        account.clock = self.watch.clock_offset();
        self.edges(&mut account, &sums);
        match sums.flows.as_slice() {
            [only] => only.finished.gaps.iter().for_each(|&gap| account.push_gap(gap)),
            several => {
                account.flows = several.iter().map(SubStreamTotals::told).collect();
                let all = several.iter().map(|flow| &flow.finished);
                let beyond = all.map(|flow| flow.gaps.len() - listed(flow));
                account.gaps_unlisted += beyond.sum::<usize>() as u64;
            }
        }
        account
    }

    fn edges(&self, account: &mut Account, sums: &StreamTotals) {
        let Some((first, last)) = self.seen else { return };
        let (low, high) = match sums.flows.as_slice() {
            [SubStreamTotals { finished: only, .. }] => {
                (only.tally.low.unwrap_or(0), only.tally.high.unwrap_or(0))
            }
            _ => (0, account.terms.written.saturating_sub(1) as i64),
        };
        account.first = Some(Edge { index: low, time: sums.times.0, seen: first });
        account.last = Some(Edge { index: high, time: sums.times.1, seen: last });
    }
}

/// Problems with the frame numbers of a stream, and the warnings already sent.
#[derive(Debug, Default)]
pub struct FormatWarnings {
    rate_told: bool,
    out_of_window_reported: bool,
    foreign_told: bool,
    length_told: bool,
}

/// The number of datagrams that are no frames after which the user is warned.
pub const FOREIGN_TOLD: u64 = 8;

impl FormatWarnings {
    /// Returns a warning the first time that a problem occurs: frames far from the others, headers that frames
    /// contradict, or frames without an index. Streams without a number have no count.
    pub fn say(
        &mut self,
        shape: &StreamLayout,
        count: Option<&FrameIndexer>,
        newest: &ScanStream,
    ) -> Option<String> {
        if newest.out_of_window + newest.differing > 0 && !self.out_of_window_reported {
            self.out_of_window_reported = true;
            return Some(format!(
                "{}: frames arrived that are too far from the others, or have the time of another frame: \
                 they are dropped and counted as out of window. Look for another sender to this port, or a clock \
                 that jumps",
                shape.name
            ));
        }
        if newest.foreign >= FOREIGN_TOLD && !self.foreign_told {
            self.foreign_told = true;
            return Some(format!(
                "{}: datagrams of {} bytes arrive beside its frames. They are not frames of this stream, are not \
                 recorded, and are counted as foreign",
                shape.name, newest.foreign_bytes
            ));
        }
        if let Some(bytes) = newest.other_length.filter(|_| !self.length_told) {
            self.length_told = true;
            return Some(format!(
                "{}: datagrams of {bytes} bytes arrive beside those of {} bytes that came first. They are not recorded, \
                 and are counted as unrecorded. To record datagrams of any length, use ?frame=varying",
                shape.name,
                shape.geometry.frame_bytes + shape.stripped_bytes
            ));
        }
        let count = count?;
        if let Some((given, shown)) = count.exaggerated().filter(|_| !self.rate_told) {
            self.rate_told = true;
            return Some(format!(
                "{}: no second has a frame numbered above {}: is fps={given} right? The others of each second are \
                 counted as missing",
                shape.name,
                shown - 1
            ));
        }
        let (refuted, beyond) = (count.refuted(), newest.beyond > 0);
        if self.rate_told || (!beyond && refuted.is_none()) {
            return None;
        }
        self.rate_told = true;
        let name = &shape.name;
        Some(match (refuted, count.frames_per_second()) {
            (Some((told, shown)), _) => format!(
                "{name}: the headers tell {told} frames/s, and there are {shown} or more: the rate is \
                 learnt from the frames; times of the first second are uncertain"
            ),
            (None, Some((rate, false))) => format!(
                "{name}: frames are numbered beyond the {rate} a second that were given: they have no \
                 index, are dropped, and are counted as damaged; leave out fps=, or give the true rate"
            ),
            (None, _) => format!(
                "{name}: frames are numbered beyond the end of their second, as it was learnt: they \
                 have no index, are dropped, and are counted as damaged; give the true rate with fps="
            ),
        })
    }
}

/// Counts a frame that arrived after the cut of its scan: late or duplicate, not missing. Returns `false` if no scan
/// with open counts expected it.
pub fn came_after_cut(
    parts: &mut VecDeque<ScanStream>,
    station: u16,
    thread: u16,
    index: i64,
) -> bool {
    for part in parts.iter_mut().rev() {
        let Some(sums) = &mut part.sums else { continue };
        let of_it = |it: &&mut SubStreamTotals| (it.station, it.thread) == (station, thread);
        let Some(flow) = sums.flows.iter_mut().find(of_it) else { continue };
        let before = flow.finished.tally.duplicates;
        if flow.finished.came_late(index) {
            // It cannot be compared with the recorded frame.
            part.differing += flow.finished.tally.duplicates - before;
            return true;
        }
    }
    false
}

/// Returns the number of its gaps that an account lists.
fn listed(flow: &ScanTotals) -> usize {
    flow.gaps.len().min(GAPS_LISTED)
}

/// Returns the gaps among the slots of one page.
fn inside(gaps: &[Gap], first: i64, slots: u32) -> Vec<Gap> {
    let end = first + i64::from(slots);
    gaps.iter().copied().filter(|gap| gap.first >= first && gap.first < end).collect()
}

/// Returns the runs of slots of one page outside its gaps: frames that are present.
fn between(gaps: &[Gap], first: i64, slots: u32) -> Vec<Gap> {
    let mut at = first;
    let mut runs = Vec::new();
    let ends = gaps.iter().map(|gap| (gap.first, gap.first + gap.count as i64));
    for (start, end) in ends.chain([(first + i64::from(slots), i64::MAX)]) {
        if start > at {
            runs.push(Gap { first: at, count: (start - at) as u64, cause: Cause::Overrun });
        }
        at = end;
    }
    runs
}

/// Builds the block of a page, with its absent frames filled.
pub fn filled(
    closed: ClosedPage<Block>,
    part: &mut ScanStream,
    frame_bytes: u32,
    invalid: u32,
    time: Option<Tai>,
    came: Tai,
    crc: Option<u32>,
) -> Option<FullBlock> {
    let mut gaps = std::mem::take(&mut part.pending);
    gaps.extend(closed.gaps);
    Some(FullBlock {
        block: closed.block?,
        stream_ref: part.cursor.stream_ref().clone(),
        sequence: part.cursor.take_sequence(),
        chunk: 0,
        offset: 0,
        bytes: closed.slots * frame_bytes,
        frames: closed.slots,
        present: closed.present,
        invalid,
        first: closed.first,
        time,
        seen: came,
        gaps,
        lengths: Vec::new(),
        crc,
    })
}

/// Builds the manifest entry of a stream that capture has opened.
pub fn discovered(shape: &StreamLayout, format: &Format, directory: String) -> Stream {
    Stream {
        name: shape.name.clone(),
        directory,
        source: shape.source.clone(),
        format: format.clone(),
        stripped_bytes: shape.stripped_bytes,
        samples: samples_of_source(&shape.source),
        geometry: Some(shape.geometry),
        fill: shape.fill,
        blocks: 0,
        bytes: 0,
        account: None,
        context: None,
        renamed: None,
    }
}
