//! Bytes without frames: a pattern, a file, a pipe, standard input, or a device.
//!
//! ```text
//! ByteSource ──take──► block ──full──► striper ──► writers
//!     ▲                                   │
//!     └── nothing is read while no block is free ◄── Written
//! ```
//!
//! Such a source can wait, so nothing is lost between it and the sink: a pipe stops its writer, and a file is read
//! later. Only an abort drops bytes, which are counted. A paced pattern that has to wait says so. Bytes carry no number,
//! so the account counts bytes, and its verdict is *unproven*.

mod byte_source;
mod capture;
mod device_input;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};

use fullbore_capture::{Capture, StreamLayout};
use fullbore_core::account::CountedBy;
use fullbore_core::device::{BytesSource, BytesStream, Flush};
use fullbore_core::layout::{ALIGNMENT, BLOCK_BYTES, Geometry};
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::Name;
use fullbore_core::pattern::PatternSource;
use fullbore_device::DeviceReader;
use fullbore_linux::overlap::Range;
use fullbore_linux::ring::Pool;
use fullbore_linux::sys::memory::Region;

use super::{CaptureLink, Ending, MemoryNeeds, OpenContext, OpenRequest, OpenSource, Source};
use crate::error::RecordError;

pub use byte_source::{ByteSource, FileInput, PatternInput, ReadOutcome};
pub use device_input::DeviceInput;

use capture::BytesCapture;

/// Default block memory: what the writers of a few disks hold, and as much again.
const POOL_BYTES: u64 = 128 << 20;

/// The least block memory.
const LEAST_POOL_BYTES: u64 = 1 << 20;

/// The fewest blocks in that memory: one is filled while the writers hold the others.
const LEAST_BLOCKS: u64 = 8;

/// The smallest block of a slow source.
const LEAST_BLOCK_BYTES: u64 = 64 << 10;

impl Source for BytesStream {
    fn name(&self) -> &Name {
        &self.name
    }

    fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    fn format(&self) -> Format {
        Format::Raw
    }

    fn counted_by(&self) -> CountedBy {
        CountedBy::Bytes
    }

    fn bytes(&self) -> Option<u64> {
        match &self.source {
            BytesSource::Pattern(PatternSource { bytes, .. }) => *bytes,
            // Opening a pipe would wait for its writer.
            BytesSource::File(path, skip, bytes) => {
                let metadata = std::fs::metadata(path).ok().filter(|it| it.is_file())?;
                let left = metadata.len().saturating_sub(*skip);
                Some(left.min(bytes.unwrap_or(u64::MAX)))
            }
            BytesSource::Standard | BytesSource::Device(_) => {
                open_input(&self.source).ok()?.bytes()
            }
        }
    }

    fn rate(&self) -> Option<u64> {
        match &self.source {
            BytesSource::Pattern(PatternSource { rate, .. }) => rate.map(|rate| rate.0),
            BytesSource::Standard | BytesSource::File(..) | BytesSource::Device(_) => None,
        }
    }

    fn memory(&self) -> MemoryNeeds {
        MemoryNeeds::Fixed { default: POOL_BYTES, least: LEAST_POOL_BYTES }
    }

    fn least_chunk_bytes(&self, _pool_bytes: u64) -> u64 {
        ALIGNMENT
    }

    fn ending(&self) -> Ending {
        match &self.source {
            BytesSource::Pattern(PatternSource { bytes: None, .. }) => Ending::Never,
            _ => Ending::LastByte,
        }
    }

    fn can_wait(&self) -> bool {
        true
    }

    fn identity(&self) -> Option<String> {
        (self.source == BytesSource::Standard).then(|| "standard input".to_owned())
    }
}

/// Returns the division of a stream into blocks: at most half a second of a source whose rate is known, and several in
/// the block memory.
fn geometry(rate: Option<u64>, pool_bytes: u64, chunk_bytes: u64) -> Geometry {
    let usual = rate.map_or(BLOCK_BYTES, |rate| (rate / 2).clamp(LEAST_BLOCK_BYTES, BLOCK_BYTES));
    let block_bytes = usual.min(pool_bytes / LEAST_BLOCKS).min(chunk_bytes).max(ALIGNMENT);
    whole_blocks(block_bytes, chunk_bytes)
}

