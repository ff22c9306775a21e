//! Digital RF 2.6: a channel is a directory of HDF5 files, each of an interval of time.
//!
//! ```text
//! top/channel/drf_properties.h5
//! top/channel/2023-11-14T22-00-00/rf@1700000000.000.h5     tmp.rf@… until it is complete
//! top/channel/metadata/…                                   the account, once there is one
//! ```
//!
//! Sample numbers count from 1970 at the sample rate. In a gapped channel, a file has only the samples that are there, and
//! an index row for each run of them. In a continuous one, files have all samples of their interval, with fill, and an
//! interval without any has no file. The layout is that of digital_rf 2.6.14.
//!
//! - `cadence`: which file a sample is in
//! - `file`: one file
//! - `fletcher`: checksums of chunks
//! - `attributes`: what files state

mod attributes;
mod cadence;
mod file;
mod fletcher;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fullbore_formats::samples::decode::DoesNotFit;
use fullbore_formats::samples::{Encoding, SampleLayout};

use self::attributes::{Properties, Sequence, element, fill};
use self::cadence::Cadence;
use self::file::{RfFile, Rows};
use crate::{Ending, Finished, Opening, Recoder, SampleType, SampleWriter};

/// Rows of fill that are written at once.
const FILL_ROWS: u64 = 1024;

/// Options of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DigitalRfOptions {
    /// Milliseconds of each file.
    pub file_ms: u64,
    /// Seconds of each directory, a whole number of files.
    pub subdir_secs: u64,
    /// True if gaps are filled, so that files have all samples of their intervals.
    pub continuous: bool,
    /// True if each chunk has a checksum, which readers verify.
    pub checksum: bool,
}

impl Default for DigitalRfOptions {
    fn default() -> Self {
        Self { file_ms: 1000, subdir_secs: 3600, continuous: false, checksum: true }
    }
}

impl DigitalRfOptions {
    /// Refuses lengths that the format does not allow.
    pub fn check(&self) -> Result<(), &'static str> {
        let Self { file_ms, subdir_secs, .. } = *self;
        if !(1..=86_400_000).contains(&file_ms) {
            return Err("a file has 1 ms to 1 day");
        }
        if !(1..=31_536_000).contains(&subdir_secs) {
            return Err("a directory has 1 s to 365 days");
        }
        match (subdir_secs * 1000).is_multiple_of(file_ms) {
            true => Ok(()),
            false => Err("a directory has a whole number of files"),
        }
    }
}

/// The encoding of values that are stored as `wanted`; without a wish, their own if HDF5 has it, else the smallest that
/// holds them.
pub fn encoding(from: Encoding, wanted: Option<SampleType>) -> Result<Encoding, DoesNotFit> {
    use SampleType::{F32, I8, I16, I32};
    match wanted {
        Some(wanted) => Recoder::encoding(from, wanted),
        None if element(from).is_some() => Ok(from),
        None => {
            let fits = [I8, I16, I32].into_iter().find_map(|to| Recoder::encoding(from, to).ok());
            fits.map_or_else(|| Recoder::encoding(from, F32), Ok)
        }
    }
}

/// A channel that is being written.
pub struct DigitalRfWriter {
    channel: PathBuf,
    scan: String,
    stream: String,
    properties: Properties,
    cadence: Cadence,
    rows: Rows,
    /// Rows of fill.
    fill: Vec<u8>,
    /// The number of the first sample, and of the next.
    first: u64,
    next: u64,
    /// The number of the sample behind those of the last sync.
    synced: u64,
    file: Option<RfFile>,
    sequence: Sequence,
    /// Files that are complete and not synced.
    unsynced: Vec<PathBuf>,
    /// Bytes of all complete files.
    bytes: u64,
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

impl DigitalRfWriter {
    /// Creates a channel, whose directory must not exist.
    pub fn create(
        channel: &Path,
        opening: &Opening<'_>,
        options: DigitalRfOptions,
    ) -> io::Result<Self> {
        options.check().map_err(invalid)?;
        let layout: &SampleLayout = opening.layout;
        let element = element(layout.encoding).ok_or_else(|| invalid("HDF5 has no such type"))?;
        let rate = layout.sample_rate.ok_or_else(|| {
            invalid(
                "Digital RF numbers samples by their rate: give sample_rate= in the endpoint of the source, or fps= for \
                 VDIF",
            )
        })?;
        let cadence = Cadence::new(rate, options.file_ms, options.subdir_secs);
        let start = opening.start.and_then(|start| cadence.sample_at(start));
        let first = start.ok_or_else(|| invalid("the time of the first sample is unknown"))?;
        let properties = Properties { rate, layout: layout.clone(), options };
        let rows = Rows {
            element,
            channels: layout.channels as usize,
            bytes: layout.sample_bits() as usize / 8,
            checksum: options.checksum,
        };
        fs::create_dir(channel)?;
        properties.write(channel)?;
        let sequence = Sequence {
            number: 0,
            computer_time: 0,
            first_second: cadence.second_of(first),
            uuid: format!("{}/{}", opening.scan, opening.stream),
        };
        Ok(Self {
            channel: channel.to_owned(),
            scan: opening.scan.to_owned(),
            stream: opening.stream.to_owned(),
            properties,
            cadence,
            rows,
            fill: fill(layout).repeat(FILL_ROWS as usize),
            first,
            next: first,
            synced: first,
            file: None,
            sequence,
            unsynced: Vec::new(),
            bytes: 0,
        })
    }

