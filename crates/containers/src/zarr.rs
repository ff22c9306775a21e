//! A Zarr array, version 3 of the specification: a directory with its description and a file for each chunk of rows.
//!
//! ```text
//! out.zarr/zarr.json    shape (samples, channels), type, chunks of about 16 MiB, fill value, attributes
//! out.zarr/c.0.0        the first rows, uncompressed
//! out.zarr/c.1.0        …
//! ```
//!
//! Complex floats are `complex64`; complex integers get a third axis for their two parts. Samples that are not there have
//! the fill value: NaN, or 0 of integers. A chunk without any sample has no file. The description is replaced at each sync,
//! so readers see the samples until then. What the format has no place for is in the attributes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use fullbore_core::account::Account;
use fullbore_formats::samples::{Code, Encoding, SampleLayout};
use fullbore_time::Tai;
use serde::Serialize;
use serde_json::{Value, json};

use crate::fill::Fill;
use crate::{Ending, Finished, Opening, SampleGap, SampleGaps, SampleWriter};

/// The file of the description.
const DESCRIPTION: &str = "zarr.json";

/// Bytes of a chunk, approximately.
const CHUNK_BYTES: u64 = if cfg!(test) { 4096 } else { 16 << 20 };

/// Bytes that are collected before each write.
const BUFFER_BYTES: usize = 1 << 20;

/// The facts that the format has no place for.
#[derive(Serialize)]
struct Attributes<'a> {
    scan: &'a str,
    stream: &'a str,
    /// The samples as they are in the array.
    layout: &'a SampleLayout,
    /// Time of the first sample.
    start: Option<Tai>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gaps: Option<&'a [SampleGap]>,
    /// Gaps after the listed ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    gaps_unlisted: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<&'a Account>,
    /// What the array lacks, if a write failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks: Option<&'a str>,
}

/// An array that is being written.
pub struct ZarrWriter {
    path: PathBuf,
    scan: String,
    stream: String,
    layout: SampleLayout,
    start: Option<Tai>,
    sample_bytes: u64,
    /// Rows of a chunk.
    rows: u64,
    /// The chunk that is being written, if it has a file: its number, and the bytes in it.
    open: Option<Chunk>,
    /// Samples so far.
    samples: u64,
    /// The samples that the description states.
    synced: u64,
    /// Bytes of the complete chunk files.
    bytes: u64,
    gaps: SampleGaps,
    fill: Fill,
}

/// A file of rows.
struct Chunk {
    number: u64,
    file: BufWriter<File>,
    bytes: u64,
}

/// The type of the elements, the byte order if they have several bytes, and the fill value.
fn element(encoding: Encoding) -> (String, Option<bool>, Value) {
    match encoding.code {
        Code::Float { bytes, big_endian } if encoding.complex => {
            let bits = 16 * u32::from(bytes);
            (format!("complex{bits}"), Some(big_endian), json!(["NaN", "NaN"]))
        }
        Code::Float { bytes, big_endian } => {
            (format!("float{}", 8 * u32::from(bytes)), Some(big_endian), json!("NaN"))
        }
        Code::Signed { bytes, big_endian } => {
            (format!("int{}", 8 * u32::from(bytes)), (bytes > 1).then_some(big_endian), json!(0))
        }
        Code::Unsigned { bytes, big_endian } => {
            (format!("uint{}", 8 * u32::from(bytes)), (bytes > 1).then_some(big_endian), json!(0))
        }
        Code::Offset { .. } | Code::SignMagnitude => unreachable!("codes are recoded"),
    }
}

/// True if the parts of complex values are an axis of their own.
fn has_parts(encoding: Encoding) -> bool {
    encoding.complex && !matches!(encoding.code, Code::Float { .. })
}

/// The description of an array with this many samples.
fn description(
    layout: &SampleLayout,
    rows: u64,
    samples: u64,
    attributes: &Attributes<'_>,
) -> Value {
    let (data_type, big_endian, fill_value) = element(layout.encoding);
    let (mut shape, mut chunk) =
        (vec![samples, layout.channels.into()], vec![rows, layout.channels.into()]);
    let mut names = vec!["sample", "channel"];
    if has_parts(layout.encoding) {
        shape.push(2);
        chunk.push(2);
        names.push("part");
    }
    let bytes = match big_endian {
        Some(big) => {
            json!({"name": "bytes", "configuration": {"endian": if big { "big" } else { "little" }}})
        }
        None => json!({"name": "bytes"}),
    };
    json!({
        "zarr_format": 3,
        "node_type": "array",
        "shape": shape,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": fill_value,
        "codecs": [bytes],
        "dimension_names": names,
        "attributes": attributes,
    })
}

