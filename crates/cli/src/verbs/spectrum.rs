//! `fullbore spectrum`: spectra, levels and power of samples.

use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args as ClapArgs;
use fullbore_analysis::plan::{LineId, Plan};
use fullbore_analysis::report::{Product, Report};
use fullbore_analysis::request::Request;
use fullbore_analysis::source::{Range, is_file};
use fullbore_analysis::window::Window;
use fullbore_core::endpoint::samples_of_source;
use fullbore_formats::samples::SampleRate;
use fullbore_recording::spectra::Spectra;
use fullbore_replay::position::Position;

use super::{scan_arg, sending, watch};
use crate::hint::explained;
use crate::output::{self, Output};
use crate::signals;
use crate::store_arg::StoreArg;

/// Show the spectrum of samples, their levels, or their power over time.
///
///   fullbore spectrum r1234_no0001                       each stream of a scan, on the terminal
///   fullbore spectrum r1234_no0001/46220 -o a.png        also .svg, .pdf, .csv and .json
///   fullbore spectrum file.vdif --waterfall --average 100ms -o a.png
///   fullbore spectrum r1234_no0001 --histogram           samples at each level
///   fullbore spectrum r1234_no0001 --cross 0,1           power and phase of two channels
///   fullbore spectrum 'udp://0.0.0.0:46220?format=vdif'  now, twice a second
///
/// Powers are in dB relative to the largest level of the encoding; in CSV and JSON they are squares of levels. A
/// transform with an absent sample is left out and counted.
///
/// Exit codes: 0 a result was shown or written; 1 data could not be read, or nothing arrived; 2 it could not be done.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// A scan, a stream of a scan (SESSION_SCAN/STREAM), a VDIF file, or a source.
    #[arg(value_name = "SCAN|FILE|SOURCE")]
    what: String,
    #[command(flatten)]
    store: StoreArg,
    /// Spectral channels, a multiple of 8.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    channels: usize,
    /// Time of a row of --waterfall and --series.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = sending::duration)]
    average: Duration,
    /// rectangular, hann, hamming or blackman.
    #[arg(long, default_value_t = Window::Hann)]
    window: Window,
    /// The start: a UTC time, or an offset such as +2.5s.
    #[arg(long, value_name = "TIME")]
    start: Option<Position>,
    /// The length of the part, for example 10s.
    #[arg(long, value_name = "TIME", value_parser = sending::duration)]
    length: Option<Duration>,
    /// Threads that compute [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Samples per second of each channel, if the data does not show it: 32MHz.
    #[arg(long, value_name = "RATE")]
    sample_rate: Option<SampleRate>,
    /// Power over frequency and time.
    #[arg(long, group = "product")]
    waterfall: bool,
    /// Samples at each level.
    #[arg(long, group = "product")]
    histogram: bool,
    /// Power over time.
    #[arg(long, group = "product")]
    series: bool,
    /// Power, phase and coherence of two channels: CHANNEL or THREAD:CHANNEL each.
    #[arg(long, value_name = "A,B", group = "product")]
    cross: Option<String>,
    /// The file of the result: .png, .svg, .pdf, .csv or .json. Several streams get a file each.
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let cross = args.cross.as_deref().map(LineId::pair).transpose()?;
    let product = Product::chosen(args.waterfall, args.histogram, args.series, cross);
    let bin = product.is_over_time().then_some(args.average);
    let (channels, window, wanted) = (args.channels, args.window, product.wanted());
    let plan = Arc::new(Plan { channels, window, bin, wanted });
    if watch::is_source(&args.what) {
        anyhow::ensure!(
            bin.is_none() && args.output.is_none(),
            "--waterfall, --series and -o are for recordings: record the source first"
        );
        return live(&args.what, plan, product, output);
    }
    let range = Range::new(args.start, args.length).map_err(explained)?;
    let (sample_rate, threads, to) = (args.sample_rate, args.threads, args.output);
    let pictures = to.is_none();
    let request = Request { product, plan, range, sample_rate, threads, to };
    let stop = signals::stop_handle()?;
    let reports = match is_file(&args.what) {
        Some(path) => vec![request.of_file(&path, &stop).map_err(explained)?],
        None => {
            let (scan, only) = scan_arg::open(&args.store.members()?, &args.what)?;
            let only = only.map(|name| scan_arg::stream(&scan, name.as_str())).transpose()?;
            request.of_scan(&scan, only, &stop).map_err(explained)?
        }
    };
    for report in &reports {
        output.tell(report, || page(report, pictures))?;
    }
    let whole = reports.iter().all(|report| report.losses.is_empty());
    Ok(ExitCode::from(if whole { output::GOOD } else { output::FOUND }))
}

/// The summary, with a picture on a terminal.
fn page(report: &Report, picture: bool) -> String {
    let size = console::Term::stdout().size_checked();
    match size.filter(|_| picture && stdout().is_terminal()) {
        Some((rows, columns)) => report.page(rows.into(), columns.into()),
        None => report.summary(),
    }
}

/// Shows what arrives, until Ctrl-C.
fn live(
    source: &str,
    plan: Arc<Plan>,
    product: Product,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let recording = watch::recorded_nowhere(source)?;
    signals::stop_recording(recording.stop_handle())?;
    let mut spectra = Spectra::of(&recording, plan, samples_of_source(source));
    let (mut lines, mut seen) = (0, false);
    while !recording.has_ended() && !recording.stop_handle().is_requested() {
        let results = spectra.next(Duration::from_millis(500)).map_err(explained)?;
        let reports: Vec<Report> = results.iter().map(|it| Report::new(it, product)).collect();
        seen |= !reports.is_empty();
        if output.json {
            reports.iter().for_each(|report| _ = output.event(report));
            continue;
        }
        let text: String = reports.iter().map(|report| page(report, reports.len() == 1)).collect();
        let in_place = lines > 0 && stdout().is_terminal();
        let above = if in_place { format!("\x1b[{lines}F\x1b[J") } else { String::new() };
        lines = text.lines().count();
        output::print(&(above + &text))?;
    }
    recording.stop();
    recording.join().map_err(explained)?;
    Ok(ExitCode::from(if seen { output::GOOD } else { output::FOUND }))
}
