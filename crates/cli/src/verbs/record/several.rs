//! `fullbore record` into several sinks: `--store` and `--to`, or `--to` more than once.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
#[cfg(feature = "hdf5")]
use fullbore_core::container::Hdf5Target;
use fullbore_core::device::DeviceEnd;
use fullbore_core::endpoint::FileTarget;
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::{RecordingConfig, SourceConfig};
use fullbore_engine::sink::device::DeviceConfig;
use fullbore_engine::sink::file::FileConfig;
use fullbore_engine::sink::{SinkConfig, StoreConfig};
use fullbore_recording::RetentionThread;

use super::{Args, device, into, panda, record, resolve, scan_names, stall};
use crate::hint::explained_of;
use crate::output::{self, Output};

/// The name of a store as a sink.
const STORE: &str = "store:";

/// One `--to`.
enum End {
    Store(Vec<PathBuf>),
    Device(String),
    File(FileTarget),
    #[cfg(feature = "hdf5")]
    Container(Hdf5Target),
}

/// Takes the first `--to store:DIR` for `--store`, if there is none.
pub(super) fn take_store(args: &mut Args) -> anyhow::Result<()> {
    if let Some(at) = args.to.iter().position(|to| is_store(to))
        && args.store.store.is_empty()
    {
        args.store.store = directories(&args.to.remove(at))?;
    }
    Ok(())
}

/// True if the recording goes into several sinks. Several devices are one sink, with one stream for each.
pub(super) fn is_meant(args: &Args) -> bool {
    let devices = args.to.iter().all(|to| {
        crate::verbs::device::ends(std::slice::from_ref(to))
            .iter()
            .all(|it| DeviceEnd::is_meant(it))
    });
    match args.to.len() {
        0 => false,
        _ if !args.store.store.is_empty() => true,
        1 => crate::verbs::device::ends(&args.to).len() > 1 && !devices,
        _ => !devices,
    }
}

fn is_store(text: &str) -> bool {
    text.trim_start().get(..STORE.len()).is_some_and(|it| it.eq_ignore_ascii_case(STORE))
}

/// The directories of `store:DIR,DIR`.
fn directories(text: &str) -> anyhow::Result<Vec<PathBuf>> {
    let listed = text.trim_start()[STORE.len()..].split(',').filter(|it| !it.is_empty());
    let members: Vec<PathBuf> = listed.map(PathBuf::from).collect();
    ensure!(!members.is_empty(), "{text}: give a directory: store:/data");
    Ok(members)
}

/// Records into all of them.
pub(super) fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let ends = ends_of(&args)?;
    check(&args, &ends)?;
    let (keep, quiet) = (args.keep, args.quiet);
    let plan = plan(args, ends)?;
    let pandas = plan.sources.iter().filter_map(|source| match source {
        SourceConfig::Panda(panda) => Some(panda.source.clone()),
        _ => None,
    });
    let (pandas, rate): (Vec<_>, Option<f64>) = (pandas.collect(), rate_of(&plan));
    let retention =
        keep.map(|keep| RetentionThread::start(plan.members().to_vec(), keep)).transpose();
    let retention = retention.context("starting the retention thread")?;
    record(plan, retention, output, quiet, |tell| panda::forecast(&pandas, rate, output, tell))
}

/// The samples a second that a container expects.
fn rate_of(plan: &RecordingConfig) -> Option<f64> {
    plan.sinks.iter().find_map(|sink| match sink {
        #[cfg(feature = "hdf5")]
        SinkConfig::Container(container) => container.options.rows_per_second,
        _ => None,
    })
}

/// The sinks besides --store, in the order in which they are typed.
fn ends_of(args: &Args) -> anyhow::Result<Vec<End>> {
    let mut ends = Vec::new();
    for text in &args.to {
        if is_store(text) {
            ends.push(End::Store(directories(text)?));
            continue;
        }
        for text in crate::verbs::device::ends(std::slice::from_ref(text)) {
            ends.push(end_of(&text)?);
        }
    }
    Ok(ends)
}

