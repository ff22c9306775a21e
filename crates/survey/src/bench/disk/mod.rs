//! `bench disk`: measures the rate that a target sustains, over time and by ring size.
//!
//! ```text
//! targets ─► peak sweep ─► continuous write ─► read back ─► fio in turn ─► verdict
//!              ring of       writers of the      reader of
//!            the recorder        store             verify
//! ```
//!
//! All data passes through the recorder's code, so a recording achieves the measured rates.

pub mod continuous;
pub mod error;
pub mod fio;
pub mod io_queue;
mod settled;
pub mod sweep;
pub mod target;
mod verdict;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fullbore_core::duty::Duty;
use fullbore_core::memory_budget::FILLING;
use fullbore_core::pattern::Pattern;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::ring_sim::Service;
use fullbore_linux::stop_handle::StopHandle;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use self::continuous::{Written, analysis, cliff, read_back};
pub use self::error::Error;
use self::target::{Place, PlaceKind};
use super::environment::Roots;
use super::health;
use super::result::{
    BenchResult, Continuous, Kind, Level, MemberShare, Mode, Pass, Target, Temperature, Throttling,
    Verification,
};
use crate::report::text;

/// The fewest chunk files of a member with --wrap: one that is written, one ahead, one that is complete.
const LEAST_CHUNKS: u64 = 3;

/// The default reserve of a file system: a share, and a least number of bytes.
const RESERVE_SHARE: u64 = 20;
const LEAST_RESERVE_BYTES: u64 = 64 << 20;

/// A run with fewer blocks is not significant.
const FEW_BLOCKS: u64 = 16;

/// Open files other than chunks.
const OTHER_FILES: u64 = 200;

/// The measurements, and the values for comparison.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directories of a disk set, or one file or block device.
    pub targets: Vec<PathBuf>,
    /// The name of the file or device to overwrite, typed a second time.
    pub overwrite: Option<PathBuf>,
    /// The roots of `/sys` and `/proc`.
    pub roots: Roots,
    /// Bytes that stay free in a directory; default: a twentieth.
    pub reserve: Option<u64>,
    /// The peak sweep; `None` to omit it.
    pub sweep: Option<sweep::SweepRequest>,
    /// The long run; `None` to omit it.
    pub continuous: Option<Long>,
    /// The comparison with fio, if it is run or its commands are listed.
    pub fio: Option<fio::FioRequest>,
    /// The write rate in the data sheet …
    pub spec: Option<ByteRate>,
    /// … and the read rate.
    pub spec_read: Option<ByteRate>,
    /// The required rate.
    pub require: Option<ByteRate>,
    /// True if the required rate was given in bits per second.
    pub in_bits: bool,
    /// Bytes of one recording: a cliff after them does not count.
    pub capacity: Option<u64>,
    /// Terabytes written that the manufacturer warrants.
    pub tbw: Option<f64>,
    /// Drive writes per day that the manufacturer warrants, and the number of years.
    pub drive_writes: Option<(f64, f64)>,
}

/// The settings of the long run.
#[derive(Clone, Debug)]
pub struct Long {
    /// The duration of writing.
    pub time: Option<Duration>,
    /// The number of bytes to write.
    pub bytes: Option<u64>,
    /// True to write all free space, less the reserve.
    pub full: bool,
    /// True to continue from the start and overwrite the oldest data when the target is full.
    pub wrap: bool,
    /// True to read the data back.
    pub read_back: bool,
    /// Bytes per block.
    pub block_bytes: u32,
    /// Bytes per chunk file.
    pub chunk_bytes: u64,
    /// Bytes of concurrent writes, for each target.
    pub depth_bytes: u64,
    /// The rate at which blocks are due; `None`: as fast as possible.
    pub pace: Option<ByteRate>,
    /// The scans and pauses in which blocks are due; `None`: always.
    pub duty: Option<Duty>,
    /// The ring size of a recording.
    pub ring_bytes: u64,
    /// The pattern to write.
    pub pattern: Pattern,
}

/// Receives progress, and can stop the benchmark.
pub struct Watcher<'a> {
    /// Set to stop the benchmark; results so far are kept.
    pub stop: &'a StopHandle,
    /// Takes the current activity, and its completed share (NaN if unknown).
    pub tell: &'a mut dyn FnMut(&str, f64),
}

