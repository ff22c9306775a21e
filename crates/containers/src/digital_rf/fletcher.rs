//! HDF5's filter `fletcher32`: the checksum behind each chunk of a dataset.
//!
//! Fletcher's checksum of big-endian words of 16 bits, an odd last byte in the high half. Both sums are kept modulo
//! 65535 by adding the carry again, so that a sum of all ones stays. From the HDF5 library's `H5checksum.c`, where the
//! filter stores it in little-endian order.

/// Words between two reductions, so that no sum overflows 64 bits.
const BLOCK: usize = 1 << 16;

/// Bytes of a checksum.
pub const BYTES: usize = 4;

/// The checksum of a chunk, as it is stored.
pub fn fletcher32(chunk: &[u8]) -> [u8; BYTES] {
    let (mut sum, mut sums) = (0u64, 0u64);
    for block in chunk.chunks(2 * BLOCK) {
        let (words, rest) = block.as_chunks::<2>();
        let odd = rest.first().map(|&byte| [byte, 0]);
        let count = (words.len() + usize::from(odd.is_some())) as u64;
        // The sum of all sums is that of the words, each as often as words follow it, itself included.
        let mut left = count;
        let (mut plain, mut weighted) = (0u64, 0u64);
        for word in words.iter().chain(&odd) {
            let word = u64::from(u16::from_be_bytes(*word));
            plain += word;
            weighted += word * left;
            left -= 1;
        }
        sums = reduced(sums + sum * count + weighted);
        sum = reduced(sum + plain);
    }
    ((sums as u32) << 16 | sum as u32).to_le_bytes()
}

/// The value modulo 65535, where a multiple other than 0 is 65535.
fn reduced(sum: u64) -> u64 {
    match sum % 0xFFFF {
        0 if sum > 0 => 0xFFFF,
        rest => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Word by word, as the definition has it.
    fn defined(chunk: &[u8]) -> u32 {
        let (mut sum, mut sums) = (0u64, 0u64);
        for pair in chunk.chunks(2) {
            let word = u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low));
            sum = reduced(sum + word);
            sums = reduced(sums + sum);
        }
        (sums << 16 | sum) as u32
    }

    #[test]
    fn the_checksum_is_that_of_the_definition() {
        let bytes: Vec<u8> =
            (0..600_001u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for length in [0, 1, 2, 3, 720, 721, 131_072, 131_073, 131_074, 600_001] {
            let found = u32::from_le_bytes(fletcher32(&bytes[..length]));
            assert_eq!(found, defined(&bytes[..length]), "{length} bytes");
        }
        assert_eq!(fletcher32(&[0xFF; 200_000]), [0xFF; 4], "multiples of 65535 stay");
        assert_eq!(fletcher32(&[0; 20]), [0; 4]);
    }
}
