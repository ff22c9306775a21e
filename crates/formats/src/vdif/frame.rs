//! VDIF as a format of frames that carry their own time.

use fullbore_time::Day;

use super::{Header, Second, check};
use crate::Damage;
use crate::framed::FrameFormat;

/// The format of VDIF frames. Their headers are complete.
pub struct Vdif;

impl FrameFormat for Vdif {
    const NAME: &'static str = "vdif";
    const TITLE: &'static str = "VDIF";
    const HEAD_BYTES: usize = Header::BYTES;
    const FRAME_BYTES: Option<u32> = None;
    const HEADER_BYTES: u32 = Header::BYTES as u32;
    const TIME_BYTES: usize = 8;
    const MARKS_INVALID: bool = true;
    const STATES_LENGTH: bool = true;
    const THREADS: u16 = 1024;
    const MOST_FRAMES: u64 = 1 << 24;

    #[inline]
    fn read(head: &[u8], _: Day) -> Option<Header> {
        Header::read(head).ok()
    }

    #[inline]
    fn check(frame: &[u8], expected_bytes: usize, _: Day) -> Result<Header, Damage> {
        check(frame, expected_bytes)
    }

    fn write(header: &Header, frame: &mut [u8]) -> Option<usize> {
        header.write(frame).ok()
    }

    fn header_bytes(header: &Header) -> usize {
        header.header_bytes()
    }

    fn frame_bytes(header: &Header) -> u32 {
        header.frame_bytes()
    }

    fn fill_header(neighbour: &Header, second: Second, frame: u32, _: Option<u64>) -> Header {
        Header::fill_like(neighbour, second, frame)
    }

    fn refuse_length(bytes: u32) -> Option<String> {
        let possible = bytes.is_multiple_of(8) && bytes > Header::LEGACY_BYTES as u32;
        (!possible).then(|| {
            "VDIF frames are multiples of 8 bytes and longer than their header, which is in them and has 16 or 32"
                .to_owned()
        })
    }
}
