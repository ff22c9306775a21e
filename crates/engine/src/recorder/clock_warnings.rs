//! Clock warnings while a recording runs: the streams' clocks against the host's.

use fullbore_core::clock_check::{ClockLimits, ClockReporter};
use fullbore_linux::clock::Clock;
use fullbore_linux::sys::clock::is_synchronised;
use fullbore_time::leap;

use super::scan::ActiveScan;
use crate::event::{Event, EventHandler};

/// A step of the host's clock of at least this length causes a warning.
const STEP_NS: i64 = 500_000_000;

/// Compares the clocks of the streams with the host's.
pub struct ClockWarnings {
    teller: ClockReporter,
    /// The host's clock at the last reading.
    host: Clock,
    /// True if the end of the leap second table was reported.
    ended_told: bool,
}

impl ClockWarnings {
    /// Warns of deviations beyond these limits.
    pub fn new(limits: ClockLimits) -> Self {
        Self { teller: ClockReporter::new(limits), host: Clock::new(), ended_told: false }
    }

    /// Warns of streams whose clock deviates from the host's, and of steps of the host's clock.
    pub fn judge(&mut self, scan: &ActiveScan, tell: &mut EventHandler<'_>) {
        let now = Clock::new();
        if let Some(text) = leap::in_force().warning(now.now()).filter(|_| !self.ended_told) {
            self.ended_told = true;
            tell(&Event::Warning { text });
        }
        let step = now.now().since(self.host.now());
        if step.abs() >= STEP_NS {
            self.host = now;
            let seconds = step as f64 / 1e9;
            let text = format!(
                "the host's clock was set by {seconds:+.1} s: arrival times of frames still follow the clock before \
                 this step"
            );
            tell(&Event::Warning { text });
        }
        let streams = scan.metrics.iter().filter_map(|(number, metrics)| {
            let stream = scan.manifest.streams.get(usize::from(*number))?;
            Some((stream.name.as_str(), metrics.clock_status()?))
        });
        for said in self.teller.hear(streams, is_synchronised()) {
            let text = said.text;
            tell(&if said.calm { Event::Note { text } } else { Event::Warning { text } });
        }
    }
}
