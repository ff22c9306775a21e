//! A `.npy` file of samples, version 1.0 of numpy's format: a header of 128 bytes, then the values.
//!
//! The shape is (samples, channels). Complex floats are `c8`; complex integers get a third axis for their two parts.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use fullbore_formats::samples::SampleLayout;
use fullbore_formats::samples::decode::Output;
use zerocopy::{Immutable, IntoBytes};

/// Bytes of the header, which has room for the largest shape.
const HEADER_BYTES: usize = 128;

/// Bytes that are collected before each write.
const BUFFER_BYTES: usize = 1 << 20;

/// A type of values in a file.
pub trait Cell: Output + IntoBytes + Immutable {
    /// The value in the place of a sample that is not there.
    const FILL: Self;
}

impl Cell for i8 {
    const FILL: Self = 0;
}

impl Cell for i16 {
    const FILL: Self = 0;
}

impl Cell for i32 {
    const FILL: Self = 0;
}

impl Cell for f32 {
    const FILL: Self = f32::NAN;
}

/// The header of a file with this many samples.
fn header<T: Cell>(layout: &SampleLayout, samples: u64) -> Vec<u8> {
    let (order, bytes) = (if cfg!(target_endian = "little") { '<' } else { '>' }, size_of::<T>());
    let (kind, parts) = match (T::INTEGER_BITS, layout.encoding.complex) {
        (None, true) => (format!("c{}", 2 * bytes), ""),
        (None, false) => (format!("f{bytes}"), ""),
        (Some(_), true) => (format!("i{bytes}"), ", 2"),
        (Some(_), false) => (format!("i{bytes}"), ""),
    };
    let order = if kind == "i1" { '|' } else { order };
    let channels = layout.channels;
    let dictionary = format!(
        "{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': ({samples}, {channels}{parts}), }}"
    );
    let length = HEADER_BYTES - 10;
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((length as u16).to_le_bytes());
    header.extend(format!("{dictionary:<0$}\n", length - 1).bytes());
    assert_eq!(header.len(), HEADER_BYTES, "the dictionary has less than 118 bytes");
    header
}

/// A file that is being written. Until it is finished, it states that it has no samples.
pub struct NpyFile<T> {
    file: BufWriter<File>,
    layout: SampleLayout,
    values: u64,
    fill: Vec<T>,
}

impl<T: Cell> NpyFile<T> {
    /// Creates the file, which must not exist.
    pub fn create(path: &Path, layout: &SampleLayout) -> io::Result<Self> {
        let mut file = BufWriter::with_capacity(BUFFER_BYTES, File::create_new(path)?);
        file.write_all(&header::<T>(layout, 0))?;
        Ok(Self { file, layout: layout.clone(), values: 0, fill: vec![T::FILL; 4096] })
    }

    /// Values of one sample of all channels.
    fn values_of_sample(&self) -> u64 {
        u64::from(self.layout.channels) * u64::from(self.layout.encoding.parts())
    }

    /// Samples written.
    pub fn samples(&self) -> u64 {
        self.values / self.values_of_sample()
    }

    /// Appends values.
    pub fn append(&mut self, values: &[T]) -> io::Result<()> {
        self.values += values.len() as u64;
        self.file.write_all(values.as_bytes())
    }

    /// Appends samples that are not there: NaN of floats, 0 of integers.
    pub fn append_absent(&mut self, samples: u64) -> io::Result<()> {
        let mut left = samples.checked_mul(self.values_of_sample()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, "the gap has more values than a file")
        })?;
        self.values += left;
        while left > 0 {
            let some = left.min(self.fill.len() as u64);
            self.file.write_all(self.fill[..some as usize].as_bytes())?;
            left -= some;
        }
        Ok(())
    }

    /// Writes the shape, and returns the bytes of the file.
    pub fn finish(mut self) -> io::Result<u64> {
        let samples = self.samples();
        let bytes = self.file.stream_position()?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header::<T>(&self.layout, samples))?;
        self.file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_the_largest_shape_has_128_bytes() {
        let layout = SampleLayout::new("ci32_le".parse().unwrap(), 65_536);
        let largest = header::<i32>(&layout, u64::MAX);
        assert_eq!(largest.len(), 128);
        assert!(String::from_utf8_lossy(&largest).contains("(18446744073709551615, 65536, 2), }"));
        assert_eq!(largest.last(), Some(&b'\n'));
    }

    #[test]
    fn an_unfinished_file_has_no_samples_and_a_finished_one_all() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.npy");
        let layout = SampleLayout::new("rf32_le".parse().unwrap(), 2);
        let mut file = NpyFile::<f32>::create(&path, &layout).unwrap();
        file.append(&[1.0, 2.0]).unwrap();
        file.append_absent(3000).unwrap();
        assert_eq!(file.samples(), 3001);
        assert_eq!(file.finish().unwrap(), 128 + 3001 * 8);
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes.starts_with(&header::<f32>(&layout, 3001)));
        assert_eq!(bytes[128..136], [0, 0, 128, 63, 0, 0, 0, 64]);
        assert!(f32::from_le_bytes(bytes[136..140].try_into().unwrap()).is_nan());
        assert!(NpyFile::<f32>::create(&path, &layout).is_err());
    }
}