impl ZarrWriter {
    /// Creates the directory, which must not exist.
    pub fn create(path: &Path, opening: &Opening<'_>) -> io::Result<Self> {
        let layout = opening.layout.clone();
        let sample_bytes = (layout.sample_bits() / 8).max(1);
        std::fs::create_dir(path)?;
        let writer = Self {
            path: path.to_owned(),
            scan: opening.scan.to_owned(),
            stream: opening.stream.to_owned(),
            start: opening.start,
            fill: Fill::new(layout.encoding),
            rows: (CHUNK_BYTES / sample_bytes).max(1),
            layout,
            sample_bytes,
            open: None,
            samples: 0,
            synced: 0,
            bytes: 0,
            gaps: SampleGaps::default(),
        };
        writer.describe(None)?;
        Ok(writer)
    }

    fn chunk_bytes(&self) -> u64 {
        self.rows * self.sample_bytes
    }

    /// The file of a chunk.
    fn file_of(&self, number: u64) -> PathBuf {
        let parts = if has_parts(self.layout.encoding) { ".0" } else { "" };
        self.path.join(format!("c.{number}.0{parts}"))
    }

    /// The chunk of the next sample, which gets a file if it has none. Absent samples before it in the chunk are filled.
    fn chunk(&mut self) -> io::Result<&mut Chunk> {
        let number = self.samples / self.rows;
        if self.open.as_ref().is_none_or(|open| open.number != number) {
            self.close()?;
            let file = File::create_new(self.file_of(number))?;
            let mut file = BufWriter::with_capacity(BUFFER_BYTES, file);
            let bytes = self.samples % self.rows * self.sample_bytes;
            self.fill.write(&mut file, bytes)?;
            self.open = Some(Chunk { number, file, bytes });
        }
        Ok(self.open.as_mut().expect("made above"))
    }

    /// Completes the file of the open chunk. Rows behind the last sample have no meaning.
    fn close(&mut self) -> io::Result<()> {
        let Some(mut chunk) = self.open.take() else { return Ok(()) };
        chunk.file.flush()?;
        let file = chunk.file.get_ref();
        file.set_len(self.chunk_bytes())?;
        file.sync_data()?;
        self.bytes += self.chunk_bytes();
        Ok(())
    }

    /// Replaces the description. At the end it has the gaps and the account.
    fn describe(&self, ending: Option<&Ending<'_>>) -> io::Result<u64> {
        let attributes = Attributes {
            scan: &self.scan,
            stream: &self.stream,
            layout: &self.layout,
            start: self.start,
            gaps: ending.map(|_| self.gaps.listed.as_slice()),
            gaps_unlisted: ending.map(|_| self.gaps.unlisted),
            account: ending.and_then(|ending| ending.account),
            lacks: ending.and_then(|ending| ending.lacks),
        };
        let description = description(&self.layout, self.rows, self.synced, &attributes);
        let text = serde_json::to_vec_pretty(&description)?;
        let aside = self.path.join("zarr.json.new");
        let mut file = File::create(&aside)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(aside, self.path.join(DESCRIPTION))?;
        File::open(&self.path)?.sync_all()?;
        Ok(text.len() as u64)
    }
}

impl SampleWriter for ZarrWriter {
    fn append(&mut self, mut samples: &[u8]) -> io::Result<()> {
        while !samples.is_empty() {
            let (chunk_bytes, sample_bytes) = (self.chunk_bytes(), self.sample_bytes);
            let chunk = self.chunk()?;
            let room = usize::try_from(chunk_bytes - chunk.bytes).unwrap_or(usize::MAX);
            let (here, rest) = samples.split_at(samples.len().min(room));
            chunk.file.write_all(here)?;
            chunk.bytes += here.len() as u64;
            self.samples += here.len() as u64 / sample_bytes;
            samples = rest;
        }
        Ok(())
    }

