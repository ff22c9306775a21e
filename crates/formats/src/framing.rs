//! Frames in a stream of bytes, as TCP carries it: of one length, or each behind its length.
//!
//! ```text
//! Fixed       │ frame │ frame │ frame │ …
//! Prefixed    │ length │ frame │ length │ frame │ …       the length counts the frame alone
//! ```

use std::ops::Range;

use crate::hint::Hint;
use crate::sequence::Field;

/// The longest frame, as long as the longest datagram.
pub const LONGEST_FRAME: usize = 65_507;

/// The division of a stream of bytes into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// All frames have this length, at least 1.
    Fixed(usize),
    /// The length of each frame precedes it.
    Prefixed {
        /// Bytes of the length: 1, 2, 4 or 8.
        width: usize,
        /// True if the highest byte comes first.
        big_endian: bool,
    },
}

/// A length that no frame has. The frames after it cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream announces a frame of {length} bytes, and frames have at most {LONGEST_FRAME}")]
pub struct FramingError {
    /// The length.
    pub length: u64,
}

/// A text that is no `prefix=`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no length before each frame")]
pub struct PrefixError(String);

impl Hint for PrefixError {
    fn hint(&self) -> Option<std::borrow::Cow<'static, str>> {
        Some("write the bytes of the length (1, 2, 4 or 8) and their order, such as 4:le".into())
    }
}

impl Framing {
    /// Reads `4:le`: frames behind a length of four bytes.
    pub fn prefixed(text: &str) -> Result<Self, PrefixError> {
        let field: Option<Field> = format!("0:{text}").parse().ok();
        match field {
            Some(Field { width: width @ (1 | 2 | 4 | 8), big_endian, .. }) => {
                Ok(Self::Prefixed { width, big_endian })
            }
            _ => Err(PrefixError(text.chars().take(64).collect())),
        }
    }

    /// Returns the range of the frame at the start of `bytes`; `None` if it is not all there. The next frame begins
    /// where it ends.
    pub fn next(self, bytes: &[u8]) -> Result<Option<Range<usize>>, FramingError> {
        let (start, length) = match self {
            Self::Fixed(length) => (0, length),
            Self::Prefixed { width, big_endian } => {
                let Some(length) = (Field { offset: 0, width, big_endian }).read(bytes) else {
                    return Ok(None);
                };
                let fits = usize::try_from(length).ok().filter(|it| *it <= LONGEST_FRAME);
                (width, fits.ok_or(FramingError { length })?)
            }
        };
        Ok((start + length <= bytes.len()).then_some(start..start + length))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The frames of a stream that arrives in these pieces.
    fn frames<'a>(framing: Framing, pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
        let (mut buffer, mut frames) = (Vec::new(), Vec::new());
        for piece in pieces {
            buffer.extend_from_slice(piece);
            while let Some(frame) = framing.next(&buffer).unwrap() {
                frames.push(buffer[frame.clone()].to_vec());
                buffer.drain(..frame.end);
            }
        }
        frames
    }

    #[test]
    fn every_way_of_splitting_the_stream_gives_the_same_frames() {
        let sent = [vec![1; 3], vec![2; 300], vec![], vec![3; 7]];
        let prefixed: Vec<u8> = sent
            .iter()
            .flat_map(|frame| [&(frame.len() as u16).to_be_bytes()[..], frame].concat())
            .collect();
        let framing = Framing::prefixed("2:be").unwrap();
        let equal: Vec<u8> = (0..100).collect();
        for size in 1..=prefixed.len() {
            assert_eq!(frames(framing, prefixed.chunks(size)), sent, "{size}");
            let cut: Vec<&[u8]> = equal.chunks_exact(7).collect();
            assert_eq!(frames(Framing::Fixed(7), equal.chunks(size)), cut, "{size}");
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_refused() {
        let framing = Framing::prefixed("4:le").unwrap();
        let error = framing.next(&[0xE4, 0xFF, 0, 0]).unwrap_err();
        assert_eq!(error, FramingError { length: 65_508 });
        for text in ["", "3:le", "4", "4:xe", "0:4:le", "16:be"] {
            assert!(Framing::prefixed(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_framed_within_their_bounds(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            for text in ["1:le", "2:be", "4:le", "8:be"] {
                if let Ok(Some(frame)) = Framing::prefixed(text).unwrap().next(&bytes) {
                    prop_assert!(frame.start <= frame.end && frame.end <= bytes.len());
                }
            }
        }
    }
}
