//! Recordings of a PandABlocks server, and the dumps of its client's tests, split and cut at every significant
//! position. Their origin is in `tests/data/panda`.

use std::io::Read;

use fullbore_time::Tai;
use proptest::prelude::*;

use super::codec::Error;
use super::*;

fn recording(name: &str) -> Vec<u8> {
    let path = format!("{}/../../tests/data/panda/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    if !name.ends_with(".gz") {
        return [b"OK\n", bytes.as_slice()].concat().replace_start();
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
    plain
}

trait ReplaceStart {
    /// Some dumps begin with an `OK` of their own.
    fn replace_start(self) -> Vec<u8>;
}

impl ReplaceStart for Vec<u8> {
    fn replace_start(mut self) -> Vec<u8> {
        if self.starts_with(b"OK\nOK\n") {
            self.drain(..3);
        }
        self
    }
}

/// The results of a reader: events without payload, the payload, and the totals.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    events: Vec<Event>,
    payload: Vec<u8>,
    /// Samples certified in order of arrival, for each acquisition.
    certified: Vec<u64>,
    tallies: Vec<ConnectionTotals>,
    error: Option<Error>,
}

/// Reads pieces as a recorder does. The connection then closes.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Seen {
    let mut seen = Seen::default();
    let mut decoder = Decoder::new();
    let mut certifier: Option<SampleValidator> = None;
    'pieces: for mut piece in pieces {
        loop {
            let event = match decoder.want() {
                Want::Payload { bytes } => {
                    let taken = (bytes as usize).min(piece.len());
                    seen.payload.extend_from_slice(&piece[..taken]);
                    piece = &piece[taken..];
                    decoder.payload_taken(taken as u64)
                }
                Want::Text { .. } => match decoder.feed(piece) {
                    Ok((taken, event)) => {
                        piece = &piece[taken..];
                        event
                    }
                    Err(error) => {
                        let ending = Ending::from(&error);
                        seen.tallies.extend(certifier.take().map(|c| c.lost(ending)));
                        seen.error = Some(error);
                        break 'pieces;
                    }
                },
            };
            let Some(event) = event else { break };
            match (&event, &mut certifier) {
                (Event::Start { header, .. }, none) => {
                    *none = Some(SampleValidator::new(header));
                    seen.certified.push(0);
                }
                (Event::Frame { bytes }, Some(certifier)) => {
                    *seen.certified.last_mut().unwrap() += certifier.frame(*bytes);
                }
                (Event::FrameEnd, Some(certifier)) => {
                    *seen.certified.last_mut().unwrap() += certifier.frame_end();
                }
                (Event::End { samples, reason }, some) => {
                    let tally = some.take().unwrap().end(*samples, reason.clone());
                    *seen.certified.last_mut().unwrap() = tally.certified;
                    seen.tallies.push(tally);
                }
                (Event::Ready, _) => {}
                (event, None) => panic!("{event:?} before a header"),
            }
            seen.events.push(event);
        }
        if let Want::Text { .. } = decoder.want() {
            assert!(piece.is_empty(), "the decoder left {} bytes", piece.len());
        }
    }
    seen.tallies.extend(certifier.map(|c| c.lost(Ending::ConnectionLost)));
    seen
}

fn whole(bytes: &[u8]) -> Seen {
    let seen = read([bytes]);
    assert_eq!(seen.error, None);
    seen
}

fn words(payload: &[u8]) -> Vec<u32> {
    payload.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

const RAW: [&str; 3] = ["raw_ok.bin.gz", "raw_texthdr.bin.gz", "raw_anon_samples.bin.gz"];
const SMALL: [&str; 2] = ["client-dumps/slow_dump.bin", "client-dumps/fast_dump.bin"];
const ALL: [&str; 10] = [
    "raw_ok.bin.gz",
    "raw_texthdr.bin.gz",
    "raw_anon_samples.bin.gz",
    "raw_2acq.bin.gz",
    "scaled_ok.bin.gz",
    "scaled_overrun.bin.gz",
    "client-dumps/slow_dump.bin",
    "client-dumps/fast_dump.bin",
    "client-dumps/raw_dump.bin",
    "client-dumps/raw_dump_no_duration.bin",
];

#[test]
fn raw_recordings_hold_every_sample_whole() {
    for name in RAW {
        let seen = whole(&recording(name));
        let [tally] = seen.tallies.as_slice() else { panic!("{name}") };
        assert_eq!((tally.certified, tally.withheld, tally.cut), (5000, 0, 0), "{name}");
        assert_eq!(tally.ending, Ending::End(EndReason::Ok));
        assert!(tally.agrees());
        let expected: Vec<u32> = (0..5000).flat_map(|i| [i; 15]).collect();
        assert_eq!(words(&seen.payload), expected, "{name}");
    }
}

#[test]
fn two_acquisitions_follow_one_another_on_one_connection() {
    let seen = whole(&recording("raw_2acq.bin.gz"));
    assert_eq!(seen.certified, [5000, 5000]);
    let armed: Vec<Tai> = seen
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Start { header, .. } => header.arm_time,
            _ => None,
        })
        .collect();
    assert!(armed[1].since(armed[0]) > 600_000_000, "{armed:?}");
    assert_eq!(words(&seen.payload)[5000 * 15..][..16], [[0; 15].as_slice(), &[1]].concat());
}

