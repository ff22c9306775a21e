//! An I/O queue: one session of blocks through the ring, with a fixed number in flight.
//!
//! ```text
//! pool ──take──► ring ──kernel──► done ──put──► pool          depth blocks go round
//! ```
//!
//! Blocks go to the files in turn, and each file is filled from its start. The ring is that of the recorder, without
//! the work on a block before and after.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_linux::ring::{Block, Notifier, Pool};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::uring::{DONTCACHE, Done, Ring};

use crate::bench::result::{Direction, Mode};

/// The longest wait before stop requests are checked.
const PATIENCE: Duration = Duration::from_millis(100);

/// The settings of a session.
#[derive(Clone, Debug)]
pub struct Session<'a> {
    /// The files, opened for the mode.
    pub files: &'a [Arc<OwnedFd>],
    /// The direction.
    pub direction: Direction,
    /// The mode.
    pub mode: Mode,
    /// Bytes in total over all files. An incomplete last block is left off.
    pub bytes: u64,
    /// Bytes per block.
    pub block_bytes: u32,
    /// Concurrent blocks.
    pub depth: u32,
    /// The smallest direct request.
    pub sector_bytes: u32,
    /// The time after which no further block is begun.
    pub time: Duration,
}

/// The result of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    /// Bytes of blocks moved.
    pub bytes: u64,
    /// Time from the first request to the last completion, including the sync of cached data.
    pub elapsed: Duration,
    /// The duration of the longest request.
    pub slowest: Duration,
    /// Bytes read only to be written back, or left unused.
    pub extra_read_bytes: u64,
    /// Bytes written beyond those of blocks.
    pub extra_written_bytes: u64,
    /// True if the time limit ended the session.
    pub cut: bool,
}

/// A request that failed.
#[derive(Debug)]
pub struct Failed {
    /// The request.
    pub what: String,
    /// The kernel's error.
    pub source: std::io::Error,
}

/// A ring, and the start times of its requests.
pub struct IoQueue {
    ring: Ring,
    begun: Vec<Option<Instant>>,
    done: Vec<Done>,
}

impl IoQueue {
    /// Creates a ring for this thread.
    pub fn new() -> Result<Self, fullbore_linux::sys::uring::RingError> {
        let broken = |source| fullbore_linux::sys::uring::RingError { source };
        let wake = Arc::new(Notifier::new().map_err(broken)?);
        Ok(Self { ring: Ring::new(wake)?, begun: vec![], done: vec![] })
    }

    /// Runs a session. `pool` has at least as many blocks as its depth.
    pub fn run(
        &mut self,
        session: &Session,
        pool: &mut Pool,
        stop: &StopHandle,
    ) -> Result<Moved, Failed> {
        let unaligned = !session.block_bytes.is_multiple_of(session.sector_bytes);
        let start = Instant::now();
        let mut moved = if session.mode == Mode::Direct && unaligned {
            self.run_by_sectors(session, pool, stop)?
        } else {
            self.run_whole(session, pool, stop)?
        };
        if session.direction == Direction::Write && session.mode != Mode::Direct {
            self.sync(session.files)?;
        }
        moved.elapsed = start.elapsed();
        Ok(moved)
    }

    fn run_whole(
        &mut self,
        session: &Session,
        pool: &mut Pool,
        stop: &StopHandle,
    ) -> Result<Moved, Failed> {
        let blocks = (session.bytes / u64::from(session.block_bytes)).max(1);
        let (mut sent, mut back, mut moved) = (0, 0, Moved::default());
        let start = Instant::now();
        while back < blocks {
            while sent < blocks && self.ring.under_way() < session.depth as usize && !moved.cut {
                let Some(block) = pool.take() else { break };
                self.send(session, sent, block);
                sent += 1;
            }
            self.wait(session)?;
            back += self.collect(session, pool, &mut moved)?;
            if start.elapsed() > session.time || stop.is_requested() {
                moved.cut = sent < blocks;
                if moved.cut && back == sent {
                    break;
                }
            }
        }
        Ok(moved)
    }

    fn send(&mut self, session: &Session, number: u64, block: Block) {
        let files = session.files.len() as u64;
        let file = session.files[(number % files) as usize].clone();
        let offset = number / files * u64::from(session.block_bytes);
        let part = (0, session.block_bytes);
        let flags = if session.mode == Mode::Uncached { DONTCACHE } else { 0 };
        let token = self.note_begin();
        match session.direction {
            Direction::Write => self.ring.write(token, file, offset, block, part, flags),
            Direction::Read => self.ring.read(token, file, offset, block, part, flags),
        }
    }

    fn note_begin(&mut self) -> u64 {
        let vacant = self.begun.iter().position(Option::is_none);
        let token = vacant.unwrap_or_else(|| {
            self.begun.push(None);
            self.begun.len() - 1
        });
        self.begun[token] = Some(Instant::now());
        token as u64
    }

