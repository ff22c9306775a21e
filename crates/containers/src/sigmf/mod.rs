//! A SigMF recording: samples in `x.sigmf-data`, and what they are in `x.sigmf-meta` (SigMF 1.2.6).
//!
//! ```text
//! appended    0 … 499, 500 are not there, 1000 … 1499
//! x.sigmf-data    0 … 499, 1000 … 1499                        no header, no fill
//! x.sigmf-meta    captures: sample_start 0, global_index 0;  sample_start 500, global_index 1000
//! ```
//!
//! The metadata is written at the start, replaced at each sync, and replaced by the final one at the end. So a file of
//! a recorder that died has its samples, and the captures as of the last sync.

mod collection;
mod hash;
mod metadata;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use fullbore_formats::samples::SampleLayout;
use fullbore_time::Tai;

use self::hash::FileHash;
use self::metadata::{Annotation, Capture, Document, Facts, Filled};
use crate::fill::Fill;
use crate::{Ending, Finished, Note, Opening, SampleGaps, SampleWriter};

pub use self::collection::write_collection;

/// The ending of the file of metadata.
pub const META: &str = ".sigmf-meta";

/// The ending of the file of samples.
pub const DATA: &str = ".sigmf-data";

/// The ending of the file that lists several recordings.
const COLLECTION: &str = ".sigmf-collection";

/// Bytes that are collected before each write.
const BUFFER_BYTES: usize = 1 << 20;

/// The largest number of captures. Gaps after them are filled.
const MOST_CAPTURES: usize = if cfg!(test) { 100 } else { 100_000 };

/// The largest number of samples, which SigMF counts with 63 bits.
const MOST_SAMPLES: u64 = i64::MAX as u64;

fn with_ending(base: &Path, ending: &str) -> PathBuf {
    let mut name = base.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// The path of the samples.
pub fn data_of(base: &Path) -> PathBuf {
    with_ending(base, DATA)
}

/// The path of the metadata.
pub fn meta_of(base: &Path) -> PathBuf {
    with_ending(base, META)
}

/// The path of the file that lists several recordings.
pub fn collection_of(base: &Path) -> PathBuf {
    with_ending(base, COLLECTION)
}

/// A path without an ending of SigMF.
pub fn base_of(path: &Path) -> PathBuf {
    let name = path.file_name().and_then(|name| name.to_str());
    let base = name.and_then(|name| {
        [META, DATA, COLLECTION].iter().find_map(|ending| name.strip_suffix(ending))
    });
    match base.filter(|base| !base.is_empty()) {
        Some(base) => path.with_file_name(base),
        None => path.to_owned(),
    }
}

/// A run of samples without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// The number of its first sample in the file.
    in_file: u64,
    /// The same in the stream, whose absent samples are counted.
    in_stream: u64,
}

/// A recording that is being written.
pub struct SigmfWriter {
    base: PathBuf,
    facts: Facts,
    layout: SampleLayout,
    start: Option<Tai>,
    file: BufWriter<File>,
    hash: Option<FileHash>,
    sample_bytes: u64,
    /// Bytes of the file.
    bytes: u64,
    /// Samples that are not there, and that no fill stands for.
    skipped: u64,
    runs: Vec<Run>,
    /// Centre frequencies in hertz, each from a sample of the stream on, in order.
    tunes: Vec<(u64, f64)>,
    fill: Fill,
    /// Gaps after the last capture that there is room for.
    filled: SampleGaps,
    /// `bytes` and `skipped` at the last sync.
    synced: (u64, u64),
}

impl SigmfWriter {
    /// Creates the files, which must not exist. `hash`: the metadata gets the SHA-512 of the samples, which a thread
    /// computes while they are written.
    pub fn create(base: &Path, opening: &Opening<'_>, hash: bool) -> io::Result<Self> {
        let path = data_of(base);
        let file = File::create_new(&path)?;
        let mut writer = Self {
            base: base.to_owned(),
            facts: Facts::of(opening),
            layout: opening.layout.clone(),
            start: opening.start,
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            hash: None,
            sample_bytes: opening.layout.sample_bits() / 8,
            bytes: 0,
            skipped: 0,
            runs: vec![Run { in_file: 0, in_stream: 0 }],
            tunes: Vec::new(),
            fill: Fill::new(opening.layout.encoding),
            filled: SampleGaps::default(),
            synced: (0, 0),
        };
        File::create_new(meta_of(base))?.write_all(&writer.document(None, &Ending::default()))?;
        if hash {
            writer.hash = Some(FileHash::of(File::open(&path)?)?);
        }
        Ok(writer)
    }

    /// Samples in the file.
    fn in_file(&self) -> u64 {
        self.bytes / self.sample_bytes
    }

    /// Begins a run behind a gap, if there is one.
    fn begin_run(&mut self) {
        let in_file = self.in_file();
        let in_stream = in_file + self.skipped;
        let Some(last) = self.runs.last_mut() else { return };
        if in_stream - last.in_stream == in_file - last.in_file {
            return;
        }
        match last.in_file == in_file {
            true => last.in_stream = in_stream,
            false => self.runs.push(Run { in_file, in_stream }),
        }
    }

    fn wrote(&mut self, bytes: u64) {
        self.bytes += bytes;
        if let Some(hash) = &self.hash {
            // The last ones may still be in the buffer.
            hash.wrote(self.bytes - self.file.buffer().len() as u64);
        }
    }

    /// The time of a sample of the stream, if the rate is known.
    fn time_of(&self, sample: u64) -> Option<Tai> {
        if sample == 0 {
            return self.start;
        }
        let (rate, per) = self.layout.sample_rate?.ratio();
        let ns = u128::from(sample) * u128::from(per);
        let ns = ns.checked_mul(1_000_000_000)? / u128::from(rate);
        Some(Tai(self.start?.0.checked_add(i64::try_from(ns).ok()?)?))
    }

