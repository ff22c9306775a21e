//! Reed-Solomon code: parity of rows, and restoration of rows.
//!
//! A row is the same range of bytes of every chunk of a stripe. Each column of 64 bytes is coded separately
//! (Reed-Solomon over GF(2^16) by the transform of Lin, Al-Naffouri, Han and Chung, as in Leopard-RS), so a row may be
//! coded in pieces of any multiple of that length. The parity of a single chunk is a copy of that chunk.

use fullbore_linux::ring::Block;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// Bytes of each row that are coded at once: the pieces of a stripe fit in the cache.
const PIECE: usize = 32 << 10;

/// The message for a failed assertion about the shape.
const SHAPE: &str = "the shape of a stripe was checked when it was read or chosen";

/// The code for one shape of stripe.
pub struct ReedSolomon {
    data: usize,
    parity: usize,
    encoder: Option<ReedSolomonEncoder>,
    decoder: Option<ReedSolomonDecoder>,
}

impl ReedSolomon {
    /// Makes the code for this many data and parity chunks.
    pub fn new(data: usize, parity: usize) -> Self {
        assert!(data > 0, "a stripe has a data chunk");
        Self { data, parity, encoder: None, decoder: None }
    }

    /// Computes the parity rows, which follow the data rows in `rows`. `length` is a multiple of 64.
    pub fn encode(&mut self, rows: &mut [Block], length: usize) {
        let (data, parity) = rows.split_at_mut(self.data);
        if let [only] = data {
            parity.iter_mut().for_each(|row| row[..length].copy_from_slice(&only[..length]));
            return;
        }
        let mut at = 0;
        while at < length {
            let end = length.min(at + PIECE);
            let encoder = self.encoder(end - at);
            for row in data.iter() {
                encoder.add_original_shard(&row[at..end]).expect(SHAPE);
            }
            let encoded = encoder.encode().expect(SHAPE);
            for (row, made) in parity.iter_mut().zip(encoded.recovery_iter()) {
                row[at..end].copy_from_slice(made);
            }
            at = end;
        }
    }

    /// Restores the data rows that are not `present` from the rows that are. Returns false if too few are.
    pub fn complete(&mut self, rows: &mut [Block], present: &[bool], length: usize) -> bool {
        let missing: Vec<usize> = (0..self.data).filter(|&shard| !present[shard]).collect();
        if missing.is_empty() {
            return true;
        }
        let parity: Vec<usize> = (self.data..self.data + self.parity)
            .filter(|&shard| present[shard])
            .take(missing.len())
            .collect();
        if parity.len() < missing.len() {
            return false;
        }
        if self.data == 1 {
            let (data, copies) = rows.split_at_mut(1);
            data[0][..length].copy_from_slice(&copies[parity[0] - 1][..length]);
            return true;
        }
        let mut at = 0;
        while at < length {
            let end = length.min(at + PIECE);
            let first = self.data;
            let decoder = self.decoder(end - at);
            for shard in (0..first).filter(|&shard| present[shard]) {
                decoder.add_original_shard(shard, &rows[shard][at..end]).expect(SHAPE);
            }
            for &shard in &parity {
                decoder.add_recovery_shard(shard - first, &rows[shard][at..end]).expect(SHAPE);
            }
            let decoded = decoder.decode().expect(SHAPE);
            for &shard in &missing {
                let made = decoded.restored_original(shard).expect("it was not given");
                rows[shard][at..end].copy_from_slice(made);
            }
            drop(decoded);
            at = end;
        }
        true
    }

    fn encoder(&mut self, bytes: usize) -> &mut ReedSolomonEncoder {
        let (data, parity) = (self.data, self.parity);
        let encoder = self
            .encoder
            .get_or_insert_with(|| ReedSolomonEncoder::new(data, parity, bytes).expect(SHAPE));
        encoder.reset(data, parity, bytes).expect(SHAPE);
        encoder
    }

    fn decoder(&mut self, bytes: usize) -> &mut ReedSolomonDecoder {
        let (data, parity) = (self.data, self.parity);
        let decoder = self
            .decoder
            .get_or_insert_with(|| ReedSolomonDecoder::new(data, parity, bytes).expect(SHAPE));
        decoder.reset(data, parity, bytes).expect(SHAPE);
        decoder
    }
}

impl std::fmt::Debug for ReedSolomon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Code({}+{})", self.data, self.parity)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::read::pool;

    fn rows(count: usize, length: usize, seed: u32) -> Vec<Block> {
        let mut pool = pool(count, length).unwrap();
        let mut rows: Vec<Block> = (0..count).map(|_| pool.take().unwrap()).collect();
        let mut word = seed;
        for row in &mut rows {
            for byte in row[..length].iter_mut() {
                word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                *byte = (word >> 24) as u8;
            }
        }
        rows
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn any_rows_of_a_stripe_make_the_others(
            data in 1..7usize,
            parity in 1..4usize,
            columns in 1..1500usize,
            seed in any::<u32>(),
            lost in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let length = 64 * columns;
            let mut all = rows(data + parity, length, seed);
            let mut code = ReedSolomon::new(data, parity);
            code.encode(&mut all, length);
            let whole: Vec<Vec<u8>> = all.iter().map(|row| row[..length].to_vec()).collect();
            let mut present = vec![true; data + parity];
            lost.iter().for_each(|shard| present[shard.index(data + parity)] = false);
            for (row, present) in all.iter_mut().zip(&present) {
                if !present {
                    row[..length].fill(0xAA);
                }
            }
            let enough = present.iter().filter(|present| !**present).count() <= parity;
            prop_assert_eq!(code.complete(&mut all, &present, length), enough
                || present[..data].iter().all(|present| *present)
                || present[..data].iter().filter(|it| !**it).count()
                    <= present[data..].iter().filter(|it| **it).count());
            if enough {
                code.encode(&mut all, length);
                for (row, whole) in all.iter().zip(&whole) {
                    prop_assert!(row[..length] == whole[..]);
                }
            }
        }
    }

    /// Old data is read with a new version of the crate, so its code must not change.
    #[test]
    fn the_code_is_the_one_that_stored_scans_have() {
        let length = 3 * 4096;
        let mut all = rows(5, length, 7);
        ReedSolomon::new(3, 2).encode(&mut all, length);
        let crcs = [crc32c::crc32c(&all[3][..length]), crc32c::crc32c(&all[4][..length])];
        assert_eq!(crcs, [3_463_757_037, 3_269_967_592]);
        // The parity does not depend on the size of the pieces.
        let mut piece = rows(5, length, 7);
        let mut code = ReedSolomon::new(3, 2);
        for row in &mut piece {
            row.copy_within(4096..4096 + 64, 0);
        }
        code.encode(&mut piece, 64);
        assert_eq!(piece[4][..64], all[4][4096..4096 + 64]);
    }
}
