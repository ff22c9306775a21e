//! Reads pieces of a device in order, with read-ahead by a few threads.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use fullbore_core::device::{BlockRecord, Span};
use fullbore_core::layout::{ALIGNMENT, BLOCK_BYTES};
use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::sys::memory::Region;

use super::block_device::BlockDevice;
use super::error::Error;

/// The number of concurrent reads: with a single one, a drive is idle between two reads.
const THREADS: usize = 3;

/// Pieces in memory: those being read, and those waiting for delivery.
const PIECES: usize = 2 * THREADS;

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Address of the first byte, a multiple of 4096.
    pub address: u64,
    /// The number of bytes wanted.
    pub bytes: u32,
}

impl Piece {
    /// Bytes to read: whole pages.
    pub(super) fn padded(self) -> usize {
        (self.bytes as usize).next_multiple_of(ALIGNMENT as usize)
    }
}

/// The pieces of chunks.
pub fn pieces_of(span: Span, bytes: u64) -> Vec<Piece> {
    let chunk = u64::from(span.chunk_bytes());
    let each = (BLOCK_BYTES / chunk).max(1) * chunk;
    let bytes = bytes.min(span.bytes());
    let piece = |offset: u64| Piece {
        address: span.first() + offset,
        bytes: each.min(bytes - offset) as u32,
    };
    (0..bytes.div_ceil(each)).map(|number| piece(number * each)).collect()
}

/// The piece that a record describes, if it lies within the scan's own chunks.
pub fn piece_of(span: Span, record: &BlockRecord) -> Option<Piece> {
    let padded = u64::from(record.bytes).next_multiple_of(ALIGNMENT);
    let address = span.place(record.offset, padded)?;
    address.is_multiple_of(ALIGNMENT).then_some(Piece { address, bytes: record.bytes })
}

/// Passes every piece to `take`, in order, until it breaks off. A piece that cannot be read is passed as an error.
pub fn read<E: From<Error>>(
    block_device: &BlockDevice,
    pieces: &[Piece],
    take: impl FnMut(usize, Result<&[u8], Error>) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    let Some(largest) = pieces.iter().map(|piece| piece.padded()).max() else { return Ok(()) };
    let largest = largest.max(ALIGNMENT as usize);
    let bytes = largest * PIECES.min(pieces.len());
    let memory = |source| Error::Memory { bytes: bytes as u64, source };
    let region = Region::new(bytes).map_err(memory)?;
    let mut pool = Pool::new(Arc::new(region), largest, 0);
    let (free, empty) = mpsc::channel();
    while let Some(block) = pool.take() {
        // The receiver is in this function, so sending cannot fail.
        let _ = free.send(block);
    }
    let next = Mutex::new((empty, 0));
    std::thread::scope(|scope| {
        let (full, filled) = mpsc::channel();
        for _ in 0..THREADS.min(pieces.len()) {
            let (full, next) = (full.clone(), &next);
            std::thread::Builder::new()
                .name("fb-read".into())
                .spawn_scoped(scope, move || fill(block_device, pieces, next, &full))
                .map_err(|source| Error::Thread { source })?;
        }
        drop(full);
        deliver(pieces, free, &filled, take)
    })
}

type Filled = (usize, Block, Result<(), Error>);

/// Each reader takes the next piece when it has a block, so reads are always of the next pieces.
fn fill(
    block_device: &BlockDevice,
    pieces: &[Piece],
    next: &Mutex<(Receiver<Block>, usize)>,
    full: &Sender<Filled>,
) {
    loop {
        let (mut block, number) = {
            // A reader that panicked has taken a piece; the counter is consistent.
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            if next.1 >= pieces.len() {
                return;
            }
            let Ok(block) = next.0.recv() else { return };
            next.1 += 1;
            (block, next.1 - 1)
        };
        let piece = pieces[number];
        let result = block_device.read(&mut block, piece.padded(), piece.address);
        if full.send((number, block, result)).is_err() {
            return;
        }
    }
}

/// Delivers pieces in order, and returns their blocks. When the block queue closes, the readers end.
fn deliver<E: From<Error>>(
    pieces: &[Piece],
    free: Sender<Block>,
    filled: &Receiver<Filled>,
    mut take: impl FnMut(usize, Result<&[u8], Error>) -> Result<ControlFlow<()>, E>,
) -> Result<(), E> {
    let mut waiting: BTreeMap<usize, (Block, Result<(), Error>)> = BTreeMap::new();
    let mut next = 0;
    while next < pieces.len() {
        let (number, block, result) = filled.recv().map_err(|_| Error::Broken)?;
        waiting.insert(number, (block, result));
        while let Some((block, result)) = waiting.remove(&next) {
            let bytes = pieces[next].bytes as usize;
            let flow = take(next, result.map(|()| &block[..bytes]))?;
            next += 1;
            if flow.is_break() {
                return Ok(());
            }
            // Readers that have reached the end take no more blocks.
            let _ = free.send(block);
        }
    }
    Ok(())
}
