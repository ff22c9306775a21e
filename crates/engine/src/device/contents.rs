//! What lies on a device, in its order: the blocks of a scan, held against their checksums, or bare chunks.
//!
//! [`Contents::read`] gives all of it, read ahead, to whoever verifies or copies it; [`Checked`] gives any piece,
//! to whoever plays it. Neither gives a byte whose checksum is wrong without saying so.

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

use super::error::Error;
use super::finding::Finding;
use super::medium::Medium;
use super::overlap::Range;
use super::read::{Piece, piece_of, pieces_of, read};
use super::volume::Volume;
use crate::recorder::Control;
use crate::replayer::ReadAt;
use crate::ring::{Block, Pool};
use crate::sys::memory::Region;

/// A run of bytes, and what is known of it.
#[derive(Clone, Copy, Debug)]
struct Part {
    piece: Piece,
    /// Bytes before it.
    offset: u64,
    /// Of a block whose record is good: its number and its checksum.
    check: Option<(u64, u32)>,
}

/// What is to be read of a device.
#[derive(Debug)]
pub struct Contents {
    medium: Arc<Medium>,
    scan: Option<StoredScan>,
    span: Span,
    bytes: u64,
    parts: Vec<Part>,
    findings: Vec<Finding>,
}

/// A part that was read.
#[derive(Debug)]
pub struct Delivered<'a> {
    /// Bytes before it.
    pub offset: u64,
    /// Its bytes, if they could be read.
    pub bytes: Option<&'a [u8]>,
    /// Whether they were held against a checksum.
    pub checked: bool,
    /// What is wrong with it.
    pub finding: Option<Finding>,
}

impl Contents {
    /// What an endpoint means: a scan of the index, or chunks.
    pub fn open(end: &DeviceEnd) -> Result<Self, Error> {
        match &end.scan {
            Some(name) => Self::of_scan(&mut Volume::open_to_read(&end.path)?, name),
            None => Self::of_chunks(end),
        }
    }

    /// The chunks between two addresses.
    pub fn of_chunks(end: &DeviceEnd) -> Result<Self, Error> {
        let medium = Arc::new(Medium::open_to_read(&end.path)?);
        let span = medium.span(end)?;
        let bytes = span.bytes();
        let part = |piece: Piece| Part { piece, offset: piece.address - span.first(), check: None };
        let parts = pieces_of(span, bytes).into_iter().map(part).collect();
        Ok(Self { medium, scan: None, span, bytes, parts, findings: Vec::new() })
    }

    /// A scan of which the recording is over.
    pub fn of_scan(volume: &mut Volume, name: &ScanName) -> Result<Self, Error> {
        let scan = volume.scan(name)?.clone();
        let medium = volume.medium().clone();
        if scan.state == State::Recording {
            return Err(Error::Unsealed { path: medium.path().to_owned(), scan: scan.name });
        }
        let span = volume.span_of(&scan);
        let records = volume.all_records(&scan)?;
        let bytes = scan.bytes;
        let (parts, findings) = parts_of(&scan, span, &records);
        Ok(Self { medium, scan: Some(scan), span, bytes, parts, findings })
    }

    /// The device.
    pub fn path(&self) -> &Path {
        self.medium.path()
    }

    /// The scan, if it is one.
    pub fn scan(&self) -> Option<&StoredScan> {
        self.scan.as_ref()
    }

