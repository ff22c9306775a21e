//! Measures the rate and the CPU time of writing HDF5 files; for tests, writes files of given samples.
//!
//! `hdf5_rate [--megabytes N] [--native] [--compression none|gzip|bitshuffle] [--flush-ms N] [--rate ROWS]
//! [--not-live] [--numbered] [--samples FILE --header JSON] [--overwrite | --append] [--reason WORD] FILE.h5`
//!
//! Without `--samples` the program writes samples of 60 bytes and 11 columns, as a PandA with two means sends them.
//! With `--numbered`, every 32-bit word of sample i is i.
//! Each flush prints a line `visible ROWS`; the end prints one line of JSON.
//! `--recover FILE.h5` and `--clear FILE.h5` only recover or clear the file. `--join MASTER NAME=FILE …` joins files.
//! `--frames BYTES FILE.h5` makes a file of frames with times.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use fullbore_core::account::Verdict;
use fullbore_core::hint::Hint;
use fullbore_formats::panda::header::{Field, Header, Kind, Process, Scaling};
use fullbore_hdf5::{
    self as hdf5, BytesFile, Compression, Ending, Existing, Form, Options, PandaFile, Report, Shape,
};
use fullbore_time::Tai;
use rustix::time::{ClockId, clock_gettime};

/// Bytes that a PandA sends at a time: a server block, cut to whole samples.
const FRAME_BYTES: usize = (2 << 20) / SAMPLE_BYTES * SAMPLE_BYTES;
const SAMPLE_BYTES: usize = 60;

struct Arguments {
    bytes: u64,
    numbered: bool,
    samples: Option<PathBuf>,
    header: Option<PathBuf>,
    reason: String,
    options: Options,
    file: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--recover", file] => println!("{:?}", told(hdf5::recover(Path::new(file)))?),
        ["--clear", file] => told(hdf5::clear(Path::new(file)))?,
        ["--join", master, streams @ ..] => join(master, streams)?,
        ["--frames", bytes, file] => frames(bytes.parse()?, Path::new(file))?,
        _ => record(&parse(&words)?)?,
    }
    Ok(())
}

/// Appends the hint to the error text, so that tests can check both.
fn told<T>(result: Result<T, hdf5::Error>) -> anyhow::Result<T> {
    result.map_err(|error| {
        let hint = error.hint().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
        anyhow::Error::from(error).context(format!("hdf5{hint}"))
    })
}

fn record(arguments: &Arguments) -> anyhow::Result<()> {
    let header = match &arguments.header {
        Some(path) => serde_json::from_slice(&std::fs::read(path)?)?,
        None => made_up(),
    };
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let mut file = told(PandaFile::create(&arguments.file, &header, &arguments.options))?;
    let written = match &arguments.samples {
        Some(path) => give(&mut file, &std::fs::read(path)?, header.sample_bytes as usize),
        None => make(&mut file, arguments),
    };
    if let Err(error) = written {
        let ending = Ending::given_up(format!("{error:#}"));
        println!("kept {}", told(file.abandon(&ending))?);
        return Err(error);
    }
    let ending = Ending {
        reason: arguments.reason.clone(),
        missing: header.missed,
        verdict: Some(Verdict::Proven),
        account: Some("{}".to_owned()),
        ..Ending::default()
    };
    let report = told(file.finish(&ending))?;
    print(&report, started.elapsed(), cpu_seconds() - cpu);
    Ok(())
}

/// Writes the samples in frames of odd lengths, with a flush after each.
fn give(file: &mut PandaFile, samples: &[u8], sample_bytes: usize) -> anyhow::Result<()> {
    let mut rest = samples;
    for frame in (1..).map(|n| n * 37 * sample_bytes) {
        if rest.is_empty() {
            break;
        }
        let (now, later) = rest.split_at(frame.min(rest.len()));
        told(file.append(now))?;
        told(file.flush())?;
        rest = later;
    }
    Ok(())
}

fn make(file: &mut PandaFile, arguments: &Arguments) -> anyhow::Result<()> {
    let mut frame = vec![0; FRAME_BYTES];
    number(&mut frame, 0);
    let (mut sent, mut flushed, mut row) = (0, Instant::now(), 0);
    while sent < arguments.bytes {
        if arguments.numbered {
            number(&mut frame, row);
            row += (FRAME_BYTES / SAMPLE_BYTES) as u32;
        }
        told(file.append(&frame))?;
        sent += FRAME_BYTES as u64;
        if flushed.elapsed() >= arguments.options.flush {
            told(file.flush())?;
            println!("visible {}", file.rows());
            std::io::stdout().flush()?;
            flushed = Instant::now();
        }
    }
    Ok(())
}

/// Sets every 32-bit word of sample i to i.
fn number(frame: &mut [u8], first: u32) {
    for (sample, i) in frame.chunks_exact_mut(SAMPLE_BYTES).zip(first..) {
        sample.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&i.to_le_bytes()));
    }
}

fn print(report: &Report, wall: Duration, cpu: f64) {
    let gigabytes = report.bytes_in as f64 / 1e9;
    println!(
        "{}",
        serde_json::json!({
            "rows": report.rows,
            "bytes_in": report.bytes_in,
            "file_bytes": report.file_bytes,
            "past_page_cache": report.direct,
            "megabytes_per_second": gigabytes * 1e3 / wall.as_secs_f64(),
            "cpu_seconds_per_gigabyte": cpu / gigabytes,
            "flushes": report.flushes.len(),
            "flush_us_median": report.flushes.value_at_quantile(0.5),
            "flush_us_longest": report.flushes.max(),
            "write_us_longest": report.longest_write.as_micros() as u64,
        })
    );
}

