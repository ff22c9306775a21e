//! The bytes that are sent in place of the first ones of a frame.

use fullbore_formats::vdif::Second;

use crate::Frame;
use crate::timeline::moved;

/// The bytes that precede the rest of a frame: a packet number, and the changed time words.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    bytes: [u8; 8 + Head::LONGEST_HEADER],
    length: usize,
    /// The number of bytes of the frame that the head replaces.
    pub replaces: usize,
}

impl Head {
    /// Bytes of the longest header of any format.
    const LONGEST_HEADER: usize = 32;

    pub const NONE: Head = Head { bytes: [0; 8 + Self::LONGEST_HEADER], length: 0, replaces: 0 };

    /// The head of a frame with this packet number, whose time is `frames` later (seconds, if the rate is unknown).
    pub fn of(number: Option<u64>, frame: &Frame<'_>, frames: i64, rate: Option<u64>) -> Self {
        let mut head = Head::NONE;
        if let Some(number) = number {
            head.push(&number.to_le_bytes());
        }
        if frames != 0
            && let Some(codec) = frame.dated
            && let Some(mut header) = codec.read(frame.bytes)
        {
            let (second, number) = moved(header.second().0, header.frame_number(), frames, rate);
            header.set_time(Second(second), number);
            let mut bytes = [0; Self::LONGEST_HEADER];
            if codec.write(&header, &mut bytes).is_some() {
                head.replaces = codec.kind().time_bytes();
                head.push(&bytes[..head.replaces]);
            }
        }
        head
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
