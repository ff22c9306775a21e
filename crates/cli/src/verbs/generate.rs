//! `fullbore generate`: a test source for the network.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args as Arguments, ValueEnum};
use fullbore_core::endpoint::UdpTarget;
use fullbore_core::pattern::PatternSource;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::packets::PacketKind;
use fullbore_formats::sequence::Field;
use fullbore_formats::vdif::{Header, Mode, station_number, thread_list};
use fullbore_linux::clock::Clock;
use fullbore_linux::place::PlaceError;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_replay::Progress;
use fullbore_replay::pace::{CATCH_UP, Waiting};
use fullbore_simulators::generate::{
    Burst, Faults, Form, Generator, Pace, PacketForm, PayloadSource, Payloads, Plan, Report,
    Silence, StreamPlan, Tally, Truth, VdifForm, Vita49Form, at_rate, mark5b_template,
};
use fullbore_time::Tai;

use super::sending;
use crate::hint::explained;
use crate::output::{FOUND, GOOD, Output, count};

/// Send test streams to the network: VDIF, Mark 5B, VITA-49, SPEAD or RTP with valid
/// headers, or any datagrams.
///
/// One stream goes to each port:
///
///   fullbore generate --to udp://127.0.0.1:46220-46227 --duration 10s
///
/// sends eight streams of 32000 frames of 8032 bytes a second (mode
/// VDIF_8000-2048-16-2) for ten seconds. It can drop, duplicate, reorder, delay
/// and damage a share of the frames, chosen by a seed. --truth writes what was
/// sent, to compare a recorder's account with:
///
///   fullbore generate --to udp://127.0.0.1:46220 --frames 100000 \
///     --drop 1e-4 --reorder 1e-3 --seed 7 --truth truth.json
///
/// --gentle leaves the core to a recorder on the same machine. Ctrl-C ends it
/// early and prints the report, whose first line is the account of the planned
/// datagrams: sent on time, late, or not sent. The exit code is 1 if the kernel
/// refused to send a datagram; with --strict also if any was late.
#[derive(Arguments, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The destination: udp://HOST:PORT[-PORT][?ttl=N&interface=NAME]; may be given several times.
    #[arg(long, required = true, value_name = "ENDPOINT")]
    to: Vec<String>,

    /// The format of the datagrams.
    #[arg(long, value_enum, default_value_t = Format::Vdif, help_heading = "Streams")]
    format: Format,
    /// A packet number of 8 bytes precedes each frame.
    #[arg(long, help_heading = "Streams")]
    psn: bool,
    /// Frame length, rate, channels and bits in one word, in the notation of VLBI recorders; VDIFL_ for legacy
    /// headers, VDIFC_ for complex samples. [default: VDIF_8000-2048-16-2, with --edv 3 VDIF_5000-512-1-2,
    /// with --edv 0xAB VDIF_10000-2048-16-2]
    #[arg(long, value_name = "MODE", help_heading = "Streams")]
    mode: Option<Mode>,
    /// Bytes of each frame, header included.
    #[arg(long, value_name = "BYTES", help_heading = "Streams")]
    frame: Option<u32>,
    /// Frames per second of each thread.
    #[arg(long, value_name = "N", conflicts_with = "rate", help_heading = "Streams")]
    fps: Option<u64>,
    /// Payload rate of each stream, all its threads together, for example 2Gbit/s; rounded to a whole
    /// number of frames per second.
    #[arg(long, value_name = "RATE", help_heading = "Streams")]
    rate: Option<ByteRate>,
    /// VDIF threads interleaved in each stream, for example 0-7,9.
    #[arg(long, value_name = "LIST", default_value = "0", help_heading = "Streams")]
    threads: String,
    /// Station of the first stream: two letters, or a number.
    #[arg(long, default_value = "Fb", help_heading = "Streams")]
    station: String,
    /// Extended data version of the headers: 0, 1 (NICT), 2 (ALMA: with a packet number, frames of 5032 or 8032 bytes),
    /// 3 (VLBA, frames of 1032 or 5032 bytes), 4 (with a mask of valid channels) or 0xAB (Mark 5B inside, frames of
    /// 10032 bytes).
    #[arg(long, value_name = "EDV", value_parser = edv, default_value = "0", help_heading = "Streams")]
    edv: u8,
    /// Use legacy headers of 16 bytes.
    #[arg(long, help_heading = "Streams")]
    legacy: bool,
    /// Bits of a sample; of each half of a complex sample in VITA-49, 4 to 16. [default: by the mode; VITA-49 16]
    #[arg(long, value_name = "N", help_heading = "Streams")]
    bits: Option<u32>,
    /// Channels, a power of two.
    #[arg(long, value_name = "N", help_heading = "Streams")]
    channels: Option<u32>,
    /// Samples are complex.
    #[arg(long, help_heading = "Streams")]
    complex: bool,
    /// The sequence number in raw datagrams: offset, width in bytes, le or be, for example 0:8:le.
    #[arg(long, value_name = "FIELD", help_heading = "Streams")]
    seq: Option<Field>,
    /// Packets of each SPEAD heap. [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20), help_heading = "Streams")]
    heap: Option<u32>,
    /// The stream id of VITA-49 packets, in hexadecimal digits. [default: 1]
    #[arg(long, value_name = "ID", value_parser = stream_id, help_heading = "Streams")]
    stream_id: Option<u32>,
    /// The centre frequency in the context of VITA-49, in hertz. The sample rate there is that of the packets sent.
    /// [default: 1420405752]
    #[arg(long, value_name = "HZ", help_heading = "Streams")]
    frequency: Option<u64>,
    /// Packet or sequence number of frame 0 of the first second.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_negative_numbers = true,
        help_heading = "Streams"
    )]
    first_number: i64,

    /// Payload: prbs7, prbs15, prbs23, prbs31, random, noise (Gaussian, 2 bits), each optionally with a
    /// seed (prbs31:7); counter; or a word such as 0x11223344. An endpoint can also set the rate:
    /// pattern:prbs31?rate=2Gbit/s&seed=7.
    #[arg(
        long,
        value_name = "PATTERN",
        value_parser = payload,
        default_value = "prbs31",
        conflicts_with = "sample",
        help_heading = "Payload"
    )]
    payload: PatternSource,
    /// A weak payload, and a tone at an eighth of the sample rate for some time: 10s+200ms begins it 10 s after the first
    /// full second. For VITA-49 with 16 bits.
    #[arg(long, value_name = "AFTER+LENGTH", value_parser = burst, conflicts_with = "sample", help_heading = "Payload")]
    burst: Option<(Duration, Duration)>,
    /// Take payloads and headers, except time, thread and rate, from this file of VDIF frames, again and
    /// again. Uses the rate in its headers, if they have one and no other rate is given.
    #[arg(long, value_name = "FILE", help_heading = "Payload")]
    sample: Option<PathBuf>,

    /// The time in the first frames (UTC). `now` waits for the next full second, like a sampler that keeps time.
    /// [default: the present moment, so that sending starts at once, in the middle of a second; for raw datagrams, which
    /// carry no time, --first-number]
    #[arg(long, value_name = "TIME|now", help_heading = "Time")]
    start: Option<Start>,
    /// Run fast by this many parts per million of the host's clock, or slow if negative: -200.
    #[arg(
        long,
        value_name = "PPM",
        default_value_t = 0.0,
        allow_negative_numbers = true,
        conflicts_with = "flat_out",
        help_heading = "Faults"
    )]
    drift: f64,
    /// Stop after this many frames of each thread.
    #[arg(long, value_name = "N", conflicts_with = "duration", value_parser = at_least_one(), help_heading = "Time")]
    frames: Option<u64>,
    /// Stop after this time, for example 40s. [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = sending::duration, help_heading = "Time")]
    duration: Option<Duration>,
    /// Send as fast as possible.
    #[arg(long, help_heading = "Time")]
    flat_out: bool,
    /// Sleep between bursts of a quarter of a millisecond instead of spinning, to leave the core to
    /// others, such as a recorder on the same machine.
    #[arg(long, conflicts_with = "flat_out", help_heading = "Time")]
    gentle: bool,
    /// Factor over the nominal rate after a stall.
    #[arg(long, value_name = "FACTOR", default_value_t = CATCH_UP, help_heading = "Time")]
    catch_up: f64,

    #[command(flatten)]
    timing: sending::TimingArgs,

    /// Seed that selects the frames for these faults.
    #[arg(long, default_value_t = 0, help_heading = "Faults")]
    seed: u64,
    /// Share of frames that are not sent.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, help_heading = "Faults")]
    drop: f64,
    /// Number of frames to drop in a row each time.
    #[arg(long, value_name = "FRAMES", default_value_t = 1, value_parser = at_least_one(), help_heading = "Faults")]
    drop_run: u64,
    /// Share of frames that are sent twice.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, help_heading = "Faults")]
    duplicate: f64,
    /// Share of frames that are reordered.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, help_heading = "Faults")]
    reorder: f64,
    /// Maximum distance of a reordered frame, in frames.
    #[arg(long, value_name = "FRAMES", default_value_t = 8, value_parser = at_least_one(), help_heading = "Faults")]
    reorder_distance: u64,
    /// Share of frames that are damaged: truncated, extended, with a wrong length field, with a zeroed
    /// header, or followed by rubbish.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, help_heading = "Faults")]
    damage: f64,
    /// Share of frames that are delayed beyond the reordering window.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, help_heading = "Faults")]
    late: f64,
    /// Delay of late frames, in frames.
    #[arg(long, value_name = "FRAMES", default_value_t = 20_000, value_parser = at_least_one(), help_heading = "Faults")]
    late_distance: u64,
    /// Share of frames whose second counter is wrong: the packet number of EDV 2, the time in the Mark 5B header of EDV
    /// 0xAB, or an empty mask of EDV 4 in a frame not marked invalid.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, help_heading = "Faults")]
    miscount: f64,
    /// Send nothing in this interval: [STREAM@]FROM..TO, for example 2s..3s or 46221@5s.. (to the end).
    #[arg(long, value_name = "TIMES", value_parser = silence, help_heading = "Faults")]
    silence: Vec<Silence>,
    /// Write what was sent to this file, as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Faults")]
    truth: Option<PathBuf>,
}

