//! Spectra of what arrives now: for the program that records, and over a socket for other processes.
//!
//! ```text
//! Taps ──► Spectra            on the caller's thread, every stream         `fullbore spectrum SOURCE`
//!      └─► SpectraServer      a thread for each client, SCHED_IDLE
//!             └── socket ◄── Request: one stream, one line, a rate
//!                 ──► Message: the stream as JSON, the header of a packet, and rows of a byte for each channel
//! ```
//!
//! The socket is `docs/decisions/0038-live-spectra.md`. The layout of its messages is in [`message`] and [`row`].

pub mod message;
pub mod place;
pub mod request;
pub mod row;
mod server;
pub mod stored;
mod watcher;

pub use request::{Request, RequestError};
pub use server::SpectraServer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fullbore_analysis::analysis::Analysis;
use fullbore_analysis::live::{Live, LiveBlock};
use fullbore_analysis::plan::Plan;
use fullbore_analysis::source;
use fullbore_formats::samples::SampleLayout;
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::{Tap, TapBlock};

use crate::Recording;

/// The spectra of the streams of a recording.
pub struct Spectra {
    tap: Tap,
    plan: Arc<Plan>,
    described: Option<SampleLayout>,
    streams: BTreeMap<u16, Live>,
    clock: Clock,
}

impl Spectra {
    /// Opens a tap. `described` are the samples of streams that do not describe their own.
    pub fn of(recording: &Recording, plan: Arc<Plan>, described: Option<SampleLayout>) -> Self {
        let (tap, streams) = (recording.tap(), BTreeMap::new());
        Self { tap, plan, described, streams, clock: Clock::new() }
    }

    /// Adds up the blocks of some time, and returns the sums of each stream that had a whole segment.
    pub fn next(&mut self, within: Duration) -> Result<Vec<Analysis>, source::Error> {
        let due = Instant::now() + within;
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if let Some(block) = self.tap.next(left) {
                self.take(&block)?;
            }
        }
        Ok(self.streams.values_mut().filter_map(Live::result).collect())
    }

    fn take(&mut self, block: &TapBlock) -> Result<(), source::Error> {
        // The recorder describes a stream soon after its first block.
        let Some(stream) = &block.stream else { return Ok(()) };
        let live = self.streams.entry(block.stream_ref.number).or_insert_with(|| {
            Live::new(stream.name.to_string(), self.plan.clone(), self.described.clone())
        });
        let geometry = block.stream_ref.geometry;
        let block = LiveBlock {
            format: &stream.format,
            frame_bytes: geometry.frame_bytes,
            position: (block.number - 1).saturating_mul(geometry.block_bytes.into()),
            bytes: &block.bytes,
        };
        live.take(block, self.clock.now())
    }
}
