//! Plays a stream that is still being recorded, as it becomes durable.
//!
//! ```text
//! thread of the scan:   look ─► look ─► look …           reads indexes, apart from pacing
//!                         │ blocks, gaps, state
//!                       Feed ──► FollowedFrames ──► read ahead, checked ──► frames with their times
//! ```
//!
//! The time of a block follows from the block and its neighbours, so the cost does not grow with the stream. A block
//! whose frames have no rate is played once the start of the next block is known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use fullbore_core::manifest::{INDEX_FILE, SIDE_DIRECTORY};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::follow::{self, FollowState, Follower};
use fullbore_store::gaps::Gaps;
use fullbore_store::inventory::{read_lengths, side_file};
use fullbore_store::read::Settings;
use fullbore_store::reader::{BlockClock, BlockLocation, Cursor, Item, Scan, StoredStream};
use fullbore_time::Tai;
use uuid::Uuid;

use super::stored::{MOST_LOSSES, Run, datagrams_of};
use super::{Frame, FrameSource, SourceError};

/// A scan that a separate thread reads while its streams are played.
pub struct Looking {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    leave: StopHandle,
}

/// The known state of the scan.
struct State {
    streams: BTreeMap<usize, Feed>,
    status: FollowState,
    /// The number of looks at the scan.
    looks: u64,
    /// The final scan.
    whole: Option<Arc<Scan>>,
    failed: Option<String>,
}

/// Durable blocks of a stream that were not fetched yet.
#[derive(Default)]
struct Feed {
    blocks: Vec<BlockLocation>,
    gaps: Option<Gaps>,
    /// Blocks delivered so far.
    given: usize,
}

impl Shared {
    /// A thread that panicked left the state consistent: every change of it is one statement.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Looking {
    /// Starts the thread, and returns the frames of streams, each from the block at a position on.
    pub fn begin(
        follower: Follower,
        from: &[(usize, usize)],
        until: Option<Tai>,
        settings: Settings,
    ) -> std::io::Result<(Self, Vec<FollowedFrames>)> {
        let state = State {
            streams: from.iter().map(|(number, _)| (*number, Feed::default())).collect(),
            status: follower.status(),
            looks: 0,
            whole: None,
            failed: None,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), leave: StopHandle::default() });
        let frames = |(number, position): &(usize, usize)| {
            FollowedFrames::new(&shared, follower.scan(), *number, *position, until, settings)
        };
        let frames = from.iter().map(frames).collect();
        hand_on(&follower, &shared);
        let others = shared.clone();
        let thread = Builder::new().name("follow".into());
        let thread = thread.spawn(move || look_on(follower, &others))?;
        Ok((Self { shared, thread: Some(thread) }, frames))
    }

    /// The state of the scan.
    pub fn status(&self) -> FollowState {
        self.shared.lock().status
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.shared.leave.stop();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has printed the reason to standard error.
            let _ = thread.join();
        }
    }
}

fn look_on(mut follower: Follower, shared: &Shared) {
    while !follower.status().is_over() && follower.wait(&shared.leave) {
        if let Err(error) = follower.look() {
            shared.lock().failed = Some(error.to_string());
            return;
        }
        hand_on(&follower, shared);
    }
    if follower.status().is_over() {
        let whole = Some(Arc::new(follower.into_scan()));
        shared.lock().whole = whole;
    }
}

/// Passes new blocks to the players.
fn hand_on(follower: &Follower, shared: &Shared) {
    let mut state = shared.lock();
    (state.status, state.looks) = (follower.status(), state.looks + 1);
    if state.status.is_over() {
        return;
    }
    for (number, feed) in &mut state.streams {
        let Some(stream) = follower.scan().streams.get(*number) else { continue };
        let new = stream.blocks.get(feed.given..).unwrap_or_default();
        if !new.is_empty() {
            feed.blocks.extend_from_slice(new);
            feed.gaps = Some(stream.gaps.clone());
            feed.given = stream.blocks.len();
        }
    }
}

