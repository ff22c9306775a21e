//! Files made by hand, and what is found in them.

use proptest::prelude::*;

use super::*;

/// A file in the byte order of its segments.
struct Bytes {
    bytes: Vec<u8>,
    big_endian: bool,
}

impl Bytes {
    fn number<const N: usize>(&mut self, little: [u8; N]) -> &mut Self {
        let mut bytes = little;
        if self.big_endian {
            bytes.reverse();
        }
        self.bytes.extend(bytes);
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.number(value.to_le_bytes())
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.u32(text.len() as u32);
        self.bytes.extend(text.bytes());
        self
    }
}

/// A segment with this metadata and raw data.
fn segment(flags: u32, metadata: &[u8], raw: &[u8]) -> Vec<u8> {
    let big_endian = flags & Flags::BIG_ENDIAN.0 != 0;
    let mut out = Bytes { bytes: b"TDSm".to_vec(), big_endian: false };
    out.u32(flags);
    out.big_endian = big_endian;
    out.u32(4713);
    out.number(((metadata.len() + raw.len()) as u64).to_le_bytes());
    out.number((metadata.len() as u64).to_le_bytes());
    [&out.bytes[..], metadata, raw].concat()
}

fn metadata(big_endian: bool, write: impl FnOnce(&mut Bytes)) -> Vec<u8> {
    let mut out = Bytes { bytes: Vec::new(), big_endian };
    write(&mut out);
    out.bytes
}

/// Metadata of channels of i16 with this many values in each raw chunk, without properties.
fn channels(list: &[(&str, u64)]) -> Vec<u8> {
    metadata(false, |out| {
        out.u32(list.len() as u32);
        for (name, values) in list {
            out.text(&format!("/'g'/'{name}'")).u32(20).u32(2).u32(1);
            out.number(values.to_le_bytes()).u32(0);
        }
    })
}

fn scan(file: &[u8]) -> Result<Contents, TdmsError> {
    let mut scanner = Scanner::new(file.len() as u64);
    let mut given = 0;
    loop {
        let at = scanner.position() as usize;
        match scanner.step(&file[at..(at + given).min(file.len())])? {
            Step::More(needed) => {
                assert!(needed > given && at + needed <= file.len(), "it asks for what is there");
                given = needed;
            }
            Step::Segment { .. } => given = 0,
            Step::End => return Ok(scanner.finish()),
        }
    }
}

/// The values of a channel, one byte after the other as they are in the file.
fn bytes_of(contents: &Contents, file: &[u8], channel: ObjectId, most: u64) -> Vec<u8> {
    let size = contents.object(channel).data_type.unwrap().bytes().unwrap() as usize;
    let mut cursor = ChannelCursor::new(channel);
    let mut out = Vec::new();
    while let Some(run) = cursor.next(contents, most, 1 << 20) {
        assert!((1..=most).contains(&run.values));
        for value in 0..run.values {
            let at = (run.at + value * run.row_bytes + run.in_row) as usize;
            match run.bit {
                Some(bit) => out.push(file[at] >> bit & 1),
                None => out.extend(&file[at..at + size]),
            }
        }
    }
    out
}

fn values(file: &[u8], name: &str) -> Vec<i16> {
    let contents = scan(file).unwrap();
    let id = contents.find(&ObjectPath::Channel("g".into(), name.into())).unwrap();
    let all = bytes_of(&contents, file, id, u64::MAX);
    assert_eq!(bytes_of(&contents, file, id, 3), all, "in runs of three");
    assert_eq!(contents.object(id).values, all.len() as u64 / 2);
    all.chunks_exact(2).map(|it| i16::from_le_bytes([it[0], it[1]])).collect()
}

fn raw(values: &[i16]) -> Vec<u8> {
    values.iter().flat_map(|it| it.to_le_bytes()).collect()
}

#[test]
fn contiguous_raw_chunks_repeat_until_the_segment_ends() {
    let file = segment(0x0E, &channels(&[("a", 2), ("b", 1)]), &raw(&[1, 2, 9, 3, 4, 8]));
    assert_eq!(values(&file, "a"), [1, 2, 3, 4]);
    assert_eq!(values(&file, "b"), [9, 8]);
    assert!(!scan(&file).unwrap().is_cut());
}