/// The time of the first frames.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// A given time.
    At(Tai),
    /// The time of sending.
    Now,
}

impl FromStr for Start {
    type Err = fullbore_time::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "now" => Ok(Start::Now),
            text => text.parse().map(Start::At),
        }
    }
}

/// The format of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A VDIF frame each.
    Vdif,
    /// A VDIF frame behind a packet number of 8 bytes.
    Vtp,
    /// A Mark 5B frame each.
    Mark5b,
    /// A VITA-49 packet each: complex samples, and ten context packets a second.
    Vita49,
    /// A DIFI packet each: the same by the rules of DIFI, and one version packet a second.
    Difi,
    /// A packet of SPEAD-64-48 each.
    Spead,
    /// An RTP packet each.
    Rtp,
    /// Anything, with a sequence number if asked for.
    Raw,
}

/// Bytes of a SPEAD packet: 48 before a payload of 8 KiB.
const SPEAD_BYTES: u32 = 8240;
/// Packets of a SPEAD heap.
const HEAP_PACKETS: u32 = 4;
/// Bytes of an RTP packet, which fits an Ethernet frame.
const RTP_BYTES: u32 = 1452;

/// The default mode, common in VLBI.
const USUAL_MODE: &str = "VDIF_8000-2048-16-2";
/// A mode of the VLBA, whose frames have 5032 bytes: one channel of 128 MHz, or of 16 MHz in each of 8 threads.
const VLBA_MODE: &str = "VDIF_5000-512-1-2";
/// The usual rate and channels in frames that carry Mark 5B.
const MARK5B_MODE: &str = "VDIF_10000-2048-16-2";

