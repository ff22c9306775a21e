//! Copies a file into one with as few segments as can be: the raw chunks of channels of equal length lie one after the
//! other. A file that was never closed is whole afterwards, with an index.

use std::io;
use std::path::Path;

use fullbore_formats::tdms::{
    Contents, DataType, ObjectEntry, ObjectId, ObjectPath, RawIndex, SegmentHeader,
};
use serde::Serialize;

use super::output::{AlignedBuffer, Output};
use super::properties::without_daqmx;
use super::reader::{ChannelReader, TdmsFile, TdmsFileError, WINDOW, Window};
use super::rows_in_chunk;

/// A copy of a file.
#[derive(Clone, Debug, Serialize)]
pub struct Defragmented {
    /// Channels with values in the copy.
    pub channels: usize,
    /// Values of all channels.
    pub values: u64,
    /// Segments of the file that was copied.
    pub segments_before: usize,
    /// Segments of the copy.
    pub segments: usize,
    /// Bytes of the copy and its index.
    pub bytes: u64,
    /// True if the file that was copied was never closed, or was cut.
    pub was_cut: bool,
    /// Channels that the copy lacks, because they are text or have several scalers of DAQmx.
    pub left_out: Vec<String>,
}

/// Copies a file. The copy must not exist.
pub fn defragment(
    file: &TdmsFile,
    to: &Path,
    tell: &mut dyn FnMut(u64),
) -> Result<Defragmented, TdmsFileError> {
    let failed = |source| TdmsFileError::Read { path: to.to_owned(), source };
    let contents = file.contents();
    let (mut copied, mut left_out) = (Vec::new(), Vec::new());
    for (id, object) in (0..).map(ObjectId).zip(contents.objects()) {
        match object.data_type {
            Some(DataType::Text) => left_out.push(object.path.to_string()),
            Some(_) if object.has_more_scalers => left_out.push(object.path.to_string()),
            Some(data_type) if object.values > 0 => {
                copied.push(Channel { id, data_type, values: object.values });
            }
            _ => {}
        }
    }
    let mut copy = Copy {
        output: Output::create(to).map_err(failed)?,
        contents,
        objects: Some(objects(contents)),
        segments: 0,
    };
    let made = copy.all(file, &copied, tell);
    let segments = copy.segments;
    let finished = made.and_then(|()| copy.output.finish(to).map_err(failed));
    let bytes = finished.inspect_err(|_| {
        let _ = std::fs::remove_file(to);
    })?;
    Ok(Defragmented {
        channels: copied.len(),
        values: copied.iter().map(|it| it.values).sum(),
        segments_before: contents.segment_count(),
        segments,
        bytes,
        was_cut: contents.is_cut(),
        left_out,
    })
}

/// A channel with values.
#[derive(Clone, Copy)]
struct Channel {
    id: ObjectId,
    data_type: DataType,
    values: u64,
}

impl Channel {
    fn size(&self) -> usize {
        self.data_type.bytes().expect("text is left out") as usize
    }
}

/// All objects with their properties and no raw data: the file, then each group with its channels.
fn objects(contents: &Contents) -> Vec<ObjectEntry> {
    let entry = |path: &ObjectPath| ObjectEntry {
        properties: contents
            .find(path)
            .map(|id| without_daqmx(&contents.object(id).properties))
            .unwrap_or_default(),
        ..ObjectEntry::new(path.clone())
    };
    let mut all = vec![entry(&ObjectPath::File)];
    let mut by_group: std::collections::BTreeMap<&str, Vec<&ObjectPath>> = Default::default();
    let mut groups: Vec<&str> = Vec::new();
    for object in contents.objects() {
        let Some(group) = object.path.group() else { continue };
        let channels = by_group.entry(group).or_insert_with(|| {
            groups.push(group);
            Vec::new()
        });
        if object.path.channel().is_some() {
            channels.push(&object.path);
        }
    }
    for group in groups {
        all.push(entry(&ObjectPath::Group(group.to_owned())));
        all.extend(by_group[group].iter().map(|path| entry(path)));
    }
    all
}

struct Copy<'a> {
    output: Output,
    contents: &'a Contents,
    /// All objects, until they are written.
    objects: Option<Vec<ObjectEntry>>,
    segments: usize,
}

