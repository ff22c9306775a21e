//! Compression of HDF5 chunks before libhdf5 sees them, in the formats that its filters read.

use std::io::Write;

use flate2::write::ZlibEncoder;
use hdf5_metno::dataset::{Dataset, DatasetCreateBuilder};
use hdf5_metno::filters::Filter as Declared;

use super::Compression;

/// The filters of a dataset, with their working memory.
#[derive(Debug)]
pub(super) struct Filter {
    compression: Compression,
    element_bytes: usize,
    sorted: Vec<u8>,
    shuffled: Vec<u8>,
    packed: Vec<u8>,
    /// True if the last chunk became smaller.
    smaller: bool,
}

/// The number of the bitshuffle filter in the HDF Group's registry.
const BITSHUFFLE: i32 = 32008;

/// The parameter that tells the bitshuffle filter to use LZ4.
const LZ4: u32 = 2;

/// Bytes of a block of the bitshuffle format, from which it derives a number of elements.
const BITSHUFFLE_BLOCK: usize = 8192;

/// Returns the compression of a dataset's chunks; `None` if this program does not write it.
pub(super) fn of(dataset: &Dataset) -> Option<Compression> {
    let element_bytes = dataset.dtype().ok()?.size() as u32;
    // `filters()` is no alternative: it ignores filters that it cannot read.
    match dataset.dcpl().ok()?.get_filters().ok()?.as_slice() {
        [] => Some(Compression::None),
        [Declared::Shuffle, Declared::Deflate(level)] => Some(Compression::Gzip(*level)),
        [Declared::User(BITSHUFFLE, words)]
            if words.get(2) == Some(&element_bytes) && words.get(4) == Some(&LZ4) =>
        {
            Some(Compression::BitshuffleLz4)
        }
        _ => None,
    }
}

impl Filter {
    pub(super) fn new(compression: Compression, element_bytes: usize) -> Self {
        let [sorted, shuffled, packed] = [const { Vec::new() }; 3];
        Filter { compression, element_bytes, sorted, shuffled, packed, smaller: false }
    }

    /// Declares the filters in the dataset's properties, for its readers.
    pub(super) fn declare(&self, properties: &mut DatasetCreateBuilder) {
        match self.compression {
            Compression::None => {}
            Compression::Gzip(level) => {
                properties.shuffle().deflate(level.clamp(1, 9));
            }
            Compression::BitshuffleLz4 => {
                let elements = self.block_elements() as u32;
                properties
                    .add_filter(BITSHUFFLE, &[0, 4, self.element_bytes as u32, elements, LZ4]);
            }
        }
    }

    /// Returns the filter mask of a chunk to which no filter was applied.
    pub(super) fn none_applied(&self) -> u32 {
        match self.compression {
            Compression::None => 0,
            Compression::Gzip(_) => 0b11,
            Compression::BitshuffleLz4 => 0b1,
        }
    }

    /// True if chunks are filtered at all.
    pub(super) fn works(&self) -> bool {
        self.compression != Compression::None
    }

    /// Compresses the chunk. Returns `None` if it would not become smaller.
    pub(super) fn apply(&mut self, chunk: &[u8]) -> Option<&[u8]> {
        self.smaller = false;
        match self.compression {
            Compression::None => return None,
            Compression::Gzip(level) => {
                shuffle(chunk, self.element_bytes, &mut self.shuffled);
                self.deflate(level)?;
            }
            Compression::BitshuffleLz4 => self.bitshuffle_lz4(chunk),
        }
        self.smaller = self.packed.len() < chunk.len();
        self.packed()
    }

    /// Returns the last compressed chunk, if it became smaller.
    pub(super) fn packed(&self) -> Option<&[u8]> {
        self.smaller.then_some(&self.packed)
    }

    fn deflate(&mut self, level: u8) -> Option<()> {
        self.packed.clear();
        let level = flate2::Compression::new(u32::from(level.clamp(1, 9)));
        let mut encoder = ZlibEncoder::new(&mut self.packed, level);
        encoder.write_all(&self.shuffled).ok()?;
        encoder.finish().ok()?;
        Some(())
    }

    /// Elements of a bitshuffle block: as many as fit its bytes, in multiples of eight.
    fn block_elements(&self) -> usize {
        (BITSHUFFLE_BLOCK / self.element_bytes / 8 * 8).max(128)
    }

