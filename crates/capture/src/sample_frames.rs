//! Frames of samples from a file with gaps, as the input of a port.
//!
//! ```text
//! file   frame │ frame │ frame        runs: 2 frames from index 0, 1 frame from index 7
//! port   0 frame, 1 frame, 7 frame    each after its index, 8 bytes, little-endian
//! ```
//!
//! So the reassembler puts the frames in place, and the account has the gaps of the file. The file is read in large
//! pieces.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut, Read, Seek, SeekFrom};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use fullbore_core::account::Layer;
use fullbore_linux::sys::receive::Received;
use fullbore_time::Tai;

use super::input::{CounterName, DatagramInput};

/// Bytes of the index before each frame.
pub const INDEX_BYTES: u32 = 8;

/// Bytes of one read: they stay in the CPU's cache until they are copied to their slots.
const PIECE: usize = 1 << 20;

/// The longest time between the first and the last frame of a batch, which has the time of its first.
const BATCH_NS: i64 = 100_000;

/// Frames of a file, and the place of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleFrames {
    /// Bytes of the file before the first frame.
    pub skip: u64,
    /// Bytes of each frame.
    pub frame_bytes: u32,
    /// The runs of frames, in the order of the file.
    pub runs: Vec<FrameRun>,
    /// Frames per second, as a ratio.
    pub rate: Option<(u64, u64)>,
}

/// Frames that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRun {
    /// The number of frames.
    pub frames: u64,
    /// The index of the first one.
    pub first: u64,
    /// The time of the first one.
    pub time: Option<Tai>,
}

/// The frames, as a port receives them.
pub struct SampleFramesInput {
    path: PathBuf,
    file: File,
    frame_bytes: usize,
    rate: Option<(u64, u64)>,
    /// The runs from the next frame on.
    runs: VecDeque<FrameRun>,
    /// Frames of the first of these runs that are passed on.
    passed: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are valid, and the place of the next frame in them.
    filled: usize,
    at: usize,
    emptied: bool,
    /// The time of the latest frame.
    last: Option<Tai>,
}

impl SampleFramesInput {
    /// Opens the file.
    pub fn open(path: &Path, frames: &SampleFrames) -> io::Result<Self> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(frames.skip))?;
        let frame_bytes = frames.frame_bytes as usize;
        Ok(Self {
            path: path.to_owned(),
            file,
            frame_bytes,
            rate: frames.rate,
            runs: frames.runs.iter().copied().filter(|run| run.frames > 0).collect(),
            passed: 0,
            buffer: vec![0; PIECE.next_multiple_of(frame_bytes)],
            filled: 0,
            at: 0,
            emptied: false,
            last: None,
        })
    }

    /// The index and the time of the next frame.
    fn next(&self) -> Option<(u64, Option<Tai>)> {
        let run = self.runs.front()?;
        let time = match (run.time, self.rate) {
            (Some(time), Some((rate, per))) => {
                let ns = u128::from(self.passed) * u128::from(per) * 1_000_000_000;
                let ns = i64::try_from(ns / u128::from(rate.max(1))).unwrap_or(i64::MAX);
                Some(Tai(time.0.saturating_add(ns)))
            }
            (time, None) if self.passed == 0 => time,
            _ => None,
        };
        Some((run.first + self.passed, time.or(self.last)))
    }

    fn pass(&mut self) {
        self.passed += 1;
        if self.runs.front().is_some_and(|run| run.frames == self.passed) {
            self.runs.pop_front();
            self.passed = 0;
        }
    }

    fn has_frame(&self) -> bool {
        self.filled - self.at >= self.frame_bytes
    }
}

