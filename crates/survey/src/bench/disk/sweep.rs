//! Peak rates: short sessions of many shapes, each run several times.
//!
//! All writing comes first, each run into unwritten space, like the chunks of a recording. Then files are written once
//! in full, and all reading uses those.
//!
//! For each block size that ends within a sector, the size rounded down to whole pages is measured as well: otherwise
//! its cost would be compared with a block of a different size.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::layout::ALIGNMENT;
use fullbore_core::pattern::{Pattern, Prbs};
use fullbore_core::units::ByteSize;
use fullbore_linux::ring::Pool;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::memory::Region;

use super::error::Error;
use super::io_queue::{Failed, IoQueue, Moved, Session};
use super::target::{Place, PlaceKind, Scratch};
use super::{Watcher, cpu_seconds};
use crate::bench::result::{
    Curve, Direction, Level, Mode, Modifier, Note, ReadModifyWrite, Spread, SweepPoint,
};

/// A chunk of the NVMe recorders: the unit of sessions.
pub const CHUNK_BYTES: u64 = 128 << 10;

/// The block size for filling the files to read.
const FILLING_BYTES: u32 = 1 << 20;

/// The settings of the sweep.
#[derive(Clone, Debug)]
pub struct SweepRequest {
    /// Bytes per session.
    pub sessions: Vec<u64>,
    /// Bytes per block.
    pub blocks: Vec<u64>,
    /// Concurrent blocks.
    pub depths: Vec<u32>,
    /// Files on each target.
    pub files: Vec<u32>,
    /// The modes.
    pub modes: Vec<Mode>,
    /// The directions.
    pub directions: Vec<Direction>,
    /// The number of runs.
    pub runs: u32,
    /// True to report the rate of each run.
    pub iterations: bool,
    /// The time limit of a run.
    pub run_time: Duration,
    /// The session size of all curves except that of sessions.
    pub session_bytes: u64,
    /// The block size of all curves except that of blocks.
    pub block_bytes: u64,
    /// The depth of all curves except that of depths.
    pub depth: u32,
}

/// A point to measure.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    curves: Vec<Curve>,
    direction: Direction,
    mode: Mode,
    session_bytes: u64,
    block_bytes: u64,
    depth: u32,
    files: u32,
}

impl Point {
    fn is_shaped_like(&self, other: &Point) -> bool {
        let shape = |point: &Point| Point { curves: vec![], ..point.clone() };
        shape(self) == shape(other)
    }
}

impl SweepRequest {
    /// Every point once, even if several curves contain it; all writing before all reading.
    fn points(&self) -> Vec<Point> {
        let usual = |direction, curve| Point {
            curves: vec![curve],
            direction,
            mode: self.modes.first().copied().unwrap_or(Mode::Buffered),
            session_bytes: self.session_bytes,
            block_bytes: self.block_bytes.min(self.session_bytes),
            depth: self.depth,
            files: 1,
        };
        let mut points: Vec<Point> = vec![];
        let mut add = |point: Point| match points.iter_mut().find(|at| at.is_shaped_like(&point)) {
            Some(known) => known.curves.extend(&point.curves),
            None => points.push(point),
        };
        let mut directions = self.directions.clone();
        directions.sort_by_key(|direction| *direction == Direction::Read);
        for direction in directions {
            for &session_bytes in &self.sessions {
                let block_bytes = self.block_bytes.min(session_bytes);
                add(Point { session_bytes, block_bytes, ..usual(direction, Curve::Session) });
            }
            for &block_bytes in &self.blocks {
                add(Point { block_bytes, ..usual(direction, Curve::Block) });
            }
            for &depth in &self.depths {
                add(Point { depth, ..usual(direction, Curve::Depth) });
            }
            for &mode in &self.modes {
                add(Point { mode, ..usual(direction, Curve::Mode) });
            }
            for &files in &self.files {
                add(Point { files, ..usual(direction, Curve::Files) });
            }
        }
        points
    }
}

/// The results of a sweep.
#[derive(Debug, Default)]
pub struct Swept {
    /// The points in the order of measurement.
    pub points: Vec<SweepPoint>,
    /// Notes on omitted points.
    pub notes: Vec<Note>,
}