/// The frames of a stream that is being recorded. Blocks with a wrong checksum are not played.
pub struct FollowedFrames {
    shared: Arc<Shared>,
    /// All blocks fetched so far.
    stream: StoredStream,
    scan: Uuid,
    /// Offset added to the stream's times.
    ahead_ns: i64,
    /// True if the stream uses its frames' own time; `None` while unknown.
    by_frames: Option<bool>,
    /// The number of blocks to skip.
    skip: usize,
    /// Sequence of the next block.
    next: u64,
    until: Option<Tai>,
    settings: Settings,
    cursor: Option<Cursor>,
    /// True if the scan no longer changes.
    whole: bool,
    ended: bool,
    /// A possible loss, and the number of looks after which it is certain.
    doubt: Option<(String, u64)>,
    /// Start of the latest block.
    latest: Tai,
    /// The latest duration of a thousand bytes.
    ns_per_kb: i64,
    run: Run,
    losses: Vec<String>,
    lost_frames: u64,
}

impl FollowedFrames {
    fn new(
        shared: &Arc<Shared>,
        scan: &Scan,
        number: usize,
        position: usize,
        until: Option<Tai>,
        settings: Settings,
    ) -> Self {
        let mut stream = scan.streams[number].clone();
        let begun = !stream.blocks.is_empty();
        let by_frames = begun.then(|| stream.goes_by_frames());
        let ahead_ns = if begun { scan.ahead_ns(&stream) } else { 0 };
        stream.blocks.clear();
        Self {
            shared: shared.clone(),
            stream,
            scan: scan.manifest.uuid,
            ahead_ns,
            by_frames,
            skip: position,
            next: 0,
            until,
            settings,
            cursor: None,
            whole: false,
            ended: false,
            doubt: None,
            latest: Tai(i64::MIN),
            ns_per_kb: 0,
            run: Run::default(),
            losses: Vec::new(),
            lost_frames: 0,
        }
    }

    /// Fetches new blocks. Returns the number of looks at the scan, and its state.
    fn fetch(&mut self) -> Result<(u64, FollowState), SourceError> {
        let mut state = self.shared.lock();
        if let Some(why) = &state.failed {
            return Err(why.clone().into());
        }
        if let Some(whole) = state.whole.clone() {
            drop(state);
            // The final scan includes blocks that were passed on last and not fetched yet.
            if !self.whole {
                self.take_whole(&whole);
            }
            return Ok((u64::MAX, FollowState::Sealed));
        }
        let now = (state.looks, state.status);
        if let Some(feed) = state.streams.get_mut(&self.stream.number) {
            self.stream.blocks.append(&mut feed.blocks);
            if let Some(gaps) = feed.gaps.take() {
                self.stream.gaps = gaps;
            }
        }
        Ok(now)
    }

    /// Continues with the final scan.
    fn take_whole(&mut self, scan: &Scan) {
        self.whole = true;
        let position = self.cursor.take().map_or(self.skip, |it| it.position());
        let Some(stream) = scan.streams.get(self.stream.number) else { return };
        self.stream = stream.clone();
        let next = self.next;
        self.skip = match self.next {
            0 => position,
            _ => self.stream.blocks.partition_point(|it| it.block.sequence < next),
        };
    }

    /// True if a block may be played: the following block is known, or is not needed.
    fn is_timed(&self, position: usize) -> bool {
        self.whole || self.rate().is_some() || position + 1 < self.stream.blocks.len()
    }

    fn rate(&self) -> Option<u64> {
        let by_place = self.stream.is_filled() && self.by_frames == Some(true);
        self.stream.frames_per_second().filter(|_| by_place)
    }

