//! HDF5 chunks made smaller before libhdf5 sees them, in the forms that its filters read.

use std::io::Write;

use flate2::write::ZlibEncoder;
use hdf5_metno::dataset::DatasetCreateBuilder;

use super::Compression;

/// Filters of a dataset, and the memory they work in.
#[derive(Debug)]
pub(super) struct Filter {
    compression: Compression,
    element_bytes: usize,
    shuffled: Vec<u8>,
    packed: Vec<u8>,
}

/// The number under which the bitshuffle filter is registered with the HDF Group.
const BITSHUFFLE: i32 = 32008;

/// Bytes of a block of the bitshuffle format before it chooses a number of elements.
const BITSHUFFLE_BLOCK: usize = 8192;

impl Filter {
    pub(super) fn new(compression: Compression, element_bytes: usize) -> Self {
        Filter { compression, element_bytes, shuffled: Vec::new(), packed: Vec::new() }
    }

    /// Tells a dataset's readers how to undo it.
    pub(super) fn declare(&self, properties: &mut DatasetCreateBuilder) {
        match self.compression {
            Compression::None => {}
            Compression::Gzip(level) => {
                properties.shuffle().deflate(level.clamp(1, 9));
            }
            Compression::BitshuffleLz4 => {
                let elements = self.block_elements() as u32;
                properties.add_filter(BITSHUFFLE, &[0, 4, self.element_bytes as u32, elements, 2]);
            }
        }
    }

    /// The mask of a chunk to which no filter was applied.
    pub(super) fn none_applied(&self) -> u32 {
        match self.compression {
            Compression::None => 0,
            Compression::Gzip(_) => 0b11,
            Compression::BitshuffleLz4 => 0b1,
        }
    }

    /// The chunk made smaller, or nothing if that would not make it so.
    pub(super) fn apply(&mut self, chunk: &[u8]) -> Option<&[u8]> {
        match self.compression {
            Compression::None => return None,
            Compression::Gzip(level) => {
                shuffle(chunk, self.element_bytes, &mut self.shuffled);
                self.deflate(level)?;
            }
            Compression::BitshuffleLz4 => self.bitshuffle_lz4(chunk),
        }
        (self.packed.len() < chunk.len()).then_some(&self.packed)
    }

    fn deflate(&mut self, level: u8) -> Option<()> {
        self.packed.clear();
        let level = flate2::Compression::new(u32::from(level.clamp(1, 9)));
        let mut encoder = ZlibEncoder::new(&mut self.packed, level);
        encoder.write_all(&self.shuffled).ok()?;
        encoder.finish().ok()?;
        Some(())
    }

    /// Elements of a bitshuffle block: what fits its bytes, in eights.
    fn block_elements(&self) -> usize {
        (BITSHUFFLE_BLOCK / self.element_bytes / 8 * 8).max(128)
    }

    /// Length of the whole and of a block, big-endian; then each block's packed length and bytes; the
    /// elements that fill no eight stand at the end as they are.
    fn bitshuffle_lz4(&mut self, chunk: &[u8]) {
        let block_bytes = self.block_elements() * self.element_bytes;
        let eight = 8 * self.element_bytes;
        let whole = chunk.len() / eight * eight;
        self.packed.clear();
        self.packed.extend_from_slice(&(chunk.len() as u64).to_be_bytes());
        self.packed.extend_from_slice(&(block_bytes as u32).to_be_bytes());
        for block in chunk[..whole].chunks(block_bytes) {
            bitshuffle(block, self.element_bytes, &mut self.shuffled);
            let most = lz4_flex::block::get_maximum_output_size(block.len());
            let start = self.packed.len();
            self.packed.resize(start + 4 + most, 0);
            let room = &mut self.packed[start + 4..];
            let length = lz4_flex::block::compress_into(&self.shuffled, room)
                .expect("the room is the most it can need");
            self.packed[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
            self.packed.truncate(start + 4 + length);
        }
        self.packed.extend_from_slice(&chunk[whole..]);
    }
}

/// First the lowest byte of every element, then the next: the shuffle filter of HDF5.
fn shuffle(chunk: &[u8], element_bytes: usize, out: &mut Vec<u8>) {
    let elements = chunk.len() / element_bytes;
    out.resize(chunk.len(), 0);
    for (byte, plane) in
        out[..elements * element_bytes].chunks_exact_mut(elements.max(1)).enumerate()
    {
        for (out, element) in plane.iter_mut().zip(chunk.chunks_exact(element_bytes)) {
            *out = element[byte];
        }
    }
    out[elements * element_bytes..].copy_from_slice(&chunk[elements * element_bytes..]);
}

/// First the lowest bit of every element, eight to a byte, then the next. Elements come in eights.
fn bitshuffle(block: &[u8], element_bytes: usize, out: &mut Vec<u8>) {
    let plane = block.len() / element_bytes / 8;
    out.resize(block.len(), 0);
    for (group, eight) in block.chunks_exact(8 * element_bytes).enumerate() {
        for byte in 0..element_bytes {
            let mut bits = [0; 8];
            for (n, bit) in bits.iter_mut().enumerate() {
                *bit = eight[n * element_bytes + byte];
            }
            for (bit, packed) in
                transpose(u64::from_le_bytes(bits)).to_le_bytes().into_iter().enumerate()
            {
                out[(byte * 8 + bit) * plane + group] = packed;
            }
        }
    }
}

/// An 8 × 8 matrix of bits turned about its diagonal, in three exchanges.
fn transpose(bits: u64) -> u64 {
    let exchange = |x: u64, shift: u32, mask: u64| {
        let moved = (x ^ (x >> shift)) & mask;
        x ^ moved ^ (moved << shift)
    };
    let pairs = exchange(bits, 7, 0x00AA_00AA_00AA_00AA);
    let fours = exchange(pairs, 14, 0x0000_CCCC_0000_CCCC);
    exchange(fours, 28, 0x0000_0000_F0F0_F0F0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_of_bits_is_turned_about_its_diagonal() {
        for row in 0..8 {
            for column in 0..8 {
                assert_eq!(transpose(1 << (8 * row + column)), 1 << (8 * column + row));
            }
        }
    }

    #[test]
    fn shuffling_puts_bytes_of_like_weight_together() {
        let mut out = Vec::new();
        shuffle(&[1, 2, 3, 4, 5, 6], 2, &mut out);
        assert_eq!(out, [1, 3, 5, 2, 4, 6]);
    }

    #[test]
    fn what_does_not_get_smaller_stays_as_it_is() {
        let mut state = 1u32;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(8192)
        .collect();
        assert!(Filter::new(Compression::Gzip(1), 8).apply(&noise).is_none());
        assert!(Filter::new(Compression::BitshuffleLz4, 8).apply(&noise).is_none());
    }
}
