//! Seals a scan that its recorder left unsealed.
//!
//! ```text
//! remake    names, indexes, accounts, frames ► a manifest, if no copy of it is readable
//! examine   index ► blocks after the last durable mark are read and checked; a chunk is cut at the
//!                   first one that is not whole
//!           chunks ► data behind the last record is kept as far as it can be recognised
//! rebuild   both ► the sequence, its gaps, the account
//! intact            a stream that has lost nothing keeps its former account
//! times     accounts, frames, files ► start and end times, if the manifest had to be remade
//! apply     chunks cut and renamed into place ► indexes ► accounts ► manifests
//! tail      partial blocks from the journal ► a chunk and its records; then all steps again, with them
//! renumber  chunk files renamed, if their order is not that of the stream
//! ```
//!
//! After every step, the scan can be recovered again with the same result: a chunk is cut before its records are
//! removed, and files are replaced whole. The manifests, which alone mark the scan as sealed, come last, except for a
//! renumbering, which they announce (`renumber`).
//!
//! Blocks before the last mark are trusted without being read, unless requested (`deep`). If one of those is bad, it
//! stays where it is, and `verify` reports it.

mod apply;
mod copy;
mod error;
mod outcome;
mod parse_unindexed;
mod partial_block;
mod rebuild_manifest;
mod reconstruct;
mod scan_chunks;
mod seal;
mod status;
mod times;
mod unchanged_account;

use std::path::PathBuf;
use std::time::Instant;

use fullbore_core::completeness::Completeness;
use fullbore_core::manifest::{State, Stream};
use fullbore_core::marker::Marker;
use fullbore_core::name::ScanName;
use fullbore_store::inventory::{self, Inventory};
use fullbore_store::reader::Scan;
use fullbore_store::{markers, renumber};

pub use error::Error;
pub use outcome::{Outcome, Recovered, Recovery};

use seal::{complete, lock_all, rename, seal};
use status::{
    absent_paths, already_sealed, is_behind, is_recording, is_unsealed, sealed_by_its_recorder,
};

/// Options of `recover`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Check every block, not only those after the last durable mark.
    pub deep: bool,
    /// Recover without members that are not given: the scan loses their data.
    pub without_absent_members: bool,
    /// Also process a sealed scan: rebuild its indexes that are not whole.
    pub reindex: bool,
    /// Also process an incomplete copy from another site: the scan loses the part that has not arrived.
    pub incomplete_copy: bool,
}

/// Recovers a scan. `progress` is called with the number of bytes read so far.
pub fn recover(
    roots: &[PathBuf],
    scan: &ScanName,
    options: Options,
    progress: &dyn Fn(u64),
) -> Result<Outcome, Error> {
    let _span = tracing::info_span!("recover", %scan).entered();
    let started = Instant::now();
    let (inventory, mut warnings) = look(roots, scan)?;
    tracing::info!(members = roots.len(), warnings = warnings.len(), "looked at all members");
    if !options.reindex && !is_unsealed(&inventory) {
        return Ok(match warnings.is_empty() {
            true => already_sealed(&inventory),
            false => Outcome::Recovered(as_it_was(&inventory, warnings, started)),
        });
    }
    if let Some(copied) = inventory.manifest.incomplete_copy().filter(|_| !options.incomplete_copy)
    {
        let (scan, host) = (scan.to_string(), copied.host.clone());
        return Err(Error::IncompleteCopy { scan, host });
    }
    let mut locks = lock_all(&inventory)?;
    // The former owner of the lock may have sealed the scan in the meantime.
    let mut inventory = Inventory::take(roots, scan)?;
    if !options.reindex && !is_unsealed(&inventory) {
        return Ok(already_sealed(&inventory));
    }
    let was_renaming = renumber::is_unfinished(&inventory) || is_behind(&inventory);
    if renumber::is_unfinished(&inventory) {
        refuse_absent_members(&inventory, options)?;
        let mut manifest = inventory.manifest.clone();
        rename(roots, &inventory, &mut manifest, &mut locks)?;
        inventory = Inventory::take(roots, scan)?;
    }
    let is_whole = was_renaming && !is_recording(&inventory);
    if !options.reindex && (is_whole || sealed_by_its_recorder(&inventory)) {
        return complete(roots, &inventory, &mut locks);
    }
    refuse_absent_members(&inventory, options)?;
    let mut manifest = inventory.manifest.clone();
    let (mut accounts, mut streams, mut spans) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..manifest.streams.len() {
        let mut reconstructed = put_together(&inventory, number, options, progress)?;
        let mut told = reconstructed.told();
        let kept = partial_block::put_back(&inventory, &reconstructed)?;
        if kept.blocks > 0 {
            inventory = Inventory::take(roots, scan)?;
            reconstructed = put_together(&inventory, number, options, progress)?;
            // Blocks found or cut in the first pass do not show up in the second.
            told = told.with_tail(reconstructed.told());
        }
        (told.tail, told.tails_ignored) = (kept.blocks, kept.ignored);
        streams.push(told);
        reconstructed.write_into(&mut manifest);
        spans.push(reconstructed.span());
        accounts.push(reconstructed.account);
    }
    // The state describes the scan; each account describes its stream.
    if manifest.state == State::Recording || !streams.iter().all(|stream| stream.intact) {
        manifest.state = State::Recovered;
    }
    if manifest.times.is_some() {
        // The manifest's times were taken from files that may have been cut since.
        times::tell(&mut manifest, &spans, []);
    }
    warnings.extend(renumber::plan(&Inventory::take(roots, scan)?, &mut manifest));
    manifest.markers = placed(Inventory::take(roots, scan)?);
    partial_block::remove_all(&inventory)?;
    seal(&inventory, &manifest, &accounts, &mut locks)?;
    if manifest.streams.iter().any(renumber::is_to_be_renamed) {
        rename(roots, &inventory, &mut manifest, &mut locks)?;
    }
    tracing::info!("sealed");
    let (scan, seconds) = (scan.to_string(), started.elapsed().as_secs_f64());
    let completeness = Some(Completeness::of_accounts(&manifest, &accounts));
    let state = manifest.state;
    Ok(Outcome::Recovered(Recovery { scan, state, completeness, streams, warnings, seconds }))
}

