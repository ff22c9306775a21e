use std::ops::Range;

use fullbore_core::gap::Cause;
use fullbore_core::manifest::{Fill, Format};
use fullbore_formats::framed::FrameKind;
use fullbore_time::Tai;

use super::*;
use crate::read::Settings;
use crate::testing::{Laid, RATE, Store, StreamPlan, start};

fn opened(store: &Store, laid: &Laid) -> Scan {
    Scan::open(&store.roots(), &laid.name).unwrap()
}

fn all(
    stream: &StoredStream,
    positions: Range<usize>,
    settings: Settings,
) -> (Vec<u8>, Vec<DiagnosticKind>) {
    let reader = stream.read(positions, settings).unwrap();
    let (mut bytes, mut losses) = (Vec::new(), Vec::new());
    for item in reader {
        match item {
            Item::Block(block) => {
                bytes.extend_from_slice(block.bytes());
                losses.extend(block.damage.clone().map(|damage| damage.what));
            }
            Item::Lost(finding) => losses.push(finding.what),
        }
    }
    (bytes, losses)
}

#[test]
fn the_bytes_come_in_order_over_all_members() {
    for members in [1, 2, 5] {
        let store = Store::new(members);
        let plans =
            [StreamPlan::vdif("a"), StreamPlan::varying("b"), StreamPlan::raw("c").frames(1)];
        let laid = store.lay_down("r1_a", &plans);
        let scan = opened(&store, &laid);
        assert_eq!(scan.findings, []);
        for (stream, bytes) in scan.streams.iter().zip(&laid.bytes) {
            let read = all(stream, 0..usize::MAX, Settings::default());
            assert_eq!(read, (bytes.clone(), vec![]), "stream {}", stream.name);
        }
    }
}

#[test]
fn a_lost_chunk_is_told_in_its_place_and_the_rest_is_read() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    std::fs::remove_file(laid.chunk_path(0, 1)).unwrap();
    let scan = opened(&store, &laid);
    let (bytes, losses) = all(&scan.streams[0], 0..usize::MAX, Settings::default());
    let chunk = 3 * 16384;
    assert_eq!(bytes, [&laid.bytes[0][..chunk], &laid.bytes[0][2 * chunk..]].concat());
    assert_eq!(losses, vec![DiagnosticKind::ChunkMissing { blocks: 1, bytes: 16384 }; 3]);
    let [finding] = scan.findings.as_slice() else { panic!("{:?}", scan.findings) };
    assert_eq!(finding.frames, Some((96..192).into()));
}

#[test]
fn a_lost_index_is_told_where_its_blocks_would_stand() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    std::fs::remove_file(laid.index_path(0, 1)).unwrap();
    let scan = opened(&store, &laid);
    let (_, losses) = all(&scan.streams[0], 0..usize::MAX, Settings::default());
    let firsts: Vec<u64> = losses
        .iter()
        .map(|what| match what {
            DiagnosticKind::BlocksAbsent { first, count: 3 } => *first,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(firsts, [3, 9, 15, 21, 27]);
}

#[test]
fn frames_are_found_by_index_and_by_time() {
    let store = Store::new(2);
    let plan = StreamPlan::vdif("a").threads(&[0, 1]).gap(64, 40, Cause::Missing);
    let laid = store.lay_down("r1_a", &[plan]);
    let scan = opened(&store, &laid);
    let stream = &scan.streams[0];
    assert_eq!(stream.frames_per_second(), Some(2 * RATE));
    for index in [0, 2, 62, 64, 104, 500, 998] {
        let at = stream.position_of(index).unwrap();
        let block = &stream.blocks[at].block;
        assert!((block.first..stream.end_of(block)).contains(&index), "{index}");
        let time = stream.time_of(index).unwrap();
        assert_eq!(time, start().plus_ns(index / 2 * 10_000_000), "{index}");
        assert_eq!(stream.index_at(time), Some(index));
    }
    assert_eq!(stream.time_of(501), stream.time_of(500), "threads of one instant");
    assert_eq!(stream.index_at(Tai(0)), Some(0));
    assert!(stream.index_at(start().plus_ns(1 << 60)).unwrap() >= 1000);
}

#[test]
fn blocks_from_before_the_rate_was_known_have_their_time_from_later_ones() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let mut scan = opened(&store, &laid);
    let stream = &mut scan.streams[0];
    for placed in &mut stream.blocks[..5] {
        placed.block.time = None;
        placed.block.seen = Tai(0);
    }
    for index in [0, 40, 159, 160, 900] {
        let time = start().plus_ns(index * 10_000_000);
        assert_eq!(stream.time_of(index), Some(time));
        assert_eq!(stream.index_at(time), Some(index));
    }
}

