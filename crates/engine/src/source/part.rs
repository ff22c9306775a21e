//! One stream of one scan: what has been handed on of it, and what its account will say.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fullbore_core::account::{Account, CountedBy, Edge, Flow, GAPS_LISTED, Terms};
use fullbore_core::count::Count;
use fullbore_core::format::vdif::Found;
use fullbore_core::gap::{Cause, Gap};
use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::{Name, ScanName};
use fullbore_core::time::Tai;
use fullbore_core::wall::{Standing, Watch};
use fullbore_core::window::{Closed, Finished};
use uuid::Uuid;

use super::dealer::Course;
use crate::ring::{Block, Filled, Pool, Track};

/// A scan, as capture threads know it.
#[derive(Debug)]
pub struct Opening {
    /// Identity of the scan.
    pub uuid: Uuid,
    /// Its name.
    pub scan: ScanName,
    /// Whether it has one stream only, whose directory then bears the scan's name alone.
    pub single: bool,
}

impl Opening {
    /// The directory of a stream. Where a scan has one known stream, this one alone bears the scan's name: a thread
    /// that begins late has a name of its own.
    pub fn directory(&self, number: u16, stream: &Name) -> String {
        self.scan.directory((!self.single || number > 0).then_some(stream))
    }
}

/// Counters of a stream that anybody may read while it is recorded.
#[derive(Debug, Default)]
pub struct StreamGauge {
    /// Frames that came and have a place.
    pub frames: AtomicU64,
    /// Bytes of them.
    pub bytes: AtomicU64,
    /// Frames missing, so far as is certain.
    pub missing: AtomicU64,
    /// Frames without a block.
    pub overrun: AtomicU64,
    /// Frames that failed their check.
    pub damaged: AtomicU64,
    /// Frames that came too late.
    pub late: AtomicU64,
    /// Datagrams that were no frames.
    pub foreign: AtomicU64,
    /// Blocks of the pool it draws on.
    pub pool_blocks: AtomicU64,
    /// The most of them that were ever in use.
    pub high_water: AtomicU64,
    /// Blocks of them in use.
    pub used_blocks: AtomicU64,
    /// The most of them in use since whoever keeps the high-water mark over time has looked.
    pub peak_blocks: AtomicU64,
    /// Frames of each thread per second, once that is known or was learnt; else 0.
    pub frames_per_second: AtomicU64,
    /// Time for which a sender that can be held was held, for want of a block.
    pub held_ns: AtomicU64,
    /// How the time in its frames stands against the host's clock, where they carry one; brought up to date a few
    /// times a second.
    pub wall: Mutex<Option<Standing>>,
}

impl StreamGauge {
    /// Brings every counter up to date.
    pub(super) fn tell(&self, terms: &Terms, bytes: u64, foreign: u64, pool: &Pool) {
        let used = (pool.blocks() - pool.free()) as u64;
        self.peak_blocks.fetch_max(used, Ordering::Relaxed);
        for (counter, value) in [
            (&self.frames, terms.written),
            (&self.bytes, bytes),
            (&self.missing, terms.missing),
            (&self.overrun, terms.overrun),
            (&self.damaged, terms.damaged),
            (&self.late, terms.late),
            (&self.foreign, foreign),
            (&self.pool_blocks, pool.blocks() as u64),
            (&self.high_water, pool.high_water() as u64),
            (&self.used_blocks, used),
        ] {
            counter.store(value, Ordering::Relaxed);
        }
    }
}

impl StreamGauge {
    /// Brings up to date how the stream stands against the host's clock. Who reads it now is not waited for.
    pub(super) fn tell_wall(&self, watch: &Watch) {
        let standing = || Some(Standing { wall: watch.wall()?, lately_ns: watch.lately_ns()? });
        if let Ok(mut wall) = self.wall.try_lock() {
            *wall = standing();
        }
    }

    /// How it stands against the host's clock.
    pub fn standing(&self) -> Option<Standing> {
        *self.wall.lock().ok()?
    }
}

/// What is fixed of a stream once its first frames were seen.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its place in the manifest.
    pub number: u16,
    /// Its name.
    pub name: Name,
    /// The endpoint it comes from.
    pub source: String,
    /// Bytes before each frame that are not kept.
    pub stripped_bytes: u32,
    /// How it is cut.
    pub geometry: Geometry,
    /// What stands in for frames that are not there.
    pub fill: Fill,
}

impl Shape {
    /// What of a datagram comes before the frame, and the frame.
    pub fn split<'d>(&self, datagram: &'d [u8]) -> (&'d [u8], &'d [u8]) {
        datagram.split_at(datagram.len().min(self.stripped_bytes as usize))
    }
}

