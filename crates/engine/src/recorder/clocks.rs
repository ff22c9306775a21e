//! The streams' clocks and the host's, while a recording runs.

use fullbore_core::time::leap;
use fullbore_core::wall::{Limits, Teller};

use super::event::{Event, Tell};
use super::scan::Scan;
use crate::clock::Clock;
use crate::sys::clock::is_synchronised;

/// A step of the host's clock that is told of.
const STEP_NS: i64 = 500_000_000;

/// Who compares them.
pub struct Clocks {
    teller: Teller,
    /// The host's clock as it was last found to be.
    host: Clock,
    /// Whether it was told that the table of leap seconds has ended.
    ended_told: bool,
}

impl Clocks {
    /// One that warns of what is beyond these limits.
    pub fn new(limits: Limits) -> Self {
        Self { teller: Teller::new(limits), host: Clock::new(), ended_told: false }
    }

    /// Tells of streams that do not keep the host's time, and of a host that does not keep its own.
    pub fn judge(&mut self, scan: &Scan, tell: &mut Tell<'_>) {
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
                "the host's clock was set by {seconds:+.1} s: when frames were received is told by the clock as it was \
                 before"
            );
            tell(&Event::Warning { text });
        }
        let streams = scan.gauges.iter().filter_map(|(number, gauge)| {
            let stream = scan.manifest.streams.get(usize::from(*number))?;
            Some((stream.name.as_str(), gauge.standing()?))
        });
        for said in self.teller.hear(streams, is_synchronised()) {
            let text = said.text;
            tell(&if said.calm { Event::Note { text } } else { Event::Warning { text } });
        }
    }
}