#[test]
fn an_overrun_of_scaled_samples_withholds_nothing() {
    let seen = whole(&recording("scaled_overrun.bin.gz"));
    assert_eq!(seen.tallies[0].certified, 49_772);
    assert_eq!(seen.tallies[0].ending, Ending::End(EndReason::DataOverrun));
    assert_eq!(seen.payload.len(), 49_772 * 84);
    assert_eq!(seen.events.iter().filter(|e| **e == Event::FrameEnd).count(), 64);
}

#[test]
fn an_overrun_of_raw_samples_withholds_the_last_frame() {
    let dump = recording("client-dumps/raw_dump.bin");
    let end = dump.len() - b"END 10000 Disarmed\n".len();
    assert!(dump[end..].starts_with(b"END "));
    let overrun = [&dump[..end], b"END 10000 Data overrun\n"].concat();
    let seen = whole(&overrun);
    let [tally] = seen.tallies.as_slice() else { panic!() };
    assert_eq!((tally.withheld, tally.certified), (1065, 10_000 - 1065));
    assert_eq!(tally.ending.to_string(), "Data overrun");
    assert!(tally.agrees());
}

#[test]
fn the_header_of_a_recording_is_read_field_by_field() {
    let seen = whole(&recording("raw_ok.bin.gz"));
    let Some(Event::Start { header, text }) = seen.events.get(1) else { panic!() };
    assert_eq!(header.arm_time, Some("2026-11-21T20:30:53.935115774Z".parse().unwrap()));
    assert_eq!((header.missed, header.sample_bytes, header.process), (0, 60, Process::Raw));
    assert_eq!(header.hw_time_offset_ns, None);
    assert_eq!(header.fields.len(), 11);
    let bits = &header.fields[0];
    assert_eq!((bits.column().as_str(), bits.kind), ("PCAP.BITS0.Value", Kind::Uint32));
    assert_eq!(bits.scaling, None);
    let millimetres = Scaling { scale: 0.5, offset: 3.0, units: "mm".to_owned() };
    assert_eq!(header.fields[3].scaling, Some(millimetres));
    assert_eq!(header.fields[1].scaling.as_ref().unwrap().units, "", "unset units are empty");
    assert_eq!((header.fields[10].offset_bytes, header.fields[10].kind), (52, Kind::Int64));
    assert_eq!(header.to_xml().replace("\"\"", "\"(null)\""), *text, "and written as it came");
}

#[test]
fn text_and_xml_say_the_same() {
    let of = |name: &str| match whole(&recording(name)).events.swap_remove(1) {
        Event::Start { header, text } => (header, text),
        other => panic!("{other:?}"),
    };
    let ((mut xml, _), (text, raw)) = (of("raw_ok.bin.gz"), of("raw_texthdr.bin.gz"));
    assert_eq!(text.to_text().replace("units: \n", "units: (null)\n") + "\n", raw);
    (xml.arm_time, xml.start_time) = (text.arm_time, text.start_time);
    assert_eq!(xml, text);
}

#[test]
fn the_gate_that_old_servers_do_not_list_is_the_first_column() {
    let seen = whole(&recording("client-dumps/raw_dump_no_duration.bin"));
    let Some(Event::Start { header, .. }) = seen.events.get(1) else { panic!() };
    let gate = &header.fields[0];
    assert_eq!((gate.column().as_str(), gate.kind), ("PCAP.SAMPLES.Value", Kind::Uint32));
    assert_eq!(header.fields[1].offset_bytes, 4);
    assert_eq!(words(&seen.payload)[0], 125);
    assert_eq!(seen.tallies[0].certified, 10_000);
}

#[test]
fn every_way_of_splitting_a_dump_in_two_decodes_alike() {
    for name in SMALL {
        let dump = recording(name);
        let once = whole(&dump);
        for at in 0..=dump.len() {
            assert_eq!(read([&dump[..at], &dump[at..]]), once, "{name}, split at {at}");
        }
        for size in 1..=dump.len() {
            assert_eq!(read(dump.chunks(size)), once, "{name}, pieces of {size}");
        }
    }
}

