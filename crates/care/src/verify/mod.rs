//! Verifies a scan: checks all stored data against each other.
//!
//! ```text
//! blocks    ── checksum ──────────► index         the stored bytes are those that were written
//! frames    ── own time, marks ───► places, gaps  a frame is at its place, and only fill is fill
//! packets   ── size, count, time ─► index         a packet of VITA-49 has the length in the index, and follows another
//! sequences ── no hole, no twin ──► gaps          data that no block holds is in a gap
//! index     ── summed up again ───► account       the account agrees with the data
//! gaps      ── index, numbers ────► account       absent frames are those listed in the account, term by term
//! account   ── summary ───────────► manifest      and every copy agrees
//! parity    ── checksum ──────────► its records   the redundancy that is left
//! files     ── names, sizes ──────► index         no file too few, no file too many
//! ```
//!
//! Reading and checking overlap: a few threads per device each read a block and check it.

mod data;
mod files;
mod listed;
mod numbers;
mod online;
mod packets;
mod recount;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use fullbore_core::account::{Account, Terms, Verdict};
use fullbore_core::completeness::Completeness;
use fullbore_core::manifest::State;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::diagnostics::{Diagnostic, DiagnosticKind};
use fullbore_store::read::{Fault, Settings, StartError};
use fullbore_store::reader::{Scan, StoredStream};
use fullbore_store::renumber;
use serde::Serialize;
use uuid::Uuid;

use self::data::{blocks, frames, read_all};
use self::files::{continuity, files};
pub use self::online::Checked;
use self::recount::account;
use self::walk::Walk;
use super::redundancy::check::{self, RedundancyStatus};

/// The result of verifying a scan.
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    /// The name.
    pub scan: String,
    /// The identity.
    pub uuid: Uuid,
    /// The state of the scan.
    pub state: State,
    /// True if no problem was found: the stored data is intact. The recording may still lack frames: see `complete`.
    pub good: bool,
    /// The completeness of the recording, by its accounts, once each stream has one.
    #[serde(flatten)]
    pub completeness: Option<Completeness>,
    /// Blocks read.
    pub blocks: u64,
    /// Bytes read.
    pub bytes: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Each stream.
    pub streams: Vec<StreamResult>,
    /// The redundancy that is left, if it was recorded with any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<RedundancyStatus>,
    /// The problems found.
    pub findings: Vec<Diagnostic>,
}

/// The result for a stream.
#[derive(Clone, Debug, Serialize)]
pub struct StreamResult {
    /// The name.
    pub name: String,
    /// Blocks whose checksum is right.
    pub good_blocks: u64,
    /// Blocks that should exist: by the index, and by the number recorded if a part of the index is missing.
    pub blocks: u64,
    /// True if no problem was found, and all of it could be checked.
    pub good: bool,
    /// Frames that were written and are in no good block.
    pub lost: u64,
    /// Received frames in the recording, by the index.
    pub written: u64,
    /// Absent frames, by the gaps of the index; `None` in sequential streams.
    pub absent: Option<u64>,
    /// The stored terms: those of the account, or of the manifest if no copy of the account can be read.
    pub stored: Option<Terms>,
    /// The stored verdict.
    pub verdict: Option<Verdict>,
    /// The cause of overruns, if there were any and it is known.
    pub why_overrun: Option<String>,
    /// Gaps that the stored account counts and does not list.
    pub gaps_unlisted: u64,
    /// The unit of these numbers: frame or byte.
    #[serde(skip)]
    pub unit: &'static str,
}

