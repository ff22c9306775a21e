//! `fullbore convert`: converts recordings into other containers.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use clap::Args as ClapArgs;
use fullbore_containers::{SampleOptions, SampleTarget, SampleType};
use fullbore_core::container::Hdf5Target;
use fullbore_core::device::DeviceEnd;
use fullbore_core::endpoint;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_recording::export::{
    Acquisition, ExportError, ExportEvent, ExportedScan, SampleExport, ScanExport, export_dump,
    export_packets,
};
use fullbore_store::catalogue::Selected;
use indicatif::{ProgressBar, ProgressStyle};

use crate::hint::{explained, with_advice};
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::{convert_tdms, scan_arg};

/// Write a recording into another container.
///
///   fullbore convert file:dump.bin capture-%d.h5      a PandA's raw data
///   fullbore convert store:r1234_no0001/46220 out.h5  one stream of a scan
///   fullbore convert store:r1234_no0001 out.h5        all of them
///   fullbore convert device:/dev/sdb?scan=r1_a file:a.vdif    a scan of a device
///   fullbore convert store:r1234_no0001 pcapng:out.pcapng     packets for tshark
///
/// With several streams, each gets its own file, out_46220.h5, and out.h5 shows all
/// of them side by side without a copy of the data (virtual datasets). A VDIF
/// stream becomes its frames, one per row, and the time of each. Other streams
/// become their bytes, with the arrival time of each block (blocks/row,
/// blocks/time).
///
/// With --follow, the files of a scan that is being recorded grow as its data
/// becomes durable, for readers to see (SWMR), and end when it is sealed. The
/// recorder does not wait for convert. Without --follow, convert takes the data
/// that is durable now.
///
/// With ?existing=append, several scans follow one another in one file:
/// /acquisitions says which rows belong to which scan, how sure each account is,
/// and how a PandA was set up. With several streams, convert appends to each file
/// and renews the file that shows them all. To get a file per scan, run a command
/// for each. Appended data must fit the file: the same PandA columns, with the same
/// units, scale, offset and ?scaled; the same frame length. The file's compression
/// applies; a different ?compression is refused.
///
///   fullbore convert store:r1234_no0001 hdf5:all.h5?existing=append
///   fullbore convert store:r1234_no0002 hdf5:all.h5?existing=append
///
/// npy:out.npy is a numpy array of the samples, of shape (samples, channels), with the
/// type of --as. Samples that are not there are NaN, or 0 of integers, and
/// out.npy.json lists them, with the layout, the start and the account. VDIF headers
/// describe their samples, and the endpoint of other streams does (samples=ci16_le).
///
///   fullbore convert store:r1234_no0001/46220 npy:out.npy --as f32
///
/// drf:top/channel is a channel of Digital RF 2.6, a directory with a file for each
/// second. Samples that are not there have no rows; with ?continuous=true they are
/// fill. The samples need a rate (sample_rate=100MHz, or fps= for VDIF).
///
///   fullbore convert store:r1234_no0001/46220 'drf:top/channel?file=500'
///
/// sigmf:out is a SigMF recording: out.sigmf-data has the samples as recorded, or of the
/// type of --as, and out.sigmf-meta says what they are. A gap is a capture whose
/// core:global_index jumps, and nothing is filled. Markers are annotations. Several
/// streams are out_46220.sigmf-data and so on, and out.sigmf-collection lists them.
/// ?hash=false leaves out the SHA-512 of the samples, which takes longer than to write
/// them.
///
///   fullbore convert store:r1234_no0001 sigmf:out
///
/// tdms:out.tdms is a file of LabVIEW with a group for the stream, and out.tdms_index.
/// Integers stay integers, with the scale as a property. Channels lie one after the other
/// in raw chunks of 8 MiB, or, with ?layout=interleaved, sample by sample.
///
///   fullbore convert store:r1234_no0001/46220 tdms:out.tdms
///   fullbore convert file:killed.tdms tdms:whole.tdms    repairs, defragments
///   fullbore convert 'file:theirs.tdms?group=Measured' npy:out.npy
///
/// zarr:out.zarr is an array of Zarr 3, with gaps as fill values.
///
/// A block that is missing or damaged ends the conversion, and no file is made. With
/// --allow-damaged, the file has the others, and its account names what it lacks.
/// With --follow or ?existing=append, the file keeps what was written before.
///
/// Exit codes: 0 the file holds everything that was to be recorded; 1 it does not:
/// blocks are missing or damaged, the account counts lost frames or is in doubt,
/// or the recorder was killed or aborted; 2 the recording could not be converted.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The recording: store:SCAN, store:SCAN/STREAM, file:DUMP, file:NAME.tdms or device:PATH?scan=SCAN.
    #[arg(value_name = "FROM")]
    from: String,
    /// The output: an HDF5 file (.h5, .hdf5, .hdf, .he5, .nxs or .nx5), or hdf5:NAME with any name and
    /// with options, for example hdf5:out?scaled=false&compression=gzip:1; or npy:NAME, sigmf:NAME,
    /// tdms:NAME, wav:NAME, zarr:NAME, drf:NAME
    /// or pcapng:NAME
    #[arg(value_name = "TO")]
    to: String,
    #[command(flatten)]
    store: StoreArg,
    /// The type of the values in files of samples; default f32 in npy:NAME and zarr:NAME, as recorded in the others.
    #[arg(long = "as", value_name = "TYPE")]
    values: Option<Values>,
    /// Continue past damaged and missing blocks.
    #[arg(long)]
    allow_damaged: bool,
    /// Follow a scan that is being recorded until it is sealed.
    #[arg(long)]
    follow: bool,
    /// Show no progress.
    #[arg(long)]
    quiet: bool,
}

