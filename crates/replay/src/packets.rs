//! The datagrams to one UDP port in a packet capture, played with the times at which they were captured.
//!
//! ```text
//! file ──► reading thread ──► runs of about 1 MiB, at most eight ahead ──► the frames that are due
//! ```
//!
//! A datagram is sent with the bytes that the capture has. One that the snapshot length cut is left out.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};

use fullbore_capture::PacketFile;
use fullbore_time::Tai;

use super::{Frame, FrameSource, SourceError};

/// The approximate size of a run.
const RUN_BYTES: usize = 1 << 20;

/// Runs that are read ahead.
const RUNS_AHEAD: usize = 8;

/// A capture that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum PacketsError {
    /// The file cannot be read, or is no capture.
    #[error("{}: reading the packet capture", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// No reading thread could be started.
    #[error("{}: starting a thread to read it", path.display())]
    Thread {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Datagrams in sequence.
#[derive(Debug, Default)]
struct Run {
    bytes: Vec<u8>,
    datagrams: Vec<(Range<usize>, Option<Tai>)>,
}

/// What the reading thread sends.
#[derive(Debug)]
enum Read {
    Run(Run),
    /// The file is over: notes on what could not be read.
    Over(Vec<String>),
}

/// The datagrams to one port of a capture.
#[derive(Debug)]
pub struct PacketFrames {
    path: PathBuf,
    port: u16,
    /// The reading thread, which ends when its channel is dropped.
    ahead: Receiver<Read>,
    run: Run,
    losses: Vec<String>,
}

impl PacketFrames {
    /// Opens a capture, and begins to read it.
    pub fn open(path: &Path, port: u16) -> Result<Self, PacketsError> {
        let (run, losses) = (Run::default(), Vec::new());
        let ahead = read_ahead(path, port)?;
        Ok(Self { path: path.to_owned(), port, ahead, run, losses })
    }
}

fn read_ahead(path: &Path, port: u16) -> Result<Receiver<Read>, PacketsError> {
    let file = PacketFile::open(path)
        .map_err(|source| PacketsError::Read { path: path.to_owned(), source })?;
    let (sender, ahead) = sync_channel(RUNS_AHEAD);
    let read = move || {
        let mut reading = Reading { file, port, run: Run::default(), cut: 0 };
        let mut failed = None;
        loop {
            let more = reading.read_run().unwrap_or_else(|error| {
                failed = Some(error.to_string());
                false
            });
            let run = std::mem::take(&mut reading.run);
            if !run.datagrams.is_empty() && sender.send(Read::Run(run)).is_err() {
                return;
            }
            if !more {
                break;
            }
        }
        // A player that has ended needs no notes.
        let _ = sender.send(Read::Over(reading.notes(failed)));
    };
    let thread = std::thread::Builder::new().name("read-ahead".into()).spawn(read);
    thread.map_err(|source| PacketsError::Thread { path: path.to_owned(), source })?;
    Ok(ahead)
}

/// The file, as the thread reads it.
struct Reading {
    file: PacketFile,
    port: u16,
    run: Run,
    /// Datagrams that the snapshot length cut.
    cut: u64,
}

impl Reading {
    /// Fills the run. Returns false at the end of the file.
    fn read_run(&mut self) -> io::Result<bool> {
        while self.run.bytes.len() < RUN_BYTES {
            while let Some(found) = self.file.next_here()? {
                let time = self.file.time();
                let Some(datagram) = self.file.datagram(&found) else { continue };
                if datagram.port != self.port {
                    continue;
                }
                if datagram.is_cut() {
                    self.cut += 1;
                    continue;
                }
                let start = self.run.bytes.len();
                self.run.bytes.extend_from_slice(datagram.payload);
                self.run.datagrams.push((start..self.run.bytes.len(), time));
            }
            if self.file.is_over() {
                return Ok(false);
            }
            self.file.read()?;
        }
        Ok(true)
    }

    fn notes(&mut self, failed: Option<String>) -> Vec<String> {
        let mut notes = self.file.take_warnings();
        if self.cut > 0 {
            let cut = self.cut;
            notes.push(format!(
                "{cut} datagrams are cut by the snapshot length of the capture. They are left out"
            ));
        }
        notes.extend(failed);
        notes
    }
}

impl FrameSource for PacketFrames {
    fn advance(&mut self) -> Result<bool, SourceError> {
        match self.ahead.recv() {
            Ok(Read::Run(run)) => {
                self.run = run;
                Ok(true)
            }
            Ok(Read::Over(notes)) => {
                self.run = Run::default();
                self.losses = notes;
                Ok(false)
            }
            // The thread has told that the file is over.
            Err(_) => {
                self.run = Run::default();
                Ok(false)
            }
        }
    }

    fn count(&self) -> usize {
        self.run.datagrams.len()
    }

    fn frame(&self, n: usize) -> Frame<'_> {
        let (range, time) = &self.run.datagrams[n];
        Frame { bytes: &self.run.bytes[range.clone()], time: *time, fill: false, dated: None }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.ahead = read_ahead(&self.path, self.port)?;
        self.run = Run::default();
        Ok(())
    }

    fn losses(&self) -> &[String] {
        &self.losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A capture with a datagram per payload, one millisecond apart; their ports take turns. Each packet has at most
    /// `snap` bytes.
    fn capture(payloads: &[Vec<u8>], ports: &[u16], snap: usize) -> Vec<u8> {
        let mut file =
            [0xA1B2_3C4Du32, 0x0004_0002, 0, 0, 65_535, 101].map(u32::to_le_bytes).concat();
        for (number, payload) in payloads.iter().enumerate() {
            let whole = 28 + payload.len();
            let mut packet = vec![0x45, 0];
            packet.extend((whole as u16).to_be_bytes());
            packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
            let port = ports[number % ports.len()];
            for word in [4000, port, (8 + payload.len()) as u16, 0] {
                packet.extend(word.to_be_bytes());
            }
            packet.extend(payload);
            packet.truncate(snap);
            let time = [1_700_000_000, 1_000_000 * number as u32];
            let lengths = [packet.len() as u32, whole as u32];
            file.extend([time, lengths].concat().iter().flat_map(|word| word.to_le_bytes()));
            file.extend(packet);
        }
        file
    }

    fn played(source: &mut PacketFrames) -> Vec<(Vec<u8>, Option<Tai>)> {
        let mut all = Vec::new();
        while source.advance().unwrap() {
            assert!(source.count() > 0);
            let frames = (0..source.count()).map(|n| source.frame(n));
            all.extend(frames.map(|frame| (frame.bytes.to_vec(), frame.time)));
        }
        all
    }

    #[test]
    fn the_datagrams_of_a_port_come_in_order_with_their_times_and_again_after_a_rewind() {
        let payloads: Vec<Vec<u8>> =
            (0..900u32).map(|n| vec![n as u8; 1 + 7 * n as usize]).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), capture(&payloads, &[5000, 6000], 1 << 16)).unwrap();
        for (port, first) in [(5000, 0), (6000, 1)] {
            let mut source = PacketFrames::open(file.path(), port).unwrap();
            for _ in 0..2 {
                let told = played(&mut source);
                assert_eq!(told.len(), 450);
                for (n, (bytes, time)) in told.into_iter().enumerate() {
                    let number = 2 * n + first;
                    let ns = 1_700_000_000_000_000_000 + 1_000_000 * number as i128;
                    assert_eq!(
                        (bytes, time),
                        (payloads[number].clone(), Some(Tai::from_unix_ns(ns)))
                    );
                }
                assert!(source.losses().is_empty());
                source.rewind().unwrap();
            }
        }
    }

    #[test]
    fn what_is_cut_is_left_out_and_told() {
        let payloads = vec![vec![1; 40], vec![2; 400], vec![3; 30]];
        let file = tempfile::NamedTempFile::new().unwrap();
        let whole = capture(&payloads, &[5000], 100);
        std::fs::write(file.path(), &whole[..whole.len() - 1]).unwrap();
        let mut source = PacketFrames::open(file.path(), 5000).unwrap();
        let told = played(&mut source);
        assert_eq!(told.iter().map(|(bytes, _)| bytes.len()).collect::<Vec<_>>(), [40]);
        let losses = source.losses().join("\n");
        assert!(
            losses.contains("1 datagrams are cut") && losses.contains("is cut: it ends"),
            "{losses}"
        );
    }

    #[test]
    fn a_file_that_is_no_capture_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"no capture at all").unwrap();
        let error = PacketFrames::open(file.path(), 1).unwrap_err();
        assert!(error.to_string().contains("reading the packet capture"));
    }
}
