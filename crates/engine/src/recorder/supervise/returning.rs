//! Members that fail, and members that come back.
//!
//! ```text
//! used ──failed──► out ──its scribe finds it as it was, a scan is about to begin──► returning
//!  ▲                                                                                    │
//!  └────────────── its writer has closed what was left of before ───────────────────────┘
//! ```
//!
//! A member that comes back takes part from the next scan on: of the one that it failed in, its chunks lie where
//! they lie. What still goes wrong with those while it returns is told, and is no failure of the scans since.

use std::sync::atomic::Ordering;

use fullbore_core::name::ScanName;

use super::Supervisor;
use crate::recorder::check::device;
use crate::recorder::event::{Event, Tell};

/// A member that has failed again and again is left alone for the rest of the recording.
const MOST_RETURNS: u32 = 8;

impl Supervisor {
    /// Takes note that a member takes no more data, in every scan that it was to take part in.
    pub(super) fn member_failed(&mut self, member: usize, why: String) {
        if self.returning[member] {
            return;
        }
        for scan in &mut self.scans {
            scan.manifest.members[member].failure.get_or_insert_with(|| why.clone());
        }
        if self.failures[member].is_none() {
            self.failures[member] = Some(why);
            self.scribes.watch(member, self.room_to_return(member));
        }
    }

    /// What is taken at a time for the chunks of each source, twice: for one to be filled, and for the next.
    fn room_to_return(&self, member: usize) -> u64 {
        let sources = (self.plan.sources.len() + self.plan.pandas.len()).max(1) as u64;
        self.running.steps[member].saturating_mul(2).saturating_mul(sources)
    }

    /// Members that were found to be as they were take part from the scan on that is about to begin.
    pub(super) fn take_back(&mut self, scan: &ScanName, tell: &mut Tell<'_>) {
        for member in 0..self.members.len() {
            let out = self.failures[member].is_some() && self.returns[member] < MOST_RETURNS;
            if !out || !self.scribes.takes_back(member) {
                continue;
            }
            self.failures[member] = None;
            self.returning[member] = true;
            self.returns[member] += 1;
            self.devices[member] = device(&self.members[member]);
            self.running.gauges[member].recalled.store(true, Ordering::Relaxed);
            let root = self.members[member].root().display();
            let text = format!("{root} is back, and is used from {scan} on");
            tell(&Event::Note { text });
        }
    }
}