/// The payload rate of the default mode.
const USUAL_RATE: ByteRate = ByteRate(256_000_000);

/// Reads `[STREAM@]FROM..TO`.
fn silence(text: &str) -> Result<Silence, String> {
    let (stream, times) = match text.split_once('@') {
        Some((stream, times)) => (Some(stream.to_owned()), times),
        None => (None, text),
    };
    let (from, to) =
        times.split_once("..").ok_or("write FROM..TO, for example 2s..3s, or 46221@5s..")?;
    let time = |text: &str, empty: Option<Duration>| match text.trim() {
        "" => Ok(empty),
        text => sending::duration(text).map(Some),
    };
    let from = time(from, Some(Duration::ZERO))?.unwrap_or_default();
    let to = time(to, None)?;
    if to.is_some_and(|to| to <= from) {
        return Err("it ends before it begins".to_owned());
    }
    Ok(Silence { stream, from, to })
}

/// Reads `3` or `0xAB`.
fn edv(text: &str) -> Result<u8, String> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "write 0, 1, 2, 3, 4 or 0xAB".to_owned())
}

fn stream_id(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let number = u32::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'));
    number.ok_or_else(|| "write up to 8 hexadecimal digits, for example cafe0002".to_owned())
}

fn at_least_one() -> clap::builder::RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(1..)
}

/// Sends, prints the report, and writes the truth.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let plan = plan(&args)?;
    let begins = plan.start;
    let stop = crate::signals::stop_handle()?;
    let generator = Generator::prepare(plan).map_err(explained)?;
    let truth_file = args.truth.as_deref().map(create).transpose()?;
    if let (Some(Start::Now), Some(begins)) = (args.start, begins) {
        wait_until(begins, &stop);
    }
    let progress = Progress::default();
    let report = sending::with_progress(output, &progress, || generator.run(&stop, &progress))
        .map_err(explained)?;
    if let (Some(file), Some(path)) = (truth_file, &args.truth) {
        write_truth(file, &report.truth)
            .with_context(|| format!("writing the truth to {}", path.display()))?;
    }
    output.tell(&report, || told(&report, stop.is_requested()))?;
    let good = report.sent.refused == 0 && args.timing.is_met(&report.sent);
    Ok(ExitCode::from(if good { GOOD } else { FOUND }))
}

