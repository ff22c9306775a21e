//! Headers of real recordings, compared with the values that the Python package baseband 4.3.0 reads in them.
//!
//! The words are the first headers of baseband's own samples (`sample.vdif` and so on); those of extended data versions
//! 1 and 2 and 0xAB were made with baseband.

use fullbore_time::Tai;

use super::{Backend, Extended, Header, NOWHERE, SampleRate, Timeline};

const VLBA: [u32; 8] = [
    0x00DB_2C77,
    0x1C00_0000,
    0x2000_0275,
    0x0401_FFFC,
    0x0380_0010,
    0xACAB_FEED,
    0x3340_0000,
    0xF203_1583,
];
const AROCHIME: [u32; 8] = [0x1EAC_A12F, 0x0004_B38D, 0x2A00_0084, 0x8C00_4151, 0, 0, 0, 0];
const BPS1: [u32; 8] = [0x0070_C8F9, 0x2500_046F, 0x0400_03EC, 0x0000_777A, 0, 0, 0, 0];
const MWA: [u32; 8] = [0x007D_11E9, 0x1F00_0000, 0x0100_0044, 0x9C00_6D77, 0, 0, 0, 0];
const DRAO: [u32; 8] = [0x1F59_0FA1, 0x0000_016B, 0x2300_0275, 0x90A2_0001, 0, 0x27C5_3344, 0, 0];
const NICT: [u32; 8] = [
    0x0001_E240,
    0x3500_0141,
    0x2300_03EC,
    0x0405_777A,
    0x0180_0010,
    0xACAB_FEED,
    0x3353_4441,
    0x2B30_3030,
];
const ALMA: [u32; 8] = [
    0x0001_E240,
    0x3500_0141,
    0x2300_03EC,
    0x0405_777A,
    0x02A5_EA5D,
    0xDEAD_BEEF,
    0x89AB_CDEF,
    0x0123_4567,
];
const MARK5B: [u32; 8] = [
    0x00D7_31D9,
    0x1C00_0000,
    0x2300_04E6,
    0x0400_0000,
    0xABAD_DEED,
    0xBEAD_0000,
    0x8211_9801,
    0x0000_975D,
];

/// Returns the header in these words, which must survive writing and reading.
fn header(words: [u32; 8]) -> Header {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let header = Header::read(&bytes).unwrap();
    assert_eq!(header.to_bytes().as_slice(), bytes);
    assert_eq!(header, Header::from_words(words));
    header
}

fn utc(text: &str) -> Tai {
    text.parse().unwrap()
}

/// The fields of all samples, without the extended data: time, then frame number, bytes of the frame, channels, bits,
/// complex, thread, station.
type Fields<'a> = (u32, u32, u32, u32, u32, u32, bool, u16, &'a str);

fn check(words: [u32; 8], expected: Fields, second: &str) {
    let header = header(words);
    let station = header.station_text();
    let fields = (
        header.reference_epoch(),
        header.seconds(),
        header.frame_number(),
        header.frame_bytes(),
        header.channels(),
        header.bits_per_sample(),
        header.complex(),
        header.thread(),
        station.as_str(),
    );
    assert_eq!(fields, expected);
    assert!(!header.invalid() && !header.legacy());
    assert_eq!(header.second().start(), utc(second));
}

#[test]
fn the_vlba_sample_reads_as_baseband_reads_it() {
    let fields = (28, 14_363_767, 0, 5032, 1, 2, false, 1, "0xFFFC");
    check(VLBA, fields, "2014-06-16T05:56:07Z");
    let header = header(VLBA);
    assert_eq!(header.version(), 1);
    let expected = Extended::Vlba {
        rate: SampleRate { in_mhz: true, count: 16 },
        lo_tuning: 859_832_320,
        unassigned: 15,
        dbe: 2,
        intermediate: 0,
        subband: 1,
        upper_sideband: true,
        major: 1,
        minor: 5,
        personality: 131,
    };
    assert_eq!(header.extended(), expected);
    assert_eq!(header.extended().sample_rate_hz(), Some(16_000_000));
    assert_eq!(header.frames_per_second(), Some(1600));
}

