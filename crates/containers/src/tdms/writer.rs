//! Writes the samples of a stream as a TDMS file: a group with the stream's name, and its channels.
//!
//! ```text
//! segment    raw chunks of about 8 MiB                    one, unless there are syncs
//! segment    the samples that fill no raw chunk           at each sync
//! …
//! segment    the last samples; in `/`, account and gaps   the end
//! ```
//!
//! Samples that are not there are NaN, or 0 of integers. TDMS has no complex integers, so their two parts become two
//! channels, `NAME_I` and `NAME_Q`. So do those of interleaved complex floats, which npTDMS 1.13 cannot read.

use std::io;
use std::path::{Path, PathBuf};

use fullbore_formats::samples::{Code, Encoding, SampleLayout};
use fullbore_formats::tdms::{
    DataType, ObjectEntry, ObjectPath, RawIndex, SegmentHeader, Timestamp, Value,
};
use fullbore_time::Tai;

use super::output::{AlignedBuffer, Output};
use super::transpose::{Columns, swap};
use super::{TdmsLayout, properties, rows_in_chunk};
use crate::{Ending, Finished, Opening, SampleGaps, SampleWriter};

/// A file that is being written.
pub struct TdmsWriter {
    path: PathBuf,
    stream: String,
    channels: Vec<String>,
    data_type: DataType,
    order: TdmsLayout,
    columns: Columns,
    /// Bytes that are reversed, because the samples are big-endian.
    swapped: usize,
    fill: Vec<u8>,
    /// The raw chunk that is being filled, and its rows so far.
    chunk: AlignedBuffer,
    rows: usize,
    samples: u64,
    /// The samples at the last sync.
    synced: u64,
    /// The objects of the first segment, and whether it has begun.
    first: Vec<ObjectEntry>,
    has_begun: bool,
    gaps: SampleGaps,
    output: Output,
}

/// The type of values, and the number of channels for each channel of samples.
fn data_type(encoding: Encoding, order: TdmsLayout) -> (DataType, usize) {
    let parts = if encoding.complex { 2 } else { 1 };
    let one_channel = encoding.complex && order == TdmsLayout::Contiguous;
    match encoding.code {
        Code::Float { bytes: 4, .. } if one_channel => (DataType::ComplexF32, 1),
        Code::Float { .. } if one_channel => (DataType::ComplexF64, 1),
        Code::Float { bytes: 4, .. } => (DataType::F32, parts),
        Code::Float { .. } => (DataType::F64, parts),
        Code::Signed { bytes: 1, .. } => (DataType::I8, parts),
        Code::Signed { bytes: 2, .. } => (DataType::I16, parts),
        Code::Signed { .. } => (DataType::I32, parts),
        Code::Unsigned { bytes: 1, .. } => (DataType::U8, parts),
        Code::Unsigned { bytes: 2, .. } => (DataType::U16, parts),
        Code::Unsigned { .. } => (DataType::U32, parts),
        Code::Offset { .. } | Code::SignMagnitude => unreachable!("codes are recoded"),
    }
}

/// The bytes that stand for a part of a sample that is not there, before bytes are reversed.
fn fill(code: Code) -> Vec<u8> {
    match code {
        Code::Float { bytes: 4, big_endian: false } => f32::NAN.to_le_bytes().to_vec(),
        Code::Float { bytes: 4, .. } => f32::NAN.to_be_bytes().to_vec(),
        Code::Float { big_endian: false, .. } => f64::NAN.to_le_bytes().to_vec(),
        Code::Float { .. } => f64::NAN.to_be_bytes().to_vec(),
        _ => vec![0],
    }
}

/// The bytes of a part that are to be reversed.
fn swapped(code: Code) -> usize {
    match code {
        Code::Signed { bytes, big_endian: true }
        | Code::Unsigned { bytes, big_endian: true }
        | Code::Float { bytes, big_endian: true } => bytes.into(),
        _ => 1,
    }
}

/// The names of the channels in the file.
fn names(layout: &SampleLayout, per_channel: usize) -> Vec<String> {
    let of_channel = |number: usize| {
        let named = layout.channel_names.get(number).cloned();
        let name = named.unwrap_or_else(|| format!("ch{number}"));
        match per_channel {
            1 => vec![name],
            _ => vec![format!("{name}_I"), format!("{name}_Q")],
        }
    };
    (0..layout.channels as usize).flat_map(of_channel).collect()
}

