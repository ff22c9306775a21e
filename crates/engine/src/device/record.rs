//! Bytes or frames onto a device: bare chunks, or a scan of its index.

use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use fullbore_core::account::{Account, Terms};
use fullbore_core::device::{
    DeviceEnd, Direction, End, Ending, Kind, Session, Span, Status, StoredScan, Word, tag_of,
};
use fullbore_core::endpoint::UdpSource;
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_core::units::{ByteRate, ByteSize};
use serde::Serialize;
use uuid::Uuid;

use super::capture::{self, Captured, Rig};
use super::error::Error;
use super::feed::{self, Fed, Line};
use super::guard::{self, Purpose};
use super::input::Input;
use super::medium::{Medium, unmake};
use super::overlap::Range;
use super::together::Gates;
use super::volume::{Volume, check_blocks};
use super::writer::{self, Job};
use crate::clock::Clock;
use crate::recorder::Control;
use crate::ring::{Gauge, Pool, Wake};
use crate::source;
use crate::store;
use crate::sys::memory::Region;

/// Block memory of a socket if nothing is said.
const POOL_BYTES: u64 = 512 << 20;

/// The least block memory that a socket works with.
const LEAST_POOL_BYTES: u64 = 16 << 20;

/// Blocks beyond those under way: one being filled, one waiting, one being let go, one to spare.
const SPARE_BLOCKS: u64 = 4;

/// A round of syncs starts after so many bytes …
const ROUND_BYTES: u64 = 256 << 20;

/// … or after this time.
const ROUND_INTERVAL: Duration = Duration::from_millis(250);

/// Where frames or bytes come from.
pub enum Source {
    /// Bytes as they come.
    Input(Box<dyn Input>),
    /// Datagrams.
    Udp(Box<UdpSource>),
}

/// When it ends by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limit {
    /// After this time.
    pub duration: Option<Duration>,
    /// After so many bytes.
    pub bytes: Option<u64>,
}

/// What is to be recorded, and where.
pub struct Plan {
    /// Where it comes from.
    pub source: Source,
    /// What the source is called.
    pub source_name: String,
    /// The device, and which chunks of it.
    pub end: DeviceEnd,
    /// The scan that it becomes; bare chunks without a name.
    pub scan: Option<ScanName>,
    /// The name that was typed of a device that may be overwritten.
    pub overwrite: Option<PathBuf>,
    /// When it ends.
    pub limit: Limit,
    /// Whether what the source still has is taken and dropped in the end.
    pub flush: bool,
    /// Block memory.
    pub buffer: Option<ByteSize>,
    /// How often data is made durable at least.
    pub sync_interval: Option<Duration>,
    /// Cores for the capture thread and the writer.
    pub cpus: Vec<usize>,
}

/// What is told while it runs.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Stage {
    /// Everything is open, and the first byte can come.
    Armed {
        /// The device.
        device: PathBuf,
        /// The scan.
        scan: Option<ScanName>,
        /// The source.
        source: String,
        /// The chunks that may be written.
        span: Span,
        /// Whether it is written past the page cache.
        direct: bool,
        /// Bytes of block memory.
        pool_bytes: u64,
    },
    /// Something that should be known, and does not end the recording.
    Warning {
        /// What.
        text: String,
    },
    /// How things stand, several times a second.
    Progress(Progress),
}