/// Verifies a scan. `progress` is called with the bytes read so far and the total to read, from several threads.
pub fn verify(
    scan: &Scan,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Verification, StartError> {
    verify_rest(scan, Checked::default(), settings, progress)
}

/// Verifies a scan unless it is stopped meanwhile: then the result is `None`.
pub fn verify_until(
    scan: &Scan,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &StopHandle,
) -> Result<Option<Verification>, StartError> {
    verify_stoppable(scan, Checked::default(), settings, progress, stop)
}

/// Verifies a scan that was partly checked while it was recorded: the checked part is not read again.
pub fn verify_rest(
    scan: &Scan,
    checked: Checked,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Verification, StartError> {
    let verification = verify_stoppable(scan, checked, settings, progress, &StopHandle::default())?;
    Ok(verification.expect("nobody has the handle to stop it"))
}

fn verify_stoppable(
    scan: &Scan,
    checked: Checked,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
    stop: &StopHandle,
) -> Result<Option<Verification>, StartError> {
    let started = Instant::now();
    let mut findings = scan.findings.clone();
    if scan.manifest.state == State::Recording {
        findings.push(Diagnostic {
            stream: None,
            member: None,
            file: Some(scan.inventory.manifest_path.clone()),
            frames: None,
            what: match scan.manifest.incomplete_copy() {
                Some(copied) => DiagnosticKind::CopyIncomplete { host: copied.host.clone() },
                None => DiagnosticKind::Unsealed,
            },
        });
    }
    if renumber::is_unfinished(&scan.inventory) {
        findings.push(Diagnostic {
            stream: None,
            member: None,
            file: Some(scan.inventory.manifest_path.clone()),
            frames: None,
            what: DiagnosticKind::ChunksUnordered,
        });
    }
    let parity = check::parity_bytes(scan);
    let known = checked.known(scan);
    let lengths = |read: &[Results]| {
        read.iter().flat_map(|it| it.values()).map(|it| u64::from(it.length)).sum::<u64>()
    };
    let known_bytes = lengths(&known);
    let told = |done, total| progress(done, total + parity);
    let read = read_all(scan, known, settings, &told, stop)?;
    if stop.is_requested() {
        // Blocks that were not read are not known to be bad.
        return Ok(None);
    }
    let data = lengths(&read) - known_bytes;
    let bad = bad(scan, &read);
    let redundancy = check::check(scan, &bad, &|done| progress(data + done, data + parity))?;
    findings.extend(redundancy.iter().flat_map(|it| it.findings.clone()));
    let bytes = read.iter().flat_map(|results| results.values()).map(BlockResult::bytes).sum();
    let mut streams = Vec::new();
    for (stream, results) in scan.streams.iter().zip(&read) {
        findings.extend(files(scan, stream));
        findings.extend(continuity(stream));
        findings.extend(blocks(scan, stream, results));
        findings.extend(frames(scan, stream, results));
        let (mut result, recount) = account(scan, stream, results);
        if let Some(mended) = redundancy.as_ref().map(|it| &it.mended[stream.number]) {
            let present = mended.iter().map(|at| u64::from(stream.blocks[*at].block.present));
            result.lost = result.lost.saturating_sub(present.sum());
        }
        findings.extend(recount);
        let named = findings.iter().any(|it| it.stream.as_ref() == Some(&stream.name));
        streams.push(StreamResult { good: stream.complete && !named, ..result });
    }
    Ok(Some(Verification {
        scan: scan.manifest.scan.to_string(),
        uuid: scan.manifest.uuid,
        state: scan.manifest.state,
        good: findings.is_empty(),
        completeness: completeness(scan),
        blocks: read.iter().map(|it| it.len() as u64).sum(),
        bytes,
        seconds: started.elapsed().as_secs_f64(),
        streams,
        redundancy: redundancy.map(|it| it.left),
        findings,
    }))
}

/// Returns the completeness of a scan by its stored accounts, which are more detailed than the manifest.
pub fn completeness(scan: &Scan) -> Option<Completeness> {
    let accounts = scan.streams.iter().map(|stream| stream.account.clone());
    match accounts.collect::<Option<Vec<Account>>>() {
        Some(accounts) if scan.manifest.state != State::Recording => {
            Some(Completeness::of_accounts(&scan.manifest, &accounts))
        }
        _ => Completeness::of_manifest(&scan.manifest),
    }
}

/// Reads every block of a scan and returns the damaged or missing ones of each stream.
pub(super) fn bad_blocks(
    scan: &Scan,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<BTreeSet<usize>>, StartError> {
    let known = Checked::default().known(scan);
    let stop = StopHandle::default();
    Ok(bad(scan, &read_all(scan, known, settings, progress, &stop)?))
}

fn bad(scan: &Scan, read: &[Results]) -> Vec<BTreeSet<usize>> {
    let of = |(stream, results): (&StoredStream, &Results)| {
        let is_bad = |at: &usize| results.get(at).is_none_or(|result| result.fault.is_some());
        (0..stream.blocks.len()).filter(is_bad).collect()
    };
    scan.streams.iter().zip(read).map(of).collect()
}

/// The result of reading one block.
#[derive(Debug)]
struct BlockResult {
    fault: Option<Fault>,
    length: u32,
    walk: Walk,
}

impl BlockResult {
    fn bytes(&self) -> u64 {
        match self.fault {
            None | Some(Fault::Checksum { .. }) => self.length.into(),
            Some(Fault::Short { got }) => got.into(),
            Some(Fault::System(_)) => 0,
        }
    }
}

/// The blocks of a stream that were read, by position.
type Results = BTreeMap<usize, BlockResult>;

#[cfg(test)]
mod tests;
