//! Where bytes come from that are written as they are: a pattern, a file, a pipe, another device.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

use super::contents::Checked;
use super::overlap::{Identity, Range};
use crate::replayer::ReadAt;
use fullbore_core::pattern::Pattern;
use fullbore_core::units::ByteRate;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The longest wait for a pipe before whoever reads it looks at other things.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A device gives no more at once, so that nobody is kept waiting for long.
const MOST_AT_ONCE: u64 = 1 << 20;

/// A paced source gives no more at once than this much of a second.
const BURST: Duration = Duration::from_millis(10);

/// A paced source that is so far behind was held up: no machine is so busy for so long.
const HELD_UP: Duration = Duration::from_millis(500);

/// What a source gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    NotYet,
    /// Nothing any more.
    End,
}

/// A source of bytes that is never waited for long.
pub trait Input: Send {
    /// Takes bytes into the beginning of `into`, which is not empty. Returns within some 20 ms.
    fn take(&mut self, into: &mut [u8]) -> io::Result<Taken>;

    /// What it can never give more than, if that is known.
    fn bytes(&self) -> Option<u64> {
        None
    }

    /// The rate at which it would have given its bytes, if it has one and was held up below it.
    fn held_up(&self) -> Option<ByteRate> {
        None
    }

    /// What it reads of a file or device, if it reads one.
    fn range(&self) -> Option<Range> {
        None
    }

    /// Whether it comes to an end by itself, so that what is left of it can be taken.
    fn ends(&self) -> bool {
        true
    }
}

/// A pattern, for so many bytes or without end, at a rate or as fast as it goes.
#[derive(Debug)]
pub struct PatternInput {
    pattern: Pattern,
    at: u64,
    end: Option<u64>,
    rate: Option<ByteRate>,
    begun: Option<Instant>,
    /// How long what was taken last had been due by then.
    behind: Duration,
}

impl PatternInput {
    /// The pattern from its beginning.
    pub fn new(pattern: Pattern, bytes: Option<u64>, rate: Option<ByteRate>) -> Self {
        Self { pattern, at: 0, end: bytes, rate, begun: None, behind: Duration::ZERO }
    }

    /// Bytes that are due by now.
    fn due(&mut self) -> u64 {
        let Some(rate) = self.rate else { return u64::MAX };
        let begun = *self.begun.get_or_insert_with(Instant::now);
        (begun.elapsed().as_secs_f64() * rate.0 as f64) as u64
    }
}

impl Input for PatternInput {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Taken> {
        let left = self.end.map_or(u64::MAX, |end| end - self.at);
        if left == 0 {
            return Ok(Taken::End);
        }
        let due = self.due().saturating_sub(self.at);
        if let Some(rate) = self.rate {
            self.behind = Duration::from_secs_f64(due as f64 / rate.0 as f64);
        }
        let bytes = left.min(due).min(into.len() as u64) as usize;
        if bytes == 0 {
            std::thread::sleep(BURST / 5);
            return Ok(Taken::NotYet);
        }
        self.pattern.fill(&mut into[..bytes], self.at);
        self.at += bytes as u64;
        Ok(Taken::Bytes(bytes))
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
    /// It may keep a reader waiting.
    pipe: bool,
    bytes: Option<u64>,
}

impl FileInput {
    /// Takes from an open file, from where it stands.
    pub fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        let pipe = !kind.is_file() && !kind.is_block_device();
        let bytes = kind.is_file().then_some(metadata.len());
        Ok(Self { file, pipe, bytes })
    }
}

impl Input for FileInput {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Taken> {
        if self.pipe {
            let mut set = [PollFd::new(&self.file, PollFlags::IN)];
            match poll(&mut set, Some(&PATIENCE)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Taken::NotYet),
                Ok(_) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        match self.file.read(into) {
            Ok(0) => Ok(Taken::End),
            Ok(bytes) => Ok(Taken::Bytes(bytes)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) =>
            {
                Ok(Taken::NotYet)
            }
            Err(error) => Err(error),
        }
    }

    fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    fn range(&self) -> Option<Range> {
        let of = Identity::of(&self.file)?;
        // Standard input may stand anywhere in a file.
        let first = (&self.file).stream_position().ok()?;
        Some(Range { of, first, end: self.bytes.unwrap_or(u64::MAX).max(first) })
    }
}

/// What lies on another device. A block whose checksum is wrong ends it.
#[derive(Debug)]
pub struct DeviceInput {
    contents: Checked,
    at: u64,
}

impl DeviceInput {
    /// Takes all of it from its beginning.
    pub fn new(contents: Checked) -> Self {
        Self { contents, at: 0 }
    }
}

impl Input for DeviceInput {
    fn take(&mut self, into: &mut [u8]) -> io::Result<Taken> {
        let left = self.contents.bytes() - self.at;
        if left == 0 {
            return Ok(Taken::End);
        }
        let bytes = left.min(into.len() as u64).min(MOST_AT_ONCE) as usize;
        self.contents.read_exact_at(&mut into[..bytes], self.at)?;
        self.at += bytes as u64;
        Ok(Taken::Bytes(bytes))
    }

    fn bytes(&self) -> Option<u64> {
        Some(self.contents.bytes())
    }

    fn range(&self) -> Option<Range> {
        self.contents.range()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn all(input: &mut dyn Input, piece: usize) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            match input.take(&mut buffer).unwrap() {
                Taken::Bytes(bytes) => all.extend_from_slice(&buffer[..bytes]),
                Taken::NotYet => {}
                Taken::End => return all,
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
    fn a_pipe_that_is_silent_keeps_nobody_waiting() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut input = FileInput::new(File::from(std::os::fd::OwnedFd::from(reader))).unwrap();
        let mut buffer = [0; 16];
        assert_eq!(input.take(&mut buffer).unwrap(), Taken::NotYet);
        writer.write_all(b"abc").unwrap();
        assert_eq!(input.take(&mut buffer).unwrap(), Taken::Bytes(3));
        drop(writer);
        assert_eq!(input.take(&mut buffer).unwrap(), Taken::End);
        assert_eq!((input.bytes(), input.ends()), (None, true));
    }
}
