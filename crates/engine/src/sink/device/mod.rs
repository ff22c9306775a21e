//! Drives without a file system as sinks: bare chunks, or a scan in the index of each drive.
//!
//! ```text
//! capture threads ──blocks of stream n──► writer of device n ──► chunks, records
//! recorder ──ScanSink──► index of each device: scan begun, described, sealed or removed
//! ```
//!
//! Each device takes one stream: stream *n* of the recording goes to device *n*, and to no other. Opening the sink only
//! reads: the overwrite guard clears every device, and the place of the new scan is planned. The first write is that of
//! [`ScanSink::begin`], after all devices, ports and threads are ready. A file that was created in place of a drive is
//! removed if its scan does not begin.

mod result;
mod scan;
#[cfg(test)]
mod tests;
pub(crate) mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use fullbore_core::device::{AddressError, DeviceEnd, Span, StoredScan};
use fullbore_core::manifest::{self, Manifest};
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_device::overwrite_guard::{self, Cleared, Purpose};
use fullbore_device::{BlockDevice, Error, Volume, check_blocks, unmake};
use fullbore_linux::overlap::Range;
use fullbore_linux::ring::WriterMetrics;
use fullbore_linux::sys::memory::Region;
use fullbore_linux::writer_thread::WriterThread;

pub use result::DeviceResult;

use self::scan::DeviceScan;
use self::writer::{Durable, Job};
use super::{Needs, ScanSink, Sink, Target, WriterLink};
use crate::error::RecordError;
use crate::event::{Event, EventHandler};

/// Streams are not cut into files; this is the largest chunk that a geometry allows.
const CHUNK_BYTES: u64 = 64 << 30;

/// Blocks beyond those being written: one being filled, one waiting, one being released, one spare.
const SPARE_BLOCKS: u64 = 4;

/// The devices of a recording, one for each stream, in the order of the streams.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// The devices.
    pub devices: Vec<DeviceTarget>,
}

/// A device, and the part of it to write.
#[derive(Clone, Debug)]
pub struct DeviceTarget {
    /// The device and its chunks.
    pub end: DeviceEnd,
    /// The name of the new scan in its index; `None` for bare chunks.
    pub scan: Option<ScanName>,
    /// The device name that the user typed to allow overwriting.
    pub overwrite: Option<PathBuf>,
}

/// Open devices.
pub struct DeviceSink {
    devices: Vec<Arc<OpenDevice>>,
    targets: Vec<Target>,
}

/// An open device.
struct OpenDevice {
    end: DeviceEnd,
    block_device: Arc<BlockDevice>,
    /// The only chunks that may be written.
    span: Span,
    /// The index and the scan in it, if the device has an index.
    index: Option<Mutex<Index>>,
    /// The number of bytes that the user requested, if any.
    wanted: Option<u64>,
    /// True if the stream may have more bytes than there is space for.
    is_short: bool,
    durable: Arc<Durable>,
    /// The metrics of its writer, once it runs.
    metrics: OnceLock<Arc<WriterMetrics>>,
    /// The file, if it was created in place of a drive.
    created: Option<CreatedFile>,
}

/// The index of a device, and the scan that is recorded.
struct Index {
    volume: Volume,
    scan: StoredScan,
    /// True if the scan is in the index.
    begun: bool,
}

/// A file that was created in place of a drive. It is removed unless its scan begins.
struct CreatedFile {
    path: PathBuf,
    kept: AtomicBool,
}

impl Drop for CreatedFile {
    fn drop(&mut self) {
        if !self.kept.load(Ordering::Relaxed) {
            unmake(&self.path);
        }
    }
}

impl DeviceSink {
    /// Opens the devices exclusively. Nothing is written yet.
    pub(super) fn open(
        config: &DeviceConfig,
        needs: &Needs,
        tell: &mut EventHandler<'_>,
    ) -> Result<Self, RecordError> {
        let open = |(number, target)| OpenDevice::open(target, needs, number).map(Arc::new);
        let devices = config.devices.iter().enumerate().map(open).collect::<Result<Vec<_>, _>>()?;
        check_room(&devices, needs, tell)?;
        let targets = devices.iter().map(|device| device.target()).collect();
        Ok(Self { devices, targets })
    }
}