fn join(master: &str, streams: &[&str]) -> anyhow::Result<()> {
    let pairs = streams.iter().map(|word| word.split_once('=').context("NAME=FILE is wanted"));
    let pairs = pairs.map(|pair| pair.map(|(name, file)| (name, Path::new(file))));
    told(hdf5::join(Path::new(master), &pairs.collect::<anyhow::Result<Vec<_>>>()?))
}

/// Writes 10,000 frames, one microsecond apart; every byte of frame n is n.
fn frames(frame_bytes: usize, path: &Path) -> anyhow::Result<()> {
    let shape = Shape::Frames { frame_bytes };
    let mut file =
        told(BytesFile::create(path, shape, &[("format", "made up")], &Options::default()))?;
    for n in 0..10_000u32 {
        told(file.append(&vec![n as u8; frame_bytes], &[Tai(i64::from(n) * 1000)]))?;
        if n % 1000 == 999 {
            told(file.flush())?;
        }
    }
    told(file.finish(&Ending { reason: "Ok".into(), ..Ending::default() }))?;
    Ok(())
}

/// Returns a header of eleven columns: two words, five positions, two times, two means.
fn made_up() -> Header {
    let plain = |name: &str, kind| (name.to_owned(), "Value", kind, None);
    let scaled = |name: &str, capture, kind, scale, offset, units: &str| {
        (name.to_owned(), capture, kind, Some(Scaling { scale, offset, units: units.to_owned() }))
    };
    let columns = [
        plain("PCAP.BITS0", Kind::Uint32),
        scaled("COUNTER1.OUT", "Min", Kind::Int32, 1.0, 0.0, ""),
        scaled("COUNTER1.OUT", "Max", Kind::Int32, 1.0, 0.0, ""),
        scaled("COUNTER2.OUT", "Min", Kind::Int32, 0.5, 3.0, "mm"),
        scaled("COUNTER2.OUT", "Max", Kind::Int32, 0.5, 3.0, "mm"),
        scaled("COUNTER3.OUT", "Value", Kind::Int32, 1.0, 0.0, ""),
        scaled("PCAP.SAMPLES", "Value", Kind::Int32, 8e-9, 0.0, "s"),
        scaled("PCAP.TS_START", "Value", Kind::Int64, 8e-9, 0.0, "s"),
        scaled("PCAP.TS_TRIG", "Value", Kind::Int64, 8e-9, 0.0, "s"),
        scaled("COUNTER1.OUT", "Mean", Kind::Int64, 1.0, 0.0, ""),
        scaled("COUNTER2.OUT", "Mean", Kind::Int64, 0.5, 3.0, "mm"),
    ];
    let mut offset_bytes = 0;
    let fields = columns.map(|(name, capture, kind, scaling)| {
        let at = offset_bytes;
        offset_bytes += kind.bytes();
        Field { name, capture: capture.to_owned(), kind, offset_bytes: at, scaling }
    });
    Header {
        arm_time: Some(Tai(0)),
        start_time: Some(Tai(1_000_000)),
        hw_time_offset_ns: Some(-1234),
        missed: 0,
        process: Process::Raw,
        sample_bytes: SAMPLE_BYTES as u32,
        fields: fields.to_vec(),
    }
}

fn parse(words: &[&str]) -> anyhow::Result<Arguments> {
    let mut arguments = Arguments {
        bytes: 600_000_000,
        numbered: false,
        samples: None,
        header: None,
        reason: "Ok".to_owned(),
        options: Options { rows_per_second: Some(2e6), ..Options::default() },
        file: PathBuf::new(),
    };
    let mut words = words.iter();
    let options = &mut arguments.options;
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().with_context(|| format!("{word} wants a value"));
        match *word {
            "--megabytes" => arguments.bytes = value()?.parse::<u64>()? * 1_000_000,
            "--native" => options.form = Form::Native,
            "--compression" => options.compression = Some(compression(value()?)?),
            "--flush-ms" => options.flush = Duration::from_millis(value()?.parse()?),
            "--rate" => options.rows_per_second = Some(value()?.parse()?),
            "--not-live" => options.live = false,
            "--numbered" => arguments.numbered = true,
            "--samples" => arguments.samples = Some(value()?.into()),
            "--header" => arguments.header = Some(value()?.into()),
            "--overwrite" => options.existing = Existing::Overwrite,
            "--append" => options.existing = Existing::Append,
            "--reason" => arguments.reason = value()?.to_owned(),
            file if !file.starts_with('-') => arguments.file = file.into(),
            other => bail!("{other} is not an option"),
        }
    }
    if arguments.file.as_os_str().is_empty() {
        bail!("which file?");
    }
    Ok(arguments)
}

fn compression(word: &str) -> anyhow::Result<Compression> {
    match word {
        "none" => Ok(Compression::None),
        "gzip" => Ok(Compression::Gzip(1)),
        "bitshuffle" => Ok(Compression::BitshuffleLz4),
        other => bail!("{other} is not a compression"),
    }
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