/// What a capture thread tells the supervisor.
#[derive(Debug)]
pub enum Notice {
    /// A stream's first frames came, and its shape is known.
    Opened {
        /// The scan.
        scan: Uuid,
        /// The stream.
        shape: Shape,
        /// What its frames are.
        format: Format,
        /// Its counters.
        gauge: Arc<StreamGauge>,
    },
    /// More has become known of what a stream's frames are.
    Described {
        /// The scan.
        scan: Uuid,
        /// Place in the manifest.
        number: u16,
        /// What its frames are.
        format: Format,
    },
    /// A stream has handed on its last block of a scan, and all of them have come to rest.
    Ended {
        /// The scan.
        scan: Uuid,
        /// Place in the manifest.
        number: u16,
        /// What its frames are, by all that was learnt.
        format: Format,
        /// Blocks written.
        blocks: u64,
        /// Bytes written.
        bytes: u64,
        /// The account, with the socket's witness, without presence and verdict.
        account: Box<Account>,
    },
    /// Datagrams that are no frames reach a port that has no stream yet.
    Unrecognised {
        /// The scan.
        scan: Uuid,
        /// Its endpoint.
        source: String,
        /// Its counters, of which only `foreign` moves.
        gauge: Arc<StreamGauge>,
    },
    /// A port of which no stream was opened in a scan.
    Silent {
        /// The scan.
        scan: Uuid,
        /// Its place in the manifest. A port that is split into threads has none: these are named as they come.
        number: Option<u16>,
        /// Its endpoint.
        source: String,
        /// What came of it that is no frame, or was left out, and what its socket counted.
        account: Box<Account>,
    },
    /// A thread has been told that the scan is over, and names no further stream of it.
    Closed {
        /// The scan.
        scan: Uuid,
    },
    /// The last part of a thread's last scan has ended.
    Done,
    /// Something that should be known at once, and that the capture goes on in spite of.
    Warning {
        /// What it is.
        text: String,
    },
    /// A capture thread cannot go on.
    Broken {
        /// What happened.
        why: String,
    },
}

/// One stream of one scan.
pub struct Part {
    /// The scan.
    pub opening: Arc<Opening>,
    /// Where its blocks go.
    pub course: Course,
    /// The books, once the scan has ended.
    pub sums: Option<Sums>,
    /// When the first and the last frame of it were taken.
    pub seen: Option<(Tai, Tai)>,
    /// The time in its frames against the host's clock.
    pub watch: Watch,
    /// Datagrams that were no frames.
    pub foreign: u64,
    /// Good frames that were thrown away, because their place was not to be believed.
    pub astray: u64,
    /// Frames that the window counted as duplicates, and that are not the same as those in their place, or could not be
    /// compared with them any more.
    pub differing: u64,
    /// Whole frames of the stream's format that no stream of the port took.
    pub unrecorded: u64,
    /// Datagrams that the user's filter left out.
    pub excluded: u64,
    /// Length of the last foreign datagram.
    pub foreign_bytes: usize,
    /// Good frames that have no place, because their number lies beyond the end of their second.
    pub beyond: u64,
    /// Frames marked invalid by their sender.
    pub invalid: u64,
    /// Fill frames.
    pub filled: u64,
    /// The sender's count started anew.
    pub restarts: u64,
    /// What the second count in its frames told.
    pub second_count: Found,
    /// Blocks that no member took.
    lost: Vec<Lost>,
    /// Gaps not yet told to the index.
    pub pending: Vec<Gap>,
}

/// A block that no member took.
struct Lost {
    first: i64,
    frames: u32,
    invalid: u32,
    bytes: u32,
    /// Gaps among its frames.
    gaps: Vec<Gap>,
}

/// The books of a stream: of one window, or of several flows added up.
#[derive(Clone, Debug)]
pub struct Sums {
    /// Whether frames have places; then there is one flow, and indices are places.
    pub placed: bool,
    /// One for each flow; a placed stream has one.
    pub flows: Vec<FlowSums>,
    /// Frames beyond the windows: of streams that nothing counts.
    pub uncounted: u64,
    /// Of those, without a block.
    pub uncounted_overrun: u64,
    /// Frames found missing at boundaries between seconds, afterwards.
    pub correction: u64,
    /// Bytes of true frames.
    pub bytes: u64,
    /// Time of the first and the last frame.
    pub times: (Option<Tai>, Option<Tai>),
}