/// Examines a stream, and updates its chunks and indexes accordingly.
fn put_together(
    inventory: &Inventory,
    number: usize,
    options: Options,
    progress: &dyn Fn(u64),
) -> Result<reconstruct::Reconstructed, Error> {
    tracing::info!(stream = %inventory.manifest.streams[number].name, "reads the chunks");
    let examined = scan_chunks::examine(inventory, number, options, progress)?;
    let reconstructed = reconstruct::rebuild(inventory, number, examined, progress)?;
    apply::apply(inventory, &reconstructed)?;
    Ok(reconstructed)
}

/// Returns the markers of a scan, with the positions in its streams as far as the indexes now show them.
fn placed(inventory: Inventory) -> Vec<Marker> {
    let scan = Scan::of_inventory(inventory);
    let mut markers = scan.inventory.markers.clone();
    markers.iter_mut().for_each(|marker| markers::place(&scan, marker, false));
    markers
}

/// Takes the inventory of a scan, and remakes the manifest if there is none. Returns warnings too.
fn look(roots: &[PathBuf], scan: &ScanName) -> Result<(Inventory, Vec<String>), Error> {
    match Inventory::take(roots, scan) {
        Err(inventory::Error::NoManifest { .. }) => {
            let told = rebuild_manifest::remake(roots, scan)?;
            Ok((Inventory::take(roots, scan)?, told))
        }
        inventory => Ok((inventory?, Vec::new())),
    }
}

/// Returns the result for a scan that lacked only its manifest.
fn as_it_was(inventory: &Inventory, warnings: Vec<String>, started: Instant) -> Recovery {
    let of_stream = |stream: &Stream| Recovered {
        name: stream.name.to_string(),
        blocks: stream.blocks,
        bytes: stream.bytes,
        terms: stream.account.as_ref().map(|account| account.terms).unwrap_or_default(),
        verdict: stream.account.as_ref().map(|account| account.verdict),
        intact: true,
        ..Recovered::default()
    };
    Recovery {
        scan: inventory.manifest.scan.to_string(),
        state: inventory.manifest.state,
        completeness: Completeness::of_manifest(&inventory.manifest),
        streams: inventory.manifest.streams.iter().map(of_stream).collect(),
        warnings,
        seconds: started.elapsed().as_secs_f64(),
    }
}

fn refuse_absent_members(inventory: &Inventory, options: Options) -> Result<(), Error> {
    let members = absent_paths(inventory);
    if members.is_empty() || options.without_absent_members {
        return Ok(());
    }
    Err(Error::MembersAbsent { scan: inventory.manifest.scan.to_string(), members })
}

#[cfg(test)]
mod tests;
