//! The high-water mark over time, and the warning when a ring comes near its end.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use fullbore_core::units::ByteSize;

use super::Supervisor;
use crate::recorder::event::{Event, Tell};

/// In use of a hundred blocks, at which it is said that an overrun is near …
const NEAR: u64 = 75;

/// … and down to which it must fall before that is said again.
const FAR: u64 = 50;

/// Of fewer blocks a few are always in use.
const FEW_BLOCKS: u64 = 16;

/// Times that it is said at most: who has not listened by then does not read.
const MOST_SAID: u32 = 100;

/// Which streams are near the end of their memory.
#[derive(Default)]
pub(super) struct Marks {
    near: BTreeSet<u16>,
    said: u32,
}

impl Marks {
    /// Whether it is to be said now that so much of a stream's memory was in use.
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
    /// Enters how full the memory of each stream was, and warns of those that came near its end.
    pub(super) fn take_marks(&mut self, tell: &mut Tell<'_>) {
        let after = self.since.elapsed();
        let Some(scan) = self.scans.back_mut() else { return };
        let mut near = Vec::new();
        for (number, used, blocks) in scan.take_marks(after) {
            if self.marks.comes_near(number, used, blocks) {
                let name = &scan.manifest.streams[usize::from(number)].name;
                near.push(format!("{name}: {used} of {blocks} blocks are in use"));
            }
        }
        if !near.is_empty() {
            let why = self.behind();
            near.into_iter().for_each(|text| tell(&Event::Warning { text: text + &why }));
        }
    }

    /// The member with the most to write, if one has any.
    fn behind(&self) -> String {
        let backlogs =
            self.running.gauges.iter().map(|it| it.backlog_bytes.load(Ordering::Relaxed));
        match backlogs.enumerate().max_by_key(|(_, bytes)| *bytes) {
            Some((member, bytes)) if bytes > 0 => format!(
                ", and an overrun is near: {} has {} to write",
                self.members[member].root().display(),
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
        let mut marks = Marks::default();
        let told: Vec<bool> =
            [10, 47, 48, 64, 40, 60, 31, 50].map(|used| marks.comes_near(0, used, 64)).to_vec();
        assert_eq!(told, [false, false, true, false, false, false, false, true]);
        assert!(marks.comes_near(1, 64, 64), "another stream");
        assert!(!marks.comes_near(2, 4, 4), "of four blocks some are always in use");
    }

    #[test]
    fn what_nobody_heeds_is_not_said_for_ever() {
        let mut marks = Marks::default();
        let times = (0..1000).filter(|n| marks.comes_near(0, 64 * (n % 2), 64)).count();
        assert_eq!(times, MOST_SAID as usize);
    }
}
