//! What a file has: objects with their properties, and segments.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::raw::{Place, Shape};
use super::{DataType, ObjectPath, RawKind, TdmsError, Value};

/// The number of an object, in order of first appearance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u32);

/// An object.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its path.
    pub path: ObjectPath,
    /// Its properties by name, with their last values.
    pub properties: BTreeMap<Vec<u8>, Value>,
    /// The type of its values; `None` without raw data.
    pub data_type: Option<DataType>,
    /// Values in the file.
    pub values: u64,
    /// True if a DAQmx channel has several scalers; the values are those of the first.
    pub has_more_scalers: bool,
}

impl Object {
    /// A property.
    pub fn property(&self, name: &str) -> Option<&Value> {
        self.properties.get(name.as_bytes())
    }
}

/// A segment with raw data.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub shape: Arc<Shape>,
    /// The number that multiplies the values of the shape.
    pub scale: u64,
    /// The offset of the raw data in the file.
    pub raw_at: u64,
    pub raw_bytes: u64,
}

impl Segment {
    /// The values of a channel in the raw data, a last raw chunk that is not whole included.
    pub fn values(&self, place: &Place) -> u64 {
        match (self.shape.row_bytes, self.chunk_bytes()) {
            (Some(row), _) => self.raw_bytes / row,
            (None, 0) => 0,
            (None, chunk) => {
                let whole = (self.raw_bytes / chunk).saturating_mul(self.in_chunk(place, chunk));
                whole.saturating_add(self.in_chunk(place, self.raw_bytes % chunk))
            }
        }
    }

    /// Bytes of a raw chunk.
    pub fn chunk_bytes(&self) -> u64 {
        // The scanner checked the product, and those of the places are smaller.
        self.shape.chunk_bytes * self.scale
    }

    /// The values of a channel in a raw chunk of which these bytes are there.
    pub fn in_chunk(&self, place: &Place, bytes: u64) -> u64 {
        let rows = bytes.saturating_sub(place.at * self.scale).checked_div(place.row_bytes);
        rows.unwrap_or(0).min(place.values * self.scale)
    }
}

/// What a file has.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    pub(super) objects: Vec<Object>,
    pub(super) segments: Vec<Segment>,
    pub(super) by_path: HashMap<ObjectPath, ObjectId>,
    /// Segments, those without raw data too.
    pub(super) segment_count: usize,
    pub(super) is_cut: bool,
}

impl Contents {
    /// The objects, by number.
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// An object.
    pub fn object(&self, id: ObjectId) -> &Object {
        &self.objects[id.0 as usize]
    }

    /// The object of a path.
    pub fn find(&self, path: &ObjectPath) -> Option<ObjectId> {
        self.by_path.get(path).copied()
    }

    /// The channels of a group that have values, in order of appearance.
    pub fn channels<'a>(&'a self, group: &'a str) -> impl Iterator<Item = ObjectId> + 'a {
        (0..).map(ObjectId).zip(&self.objects).filter_map(move |(id, object)| {
            let is_it = object.path.group() == Some(group) && object.data_type.is_some();
            is_it.then_some(id)
        })
    }

    /// The names of groups that have a channel with values, in order of appearance.
    pub fn groups(&self) -> Vec<&str> {
        let mut groups: Vec<&str> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for object in self.objects.iter().filter(|it| it.data_type.is_some()) {
            let Some(group) = object.path.group() else { continue };
            if seen.insert(group) {
                groups.push(group);
            }
        }
        groups
    }

    /// Bytes of all values that are not text.
    pub fn value_bytes(&self) -> u64 {
        let bytes = |it: &Object| {
            let size = it.data_type.and_then(|it| it.bytes()).unwrap_or(0);
            it.values.saturating_mul(size.into())
        };
        self.objects.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// The number of segments.
    pub fn segment_count(&self) -> usize {
        self.segment_count
    }

    /// The orders of values that occur in the raw data.
    pub fn kinds(&self) -> Vec<RawKind> {
        let mut kinds = Vec::new();
        for segment in &self.segments {
            if !kinds.contains(&segment.shape.kind) {
                kinds.push(segment.shape.kind);
            }
        }
        kinds
    }

    /// Bytes of the widest row of raw data.
    pub fn widest_row(&self) -> u64 {
        let places = self.segments.iter().flat_map(|it| it.shape.places.first());
        places.map(|it| it.row_bytes).max().unwrap_or(0)
    }

    /// True if the file was not closed, or is shorter than it says.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Adds a segment, and its values to those of its channels.
    pub(super) fn push(&mut self, segment: Segment) -> Result<(), TdmsError> {
        for place in &segment.shape.places {
            let object = &mut self.objects[place.object.0 as usize];
            if *object.data_type.get_or_insert(place.data_type) != place.data_type {
                let (path, at) = (object.path.to_string(), segment.raw_at);
                return Err(TdmsError::Index { path, at, why: "its type changes" });
            }
            object.values = object.values.saturating_add(segment.values(place));
        }
        self.segments.push(segment);
        Ok(())
    }
}
