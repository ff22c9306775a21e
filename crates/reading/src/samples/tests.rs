//! Rows at any place against a decoding of all frames, one after the other.

use std::collections::BTreeMap;

use fullbore_core::gap::Cause;
use fullbore_core::manifest::Fill;
use fullbore_formats::samples::decode::Decoder;
use fullbore_formats::vdif::Header;
use fullbore_store::testing::{FRAME_BYTES, Laid, RATE, Store, StreamPlan};
use proptest::prelude::*;

use super::*;
use crate::{ErrorKind, OpenScan};

/// Samples of two bits in a frame.
const SAMPLES: u64 = (FRAME_BYTES as u64 - 32) * 4;

/// The values of each thread by frame number, from the headers alone.
fn decoded(laid: &Laid) -> BTreeMap<(u16, i64), Vec<f32>> {
    let decoder = Decoder::<f32>::new("ro2".parse().unwrap()).unwrap();
    let frames = laid.bytes[0].chunks(FRAME_BYTES as usize);
    let headers: Vec<(Header, &[u8])> =
        frames.map(|frame| (Header::read(frame).unwrap(), &frame[32..])).collect();
    let first = headers.iter().find(|(header, _)| !header.invalid()).unwrap().0;
    let place = |header: &Header| {
        let seconds = header.second().0 - first.second().0;
        seconds * RATE as i64 + i64::from(header.frame_number()) - i64::from(first.frame_number())
    };
    let received = headers.iter().filter(|(header, _)| !header.invalid());
    received
        .map(|(header, payload)| {
            let mut values = vec![0.0; SAMPLES as usize];
            decoder.decode(payload, &mut values);
            ((header.thread(), place(header)), values)
        })
        .collect()
}

fn check(plan: StreamPlan, rows: u64) {
    let store = Store::in_memory(2);
    let laid = store.lay_down("s_one", &[plan]);
    let expected = decoded(&laid);
    let open = OpenScan::open(&store.roots(), &laid.name, false).unwrap();
    let stream = open.stream("a").unwrap();
    let samples = Samples::of(stream, None).unwrap();
    assert_eq!(samples.count, rows * SAMPLES);
    let width = samples.lines.len();
    let ends = (0..=samples.count, 0..=samples.count.min(3 * SAMPLES), 0..width);
    proptest!(ProptestConfig::with_cases(48), |((from, length, column) in ends)| {
        let range = from..(from + length).min(samples.count);
        let columns: Vec<usize> = (0..width).chain([column]).collect();
        let places = (range.end - range.start) as usize * columns.len();
        let (mut values, mut valid) = (vec![7.0f32; places], vec![true; places]);
        samples.read(stream, range.clone(), &columns, &mut values, Some(&mut valid)).unwrap();
        for (row, sample) in range.enumerate() {
            let frame = (sample / SAMPLES) as i64;
            for (column, line) in columns.iter().enumerate() {
                let known = expected.get(&(samples.lines[*line].thread, frame));
                let known = known.map(|values| values[(sample % SAMPLES) as usize]);
                let place = row * columns.len() + column;
                let read = valid[place].then_some(values[place]);
                prop_assert_eq!(read, known, "row {}, column {}", sample, column);
                prop_assert!(valid[place] || values[place].is_nan());
            }
        }
    });
}

#[test]
fn rows_of_an_indexed_stream_are_those_of_its_frames() {
    let plan = StreamPlan::vdif("a").frames(220).gap(0, 0, Cause::Missing);
    check(plan.gap(40, 3, Cause::Missing).skip_blocks(3..4).invalid(&[7, 150]), 220);
}

#[test]
fn lines_are_in_the_order_of_threads_and_threads_may_lack_frames() {
    let plan = StreamPlan::vdif("a").threads(&[4, 1]).frames(300);
    check(plan.gap(51, 1, Cause::Missing).gap(80, 7, Cause::Late), 150);
}

#[test]
fn rows_of_a_sequential_stream_have_the_place_of_their_time() {
    let plan = StreamPlan::vdif("a").frames(260).fill(Fill::Omit);
    check(plan.gap(33, 90, Cause::Missing), 260);
    let plan = StreamPlan::vdif("a").threads(&[3, 2]).frames(240).fill(Fill::Omit);
    check(plan.gap(20, 31, Cause::Missing), 120);
}

#[test]
fn time_leads_to_rows() {
    let store = Store::in_memory(1);
    let laid = store.lay_down("s_one", &[StreamPlan::vdif("a").frames(200)]);
    let open = OpenScan::open(&store.roots(), &laid.name, false).unwrap();
    let stream = open.stream("a").unwrap();
    let samples = Samples::of(stream, None).unwrap();
    let start = samples.start.unwrap();
    let per_second = RATE * SAMPLES;
    assert_eq!(samples.row_at(stream, start).unwrap(), 0);
    assert_eq!(samples.row_at(stream, start.plus_ns(1_000_000_000)).unwrap(), per_second);
    assert_eq!(samples.row_at(stream, start.plus_ns(1)).unwrap(), 1);
    assert_eq!(samples.row_at(stream, start.plus_ns(-1)).unwrap(), 0);
    assert_eq!(samples.row_at(stream, start.plus_ns(i64::MAX / 4)).unwrap(), samples.count);
}

#[test]
fn what_is_not_there_is_refused() {
    let store = Store::in_memory(1);
    let plans = [StreamPlan::vdif("a").frames(200), StreamPlan::raw("b").frames(20)];
    let laid = store.lay_down("s_one", &plans);
    let open = OpenScan::open(&store.roots(), &laid.name, false).unwrap();
    let stream = open.stream("a").unwrap();
    let samples = Samples::of(stream, None).unwrap();
    let behind = samples.count..samples.count + 1;
    let error = samples.read::<f32>(stream, behind, &[0], &mut [0.0], None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Range, "{error}");
    let error = samples.read::<f32>(stream, 0..1, &[1], &mut [0.0], None).unwrap_err();
    assert!(error.to_string().contains("no channel 1"), "{error}");
    let error = Samples::of(open.stream("b").unwrap(), None).unwrap_err();
    assert!(error.to_string().contains("not described"), "{error}");
}
