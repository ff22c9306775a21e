//! Formats whose frames carry their own time: the interface, and the list of them.
//!
//! A format converts the header of its frames to a [`Header`] in memory and back. [`Header`] has every field that
//! capture, account, `verify`, `recover` and `play` use: second, frame number, station, thread, length, mark. So these
//! know no format by name: they hold a [`FrameCodec`].
//!
//! ```text
//! frame ──► read, check ──► Header ──► Timeline: index, rate, time
//! Header ──► write ──► frame            fill, replays at another time, generate
//! ```
//!
//! To add a format, implement [`FrameFormat`] in a file of this folder, and add its name to the list below. Fields that
//! [`Header`] lacks go into its last four words: see [`Extended`](super::vdif::Extended).

use fullbore_time::{Day, Tai};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::mark5b::Mark5b;
use super::vdif::{Header, Second, Vdif};
use super::{Damage, FILL};

/// A format of frames that carry their own time. It is sans-IO: no clock, no state.
pub trait FrameFormat {
    /// The name in `format=` and in manifests.
    const NAME: &'static str;
    /// The name in messages.
    const TITLE: &'static str;
    /// The bytes at the start of a frame that identify it, at most.
    const HEAD_BYTES: usize;
    /// Bytes of header and payload together, if all frames have the same.
    const FRAME_BYTES: Option<u32>;
    /// Bytes of the usual header.
    const HEADER_BYTES: u32;
    /// The bytes at the start of a frame that change with its time.
    const TIME_BYTES: usize;
    /// True if a header can mark its frame as invalid.
    const MARKS_INVALID: bool;
    /// True if a header has the length of its frame.
    const STATES_LENGTH: bool;
    /// The number of threads that a header can distinguish.
    const THREADS: u16;
    /// The most frames of a thread per second that a header can number.
    const MOST_FRAMES: u64;
    /// The number of datagrams over which senders split a frame behind packet numbers; 1 if they do not.
    const PARTS: usize = 1;

    /// Reads the header of a frame that may be damaged. `near` is a day within 500 days of the frame, for headers that
    /// leave out the year.
    fn read(head: &[u8], near: Day) -> Option<Header>;

    /// Checks that bytes are one whole frame of `expected_bytes` with a consistent header. Time, thread and station are
    /// not checked: the valid values depend on the stream.
    fn check(frame: &[u8], expected_bytes: usize, near: Day) -> Result<Header, Damage>;

    /// Writes a header to the start of a frame and returns its bytes; `None` if the frame is shorter.
    fn write(header: &Header, frame: &mut [u8]) -> Option<usize>;

    /// Returns the bytes of this header in a frame.
    fn header_bytes(header: &Header) -> usize;

    /// Returns the bytes of header and payload together, by the header.
    fn frame_bytes(header: &Header) -> u32;

    /// Returns the header of a frame that never arrived: its neighbour's identity, its own time. `rate` is the frames
    /// of its thread per second, if known.
    fn fill_header(neighbour: &Header, second: Second, frame: u32, rate: Option<u64>) -> Header;

    /// Returns the reason why frames of the format cannot have this length.
    fn refuse_length(bytes: u32) -> Option<String>;
}