    fn wait(&mut self, session: &Session) -> Result<(), Failed> {
        let failed = |source| Failed { what: told(session), source };
        self.ring.wait(PATIENCE, &mut self.done).map_err(failed)
    }

    fn collect(
        &mut self,
        session: &Session,
        pool: &mut Pool,
        moved: &mut Moved,
    ) -> Result<u64, Failed> {
        let mut back = 0;
        let now = Instant::now();
        for done in self.done.drain(..) {
            let begun = self.begun[done.token as usize].take().unwrap_or(now);
            moved.slowest = moved.slowest.max(now.saturating_duration_since(begun));
            pool.put(done.block.expect("a transfer brings its block back"));
            match done.result {
                Ok(bytes) if bytes == session.block_bytes => {}
                Ok(bytes) => {
                    let short = format!("{bytes} of {} bytes", session.block_bytes);
                    let source = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, short);
                    return Err(Failed { what: told(session), source });
                }
                Err(source) => return Err(Failed { what: told(session), source }),
            }
            moved.bytes += u64::from(session.block_bytes);
            back += 1;
        }
        Ok(back)
    }

    /// Moves blocks that end within a sector; they go to the files like others. Each is a read of the sectors shared
    /// with its neighbours, then a write of all sectors that it touches. The next block waits, because it shares a
    /// sector with this one.
    fn run_by_sectors(
        &mut self,
        session: &Session,
        pool: &mut Pool,
        stop: &StopHandle,
    ) -> Result<Moved, Failed> {
        let sector = u64::from(session.sector_bytes);
        let length = u64::from(session.block_bytes);
        let blocks = (session.bytes / length).max(1);
        let mut moved = Moved::default();
        let start = Instant::now();
        let files = session.files.len() as u64;
        let mut block = pool.take().expect("a pool of one block at least");
        let payload = block[..length as usize].to_vec();
        for number in 0..blocks {
            let begun = Instant::now();
            let file = &session.files[(number % files) as usize];
            let (from, to) = (number / files * length, (number / files + 1) * length);
            let first = from / sector * sector;
            let span = to.next_multiple_of(sector) - first;
            if session.direction == Direction::Read {
                block = self.one(session, file, Direction::Read, first, (0, span), block)?;
                moved.extra_read_bytes += span - length;
            } else {
                let last = to / sector * sector;
                if from != first {
                    block = self.one(session, file, Direction::Read, first, (0, sector), block)?;
                    moved.extra_read_bytes += sector;
                }
                if to != last && (last != first || from == first) {
                    let at = last - first;
                    block = self.one(session, file, Direction::Read, last, (at, sector), block)?;
                    moved.extra_read_bytes += sector;
                }
                block[(from - first) as usize..][..payload.len()].copy_from_slice(&payload);
                block = self.one(session, file, Direction::Write, first, (0, span), block)?;
                moved.extra_written_bytes += span - length;
            }
            moved.slowest = moved.slowest.max(begun.elapsed());
            moved.bytes += length;
            if start.elapsed() > session.time || stop.is_requested() {
                moved.cut = number + 1 < blocks;
                break;
            }
        }
        pool.put(block);
        Ok(moved)
    }

    /// Submits one request and waits for it.
    fn one(
        &mut self,
        session: &Session,
        file: &Arc<OwnedFd>,
        direction: Direction,
        offset: u64,
        (at, bytes): (u64, u64),
        block: Block,
    ) -> Result<Block, Failed> {
        let part = (at as u32, bytes as u32);
        match direction {
            Direction::Write => self.ring.write(0, file.clone(), offset, block, part, 0),
            Direction::Read => self.ring.read(0, file.clone(), offset, block, part, 0),
        }
        while self.done.is_empty() {
            self.wait(session)?;
        }
        let done = self.done.pop().expect("looked at above");
        match done.result {
            Ok(_) => Ok(done.block.expect("a transfer brings its block back")),
            Err(source) => Err(Failed { what: told(session), source }),
        }
    }

    fn sync(&mut self, files: &[Arc<OwnedFd>]) -> Result<(), Failed> {
        let failed = |source| Failed { what: "syncing what was written".into(), source };
        for (token, file) in files.iter().enumerate() {
            self.ring.sync(token as u64, file.clone(), false);
        }
        while self.ring.under_way() > 0 {
            self.ring.wait(PATIENCE, &mut self.done).map_err(failed)?;
        }
        for done in self.done.drain(..) {
            done.result.map_err(failed)?;
        }
        Ok(())
    }
}

/// The description of a session for messages.
fn told(session: &Session) -> String {
    let verb = match session.direction {
        Direction::Write => "writing",
        Direction::Read => "reading",
    };
    format!("{verb} blocks of {} bytes", session.block_bytes)
}

