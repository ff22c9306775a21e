//! One packet.

/// Bytes of a header with a block id of 16 bits.
pub const HEADER_BYTES: usize = 8;

/// Bytes of a header with extended ids.
pub const EXTENDED_HEADER_BYTES: usize = 20;

/// Bytes of a leader or trailer that tell its type.
const TYPE_BYTES: usize = 4;

/// The status of a packet that was sent again.
pub const STATUS_RESENT: u16 = 0x0100;

/// The bit of an error in a status.
const STATUS_ERROR: u16 = 0x8000;

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The begin of a block: its type, and of an image its time and size.
    Leader,
    /// The end of a block.
    Trailer,
    /// A part of the payload of this kind: 3 generic, 5 H.264, 6 multi-zone, 7 multi-part.
    Payload(u8),
    /// A whole block.
    AllIn,
}

impl Content {
    fn of(format: u8) -> Option<Self> {
        match format {
            1 => Some(Self::Leader),
            2 => Some(Self::Trailer),
            3 | 5..=7 => Some(Self::Payload(format)),
            4 => Some(Self::AllIn),
            _ => None,
        }
    }

    /// The number in headers.
    pub fn number(self) -> u8 {
        match self {
            Self::Leader => 1,
            Self::Trailer => 2,
            Self::Payload(kind) => kind,
            Self::AllIn => 4,
        }
    }
}

/// The reason why bytes are no packet of GVSP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GvspError {
    /// The bytes end within the header, or within what the content needs.
    #[error("{is} bytes are fewer than the {needs} bytes that the packet needs")]
    TooShort {
        /// Bytes that it needs.
        needs: usize,
        /// Bytes there.
        is: usize,
    },
    /// A content that the protocol does not define.
    #[error("content {0:#04x} is not defined")]
    Content(u8),
    /// A packet id that its content cannot have: a leader is packet 0 of its block, and the others are not.
    #[error("packet {packet} of a block cannot have content {content}")]
    Place {
        /// The packet id.
        packet: u32,
        /// The content, as its number.
        content: u8,
    },
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The status.
    pub status: u16,
    /// The block id.
    pub block: u64,
    /// The packet id.
    pub packet: u32,
    /// True if ids are extended: the block id has 64 bits, and the packet id 32.
    pub extended: bool,
    /// The content.
    pub content: Content,
}

impl Packet {
    /// Reads the header of a packet.
    #[inline]
    pub fn read(bytes: &[u8]) -> Result<Self, GvspError> {
        let is = bytes.len();
        let head: &[u8; HEADER_BYTES] =
            bytes.first_chunk().ok_or(GvspError::TooShort { needs: HEADER_BYTES, is })?;
        let extended = head[4] & 0x80 != 0;
        let content = Content::of(head[4] & 0x7F).ok_or(GvspError::Content(head[4]))?;
        let status = u16::from_be_bytes([head[0], head[1]]);
        let short = u16::from_be_bytes([head[2], head[3]]);
        let (block, packet, header_bytes) = if extended {
            let needs = EXTENDED_HEADER_BYTES;
            let head: &[u8; EXTENDED_HEADER_BYTES] =
                bytes.first_chunk().ok_or(GvspError::TooShort { needs, is })?;
            let block = u64::from_be_bytes(head[8..16].try_into().expect("eight bytes"));
            (block, u32::from_be_bytes(head[16..].try_into().expect("four bytes")), needs)
        } else {
            let packet = u32::from_be_bytes([0, head[5], head[6], head[7]]);
            (short.into(), packet, HEADER_BYTES)
        };
        let it = Self { status, block, packet, extended, content };
        let opens = matches!(content, Content::Leader | Content::AllIn);
        if opens != (packet == 0) {
            return Err(GvspError::Place { packet, content: content.number() });
        }
        let needs = match content {
            _ if it.is_error() => header_bytes,
            Content::Leader | Content::Trailer | Content::AllIn => header_bytes + TYPE_BYTES,
            Content::Payload(_) => header_bytes + 1,
        };
        if is < needs {
            return Err(GvspError::TooShort { needs, is });
        }
        Ok(it)
    }

    /// Bytes of the header.
    pub fn header_bytes(&self) -> usize {
        if self.extended { EXTENDED_HEADER_BYTES } else { HEADER_BYTES }
    }

    /// True if the camera sends an error instead of the packet: it has no payload. So it answers a request for a packet
    /// that it no longer has.
    pub fn is_error(&self) -> bool {
        self.status & STATUS_ERROR != 0
    }

    /// True if the packet says that it was sent again.
    pub fn is_resent(&self) -> bool {
        self.status == STATUS_RESENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(extended: bool, content: Content, packet: u32) -> (Packet, Vec<u8>) {
        let it = Packet { status: 0, block: 0xFFF1, packet, extended, content };
        let mut bytes = vec![0xAB; it.header_bytes() + 40];
        assert_eq!(it.write(&mut bytes), Some(it.header_bytes()));
        (it, bytes)
    }

    #[test]
    fn headers_are_read_as_written() {
        for extended in [false, true] {
            for (content, number) in
                [(Content::Leader, 0), (Content::Payload(3), 0xABCDEF), (Content::Trailer, 2)]
            {
                let (it, bytes) = packet(extended, content, number);
                assert_eq!(Packet::read(&bytes), Ok(it));
                for length in 0..it.header_bytes() {
                    assert!(Packet::read(&bytes[..length]).is_err(), "{length}");
                }
            }
        }
        let (it, bytes) = packet(false, Content::Payload(3), 0xABCDEF);
        assert_eq!(bytes[..8], [0, 0, 0xFF, 0xF1, 3, 0xAB, 0xCD, 0xEF]);
        assert!(!it.is_error());
        let (_, bytes) = packet(true, Content::Trailer, 0xABCDEF01);
        assert_eq!(
            bytes[..20],
            [0, 0, 0, 0, 0x82, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xF1, 0xAB, 0xCD, 0xEF, 1]
        );
    }

    #[test]
    fn contents_and_places_that_no_packet_has_are_refused() {
        let (_, mut bytes) = packet(false, Content::Payload(3), 7);
        bytes[4] = 0x13;
        assert_eq!(Packet::read(&bytes), Err(GvspError::Content(0x13)));
        bytes[4] = 1;
        assert_eq!(Packet::read(&bytes), Err(GvspError::Place { packet: 7, content: 1 }));
        bytes[4] = 3;
        bytes[5..8].fill(0);
        assert_eq!(Packet::read(&bytes), Err(GvspError::Place { packet: 0, content: 3 }));
    }

    #[test]
    fn an_error_needs_no_payload() {
        let (_, mut bytes) = packet(false, Content::Payload(3), 7);
        assert_eq!(Packet::read(&bytes[..8]), Err(GvspError::TooShort { needs: 9, is: 8 }));
        bytes[..2].copy_from_slice(&0x800Cu16.to_be_bytes());
        assert!(Packet::read(&bytes[..8]).unwrap().is_error());
        bytes[..2].copy_from_slice(&STATUS_RESENT.to_be_bytes());
        assert!(Packet::read(&bytes).unwrap().is_resent());
    }
}
