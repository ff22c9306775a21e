//! Reads a device in order: the blocks of a scan, checked against their checksums, or bare chunks.
//!
//! [`DeviceReader::read`] delivers everything with read-ahead, for verifying and copying. [`Checked`] delivers any
//! piece, for replay. Both report every byte with a wrong checksum.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use fullbore_core::device::{
    BlockRecord, DeviceEnd, Direction, Event, Session, Span, Status, StoredScan, Word, checksum,
};
use fullbore_core::layout::ALIGNMENT;
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_linux::overlap::Range;
use fullbore_linux::read_at::ReadAt;
use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::memory::Region;

use super::block_device::BlockDevice;
use super::diagnostics::DeviceDiagnostic;
use super::error::Error;
use super::read::{Piece, piece_of, pieces_of, read};
use super::volume::Volume;

/// A range of bytes and its expected checksum.
#[derive(Clone, Copy, Debug)]
struct ReadPart {
    piece: Piece,
    /// Offset of the first byte.
    offset: u64,
    /// The number and the checksum of a block whose record is good.
    check: Option<(u64, u32)>,
}

/// A reader of a scan or of chunks of a device.
#[derive(Debug)]
pub struct DeviceReader {
    block_device: Arc<BlockDevice>,
    scan: Option<StoredScan>,
    span: Span,
    bytes: u64,
    parts: Vec<ReadPart>,
    findings: Vec<DeviceDiagnostic>,
}

/// A part that was read.
#[derive(Debug)]
pub struct Delivered<'a> {
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes; `None` if they could not be read.
    pub bytes: Option<&'a [u8]>,
    /// True if a checksum was compared.
    pub checked: bool,
    /// The problem found, if any.
    pub finding: Option<DeviceDiagnostic>,
}

impl DeviceReader {
    /// Opens an endpoint: a scan of the index, or chunks.
    pub fn open(end: &DeviceEnd) -> Result<Self, Error> {
        match &end.scan {
            Some(name) => Self::of_scan(&mut Volume::open_to_read(&end.path)?, name),
            None => Self::of_chunks(end),
        }
    }

    /// The chunks between two addresses.
    pub fn of_chunks(end: &DeviceEnd) -> Result<Self, Error> {
        let block_device = Arc::new(BlockDevice::open_to_read(&end.path)?);
        let span = block_device.span(end)?;
        let bytes = span.bytes();
        let part =
            |piece: Piece| ReadPart { piece, offset: piece.address - span.first(), check: None };
        let parts = pieces_of(span, bytes).into_iter().map(part).collect();
        Ok(Self { block_device, scan: None, span, bytes, parts, findings: Vec::new() })
    }

    /// Opens a scan whose recording has ended.
    pub fn of_scan(volume: &mut Volume, name: &ScanName) -> Result<Self, Error> {
        let scan = volume.scan(name)?.clone();
        let block_device = volume.block_device().clone();
        if scan.state == State::Recording {
            return Err(Error::Unsealed { path: block_device.path().to_owned(), scan: scan.name });
        }
        let span = volume.span_of(&scan);
        let records = volume.all_records(&scan)?;
        let bytes = scan.bytes;
        let (parts, findings) = parts_of(&scan, span, &records);
        Ok(Self { block_device, scan: Some(scan), span, bytes, parts, findings })
    }

    /// The device.
    pub fn path(&self) -> &Path {
        self.block_device.path()
    }

    /// The scan, if it reads one.
    pub fn scan(&self) -> Option<&StoredScan> {
        self.scan.as_ref()
    }

    /// The chunks of the scan.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of blocks, or pieces of chunks.
    pub fn parts(&self) -> u64 {
        self.parts.len() as u64
    }

    /// Problems of the index, known before any data is read.
    pub fn findings(&self) -> &[DeviceDiagnostic] {
        &self.findings
    }

    /// The status of a read that has not begun.
    pub fn status(&self) -> Status {
        self.session().status()
    }

    fn session(&self) -> Session {
        Session::new(Direction::Read, self.span, Some(self.bytes), false)
    }

