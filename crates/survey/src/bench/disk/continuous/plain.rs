//! Writes blocks into one file or block device, from its first byte on, through the ring of a member.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_core::units::ByteSize;
use fullbore_linux::ring::{Block, Notifier, Pool};
use fullbore_linux::sys::uring::{Done as Completed, Ring, RingError};

use super::{BlockSink, ContinuousRequest, Done, Laid, PATIENCE};
use crate::bench::disk::error::Error;
use crate::bench::disk::target::Place;
use crate::bench::result::Mode;

/// The number of bytes between two syncs, as in a recording.
const ROUND_BYTES: u64 = 256 << 20;

/// Token of syncs; blocks have smaller ones.
const SYNC: u64 = u64::MAX;

/// A file or device that is written sequentially.
pub struct Plain {
    path: Arc<PathBuf>,
    file: Arc<OwnedFd>,
    ring: Ring,
    completed: Vec<Completed>,
    waiting: VecDeque<(Block, Laid)>,
    /// Blocks being written, by token.
    flying: Vec<Option<(Instant, Laid)>>,
    flying_bytes: u64,
    depth_bytes: u64,
    next_offset: u64,
    /// The address at which writing returns to the start.
    end: u64,
    /// Bytes passed to it in total.
    given: u64,
    unsynced_bytes: u64,
    syncing: bool,
    trace: Vec<(Instant, Duration, Laid)>,
}

impl Plain {
    /// Opens the file or device again, bypassing the page cache if possible.
    pub fn open(path: &Path, place: &Place, request: &ContinuousRequest) -> Result<Self, Error> {
        let broken = |source| Error::Open { path: path.to_owned(), source };
        let mode = if place.facts.direct { Mode::Direct } else { Mode::Buffered };
        let file = place.scratch().and_then(|scratch| scratch.open(mode)).map_err(broken)?;
        if !request.block_bytes.is_multiple_of(place.facts.sector_bytes.max(1)) {
            let what = format!("blocks are multiples of {} bytes there", place.facts.sector_bytes);
            return Err(Error::Settings { what });
        }
        let wake = Notifier::new().map_err(|source| RingError { source })?;
        Ok(Self {
            path: Arc::new(path.to_owned()),
            file,
            ring: Ring::new(Arc::new(wake))?,
            completed: vec![],
            waiting: VecDeque::new(),
            flying: vec![],
            flying_bytes: 0,
            depth_bytes: request.depth_bytes,
            next_offset: 0,
            end: request.wrap.unwrap_or(u64::MAX),
            given: 0,
            unsynced_bytes: 0,
            syncing: false,
            trace: vec![],
        })
    }

    /// Keeps the queue of the disk full.
    fn send(&mut self) {
        while let Some((_, laid)) = self.waiting.front() {
            let bytes = u64::from(laid.bytes);
            if self.flying_bytes > 0 && self.flying_bytes + bytes > self.depth_bytes {
                return;
            }
            let (block, laid) = self.waiting.pop_front().expect("looked at above");
            let vacant = self.flying.iter().position(Option::is_none);
            let token = vacant.unwrap_or_else(|| {
                self.flying.push(None);
                self.flying.len() - 1
            });
            self.flying[token] = Some((Instant::now(), laid));
            self.flying_bytes += bytes;
            let part = (0, laid.bytes);
            self.ring.write(token as u64, self.file.clone(), laid.offset, block, part, 0);
        }
    }

    fn sync(&mut self) {
        self.ring.sync(SYNC, self.file.clone(), false);
        (self.syncing, self.unsynced_bytes) = (true, 0);
    }

    fn wait(&mut self, pool: &mut Pool, wait: Duration) -> Result<(), Error> {
        let failed = |what: String, source| {
            Err(Error::Transfer { path: self.path.to_path_buf(), what, source })
        };
        if let Err(source) = self.ring.wait(wait, &mut self.completed) {
            return failed("waiting for writes".into(), source);
        }
        for Completed { token, result, block } in self.completed.drain(..) {
            if token == SYNC {
                self.syncing = false;
                match result {
                    Ok(_) => continue,
                    Err(source) => return failed("syncing what was written".into(), source),
                }
            }
            let (since, laid) = self.flying[token as usize].take().expect("it was under way");
            self.flying_bytes -= u64::from(laid.bytes);
            self.unsynced_bytes += u64::from(laid.bytes);
            pool.put(block.expect("a write brings its block back"));
            let what =
                || format!("writing {} at byte {}", ByteSize(laid.bytes.into()), laid.offset);
            match result {
                Ok(written) if written == laid.bytes => {
                    let now = Instant::now();
                    self.trace.push((now, now.saturating_duration_since(since), laid));
                }
                Ok(written) => {
                    let short = format!("{written} of {} bytes were written", laid.bytes);
                    return failed(what(), std::io::Error::other(short));
                }
                Err(source) => return failed(what(), source),
            }
        }
        Ok(())
    }
}

impl BlockSink for Plain {
    fn give(&mut self, block: Block, bytes: u32, crc: u32) -> Result<Laid, Error> {
        if self.next_offset + u64::from(bytes) > self.end {
            self.next_offset = 0;
        }
        let (offset, position) = (self.next_offset, self.given);
        let laid = Laid { member: 0, chunk: 0, offset, position, bytes, crc };
        self.next_offset += u64::from(bytes);
        self.given += u64::from(bytes);
        self.waiting.push_back((block, laid));
        self.send();
        Ok(laid)
    }

    fn collect(&mut self, pool: &mut Pool, wait: Duration) -> Result<(), Error> {
        self.wait(pool, wait)?;
        self.send();
        if self.unsynced_bytes >= ROUND_BYTES && !self.syncing {
            self.sync();
        }
        Ok(())
    }

    fn finish(&mut self, pool: &mut Pool) -> Result<(), Error> {
        while self.flying_bytes > 0 || !self.waiting.is_empty() || self.syncing {
            self.wait(pool, PATIENCE)?;
            self.send();
        }
        self.sync();
        while self.syncing {
            self.wait(pool, PATIENCE)?;
        }
        Ok(())
    }

    fn trace(&mut self, begun: Instant) -> Vec<Done> {
        let done = |(at, took, laid): (Instant, Duration, Laid)| Done {
            member: 0,
            chunk: 0,
            offset: laid.offset,
            bytes: laid.bytes,
            at_ns: at.saturating_duration_since(begun).as_nanos() as u64,
            took_ns: took.as_nanos() as u64,
        };
        self.trace.drain(..).map(done).collect()
    }

    fn path(&self, _laid: &Laid) -> Option<Arc<PathBuf>> {
        Some(self.path.clone())
    }

    fn is_gone(&self, laid: &Laid) -> bool {
        // Laps consist of whole blocks and have equal lengths.
        let lap = self.end.min(self.given);
        laid.position + lap < self.given
    }
}