/// Runs the benchmark.
pub fn run(settings: &Settings, watcher: &mut Watcher) -> Result<BenchResult, Error> {
    let begun = Instant::now();
    let mut result = BenchResult::new(Kind::Disk, settings.roots.environment());
    let places = open(settings)?;
    result.targets = places.iter().map(|place| place.facts.clone()).collect();
    result.targets.iter_mut().zip(target::shared(&places)).for_each(|(target, first)| {
        target.shares_with = first.map(|first| places[first].facts.path.clone());
    });
    if let Some(text) = told_of_sharing(&result.targets) {
        result.note(Level::Warning, text);
    }
    for note in places.iter().flat_map(|place| &place.notes) {
        result.note(note.level, &note.text);
    }
    if !result.environment.optimised {
        result.note(Level::Warning, "this build is not optimised: its CPU times are too high");
    }
    let room = room(&places, settings)?;
    if let Some(request) = &settings.sweep {
        let all = room.saturating_mul(places.len() as u64);
        let swept = sweep::run(&places, request, all, watcher)?;
        result.sweep = swept.points;
        result.notes.extend(swept.notes);
    }
    if let Some(long) = &settings.continuous
        && !watcher.stop.is_requested()
    {
        result.continuous = Some(run_long(&places, long, room, settings, &mut result, watcher)?);
    }
    if let Some(request) = &settings.fio
        && !watcher.stop.is_requested()
    {
        let request = fio::FioRequest { session_bytes: fitting(request, room), ..request.clone() };
        if request.run && request.session_bytes == 0 {
            result.note(Level::Info, "there is no room for the comparison with fio");
        } else {
            let compared = fio::compare(&places[0], &request, &settings.roots, watcher)?;
            result.comparisons = compared.comparisons;
            result.commands = compared.commands;
        }
    }
    result.interrupted = watcher.stop.is_requested();
    verdict::judge(&mut result, settings);
    result.seconds = begun.elapsed().as_secs_f64();
    Ok(result)
}

/// The part of the session that fits, in whole blocks.
fn fitting(request: &fio::FioRequest, room: u64) -> u64 {
    request.session_bytes.min(room) / request.block_bytes * request.block_bytes
}

fn open(settings: &Settings) -> Result<Vec<Place>, Error> {
    let open = |path: &PathBuf| Place::open(path, settings.overwrite.as_deref(), &settings.roots);
    let places: Vec<Place> = settings.targets.iter().map(open).collect::<Result<_, _>>()?;
    let plain = places.iter().any(|place| matches!(place.kind, PlaceKind::Plain(_)));
    if places.is_empty() || plain && places.len() > 1 {
        return Err(Error::Mixed);
    }
    target::refuse_twice(&places)?;
    Ok(places)
}

/// A note about members on one disk: this is no error, but their rates do not add up.
fn told_of_sharing(targets: &[Target]) -> Option<String> {
    let sharing = targets.iter().filter_map(|target| {
        target.shares_with.as_ref().map(|with| format!("{} with {with}", target.path))
    });
    let sharing: Vec<String> = sharing.collect();
    (!sharing.is_empty()).then(|| {
        format!(
            "targets share a file system ({}): its room is counted once, and they are no faster than one",
            sharing.join(", ")
        )
    })
}

/// Bytes that can be written to each place. Places on one file system divide its free space.
fn room(places: &[Place], settings: &Settings) -> Result<u64, Error> {
    let mut least = u64::MAX;
    for (place, sharers) in places.iter().zip(target::sharers(places)) {
        let free = place.facts.free;
        let reserve = match place.kind {
            PlaceKind::Plain(_) => settings.reserve.unwrap_or(0),
            PlaceKind::Directory(_) => settings.reserve.unwrap_or_else(|| {
                (place.facts.capacity.0 / RESERVE_SHARE).max(LEAST_RESERVE_BYTES)
            }),
        };
        let room = free.0.saturating_sub(reserve) / sharers;
        if room == 0 {
            let (reserve, needed) = (ByteSize(reserve), ByteSize(sweep::CHUNK_BYTES));
            let path = place.path().to_owned();
            return Err(Error::TooSmall { path, free: ByteSize(0), reserve, needed });
        }
        least = least.min(room);
    }
    Ok(least)
}

