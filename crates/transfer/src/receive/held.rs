//! The beginnings of blocks whose connection was lost, kept beside the scan: the sender sends only the rest.
//!
//! One file has a slot for each of them:
//!
//! ```text
//! 0    record of the block · u32 bytes that are here · u32 CRC32C of both
//! 4096 the first bytes of the block
//! ```
//!
//! A block that arrives fast stays in memory, and goes to its slot only if its connection is lost. The caller writes a
//! block that arrives slowly as it comes, so that its beginning also survives the end of this process. Nothing is synced:
//! after a loss of power the beginning may be wrong. Then the CRC32C of the whole block is wrong too, and all of it is
//! sent again.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fullbore_core::index::RECORD_BYTES;
use fullbore_core::layout::LARGEST_BLOCK_BYTES;
use fullbore_linux::regular_file;
use rustix::fs::OFlags;

use crate::connect::MOST_CONNECTIONS;
use crate::protocol::Record;

/// The number of slots: one for each connection, and as many for connections before them.
const SLOTS: usize = 2 * MOST_CONNECTIONS as usize;

/// Bytes before the data of a slot.
const HEAD_BYTES: u64 = 4096;

/// Bytes from slot to slot. The file has holes.
const SLOT_BYTES: u64 = HEAD_BYTES + LARGEST_BLOCK_BYTES;

/// The beginnings of blocks of a scan.
#[derive(Debug)]
pub(super) struct HeldBlocks {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: Option<Arc<File>>,
    slots: Vec<Slot>,
}

#[derive(Clone, Debug, Default)]
struct Slot {
    record: Option<Record>,
    bytes: u32,
    /// True while a connection has it.
    busy: bool,
}

/// The beginning of a block that a connection is receiving. Dropped, it stays for the next connection.
#[derive(Debug)]
pub(super) struct Holding<'a> {
    of: &'a HeldBlocks,
    slot: usize,
    bytes: u32,
}

impl HeldBlocks {
    /// Finds the beginnings that are there, those that `wanted` accepts.
    pub fn open(path: PathBuf, wanted: impl Fn(&Record, u32) -> bool) -> Self {
        let file = regular_file::open_with_flags(
            OpenOptions::new().read(true).write(true),
            OFlags::NOFOLLOW,
            &path,
        );
        let file = file.ok().map(Arc::new);
        let found = |number| {
            let (record, bytes) = read_head(file.as_ref()?, number)?;
            wanted(&record, bytes).then_some(Slot { record: Some(record), bytes, busy: false })
        };
        let slots = (0..SLOTS).map(|number| found(number).unwrap_or_default()).collect();
        Self { path, inner: Mutex::new(Inner { file, slots }) }
    }

    /// The records of the blocks whose beginnings are here, each with the number of its bytes.
    pub fn all(&self) -> Vec<(Record, u32)> {
        let inner = self.lock();
        inner.slots.iter().filter_map(|slot| Some((slot.record?, slot.bytes))).collect()
    }

    /// Takes the slot of a block, or a free one; `None` if another connection has it, or none is free.
    pub fn begin(&self, record: &Record) -> Option<Holding<'_>> {
        let mut inner = self.lock();
        let own = inner.slots.iter().position(|it| it.record.as_ref() == Some(record));
        let free = || inner.slots.iter().position(|it| it.record.is_none());
        let number = own.or_else(free)?;
        let slot = &mut inner.slots[number];
        if slot.busy {
            return None;
        }
        (slot.record, slot.busy) = (Some(*record), true);
        Some(Holding { of: self, slot: number, bytes: slot.bytes })
    }

    /// Removes the file: the scan is complete.
    pub fn remove(&self) {
        self.lock().file = None;
        remove(&self.path);
    }

    fn file(&self) -> io::Result<Arc<File>> {
        let mut inner = self.lock();
        if let Some(file) = &inner.file {
            return Ok(file.clone());
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = regular_file::open_with_flags(&options, OFlags::NOFOLLOW, &self.path)?;
        Ok(inner.file.insert(Arc::new(file)).clone())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holding<'_> {
    /// The number of bytes in the slot.
    pub fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Reads the first bytes of the block. Returns false if they are not here.
    pub fn load(&self, into: &mut [u8]) -> bool {
        if into.len() > self.bytes as usize {
            return false;
        }
        let at = SLOT_BYTES * self.slot as u64 + HEAD_BYTES;
        self.of.file().and_then(|file| file.read_exact_at(into, at)).is_ok()
    }

    /// Writes what is new of the first bytes of the block.
    pub fn keep(&mut self, data: &[u8]) {
        let (from, at) = (self.bytes as usize, SLOT_BYTES * self.slot as u64);
        if data.len() <= from {
            return;
        }
        let write = || -> io::Result<()> {
            let file = self.of.file()?;
            file.write_all_at(&data[from..], at + HEAD_BYTES + from as u64)?;
            self.write_head(&file, data.len() as u32)
        };
        match write() {
            Ok(()) => self.bytes = data.len() as u32,
            // The sender sends more again, and nothing else.
            Err(error) => tracing::debug!(%error, "beginning of a block not kept"),
        }
    }

    /// Frees the slot: the block has arrived, or its beginning is of no use.
    pub fn done(mut self) {
        if self.bytes > 0 {
            let freed = self.of.file().and_then(|file| self.write_head(&file, 0));
            if let Err(error) = freed {
                tracing::debug!(%error, "slot of a block not freed");
            }
        }
        self.bytes = 0;
    }

    fn write_head(&self, file: &File, bytes: u32) -> io::Result<()> {
        let Some(record) = self.of.lock().slots[self.slot].record else { return Ok(()) };
        let mut head = record.to_vec();
        head.extend_from_slice(&bytes.to_le_bytes());
        head.extend_from_slice(&crc32c::crc32c(&head).to_le_bytes());
        file.write_all_at(&head, SLOT_BYTES * self.slot as u64)
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        let slot = &mut self.of.lock().slots[self.slot];
        (slot.bytes, slot.busy) = (self.bytes, false);
        if self.bytes == 0 {
            slot.record = None;
        }
    }
}

/// Removes the file of a complete scan.
pub(super) fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(path = %path.display(), %error, "file of held blocks not removed");
    }
}