fn write_truth(file: std::fs::File, truth: &Truth) -> anyhow::Result<()> {
    let mut file = BufWriter::new(file);
    serde_json::to_writer_pretty(&mut file, truth)?;
    // Without the flush, an error of the last write would be ignored.
    Ok(file.flush()?)
}

fn create(path: &Path) -> anyhow::Result<std::fs::File> {
    std::fs::File::create(path).map_err(|error| explained(PlaceError::new(path, error)))
}

/// A pattern, with or without the prefix `pattern:`.
fn burst(text: &str) -> Result<(Duration, Duration), String> {
    let (after, length) = text.split_once('+').ok_or("write it as 10s+200ms")?;
    Ok((sending::duration(after)?, sending::duration(length)?))
}

fn payload(text: &str) -> Result<PatternSource, String> {
    let source = match text.starts_with("pattern:") {
        true => PatternSource::parse(text),
        false => PatternSource::parse(&format!("pattern:{text}")),
    };
    let source = source.map_err(|error| error.to_string())?;
    match source.bytes {
        Some(_) => Err("--frames or --duration say how much is sent, and not `bytes`".into()),
        None => Ok(source),
    }
}

/// Converts arguments to a plan.
fn plan(args: &Args) -> anyhow::Result<Plan> {
    let targets = sending::targets(&args.to)?;
    ensure!(
        args.timing.at.is_none() || !matches!(args.start, Some(Start::Now)),
        "--start now waits for the next second, and --at for another instant: give one of them"
    );
    let threads = thread_list(&args.threads).map_err(|why| anyhow!("--threads: {why}"))?;
    let (form, frames_per_second) = form(args, threads.len() as u64)?;
    let payload = match (&args.sample, args.burst) {
        (Some(path), _) => PayloadSource::Sample(path.clone()),
        (None, None) => PayloadSource::Pattern(args.payload.pattern),
        (None, Some((after, length))) => {
            let fits =
                matches!(&form, Form::Packets(it) if it.vita49().is_some_and(|it| it.bits == 16));
            ensure!(fits, "--burst is for --format vita49 and difi with samples of 16 bits");
            let [first, frames] = [after, length]
                .map(|time| (time.as_secs_f64() * frames_per_second as f64).round() as u64);
            PayloadSource::Burst(args.payload.pattern, Burst { first, frames })
        }
    };
    let pace = match (args.flat_out, args.gentle) {
        (true, _) => Pace::FlatOut,
        (false, gentle) => {
            let waiting = if gentle { Waiting::Gentle } else { Waiting::Exact };
            ensure!(args.catch_up >= 1.0, "--catch-up {} would never catch up", args.catch_up);
            Pace::Nominal { waiting, catch_up: args.catch_up }
        }
    };
    let frames = match (args.frames, args.duration) {
        (None, Some(duration)) => {
            let frames = duration.as_nanos() * u128::from(frames_per_second) / 1_000_000_000;
            Some(u64::try_from(frames).context("--duration is too long to be counted in frames")?)
        }
        (frames, _) => frames,
    };
    let several_hosts = targets.iter().any(|target| target.host != targets[0].host);
    let stream = |target: &UdpTarget| StreamPlan {
        name: match several_hosts {
            false => target.port.to_string(),
            true => format!("{}:{}", target.host, target.port),
        },
        target: target.clone(),
        form: form.clone(),
        frames_per_second,
        threads: threads.clone(),
        first_number: args.first_number,
    };
    Ok(Plan {
        streams: targets.iter().map(stream).collect(),
        payload,
        start: match args.start {
            Some(Start::At(start)) => Some(start),
            Some(Start::Now) => Some(present_second().plus_ns(AHEAD_NS)),
            None => args.timing.at,
        },
        frames,
        pace,
        faults: faults(args),
        timing: args.timing.timing(),
    })
}

fn present_second() -> Tai {
    let now = Clock::new().now();
    Tai(now.0 - now.0.rem_euclid(1_000_000_000))
}

/// The time from now to a second for which there is time to prepare.
const AHEAD_NS: i64 = 2_000_000_000;

/// Waits until a time by the host's clock, or until a stop is requested.
fn wait_until(time: Tai, stop: &StopHandle) {
    let left = time.since(Clock::new().now()).max(0);
    stop.wait(Duration::from_nanos(left.unsigned_abs()));
}

