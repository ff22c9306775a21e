//! Byte sources: a pattern, a file, a pipe. (A device is one too.)

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

use fullbore_core::pattern::Pattern;
use fullbore_core::units::ByteRate;
use fullbore_linux::overlap::{Identity, Range};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest wait for a pipe before the reader checks other things.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// The most that a paced source delivers at once, as a part of a second.
const BURST: Duration = Duration::from_millis(10);

/// A paced source that is this far behind was held up: a busy machine alone does not cause such a delay.
const HELD_UP: Duration = Duration::from_millis(500);

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The number of bytes, at least one.
    Bytes(usize),
    /// No bytes yet. The source has waited for some, at most a few milliseconds.
    NotYet,
    /// The end of the source.
    End,
}

/// A source of bytes whose reads never block for long.
pub trait ByteSource: Send {
    /// Reads bytes into the beginning of `into`, which is not empty. Returns within about 20 ms.
    fn take(&mut self, into: &mut [u8]) -> io::Result<ReadOutcome>;

    /// The upper limit of its length, if known.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// The nominal rate of a paced source that was held up.
    fn held_up(&self) -> Option<ByteRate> {
        None
    }

    /// The range of a file or device that it reads, if any.
    fn range(&self) -> Option<Range> {
        None
    }

    /// True if the source ends by itself, so that its rest can be drained.
    fn ends(&self) -> bool {
        true
    }
}

/// A pattern of limited or unlimited length, at a given rate or as fast as possible.
#[derive(Debug)]
pub struct PatternInput {
    pattern: Pattern,
    at: u64,
    end: Option<u64>,
    rate: Option<ByteRate>,
    begun: Option<Instant>,
    /// The delay of the bytes taken last.
    behind: Duration,
}

impl PatternInput {
    /// The pattern from its first byte.
    pub fn new(pattern: Pattern, bytes: Option<u64>, rate: Option<ByteRate>) -> Self {
        Self { pattern, at: 0, end: bytes, rate, begun: None, behind: Duration::ZERO }
    }

    /// The number of bytes that are due now.
    fn due(&mut self) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        let begun = *self.begun.get_or_insert_with(Instant::now);
        (begun.elapsed().as_secs_f64() * rate.0 as f64) as u64
    }
}

impl ByteSource for PatternInput {
    fn take(&mut self, into: &mut [u8]) -> io::Result<ReadOutcome> {
        let left = self.end.map_or(u64::MAX, |end| end - self.at);
        if left == 0 {
            return Ok(ReadOutcome::End);
        }
        let due = self.due().saturating_sub(self.at);
        if let Some(rate) = self.rate {
            self.behind = Duration::from_secs_f64(due as f64 / rate.0 as f64);
        }
        let bytes = left.min(due).min(into.len() as u64) as usize;
        if bytes == 0 {
            // The rate is kept by the clock.
            std::thread::sleep(BURST / 5);
            return Ok(ReadOutcome::NotYet);
        }
        self.pattern.fill(&mut into[..bytes], self.at);
        self.at += bytes as u64;
        Ok(ReadOutcome::Bytes(bytes))
    }

    fn bytes(&self) -> Option<u64> {
        self.end
    }

    fn held_up(&self) -> Option<ByteRate> {
        self.rate.filter(|_| self.behind > HELD_UP)
    }

    fn ends(&self) -> bool {
        self.end.is_some()
    }
}

/// A file, a pipe, or standard input.
#[derive(Debug)]
pub struct FileInput {
    file: File,
    /// True if reads may block.
    pipe: bool,
    bytes: Option<u64>,
    /// Bytes up to the end of the part that is read.
    left: u64,
}