/// Runs the long write, reads back, and evaluates the results.
fn run_long(
    places: &[Place],
    long: &Long,
    room: u64,
    settings: &Settings,
    result: &mut BenchResult,
    watcher: &mut Watcher,
) -> Result<Continuous, Error> {
    let request = request(places, long, room, result)?;
    refuse_too_few(&request)?;
    tell_of_few(&request, result);
    let devices = places.iter().filter_map(|place| place.facts.device.as_deref());
    let devices: BTreeSet<String> =
        devices.flat_map(|device| health::drives(&settings.roots, device)).collect();
    let devices = Vec::from_iter(devices);
    let sensors = devices.iter().flat_map(|device| health::sensors(&settings.roots, device));
    let before = health::counters(&settings.roots, &devices);
    let watch = health::Watch::start(sensors.collect(), Instant::now());
    let written = continuous::write(places, &request, watcher);
    let temperatures = watch.finish();
    let throttling = health::moved(&before, &health::counters(&settings.roots, &devices));
    let written = written?;
    tell_what_held_it_back(&written, &request, long, result);
    let read = if long.read_back && !watcher.stop.is_requested() && written.bytes > 0 {
        Some(read_back::read(&written, &request, watcher)?)
    } else {
        None
    };
    let reading = read.map(|read| {
        let bytes = read.verification.compared_bytes;
        (pass(&read.trace, bytes, read.elapsed, read.cpu_seconds), read.verification)
    });
    Ok(summary(places, &request, long, &written, reading, (temperatures, throttling), settings))
}

/// The evaluation of the trace.
fn summary(
    places: &[Place],
    request: &continuous::ContinuousRequest,
    long: &Long,
    written: &Written,
    reading: Option<(Pass, Verification)>,
    (temperatures, throttling): (Vec<Temperature>, Vec<Throttling>),
    settings: &Settings,
) -> Continuous {
    let filling = FILLING * u64::from(request.block_bytes);
    let turns = analysis::turns(&written.trace, written.in_order);
    let duty = request.duty;
    let service = Service::new(turns, filling).synced_at(written.elapsed.as_nanos() as u64);
    let service = service.in_duty(duty);
    // Pauses between scans are neither slow nor stalls.
    let (active, rested) = match duty {
        Some(duty) => continuous::duty::without_rests(&written.trace, duty),
        None => (written.trace.clone(), Duration::ZERO),
    };
    let elapsed = written.elapsed.saturating_sub(rested);
    let mut write = pass(&written.trace, written.bytes, elapsed, written.cpu_seconds);
    write.over_position = analysis::over_position(&active);
    let guest = settings.roots.environment().virtualization.is_some_and(|kind| kind != "none");
    let known = cliff::Circumstances {
        crosses_tracks: !guest
            && crosses_tracks(places, written.bytes.min(request.wrap.unwrap_or(u64::MAX))),
        shared: guest,
        temperatures: &temperatures,
        throttling: &throttling,
    };
    let mut cliffs = cliff::cliffs(&write.over_position, known);
    if duty.is_some() {
        continuous::duty::place_in_time(&mut cliffs, &written.trace);
    }
    let of_cycles = duty.map(|duty| (duty, written.lasted));
    let judged = settled::judged(service, &cliffs, settings.capacity, of_cycles);
    let settled::Judged { settled, service, bytes, seconds, cycles } = judged;
    let run = verdict::Run {
        pace: request.pace,
        overrun_bytes: written.overrun_bytes,
        bytes,
        seconds,
        settled,
        duty: duty.filter(|_| cycles != Some(0)),
    };
    let recommended = verdict::recommend(&service, long.ring_bytes, &run);
    let (read, verification) = reading.unzip();
    Continuous {
        block_bytes: request.block_bytes.into(),
        depth_bytes: request.depth_bytes,
        pattern: request.pattern.to_string(),
        paced: request.pace,
        overrun_bytes: written.overrun_bytes,
        wrap: request.wrap.map(|bytes| ByteSize(bytes * places.len() as u64)),
        duty: duty.zip(cycles).map(|(duty, cycles)| continuous::duty::told(written, duty, cycles)),
        ring: ByteSize(request.ring_bytes),
        worst_windows: analysis::worst_windows(&active),
        stalls: analysis::stalls(&active),
        ring_for_rate: verdict::rings(&service, settings.require),
        rate_for_ring: verdict::rates(&service, long.ring_bytes),
        members: members(places, written),
        write,
        read,
        verification,
        cliffs,
        settled,
        recommended,
        temperatures,
        throttling,
    }
}

/// True if a rotating disk was written over most of its length, from outer to inner tracks.
fn crosses_tracks(places: &[Place], bytes: u64) -> bool {
    let capacity: u64 = places.iter().map(|place| place.facts.capacity.0).sum();
    let turns = places.iter().any(|place| place.facts.rotational == Some(true));
    turns && bytes >= capacity / 2
}