/// How a recording stands.
#[derive(Clone, Debug, Serialize)]
pub struct Progress {
    /// The write status so far.
    pub status: Status,
    /// Seconds since it began.
    pub seconds: f64,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes of them that are safe.
    pub durable_bytes: u64,
    /// Bytes per second since the last progress.
    pub rate: u64,
    /// Bytes handed to the writer and not yet written.
    pub backlog_bytes: u64,
    /// Bytes that there is room for.
    pub room_bytes: u64,
    /// Frames missing.
    pub missing: u64,
    /// Frames without a block.
    pub overrun: u64,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Recorded {
    /// The device.
    pub device: PathBuf,
    /// The write status.
    pub status: Status,
    /// The scan as the index has it now.
    pub scan: Option<StoredScan>,
    /// The account, of a source of frames.
    pub account: Option<Account>,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes of them that a sync has covered.
    pub durable_bytes: u64,
    /// From the first byte taken to the last one durable.
    pub seconds: f64,
    /// Bytes per second.
    pub rate: u64,
    /// The longest time that writing a block took, in nanoseconds.
    pub longest_write_ns: u64,
    /// The longest round of syncs, in nanoseconds.
    pub longest_sync_ns: u64,
    /// Why the device or the source was given up.
    pub failure: Option<String>,
    /// Whether there was no more room.
    pub full: bool,
    /// The rate of a paced source that had to wait for the device.
    pub held_up: Option<ByteRate>,
    /// Whether the source ended before the address, or the number of bytes, that was asked for.
    pub early: bool,
}

impl Recorded {
    /// Whether all that was to be recorded came and is on the device: no failure, no early end, no abort, no frame
    /// lost, and no lack of room in a scan.
    pub fn is_whole(&self) -> bool {
        self.failure.is_none()
            && !self.early
            && self.bytes > 0
            && !(self.scan.is_some() && self.full)
            && !self.status.has(Word::Aborted)
            && self.account.as_ref().is_none_or(|account| account.completeness().is_good())
    }
}

/// Records until the source ends, a limit is reached, there is no more room, or an end is asked for.
pub fn record(
    plan: Plan,
    control: &Control,
    tell: &mut dyn FnMut(&Stage),
) -> Result<Recorded, Error> {
    record_behind(plan, None, control, tell)
}

/// The same, and waits at gates for the other devices of a recording.
pub(super) fn record_behind(
    plan: Plan,
    gates: Option<&Gates>,
    control: &Control,
    tell: &mut dyn FnMut(&Stage),
) -> Result<Recorded, Error> {
    let purpose = if plan.scan.is_some() { Purpose::Index } else { Purpose::Bare };
    let size = plan.end.size.map(|size| size.0);
    let address = |source| Error::Address { path: plan.end.path.clone(), source };
    plan.end.chunk_bytes().map_err(address)?;
    let cleared = guard::clear(&plan.end.path, plan.overwrite.as_deref(), purpose, size)?;
    if let (Some(bytes), Purpose::Bare) = (cleared.create_bytes(), purpose) {
        // No file is made for addresses that it would not have.
        plan.end.span(bytes).map_err(address)?;
    }
    let medium = Arc::new(Medium::open_to_write(&cleared)?);
    let made = cleared.create_bytes().is_some().then(|| plan.end.path.clone());
    let mut armed = false;
    let mut tell = |stage: &Stage| {
        armed |= matches!(stage, Stage::Armed { .. });
        tell(stage);
    };
    let opened = gates.map_or(Ok(()), |gates| gates.opened.pass(control));
    let by = By { gates, control };
    let recorded = opened.and_then(|()| match plan.scan.clone() {
        None => record_bare(plan, medium, by, &mut tell),
        Some(name) => record_indexed(plan, name, medium, cleared.is_indexed(), by, &mut tell),
    });
    if let (Some(path), Err(error)) = (made, &recorded)
        && (!armed || error.is_before_the_first_byte())
    {
        unmake(&path);
    }
    recorded
}

/// Who says when a recording begins and ends.
#[derive(Clone, Copy)]
struct By<'a> {
    gates: Option<&'a Gates>,
    control: &'a Control,
}

impl By<'_> {
    /// Waits until all devices of the recording are ready.
    fn ready(self) -> Result<(), Error> {
        self.gates.map_or(Ok(()), |gates| gates.ready.pass(self.control))
    }
}

fn record_indexed(
    plan: Plan,
    name: ScanName,
    medium: Arc<Medium>,
    indexed: bool,
    by: By<'_>,
    tell: &mut dyn FnMut(&Stage),
) -> Result<Recorded, Error> {
    if !indexed {
        // A new index wipes what lay there.
        refuse_overlap(&plan.source, &medium, 0, u64::MAX)?;
    }
    let volume = open_volume(&plan.end, medium, indexed)?;
    refuse_what_is_no_scan(&plan.source, &volume)?;
    record_scan(plan, name, volume, by, tell)
}

