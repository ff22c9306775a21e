//! The log of a recording: each event of the supervisor as a `tracing` event.
//!
//! Capture threads log in the spans `scan` and `stream`, and writers with the path of their member. A program that uses
//! the engine installs a subscriber, or none.

use fullbore_core::panda::{SourceEvent, SourceReport};
use tracing::{debug, error, info, trace, warn};

use crate::event::{Armed, Event, EventHandler};

/// A handler that logs each event, and then passes it on.
pub(super) fn logged<'a>(tell: &'a mut EventHandler<'_>) -> impl FnMut(&Event) + 'a {
    |event| {
        log(event);
        tell(event);
    }
}

fn log(event: &Event) {
    match event {
        Event::Memory(memory) => {
            debug!(bytes = memory.bytes, rides_out_ms = memory.rides_out_ms, "block memory");
        }
        Event::Armed(armed) => log_armed(armed),
        Event::Awaiting { scan, seconds, .. } => trace!(%scan, seconds, "waits for its start"),
        Event::Missed { scan, start, end } => error!(%scan, %start, %end, "missed"),
        Event::Opened { scan, stream, frame_bytes, frames_per_second } => {
            info!(%scan, %stream, frame_bytes, frames_per_second, "a stream begins");
        }
        Event::Progress(progress) => trace!(
            scan = %progress.scan,
            bytes = progress.bytes,
            durable_bytes = progress.durable_bytes,
            free_bytes = progress.free_bytes,
            "progress"
        ),
        Event::Forwarded { over, streams } => {
            let (sent, skipped): (u64, u64) =
                streams.iter().fold((0, 0), |sum, it| (sum.0 + it.sent, sum.1 + it.skipped));
            trace!(over, sent, skipped, "sent on");
        }
        Event::Warning { text } => warn!("{text}"),
        Event::Note { text } => info!("{text}"),
        Event::Alternate { scan, stream, meant, file, why } => {
            let (meant, file) = (meant.display(), file.display());
            warn!(%scan, %stream, %meant, %file, "goes into another file: {why}");
        }
        Event::Source(report) => log_report(report),
        Event::Sealed(sealed) => {
            let bytes: u64 = sealed.accounts.iter().map(|account| account.bytes).sum();
            info!(scan = %sealed.manifest.scan, bytes, "sealed: {}", sealed.completeness.headline);
        }
        Event::Unsealed { why, sealed } => {
            error!(scan = %sealed.manifest.scan, "not sealed: {why}");
        }
    }
}

fn log_report(report: &SourceReport) {
    let SourceReport { stream, event } = report;
    match event {
        SourceEvent::Connected { connection } => info!(%stream, connection, "connected"),
        SourceEvent::PandaArmed => info!(%stream, "armed"),
        SourceEvent::Rejoined { gap } => warn!(%stream, gap, "the acquisition continues"),
        SourceEvent::Lost { why } => warn!(%stream, "connection lost: {why}"),
        SourceEvent::Unseen { samples } => {
            warn!(%stream, samples, "nothing came of the acquisition");
        }
        SourceEvent::StaysArmed { why } => warn!(%stream, "it could not be disarmed: {why}"),
    }
}

fn log_armed(armed: &Armed) {
    let Armed { scan, pool_bytes, locked, .. } = armed;
    info!(%scan, pool_bytes, locked, "armed");
    for (source, receive_buffer_bytes) in &armed.sources {
        debug!(source, receive_buffer_bytes, "listens");
    }
    for member in &armed.members {
        let free_bytes = member.free_bytes;
        debug!(member = %member.path.display(), buffered = member.buffered, free_bytes, "writes");
    }
}
