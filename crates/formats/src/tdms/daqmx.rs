//! The raw index of DAQmx, whose values lie in rows as the cards made them. National Instruments did not publish it.
//!
//! ```text
//! u32 type, u32 dimension = 1, u64 rows in each raw chunk
//! u32 number of scalers, each    u32 type, u32 buffer, u32 byte in the row, u32 bitmap, u32 scale
//!                 digital lines  u32 type, u32 buffer, u32 bit in the row,  u8 bitmap,  u32 scale
//! u32 number of buffers, each    u32 bytes of a row
//! ```

use super::bytes::Fields;
use super::{DataType, ObjectPath, TdmsError};

/// The largest number of scalers of a channel, and of buffers of a segment.
const MOST: usize = 1024;

/// The largest row of a buffer, in bytes.
const MOST_ROW: u32 = 1 << 20;

/// Where the values of a channel are in the rows of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DaqmxIndex {
    /// Rows in each raw chunk.
    pub values: u64,
    /// The place of the channel's values, by its first scaler.
    pub place: Scaler,
    /// Scalers of the channel.
    pub scalers: usize,
    /// Bytes of a row of each buffer.
    pub widths: Vec<u32>,
}

/// The place of a value in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scaler {
    pub data_type: DataType,
    pub buffer: u32,
    /// Its first byte in the row.
    pub byte: u32,
    /// Its bit in this byte, of digital lines.
    pub bit: Option<u8>,
}

impl DaqmxIndex {
    pub fn read(
        fields: &mut Fields<'_>,
        lines: bool,
        path: &ObjectPath,
    ) -> Result<Self, TdmsError> {
        const WHAT: &str = "a raw index of DAQmx";
        let at = fields.at;
        let wrong = |why| TdmsError::Index { path: path.to_string(), at, why };
        // The scaler repeats the type, or this says that there are several.
        fields.u32(WHAT)?;
        if fields.u32(WHAT)? != 1 {
            return Err(wrong("it is no array of one dimension"));
        }
        let values = fields.u64(WHAT)?;
        let scalers = fields.count(17, WHAT)?;
        if !(1..=MOST).contains(&scalers) {
            return Err(wrong("it has no scaler, or more than 1024"));
        }
        let place = scaler(fields, lines, path)?;
        for _ in 1..scalers {
            scaler(fields, lines, path)?;
        }
        let buffers = fields.count(4, WHAT)?;
        if !(1..=MOST).contains(&buffers) {
            return Err(wrong("it has no buffer, or more than 1024"));
        }
        let widths = (0..buffers).map(|_| fields.u32(WHAT)).collect::<Result<Vec<_>, _>>()?;
        if widths.iter().any(|&width| width > MOST_ROW) {
            return Err(wrong("its rows have more than 1 MiB"));
        }
        let width = widths.get(place.buffer as usize).copied();
        let size = if place.bit.is_some() { Some(1) } else { place.data_type.bytes() };
        let end = place.byte.checked_add(size.unwrap_or(0));
        match (width, end) {
            (Some(width), Some(end)) if end <= width => {}
            _ => return Err(wrong("its values lie outside the rows")),
        }
        Ok(Self { values, place, scalers, widths })
    }
}

fn scaler(fields: &mut Fields<'_>, lines: bool, path: &ObjectPath) -> Result<Scaler, TdmsError> {
    const WHAT: &str = "a scaler";
    let code = fields.u32(WHAT)?;
    let data_type = match code {
        0 => DataType::U8,
        1 => DataType::I8,
        2 => DataType::U16,
        3 => DataType::I16,
        4 => DataType::U32,
        5 => DataType::I32,
        6 => DataType::U64,
        7 => DataType::I64,
        8 => DataType::F32,
        9 => DataType::F64,
        _ => return Err(TdmsError::DataType { what: format!("DAQmx channel {path}"), code }),
    };
    let buffer = fields.u32(WHAT)?;
    let offset = fields.u32(WHAT)?;
    if lines {
        fields.bytes(5, WHAT)?;
        let bit = Some((offset % 8) as u8);
        Ok(Scaler { data_type: DataType::U8, buffer, byte: offset / 8, bit })
    } else {
        fields.bytes(8, WHAT)?;
        Ok(Scaler { data_type, buffer, byte: offset, bit: None })
    }
}
