//! The attributes and types of Digital RF 2.6, and its metadata channel.

use std::fs;
use std::io;
use std::path::Path;

use fullbore_formats::samples::{Code, Encoding, SampleLayout, SampleRate};
use hdf5_metno::types::{
    CompoundField, CompoundType, FixedAscii, FloatSize, IntSize, TypeDescriptor, VarLenUnicode,
};
use hdf5_metno::{File, H5Type, Location};

use super::DigitalRfOptions;
use super::cadence::Cadence;
use super::file::failed;

/// The version of the format.
const VERSION: &str = "2.6.0";
/// The version of Digital Metadata.
const METADATA_VERSION: &str = "2.5";
const EPOCH: &str = "1970-01-01T00:00:00Z";
const TIME_DESCRIPTION: &str = "A time is a number of samples since the epoch. That of the first sample is the sample rate \
     times its UTC time (init_utc_timestamp), and the others are counted from it, with leap seconds.";

/// The longest text of an attribute.
const TEXT: usize = 256;

/// Files of the metadata channel have a day each, in directories of as long.
const METADATA_CADENCE: u64 = 86_400;

/// What all files of a channel state.
#[derive(Clone, Debug)]
pub struct Properties {
    pub rate: SampleRate,
    pub layout: SampleLayout,
    pub options: DigitalRfOptions,
}

/// What each file states besides.
#[derive(Clone, Debug)]
pub struct Sequence {
    /// The number of the file, counted from 0.
    pub number: i32,
    /// The host's clock in seconds of Unix time.
    pub computer_time: u64,
    /// Unix time of the first sample of the channel in seconds.
    pub first_second: u64,
    /// The identity of the recording.
    pub uuid: String,
}

fn number<T: H5Type>(of: &Location, name: &str, value: T) -> hdf5_metno::Result<()> {
    of.new_attr::<T>().create(name)?.write_scalar(&value)
}

fn text(of: &Location, name: &str, text: &str) -> hdf5_metno::Result<()> {
    let value = FixedAscii::<TEXT>::from_ascii(text.as_bytes());
    let value = value.map_err(|error| error.to_string())?;
    of.new_attr::<FixedAscii<TEXT>>().create(name)?.write_scalar(&value)
}

/// The type of one part of a value, in the byte order of this machine.
fn part(code: Code) -> Option<TypeDescriptor> {
    let size = |bytes| IntSize::from_int(usize::from(bytes));
    let native = |bytes, big_endian| bytes == 1 || big_endian == cfg!(target_endian = "big");
    match code {
        Code::Signed { bytes, big_endian } if native(bytes, big_endian) => {
            size(bytes).map(TypeDescriptor::Integer)
        }
        Code::Unsigned { bytes, big_endian } if native(bytes, big_endian) => {
            size(bytes).map(TypeDescriptor::Unsigned)
        }
        Code::Float { bytes, big_endian } if native(bytes, big_endian) => {
            FloatSize::from_int(usize::from(bytes)).map(TypeDescriptor::Float)
        }
        _ => None,
    }
}

/// The type of an element of `rf_data`; `None` for an encoding that has none.
pub fn element(encoding: Encoding) -> Option<TypeDescriptor> {
    let part = part(encoding.code)?;
    if !encoding.complex {
        return Some(part);
    }
    let size = part.size();
    let field =
        |(index, name): (usize, &str)| CompoundField::new(name, part.clone(), index * size, index);
    let fields = ["r", "i"].into_iter().enumerate().map(field).collect();
    Some(TypeDescriptor::Compound(CompoundType { fields, size: 2 * size }))
}

/// A row of values that stand for those that are not there: NaN, the smallest signed integer, or 0.
pub fn fill(layout: &SampleLayout) -> Vec<u8> {
    let big_endian = cfg!(target_endian = "big");
    let value = match layout.encoding.code {
        Code::Float { bytes: 4, .. } => f32::NAN.to_ne_bytes().to_vec(),
        Code::Float { .. } => f64::NAN.to_ne_bytes().to_vec(),
        Code::Signed { bytes, .. } => {
            let mut value = vec![0; bytes.into()];
            let high = if big_endian { 0 } else { value.len() - 1 };
            value[high] = 0x80;
            value
        }
        code => vec![0; code.bits() as usize / 8],
    };
    value.repeat((layout.encoding.parts() * layout.channels) as usize)
}

impl Properties {
    /// Adds the attributes that all files of the channel have.
    pub fn describe(&self, of: &Location) -> hdf5_metno::Result<()> {
        let encoding = self.layout.encoding;
        let (class, bytes) = match encoding.code {
            Code::Float { bytes, .. } => (1u64, bytes),
            Code::Signed { bytes, .. } | Code::Unsigned { bytes, .. } => (0, bytes),
            Code::Offset { .. } | Code::SignMagnitude => unreachable!("codes are recoded"),
        };
        number(of, "H5Tget_class", class)?;
        number(of, "H5Tget_size", u64::from(bytes))?;
        number(of, "H5Tget_order", u64::from(cfg!(target_endian = "big")))?;
        number(of, "H5Tget_precision", 8 * u64::from(bytes))?;
        number(of, "H5Tget_offset", 0u64)?;
        let (numerator, denominator) = self.rate.ratio();
        number(of, "subdir_cadence_secs", self.options.subdir_secs)?;
        number(of, "file_cadence_millisecs", self.options.file_ms)?;
        number(of, "sample_rate_numerator", numerator)?;
        number(of, "sample_rate_denominator", denominator)?;
        number(of, "is_complex", i32::from(encoding.complex))?;
        number(of, "num_subchannels", self.layout.channels as i32)?;
        number(of, "is_continuous", i32::from(self.options.continuous))?;
        text(of, "epoch", EPOCH)?;
        text(of, "digital_rf_time_description", TIME_DESCRIPTION)?;
        text(of, "digital_rf_version", VERSION)
    }