#[test]
fn a_cut_file_keeps_every_whole_value() {
    let file = segment(0x0E, &channels(&[("a", 2), ("b", 1)]), &raw(&[1, 2, 9, 3, 4, 8]));
    let raw_at = file.len() - 12;
    for cut in 0..file.len() {
        let Ok(contents) = scan(&file[..cut]) else { panic!("cut at {cut}") };
        assert_eq!(contents.is_cut(), cut > 0);
        let whole = cut.saturating_sub(raw_at) / 2;
        if whole > 0 {
            assert_eq!(
                values(&file[..cut], "a")[..],
                [1, 2, 3, 4][..whole - usize::from(whole > 2) - usize::from(whole > 5)]
            );
            assert_eq!(values(&file[..cut], "b").len(), usize::from(whole > 2));
        }
    }
}

#[test]
fn a_segment_that_was_never_closed_goes_to_the_end() {
    let mut file = segment(0x2E, &channels(&[("a", 2), ("b", 2)]), &raw(&[1, 9, 2, 8, 3, 7, 4]));
    file[12..20].fill(0xFF);
    assert_eq!(values(&file, "a"), [1, 2, 3]);
    assert_eq!(values(&file, "b"), [9, 8, 7]);
    assert!(scan(&file).unwrap().is_cut());
}

#[test]
fn later_segments_repeat_and_change_the_list() {
    let mut file = segment(0x0E, &channels(&[("a", 1), ("b", 1)]), &raw(&[1, 10]));
    // No metadata: the same list.
    file.extend(segment(0x08, &[], &raw(&[2, 20, 3, 30])));
    // One changes in place, one is new.
    file.extend(segment(0x0A, &channels(&[("b", 2), ("c", 1)]), &raw(&[4, 40, 50, 100])));
    // A new list recalls an index of before.
    let recall = metadata(false, |out| {
        out.u32(1).text("/'g'/'b'").u32(0).u32(0);
    });
    file.extend(segment(0x0E, &recall, &raw(&[60, 70])));
    // An object without data stays in the list.
    let without = metadata(false, |out| {
        out.u32(1).text("/'g'/'b'").u32(u32::MAX).u32(0);
    });
    file.extend(segment(0x02, &without, &[]));
    file.extend(segment(0x0A, &channels(&[("a", 1)]), &raw(&[5])));
    assert_eq!(values(&file, "a"), [1, 2, 3, 4, 5]);
    assert_eq!(values(&file, "b"), [10, 20, 30, 40, 50, 60, 70]);
    assert_eq!(values(&file, "c"), [100]);
    assert_eq!(scan(&file).unwrap().segment_count(), 6);
}

#[test]
fn big_endian_segments_are_read() {
    let list = metadata(true, |out| {
        out.u32(1).text("/'g'/'a'").u32(20).u32(2).u32(1);
        out.number(2u64.to_le_bytes()).u32(2).text("x").u32(10).number(1.5f64.to_le_bytes());
        out.text("t").u32(0x44).number((7u128 << 64 | 5).to_le_bytes());
    });
    let file = segment(0x4E, &list, &[0, 1, 0, 2]);
    assert_eq!(values(&file, "a"), [256, 512], "as they are in the file");
    let contents = scan(&file).unwrap();
    let a = &contents.objects()[0];
    assert_eq!(a.property("x"), Some(&Value::F64(1.5)));
    assert_eq!(a.property("t"), Some(&Value::Timestamp(Timestamp { seconds: 7, fraction: 5 })));
    let run = ChannelCursor::new(ObjectId(0)).next(&contents, 9, 1).unwrap();
    assert!(run.big_endian);
}

/// A DAQmx index with one scaler.
fn daqmx(out: &mut Bytes, name: &str, scaler: [u32; 3], line: bool) {
    out.text(&format!("/'g'/'{name}'")).u32(if line { 0x126A } else { 0x1269 });
    out.u32(u32::MAX).u32(1).number(2u64.to_le_bytes()).u32(1);
    scaler.into_iter().for_each(|field| {
        out.u32(field);
    });
    if line {
        out.bytes.push(0);
    } else {
        out.u32(0);
    }
    out.u32(0).u32(2).u32(4).u32(1).u32(0);
}

#[test]
fn daqmx_rows_of_several_buffers_are_read() {
    let list = metadata(false, |out| {
        out.u32(3);
        daqmx(out, "a", [3, 0, 0], false);
        daqmx(out, "b", [3, 0, 2], false);
        daqmx(out, "line", [0, 1, 5], true);
    });
    // Two raw chunks: two rows of a and b, then two rows of the lines.
    let chunk = |first: i16| [&raw(&[first, -first, first + 1, 0])[..], &[0x20, 0xDF]].concat();
    let file = segment(0x8E, &list, &[chunk(1), chunk(5)].concat());
    assert_eq!(values(&file, "a"), [1, 2, 5, 6]);
    assert_eq!(values(&file, "b"), [-1, 0, -5, 0]);
    let contents = scan(&file).unwrap();
    assert_eq!(bytes_of(&contents, &file, ObjectId(2), 9), [1, 0, 1, 0]);
    assert_eq!(contents.kinds(), [RawKind::Daqmx]);
}

