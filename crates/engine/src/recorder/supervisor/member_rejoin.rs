//! Failure and return of members.
//!
//! ```text
//! used ──failed──► out ──its metadata writer finds it as it was, a scan is about to begin──► returning
//!  ▲                                                                                    │
//!  └────────────── its writer has closed what was left of before ───────────────────────┘
//! ```
//!
//! A returning member takes part from the next scan on. Its chunks of the scan in which it failed stay in place. Errors
//! with those chunks during the return are reported, but do not count as failures of later scans.

use std::path::Path;
use std::sync::atomic::Ordering;

use fullbore_core::name::ScanName;

use super::Supervisor;
use crate::event::{Event, EventHandler};

/// A member that has returned this often is not used again in this recording.
const MOST_RETURNS: u32 = 8;

impl Supervisor {
    /// Marks a member as failed in each scan that it takes part in.
    pub(super) fn member_failed(&mut self, member: usize, why: String) {
        if self.returning[member] {
            return;
        }
        for scan in &mut self.scans {
            scan.manifest.members[member].failure.get_or_insert_with(|| why.clone());
        }
        if self.failures[member].is_none() {
            self.failures[member] = Some(why);
            self.sinks.watch(member, self.plan.sources.len() as u64);
        }
    }

    /// The path that a writer writes to.
    pub(super) fn path_of(&self, writer: usize) -> &Path {
        &self.sinks.target(writer).path
    }

    /// Re-adds members that the metadata writer found unchanged, from the scan that is about to begin.
    pub(super) fn take_back(&mut self, scan: &ScanName, tell: &mut EventHandler<'_>) {
        for member in 0..self.failures.len() {
            let out = self.failures[member].is_some() && self.returns[member] < MOST_RETURNS;
            if !out || !self.sinks.take_back(member) {
                continue;
            }
            self.failures[member] = None;
            self.returning[member] = true;
            self.returns[member] += 1;
            self.running.metrics[member].recalled.store(true, Ordering::Relaxed);
            let root = self.path_of(member).display();
            let text = format!("{root} is back, and is used from {scan} on");
            tell(&Event::Note { text });
        }
    }
}
