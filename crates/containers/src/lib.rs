//! Containers of samples: files that other programs read.
//!
//! ```text
//! blocks ──► Payloads ──► Recoder ──► SampleWriter ──► files
//!            without      to an encoding              numpy: x.npy and x.npy.json
//!            headers      that the format has         Digital RF: top/channel/…
//!                                                     SigMF: x.sigmf-data and x.sigmf-meta
//!                                                     TDMS: x.tdms and x.tdms_index
//!                                                     WAV and RF64: x.wav and x.wav.json
//!                                                     Zarr: x.zarr/…
//! ```
//!
//! A [`SampleFile`] takes the blocks of one stream, stored or live. Its [`SampleFormat`] creates the writer, which gets the
//! samples in order, those that are not there too, and the account at the end. A writer knows neither blocks nor frames.

mod beside;
#[cfg(feature = "hdf5")]
mod digital_rf;
mod error;
mod file;
mod fill;
mod format;
mod gaps;
mod numpy;
mod packets;
mod payload;
pub mod read;
mod recoder;
mod sigmf;
mod target;
pub mod tdms;
mod wav;
mod zarr;

use std::io;
use std::path::Path;

use fullbore_core::account::Account;
use fullbore_formats::samples::SampleLayout;
use fullbore_time::Tai;

#[cfg(feature = "hdf5")]
pub use self::digital_rf::DigitalRfOptions;
pub use self::error::SampleError;
pub use self::file::{Purpose, SampleFile, SampleOptions};
pub use self::format::SampleFormat;
pub use self::gaps::{SampleGap, SampleGaps};
pub use self::packets::PacketPayloads;
pub use self::payload::{Framing, Part, SampleBlock};
pub use self::recoder::{Recoder, SampleType};
pub use self::sigmf::SigmfWriter;
pub use self::target::SampleTarget;

/// What the files of a stream begin with.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// The scan's name.
    pub scan: &'a str,
    /// The stream's name.
    pub stream: &'a str,
    /// The samples, as they are appended. The encoding is one of [`SampleFormat::encoding`].
    pub layout: &'a SampleLayout,
    /// The time of the first sample.
    pub start: Option<Tai>,
    /// Where the samples come from.
    pub origin: Origin<'a>,
}

/// Where samples come from. A text without a value is empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin<'a> {
    /// Program and version that recorded them.
    pub software: &'a str,
    /// The host of the recording.
    pub host: &'a str,
    /// The endpoint that they came from.
    pub source: &'a str,
    /// The file that lists the streams of the scan, if there are several: see [`SampleFormat::list`].
    pub list: Option<&'a Path>,
}

/// What the files of a stream end with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ending<'a> {
    /// The account of their content.
    pub account: Option<&'a Account>,
    /// What they lack of it, and why, if a write failed.
    pub lacks: Option<&'a str>,
    /// The notes on samples, in order.
    pub notes: &'a [Note],
}

/// A note on a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The number of the sample, counted from 0, those that are not there too.
    pub sample: u64,
    /// The marked moment.
    pub time: Tai,
    /// The text.
    pub text: String,
    /// A UUID.
    pub uuid: String,
}

/// Files that have their ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Samples of each channel, those that are not there too.
    pub samples: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

/// The files of one stream, while they are written.
pub trait SampleWriter: Send {
    /// Appends whole samples of all channels, in the layout of the opening.
    fn append(&mut self, samples: &[u8]) -> io::Result<()>;

    /// Appends samples that are not there.
    fn append_absent(&mut self, samples: u64) -> io::Result<()>;

    /// Samples appended to each channel.
    fn samples(&self) -> u64;

    /// Notes the centre frequency from a sample on, which may come later. Formats without a place for it ignore it.
    fn tune(&mut self, _sample: u64, _hertz: f64) {}

    /// Makes what was appended survive a power failure, in a state that readers of the format accept.
    fn sync(&mut self) -> io::Result<()>;

    /// Writes the ending, and makes the files durable.
    fn finish(self: Box<Self>, ending: &Ending<'_>) -> io::Result<Finished>;

    /// After a failed write: leaves the samples of the last sync, with their ending if the format has room for it. Unless a
    /// format does more, its files stay as they are.
    fn abandon(self: Box<Self>, _ending: &Ending<'_>) -> io::Result<()> {
        Ok(())
    }
}
