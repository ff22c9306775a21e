//! The high-water history of a ring, in steps of equal length and bounded number.
//!
//! ```text
//! step 250 ms   ▁▁▂▁▁▇▂▁ …            3600 steps are 15 minutes
//! step 500 ms   ▁ ▂ ▇ ▂ …             when they are full, two neighbours become one: the higher of both
//! ```
//!
//! The history of a scan of any length needs the same space, and every peak is kept.

use serde::{Deserialize, Serialize};

/// The largest number of steps.
pub const MOST_STEPS: usize = 3600;

/// The shortest step, in milliseconds.
pub const SHORTEST_STEP_MS: u64 = 250;

/// Characters for the heights of a row, the lowest first.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The high-water mark of a ring over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HighWaterHistory {
    /// Length of a step, in milliseconds.
    pub step_ms: u64,
    /// The largest number of blocks in use at once in each step since the scan began.
    pub blocks: Vec<u32>,
}

impl Default for HighWaterHistory {
    fn default() -> Self {
        Self { step_ms: SHORTEST_STEP_MS, blocks: Vec::new() }
    }
}

impl HighWaterHistory {
    /// Records the number of blocks in use at a time since the scan began.
    pub fn record(&mut self, after_ms: u64, blocks: u64) {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        while after_ms / self.step_ms.max(1) >= MOST_STEPS as u64 {
            self.halve();
        }
        let step = (after_ms / self.step_ms.max(1)) as usize;
        // Steps without a measurement get the value of the next one.
        if step >= self.blocks.len() {
            let before = self.blocks.last().copied().unwrap_or(blocks);
            self.blocks.resize(step, before);
            self.blocks.push(blocks);
        }
        self.blocks[step] = self.blocks[step].max(blocks);
    }

    /// Returns the highest value.
    pub fn highest(&self) -> u32 {
        self.blocks.iter().copied().max().unwrap_or(0)
    }

    /// Returns the time of the first maximum, in milliseconds since the scan began, and its value.
    pub fn peak(&self) -> Option<(u64, u32)> {
        let highest = self.blocks.iter().copied().max()?;
        let step = self.blocks.iter().position(|&blocks| blocks == highest)? as u64;
        Some((step.saturating_mul(self.step_ms), highest))
    }

    /// Returns a row of at most `width` characters, each the maximum of its steps; `full` blocks are the whole height.
    pub fn row(&self, width: usize, full: u64) -> String {
        let per_sign = self.blocks.len().div_ceil(width.max(1)).max(1);
        let height = |steps: &[u32]| {
            let most = u64::from(steps.iter().copied().max().unwrap_or(0)).min(full);
            let top = HEIGHTS.len() as u64 - 1;
            HEIGHTS[(most * top).div_ceil(full.max(1)) as usize]
        };
        self.blocks.chunks(per_sign).map(height).collect()
    }

    fn halve(&mut self) {
        self.step_ms = self.step_ms.max(1).saturating_mul(2);
        let higher = |two: &[u32]| two.iter().copied().max().unwrap_or(0);
        self.blocks = self.blocks.chunks(2).map(higher).collect();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_shows_the_highest_of_what_it_draws_together() {
        let mut history = HighWaterHistory::default();
        for (step, blocks) in [0, 1, 64, 32, 0, 8].into_iter().enumerate() {
            history.record(step as u64 * SHORTEST_STEP_MS, blocks);
        }
        assert_eq!(history.row(80, 64), "▁▂█▅▁▂");
        assert_eq!(history.row(3, 64), "▂█▂");
        assert_eq!(history.peak(), Some((500, 64)));
        assert_eq!(HighWaterHistory::default().row(10, 64), "");
        assert_eq!(history.row(0, 0).chars().count(), 1, "no ring is no reason to fail");
    }

    #[test]
    fn a_day_takes_no_more_room_than_a_quarter_of_an_hour() {
        let mut history = HighWaterHistory::default();
        for second in 0..86_400 {
            history.record(second * 1000, u64::from(second == 43_210));
        }
        assert!(history.blocks.len() <= MOST_STEPS);
        assert_eq!(history.step_ms, 32_000);
        assert_eq!(history.peak(), Some((43_210_000 / 32_000 * 32_000, 1)));
    }

    proptest! {
        #[test]
        fn no_peak_is_lost_and_each_stays_at_its_time(
            marks in prop::collection::vec((0u64..3_000_000, 0u64..1000), 1..300),
        ) {
            let (mut history, mut at) = (HighWaterHistory::default(), 0);
            let mut told = Vec::new();
            for (gap, blocks) in marks {
                at += gap;
                history.record(at, blocks);
                told.push((at, blocks as u32));
            }
            prop_assert!(history.blocks.len() <= MOST_STEPS);
            prop_assert_eq!(history.highest(), told.iter().map(|it| it.1).max().unwrap());
            for (at, blocks) in told {
                prop_assert!(history.blocks[(at / history.step_ms) as usize] >= blocks);
            }
        }
    }
}