/// The exact request: the number of bytes that fit, the chunk size, and the number of blocks.
fn request(
    places: &[Place],
    long: &Long,
    room: u64,
    result: &mut BenchResult,
) -> Result<continuous::ContinuousRequest, Error> {
    let members = places.len() as u64;
    let plain = matches!(places[0].kind, PlaceKind::Plain(_));
    let block = u64::from(long.block_bytes);
    let mut chunk_bytes = long.chunk_bytes.min(room / 16).max(block) / block * block;
    let fits = if plain {
        room / u64::from(places[0].facts.sector_bytes) * u64::from(places[0].facts.sector_bytes)
    } else {
        // One chunk being written and one ahead; and a faster member takes more than its share.
        let each = room.saturating_sub(2 * chunk_bytes + (4 << 20));
        if members > 1 { each * members / 10 * 9 } else { each }
    };
    let fits = if plain { fits } else { fits / 4096 * 4096 };
    if fits < block {
        let place = &places[0];
        return Err(Error::TooSmall {
            path: place.path().to_owned(),
            free: ByteSize(room),
            reserve: ByteSize(place.facts.free.0.saturating_sub(room)),
            needed: ByteSize(if plain { block } else { block + 2 * chunk_bytes + (4 << 20) }),
        });
    }
    let keep = if plain { fits / block * block } else { fits / members };
    let most = match long.wrap {
        true => u64::MAX / 4,
        false if long.full || long.bytes.is_some() || plain => fits,
        false => fits / 2,
    };
    let most_at_once = if long.wrap { u64::MAX / 4 } else { fits };
    let bytes = long.bytes.map_or(most, |bytes| bytes.min(most_at_once)).max(block);
    // A file or device is written to its last sector, which need not end at a page boundary.
    let bytes = if plain && bytes == fits { bytes } else { bytes / 4096 * 4096 };
    if !long.wrap && long.bytes.is_some_and(|wanted| wanted > fits) {
        let text = format!("there is room for {} of what was to be written", ByteSize(bytes));
        result.note(Level::Warning, text);
    }
    if !plain {
        chunk_bytes = chunk_bytes.max(bytes.min(fits) / files_to_open()).next_multiple_of(block);
    }
    // At full speed, a ring larger than the concurrent writes would only hide delays.
    let ring_bytes = match long.pace {
        Some(_) => long.ring_bytes,
        None => long.depth_bytes * members + 8 * block,
    };
    // A block is not overwritten while it is being written. A chunk is removed once it is written.
    let least = if plain { ring_bytes } else { LEAST_CHUNKS * chunk_bytes };
    if long.wrap && keep < least {
        let what = format!(
            "--wrap needs room for {} ({}), and there is room for {}: give a smaller {}",
            ByteSize(least),
            if plain { "the blocks under way" } else { "three chunk files" },
            ByteSize(keep),
            if plain { "--ring or --depth-bytes" } else { "--chunk or --reserve" }
        );
        return Err(Error::Settings { what });
    }
    Ok(continuous::ContinuousRequest {
        bytes: if plain && !long.wrap { bytes.min(fits) } else { bytes },
        time: long.time,
        wrap: long.wrap.then_some(keep),
        block_bytes: long.block_bytes,
        chunk_bytes,
        depth_bytes: long.depth_bytes,
        pace: long.pace,
        duty: long.duty,
        drain_bytes: long.ring_bytes,
        ring_bytes,
        pattern: long.pattern,
        base: (result.id.as_u64_pair().1 >> 8) & !7,
    })
}

/// The number of blocks due in a run with a rate and a duration.
fn due(request: &continuous::ContinuousRequest) -> Option<u64> {
    let time = request.time?;
    let time = request
        .duty
        .map_or(time, |duty| Duration::from_nanos(duty.recorded_ns(time.as_nanos() as u64)));
    let bytes = request.pace?.0 as f64 * time.as_secs_f64();
    Some(bytes as u64 / u64::from(request.block_bytes))
}

/// Refuses a rate at which no block is due before the end.
fn refuse_too_few(request: &continuous::ContinuousRequest) -> Result<(), Error> {
    let (Some(0), Some(rate), Some(time)) = (due(request), request.pace, request.time) else {
        return Ok(());
    };
    let block_s = f64::from(request.block_bytes) / rate.0.max(1) as f64;
    let what = format!(
        "at {} a block of {} takes {block_s:.0} s, and the run ends after {:.0} s: give a longer --seconds \
         or a smaller --block",
        text::rate(rate.0 as f64),
        ByteSize(request.block_bytes.into()),
        time.as_secs_f64(),
    );
    Err(Error::Settings { what })
}

