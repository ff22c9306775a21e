//! A stored stream poured into an HDF5 file: all of it, or what of it lies there so far.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use fullbore_core::account::Account;
use fullbore_core::format::panda::{self, Closed, Header};
use fullbore_core::index::Block;
use fullbore_core::manifest::{Format, State};
use fullbore_core::time::Tai;
use fullbore_engine::panda::live;
use fullbore_engine::sink::hdf5::{self, About, Ending, Options, PandaFile, Report, StreamFile};
use fullbore_engine::store::follow::{Flow, Follower};
use fullbore_engine::store::read::Settings;
use fullbore_engine::store::reader::{Delivered, Item, Scan, Stream};
use indicatif::ProgressBar;

use super::Converted;
use super::lost::Poured;
use crate::hint::explained;

/// How long the settings of a PandA are waited for while its scan is followed.
const SETTINGS_COME: Duration = Duration::from_secs(2);

/// One stream on its way into its file.
pub struct Pouring {
    /// The stream's name.
    pub stream: String,
    path: PathBuf,
    options: Options,
    file: Option<File>,
    /// How far it has come.
    flow: Flow,
    /// Go on over what cannot be read, and take what is damaged.
    allow_damaged: bool,
    /// Blocks that are in the file.
    blocks: usize,
    poured: Poured,
    bytes: u64,
    whole: bool,
    /// It ended where something could not be read.
    ended: bool,
    flushed: Instant,
}

/// The file, by what is in it.
enum File {
    Columns(Box<PandaFile>),
    Stream(Box<StreamFile>),
}

impl Pouring {
    /// Of nothing yet.
    pub fn new(stream: &Stream, settings: Settings, path: PathBuf, options: Options) -> Self {
        Pouring {
            stream: stream.name.clone(),
            path,
            options,
            file: None,
            flow: Flow::new(stream.number, settings),
            allow_damaged: settings.allow_damaged,
            blocks: 0,
            poured: Poured::default(),
            bytes: 0,
            whole: true,
            ended: false,
            flushed: Instant::now(),
        }
    }

    /// Gives the file what has come of a stream that is being recorded, for readers to see.
    pub fn pour_so_far(&mut self, follower: &mut Follower) -> anyhow::Result<()> {
        let stream = &follower.scan().streams[self.flow.number];
        if self.flow.position() == stream.blocks.len() || !self.is_described(stream) {
            return Ok(());
        }
        self.pour(follower, &ProgressBar::hidden())?;
        match self.file.as_mut().map(File::flush) {
            Some(Err(error)) => Err(self.give_up(error)),
            _ => Ok(()),
        }
    }

    /// Gives the file what follows of the stream.
    pub fn pour(&mut self, follower: &mut Follower, bar: &ProgressBar) -> anyhow::Result<()> {
        let number = self.flow.number;
        if self.file.is_none() {
            let scan = follower.scan();
            self.file = Some(File::create(scan, &scan.streams[number], &self.path, &self.options)?);
        }
        while !self.ended
            && let Some(item) = follower.next(&mut self.flow).map_err(explained)?
        {
            let file = self.file.as_mut().expect("made above");
            let wrong = match item {
                Item::Lost(finding) => Some(finding),
                Item::Block(block) => {
                    if let Err(error) = file.append(&follower.scan().streams[number], &block) {
                        return Err(self.give_up(error));
                    }
                    let taken = block.bytes().len() as u64;
                    self.blocks += 1;
                    self.poured.add(&block.placed.block, block.damage.is_some());
                    self.bytes += taken;
                    bar.inc(taken);
                    block.damage
                }
            };
            if self.flushed.elapsed() >= self.options.flush {
                self.flushed = Instant::now();
                if let Some(Err(error)) = self.file.as_mut().map(File::flush) {
                    return Err(self.give_up(error));
                }
            }
            if let Some(finding) = wrong {
                bar.suspend(|| eprintln!("fullbore: {finding}"));
                self.whole = false;
                if !self.allow_damaged {
                    bar.suspend(|| eprintln!("  --allow-damaged goes on without it"));
                    self.ended = true;
                }
            }
        }
        Ok(())
    }

    /// Ends a file that can take no more. Gives why.
    fn give_up(&mut self, error: hdf5::Error) -> anyhow::Error {
        match self.file.take() {
            Some(file) => file.give_up(error),
            None => explained(error),
        }
    }

    /// Whether all is known that a file begins with. Of a PandA the manifest tells it soon after its first
    /// samples; its settings may never come.
    fn is_described(&self, stream: &Stream) -> bool {
        let waited = self.file.is_some() || self.flushed.elapsed() >= SETTINGS_COME;
        match &stream.format {
            Format::Panda { header, settings, .. } => {
                !header.is_empty() && (settings.is_some() || waited)
            }
            Format::Vdif { .. } | Format::Raw => true,
        }
    }

