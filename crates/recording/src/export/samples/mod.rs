//! Exports of samples: a [`SampleFile`] for each stream.

use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_care::context::{self, is_context};
use fullbore_containers::{
    Ending, Framing, Note, Origin, Purpose, SampleBlock, SampleError, SampleFile, SampleFormat,
    SampleOptions, SampleType,
};
use fullbore_core::index::Block;
use fullbore_core::manifest::State;
use fullbore_core::marker::Marker;
use fullbore_core::name::{Name, ScanName};
use fullbore_formats::vita49::listing::ListedChange;
use fullbore_hdf5 as hdf5;
use fullbore_store::follow::{FollowCursor, FollowState, Follower};
use fullbore_store::markers;
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, StoredStream};
use fullbore_time::Tai;

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
        let mut streams = select(follower.scan(), self.stream.as_ref())?;
        // Packets of context have no samples; they describe those of other streams.
        if self.stream.is_none() && streams.iter().any(|stream| !is_context(stream)) {
            streams.retain(|stream| !is_context(stream));
        }
        let context = context::changes(follower.scan());
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
            let place = Place { path, list: list.as_deref(), context: &context };
            match self.export(&mut follower, *number, &place, tell) {
                Ok(stream) => exported.push(stream),
                Err(error) => {
                    // All streams are exported or none. A file that stays is named by the next export.
                    for (_, path) in &files[..=exported.len()] {
                        self.format.remove(path);
                    }
                    return Err(error);
                }
            }
        }
        if let Some(list) = &list {
            let paths: Vec<PathBuf> = files.iter().map(|(_, path)| path.clone()).collect();
            let path = list.clone();
            let listed = self.format.list(&self.path, &paths);
            listed.map_err(|source| SampleError::Write { path, source })?;
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
        place: &Place<'_>,
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
                    let location = &block.location.block;
                    let taken = SampleBlock {
                        first: location.first,
                        bytes: block.bytes(),
                        is_fill: &|index| stream.gaps.contains(index),
                    };
                    if output.is_none() {
                        let created = self.create(follower, number, place, location, &taken);
                        output = Some(created?);
                    }
                    let file = output.as_mut().expect("made above");
                    file.append(&taken).map_err(|error| failed(stream, error))?;
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
            let why = "no block of it can be read".to_owned();
            return Err(failed(stream, SampleError::Payload { why }));
        };
        let last = stream.placed_edges().map(|(_, last)| last);
        output.append_behind(last).map_err(|error| failed(stream, error))?;
        if output.late() > 0 {
            let what = format!(
                "{}: {} packets came too late for their place, and are left out",
                stream.name,
                output.late()
            );
            tell(ExportEvent::Rest { what });
        }
        let rest_bytes = output.rest_bytes();
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
        let bytes = output.bytes();
        let notes = notes(follower, number, &output);
        let ending = Ending { account: account.as_ref(), notes: &notes, ..Ending::default() };
        let finished = output.finish(&ending).map_err(|error| failed(stream, error))?;
        Ok(ExportedStream {
            stream: stream.name.clone(),
            file: place.path.to_owned(),
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

    /// Creates the file of a stream, whose first block this is.
    fn create(
        &self,
        follower: &Follower,
        number: usize,
        place: &Place<'_>,
        location: &Block,
        first: &SampleBlock<'_>,
    ) -> Result<SampleFile, ExportError> {
        let stream = &follower.scan().streams[number];
        let manifest = &follower.scan().manifest;
        let in_manifest = manifest.streams.iter().find(|it| it.name.as_str() == stream.name);
        let described = in_manifest.and_then(|stream| stream.samples.clone());
        let purpose = Purpose {
            scan: &self.scan.to_string(),
            stream: &stream.name,
            framing: Framing {
                format: &stream.format,
                frame_bytes: stream.geometry.map_or(0, |geometry| geometry.frame_bytes),
                has_places: stream.is_filled(),
                samples: described.as_ref(),
                context: place.context,
                first: stream.placed_edges().map(|(first, _)| first),
            },
            start: start_of(stream, location),
            origin: Origin {
                software: &manifest.software,
                host: &manifest.host,
                source: in_manifest.map_or("", |stream| &stream.source),
                list: place.list,
            },
        };
        let options = SampleOptions { format: self.format, values: self.values };
        let file = SampleFile::create(place.path, &options, &purpose, first);
        file.map_err(|error| failed(stream, error))
    }
}

/// The place of a stream's file, and what is known for all files.
struct Place<'a> {
    path: &'a Path,
    /// The file that lists all streams.
    list: Option<&'a Path>,
    /// What context packets say of the streams.
    context: &'a [ListedChange],
}

/// The time of the first frame of a stream, even if a later one is the first in this block.
fn start_of(stream: &StoredStream, block: &Block) -> Tai {
    let edge = stream.account.as_ref().and_then(|account| account.first);
    let is_earlier = |first| stream.is_filled() && first < block.first;
    let earlier = edge.filter(|edge| is_earlier(edge.index)).and_then(|edge| edge.time);
    earlier.unwrap_or_else(|| stream.time_of_block(block))
}

/// The markers of a scan at the samples of a stream.
fn notes(follower: &Follower, number: usize, file: &SampleFile) -> Vec<Note> {
    let scan = follower.scan();
    let stream = &scan.streams[number].name;
    let live = follower.status() == FollowState::Recording;
    let note = |marker: &Marker| {
        let mut marker = marker.clone();
        markers::place(scan, &mut marker, live);
        let position = marker.positions.iter().find(|it| it.stream.as_str() == stream)?;
        Some(Note {
            sample: file.sample_at(position.frame, position.byte),
            time: marker.time,
            text: marker.text.to_string(),
            uuid: marker.uuid.to_string(),
        })
    };
    scan.inventory.markers.iter().filter_map(note).collect()
}

fn failed(stream: &StoredStream, error: SampleError) -> ExportError {
    ExportError::Samples { stream: stream.name.clone(), source: error }
}
