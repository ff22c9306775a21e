//! Exports the stored bytes of a PandA's data port, as if they arrived now.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::account::{Terms, Verdict};
use fullbore_core::affinity::{AffinityPolicy, SchedulingPolicy};
use fullbore_core::completeness::Completeness;
use fullbore_core::container::Hdf5Target;
use fullbore_core::gap::Gap;
use fullbore_core::manifest::Format;
use fullbore_core::panda::PandaSource;
use fullbore_engine::recorder::{
    Event, PandaConfig, RecordError, Recorder, RecordingConfig, Sealed, WriteReport,
};
use fullbore_engine::sink::SinkConfig;
use fullbore_formats::panda::{ConnectionTotals, codec};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_panda::Error;
use fullbore_panda::capture::Dump;
use serde::Serialize;

use super::ExportError;
use crate::options::target::{container, scan_of_file};
use crate::outcome::Outcome;

/// An acquisition that was exported.
#[derive(Clone, Debug, Serialize)]
pub struct Acquisition {
    /// Counted from 1.
    pub number: u64,
    /// Its file.
    pub file: PathBuf,
    /// Samples in the file.
    pub samples: u64,
    /// Bytes of the samples.
    pub bytes: u64,
    /// The reason of its end, as the file states it.
    pub reason: String,
    /// The completeness of the acquisition.
    #[serde(flatten)]
    pub completeness: Completeness,
    /// The verdict of its account.
    pub verdict: Verdict,
    /// The terms of its account.
    pub terms: Terms,
    /// Samples that came twice.
    pub duplicates: u64,
    /// The places of samples that are not there.
    pub gaps: Vec<Gap>,
    /// Each connection in the dump.
    pub connections: Vec<ConnectionTotals>,
    /// Remarks about the data.
    pub notes: Vec<String>,
    /// How the file was written.
    #[serde(flatten)]
    pub written: Option<WriteReport>,
}

/// Exports a dump. `tell` gets each acquisition when its file is ended.
pub fn export_dump(
    path: &Path,
    target: &Hdf5Target,
    tell: &mut dyn FnMut(&Acquisition),
) -> Result<Outcome, ExportError> {
    if !path.is_file() {
        return Err(ExportError::NoDump { path: path.to_owned() });
    }
    // The first file is checked before the dump is read to count its acquisitions, and the others before any is made.
    for sink in config(path.to_owned(), target, 1).sinks {
        if let SinkConfig::Container(container) = sink {
            container.check()?;
        }
    }
    let count = Dump::new(path.to_owned()).acquisitions().map_err(|error| refused(path, error))?;
    let config = config(path.to_owned(), target, count);
    let (mut number, mut outcome, mut failed) = (0, Outcome::Good, None);
    let mut see = |event: &Event| match event {
        Event::Sealed(sealed) => {
            number += 1;
            outcome = outcome.max(Outcome::of(sealed.completeness.is_good()));
            failed = failed.take().or_else(|| failure_of(sealed));
            match (&failed, acquisition(number, sealed)) {
                (Some(_), _) => {}
                (None, Ok(acquisition)) => tell(&acquisition),
                (None, Err(why)) => failed = Some(why),
            }
        }
        Event::Unsealed { why, .. } => {
            failed.get_or_insert_with(|| why.clone());
        }
        _ => {}
    };
    let recorder = Recorder::arm(config, &mut see)?;
    let ended = recorder.run(&Arc::new(StopHandle::default()), &mut see);
    match (failed, ended) {
        (Some(why), _) => Err(ExportError::Incomplete { why }),
        // The end of the file, or of its readable part, is in the account of the acquisition.
        (None, Ok(()) | Err(RecordError::Broken { .. })) => Ok(outcome),
        (None, Err(error)) => Err(error.into()),
    }
}

fn config(path: PathBuf, target: &Hdf5Target, count: u64) -> RecordingConfig {
    let source = PandaSource::parse("panda://dump").expect("it is an endpoint");
    let panda = PandaConfig { source, arm: false, reconnect: Duration::ZERO, dump: Some(path) };
    let scan = scan_of_file(&target.path);
    let mut config = container(vec![panda.into()], target, vec![scan], count.saturating_sub(1));
    (config.place, config.priority) = (AffinityPolicy::Off, SchedulingPolicy::Off);
    for sink in &mut config.sinks {
        if let SinkConfig::Container(container) = sink {
            container.alternate_path = false;
        }
    }
    config
}

/// The reason why a dump has no acquisition.
fn refused(path: &Path, error: Error) -> ExportError {
    let path = path.to_owned();
    match error {
        Error::Closed { .. } => ExportError::NoHeader { path },
        Error::Data(codec::Error::NoPanda { .. } | codec::Error::LongLine { what: "OK", .. }) => {
            ExportError::NotADump { path }
        }
        source => ExportError::Dump { path, source },
    }
}

/// The failure of the file, if it has not taken everything.
fn failure_of(sealed: &Sealed) -> Option<String> {
    sealed.manifest.members.iter().find_map(|member| member.failure.clone())
}

/// The acquisition in a sealed scan, or the reason why there is none.
fn acquisition(number: u64, sealed: &Sealed) -> Result<Acquisition, String> {
    let (Some(stream), Some(account), Some(file)) =
        (sealed.manifest.streams.first(), sealed.accounts.first(), sealed.files.first())
    else {
        return Err(format!("{} has no file", sealed.manifest.scan));
    };
    let Format::Panda { connections, notes, .. } = &stream.format else {
        return Err(format!("{} is not of a PandA", sealed.manifest.scan));
    };
    Ok(Acquisition {
        number,
        file: file.path.clone(),
        samples: account.terms.written,
        bytes: account.bytes,
        reason: file.reason.clone(),
        completeness: sealed.completeness.clone(),
        verdict: account.verdict,
        terms: account.terms,
        duplicates: account.duplicates,
        gaps: account.gaps.clone(),
        connections: connections.clone(),
        notes: notes.clone(),
        written: file.written.clone(),
    })
}
