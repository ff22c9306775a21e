//! Seals scans whose recorder died.
//!
//! Records show the progress of a scan. Records of rounds before the last one were durable together with their data;
//! the number of the last round proves it. The data of the last round is read and checked, and the scan ends before the
//! first damaged block.

use std::ops::ControlFlow;
use std::path::Path;

use fullbore_core::account::{Terms, Verdict};
use fullbore_core::device::{BlockRecord, Ending, Span, StoredScan, checksum};
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_linux::clock::Clock;
use serde::Serialize;

use super::error::Error;
use super::read::{Piece, piece_of, read};
use super::volume::Volume;

/// The result of one scan.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    /// The scan as it is now in the index.
    pub scan: StoredScan,
    /// Blocks whose records prove that they were durable.
    pub durable_blocks: u64,
    /// Blocks of the last round that were read and are good.
    pub checked_blocks: u64,
    /// Blocks with a record that are damaged, and were cut off.
    pub cut_blocks: u64,
}

/// Recovers the unsealed scans of a device, or only the named one.
pub fn recover(path: &Path, only: Option<&ScanName>) -> Result<Vec<Recovered>, Error> {
    let mut volume = Volume::open_to_change(path)?;
    if let Some(name) = only {
        volume.scan(name)?;
    }
    let unsealed = |scan: &&StoredScan| {
        scan.state == State::Recording && only.is_none_or(|name| scan.name == *name)
    };
    let scans: Vec<StoredScan> =
        volume.superblock().scans.iter().filter(unsealed).cloned().collect();
    scans.into_iter().map(|scan| recover_one(&mut volume, scan)).collect()
}

fn recover_one(volume: &mut Volume, mut scan: StoredScan) -> Result<Recovered, Error> {
    let span = volume.span_of(&scan);
    let mut records = volume.records(&scan, u64::MAX)?;
    // A record that does not continue at the end of the previous one belongs to an earlier recording.
    let mut end = 0u64;
    let run = records.iter().take_while(|record| {
        let follows = record.offset == end && piece_of(span, record).is_some();
        end = record.offset.saturating_add(record.bytes.into());
        follows
    });
    let run = run.count();
    records.truncate(run);
    let last_round = records.last().map(|record| record.round);
    let durable = records.iter().take_while(|record| Some(record.round) != last_round).count();
    let whole = whole_from(volume, &records, durable, span)?;
    let cut = records.len() - whole;
    records.truncate(whole);
    let bytes: u64 = records.iter().map(|record| u64::from(record.bytes)).sum();
    let frames: u64 = records.iter().map(|record| u64::from(record.frames)).sum();
    let present: u64 = records.iter().map(|record| u64::from(record.present)).sum();
    if let Some(second) = records.get(1).and_then(|record| u32::try_from(record.offset).ok()) {
        scan.block_bytes = second;
    }
    scan.state = State::Recovered;
    scan.ending = Ending::Unknown;
    (scan.bytes, scan.blocks) = (bytes, records.len() as u64);
    scan.limit = span.shortened(bytes).last();
    scan.ended = Some(Clock::new().now());
    scan.terms = Terms {
        expected: frames,
        written: present,
        missing: frames - present.min(frames),
        ..Terms::default()
    };
    scan.verdict = Verdict::Unproven;
    volume.update(&scan)?;
    Ok(Recovered {
        scan,
        durable_blocks: durable as u64,
        checked_blocks: (whole - durable) as u64,
        cut_blocks: cut as u64,
    })
}

/// The number of records, from `from` on, before the first damaged block.
fn whole_from(
    volume: &Volume,
    records: &[BlockRecord],
    from: usize,
    span: Span,
) -> Result<usize, Error> {
    let tail = &records[from..];
    let pieces: Vec<Piece> = tail.iter().map_while(|record| piece_of(span, record)).collect();
    let mut whole = from;
    read::<Error>(volume.block_device(), &pieces, |place, bytes| match bytes {
        Ok(bytes) if checksum(bytes) == tail[place].crc => {
            whole += 1;
            Ok(ControlFlow::Continue(()))
        }
        Ok(_) | Err(_) => Ok(ControlFlow::Break(())),
    })?;
    Ok(whole)
}
