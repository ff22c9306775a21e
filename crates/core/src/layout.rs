//! The position of frame *k* of a stream: blocks of whole frames, chunks of whole blocks.
//!
//! ```text
//! frames   |0|1|2| … |511|512| …                    8032 bytes each
//! blocks   |      0      |      1      |      2  …  4 112 384 bytes each = 1004 × 4096
//! chunks   |             0             |      1  …  one plain file each, on one member
//! ```
//!
//! Direct I/O needs blocks (except the last) of a multiple of 4096 bytes, and a block contains only whole frames. So
//! the frames of a block are a multiple of 4096 ÷ gcd(4096, frame).

use serde::{Deserialize, Serialize};

/// Direct I/O lengths, offsets and addresses are multiples of this.
pub const ALIGNMENT: u64 = 4096;

/// The default size of a block, approximately: the rate of a disk is flat from 1 to 4 MiB, and fewer blocks cost less.
pub const BLOCK_BYTES: u64 = 4 << 20;

/// The largest block that a frame length may require.
pub const LARGEST_BLOCK_BYTES: u64 = 64 << 20;

/// The default size of a chunk file, approximately: as at FlexBuff stations.
pub const CHUNK_BYTES: u64 = 256_000_000;

/// The largest datagram there is.
pub const LONGEST_DATAGRAM: u32 = 65_507;

/// The division of a stream's bytes into blocks and chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// Bytes of a stored frame, header included; 0 if lengths vary.
    pub frame_bytes: u32,
    /// Bytes of every block but the last.
    pub block_bytes: u32,
    /// Blocks of every chunk but the last.
    pub chunk_blocks: u32,
}

/// A frame length or block size that cannot be laid out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The length is zero, or larger than a datagram.
    #[error("a frame of {frame_bytes} bytes: frames have 1 to {LONGEST_DATAGRAM} bytes")]
    Frame {
        /// The requested length.
        frame_bytes: u64,
    },
    /// No block of a reasonable size holds a whole aligned number of frames of this length.
    #[error(
        "frames of {frame_bytes} bytes need blocks of {block_bytes} bytes to stay aligned, \
         more than {LARGEST_BLOCK_BYTES}; record them with varying length (frame=varying)"
    )]
    Unaligned {
        /// The frame length.
        frame_bytes: u64,
        /// The smallest aligned block.
        block_bytes: u64,
    },
}

impl Geometry {
    /// Returns blocks for frames of one length: the largest aligned multiple up to `block_bytes`, or the smallest above
    /// it if there is none.
    pub fn of_frames(frame_bytes: u32, block_bytes: u64, chunk_bytes: u64) -> Result<Self, Error> {
        if frame_bytes == 0 || frame_bytes > LONGEST_DATAGRAM {
            return Err(Error::Frame { frame_bytes: frame_bytes.into() });
        }
        let unit = u64::from(frame_bytes) * frames_per_alignment(frame_bytes);
        let block = (block_bytes / unit).max(1) * unit;
        if block > LARGEST_BLOCK_BYTES {
            let frame_bytes = frame_bytes.into();
            return Err(Error::Unaligned { frame_bytes, block_bytes: block });
        }
        Ok(Self::new(frame_bytes, block, chunk_bytes))
    }

    /// Returns blocks for frames of varying length, which may straddle two blocks.
    pub fn of_bytes(block_bytes: u64, chunk_bytes: u64) -> Self {
        let block = block_bytes.clamp(ALIGNMENT, LARGEST_BLOCK_BYTES) / ALIGNMENT * ALIGNMENT;
        Self::new(0, block, chunk_bytes)
    }

    fn new(frame_bytes: u32, block_bytes: u64, chunk_bytes: u64) -> Self {
        Self {
            frame_bytes,
            block_bytes: block_bytes as u32,
            chunk_blocks: (chunk_bytes / block_bytes).clamp(1, u64::from(u32::MAX)) as u32,
        }
    }

    /// Returns the frames in a full block; 0 if lengths vary.
    pub fn frames_per_block(&self) -> u32 {
        self.block_bytes.checked_div(self.frame_bytes).unwrap_or(0)
    }

    /// Bytes of a full chunk.
    pub fn chunk_bytes(&self) -> u64 {
        u64::from(self.block_bytes) * u64::from(self.chunk_blocks)
    }
}

/// Returns the smallest number of frames that is a multiple of [`ALIGNMENT`] bytes.
pub fn frames_per_alignment(frame_bytes: u32) -> u64 {
    ALIGNMENT >> u64::from(frame_bytes).trailing_zeros().min(ALIGNMENT.trailing_zeros())
}

/// The name of chunk `number` in the directory of its stream.
pub fn chunk_file(directory: &str, number: u32) -> String {
    format!("{directory}.{number:08}")
}

/// Returns the number of a chunk file of `directory`, if `file` is one.
pub fn chunk_number(directory: &str, file: &str) -> Option<u32> {
    let digits = file.strip_prefix(directory)?.strip_prefix('.')?;
    (digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_of_the_field_make_aligned_blocks_of_about_four_mebibytes() {
        let frames = |bytes| Geometry::of_frames(bytes, BLOCK_BYTES, CHUNK_BYTES).unwrap();
        assert_eq!(frames(8032).frames_per_block(), 512);
        assert_eq!(frames(8032).block_bytes, 4_112_384);
        assert_eq!(frames(8192).frames_per_block(), 512);
        assert_eq!(frames(10032).frames_per_block(), 256);
        assert_eq!(frames(5032).frames_per_block(), 512);
        assert_eq!(frames(1032).frames_per_block(), 3584);
        for bytes in [544, 1032, 1056, 1312, 5032, 8032, 8224, 9000, 9001, 9032, 10016] {
            let geometry = frames(bytes);
            assert_eq!(u64::from(geometry.block_bytes) % ALIGNMENT, 0, "{bytes}");
            assert_eq!(geometry.block_bytes % bytes, 0, "{bytes}");
        }
    }

    #[test]
    fn absurd_frames_are_refused() {
        assert!(Geometry::of_frames(0, BLOCK_BYTES, CHUNK_BYTES).is_err());
        assert!(Geometry::of_frames(65_508, BLOCK_BYTES, CHUNK_BYTES).is_err());
        assert!(Geometry::of_frames(65_501, BLOCK_BYTES, CHUNK_BYTES).is_err());
    }

    #[test]
    fn chunk_names_are_those_of_flexbuff() {
        let name = chunk_file("r1_a_ds46220", 7);
        assert_eq!(name, "r1_a_ds46220.00000007");
        assert_eq!(chunk_number("r1_a_ds46220", &name), Some(7));
        assert_eq!(chunk_number("r1_a", &name), None);
        assert_eq!(chunk_number("r1_a", "r1_a.1"), None);
    }
}
