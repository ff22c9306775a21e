//! Tests of journalled partial blocks.

use std::fs;
use std::path::{Path, PathBuf};

use fullbore_core::gap::Gap;
use fullbore_core::index::{self, Entry};
use fullbore_core::partial_block::{
    BlockState, Codec, Entry as TailEntry, Snapshot, partial_block_file,
};
use fullbore_store::crash_hooks;
use fullbore_store::inventory::side_file;
use fullbore_store::partial_blocks::litter_in;
use fullbore_time::Tai;

use super::*;

/// Removes the last blocks of a stream from chunk and index, as if they had never been full. Returns the journal file
/// that a recorder would have written.
fn taken_out(laid: &Laid, stream: usize, count: usize) -> Vec<u8> {
    let blocks = &laid.blocks[stream];
    let (kept, taken) = blocks.split_at(blocks.len() - count);
    let geometry = laid.manifest.streams[stream].geometry.unwrap();
    let mut pieces: Vec<BlockState> = Vec::new();
    for (member, block) in taken.iter().rev() {
        let whole = laid.chunk_path(stream, block.chunk);
        let part = laid
            .directory(stream, *member)
            .join(".fullbore")
            .join(format!("{}.part", whole.file_name().unwrap().to_str().unwrap()));
        let path = if whole.exists() { whole } else { part };
        fs::OpenOptions::new().write(true).open(path).unwrap().set_len(block.offset).unwrap();
        let index = laid.index_path(stream, *member);
        let (gaps, lengths) = cut_index(laid, stream, &index, block.sequence);
        pieces.insert(
            0,
            BlockState {
                first: block.first,
                bytes: block.bytes,
                frames: block.frames,
                present: block.present,
                invalid: block.invalid,
                time: block.time,
                seen: block.seen,
                gaps,
                lengths,
            },
        );
    }
    let codec = Codec::of_stream(laid.manifest.uuid, stream as u16);
    let mut at: usize = kept.iter().map(|(_, block)| block.bytes as usize).sum();
    let mut tail = Vec::new();
    for piece in &pieces {
        let bytes = &laid.bytes[stream][at..at + piece.bytes as usize];
        at += piece.bytes as usize;
        for (part, offset) in bytes.chunks(1000).zip((0..).step_by(1000)) {
            let entry = TailEntry::Bytes { first: piece.first, offset, bytes: part };
            codec.encode(&entry, &mut tail);
        }
    }
    let sequence = taken[0].1.sequence;
    let snapshot = Snapshot { sequence, at: Tai(1), geometry, blocks: pieces };
    codec.encode(&TailEntry::Snapshot(snapshot), &mut tail);
    tail
}

/// Removes the records of a block from an index, and the gap records behind it.
fn cut_index(laid: &Laid, stream: usize, path: &Path, gone: u64) -> (Vec<Gap>, Vec<u16>) {
    let codec = index::Codec::of_scan(laid.manifest.uuid);
    let (entries, _) = codec.decode_file(&fs::read(path).unwrap());
    let (mut gaps, mut all, mut behind) = (Vec::new(), Vec::new(), false);
    let mut kept = Vec::new();
    for (_, entry) in entries {
        match entry {
            Entry::Block(block) if block.sequence == gone => behind = true,
            Entry::Lengths { sequence, lengths, .. } if sequence == gone => all.extend(lengths),
            Entry::Gap(gap) if behind => gaps.push(gap),
            Entry::Mark { .. } => {}
            entry => kept.push(entry),
        }
    }
    let blocks = kept.iter().filter(|entry| matches!(entry, Entry::Block(_))).count() as u64;
    kept.push(Entry::Mark { blocks, at: Tai(0) });
    let file: Vec<u8> = kept.iter().flat_map(|it| codec.encode(stream as u16, it)).collect();
    fs::write(path, file).unwrap();
    (gaps, all)
}

fn put_tail(laid: &Laid, stream: usize, member: usize, sequence: u64, tail: &[u8]) -> PathBuf {
    let path = side_file(&laid.directory(stream, member), &partial_block_file(sequence));
    fs::write(&path, tail).unwrap();
    path
}

fn first_taken(laid: &Laid, stream: usize, count: usize) -> u64 {
    let blocks = &laid.blocks[stream];
    blocks[blocks.len() - count].1.sequence
}

fn litter(laid: &Laid, members: usize) -> Vec<PathBuf> {
    let streams = 0..laid.bytes.len();
    let all = streams.flat_map(|stream| (0..members).map(move |member| (stream, member)));
    all.flat_map(|(stream, member)| litter_in(&laid.directory(stream, member))).collect()
}

