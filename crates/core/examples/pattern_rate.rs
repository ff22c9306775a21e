//! Measures the rate at which one core makes and checks patterns: in the cache, in a recorder's block, and in memory.
//!
//! `pattern_rate [--megabytes N] [--runs N] [--output FILE.json] [--require GB/s]`
//!
//! Each figure is the median of the runs, in GB/s (10⁹), per CPU time of the thread. Other load on the machine affects
//! it only through memory bandwidth. *Memory* is a buffer of --megabytes (default 1024), larger than the caches of most
//! machines. *Block* is a buffer of 4 MiB that is reused, as a pool does. For comparison, the program also measures a
//! bit-by-bit shift register and the machine's own `memset`, `memcpy` and a sum over memory. These are the limits for
//! any pattern.
//!
//! `--require 15` requires that PRBS-31 is made and checked from memory at 15 GB/s, or at nine tenths of the rate of
//! `memset` and of the sum on this memory, if that is less. The exit code is 1 if a rate is below its limit.

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Instant, SystemTime};

use fullbore_core::pattern::{Checker, Pattern};
use fullbore_time::Tai;
use serde::Serialize;

const PATTERNS: [&str; 8] =
    ["prbs7", "prbs15", "prbs23", "prbs31", "counter", "random:1", "noise:1", "0x11223344"];

/// Rates of one core with buffers of one size, in GB/s.
#[derive(Serialize)]
struct Row {
    name: String,
    what: &'static str,
    buffer_bytes: usize,
    /// The median, the minimum and the maximum of the runs.
    gb_per_s: [f64; 3],
}

#[derive(Serialize)]
struct Result {
    bench: &'static str,
    version: &'static str,
    /// Start time of the measurement, in UTC.
    when: String,
    kernel: String,
    cpu: String,
    runs: usize,
    rows: Vec<Row>,
    /// The required rate of PRBS-31 from memory, in GB/s, and the result.
    required: Option<Required>,
}

/// A required rate and its result.
#[derive(Serialize)]
struct Required {
    gb_per_s: f64,
    reached: Vec<Reached>,
    holds: bool,
}

/// The rate that one direction reached.
#[derive(Serialize)]
struct Reached {
    what: &'static str,
    gb_per_s: f64,
    /// The rate of the memory itself in the same direction.
    memory_gb_per_s: f64,
    holds: bool,
}

struct Arguments {
    megabytes: usize,
    runs: usize,
    output: Option<PathBuf>,
    require: Option<f64>,
}

/// The pattern that `--require` applies to.
const HARDEST: &str = "prbs31";

/// The share of the memory's own rate that suffices where memory is slower than the required rate.
const SHARE_OF_MEMORY: f64 = 0.9;

fn main() {
    let arguments = parse().unwrap_or_else(|wrong| {
        eprintln!("pattern_rate: {wrong}");
        std::process::exit(2)
    });
    let mut result = measure(&arguments);
    result.required = arguments.require.map(|requested| judge(&result.rows, requested));
    print(&result);
    result.required.iter().for_each(tell);
    if let Some(path) = &arguments.output {
        let written = path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(path, json(&result) + "\n"));
        match written {
            Ok(()) => eprintln!("{}", path.display()),
            Err(error) => {
                eprintln!("pattern_rate: {}: {error}", path.display());
                std::process::exit(2);
            }
        }
    }
    if result.required.is_some_and(|required| !required.holds) {
        std::process::exit(1);
    }
}

/// Compares the rates from memory (the largest buffer) with the required rate.
fn judge(rows: &[Row], requested: f64) -> Required {
    let memory = rows.iter().map(|row| row.buffer_bytes).max().unwrap_or(0);
    let rate = |name: &str, what: &str| {
        let is_it =
            |row: &&Row| (row.name.as_str(), row.what, row.buffer_bytes) == (name, what, memory);
        rows.iter().find(is_it).map_or(0.0, |row| row.gb_per_s[0])
    };
    let reached = [("made", "memset"), ("checked", "sum")].map(|(what, limit)| {
        let (gb_per_s, memory_gb_per_s) = (rate(HARDEST, what), rate(limit, what));
        let holds = gb_per_s >= requested.min(SHARE_OF_MEMORY * memory_gb_per_s);
        Reached { what, gb_per_s, memory_gb_per_s, holds }
    });
    let holds = reached.iter().all(|it| it.holds);
    Required { gb_per_s: requested, reached: reached.into(), holds }
}

fn tell(required: &Required) {
    println!();
    for it in &required.reached {
        let verdict = match (it.gb_per_s >= required.gb_per_s, it.holds) {
            (true, _) => "held",
            (false, true) => "held as far as memory allows",
            (false, false) => "MISSED",
        };
        println!(
            "{HARDEST} {} at {:.1} GB/s from memory, {:.1} asked for, memory itself {:.1}: {verdict}",
            it.what, it.gb_per_s, required.gb_per_s, it.memory_gb_per_s
        );
    }
}

fn parse() -> std::result::Result<Arguments, String> {
    let mut arguments = Arguments { megabytes: 1024, runs: 5, output: None, require: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<usize>().map_err(|_| format!("{word} {value}: not a number"));
        match word.as_str() {
            "--megabytes" => arguments.megabytes = number()?.clamp(1, 1 << 20),
            "--runs" => arguments.runs = number()?.clamp(1, 1000),
            "--output" => arguments.output = Some(value.into()),
            "--require" => {
                let rate = value.parse::<f64>().ok().filter(|rate| *rate > 0.0);
                let rate = rate.ok_or_else(|| format!("{word} {value}: not a rate in GB/s"))?;
                arguments.require = Some(rate);
            }
            _ => return Err(format!("{word} is not known")),
        }
    }
    Ok(arguments)
}

