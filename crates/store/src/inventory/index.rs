//! Reads the index records of a stream on one member, up to the first invalid one.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use fullbore_core::gap::Gap;
use fullbore_core::index::{Block, Codec, Entry, RECORD_BYTES};
use fullbore_core::layout::Geometry;
use fullbore_linux::regular_file;
use fullbore_time::Tai;
use uuid::Uuid;

use super::copies::check_geometry;

/// A block's record, and the position of its frame lengths in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// The record.
    pub block: Block,
    /// Number of the first lengths record in the file, and the number of records.
    pub lengths: Option<(u64, u32)>,
}

/// The content of an index file, up to the first invalid record.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// The member in the header record.
    pub member: Option<Uuid>,
    /// The geometry in the header record.
    pub geometry: Option<Geometry>,
    /// Blocks in the order of their records.
    pub blocks: Vec<BlockRecord>,
    /// Gap records.
    pub gaps: Vec<Gap>,
    /// Runs of blocks that `recover` found without records, in their order: first sequence, count.
    pub found: Vec<(u64, u64)>,
    /// The number of blocks that were durable at the last mark.
    pub durable: usize,
    /// Time of the last mark.
    pub marked: Option<Tai>,
    /// The number of valid records.
    pub records: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// True if non-zero bytes follow the valid records.
    pub torn: bool,
    /// The number of another stream in an otherwise valid record.
    pub foreign_stream: Option<u16>,
}

impl Index {
    /// Reads the index of a stream of a scan.
    pub fn read(path: &Path, scan: Uuid, stream: u16) -> io::Result<Self> {
        Self::read_by(path, Codec::of_scan(scan), stream)
    }

    /// Returns the codec and the stream number by the header of the index. Any bytes are a valid record in some codec,
    /// so only the header can tell.
    pub fn label(path: &Path) -> Option<(Codec, u16)> {
        use std::os::unix::fs::FileExt;
        let mut record = [0; RECORD_BYTES];
        regular_file::open(path).ok()?.read_exact_at(&mut record, 0).ok()?;
        let codec = Codec::of_record(&record);
        let (number, entry) = codec.decode(&record).ok()?;
        let Entry::Header { frame_bytes, block_bytes, chunk_blocks, .. } = entry else {
            return None;
        };
        let geometry = Geometry { frame_bytes, block_bytes, chunk_blocks };
        let plain = codec.encode(number, &entry) == record;
        (plain && check_geometry(&geometry).is_ok()).then_some((codec, number))
    }

    /// Reads the index of a stream whose records were written by this codec.
    pub fn read_by(path: &Path, codec: Codec, stream: u16) -> io::Result<Self> {
        let file = regular_file::open(path)?;
        let file_bytes = file.metadata()?.len();
        let index = Self::read_from(BufReader::with_capacity(1 << 20, file), codec, stream)?;
        Ok(Self { file_bytes, ..index })
    }

    /// Reads the index from a reader of its bytes.
    pub fn read_from(mut reader: impl Read, codec: Codec, stream: u16) -> io::Result<Self> {
        let mut index = Self::default();
        let mut record = [0; RECORD_BYTES];
        loop {
            let got = read_full(&mut reader, &mut record)?;
            if got < RECORD_BYTES {
                index.torn |= record[..got].iter().any(|&byte| byte != 0);
                return Ok(index);
            }
            match codec.decode(&record) {
                Ok((number, entry)) if number == stream => index.take(entry),
                Ok((number, _)) => {
                    index.foreign_stream = Some(number);
                    index.torn = true;
                    return Ok(index);
                }
                Err(_) => {
                    index.torn = record != [0; RECORD_BYTES] || !only_zeroes(&mut reader)?;
                    return Ok(index);
                }
            }
        }
    }

    /// Bytes of the valid records.
    pub fn trusted_bytes(&self) -> u64 {
        self.records * RECORD_BYTES as u64
    }

