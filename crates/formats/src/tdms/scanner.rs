//! Reads the segments of a file, one after the other. Raw data is skipped.

use std::collections::HashMap;
use std::sync::Arc;

use super::bytes::Fields;
use super::contents::Segment;
use super::metadata::{self, Entry, Index};
use super::raw::Shape;
use super::{
    Contents, Flags, LEAD_IN_BYTES, LeadIn, MOST_KEPT, MOST_METADATA, MOST_OBJECTS, MOST_SEGMENTS,
    Object, ObjectId, TdmsError, UNKNOWN,
};

/// Shapes of earlier segments that a new one is compared with.
const COMPARED: usize = 4;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// More bytes are needed: this many from [`Scanner::position`] on.
    More(usize),
    /// A segment was read.
    Segment {
        /// Its lead-in, as it is in the file.
        lead_in: LeadIn,
        /// Its offset in the file.
        at: u64,
    },
    /// The file has no other segment.
    End,
}

/// Reads the segments of a file. The caller brings the bytes that it asks for.
#[derive(Debug)]
pub struct Scanner {
    file_bytes: u64,
    at: u64,
    contents: Contents,
    /// The objects of the current segment, in order.
    listed: Vec<ObjectId>,
    is_listed: HashMap<ObjectId, bool>,
    /// The last index of each object.
    indexes: HashMap<ObjectId, Index>,
    shapes: Vec<Arc<Shape>>,
    kept: u64,
}

impl Scanner {
    /// A scanner of a file of this many bytes.
    pub fn new(file_bytes: u64) -> Self {
        Self {
            file_bytes,
            at: 0,
            contents: Contents::default(),
            listed: Vec::new(),
            is_listed: HashMap::new(),
            indexes: HashMap::new(),
            shapes: Vec::new(),
            kept: 0,
        }
    }

    /// The offset of the next bytes that it needs.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// What was found.
    pub fn finish(self) -> Contents {
        self.contents
    }

    /// Reads the next segment from the bytes at [`position`](Self::position).
    pub fn step(&mut self, bytes: &[u8]) -> Result<Step, TdmsError> {
        let left = self.file_bytes.saturating_sub(self.at);
        if left < LEAD_IN_BYTES {
            self.contents.is_cut |= left > 0;
            return Ok(Step::End);
        }
        let Some((first, bytes)) = bytes.split_first_chunk::<{ LEAD_IN_BYTES as usize }>() else {
            return Ok(Step::More(LEAD_IN_BYTES as usize));
        };
        let lead_in = LeadIn::read(first, self.at)?;
        let left = left - LEAD_IN_BYTES;
        if lead_in.metadata_bytes > left {
            // The metadata was not written as a whole.
            self.contents.is_cut = true;
            return Ok(Step::End);
        }
        if lead_in.metadata_bytes > MOST_METADATA {
            return Err(TdmsError::TooMuch { what: "bytes of metadata", most: MOST_METADATA });
        }
        let metadata_bytes = lead_in.metadata_bytes as usize;
        let Some(metadata) = bytes.get(..metadata_bytes) else {
            return Ok(Step::More(LEAD_IN_BYTES as usize + metadata_bytes));
        };
        let is_open = lead_in.segment_bytes == UNKNOWN || lead_in.segment_bytes > left;
        self.contents.is_cut |= is_open;
        self.contents.segment_count += 1;
        if self.contents.segment_count > MOST_SEGMENTS {
            return Err(TdmsError::TooMuch { what: "segments", most: MOST_SEGMENTS as u64 });
        }
        let all = if is_open { left } else { lead_in.segment_bytes };
        let at = self.at;
        self.read_segment(lead_in, metadata, all - lead_in.metadata_bytes)?;
        self.at = at + LEAD_IN_BYTES + all;
        Ok(Step::Segment { lead_in, at })
    }