/// Adds a note that few blocks are not significant.
fn tell_of_few(request: &continuous::ContinuousRequest, result: &mut BenchResult) {
    let Some(few) = due(request).filter(|blocks| *blocks < FEW_BLOCKS) else { return };
    let text = format!(
        "{few} blocks of {} only are due in this run: give a longer --seconds or a smaller --block",
        ByteSize(request.block_bytes.into())
    );
    result.note(Level::Warning, text);
}

/// The number of chunk files that may be open at once, after raising the limit as far as possible.
fn files_to_open() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // If this is refused, the limit stays, and chunks are larger.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let now = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    now.saturating_sub(OTHER_FILES).clamp(16, 1 << 16)
}

/// Adds a note if something other than the target limited the rate.
fn tell_what_held_it_back(
    written: &Written,
    request: &continuous::ContinuousRequest,
    long: &Long,
    result: &mut BenchResult,
) {
    let share = written.filling.as_secs_f64() / written.elapsed.as_secs_f64().max(1e-9);
    if request.pace.is_none() && share > 0.8 && written.bytes > 0 {
        let rate = written.bytes as f64 / written.filling.as_secs_f64().max(1e-9) / 1e6;
        result.note(
            Level::Warning,
            format!(
                "making {} and its checksum took {:.0} % of the time ({rate:.0} MB/s on one core): \
                 the target may be faster than this run shows",
                request.pattern,
                share * 100.0
            ),
        );
    }
    if let Some(rate) = request.pace
        && written.overrun_bytes > 0
    {
        result.note(
            Level::Warning,
            format!(
                "the target is slower than {rate}, or stalls for longer than a ring of {} holds: \
                 {} had no block",
                ByteSize(request.ring_bytes),
                ByteSize(written.overrun_bytes)
            ),
        );
    }
    let ended_by_room = long.time.is_some_and(|time| written.elapsed < time)
        && written.bytes + written.overrun_bytes >= request.bytes;
    if ended_by_room && !long.full && long.bytes.is_none() {
        result.note(
            Level::Info,
            format!(
                "writing ended after {:.1} s with {}, half of what is free; --full writes all of it",
                written.elapsed.as_secs_f64(),
                ByteSize(written.bytes)
            ),
        );
    }
}

fn pass(trace: &[continuous::Done], bytes: u64, elapsed: Duration, cpu_seconds: f64) -> Pass {
    let seconds = elapsed.as_secs_f64();
    Pass {
        bytes,
        seconds,
        rate: bytes as f64 / seconds.max(1e-9),
        cpu_s_per_gb: cpu_seconds / (bytes.max(1) as f64 / 1e9),
        over_time: analysis::over_time(trace),
        over_position: analysis::over_position(trace),
    }
}

fn members(places: &[Place], written: &Written) -> Vec<MemberShare> {
    if places.len() < 2 {
        return vec![];
    }
    let share = |(number, place): (usize, &Place)| {
        let own = || written.trace.iter().filter(move |done| done.member == number);
        let bytes: u64 = own().map(|done| u64::from(done.bytes)).sum();
        MemberShare {
            path: place.path().display().to_string(),
            bytes,
            rate: bytes as f64 / written.elapsed.as_secs_f64().max(1e-9),
            longest_ms: own().map(|done| done.took_ns).max().unwrap_or(0) as f64 / 1e6,
        }
    };
    places.iter().enumerate().map(share).collect()
}

