//! Writes lead-ins and metadata, little-endian.

use super::bytes::put_text;
use super::{DataType, Flags, LEAD_IN_BYTES, LeadIn, ObjectPath, UNKNOWN, Value};

/// What a segment has of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawIndex {
    /// No raw data.
    None,
    /// Values of a type, not text, in each raw chunk.
    Values(DataType, u64),
}

/// An object in the metadata of a segment.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectEntry {
    /// Its path.
    pub path: ObjectPath,
    /// What the segment has of it.
    pub index: RawIndex,
    /// Its properties.
    pub properties: Vec<(Vec<u8>, Value)>,
}

impl ObjectEntry {
    /// An object without raw data and properties.
    pub fn new(path: ObjectPath) -> Self {
        Self { path, index: RawIndex::None, properties: Vec::new() }
    }

    /// Adds a property.
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.properties.push((name.as_bytes().to_vec(), value));
        self
    }
}

/// A lead-in with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    flags: Flags,
    /// The metadata, with its padding.
    metadata: Vec<u8>,
}

impl SegmentHeader {
    /// A header with a new list of objects.
    pub fn new(objects: &[ObjectEntry], interleaved: bool) -> Self {
        let mut metadata = Vec::new();
        metadata.extend((objects.len() as u32).to_le_bytes());
        let mut flags = Flags::METADATA.with(Flags::NEW_LIST);
        for object in objects {
            put_text(&mut metadata, object.path.to_string().as_bytes());
            match object.index {
                RawIndex::None => metadata.extend(u32::MAX.to_le_bytes()),
                RawIndex::Values(data_type, values) => {
                    flags = flags.with(Flags::RAW_DATA);
                    metadata.extend(20u32.to_le_bytes());
                    metadata.extend(data_type.code().to_le_bytes());
                    metadata.extend(1u32.to_le_bytes());
                    metadata.extend(values.to_le_bytes());
                }
            }
            metadata.extend((object.properties.len() as u32).to_le_bytes());
            for (name, value) in &object.properties {
                put_text(&mut metadata, name);
                value.put(&mut metadata);
            }
        }
        if interleaved && flags.has(Flags::RAW_DATA) {
            flags = flags.with(Flags::INTERLEAVED);
        }
        Self { flags, metadata }
    }

    /// Pads the metadata, so that the raw data of a segment at this offset begins at a multiple of `unit`.
    pub fn aligned(mut self, at: u64, unit: u64) -> Self {
        let end = at + self.bytes();
        let padding = end.next_multiple_of(unit) - end;
        self.metadata.resize(self.metadata.len() + padding as usize, 0);
        self
    }

    /// Bytes of the lead-in and the metadata.
    pub fn bytes(&self) -> u64 {
        LEAD_IN_BYTES + self.metadata.len() as u64
    }

    /// The header of a segment with this much raw data; `None` of one that is still written.
    pub fn to_bytes(&self, raw_bytes: Option<u64>) -> Vec<u8> {
        let metadata_bytes = self.metadata.len() as u64;
        let segment_bytes = raw_bytes.map_or(UNKNOWN, |raw| metadata_bytes + raw);
        let lead_in = LeadIn { flags: self.flags, segment_bytes, metadata_bytes };
        [&lead_in.to_bytes(false)[..], &self.metadata].concat()
    }
}