    /// Ends the file with what the scan says of the stream.
    pub fn finish(self, scan: &Scan, number: usize) -> anyhow::Result<Converted> {
        let stream = &scan.streams[number];
        let file = match self.file {
            Some(file) => file,
            None => File::create(scan, stream, &self.path, &self.options)?,
        };
        let whole = self.whole && stream.absent.is_empty() && self.blocks >= stream.blocks.len();
        let (account, lost) = match whole {
            true => (stream.account.clone(), 0),
            false => self.poured.account(stream),
        };
        let ending = ending(scan, stream, account, lost, whole);
        let verdict = ending.verdict;
        let (rows, report) = file.finish(&ending, stream).map_err(explained)?;
        Ok(Converted {
            stream: self.stream,
            file: report.path,
            rows,
            bytes: self.bytes,
            file_bytes: report.file_bytes,
            verdict,
            whole,
            recorded_whole: scan.manifest.state == State::Sealed
                && stream.account.as_ref().is_some_and(|account| account.completeness().is_good()),
        })
    }
}

impl File {
    fn create(
        scan: &Scan,
        stream: &Stream,
        path: &Path,
        options: &Options,
    ) -> anyhow::Result<Self> {
        if let Format::Panda { header, settings, .. } = &stream.format {
            let what = || format!("the header of {}/{}", scan.manifest.scan, stream.name);
            let header = Header::of_recording(header).with_context(what)?;
            let file = PandaFile::create_with(path, &header, settings.as_deref(), options);
            return Ok(File::Columns(Box::new(file.map_err(explained)?)));
        }
        let about = About {
            scan: &scan.manifest.scan.to_string(),
            stream: &stream.name,
            format: &stream.format,
            frame_bytes: stream.geometry.map_or(0, |geometry| geometry.frame_bytes),
        };
        let file = StreamFile::create(path, &about, options).map_err(explained)?;
        Ok(File::Stream(Box::new(file)))
    }

    fn append(&mut self, stream: &Stream, block: &Delivered) -> Result<(), hdf5::Error> {
        match self {
            File::Columns(file) => file.append(block.bytes()),
            File::Stream(file) => {
                let time_of = time_of(stream, &block.placed.block);
                let of_block = stream.time_of_block(&block.placed.block);
                file.append(block.bytes(), of_block, time_of)
            }
        }
    }

    fn flush(&mut self) -> Result<(), hdf5::Error> {
        match self {
            File::Columns(file) => file.flush(),
            File::Stream(file) => file.flush(),
        }
    }

    /// Ends a file that can take no more, with what has been flushed to it. Gives why.
    fn give_up(self, error: hdf5::Error) -> anyhow::Error {
        let ending =
            Ending::given_up(format!("the conversion was given up: {}", hdf5::cause(&error)));
        // Where there is no room for an ending either, `recover` makes one.
        let _ = match self {
            File::Columns(mut file) => {
                file.rescue();
                file.abandon(&ending)
            }
            File::Stream(file) => file.abandon(&ending),
        };
        explained(error)
    }

    fn finish(self, ending: &Ending, stream: &Stream) -> Result<(u64, Report), hdf5::Error> {
        match self {
            File::Columns(file) => {
                let rows = file.rows();
                Ok((rows, file.finish(ending)?))
            }
            File::Stream(file) => {
                let rows = file.rows();
                Ok((rows, file.finish(ending, &stream.format)?))
            }
        }
    }
}

/// As the file would have ended live, with what it lacks of the recording: so many frames are lost of a stream of which
/// not all could be read.
fn ending(
    scan: &Scan,
    stream: &Stream,
    account: Option<Account>,
    lost: u64,
    whole: bool,
) -> Ending {
    let lack = match (lost, whole) {
        (0, true) => None,
        (0, false) => Some("not all of the recording could be read".to_owned()),
        (lost, _) => Some(format!("{lost} frames of the recording were not read")),
    };
    let mut ending = match &stream.format {
        Format::Panda { .. } => ending_of_panda(&stream.format, account, lack.clone()),
        Format::Vdif { .. } | Format::Raw => {
            Ending::of_stream(scan.manifest.state, account.as_ref())
        }
    };
    if let Some(lack) = lack {
        ending.reason = format!("{}; {lack}", ending.reason);
    }
    ending
}

fn ending_of_panda(format: &Format, account: Option<Account>, lack: Option<String>) -> Ending {
    let Format::Panda { ending, captured, connections, notes, .. } = format else {
        unreachable!("columns are made of a PandA's samples only");
    };
    let closed = account.map(|account| {
        let ending = ending.clone().unwrap_or(panda::Ending::ConnectionLost);
        let notes = notes.iter().cloned().chain(lack).collect();
        Closed::restored(account, ending, *captured, connections.clone(), notes)
    });
    closed.as_ref().map(live::ending).unwrap_or_default()
}

/// The time of a frame by its number in a block: by its place, else that of its block.
fn time_of<'a>(stream: &'a Stream, block: &'a Block) -> impl FnMut(usize) -> Tai + 'a {
    let of_block = stream.time_of_block(block);
    let is_placed = stream.time_of(block.first).is_some();
    move |number| {
        let placed = is_placed.then(|| stream.time_of(block.first + number as i64)).flatten();
        placed.unwrap_or(of_block)
    }
}