/// Measures all points for which the places have space.
pub fn run(
    places: &[Place],
    request: &SweepRequest,
    room: u64,
    watcher: &mut Watcher,
) -> Result<Swept, Error> {
    let mut swept = Swept::default();
    let points = feasible(places, request, room, &mut swept.notes)?;
    let mut bench = Bench::new(places, request, &points)?;
    for (number, point) in points.iter().enumerate() {
        if watcher.stop.is_requested() {
            break;
        }
        (watcher.tell)(&told(point), number as f64 / points.len() as f64);
        if point.direction == Direction::Read && !bench.filled {
            bench.fill(&points, watcher)?;
        }
        if let Some(measured) = bench.measure(point, watcher.stop)? {
            swept.points.push(measured);
        }
    }
    bench.release();
    compare_with_aligned(&mut swept.points, places[0].facts.sector_bytes);
    Ok(swept)
}

/// Removes points that the places do not support, with a note.
fn feasible(
    places: &[Place],
    request: &SweepRequest,
    room: u64,
    notes: &mut Vec<Note>,
) -> Result<Vec<Point>, Error> {
    let mut note = |text: String| {
        let note = Note { level: Level::Info, text };
        if !notes.contains(&note) {
            notes.push(note);
        }
    };
    let plain = places.iter().any(|place| matches!(place.kind, PlaceKind::Plain(_)));
    // The files of several counts are all filled before the first is read.
    let room = if request.files.iter().any(|&files| files > 1) && !plain { room / 2 } else { room };
    let mut possible = request.clone();
    possible.modes.retain(|mode| {
        let taken = places.iter().all(|place| place.takes(*mode));
        if !taken {
            note(match mode {
                Mode::Direct => {
                    "direct I/O is left out: at least one target does not write past the page cache"
                        .into()
                }
                _ => "uncached writing is left out: RWF_DONTCACHE needs Linux 6.14 and a file \
                      system that knows it"
                    .into(),
            });
        }
        taken
    });
    let mut points = with_partners(possible.points(), places[0].facts.sector_bytes);
    // The last block of each file may be incomplete, and takes its full space.
    let space = |point: &Point| match plain {
        true => point.session_bytes,
        false => {
            let files = u64::from(point.files) * places.len() as u64;
            point.session_bytes.saturating_add(files.saturating_mul(point.block_bytes))
        }
    };
    points.retain(|point| {
        if plain && point.files > 1 {
            note("several files are left out: the target is one file or device".into());
            return false;
        }
        if space(point) > room {
            note(format!(
                "sessions of {} in blocks of {} are left out: there is room for {}",
                ByteSize(point.session_bytes),
                ByteSize(point.block_bytes),
                ByteSize(room)
            ));
            return false;
        }
        true
    });
    if points.is_empty() {
        let needed = ByteSize(possible.points().iter().map(space).min().unwrap_or(0));
        let place = &places[0];
        let free = ByteSize(room);
        let reserve = ByteSize(place.facts.free.0.saturating_sub(room));
        return Err(Error::TooSmall { path: place.path().to_owned(), free, reserve, needed });
    }
    Ok(points)
}

/// Files, memory and ring of a sweep.
struct Bench<'a> {
    places: &'a [Place],
    request: &'a SweepRequest,
    /// The first file of each place, then the second of each, …
    files: Vec<Scratch>,
    /// Bytes of each that hold data.
    filled_bytes: Vec<u64>,
    filled: bool,
    region: Arc<Region>,
    io_queue: IoQueue,
}

impl<'a> Bench<'a> {
    fn new(
        places: &'a [Place],
        request: &'a SweepRequest,
        points: &[Point],
    ) -> Result<Self, Error> {
        let most = points.iter().map(|point| point.files).max().unwrap_or(1);
        let mut files = vec![];
        for _ in 0..most {
            for place in places {
                let cannot = |source| Error::Open { path: place.path().to_owned(), source };
                files.push(place.scratch().map_err(cannot)?);
            }
        }
        let memory = points.iter().map(|point| stride(point.block_bytes) * u64::from(point.depth));
        let bytes = memory.max().unwrap_or(0).max(8 * u64::from(FILLING_BYTES));
        let region = filled_region(bytes)?;
        let filled_bytes = vec![0; files.len()];
        let io_queue = IoQueue::new()?;
        Ok(Self { places, request, files, filled_bytes, filled: false, region, io_queue })
    }