/// Returns the positions in and around all bytes other than payload.
fn seams(dump: &[u8]) -> Vec<usize> {
    let mut at = 0;
    let mut seams: Vec<usize> = Vec::new();
    let mut decoder = Decoder::new();
    while at < dump.len() {
        let start = at;
        match decoder.want() {
            Want::Payload { bytes } => {
                decoder.payload_taken(bytes);
                at += bytes as usize;
            }
            Want::Text { .. } => at += decoder.feed(&dump[at..]).unwrap().0,
        }
        let text = if at - start > 4096 { start + 8 } else { at };
        seams.extend(start.saturating_sub(8)..text + 8);
    }
    seams.retain(|&at| at <= dump.len());
    seams.sort_unstable();
    seams.dedup();
    seams
}

#[test]
fn recordings_split_at_every_seam_decode_alike() {
    for name in ALL {
        let dump = recording(name);
        let once = whole(&dump);
        let step = if dump.len() > 1 << 20 { 7 } else { 1 };
        for at in seams(&dump).into_iter().step_by(step) {
            let seen = read([&dump[..at], &dump[at..]]);
            assert!(seen == once, "{name}, split at {at}");
        }
        assert!(read(dump.chunks(1)) == once, "{name}, byte by byte");
    }
}

#[test]
fn a_stream_cut_anywhere_certifies_only_what_the_whole_one_does() {
    for name in SMALL {
        let dump = recording(name);
        let once = whole(&dump);
        for at in 0..dump.len() {
            let cut = read([&dump[..at]]);
            assert_eq!(cut.error, None, "{name}: a cut at {at} is a lost connection");
            for (cut, all) in cut.tallies.iter().zip(&once.tallies) {
                assert!(cut.certified <= all.certified, "{name}, cut at {at}");
                let sent_all = cut.ending != Ending::ConnectionLost;
                assert_eq!(sent_all, cut == all, "{name}, cut at {at}");
            }
        }
    }
}

#[test]
fn raw_samples_are_certified_by_what_follows_their_frame() {
    let dump = recording("raw_ok.bin.gz");
    let once = whole(&dump);
    let frames: Vec<u64> = once
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Frame { bytes } => Some(bytes / 60),
            _ => None,
        })
        .collect();
    for at in seams(&dump) {
        let cut = read([&dump[..at]]);
        let Some(tally) = cut.tallies.first() else { continue };
        let begun = cut.events.iter().filter(|e| matches!(e, Event::Frame { .. })).count();
        let ended = cut.events.iter().filter(|e| **e == Event::FrameEnd).count();
        let sum = |n: usize| frames[..n].iter().sum::<u64>();
        if tally.sent_by_server.is_none() {
            assert_eq!(tally.certified, sum(begun.saturating_sub(1)), "cut at {at}");
            assert_eq!(tally.received, sum(ended), "cut at {at}");
            assert_eq!(tally.cut, sum(begun) - sum(ended), "cut at {at}");
        }
    }
}

