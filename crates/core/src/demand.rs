//! How much block memory a recording needs: a sum of named reasons.
//!
//! ```text
//!   being filled          blocks of each source, frames that overtake one another included
//! + in the kernel's hands  writes under way on each member
//! + queued                the rate of all sources × the worst stall of a member
//! + spare                 a block of each source, so that none waits on the block just freed
//! ```
//!
//! The stall is what a benchmark has measured, twice over, or a default that is told as one. A sum is what
//! loses nothing in the worst case foreseen; how near a scan came to it is in its account
//! ([`tide`](crate::tide)).

use std::fmt;

use serde::Serialize;

use crate::units::{ByteRate, ByteSize};

/// The stall that is reckoned with if none was measured: a drive that empties its cache, a neighbour's sync.
pub const ASSUMED_STALL_MS: u64 = 1000;

/// A measured stall is taken so many times over: a run of minutes has not seen the worst of a month.
pub const STALL_MARGIN: u64 = 2;

/// The least for all sources together, whatever the sum says.
pub const LEAST_BYTES: u64 = 256 << 20;

/// Blocks of a source that are being filled at once.
pub const FILLING: u64 = 3;

/// What is known of a recording before it is armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// How many sources there are.
    pub sources: u64,
    /// What all of them send together.
    pub rate: ByteRate,
    /// Bytes of the largest block of any.
    pub block_bytes: u64,
    /// Members of the disk set.
    pub members: u64,
    /// Bytes of writes under way at once on each.
    pub depth_bytes: u64,
    /// How long a member may stand still.
    pub stall: Stall,
}

/// How long a member may stand still.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// In milliseconds, the margin included.
    pub ms: u64,
    /// What measured it; `None`: it is a default.
    pub measured: Option<String>,
}

impl Stall {
    /// If nobody has measured.
    pub fn assumed() -> Self {
        Self { ms: ASSUMED_STALL_MS, measured: None }
    }

    /// The longest that a benchmark saw, with the margin.
    pub fn measured(longest_ms: f64, by: String) -> Self {
        let longest = longest_ms.clamp(0.0, 86_400_000.0).ceil() as u64;
        Self { ms: longest * STALL_MARGIN, measured: Some(by) }
    }
}

/// A part of the sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// What it is for.
    pub what: String,
    /// How much.
    pub bytes: u64,
}

/// How much block memory is needed, and what for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// All of it.
    pub bytes: u64,
    /// What the sources send together.
    pub rate: ByteRate,
    /// The stall that is ridden out.
    pub stall: Stall,
    /// The parts, which add up.
    pub reasons: Vec<Reason>,
}

impl Demand {
    /// The sum.
    pub fn sum(&self) -> Sum {
        let mut reasons = Vec::new();
        let mut add = |what: String, bytes: u64| {
            if bytes > 0 {
                reasons.push(Reason { what, bytes });
            }
        };
        let stalled = u128::from(self.rate.0) * u128::from(self.stall.ms) / 1000;
        let from = match &self.stall.measured {
            Some(by) => format!("twice what {by} has measured"),
            None => "a default: `fullbore bench disk` measures it".to_owned(),
        };
        add(
            format!("queued at {} for a stall of {} ms ({from})", self.rate, self.stall.ms),
            u64::try_from(stalled).unwrap_or(u64::MAX),
        );
        let blocks =
            |count: u64| self.sources.saturating_mul(count).saturating_mul(self.block_bytes);
        add("in the kernel's hands".to_owned(), self.members.saturating_mul(self.depth_bytes));
        add("being filled".to_owned(), blocks(FILLING));
        add("spare".to_owned(), blocks(1));
        let total = |reasons: &[Reason]| {
            reasons.iter().fold(0u64, |sum, reason| sum.saturating_add(reason.bytes))
        };
        let more = LEAST_BYTES.saturating_sub(total(&reasons));
        if more > 0 {
            let what = format!("more, as it is {} at least", ByteSize(LEAST_BYTES));
            reasons.push(Reason { what, bytes: more });
        }
        Sum { bytes: total(&reasons), rate: self.rate, stall: self.stall.clone(), reasons }
    }

    /// How long a stall, in milliseconds, so much block memory rides out.
    pub fn rides_out_ms(&self, bytes: u64) -> u64 {
        let other = Demand { rate: ByteRate(0), ..self.clone() }.sum();
        let of_it = |what: &str| {
            other.reasons.iter().filter(|it| it.what == what).map(|it| it.bytes).sum::<u64>()
        };
        let fixed = of_it("in the kernel's hands") + of_it("being filled") + of_it("spare");
        let left = u128::from(bytes.saturating_sub(fixed)) * 1000;
        let ms = left.checked_div(self.rate.0.into()).unwrap_or(u128::MAX);
        u64::try_from(ms).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of block memory: ", ByteSize(self.bytes))?;
        for (number, Reason { what, bytes }) in self.reasons.iter().enumerate() {
            let plus = if number > 0 { " + " } else { "" };
            write!(f, "{plus}{} {what}", ByteSize(*bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn sixteen_gigabit() -> Demand {
        Demand {
            sources: 8,
            rate: ByteRate(2_000_000_000),
            block_bytes: 4 * MIB,
            members: 4,
            depth_bytes: 32 * MIB,
            stall: Stall::assumed(),
        }
    }

    #[test]
    fn sixteen_gigabit_over_four_disks_rides_out_a_second() {
        let demand = sixteen_gigabit();
        let sum = demand.sum();
        assert_eq!(sum.bytes, 2_000_000_000 + (4 * 32 + 8 * 4 * 4) * MIB);
        assert_eq!(sum.reasons.iter().map(|it| it.bytes).sum::<u64>(), sum.bytes);
        assert_eq!(demand.rides_out_ms(sum.bytes), 1000);
        assert!(sum.to_string().contains("a default"), "{sum}");
    }

    #[test]
    fn a_stall_that_was_measured_counts_twice() {
        let stall = Stall::measured(86.3, "the benchmark of 22 November".into());
        let sum = Demand { stall, ..sixteen_gigabit() }.sum();
        assert_eq!(sum.stall.ms, 174);
        assert_eq!(sum.reasons[0].bytes, 348_000_000);
        assert!(sum.to_string().contains("22 November"), "{sum}");
    }

    #[test]
    fn a_slow_stream_gets_the_least_and_the_sum_still_adds_up() {
        let slow = Demand { sources: 1, rate: ByteRate(1), ..sixteen_gigabit() };
        let sum = slow.sum();
        assert_eq!(sum.bytes, LEAST_BYTES);
        assert_eq!(sum.reasons.iter().map(|it| it.bytes).sum::<u64>(), sum.bytes);
    }

    #[test]
    fn no_number_is_too_large_to_be_refused() {
        let all = Demand {
            sources: u64::MAX,
            rate: ByteRate(u64::MAX),
            block_bytes: u64::MAX,
            members: u64::MAX,
            depth_bytes: u64::MAX,
            stall: Stall { ms: u64::MAX, measured: None },
        };
        assert_eq!(all.sum().bytes, u64::MAX);
        assert_eq!(sixteen_gigabit().rides_out_ms(0), 0);
    }
}