/// Refuses a number of bytes for which scans have no room, and warns of a rate for which the devices have none.
fn check_room(
    devices: &[Arc<OpenDevice>],
    needs: &Needs,
    tell: &mut EventHandler<'_>,
) -> Result<(), RecordError> {
    let free = devices.iter().fold(0u64, |sum, device| sum.saturating_add(device.span.bytes()));
    if let Some(device) = devices.iter().find(|device| device.index.is_some())
        && needs.bytes > free
    {
        let (free, needed) = (ByteSize(free), ByteSize(needs.bytes));
        return Err(Error::NoSpace { path: device.path().to_owned(), free, needed }.into());
    }
    let expected = needs.lasts.map_or(0, |lasts| (lasts.as_secs_f64() * needs.rate as f64) as u64);
    if expected > free {
        let text = format!(
            "the recording needs {} at its rate, and the devices have room for {}",
            ByteSize(expected),
            ByteSize(free)
        );
        tell(&Event::Warning { text });
    }
    Ok(())
}

impl OpenDevice {
    fn open(target: &DeviceTarget, needs: &Needs, number: usize) -> Result<Self, Error> {
        let DeviceTarget { end, scan, overwrite } = target;
        let purpose = if scan.is_some() { Purpose::Index } else { Purpose::Bare };
        let address = |source: AddressError| Error::Address { path: end.path.clone(), source };
        end.chunk_bytes().map_err(address)?;
        let size = end.size.map(|size| size.0);
        let cleared = overwrite_guard::clear(&end.path, overwrite.as_deref(), purpose, size)?;
        if let (Some(bytes), Purpose::Bare) = (cleared.create_bytes(), purpose) {
            // A file is not created for addresses that it would not have.
            end.span(bytes).map_err(address)?;
        }
        let block_device = Arc::new(BlockDevice::open_to_write(&cleared)?);
        let created = cleared
            .create_bytes()
            .map(|_| CreatedFile { path: end.path.clone(), kept: AtomicBool::new(false) });
        let index = scan
            .as_ref()
            .map(|name| Index::plan(end, name, &cleared, block_device.clone(), needs, number))
            .transpose()?;
        let span = match &index {
            None => block_device.span(end)?,
            Some(index) => index.volume.span_of(&index.scan),
        };
        let wanted = [needs.bytes_of_each, end.last.map(|_| span.bytes())];
        let source_bytes = needs.source_bytes.get(number).copied().flatten();
        let most_bytes = [needs.bytes_of_each, source_bytes].into_iter().flatten().min();
        Ok(Self {
            end: end.clone(),
            block_device,
            span,
            index: index.map(Mutex::new),
            wanted: wanted.into_iter().flatten().min(),
            is_short: most_bytes.is_none_or(|most| most > span.bytes()),
            durable: Arc::default(),
            metrics: OnceLock::new(),
            created,
        })
    }

    /// Refuses a source that would be overwritten while it is read.
    fn refuse_overlap(&self, read: &Range) -> Result<(), Error> {
        let Some(of) = self.block_device.identity() else { return Ok(()) };
        let overwritten = match &self.index {
            None => vec![(self.span.first(), self.span.end())],
            Some(index) => scan::locked(index).overwritten(),
        };
        match overwritten.into_iter().any(|(first, end)| read.meets(&Range { of, first, end })) {
            true => {
                let path = self.path().to_owned();
                Err(Error::Overlap { path, first: read.first, end: read.end })
            }
            false => Ok(()),
        }
    }

    fn path(&self) -> &Path {
        self.block_device.path()
    }

    fn target(&self) -> Target {
        Target {
            path: self.path().to_owned(),
            buffered: !self.block_device.direct(),
            device: self.block_device.number(),
            span: Some(self.span),
        }
    }

    fn job(&self, target: usize) -> Job {
        let layout = |index: &Mutex<Index>| scan::locked(index).volume.layout();
        Job {
            target,
            block_device: self.block_device.clone(),
            span: self.span,
            records: self.index.as_ref().map(layout),
            depth: self.end.depth(),
            durable: self.durable.clone(),
        }
    }

    /// Keeps a created file from now on, or no longer.
    fn keep(&self, kept: bool) {
        if let Some(created) = &self.created {
            created.kept.store(kept, Ordering::Relaxed);
        }
    }
}

