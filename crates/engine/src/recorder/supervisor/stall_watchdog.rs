//! The stall watchdog: names members that do not respond after a stop, with advice.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullbore_core::units::ByteSize;

use super::Supervisor;
use crate::event::{Event, EventHandler};

/// The time without a write after which the watchdog warns.
const LONG: Duration = Duration::from_secs(5);

/// Detects that writes have stopped.
pub(super) struct StallWatchdog {
    since: Instant,
    seen: u64,
    /// The number of stop requests at the last warning.
    said: u8,
}

impl StallWatchdog {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, seen: 0, said: 0 }
    }

    /// Records the number of bytes written. Returns true if an end was requested and the number has not changed for a
    /// long time. Before a stop request, a slow stream may write nothing for a while.
    fn lasts(&mut self, done: u64, ending: bool) -> bool {
        if done != self.seen || !ending {
            (self.since, self.seen) = (Instant::now(), done);
        }
        self.since.elapsed() >= LONG
    }
}

impl Supervisor {
    /// Warns once for each stop request of members that it waits for.
    pub(super) fn check_for_stall(&mut self, tell: &mut EventHandler<'_>) {
        let metrics = &self.running.metrics;
        let done =
            metrics.iter().map(|metrics| metrics.written_bytes.load(Ordering::Relaxed)).sum();
        let lasts = self.standstill.lasts(done, self.stopping > 0);
        if !lasts || self.stopping <= self.standstill.said {
            return;
        }
        self.standstill.said = self.stopping;
        let backlog = |member: usize| metrics[member].backlog_bytes.load(Ordering::Relaxed);
        let mut awaited: Vec<usize> = (0..metrics.len()).filter(|it| backlog(*it) > 0).collect();
        if awaited.is_empty() {
            awaited = self.scans.iter().flat_map(|scan| scan.lifecycle.members_awaited()).collect();
            awaited.sort_unstable();
            awaited.dedup();
        }
        let names: Vec<String> =
            awaited.iter().map(|it| self.path_of(*it).display().to_string()).collect();
        if names.is_empty() {
            return;
        }
        let held = ByteSize(awaited.iter().map(|it| backlog(*it)).sum());
        let way_out = match self.stopping {
            1 => "press Ctrl-C again to drop unwritten data",
            _ => "press Ctrl-C again to exit; `fullbore recover` seals the scan",
        };
        let text = format!(
            "{} {} not answered for {} s, {held} still to be written: {way_out}",
            names.join(", "),
            if names.len() == 1 { "has" } else { "have" },
            LONG.as_secs()
        );
        tell(&Event::Warning { text });
    }
}
