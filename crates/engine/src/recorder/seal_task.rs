//! Seal tasks. A thread for each scan reads files back, puts them in order, writes them and completes redundancy, which
//! takes as long as the members need.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use fullbore_core::account::Account;
use fullbore_core::completeness::Completeness;
use fullbore_core::manifest::{Manifest, State};
use fullbore_core::name::ScanName;
use fullbore_linux::ring::WriterMetrics;

use super::scan::ActiveScan;
use super::seal::seal;
use crate::error::RecordError;
use crate::event::{Sealed, SealedFile, SealedSink};
use crate::sink::ScanPart;
use crate::sink::device::DeviceResult;
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
    pub sealed: Option<Box<Sealed>>,
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
    let name = scan.manifest.scan.clone();
    let mut warnings = Vec::new();
    let parts = scan.sinks.take_parts();
    let mut ended = Vec::with_capacity(parts.len());
    for part in parts {
        ended.push(end_in(part, &mut scan, inputs, &mut warnings));
    }
    let several = ended.len() > 1;
    let warning =
        |it: &EndedSink| Some(format!("{}: not sealed: {}", it.place, it.failed.as_ref()?));
    if several && ended.iter().any(|it| it.failed.is_none()) {
        warnings.extend(ended.iter().filter_map(warning));
    }
    let sealed = together(ended);
    warnings.extend(sealed.iter().filter_map(wanting));
    SealOutcome { name, warnings, sealed }
}

/// The end of a scan in one sink.
struct EndedSink {
    place: String,
    manifest: Manifest,
    accounts: BTreeMap<u16, Account>,
    devices: Vec<DeviceResult>,
    files: Vec<SealedFile>,
    /// The reason why the scan is not sealed in it.
    failed: Option<String>,
}

/// Seals the scan in a sink, with the manifest and the accounts of what that sink has.
fn end_in(
    mut part: ScanPart,
    scan: &mut ActiveScan,
    inputs: &SealInputs,
    warnings: &mut Vec<String>,
) -> EndedSink {
    let (manifest, accounts) = part.own_record(&scan.manifest, &scan.accounts);
    let of_all = (
        std::mem::replace(&mut scan.manifest, manifest),
        std::mem::replace(&mut scan.accounts, accounts),
    );
    warnings.extend(part.scan.settle(&mut scan.manifest, &mut scan.accounts));
    let writers = &inputs.writers[part.writers.clone()];
    let sealed = seal(scan, part.scan.as_mut(), &inputs.sources, writers, inputs.aborted);
    warnings.extend(part.scan.finish(&mut scan.manifest, sealed.is_ok()));
    let manifest = std::mem::replace(&mut scan.manifest, of_all.0);
    let accounts = std::mem::replace(&mut scan.accounts, of_all.1);
    EndedSink {
        devices: part.scan.results(),
        files: part.scan.files(),
        place: part.place,
        manifest,
        accounts,
        failed: sealed.err().map(|error| error.to_string()),
    }
}

/// The end of a scan in all sinks: each stream is as complete as in the sink that has most of it.
fn together(mut ended: Vec<EndedSink>) -> Result<Sealed, Unsealed> {
    let failed = ended.iter().all(|it| it.failed.is_some());
    let why = ended.iter().find_map(|it| it.failed.clone()).unwrap_or_default();
    let best = best_of(&ended);
    let mut manifest = best.0;
    let accounts: Vec<Account> = best.1;
    let sinks = ended.iter().map(|it| result_of(it, &accounts)).collect();
    let devices = ended.iter_mut().flat_map(|it| std::mem::take(&mut it.devices)).collect();
    let files = ended.iter_mut().flat_map(|it| std::mem::take(&mut it.files)).collect();
    if failed {
        manifest.state = State::Recording;
        return Err(Unsealed { why, sealed: Some(Box::new(Sealed::of(manifest, accounts))) });
    }
    Ok(Sealed { devices, files, sinks, ..Sealed::of(manifest, accounts) })
}

/// The manifest of all sinks, with each stream as in the sink that has most of it, and the accounts of these streams.
fn best_of(ended: &[EndedSink]) -> (Manifest, Vec<Account>) {
    // A sink whose scan is not sealed counts if there is no other.
    let sealed = ended.iter().filter(|it| it.failed.is_none());
    let sealed: Vec<&EndedSink> = sealed.collect();
    let usable = if sealed.is_empty() { ended.iter().collect() } else { sealed };
    let first = usable.first().expect("a recording has a sink");
    let mut manifest = first.manifest.clone();
    manifest.members = ended.iter().flat_map(|it| it.manifest.members.clone()).collect();
    manifest.away = ended.iter().flat_map(|it| it.manifest.away.clone()).collect();
    manifest.redundancy = ended.iter().find_map(|it| it.manifest.redundancy);
    let with_markers = usable.iter().max_by_key(|it| it.manifest.markers.len());
    manifest.markers = with_markers.map_or(Vec::new(), |it| it.manifest.markers.clone());
    let mut accounts = Vec::with_capacity(first.accounts.len());
    for &number in first.accounts.keys() {
        let written = |it: &&&EndedSink| it.accounts.get(&number).map(|it| it.terms.written);
        // Of sinks that have the same, the first counts.
        let best = usable.iter().rev().max_by_key(written).expect("just seen");
        manifest.streams[usize::from(number)] = best.manifest.streams[usize::from(number)].clone();
        accounts.extend(best.accounts.get(&number).cloned());
    }
    (manifest, accounts)
}

/// What a sink has, compared with the accounts of the scan.
fn result_of(ended: &EndedSink, accounts: &[Account]) -> SealedSink {
    let written = |accounts: &mut dyn Iterator<Item = &Account>| -> u64 {
        accounts.map(|account| account.terms.written).sum()
    };
    let lacking = written(&mut accounts.iter()) - written(&mut ended.accounts.values());
    let failures = ended.manifest.members.iter().map(|it| it.failure.as_ref());
    let failures: Option<Vec<&String>> = failures.collect();
    let of_members = failures.and_then(|all| all.first().map(|why| (*why).clone()));
    let own: Vec<Account> = ended.accounts.values().cloned().collect();
    SealedSink {
        place: ended.place.clone(),
        uuid: ended.manifest.uuid,
        headline: Completeness::of_accounts(&ended.manifest, &own).headline,
        verdict: ended.manifest.verdict(),
        bytes: ended.manifest.bytes(),
        lacking,
        accounts: match lacking {
            0 => Vec::new(),
            _ => own,
        },
        failure: of_members.or_else(|| ended.failed.clone()),
    }
}

/// Describes the defects of its disk set. Every frame may be present, but the recording still exits with 1.
fn wanting(sealed: &Sealed) -> Option<String> {
    let wanting = sealed.manifest.wanting();
    let listed: Vec<String> = wanting.iter().map(ToString::to_string).collect();
    let name = &sealed.manifest.scan;
    (!listed.is_empty()).then(|| format!("{name} is degraded: {}", listed.join("; ")))
}
