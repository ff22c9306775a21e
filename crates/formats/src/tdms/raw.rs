//! Where the values of channels are in the raw data of a segment.
//!
//! ```text
//! contiguous   │ a a a a b b │ a a a a b b │     raw chunks
//! interleaved  │ a b a b a b …                 rows
//! DAQmx        │ ab ab ab cc cc cc │ ab …      raw chunks of rows of each buffer
//! ```
//!
//! Segments whose raw chunks differ in their length alone share one shape.

use std::collections::HashMap;

use super::metadata::Index;
use super::{DataType, Flags, ObjectId, TdmsError};

/// The order of values in raw data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawKind {
    /// In each raw chunk, all values of a channel, then all of the next.
    Contiguous,
    /// Rows with one value of each channel.
    Interleaved,
    /// Rows of DAQmx.
    Daqmx,
}

/// The raw chunks of segments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub kind: RawKind,
    pub big_endian: bool,
    pub places: Vec<Place>,
    /// Bytes of a raw chunk.
    pub chunk_bytes: u64,
    /// The bytes of a row, if all channels share rows: the borders of raw chunks have no meaning then.
    pub row_bytes: Option<u64>,
    by_object: HashMap<ObjectId, usize>,
}

/// The place of a channel in a raw chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub object: ObjectId,
    pub data_type: DataType,
    /// Values in a raw chunk.
    pub values: u64,
    /// The offset of its first row in the raw chunk.
    pub at: u64,
    /// Bytes from one value to the next; 0 of text.
    pub row_bytes: u64,
    /// Bytes before the value in its row.
    pub in_row: u64,
    pub bit: Option<u8>,
}

impl Shape {
    /// The shape of raw chunks of these objects, and the number that multiplies their values.
    pub fn new(
        flags: Flags,
        listed: &[(ObjectId, &Index)],
        at: u64,
    ) -> Result<(Self, u64), TdmsError> {
        let wrong = |why| TdmsError::Raw { at, why };
        let kind = match listed.iter().any(|(_, index)| matches!(index, Index::Daqmx(_))) {
            true => RawKind::Daqmx,
            false if flags.has(Flags::INTERLEAVED) => RawKind::Interleaved,
            false => RawKind::Contiguous,
        };
        let scale = common_values(listed);
        let placed = match kind {
            RawKind::Contiguous => contiguous(listed, scale),
            RawKind::Interleaved => interleaved(listed, scale),
            RawKind::Daqmx => daqmx(listed, scale),
        };
        let (places, chunk_bytes) = placed.map_err(wrong)?;
        if chunk_bytes.checked_mul(scale).is_none() {
            return Err(wrong("its raw chunks have more bytes than a file"));
        }
        let shares_rows = places.iter().all(|it| it.at == 0 && it.row_bytes == places[0].row_bytes);
        let row_bytes = places.first().map(|it| it.row_bytes).filter(|&row| shares_rows && row > 0);
        let by_object = places.iter().enumerate().map(|(number, it)| (it.object, number)).collect();
        let big_endian = flags.has(Flags::BIG_ENDIAN);
        Ok((Self { kind, big_endian, places, chunk_bytes, row_bytes, by_object }, scale))
    }

    pub fn place(&self, object: ObjectId) -> Option<&Place> {
        self.by_object.get(&object).map(|&number| &self.places[number])
    }
}

type Placed = Result<(Vec<Place>, u64), &'static str>;

const TOO_LARGE: &str = "its raw chunks have more bytes than a file";

/// The number of values in a raw chunk, if all channels have the same; otherwise 1.
fn common_values(listed: &[(ObjectId, &Index)]) -> u64 {
    let mut counts = listed.iter().map(|(_, index)| match index {
        Index::Plain(it) if it.data_type == DataType::Text => None,
        Index::Plain(it) => Some(it.values),
        Index::Daqmx(it) => Some(it.values),
        Index::None | Index::Same => None,
    });
    let first = counts.next().flatten().unwrap_or(1);
    if first > 0 && counts.all(|count| count == Some(first)) { first } else { 1 }
}

fn contiguous(listed: &[(ObjectId, &Index)], scale: u64) -> Placed {
    let mut at = 0u64;
    let mut places = Vec::with_capacity(listed.len());
    for &(object, index) in listed {
        let Index::Plain(index) = index else { continue };
        let data_type = index.data_type;
        let row_bytes = data_type.bytes().unwrap_or(0).into();
        let values = index.values / scale;
        places.push(Place { object, data_type, values, at, row_bytes, in_row: 0, bit: None });
        at = at.checked_add(index.bytes / scale).ok_or(TOO_LARGE)?;
    }
    Ok((places, at))
}

fn interleaved(listed: &[(ObjectId, &Index)], scale: u64) -> Placed {
    let mut width = 0u64;
    let mut places = Vec::with_capacity(listed.len());
    for &(object, index) in listed {
        let Index::Plain(index) = index else { continue };
        let data_type = index.data_type;
        let size = data_type.bytes().ok_or("text is interleaved")?;
        let values = index.values / scale;
        let in_row = width;
        places.push(Place { object, data_type, values, at: 0, row_bytes: 0, in_row, bit: None });
        width += u64::from(size);
    }
    let values = places.first().map_or(0, |it| it.values);
    if places.iter().any(|it| it.values != values) {
        return Err("interleaved channels have different numbers of values");
    }
    places.iter_mut().for_each(|it| it.row_bytes = width);
    Ok((places, width.checked_mul(values).ok_or(TOO_LARGE)?))
}

fn daqmx(listed: &[(ObjectId, &Index)], scale: u64) -> Placed {
    let mut widths: Option<&[u32]> = None;
    let mut rows: Vec<u64> = Vec::new();
    for (_, index) in listed {
        let Index::Daqmx(index) = index else {
            return Err("channels of DAQmx and others share raw data");
        };
        if widths.is_some_and(|it| it != index.widths) {
            return Err("the channels disagree on the rows of DAQmx");
        }
        widths = Some(&index.widths);
        rows.resize(index.widths.len(), 0);
        let rows = &mut rows[index.place.buffer as usize];
        *rows = (*rows).max(index.values / scale);
    }
    let widths = widths.unwrap_or_default();
    let mut at = vec![0u64; widths.len()];
    let mut end = 0u64;
    for (buffer, (&width, &rows)) in widths.iter().zip(&rows).enumerate() {
        at[buffer] = end;
        let bytes = rows.checked_mul(width.into()).ok_or(TOO_LARGE)?;
        end = end.checked_add(bytes).ok_or(TOO_LARGE)?;
    }
    let place = |&(object, index): &(ObjectId, &Index)| match index {
        Index::Daqmx(index) => {
            let (place, buffer) = (&index.place, index.place.buffer as usize);
            Some(Place {
                object,
                data_type: place.data_type,
                values: index.values / scale,
                at: at[buffer],
                row_bytes: widths[buffer].into(),
                in_row: place.byte.into(),
                bit: place.bit,
            })
        }
        _ => None,
    };
    Ok((listed.iter().filter_map(place).collect(), end))
}