    /// Returns true if the record of a block was written by `recover`, which knows only the content of the block.
    pub fn was_found(&self, block: &Block) -> bool {
        let behind = self.found.partition_point(|&(first, _)| first <= block.sequence);
        let run = behind.checked_sub(1).map(|at| self.found[at]);
        run.is_some_and(|(first, count)| block.sequence - first < count)
    }

    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Header { member, frame_bytes, block_bytes, chunk_blocks } => {
                let geometry = Geometry { frame_bytes, block_bytes, chunk_blocks };
                self.member = Some(member);
                self.geometry = Some(geometry).filter(|it| check_geometry(it).is_ok());
            }
            Entry::Block(block) => self.blocks.push(BlockRecord { block, lengths: None }),
            Entry::Lengths { sequence, .. } => {
                let last = self.blocks.last_mut().filter(|last| last.block.sequence == sequence);
                if let Some(last) = last {
                    let (_, count) = last.lengths.get_or_insert((self.records, 0));
                    *count += 1;
                }
            }
            Entry::Gap(gap) => self.gaps.push(gap),
            Entry::Mark { blocks, at } => {
                let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
                self.durable = blocks.min(self.blocks.len());
                self.marked = Some(at);
            }
            // These records are beside parity chunks and concern no index.
            Entry::Stripe(_) | Entry::Rows { .. } => {}
            Entry::Found { first, count } => {
                let at = self.found.partition_point(|&(other, _)| other < first);
                self.found.insert(at, (first, count));
            }
        }
        self.records += 1;
    }
}

/// An index that is read while it grows.
#[derive(Debug)]
pub struct Growing {
    path: PathBuf,
    codec: Codec,
    stream: u16,
    file: Option<File>,
    /// Bytes read so far.
    at: u64,
    index: Index,
}

/// Bytes of a growing index that are read at a time.
const PIECE: usize = 256 << 10;

impl Growing {
    /// Returns the index of a stream of a scan, at its beginning; the file need not exist yet.
    pub fn new(path: PathBuf, scan: Uuid, stream: u16) -> Self {
        let (codec, index) = (Codec::of_scan(scan), Index::default());
        Self { path, codec, stream, file: None, at: 0, index }
    }

    /// Returns the content read so far.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Reads on up to the first invalid record.
    pub fn look(&mut self) -> io::Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => match regular_file::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                file => file?,
            },
        };
        let index = &mut self.index;
        read_on(&file, &mut self.at, self.codec, self.stream, |entry, _| index.take(entry))?;
        self.file = Some(file);
        Ok(())
    }
}

/// Reads the records of a stream from `at` on, up to the first invalid one: each decoded and as bytes. A record that is
/// being written is read the next time.
pub fn read_on(
    file: &File,
    at: &mut u64,
    codec: Codec,
    stream: u16,
    mut take: impl FnMut(Entry, &[u8; RECORD_BYTES]),
) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let mut piece = vec![0; PIECE];
    loop {
        let got = file.read_at(&mut piece, *at)?;
        let mut taken = 0;
        for record in piece[..got].chunks_exact(RECORD_BYTES) {
            let whole = record.try_into().expect("chunks of the record's size");
            match codec.decode(whole) {
                Ok((number, entry)) if number == stream => take(entry, whole),
                _ => break,
            }
            taken += RECORD_BYTES;
        }
        *at += taken as u64;
        if taken == 0 || taken < got - got % RECORD_BYTES {
            return Ok(());
        }
    }
}

/// Reads the lengths of the frames that begin in a block.
pub fn read_lengths(path: &Path, scan: Uuid, at: (u64, u32)) -> io::Result<Vec<u16>> {
    use std::os::unix::fs::FileExt;
    let file = regular_file::open(path)?;
    let codec = Codec::of_scan(scan);
    let mut record = [0; RECORD_BYTES];
    let mut all = Vec::new();
    for number in at.0..at.0 + u64::from(at.1) {
        file.read_exact_at(&mut record, number * RECORD_BYTES as u64)?;
        match codec.decode(&record) {
            Ok((_, Entry::Lengths { lengths, .. })) => all.extend(lengths),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "no record of lengths")),
        }
    }
    Ok(all)
}

fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn only_zeroes(reader: &mut impl Read) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    loop {
        let got = read_full(reader, &mut buffer)?;
        if buffer[..got].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        if got < buffer.len() {
            return Ok(true);
        }
    }
}
