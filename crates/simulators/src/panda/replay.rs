//! Serves recorded samples in the format of a PandA.
//!
//! ```text
//! blocks of the store ──► cursor ──► samples of any run, raw as recorded or scaled ──► frames
//! ```
//!
//! The header is the recorded one. Indices count the samples in the recording: holes are closed up. All samples are
//! good, so the end reports a good acquisition.

use std::borrow::Cow;

use fullbore_core::hint::Hint;
use fullbore_core::manifest::Format;
use fullbore_formats::panda::columns::{self, Columns, Element, Form, Values};
use fullbore_formats::panda::control::Settings;
use fullbore_formats::panda::{EndReason, Ending, Field, Header, HeaderError, Kind, Process};
use fullbore_store::read;
use fullbore_store::reader::{Delivered, Item, Scan, StoredStream, StreamReader};
use zerocopy::IntoBytes;

use super::samples::Layout;

/// Memory that each connection reads ahead into.
const AHEAD: read::Settings = read::Settings {
    reads_per_device: 1,
    ahead_bytes: 16 << 20,
    allow_damaged: false,
    quiet: false,
};

/// A recording of a PandA that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A stream of another kind.
    #[error("{stream} is not a recording of a PandA")]
    Foreign {
        /// The stream.
        stream: String,
    },
    /// A stream without samples.
    #[error("{stream} has no header: no acquisition came when it was recorded")]
    Silent {
        /// The stream.
        stream: String,
    },
    /// An invalid header.
    #[error("the header of {stream}")]
    Header {
        /// The stream.
        stream: String,
        /// The reason.
        source: HeaderError,
    },
    /// Invalid columns.
    #[error("the columns of {stream}")]
    Columns {
        /// The stream.
        stream: String,
        /// The reason.
        source: columns::Error,
    },
    /// No thread or memory for reading.
    #[error("reading {stream}: {why}")]
    Reading {
        /// The stream.
        stream: String,
        /// The reason.
        why: String,
    },
}

impl Hint for ReplayError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            ReplayError::Foreign { .. } => "`fullbore play` sends other streams to a network",
            ReplayError::Reading { .. } => "`fullbore verify` shows which parts can be read",
            _ => return None,
        }))
    }
}

/// A recording that is served.
#[derive(Debug)]
pub struct Replay {
    scan: Scan,
    stream: usize,
    header: Header,
    scaled: Option<Columns>,
    ending: Option<Ending>,
    settings: Option<Box<Settings>>,
    /// Index of the first sample of each block, and the index after the last sample.
    starts: Vec<u64>,
}

impl Replay {
    /// The recording of a stream, given by its index in the scan.
    pub fn new(scan: Scan, stream: usize) -> Result<Self, ReplayError> {
        let of = &scan.streams[stream];
        let name = format!("{}/{}", scan.manifest.scan, of.name);
        let Format::Panda { header, ending, settings, .. } = &of.format else {
            return Err(ReplayError::Foreign { stream: name });
        };
        if header.is_empty() {
            return Err(ReplayError::Silent { stream: name });
        }
        let (ending, settings) = (ending.clone(), settings.clone());
        let header = Header::of_recording(header)
            .map_err(|source| ReplayError::Header { stream: name.clone(), source })?;
        let scaled = match header.process {
            Process::Scaled => None,
            Process::Raw => Some(
                Columns::new(&header, Form::Scaled)
                    .map_err(|source| ReplayError::Columns { stream: name, source })?,
            ),
        };
        let mut starts = vec![0];
        for placed in &of.blocks {
            let samples = u64::from(placed.block.bytes) / u64::from(header.sample_bytes.max(1));
            starts.push(starts[starts.len() - 1] + samples);
        }
        Ok(Replay { scan, stream, header, scaled, ending, settings, starts })
    }