    fn measure(&mut self, point: &Point, stop: &StopHandle) -> Result<Option<SweepPoint>, Error> {
        let count = point.files as usize * self.places.len();
        let opened = self.open(count, point.mode)?;
        let mut rates = vec![];
        let mut all = Moved::default();
        let mut cpu = 0.0;
        let mut bytes = point.session_bytes;
        if point.direction == Direction::Read {
            let least = self.filled_bytes[..count].iter().min().copied().unwrap_or(0);
            bytes = bytes.min(least * count as u64);
            all.cut = bytes < point.session_bytes;
        }
        for _ in 0..self.request.runs {
            if stop.is_requested() {
                break;
            }
            self.prepare(point, count)?;
            let before = cpu_seconds();
            let session = Session {
                files: &opened,
                direction: point.direction,
                mode: point.mode,
                bytes,
                block_bytes: point.block_bytes as u32,
                depth: point.depth,
                sector_bytes: self.places[0].facts.sector_bytes,
                time: self.request.run_time,
            };
            let mut pool = Pool::new(self.region.clone(), stride(point.block_bytes) as usize, 0);
            let moved = self.io_queue.run(&session, &mut pool, stop);
            let moved = moved.map_err(|failed| self.failed(failed))?;
            cpu += cpu_seconds() - before;
            if moved.bytes > 0 {
                rates.push(moved.bytes as f64 / moved.elapsed.as_secs_f64().max(1e-9));
            }
            all.bytes += moved.bytes;
            all.slowest = all.slowest.max(moved.slowest);
            all.extra_read_bytes += moved.extra_read_bytes;
            all.extra_written_bytes += moved.extra_written_bytes;
            all.cut |= moved.cut;
        }
        if rates.is_empty() {
            return Ok(None);
        }
        Ok(Some(SweepPoint {
            curves: point.curves.clone(),
            direction: point.direction,
            mode: point.mode,
            session_bytes: point.session_bytes,
            block_bytes: point.block_bytes,
            depth: point.depth,
            files: point.files * self.places.len() as u32,
            moved_bytes: all.bytes,
            rate: Spread::of(&rates),
            iterations: if self.request.iterations { rates } else { vec![] },
            cpu_s_per_gb: cpu / (all.bytes as f64 / 1e9),
            slowest_ms: all.slowest.as_secs_f64() * 1e3,
            read_modify_write: self.modified(point, &all),
            cut_by_time: all.cut,
        }))
    }

    /// The cost of blocks that end within sectors, if there are any.
    fn modified(&self, point: &Point, all: &Moved) -> Option<ReadModifyWrite> {
        let sector = u64::from(self.places[0].facts.sector_bytes);
        let unaligned = !point.block_bytes.is_multiple_of(sector);
        let by_us = point.mode == Mode::Direct;
        unaligned.then_some(ReadModifyWrite {
            by: if by_us { Modifier::Program } else { Modifier::Kernel },
            extra_read_bytes: all.extra_read_bytes,
            extra_written_bytes: all.extra_written_bytes,
            ratio_to_aligned: None,
        })
    }

    fn open(&self, count: usize, mode: Mode) -> Result<Vec<Arc<OwnedFd>>, Error> {
        let path = || self.places[0].path().to_owned();
        let open = |file: &Scratch| file.open(mode);
        let opened: Result<_, _> = self.files[..count].iter().map(open).collect();
        opened.map_err(|source| Error::Open { path: path(), source })
    }

