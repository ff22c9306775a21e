//! The container thread: it owns the files of a recording and takes the role of a member's writer.
//!
//! ```text
//! capture threads ──Write──► waiting for properties ──► in the file, hidden ──flush──► visible
//!        ▲                                                                              │
//!        └──────────────── Written, or Refused once a write has failed ─────────────────┘
//! ```
//!
//! Blocks of datagrams are returned when a flush has made them visible, so that data which the account counts as written
//! is in the file for good. Samples of a PandA are copied into columns, and their blocks are returned at once; if a write
//! fails, the account is corrected before the seal by the rows that are in the file ([`Word::Settle`]).
//!
//! Scans are written one after the other, because a scan may continue the file of the one before: blocks of the next
//! scan wait until the files of this one have their ending. libhdf5 allows only one thread at a time, so one thread
//! serves all files.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use fullbore_core::account::Account;
use fullbore_core::manifest::Format;
use fullbore_core::name::Name;
use fullbore_hdf5::{About, Ending, Existing, StreamFile, is_there};
use fullbore_linux::ring::{FullBlock, StreamRef, WriterCommand, WriterEvent};
use uuid::Uuid;

use super::file::{ContainerError, ContainerFile, LastWords};
use super::files::{ContainerConfig, ContainerFormat};
use super::output::{Alternate, Description, ScanOutput, StreamOutput, Unseen};
use crate::event::SealedFile;
use crate::sink::WriterLink;

/// The number of commands taken from one queue before the next queue has its turn.
const TURN: usize = 64;

/// The longest sleep while no command arrives.
const NAP: Duration = Duration::from_millis(20);

/// Messages from the recorder to the container thread, besides blocks. Each names its scan.
#[derive(Debug)]
pub enum Word {
    /// A scan begins. It has this number, counted from 1.
    Begun(u64),
    /// The first frames of a stream arrived; this is its description.
    Opened(Box<Description>),
    /// The settings of a PandA are in the format of its stream, or will never be.
    Described(u16, Box<Format>),
    /// The recording ends: blocks no longer wait for a time.
    Hurry,
    /// All blocks of the scan were returned: tell which rows are in the files of PandAs.
    Settle(Sender<BTreeMap<u16, Settled>>),
    /// End the files of the scan.
    End(EndOfScan, Sender<Ended>),
    /// The scan has ended, or never will.
    Leave,
}

/// The files of a scan that has ended, or the failure.
pub type Ended = Result<Vec<SealedFile>, Arc<ContainerError>>;

/// The contents of a PandA's file when all of its blocks were returned.
#[derive(Debug, Default)]
pub struct Settled {
    /// The number of samples in it, if a write has failed: all others are not in the file.
    pub rows: Option<u64>,
    /// Notes for the account.
    pub notes: Vec<String>,
}

/// The endings of the files of a scan.
#[derive(Debug)]
pub struct EndOfScan {
    /// The scan's name.
    pub scan: String,
    /// The file of each stream, by its place in the manifest.
    pub files: BTreeMap<u16, EndOfFile>,
}

/// The ending of a stream's file.
#[derive(Debug)]
pub struct EndOfFile {
    /// The file.
    pub path: PathBuf,
    /// The stream.
    pub stream: Name,
    /// The format of its frames, as known at the end.
    pub format: Format,
    /// Bytes of a frame.
    pub frame_bytes: u32,
    /// The ending, as HDF5 files state it.
    pub ending: Ending,
    /// The account.
    pub account: Option<Account>,
}

/// The state of the container thread.
pub struct ContainerThread {
    link: WriterLink,
    words: Receiver<(Uuid, Word)>,
    config: ContainerConfig,
    /// The number of bytes that may be held until a flush, so that blocks do not run out.
    most_held: u64,
    /// Scans that have begun and not ended. The first one is written.
    scans: VecDeque<ScanOutput>,
    held_bytes: u64,
    flushed: Instant,
    recorder_gone: bool,
    /// The first failure. Nothing is written after it.
    failure: Option<Arc<ContainerError>>,
}

impl ContainerThread {
    /// A writer for these queues; `most_held` bytes may wait for a flush.
    pub fn new(
        link: WriterLink,
        words: Receiver<(Uuid, Word)>,
        config: ContainerConfig,
        most_held: u64,
    ) -> Self {
        Self {
            link,
            words,
            config,
            most_held,
            scans: VecDeque::new(),
            held_bytes: 0,
            flushed: Instant::now(),
            recorder_gone: false,
            failure: None,
        }
    }

