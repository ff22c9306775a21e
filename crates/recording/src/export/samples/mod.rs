//! Exports of samples: a numpy file for each stream, with its gaps in a JSON file beside it.
//!
//! ```text
//! block ──► frames ──► payload ──► Decoder ──► out.npy         one row per sample
//!             └─ fill, invalid or absent frames ──► NaN or 0, and an entry in out.npy.json
//! ```

mod npy;
mod payload;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_core::manifest::State;
use fullbore_core::name::{Name, ScanName};
use fullbore_formats::samples::SampleLayout;
use fullbore_formats::samples::decode::Decoder;
use fullbore_hdf5 as hdf5;
use fullbore_store::follow::{FollowCursor, FollowState, Follower};
use fullbore_store::read::Settings;
use fullbore_store::reader::Item;
use fullbore_time::Tai;
use serde::Serialize;

use self::npy::{Cell, NpyFile};
use self::payload::{Part, Payloads};
use super::losses::ExportAccount;
use super::{
    ExportError, ExportEvent, ExportEventHandler, ExportedScan, ExportedStream, completeness,
    select, settle,
};

/// The largest number of gaps that the file beside the samples lists.
const MOST_GAPS: usize = 100_000;

/// The type of the values in a file of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleType {
    /// Integers of 8 bits.
    I8,
    /// Integers of 16 bits.
    I16,
    /// Integers of 32 bits.
    I32,
    /// Floats of 32 bits.
    F32,
}

/// An export of a scan's samples.
#[derive(Clone, Debug)]
pub struct SampleExport {
    /// Directories of the store.
    pub roots: Vec<PathBuf>,
    /// The scan.
    pub scan: ScanName,
    /// The only stream to export. `None`: all streams.
    pub stream: Option<Name>,
    /// The file. With several streams, each gets a file beside it.
    pub path: PathBuf,
    /// The type of the values.
    pub values: SampleType,
    /// True to continue past unreadable data, and to include damaged data.
    pub allow_damaged: bool,
}

/// The facts about a file of samples that numpy's format has no place for.
#[derive(Serialize)]
struct Description<'a> {
    scan: String,
    stream: &'a str,
    samples: u64,
    layout: &'a SampleLayout,
    /// Time of the first sample.
    start: Option<Tai>,
    gaps: &'a [SampleGap],
    /// Gaps after the listed ones.
    gaps_unlisted: u64,
    account: &'a Option<fullbore_core::account::Account>,
}

/// Samples that are not there.
#[derive(Clone, Copy, Debug, Serialize)]
struct SampleGap {
    first: u64,
    count: u64,
}

impl SampleExport {
    /// Exports the data that is durable now.
    pub fn run(&self, tell: &mut ExportEventHandler<'_>) -> Result<ExportedScan, ExportError> {
        let begun = Instant::now();
        hdf5::check_place(&self.path)?;
        let mut follower = Follower::open(&self.roots, &self.scan)?;
        settle(&mut follower)?;
        let streams = select(follower.scan(), self.stream.as_ref())?;
        let single = streams.len() == 1;
        let files: Vec<(usize, PathBuf)> = streams
            .iter()
            .map(|stream| match single {
                true => (stream.number, self.path.clone()),
                false => (stream.number, hdf5::beside(&self.path, &stream.name)),
            })
            .collect();
        let taken = files.iter().flat_map(|(_, path)| [path.clone(), description_of(path)]);
        if let Some(path) = taken.into_iter().find(|path| hdf5::is_there(path)) {
            return Err(hdf5::Error::Exists { path }.into());
        }
        tell(ExportEvent::Begun { bytes: streams.iter().map(|stream| stream.bytes()).sum() });
        let mut exported = Vec::new();
        for (number, path) in &files {
            match self.export(&mut follower, *number, path, tell) {
                Ok(stream) => exported.push(stream),
                Err(error) => {
                    // All streams are exported or none. A file that stays is named by the next export.
                    for (_, path) in &files[..=exported.len()] {
                        let _ = std::fs::remove_file(path);
                        let _ = std::fs::remove_file(description_of(path));
                    }
                    return Err(error);
                }
            }
        }
        let manifest = &follower.scan().manifest;
        Ok(ExportedScan {
            scan: manifest.scan.clone(),
            completeness: completeness(manifest, &exported),
            joined: None,
            streams: exported,
            seconds: begun.elapsed().as_secs_f64(),
            is_recording: follower.status() == FollowState::Recording,
        })
    }