    /// Allocates fresh space for writing, or drops the page cache for reading.
    fn prepare(&self, point: &Point, count: usize) -> Result<(), Error> {
        // The last block of a session may end within a sector, and uses all of it.
        let share = point.session_bytes.div_ceil(count as u64) + point.block_bytes;
        let share = share.next_multiple_of(ALIGNMENT);
        for file in &self.files[..count] {
            match point.direction {
                Direction::Write => file.take_space(share).map_err(|source| {
                    let what = format!("taking {}", ByteSize(share));
                    Error::Transfer { path: self.places[0].path().to_owned(), what, source }
                })?,
                Direction::Read => file.forget(),
            }
        }
        Ok(())
    }

    /// Writes all files in full for reading.
    fn fill(&mut self, points: &[Point], watcher: &mut Watcher) -> Result<(), Error> {
        self.filled = true;
        let direct = self.places.iter().all(|place| place.takes(Mode::Direct));
        let mode = if direct { Mode::Direct } else { Mode::Buffered };
        let reading = || points.iter().filter(|point| point.direction == Direction::Read);
        for number in 0..self.files.len() {
            let share = |point: &Point| {
                let count = u64::from(point.files) * self.places.len() as u64;
                (number < count as usize).then(|| {
                    (point.session_bytes.div_ceil(count) + 2 * point.block_bytes.min(1 << 24))
                        .next_multiple_of(FILLING_BYTES.into())
                })
            };
            let bytes = reading().filter_map(share).max().unwrap_or(0);
            let most = self.places[number % self.places.len()].facts.free.0;
            let bytes = bytes.min(most / u64::from(FILLING_BYTES) * u64::from(FILLING_BYTES));
            if bytes == 0 || watcher.stop.is_requested() {
                continue;
            }
            (watcher.tell)("writing what is to be read", f64::NAN);
            let file = self.files[number].clone();
            let cannot = |source| Error::Open { path: self.places[0].path().to_owned(), source };
            file.take_space(bytes).map_err(cannot)?;
            let opened = [file.open(mode).map_err(cannot)?];
            let session = Session {
                files: &opened,
                direction: Direction::Write,
                mode,
                bytes,
                block_bytes: FILLING_BYTES,
                depth: 8,
                sector_bytes: self.places[0].facts.sector_bytes,
                time: self.request.run_time * 10,
            };
            let mut pool = Pool::new(self.region.clone(), FILLING_BYTES as usize, 0);
            let moved = self.io_queue.run(&session, &mut pool, watcher.stop);
            self.filled_bytes[number] = moved.map_err(|failed| self.failed(failed))?.bytes;
        }
        Ok(())
    }

    /// Frees all space at once for the long run.
    fn release(&self) {
        for file in &self.files {
            // Remaining space is freed when the file is closed.
            let _ = file.release();
        }
    }

    fn failed(&self, failed: Failed) -> Error {
        let path = self.places[0].path().to_owned();
        Error::Transfer { path, what: failed.what, source: failed.source }
    }
}

/// Memory per block: room for the sectors at both ends.
fn stride(block_bytes: u64) -> u64 {
    let ends = if block_bytes.is_multiple_of(ALIGNMENT) { 0 } else { 2 * ALIGNMENT };
    (block_bytes + ends).next_multiple_of(ALIGNMENT)
}

/// Memory filled with data that neither compresses nor repeats soon.
pub fn filled_region(bytes: u64) -> Result<Arc<Region>, Error> {
    let cannot = |source| Error::Memory { bytes, source };
    let region = Arc::new(Region::new(bytes as usize).map_err(cannot)?);
    let mut pool = Pool::new(region.clone(), 1 << 20, 0);
    let mut offset = 0;
    while let Some(mut block) = pool.take() {
        Pattern::Prbs(Prbs::PRBS31).fill(&mut block, offset);
        offset += block.len() as u64;
    }
    Ok(region)
}

/// The comparable size for a block that ends within a sector: rounded down to whole pages, which file systems and most
/// drives write directly; to whole sectors if it is smaller than a page.
fn rounded_down(block_bytes: u64, sector_bytes: u32) -> Option<u64> {
    let sector = u64::from(sector_bytes).max(1);
    let unit = if block_bytes > ALIGNMENT { ALIGNMENT.max(sector) } else { sector };
    let whole = block_bytes / unit * unit;
    (whole > 0 && !block_bytes.is_multiple_of(sector)).then_some(whole)
}