/// Refuses a source of which bytes between two addresses of the medium would be read.
fn refuse_overlap(source: &Source, medium: &Medium, first: u64, end: u64) -> Result<(), Error> {
    let Source::Input(input) = source else { return Ok(()) };
    let (Some(read), Some(of)) = (input.range(), medium.identity()) else { return Ok(()) };
    match read.meets(&Range { of, first, end }) {
        true => {
            let path = medium.path().to_owned();
            Err(Error::Overlap { path, first: read.first, end: read.end })
        }
        false => Ok(()),
    }
}

/// Of a device with an index only what belongs to its scans stays as it is.
fn refuse_what_is_no_scan(source: &Source, volume: &Volume) -> Result<(), Error> {
    let mut kept: Vec<(u64, u64)> = volume
        .superblock()
        .scans
        .iter()
        .map(|scan| volume.span_of(scan))
        .map(|span| (span.first(), span.end()))
        .collect();
    kept.sort_unstable();
    let mut free_from = 0;
    for (first, end) in kept.into_iter().chain([(u64::MAX, u64::MAX)]) {
        if free_from < first {
            refuse_overlap(source, volume.medium(), free_from, first)?;
        }
        free_from = end;
    }
    Ok(())
}

/// The index that is there, or a new one.
fn open_volume(end: &DeviceEnd, medium: Arc<Medium>, indexed: bool) -> Result<Volume, Error> {
    let address = |source| Error::Address { path: end.path.clone(), source };
    let asked = end.chunk_bytes().map_err(address)?;
    if !indexed {
        return Volume::make(medium, asked);
    }
    let volume = Volume::open(medium)?;
    let there = volume.layout().chunk_bytes;
    if end.chunk.is_some() && asked != there {
        return Err(Error::OtherChunk { path: end.path.clone(), there, asked });
    }
    Ok(volume)
}

fn record_bare(
    plan: Plan,
    medium: Arc<Medium>,
    by: By<'_>,
    tell: &mut dyn FnMut(&Stage),
) -> Result<Recorded, Error> {
    let span = medium.span(&plan.end)?;
    refuse_overlap(&plan.source, &medium, span.first(), span.end())?;
    let job = job(&plan, medium.clone(), span, None);
    let uuid = Uuid::now_v7();
    // A name that only the capture thread needs.
    let name = "bare_chunks".parse().expect("it is a name");
    let moved = run(plan, job, name, uuid, by, tell, &mut |_| Ok(()))?;
    Ok(recorded(moved, &medium, None))
}

fn record_scan(
    plan: Plan,
    name: ScanName,
    mut volume: Volume,
    by: By<'_>,
    tell: &mut dyn FnMut(&Stage),
) -> Result<Recorded, Error> {
    let layout = volume.layout();
    if let Some(error) = volume.damage() {
        tell(&Stage::Warning { text: format!("one copy of the scan index is not good: {error}") });
    }
    let (block_bytes, most) = match &plan.source {
        Source::Input(input) => {
            let both = [input.bytes(), plan.limit.bytes].into_iter().flatten().min();
            (plan.end.block_bytes(layout.chunk_bytes), both)
        }
        Source::Udp(source) => {
            if let Some(block) = source.block {
                check_blocks(block.0.min(u64::from(u32::MAX)) as u32, layout.chunk_bytes)?;
            }
            (layout.chunk_bytes, None)
        }
    };
    let mut scan = volume.begin(&name, block_bytes, most, plan.source_name.clone())?;
    let medium = volume.medium().clone();
    let span = volume.span_of(&scan);
    let job = job(&plan, medium.clone(), span, Some((layout, tag_of(scan.uuid))));
    let uuid = scan.uuid;
    // What is learnt of the frames is written down at once: after a crash it cannot be asked for.
    let mut opened = |known: capture::Known| {
        learn(&mut scan, known);
        volume.update(&scan)
    };
    let moved = run(plan, job, name, uuid, by, tell, &mut opened);
    let moved = match moved {
        Ok(moved) => moved,
        Err(error) => {
            // A scan that never began leaves no trace; of one that did `recover` keeps what there is.
            if error.is_before_the_first_byte() {
                volume.remove(&scan.name)?;
            }
            return Err(error);
        }
    };
    seal(&mut scan, &moved, span);
    volume.update(&scan)?;
    Ok(recorded(moved, &medium, Some(scan)))
}

