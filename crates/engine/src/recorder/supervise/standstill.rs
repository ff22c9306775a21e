//! After a stop: a member that does not answer is named, with what can be done.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullbore_core::units::ByteSize;

use super::Supervisor;
use crate::recorder::event::{Event, Tell};

/// So long without a byte written is said.
const LONG: Duration = Duration::from_secs(5);

/// Whether anything still moves.
pub(super) struct Standstill {
    since: Instant,
    seen: u64,
    /// How urgent the end was when it was last said.
    said: u8,
}

impl Standstill {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, seen: 0, said: 0 }
    }

    /// Takes note of how much has been done by now, and says whether it has been the same for long though an end
    /// was asked for. A slow stream may well write nothing for a while before that.
    fn lasts(&mut self, done: u64, ending: bool) -> bool {
        if done != self.seen || !ending {
            (self.since, self.seen) = (Instant::now(), done);
        }
        self.since.elapsed() >= LONG
    }
}

impl Supervisor {
    /// Says once for each wish to end what that waits for.
    pub(super) fn judge_standstill(&mut self, tell: &mut Tell<'_>) {
        let gauges = &self.running.gauges;
        let done = gauges.iter().map(|gauge| gauge.written_bytes.load(Ordering::Relaxed)).sum();
        let lasts = self.standstill.lasts(done, self.stopping > 0);
        if !lasts || self.stopping <= self.standstill.said {
            return;
        }
        self.standstill.said = self.stopping;
        let backlog = |member: usize| gauges[member].backlog_bytes.load(Ordering::Relaxed);
        let mut awaited: Vec<usize> = (0..gauges.len()).filter(|it| backlog(*it) > 0).collect();
        if awaited.is_empty() {
            awaited = self.scans.iter().flat_map(|scan| scan.life.members_awaited()).collect();
            awaited.sort_unstable();
            awaited.dedup();
        }
        let names: Vec<String> =
            awaited.iter().map(|it| self.members[*it].root().display().to_string()).collect();
        if names.is_empty() {
            return;
        }
        let held = ByteSize(awaited.iter().map(|it| backlog(*it)).sum());
        let way_out = match self.stopping {
            1 => "another Ctrl-C gives up what is not written",
            _ => "another Ctrl-C ends at once, and `fullbore recover` seals the scan",
        };
        let text = format!(
            "{} {} not answered for {} s, and {held} are to be written there: {way_out}",
            names.join(", "),
            if names.len() == 1 { "has" } else { "have" },
            LONG.as_secs()
        );
        tell(&Event::Warning { text });
    }
}
