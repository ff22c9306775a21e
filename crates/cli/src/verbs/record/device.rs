//! `fullbore record --to device:…`: records streams onto drives without a file system, one onto each.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use fullbore_core::device::{BytesStream, DeviceEnd, Direction, Flush, Status};
use fullbore_core::endpoint::FileTarget;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::pattern::PatternSource;
use fullbore_core::units::ByteSize;
use fullbore_engine::device::Error;
use fullbore_engine::recorder::{RecordError, SourceConfig};
use fullbore_engine::sink::SinkConfig;
use fullbore_engine::sink::device::{DeviceConfig, DeviceTarget};
use serde::Serialize;

use super::{Args, into, parameters_of};
use crate::output::Output;
use crate::verbs::device::parse;

/// The options for recording onto a device.
#[derive(clap::Args, Clone)]
pub(super) struct Options {
    /// The name of a device whose data may be overwritten; once for each such device
    #[arg(long, value_name = "DEVICE", requires = "to")]
    overwrite: Vec<PathBuf>,
    /// For a device: read and discard the rest of the source after the last chunk, or after a stop.
    #[arg(long, requires = "to")]
    flush: bool,
}

impl Options {
    /// True if none is given.
    pub(super) fn is_idle(&self) -> bool {
        self.overwrite.is_empty() && !self.flush
    }
}

/// The name of a scan in events, if no device has an index.
const BARE_CHUNKS: &str = "bare_chunks";

/// Records one stream onto a device, or one onto each of several.
pub(super) fn run(args: Args, to: Vec<String>, output: Output) -> anyhow::Result<ExitCode> {
    ensure!(args.scans == 1, "--scans is for a store: a device takes one scan at a time");
    let sources = sources_to(&args)?;
    let devices = devices(&args, &to)?;
    let scan = devices.iter().find_map(|device| device.scan.clone());
    let scan = scan.map_or_else(|| BARE_CHUNKS.parse(), Ok)?;
    // The limit applies to each device.
    let bytes = args.bytes.map(|it| ByteSize(it.0.saturating_mul(devices.len() as u64)));
    let args = Args { bytes, ..args };
    into::run(&args, sources, SinkConfig::Device(DeviceConfig { devices }), scan, output)
}

/// The sources. Those with equal names are numbered, and the rest of each is dropped as requested.
pub(super) fn sources_to(args: &Args) -> anyhow::Result<Vec<SourceConfig>> {
    let mut sources = args.sources()?;
    let names: Vec<Name> = sources.iter().map(|source| source.name().clone()).collect();
    for (number, source) in sources.iter_mut().enumerate() {
        let SourceConfig::Bytes(stream) = source else { continue };
        stream.flush = if args.device.flush { Flush::Always } else { Flush::AfterAbort };
        let alike = |upto: usize| names[..upto].iter().filter(|it| **it == stream.name).count();
        if alike(names.len()) > 1 {
            let name = format!("{}{}", stream.name, alike(number) + 1);
            stream.name = name.parse().context("the name of a stream")?;
        }
    }
    let drained = |source: &SourceConfig| matches!(source, SourceConfig::Bytes(_));
    ensure!(
        !args.device.flush || sources.iter().any(drained),
        "--flush: datagrams have no rest that could be read"
    );
    Ok(sources)
}

/// The devices, each with its scan and the permission to overwrite it.
pub(super) fn devices(args: &Args, to: &[String]) -> anyhow::Result<Vec<DeviceTarget>> {
    let ends = to.iter().map(|text| parse(text)).collect::<anyhow::Result<Vec<_>>>()?;
    let overwrite = &args.device.overwrite;
    for named in overwrite {
        // The guard explains a name that is not exactly that of the only device.
        let among = ends.len() == 1 || ends.iter().any(|end| end.path == *named);
        ensure!(among, "--overwrite {}: no --to names it", named.display());
    }
    let device = |end: DeviceEnd| {
        let named = overwrite.iter().find(|named| **named == end.path);
        let overwrite = named.or(overwrite.first().filter(|_| to.len() == 1)).cloned();
        let scan = scan_name((&args.session, &args.scan), end.scan.as_ref())?;
        Ok(DeviceTarget { end, scan, overwrite })
    };
    ends.into_iter().map(device).collect()
}

/// The scan's name, from the options or the endpoint; `None` for bare chunks.
fn scan_name(
    (session, scan): (&str, &str),
    named: Option<&ScanName>,
) -> anyhow::Result<Option<ScanName>> {
    let typed = match (session.is_empty(), scan.is_empty()) {
        (true, true) => return Ok(named.cloned()),
        (false, false) => ScanName {
            session: Name::session(session).context("--session")?,
            scan: scan.parse().context("--scan")?,
        },
        _ => anyhow::bail!("--session and --scan go together: they name the scan on the device"),
    };
    ensure!(
        named.is_none_or(|named| *named == typed),
        "--session and --scan say {typed}, and the endpoint another scan"
    );
    Ok(Some(typed))
}

/// The event for addresses that were refused.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Refusal {
    Refused { status: Status },
}

/// Reports refused addresses by their name.
pub(super) fn tell_of_addresses(error: &RecordError, output: Output) {
    if let RecordError::Device(error) = error
        && let Error::Address { source, .. } = error.as_ref()
        && output.json
    {
        let status = Status::refused(Direction::Write, source);
        // A closed output changes nothing: the error itself follows.
        let _ = output.tell(&Refusal::Refused { status }, String::new);
    }
}

/// The parameters of a device and of a pattern, for the help.
pub(super) fn parameters() -> String {
    let device = parameters_of("device:", DeviceEnd::PARAMETERS);
    let pattern = parameters_of("pattern:", PatternSource::PARAMETERS);
    let source = parameters_of("file:", BytesStream::FILE_PARAMETERS);
    let target = parameters_of("--to file:", FileTarget::PARAMETERS).replace(" source,", ",");
    [device, pattern, source, target].join("\n")
}

/// Refuses options that this kind of target does not support.
pub(super) fn refuse_options(args: &Args, target: &str, syncs: bool) -> anyhow::Result<()> {
    let typed = [
        ("--sync", args.sync.is_some() && syncs),
        ("--overwrite", !args.device.overwrite.is_empty()),
        ("--flush", args.device.flush),
    ];
    match typed.into_iter().find(|(_, typed)| *typed) {
        Some((option, _)) => anyhow::bail!("{option} cannot be used with {target} as --to"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_named_by_options_or_endpoint_and_by_both_only_if_they_agree() {
        let named: ScanName = "r1_a".parse().unwrap();
        assert_eq!(scan_name(("", ""), None).unwrap(), None);
        assert_eq!(scan_name(("", ""), Some(&named)).unwrap(), Some(named.clone()));
        assert_eq!(scan_name(("r1", "a"), None).unwrap(), Some(named.clone()));
        assert_eq!(scan_name(("r1", "a"), Some(&named)).unwrap(), Some(named.clone()));
        assert!(scan_name(("r1", "b"), Some(&named)).is_err());
        assert!(scan_name(("r1", ""), None).is_err() && scan_name(("r_1", "a"), None).is_err());
    }
}
