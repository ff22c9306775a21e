//! Reads and writes the scan index of a device.

use std::path::Path;
use std::sync::Arc;

use fullbore_core::account::{Terms, Verdict};
use fullbore_core::device::{
    BlockRecord, COPY_BYTES, Ending, Kind, PAGE_BYTES, RECORD_BYTES, Span, StoredScan, Superblock,
    SuperblockError, Volume as Layout, find_index,
};
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::{Block, Pool};
use fullbore_linux::sys::memory::Region;
use uuid::Uuid;

use super::block_device::BlockDevice;
use super::error::Error;
use super::overwrite_guard::{self, Purpose};

/// Bytes that a new index wipes at the beginning, so that earlier content is no longer recognised.
const WIPED_BYTES: usize = 1 << 20;

/// A device with a scan index.
pub struct Volume {
    block_device: Arc<BlockDevice>,
    superblock: Superblock,
    /// The damage of one of the copies.
    damage: Option<SuperblockError>,
    /// Aligned memory, for copies and records.
    page: Block,
    /// True if the index is not on the device yet.
    new: bool,
}

impl Volume {
    /// Reads the index of a device.
    pub fn open(block_device: Arc<BlockDevice>) -> Result<Self, Error> {
        let mut page = memory()?;
        let found = find_index(block_device.bytes(), |place| {
            block_device.read(&mut page, COPY_BYTES, place)?;
            Ok::<_, Error>(Superblock::decode(&page[..COPY_BYTES]))
        })?;
        let path = || block_device.path().to_owned();
        let (superblock, damage) = found.map_err(|source| match source {
            SuperblockError::Magic => Error::NoIndex { path: path() },
            source => Error::Index { path: path(), source },
        })?;
        Ok(Self { block_device, superblock, damage, page, new: false })
    }

    /// Opens a device for reading, with its index.
    pub fn open_to_read(path: &Path) -> Result<Self, Error> {
        Self::open(Arc::new(BlockDevice::open_to_read(path)?))
    }

    /// Opens a device exclusively to change its index.
    pub fn open_to_change(path: &Path) -> Result<Self, Error> {
        let cleared = overwrite_guard::clear(path, None, Purpose::Index, None)?;
        if !cleared.is_indexed() {
            return Err(Error::NoIndex { path: path.to_owned() });
        }
        Self::open(Arc::new(BlockDevice::open_to_write(&cleared)?))
    }

    /// Plans an index on a cleared device. It is written with its first scan.
    pub fn plan(block_device: Arc<BlockDevice>, chunk_bytes: u32) -> Result<Self, Error> {
        let layout = Layout::of_media(block_device.bytes(), chunk_bytes)
            .map_err(|source| Error::Divide { path: block_device.path().to_owned(), source })?;
        let superblock = Superblock::new(Uuid::now_v7(), Clock::new().now(), layout);
        Ok(Self { block_device, superblock, damage: None, page: memory()?, new: true })
    }

    /// Wipes everything that was recognised on the device before.
    fn wipe(&mut self) -> Result<(), Error> {
        self.page.fill(0);
        self.block_device.write(&self.page, WIPED_BYTES, 0)?;
        // The last sector may lie after the second copy.
        self.block_device.wipe_from(self.layout().second_copy() + COPY_BYTES as u64)
    }

    /// The device.
    pub fn block_device(&self) -> &Arc<BlockDevice> {
        &self.block_device
    }

    /// The contents of the index.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// True if the index is not on the device yet.
    pub fn is_new(&self) -> bool {
        self.new
    }

    /// The damage of one of the copies, if any.
    pub fn damage(&self) -> Option<&SuperblockError> {
        self.damage.as_ref()
    }

    /// The layout of the device.
    pub fn layout(&self) -> Layout {
        self.superblock.volume
    }

    /// A scan by its name.
    pub fn scan(&self, name: &ScanName) -> Result<&StoredScan, Error> {
        self.superblock.scan(name).ok_or_else(|| Error::NoScan {
            path: self.block_device.path().to_owned(),
            scan: name.clone(),
            known: self.superblock.scans.iter().map(|scan| scan.name.to_string()).collect(),
        })
    }

    /// The chunks that belong to a scan.
    pub fn span_of(&self, scan: &StoredScan) -> Span {
        self.layout().span(scan.first, scan.limit).expect("checked when the index was read")
    }

    /// Plans a scan in the largest gap, or in as much of it as the scan's longest size.
    pub fn plan_scan(
        &self,
        name: &ScanName,
        block_bytes: u32,
        most_bytes: Option<u64>,
        source: String,
    ) -> Result<StoredScan, Error> {
        let path = || self.block_device.path().to_owned();
        if self.superblock.scan(name).is_some() {
            return Err(Error::ScanExists { path: path(), scan: name.clone() });
        }
        if !self.superblock.has_room() {
            return Err(Error::IndexFull { path: path(), scans: self.superblock.scans.len() });
        }
        let layout = self.layout();
        check_blocks(block_bytes, layout.chunk_bytes)?;
        let gap = layout.largest_gap(&self.superblock.taken());
        let free = gap.map_or(0, |gap| layout.bytes_of(gap));
        let needed = most_bytes.unwrap_or(0).max(layout.chunk_bytes.into());
        let gap = gap.filter(|_| free >= needed).ok_or_else(|| Error::NoSpace {
            path: path(),
            free: ByteSize(free),
            needed: ByteSize(needed),
        })?;
        let whole = layout.span(gap.first, gap.last).expect("a gap is within the data");
        let limit = most_bytes.map_or(whole, |bytes| whole.shortened(bytes)).last();
        Ok(StoredScan {
            name: name.clone(),
            uuid: Uuid::now_v7(),
            state: State::Recording,
            kind: Kind::Raw,
            ending: Ending::Unknown,
            first: gap.first,
            limit,
            bytes: 0,
            blocks: 0,
            block_bytes,
            begun: Clock::new().now(),
            ended: None,
            frame_bytes: 0,
            frames_per_second: None,
            terms: Terms::default(),
            verdict: Verdict::Unproven,
            source,
            planned: None,
            extract: None,
        })
    }

