//! The high-water mark over time: how full a ring was, in steps of equal length and never more than a fixed number.
//!
//! ```text
//! step 250 ms   ▁▁▂▁▁▇▂▁ …            3600 steps are 15 minutes
//! step 500 ms   ▁ ▂ ▇ ▂ …             when they are full, two neighbours become one: the higher of both
//! ```
//!
//! So a scan of any length is told of in the same space, and no peak is ever averaged away.

use serde::{Deserialize, Serialize};

/// The most steps that are kept.
pub const MOST_STEPS: usize = 3600;

/// The shortest step, in milliseconds.
pub const SHORTEST_STEP_MS: u64 = 250;

/// Signs of a row of heights, the lowest first.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How full a ring was over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tide {
    /// Length of a step, in milliseconds.
    pub step_ms: u64,
    /// The most blocks in use at once in each step since the scan began.
    pub blocks: Vec<u32>,
}

impl Default for Tide {
    fn default() -> Self {
        Self { step_ms: SHORTEST_STEP_MS, blocks: Vec::new() }
    }
}

impl Tide {
    /// Takes note that so many blocks were in use, so long after the scan began.
    pub fn rise(&mut self, after_ms: u64, blocks: u64) {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        while after_ms / self.step_ms.max(1) >= MOST_STEPS as u64 {
            self.halve();
        }
        let step = (after_ms / self.step_ms.max(1)) as usize;
        // Nobody looked in between: it is told as it was when somebody did.
        if step >= self.blocks.len() {
            let before = self.blocks.last().copied().unwrap_or(blocks);
            self.blocks.resize(step, before);
            self.blocks.push(blocks);
        }
        self.blocks[step] = self.blocks[step].max(blocks);
    }

    /// The fullest it was.
    pub fn highest(&self) -> u32 {
        self.blocks.iter().copied().max().unwrap_or(0)
    }

    /// When it was fullest for the first time, in milliseconds since the scan began, and how full.
    pub fn peak(&self) -> Option<(u64, u32)> {
        let highest = self.blocks.iter().copied().max()?;
        let step = self.blocks.iter().position(|&blocks| blocks == highest)? as u64;
        Some((step.saturating_mul(self.step_ms), highest))
    }

    /// A row of so many signs at most, each the highest of its steps, where `full` blocks are the whole height.
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
        let mut tide = Tide::default();
        for (step, blocks) in [0, 1, 64, 32, 0, 8].into_iter().enumerate() {
            tide.rise(step as u64 * SHORTEST_STEP_MS, blocks);
        }
        assert_eq!(tide.row(80, 64), "▁▂█▅▁▂");
        assert_eq!(tide.row(3, 64), "▂█▂");
        assert_eq!(tide.peak(), Some((500, 64)));
        assert_eq!(Tide::default().row(10, 64), "");
        assert_eq!(tide.row(0, 0).chars().count(), 1, "no ring is no reason to fail");
    }

    #[test]
    fn a_day_takes_no_more_room_than_a_quarter_of_an_hour() {
        let mut tide = Tide::default();
        for second in 0..86_400 {
            tide.rise(second * 1000, u64::from(second == 43_210));
        }
        assert!(tide.blocks.len() <= MOST_STEPS);
        assert_eq!(tide.step_ms, 32_000);
        assert_eq!(tide.peak(), Some((43_210_000 / 32_000 * 32_000, 1)));
    }

    proptest! {
        #[test]
        fn no_peak_is_lost_and_each_stays_at_its_time(
            marks in prop::collection::vec((0u64..3_000_000, 0u64..1000), 1..300),
        ) {
            let (mut tide, mut at) = (Tide::default(), 0);
            let mut told = Vec::new();
            for (gap, blocks) in marks {
                at += gap;
                tide.rise(at, blocks);
                told.push((at, blocks as u32));
            }
            prop_assert!(tide.blocks.len() <= MOST_STEPS);
            prop_assert_eq!(tide.highest(), told.iter().map(|it| it.1).max().unwrap());
            for (at, blocks) in told {
                prop_assert!(tide.blocks[(at / tide.step_ms) as usize] >= blocks);
            }
        }
    }
}
