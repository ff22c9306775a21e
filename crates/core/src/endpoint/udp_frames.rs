//! The parameters for the length and the rate of a port's frames.

use fullbore_formats::framed::FrameKind;
use fullbore_formats::sequence::Field;
use fullbore_formats::vdif::Mode;

use super::Error;
use super::error::together;
use super::query::Query;
use super::udp::LARGEST_DATAGRAM;
use super::udp_source::{SourceFormat, Threads};
use crate::units::ByteRate;

/// The value of `frame=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameLength {
    Bytes(u32),
    Varying,
}

/// The parameters for the length of frames.
pub(super) struct FrameSize {
    pub frame: Option<FrameLength>,
    pub strip: u32,
    pub format: SourceFormat,
    pub mode: Option<Mode>,
}

impl FrameSize {
    pub fn checked(&self) -> Result<Option<u32>, Error> {
        let of_mode = self.mode.map(|mode| mode.frame_bytes());
        let raw = self.format == SourceFormat::Raw;
        let fixed = match self.format {
            SourceFormat::Frames(kind) => kind.fixed_frame_bytes(),
            SourceFormat::Packets { .. } | SourceFormat::Raw => None,
        };
        let bytes = match self.frame {
            _ if of_mode.is_some() && self.format != SourceFormat::Frames(FrameKind::Vdif) => {
                return Err(together("`mode` is for VDIF, not for other formats"));
            }
            None => of_mode.or(fixed),
            Some(FrameLength::Varying) if raw => None,
            Some(FrameLength::Varying) => {
                return Err(together(
                    "`frame=varying` is for format=raw; the other frames of a stream have one length",
                ));
            }
            Some(FrameLength::Bytes(bytes)) => Some(bytes),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        if of_mode.is_some_and(|of_mode| of_mode != bytes) {
            return Err(together(format!(
                "`mode` and `frame={bytes}` give different frame lengths"
            )));
        }
        if bytes.saturating_add(self.strip) > LARGEST_DATAGRAM {
            let strip = self.strip;
            return Err(together(format!(
                "frames of {bytes} bytes after {strip} stripped bytes do not fit a datagram"
            )));
        }
        if let SourceFormat::Frames(kind) = self.format
            && let Some(why) = kind.refuse_length(bytes)
        {
            return Err(together(format!("{why}, so `frame={bytes}` cannot be")));
        }
        Ok(Some(bytes))
    }

    /// Returns the rate from `fps`, or from `rate` and the frame's length, or from the mode, whose rate its threads
    /// share.
    pub fn frames_per_second(
        &self,
        query: &Query<'_>,
        threads: &Threads,
    ) -> Result<Option<u64>, Error> {
        let fps = query.number("fps", 1..=1 << 24)?;
        let rate: Option<ByteRate> = query.parsed("rate")?;
        match (fps, rate, self.mode) {
            (Some(_), Some(_), _) => Err(together("give `fps` or `rate`, not both")),
            (Some(fps), None, _) => Ok(Some(fps)),
            (None, Some(rate), _) => self.frames_of_rate(rate).map(Some),
            (None, None, Some(mode)) => share_of_mode(mode, threads).map(Some),
            (None, None, None) => Ok(None),
        }
    }

    fn frames_of_rate(&self, rate: ByteRate) -> Result<u64, Error> {
        let Some(bytes) = self.checked()? else {
            return Err(together("`rate` needs `frame` to compute the frame rate"));
        };
        let header = match self.format {
            SourceFormat::Frames(kind) => kind.usual_header_bytes(),
            SourceFormat::Packets { .. } | SourceFormat::Raw => 0,
        };
        let payload = u64::from(bytes.saturating_sub(header).max(1));
        if rate.0 == 0 || !rate.0.is_multiple_of(payload) {
            return Err(together(format!(
                "{rate} is not a whole number of frames of {payload} payload bytes per second; give `fps`"
            )));
        }
        Ok(rate.0 / payload)
    }
}

/// A mode has the rate of all threads together. Listed threads share it; otherwise there is one thread.
fn share_of_mode(mode: Mode, threads: &Threads) -> Result<u64, Error> {
    let threads = match threads {
        Threads::Listed(list) => list.len() as u64,
        Threads::Together | Threads::Split => 1,
    };
    if !mode.frames_per_second().is_multiple_of(threads) {
        return Err(together(format!(
            "{threads} threads cannot share the frames of `mode={mode}`"
        )));
    }
    Ok(mode.frames_per_second() / threads)
}

/// A counter must be wholly in the stripped bytes or wholly in the frame, and not after it.
pub(super) fn check_sequence(
    sequence: Option<&Field>,
    strip: u32,
    frame: Option<FrameLength>,
) -> Result<(), Error> {
    let Some(field) = sequence else { return Ok(()) };
    let (strip, end) = (strip as usize, field.end());
    if field.offset < strip && end > strip {
        return Err(together(format!(
            "`seq={field}` ends at byte {end}, across the {strip} bytes that are stripped"
        )));
    }
    let whole = match frame {
        Some(FrameLength::Bytes(bytes)) => strip + bytes as usize,
        Some(FrameLength::Varying) | None => LARGEST_DATAGRAM as usize,
    };
    if end > whole {
        return Err(together(match frame {
            Some(FrameLength::Bytes(bytes)) => format!(
                "`seq={field}` ends at byte {} + {} = {end}, and a datagram has {strip} stripped + {bytes} of frame = {whole}",
                field.offset, field.width
            ),
            _ => format!("`seq={field}` ends at byte {end}, and no datagram has more than {whole}"),
        }));
    }
    Ok(())
}

pub(super) fn frame_bytes(value: &str) -> Result<FrameLength, String> {
    if value == "varying" {
        return Ok(FrameLength::Varying);
    }
    let bytes = value.parse().ok().filter(|bytes| (1..=LARGEST_DATAGRAM).contains(bytes));
    bytes
        .map(FrameLength::Bytes)
        .ok_or_else(|| format!("it is 1 to {LARGEST_DATAGRAM} bytes, or varying"))
}