    /// Writes the file of properties into a new channel.
    pub fn write(&self, channel: &Path) -> io::Result<()> {
        let path = channel.join("drf_properties.h5");
        let write = || {
            let file = File::create_excl(&path)?;
            self.describe(&file)?;
            file.close()
        };
        write().map_err(failed)?;
        fs::File::open(path)?.sync_all()
    }

    /// Writes the metadata channel with these texts at a sample.
    pub fn write_metadata(
        &self,
        channel: &Path,
        sample: u64,
        texts: &[(&str, String)],
    ) -> io::Result<u64> {
        let folder = channel.join("metadata");
        let cadence = Cadence::new(self.rate, 1000, METADATA_CADENCE);
        let second = cadence.second_of(sample) / METADATA_CADENCE * METADATA_CADENCE;
        let day = folder.join(cadence.folder(second));
        fs::create_dir_all(&day)?;
        let (properties, values) =
            (folder.join("dmd_properties.h5"), day.join(format!("metadata@{second}.h5")));
        let names: Vec<&str> = texts.iter().map(|(name, _)| *name).collect();
        let write = || {
            self.write_metadata_properties(&properties, &names)?;
            let file = File::create_excl(&values)?;
            let group = file.create_group(&sample.to_string())?;
            for (name, text) in texts {
                // HDF5 strings end at a zero byte.
                let value: VarLenUnicode = text.replace('\0', "").parse().unwrap_or_default();
                group.new_dataset::<VarLenUnicode>().create(*name)?.write_scalar(&value)?;
            }
            drop(group);
            file.close()
        };
        write().map_err(failed)?;
        let mut length = 0;
        for path in [&properties, &values] {
            fs::File::open(path)?.sync_all()?;
            length += path.metadata()?.len();
        }
        for path in [&day, &folder] {
            fs::File::open(path)?.sync_all()?;
        }
        Ok(length)
    }

    fn write_metadata_properties(&self, path: &Path, names: &[&str]) -> hdf5_metno::Result<()> {
        let file = File::create_excl(path)?;
        let (numerator, denominator) = self.rate.ratio();
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        number(&file, "subdir_cadence_secs", signed(METADATA_CADENCE))?;
        number(&file, "file_cadence_secs", signed(METADATA_CADENCE))?;
        number(&file, "sample_rate_numerator", signed(numerator))?;
        number(&file, "sample_rate_denominator", signed(denominator))?;
        text(&file, "file_name", "metadata")?;
        text(&file, "digital_metadata_version", METADATA_VERSION)?;
        let columns = names
            .iter()
            .map(|name| FixedAscii::from_ascii(name.as_bytes()).map(|column| Column { column }));
        let columns: Vec<Column> =
            columns.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        file.new_dataset::<Column>().shape(columns.len()).create("fields")?.write_raw(&columns)?;
        file.close()
    }
}

impl Sequence {
    /// Adds the attributes of one file.
    pub fn describe(&self, of: &Location) -> hdf5_metno::Result<()> {
        number(of, "sequence_num", self.number)?;
        number(of, "computer_time", self.computer_time)?;
        number(of, "init_utc_timestamp", self.first_second)?;
        text(of, "uuid_str", &self.uuid)
    }
}

/// A field of the metadata channel.
#[derive(Clone, Copy, H5Type)]
#[repr(C)]
struct Column {
    column: FixedAscii<128>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(encoding: &str, channels: u32) -> SampleLayout {
        SampleLayout::new(encoding.parse().unwrap(), channels)
    }

    #[test]
    fn elements_are_plain_or_pairs_and_packed_codes_have_none() {
        assert_eq!(element("rf64_le".parse().unwrap()).unwrap().size(), 8);
        let TypeDescriptor::Compound(pair) = element("ci16_le".parse().unwrap()).unwrap() else {
            panic!("a pair")
        };
        let names: Vec<&str> = pair.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!((names, pair.size), (vec!["r", "i"], 4));
        for none in ["ro2", "ri16_be"] {
            assert!(element(none.parse().unwrap()).is_none(), "{none}");
        }
    }

    #[test]
    fn fill_is_nan_the_smallest_integer_or_zero() {
        assert_eq!(fill(&layout("ri16_le", 2)), [0, 0x80, 0, 0x80]);
        assert_eq!(fill(&layout("ci8", 1)), [0x80, 0x80]);
        assert_eq!(fill(&layout("ru16_le", 1)), [0, 0]);
        let floats = fill(&layout("cf32_le", 1));
        assert!(floats.as_chunks::<4>().0.iter().all(|it| f32::from_ne_bytes(*it).is_nan()));
    }
}
