use std::ops::Range;

use fullbore_core::gap::Cause;
use fullbore_core::manifest::Fill;
use fullbore_core::time::Tai;

use super::*;
use crate::store::read::Settings;
use crate::store::testing::{Laid, RATE, Store, StreamPlan, start};

fn opened(store: &Store, laid: &Laid) -> Scan {
    Scan::open(&store.roots(), &laid.name).unwrap()
}

fn all(stream: &Stream, positions: Range<usize>, settings: Settings) -> (Vec<u8>, Vec<What>) {
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
    assert_eq!(losses, vec![What::ChunkMissing { blocks: 1, bytes: 16384 }; 3]);
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
            What::BlocksAbsent { first, count: 3 } => *first,
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
fn where_frames_lie_as_they_came_a_time_finds_their_block() {
    let store = Store::new(2);
    let plan = StreamPlan::vdif("a").fill(Fill::Omit).gap(64, 40, Cause::Missing);
    let laid = store.lay_down("r1_a", &[plan]);
    let scan = opened(&store, &laid);
    let stream = &scan.streams[0];
    for placed in &stream.blocks {
        let time = placed.block.time.unwrap();
        assert_eq!(stream.index_at(time), Some(placed.block.first));
        assert_eq!(stream.index_at(time.plus_ns(1)), Some(placed.block.first));
    }
    let after = start().plus_ns(1 << 60);
    assert_eq!(stream.index_at(after), Some(960));
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
fn a_manifest_that_leads_out_of_the_store_is_not_believed() {
    let store = Store::new(1);
    let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
    let mut manifest = laid.manifest.clone();
    manifest.streams[0].directory = "../elsewhere".into();
    std::fs::write(laid.manifest_path(0, 0), manifest.to_json()).unwrap();
    let error = Scan::open(&store.roots(), &laid.name).unwrap_err();
    assert!(error.to_string().contains("../elsewhere"), "{error}");
}