    /// Writes the total length and the block length, big-endian, then each block's packed length and bytes. The last
    /// elements that do not fill a group of eight follow unchanged.
    fn bitshuffle_lz4(&mut self, chunk: &[u8]) {
        let block_bytes = self.block_elements() * self.element_bytes;
        let eight = 8 * self.element_bytes;
        let whole = chunk.len() / eight * eight;
        self.packed.clear();
        self.packed.extend_from_slice(&(chunk.len() as u64).to_be_bytes());
        self.packed.extend_from_slice(&(block_bytes as u32).to_be_bytes());
        for block in chunk[..whole].chunks(block_bytes) {
            bitshuffle(block, self.element_bytes, &mut self.sorted, &mut self.shuffled);
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

/// The shuffle filter of HDF5: first the lowest byte of every element, then the next.
fn shuffle(chunk: &[u8], element_bytes: usize, out: &mut Vec<u8>) {
    out.resize(chunk.len(), 0);
    // With constant lengths the compiler vectorizes the loop.
    match element_bytes {
        4 => shuffle_elements::<4>(chunk, out),
        8 => shuffle_elements::<8>(chunk, out),
        12 => shuffle_elements::<12>(chunk, out),
        _ => shuffle_any(chunk, element_bytes, out),
    }
}

fn shuffle_elements<const BYTES: usize>(chunk: &[u8], out: &mut [u8]) {
    let (elements, rest) = chunk.as_chunks::<BYTES>();
    let (planes, tail) = out.split_at_mut(elements.len() * BYTES);
    for (byte, plane) in planes.chunks_exact_mut(elements.len().max(1)).enumerate() {
        for (out, element) in plane.iter_mut().zip(elements) {
            *out = element[byte];
        }
    }
    tail.copy_from_slice(rest);
}

fn shuffle_any(chunk: &[u8], element_bytes: usize, out: &mut [u8]) {
    let elements = chunk.len() / element_bytes;
    let (planes, tail) = out.split_at_mut(elements * element_bytes);
    for (byte, plane) in planes.chunks_exact_mut(elements.max(1)).enumerate() {
        for (out, element) in plane.iter_mut().zip(chunk.chunks_exact(element_bytes)) {
            *out = element[byte];
        }
    }
    tail.copy_from_slice(&chunk[elements * element_bytes..]);
}

/// Orders bits: first the lowest bit of every element, eight to a byte, then the next. The number of elements is a
/// multiple of eight.
///
/// Bytes are sorted by significance first, so that eight elements' bits of one significance form a word.
fn bitshuffle(block: &[u8], element_bytes: usize, bytes: &mut Vec<u8>, out: &mut Vec<u8>) {
    let elements = block.len() / element_bytes;
    shuffle(block, element_bytes, bytes);
    out.resize(block.len(), 0);
    let planes = bytes.chunks_exact(elements).zip(out.chunks_exact_mut(elements));
    for (bytes, bits) in planes {
        // A plane of bytes gives eight planes of bits.
        let plane = elements / 8;
        let (whole, rest) = bytes.as_chunks::<64>();
        for (n, sixty_four) in whole.iter().enumerate() {
            for (bit, word) in bits_of(sixty_four).into_iter().enumerate() {
                bits[bit * plane + n * 8..][..8].copy_from_slice(&word.to_le_bytes());
            }
        }
        for (n, eight) in rest.as_chunks::<8>().0.iter().enumerate() {
            let turned = transpose(u64::from_le_bytes(*eight)).to_le_bytes();
            for (bit, byte) in turned.into_iter().enumerate() {
                bits[bit * plane + whole.len() * 8 + n] = byte;
            }
        }
    }
}

/// Orders bits: first the lowest bits of 64 bytes, then the next.
fn bits_of(bytes: &[u8; 64]) -> [u64; 8] {
    let mut words = [0; 8];
    for (word, eight) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = transpose(u64::from_le_bytes(*eight));
    }
    transpose_bytes(words)
}

/// Transposes an 8 × 8 matrix of bytes, halves first.
fn transpose_bytes(mut words: [u64; 8]) -> [u64; 8] {
    for (apart, shift, mask) in [
        (4, 32, 0x0000_0000_FFFF_FFFF),
        (2, 16, 0x0000_FFFF_0000_FFFF),
        (1, 8, 0x00FF_00FF_00FF_00FF),
    ] {
        for low in (0..8).filter(|word| word & apart == 0) {
            let moved = ((words[low] >> shift) ^ words[low + apart]) & mask;
            words[low + apart] ^= moved;
            words[low] ^= moved << shift;
        }
    }
    words
}

/// Transposes an 8 × 8 matrix of bits in three exchanges.
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
    fn bits_of_like_weight_come_together_however_many_there_are() {
        for (elements, element_bytes) in [(8, 4), (64, 8), (72, 12), (1024, 8), (136, 1)] {
            let block: Vec<u8> =
                (0..elements * element_bytes).map(|n| (n * n * 7 + n / 5) as u8).collect();
            let (mut sorted, mut out) = (Vec::new(), Vec::new());
            bitshuffle(&block, element_bytes, &mut sorted, &mut out);
            let bit = |bytes: &[u8], n: usize| bytes[n / 8] >> (n % 8) & 1;
            for weight in 0..8 * element_bytes {
                for element in 0..elements {
                    let here = bit(&out, weight * elements + element);
                    assert_eq!(here, bit(&block, element * 8 * element_bytes + weight));
                }
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