    /// Passes every part to `take`, in order, until it breaks off or a stop is requested. `progress` gets the bytes
    /// read and the total.
    pub fn read<E: From<Error>>(
        &self,
        control: &StopHandle,
        progress: &dyn Fn(u64, u64),
        mut take: impl FnMut(Delivered<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<Status, E> {
        let mut session = self.session();
        let mut wrong = !self.findings.is_empty();
        let pieces: Vec<Piece> = self.parts.iter().map(|part| part.piece).collect();
        read::<E>(&self.block_device, &pieces, |place, bytes| {
            let part = self.parts[place];
            let finding = part.judge(&bytes);
            wrong |= finding.is_some();
            let (offset, bytes, checked) = (part.offset, bytes.ok(), part.check.is_some());
            let flow = take(Delivered { offset, bytes, checked, finding })?;
            if flow.is_break() {
                return Ok(flow);
            }
            let moved = u64::from(part.piece.bytes).min(session.room());
            if moved > 0 {
                session.step(Event::Taken(moved));
                session.step(Event::Written(moved));
            }
            progress(session.written(), self.bytes);
            Ok(obey(&mut session, control))
        })?;
        session.step(Event::SourceEnded);
        let mut status = session.status();
        if wrong {
            status.words.push(Word::DataError);
        }
        Ok(status)
    }

    /// Turns the reader into one for random access.
    pub fn checked(self) -> Result<Checked, Error> {
        let largest = self.parts.iter().map(|part| part.piece.padded()).max().unwrap_or(0);
        let largest = largest.max(ALIGNMENT as usize);
        let memory = |source| Error::Memory { bytes: largest as u64, source };
        let region = Arc::new(Region::new(largest).map_err(memory)?);
        let block = Pool::new(region, largest, 0).take();
        let block = block.expect("a region holds what it was made for");
        Ok(Checked { contents: self, held: Mutex::new(Held { part: None, block }) })
    }
}

/// Ends a read on a stop request. All parts that were read have been delivered.
fn obey(session: &mut Session, control: &StopHandle) -> ControlFlow<()> {
    let event = match control.stop_requests() {
        0 => return ControlFlow::Continue(()),
        1 => Event::Stop,
        _ => Event::Abort,
    };
    session.step(event);
    // A device, unlike a sender, does not wait for the rest to be taken.
    session.step(Event::Dry);
    ControlFlow::Break(())
}

impl ReadPart {
    fn judge(&self, bytes: &Result<&[u8], Error>) -> Option<DeviceDiagnostic> {
        let Piece { address, .. } = self.piece;
        match (bytes, self.check) {
            (Err(error), _) => {
                Some(DeviceDiagnostic::Unreadable { address, why: error.to_string() })
            }
            (Ok(bytes), Some((number, crc))) if checksum(bytes) != crc => {
                Some(DeviceDiagnostic::Block { number, address, bytes: self.piece.bytes })
            }
            (Ok(_), _) => None,
        }
    }
}

/// The blocks of a scan as its records state them; a block without a good record is at its computed address.
fn parts_of(
    scan: &StoredScan,
    span: Span,
    records: &[Option<BlockRecord>],
) -> (Vec<ReadPart>, Vec<DeviceDiagnostic>) {
    let (mut parts, mut findings) = (Vec::new(), Vec::new());
    let mut offset = 0u64;
    for (number, record) in (0..).zip(records) {
        let left = scan.bytes.saturating_sub(offset);
        let part = match record {
            Some(record) if record.offset == offset && u64::from(record.bytes) <= left => {
                let check = Some((number, record.crc));
                piece_of(span, record).map(|piece| ReadPart { piece, offset, check })
            }
            Some(record) => {
                let (offset, expected) = (record.offset, offset);
                findings.push(DeviceDiagnostic::Place { number, offset, expected });
                None
            }
            None => {
                findings.push(DeviceDiagnostic::Record { number });
                None
            }
        };
        // Every block but the last has the same length.
        let length = left.min(scan.block_bytes.into()) as u32;
        let place = || span.place(offset, u64::from(length).next_multiple_of(ALIGNMENT));
        let part = part.or_else(|| {
            let piece = Piece { address: place()?, bytes: length };
            (length > 0).then_some(ReadPart { piece, offset, check: None })
        });
        offset += part.map_or(0, |part| u64::from(part.piece.bytes));
        parts.extend(part);
    }
    if offset != scan.bytes {
        findings.push(DeviceDiagnostic::Length { found: offset, expected: scan.bytes });
    }
    (parts, findings)
}

/// Contents for random access. The part that contains a range is checked first, as a whole.
#[derive(Debug)]
pub struct Checked {
    contents: DeviceReader,
    held: Mutex<Held>,
}

/// The part read last.
#[derive(Debug)]
struct Held {
    part: Option<usize>,
    block: Block,
}

impl Checked {
    /// The range of the contents.
    pub fn range(&self) -> Option<Range> {
        let span = self.contents.span;
        let of = self.contents.block_device.identity()?;
        Some(Range { of, first: span.first(), end: span.end() })
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.contents.bytes
    }

    /// Reads a part unless it is cached, and compares its checksum.
    fn hold(&self, held: &mut Held, number: usize) -> io::Result<()> {
        if held.part == Some(number) {
            return Ok(());
        }
        held.part = None;
        let part = self.contents.parts[number];
        let piece = part.piece;
        let result =
            self.contents.block_device.read(&mut held.block, piece.padded(), piece.address);
        let bytes = result.map(|()| &held.block[..piece.bytes as usize]);
        match part.judge(&bytes) {
            None if part.check.is_some() || self.contents.scan.is_none() => {
                held.part = Some(number);
                Ok(())
            }
            None => {
                Err(io::Error::other("the record of its block is damaged: it cannot be checked"))
            }
            Some(finding) => Err(io::Error::other(finding.to_string())),
        }
    }
}

impl ReadAt for Checked {
    fn read_exact_at(&self, mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
        // A reader that panicked has at worst invalidated the cached part.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while !into.is_empty() {
            let behind = self.contents.parts.partition_point(|part| part.offset <= offset);
            let number = behind.checked_sub(1).ok_or(io::ErrorKind::UnexpectedEof)?;
            let part = self.contents.parts[number];
            let within = (offset - part.offset) as usize;
            let most = (part.piece.bytes as usize).saturating_sub(within).min(into.len());
            if most == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.hold(&mut held, number)?;
            let (now, later) = into.split_at_mut(most);
            now.copy_from_slice(&held.block[within..within + most]);
            (into, offset) = (later, offset + most as u64);
        }
        Ok(())
    }
}
