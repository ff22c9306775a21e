//! Seal tasks. A thread for each scan reads files back, puts them in order, writes them and completes redundancy, which
//! takes as long as the members need.

use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use fullbore_core::manifest::{Manifest, State};
use fullbore_core::name::ScanName;
use fullbore_linux::ring::WriterMetrics;

use super::scan::ActiveScan;
use super::seal::seal;
use crate::error::RecordError;
use crate::event::Sealed;
use crate::source::SourceConfig;

/// The inputs of sealing.
#[derive(Clone)]
pub struct SealInputs {
    /// The sources of the frames.
    pub sources: Vec<SourceConfig>,
    /// Metrics of the writers.
    pub writers: Vec<Arc<WriterMetrics>>,
    /// True if the recording was aborted.
    pub aborted: bool,
}

/// A task that seals a scan on its own thread.
pub struct SealTask {
    name: ScanName,
    thread: Result<JoinHandle<SealOutcome>, RecordError>,
}

/// The outcome of a seal task.
pub struct SealOutcome {
    /// The scan's name.
    pub name: ScanName,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// The sealed scan, or the reason why it is not sealed.
    pub sealed: Result<Sealed, Unsealed>,
}

/// A scan that could not be sealed.
pub struct Unsealed {
    /// The reason.
    pub why: String,
    /// The manifest and accounts that were not written, if they are complete.
    pub sealed: Option<Sealed>,
}

impl SealTask {
    /// Starts to seal a scan for which all awaited events have arrived.
    pub fn begin(scan: ActiveScan, inputs: SealInputs) -> Self {
        let name = scan.manifest.scan.clone();
        let thread = Builder::new().name("seal".into());
        let thread = thread.spawn(move || carry_out(scan, &inputs)).map_err(RecordError::Thread);
        Self { name, thread }
    }

    /// The scan that it seals.
    pub fn scan(&self) -> &ScanName {
        &self.name
    }

    /// True if the task has ended.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().map_or(true, JoinHandle::is_finished)
    }

    /// Waits for the task and returns its outcome.
    pub fn end(self) -> SealOutcome {
        let failed = |name, why| {
            let unsealed = Unsealed { why, sealed: None };
            SealOutcome { name, warnings: Vec::new(), sealed: Err(unsealed) }
        };
        match self.thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| failed(self.name, "the thread that sealed it failed".into())),
            Err(error) => failed(self.name, error.to_string()),
        }
    }
}

fn carry_out(mut scan: ActiveScan, inputs: &SealInputs) -> SealOutcome {
    let mut warnings = scan.sink.settle(&mut scan.manifest, &mut scan.accounts);
    let sealed = seal(&mut scan, &inputs.sources, &inputs.writers, inputs.aborted);
    warnings.extend(scan.sink.finish(&mut scan.manifest, sealed.is_ok()));
    let (devices, files) = (scan.sink.results(), scan.sink.files());
    let sealed = sealed.map(|it| Sealed {
        devices,
        files,
        ..Sealed::of(scan.manifest.clone(), it.accounts)
    });
    warnings.extend(sealed.iter().filter_map(wanting));
    let name = scan.manifest.scan.clone();
    let sealed = sealed.map_err(|error| Unsealed {
        why: error.to_string(),
        sealed: Some(Sealed::of(
            Manifest { state: State::Recording, ..scan.manifest },
            scan.accounts.into_values().collect(),
        )),
    });
    SealOutcome { name, warnings, sealed }
}

/// Describes the defects of its disk set. Every frame may be present, but the recording still exits with 1.
fn wanting(sealed: &Sealed) -> Option<String> {
    let wanting = sealed.manifest.wanting();
    let listed: Vec<String> = wanting.iter().map(ToString::to_string).collect();
    let name = &sealed.manifest.scan;
    (!listed.is_empty()).then(|| format!("{name} is degraded: {}", listed.join("; ")))
}
