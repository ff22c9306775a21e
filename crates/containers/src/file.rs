//! A file of samples that takes blocks: of a stored stream, or of one that is being recorded.
//!
//! ```text
//! block ──► frames ──► payload ──► Recoder ──► SampleWriter
//!             └─ fill, invalid or absent frames ──► SampleWriter::append_absent
//! ```

use std::io;
use std::path::{Path, PathBuf};

use fullbore_formats::samples::{SampleLayout, SampleRate};
use fullbore_formats::vita49::listing::ListedChange;
use fullbore_time::Tai;

use crate::payload::{Framing, Part, Payloads, SampleBlock};
use crate::{
    Ending, Finished, Opening, Origin, Recoder, SampleError, SampleFormat, SampleType, SampleWriter,
};

/// How samples are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleOptions {
    /// The format of the files.
    pub format: SampleFormat,
    /// The type of the values. `None`: the one that the format prefers.
    pub values: Option<SampleType>,
}

/// What a file is made for.
#[derive(Clone, Copy, Debug)]
pub struct Purpose<'a> {
    /// The scan's name.
    pub scan: &'a str,
    /// The stream's name.
    pub stream: &'a str,
    /// What the stream is.
    pub framing: Framing<'a>,
    /// The time of the first frame: that of [`Framing::first`], else of the first block.
    pub start: Tai,
    /// Where the samples come from.
    pub origin: Origin<'a>,
}

/// The samples of a stream, and the files that they go into.
pub struct SampleFile {
    path: PathBuf,
    payloads: Payloads,
    recoder: Recoder,
    writer: Box<dyn SampleWriter>,
    parts: Vec<Part>,
    bytes: u64,
    /// The time of the first sample, and samples per second.
    start: Tai,
    rate: Option<SampleRate>,
    /// True if the endpoint states the frequency.
    is_tuned: bool,
}

impl SampleFile {
    /// Creates the files of a stream, whose first block this is. The block is not appended.
    pub fn create(
        path: &Path,
        options: &SampleOptions,
        purpose: &Purpose<'_>,
        first: &SampleBlock<'_>,
    ) -> Result<Self, SampleError> {
        let payloads = Payloads::of(&purpose.framing, first)?;
        let recorded = &payloads.layout;
        let encoding = options.format.encoding(recorded.encoding, options.values)?;
        let layout = SampleLayout { encoding, ..recorded.clone() };
        let recoder = Recoder::new(recorded.encoding, encoding)?;
        let (scan, stream) = (purpose.scan, purpose.stream);
        let start = payloads.start().unwrap_or(purpose.start);
        let (rate, origin) = (layout.sample_rate, purpose.origin);
        let opening = Opening { scan, stream, layout: &layout, start: Some(start), origin };
        let created = options.format.create(path, &opening);
        let writer = created.map_err(|source| failed(path, source))?;
        let path = path.to_owned();
        let described = purpose.framing.samples.and_then(|samples| samples.frequency_hz);
        let is_tuned = described.is_some();
        let mut file = Self {
            path,
            payloads,
            recoder,
            writer,
            parts: Vec::new(),
            bytes: 0,
            start,
            rate,
            is_tuned,
        };
        purpose.framing.context.iter().for_each(|change| file.tune(change));
        Ok(file)
    }

    /// Notes the centre frequency in a change of the context, if it is one of this stream.
    pub fn tune(&mut self, change: &ListedChange) {
        if self.is_tuned {
            return;
        }
        let is_own = self.payloads.stream_id().is_some_and(|id| change.stream_id == id);
        let Some((time, hertz)) = change.time.zip(change.rf_frequency_hz).filter(|_| is_own) else {
            return;
        };
        let Some((above, below)) = self.rate.map(SampleRate::ratio) else { return };
        let ns = u128::try_from(time.since(self.start)).unwrap_or(0);
        let sample = ns * u128::from(above) / (u128::from(below) * 1_000_000_000);
        self.writer.tune(u64::try_from(sample).unwrap_or(u64::MAX), hertz.get());
    }

    /// Appends the samples of a block.
    pub fn append(&mut self, block: &SampleBlock<'_>) -> Result<(), SampleError> {
        self.parts.clear();
        self.payloads.read(block, &mut self.parts)?;
        self.bytes += block.bytes.len() as u64;
        self.write(block.bytes).map_err(|source| failed(&self.path, source))
    }

    /// Appends what is behind the last block: frames up to the last one of the stream, if frames have places, and packets
    /// that others before them were awaited for.
    pub fn append_behind(&mut self, last: Option<i64>) -> Result<(), SampleError> {
        self.parts.extend(last.and_then(|last| self.payloads.behind(last)));
        self.payloads.end(&mut self.parts);
        self.write(&[]).map_err(|source| failed(&self.path, source))
    }

    /// Writes the parts of a block.
    fn write(&mut self, block: &[u8]) -> io::Result<()> {
        for part in self.parts.drain(..) {
            let put = |samples: &[u8]| self.writer.append(samples);
            match part {
                Part::Absent(count) => self.writer.append_absent(count)?,
                Part::Carried(bytes) => self.recoder.recode(&bytes, put)?,
                Part::Here(range) => self.recoder.recode(&block[range], put)?,
            }
        }
        Ok(())
    }

    /// The path that it was created at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Samples of each channel, those that are not there too.
    pub fn samples(&self) -> u64 {
        self.writer.samples()
    }

    /// Bytes of the appended blocks.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes at the end of a stream of bytes that are no whole sample. They are left out.
    pub fn rest_bytes(&self) -> u64 {
        self.payloads.rest_bytes()
    }

    /// The sample at a byte of a stream of bytes, or at a frame, counted from 0 with those that are not there.
    pub fn sample_at(&self, frame: i64, byte: u64) -> u64 {
        self.payloads.sample_at(frame, byte)
    }

    /// Packets that came too late for their place. They are left out.
    pub fn late(&self) -> u64 {
        self.payloads.late()
    }

    /// Makes what was appended durable, and visible to readers of the format.
    pub fn sync(&mut self) -> Result<(), SampleError> {
        self.writer.sync().map_err(|source| failed(&self.path, source))
    }

    /// Writes the ending, and makes the files durable.
    pub fn finish(self, ending: &Ending<'_>) -> Result<Finished, SampleError> {
        self.writer.finish(ending).map_err(|source| failed(&self.path, source))
    }

    /// After a failed write: leaves the samples of the last sync, with their ending if it can be written.
    pub fn abandon(self, ending: &Ending<'_>) -> Result<(), SampleError> {
        self.writer.abandon(ending).map_err(|source| failed(&self.path, source))
    }
}

fn failed(path: &Path, source: io::Error) -> SampleError {
    SampleError::Write { path: path.to_owned(), source }
}