proptest! {
    #[test]
    fn pieces_of_any_sizes_decode_alike(sizes in prop::collection::vec(1usize..40_000, 1..40)) {
        let dump = recording("raw_2acq.bin.gz");
        let once = whole(&dump);
        let mut rest = dump.as_slice();
        let mut pieces = Vec::new();
        for size in sizes.into_iter().cycle() {
            let (piece, after) = rest.split_at(size.min(rest.len()));
            pieces.push(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert!(read(pieces) == once);
    }

    #[test]
    fn any_byte_changed_panics_nowhere_and_balances(at in 0usize..3794, byte: u8) {
        let mut dump = recording("client-dumps/fast_dump.bin");
        let at = at % dump.len();
        dump[at] = byte;
        for tally in read([dump.as_slice()]).tallies {
            prop_assert_eq!(tally.received, tally.certified + tally.withheld);
        }
    }

    #[test]
    fn any_bytes_are_read_as_headers_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _ = Header::from_xml(&bytes);
        let _ = Header::from_text(&bytes);
    }

    #[test]
    fn numbers_are_printed_as_c_does_and_read_back(value in -1e30f64..1e30, digits in 1usize..17) {
        let back: f64 = general(value, digits).parse().unwrap();
        let error = ((back - value) / value).abs();
        prop_assert!(value == 0.0 || error <= 0.5 * 10f64.powi(1 - digits as i32) * 1.0001);
    }
}

#[test]
fn numbers_are_printed_as_c_prints_them() {
    for (value, digits, text) in [
        (8e-9, 12, "8e-09"),
        (1.0, 12, "1"),
        (0.0, 12, "0"),
        (0.5, 12, "0.5"),
        (-1234.5678, 10, "-1234.5678"),
        (1e-4, 10, "0.0001"),
        (123_456_789_012.0, 10, "1.23456789e+11"),
        (9_999_999_999.9, 10, "1e+10"),
        (100.0, 1, "1e+02"),
        (f64::NAN, 10, "nan"),
        (f64::NEG_INFINITY, 10, "-inf"),
    ] {
        assert_eq!(general(value, digits), text);
    }
}

const DATA: &str = r#"<data missed="0" process="Raw" format="Framed" sample_bytes="4" />"#;
const FIELD: &str =
    r#"<field name="A.B" type="int32" capture="Value" scale="1" offset="0" units="" />"#;

fn xml(data: &str, fields: &str) -> Result<Header, HeaderError> {
    Header::from_xml(format!("<header>{data}<fields>{fields}</fields></header>").as_bytes())
}

#[test]
fn a_header_that_lies_is_refused_and_the_lie_is_named() {
    xml(DATA, FIELD).unwrap();
    for (from, to, word) in [
        ("\"4\"", "\"12\"", "12 bytes"),
        ("\"4\"", "\"0\"", "sample_bytes"),
        ("\"4\"", "\"4294967295\"", "sample_bytes"),
        ("\"4\"", "\"99999999999\"", "sample_bytes"),
        ("\"0\" process", "\"-1\" process", "missed"),
        ("missed=\"0\"", "", "missed"),
        ("missed=\"0\"", "missed=\"18446744073709551615\"", "no PandA takes so many"),
        ("missed=\"0\"", "missed=\"4611686018427387905\"", "no PandA takes so many"),
        ("Raw", "Cooked", "Cooked"),
        ("Framed", "ASCII", "framed"),
        ("format=\"Framed\"", "", "format"),
        ("missed", "arm_time=\"yesterday\" missed", "arm_time"),
        ("missed", "hw_time_offset_ns=\"x\" missed", "hw_time_offset_ns"),
        ("int32", "float16", "A.B.type=\"float16\""),
        ("int32", "int64", "take 8"),
        ("Value", "Mean", "sum"),
        ("A.B", "../A", "name"),
        ("A.B", "", "name"),
        ("scale=\"1\"", "", "scale of A.B"),
        ("scale=\"1\"", "scale=\"inf\"", "finite"),
        ("offset=\"0\"", "offset=\"nought\"", "A.B.offset"),
        ("<data", "<date", "data"),
        ("<field ", "<feld ", "fields"),
        ("/>", "", "XML"),
        ("name=\"A.B\"", "name=\"A.B\" name=\"C\"", "XML"),
    ] {
        let (data, field) = (DATA.replace(from, to), FIELD.replace(from, to));
        let error = xml(&data, &field).unwrap_err().to_string();
        assert!(error.contains(word), "{from} → {to}: {error}");
    }
    assert!(Header::from_xml(&[b' '; 70_000]).is_err());
    assert!(Header::from_xml("<a>".repeat(9000).as_bytes()).is_err());
}

#[test]
fn units_cut_inside_a_character_and_entities_are_read() {
    let of = |units: &[u8]| {
        let (before, after) = FIELD.split_once("units=\"").unwrap();
        let start = format!("<header>{DATA}<fields>{before}units=\"");
        let header = [start.as_bytes(), units, after.as_bytes(), b"</fields></header>"].concat();
        Header::from_xml(&header).unwrap().fields.remove(0).scaling.unwrap().units
    };
    assert_eq!(of("µm".as_bytes()), "µm");
    assert_eq!(of(b"30 \xC2"), "30 \u{FFFD}");
    assert_eq!(of(b"&lt;&amp;&gt;&quot;&apos;"), "<&>\"'");
    assert_eq!(of(b"(null)"), "");
}

#[test]
fn times_may_have_any_digits_or_be_absent() {
    let at = |time: &str| {
        let data = DATA.replace("missed", &format!("arm_time=\"{time}\" missed"));
        xml(&data, FIELD).unwrap().arm_time.unwrap()
    };
    assert_eq!(at("2026-11-21T20:30:53.935Z").0 % 1_000_000_000, 935_000_000);
    assert_eq!(at("2026-11-21T20:30:53.935115774123Z").0 % 1_000_000_000, 935_115_774);
    assert_eq!(at("2026-11-21T20:30:53Z").0 % 1_000_000_000, 0);
    assert_eq!(xml(DATA, FIELD).unwrap().arm_time, None);
}

const START: &str = "OK\n<header>\n<data missed=\"7\" process=\"Raw\" format=\"Framed\" sample_bytes=\"4\" />\n<fields>\n<field name=\"A.B\" type=\"int32\" capture=\"Value\" />\n</fields>\n</header>\n\n";

fn after_start(rest: &[u8]) -> Seen {
    read([[START.as_bytes(), rest].concat().as_slice()])
}

#[test]
fn an_empty_frame_is_legal_and_certifies() {
    let seen = after_start(b"BIN \x0c\0\0\0abcdBIN \x08\0\0\0END 1 Data overrun\n");
    assert_eq!(seen.error, None);
    assert_eq!((seen.tallies[0].certified, seen.tallies[0].withheld), (1, 0));
    assert_eq!(seen.payload, b"abcd");
}

#[test]
fn payload_that_looks_like_a_tag_is_payload() {
    let seen = after_start(b"BIN \x10\0\0\0END BIN END 2 Ok\n");
    assert_eq!((seen.payload.as_slice(), seen.tallies[0].certified), (b"END BIN ".as_slice(), 2));
}

#[test]
fn anything_else_at_a_boundary_is_damage_and_nothing_after_it_is_believed() {
    for (rest, word) in [
        (b"BIN \x0c\0\0\0abcdBIM \x0c\0\0\0".as_slice(), "BIM "),
        (b"BIN \x0c\0\0\0abcdBIN \x07\0\0\0", "7 bytes"),
        (b"BIN \x0c\0\0\0abcdBIN \x0b\0\0\0", "whole number"),
        (b"BIN \x0c\0\0\0abcdBIN \xff\xff\xff\xff", "more than any"),
        (b"BIN \x0c\0\0\0abcdEND \n", "END"),
        (b"BIN \x0c\0\0\0abcdEND x Ok\n", "END x Ok"),
        (b"BIN \x0c\0\0\0abcdEND 99999999999999999999999 Ok\n", "END 999"),
        (b"BIN \x0c\0\0\0abcdEND 18446744073709551615 Ok\n", "END 184"),
    ] {
        let seen = after_start(rest);
        let error = seen.error.expect("an error").to_string();
        assert!(error.contains(word), "{error}");
        assert_eq!((seen.tallies[0].certified, seen.tallies[0].withheld), (0, 1));
        assert_eq!(seen.tallies[0].missed, 7);
    }
    let endless = [START.as_bytes(), b"END ", &[b'x'; 2000]].concat();
    assert!(matches!(read([endless.as_slice()]).error, Some(Error::LongLine { .. })));
    let mut decoder = Decoder::new();
    decoder.feed(b"OOPS\n").unwrap_err();
    assert!(decoder.feed(b"OK\n").is_err(), "an error is for ever");
}

#[test]
fn rubbish_before_a_header_is_skipped_up_to_a_bound() {
    let (ok, header) = START.split_at(3);
    let rubbish = |lines: usize| format!("{ok}{}{header}", "no header here\n".repeat(lines));
    assert_eq!(read([rubbish(100).as_bytes()]).events.len(), 2);
    let error = read([rubbish(10_000).as_bytes()]).error;
    assert!(matches!(error, Some(Error::NoHeader { .. })), "{error:?}");
}

#[test]
fn a_refusal_says_what_the_server_said() {
    let seen = read([b"ERR Invalid data capture option\n".as_slice()]);
    assert!(seen.error.unwrap().to_string().contains("Invalid data capture option"));
    let web = read([b"HTTP/1.1 400 Bad Request\r\n".as_slice()]);
    assert!(matches!(web.error, Some(Error::NoPanda { .. })));
}

#[test]
fn every_reason_is_read_and_only_two_are_good() {
    for reason in EndReason::KNOWN {
        let seen = after_start(format!("END 0 {reason}\n").as_bytes());
        assert_eq!(seen.tallies[0].ending, Ending::End(reason));
    }
    assert_eq!(EndReason::KNOWN.iter().filter(|reason| reason.is_good()).count(), 2);
    let odd = after_start(b"BIN \x0c\0\0\0abcdEND 1 Cosmic rays\n");
    assert_eq!(odd.tallies[0].ending, Ending::End(EndReason::Other("Cosmic rays".to_owned())));
    assert_eq!(odd.tallies[0].withheld, 1);
}

#[test]
fn a_count_that_does_not_agree_is_seen() {
    let seen = after_start(b"BIN \x0c\0\0\0abcdEND 2 Ok\n");
    assert!(!seen.tallies[0].agrees());
}