    fn append_absent(&mut self, samples: u64) -> io::Result<()> {
        let end = self.samples.checked_add(samples).filter(|end| *end < 1 << 62);
        let end = end.ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, "the gap has more samples than an array")
        })?;
        self.gaps.add(self.samples, samples);
        if let Some(chunk) = self.open.as_mut().filter(|it| it.number == self.samples / self.rows) {
            let here = end.min((chunk.number + 1) * self.rows) - self.samples;
            self.fill.write(&mut chunk.file, here * self.sample_bytes)?;
            chunk.bytes += here * self.sample_bytes;
        }
        self.samples = end;
        Ok(())
    }

    fn samples(&self) -> u64 {
        self.samples
    }

    fn sync(&mut self) -> io::Result<()> {
        let chunk_bytes = self.chunk_bytes();
        if let Some(chunk) = &mut self.open {
            chunk.file.flush()?;
            // Readers take a chunk only if it is whole.
            chunk.file.get_ref().set_len(chunk_bytes)?;
            chunk.file.get_ref().sync_data()?;
        }
        self.synced = self.samples;
        self.describe(None).map(drop)
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<Finished> {
        self.close()?;
        self.synced = self.samples;
        let beside = self.describe(Some(ending))?;
        Ok(Finished { samples: self.samples, bytes: self.bytes + beside })
    }

    fn abandon(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<()> {
        self.gaps.cut(self.synced);
        self.describe(Some(ending))?;
        // What could not be written is in the buffer, and must not follow.
        if let Some(chunk) = self.open.take() {
            let _ = chunk.file.into_parts();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    fn create(path: &Path, layout: &SampleLayout) -> io::Result<Box<ZarrWriter>> {
        let origin = Origin::default();
        let opening = Opening { scan: "s_a", stream: "x", layout, start: None, origin };
        ZarrWriter::create(path, &opening).map(Box::new)
    }

    fn described(path: &Path) -> Value {
        serde_json::from_slice(&std::fs::read(path.join(DESCRIPTION)).unwrap()).unwrap()
    }

    fn layout(encoding: &str, channels: u32) -> SampleLayout {
        SampleLayout::new(encoding.parse().unwrap(), channels)
    }

    #[test]
    fn chunks_are_whole_and_those_without_samples_have_no_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.zarr");
        let layout = layout("ri16_le", 2);
        let mut array = create(&path, &layout).unwrap();
        // 1024 rows of 4 bytes in a chunk.
        array.append(&[1; 4 * 1000]).unwrap();
        array.append_absent(1024 * 3).unwrap();
        array.append(&[2; 4 * 100]).unwrap();
        let finished = array.finish(&Ending::default()).unwrap();
        assert_eq!(finished.samples, 4172);
        let files = |number: u64| std::fs::read(path.join(format!("c.{number}.0"))).ok();
        let first = files(0).unwrap();
        assert_eq!(first, [vec![1; 4000], vec![0; 96]].concat());
        assert!(files(1).is_none() && files(2).is_none());
        let behind = files(3).unwrap();
        assert_eq!(
            (behind.len(), &behind[4 * 999..4 * 1000], &behind[4 * 1000..4 * 1024]),
            (4096, &[0; 4][..], &[2; 96][..])
        );
        assert_eq!(files(4).unwrap()[..4 * 76], [2; 304]);
        let described = described(&path);
        assert_eq!(described["shape"], json!([4172, 2]));
        assert_eq!(described["attributes"]["gaps"], json!([{"first": 1000, "count": 3072}]));
        assert!(create(&path, &layout).is_err(), "it exists");
    }

    #[test]
    fn a_synced_array_has_the_samples_until_then_and_goes_on() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.zarr");
        let mut array = create(&path, &layout("cf32_le", 1)).unwrap();
        assert_eq!(described(&path)["shape"], json!([0, 1]));
        array.append(&[7; 8 * 5]).unwrap();
        array.sync().unwrap();
        let now = described(&path);
        assert_eq!((&now["shape"], &now["data_type"]), (&json!([5, 1]), &json!("complex64")));
        assert!(now["attributes"].get("gaps").is_none());
        assert_eq!(std::fs::metadata(path.join("c.0.0")).unwrap().len(), 4096);
        array.append(&[8; 8]).unwrap();
        array.append_absent(2).unwrap();
        array.finish(&Ending::default()).unwrap();
        let bytes = std::fs::read(path.join("c.0.0")).unwrap();
        assert_eq!(
            bytes[..56],
            [vec![7; 40], vec![8; 8], f32::NAN.to_le_bytes().repeat(2)].concat()
        );
        assert_eq!(described(&path)["shape"], json!([8, 1]));
        assert!(!path.join("zarr.json.new").exists());
    }

    #[test]
    fn an_abandoned_array_has_the_samples_and_gaps_of_the_last_sync() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.zarr");
        let mut array = create(&path, &layout("ci8", 1)).unwrap();
        array.append(&[1, 2]).unwrap();
        array.append_absent(2).unwrap();
        array.sync().unwrap();
        array.append_absent(5000).unwrap();
        array.append(&[3; 2000]).unwrap();
        array.abandon(&Ending { lacks: Some("the disk is full"), ..Ending::default() }).unwrap();
        let described = described(&path);
        assert_eq!(described["shape"], json!([3, 1, 2]));
        assert_eq!(described["codecs"], json!([{"name": "bytes"}]));
        let attributes = &described["attributes"];
        assert_eq!(attributes["gaps"], json!([{"first": 1, "count": 2}]));
        assert_eq!(attributes["lacks"], "the disk is full");
    }
}