impl FileInput {
    /// Reads from an open file, from its current position.
    pub fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let pipe = !kind.is_file() && !kind.is_block_device();
        let bytes = kind.is_file().then_some(metadata.len());
        Ok(Self { file, pipe, bytes, left: u64::MAX })
    }

    /// Reads a part of an open file: at most `bytes`, after `skip`.
    pub fn of_part(mut file: File, skip: u64, bytes: Option<u64>) -> io::Result<Self> {
        if skip > 0 {
            file.seek(SeekFrom::Start(skip))?;
        }
        let whole = Self::new(file)?;
        let left = bytes.unwrap_or(u64::MAX);
        let end = whole.bytes.map(|length| length.min(skip.saturating_add(left)));
        Ok(Self { bytes: end, left, ..whole })
    }
}

impl ByteSource for FileInput {
    fn take(&mut self, into: &mut [u8]) -> io::Result<ReadOutcome> {
        if self.pipe {
            let mut set = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut set, Some(&PATIENCE)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(ReadOutcome::NotYet),
                Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let most = self.left.min(into.len() as u64) as usize;
        match self.file.read(&mut into[..most]) {
            Ok(0) => Ok(ReadOutcome::End),
            Ok(bytes) => {
                self.left -= bytes as u64;
                Ok(ReadOutcome::Bytes(bytes))
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                Ok(ReadOutcome::NotYet)
            }
            Err(error) => Err(error),
        }
    }

    fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    fn range(&self) -> Option<Range> {
        let of = Identity::of(&self.file)?;
        // Standard input may be at any position of a file.
        let first = (&self.file).stream_position().ok()?;
        Some(Range { of, first, end: self.bytes.unwrap_or(u64::MAX).max(first) })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn all(input: &mut dyn ByteSource, piece: usize) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            match input.take(&mut buffer).unwrap() {
                ReadOutcome::Bytes(bytes) => all.extend_from_slice(&buffer[..bytes]),
                ReadOutcome::NotYet => {}
                ReadOutcome::End => return all,
            }
        }
    }

    #[test]
    fn a_pattern_is_the_same_in_whatever_pieces_it_is_taken() {
        let mut whole = vec![0; 10_000];
        Pattern::Counter.fill(&mut whole, 0);
        for piece in [1, 7, 4096, 100_000] {
            assert_eq!(
                all(&mut PatternInput::new(Pattern::Counter, Some(10_000), None), piece),
                whole
            );
        }
    }

    #[test]
    fn a_paced_pattern_takes_its_time() {
        let begun = Instant::now();
        let rate = Some(ByteRate(100_000));
        let bytes = all(&mut PatternInput::new(Pattern::Counter, Some(10_000), rate), 100_000);
        assert_eq!(bytes.len(), 10_000);
        assert!(begun.elapsed() >= Duration::from_millis(95), "{:?}", begun.elapsed());
    }

    #[test]
    fn a_part_of_a_file_ends_where_it_was_asked_to() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let of = |skip, bytes| {
            let mut input = FileInput::of_part(file.try_clone().unwrap(), skip, bytes).unwrap();
            let range = input.range().unwrap();
            (all(&mut input, 3), range.first, range.end)
        };
        assert_eq!(of(2, Some(5)), (b"23456".to_vec(), 2, 7));
        assert_eq!(of(8, Some(5)), (b"89".to_vec(), 8, 10));
        assert_eq!(of(1, None), (b"123456789".to_vec(), 1, 10));
        assert_eq!(of(20, None).0, b"");
        let (reader, _writer) = std::io::pipe().unwrap();
        let pipe = File::from(std::os::fd::OwnedFd::from(reader));
        assert!(FileInput::of_part(pipe, 1, None).is_err(), "a pipe has no part");
    }

    #[test]
    fn a_pipe_that_is_silent_keeps_nobody_waiting() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut input = FileInput::new(File::from(std::os::fd::OwnedFd::from(reader))).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(input.take(&mut buffer).unwrap(), ReadOutcome::NotYet);
        writer.write_all(b"abc").unwrap();
        assert_eq!(input.take(&mut buffer).unwrap(), ReadOutcome::Bytes(3));
        drop(writer);
        assert_eq!(input.take(&mut buffer).unwrap(), ReadOutcome::End);
        assert_eq!((input.bytes(), input.ends()), (None, true));
    }
}