    /// Writes until the capture threads and the recorder have ended.
    pub fn run(mut self) {
        while !self.is_over() {
            let told = self.listen();
            let taken = self.take_commands();
            self.pour();
            if self.is_flush_due() {
                self.flush();
            }
            self.end_scans();
            if taken == 0 && !told {
                self.rest();
            }
        }
        // Ends files that the recorder did not end, in the way of `recover`.
        self.scans.drain(..).for_each(give_up);
    }

    fn is_over(&self) -> bool {
        let mut streams = self.scans.iter().flat_map(|scan| scan.streams.values());
        self.recorder_gone && self.link.is_over() && streams.all(StreamOutput::is_idle)
    }

    /// Processes messages from the recorder. Returns true if there were any.
    fn listen(&mut self) -> bool {
        let mut told = false;
        loop {
            match self.words.try_recv() {
                Ok((scan, word)) => {
                    told = true;
                    self.hear(scan, word);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    self.recorder_gone = true;
                    break;
                }
            }
        }
        // No thread is left that could send blocks or describe a stream.
        if self.link.queues.iter().all(|queue| queue.commands.is_abandoned()) {
            self.scans.iter_mut().for_each(ScanOutput::hurry);
        }
        told
    }

    fn hear(&mut self, uuid: Uuid, word: Word) {
        if let Word::Begun(number) = word {
            self.scans.push_back(ScanOutput::new(uuid, number));
            return;
        }
        let Some(at) = self.scans.iter().position(|scan| scan.uuid == uuid) else { return };
        let scan = &mut self.scans[at];
        match word {
            Word::Begun(_) => {}
            Word::Opened(description) => {
                let out = scan.streams.entry(description.number).or_default();
                out.description.get_or_insert(*description);
            }
            Word::Described(number, format) => {
                let out = scan.streams.get_mut(&number);
                if let Some(description) = out.and_then(|out| out.description.as_mut()) {
                    (description.format, description.has_settings) = (*format, true);
                }
            }
            Word::Hurry => scan.hurry(),
            Word::Settle(answer) => scan.settle = Some(answer),
            Word::End(end, answer) => scan.end = Some((end, answer)),
            Word::Leave => self.leave(at),
        }
    }

    /// Drops a scan that never ends. Only the first one has written anything.
    fn leave(&mut self, at: usize) {
        let Some(mut scan) = self.scans.remove(at) else { return };
        if at == 0 {
            self.held_bytes = 0;
        }
        for (queue, filled) in scan.streams.values_mut().flat_map(StreamOutput::take_blocks) {
            self.link.refused(queue, filled);
        }
        give_up(scan);
    }

    fn take_commands(&mut self) -> usize {
        let mut taken = 0;
        for queue in 0..self.link.queues.len() {
            for _ in 0..TURN {
                let Ok(command) = self.link.queues[queue].commands.pop() else { break };
                taken += 1;
                match command {
                    WriterCommand::Write(filled) => self.take_block(queue, filled),
                    WriterCommand::Finish { stream_ref, .. } => self.take_end(stream_ref),
                }
            }
        }
        taken
    }

    fn take_block(&mut self, queue: usize, filled: FullBlock) {
        let failed = self.failure.is_some();
        match self.output_of(&filled.stream_ref).filter(|_| !failed) {
            Some(out) => {
                out.waiting_bytes += u64::from(filled.bytes);
                out.waiting.push_back((queue, filled, Instant::now()));
            }
            None => self.link.refused(queue, filled),
        }
    }

    /// Takes the end of a stream. The file of a PandA gets its last rows first, so that nothing more is armed if they
    /// cannot be written. All blocks of other streams were returned before.
    fn take_end(&mut self, stream_ref: Arc<StreamRef>) {
        let failed = self.failure.is_some();
        match self.output_of(&stream_ref).filter(|out| !failed && !out.is_of_frames()) {
            Some(out) => out.finishing = Some((stream_ref, Instant::now())),
            None => self.link.report(WriterEvent::Finished { member: 0, stream_ref }),
        }
    }

