//! Seals scans whose recorder died.
//!
//! Records show the progress of a scan. Records of rounds before the last one were durable together with their data;
//! the number of the last round proves it. The data of the last round is read and checked, and the scan ends before the
//! first damaged block.
//!
//! The account follows from the records: their numbers, and the times of their frames. It is judged like that of a
//! recovered scan of a store, and compared with the plan in the same way.

use std::ops::ControlFlow;
use std::path::Path;

use fullbore_core::account::{Account, CountedBy, Edge, Presence, Terms, Verdict};
use fullbore_core::completeness::Completeness;
use fullbore_core::device::{
    BlockRecord, BytesStream, Ending, Extract, Span, StoredScan, checksum,
};
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::Serialize;

use super::error::Error;
use super::read::{Piece, piece_of, read};
use super::volume::Volume;

/// The result of one scan.
#[derive(Clone, Debug, Serialize)]
pub struct Recovered {
    /// The scan as it is now in the index.
    pub scan: StoredScan,
    /// The completeness of the scan.
    #[serde(flatten)]
    pub completeness: Option<Completeness>,
    /// Blocks whose records prove that they were durable.
    pub durable_blocks: u64,
    /// Blocks of the last round that were read and are good.
    pub checked_blocks: u64,
    /// Blocks with a record that are damaged, and were cut off.
    pub cut_blocks: u64,
}

/// The result for a device.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// The scans that were unsealed.
    pub scans: Vec<Recovered>,
    /// True if one copy of the index was damaged, and was written again.
    pub repaired_index: bool,
}

/// Recovers the unsealed scans of a device, or only the named one, and repairs a damaged copy of its index.
pub fn recover(path: &Path, only: Option<&ScanName>) -> Result<Recovery, Error> {
    let mut volume = Volume::open_to_change(path)?;
    if let Some(name) = only {
        volume.scan(name)?;
    }
    let unsealed = |scan: &&StoredScan| {
        scan.state == State::Recording && only.is_none_or(|name| scan.name == *name)
    };
    let scans: Vec<StoredScan> =
        volume.superblock().scans.iter().filter(unsealed).cloned().collect();
    let repaired_index = volume.damage().is_some();
    if repaired_index {
        volume.repair()?;
    }
    let scans = scans.into_iter().map(|scan| recover_one(&mut volume, scan));
    Ok(Recovery { scans: scans.collect::<Result<_, _>>()?, repaired_index })
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
    let (whole, end) = whole_from(volume, &scan, &records, durable, span)?;
    let cut = records.len() - whole;
    records.truncate(whole);
    let bytes: u64 = records.iter().map(|record| u64::from(record.bytes)).sum();
    if let Some(second) = records.get(1).and_then(|record| u32::try_from(record.offset).ok()) {
        scan.block_bytes = second;
    }
    scan.state = State::Recovered;
    scan.ending = Ending::Unknown;
    (scan.bytes, scan.blocks) = (bytes, records.len() as u64);
    scan.limit = span.shortened(bytes).last();
    scan.ended = Some(Clock::new().now());
    let counted_by = counted_by(&scan);
    let account = account(&scan, counted_by, &records, end);
    (scan.terms, scan.verdict) = (account.terms, account.verdict);
    scan.extract = Some(Extract { counted_by, ..Extract::from(&account) });
    volume.update(&mut scan)?;
    Ok(Recovered {
        completeness: scan.completeness(),
        scan,
        durable_blocks: durable as u64,
        checked_blocks: (whole - durable) as u64,
        cut_blocks: cut as u64,
    })
}

/// Returns the number by which the records count frames, if they do.
fn counted_by(scan: &StoredScan) -> Option<CountedBy> {
    match &scan.extract {
        Some(extract) => extract.counted_by,
        // An index of an earlier version does not have it before the seal.
        None => (scan.frame_bytes == 0 && BytesStream::is_meant(&scan.source))
            .then_some(CountedBy::Bytes),
    }
}

