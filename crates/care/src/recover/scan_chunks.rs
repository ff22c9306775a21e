//! Scans the chunks of a stream on its members: checks index records, and finds blocks without one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use fullbore_core::gap::Gap;
use fullbore_core::index::Block;
use fullbore_core::layout::{ALIGNMENT, BLOCK_BYTES, CHUNK_BYTES, Geometry};
use fullbore_core::manifest::{Format, INDEX_FILE, State, Stream};
use fullbore_formats::framed::FrameCodec;
use fullbore_linux::regular_file;
use fullbore_linux::ring;
use fullbore_store::inventory::{BlockRecord, ChunkFile, Index, Inventory, MemberFiles};
use fullbore_store::read::{BlockExtent, ExtentReader, Fault, pool};

use super::parse_unindexed::{Known, UnindexedFrames};
use super::{Error, Options};

/// A stream on all members.
#[derive(Debug)]
pub struct ScannedStream {
    pub geometry: Option<Geometry>,
    pub parts: Vec<MemberPart>,
    pub cut: u64,
    pub damaged: u64,
}

/// A stream on one member.
#[derive(Debug)]
pub struct MemberPart {
    /// The index of the inventory's holding.
    pub holding: usize,
    pub index: Index,
    /// Blocks whose records are dropped.
    pub dropped: BTreeSet<u64>,
    pub chunks: Vec<Chunk>,
}

/// A chunk on one member.
#[derive(Debug)]
pub struct Chunk {
    pub number: u32,
    pub file: Option<ChunkFile>,
    /// Blocks whose records are kept, by offset.
    pub kept: Vec<Block>,
    /// Blocks without a record, by offset.
    pub found: Vec<UnindexedBlock>,
    /// The end of the stream's data in the chunk.
    pub end: u64,
    /// True if another member holds it as well.
    pub superseded: bool,
}

/// A block without a record.
#[derive(Debug)]
pub struct UnindexedBlock {
    pub offset: u64,
    pub crc: u32,
    pub salvage: UnindexedFrames,
}

/// Reads the necessary parts of a stream, and changes nothing.
pub fn examine(
    inventory: &Inventory,
    number: usize,
    options: Options,
    progress: &dyn Fn(u64),
) -> Result<ScannedStream, Error> {
    let told = &inventory.manifest.streams[number];
    let indexes = read_indexes(inventory, number)?;
    let geometry = geometry(inventory, number, &indexes);
    let mut examined = ScannedStream { geometry, parts: Vec::new(), cut: 0, damaged: 0 };
    let Some(geometry) = geometry else {
        examined.parts =
            indexes.into_iter().map(|(at, index)| MemberPart::empty(at, index)).collect();
        return Ok(examined);
    };
    let memory = pool(1, geometry.block_bytes as usize)?.take().expect("the pool has a block");
    let mut examiner = ChunkScanner {
        reader: ExtentReader::default(),
        memory,
        known: Known {
            format: &told.format,
            codec: told.format.codec(inventory.manifest.armed),
            fill: told.fill,
            geometry,
            like: None,
        },
        deep: options.deep,
        sealed: inventory.manifest.state != State::Recording,
        progress,
        read: 0,
        cut: 0,
        damaged: 0,
    };
    for (at, index) in indexes {
        examined.parts.push(examiner.part(&inventory.holdings[at], at, index)?);
    }
    (examined.cut, examined.damaged) = (examiner.cut, examiner.damaged);
    supersede(&mut examined.parts);
    Ok(examined)
}

fn read_indexes(inventory: &Inventory, number: usize) -> Result<Vec<(usize, Index)>, Error> {
    let directory = &inventory.manifest.streams[number].directory;
    let all = inventory.holdings.iter().enumerate();
    let own = all.filter(|(_, holding)| holding.name == *directory);
    own.map(|(at, holding)| {
        let path = holding.side(INDEX_FILE);
        match Index::read(&path, inventory.manifest.uuid, number as u16) {
            Ok(index) => Ok((at, index)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok((at, Index::default()))
            }
            Err(source) => Err(Error::Read { path, source }),
        }
    })
    .collect()
}

/// Returns the geometry from the manifest, an index, or the first frame.
fn geometry(inventory: &Inventory, number: usize, indexes: &[(usize, Index)]) -> Option<Geometry> {
    let told = &inventory.manifest.streams[number];
    let of_index = || indexes.iter().find_map(|(_, index)| index.geometry);
    told.geometry.or_else(of_index).or_else(|| of_chunks(inventory, told))
}