#[test]
fn what_was_kept_of_open_blocks_becomes_the_end_of_its_stream() {
    for (members, count) in [(1, 1), (2, 1), (2, 2), (3, 2)] {
        let store = Store::new(members);
        let laid = store.lay_down("r1_a", &each(StreamPlan::unsealed));
        for stream in 0..laid.bytes.len() {
            let tail = taken_out(&laid, stream, count);
            put_tail(&laid, stream, stream % members, first_taken(&laid, stream, count), &tail);
        }
        let recovery = recovered(&store, &laid);
        assert_verifies(&store, &laid);
        for (number, stream) in recovery.streams.iter().enumerate() {
            let told = (stream.tail, stream.tails_ignored, stream.found, stream.cut, stream.lost);
            assert_eq!(told, (count as u64, 0, 0, 0, 0), "{}", stream.name);
            assert_eq!(stream.terms, laid.accounts[number].terms, "{}", stream.name);
            assert!(bytes(&store, &laid, number) == laid.bytes[number], "{}", stream.name);
        }
        assert_eq!(litter(&laid, members), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_stream_of_which_no_block_was_ever_full_is_its_tail() {
    let store = Store::new(2);
    let plan = StreamPlan::vdif("a").frames(20).gap(3, 2, Cause::Missing).unsealed();
    let laid = store.lay_down("r1_a", &[plan]);
    let tail = taken_out(&laid, 0, 1);
    fs::remove_file(laid.index_path(0, 1)).unwrap();
    put_tail(&laid, 0, 1, 0, &tail);
    let recovery = recovered(&store, &laid);
    assert_eq!((recovery.streams[0].tail, recovery.streams[0].blocks), (1, 1));
    assert_eq!(recovery.streams[0].terms, laid.accounts[0].terms);
    assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
    assert_verifies(&store, &laid);
}

#[test]
fn a_tail_that_does_not_go_on_where_the_stream_ends_is_ignored_and_removed() {
    let whole = |laid: &Laid| {
        let tail = taken_out(laid, 0, 1);
        (tail, first_taken(laid, 0, 1))
    };
    let store = Store::new(2);
    for (name, harm) in [("damaged", 0), ("of another stream", 1), ("too far on", 2)] {
        let laid = store.lay_down(&format!("r1_a{harm}"), &[StreamPlan::vdif("a").unsealed()]);
        let (mut tail, sequence) = whole(&laid);
        match harm {
            0 => tail[2000] ^= 1,
            1 => {
                let other = Codec::of_stream(laid.manifest.uuid, 9);
                tail = Vec::new();
                other.encode(&TailEntry::Bytes { first: 0, offset: 0, bytes: b"x" }, &mut tail);
            }
            _ => {
                taken_out(&laid, 0, 2);
            }
        }
        put_tail(&laid, 0, 1, sequence, &tail);
        let recovery = recovered(&store, &laid);
        assert_verifies(&store, &laid);
        let stream = &recovery.streams[0];
        assert_eq!((stream.tail, stream.tails_ignored), (0, 1), "{name}");
        let is = bytes(&store, &laid, 0);
        assert!(is.len() < laid.bytes[0].len() && laid.bytes[0].starts_with(&is), "{name}");
        assert_eq!(litter(&laid, 2), Vec::<PathBuf>::new(), "{name}");
    }
}

#[test]
fn a_tail_whose_blocks_were_written_meanwhile_changes_nothing() {
    // The same scan elsewhere, before its last block was written.
    let elsewhere = Store::new(2);
    let before = elsewhere.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
    let (tail, sequence) = (taken_out(&before, 0, 1), first_taken(&before, 0, 1));
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
    put_tail(&laid, 0, 0, sequence, &tail);
    let recovery = recovered(&store, &laid);
    assert_eq!(recovery.streams[0].tail, 0);
    assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
    assert_verifies(&store, &laid);
    assert_eq!(litter(&laid, 2), Vec::<PathBuf>::new());
}

#[test]
fn of_two_tails_the_one_that_goes_on_is_taken() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
    let both = taken_out(&laid, 0, 2);
    put_tail(&laid, 0, 0, first_taken(&laid, 0, 2), &both);
    // A snapshot of an earlier moment, on the other member.
    let cut = both.len() / 2;
    put_tail(&laid, 0, 1, first_taken(&laid, 0, 2), &both[..cut]);
    let recovery = recovered(&store, &laid);
    assert_eq!((recovery.streams[0].tail, recovery.streams[0].tails_ignored), (2, 1));
    assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
    assert_verifies(&store, &laid);
}

#[test]
fn a_recovery_that_dies_anywhere_is_done_again_with_the_same_result() {
    for steps in 0.. {
        let store = Store::in_memory(2);
        let plans = [StreamPlan::vdif("a").gap(40, 3, Cause::Missing), StreamPlan::varying("d")];
        let laid = store.lay_down("r1_a", &plans.map(StreamPlan::unsealed));
        for stream in 0..2 {
            let tail = taken_out(&laid, stream, 2);
            put_tail(&laid, stream, stream, first_taken(&laid, stream, 2), &tail);
        }
        crash_hooks::after(steps);
        let died = recover(&store.roots(), &laid.name, Options::default(), &|_| {}).is_err();
        crash_hooks::after(u32::MAX);
        if !died {
            assert!(steps > 12, "it died at {steps} places only");
            return;
        }
        recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
        assert_verifies(&store, &laid);
        let scan = opened(&store, &laid);
        for stream in 0..2 {
            assert!(bytes(&store, &laid, stream) == laid.bytes[stream], "after {steps} steps");
            let account = scan.streams[stream].account.clone().unwrap();
            assert_eq!(account.terms, laid.accounts[stream].terms, "after {steps} steps");
            assert_eq!(account.unverified, 0, "after {steps} steps");
        }
        assert_eq!(litter(&laid, 2), Vec::<PathBuf>::new());
    }
}

#[test]
fn a_scan_is_removed_with_its_tails() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
    put_tail(&laid, 0, 0, 3, b"x");
    put_tail(&laid, 0, 0, 2, b"x");
    let removed = crate::remove::remove(&store.roots(), &laid.name).unwrap();
    assert_eq!(removed.kept, Vec::<PathBuf>::new());
    assert!(!laid.directory(0, 0).exists());
}