/// Returns the account of a scan by the records of its blocks, and by the time of its last frame, if that is known.
fn account(
    scan: &StoredScan,
    counted_by: Option<CountedBy>,
    records: &[BlockRecord],
    end: Option<Tai>,
) -> Account {
    let sum = |of: fn(&BlockRecord) -> u32| -> u64 {
        records.iter().map(|record| u64::from(of(record))).sum()
    };
    let mut account = Account::new(counted_by.unwrap_or(CountedBy::Nothing));
    let (frames, written) = (sum(|it| it.frames), sum(|it| it.present));
    // What is filled was lost somewhere: the records do not say where.
    let missing = frames.saturating_sub(written);
    account.terms = Terms { expected: written + missing, written, missing, ..Terms::default() };
    let edges = edges(records, end);
    (account.first, account.last) = (edges.map(|it| it.0), edges.map(|it| it.1));
    if records.is_empty() {
        account.presence.push(Presence::NotKnown);
    }
    // Records of an earlier version do not say when their frames arrived.
    if let Some(planned) = scan.planned.filter(|_| edges.is_some() || records.is_empty()) {
        let lacking = planned.lacking(&account, frames_per_second(records), scan.begun, None);
        account.presence.extend(lacking);
    }
    if !is_duration_known(records, end) {
        account.last = None;
    }
    // The loss counters died with the recorder, so nothing can be proven any more.
    account.verdict = account.judge().max(Verdict::Consistent);
    account
}

/// Returns the first and the last frame. A record has the times of the first frame of its block: the last frame of the
/// last block follows at the rate of the blocks before, or has its own time, `end`.
fn edges(records: &[BlockRecord], end: Option<Tai>) -> Option<(Edge, Edge)> {
    let (first, last) = (records.first()?, records.last()?);
    let within = i128::from(last.frames.saturating_sub(1));
    let later = |of: fn(&BlockRecord) -> Option<Tai>| {
        let (from, to) = (of(first)?, of(last)?);
        let frames = i128::from(last.first) - i128::from(first.first);
        let by_rate = (i128::from(to.since(from)) * within).checked_div(frames);
        let by_frame = || Some(i128::from(end?.since(last.time?)));
        let ns = by_rate.or_else(by_frame).unwrap_or(0);
        Some(to.plus_ns(i64::try_from(ns).unwrap_or(0)))
    };
    let index = last.first.saturating_add(within as i64);
    let end = Edge { index, time: later(|it| it.time), seen: later(|it| it.seen)? };
    Some((Edge { index: first.first, time: first.time, seen: first.seen? }, end))
}

/// True if the time from the first to the last frame is known: not from a single block without the time of its end.
fn is_duration_known(records: &[BlockRecord], end: Option<Tai>) -> bool {
    match records {
        [only] => only.frames <= 1 || (only.time.is_some() && end.is_some()),
        _ => true,
    }
}

/// Returns the frames per second of all threads together, by the times of the first frames of blocks.
fn frames_per_second(records: &[BlockRecord]) -> Option<u64> {
    let (first, last) = (records.first()?, records.last()?);
    let ns = i128::from(last.time?.since(first.time?));
    let frames = i128::from(last.first) - i128::from(first.first);
    let rate = (frames * 1_000_000_000 + ns / 2).checked_div(ns)?;
    u64::try_from(rate).ok().filter(|&rate| rate > 0)
}

/// The number of records, from `from` on, before the first damaged block, and the time of the last frame of the block
/// before that.
fn whole_from(
    volume: &Volume,
    scan: &StoredScan,
    records: &[BlockRecord],
    from: usize,
    span: Span,
) -> Result<(usize, Option<Tai>), Error> {
    let tail = &records[from..];
    let pieces: Vec<Piece> = tail.iter().map_while(|record| piece_of(span, record)).collect();
    let (mut whole, mut end) = (from, None);
    read::<Error>(volume.block_device(), &pieces, |place, bytes| match bytes {
        Ok(bytes) if checksum(bytes) == tail[place].crc => {
            whole += 1;
            end = last_frame(scan, &tail[place], bytes).and_then(|it| scan.time_of_frame(it));
            Ok(ControlFlow::Continue(()))
        }
        Ok(_) | Err(_) => Ok(ControlFlow::Break(())),
    })?;
    Ok((whole, end))
}

