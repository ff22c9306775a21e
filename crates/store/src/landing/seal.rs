//! Seals a copy: last records, final lengths and names, accounts, and the manifests last.
//!
//! Every step can be repeated. If the process ends in between, a later begin finds either a copy that is to be continued,
//! without blocks to send, or a sealed one, whose manifests it completes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::account::Account;
use fullbore_core::index::{Block, Entry, RECORD_BYTES};
use fullbore_core::manifest::{ACCOUNT_FILE, Copied, INDEX_FILE, Manifest, SIDE_DIRECTORY, State};
use fullbore_core::name::ScanName;
use fullbore_linux::clock::Clock;

use super::begin::{inventory, put_manifest};
use super::chunks::{ChunkFile, Place};
use super::error::LandingError;
use super::rounds::Rounds;
use super::{Landing, Sealed, validate};
use crate::inventory::{Index, Inventory, side_file};
use crate::journal::Event;
use crate::lock::{ScanLock, put_file, sync_directory};
use crate::renumber::{self, is_to_be_renamed};
use crate::{copies, crash_hooks};

/// Seals the copy, with its lock held.
pub fn seal(
    landing: &Landing,
    rounds: &mut Rounds,
    sent: &Manifest,
    accounts: &BTreeMap<u16, Account>,
    records: &[[u8; RECORD_BYTES]],
) -> Result<Sealed, LandingError> {
    if let Some(sealed) = rounds.sealed {
        return Ok(sealed);
    }
    if sent.state == State::Recording {
        return Err(LandingError::Manifest("the scan is not sealed".into()));
    }
    landing.take_manifest(rounds, sent)?;
    check_accounts(sent, accounts)?;
    let entries = last_entries(landing, records)?;
    landing.round(rounds)?;
    note(landing, &entries);
    landing.round(rounds)?;
    let chunks = close(landing)?;
    for (file, bytes) in chunks {
        file.settle(&landing.places, bytes)?;
    }
    for part in landing.state().streams.iter_mut().flat_map(|it| &mut it.parts) {
        part.index.settle()?;
    }
    sync_names(&landing.places, &rounds.manifest)?;
    put_accounts(&landing.places, &rounds.manifest, accounts)?;
    let manifest = final_manifest(landing, rounds, sent)?;
    let roots: Vec<&Path> = landing.places.iter().map(|it| it.member.root()).collect();
    put_manifest(&roots, &manifest, &mut rounds.locks)?;
    rounds.manifest = manifest;
    let sealed = complete(&landing.places, &landing.scan, &mut rounds.locks)?;
    rounds.sealed = Some(sealed);
    rounds.locks.clear();
    Ok(sealed)
}

fn check_accounts(sent: &Manifest, accounts: &BTreeMap<u16, Account>) -> Result<(), LandingError> {
    for (number, stream) in (0..).zip(&sent.streams) {
        let account = accounts.get(&number);
        if account.is_none_or(|account| !account.terms.balance()) {
            let why = format!("stream {} has no account that balances", stream.name);
            return Err(LandingError::Records(why));
        }
    }
    Ok(())
}

/// Decodes the last records: gaps and found blocks, each once.
fn last_entries(
    landing: &Landing,
    records: &[[u8; RECORD_BYTES]],
) -> Result<Vec<(usize, Entry)>, LandingError> {
    let invalid = |why: String| LandingError::Records(why);
    let streams = landing.state().streams.len();
    let mut entries = Vec::new();
    let mut seen = landing.state().noted.clone();
    for record in records.iter().filter(|record| seen.insert(**record)) {
        let decoded = landing.codec.decode(record).map_err(|error| invalid(error.to_string()))?;
        match decoded {
            (stream, entry @ (Entry::Gap(_) | Entry::Found { .. }))
                if usize::from(stream) < streams =>
            {
                entries.push((usize::from(stream), entry));
            }
            (stream, _) => {
                return Err(invalid(format!("stream {stream} has a record of another kind")));
            }
        }
    }
    Ok(entries)
}

/// Enters gaps before the seal, so that a copy that stays incomplete shows them too.
pub fn note_early(landing: &Landing, records: &[[u8; RECORD_BYTES]]) -> Result<(), LandingError> {
    let mut entries = last_entries(landing, records)?;
    entries.retain(|(_, entry)| matches!(entry, Entry::Gap(_)));
    note(landing, &entries);
    let encode = |(stream, entry): &(usize, Entry)| landing.codec.encode(*stream as u16, entry);
    landing.state().noted.extend(entries.iter().map(encode));
    Ok(())
}

/// Enters gaps into the index of the first member that has blocks of the stream, and found blocks where the blocks are.
/// What an interrupted seal entered was behind the last mark, and is gone.
fn note(landing: &Landing, entries: &[(usize, Entry)]) {
    let mut state = landing.state();
    for (stream, entry) in entries {
        let parts = &mut state.streams[*stream].parts;
        let first = parts.iter().position(|part| !part.blocks.is_empty()).unwrap_or(0);
        for (number, part) in parts.iter_mut().enumerate() {
            let is_here = match entry {
                Entry::Found { first, count } => {
                    let end = first.saturating_add(*count);
                    part.blocks.runs().any(|run| run.start < end && *first < run.end)
                }
                _ => number == first,
            };
            if is_here {
                // Noting begins no round, so there is no action.
                let actions = part.journal.step(Event::Noted(entry.clone()));
                debug_assert!(actions.is_empty(), "{actions:?} for a note");
            }
        }
    }
}

