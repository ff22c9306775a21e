//! Converts the stored bytes of a PandA's data port, as if they arrived now.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use fullbore_core::account::{Terms, Verdict};
use fullbore_core::affinity::{AffinityPolicy, SchedulingPolicy};
use fullbore_core::completeness::Completeness;
use fullbore_core::container::Hdf5Target;
use fullbore_core::format::panda::{ConnectionTotals, PandaSource, codec};
use fullbore_core::gap::Gap;
use fullbore_core::manifest::Format;
use fullbore_core::name::ScanName;
use fullbore_engine::panda::Error;
use fullbore_engine::panda::capture::Dump;
use fullbore_engine::recorder::{
    Event, PandaConfig, RecordError, Recorder, RecordingConfig, Sealed, StopHandle, WriteReport,
};
use fullbore_engine::sink::SinkConfig;
use serde::Serialize;

use crate::hint::{explained, explained_of};
use crate::output::{self, Output};
use crate::verbs::record::into::{names, plan};

/// An acquisition that was converted.
#[derive(Serialize)]
struct Acquisition<'a> {
    /// Counted from 1.
    number: u64,
    file: &'a Path,
    /// Samples in the file.
    samples: u64,
    bytes: u64,
    reason: &'a str,
    #[serde(flatten)]
    completeness: &'a Completeness,
    verdict: Verdict,
    terms: Terms,
    duplicates: u64,
    gaps: &'a [Gap],
    connections: &'a [ConnectionTotals],
    notes: &'a [String],
    #[serde(flatten)]
    written: Option<&'a WriteReport>,
}

/// Converts a dump.
pub fn convert(path: &Path, target: &Hdf5Target, output: Output) -> anyhow::Result<ExitCode> {
    ensure!(path.is_file(), "{}: there is no such file", path.display());
    let count = Dump::new(path.to_owned()).acquisitions().map_err(|error| refused(path, error))?;
    let plan = config(path.to_owned(), target, count)?;
    let (mut number, mut whole, mut failed) = (0, true, None);
    let mut tell = |event: &Event| match event {
        Event::Sealed(sealed) => {
            number += 1;
            whole &= sealed.completeness.is_good();
            failed = failed.take().or_else(|| failure_of(sealed));
            failed = failed.take().or_else(|| print(number, sealed, output).err());
        }
        Event::Unsealed { why, .. } => {
            failed.get_or_insert_with(|| anyhow::anyhow!("{why}"));
        }
        _ => {}
    };
    let recorder = Recorder::arm(plan, &mut tell).map_err(explained)?;
    let ended = recorder.run(&Arc::new(StopHandle::default()), &mut tell);
    match (failed, ended) {
        (Some(error), _) => Err(error),
        // The end of the file, or of its readable part, is in the account of the acquisition.
        (None, Ok(()) | Err(RecordError::Broken { .. })) => {
            Ok(ExitCode::from(if whole { output::GOOD } else { output::FOUND }))
        }
        (None, Err(error)) => Err(explained(error)),
    }
}

fn config(path: PathBuf, target: &Hdf5Target, count: u64) -> anyhow::Result<RecordingConfig> {
    let source = PandaSource::parse("panda://dump").context("the source of a recorded stream")?;
    let panda = PandaConfig { source, arm: false, reconnect: Duration::ZERO, dump: Some(path) };
    let (session, scan) = names("", "", &target.path)?;
    let scan = ScanName { session, scan: scan.parse()? };
    let mut plan = plan(vec![panda.into()], target, vec![scan], count.saturating_sub(1));
    (plan.place, plan.priority) = (AffinityPolicy::Off, SchedulingPolicy::Off);
    if let SinkConfig::Container(container) = &mut plan.sinks[0] {
        container.alternate_path = false;
    }
    Ok(plan)
}

/// The reason why a dump has no acquisition.
fn refused(path: &Path, error: Error) -> anyhow::Error {
    let path = path.display();
    match error {
        Error::Closed { .. } => anyhow::anyhow!(
            "{path}: it ends before a header has come, so nothing can be made of it"
        ),
        Error::Data(codec::Error::NoPanda { .. } | codec::Error::LongLine { what: "OK", .. }) => {
            anyhow::anyhow!(
                "{path}: this is not what a PandA's data port sends: it does not begin with OK\n  \
                 convert takes store:SCAN, store:SCAN/STREAM, device:PATH?scan=SCAN, or file:DUMP of a PandA"
            )
        }
        error => explained_of(&path.to_string(), error),
    }
}

/// The failure of the file, if it has not taken everything.
fn failure_of(sealed: &Sealed) -> Option<anyhow::Error> {
    let why = sealed.manifest.members.iter().find_map(|member| member.failure.as_ref())?;
    Some(anyhow::anyhow!("{why}"))
}

fn print(number: u64, sealed: &Sealed, output: Output) -> anyhow::Result<()> {
    let (Some(stream), Some(account), Some(file)) =
        (sealed.manifest.streams.first(), sealed.accounts.first(), sealed.files.first())
    else {
        bail!("{} has no file", sealed.manifest.scan);
    };
    let Format::Panda { connections, notes, .. } = &stream.format else {
        bail!("{} is not of a PandA", sealed.manifest.scan);
    };
    let acquisition = Acquisition {
        number,
        file: &file.path,
        samples: account.terms.written,
        bytes: account.bytes,
        reason: &file.reason,
        completeness: &sealed.completeness,
        verdict: account.verdict,
        terms: account.terms,
        duplicates: account.duplicates,
        gaps: &account.gaps,
        connections,
        notes,
        written: file.written.as_ref(),
    };
    output.tell(&acquisition, || {
        format!(
            "acquisition {number}: {}\n  {} samples in {}, {}, {}\n",
            sealed.completeness.headline,
            account.terms.written,
            file.path.display(),
            file.reason,
            account.verdict
        )
    })
}