/// Returns the last frame in the bytes of a block.
fn last_frame<'a>(scan: &StoredScan, record: &BlockRecord, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let frame_bytes = usize::try_from(scan.frame_bytes).ok().filter(|&bytes| bytes > 0)?;
    let first = (record.frames as usize).checked_sub(1)?.checked_mul(frame_bytes)?;
    bytes.get(first..first.checked_add(frame_bytes)?)
}

#[cfg(test)]
mod tests {
    use fullbore_core::completeness::{Completeness, Planned, Status};
    use fullbore_core::device::{Kind, Volume};
    use uuid::Uuid;

    use super::*;

    const S: i64 = 1_000_000_000;

    /// Frames a second in the blocks of these tests.
    const RATE: i64 = 1000;

    /// The time of the first frame: it arrives a millisecond later.
    const BEGIN: Tai = Tai(1_000 * S);

    /// A scan that was being recorded, planned for this many seconds from its first frame on.
    fn scan(seconds: i64) -> StoredScan {
        let volume = Volume::of_media(64 << 20, 128 << 10).unwrap();
        StoredScan {
            name: "r1_a".parse().unwrap(),
            uuid: Uuid::nil(),
            state: State::Recording,
            kind: Kind::Vdif,
            ending: Ending::Unknown,
            first: volume.data_first,
            limit: volume.data_last,
            bytes: 0,
            blocks: 0,
            block_bytes: 250 * 1032,
            begun: BEGIN.plus_ns(-S),
            ended: None,
            frame_bytes: 1032,
            frames_per_second: Some(RATE as u64),
            terms: Terms::default(),
            verdict: Verdict::Unproven,
            source: "udp://0.0.0.0:46220?format=vdif".into(),
            planned: Some(Planned { begin: Some(BEGIN), end: Some(BEGIN.plus_ns(seconds * S)) }),
            extract: Some(Extract { counted_by: Some(CountedBy::FrameTime), ..Extract::default() }),
        }
    }

    /// Records of blocks of a quarter of a second each.
    fn records(blocks: u32) -> Vec<BlockRecord> {
        let record = |number: u32| {
            let time = BEGIN.plus_ns(i64::from(number) * S / 4);
            BlockRecord {
                number,
                round: 0,
                bytes: 250 * 1032,
                crc: 0,
                first: 7 + i64::from(number) * RATE / 4,
                frames: 250,
                present: 250,
                time: Some(time),
                seen: Some(time.plus_ns(1_000_000)),
                offset: u64::from(number) * 250 * 1032,
            }
        };
        (0..blocks).map(record).collect()
    }

    fn recovered(scan: StoredScan, records: &[BlockRecord]) -> Completeness {
        let counted_by = counted_by(&scan);
        let account = account(&scan, counted_by, records, None);
        let extract = Some(Extract { counted_by, ..Extract::from(&account) });
        let (terms, verdict) = (account.terms, account.verdict);
        let scan = StoredScan { state: State::Recovered, terms, verdict, extract, ..scan };
        scan.completeness().expect("its frames are counted")
    }

    #[test]
    fn recovered_scan_does_not_cover_a_plan_that_goes_on_after_its_last_block() {
        let told = recovered(scan(10), &records(12));
        assert_eq!(told.status, Status::Incomplete);
        assert_eq!(
            told.headline,
            "INCOMPLETE: 3000 frames recorded; 7.0 s of the 10.0 s planned are not covered (7000 \
             frames): it ended 7.0 s early; it was recovered, and what was not on the disk by then \
             is not known"
        );
        assert!(told.covered.is_some());
        let late: Vec<BlockRecord> = records(12).split_off(4);
        let told = recovered(scan(3), &late);
        assert!(told.headline.contains("it began 1.0 s late"), "{}", told.headline);
    }

