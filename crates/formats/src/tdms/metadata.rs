//! The metadata of a segment: objects with their raw index and properties.

use super::bytes::Fields;
use super::daqmx::DaqmxIndex;
use super::{DataType, ObjectPath, TdmsError, Value};

const NO_DATA: u32 = 0xFFFF_FFFF;
const SAME: u32 = 0;
const DAQMX: u32 = 0x1269;
const DAQMX_LINES: u32 = 0x126A;

/// An object in the metadata of a segment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub path: ObjectPath,
    pub index: Index,
    pub properties: Vec<(Vec<u8>, Value)>,
}

/// What a segment has of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Index {
    /// No raw data.
    None,
    /// The same as the last segment with an index of it.
    Same,
    /// Values of one type.
    Plain(PlainIndex),
    /// Values in rows of DAQmx.
    Daqmx(DaqmxIndex),
}

/// An array of values in each raw chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlainIndex {
    pub data_type: DataType,
    /// Values in each raw chunk.
    pub values: u64,
    /// Bytes in each raw chunk.
    pub bytes: u64,
}

/// Reads the objects of a segment. Bytes after them are padding.
pub(super) fn read(fields: &mut Fields<'_>) -> Result<Vec<Entry>, TdmsError> {
    // A path's length, an index and a number of properties.
    let count = fields.count(12, "the list of objects")?;
    (0..count).map(|_| entry(fields)).collect()
}

fn entry(fields: &mut Fields<'_>) -> Result<Entry, TdmsError> {
    let path = ObjectPath::read(fields.text("a path")?)?;
    let index = index(fields, &path)?;
    // A name's length, a type and a byte.
    let count = fields.count(9, "a list of properties")?;
    let mut properties = Vec::with_capacity(count);
    for _ in 0..count {
        let name = fields.text("the name of a property")?;
        properties.push((name.to_vec(), Value::read(fields, name)?));
    }
    Ok(Entry { path, index, properties })
}

fn index(fields: &mut Fields<'_>, path: &ObjectPath) -> Result<Index, TdmsError> {
    const WHAT: &str = "a raw index";
    let wrong = |why| TdmsError::Index { path: path.to_string(), at: fields.at, why };
    let no_array = wrong("it is no array of one dimension");
    let too_large = wrong("it has more bytes than a file");
    match fields.u32(WHAT)? {
        NO_DATA => Ok(Index::None),
        SAME => Ok(Index::Same),
        tag @ (DAQMX | DAQMX_LINES) => {
            DaqmxIndex::read(fields, tag == DAQMX_LINES, path).map(Index::Daqmx)
        }
        // Its own length: writers of text disagree on it, and no field depends on it.
        _ => {
            let code = fields.u32(WHAT)?;
            let unknown = TdmsError::DataType { what: path.to_string(), code };
            let data_type = DataType::of_code(code).ok_or(unknown)?;
            if fields.u32(WHAT)? != 1 {
                return Err(no_array);
            }
            let values = fields.u64(WHAT)?;
            let bytes = match data_type.bytes() {
                Some(size) => values.checked_mul(size.into()).ok_or(too_large)?,
                None => fields.u64(WHAT)?,
            };
            Ok(Index::Plain(PlainIndex { data_type, values, bytes }))
        }
    }
}