#[test]
fn a_written_segment_is_read() {
    let entry = |name: &str| ObjectEntry {
        index: RawIndex::Values(DataType::I16, 2),
        ..ObjectEntry::new(ObjectPath::Channel("g".into(), name.into()))
    };
    let file = ObjectEntry::new(ObjectPath::File).with("scan", Value::text("s_a"));
    let header = SegmentHeader::new(&[file, entry("a"), entry("it's")], false).aligned(100, 4096);
    assert_eq!((header.bytes() + 100) % 4096, 0);
    let data = raw(&[1, 2, 3, 4]);
    for raw_bytes in [None, Some(8)] {
        let file = [header.to_bytes(raw_bytes), data.clone()].concat();
        assert_eq!(values(&file, "a"), [1, 2]);
        assert_eq!(values(&file, "it's"), [3, 4]);
        let contents = scan(&file).unwrap();
        assert_eq!(contents.is_cut(), raw_bytes.is_none());
        assert_eq!(contents.objects()[0].property("scan").and_then(Value::as_text), Some("s_a"));
        assert_eq!((contents.groups(), contents.channels("g").count()), (vec!["g"], 2));
    }
    let alone = SegmentHeader::new(&[ObjectEntry::new(ObjectPath::File)], true).to_bytes(Some(0));
    assert_eq!(scan(&alone).unwrap().segment_count(), 1);
}

#[test]
fn wrong_files_are_refused_by_name() {
    let with =
        |flags, list: &[(&str, u64)], raw: &[u8]| scan(&segment(flags, &channels(list), raw));
    let good = segment(0x0E, &channels(&[("a", 1)]), &[0, 0]);
    let mut index = good.clone();
    index[3] = b'h';
    assert_eq!(scan(&index).unwrap_err(), TdmsError::IsIndex);
    let found = *b"abcd";
    assert_eq!(
        scan(&[b'a'; 28].map(|_| b'a')).unwrap_err(),
        TdmsError::NotASegment { at: 0, found: [b'a'; 4] }
    );
    let mut second = good.clone();
    second.extend(found.repeat(7));
    assert_eq!(scan(&second).unwrap_err(), TdmsError::NotASegment { at: good.len() as u64, found });
    let mut version = good.clone();
    version[8] = 0;
    assert!(matches!(scan(&version), Err(TdmsError::Version { .. })));
    assert!(matches!(with(0x2E, &[("a", 1), ("b", 2)], &[0; 6]), Err(TdmsError::Raw { .. })));
    assert!(matches!(with(0x0E, &[("a", 0)], &[0; 6]), Err(TdmsError::Raw { .. })));
    assert!(matches!(with(0x0E, &[("a", u64::MAX)], &[0; 6]), Err(TdmsError::Index { .. })));
    assert!(matches!(
        with(0x0E, &[("a", u64::MAX / 2), ("b", 9)], &[0; 6]),
        Err(TdmsError::Raw { .. })
    ));
    let recall = metadata(false, |out| {
        out.u32(1).text("/'g'/'b'").u32(0).u32(0);
    });
    assert!(matches!(scan(&segment(0x0E, &recall, &[])), Err(TdmsError::Index { .. })));
    let mut many = channels(&[("a", 1)]);
    many[0..4].fill(0xFF);
    assert!(matches!(scan(&segment(0x0E, &many, &[])), Err(TdmsError::Cut { .. })));
}

proptest! {
    #[test]
    fn any_bytes_after_a_lead_in_are_read_or_refused(
        flags in 0u32..256,
        mut list in prop::collection::vec(any::<u8>(), 0..200),
        count in 0u8..4,
        damage in prop::collection::vec((0usize..200, any::<u8>()), 0..4),
        raw in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        // Half of the lists begin as real ones.
        if count > 0 {
            list = channels(&[("a", 3), ("b", 1), ("c", 2)][..count.into()]);
        }
        for (at, byte) in damage {
            if let Some(it) = list.get_mut(at) {
                *it = byte;
            }
        }
        let file = segment(flags, &list, &raw);
        if let Ok(contents) = scan(&file) {
            for channel in contents.groups().iter().flat_map(|it| contents.channels(it)) {
                if let Some(size) = contents.object(channel).data_type.unwrap().bytes() {
                    let bytes = bytes_of(&contents, &file, channel, u64::MAX);
                    prop_assert_eq!(bytes.len() as u64, contents.object(channel).values * u64::from(size));
                }
            }
        }
    }
}