impl TdmsWriter {
    /// Creates the file, which must not exist.
    pub fn create(path: &Path, opening: &Opening<'_>, order: TdmsLayout) -> io::Result<Self> {
        let layout = opening.layout;
        let (data_type, per_channel) = data_type(layout.encoding, order);
        let channels = names(layout, per_channel);
        let size = data_type.bytes().expect("it is no text") as usize;
        let count = channels.len();
        let columns = Columns { size, count, values: rows_in_chunk(size * count) };
        let mut writer = Self {
            path: path.to_owned(),
            stream: opening.stream.to_owned(),
            channels,
            data_type,
            order,
            columns,
            swapped: swapped(layout.encoding.code),
            fill: fill(layout.encoding.code),
            chunk: AlignedBuffer::new(columns.bytes()),
            rows: 0,
            samples: 0,
            synced: 0,
            first: Vec::new(),
            has_begun: false,
            gaps: SampleGaps::default(),
            output: Output::create(path)?,
        };
        writer.first = writer.described(opening);
        Ok(writer)
    }

    /// The objects with all that is known at the start.
    fn described(&self, opening: &Opening<'_>) -> Vec<ObjectEntry> {
        let layout = opening.layout;
        let file = ObjectEntry::new(ObjectPath::File).with("name", Value::text(opening.scan));
        let group = ObjectEntry::new(ObjectPath::Group(self.stream.clone()))
            .with("encoding", Value::text(layout.encoding.to_string()));
        let group = match layout.sample_rate {
            Some(rate) => group.with("sample_rate", Value::text(rate.to_string())),
            None => group,
        };
        let group = match layout.frequency_hz {
            Some(frequency) => group.with("frequency_hz", Value::F64(frequency.get())),
            None => group,
        };
        let time = |it: Tai| Value::Timestamp(Timestamp::from(it));
        let group = match opening.start {
            Some(start) => group.with("start", time(start)),
            None => group,
        };
        let rows = self.columns.values as u64;
        let channel = |entry| properties::describe(entry, layout, opening.start, rows);
        [file, group].into_iter().chain(self.entries(rows).into_iter().map(channel)).collect()
    }

    /// The channels, with this many values in each raw chunk.
    fn entries(&self, rows: u64) -> Vec<ObjectEntry> {
        let path = |name: &String| ObjectPath::Channel(self.stream.clone(), name.clone());
        let index = RawIndex::Values(self.data_type, rows);
        let entry = |name| ObjectEntry { index, ..ObjectEntry::new(path(name)) };
        self.channels.iter().map(entry).collect()
    }

    /// True if the raw data says so. One channel is both, and readers are faster if it is contiguous.
    fn is_interleaved(&self) -> bool {
        self.order == TdmsLayout::Interleaved && self.channels.len() > 1
    }

    /// The header of a segment of raw chunks of this many rows. The first describes everything.
    fn header(&mut self, rows: u64, file: ObjectEntry) -> SegmentHeader {
        let mut objects = vec![file];
        if rows > 0 {
            objects.extend(self.entries(rows));
        }
        if !self.has_begun {
            self.has_begun = true;
            let mut first = self.first.clone();
            for entry in &mut first {
                if let RawIndex::Values(..) = entry.index {
                    entry.index = match rows {
                        0 => RawIndex::None,
                        _ => RawIndex::Values(self.data_type, rows),
                    };
                }
            }
            first[0].properties.append(&mut objects[0].properties);
            objects = first;
        }
        SegmentHeader::new(&objects, self.is_interleaved())
    }

    /// Writes the raw chunk, which is full.
    fn write_chunk(&mut self) -> io::Result<()> {
        if !self.output.is_open() {
            let rows = self.columns.values as u64;
            let header = self.header(rows, ObjectEntry::new(ObjectPath::File));
            self.output.open_segment(header)?;
        }
        swap(self.chunk.bytes_mut(), self.swapped);
        self.output.raw_chunk(self.chunk.bytes())?;
        self.rows = 0;
        Ok(())
    }

    /// Writes a segment with the rows that fill no raw chunk.
    fn write_rest(&mut self, file: ObjectEntry) -> io::Result<()> {
        let Columns { size, values, .. } = self.columns;
        let mut rest: Vec<u8> = match self.order {
            TdmsLayout::Interleaved => {
                self.chunk.bytes()[..self.rows * self.columns.row_bytes()].to_vec()
            }
            TdmsLayout::Contiguous => {
                let columns = self.chunk.bytes().chunks_exact(size * values);
                columns.flat_map(|column| &column[..self.rows * size]).copied().collect()
            }
        };
        swap(&mut rest, self.swapped);
        let header = self.header(self.rows as u64, file);
        self.output.segment(&header, &rest)?;
        self.rows = 0;
        Ok(())
    }