    /// The start of a block, not before any earlier one.
    fn start_of(&self, position: usize, before: Tai) -> Tai {
        let block = &self.stream.blocks[position].block;
        let earlier = position.checked_sub(1).map(|at| &self.stream.blocks[at].block);
        let by_place = || self.stream.time_of(block.first);
        let told = match (self.by_frames, block.time, earlier) {
            (Some(false) | None, ..) => block.seen,
            (_, Some(time), _) => time,
            // A block without a time gets the time of its place, or follows the one before at this distance.
            (_, None, Some(earlier)) if before.0 > i64::MIN => {
                by_place().unwrap_or_else(|| before.plus_ns(block.seen.since(earlier.seen).max(0)))
            }
            (_, None, _) => by_place().unwrap_or(block.seen),
        };
        told.max(before)
    }

    fn clock_of(&mut self, position: usize) -> BlockClock {
        let (block, start) =
            (self.stream.blocks[position].block, self.start_of(position, self.latest));
        self.latest = start;
        if let Some(rate) = self.rate() {
            return BlockClock::rated(start, block.first, rate);
        }
        match self.stream.blocks.get(position + 1).map(|it| it.block.first) {
            Some(next) => {
                let ns = self.start_of(position + 1, start).since(start);
                self.ns_per_kb = ns / (i64::from(block.bytes) / 1000).max(1);
                BlockClock::even(start, block.first, ns, next.saturating_sub(block.first))
            }
            None => {
                let ns = self.ns_per_kb.saturating_mul(i64::from(block.bytes) / 1000);
                BlockClock::even(start, block.first, ns, i64::from(block.frames))
            }
        }
    }

    fn lost(&mut self, what: String) {
        if self.losses.len() < MOST_LOSSES {
            self.losses.push(what);
        }
    }

    /// Counts the frames of an unreadable block.
    fn count_lost(&mut self, position: usize) {
        self.lost_frames += datagrams_of(&self.stream, &self.stream.blocks[position].block);
    }

    /// Loads the next block that can be played. `false`: no block yet, or the end.
    fn load(&mut self) -> Result<bool, SourceError> {
        let (looks, status) = self.fetch()?;
        if self.by_frames.is_none() && !self.stream.blocks.is_empty() {
            self.by_frames = Some(self.stream.goes_by_frames());
        }
        match self.doubt.take() {
            // While files are being put in order, a finding is not certain; the block is read again after that.
            Some((finding, until)) if !self.whole => {
                if status != FollowState::Recording || looks < until {
                    self.doubt = Some((finding, until));
                    return Ok(false);
                }
                self.lost(finding);
                self.count_lost(self.skip);
                self.next = self.stream.blocks[self.skip].block.sequence + 1;
                self.skip += 1;
            }
            _ => {}
        }
        loop {
            if self.cursor.is_none() && self.skip < self.stream.blocks.len() {
                let absent = self.stream.absent.partition_point(|it| it.position < self.skip);
                let cursor = Cursor::growing(&self.stream, self.skip, absent, self.settings)?;
                self.cursor = Some(cursor);
            }
            let Some(cursor) = &mut self.cursor else { return Ok(false) };
            cursor.extend(&self.stream)?;
            let position = cursor.position();
            if position >= self.stream.blocks.len() || !self.is_timed(position) {
                return Ok(false);
            }
            let Some(cursor) = &mut self.cursor else { return Ok(false) };
            let Some(item) = cursor.next(&self.stream) else { return Ok(false) };
            let of_block = cursor.position() > position;
            let block = match item {
                Item::Lost(finding) if of_block && !self.whole => {
                    // A look that begins later and finds the scan still being recorded confirms the finding.
                    self.doubt = Some((finding.to_string(), looks + 2));
                    (self.skip, self.cursor) = (position, None);
                    return Ok(false);
                }
                Item::Lost(finding) => {
                    self.lost(finding.to_string());
                    if of_block {
                        self.count_lost(position);
                    }
                    continue;
                }
                Item::Block(block) => block,
            };
            self.next = block.location.block.sequence + 1;
            let clock = self.clock_of(position);
            let starts = self.latest.plus_ns(self.ahead_ns);
            if self.until.is_some_and(|until| starts >= until) {
                self.ended = true;
                return Ok(false);
            }
            let scan = self.scan;
            let lengths = |location: &BlockLocation| match location.lengths {
                Some(at) => read_lengths(&index_of(location), scan, at),
                None => Ok(Vec::new()),
            };
            self.run.take(&self.stream, block, Some(clock), self.ahead_ns, &lengths)?;
            return Ok(true);
        }
    }
}