#[test]
fn the_aro_sample_has_1024_channels_and_begins_in_the_midst_of_a_second() {
    let fields = (0, 514_629_935, 308_109, 1056, 1024, 4, true, 0, "AQ");
    check(AROCHIME, fields, "2016-04-22T08:45:31Z");
    let mut timeline = Timeline::new(Some(390_625));
    let index = timeline.observe(&header(AROCHIME));
    assert_eq!(timeline.time(index), Some(utc("2016-04-22T08:45:31.788759040Z")));
}

#[test]
fn the_one_bit_sample_reads_as_baseband_reads_it() {
    check(BPS1, (37, 7_391_481, 1135, 8032, 16, 1, false, 0, "wz"), "2018-09-24T13:11:21Z");
    assert_eq!(header(BPS1).version(), 0);
    assert_eq!(header(BPS1).extended(), Extended::Zero { words: [0; 4] });
    let mut timeline = Timeline::new(Some(8000));
    let index = timeline.observe(&header(BPS1));
    assert_eq!(timeline.time(index), Some(utc("2018-09-24T13:11:21.141875Z")));
}

#[test]
fn the_mwa_sample_reads_as_baseband_reads_it() {
    check(MWA, (31, 8_196_585, 0, 544, 2, 8, true, 0, "mw"), "2015-10-03T20:49:45Z");
    assert_eq!(header(MWA).frames_per_second(), None);
}

#[test]
fn the_corrupted_drao_sample_is_read_although_baseband_refuses_it() {
    let header = header(DRAO);
    assert_eq!(header.extended(), Extended::Zero { words: [0, 0x27C5_3344, 0, 0] });
    assert_eq!((header.frame_number(), header.thread(), header.station()), (363, 162, 1));
    assert!(super::check(&[header.to_bytes().as_slice(), &[0; 5000]].concat(), 5032).is_ok());
    let mut timeline = Timeline::new(None);
    let frames = [363, 354, 355, 355, 349, 349, 349, 352, 352, 362];
    let indices = frames.map(|frame| timeline.observe(&header.with_frame_number(frame)));
    assert_eq!(indices, frames.map(i64::from));
    assert!(!indices.contains(&NOWHERE));
}

#[test]
fn a_nict_header_made_by_baseband_tells_rate_and_name() {
    let header = header(NICT);
    let rate = SampleRate { in_mhz: true, count: 16 };
    assert_eq!(header.extended(), Extended::Nict { rate, das: *b"ADS3000+" });
    assert_eq!(header.frames_per_second(), Some(8000));
    assert_eq!((header.thread(), header.station_text().as_str()), (5, "wz"));
}

#[test]
fn an_alma_header_made_by_baseband_tells_its_packet_sequence_number() {
    let backend = Backend::Alma {
        version: 0xA5EA5,
        polarisation: 1,
        quadrant: 2,
        correlator: 1,
        status: 0xDEAD_BEEF,
    };
    let psn = 81_985_529_216_486_895;
    assert_eq!(header(ALMA).extended(), Extended::AlmaR2dbe { backend, psn });
}

#[test]
fn a_mark_5b_header_inside_reads_as_baseband_reads_it() {
    let header = header(MARK5B);
    let expected = Extended::Mark5b {
        user: 48_813,
        test_pattern: false,
        frame: 0,
        time: 0x8211_9801,
        fraction: 0,
        crc: 0x975D,
    };
    assert_eq!(header.extended(), expected);
    assert_eq!((header.edv(), header.frame_bytes()), (0xAB, 10_032));
    assert_eq!(header.second().start(), utc("2014-06-13T05:30:01Z"));
}
