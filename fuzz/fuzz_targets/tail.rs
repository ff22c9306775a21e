//! Any bytes as the tail of a stream: what is read is written back the same, and a tail that is believed makes sense.
#![no_main]

use fullbore_core::partial_block::{Codec, LONGEST_BODY, PartialBlockFile};
use uuid::Uuid;

/// Bytes of an entry before its body.
const HEAD: usize = 12;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| check(bytes));

fn check(bytes: &[u8]) {
    let codec = Codec::of_stream(Uuid::nil(), 0);
    // Few inputs have a right checksum, so each entry is given one: a byte for its kind, two for the length of its body.
    let (mut file, mut rest) = (Vec::new(), bytes);
    while let Some((&[kind, low, high], behind)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
        let (body, next) = behind.split_at(length);
        rest = next;
        let mut entry = vec![0; HEAD];
        (entry[4], entry[5]) = (1 + kind % 2, 1);
        entry[8..HEAD].copy_from_slice(&(length as u32).to_le_bytes());
        entry.extend_from_slice(body);
        let seed = crc32c::crc32c(Uuid::nil().as_bytes());
        let crc = crc32c::crc32c_append(seed, &entry[4..]);
        entry[..4].copy_from_slice(&crc.to_le_bytes());
        if let Some((said, taken)) = codec.decode(&entry) {
            assert!(taken <= HEAD + LONGEST_BODY);
            let mut again = Vec::new();
            codec.encode(&said, &mut again);
            assert_eq!(codec.decode(&again), Some((said, again.len())), "the way back");
        }
        file.extend(entry);
    }
    let Some(tail) = PartialBlockFile::read(codec, &file) else { return };
    assert_eq!(tail.bytes.len(), tail.snapshot.blocks.len());
    for (piece, bytes) in tail.snapshot.blocks.iter().zip(&tail.bytes) {
        assert_eq!(piece.bytes as usize, bytes.len());
        assert!(piece.bytes <= tail.snapshot.geometry.block_bytes);
    }
}