/// Copies the two pieces of a message to its parts, one after the other.
fn scatter(pieces: [&[u8]; 2], parts: &mut [IoSliceMut<'_>]) {
    let mut parts = parts.iter_mut().map(|part| &mut part[..]);
    let mut part = parts.next().unwrap_or_default();
    for mut piece in pieces {
        while !piece.is_empty() {
            if part.is_empty() {
                let Some(next) = parts.next() else { return };
                part = next;
            }
            let bytes = piece.len().min(part.len());
            let (now, later) = part.split_at_mut(bytes);
            now.copy_from_slice(&piece[..bytes]);
            (part, piece) = (later, &piece[bytes..]);
        }
    }
}

impl DatagramInput for SampleFramesInput {
    fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        let begun = self.next().and_then(|(_, time)| time);
        let mut count = 0;
        for (message, parts) in received.iter_mut().zip(slices.chunks_exact_mut(per_message)) {
            let Some((index, time)) = self.next().filter(|_| self.has_frame()) else { break };
            if time.zip(begun).is_some_and(|(time, begun)| time.since(begun) > BATCH_NS) {
                break;
            }
            let frame = &self.buffer[self.at..self.at + self.frame_bytes];
            scatter([&index.to_le_bytes(), frame], parts);
            let bytes = INDEX_BYTES as usize + self.frame_bytes;
            *message = Received { bytes, segment: None, sender: None };
            self.at += self.frame_bytes;
            self.last = time;
            self.pass();
            count += 1;
        }
        self.emptied = !self.has_frame();
        Ok(count)
    }

    fn emptied(&self) -> bool {
        self.emptied
    }

    fn drops(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn counter(&self) -> Option<CounterName> {
        let scope = self.path.display().to_string();
        let (layer, counter) = (Layer::Device, "frames not read");
        Some(CounterName { layer, counter, scope, own: false, coarse: false })
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn read_ahead(&mut self) -> io::Result<()> {
        if self.runs.is_empty() || self.has_frame() {
            return Ok(());
        }
        self.buffer.copy_within(self.at..self.filled, 0);
        (self.filled, self.at) = (self.filled - self.at, 0);
        while !self.has_frame() {
            match self.file.read(&mut self.buffer[self.filled..]) {
                Ok(0) => {
                    self.runs.clear();
                    let why = "the file became shorter while it was read";
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
                }
                Ok(bytes) => self.filled += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn arrival(&self) -> Option<Tai> {
        self.next().map_or(self.last, |(_, time)| time)
    }

    fn is_over(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(input: &mut SampleFramesInput, messages: usize) -> Vec<(u64, Vec<u8>, Option<Tai>)> {
        let time = input.arrival();
        let mut memory = vec![vec![0; 3]; 5 * messages];
        let mut slices: Vec<IoSliceMut<'_>> =
            memory.iter_mut().map(|part| IoSliceMut::new(part)).collect();
        let mut received = vec![Received { bytes: 0, segment: None, sender: None }; messages];
        let count = input.receive(&mut slices, 5, &mut received).unwrap();
        let whole: Vec<Vec<u8>> = memory.chunks(5).map(|parts| parts.concat()).collect();
        let one = |(bytes, message): (&Vec<u8>, &Received)| {
            assert_eq!(message.bytes, 12);
            let index = u64::from_le_bytes(bytes[..8].try_into().unwrap());
            (index, bytes[8..12].to_vec(), time)
        };
        whole.iter().zip(&received).take(count).map(one).collect()
    }

    #[test]
    fn frames_follow_their_index_and_have_the_time_of_their_run() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x");
        std::fs::write(&path, b"headaaaabbbbccccdd").unwrap();
        let run = |frames, first, time| FrameRun { frames, first, time };
        let runs = vec![run(2, 5, Some(Tai(1000))), run(0, 8, None), run(1, 9, Some(Tai(7000)))];
        let frames = SampleFrames { skip: 4, frame_bytes: 4, runs, rate: Some((10_000_000, 1)) };
        let mut input = SampleFramesInput::open(&path, &frames).unwrap();
        assert!(take(&mut input, 2).is_empty() && input.emptied());
        let mut all = Vec::new();
        while !input.is_over() {
            input.read_ahead().unwrap();
            all.extend(take(&mut input, 1));
        }
        let frame = |index, letter, time| (index, vec![letter; 4], Some(Tai(time)));
        assert_eq!(all, [frame(5, b'a', 1000), frame(6, b'b', 1100), frame(9, b'c', 7000)]);
        assert_eq!(input.arrival(), Some(Tai(7000)));
    }

    #[test]
    fn a_batch_ends_before_its_time_is_wrong_and_a_file_that_shrinks_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x");
        std::fs::write(&path, [1; 40]).unwrap();
        let runs = vec![FrameRun { frames: 11, first: 0, time: Some(Tai(0)) }];
        let frames = SampleFrames { skip: 0, frame_bytes: 4, runs, rate: Some((20_000, 1)) };
        let mut input = SampleFramesInput::open(&path, &frames).unwrap();
        input.read_ahead().unwrap();
        // 50 µs from frame to frame.
        assert_eq!(take(&mut input, 8).len(), 3);
        while !take(&mut input, 8).is_empty() {}
        let error = input.read_ahead().unwrap_err();
        assert!(error.to_string().contains("shorter") && input.is_over());
    }
}