/// The index that contains a block: it is beside the chunk, even if the chunk has moved.
fn index_of(location: &BlockLocation) -> PathBuf {
    if let Some(records) = &location.records {
        return records.to_path_buf();
    }
    let directory = location.path.parent().unwrap_or(Path::new("."));
    match directory.ends_with(SIDE_DIRECTORY) {
        true => directory.join(INDEX_FILE),
        false => side_file(directory, INDEX_FILE),
    }
}

impl FrameSource for FollowedFrames {
    fn advance(&mut self) -> Result<bool, SourceError> {
        self.run.clear();
        if self.ended {
            return Ok(false);
        }
        let loaded = self.load()?;
        if !loaded && self.whole {
            let position = self.cursor.as_ref().map_or(self.skip, Cursor::position);
            self.ended = position >= self.stream.blocks.len();
        }
        Ok(loaded)
    }

    fn waits(&self) -> bool {
        !self.ended
    }

    fn edge(&self) -> Option<Tai> {
        let last = self.stream.blocks.len().checked_sub(1)?;
        (last > 0).then(|| self.start_of(last, self.latest).plus_ns(self.ahead_ns))
    }

    fn count(&self) -> usize {
        self.run.count()
    }

    fn frame(&self, n: usize) -> Frame<'_> {
        self.run.frame(&self.stream, n)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        Err("what is being recorded is played once".into())
    }

    fn losses(&self) -> &[String] {
        &self.losses
    }

    fn lost_frames(&self) -> u64 {
        self.lost_frames
    }
}

/// Time from a stream's first block to its newest, by the clock that it uses.
pub fn span_ns(stream: &StoredStream) -> i64 {
    match (stream.blocks.first(), stream.blocks.last()) {
        (Some(first), Some(last)) => last.block.seen.since(first.block.seen),
        _ => 0,
    }
}

/// True if the times of a stream's blocks can be computed. The rate of VDIF frames is learnt after a while.
pub fn is_timed(stream: &StoredStream) -> bool {
    let timed = || stream.blocks.iter().any(|location| location.block.time.is_some());
    !stream.format.is_frames() || timed() || span_ns(stream) > LEARNING_NS
}

/// The time after which an unknown rate is no longer waited for.
const LEARNING_NS: i64 = 3_000_000_000;

/// Waits until a scan is long enough to be played with this delay, or is over. `false`: a stop was requested.
pub fn wait_for_delay(
    follower: &mut Follower,
    numbers: &[usize],
    delay_ns: i64,
    stop: &StopHandle,
) -> Result<bool, follow::Error> {
    let mut first_seen = None;
    loop {
        let streams = || numbers.iter().filter_map(|it| follower.scan().streams.get(*it));
        let begun: Vec<&StoredStream> =
            streams().filter(|stream| !stream.blocks.is_empty()).collect();
        if !begun.is_empty() {
            let waited = first_seen.get_or_insert_with(Instant::now).elapsed().as_nanos();
            // Bursts do not double the wait.
            let waited = i64::try_from(waited).unwrap_or(i64::MAX);
            let far = begun.iter().any(|stream| span_ns(stream) >= delay_ns) || waited >= delay_ns;
            if far && (begun.iter().all(|stream| is_timed(stream)) || waited > LEARNING_NS) {
                return Ok(true);
            }
        }
        if follower.status().is_over() {
            return Ok(true);
        }
        if !follower.wait(stop) {
            return Ok(false);
        }
        follower.look()?;
    }
}