    /// The output of a stream, if its scan is not over. A block may be here before the word that begins its scan.
    fn output_of(&mut self, stream_ref: &StreamRef) -> Option<&mut StreamOutput> {
        let begun = |scan: &ScanOutput| scan.uuid == stream_ref.scan;
        if !self.scans.iter().any(begun) {
            self.listen();
        }
        let scan = self.scans.iter_mut().find(|scan| begun(scan))?;
        Some(scan.streams.entry(stream_ref.number).or_default())
    }

    /// Writes the blocks of the first scan that are ready.
    fn pour(&mut self) {
        let Some(scan) = self.scans.front() else { return };
        let has_samples = matches!(self.config.format, ContainerFormat::Samples { .. });
        let (uuid, numbers) = (scan.uuid, scan.numbers());
        for number in numbers {
            while self.failure.is_none()
                && let Some(scan) = self.scans.front_mut().filter(|scan| scan.uuid == uuid)
                && let Some(out) = scan.streams.get_mut(&number)
                && out.is_ready(scan.hurried, self.most_held, has_samples.then_some(&scan.context))
            {
                match out.waiting.pop_front() {
                    Some((queue, filled, _)) => self.write(number, queue, filled),
                    None => self.end_stream(number),
                }
                if self.is_flush_due() {
                    self.flush();
                }
            }
        }
    }

    fn write(&mut self, number: u16, queue: usize, filled: FullBlock) {
        let begun = Instant::now();
        let written = match self.take_context(number, &filled) {
            true => Ok(()),
            false => self.write_into_file(number, &filled),
        };
        let Some(out) = self.scans.front_mut().and_then(|scan| scan.streams.get_mut(&number))
        else {
            return;
        };
        out.waiting_bytes -= u64::from(filled.bytes);
        let took = begun.elapsed().as_nanos() as u64;
        self.link.metrics.longest_write_ns.fetch_max(took, Relaxed);
        let (stream_ref, sequence, bytes) =
            (filled.stream_ref.clone(), filled.sequence, filled.bytes);
        let free = out.is_of_panda();
        let mut filled = Some(filled);
        let held = filled.take_if(|_| !free).map(|filled| (queue, filled));
        out.unseen.push(Unseen { stream_ref, sequence, bytes, held });
        match filled {
            // Even after a failure, some of its samples may be in the file, which `Word::Settle` tells.
            Some(filled) => self.link.written(queue, filled),
            None => self.held_bytes += u64::from(bytes),
        }
        if let Err(error) = written {
            self.fail(error);
        }
    }

    /// Takes a block of context packets, if files have samples. They have none, so there is no file for them.
    fn take_context(&mut self, number: u16, filled: &FullBlock) -> bool {
        let ContainerFormat::Samples { .. } = self.config.format else { return false };
        let Some(scan) = self.scans.front_mut() else { return false };
        let is_context = scan.streams.get(&number).is_some_and(StreamOutput::is_context);
        if is_context {
            scan.take_context(filled);
        }
        is_context
    }

    /// Writes a block into the file of its stream, which it may be the first of.
    fn write_into_file(&mut self, number: u16, filled: &FullBlock) -> Result<(), ContainerError> {
        self.make(number, Some(filled))?;
        let scan = self.scans.front_mut();
        scan.and_then(|scan| scan.streams.get_mut(&number)).map_or(Ok(()), |out| out.write(filled))
    }

    /// Creates the file of a stream of the first scan, unless it exists.
    fn make(&mut self, number: u16, first: Option<&FullBlock>) -> Result<(), ContainerError> {
        let Some(scan) = self.scans.front_mut() else { return Ok(()) };
        let (uuid, count) = (scan.uuid, scan.number);
        let Some(out) = scan.streams.get_mut(&number) else { return Ok(()) };
        if let Some(Alternate { meant, file, why }) =
            out.make(&self.config, count, first, &scan.context)?
        {
            self.link.report(WriterEvent::Alternate { scan: uuid, number, meant, file, why });
        }
        Ok(())
    }

    /// Carries out the end of a stream: its last rows are visible before the end is reported.
    fn end_stream(&mut self, number: u16) {
        let made = self.make(number, None);
        let out = self.scans.front_mut().and_then(|scan| scan.streams.get_mut(&number));
        let Some((stream_ref, _)) = out.and_then(|out| out.finishing.take()) else { return };
        match made {
            Ok(()) => self.flush(),
            Err(error) => self.fail(error),
        }
        self.link.report(WriterEvent::Finished { member: 0, stream_ref });
    }

