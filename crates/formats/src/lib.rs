//! Packet formats: each interprets the bytes of one datagram.
//!
//! A format determines three facts of a datagram from at most its first 64 bytes, without I/O and without a clock:
//! whether it is whole, its stream, and its index there.
//!
//! ```text
//! datagram ──► check      damaged, or a header that agrees with its own length
//!          ──► stream     frames with a time: station and thread; otherwise the sender alone
//!          ──► index      frames with a time: second and frame number, on a Timeline
//!                         any other: a counter somewhere in the datagram, by an Unwrapper
//! ```
//!
//! Formats whose frames carry their own time are behind one interface: [`framed`].
//!
//! Placement and account use only the index: two frames whose indices differ by one are consecutive, in any format.
//!
//! It opens no socket or file, reads no clock, and knows no endpoint, account or block.

#![forbid(unsafe_code)]

pub mod framed;
pub mod framing;
pub mod gvcp;
pub mod gvsp;
pub mod hint;
pub mod mark5b;
pub mod packets;
pub mod panda;
pub mod pcap;
pub mod rtp;
pub mod samples;
pub mod sequence;
pub mod spead;
pub mod tdms;
pub mod tpacket;
pub mod vdif;
pub mod vita49;

/// The fill word for the payload of a missing frame; correlators know this word and skip it.
pub const FILL: u32 = 0x1122_3344;

/// The reason why a datagram is not a valid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The datagram is shorter than the header.
    #[error("{is} bytes are fewer than the {needs} bytes of a header")]
    TooShort {
        /// Bytes of the header.
        needs: usize,
        /// Bytes received.
        is: usize,
    },
    /// The datagram is longer or shorter than the frames of this stream.
    #[error("received {is} bytes instead of a frame of {expected} bytes")]
    WrongLength {
        /// Bytes of a frame of this stream.
        expected: usize,
        /// Bytes received.
        is: usize,
    },
    /// The header's own length field differs from the length of the datagram.
    #[error("the header states {says} bytes, but {is} were received")]
    LengthField {
        /// Bytes of header and payload together, by the header.
        says: u32,
        /// Bytes received.
        is: usize,
    },
    /// The datagram has a header and no payload.
    #[error("a header of {header_bytes} bytes without a payload")]
    NoPayload {
        /// Bytes of the header.
        header_bytes: usize,
    },
    /// The bytes do not begin with the sync word of the format.
    #[error("the sync word is {is:#010X} instead of {expected:#010X}")]
    NoSync {
        /// The sync word.
        expected: u32,
        /// The word received.
        is: u32,
    },
    /// The time code has a digit above 9, or a second that no day has.
    #[error("the time code {is:#010X} is no day and second")]
    TimeCode {
        /// The word received.
        is: u32,
    },
    /// The Mark 5B header inside a VDIF header has another frame number than the VDIF header.
    #[error("the VDIF header has frame number {vdif}, the Mark 5B header inside it {mark5b}")]
    FrameNumbers {
        /// The number in the VDIF header.
        vdif: u32,
        /// The number in the Mark 5B header, which has 15 bits for it.
        mark5b: u16,
    },
}