fn learn(scan: &mut StoredScan, known: capture::Known) {
    scan.kind = if known.vdif { Kind::Vdif } else { Kind::Raw };
    scan.frame_bytes = known.frame_bytes;
    scan.block_bytes = known.block_bytes;
    scan.frames_per_second = known.frames_per_second;
}

/// Writes down what a scan has become.
fn seal(scan: &mut StoredScan, moved: &Moved, span: Span) {
    let end = moved.session.end();
    scan.state = if end == Some(End::Aborted) { State::Aborted } else { State::Sealed };
    scan.ending = match end {
        Some(End::Failed) => Ending::Failed,
        Some(End::Aborted) => Ending::Aborted,
        _ if moved.full => Ending::Full,
        _ if moved.limited => Ending::Complete,
        Some(End::Stopped) => Ending::Stopped,
        Some(End::Complete | End::Early) | None => Ending::Complete,
    };
    (scan.bytes, scan.blocks) = match end {
        // Only of what is durable it is certain that it has records.
        Some(End::Failed) => (moved.durable.bytes, moved.durable.blocks),
        _ => (moved.session.written(), moved.blocks),
    };
    scan.limit = span.shortened(scan.bytes).last();
    scan.ended = Some(Clock::new().now());
    if let Some(known) = moved.known {
        learn(scan, known);
    }
    if let Some(account) = &moved.account {
        (scan.terms, scan.verdict) = (account.terms, account.verdict);
    } else {
        scan.terms = Terms::default();
    }
}

/// What a sync has covered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Durable {
    pub blocks: u64,
    pub bytes: u64,
}

impl Durable {
    /// A round has ended.
    pub fn grow(&mut self, sequences: &[u64], bytes: u64) {
        self.blocks += sequences.len() as u64;
        self.bytes += bytes;
    }
}

/// What has been written, whatever it came from.
struct Moved {
    session: Session,
    known: Option<capture::Known>,
    account: Option<Account>,
    blocks: u64,
    durable: Durable,
    failure: Option<String>,
    limited: bool,
    full: bool,
    held_up: Option<ByteRate>,
    seconds: f64,
    gauge: Arc<Gauge>,
}

/// Starts the writer, and moves what the source gives.
fn run(
    plan: Plan,
    job: Job,
    name: ScanName,
    uuid: Uuid,
    by: By<'_>,
    tell: &mut dyn FnMut(&Stage),
    opened: &mut dyn FnMut(capture::Known) -> Result<(), Error>,
) -> Result<Moved, Error> {
    let (span, medium, path) = (job.span, job.medium.clone(), job.medium.path().to_owned());
    let armed = |pool_bytes: u64| Stage::Armed {
        device: path.clone(),
        scan: plan.scan.clone(),
        source: plan.source_name.clone(),
        span,
        direct: medium.direct(),
        pool_bytes,
    };
    match plan.source {
        Source::Input(mut input) => {
            let block_bytes = plan.end.block_bytes(span.chunk_bytes());
            let blocks = plan.end.depth() + SPARE_BLOCKS;
            let wanted = plan.buffer.map_or(blocks * u64::from(block_bytes), |size| size.0);
            let pool = pool(wanted, block_bytes)?;
            let mut session = Session::new(Direction::Write, span, plan.limit.bytes, plan.flush);
            if plan.end.last.is_none() && plan.limit.bytes.is_none() {
                session = session.as_long_as_the_source();
            }
            by.ready()?;
            let (line, gauge) = line(job, pool.blocks())?;
            tell(&armed(pool.blocks() as u64 * u64::from(block_bytes)));
            let setup = feed::Setup {
                path,
                line,
                pool,
                block_bytes,
                session,
                duration: plan.limit.duration,
            };
            let Fed { session, blocks, durable, failure, limited, seconds } =
                feed::feed(setup, input.as_mut(), by.control, tell)?;
            // All the room there was, and nobody had asked for just so much.
            let full = session.written() == span.bytes()
                && plan.limit.bytes.is_none_or(|bytes| bytes > span.bytes())
                && input.bytes().is_none_or(|bytes| bytes > span.bytes());
            Ok(Moved {
                session,
                known: None,
                account: None,
                blocks,
                durable,
                failure,
                limited,
                full,
                held_up: input.held_up(),
                seconds,
                gauge,
            })
        }
        Source::Udp(source) => {
            let pool_bytes = plan.buffer.map_or(POOL_BYTES, |size| size.0).max(LEAST_POOL_BYTES);
            let port = capture::listen(&source, pool_bytes)?;
            by.ready()?;
            let (rig, gauge) = rig(job, port.most_blocks())?;
            // Datagrams are not waited for, so nothing is left to flush.
            let session = Session::new(Direction::Write, span, None, false);
            let setup = capture::Setup {
                source: &source,
                scan: name,
                uuid,
                session,
                limit: plan.limit,
                cpu: plan.cpus.first().copied(),
                path: &path,
                armed: armed(pool_bytes),
            };
            let captured = capture::capture(setup, port, rig, by.control, tell, opened)?;
            let Captured { session, known, account, blocks, durable, .. } = captured;
            let Captured { failure, limited, full, seconds, .. } = captured;
            Ok(Moved {
                session,
                known,
                account,
                blocks,
                durable,
                failure,
                limited,
                full,
                held_up: None,
                seconds,
                gauge,
            })
        }
    }
}