fn faults(args: &Args) -> Faults {
    Faults {
        seed: args.seed,
        drop: args.drop,
        drop_run: args.drop_run,
        duplicate: args.duplicate,
        reorder: args.reorder,
        reorder_distance: args.reorder_distance,
        damage: args.damage,
        late: args.late,
        late_distance: args.late_distance,
        miscount: args.miscount,
        silences: args.silence.clone(),
        drift_ppm: args.drift,
    }
}

/// The form of the datagrams, and the frames per second of each thread.
fn form(args: &Args, threads: u64) -> anyhow::Result<(Form, u64)> {
    ensure!(args.format == Format::Spead || args.heap.is_none(), "--heap is for --format spead");
    let is_vita49 = matches!(args.format, Format::Vita49 | Format::Difi);
    for (option, given) in
        [("--stream-id", args.stream_id.is_some()), ("--frequency", args.frequency.is_some())]
    {
        ensure!(is_vita49 || !given, "{option} is for --format vita49 or difi");
    }
    let kind = match args.format {
        Format::Raw => return raw_form(args),
        Format::Vita49 | Format::Difi => return vita49_form(args),
        Format::Spead => return packet_form(args, PacketKind::Spead, SPEAD_BYTES),
        Format::Rtp => return packet_form(args, PacketKind::Rtp, RTP_BYTES),
        Format::Vdif | Format::Vtp => FrameKind::Vdif,
        Format::Mark5b => FrameKind::Mark5b,
    };
    ensure!(args.seq.is_none(), "--seq is for --format raw; VDIF frames are counted by their time");
    let packet_number = args.psn || args.format == Format::Vtp;
    if let Some(path) = &args.sample {
        let (own, template) = sample_template(args, path)?;
        ensure!(own == kind, "{} has {} frames, not {}", path.display(), own.title(), kind.title());
        let payload = template.payload_bytes();
        let given = rate_of(args, payload, threads)?;
        // The sample's own rate, if its headers contain it and no other rate is given.
        let own = || template.frames_per_second();
        let frames_per_second = given.or_else(own).unwrap_or(nearest(USUAL_RATE, payload, threads));
        let template = at_rate(template, frames_per_second)
            .map_err(|why| anyhow!("{}: {why}; choose another --fps", path.display()))?;
        return Ok((Form::Frames { kind, template, packet_number }, frames_per_second));
    }
    if kind == FrameKind::Mark5b {
        ensure!(args.mode.is_none(), "--mode speaks of VDIF, and not of --format mark5b");
        let template = mark5b_template();
        let payload = template.payload_bytes();
        let given = rate_of(args, payload, threads)?;
        let frames_per_second = given.unwrap_or(nearest(USUAL_RATE, payload, threads));
        return Ok((Form::Frames { kind, template, packet_number }, frames_per_second));
    }
    let usual = match args.edv {
        3 => VLBA_MODE,
        0xAB => MARK5B_MODE,
        _ => USUAL_MODE,
    };
    let mode = args.mode.map_or_else(|| Mode::parse(usual), Ok)?;
    let legacy = args.legacy || mode.legacy;
    let header = if legacy { Header::LEGACY_BYTES } else { Header::BYTES } as u32;
    let frame_bytes = args.frame.unwrap_or(mode.payload + header);
    ensure!(frame_bytes > header, "frames of {frame_bytes} bytes have no room behind their header");
    let given = rate_of(args, frame_bytes - header, threads)?;
    let frames_per_second = match given {
        Some(given) => given,
        None if args.frame.is_none() => {
            let total = mode.frames_per_second();
            ensure!(
                total.is_multiple_of(threads),
                "{threads} threads cannot share the {total} frames a second of {mode}; give --fps"
            );
            total / threads
        }
        None => nearest(ByteRate(u64::from(mode.mbits) * 125_000), frame_bytes - header, threads),
    };
    let station = station_number(&args.station)?;
    let template = VdifForm {
        frame_bytes,
        frames_per_second,
        bits: args.bits.unwrap_or(mode.bits),
        channels: args.channels.unwrap_or(mode.channels),
        complex: args.complex || mode.complex,
        station,
        legacy,
        edv: args.edv,
    }
    .template()
    .map_err(|why| anyhow!(why))?;
    Ok((Form::Frames { kind, template, packet_number }, frames_per_second))
}

