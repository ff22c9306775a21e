//! The writer of a plain file or of standard output.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use fullbore_core::layout::ALIGNMENT;
use fullbore_linux::ring::{FullBlock, StreamRef, WriterCommand, WriterEvent};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::sink::WriterLink;

/// The longest sleep while no command arrives.
const NAP: Duration = Duration::from_millis(20);

/// The longest time between two syncs, unless the user gives another.
const SYNC_INTERVAL: Duration = Duration::from_millis(250);

/// The most bytes between two syncs.
const SYNC_BYTES: u64 = 256 << 20;

/// An open file, and the way of writing it.
pub struct Output {
    file: File,
    /// The position of the next byte; `None` if the file has no positions.
    end: Option<u64>,
    direct: bool,
}

impl Output {
    /// Writes behind the present end of a regular file, or into a pipe.
    pub fn new(mut file: File, direct: bool) -> io::Result<Self> {
        let is_file = file.metadata()?.is_file();
        let end = if is_file { Some(file.seek(SeekFrom::End(0))?) } else { None };
        Ok(Self { file, end, direct })
    }

    /// True if writes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Appends bytes. After an error a regular file ends where it ended before.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let aligned = |number: u64| number.is_multiple_of(ALIGNMENT);
        if self.direct && !(aligned(bytes.len() as u64) && self.end.is_none_or(aligned)) {
            fcntl_setfl(&self.file, fcntl_getfl(&self.file)? - OFlags::DIRECT)?;
            self.direct = false;
        }
        let written = self.file.write_all(bytes);
        if let Some(end) = &mut self.end {
            match written {
                Ok(()) => *end += bytes.len() as u64,
                // If it cannot be cut either, it has more bytes than the account.
                Err(_) => drop(self.file.set_len(*end)),
            }
        }
        written
    }

    /// Makes all bytes durable. A pipe has passed them on.
    fn sync(&self) -> io::Result<()> {
        match self.end {
            Some(_) => self.file.sync_data(),
            None => Ok(()),
        }
    }
}

/// The thread that owns the file.
pub struct FileThread {
    link: WriterLink,
    output: Output,
    /// Blocks that no sync has covered, of one stream.
    unsynced: Option<(Arc<StreamRef>, Vec<u64>, u64)>,
    synced: Instant,
    failed: bool,
}

impl FileThread {
    /// A writer for these queues.
    pub fn new(link: WriterLink, output: Output) -> Self {
        Self { link, output, unsynced: None, synced: Instant::now(), failed: false }
    }

    /// Writes until the capture threads have ended.
    pub fn run(mut self) {
        while !self.link.is_over() {
            let taken = self.take_commands();
            if self.is_sync_due() {
                self.sync();
            }
            if !taken {
                self.link.rest(NAP);
            }
        }
        self.sync();
    }

    /// Takes a command from each queue. Returns true if there was one.
    fn take_commands(&mut self) -> bool {
        let mut taken = false;
        for queue in 0..self.link.queues.len() {
            let Ok(command) = self.link.queues[queue].commands.pop() else { continue };
            taken = true;
            match command {
                WriterCommand::Write(filled) => self.write(queue, filled),
                WriterCommand::Finish { stream_ref, .. } => {
                    self.sync();
                    self.link.report(WriterEvent::Finished { member: 0, stream_ref });
                }
            }
        }
        taken
    }

    fn write(&mut self, queue: usize, filled: FullBlock) {
        let begun = Instant::now();
        if !self.failed {
            let written = self.output.append(&filled.block[..filled.bytes as usize]);
            let took = begun.elapsed().as_nanos() as u64;
            self.link.metrics.longest_write_ns.fetch_max(took, Relaxed);
            if let Err(error) = written {
                self.fail(&error);
            }
        }
        if self.failed {
            return self.link.refused(queue, filled);
        }
        let none = || (filled.stream_ref.clone(), Vec::new(), 0);
        let (_, sequences, unsynced) = self.unsynced.get_or_insert_with(none);
        sequences.push(filled.sequence);
        *unsynced += u64::from(filled.bytes);
        self.link.written(queue, filled);
    }

    fn is_sync_due(&self) -> bool {
        let Some((.., bytes)) = &self.unsynced else { return false };
        let interval = self.link.sync_interval.unwrap_or(SYNC_INTERVAL);
        *bytes >= SYNC_BYTES || self.synced.elapsed() >= interval
    }

    /// Makes written blocks durable.
    fn sync(&mut self) {
        self.synced = Instant::now();
        let Some((stream_ref, sequences, bytes)) = self.unsynced.take() else { return };
        match self.output.sync() {
            Ok(()) => self.link.report(WriterEvent::Durable { stream_ref, sequences, bytes }),
            Err(error) => self.fail(&error),
        }
        let took = self.synced.elapsed().as_nanos() as u64;
        self.link.metrics.longest_sync_ns.fetch_max(took, Relaxed);
    }

    /// Refuses all further blocks.
    fn fail(&mut self, error: &io::Error) {
        if std::mem::replace(&mut self.failed, true) {
            return;
        }
        self.link.metrics.refusing.store(true, Relaxed);
        let why = match error.kind() {
            io::ErrorKind::BrokenPipe => "the reader closed the pipe".to_owned(),
            io::ErrorKind::StorageFull => "the file system is full".to_owned(),
            _ => error.to_string(),
        };
        self.link.report(WriterEvent::Failed { member: 0, why, suspect: Vec::new() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_takes_no_more_ends_where_it_ended_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        std::fs::write(&path, b"before").unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let mut output = Output::new(file, false).unwrap();
        output.append(b" and after").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"before and after");
        // A file that cannot be written keeps its length.
        let mut output = Output { file: File::open(&path).unwrap(), end: Some(16), direct: false };
        assert!(output.append(b"!").is_err());
        assert_eq!(std::fs::read(&path).unwrap().len(), 16);
    }
}