    /// Samples in the recording.
    pub fn samples(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Bytes of a sample as recorded.
    pub fn sample_bytes(&self) -> u32 {
        self.header.sample_bytes
    }

    /// The average sample rate per second of the recording, if it lasted long enough.
    pub fn rate(&self) -> Option<f64> {
        let account = self.of().account.as_ref()?;
        let ns = account.last?.seen.since(account.first?.seen);
        (ns > 0).then(|| self.samples() as f64 / (ns as f64 / 1e9))
    }

    /// The header as recorded.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// The settings of the PandA.
    pub(super) fn settings(&self) -> Option<&Settings> {
        self.settings.as_deref()
    }

    /// The reason that END states.
    pub(super) fn reason(&self) -> EndReason {
        match &self.ending {
            Some(Ending::End(reason)) if reason.is_good() => reason.clone(),
            _ => EndReason::Ok,
        }
    }

    /// The layout of the samples sent. Samples that were recorded scaled remain scaled.
    pub(super) fn layout(&self, process: Process) -> Layout {
        let Some(columns) = self.scaled.as_ref().filter(|_| process == Process::Scaled) else {
            return Layout::of(self.header.fields.clone(), self.header.process);
        };
        let mut offset_bytes = 0;
        let fields = self.header.fields.iter().zip(columns.list()).map(|(field, column)| {
            let kind = kind(column.element);
            let field = Field { kind, offset_bytes, ..field.clone() };
            offset_bytes += kind.bytes();
            field
        });
        Layout::of(fields.collect(), Process::Scaled)
    }

    /// Reads samples from this index on.
    pub(super) fn cursor(&self, first: u64) -> Result<Cursor<'_>, ReplayError> {
        let stream = self.of();
        let position = self.starts.partition_point(|start| *start <= first).saturating_sub(1);
        let reader = stream
            .read(position..stream.blocks.len(), AHEAD)
            .map_err(|error| self.reading(error.to_string()))?;
        let sample_bytes = self.header.sample_bytes as usize;
        let skip = (first - self.starts[position]) as usize * sample_bytes;
        Ok(Cursor { replay: self, reader, block: None, at: 0, skip, raw: Vec::new() })
    }

    fn of(&self) -> &StoredStream {
        &self.scan.streams[self.stream]
    }

    fn reading(&self, why: String) -> ReplayError {
        let stream = format!("{}/{}", self.scan.manifest.scan, self.of().name);
        ReplayError::Reading { stream, why }
    }
}

fn kind(element: Element) -> Kind {
    match element {
        Element::Uint32 => Kind::Uint32,
        Element::Int32 => Kind::Int32,
        Element::Int64 => Kind::Int64,
        Element::Int96 => Kind::Int96,
        Element::Double => Kind::Double,
    }
}

/// A position in a recording, from which samples are read.
pub(super) struct Cursor<'a> {
    replay: &'a Replay,
    reader: StreamReader<'a>,
    block: Option<Delivered>,
    /// Bytes read of the block.
    at: usize,
    /// Bytes of the first block before the first requested sample.
    skip: usize,
    raw: Vec<u8>,
}

impl Cursor<'_> {
    /// The next samples as `layout` sends them.
    pub(super) fn fill(
        &mut self,
        layout: &Layout,
        words: &mut Vec<u32>,
        samples: usize,
    ) -> Result<(), ReplayError> {
        words.resize(layout.sample_bytes as usize / 4 * samples, 0);
        let replay = self.replay;
        match replay.scaled.as_ref().filter(|_| layout.process == Process::Scaled) {
            None => self.read(words.as_mut_slice().as_mut_bytes()),
            Some(columns) => {
                let mut raw = std::mem::take(&mut self.raw);
                raw.resize(replay.header.sample_bytes as usize * samples, 0);
                self.read(&mut raw)?;
                let mut values = columns.buffers(samples);
                columns.convert(&raw, 0, &mut values);
                interleave(layout, &values, words.as_mut_slice().as_mut_bytes());
                self.raw = raw;
                Ok(())
            }
        }
    }

    fn read(&mut self, mut into: &mut [u8]) -> Result<(), ReplayError> {
        while !into.is_empty() {
            let rest = self.block.as_ref().map_or(&[][..], |block| &block.bytes()[self.at..]);
            if rest.is_empty() {
                self.next_block()?;
                continue;
            }
            let most = rest.len().min(into.len());
            let (now, later) = std::mem::take(&mut into).split_at_mut(most);
            now.copy_from_slice(&rest[..now.len()]);
            self.at += now.len();
            into = later;
        }
        Ok(())
    }

    fn next_block(&mut self) -> Result<(), ReplayError> {
        self.block = None;
        match self.reader.next() {
            Some(Item::Block(block)) => {
                self.at = std::mem::take(&mut self.skip);
                self.block = Some(block);
                Ok(())
            }
            Some(Item::Lost(finding)) => Err(self.replay.reading(finding.to_string())),
            None => Err(self.replay.reading("it ends before its time".to_owned())),
        }
    }
}

/// Converts columns back to samples.
fn interleave(layout: &Layout, columns: &[Values], samples: &mut [u8]) {
    let sample_bytes = layout.sample_bytes as usize;
    for (field, values) in layout.fields.iter().zip(columns) {
        let (at, bytes) = (field.offset_bytes as usize, field.kind.bytes() as usize);
        let values = values.as_bytes().chunks_exact(bytes);
        for (sample, value) in samples.chunks_exact_mut(sample_bytes).zip(values) {
            sample[at..at + bytes].copy_from_slice(value);
        }
    }
}
