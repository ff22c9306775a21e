//! A scan that its recorder left unsealed, made a sealed one.
//!
//! ```text
//! remake    names, indexes, accounts, frames ► a manifest, where no copy of it can be read
//! examine   index ► blocks after the last durable mark are read and checked; a chunk is cut at the
//!                   first one that is not whole
//!           chunks ► what lies behind the last record is kept as far as it can be recognised
//! rebuild   both ► the sequence, its gaps, the account
//! intact            a stream that has lost nothing keeps the account that was there
//! times     accounts, frames, files ► from when until when, where the manifest had to be made
//! apply     chunks cut and put in place ► indexes ► accounts ► manifests
//! tail      what was kept of blocks that were not full ► a chunk, its records; then all from the start, with it
//! renumber  chunk files renamed, where their order is not that of the stream
//! ```
//!
//! Every step leaves a scan that can be recovered again with the same result: a chunk is cut before its
//! records go, files are replaced whole, and the manifests, which alone say that the scan is sealed,
//! come last but for a renaming, which they tell of (`renumber`).
//!
//! Blocks before the last mark are believed without being read, unless asked for (`deep`); one of
//! those that turns out bad stays where it is, for `verify` to tell.

mod apply;
mod error;
mod examine;
mod intact;
mod outcome;
mod rebuild;
mod remake;
mod salvage;
mod seal;
mod standing;
mod tail;
mod times;

use std::path::PathBuf;
use std::time::Instant;

use fullbore_core::completeness::Completeness;
use fullbore_core::manifest::{State, Stream};
use fullbore_core::marker::Marker;
use fullbore_core::name::ScanName;

pub use error::Error;
pub use outcome::{Outcome, Recovered, Recovery};

use super::inventory::{self, Inventory};
use super::reader::Scan;
use super::{markers, renumber};
use seal::{complete, lock_all, rename, seal};
use standing::{
    absent_paths, already_sealed, is_behind, is_recording, is_unsealed, sealed_by_its_recorder,
};

/// How to recover.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Check every block, not only those after the last durable mark.
    pub deep: bool,
    /// Do without members that are not given: what they hold is lost to the scan.
    pub without_absent_members: bool,
    /// Also when the scan is sealed: build its indexes anew as far as they are not whole.
    pub reindex: bool,
}

/// Recovers a scan. `progress` is called with bytes read so far.
pub fn recover(
    roots: &[PathBuf],
    scan: &ScanName,
    options: Options,
    progress: &dyn Fn(u64),
) -> Result<Outcome, Error> {
    let started = Instant::now();
    let (inventory, mut warnings) = look(roots, scan)?;
    if !options.reindex && !is_unsealed(&inventory) {
        return Ok(match warnings.is_empty() {
            true => already_sealed(&inventory),
            false => Outcome::Recovered(as_it_was(&inventory, warnings, started)),
        });
    }
    let mut locks = lock_all(&inventory)?;
    // Whoever held it may have sealed it while we waited.
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
        return complete(&inventory, &mut locks);
    }
    refuse_absent_members(&inventory, options)?;
    let mut manifest = inventory.manifest.clone();
    let (mut accounts, mut streams, mut spans) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..manifest.streams.len() {
        let mut rebuilt = put_together(&inventory, number, options, progress)?;
        let mut told = rebuilt.told();
        let kept = tail::put_back(&inventory, &rebuilt)?;
        if kept.blocks > 0 {
            inventory = Inventory::take(roots, scan)?;
            rebuilt = put_together(&inventory, number, options, progress)?;
            // What was found and cut off before is found no more.
            told = told.with_tail(rebuilt.told());
        }
        (told.tail, told.tails_ignored) = (kept.blocks, kept.ignored);
        streams.push(told);
        rebuilt.write_into(&mut manifest);
        spans.push(rebuilt.span());
        accounts.push(rebuilt.account);
    }
    // The state says what happened to the scan; each account, what is true of its stream.
    if manifest.state == State::Recording || !streams.iter().all(|stream| stream.intact) {
        manifest.state = State::Recovered;
    }
    if manifest.times.is_some() {
        // The files were looked at when it was made: now some may have been cut.
        times::tell(&mut manifest, &spans, []);
    }
    warnings.extend(renumber::plan(&Inventory::take(roots, scan)?, &mut manifest));
    manifest.markers = placed(Inventory::take(roots, scan)?);
    tail::remove_all(&inventory)?;
    seal(&inventory, &manifest, &accounts, &mut locks)?;
    if manifest.streams.iter().any(renumber::is_to_be_renamed) {
        rename(roots, &inventory, &mut manifest, &mut locks)?;
    }
    let (scan, seconds) = (scan.to_string(), started.elapsed().as_secs_f64());
    let completeness = Some(Completeness::of_accounts(&manifest, &accounts));
    let state = manifest.state;
    Ok(Outcome::Recovered(Recovery { scan, state, completeness, streams, warnings, seconds }))
}

/// Examines a stream, and has its chunks and indexes say what it is.
fn put_together(
    inventory: &Inventory,
    number: usize,
    options: Options,
    progress: &dyn Fn(u64),
) -> Result<rebuild::Rebuilt, Error> {
    let examined = examine::examine(inventory, number, options, progress)?;
    let rebuilt = rebuild::rebuild(inventory, number, examined, progress)?;
    apply::apply(inventory, &rebuilt)?;
    Ok(rebuilt)
}

/// The markers of a scan, with where its streams were, as far as its indexes tell by now.
fn placed(inventory: Inventory) -> Vec<Marker> {
    let scan = Scan::of_inventory(inventory);
    let mut markers = scan.inventory.markers.clone();
    markers.iter_mut().for_each(|marker| markers::place(&scan, marker, false));
    markers
}

/// What there is of a scan, with a manifest that is made where there is none; then with what is to be told of it.
fn look(roots: &[PathBuf], scan: &ScanName) -> Result<(Inventory, Vec<String>), Error> {
    match Inventory::take(roots, scan) {
        Err(inventory::Error::NoManifest { .. }) => {
            let told = remake::remake(roots, scan)?;
            Ok((Inventory::take(roots, scan)?, told))
        }
        inventory => Ok((inventory?, Vec::new())),
    }
}

/// A scan that lacked its manifest and nothing else.
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
