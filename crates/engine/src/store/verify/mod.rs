//! Everything that is stored of a scan, held against everything else that is.
//!
//! ```text
//! blocks    ── checksum ──────────► index         what was written is what lies there
//! frames    ── own time, marks ───► places, gaps  a frame is where it belongs, and only fill is fill
//! sequences ── no hole, no twin ──► gaps          what no block holds is told of
//! index     ── summed up anew ────► account       the books are those of the data
//! gaps      ── index, numbers ────► account       what is not there is what the account lists, term by term
//! account   ── in short ──────────► manifest      and every copy says the same
//! parity    ── checksum ──────────► its records   how much redundancy is left
//! files     ── names, sizes ──────► index         nothing too few, nothing too many
//! ```
//!
//! Reading and checking overlap: a few threads per device each read a block and check it.

mod along;
mod books;
mod data;
mod files;
mod listed;
mod numbers;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use fullbore_core::account::{Account, Terms, Verdict};
use fullbore_core::completeness::Completeness;
use fullbore_core::manifest::State;
use serde::Serialize;
use uuid::Uuid;

pub use self::along::Checked;
use self::books::account;
use self::data::{blocks, frames, read_all};
use self::files::{continuity, files};
use self::walk::Walk;
use super::finding::{Finding, What};
use super::read::{Fault, Settings, StartError};
use super::reader::{Scan, Stream};
use super::redundancy::check::{self, Left};
use super::renumber;

/// What verifying a scan found.
#[derive(Clone, Debug, Serialize)]
pub struct Verification {
    /// Its name.
    pub scan: String,
    /// Its identity.
    pub uuid: Uuid,
    /// How far it had come.
    pub state: State,
    /// Whether what is stored is intact: nothing was found. It may lack frames all the same: see `complete`.
    pub good: bool,
    /// Whether the recording is complete, as its accounts say, once each stream has one.
    #[serde(flatten)]
    pub completeness: Option<Completeness>,
    /// Blocks read.
    pub blocks: u64,
    /// Bytes read.
    pub bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Each stream.
    pub streams: Vec<StreamResult>,
    /// How much redundancy is left, if it was recorded with any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Left>,
    /// What is not as it should be.
    pub findings: Vec<Finding>,
}

/// A stream, counted anew.
#[derive(Clone, Debug, Serialize)]
pub struct StreamResult {
    /// Its name.
    pub name: String,
    /// Blocks whose checksum is right.
    pub good_blocks: u64,
    /// Blocks that ought to be there: by the index, and by what was recorded where a part of it is away.
    pub blocks: u64,
    /// Whether nothing was found about it, and all of it could be looked at.
    pub good: bool,
    /// Frames that were written and are in no good block.
    pub lost: u64,
    /// Received frames in the recording, by the index.
    pub written: u64,
    /// Frames that are not in it, by the gaps of the index; nothing where frames lie as they came.
    pub absent: Option<u64>,
    /// The terms as stored.
    pub stored: Option<Terms>,
    /// The verdict as stored.
    pub verdict: Option<Verdict>,
    /// Why frames were overrun, where any were and it is known.
    pub why_overrun: Option<String>,
    /// Gaps that the stored account counts and does not list.
    pub gaps_unlisted: u64,
}

/// Verifies a scan. `progress` is called with the bytes read so far and those to be read in all,
/// from several threads.
pub fn verify(
    scan: &Scan,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Verification, StartError> {
    verify_rest(scan, Checked::default(), settings, progress)
}

/// Verifies a scan of which much was checked while it was recorded: that is not read again.
pub fn verify_rest(
    scan: &Scan,
    checked: Checked,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Verification, StartError> {
    let started = Instant::now();
    let mut findings = scan.findings.clone();
    if scan.manifest.state == State::Recording {
        findings.push(Finding {
            stream: None,
            member: None,
            file: Some(scan.inventory.manifest_path.clone()),
            frames: None,
            what: What::Unsealed,
        });
    }
    if renumber::is_unfinished(&scan.inventory) {
        findings.push(Finding {
            stream: None,
            member: None,
            file: Some(scan.inventory.manifest_path.clone()),
            frames: None,
            what: What::ChunksUnordered,
        });
    }
    let parity = check::parity_bytes(scan);
    let known = checked.known(scan);
    let lengths = |read: &[Results]| {
        read.iter().flat_map(|it| it.values()).map(|it| u64::from(it.length)).sum::<u64>()
    };
    let known_bytes = lengths(&known);
    let read = read_all(scan, known, settings, &|done, total| progress(done, total + parity))?;
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
        let (mut result, books) = account(scan, stream, results);
        if let Some(mended) = redundancy.as_ref().map(|it| &it.mended[stream.number]) {
            let present = mended.iter().map(|at| u64::from(stream.blocks[*at].block.present));
            result.lost = result.lost.saturating_sub(present.sum());
        }
        findings.extend(books);
        let named = findings.iter().any(|it| it.stream.as_ref() == Some(&stream.name));
        streams.push(StreamResult { good: stream.complete && !named, ..result });
    }
    Ok(Verification {
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
    })
}

/// Whether a scan is complete by the accounts that are stored, which tell more than the manifest.
pub fn completeness(scan: &Scan) -> Option<Completeness> {
    let accounts = scan.streams.iter().map(|stream| stream.account.clone());
    match accounts.collect::<Option<Vec<Account>>>() {
        Some(accounts) if scan.manifest.state != State::Recording => {
            Some(Completeness::of_accounts(&scan.manifest, &accounts))
        }
        _ => Completeness::of_manifest(&scan.manifest),
    }
}

/// Reads every block of a scan and says which of each stream are not as they were written, or not there.
pub(super) fn bad_blocks(
    scan: &Scan,
    settings: Settings,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<BTreeSet<usize>>, StartError> {
    let known = Checked::default().known(scan);
    Ok(bad(scan, &read_all(scan, known, settings, progress)?))
}

fn bad(scan: &Scan, read: &[Results]) -> Vec<BTreeSet<usize>> {
    let of = |(stream, results): (&Stream, &Results)| {
        let is_bad = |at: &usize| results.get(at).is_none_or(|result| result.fault.is_some());
        (0..stream.blocks.len()).filter(is_bad).collect()
    };
    scan.streams.iter().zip(read).map(of).collect()
}

/// What reading one block showed.
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
