//! Exports a stored stream into an HDF5 file: all of it, or the part recorded so far.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_core::account::Account;
use fullbore_core::completeness::{counted, grouped};
use fullbore_core::index::Block;
use fullbore_core::manifest::{Format, State};
use fullbore_hdf5 as hdf5;
use fullbore_hdf5::{About, Ending, Options, StreamFile};
use fullbore_store::follow::{FollowCursor, Follower};
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, Scan, StoredStream};
use fullbore_time::Tai;

use super::losses::ExportAccount;
use super::{ExportError, ExportEvent, ExportEventHandler, ExportedStream};

/// Time for the settings of a PandA to arrive while its scan is followed.
const SETTINGS_COME: Duration = Duration::from_secs(2);

/// What an export does about unreadable and damaged data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// It continues past unreadable data, and includes damaged data.
    Continue,
    /// It ends there, and the file keeps what came before: readers may have seen it.
    End,
    /// It fails there, and leaves no file.
    Fail,
}

/// The export of one stream into its file.
pub struct StreamExport {
    /// The stream's name.
    pub stream: String,
    path: PathBuf,
    options: Options,
    file: Option<StreamFile>,
    /// The position in the stream.
    flow: FollowCursor,
    /// What to do about unreadable and damaged data.
    on_damage: OnDamage,
    /// Blocks written to the file.
    blocks: usize,
    poured: ExportAccount,
    bytes: u64,
    whole: bool,
    /// True if it ended at unreadable data.
    ended: bool,
    flushed: Instant,
}

impl StreamExport {
    /// An exporter without a file yet.
    pub fn new(
        stream: &StoredStream,
        settings: Settings,
        on_damage: OnDamage,
        path: PathBuf,
        options: Options,
    ) -> Self {
        StreamExport {
            stream: stream.name.clone(),
            path,
            options,
            file: None,
            flow: FollowCursor::new(stream.number, settings),
            on_damage,
            blocks: 0,
            poured: ExportAccount::default(),
            bytes: 0,
            whole: true,
            ended: false,
            flushed: Instant::now(),
        }
    }