fn whole_blocks(block_bytes: u64, chunk_bytes: u64) -> Geometry {
    Geometry::of_frames(1, block_bytes, chunk_bytes).expect("bytes fit any aligned block")
}

/// Opens the input of a source.
pub fn open_input(source: &BytesSource) -> Result<Box<dyn ByteSource>, RecordError> {
    let file = |name: &str, part: (u64, Option<u64>), file: io::Result<File>| {
        let input = file.and_then(|file| FileInput::of_part(file, part.0, part.1));
        let failed = |source| RecordError::File { path: name.into(), source };
        Ok(Box::new(input.map_err(failed)?) as Box<dyn ByteSource>)
    };
    match source {
        BytesSource::Standard => {
            let standard = io::stdin().as_fd().try_clone_to_owned();
            file("standard input", (0, None), standard.map(File::from))
        }
        BytesSource::File(path, skip, bytes) => {
            file(&path.display().to_string(), (*skip, *bytes), File::open(path))
        }
        BytesSource::Pattern(PatternSource { pattern, bytes, rate, .. }) => {
            Ok(Box::new(PatternInput::new(*pattern, *bytes, *rate)))
        }
        BytesSource::Device(end) => {
            let contents = DeviceReader::open(end).and_then(DeviceReader::checked)?;
            Ok(Box::new(DeviceInput::new(contents)))
        }
    }
}

/// An open byte source with its block memory.
pub(crate) struct OpenBytes {
    input: Box<dyn ByteSource>,
    pool: Pool,
    layout: StreamLayout,
    scan_bytes: Option<u64>,
    most_bytes: Option<u64>,
    flush: Flush,
    notes: Vec<String>,
}

impl OpenBytes {
    /// Opens the input, and maps the block memory.
    pub fn open(
        config: &BytesStream,
        request: &OpenRequest<'_>,
        context: &OpenContext,
    ) -> Result<Self, RecordError> {
        let input = open_input(&config.source)?;
        let geometry = match request.block_bytes {
            Some(bytes) => whole_blocks(bytes.into(), context.chunk_bytes),
            None => geometry(config.rate(), request.pool_bytes, context.chunk_bytes),
        };
        let pool_bytes = request.pool_bytes.max(2 * u64::from(geometry.block_bytes));
        let bytes = usize::try_from(pool_bytes).unwrap_or(usize::MAX);
        let region = Region::for_blocks(bytes, request.node).map_err(RecordError::Thread)?;
        let layout = StreamLayout {
            number: request.number.expect("a stream of bytes is known"),
            name: config.name.clone(),
            source: config.endpoint.clone(),
            stripped_bytes: 0,
            geometry,
            fill: Fill::Omit,
        };
        let pool = Pool::new(Arc::new(region), geometry.block_bytes as usize, 0);
        let (scan_bytes, most_bytes) = (context.scan_bytes, request.most_bytes);
        let notes = config.notes.clone();
        Ok(Self { input, pool, layout, scan_bytes, most_bytes, flush: config.flush, notes })
    }
}

impl OpenSource for OpenBytes {
    fn memory(&self) -> Vec<Arc<Region>> {
        vec![self.pool.region().clone()]
    }

    fn most_blocks(&self) -> usize {
        self.pool.blocks()
    }

    fn reads(&self) -> Option<Range> {
        self.input.range()
    }

    fn warnings(&self) -> Vec<String> {
        self.notes.clone()
    }

    fn start(self: Box<Self>, mut link: CaptureLink) -> Result<Capture, RecordError> {
        let Self { input, pool, layout, scan_bytes, most_bytes, flush, .. } = *self;
        let (orders, from_supervisor) = mpsc::channel();
        let own_targets = link.own_targets();
        let chain = link.chain();
        let capture = BytesCapture::new(input, pool, layout, chain, link.events)
            .of_at_most(scan_bytes)
            .with_end(most_bytes, flush)
            .ending_when_refused(own_targets)
            .handing_on_after(link.hand_on_after);
        let work = move || capture.run(&from_supervisor);
        Capture::spawn(format!("bytes{}", link.number), orders, link.thread_config, work)
            .map_err(RecordError::Thread)
    }
}