fn read_head(file: &File, number: usize) -> Option<(Record, u32)> {
    let mut head = [0; RECORD_BYTES + 8];
    file.read_exact_at(&mut head, SLOT_BYTES * number as u64).ok()?;
    let (covered, crc) = head.split_last_chunk()?;
    let (record, bytes) = covered.split_last_chunk()?;
    let bytes = u32::from_le_bytes(*bytes);
    let right = crc32c::crc32c(covered) == u32::from_le_bytes(*crc);
    Some((record.try_into().ok()?, bytes)).filter(|_| right && bytes > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(block: u8) -> Record {
        [block; RECORD_BYTES]
    }

    fn data(block: u8) -> Vec<u8> {
        (0..20_000u32).map(|at| (at / 7) as u8 ^ block).collect()
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// A connection receives a block up to here, and is lost.
        Receive(u8, usize),
        /// A block arrives whole.
        Arrive(u8),
        /// The process ends, while a connection has this block.
        Kill(u8, usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let block = || 0u8..4;
        prop_oneof![
            (block(), 0usize..20_000).prop_map(|(block, end)| Step::Receive(block, end)),
            block().prop_map(Step::Arrive),
            (block(), 0usize..20_000).prop_map(|(block, end)| Step::Kill(block, end)),
        ]
    }

    proptest! {
        /// What was kept of a block is found by the next connection and by the next process, as it was.
        #[test]
        fn kept_beginnings_survive_lost_connections_and_kills(steps in prop::collection::vec(step(), 1..40)) {
            let root = tempfile::tempdir().unwrap();
            let open = || HeldBlocks::open(root.path().join("held"), |_, _| true);
            let (mut held, mut expected) = (open(), [0usize; 4]);
            for step in steps {
                match step {
                    Step::Receive(block, end) | Step::Kill(block, end) => {
                        let mut holding = held.begin(&record(block)).unwrap();
                        let kept = &mut expected[usize::from(block)];
                        prop_assert_eq!(holding.bytes() as usize, *kept);
                        let mut before = vec![0; *kept];
                        prop_assert!(holding.load(&mut before) && before == data(block)[..*kept]);
                        holding.keep(&data(block)[..end]);
                        *kept = end.max(*kept);
                    }
                    Step::Arrive(block) => {
                        held.begin(&record(block)).unwrap().done();
                        expected[usize::from(block)] = 0;
                    }
                }
                if matches!(step, Step::Kill(..)) {
                    held = open();
                }
                let mut all: Vec<_> = held.all().iter().map(|it| (it.0[0], it.1 as usize)).collect();
                all.sort_unstable();
                let kept = (0u8..).zip(expected).filter(|(_, bytes)| *bytes > 0);
                prop_assert!(kept.eq(all));
            }
        }

        #[test]
        fn any_file_is_opened(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join("held");
            std::fs::write(&path, &bytes).unwrap();
            prop_assert!(HeldBlocks::open(path, |_, _| true).all().is_empty());
        }
    }

    #[test]
    fn one_connection_has_a_block_and_slots_are_limited() {
        let root = tempfile::tempdir().unwrap();
        let held = HeldBlocks::open(root.path().join("held"), |_, _| true);
        let first = held.begin(&record(1)).unwrap();
        assert!(held.begin(&record(1)).is_none());
        drop(first);
        let all: Vec<_> =
            (0..SLOTS as u8).map(|block| held.begin(&record(block)).unwrap()).collect();
        assert!(held.begin(&record(255)).is_none());
        drop(all);
        assert!(held.all().is_empty() && !held.path.exists(), "nothing was kept");
        let mut kept = held.begin(&record(3)).unwrap();
        kept.keep(b"abc");
        assert!(!kept.load(&mut [0; 4]), "no more than is here");
        drop(kept);
        let unwanted = HeldBlocks::open(held.path.clone(), |_, bytes| bytes > 3);
        assert!(unwanted.all().is_empty());
        held.remove();
        assert!(!held.path.exists());
    }
}
