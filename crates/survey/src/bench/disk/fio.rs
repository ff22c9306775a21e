//! Runs the same job with fio, alternating with fullbore: on the same file, with the same blocks and depth.
//!
//! By default, fio's buffers are in pages of 4 KiB and fullbore's in huge pages, which alone makes a difference of 1.7.
//! Both variants of fio are therefore run if huge pages are reserved.

use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fullbore_core::units::ByteSize;
use fullbore_linux::ring::Pool;
use fullbore_linux::stop_handle::StopHandle;

use super::error::Error;
use super::io_queue::{IoQueue, Session};
use super::sweep::filled_region;
use super::target::{Place, PlaceKind, Scratch};
use super::{Watcher, cpu_seconds};
use crate::bench::environment::Roots;
use crate::bench::result::{CommandRun, Comparison, Direction, Mode};

/// Size of a page in the kernel's reserve.
const HUGE_PAGE: u64 = 2 << 20;

/// The unit of process times in `/proc`, on every machine.
const TICKS_PER_S: f64 = 100.0;

/// The longest output that is read.
const LONGEST_ANSWER_BYTES: u64 = 16 << 20;

/// The settings of the comparison.
#[derive(Clone, Debug)]
pub struct FioRequest {
    /// Bytes per session.
    pub session_bytes: u64,
    /// Bytes per block.
    pub block_bytes: u64,
    /// Concurrent blocks.
    pub depth: u32,
    /// The number of runs of each program, alternating.
    pub runs: u32,
    /// The time limit of a run.
    pub run_time: Duration,
    /// True to run both programs, false to only list the commands.
    pub run: bool,
}

/// The result of one run of fio.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FioReport {
    rate: f64,
    bytes: u64,
    longest_ms: f64,
}

/// The results of both programs.
#[derive(Debug, Default)]
pub struct Compared {
    /// One comparison for each direction and kind of page.
    pub comparisons: Vec<Comparison>,
    /// The commands that were run, or could have been.
    pub commands: Vec<CommandRun>,
}

/// Runs both programs alternately on the first place, or only lists the commands.
pub fn compare(
    place: &Place,
    request: &FioRequest,
    roots: &Roots,
    watcher: &mut Watcher,
) -> Result<Compared, Error> {
    match request.run {
        true => run_in_turn(place, request, version(), roots, watcher),
        false => Ok(Compared { commands: commands(place, request), comparisons: vec![] }),
    }
}

/// The commands that could be run.
fn commands(place: &Place, request: &FioRequest) -> Vec<CommandRun> {
    let ways = [Direction::Write, Direction::Read].into_iter();
    ways.flat_map(|direction| {
        [true, false].map(|huge| command(request, direction, huge, &named(place)))
    })
    .map(|command| CommandRun { command, ran: false })
    .collect()
}

fn run_in_turn(
    place: &Place,
    request: &FioRequest,
    version: Option<String>,
    roots: &Roots,
    watcher: &mut Watcher,
) -> Result<Compared, Error> {
    let mut compared = Compared::default();
    let mut ours = Ours::new(place, request)?;
    for direction in [Direction::Write, Direction::Read] {
        let skips = [true, false].map(|huge| skip(request, roots, version.as_deref(), huge));
        let mut theirs: [Vec<(FioReport, f64)>; 2] = Default::default();
        let mut failures: [Option<String>; 2] = Default::default();
        let (mut rates, mut cpu, mut bytes) = (vec![], 0.0, 0);
        for run in 0..request.runs {
            if watcher.stop.is_requested() {
                return Ok(compared);
            }
            (watcher.tell)("beside fio", f64::from(run) / f64::from(request.runs));
            let (rate, seconds, moved) = ours.run(direction, watcher.stop)?;
            rates.push(rate);
            (cpu, bytes) = (cpu + seconds, bytes + moved);
            for (n, huge) in [true, false].into_iter().enumerate() {
                if skips[n].is_some() || failures[n].is_some() {
                    continue;
                }
                ours.prepare(direction)?;
                let words = words(request, direction, huge, &ours.scratch.path_for_others());
                match ask(&words, roots, watcher.stop) {
                    Ok(told) => theirs[n].push(told),
                    Err(why) => failures[n] = Some(why),
                }
            }
        }
        for (n, huge) in [true, false].into_iter().enumerate() {
            let repeatable = command(request, direction, huge, &named(place));
            let ran = !theirs[n].is_empty();
            compared.commands.push(CommandRun { command: repeatable.clone(), ran });
            let comparison = Comparison {
                program: version.clone().unwrap_or_else(|| "fio".into()),
                direction,
                huge_pages: huge,
                block_bytes: request.block_bytes,
                depth: request.depth,
                rate: None,
                cpu_s_per_gb: None,
                longest_ms: None,
                ours: middle(rates.clone()),
                ours_cpu_s_per_gb: cpu / (bytes.max(1) as f64 / 1e9),
                ratio: None,
                command: repeatable,
                skipped: skips[n].clone().or(failures[n].take()),
            };
            compared.comparisons.push(with_theirs(comparison, &theirs[n]));
        }
    }
    Ok(compared)
}