#[test]
fn where_frames_lie_as_they_came_a_time_finds_their_block_and_about_where_in_it() {
    let store = Store::new(2);
    let plan = StreamPlan::vdif("a").fill(Fill::Omit).gap(64, 40, Cause::Missing);
    let laid = store.lay_down("r1_a", &[plan]);
    let scan = opened(&store, &laid);
    let stream = &scan.streams[0];
    for placed in &stream.blocks {
        let time = placed.block.time.unwrap();
        assert_eq!(stream.index_at(time), Some(placed.block.first));
        let next = stream.index_at(time.plus_ns(1)).unwrap();
        assert_eq!(next, placed.block.first + 1);
        assert_eq!(stream.index_at(stream.time_near(next).unwrap()), Some(next));
    }
    let after = start().plus_ns(1 << 60);
    assert_eq!(stream.index_at(after), Some(960));
}

/// Nanoseconds of a block at the rate of one thread.
const BLOCK_NS: i64 = 320_000_000;

/// Returns a sequential stream whose blocks arrived at their rate, `late` after the last frame's time.
fn as_it_came(store: &Store, late: i64, frames: u64) -> StoredStream {
    let plan = StreamPlan::vdif("a").fill(Fill::Omit).frames(frames);
    let laid = store.lay_down(&format!("r1_{frames}_{}", late.unsigned_abs()), &[plan]);
    let mut stream = opened(store, &laid).streams.remove(0);
    for (n, placed) in stream.blocks.iter_mut().enumerate() {
        placed.block.seen = start().plus_ns(late + n as i64 * BLOCK_NS);
    }
    let account = stream.account.as_mut().unwrap();
    let length = (frames as i64 - 1) * 10_000_000;
    account.first.as_mut().unwrap().seen = start().plus_ns(late);
    account.last.as_mut().unwrap().seen = start().plus_ns(late + length);
    stream
}

#[test]
fn all_blocks_go_by_the_clock_of_the_frames_once_some_of_them_tell_it() {
    let store = Store::new(1);
    const YEARS: i64 = 6 * 365 * 86_400 * 1_000_000_000;
    for late in [0, YEARS, -YEARS] {
        for (untimed, sealed) in [(0..4, true), (0..4, false), (7..9, true), (30..32, false)] {
            let mut stream = as_it_came(&store, late, 1000 + 24);
            stream.blocks[untimed].iter_mut().for_each(|placed| placed.block.time = None);
            let Format::Frames { frames_per_second, .. } = &mut stream.format else {
                unreachable!()
            };
            (*frames_per_second, stream.account) = (None, stream.account.filter(|_| sealed));
            for (n, placed) in stream.blocks.iter().enumerate() {
                let time = start().plus_ns(n as i64 * BLOCK_NS);
                assert_eq!(stream.time_of_block(&placed.block), time, "block {n}, {late} ns late");
                assert_eq!(stream.index_at(time), Some(placed.block.first));
            }
            for index in [0, 1, 31, 32, 100, 1000, 1023] {
                let time = start().plus_ns(index * 10_000_000);
                assert_eq!(stream.time_near(index), Some(time), "frame {index}, {late} ns late");
                assert_eq!(stream.index_at(time), Some(index));
            }
        }
    }
}

#[test]
fn what_the_account_tells_of_the_ends_outweighs_when_blocks_came() {
    let store = Store::new(1);
    let mut stream = as_it_came(&store, 5, 100);
    // The host was delayed before the second and the third block.
    for (n, placed) in stream.blocks.iter_mut().enumerate() {
        placed.block.seen = placed.block.seen.plus_ns([0, BLOCK_NS, BLOCK_NS, 0][n]);
        placed.block.time = placed.block.time.filter(|_| n == 2);
    }
    let time = |n: usize| stream.time_of_block(&stream.blocks[n].block).since(start());
    assert_eq!((time(0), time(2)), (0, 2 * BLOCK_NS));
    assert!(time(1) > BLOCK_NS && time(1) < 2 * BLOCK_NS, "{}", time(1));
    assert_eq!(stream.time_near(99), Some(start().plus_ns(990_000_000)));
}

#[test]
fn the_last_block_of_what_tells_no_time_takes_its_share_of_the_rate_before_it() {
    let store = Store::new(1);
    for (sealed, untimed) in [(true, true), (false, true), (false, false)] {
        let mut stream = as_it_came(&store, 0, 104);
        if untimed {
            stream.blocks.iter_mut().for_each(|placed| placed.block.time = None);
        }
        // After a recovery, the arrival of the last block is the latest known time.
        let account = stream.account.as_mut().filter(|_| !sealed);
        let last = stream.blocks[3].block;
        if let Some(edge) = account.and_then(|account| account.last.as_mut()) {
            (edge.seen, edge.time) = (last.seen, last.time);
        }
        // Eight frames of the 32 in a block.
        assert_eq!(stream.time_near(103), Some(start().plus_ns(1_030_000_000)));
        assert_eq!(stream.time_near(99), Some(start().plus_ns(990_000_000)));
        assert_eq!(stream.index_at(start().plus_ns(1_030_000_001)), Some(104));
    }
}

