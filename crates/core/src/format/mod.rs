//! What arrives: formats that turn the bytes of one datagram into facts.
//!
//! A format answers three questions about a datagram, from its first 64 bytes at most, without I/O
//! and without a clock: is it whole, which stream does it belong to, and which place has it there?
//!
//! ```text
//! datagram ──► check      damaged, or a header that agrees with its own length
//!          ──► stream     VDIF: station and thread; otherwise the sender alone
//!          ──► index      VDIF: time and frame number, on a Timeline
//!                         any other: a counter somewhere in the datagram, by an Unwrapper
//! ```
//!
//! The index is all that placement and account work with: two frames whose indices differ by one
//! follow one another without a gap, whatever the format.

pub mod panda;
pub mod sequence;
pub mod vdif;

/// What the payload of a missing frame is filled with; correlators know this word and skip it.
pub const FILL: u32 = 0x1122_3344;

/// Why a datagram is not the frame that it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Not even the header is there.
    #[error("{is} bytes are too few for a header of {needs}")]
    TooShort {
        /// Bytes that the header takes.
        needs: usize,
        /// Bytes that came.
        is: usize,
    },
    /// Longer or shorter than the frames of this stream.
    #[error("{is} bytes came where a frame has {expected}")]
    WrongLength {
        /// Bytes of a frame of this stream.
        expected: usize,
        /// Bytes that came.
        is: usize,
    },
    /// The header's own length field speaks of another length.
    #[error("the header says {says} bytes, and {is} came")]
    LengthField {
        /// Header and payload together, by the header.
        says: u32,
        /// Bytes that came.
        is: usize,
    },
    /// A header and nothing behind it.
    #[error("a header of {header_bytes} bytes without a payload")]
    NoPayload {
        /// Bytes that the header takes.
        header_bytes: usize,
    },
    /// A Mark 5B header inside a VDIF header counts another frame than the VDIF header does.
    #[error("the VDIF header counts frame {vdif}, and the Mark 5B header inside it {mark5b}")]
    FrameNumbers {
        /// By the VDIF header.
        vdif: u32,
        /// By the Mark 5B header, which has 15 bits for it.
        mark5b: u16,
    },
}