/// Accepts no more blocks. Returns the chunks that are not full, with their final lengths.
fn close(landing: &Landing) -> Result<Vec<(Arc<ChunkFile>, u64)>, LandingError> {
    let mut state = landing.state();
    let chunks = state.streams.iter().flat_map(|it| it.chunks.values());
    let blocks = chunks.map(|chunk| chunk.unsettled).sum::<usize>();
    if blocks > 0 {
        return Err(LandingError::Unfinished { blocks });
    }
    state.closed = true;
    let chunks = state.streams.iter().flat_map(|it| it.chunks.values());
    Ok(chunks.filter(|it| !it.full).map(|it| (it.file.clone(), it.end)).collect())
}

/// Makes all names of the copy durable.
fn sync_names(places: &[Place], manifest: &Manifest) -> Result<(), LandingError> {
    for place in places {
        let root = place.member.root();
        for stream in &manifest.streams {
            let directory = root.join(&stream.directory);
            for path in [directory.join(SIDE_DIRECTORY), directory] {
                sync_directory(&path).map_err(LandingError::write(&path))?;
            }
        }
        sync_directory(root).map_err(LandingError::write(root))?;
    }
    Ok(())
}

fn put_accounts(
    places: &[Place],
    manifest: &Manifest,
    accounts: &BTreeMap<u16, Account>,
) -> Result<(), LandingError> {
    for (number, stream) in (0..).zip(&manifest.streams) {
        let Some(account) = accounts.get(&number) else { continue };
        let json = account.to_json();
        for place in places {
            let directory = place.member.root().join(&stream.directory);
            let path = side_file(&directory, ACCOUNT_FILE);
            crash_hooks::step()
                .and_then(|()| put_file(&path, &json))
                .map_err(LandingError::write(&path))?;
        }
    }
    Ok(())
}

/// The manifest of the complete copy, with new file numbers if the order of the files is not that of the stream.
fn final_manifest(
    landing: &Landing,
    rounds: &Rounds,
    sent: &Manifest,
) -> Result<Manifest, LandingError> {
    let Some(copied) = rounds.manifest.copied.clone() else { return Err(LandingError::Closed) };
    let copied = Copied {
        completed: Some(Clock::new().now()),
        source: Vec::new(),
        unreadable_blocks: 0,
        ..copied
    };
    let mut manifest = validate::arrived(sent, rounds.manifest.members.clone(), copied);
    for warning in renumber::plan(&inventory(&landing.places, &landing.scan)?, &mut manifest) {
        tracing::warn!(scan = %landing.scan, "{warning}");
    }
    Ok(manifest)
}

/// Completes a copy of which at least one manifest is sealed: its other manifests, and the names of its files. Returns
/// what is in it.
pub fn complete(
    places: &[Place],
    scan: &ScanName,
    locks: &mut [ScanLock],
) -> Result<Sealed, LandingError> {
    let found = inventory(places, scan)?;
    let roots: Vec<&Path> = places.iter().map(|it| it.member.root()).collect();
    let mut manifest = found.manifest.clone();
    if renumber::is_unfinished(&found) {
        let paths: Vec<PathBuf> = roots.iter().map(|it| it.to_path_buf()).collect();
        let mut failed = None;
        let done =
            renumber::carry_out(&paths, &mut manifest, &mut |newer: &Manifest| match put_manifest(
                &roots, newer, locks,
            ) {
                Ok(()) => Ok(Vec::new()),
                Err(error) => {
                    let path = found.manifest_path.clone();
                    let why = Some(error.to_string());
                    failed = Some(error);
                    Err(renumber::Error::Manifest { path, why })
                }
            });
        if let Some(error) = failed {
            return Err(error);
        }
        done.map_err(LandingError::Renumber)?;
    }
    let mut copies = found.holdings.iter().map(|it| it.manifest.get());
    let stale =
        manifest.streams.iter().any(is_to_be_renamed) || copies.any(|copy| copy != Some(&manifest));
    if stale && manifest == found.manifest {
        put_manifest(&roots, &manifest, locks)?;
    }
    contents(&found)
}

/// Reads what is in a sealed copy from its indexes.
fn contents(found: &Inventory) -> Result<Sealed, LandingError> {
    let mut streams: Vec<Vec<Block>> = Vec::new();
    for number in 0..found.manifest.streams.len() {
        let mut blocks = Vec::new();
        for holding in found.of_stream(number) {
            let path = holding.side(INDEX_FILE);
            match Index::read(&path, found.manifest.uuid, number as u16) {
                Ok(index) => blocks.extend(index.blocks.iter().map(|it| it.block)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(LandingError::read(&path)(error)),
            }
        }
        blocks.sort_unstable_by_key(|block| block.sequence);
        streams.push(blocks);
    }
    let all = || (0..).zip(&streams).flat_map(|(number, it)| it.iter().map(move |it| (number, it)));
    Ok(Sealed {
        blocks: all().count() as u64,
        bytes: all().map(|(_, block)| u64::from(block.bytes)).sum(),
        digest: copies::digest(all()),
    })
}
