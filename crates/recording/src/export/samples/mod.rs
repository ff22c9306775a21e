//! Exports of samples: the files of a [`SampleFormat`] for each stream.
//!
//! ```text
//! block ──► frames ──► payload ──► Recoder ──► SampleWriter
//!             └─ fill, invalid or absent frames ──► SampleWriter::append_absent
//! ```

mod payload;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_containers::{
    Ending, Note, Opening, Origin, Recoder, SampleFormat, SampleType, SampleWriter,
};
use fullbore_core::manifest::State;
use fullbore_core::marker::Marker;
use fullbore_core::name::{Name, ScanName};
use fullbore_formats::samples::SampleLayout;
use fullbore_hdf5 as hdf5;
use fullbore_store::follow::{FollowCursor, FollowState, Follower};
use fullbore_store::markers;
use fullbore_store::read::Settings;
use fullbore_store::reader::Item;

use self::payload::{Part, Payloads};
use super::losses::ExportAccount;
use super::{
    ExportError, ExportEvent, ExportEventHandler, ExportedScan, ExportedStream, completeness,
    select, settle,
};

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
    /// The format of the files.
    pub format: SampleFormat,
    /// The type of the values. `None`: the one that the format prefers.
    pub values: Option<SampleType>,
    /// True to continue past unreadable data, and to include damaged data.
    pub allow_damaged: bool,
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
        let list = self.format.list_of(&self.path).filter(|_| !single);
        let files: Vec<(usize, PathBuf)> = streams
            .iter()
            .map(|stream| match single {
                true => (stream.number, self.path.clone()),
                false => (stream.number, hdf5::beside(&self.path, &stream.name)),
            })
            .collect();
        let taken = files.iter().flat_map(|(_, path)| self.format.files(path)).chain(list.clone());
        if let Some(path) = taken.into_iter().find(|path| hdf5::is_there(path)) {
            return Err(hdf5::Error::Exists { path }.into());
        }
        tell(ExportEvent::Begun { bytes: streams.iter().map(|stream| stream.bytes()).sum() });
        let mut exported = Vec::new();
        for (number, path) in &files {
            match self.export(&mut follower, *number, path, list.as_deref(), tell) {
                Ok(stream) => exported.push(stream),
                Err(error) => {
                    // All streams are exported or none. A file that stays is named by the next export.
                    for (_, path) in &files[..=exported.len()] {
                        for file in self.format.files(path) {
                            let _ = std::fs::remove_file(file);
                        }
                    }
                    return Err(error);
                }
            }
        }
        if let Some(list) = &list {
            let paths: Vec<PathBuf> = files.iter().map(|(_, path)| path.clone()).collect();
            let listed = self.format.list(&self.path, &paths);
            listed.map_err(|source| failed(list, source))?;
        }
        let manifest = &follower.scan().manifest;
        Ok(ExportedScan {
            scan: manifest.scan.clone(),
            completeness: completeness(manifest, &exported),
            joined: list,
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
        list: Option<&Path>,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<ExportedStream, ExportError> {
        let settings = Settings { allow_damaged: self.allow_damaged, ..Settings::default() };
        let mut flow = FollowCursor::new(number, settings);
        let (mut account, mut blocks, mut whole) = (ExportAccount::default(), 0, true);
        let mut output: Option<SampleFile> = None;
        while let Some(item) = follower.next(&mut flow)? {
            let stream = &follower.scan().streams[number];
            let wrong = match item {
                Item::Lost(finding) => Some(finding),
                Item::Block(block) => {
                    let described = || described(follower, number);
                    if output.is_none() {
                        let payloads = Payloads::of(stream, described(), block.bytes())?;
                        let scan = self.scan.to_string();
                        let layout = self.layout(&payloads.layout)?;
                        let manifest = &follower.scan().manifest;
                        let origin = Origin {
                            software: &manifest.software,
                            host: &manifest.host,
                            source: manifest.streams.get(number).map_or("", |it| &it.source),
                            list,
                        };
                        let opening = Opening {
                            scan: &scan,
                            stream: &stream.name,
                            layout: &layout,
                            start: Some(payloads.start(stream, &block.location.block)),
                            origin,
                        };
                        let file = self.format.create(path, &opening);
                        let file = file.map_err(|source| failed(path, source))?;
                        output = Some(SampleFile::new(payloads, &layout, file)?);
                    }
                    let file = output.as_mut().expect("made above");
                    let location = &block.location.block;
                    file.payloads.read(stream, location, block.bytes(), &mut file.parts)?;
                    file.pour(block.bytes()).map_err(|source| failed(path, source))?;
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
        let Some(mut output) = output else {
            let (stream, why) = (stream.name.clone(), "no block of it can be read".to_owned());
            return Err(ExportError::Samples { stream, why });
        };
        output.parts.extend(output.payloads.behind(stream));
        output.pour(&[]).map_err(|source| failed(path, source))?;
        let rest_bytes = output.payloads.rest_bytes();
        if rest_bytes > 0 {
            let what = format!(
                "{}: its last {rest_bytes} bytes are not a whole sample, and are left out",
                stream.name
            );
            tell(ExportEvent::Rest { what });
        }
        let whole = whole && stream.absent.is_empty() && blocks >= stream.blocks.len();
        let account = if whole { stream.account.clone() } else { account.account(stream).0 };
        let recorded = stream.account.as_ref().is_some_and(|it| it.completeness().is_good());
        let bytes = output.bytes;
        let notes = notes(follower, number, &output.payloads);
        let ending = Ending { account: account.as_ref(), notes: &notes };
        let finished = output.writer.finish(&ending);
        let finished = finished.map_err(|source| failed(path, source))?;
        Ok(ExportedStream {
            stream: stream.name.clone(),
            file: path.to_owned(),
            rows: finished.samples,
            bytes,
            file_bytes: finished.bytes,
            rest_bytes,
            verdict: account.as_ref().map(|account| account.verdict),
            account,
            whole,
            recorded_whole: scan.manifest.state == State::Sealed && recorded,
        })
    }

    /// The samples as they are in the files.
    fn layout(&self, recorded: &SampleLayout) -> Result<SampleLayout, ExportError> {
        let encoding = self.format.encoding(recorded.encoding, self.values)?;
        Ok(SampleLayout { encoding, ..recorded.clone() })
    }
}

/// The layout in the manifest of the scan.
fn described(follower: &Follower, number: usize) -> Option<SampleLayout> {
    let scan = follower.scan();
    let name = &scan.streams[number].name;
    let stream = scan.manifest.streams.iter().find(|it| it.name.as_str() == name)?;
    stream.samples.clone()
}

/// The markers of a scan at the samples of a stream.
fn notes(follower: &Follower, number: usize, payloads: &Payloads) -> Vec<Note> {
    let scan = follower.scan();
    let stream = &scan.streams[number].name;
    let live = follower.status() == FollowState::Recording;
    let note = |marker: &Marker| {
        let mut marker = marker.clone();
        markers::place(scan, &mut marker, live);
        let position = marker.positions.iter().find(|it| it.stream.as_str() == stream)?;
        Some(Note {
            sample: payloads.sample_at(position),
            time: marker.time,
            text: marker.text.to_string(),
            uuid: marker.uuid.to_string(),
        })
    };
    scan.inventory.markers.iter().filter_map(note).collect()
}

/// The samples of a stream on their way into its files.
struct SampleFile {
    payloads: Payloads,
    recoder: Recoder,
    writer: Box<dyn SampleWriter>,
    parts: Vec<Part>,
    bytes: u64,
}

impl SampleFile {
    fn new(
        payloads: Payloads,
        layout: &SampleLayout,
        writer: Box<dyn SampleWriter>,
    ) -> Result<Self, ExportError> {
        let recoder = Recoder::new(payloads.layout.encoding, layout.encoding)?;
        Ok(Self { payloads, recoder, writer, parts: Vec::new(), bytes: 0 })
    }

    /// Writes the parts of a block.
    fn pour(&mut self, block: &[u8]) -> io::Result<()> {
        self.bytes += block.len() as u64;
        for part in self.parts.drain(..) {
            let put = |samples: &[u8]| self.writer.append(samples);
            match part {
                Part::Absent(count) => self.writer.append_absent(count)?,
                Part::Carried(bytes) => self.recoder.recode(&bytes, put)?,
                Part::Here(range) => self.recoder.recode(&block[range], put)?,
            }
        }
        Ok(())
    }
}

fn failed(path: &Path, source: io::Error) -> ExportError {
    ExportError::Write { path: path.to_owned(), source }
}