    /// Enters a planned scan into the index.
    pub fn begin(&mut self, scan: &StoredScan) -> Result<(), Error> {
        if self.new {
            self.wipe()?;
            self.new = false;
        }
        self.forget_records(scan)?;
        self.superblock.scans.push(scan.clone());
        self.put()
    }

    /// Writes both copies of the index again.
    pub fn repair(&mut self) -> Result<(), Error> {
        self.put()
    }

    /// Replaces the scan with the same identity, and makes that durable. Facts without room are dropped from `scan`.
    pub fn update(&mut self, scan: &mut StoredScan) -> Result<(), Error> {
        self.superblock.replace(scan);
        self.put()
    }

    /// Removes a scan from the index. Its bytes remain until they are overwritten.
    pub fn remove(&mut self, name: &ScanName) -> Result<StoredScan, Error> {
        let scan = self.scan(name)?.clone();
        self.superblock.scans.retain(|other| other.uuid != scan.uuid);
        self.put()?;
        Ok(scan)
    }

    /// The records of a scan from its first block on, up to the first invalid one, at most `most`.
    pub fn records(&mut self, scan: &StoredScan, most: u64) -> Result<Vec<BlockRecord>, Error> {
        let mut records = Vec::new();
        let layout = self.layout();
        let chunks = self.span_of(scan).chunks();
        let most = most.min(chunks) as u32;
        let mut number = 0;
        while number < most {
            let Some(place) = layout.record_place(scan.first, number) else { break };
            let bytes = ((most - number) as usize * RECORD_BYTES).next_multiple_of(PAGE_BYTES);
            let bytes = bytes.min(COPY_BYTES);
            self.block_device.read(&mut self.page, bytes, place)?;
            for record in self.page[..bytes].chunks_exact(RECORD_BYTES) {
                match BlockRecord::decode(record, scan.uuid, number) {
                    Some(record) if number < most => records.push(record),
                    _ => return Ok(records),
                }
                number += 1;
            }
        }
        Ok(records)
    }

    /// The records of all blocks in the scan's entry; `None` for damaged ones.
    pub fn all_records(&mut self, scan: &StoredScan) -> Result<Vec<Option<BlockRecord>>, Error> {
        let layout = self.layout();
        let blocks = scan.blocks.min(self.span_of(scan).chunks()) as u32;
        let mut records = Vec::with_capacity(blocks as usize);
        for first in (0..blocks).step_by(COPY_BYTES / RECORD_BYTES) {
            let Some(place) = layout.record_place(scan.first, first) else { break };
            let count = (blocks - first).min((COPY_BYTES / RECORD_BYTES) as u32);
            let bytes = (count as usize * RECORD_BYTES).next_multiple_of(PAGE_BYTES);
            self.block_device.read(&mut self.page, bytes, place)?;
            let found = self.page[..bytes].chunks_exact(RECORD_BYTES).zip(first..first + count);
            let decode = |(record, number)| BlockRecord::decode(record, scan.uuid, number);
            records.extend(found.map(decode));
        }
        Ok(records)
    }

    /// Wipes the first page of records, so that a scan that dies at once has none.
    fn forget_records(&mut self, scan: &StoredScan) -> Result<(), Error> {
        let place = self.layout().record_place(scan.first, 0);
        let place = place.expect("a scan's first block has a record");
        self.page[..PAGE_BYTES].fill(0);
        self.block_device.write(&self.page, PAGE_BYTES, place)
    }

    /// Writes a change to both copies, the older one first, each with its own generation. One of them is valid at any
    /// moment. If one of them is overwritten later, the other has the same contents.
    fn put(&mut self) -> Result<(), Error> {
        let (was, is) = (self.layout().media_bytes, self.block_device.bytes());
        if was > is {
            return Err(Error::Shrunk { path: self.block_device.path().to_owned(), was, is });
        }
        self.put_older_copy()?;
        self.put_older_copy()?;
        self.damage = None;
        Ok(())
    }

    fn put_older_copy(&mut self) -> Result<(), Error> {
        self.superblock.generation += 1;
        let copy = self.superblock.encode();
        self.page[..COPY_BYTES].copy_from_slice(&copy);
        let place = self.superblock.place_of_copy(self.superblock.copy());
        self.block_device.write(&self.page, COPY_BYTES, place)?;
        self.block_device.sync()
    }
}

/// Refuses blocks that are smaller than chunks, because each block has a record.
pub fn check_blocks(block_bytes: u32, chunk_bytes: u32) -> Result<(), Error> {
    match block_bytes >= chunk_bytes {
        true => Ok(()),
        false => Err(Error::SmallBlocks { block_bytes, chunk_bytes }),
    }
}

/// Aligned memory for the largest structure that is read or written here.
fn memory() -> Result<Block, Error> {
    let memory = |source| Error::Memory { bytes: WIPED_BYTES as u64, source };
    let region = Arc::new(Region::new(WIPED_BYTES).map_err(memory)?);
    Ok(Pool::new(region, WIPED_BYTES, 0).take().expect("a region holds what it was made for"))
}
