//! `fullbore record --to`: records into a container that can be read meanwhile, into a plain file, or to standard output.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, ensure};
#[cfg(feature = "hdf5")]
use fullbore_core::container::{Compression, Existing, Hdf5Target};
use fullbore_core::endpoint::FileTarget;
use fullbore_core::name::{Name, ScanName};
use fullbore_engine::recorder::{RecordingConfig, SourceConfig};
use fullbore_engine::sink::SinkConfig;
#[cfg(feature = "hdf5")]
use fullbore_engine::sink::container::ContainerConfig;
use fullbore_engine::sink::file::FileConfig;
#[cfg(feature = "hdf5")]
use fullbore_engine::sink::hdf5;

use super::{Args, check_limits, is_panda, panda, place_of, record, scan_names, when};
#[cfg(feature = "hdf5")]
use crate::hint::explained;
use crate::output::{self, Output};

/// The default session name in files.
const SESSION: &str = "live";

/// Records into a container.
#[cfg(feature = "hdf5")]
pub fn container(args: &Args, to: &str, output: Output) -> anyhow::Result<ExitCode> {
    let (target, sources) = (target(to)?, args.sources()?);
    check_scans(args, &sources)?;
    let (session, scan) = names(&args.session, &args.scan, &target.path)?;
    let scans = scan_names(&session, &scan, args.scans)?;
    let plan = with_options(args, plan(sources, &target, scans, 0))?;
    record_pandas(plan, target.rate, output, args.quiet)
}

/// Refuses several scans in a container, unless each is an acquisition.
#[cfg(feature = "hdf5")]
pub(super) fn check_scans(args: &Args, sources: &[SourceConfig]) -> anyhow::Result<()> {
    ensure!(
        args.scans == 1 || sources.iter().any(|source| matches!(source, SourceConfig::Panda(_))),
        "--scans {}: a container takes one scan, except of PandAs\n  \
         record several into a store, and convert each",
        args.scans
    );
    Ok(())
}

/// The endpoint of a container.
#[cfg(feature = "hdf5")]
pub fn target(text: &str) -> anyhow::Result<Hdf5Target> {
    Hdf5Target::parse(text).map_err(explained)
}

/// The configuration of a recording into a container. `further_scans` follow the listed ones.
#[cfg(feature = "hdf5")]
pub fn plan(
    sources: Vec<SourceConfig>,
    target: &Hdf5Target,
    scans: Vec<ScanName>,
    further_scans: u64,
) -> RecordingConfig {
    let container = sink(&sources, target, (scans.len() as u64).checked_add(further_scans));
    RecordingConfig { further_scans, ..RecordingConfig::new(sources, container, scans) }
}

/// The container as a sink of these sources; `scans` is the number of scans.
#[cfg(feature = "hdf5")]
pub(super) fn sink(
    sources: &[SourceConfig],
    target: &Hdf5Target,
    scans: Option<u64>,
) -> SinkConfig {
    SinkConfig::Container(ContainerConfig {
        template: target.path.clone(),
        options: options(target),
        streams: sources.iter().map(|source| source.name().clone()).collect(),
        single: matches!(sources, [only] if only.is_known()),
        has_rows: sources.iter().any(|source| !matches!(source, SourceConfig::Panda(_))),
        scans,
        alternate_path: true,
    })
}

/// The options of the files, from the endpoint.
#[cfg(feature = "hdf5")]
pub fn options(target: &Hdf5Target) -> hdf5::Options {
    hdf5::Options {
        form: if target.scaled { hdf5::Form::Scaled } else { hdf5::Form::Native },
        existing: match target.existing {
            Existing::Refuse => hdf5::Existing::Refuse,
            Existing::Overwrite => hdf5::Existing::Overwrite,
            Existing::Append => hdf5::Existing::Append,
        },
        compression: target.compression.map(|compression| match compression {
            Compression::None => hdf5::Compression::None,
            Compression::Gzip(level) => hdf5::Compression::Gzip(level),
            Compression::Bitshuffle => hdf5::Compression::BitshuffleLz4,
        }),
        flush: target.flush,
        rows_per_second: target.rate,
        live: true,
    }
}

/// Records one stream into a plain file, or to standard output.
pub fn file(args: &Args, target: FileTarget, output: Output) -> anyhow::Result<ExitCode> {
    let (session, scan) = match &target {
        FileTarget::Standard => {
            output::leave_stdout_to_data();
            names(&args.session, &args.scan, Path::new("stdout"))?
        }
        FileTarget::File { path, .. } => names(&args.session, &args.scan, path)?,
    };
    let scan = ScanName { session, scan: scan.parse().context("--scan")? };
    run(args, args.sources()?, SinkConfig::File(FileConfig { target }), scan, output)
}

/// Records one scan into a sink other than a store.
pub(super) fn run(
    args: &Args,
    sources: Vec<SourceConfig>,
    sink: SinkConfig,
    scan: ScanName,
    output: Output,
) -> anyhow::Result<ExitCode> {
    check_one_scan(args)?;
    let plan = with_options(args, RecordingConfig::new(sources, sink, vec![scan]))?;
    record_pandas(plan, None, output, args.quiet)
}

/// Refuses several scans in a file or on a device.
pub(super) fn check_one_scan(args: &Args) -> anyhow::Result<()> {
    ensure!(
        args.scans == 1,
        "--scans {}: a file takes one scan\n  record several into a store, and convert each",
        args.scans
    );
    Ok(())
}

/// Records, and says what the link of each PandA carries, and whether `rate` samples a second fit.
pub fn record_pandas(
    plan: RecordingConfig,
    rate: Option<f64>,
    output: Output,
    quiet: bool,
) -> anyhow::Result<ExitCode> {
    let pandas = plan.sources.iter().filter_map(|source| match source {
        SourceConfig::Panda(panda) => Some(panda.source.clone()),
        _ => None,
    });
    let pandas: Vec<_> = pandas.collect();
    record(plan, None, output, quiet, |tell| panda::forecast(&pandas, rate, output, tell))
}

/// Adds the options of the command line to a recording's configuration.
pub(super) fn with_options(args: &Args, plan: RecordingConfig) -> anyhow::Result<RecordingConfig> {
    check_limits(args)?;
    let (limit, planned) = when(args, !args.source.iter().any(|text| is_panda(text)))?;
    Ok(RecordingConfig {
        start: args.start,
        limit,
        planned,
        buffer: args.buffer,
        capture_threads: args.capture_threads,
        place: place_of(args.cpus.clone(), args.place.clone()),
        priority: args.priority,
        sync_interval: args.sync,
        clock: args.clock.limits(),
        ..plan
    })
}

/// The given names of session and scan, else `live` and the name of the file.
pub fn names(session: &str, scan: &str, path: &Path) -> anyhow::Result<(Name, String)> {
    let session = if session.is_empty() { SESSION } else { session };
    let session = Name::session(session).context("--session")?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    // The number of a template is not a part of the name.
    let plain = stem.chars().take_while(|&c| c != '%');
    let letters: String = plain.filter(char::is_ascii_alphanumeric).take(32).collect();
    let scan = match (scan, letters.as_str()) {
        ("", "") => "scan".to_owned(),
        ("", _) => letters,
        (given, _) => given.to_owned(),
    };
    Ok((session, scan))
}