/// The type of the values in an array of samples.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Values {
    /// Integers of 8 bits.
    I8,
    /// Integers of 16 bits.
    I16,
    /// Integers of 32 bits.
    I32,
    /// Floats of 32 bits, with the levels of 1- and 2-bit samples.
    F32,
}

impl From<Values> for SampleType {
    fn from(values: Values) -> Self {
        match values {
            Values::I8 => SampleType::I8,
            Values::I16 => SampleType::I16,
            Values::I32 => SampleType::I32,
            Values::F32 => SampleType::F32,
        }
    }
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if let Some(target) = SampleTarget::parse(&args.to) {
        return samples(&args, target.map_err(explained)?, output);
    }
    ensure!(
        args.values.is_none(),
        "--as is for npy:NAME, drf:NAME, sigmf:NAME, tdms:NAME, wav:NAME and zarr:NAME"
    );
    if DeviceEnd::is_meant(&args.from) {
        let Args { from, to, allow_damaged, quiet, .. } = args;
        return super::device::convert(&from, &to, allow_damaged, quiet, output);
    }
    if let Some(path) = args.to.strip_prefix("pcapng:") {
        return packets(&args, Path::new(path), output);
    }
    let mut target = Hdf5Target::parse(&args.to).map_err(explained)?;
    if let Some(path) = args.from.strip_prefix("file:") {
        return dump(Path::new(path), &target, output);
    }
    if !args.follow {
        // No reader follows a file that is made from existing data.
        target.flush = target.flush.max(Duration::from_secs(1));
    }
    scan(args, target, output)
}

/// Writes the frames of a scan as packets.
fn packets(args: &Args, path: &Path, output: Output) -> anyhow::Result<ExitCode> {
    ensure!(
        !args.follow && !args.allow_damaged,
        "--follow and --allow-damaged cannot be used with pcapng:"
    );
    ensure!(
        !path.as_os_str().is_empty(),
        "pcapng: needs the name of a file: write pcapng:out.pcapng"
    );
    let name = args.from.strip_prefix("store:").unwrap_or(&args.from);
    let roots = args.store.members()?;
    let Selected { scan, stream } = scan_arg::find(&roots, name)?;
    let made = export_packets(&roots, &scan, stream.as_ref(), path).map_err(explained)?;
    output.tell(&made, || {
        let lines = made.streams.iter().map(|it| {
            format!(
                "{}/{}: {} packets to {}, {}\n",
                made.scan,
                it.stream,
                it.packets,
                it.to,
                ByteSize(it.bytes)
            )
        });
        lines.collect::<String>() + &format!("{}, {:.1} s\n", made.file.display(), made.seconds)
    })?;
    Ok(output::exit_code(made.outcome()))
}

fn samples(args: &Args, target: SampleTarget, output: Output) -> anyhow::Result<ExitCode> {
    ensure!(!args.follow, "--follow is for HDF5 files: other files of samples are made at once");
    let mut target = target;
    if let Some(values) = args.values {
        target.options.values = Some(values.into());
    }
    let name = args.from.strip_prefix("store:").unwrap_or(&args.from);
    let parsed = args.from.parse::<endpoint::Endpoint>();
    let show = |event, shown: &mut ProgressBar| show(event, shown, output, args.quiet);
    if let Some(from) = parsed.as_ref().ok().filter(|from| from.scheme == "file") {
        return convert_tdms::run(from, target, show, output);
    }
    ensure!(
        parsed.as_ref().map_or(true, |from| from.scheme == "store"),
        "{}: samples are taken from store:SCAN, store:SCAN/STREAM or file:NAME.tdms",
        args.from
    );
    let roots = args.store.clone().members()?;
    let Selected { scan, stream } = scan_arg::find(&roots, name)?;
    let SampleTarget { path, options: SampleOptions { format, values }, .. } = target;
    let allow_damaged = args.allow_damaged;
    let export = SampleExport { roots, scan, stream, path, format, values, allow_damaged };
    let mut shown = ProgressBar::hidden();
    let exported = export.run(&mut |event| show(event, &mut shown));
    shown.finish_and_clear();
    told(&exported.map_err(explained)?, output)
}