    fn has_unseen(&self) -> bool {
        let scan = self.scans.front();
        scan.is_some_and(|scan| scan.streams.values().any(|out| !out.unseen.is_empty()))
    }

    fn is_flush_due(&self) -> bool {
        let hurried = self.scans.front().is_some_and(|scan| scan.hurried.is_some());
        let due = self.flushed.elapsed() >= self.config.format.flush()
            || self.held_bytes >= self.most_held
            || (hurried && self.held_bytes > 0);
        due && self.failure.is_none() && self.has_unseen()
    }

    /// Makes written blocks visible, and returns those that are held.
    fn flush(&mut self) {
        self.flushed = Instant::now();
        let numbers: Vec<u16> =
            self.scans.front().iter().flat_map(|scan| scan.streams.keys().copied()).collect();
        for number in numbers {
            let out = self.scans.front_mut().and_then(|scan| scan.streams.get_mut(&number));
            let Some(out) = out.filter(|out| !out.unseen.is_empty()) else { continue };
            if let Some(Err(error)) = out.file.as_mut().map(|file| file.flush()) {
                self.fail(error);
                return;
            }
            let seen = std::mem::take(&mut out.unseen);
            if let Some(first) = seen.first() {
                let stream_ref = first.stream_ref.clone();
                let sequences = seen.iter().map(|it| it.sequence).collect();
                let bytes = seen.iter().map(|it| u64::from(it.bytes)).sum();
                self.link.report(WriterEvent::Durable { stream_ref, sequences, bytes });
            }
            for (queue, filled) in seen.into_iter().filter_map(|it| it.held) {
                self.held_bytes -= u64::from(filled.bytes);
                self.link.written(queue, filled);
            }
        }
    }

    /// Stops writing, and returns all blocks that are not visible to readers.
    fn fail(&mut self, error: ContainerError) {
        self.link.metrics.refusing.store(true, Relaxed);
        let why = error.why_no_more();
        self.link.report(WriterEvent::Failed { member: 0, why, suspect: Vec::new() });
        self.failure = Some(Arc::new(error));
        let (mut refused, mut ended) = (Vec::new(), Vec::new());
        for out in self.scans.iter_mut().flat_map(|scan| scan.streams.values_mut()) {
            refused.append(&mut out.take_blocks());
            ended.extend(out.finishing.take().map(|(stream_ref, _)| stream_ref));
        }
        self.held_bytes = 0;
        refused.into_iter().for_each(|(queue, filled)| self.link.refused(queue, filled));
        for stream_ref in ended {
            self.link.report(WriterEvent::Finished { member: 0, stream_ref });
        }
    }

    /// Settles and ends the first scan if the recorder has asked for it, then the next ones.
    fn end_scans(&mut self) {
        while let Some(scan) = self.scans.front_mut() {
            if let Some(answer) = scan.settle.take() {
                // The receiver is gone; ignore the error.
                let _ = answer.send(self.settle());
                continue;
            }
            let Some((end, answer)) = scan.end.take() else { return };
            let Some(scan) = self.scans.pop_front() else { return };
            let ended = match self.failure.clone() {
                Some(failed) => self.abandon(scan, &end, failed),
                None => self.finish(scan, &end),
            };
            let _ = answer.send(ended);
        }
    }

    /// Returns the contents of the files of PandAs. A file that was removed is a failure.
    fn settle(&mut self) -> BTreeMap<u16, Settled> {
        let mut settled: BTreeMap<u16, Settled> = BTreeMap::new();
        let mut removed = Vec::new();
        for (number, out) in self.scans.front().iter().flat_map(|scan| &scan.streams) {
            if !out.is_of_panda() {
                continue;
            }
            let notes = &mut settled.entry(*number).or_default().notes;
            if let Some(it) = &out.alternate {
                notes.push(format!("it is in {} instead: {}", it.file.display(), it.why));
            }
            match out.file.as_ref().map_or(Ok(None), |file| file.moved_to()) {
                Ok(None) => {}
                Ok(Some(now)) => {
                    notes.push(format!("the file was given another name: {}", now.display()));
                }
                Err(error) => removed.push((*number, error)),
            }
        }
        let lost: Vec<u16> = removed.iter().map(|(number, _)| *number).collect();
        if let Some((_, error)) = removed.into_iter().next()
            && self.failure.is_none()
        {
            self.fail(error);
        }
        if self.failure.is_some() {
            for (number, it) in &mut settled {
                let out = self.scans.front_mut().and_then(|scan| scan.streams.get_mut(number));
                let file = out.and_then(|out| out.file.as_mut()).filter(|_| !lost.contains(number));
                it.rows = Some(file.and_then(|file| file.rescue()).unwrap_or(0));
            }
        }
        settled
    }