/// Returns a default geometry if nothing shows the original one: the default block size, and as many blocks in a chunk
/// as the largest file holds.
fn of_chunks(inventory: &Inventory, told: &Stream) -> Option<Geometry> {
    let holdings = inventory.holdings.iter().filter(|it| it.name == told.directory);
    let mut chunks: Vec<&(u32, ChunkFile)> = holdings.flat_map(|it| &it.chunks).collect();
    chunks.sort_by_key(|(number, _)| *number);
    let (_, first) = chunks.first()?;
    let largest = chunks.iter().map(|(_, file)| file.bytes).max()?;
    let geometry = of_first_frame(told, first)?;
    let blocks = largest.div_ceil(geometry.block_bytes.into()).max(1);
    Some(Geometry { chunk_blocks: u32::try_from(blocks).unwrap_or(u32::MAX), ..geometry })
}

fn of_first_frame(told: &Stream, first: &ChunkFile) -> Option<Geometry> {
    use std::os::unix::fs::FileExt;
    let Format::Frames { kind, .. } = told.format else {
        return Some(Geometry::of_bytes(BLOCK_BYTES, CHUNK_BYTES));
    };
    let codec = FrameCodec::any_day(kind);
    let mut head = vec![0; kind.head_bytes()];
    regular_file::open(&first.path).ok()?.read_exact_at(&mut head, 0).ok()?;
    let frame_bytes = codec.frame_bytes(&codec.read(&head)?);
    Geometry::of_frames(frame_bytes, BLOCK_BYTES, CHUNK_BYTES).ok()
}

impl MemberPart {
    fn empty(holding: usize, index: Index) -> Self {
        Self { holding, index, dropped: BTreeSet::new(), chunks: Vec::new() }
    }

    /// Gap records of this member.
    pub fn gaps(&self) -> impl Iterator<Item = Gap> + '_ {
        self.index.gaps.iter().copied()
    }
}

struct ChunkScanner<'a> {
    reader: ExtentReader,
    memory: ring::Block,
    known: Known<'a>,
    deep: bool,
    /// True if all blocks with a record were durable (a sealed scan).
    sealed: bool,
    progress: &'a dyn Fn(u64),
    read: u64,
    cut: u64,
    damaged: u64,
}

/// The check of a block that has a record.
enum BlockCheck {
    Good,
    Bad,
}