fn end_of(text: &str) -> anyhow::Result<End> {
    if DeviceEnd::is_meant(text) {
        return Ok(End::Device(text.to_owned()));
    }
    if FileTarget::is_meant(text) {
        let target = FileTarget::parse(text).map_err(|error| explained_of(text, error))?;
        return Ok(End::File(target));
    }
    #[cfg(feature = "hdf5")]
    return Ok(End::Container(into::target(text)?));
    #[cfg(not(feature = "hdf5"))]
    anyhow::bail!("--to {text}: this program was built without HDF5")
}

/// Refuses options that no sink supports, and scans that a sink cannot take.
fn check(args: &Args, ends: &[End]) -> anyhow::Result<()> {
    let devices = ends.iter().any(|end| matches!(end, End::Device(_)));
    ensure!(devices || args.device.is_idle(), "--overwrite and --flush are for a device");
    let stores = ends.iter().filter(|end| matches!(end, End::Store(_))).count();
    ensure!(
        args.keep.is_none() || stores == 0,
        "--keep: it removes scans of one store, and the recording goes into {}",
        stores + 1
    );
    match ends.iter().any(|end| matches!(end, End::Device(_) | End::File(_))) {
        true => into::check_one_scan(args),
        false => Ok(()),
    }
}

/// The recording, with --store first.
fn plan(args: Args, ends: Vec<End>) -> anyhow::Result<RecordingConfig> {
    let devices = ends.iter().filter(|end| matches!(end, End::Device(_))).count() as u64;
    // As without other sinks, the limit applies to each device.
    let bytes = args.bytes.map(|it| ByteSize(it.0.saturating_mul(devices.max(1))));
    let args = Args { bytes, ..args };
    let sources = if devices > 0 { device::sources_to(&args)? } else { args.sources()? };
    let sinks = sinks(&args, ends, &sources)?;
    if !args.store.store.is_empty() {
        let mut plan = resolve(args)?;
        plan.sources = sources;
        plan.sinks.extend(sinks);
        return Ok(plan);
    }
    let (session, scan) = into::names(&args.session, &args.scan, &named_by(&sinks))?;
    let scans = scan_names(&session, &scan, args.scans)?;
    let mut plan = RecordingConfig::new(sources, SinkConfig::Discard, scans);
    plan.sinks = sinks;
    into::with_options(&args, plan)
}

/// The file that names the scan.
fn named_by(sinks: &[SinkConfig]) -> PathBuf {
    let named = sinks.iter().find_map(|sink| match sink {
        #[cfg(feature = "hdf5")]
        SinkConfig::Container(container) => Some(container.template.clone()),
        SinkConfig::File(FileConfig { target: FileTarget::File { path, .. } }) => {
            Some(path.clone())
        }
        _ => None,
    });
    named.unwrap_or_else(|| Path::new("stdout").to_owned())
}

fn sinks(args: &Args, ends: Vec<End>, sources: &[SourceConfig]) -> anyhow::Result<Vec<SinkConfig>> {
    let (mut sinks, mut devices) = (Vec::new(), Vec::new());
    for end in ends {
        match end {
            End::Device(text) => devices.push(text),
            End::Store(members) => sinks.push(SinkConfig::Store(store(args, members))),
            End::File(target) => {
                if target == FileTarget::Standard {
                    output::leave_stdout_to_data();
                }
                sinks.push(SinkConfig::File(FileConfig { target }));
            }
            #[cfg(feature = "hdf5")]
            End::Container(target) => {
                into::check_scans(args, sources)?;
                sinks.push(into::sink(sources, &target, Some(args.scans.into())));
            }
        }
    }
    if !devices.is_empty() {
        let devices = device::devices(args, &devices)?;
        sinks.push(SinkConfig::Device(DeviceConfig { devices }));
    }
    Ok(sinks)
}

/// A second store, with the options of the first.
fn store(args: &Args, members: Vec<PathBuf>) -> StoreConfig {
    let stall::Measured { stall, disk_rate } = stall::measured(&members);
    StoreConfig {
        chunk: args.chunk,
        redundancy: args.redundancy,
        stall,
        disk_rate,
        ..StoreConfig::new(members)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_like_any_other_sink() {
        assert!(is_store("store:/data") && is_store("Store:/data") && !is_store("file:store:x"));
        let all: Vec<PathBuf> = vec!["/a".into(), "/b".into()];
        assert_eq!(directories("store:/a,/b").unwrap(), all);
        assert!(directories("store:").is_err());
    }
}