/// Shows an event.
fn show(event: ExportEvent, shown: &mut ProgressBar, output: Output, quiet: bool) {
    match event {
        ExportEvent::Begun { bytes } => *shown = bar(bytes, output, quiet),
        ExportEvent::Written { bytes } => shown.inc(bytes),
        ExportEvent::Rest { what } => {
            shown.suspend(|| output::say(format_args!("fullbore: {what}")));
        }
        ExportEvent::Damaged { what, ends } => shown.suspend(|| {
            let advice = if ends { "\n  --allow-damaged continues without it" } else { "" };
            output::note(format_args!("{what}{advice}"));
        }),
    }
}

fn scan(args: Args, target: Hdf5Target, output: Output) -> anyhow::Result<ExitCode> {
    let Args { from, store, allow_damaged, follow, quiet, .. } = args;
    let name = from.strip_prefix("store:").unwrap_or(&from);
    let parsed = from.parse::<endpoint::Endpoint>();
    ensure!(
        parsed.as_ref().map_or(true, |from| from.scheme == "store"),
        "{from}: the input must be {INPUTS}"
    );
    let roots = store.members()?;
    let Selected { scan, stream } = scan_arg::find(&roots, name)?;
    let stop = match follow {
        true => crate::signals::stop_handle()?,
        false => Arc::new(StopHandle::default()),
    };
    let export = ScanExport { roots, scan, stream, target, follow, allow_damaged };
    let mut shown = ProgressBar::hidden();
    let exported = export.run(&stop, &mut |event| show(event, &mut shown, output, quiet));
    shown.finish_and_clear();
    told(&exported.map_err(explained)?, output)
}

/// Prints the result.
fn told(exported: &ExportedScan, output: Output) -> anyhow::Result<ExitCode> {
    if exported.is_recording {
        output::note(format_args!(
            "{} is still being recorded: converting the {} that are durable now\n  \
             --follow goes on as it grows",
            exported.scan,
            ByteSize(exported.bytes())
        ));
    }
    output.tell(exported, || text(exported))?;
    Ok(output::exit_code(exported.outcome()))
}

/// The recordings that can be converted.
const INPUTS: &str =
    "store:SCAN, store:SCAN/STREAM, device:PATH?scan=SCAN, or file:DUMP of a PandA";

/// Converts the stored bytes of a PandA's data port.
fn dump(path: &Path, target: &Hdf5Target, output: Output) -> anyhow::Result<ExitCode> {
    let mut untold = None;
    let mut tell = |acquisition: &Acquisition| {
        let told = output.tell(acquisition, || acquisition_text(acquisition));
        untold = untold.take().or_else(|| told.err());
    };
    let exported = export_dump(path, target, &mut tell);
    if let Some(error) = untold {
        return Err(error);
    }
    match exported {
        Ok(outcome) => Ok(output::exit_code(outcome)),
        Err(error @ ExportError::NotADump { .. }) => {
            Err(with_advice(error.into(), Some(format!("convert takes {INPUTS}").into())))
        }
        Err(error) => Err(explained(error)),
    }
}

fn acquisition_text(acquisition: &Acquisition) -> String {
    let Acquisition { number, completeness, samples, file, reason, verdict, .. } = acquisition;
    format!(
        "acquisition {number}: {}\n  {samples} samples in {}, {reason}, {verdict}\n",
        completeness.headline,
        file.display()
    )
}

fn bar(bytes: u64, output: Output, quiet: bool) -> ProgressBar {
    if scan_arg::are_lines_asked_for() {
        let bar = ProgressBar::hidden();
        bar.set_length(bytes);
        return scan_arg::told_as_lines(bar);
    }
    if quiet || !output.progress() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bytes} of {total_bytes}, {bytes_per_sec} {wide_bar} {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(bytes).with_style(style)
}

fn text(told: &ExportedScan) -> String {
    let mut text = match &told.completeness {
        Some(it) => format!("{}: {}\n  {}\n", told.scan, it.headline, it.explanation),
        None => String::new(),
    };
    for it in &told.streams {
        let verdict = it.verdict.map_or_else(|| "no account".to_owned(), |v| v.to_string());
        text += &format!(
            "{}/{}: {} rows, {} in {}, {verdict}{}{}\n",
            told.scan,
            it.stream,
            it.rows,
            ByteSize(it.bytes),
            it.file.display(),
            if it.whole { "" } else { ", not all of the recording" },
            if it.recorded_whole { "" } else { ", and not all was recorded" },
        );
    }
    if let Some(joined) = &told.joined {
        text += &format!("all of them: {}\n", joined.display());
    }
    let rate = ByteRate((told.bytes() as f64 / told.seconds.max(1e-3)) as u64);
    text + &format!("{:.1} s, {rate}\n", told.seconds)
}