fn with_theirs(mut comparison: Comparison, theirs: &[(FioReport, f64)]) -> Comparison {
    if theirs.is_empty() {
        return comparison;
    }
    let rate = middle(theirs.iter().map(|(told, _)| told.rate).collect());
    let bytes: u64 = theirs.iter().map(|(told, _)| told.bytes).sum();
    let cpu: f64 = theirs.iter().map(|(_, cpu)| cpu).sum();
    comparison.rate = Some(rate);
    comparison.cpu_s_per_gb = Some(cpu / (bytes.max(1) as f64 / 1e9));
    comparison.longest_ms = theirs.iter().map(|(told, _)| told.longest_ms).reduce(f64::max);
    comparison.ratio = (rate > 0.0).then(|| comparison.ours / rate);
    comparison
}

/// The fullbore side of the comparison.
struct Ours<'a> {
    place: &'a Place,
    request: &'a FioRequest,
    scratch: Scratch,
    io_queue: IoQueue,
    region: std::sync::Arc<fullbore_linux::sys::memory::Region>,
    mode: Mode,
}

impl<'a> Ours<'a> {
    fn new(place: &'a Place, request: &'a FioRequest) -> Result<Self, Error> {
        let cannot = |source| Error::Open { path: place.path().to_owned(), source };
        let scratch = place.scratch().map_err(cannot)?;
        let region = filled_region(request.block_bytes * u64::from(request.depth))?;
        // fio uses O_DIRECT as well, regardless of the file system's support.
        let mode = if scratch.open(Mode::Direct).is_ok() { Mode::Direct } else { Mode::Buffered };
        Ok(Self { place, request, scratch, io_queue: IoQueue::new()?, region, mode })
    }

    /// Allocates fresh space for writing. Reads use the data of the last write run.
    fn prepare(&self, direction: Direction) -> Result<(), Error> {
        if direction == Direction::Read {
            self.scratch.forget();
            return Ok(());
        }
        let bytes = self.request.session_bytes;
        self.scratch.take_space(bytes).map_err(|source| {
            let what = format!("taking {}", ByteSize(bytes));
            Error::Transfer { path: self.place.path().to_owned(), what, source }
        })
    }

    /// Rate, CPU seconds and bytes of one run.
    fn run(&mut self, direction: Direction, stop: &StopHandle) -> Result<(f64, f64, u64), Error> {
        self.prepare(direction)?;
        let cannot = |source| Error::Open { path: self.place.path().to_owned(), source };
        let opened = [self.scratch.open(self.mode).map_err(cannot)?];
        let session = Session {
            files: &opened,
            direction,
            mode: self.mode,
            bytes: self.request.session_bytes,
            block_bytes: self.request.block_bytes as u32,
            depth: self.request.depth,
            sector_bytes: self.place.facts.sector_bytes,
            time: self.request.run_time,
        };
        let mut pool = Pool::new(self.region.clone(), self.request.block_bytes as usize, 0);
        let before = cpu_seconds();
        let moved =
            self.io_queue.run(&session, &mut pool, stop).map_err(|failed| Error::Transfer {
                path: self.place.path().to_owned(),
                what: failed.what,
                source: failed.source,
            })?;
        let rate = moved.bytes as f64 / moved.elapsed.as_secs_f64().max(1e-9);
        Ok((rate, cpu_seconds() - before, moved.bytes))
    }
}

/// The reason why fio is not run, if there is one.
fn skip(request: &FioRequest, roots: &Roots, version: Option<&str>, huge: bool) -> Option<String> {
    if version.is_none() {
        return Some("fio is not installed".into());
    }
    let needed = (request.block_bytes * u64::from(request.depth)).div_ceil(HUGE_PAGE) + 1;
    let free = roots.proc("meminfo").and_then(|text| huge_pages_free(&text)).unwrap_or(0);
    (huge && free < needed).then(|| {
        format!("{free} huge pages are free: sysctl vm.nr_hugepages={needed} reserves them")
    })
}

fn huge_pages_free(meminfo: &str) -> Option<u64> {
    meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Free:"))?.trim().parse().ok()
}

fn version() -> Option<String> {
    let output = Command::new("fio").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.strip_prefix("fio-").map(|number| format!("fio {number}"))
}

