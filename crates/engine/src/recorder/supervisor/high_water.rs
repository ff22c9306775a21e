//! The high-water history of the rings, and the warning when one is nearly full.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use fullbore_core::manifest::Stream;
use fullbore_core::units::ByteSize;

use super::Supervisor;
use crate::event::{Event, EventHandler};

/// Percentage of blocks in use at which a warning says that an overrun is near.
const NEAR: u64 = 75;

/// Percentage to which the use must fall before the next warning.
const FAR: u64 = 50;

/// Streams with fewer blocks are not checked: a few blocks are always in use.
pub(super) const FEW_BLOCKS: u64 = 16;

/// Maximum number of repeated warnings.
const MOST_SAID: u32 = 100;

/// The streams whose memory is nearly full.
#[derive(Default)]
pub(super) struct HighWaterMarks {
    near: BTreeSet<u16>,
    said: u32,
}

impl HighWaterMarks {
    /// True if a warning is due for this use of a stream's memory.
    fn comes_near(&mut self, stream: u16, used: u64, blocks: u64) -> bool {
        if blocks < FEW_BLOCKS {
            return false;
        }
        if used * 100 < blocks * FAR {
            self.near.remove(&stream);
        }
        let near = used * 100 >= blocks * NEAR && self.near.insert(stream);
        self.said += u32::from(near);
        near && self.said <= MOST_SAID
    }
}

impl Supervisor {
    /// Records the memory use of each stream, and warns of streams whose memory is nearly full.
    pub(super) fn record_high_water(&mut self, tell: &mut EventHandler<'_>) {
        let after = self.since.elapsed();
        let Some(scan) = self.scans.back_mut() else { return };
        let mut near = Vec::new();
        let waits = |stream: &Stream| {
            let mut sources = self.plan.sources.iter();
            sources.any(|source| source.can_wait() && source.endpoint() == stream.source)
        };
        for (number, used, blocks) in scan.take_marks(after) {
            let stream = &scan.manifest.streams[usize::from(number)];
            if !waits(stream) && self.marks.comes_near(number, used, blocks) {
                near.push(format!("{}: {used} of {blocks} blocks are in use", stream.name));
            }
        }
        if !near.is_empty() {
            let why = self.behind();
            near.into_iter().for_each(|text| tell(&Event::Warning { text: text + &why }));
        }
    }

    /// Returns the member with the largest backlog, if a member has one.
    fn behind(&self) -> String {
        let backlogs =
            self.running.metrics.iter().map(|it| it.backlog_bytes.load(Ordering::Relaxed));
        match backlogs.enumerate().max_by_key(|(_, bytes)| *bytes) {
            Some((member, bytes)) if bytes > 0 => format!(
                ", and an overrun is near: {} has {} to write",
                self.path_of(member).display(),
                ByteSize(bytes)
            ),
            _ => ", and an overrun is near".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once_each_time_that_a_ring_comes_near_its_end() {
        let mut marks = HighWaterMarks::default();
        let told: Vec<bool> =
            [10, 47, 48, 64, 40, 60, 31, 50].map(|used| marks.comes_near(0, used, 64)).to_vec();
        assert_eq!(told, [false, false, true, false, false, false, false, true]);
        assert!(marks.comes_near(1, 64, 64), "another stream");
        assert!(!marks.comes_near(2, 4, 4), "of four blocks some are always in use");
    }

    #[test]
    fn what_nobody_heeds_is_not_said_for_ever() {
        let mut marks = HighWaterMarks::default();
        let times = (0..1000).filter(|n| marks.comes_near(0, 64 * (n % 2), 64)).count();
        assert_eq!(times, MOST_SAID as usize);
    }
}