impl Index {
    /// Reads the index, or plans a new one, and finds the place of the new scan.
    fn plan(
        end: &DeviceEnd,
        name: &ScanName,
        cleared: &Cleared,
        block_device: Arc<BlockDevice>,
        needs: &Needs,
        number: usize,
    ) -> Result<Self, Error> {
        let address = |source| Error::Address { path: end.path.clone(), source };
        let requested = end.chunk_bytes().map_err(address)?;
        let volume = match cleared.is_indexed() {
            false => Volume::plan(block_device, requested)?,
            true => Volume::open(block_device)?,
        };
        let there = volume.layout().chunk_bytes;
        if end.chunk.is_some() && requested != there {
            return Err(Error::OtherChunk { path: end.path.clone(), there, requested });
        }
        if let Some(block) = needs.least_block_bytes {
            check_blocks(block.min(u64::from(u32::MAX)) as u32, there)?;
        }
        // Only a source that ends is sure to need no more space than its limit: datagrams overshoot it.
        let source_bytes = needs.source_bytes.get(number).copied().flatten();
        let most = source_bytes.map(|bytes| needs.bytes_of_each.map_or(bytes, |it| it.min(bytes)));
        let scan = volume.plan_scan(name, end.block_bytes(there), most, String::new())?;
        Ok(Self { volume, scan, begun: false })
    }

    /// The ranges that may be overwritten. A new index overwrites everything; on a device with an index, only the scans
    /// remain unchanged.
    fn overwritten(&self) -> Vec<(u64, u64)> {
        let span = |scan: &StoredScan| self.volume.span_of(scan);
        let scans = self.volume.superblock().scans.iter().filter(|_| !self.volume.is_new());
        let mut kept: Vec<_> = scans.map(|it| (span(it).first(), span(it).end())).collect();
        kept.sort_unstable();
        let begins = [0].into_iter().chain(kept.iter().map(|it| it.1));
        let ends = kept.iter().map(|it| it.0).chain([u64::MAX]);
        begins.zip(ends).filter(|(first, end)| first < end).collect()
    }
}

impl Sink for DeviceSink {
    fn targets(&self) -> &[Target] {
        &self.targets
    }

    fn chunk_bytes(&self) -> u64 {
        CHUNK_BYTES
    }

    fn takes_one_stream(&self) -> bool {
        true
    }

    fn block_bytes(&self, stream: u16) -> Option<u32> {
        let device = self.devices.get(usize::from(stream))?;
        Some(device.end.block_bytes(device.span.chunk_bytes()))
    }

    fn blocks_of_waiting(&self, stream: u16) -> Option<u64> {
        Some(self.devices.get(usize::from(stream))?.end.depth() + SPARE_BLOCKS)
    }

    fn capacity(&self, stream: u16) -> Option<u64> {
        Some(self.devices.get(usize::from(stream))?.span.bytes())
    }

    fn gives_each_stream_a_target(&self) -> bool {
        true
    }

    fn refuse_source(&self, read: &Range) -> Result<(), RecordError> {
        Ok(self.devices.iter().try_for_each(|device| device.refuse_overlap(read))?)
    }

    fn start(
        &mut self,
        links: Vec<WriterLink>,
        memory: &[Arc<Region>],
        _pool_bytes: u64,
    ) -> Result<Vec<WriterThread>, RecordError> {
        let start = |(number, (device, link)): (usize, (&Arc<OpenDevice>, WriterLink))| {
            device.metrics.get_or_init(|| link.metrics.clone());
            writer::spawn(device.job(number), link, memory)
        };
        let writers = self.devices.iter().zip(links).enumerate().map(start);
        Ok(writers.collect::<Result<_, Error>>()?)
    }

    fn plan_scan(&self, manifest: &mut Manifest, failures: &[Option<String>]) -> Box<dyn ScanSink> {
        let member = |(target, failure): (&Target, &Option<String>)| manifest::Member {
            uuid: manifest::Member::PLAIN,
            path: target.path.clone(),
            failure: failure.clone(),
            buffered: target.buffered,
        };
        manifest.members = self.targets.iter().zip(failures).map(member).collect();
        Box::new(DeviceScan::new(self.devices.clone()))
    }

    fn free_bytes(&self, writer: usize) -> u64 {
        let device = &self.devices[writer];
        let written = device.metrics.get().map_or(0, |it| it.written_bytes.load(Ordering::Relaxed));
        device.span.bytes().saturating_sub(written)
    }
}