impl ChunkScanner<'_> {
    fn part(
        &mut self,
        holding: &MemberFiles,
        at: usize,
        index: Index,
    ) -> Result<MemberPart, Error> {
        let mut recorded: BTreeMap<u32, Vec<(BlockRecord, bool)>> = BTreeMap::new();
        for (place, record) in index.blocks.iter().enumerate() {
            let durable = self.sealed || place < index.durable;
            recorded.entry(record.block.chunk).or_default().push((*record, durable));
        }
        let mut part = MemberPart::empty(at, index);
        let files: BTreeSet<u32> = holding.chunks.iter().map(|(number, _)| *number).collect();
        let numbers: BTreeSet<u32> = files.iter().chain(recorded.keys()).copied().collect();
        for number in numbers {
            let mut records = recorded.remove(&number).unwrap_or_default();
            records.sort_by_key(|(record, _)| record.block.offset);
            let chunk = self.chunk(holding, number, &records)?;
            let kept: BTreeSet<u64> = chunk.kept.iter().map(|block| block.sequence).collect();
            let sequences = records.iter().map(|(record, _)| record.block.sequence);
            part.dropped.extend(sequences.filter(|sequence| !kept.contains(sequence)));
            part.chunks.push(chunk);
        }
        Ok(part)
    }

    fn chunk(
        &mut self,
        holding: &MemberFiles,
        number: u32,
        records: &[(BlockRecord, bool)],
    ) -> Result<Chunk, Error> {
        let file = holding.chunk(number).cloned();
        let mut chunk =
            Chunk { number, file, kept: Vec::new(), found: Vec::new(), end: 0, superseded: false };
        let last_durable = records.iter().rposition(|(_, durable)| *durable);
        for (at, (record, durable)) in records.iter().enumerate() {
            let block = record.block;
            let judged = match *durable && !self.deep {
                true => BlockCheck::Good,
                false => self.judge(&chunk, &block),
            };
            match judged {
                BlockCheck::Good => chunk.keep(block),
                // A block that was reported durable is never cut off.
                BlockCheck::Bad if last_durable.is_some_and(|last| at <= last) => {
                    self.damaged += 1;
                    chunk.keep(block);
                }
                BlockCheck::Bad => {
                    self.cut += (records.len() - at) as u64;
                    return Ok(chunk);
                }
            }
        }
        self.look_behind(&mut chunk)?;
        Ok(chunk)
    }

    fn judge(&mut self, chunk: &Chunk, block: &Block) -> BlockCheck {
        let bytes = block.bytes as usize;
        let Some(file) = &chunk.file else { return BlockCheck::Bad };
        // An intact record with an impossible position counts like missing data.
        if bytes == 0 || bytes > self.memory.len() || !block.offset.is_multiple_of(ALIGNMENT) {
            return BlockCheck::Bad;
        }
        let extent = BlockExtent {
            path: Arc::new(file.path.clone()),
            device: 0,
            offset: block.offset,
            bytes: block.bytes,
            crc: block.crc,
            stripe: None,
        };
        let read = self.reader.read(&extent, &mut self.memory);
        self.tell(bytes);
        match read {
            Ok(()) => BlockCheck::Good,
            Err(Fault::Checksum { .. } | Fault::Short { .. } | Fault::System(_)) => BlockCheck::Bad,
        }
    }

    /// Keeps the data behind the last record of a chunk that can be recognised.
    fn look_behind(&mut self, chunk: &mut Chunk) -> Result<(), Error> {
        let Some(file) = chunk.file.clone() else { return Ok(()) };
        let path = Arc::new(file.path);
        let block_bytes = self.known.geometry.block_bytes as usize;
        let limit = self.known.geometry.chunk_bytes();
        // No data follows a block that is shorter than its place.
        if !chunk.end.is_multiple_of(ALIGNMENT) {
            return Ok(());
        }
        while chunk.end < file.bytes.min(limit) {
            let got = self
                .reader
                .read_at(&path, chunk.end, &mut self.memory[..block_bytes])
                .map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
            self.tell(got);
            let salvage = match file.unfinished {
                true => self.known.salvage(&self.memory[..got]),
                false => self.known.complete(&self.memory[..got]),
            };
            let bytes = salvage.bytes;
            if bytes == 0 {
                break;
            }
            let crc = crc32c::crc32c(&self.memory[..bytes]);
            chunk.found.push(UnindexedBlock { offset: chunk.end, crc, salvage });
            chunk.end += bytes as u64;
            if bytes < block_bytes {
                break;
            }
        }
        Ok(())
    }

    fn tell(&mut self, bytes: usize) {
        self.read += bytes as u64;
        (self.progress)(self.read);
    }
}

impl Chunk {
    fn keep(&mut self, block: Block) {
        self.end = self.end.max(block.offset + u64::from(block.bytes));
        self.kept.push(block);
    }
}

/// Of the copies of a chunk on several members, keeps only the largest, if it contains all of the others: a member that
/// failed while the chunk was filled came back with its beginning.
fn supersede(parts: &mut [MemberPart]) {
    let mut by_number: HashMap<u32, Vec<(usize, usize)>> = HashMap::new();
    for (p, part) in parts.iter().enumerate() {
        for (c, chunk) in part.chunks.iter().enumerate().filter(|(_, it)| it.file.is_some()) {
            by_number.entry(chunk.number).or_default().push((p, c));
        }
    }
    for mut places in by_number.into_values().filter(|places| places.len() > 1) {
        let chunk = |&(p, c): &(usize, usize)| &parts[p].chunks[c];
        places.sort_by_key(|at| std::cmp::Reverse((chunk(at).kept.len(), chunk(at).end)));
        let best: BTreeSet<u64> = chunk(&places[0]).kept.iter().map(|it| it.sequence).collect();
        let twins: Vec<(usize, usize)> = places[1..]
            .iter()
            .filter(|at| chunk(at).kept.iter().all(|block| best.contains(&block.sequence)))
            .filter(|_| !best.is_empty())
            .copied()
            .collect();
        for (p, c) in twins {
            let part = &mut parts[p];
            let chunk = &mut part.chunks[c];
            chunk.superseded = true;
            chunk.found.clear();
            part.dropped.extend(chunk.kept.drain(..).map(|block| block.sequence));
        }
    }
}