    /// The sample of the file at a sample of the stream, or the next one behind it.
    fn place_of(&self, sample: u64) -> u64 {
        let next = self.runs.partition_point(|run| run.in_stream <= sample);
        let end = self.runs.get(next).map_or(self.in_file(), |run| run.in_file);
        match next.checked_sub(1).map(|at| self.runs[at]) {
            Some(run) => (run.in_file + (sample - run.in_stream)).min(end),
            None => 0,
        }
    }

    /// The runs, divided where the frequency changes.
    fn captures(&self) -> Vec<Run> {
        let mut captures = self.runs.clone();
        for &(in_stream, _) in &self.tunes {
            let in_file = self.place_of(in_stream);
            let next = self.runs.partition_point(|run| run.in_stream <= in_stream);
            let is_within = next.checked_sub(1).is_some_and(|at| {
                let run = self.runs[at];
                in_file > run.in_file && in_file - run.in_file == in_stream - run.in_stream
            });
            if is_within && in_file < self.in_file() {
                captures.push(Run { in_file, in_stream });
            }
        }
        captures.sort_by_key(|run| run.in_file);
        captures.dedup();
        captures
    }

    /// The centre frequency at a sample of the stream.
    fn frequency_at(&self, sample: u64) -> Option<f64> {
        let next = self.tunes.partition_point(|(from, _)| *from <= sample);
        let tuned = next.checked_sub(1).map(|at| self.tunes[at].1);
        tuned.or(self.layout.frequency_hz.map(|it| it.get()))
    }

    fn document(&self, sha512: Option<String>, ending: &Ending<'_>) -> Vec<u8> {
        let captures = self.captures().into_iter().map(|run| {
            let time = self.time_of(run.in_stream);
            Capture::new(run.in_file, run.in_stream, time, self.frequency_at(run.in_stream))
        });
        let place = |note: &Note| self.place_of(note.sample);
        let filled = Filled { gaps: &self.filled.listed, unlisted: self.filled.unlisted };
        let document = Document::new(
            self.facts.global(&self.layout, self.samples(), sha512, filled, ending),
            captures.collect(),
            ending.notes.iter().map(|note| Annotation::new(place(note), note)).collect(),
        );
        document.to_json()
    }

    /// Goes back to the last sync.
    fn cut(&mut self) {
        (self.bytes, self.skipped) = self.synced;
        let (in_file, in_stream) = (self.in_file(), self.samples());
        self.runs.retain(|run| run.in_file < in_file);
        if self.runs.is_empty() {
            self.runs.push(Run { in_file: 0, in_stream: 0 });
        }
        self.filled.cut(in_stream);
    }

    /// Replaces the metadata. Returns its length in bytes.
    fn describe(&self, sha512: Option<String>, ending: &Ending<'_>) -> io::Result<u64> {
        let text = self.document(sha512, ending);
        put(&meta_of(&self.base), &text)?;
        Ok(text.len() as u64)
    }
}

/// Replaces a file by another with this content, which is durable then.
fn put(path: &Path, text: &[u8]) -> io::Result<()> {
    let fresh = with_ending(path, ".new");
    let write = || {
        let mut file = File::create(&fresh)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&fresh, path)
    };
    write().inspect_err(|_| {
        // A part of it takes space that a full disk needs.
        let _ = std::fs::remove_file(&fresh);
    })?;
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

impl SampleWriter for SigmfWriter {
    fn append(&mut self, samples: &[u8]) -> io::Result<()> {
        self.begin_run();
        self.file.write_all(samples)?;
        self.wrote(samples.len() as u64);
        Ok(())
    }

    fn append_absent(&mut self, samples: u64) -> io::Result<()> {
        let before = self.samples();
        if before.checked_add(samples).is_none_or(|all| all > MOST_SAMPLES) {
            let why = "the gap has more samples than SigMF can count";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        if self.runs.len() < MOST_CAPTURES {
            self.skipped += samples;
            return Ok(());
        }
        self.begin_run();
        let bytes = samples.checked_mul(self.sample_bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, "the gap has more bytes than a file")
        })?;
        self.filled.add(before, samples);
        self.fill.write(&mut self.file, bytes)?;
        self.wrote(bytes);
        Ok(())
    }

    fn samples(&self) -> u64 {
        self.in_file() + self.skipped
    }

    fn tune(&mut self, sample: u64, hertz: f64) {
        let later = self.tunes.partition_point(|(from, _)| *from <= sample);
        if self.tunes.len() < MOST_CAPTURES && self.frequency_at(sample) != Some(hertz) {
            self.tunes.insert(later, (sample, hertz));
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_data()?;
        self.describe(None, &Ending::default())?;
        self.synced = (self.bytes, self.skipped);
        Ok(())
    }

    fn finish(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<Finished> {
        self.file.flush()?;
        self.file.get_ref().sync_all()?;
        let sha512 = self.hash.take().map(|hash| hash.finish(self.bytes)).transpose()?;
        let beside = self.describe(sha512, ending)?;
        Ok(Finished { samples: self.samples(), bytes: self.bytes + beside })
    }

    fn abandon(mut self: Box<Self>, ending: &Ending<'_>) -> io::Result<()> {
        self.hash = None;
        self.cut();
        let file = self.file.get_ref();
        file.set_len(self.bytes)?;
        file.sync_all()?;
        self.describe(None, ending)?;
        // What could not be written is in the buffer, and must not follow.
        let _ = self.file.into_parts();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