    fn export(
        &self,
        follower: &mut Follower,
        number: usize,
        path: &Path,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<ExportedStream, ExportError> {
        match self.values {
            SampleType::I8 => self.export_as::<i8>(follower, number, path, tell),
            SampleType::I16 => self.export_as::<i16>(follower, number, path, tell),
            SampleType::I32 => self.export_as::<i32>(follower, number, path, tell),
            SampleType::F32 => self.export_as::<f32>(follower, number, path, tell),
        }
    }

    fn export_as<T: Cell>(
        &self,
        follower: &mut Follower,
        number: usize,
        path: &Path,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<ExportedStream, ExportError> {
        let settings = Settings { allow_damaged: self.allow_damaged, ..Settings::default() };
        let mut flow = FollowCursor::new(number, settings);
        let (mut account, mut blocks, mut whole) = (ExportAccount::default(), 0, true);
        let mut output: Option<SampleFile<T>> = None;
        let mut start = None;
        while let Some(item) = follower.next(&mut flow)? {
            let stream = &follower.scan().streams[number];
            let wrong = match item {
                Item::Lost(finding) => Some(finding),
                Item::Block(block) => {
                    let described = || described(follower, number);
                    if output.is_none() {
                        let payloads = Payloads::of(stream, described(), block.bytes())?;
                        output = Some(SampleFile::create(path, payloads)?);
                        start = Some(stream.time_of_block(&block.location.block));
                    }
                    let file = output.as_mut().expect("made above");
                    let location = &block.location.block;
                    file.payloads.read(stream, location, block.bytes(), &mut file.parts)?;
                    file.pour(path, block.bytes())?;
                    blocks += 1;
                    account.add(location, block.damage.is_some());
                    tell(ExportEvent::Written { bytes: block.bytes().len() as u64 });
                    block.damage
                }
            };
            let Some(finding) = wrong else { continue };
            whole = false;
            if !self.allow_damaged {
                return Err(super::stream::unreadable(
                    stream,
                    account.present(),
                    finding.to_string(),
                ));
            }
            tell(ExportEvent::Damaged { what: finding.to_string(), ends: false });
        }
        let scan = follower.scan();
        let stream = &scan.streams[number];
        let Some(output) = output else {
            let (stream, why) = (stream.name.clone(), "no block of it can be read".to_owned());
            return Err(ExportError::Samples { stream, why });
        };
        let whole = whole && stream.absent.is_empty() && blocks >= stream.blocks.len();
        let account = if whole { stream.account.clone() } else { account.account(stream).0 };
        let recorded = stream.account.as_ref().is_some_and(|it| it.completeness().is_good());
        let (layout, gaps) = (output.payloads.layout.clone(), output.gaps);
        let samples = output.file.samples();
        let file_bytes = output.file.finish().map_err(|source| failed(path, source))?;
        let description = Description {
            scan: scan.manifest.scan.to_string(),
            stream: &stream.name,
            samples,
            layout: &layout,
            start,
            gaps: &gaps,
            gaps_unlisted: output.gaps_unlisted,
            account: &account,
        };
        describe(&description_of(path), &description)?;
        Ok(ExportedStream {
            stream: stream.name.clone(),
            file: path.to_owned(),
            rows: samples,
            bytes: output.bytes,
            file_bytes,
            verdict: account.as_ref().map(|account| account.verdict),
            account,
            whole,
            recorded_whole: scan.manifest.state == State::Sealed && recorded,
        })
    }
}

/// The layout in the manifest of the scan.
fn described(follower: &Follower, number: usize) -> Option<SampleLayout> {
    let scan = follower.scan();
    let name = &scan.streams[number].name;
    let stream = scan.manifest.streams.iter().find(|it| it.name.as_str() == name)?;
    stream.samples.clone()
}

/// The samples of a stream on their way into a file.
struct SampleFile<T> {
    payloads: Payloads,
    decoder: Decoder<T>,
    file: NpyFile<T>,
    parts: Vec<Part>,
    values: Vec<T>,
    gaps: Vec<SampleGap>,
    gaps_unlisted: u64,
    bytes: u64,
}

impl<T: Cell> SampleFile<T> {
    fn create(path: &Path, payloads: Payloads) -> Result<Self, ExportError> {
        let decoder = Decoder::new(payloads.layout.encoding)?;
        let file = NpyFile::create(path, &payloads.layout).map_err(|it| failed(path, it))?;
        let (parts, values, gaps) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { payloads, decoder, file, parts, values, gaps, gaps_unlisted: 0, bytes: 0 })
    }

    /// Writes the parts of a block.
    fn pour(&mut self, path: &Path, block: &[u8]) -> Result<(), ExportError> {
        self.bytes += block.len() as u64;
        for part in self.parts.drain(..) {
            let poured = match part {
                Part::Absent(count) => {
                    let (first, mut new) = (self.file.samples(), false);
                    match self.gaps.last_mut() {
                        Some(gap) if gap.first + gap.count == first => gap.count += count,
                        None | Some(_) => new = true,
                    }
                    match (new, self.gaps.len()) {
                        (false, _) => {}
                        (true, MOST_GAPS) => self.gaps_unlisted += 1,
                        (true, _) => self.gaps.push(SampleGap { first, count }),
                    }
                    self.file.append_absent(count)
                }
                Part::Carried(bytes) => {
                    append(&self.decoder, &mut self.values, &mut self.file, &bytes)
                }
                Part::Here(range) => {
                    append(&self.decoder, &mut self.values, &mut self.file, &block[range])
                }
            };
            poured.map_err(|source| failed(path, source))?;
        }
        Ok(())
    }
}

fn append<T: Cell>(
    decoder: &Decoder<T>,
    values: &mut Vec<T>,
    file: &mut NpyFile<T>,
    bytes: &[u8],
) -> std::io::Result<()> {
    // A long run is decoded in pieces that stay in the cache. 24 KiB are whole samples of any encoding of one byte or
    // more, and any number of bytes is whole codes of a packed one.
    for bytes in bytes.chunks(24 << 10) {
        values.resize(decoder.values_in(bytes.len()), T::default());
        decoder.decode(bytes, values);
        file.append(values)?;
    }
    Ok(())
}

fn failed(path: &Path, source: std::io::Error) -> ExportError {
    ExportError::Write { path: path.to_owned(), source }
}

/// The file beside a file of samples.
fn description_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

fn describe(path: &Path, description: &Description<'_>) -> Result<(), ExportError> {
    let file = File::create_new(path).map_err(|source| failed(path, source))?;
    serde_json::to_writer_pretty(&file, description).map_err(|error| failed(path, error.into()))?;
    file.sync_all().map_err(|source| failed(path, source))
}