/// The books of one flow.
#[derive(Clone, Debug)]
pub struct FlowSums {
    /// Station, as in the frames.
    pub station: u16,
    /// Thread, as in the frames.
    pub thread: u16,
    /// What its window counted.
    pub finished: Finished,
    /// Its first frame and its last, where it is one of several.
    pub ends: Option<(Edge, Edge)>,
}

impl FlowSums {
    /// Of the only flow there is.
    pub fn only(finished: Finished) -> Self {
        Self { station: 0, thread: 0, finished, ends: None }
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

impl Part {
    /// A part that holds nothing yet.
    pub fn new(opening: Arc<Opening>, shape: &Shape) -> Self {
        let track = Track {
            scan: opening.uuid,
            number: shape.number,
            directory: opening.directory(shape.number, &shape.name),
            geometry: shape.geometry,
        };
        Self {
            opening,
            course: Course::new(Arc::new(track)),
            sums: None,
            seen: None,
            watch: Watch::default(),
            foreign: 0,
            astray: 0,
            differing: 0,
            unrecorded: 0,
            excluded: 0,
            foreign_bytes: 0,
            beyond: 0,
            invalid: 0,
            filled: 0,
            restarts: 0,
            second_count: Found::default(),
            lost: Vec::new(),
            pending: Vec::new(),
        }
    }

    /// Takes note that frames were taken now.
    #[inline]
    pub fn seen(&mut self, now: Tai) {
        self.seen = Some((self.seen.map_or(now, |(first, _)| first), now));
    }

    /// Counts a datagram that is no frame.
    pub fn foreign(&mut self, bytes: usize) {
        self.foreign += 1;
        self.foreign_bytes = bytes;
    }

    /// Counts a good frame that has no place.
    pub fn beyond(&mut self, now: Tai) {
        self.beyond += 1;
        self.seen(now);
    }

    /// Counts a block that no member took. The index will hear of its frames, and of the gaps that it
    /// was to be told with the block, from a later one.
    pub fn lose(&mut self, filled: Filled) -> Block {
        let Filled { block, first, frames, invalid, bytes, gaps, .. } = filled;
        let among = inside(&gaps, first, frames);
        self.pending.extend(gaps);
        self.pending.extend(between(&among, first, frames));
        self.lost.push(Lost { first, frames, invalid, bytes, gaps: among });
        block
    }

    /// Whether it has ended and all of its blocks have come to rest.
    pub fn complete(&self) -> bool {
        self.sums.is_some() && self.course.settled()
    }

    /// The account, without witnesses, presence and verdict.
    pub fn account(&mut self, counted_by: CountedBy) -> Account {
        let mut sums = self.sums.take().expect("the part is complete");
        let mut account = Account::new(counted_by);
        if sums.placed {
            let only = &mut sums.flows[0].finished;
            self.lost.iter().for_each(|lost| only.lose_block(lost.first, lost.frames, &lost.gaps));
            let frame_bytes = self.course.track().geometry.frame_bytes;
            sums.bytes = only.tally.terms.written * u64::from(frame_bytes);
            self.filled -=
                self.lost.iter().flat_map(|lost| &lost.gaps).map(|gap| gap.count).sum::<u64>();
        }
        self.invalid -= self.lost.iter().map(|lost| u64::from(lost.invalid)).sum::<u64>();
        for flow in sums.flows.iter().map(|flow| &flow.finished) {
            account.gaps_unlisted += flow.tally.gaps_unlisted;
            account.terms.add(&flow.tally.terms);
            account.duplicates += flow.tally.duplicates;
            account.reordered += flow.tally.reordered;
            account.reorder_extent = account.reorder_extent.max(flow.tally.reorder_extent);
        }
        account.terms.written += sums.uncounted;
        account.terms.overrun += sums.uncounted_overrun;
        // Frames without a place came, so they are not among those found missing afterwards.
        let correction = sums.correction.saturating_sub(self.beyond);
        account.terms.missing += correction;
        account.terms.damaged += self.beyond;
        // Gaps without a place cannot be listed: of those found by a rate that was learnt late, only the sum is known.
        account.gaps_unlisted += u64::from(self.beyond > 0) + u64::from(correction > 0);
        account.terms.expected +=
            sums.uncounted + sums.uncounted_overrun + correction + self.beyond;
        if !sums.placed {
            // Frames lie as they came, so of a lost block only their number is known.
            let frames: u64 = self.lost.iter().map(|lost| u64::from(lost.frames)).sum();
            account.terms.written -= frames;
            account.terms.overrun += frames;
            sums.bytes -= self.lost.iter().map(|lost| u64::from(lost.bytes)).sum::<u64>();
        }
        account.bytes = sums.bytes;
        (account.filled, account.invalid) = (self.filled, self.invalid);
        let differing = self.differing.min(account.duplicates);
        account.duplicates -= differing;
        (account.foreign, account.astray) = (self.foreign, self.astray + differing);
        (account.unrecorded, account.excluded) = (self.unrecorded, self.excluded);
        account.restarts = self.restarts;
        let Found { disagreements, masked } = self.second_count;
        (account.disagreements, account.masked) = (disagreements, masked);
        account.clock = self.watch.wall();
        self.edges(&mut account, &sums);
        match sums.flows.as_slice() {
            [only] => only.finished.gaps.iter().for_each(|&gap| account.push_gap(gap)),
            several => {
                account.flows = several.iter().map(FlowSums::told).collect();
                let all = several.iter().map(|flow| &flow.finished);
                let beyond = all.map(|flow| flow.gaps.len() - listed(flow));
                account.gaps_unlisted += beyond.sum::<usize>() as u64;
            }
        }
        account
    }

    fn edges(&self, account: &mut Account, sums: &Sums) {
        let Some((first, last)) = self.seen else { return };
        let (low, high) = match sums.flows.as_slice() {
            [FlowSums { finished: only, .. }] => {
                (only.tally.low.unwrap_or(0), only.tally.high.unwrap_or(0))
            }
            _ => (0, account.terms.written.saturating_sub(1) as i64),
        };
        account.first = Some(Edge { index: low, time: sums.times.0, seen: first });
        account.last = Some(Edge { index: high, time: sums.times.1, seen: last });
    }
}

/// What is wrong with the numbers of a stream's frames, and whether it was said.
#[derive(Debug, Default)]
pub struct Doubt {
    rate_told: bool,
    astray_told: bool,
    foreign_told: bool,
}

/// So many datagrams that are no frames are no accident any more: the user is told.
pub const FOREIGN_TOLD: u64 = 8;

impl Doubt {
    /// A warning, the first time that there is something to say: frames that are not where the others are,
    /// headers that frames refute, or frames that have no place.
    pub fn say(&mut self, shape: &Shape, count: &Count, newest: &Part) -> Option<String> {
        if newest.astray + newest.differing > 0 && !self.astray_told {
            self.astray_told = true;
            return Some(format!(
                "{}: frames came that lie too far from the others to be believed, or whose time another frame has: \
                 they are thrown away and counted as astray; another sender to this port, or a clock that jumps, \
                 would explain it",
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
                 place and are thrown away as damaged; leave out fps=, or give the true rate"
            ),
            (None, _) => format!(
                "{name}: frames are numbered beyond the end of their second, as it was learnt: they \
                 have no place and are thrown away as damaged; give the true rate with fps="
            ),
        })
    }
}

/// Books a frame that came when its scan had been cut off: it was not missing, but late, or came twice.
/// `false`: no scan whose books are still here expected it.
pub fn came_after_cut(parts: &mut VecDeque<Part>, station: u16, thread: u16, index: i64) -> bool {
    for part in parts.iter_mut().rev() {
        let Some(sums) = &mut part.sums else { continue };
        let of_it = |it: &&mut FlowSums| (it.station, it.thread) == (station, thread);
        let Some(flow) = sums.flows.iter_mut().find(of_it) else { continue };
        let before = flow.finished.tally.duplicates;
        if flow.finished.came_late(index) {
            // It cannot be compared with the one that is recorded.
            part.differing += flow.finished.tally.duplicates - before;
            return true;
        }
    }
    false
}

/// How many of its gaps an account lists.
fn listed(flow: &Finished) -> usize {
    flow.gaps.len().min(GAPS_LISTED)
}

/// The gaps that lie among the slots of one page.
fn inside(gaps: &[Gap], first: i64, slots: u32) -> Vec<Gap> {
    let end = first + i64::from(slots);
    gaps.iter().copied().filter(|gap| gap.first >= first && gap.first < end).collect()
}

/// The runs of slots of one page that are not among its gaps: frames that were there.
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

/// What the index is told of a page: its block, once its absent frames are filled.
pub fn filled(
    closed: Closed<Block>,
    part: &mut Part,
    frame_bytes: u32,
    invalid: u32,
    time: Option<Tai>,
    came: Tai,
    crc: Option<u32>,
) -> Option<Filled> {
    let mut gaps = std::mem::take(&mut part.pending);
    gaps.extend(closed.gaps);
    Some(Filled {
        block: closed.block?,
        track: part.course.track().clone(),
        sequence: part.course.take_sequence(),
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