/// The file name for a user who repeats the job by hand.
fn named(place: &Place) -> std::path::PathBuf {
    match &place.kind {
        PlaceKind::Directory(member) => member.root().join("fio.bench"),
        PlaceKind::Plain(path) => path.clone(),
    }
}

fn words(request: &FioRequest, direction: Direction, huge: bool, file: &Path) -> Vec<String> {
    let way = match direction {
        Direction::Write => "write",
        Direction::Read => "read",
    };
    let mut words: Vec<String> = [
        "fio",
        "--name=bench",
        "--ioengine=io_uring",
        "--direct=1",
        "--fixedbufs=1",
        "--registerfiles=1",
    ]
    .map(Into::into)
    .into();
    words.push(format!("--rw={way}"));
    words.push(format!("--bs={}", request.block_bytes));
    words.push(format!("--iodepth={}", request.depth));
    words.push(format!("--size={}", request.session_bytes));
    words.push(format!("--runtime={}", request.run_time.as_secs().max(1)));
    words.push(format!("--filename={}", as_one_name(file)));
    if huge {
        words.push("--mem=mmaphuge".into());
    }
    words.push("--output-format=json".into());
    words
}

/// A path in fio's syntax. A colon separates file names, and fio would write to all of them.
fn as_one_name(file: &Path) -> String {
    file.display().to_string().replace(':', r"\:")
}

/// The job as a shell command. A name that fio would change is opened by the shell.
fn command(request: &FioRequest, direction: Direction, huge: bool, file: &Path) -> String {
    if is_taken_by_fio(file) {
        return shell(&words(request, direction, huge, file));
    }
    let words = words(request, direction, huge, Path::new("/dev/fd/3"));
    format!("{} 3<>{}", shell(&words), opened_by_shell(file))
}

/// True if fio takes a name unchanged: it strips trailing blanks, and interprets quotes, backslashes and similar
/// characters.
fn is_taken_by_fio(file: &Path) -> bool {
    let taken = |c: char| c.is_alphanumeric() || "-_=./:,+ ".contains(c);
    file.to_str().is_some_and(|name| name.chars().all(taken) && !name.ends_with(' '))
}

/// The words quoted for a shell.
fn shell(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,+".contains(c);
    match word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A name quoted for a shell, for any bytes.
fn opened_by_shell(file: &Path) -> String {
    if let Some(name) = file.to_str().filter(|name| !name.chars().any(char::is_control)) {
        return quoted(name);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/.-_".contains(&byte);
    let told = |byte: &u8| match is_plain(*byte) {
        true => char::from(*byte).to_string(),
        false => format!(r"\{byte:03o}"),
    };
    let bytes: String = file.as_os_str().as_bytes().iter().map(told).collect();
    format!("\"$(printf '{bytes}')\"")
}

/// Runs fio and reads its output. Returns the CPU seconds too.
fn ask(words: &[String], roots: &Roots, stop: &StopHandle) -> Result<(FioReport, f64), String> {
    let before = children_seconds(roots);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("fio does not start: {error}"))?;
    let answers = (child.stdout.take(), child.stderr.take());
    let (mut out, mut complaint) = (String::new(), String::new());
    let read = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let read =
                answers.0.map(|pipe| pipe.take(LONGEST_ANSWER_BYTES).read_to_string(&mut out));
            let errors = answers.1.map(|pipe| pipe.take(4096).read_to_string(&mut complaint));
            (read, errors)
        });
        let ended = await_end(&mut child, stop);
        // Both pipes are closed now.
        let _ = reader.join();
        ended
    });
    let cpu = children_seconds(roots) - before;
    match read {
        Ok(true) => {}
        Ok(false) => {
            let first = complaint.lines().next().unwrap_or("without a word").to_owned();
            return Err(format!("fio failed: {first}"));
        }
        Err(error) => return Err(format!("fio was not waited for: {error}")),
    }
    parse(&out).map(|told| (told, cpu)).ok_or_else(|| "fio's answer is not understood".into())
}

/// True if fio ended successfully. A stop request ends it.
fn await_end(child: &mut Child, stop: &StopHandle) -> std::io::Result<bool> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        // The end of fio wakes no thread that also waits for a stop request.
        if stop.wait(Duration::from_millis(10)) {
            child.kill()?;
            return child.wait().map(|status| status.success());
        }
    }
}

fn parse(answer: &str) -> Option<FioReport> {
    // Warnings may precede the document.
    let document: serde_json::Value = serde_json::from_str(&answer[answer.find('{')?..]).ok()?;
    let job = document.get("jobs")?.get(0)?;
    let side = ["write", "read"].into_iter().find_map(|side| {
        let side = job.get(side)?;
        (side.get("io_bytes")?.as_u64()? > 0).then_some(side)
    })?;
    Some(FioReport {
        rate: side.get("bw_bytes")?.as_f64()?,
        bytes: side.get("io_bytes")?.as_u64()?,
        longest_ms: side.get("lat_ns")?.get("max")?.as_f64()? / 1e6,
    })
}

