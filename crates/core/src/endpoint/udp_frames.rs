//! How long the frames of a port are and how many come a second, by the parameters that speak of it.

use super::Error;
use super::error::together;
use super::query::Query;
use super::udp::LARGEST_DATAGRAM;
use super::udp_source::{SourceFormat, Threads};
use crate::format::sequence::Field;
use crate::format::vdif::Mode;
use crate::units::ByteRate;

/// What `frame=` said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameLength {
    Bytes(u32),
    Varying,
}

/// The parameters that speak of the length of frames.
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
        let bytes = match self.frame {
            _ if raw && of_mode.is_some() => {
                return Err(together("`mode` speaks of VDIF, and not of format=raw"));
            }
            None => of_mode,
            Some(FrameLength::Varying) if raw => None,
            Some(FrameLength::Varying) => {
                return Err(together(
                    "`frame=varying` is for format=raw; the VDIF frames of a stream have one length",
                ));
            }
            Some(FrameLength::Bytes(bytes)) => Some(bytes),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        if of_mode.is_some_and(|of_mode| of_mode != bytes) {
            return Err(together(format!("`mode` makes other frames than `frame={bytes}`")));
        }
        if bytes.saturating_add(self.strip) > LARGEST_DATAGRAM {
            let strip = self.strip;
            return Err(together(format!(
                "frames of {bytes} bytes behind {strip} that are stripped do not fit a datagram"
            )));
        }
        if !raw && (!bytes.is_multiple_of(8) || bytes <= 16) {
            return Err(together(format!(
                "VDIF frames are multiples of 8 bytes and longer than their header, which is in them and has \
                 16 or 32, so `frame={bytes}` cannot be"
            )));
        }
        Ok(Some(bytes))
    }

    /// From `fps`, or `rate` and the frame's length, or the mode, whose rate its threads share.
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
            return Err(together("`rate` needs `frame`, to know how many frames it makes"));
        };
        let header = if self.format == SourceFormat::Vdif { 32 } else { 0 };
        let payload = u64::from(bytes.saturating_sub(header).max(1));
        if rate.0 == 0 || !rate.0.is_multiple_of(payload) {
            return Err(together(format!(
                "{rate} is not a whole number of frames of {payload} payload bytes per second; give `fps`"
            )));
        }
        Ok(rate.0 / payload)
    }
}

/// A mode tells the rate of all threads together. Listed ones share it; otherwise one is assumed.
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

/// A counter lies wholly in what is left out or wholly in the frame, and not beyond it.
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