    #[test]
    fn single_block_lasts_from_its_first_to_its_last_frame_and_no_longer_than_is_known() {
        let scan = StoredScan { planned: None, ..scan(3) };
        let one = records(1);
        let covered = |end: Option<Tai>| {
            let account = account(&scan, counted_by(&scan), &one, end);
            let of = Extract::from(&account).beside;
            let ns = |it: fullbore_core::completeness::Covered| it.to.since(it.from);
            (of.covered.map(ns), of.received.map(ns))
        };
        let end = BEGIN.plus_ns(249 * S / RATE);
        let ns = Some(249 * S / RATE);
        assert_eq!(covered(Some(end)), (ns, ns));
        assert_eq!(covered(None), (None, None));
        let told = recovered(scan.clone(), &one);
        assert!(told.headline.starts_with("UNKNOWN: 250 frames recorded"), "{}", told.headline);
    }

    #[test]
    fn recovered_scan_that_covers_its_plan_is_not_called_incomplete() {
        let told = recovered(scan(3), &records(12));
        assert_eq!((told.status, told.uncovered), (Status::Unknown, None), "{}", told.headline);
        let first = told.headline.split(';').next();
        assert_eq!(first, Some("UNKNOWN: 3000 frames recorded, the 3.0 s planned"));
    }

    #[test]
    fn frames_that_are_played_back_are_compared_with_the_plan_by_their_arrival() {
        let mut played = records(12);
        played.iter_mut().for_each(|it| it.time = it.time.map(|time| time.plus_ns(-86_400 * S)));
        assert_eq!(recovered(scan(3), &played).uncovered, None);
        assert_eq!(recovered(scan(4), &played).uncovered.unwrap().ns / 1_000_000, 999);
        let mut timeless = records(12);
        timeless.iter_mut().for_each(|it| it.time = None);
        assert_eq!(recovered(scan(3), &timeless).uncovered, None);
        assert_eq!(recovered(scan(4), &timeless).uncovered.unwrap().frames, None);
    }

    #[test]
    fn recovered_scan_without_a_block_is_incomplete_if_it_was_planned_and_else_unknown() {
        let told = recovered(scan(10), &[]);
        assert_eq!((told.status, told.uncovered.unwrap().ns), (Status::Incomplete, 10 * S));
        assert!(told.headline.contains("died before any of its data was durable"));
        let told = recovered(StoredScan { planned: None, ..scan(10) }, &[]);
        assert_eq!(told.status, Status::Unknown);
    }

    #[test]
    fn fill_in_a_recovered_scan_is_lost_and_the_place_is_not_known() {
        let mut filled = records(12);
        filled[3].present -= 20;
        let told = recovered(StoredScan { planned: None, ..scan(3) }, &filled);
        assert_eq!((told.status, told.lost), (Status::Lost, 20));
        assert!(told.headline.contains("no loss counter survived"), "{}", told.headline);
        assert!(told.explanation.starts_with("unexplained: "), "{}", told.explanation);
    }

    #[test]
    fn records_of_frames_in_order_of_arrival_show_no_loss_and_exclude_none() {
        let scan = StoredScan { planned: None, extract: Some(Extract::default()), ..scan(3) };
        let told = recovered(scan, &records(12));
        assert_eq!(told.status, Status::Unknown);
        assert!(told.explanation.starts_with("unproven: "), "{}", told.explanation);
    }

    #[test]
    fn records_of_an_earlier_version_say_what_they_know() {
        let scan = StoredScan { planned: None, extract: None, ..scan(3) };
        let mut old = records(12);
        old.iter_mut().for_each(|it| it.seen = None);
        let told = recovered(scan.clone(), &old);
        assert_eq!((told.status, told.recorded, told.covered), (Status::Unknown, 3000, None));
        let bytes = StoredScan { frame_bytes: 0, source: "pattern:prbs31".into(), ..scan };
        let told = recovered(bytes, &old);
        assert!(told.headline.contains("3000 bytes recorded"), "{}", told.headline);
    }
}