fn json(result: &Result) -> String {
    serde_json::to_string_pretty(result).expect("numbers and names are JSON")
}

fn measure(arguments: &Arguments) -> Result {
    let when = format!("{:.0}", now());
    let memory = arguments.megabytes << 20;
    let mut buffer = vec![0u8; memory];
    let mut rows = Vec::new();
    for bytes in [256 << 10, 4 << 20, memory] {
        let buffer = &mut buffer[..bytes.min(memory)];
        limits(buffer, arguments.runs, &mut rows);
        for name in PATTERNS {
            let pattern: Pattern = name.parse().expect("all are names");
            let checker = Checker::new(pattern);
            let mut offset = 0;
            rows.push(row(name, "made", buffer.len(), arguments.runs, || {
                offset += buffer.len() as u64;
                pattern.fill(black_box(&mut *buffer), offset);
            }));
            rows.push(row(name, "checked", buffer.len(), arguments.runs, || {
                assert_eq!(checker.check(black_box(&*buffer), offset), Ok(()));
            }));
        }
    }
    let few = &mut buffer[..memory.min(4 << 20)];
    rows.push(row("prbs31 bit by bit", "made", few.len(), 3, || bit_by_bit(black_box(&mut *few))));
    Result {
        bench: "pattern",
        version: env!("CARGO_PKG_VERSION"),
        when,
        kernel: kernel(),
        cpu: cpu(),
        runs: arguments.runs,
        rows,
        required: None,
    }
}

/// Measures the limits of the memory.
fn limits(buffer: &mut [u8], runs: usize, rows: &mut Vec<Row>) {
    let mut value = 0u8;
    let bytes = buffer.len();
    rows.push(row("memset", "made", bytes, runs, || {
        value = value.wrapping_add(1);
        black_box(&mut *buffer).fill(value);
    }));
    rows.push(row("sum", "checked", bytes, runs, || {
        let words = black_box(&*buffer).as_chunks::<8>().0.iter();
        black_box(words.fold(0u64, |sum, word| sum.wrapping_add(u64::from_ne_bytes(*word))));
    }));
    let (from, to) = buffer.split_at_mut(bytes / 2);
    rows.push(row("memcpy", "made", bytes / 2, runs, || {
        black_box(&mut *to).copy_from_slice(black_box(&*from));
    }));
}

fn row(
    name: &str,
    what: &'static str,
    buffer_bytes: usize,
    runs: usize,
    mut work: impl FnMut(),
) -> Row {
    // Small buffers are processed many times. A single pass would measure the resolution of the clock.
    let times = (1usize << 30).div_ceil(buffer_bytes).max(1);
    let times = if name.contains("bit by bit") { 4 } else { times };
    work();
    let mut rates: Vec<f64> = (0..runs)
        .map(|_| {
            let begun = (Instant::now(), worked());
            (0..times).for_each(|_| work());
            let elapsed = begun.0.elapsed().as_secs_f64();
            let seconds = begun.1.zip(worked()).map_or(elapsed, |(from, to)| to - from);
            (times * buffer_bytes) as f64 / seconds / 1e9
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    let gb_per_s = [rates[runs / 2], rates[0], rates[runs - 1]];
    Row { name: name.to_owned(), what, buffer_bytes, gb_per_s }
}

/// CPU time of this thread in seconds, where the kernel counts it.
fn worked() -> Option<f64> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(told.split(' ').next()?.parse::<f64>().ok()? / 1e9)
}

/// The shift register as hardware implements it.
fn bit_by_bit(out: &mut [u8]) {
    let mut register = 0x7FFF_FFFFu32;
    for byte in out {
        *byte = 0;
        for bit in 0..8 {
            *byte |= ((register & 1) as u8) << bit;
            let new = (register ^ (register >> 3)) & 1;
            register = (register >> 1) | new << 30;
        }
    }
}

/// The time of the host.
fn now() -> Tai {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Tai::from_unix_ns(since.as_nanos() as i128)
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    model.and_then(|line| line.split_once(": ")).map_or("not known".into(), |(_, it)| it.into())
}

fn print(result: &Result) {
    let mut sizes: Vec<usize> = Vec::new();
    let halves = |row: &&Row| row.name != "memcpy";
    for row in result.rows.iter().filter(halves) {
        if !sizes.contains(&row.buffer_bytes) {
            sizes.push(row.buffer_bytes);
        }
    }
    println!("{}; one core, GB/s, the middle of {} runs\n", result.cpu, result.runs);
    print!("{:<20}{:<9}", "", "");
    sizes.iter().for_each(|bytes| print!("{:>10}", format!("{} KiB", bytes >> 10)));
    println!();
    let mut told: Vec<(&str, &str)> = Vec::new();
    for row in &result.rows {
        let key = (row.name.as_str(), row.what);
        if told.contains(&key) {
            continue;
        }
        told.push(key);
        print!("{:<20}{:<9}", row.name, row.what);
        for &bytes in &sizes {
            let is_it = |it: &&Row| {
                let same = it.buffer_bytes == bytes || 2 * it.buffer_bytes == bytes;
                same && (it.name.as_str(), it.what) == key
            };
            match result.rows.iter().find(is_it) {
                Some(row) => print!("{:>10.1}", row.gb_per_s[0]),
                None => print!("{:>10}", "-"),
            }
        }
        println!();
    }
}