/// Makes the enum of all formats from their list, and the functions that call the format of a codec.
macro_rules! formats {
    ($($(#[$meaning:meta])* $name:ident,)*) => {
        /// A format of frames that carry their own time.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum FrameKind {$($(#[$meaning])* $name,)*}

        impl FrameKind {
            /// All formats.
            pub const ALL: &[FrameKind] = &[$(FrameKind::$name,)*];

            /// Returns the name in `format=` and in manifests.
            pub fn name(self) -> &'static str {
                match self {$(FrameKind::$name => $name::NAME,)*}
            }

            /// Returns the name in messages.
            pub fn title(self) -> &'static str {
                match self {$(FrameKind::$name => $name::TITLE,)*}
            }

            /// Returns the bytes at the start of a frame that identify it, at most.
            pub fn head_bytes(self) -> usize {
                match self {$(FrameKind::$name => $name::HEAD_BYTES,)*}
            }

            /// Returns the bytes of a frame, if all frames of the format have the same.
            pub fn fixed_frame_bytes(self) -> Option<u32> {
                match self {$(FrameKind::$name => $name::FRAME_BYTES,)*}
            }

            /// Returns the bytes of the usual header.
            pub fn usual_header_bytes(self) -> u32 {
                match self {$(FrameKind::$name => $name::HEADER_BYTES,)*}
            }

            /// Returns the bytes at the start of a frame that change with its time.
            pub fn time_bytes(self) -> usize {
                match self {$(FrameKind::$name => $name::TIME_BYTES,)*}
            }

            /// True if a header can mark its frame as invalid.
            pub fn marks_invalid(self) -> bool {
                match self {$(FrameKind::$name => $name::MARKS_INVALID,)*}
            }

            /// True if a header has the length of its frame.
            pub fn states_length(self) -> bool {
                match self {$(FrameKind::$name => $name::STATES_LENGTH,)*}
            }

            /// Returns the number of threads that a header can distinguish.
            pub fn threads(self) -> u16 {
                match self {$(FrameKind::$name => $name::THREADS,)*}
            }

            /// Returns the most frames of a thread per second that a header can number.
            pub fn most_frames(self) -> u64 {
                match self {$(FrameKind::$name => $name::MOST_FRAMES,)*}
            }

            /// Returns the number of datagrams over which senders split a frame behind packet numbers.
            pub fn parts(self) -> usize {
                match self {$(FrameKind::$name => $name::PARTS,)*}
            }

            /// Returns the reason why frames of the format cannot have this length.
            pub fn refuse_length(self, bytes: u32) -> Option<String> {
                match self {$(FrameKind::$name => $name::refuse_length(bytes),)*}
            }
        }

        impl FrameCodec {
            /// Reads the header of a frame that may be damaged.
            #[inline]
            pub fn read(self, head: &[u8]) -> Option<Header> {
                match self.kind {$(FrameKind::$name => $name::read(head, self.near),)*}
            }

            /// Checks that bytes are one whole frame of `expected_bytes` with a consistent header.
            #[inline]
            pub fn check(self, frame: &[u8], expected_bytes: usize) -> Result<Header, Damage> {
                match self.kind {
                    $(FrameKind::$name => $name::check(frame, expected_bytes, self.near),)*
                }
            }

            /// Writes a header to the start of a frame and returns its bytes; `None` if the frame is shorter.
            #[inline]
            pub fn write(self, header: &Header, frame: &mut [u8]) -> Option<usize> {
                match self.kind {$(FrameKind::$name => $name::write(header, frame),)*}
            }

            /// Returns the bytes of this header in a frame.
            pub fn header_bytes(self, header: &Header) -> usize {
                match self.kind {$(FrameKind::$name => $name::header_bytes(header),)*}
            }

            /// Returns the bytes of header and payload together, by the header.
            pub fn frame_bytes(self, header: &Header) -> u32 {
                match self.kind {$(FrameKind::$name => $name::frame_bytes(header),)*}
            }

            /// Returns the header of a frame that never arrived.
            pub fn fill_header(
                self,
                neighbour: &Header,
                second: Second,
                frame: u32,
                rate: Option<u64>,
            ) -> Header {
                match self.kind {
                    $(FrameKind::$name => $name::fill_header(neighbour, second, frame, rate),)*
                }
            }
        }
    };
}

// The list of formats. A frame is tried as each, from the last to the first: VDIF has no sync word, so it stays first.
formats! {
    /// VDIF.
    Vdif,
    /// Mark 5B.
    Mark5b,
}

impl FrameKind {
    /// Returns the format of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// Returns the format of the frame at the start of some bytes. VDIF is first in the list and has no sync word, so it
    /// is tried last.
    pub fn of_start(bytes: &[u8]) -> Option<Self> {
        let read = |kind: &FrameKind| FrameCodec::any_day(*kind).read(bytes);
        Self::ALL.iter().rev().copied().find(|kind| read(kind).is_some())
    }
}

impl Serialize for FrameKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for FrameKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::named(&name)
            .ok_or_else(|| serde::de::Error::custom(format!("`{name}` is no format of frames")))
    }
}

/// Reads and writes the frames of one format, near a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameCodec {
    kind: FrameKind,
    near: Day,
}

impl FrameCodec {
    /// The codec for VDIF, whose headers are complete.
    pub const VDIF: FrameCodec = FrameCodec::any_day(FrameKind::Vdif);

    /// Returns the codec for frames of any day: only their second and frame number may be wrong.
    pub const fn any_day(kind: FrameKind) -> Self {
        Self { kind, near: Day(0) }
    }

    /// Returns the codec for frames within 500 days of an instant.
    pub fn new(kind: FrameKind, near: Tai) -> Self {
        Self { kind, near: Day::of(near) }
    }

    /// Returns the format.
    pub fn kind(self) -> FrameKind {
        self.kind
    }

    /// True if a frame is fill that keeps its header, as `Fill::Invalid` makes it: the payload is the fill word, and the
    /// header says that it is invalid, if it can.
    pub fn is_fill(self, header: &Header, frame: &[u8]) -> bool {
        let payload = frame.get(self.header_bytes(header)..).unwrap_or_default();
        (header.invalid() || !self.kind.marks_invalid())
            && payload.len() >= 4
            && payload.chunks_exact(4).all(|word| word == FILL.to_le_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_found_by_its_name_and_written_so() {
        for &kind in FrameKind::ALL {
            assert_eq!(FrameKind::named(kind.name()), Some(kind));
            let json = serde_json::to_string(&kind).unwrap();
            assert_eq!(serde_json::from_str::<FrameKind>(&json).unwrap(), kind);
            if let Some(bytes) = kind.fixed_frame_bytes() {
                assert_eq!(kind.refuse_length(bytes), None);
                assert!(kind.refuse_length(bytes + 8).is_some());
            }
        }
        assert!(serde_json::from_str::<FrameKind>("\"panda\"").is_err());
    }
}
