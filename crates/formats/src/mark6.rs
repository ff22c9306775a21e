//! Mark 6 scatter-gather files: one of several files over which the frames of a recording are dealt out, block by block.
//!
//! ```text
//! file    0 sync 0xFEED6666 · 4 version · 8 bytes of a block, with its header · 12 format of the packets · 16 bytes of a packet
//! block   0 number, from 0, over all files · 4 bytes of this block, with its header (version 2 only) · whole packets
//! ──────────────────────────────────────────────────────────────────────────────────────────────────────► little-endian i32
//! ```
//!
//! The numbers in one file ascend, with holes: the other files have those. Blocks of version 1 all have the size that the
//! file states.

/// Bytes of the header of a file.
pub const FILE_HEADER_BYTES: usize = 20;

/// The longest header of a block, in bytes.
pub const BLOCK_HEADER_BYTES: usize = 8;

/// The largest block, in bytes. Recorders write blocks of 10 MB.
pub const LARGEST_BLOCK: u32 = 256 << 20;

/// The largest packet, in bytes.
pub const LARGEST_PACKET: u32 = 65_507;

/// The word that opens a file.
const SYNC: u32 = 0xFEED_6666;

/// The reason why bytes are no Mark 6 file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mark6Error {
    /// The bytes end within a header.
    #[error("{is} bytes are fewer than the {needs} bytes of a header")]
    TooShort {
        /// Bytes of the header.
        needs: usize,
        /// Bytes there.
        is: usize,
    },
    /// The file does not begin with the sync word.
    #[error("the file begins with {0:#010x} instead of 0xfeed6666")]
    Sync(u32),
    /// A version that is not known.
    #[error("version {0} is not known: 1 and 2 are")]
    Version(i32),
    /// A size that no recorder writes.
    #[error("{what} of {bytes} bytes are not possible")]
    Size {
        /// What has the size.
        what: &'static str,
        /// The size.
        bytes: i32,
    },
    /// A negative number of a block.
    #[error("a block has the number {0}")]
    Number(i32),
}

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The version, 1 or 2.
    pub version: u8,
    /// Bytes of a full block, with its header.
    pub block_bytes: u32,
    /// The format of the packets: 0 VDIF, 1 Mark 5B, 2 unknown.
    pub packet_format: i32,
    /// Bytes of a packet, which is a frame.
    pub packet_bytes: u32,
}

fn word(bytes: &[u8], at: usize) -> i32 {
    i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl FileHeader {
    /// Reads the header from the first bytes of a file.
    pub fn read(bytes: &[u8]) -> Result<Self, Mark6Error> {
        let (is, needs) = (bytes.len(), FILE_HEADER_BYTES);
        let head = bytes.get(..needs).ok_or(Mark6Error::TooShort { needs, is })?;
        if word(head, 0) as u32 != SYNC {
            return Err(Mark6Error::Sync(word(head, 0) as u32));
        }
        let version = match word(head, 4) {
            version @ 1..=2 => version as u8,
            version => return Err(Mark6Error::Version(version)),
        };
        let size = |at: usize, what, most: u32| {
            let bytes = word(head, at);
            let size = u32::try_from(bytes).ok().filter(|size| (1..=most).contains(size));
            size.ok_or(Mark6Error::Size { what, bytes })
        };
        let block_bytes = size(8, "blocks", LARGEST_BLOCK)?;
        let packet_bytes = size(16, "packets", LARGEST_PACKET)?;
        let header = Self { version, block_bytes, packet_format: word(head, 12), packet_bytes };
        if block_bytes < header.block_header_bytes() as u32 + packet_bytes {
            return Err(Mark6Error::Size { what: "blocks", bytes: block_bytes as i32 });
        }
        Ok(header)
    }

    /// Bytes of the header of a block.
    pub fn block_header_bytes(&self) -> usize {
        if self.version == 1 { 4 } else { BLOCK_HEADER_BYTES }
    }

    /// Reads the header of a block.
    pub fn block(&self, bytes: &[u8]) -> Result<BlockHeader, Mark6Error> {
        let (is, needs) = (bytes.len(), self.block_header_bytes());
        let head = bytes.get(..needs).ok_or(Mark6Error::TooShort { needs, is })?;
        let stated = if self.version == 1 { self.block_bytes as i32 } else { word(head, 4) };
        let number = u32::try_from(word(head, 0)).map_err(|_| Mark6Error::Number(word(head, 0)))?;
        let least = needs as u32;
        let bytes = u32::try_from(stated).ok().filter(|it| (least..=LARGEST_BLOCK).contains(it));
        let bytes = bytes.ok_or(Mark6Error::Size { what: "blocks", bytes: stated })?;
        Ok(BlockHeader { number, bytes })
    }
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// The number over all files.
    pub number: u32,
    /// Bytes, with this header.
    pub bytes: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of a file that a Mark 6 recorder wrote: packets of 8032 bytes, block 2.
    const REAL: [u8; 28] = [
        0x66, 0x66, 0xED, 0xFE, 2, 0, 0, 0, 0x08, 0xE7, 0xFF, 0, 0, 0, 0, 0, 0x60, 0x1F, 0, 0, //
        2, 0, 0, 0, 0x08, 0xE7, 0xFF, 0,
    ];

    #[test]
    fn headers_of_a_real_file_are_read() {
        let file = FileHeader::read(&REAL).unwrap();
        let block_bytes = 0xFF_E708;
        let expected = FileHeader { version: 2, block_bytes, packet_format: 0, packet_bytes: 8032 };
        assert_eq!(file, expected);
        let block = BlockHeader { number: 2, bytes: block_bytes };
        assert_eq!(file.block(&REAL[20..]), Ok(block));
        assert!((block_bytes - 8).is_multiple_of(8032));
        let old = FileHeader { version: 1, ..file };
        assert_eq!(old.block(&REAL[20..24]), Ok(block));
    }

    #[test]
    fn headers_that_are_cut_or_impossible_are_refused() {
        for length in 0..20 {
            let error = Mark6Error::TooShort { needs: 20, is: length };
            assert_eq!(FileHeader::read(&REAL[..length]), Err(error));
        }
        let with = |at: usize, value: i32| {
            let mut bytes = REAL;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            bytes
        };
        let refused = |at, value| FileHeader::read(&with(at, value)).unwrap_err();
        assert_eq!(refused(0, 1), Mark6Error::Sync(1));
        assert_eq!(refused(4, 3), Mark6Error::Version(3));
        for (at, value, what) in [(8, -1, "blocks"), (8, 8039, "blocks"), (16, 0, "packets"), (16, 70_000, "packets")] {
            assert_eq!(refused(at, value), Mark6Error::Size { what, bytes: value });
        }
        let file = FileHeader::read(&REAL).unwrap();
        let block = |at, value| file.block(&with(at, value)[20..]).unwrap_err();
        assert_eq!(block(20, -5), Mark6Error::Number(-5));
        assert_eq!(block(24, 7), Mark6Error::Size { what: "blocks", bytes: 7 });
        assert!(file.block(&REAL[20..27]).is_err());
    }
}