/// CPU seconds of terminated child processes, in hundredths.
fn children_seconds(roots: &Roots) -> f64 {
    let ticks = || {
        let stat = roots.proc("self/stat")?;
        // The name, in parentheses, may contain anything.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |n: usize| fields.get(n)?.parse::<f64>().ok();
        Some(number(13)? + number(14)?)
    };
    ticks().unwrap_or(0.0) / TICKS_PER_S
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> FioRequest {
        FioRequest {
            session_bytes: 8 << 20,
            block_bytes: 1 << 20,
            depth: 2,
            runs: 1,
            run_time: Duration::from_secs(5),
            run: true,
        }
    }

    #[test]
    fn the_command_is_one_that_a_shell_takes() {
        let words = words(&request(), Direction::Read, true, Path::new("/mnt/my disk/fio.bench"));
        let command = shell(&words);
        assert!(
            command.starts_with("fio --name=bench --ioengine=io_uring --direct=1"),
            "{command}"
        );
        assert!(command.contains("--rw=read --bs=1048576 --iodepth=2 --size=8388608"), "{command}");
        assert!(
            command.contains("'--filename=/mnt/my disk/fio.bench' --mem=mmaphuge"),
            "{command}"
        );
    }

    #[test]
    fn a_colon_in_a_name_does_not_make_two_files_of_it() {
        let words = words(&request(), Direction::Write, false, Path::new("/mnt/a:b/x:y"));
        assert!(words.contains(&r"--filename=/mnt/a\:b/x\:y".to_owned()), "{words:?}");
        assert!(shell(&words).contains(r"'--filename=/mnt/a\:b/x\:y'"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x:y");
        std::fs::write(&path, vec![1; 8192]).unwrap();
        let place = Place::open(&path, Some(&path), &Roots::default()).unwrap();
        let others = place.scratch().unwrap().path_for_others();
        assert!(others.starts_with("/proc"), "what is run is given no name: {others:?}");
    }

    #[test]
    fn a_name_that_fio_would_change_is_opened_by_the_shell_whatever_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let names: [&[u8]; 7] =
            [b"x ", b"it's", b"a \"b\" c", br"a\b", b"$HOME %d `id`", b"tab\tand\nline", b"\xff x"];
        for (number, name) in names.into_iter().enumerate() {
            let path = directory.path().join(std::ffi::OsStr::from_bytes(name));
            let told = command(&request(), Direction::Write, false, &path);
            let (job, opened) = told.split_once(" 3<>").unwrap();
            assert!(job.contains("--filename=/dev/fd/3 "), "{told}");
            // A replacement for fio that writes to the given file.
            let written = format!("echo {number} 3<>{opened} >&3");
            let status = Command::new("sh").arg("-c").arg(&written).status().unwrap();
            assert!(status.success(), "{written}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{number}\n"), "{written}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), names.len());
    }

    #[test]
    fn what_fio_says_is_understood() {
        let answer = r#"fio: a warning
{"jobs":[{"read":{"io_bytes":0},"write":{"io_bytes":1073741824,"bw_bytes":3000000000,
"lat_ns":{"min":1,"max":8500000}}}]}"#;
        let told = FioReport { rate: 3e9, bytes: 1 << 30, longest_ms: 8.5 };
        assert_eq!(parse(answer), Some(told));
        assert_eq!(parse("no json"), None);
        assert_eq!(huge_pages_free("HugePages_Total: 9\nHugePages_Free:   7\n"), Some(7));
    }

    #[test]
    fn without_fio_the_commands_are_told_and_ours_is_measured() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::open(directory.path(), None, &Roots::default()).unwrap();
        let stop = StopHandle::default();
        let mut tell = |_: &str, _: f64| {};
        let mut watcher = Watcher { stop: &stop, tell: &mut tell };
        let none = FioRequest { run: false, ..request() };
        let told = compare(&place, &none, &Roots::default(), &mut watcher).unwrap();
        let compared =
            run_in_turn(&place, &request(), None, &Roots::default(), &mut watcher).unwrap();
        assert_eq!((compared.comparisons.len(), told.comparisons.len()), (4, 0));
        assert_eq!(told.commands, compared.commands);
        assert!(compared.commands.iter().all(|command| !command.ran));
        for comparison in compared.comparisons {
            assert!(comparison.ours > 0.0 && comparison.ratio.is_none(), "{comparison:?}");
            assert_eq!(comparison.skipped.as_deref(), Some("fio is not installed"));
        }
    }
}