    fn read_segment(
        &mut self,
        lead_in: LeadIn,
        metadata: &[u8],
        raw_bytes: u64,
    ) -> Result<(), TdmsError> {
        let flags = lead_in.flags;
        if flags.has(Flags::METADATA) {
            if flags.has(Flags::NEW_LIST) {
                self.listed.clear();
                self.is_listed.clear();
            }
            let mut fields = Fields::new(metadata, self.at, flags.has(Flags::BIG_ENDIAN));
            for entry in metadata::read(&mut fields)? {
                self.apply(entry)?;
            }
        }
        if !flags.has(Flags::RAW_DATA) || raw_bytes == 0 {
            return Ok(());
        }
        let (shape, scale) = self.shape(flags)?;
        if shape.chunk_bytes == 0 {
            let why = "it has bytes, and no channel has values in it";
            return Err(TdmsError::Raw { at: self.at, why });
        }
        let raw_at = self.at + LEAD_IN_BYTES + lead_in.metadata_bytes;
        self.contents.push(Segment { shape, scale, raw_at, raw_bytes })
    }

    /// The shape of the current raw chunks: that of an earlier segment if it is the same.
    fn shape(&mut self, flags: Flags) -> Result<(Arc<Shape>, u64), TdmsError> {
        let listed: Vec<(ObjectId, &Index)> = self
            .listed
            .iter()
            .filter(|id| self.is_listed[id])
            .map(|id| (*id, &self.indexes[id]))
            .collect();
        let (shape, scale) = Shape::new(flags, &listed, self.at)?;
        let known = self.shapes.iter().find(|it| ***it == shape).cloned();
        let shape = match known {
            Some(shape) => shape,
            None => {
                self.keep(64 * (1 + shape.places.len() as u64))?;
                let shape = Arc::new(shape);
                if self.shapes.len() == COMPARED {
                    self.shapes.remove(0);
                }
                self.shapes.push(shape.clone());
                shape
            }
        };
        Ok((shape, scale))
    }

    /// Counts bytes that stay in memory.
    fn keep(&mut self, bytes: u64) -> Result<(), TdmsError> {
        self.kept += bytes;
        match self.kept <= MOST_KEPT {
            true => Ok(()),
            false => {
                Err(TdmsError::TooMuch { what: "bytes of properties and lists", most: MOST_KEPT })
            }
        }
    }

    /// Takes over the index and the properties of an object.
    fn apply(&mut self, entry: Entry) -> Result<(), TdmsError> {
        let id = match self.contents.find(&entry.path) {
            Some(id) => id,
            None => self.add(&entry)?,
        };
        let has_data = match entry.index {
            Index::None => false,
            Index::Same if self.indexes.contains_key(&id) => true,
            Index::Same => {
                let (path, why) =
                    (entry.path.to_string(), "it is that of an earlier segment, and there is none");
                return Err(TdmsError::Index { path, at: self.at, why });
            }
            index => {
                let object = &mut self.contents.objects[id.0 as usize];
                object.has_more_scalers |= matches!(&index, Index::Daqmx(it) if it.scalers > 1);
                self.indexes.insert(id, index);
                true
            }
        };
        if self.is_listed.insert(id, has_data).is_none() {
            self.listed.push(id);
        }
        for (name, value) in entry.properties {
            let text = if let super::Value::Text(text) = &value { text.len() } else { 0 };
            self.keep((64 + name.len() + text) as u64)?;
            self.contents.objects[id.0 as usize].properties.insert(name, value);
        }
        Ok(())
    }

    fn add(&mut self, entry: &Entry) -> Result<ObjectId, TdmsError> {
        let number = self.contents.objects.len();
        if number == MOST_OBJECTS {
            return Err(TdmsError::TooMuch { what: "objects", most: MOST_OBJECTS as u64 });
        }
        let id = ObjectId(number as u32);
        self.contents.by_path.insert(entry.path.clone(), id);
        self.contents.objects.push(Object {
            path: entry.path.clone(),
            properties: Default::default(),
            data_type: None,
            values: 0,
            has_more_scalers: false,
        });
        Ok(id)
    }
}