    /// Writes the new data of a stream that is being recorded, visible to readers.
    pub fn pour_so_far(
        &mut self,
        follower: &mut Follower,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<(), ExportError> {
        let stream = &follower.scan().streams[self.flow.number];
        if self.flow.position() == stream.blocks.len() || !self.is_described(stream) {
            return Ok(());
        }
        self.pour(follower, tell)?;
        match self.file.as_mut().map(StreamFile::flush) {
            Some(Err(error)) => Err(self.give_up(error)),
            _ => Ok(()),
        }
    }

    /// Writes the rest of the stream.
    pub fn pour(
        &mut self,
        follower: &mut Follower,
        tell: &mut ExportEventHandler<'_>,
    ) -> Result<(), ExportError> {
        let number = self.flow.number;
        if self.file.is_none() {
            let scan = follower.scan();
            self.file = Some(create(scan, &scan.streams[number], &self.path, &self.options)?);
        }
        while !self.ended
            && let Some(item) = follower.next(&mut self.flow)?
        {
            let file = self.file.as_mut().expect("made above");
            let wrong = match item {
                Item::Lost(finding) => Some(finding),
                Item::Block(block) => {
                    let stream = &follower.scan().streams[number];
                    let of_block = stream.time_of_block(&block.location.block);
                    let time_of = time_of(stream, &block.location.block);
                    if let Err(error) = file.append(block.bytes(), of_block, time_of) {
                        return Err(self.give_up(error));
                    }
                    let taken = block.bytes().len() as u64;
                    self.blocks += 1;
                    self.poured.add(&block.location.block, block.damage.is_some());
                    self.bytes += taken;
                    tell(ExportEvent::Written { bytes: taken });
                    block.damage
                }
            };
            if self.flushed.elapsed() >= self.options.flush {
                self.flushed = Instant::now();
                if let Some(Err(error)) = self.file.as_mut().map(StreamFile::flush) {
                    return Err(self.give_up(error));
                }
            }
            if let Some(finding) = wrong {
                self.whole = false;
                self.ended = self.on_damage != OnDamage::Continue;
                if self.on_damage == OnDamage::Fail {
                    return Err(self.stopped(follower.scan(), finding.to_string()));
                }
                tell(ExportEvent::Damaged { what: finding.to_string(), ends: self.ended });
            }
        }
        Ok(())
    }

    /// Removes the file. Returns the reason why it cannot be complete.
    fn stopped(&mut self, scan: &Scan, why: String) -> ExportError {
        if self.file.take().is_some() {
            // If it stays, the next export says so.
            let _ = std::fs::remove_file(&self.path);
        }
        unreadable(&scan.streams[self.flow.number], self.poured.present(), why)
    }

    /// Ends a file after an error, with the data flushed so far. Returns the error.
    fn give_up(&mut self, error: hdf5::Error) -> ExportError {
        if let Some(mut file) = self.file.take() {
            let why = format!("the conversion was given up: {}", hdf5::cause(&error));
            file.rescue();
            // If there is no space for an ending either, `recover` adds one.
            let _ = file.abandon(&Ending::given_up(why));
        }
        error.into()
    }

    /// True if the data for the start of a file is known. The manifest of a PandA gets it soon after the first samples;
    /// its settings may be missing for ever.
    fn is_described(&self, stream: &StoredStream) -> bool {
        let waited = self.file.is_some() || self.flushed.elapsed() >= SETTINGS_COME;
        match &stream.format {
            Format::Panda { header, settings, .. } => {
                !header.is_empty() && (settings.is_some() || waited)
            }
            Format::Frames { .. } | Format::Packets { .. } | Format::Raw => true,
        }
    }

    /// Ends the file with the scan's information about the stream.
    pub fn finish(self, scan: &Scan, number: usize) -> Result<ExportedStream, ExportError> {
        let stream = &scan.streams[number];
        let file = match self.file {
            Some(file) => file,
            None => create(scan, stream, &self.path, &self.options)?,
        };
        let whole = self.whole && stream.absent.is_empty() && self.blocks >= stream.blocks.len();
        let (account, lost) = match whole {
            true => (stream.account.clone(), 0),
            false => self.poured.account(stream),
        };
        let ending = ending(scan, stream, account.as_ref(), lost, whole);
        let verdict = ending.verdict;
        let rows = file.rows();
        let report = file.finish(&ending, &stream.format)?;
        Ok(ExportedStream {
            stream: self.stream,
            file: report.path,
            rows,
            bytes: self.bytes,
            file_bytes: report.file_bytes,
            rest_bytes: 0,
            verdict,
            account,
            whole,
            recorded_whole: scan.manifest.state == State::Sealed
                && stream.account.as_ref().is_some_and(|account| account.completeness().is_good()),
        })
    }
}

/// The error of a block that cannot be read, after this many frames.
pub fn unreadable(stream: &StoredStream, frames: u64, why: String) -> ExportError {
    let recorded = stream.blocks.iter().map(|it| u64::from(it.block.present)).sum();
    let recorded = stream.account.as_ref().map_or(recorded, |it| it.terms.written);
    let unit = stream.account.as_ref().map_or("frame", |it| it.counted_by.unit());
    ExportError::Unreadable {
        stream: stream.name.clone(),
        after: grouped(frames),
        of: counted(recorded, unit),
        why,
    }
}

/// Creates the file of a stream.
fn create(
    scan: &Scan,
    stream: &StoredStream,
    path: &Path,
    options: &Options,
) -> Result<StreamFile, hdf5::Error> {
    let about = About {
        scan: &scan.manifest.scan.to_string(),
        stream: &stream.name,
        format: &stream.format,
        frame_bytes: stream.geometry.map_or(0, |geometry| geometry.frame_bytes),
    };
    StreamFile::create(path, &about, options)
}

/// The ending of the file as in a live recording, plus its losses: frames that could not be read count as lost.
fn ending(
    scan: &Scan,
    stream: &StoredStream,
    account: Option<&Account>,
    lost: u64,
    whole: bool,
) -> Ending {
    let lack = match (lost, whole) {
        (0, true) => None,
        (0, false) => Some("not all of the recording could be read".to_owned()),
        (lost, _) => Some(format!("{lost} frames of the recording were not read")),
    };
    Ending::of_stream(scan.manifest.state, &stream.format, account, lack)
}

/// The time of a frame by its number in a block: by its place, else the time of its block.
fn time_of<'a>(stream: &'a StoredStream, block: &'a Block) -> impl FnMut(usize) -> Tai + 'a {
    let of_block = stream.time_of_block(block);
    let is_placed = stream.time_of(block.first).is_some();
    move |number| {
        let location = is_placed.then(|| stream.time_of(block.first + number as i64)).flatten();
        location.unwrap_or(of_block)
    }
}