fn packet_form(args: &Args, kind: PacketKind, usual_bytes: u32) -> anyhow::Result<(Form, u64)> {
    let title = kind.title();
    ensure!(args.mode.is_none(), "--mode speaks of VDIF, and not of {title}");
    ensure!(args.sample.is_none(), "--sample is for VDIF, and not for {title}");
    ensure!(
        !args.psn && args.seq.is_none(),
        "{title} has a count of its own: omit --psn and --seq"
    );
    let bytes = args.frame.unwrap_or(usual_bytes);
    let packets = PacketForm::of(kind, bytes, args.heap.unwrap_or(HEAP_PACKETS))
        .with_context(|| format!("packets of {bytes} bytes have no room behind their header"))?;
    let payload = packets.payload_bytes();
    let frames_per_second = rate_of(args, payload, 1)?.unwrap_or(nearest(USUAL_RATE, payload, 1));
    Ok((Form::Packets(packets), frames_per_second))
}

fn raw_form(args: &Args) -> anyhow::Result<(Form, u64)> {
    ensure!(args.mode.is_none(), "--mode speaks of VDIF, and not of --format raw");
    ensure!(args.sample.is_none(), "--sample is for VDIF, and not for --format raw");
    ensure!(!args.psn, "--psn precedes VDIF and Mark 5B frames; with --format raw give --seq");
    let frame_bytes = args.frame.unwrap_or(8000);
    ensure!(frame_bytes > 0, "datagrams without a byte carry nothing");
    let given = rate_of(args, frame_bytes, 1)?;
    let frames_per_second = given.unwrap_or(nearest(USUAL_RATE, frame_bytes, 1));
    Ok((Form::Raw { frame_bytes, sequence: args.seq }, frames_per_second))
}

/// The hydrogen line.
const USUAL_FREQUENCY: u64 = 1_420_405_752;

/// The samples in a packet that fits a network of frames of 9000 bytes.
const USUAL_SAMPLES: u32 = 2048;

fn vita49_form(args: &Args) -> anyhow::Result<(Form, u64)> {
    let difi = args.format == Format::Difi;
    let refused = [
        ("--mode", args.mode.is_some()),
        ("--sample", args.sample.is_some()),
        ("--psn", args.psn),
        ("--seq", args.seq.is_some()),
        ("--legacy", args.legacy),
        ("--channels", args.channels.is_some()),
        ("--edv", args.edv != 0),
        ("--threads", args.threads != "0"),
    ];
    if let Some((option, _)) = refused.iter().find(|(_, given)| *given) {
        bail!("{option} is not for VITA-49 packets");
    }
    let bits = args.bits.unwrap_or(16);
    let mut form = Vita49Form {
        difi,
        stream_id: args.stream_id.unwrap_or(1),
        packet_bytes: 0,
        bits,
        frequency_hz: args.frequency.unwrap_or(USUAL_FREQUENCY),
    };
    let usual = form.prologue_bytes() as u32 + USUAL_SAMPLES / 4 * bits.min(16);
    form.packet_bytes = args.frame.unwrap_or(usual);
    form.check().map_err(|why| anyhow!(why))?;
    let payload = form.payload_bytes();
    let packets_per_second = rate_of(args, payload, 1)?.unwrap_or(nearest(USUAL_RATE, payload, 1));
    Ok((Form::Packets(PacketForm::Vita49(form)), packets_per_second))
}

/// The requested frames per second.
fn rate_of(args: &Args, payload: u32, threads: u64) -> anyhow::Result<Option<u64>> {
    match (args.fps, args.rate.or(args.payload.rate)) {
        (Some(0), _) => bail!("--fps 0 sends nothing"),
        (None, Some(ByteRate(0))) => {
            bail!("--rate is less than a byte a second: it sends nothing")
        }
        (Some(fps), _) => Ok(Some(fps)),
        (None, Some(rate)) => Ok(Some(nearest(rate, payload, threads))),
        (None, None) => Ok(None),
    }
}

/// The number of frames per second of each thread that comes closest to a payload rate.
fn nearest(rate: ByteRate, payload: u32, threads: u64) -> u64 {
    let each = u64::from(payload) * threads;
    ((rate.0 + each / 2) / each.max(1)).max(1)
}

/// The header of a sample. A requested frame length must match it.
fn sample_template(args: &Args, path: &Path) -> anyhow::Result<(FrameKind, Header)> {
    let sample = Payloads::of_sample(path)
        .map_err(|error| explained(fullbore_simulators::generate::Error::from(error)))?;
    let (kind, template) = sample.template().context("a sample without a header")?;
    let frame_bytes = FrameCodec::any_day(kind).frame_bytes(&template);
    if let Some(requested) = args.frame {
        ensure!(
            frame_bytes == requested,
            "{} has frames of {frame_bytes} bytes, not {requested}",
            path.display(),
        );
    }
    Ok((kind, template))
}