/// Adds the points for comparison with blocks that end within sectors, each just before the first of them.
fn with_partners(points: Vec<Point>, sector_bytes: u32) -> Vec<Point> {
    let mut all: Vec<Point> = vec![];
    for point in &points {
        let partner = rounded_down(point.block_bytes, sector_bytes)
            .map(|block_bytes| Point { block_bytes, ..point.clone() });
        let is_known =
            |partner: &Point| points.iter().chain(&all).any(|known| known.is_shaped_like(partner));
        all.extend(partner.filter(|partner| !is_known(partner)));
        all.push(point.clone());
    }
    all
}

/// Compares blocks that end within sectors with those rounded down, all else being equal.
fn compare_with_aligned(points: &mut [SweepPoint], sector: u32) {
    let known: Vec<SweepPoint> = points.to_vec();
    for point in points {
        let Some(modified) = &mut point.read_modify_write else { continue };
        let Some(partner) = rounded_down(point.block_bytes, sector) else { continue };
        let beside = known.iter().find(|other| {
            (other.direction, other.mode) == (point.direction, point.mode)
                && (other.depth, other.files) == (point.depth, point.files)
                && (other.session_bytes, other.block_bytes) == (point.session_bytes, partner)
        });
        modified.ratio_to_aligned = beside
            .filter(|other| other.rate.mean > 0.0)
            .map(|other| point.rate.mean / other.rate.mean);
    }
}

fn told(point: &Point) -> String {
    let (direction, mode) = (words(point.direction), super::mode_word(point.mode));
    format!(
        "peak: {direction} {} in blocks of {}, {mode}, {} under way, {}",
        ByteSize(point.session_bytes),
        ByteSize(point.block_bytes),
        point.depth,
        if point.files == 1 { "1 file".into() } else { format!("{} files", point.files) },
    )
}

