//! Any bytes as the index of a scan: what is read is written back the same, and reading stops in time.
#![no_main]

use fullbore_core::index::{Codec, Entry, LENGTHS, RECORD_BYTES};
use uuid::Uuid;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

fn check(bytes: &[u8]) {
    let codec = Codec::of_scan(Uuid::nil());
    let (entries, length) = codec.decode_file(bytes);
    assert_eq!(length, entries.len() * RECORD_BYTES);
    assert!(length <= bytes.len());
    // Few inputs have a right checksum, so each record is given one.
    for record in bytes.chunks_exact(RECORD_BYTES) {
        let mut record: [u8; RECORD_BYTES] = record.try_into().expect("chunks of that size");
        let seed = crc32c::crc32c(Uuid::nil().as_bytes());
        let crc = crc32c::crc32c_append(seed, &record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        let Ok((stream, entry)) = codec.decode(&record) else { continue };
        if let Entry::Lengths { lengths, .. } = &entry {
            assert!(lengths.len() <= LENGTHS);
        }
        let again = codec.encode(stream, &entry);
        assert_eq!(codec.decode(&again), Ok((stream, entry)), "the way back");
    }
}