/// The report as text.
fn told(report: &Report, stopped: bool) -> String {
    let streams = &report.truth.streams;
    let ports =
        if streams.len() == 1 { "1 port".into() } else { format!("{} ports", streams.len()) };
    let done = if stopped { "stopped" } else { "sent" };
    let bytes = ByteSize(report.sent.bytes);
    let what = format!("{}, {bytes}, to {ports}", count(report.datagrams as usize, "datagram"));
    let mut text = sending::summary(done, &what, &report.sent, report.start.as_ref());
    let sum = |of: fn(&Tally) -> u64| streams.iter().map(|stream| of(&stream.port)).sum::<u64>();
    let kinds: [(&str, u64); 8] = [
        ("dropped", sum(|tally| tally.dropped.count())),
        ("in silence", sum(|tally| tally.silent.count())),
        ("damaged", sum(Tally::damaged_count)),
        ("rubbish", sum(|tally| tally.rubbish)),
        ("duplicated", sum(|tally| tally.duplicated.len() as u64)),
        ("reordered", sum(|tally| tally.reordered.len() as u64)),
        ("of those late", sum(|tally| tally.late.len() as u64)),
        ("refused", sum(|tally| tally.refused.count())),
    ];
    let done: Vec<String> = kinds
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    if !done.is_empty() {
        let meant = sum(|tally| tally.meant);
        text += &format!("faults   of {meant} frames: {}\n", done.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::typed as as_typed;

    fn typed(words: &str) -> anyhow::Result<Plan> {
        plan(&as_typed(words)?)
    }

    #[test]
    fn a_pattern_is_named_by_itself_or_as_an_endpoint_with_its_rate() {
        let pattern = |plan: Plan| match plan.payload {
            PayloadSource::Pattern(pattern) => pattern.to_string(),
            PayloadSource::Sample(path) => path.display().to_string(),
            PayloadSource::Burst(..) => unreachable!("no burst is asked for"),
        };
        let to = "--to udp://127.0.0.1:46220 --payload";
        assert_eq!(pattern(typed(&format!("{to} prbs23:4")).unwrap()), "prbs23:4");
        let plan = typed(&format!("{to} pattern:prbs31?rate=8MB/s&seed=7")).unwrap();
        assert_eq!(plan.streams[0].frames_per_second, 1000);
        assert_eq!(pattern(plan), "prbs31:7");
        let plan = typed(&format!("{to} pattern:prbs31?rate=8MB/s --rate 16MB/s")).unwrap();
        assert_eq!(plan.streams[0].frames_per_second, 2000, "what is said of the streams wins");
        for wrong in ["prbs9", "pattern:prbs31?bytes=1GB", "file:x"] {
            assert!(typed(&format!("{to} {wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nothing_said_means_the_usual_mode_until_stopped() {
        let plan = typed("--to udp://127.0.0.1:46220-46227").unwrap();
        assert_eq!(plan.streams.len(), 8);
        assert_eq!((plan.streams[7].name.as_str(), plan.frames), ("46227", None));
        assert_eq!(plan.streams[0].frames_per_second, 32_000);
        let Form::Frames { template, .. } = &plan.streams[0].form else { panic!("not VDIF") };
        assert_eq!((template.frame_bytes(), template.channels()), (8032, 16));
        assert_eq!(plan.start, None);
        let plan = typed("--to udp://127.0.0.1:46220 --start now").unwrap();
        assert_eq!(plan.start.unwrap().0 % 1_000_000_000, 0);
    }

    #[test]
    fn every_extended_data_version_has_a_mode_of_its_own() {
        for (edv, frame_bytes, channels, frames_per_second) in [
            ("0", 8032, 16, 32_000),
            ("1", 8032, 16, 32_000),
            ("2", 8032, 16, 32_000),
            ("3", 5032, 1, 12_800),
            ("4", 8032, 16, 32_000),
            ("0xAB", 10_032, 16, 25_600),
        ] {
            let plan = typed(&format!("--to udp://[::1]:1 --edv {edv}")).unwrap();
            let Form::Frames { template, .. } = &plan.streams[0].form else { panic!("not VDIF") };
            assert_eq!((template.frame_bytes(), template.channels()), (frame_bytes, channels));
            assert_eq!(plan.streams[0].frames_per_second, frames_per_second, "EDV {edv}");
        }
    }

    #[test]
    fn rates_lengths_and_times_are_counted_in_frames() {
        let plan = typed("--to udp://[::1]:1 --frame 1032 --rate 80Mbit/s --duration 2s").unwrap();
        assert_eq!((plan.streams[0].frames_per_second, plan.frames), (10_000, Some(20_000)));
        let plan = typed("--to udp://[::1]:1 --threads 0-3 --mode VDIFL_5000-1024-8-2").unwrap();
        assert_eq!(plan.streams[0].frames_per_second, 6400);
        let Form::Frames { template, .. } = &plan.streams[0].form else { panic!("not VDIF") };
        assert_eq!((template.legacy(), template.frame_bytes()), (true, 5016));
        let raw = typed("--to udp://[::1]:1 --format raw --seq 0:8:le --frame 1312").unwrap();
        assert!(matches!(raw.streams[0].form, Form::Raw { frame_bytes: 1312, sequence: Some(_) }));
        let spead = typed("--to udp://[::1]:1 --format spead --rate 8192kB/s --heap 16").unwrap();
        assert_eq!(spead.streams[0].frames_per_second, 1000);
    }

    #[test]
    fn packets_of_vita49_have_a_stream_id_and_the_samples_that_fit() {
        let plan = typed("--to udp://[::1]:1 --format difi --stream-id cafe0002").unwrap();
        let Form::Packets(PacketForm::Vita49(form)) = &plan.streams[0].form else {
            panic!("no packets")
        };
        assert_eq!((form.stream_id, form.packet_bytes, form.samples()), (0xCAFE_0002, 8220, 2048));
        let words = "--to udp://[::1]:1 --format vita49 --bits 8 --frame 1420 --rate 2.8MB/s";
        let plan = typed(words).unwrap();
        let Form::Packets(PacketForm::Vita49(form)) = &plan.streams[0].form else {
            panic!("no packets")
        };
        assert_eq!((form.samples(), plan.streams[0].frames_per_second), (700, 2000));
    }

    #[test]
    fn a_silence_is_times_and_perhaps_a_stream() {
        let one = silence("46221@5s..").unwrap();
        assert_eq!((one.stream.as_deref(), one.from.as_secs(), one.to), (Some("46221"), 5, None));
        assert_eq!(silence("..3s").unwrap().to, Some(Duration::from_secs(3)));
        assert!(silence("3s..2s").is_err() && silence("3s").is_err() && silence("a..b").is_err());
    }

    #[test]
    fn bad_words_are_refused_with_the_reason() {
        for (words, reason) in [
            ("--to udp://:5000", "is not an IP address"),
            ("--to tcp://a:1", "cannot be used as a target"),
            ("--to udp://[::1]:1 --threads 0,0", "twice"),
            ("--to udp://[::1]:1 --fps 0", "sends nothing"),
            ("--to udp://[::1]:1 --frame 8", "no room"),
            ("--to udp://[::1]:1 --format rtp --frame 12", "no room"),
            ("--to udp://[::1]:1 --format rtp --heap 3", "--format spead"),
            ("--to udp://[::1]:1 --format spead --seq 0:8:le", "count of its own"),
            ("--to udp://[::1]:1 --frame 8033", "multiples of 8"),
            ("--to udp://[::1]:1 --edv 7", "EDV 0, 1, 2, 3, 4 or 0xAB"),
            ("--to udp://[::1]:1 --edv 0xAB --frame 8032", "10032 bytes"),
            ("--to udp://[::1]:1 --edv 3 --frame 8032", "1032 or 5032 bytes"),
            ("--to udp://[::1]:1 --edv 2 --complex", "real samples"),
            ("--to udp://[::1]:1 --seq 0:8:le", "--format raw"),
            ("--to udp://[::1]:1 --format raw --sample /x", "--sample is for VDIF"),
            ("--to udp://[::1]:1 --threads 0-2", "cannot share"),
            ("--to udp://[::1]:1 --stream-id 5", "--format vita49 or difi"),
            ("--to udp://[::1]:1 --format difi --threads 0-2", "--threads is not for VITA-49"),
            ("--to udp://[::1]:1 --format difi --frame 1230", "multiples of 4"),
            ("--to udp://[::1]:1 --format vita49 --bits 2", "4 to 16 bits"),
            ("--to udp://[::1]:1 --burst 1s+1s", "--format vita49"),
            ("--to udp://[::1]:1 --format difi --burst 1s", "10s+200ms"),
            ("--to udp://[::1]:1 --format vita49 --stream-id xy", "hexadecimal"),
            ("--to udp://[::1]:1 --catch-up 0.5", "never catch up"),
            ("--to udp://[::1]:1 --sample /nowhere.vdif", "/nowhere.vdif"),
            ("--to udp://[::1]:1 --payload zeros", "prbs31"),
            ("--to udp://[::1]:1 --start yesterday", "UTC"),
        ] {
            let error = format!("{:#}", typed(words).unwrap_err());
            assert!(error.contains(reason), "{words}: {error}");
        }
    }
}