impl Copy<'_> {
    fn all(
        &mut self,
        file: &TdmsFile,
        channels: &[Channel],
        tell: &mut dyn FnMut(u64),
    ) -> Result<(), TdmsFileError> {
        let mut lengths: Vec<u64> = channels.iter().map(|it| it.values).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        lengths.dedup();
        for length in lengths {
            let equal: Vec<Channel> =
                channels.iter().filter(|it| it.values == length).copied().collect();
            self.equal(file, &equal, length, tell).map_err(|source| file.failed(source))?;
        }
        if self.objects.is_some() {
            let header = self.header(&[], 0);
            self.output.segment(&header, &[]).map_err(|source| file.failed(source))?;
            self.segments += 1;
        }
        Ok(())
    }

    /// The header of a segment of these channels. The first has all objects.
    fn header(&mut self, channels: &[Channel], rows: u64) -> SegmentHeader {
        let index = |it: &Channel| RawIndex::Values(it.data_type, rows);
        let path = |it: &Channel| self.contents.object(it.id).path.clone();
        let entries: Vec<ObjectEntry> = channels
            .iter()
            .map(|it| ObjectEntry { index: index(it), ..ObjectEntry::new(path(it)) })
            .collect();
        let Some(mut objects) = self.objects.take() else {
            return SegmentHeader::new(&entries, false);
        };
        let mut indexes: std::collections::HashMap<ObjectPath, RawIndex> =
            entries.into_iter().map(|it| (it.path, it.index)).collect();
        for object in &mut objects {
            if let Some(index) = indexes.remove(&object.path) {
                object.index = index;
            }
        }
        SegmentHeader::new(&objects, false)
    }

    /// Copies channels of equal length: whole raw chunks, and the rest.
    fn equal(
        &mut self,
        file: &TdmsFile,
        channels: &[Channel],
        length: u64,
        tell: &mut dyn FnMut(u64),
    ) -> io::Result<()> {
        let channels = in_order(self.objects.as_deref(), self.contents, channels);
        let row_bytes: usize = channels.iter().map(Channel::size).sum();
        let in_chunk = rows_in_chunk(row_bytes);
        let in_piece = (WINDOW / self.contents.widest_row().max(1)).max(1) as usize;
        let reader = |it: &Channel| ChannelReader::new(it.id, it.data_type);
        let mut readers: Vec<ChannelReader> = channels.iter().map(reader).collect();
        let mut chunk = AlignedBuffer::new(in_chunk * row_bytes);
        let mut window = Window::default();
        let mut left = length;
        while left > 0 {
            let rows = left.min(in_chunk as u64) as usize;
            let bytes = &mut chunk.bytes_mut()[..rows * row_bytes];
            // Channels that share rows read the same rows one after the other.
            for first in (0..rows).step_by(in_piece) {
                let here = in_piece.min(rows - first);
                let mut at = 0;
                for (reader, channel) in readers.iter_mut().zip(&channels) {
                    let size = channel.size();
                    let values = &mut bytes[at + first * size..][..here * size];
                    reader.read(file, &mut window, values)?;
                    at += rows * size;
                }
            }
            if rows < in_chunk {
                let header = self.header(&channels, rows as u64);
                self.output.segment(&header, bytes)?;
                self.segments += 1;
            } else {
                if !self.output.is_open() {
                    let header = self.header(&channels, rows as u64);
                    self.output.open_segment(header)?;
                    self.segments += 1;
                }
                self.output.raw_chunk(bytes)?;
            }
            tell(bytes.len() as u64);
            left -= rows as u64;
        }
        self.output.close_segment()
    }
}

/// Channels in the order of the first segment's objects, which is that of their raw data.
fn in_order(
    objects: Option<&[ObjectEntry]>,
    contents: &Contents,
    channels: &[Channel],
) -> Vec<Channel> {
    let Some(objects) = objects else { return channels.to_vec() };
    let by_id: std::collections::HashMap<ObjectId, Channel> =
        channels.iter().map(|it| (it.id, *it)).collect();
    let ids = objects.iter().filter_map(|it| contents.find(&it.path));
    ids.filter_map(|id| by_id.get(&id).copied()).collect()
}