    /// Ends the files of a scan with all data. If one file cannot be ended, the others are.
    fn finish(&self, mut scan: ScanOutput, end: &EndOfScan) -> Ended {
        let (mut sealed, mut failed) = (Vec::new(), None);
        for (number, last) in &end.files {
            let file = scan.streams.remove(number).and_then(|out| out.file);
            match self.finish_file(scan.number, file, last, &end.scan) {
                Ok(file) => sealed.extend(file),
                Err(error) => drop(failed.get_or_insert(error)),
            }
        }
        sealed.extend(self.show(scan.number, &sealed)?);
        failed.map_or(Ok(sealed), |error| Err(Arc::new(error)))
    }

    fn finish_file(
        &self,
        scan: u64,
        file: Option<Box<dyn ContainerFile>>,
        last: &EndOfFile,
        name: &str,
    ) -> Result<Option<SealedFile>, ContainerError> {
        let file = match (file, &self.config.format) {
            (Some(file), _) => file,
            // Without a first frame, it is not known what the samples are.
            (None, ContainerFormat::Samples { .. }) => return Ok(None),
            (None, ContainerFormat::Hdf5(options)) => {
                let options = self.config.options_of(options, &last.path, scan);
                let continued = options.existing == Existing::Append && is_there(&last.path);
                if continued || matches!(last.format, Format::Panda { .. }) {
                    // There is nothing to add, or no acquisition.
                    return Ok(None);
                }
                let about = About {
                    scan: name,
                    stream: last.stream.as_str(),
                    format: &last.format,
                    frame_bytes: last.frame_bytes,
                };
                Box::new(StreamFile::create(&last.path, &about, &options)?)
            }
        };
        file.finish(last).map(Some)
    }

    /// Creates or renews the file that shows or lists all streams of a scan.
    fn show(&self, scan: u64, files: &[SealedFile]) -> Result<Option<SealedFile>, ContainerError> {
        let shown = files.iter().filter_map(|it| Some((it.stream.as_ref()?.as_str(), &*it.path)));
        let shown: Vec<(&str, &Path)> = shown.collect();
        Ok(self.config.show(scan, &shown)?.map(SealedFile::of_master))
    }

    /// Ends files after a failure, with the data that readers have seen. Returns the failure if no file contains data of
    /// the scan.
    fn abandon(&self, scan: ScanOutput, end: &EndOfScan, failed: Arc<ContainerError>) -> Ended {
        let mut sealed = Vec::new();
        let mut nothing = true;
        for (number, out) in scan.streams {
            let (Some(file), Some(last)) = (out.file, end.files.get(&number)) else { continue };
            nothing &= file.rows() == 0;
            let (path, words) = (file.path().to_owned(), LastWords::cut_short(last, &failed));
            // If the ending does not fit either, `recover` writes one.
            if file.abandon(&words).is_ok() {
                sealed.push(SealedFile::cut_short(last.stream.clone(), path, &words.ending));
            }
        }
        // If some data was recorded, the account shows the missing part.
        if nothing || sealed.is_empty() {
            return Err(failed);
        }
        if let Ok(master) = self.show(scan.number, &sealed) {
            sealed.extend(master);
        }
        Ok(sealed)
    }

    fn rest(&mut self) {
        self.link.notifier.about_to_sleep();
        // Words and blocks that came before the line above wake nobody.
        if !self.listen() {
            let due = self.config.format.flush().saturating_sub(self.flushed.elapsed());
            self.link.sleep(if self.has_unseen() { NAP.min(due) } else { NAP });
        }
        self.link.notifier.awake();
    }
}

/// Ends the files of a scan that the recorder did not end.
fn give_up(scan: ScanOutput) {
    for file in scan.streams.into_values().filter_map(|out| out.file) {
        let why = "the recorder ended before the file".to_owned();
        let _ = file.abandon(&LastWords::given_up(why));
    }
}