/// CPU time of the whole process, including the kernel's threads for its rings.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The name of a mode.
pub fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Direct => "direct",
        Mode::Buffered => "buffered",
        Mode::Uncached => "uncached",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long() -> Long {
        Long {
            time: None,
            bytes: None,
            full: true,
            wrap: false,
            read_back: true,
            block_bytes: 1 << 20,
            chunk_bytes: 4 << 20,
            depth_bytes: 4 << 20,
            pace: None,
            duty: None,
            ring_bytes: 8 << 20,
            pattern: Pattern::Counter,
        }
    }

    #[test]
    fn a_file_is_written_wholly_though_it_ends_within_a_page() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, vec![0; (3 << 20) + 512]).unwrap();
        let mut places = [Place::open(&path, Some(&path), &Roots::default()).unwrap()];
        places[0].facts.sector_bytes = 512;
        let mut result = BenchResult::new(Kind::Disk, Roots::default().environment());
        let whole = request(&places, &long(), (3 << 20) + 512, &mut result).unwrap();
        assert_eq!(whole.bytes, (3 << 20) + 512);
        let some = Long { bytes: Some((2 << 20) + 512), full: false, ..long() };
        let some = request(&places, &some, (3 << 20) + 512, &mut result).unwrap();
        assert_eq!(some.bytes, 2 << 20, "what does not end with the target is whole pages");
    }

    #[test]
    fn a_rate_at_which_no_block_is_due_is_refused_and_one_with_few_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let places = [Place::open(directory.path(), None, &Roots::default()).unwrap()];
        let paced = |rate| Long {
            time: Some(Duration::from_secs(3)),
            pace: Some(ByteRate(rate)),
            full: false,
            ..long()
        };
        let mut result = BenchResult::new(Kind::Disk, Roots::default().environment());
        let mut look = |rate| {
            let request = request(&places, &paced(rate), 1 << 30, &mut result).unwrap();
            tell_of_few(&request, &mut result);
            (refuse_too_few(&request).map_err(|error| error.to_string()), result.notes.len())
        };
        assert_eq!(look(100_000_000), (Ok(()), 0));
        assert_eq!(look(1_000_000), (Ok(()), 1));
        let (refused, _) = look(10_000);
        let refused = refused.unwrap_err();
        assert!(refused.contains("10.0 kB/s") && refused.contains("--seconds"), "{refused}");
    }

    #[test]
    fn what_was_ended_early_has_no_verdict() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            targets: vec![directory.path().to_owned()],
            overwrite: None,
            roots: Roots::default(),
            reserve: Some(1 << 20),
            sweep: None,
            continuous: Some(Long { bytes: Some(8 << 20), full: false, ..long() }),
            fio: None,
            spec: None,
            spec_read: None,
            require: Some(ByteRate(1)),
            in_bits: false,
            capacity: None,
            tbw: None,
            drive_writes: None,
        };
        let stop = StopHandle::default();
        let told = run(&settings, &mut Watcher { stop: &stop, tell: &mut |_, _| {} }).unwrap();
        assert!(told.verdict.is_some_and(|verdict| verdict.holds));
        let endless =
            Long { bytes: Some(1 << 30), pace: Some(ByteRate(20_000_000)), full: false, ..long() };
        let settings = Settings { continuous: Some(endless), ..settings };
        let mut tell = |_: &str, _: f64| stop.stop();
        let told = run(&settings, &mut Watcher { stop: &stop, tell: &mut tell }).unwrap();
        assert!(told.continuous.as_ref().is_some_and(|run| run.write.bytes > 0));
        assert!(told.interrupted && told.verdict.is_none());
    }

    #[test]
    fn directories_of_one_file_system_divide_what_is_free_and_keep_one_reserve() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["a", "b", "c"].map(|name| directory.path().join(name));
        names.iter().for_each(|name| std::fs::create_dir(name).unwrap());
        let open = |path: &PathBuf| {
            let mut place = Place::open(path, None, &Roots::default()).unwrap();
            (place.facts.free, place.facts.capacity) = (ByteSize(10 << 30), ByteSize(16 << 30));
            place
        };
        let settings = Settings {
            targets: names.to_vec(),
            overwrite: None,
            roots: Roots::default(),
            reserve: Some(1 << 30),
            sweep: None,
            continuous: None,
            fio: None,
            spec: None,
            spec_read: None,
            require: None,
            in_bits: false,
            capacity: None,
            tbw: None,
            drive_writes: None,
        };
        let places: Vec<Place> = names.iter().map(open).collect();
        assert_eq!(room(&places[..1], &settings).unwrap(), 9 << 30);
        assert_eq!(room(&places, &settings).unwrap(), 3 << 30);
        let found =
            run(&settings, &mut Watcher { stop: &StopHandle::default(), tell: &mut |_, _| {} });
        let found = found.unwrap();
        let with: Vec<_> = found.targets.iter().map(|it| it.shares_with.is_some()).collect();
        assert_eq!(with, [false, true, true]);
        assert!(found.notes.iter().any(|note| note.text.contains("share a file system")));
        let twice = Settings { targets: vec![names[0].clone(), names[0].clone()], ..settings };
        let refused =
            run(&twice, &mut Watcher { stop: &StopHandle::default(), tell: &mut |_, _| {} });
        assert!(matches!(refused.map(|_| ()), Err(Error::Twice { .. })));
    }
}