#[cfg(test)]
mod tests {
    use fullbore_linux::sys::memory::Region;

    use super::*;

    fn session<'a>(files: &'a [Arc<OwnedFd>], direction: Direction, block: u32) -> Session<'a> {
        Session {
            files,
            direction,
            mode: Mode::Buffered,
            bytes: 1 << 20,
            block_bytes: block,
            depth: 4,
            sector_bytes: 512,
            time: Duration::from_secs(60),
        }
    }

    fn files(count: usize) -> (tempfile::TempDir, Vec<Arc<OwnedFd>>) {
        let directory = tempfile::tempdir().unwrap();
        let open = |n: usize| {
            let path = directory.path().join(n.to_string());
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).create(true);
            Arc::new(OwnedFd::from(options.open(path).unwrap()))
        };
        let files = (0..count).map(open).collect();
        (directory, files)
    }

    fn pool() -> Pool {
        let mut pool = Pool::new(Arc::new(Region::new(2 << 20).unwrap()), 128 << 10, 0);
        let mut blocks: Vec<Block> = std::iter::from_fn(|| pool.take()).collect();
        blocks.iter_mut().for_each(|block| block.fill(7));
        blocks.into_iter().for_each(|block| pool.put(block));
        pool
    }

    #[test]
    fn a_session_is_dealt_over_its_files_and_read_again() {
        let (directory, files) = files(3);
        let (mut io_queue, mut pool, stop) =
            (IoQueue::new().unwrap(), pool(), StopHandle::default());
        let moved =
            io_queue.run(&session(&files, Direction::Write, 100_000), &mut pool, &stop).unwrap();
        assert_eq!(moved.bytes, 1_000_000);
        let length =
            |n: u32| std::fs::metadata(directory.path().join(n.to_string())).unwrap().len();
        assert_eq!([length(0), length(1), length(2)], [400_000, 300_000, 300_000]);
        let moved =
            io_queue.run(&session(&files, Direction::Read, 100_000), &mut pool, &stop).unwrap();
        assert_eq!((moved.bytes, moved.cut), (1_000_000, false));
        assert_eq!(pool.free(), pool.blocks());
    }

    #[test]
    fn blocks_that_end_within_a_sector_keep_what_lies_beside_them() {
        let (directory, files) = files(1);
        let path = directory.path().join("0");
        std::fs::write(&path, vec![1; 4096]).unwrap();
        let (mut io_queue, mut pool, stop) =
            (IoQueue::new().unwrap(), pool(), StopHandle::default());
        let mut request = session(&files, Direction::Write, 700);
        (request.mode, request.bytes) = (Mode::Direct, 1400);
        let moved = io_queue.run_by_sectors(&request, &mut pool, &stop).unwrap();
        assert_eq!(moved.bytes, 1400);
        // 0–700 touches two sectors and shares the second; 700–1400 touches two and shares both.
        assert_eq!((moved.extra_read_bytes, moved.extra_written_bytes), (3 * 512, 2 * 324));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 4096);
        assert!(bytes[..1400].iter().all(|&byte| byte == 7));
        assert!(bytes[1400..1536].iter().all(|&byte| byte == 1), "nor what shares a sector");
        assert!(bytes[1536..].iter().all(|&byte| byte == 1), "what no block touched is as it was");
    }

    #[test]
    fn blocks_that_end_within_a_sector_are_dealt_over_all_files() {
        let (directory, files) = files(2);
        let path = |n: u32| directory.path().join(n.to_string());
        (0..2).for_each(|n| std::fs::write(path(n), vec![1; 4096]).unwrap());
        let (mut io_queue, mut pool, stop) =
            (IoQueue::new().unwrap(), pool(), StopHandle::default());
        let mut request = session(&files, Direction::Write, 700);
        (request.mode, request.bytes) = (Mode::Direct, 2100);
        let moved = io_queue.run_by_sectors(&request, &mut pool, &stop).unwrap();
        assert_eq!(moved.bytes, 2100);
        let sevens = |n| std::fs::read(path(n)).unwrap().iter().filter(|it| **it == 7).count();
        assert_eq!((sevens(0), sevens(1)), (1400, 700));
    }

    #[test]
    fn a_wish_to_stop_ends_a_session_early_and_in_order() {
        let (_directory, files) = files(1);
        let (mut io_queue, mut pool, stop) =
            (IoQueue::new().unwrap(), pool(), StopHandle::default());
        stop.stop();
        let moved =
            io_queue.run(&session(&files, Direction::Write, 4096), &mut pool, &stop).unwrap();
        assert!(moved.cut && moved.bytes < 1 << 20 && moved.bytes > 0, "{moved:?}");
        assert_eq!(pool.free(), pool.blocks());
    }
}