    /// The chunks in which it lies.
    pub fn span(&self) -> Span {
        self.span
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Blocks, or pieces of chunks.
    pub fn parts(&self) -> u64 {
        self.parts.len() as u64
    }

    /// What is wrong with the index of it, known before anything is read.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The status of a read that has not begun.
    pub fn status(&self) -> Status {
        self.session().status()
    }

    fn session(&self) -> Session {
        Session::new(Direction::Read, self.span, Some(self.bytes), false)
    }

    /// Gives every part to `take`, in order, until that breaks off or an end is asked for. `progress` is told bytes
    /// read and bytes in all.
    pub fn read<E: From<Error>>(
        &self,
        control: &Control,
        progress: &dyn Fn(u64, u64),
        mut take: impl FnMut(Delivered<'_>) -> Result<ControlFlow<()>, E>,
    ) -> Result<Status, E> {
        let mut session = self.session();
        let mut wrong = !self.findings.is_empty();
        let pieces: Vec<Piece> = self.parts.iter().map(|part| part.piece).collect();
        read::<E>(&self.medium, &pieces, |place, bytes| {
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

    /// For reading any piece of it.
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

/// Ends a read that is asked to end. Nothing is held then: what was read has been given on.
fn obey(session: &mut Session, control: &Control) -> ControlFlow<()> {
    let event = match control.asked() {
        0 => return ControlFlow::Continue(()),
        1 => Event::Stop,
        _ => Event::Abort,
    };
    session.step(event);
    // A device is no sender that waits for someone to take the rest.
    session.step(Event::Dry);
    ControlFlow::Break(())
}

impl Part {
    fn judge(&self, bytes: &Result<&[u8], Error>) -> Option<Finding> {
        let Piece { address, .. } = self.piece;
        match (bytes, self.check) {
            (Err(error), _) => Some(Finding::Unreadable { address, why: error.to_string() }),
            (Ok(bytes), Some((number, crc))) if checksum(bytes) != crc => {
                Some(Finding::Block { number, address, bytes: self.piece.bytes })
            }
            (Ok(_), _) => None,
        }
    }
}

/// The blocks of a scan, as far as its records can be believed; the others lie where they must.
fn parts_of(
    scan: &StoredScan,
    span: Span,
    records: &[Option<BlockRecord>],
) -> (Vec<Part>, Vec<Finding>) {
    let (mut parts, mut findings) = (Vec::new(), Vec::new());
    let mut offset = 0u64;
    for (number, record) in (0..).zip(records) {
        let left = scan.bytes.saturating_sub(offset);
        let part = match record {
            Some(record) if record.offset == offset && u64::from(record.bytes) <= left => {
                let check = Some((number, record.crc));
                piece_of(span, record).map(|piece| Part { piece, offset, check })
            }
            Some(record) => {
                let (offset, expected) = (record.offset, offset);
                findings.push(Finding::Place { number, offset, expected });
                None
            }
            None => {
                findings.push(Finding::Record { number });
                None
            }
        };
        // Every block but the last has the same length.
        let length = left.min(scan.block_bytes.into()) as u32;
        let place = || span.place(offset, u64::from(length).next_multiple_of(ALIGNMENT));
        let part = part.or_else(|| {
            let piece = Piece { address: place()?, bytes: length };
            (length > 0).then_some(Part { piece, offset, check: None })
        });
        offset += part.map_or(0, |part| u64::from(part.piece.bytes));
        parts.extend(part);
    }
    if offset != scan.bytes {
        findings.push(Finding::Length { found: offset, expected: scan.bytes });
    }
    (parts, findings)
}

/// Contents of which any piece can be read; the part it lies in is checked first, as a whole.
#[derive(Debug)]
pub struct Checked {
    contents: Contents,
    held: Mutex<Held>,
}

/// The part that was read last.
#[derive(Debug)]
struct Held {
    part: Option<usize>,
    block: Block,
}

impl Checked {
    /// Where they lie.
    pub(super) fn range(&self) -> Option<Range> {
        let span = self.contents.span;
        let of = self.contents.medium.identity()?;
        Some(Range { of, first: span.first(), end: span.end() })
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.contents.bytes
    }

    /// Reads a part, unless it is there, and holds it against its checksum.
    fn hold(&self, held: &mut Held, number: usize) -> io::Result<()> {
        if held.part == Some(number) {
            return Ok(());
        }
        held.part = None;
        let part = self.contents.parts[number];
        let piece = part.piece;
        let result = self.contents.medium.read(&mut held.block, piece.padded(), piece.address);
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
        // A reader that panicked has at worst left a part to be read again.
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