#[test]
fn a_single_block_is_told_by_the_account_or_not_at_all() {
    let store = Store::new(1);
    let mut stream = as_it_came(&store, 0, 20);
    stream.blocks[0].block.time = None;
    let mut blind = StoredStream { account: None, ..stream.clone() };
    assert!(stream.is_timed() && !blind.is_timed());
    assert_eq!(stream.index_at(start().plus_ns(95_000_000)), Some(10));
    assert_eq!(stream.time_near(10), Some(start().plus_ns(100_000_000)));
    let behind = stream.time_near(20).unwrap();
    assert!(behind > stream.time_near(19).unwrap() && stream.index_at(behind) == Some(20));
    blind = StoredStream { blocks: Vec::new(), clock: Default::default(), ..blind };
    assert!(!blind.is_timed() && blind.time_near(0).is_none() && blind.index_at(start()).is_none());
}

#[test]
fn streams_that_tell_no_time_keep_in_step_with_those_that_do() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_b", &[StreamPlan::vdif("a"), StreamPlan::raw("b")]);
    let mut scan = opened(&store, &laid);
    for placed in scan.streams.iter_mut().flat_map(|stream| &mut stream.blocks) {
        placed.block.seen = placed.block.seen.plus_ns(-7_000_000_000);
    }
    let ahead: Vec<i64> = scan.streams.iter().map(|stream| scan.ahead_ns(stream)).collect();
    assert_eq!(ahead, [0, 7_000_000_000]);
}

#[test]
fn frames_tell_their_index_and_whether_they_are_fill() {
    let store = Store::new(1);
    let gap = |plan: StreamPlan| plan.frames(100).gap(10, 5, Cause::Missing);
    let plans = [gap(StreamPlan::vdif("a")), gap(StreamPlan::vdif("b").fill(Fill::Omit))];
    let laid = store.lay_down("r1_a", &plans);
    let scan = opened(&store, &laid);
    for (stream, bytes) in scan.streams.iter().zip(&laid.bytes) {
        let block = &stream.blocks[0].block;
        let fill: Vec<i64> = stream
            .frames(block, &bytes[..block.bytes as usize])
            .filter(|frame| frame.fill)
            .map(|frame| frame.index)
            .collect();
        let expected = if stream.is_filled() { 10..15 } else { 0..0 };
        assert_eq!(fill, expected.collect::<Vec<i64>>());
    }
}

#[test]
fn lengths_that_vary_are_found_again() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::varying("a").frames(300)]);
    let scan = opened(&store, &laid);
    let stream = &scan.streams[0];
    let lengths = stream.blocks.iter().flat_map(|placed| scan.lengths(placed).unwrap());
    let expected = (0..300).map(|index| 64 + (index * 37) % 900);
    assert_eq!(lengths.collect::<Vec<u16>>(), expected.collect::<Vec<u16>>());
}

#[test]
fn two_scans_of_one_name_are_not_mixed() {
    let store = Store::new(2);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let mut other = laid.manifest.clone();
    other.uuid = uuid::Uuid::from_u128(9);
    std::fs::write(laid.manifest_path(0, 1), other.to_json()).unwrap();
    let error = Scan::open(&store.roots(), &laid.name).unwrap_err();
    assert!(matches!(error, inventory::Error::TwoScans { .. }), "{error}");
}

#[test]
fn of_copies_the_one_is_believed_that_tells_most_of_what_the_streams_are() {
    for older in 0..2 {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
        let newer = Scan::open(&store.roots(), &laid.name).unwrap().manifest;
        let mut manifest = newer.clone();
        // Like a manifest that was written before the first frame arrived.
        manifest.streams[0].format = Format::Frames {
            kind: FrameKind::Vdif,
            frames_per_second: None,
            derived: false,
            threads: vec![],
        };
        manifest.streams[0].geometry = None;
        std::fs::write(laid.manifest_path(0, older), manifest.to_json()).unwrap();
        let scan = Scan::open(&store.roots(), &laid.name).unwrap();
        assert_eq!(scan.manifest.streams, newer.streams);
    }
}

#[test]
fn a_manifest_that_leads_out_of_the_store_is_not_believed() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let mut manifest = laid.manifest.clone();
    manifest.streams[0].directory = "../elsewhere".into();
    std::fs::write(laid.manifest_path(0, 0), manifest.to_json()).unwrap();
    let error = Scan::open(&store.roots(), &laid.name).unwrap_err();
    assert!(error.to_string().contains("../elsewhere"), "{error}");
}