fn words(direction: Direction) -> &'static str {
    match direction {
        Direction::Write => "write",
        Direction::Read => "read",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::environment::Roots;

    fn request() -> SweepRequest {
        SweepRequest {
            sessions: vec![CHUNK_BYTES, 8 * CHUNK_BYTES],
            blocks: vec![4096, 5000, 1 << 20],
            depths: vec![1, 8],
            files: vec![1, 2],
            modes: vec![Mode::Buffered],
            directions: vec![Direction::Read, Direction::Write],
            runs: 2,
            iterations: false,
            run_time: Duration::from_secs(5),
            session_bytes: 8 * CHUNK_BYTES,
            block_bytes: 1 << 20,
            depth: 8,
        }
    }

    #[test]
    fn points_of_several_curves_are_measured_once_and_writing_comes_first() {
        let points = request().points();
        let usual = &points[1];
        assert_eq!(
            usual.curves,
            [Curve::Session, Curve::Block, Curve::Depth, Curve::Mode, Curve::Files]
        );
        // 2 sessions, 2 more blocks, 1 more depth, 1 more number of files, both directions.
        assert_eq!(points.len(), 12);
        let first_read = points.iter().position(|point| point.direction == Direction::Read);
        assert_eq!(first_read, Some(6));
    }

    #[test]
    fn a_sweep_measures_all_points_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let places = [Place::open(directory.path(), None, &Roots::default()).unwrap()];
        let stop = StopHandle::default();
        let mut tell = |_: &str, _: f64| {};
        let mut watcher = Watcher { stop: &stop, tell: &mut tell };
        let swept = run(&places, &request(), 1 << 30, &mut watcher).unwrap();
        assert_eq!(swept.points.len(), 12, "{:?}", swept.notes);
        for point in &swept.points {
            assert_eq!(point.rate.runs, 2);
            assert!(point.rate.mean > 0.0 && point.rate.least <= point.rate.most);
            let whole = point.session_bytes / point.block_bytes * point.block_bytes;
            assert_eq!(point.moved_bytes, 2 * whole.max(point.block_bytes), "{point:?}");
        }
        let unaligned = swept.points.iter().find(|point| point.block_bytes == 5000).unwrap();
        let modified = unaligned.read_modify_write.unwrap();
        assert_eq!(modified.by, Modifier::Kernel);
        assert!(modified.ratio_to_aligned.unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_fair_partner_is_the_block_rounded_down_to_whole_pages() {
        let partner = |block, sector| rounded_down(block, sector);
        assert_eq!(partner(4097, 512), Some(4096));
        assert_eq!(partner(5000, 512), Some(4096));
        assert_eq!(partner(1_000_000, 4096), Some(244 * 4096));
        assert_eq!(partner(3000, 512), Some(2560), "smaller than a page: whole sectors");
        assert_eq!((partner(100, 512), partner(1000, 4096)), (None, None), "nothing is left");
        assert_eq!((partner(512, 512), partner(4608, 512)), (None, None), "whole as they are");
    }

    #[test]
    fn the_partner_is_measured_too_and_only_once() {
        let few = SweepRequest { blocks: vec![512, 4097, 5000, 100], ..request() };
        let points = with_partners(few.points(), 512);
        let blocks = |direction| -> Vec<u64> {
            let on = points.iter().filter(|it| it.direction == direction);
            let on = on.filter(|it| it.curves.contains(&Curve::Block));
            on.map(|it| it.block_bytes).collect()
        };
        assert_eq!(blocks(Direction::Write), [512, 4096, 4097, 5000, 100]);
        assert_eq!(blocks(Direction::Read), blocks(Direction::Write));
    }

    fn measured(block_bytes: u64, depth: u32, files: u32, rate: f64, odd: bool) -> SweepPoint {
        SweepPoint {
            curves: vec![Curve::Block],
            direction: Direction::Write,
            mode: Mode::Direct,
            session_bytes: 1 << 20,
            block_bytes,
            depth,
            files,
            moved_bytes: 1 << 20,
            rate: Spread::of(&[rate]),
            iterations: vec![],
            cpu_s_per_gb: 0.0,
            slowest_ms: 0.0,
            read_modify_write: odd.then_some(ReadModifyWrite {
                by: Modifier::Program,
                extra_read_bytes: 512,
                extra_written_bytes: 0,
                ratio_to_aligned: None,
            }),
            cut_by_time: false,
        }
    }

    #[test]
    fn the_cost_of_parts_of_sectors_is_told_only_beside_a_fair_partner() {
        let ratio = |others: &[SweepPoint]| {
            let mut points = vec![measured(4097, 8, 1, 50.0, true)];
            points.extend_from_slice(others);
            compare_with_aligned(&mut points, 512);
            points[0].read_modify_write.unwrap().ratio_to_aligned
        };
        let fair = measured(4096, 8, 1, 100.0, false);
        let others = [
            measured(4096, 1, 1, 25.0, false),
            measured(4096, 8, 4, 400.0, false),
            measured(512, 8, 1, 10.0, false),
            SweepPoint { mode: Mode::Buffered, ..fair.clone() },
            SweepPoint { direction: Direction::Read, ..fair.clone() },
            SweepPoint { session_bytes: 2 << 20, ..fair.clone() },
        ];
        assert_eq!(ratio(&others), None, "none of them is the same but for the block");
        let with = [&others[..], &[fair]].concat();
        assert_eq!(ratio(&with), Some(0.5));
    }

    #[test]
    fn sessions_without_room_are_left_out_with_a_word() {
        let directory = tempfile::tempdir().unwrap();
        let places = [Place::open(directory.path(), None, &Roots::default()).unwrap()];
        let mut notes = vec![];
        let few = SweepRequest { files: vec![1], ..request() };
        let points = feasible(&places, &few, 2 * CHUNK_BYTES, &mut notes).unwrap();
        assert!(points.iter().all(|point| point.session_bytes == CHUNK_BYTES));
        assert!(notes[0].text.contains("left out"), "{notes:?}");
        let error = feasible(&places, &few, 4096, &mut notes).unwrap_err();
        assert!(matches!(error, Error::TooSmall { .. }));
    }
}