fn job(
    plan: &Plan,
    medium: Arc<Medium>,
    span: Span,
    records: Option<(fullbore_core::device::Volume, u64)>,
) -> Job {
    Job {
        medium,
        span,
        records,
        depth: plan.end.depth(),
        round_bytes: ROUND_BYTES,
        round_interval: plan.sync_interval.unwrap_or(ROUND_INTERVAL),
        cpu: plan.cpus.get(1).copied(),
    }
}

fn pool(bytes: u64, block_bytes: u32) -> Result<Pool, Error> {
    let bytes = bytes.max(2 * u64::from(block_bytes));
    let memory = |source| Error::Memory { bytes, source };
    let region = Region::new(bytes as usize).map_err(memory)?;
    Ok(Pool::new(Arc::new(region), block_bytes as usize, 0))
}

/// A writer, and the way to it for whoever fills blocks.
fn line(job: Job, blocks: usize) -> Result<(Line, Arc<Gauge>), Error> {
    let room = blocks + source::Lane::FINISHES;
    let (commands, from_source) = rtrb::RingBuffer::new(room);
    let (to_source, returned) = rtrb::RingBuffer::new(room);
    let (report, reports) = mpsc::channel();
    let wake = Arc::new(Wake::new().map_err(|source| Error::Thread { source })?);
    let gauge = Arc::new(Gauge::default());
    let side = store::Lane { commands: from_source, returned: to_source };
    let writer = writer::spawn(job, side, gauge.clone(), report, wake.clone())?;
    let line = Line { commands, returned, gauge: gauge.clone(), wake, reports, writer };
    Ok((line, gauge))
}

/// The same for a capture thread.
fn rig(job: Job, blocks: usize) -> Result<(Rig, Arc<Gauge>), Error> {
    let (Line { commands, returned, gauge, wake, reports, writer }, _) = line(job, blocks)?;
    let lane = source::Lane::new(commands, returned, gauge.clone(), wake, blocks);
    Ok((Rig { lane, gauge: gauge.clone(), reports, writer }, gauge))
}

fn recorded(moved: Moved, medium: &Medium, scan: Option<StoredScan>) -> Recorded {
    use std::sync::atomic::Ordering::Relaxed;
    let bytes = moved.session.written();
    let early = moved.session.end() == Some(End::Early);
    Recorded {
        device: medium.path().to_owned(),
        status: moved.session.status(),
        scan,
        account: moved.account,
        bytes,
        durable_bytes: moved.durable.bytes,
        seconds: moved.seconds,
        rate: (bytes as f64 / moved.seconds.max(1e-6)) as u64,
        longest_write_ns: moved.gauge.longest_write_ns.load(Relaxed),
        longest_sync_ns: moved.gauge.longest_sync_ns.load(Relaxed),
        failure: moved.failure,
        full: moved.full,
        held_up: moved.held_up,
        early,
    }
}