    fn is_continuous(&self) -> bool {
        self.properties.options.continuous
    }

    /// Opens the file of the next sample.
    fn open(&mut self) -> io::Result<RfFile> {
        let span = self.cadence.span_of(self.next);
        let (folder, name) = self.cadence.place(span.ms);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.sequence.computer_time = now.as_secs();
        let (properties, sequence) = (&self.properties, &self.sequence);
        let describe = |data: &hdf5_metno::Dataset| {
            properties.describe(data)?;
            sequence.describe(data)
        };
        let folder = self.channel.join(folder);
        let file = RfFile::create(&folder, &name, span, &self.rows, describe)?;
        self.sequence.number = self.sequence.number.saturating_add(1);
        Ok(file)
    }

    /// Appends samples, all in the interval of a file.
    fn append_to_file(&mut self, samples: &[u8]) -> io::Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.open()?,
        };
        let filled = if self.is_continuous() { self.pad(&mut file, self.next) } else { Ok(()) };
        let appended = filled.and_then(|()| file.append(self.next, samples));
        self.file = Some(file);
        appended?;
        self.next += (samples.len() / self.rows.bytes) as u64;
        self.close_if_full()
    }

    /// Fills a file up to a sample.
    fn pad(&self, file: &mut RfFile, end: u64) -> io::Result<()> {
        while file.next() < end {
            let rows = (end - file.next()).min(FILL_ROWS);
            file.append(file.next(), &self.fill[..rows as usize * self.rows.bytes])?;
        }
        Ok(())
    }

    /// Ends the file if the next sample is not in its interval.
    fn close_if_full(&mut self) -> io::Result<()> {
        match &self.file {
            Some(file) if self.next >= file.span.samples.end => self.close(),
            _ => Ok(()),
        }
    }

    fn close(&mut self) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        if self.is_continuous() {
            let end = file.span.samples.end;
            if let Err(error) = self.pad(&mut file, end) {
                self.file = Some(file);
                return Err(error);
            }
        }
        let (path, length) = file.finish()?;
        self.bytes += length;
        self.unsynced.push(path);
        Ok(())
    }

    /// Makes complete files and their names durable.
    fn sync_complete(&mut self) -> io::Result<()> {
        let mut folders: Vec<&Path> = vec![&self.channel];
        for path in &self.unsynced {
            fs::File::open(path)?.sync_all()?;
            folders.extend(path.parent());
        }
        folders.sort_unstable();
        folders.dedup();
        for folder in folders {
            fs::File::open(folder)?.sync_all()?;
        }
        self.unsynced.clear();
        Ok(())
    }

    /// Writes the account into the metadata channel. Returns the bytes of its files.
    fn describe(&self, ending: &Ending<'_>) -> io::Result<u64> {
        let mut texts = vec![
            ("scan", self.scan.clone()),
            ("stream", self.stream.clone()),
            ("layout", serde_json::to_string(&self.properties.layout)?),
        ];
        if let Some(account) = ending.account {
            texts.push(("account", serde_json::to_string(account)?));
        }
        if let Some(lacks) = ending.lacks {
            texts.push(("lacks", lacks.to_owned()));
        }
        self.properties.write_metadata(&self.channel, self.first, &texts)
    }

    fn length_of_properties(&self) -> io::Result<u64> {
        Ok(self.channel.join("drf_properties.h5").metadata()?.len())
    }
}

impl SampleWriter for DigitalRfWriter {
    fn append(&mut self, mut samples: &[u8]) -> io::Result<()> {
        while !samples.is_empty() {
            let end = self.cadence.span_of(self.next).samples.end;
            let most = usize::try_from(end - self.next).unwrap_or(usize::MAX);
            let most = most.saturating_mul(self.rows.bytes);
            let (some, rest) = samples.split_at(samples.len().min(most));
            self.append_to_file(some)?;
            samples = rest;
        }
        Ok(())
    }

    fn append_absent(&mut self, samples: u64) -> io::Result<()> {
        let next = self.next.checked_add(samples);
        self.next = next.ok_or_else(|| io::Error::from(io::ErrorKind::FileTooLarge))?;
        self.close_if_full()
    }

    fn samples(&self) -> u64 {
        self.next - self.first
    }

    /// The open file is durable under its temporary name.
    fn sync(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.sync()?;
        }
        self.sync_complete()?;
        self.synced = self.next;
        Ok(())
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<Finished> {
        self.close()?;
        self.sync_complete()?;
        let beside = self.describe(ending)? + self.length_of_properties()?;
        Ok(Finished { samples: self.samples(), bytes: self.bytes + beside })
    }

    fn abandon(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<()> {
        if let Some(mut file) = self.file.take() {
            file.cut(self.synced);
            match file.next() > file.span.samples.start {
                true => self.unsynced.push(file.finish()?.0),
                false => file.discard(),
            }
        }
        self.sync_complete()?;
        self.describe(ending)?;
        Ok(())
    }
}