    /// Writes the last segment.
    fn write_ending(&mut self, ending: &Ending<'_>) -> io::Result<()> {
        let mut file = ObjectEntry::new(ObjectPath::File)
            .with("fullbore_samples", Value::U64(self.samples))
            .with("fullbore_gaps", Value::text(serde_json::to_string(&self.gaps.listed)?))
            .with("fullbore_gaps_unlisted", Value::U64(self.gaps.unlisted));
        if let Some(account) = ending.account {
            file = file.with("fullbore_account", Value::text(serde_json::to_string(account)?));
        }
        if let Some(lacks) = ending.lacks {
            file = file.with("fullbore_lacks", Value::text(lacks));
        }
        self.write_rest(file)
    }

    fn put_fill(&mut self, rows: usize) {
        let Columns { size, values, .. } = self.columns;
        let (from, to) = (self.rows, self.rows + rows);
        let chunk = self.chunk.bytes_mut();
        match self.order {
            TdmsLayout::Interleaved => {
                let row_bytes = self.columns.row_bytes();
                put(&mut chunk[from * row_bytes..to * row_bytes], &self.fill);
            }
            TdmsLayout::Contiguous => {
                for column in chunk.chunks_exact_mut(size * values) {
                    put(&mut column[from * size..to * size], &self.fill);
                }
            }
        }
    }

    fn put_rows(&mut self, rows: &[u8]) {
        let row_bytes = self.columns.row_bytes();
        let chunk = self.chunk.bytes_mut();
        match self.order {
            TdmsLayout::Interleaved => {
                chunk[self.rows * row_bytes..][..rows.len()].copy_from_slice(rows);
            }
            TdmsLayout::Contiguous => self.columns.put(rows, chunk, self.rows),
        }
    }

    /// Counts rows that were put into the raw chunk, and writes it when it is full.
    fn grow(&mut self, rows: usize) -> io::Result<()> {
        self.rows += rows;
        self.samples += rows as u64;
        if self.rows == self.columns.values { self.write_chunk() } else { Ok(()) }
    }
}

/// Repeats a value.
fn put(place: &mut [u8], value: &[u8]) {
    match value {
        [byte] => place.fill(*byte),
        _ => place.chunks_exact_mut(value.len()).for_each(|it| it.copy_from_slice(value)),
    }
}

impl SampleWriter for TdmsWriter {
    fn append(&mut self, samples: &[u8]) -> io::Result<()> {
        let row_bytes = self.columns.row_bytes();
        let mut left = samples;
        while !left.is_empty() {
            let room = (self.columns.values - self.rows) * row_bytes;
            let (rows, rest) = left.split_at(room.min(left.len()));
            self.put_rows(rows);
            self.grow(rows.len() / row_bytes)?;
            left = rest;
        }
        Ok(())
    }

    fn append_absent(&mut self, samples: u64) -> io::Result<()> {
        let end = self.samples.checked_add(samples);
        let bytes = end.and_then(|it| it.checked_mul(self.columns.row_bytes() as u64));
        if bytes.is_none_or(|bytes| bytes > i64::MAX as u64) {
            let why = "the gap has more bytes than a file";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        self.gaps.add(self.samples, samples);
        let mut left = samples;
        while left > 0 {
            let rows = left.min((self.columns.values - self.rows) as u64) as usize;
            self.put_fill(rows);
            self.grow(rows)?;
            left -= rows as u64;
        }
        Ok(())
    }

    fn samples(&self) -> u64 {
        self.samples
    }

    fn sync(&mut self) -> io::Result<()> {
        // The end of the open segment says nothing yet: what follows it may not be whole.
        self.output.close_segment()?;
        if self.rows > 0 || !self.has_begun {
            self.write_rest(ObjectEntry::new(ObjectPath::File))?;
        }
        self.output.sync()?;
        self.synced = self.samples;
        Ok(())
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<Finished> {
        self.write_ending(ending)?;
        let samples = self.samples;
        let bytes = self.output.finish(&self.path)?;
        Ok(Finished { samples, bytes })
    }

    fn abandon(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<()> {
        self.has_begun = self.output.cut()? > 0;
        (self.rows, self.samples) = (0, self.synced);
        self.gaps.cut(self.synced);
        self.write_ending(ending)?;
        self.output.finish(&self.path)?;
        Ok(())
    }
}
