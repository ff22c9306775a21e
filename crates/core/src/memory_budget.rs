//! The memory budget of a recording: a sum of named items.
//!
//! ```text
//!   being filled          blocks of each source, frames that overtake one another included
//! + in the kernel's hands  writes under way on each member
//! + queued                the rate of all sources × the worst stall of a member
//! + backlog               what arrives in a scan and the disks are too slow for: it drains in the pause
//! + spare                 a block of each source, so that none waits on the block just freed
//! ```
//!
//! The stall is twice the value that a benchmark measured, or a default that is marked as one. The sum suffices for the
//! worst foreseen case without loss; the account of a scan has the actual maximum ([`high_water`](crate::high_water)).

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::duty::Duty;
use crate::units::{ByteRate, ByteSize};

/// The assumed stall if none was measured: a drive that empties its cache, a neighbour's sync.
pub const ASSUMED_STALL_MS: u64 = 1000;

/// The factor for a measured stall: a run of minutes does not show the worst case of a month.
pub const STALL_MARGIN: u64 = 2;

/// The minimum for all sources together, for any sum.
pub const LEAST_BYTES: u64 = 256 << 20;

/// Blocks of a source that are filled at once.
pub const FILLING: u64 = 3;

/// The inputs of the budget, known before a recording is armed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetInputs {
    /// Number of sources.
    pub sources: u64,
    /// The rate of all sources together.
    pub rate: ByteRate,
    /// Bytes of the largest block of any source.
    pub block_bytes: u64,
    /// Members of the disk set.
    pub members: u64,
    /// Bytes of writes in flight on each member.
    pub depth_bytes: u64,
    /// The longest stall of a member.
    pub stall: Stall,
    /// The data that waits for the disks at the end of a scan, if they are slower than its rate.
    pub backlog: Option<Backlog>,
}

/// The measured write rate of a disk set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskRate {
    /// The rate of all members together.
    pub rate: ByteRate,
    /// The source of the measurement.
    pub by: String,
}

/// What earlier measurements say of the disks of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasuredDisks {
    /// The longest stall of the worst member.
    pub stall: Option<Stall>,
    /// The write rate of all members together.
    pub disk_rate: Option<DiskRate>,
}

/// The data of a scan that its disks are too slow for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backlog {
    /// Bytes at the end of the scan.
    pub bytes: u64,
    /// The rate of the sources.
    pub rate: ByteRate,
    /// The write rate of the disks.
    pub disk_rate: ByteRate,
    /// The source of that rate.
    pub measured: String,
    /// Milliseconds of the scan.
    pub record_ms: u64,
    /// Milliseconds of the pause, in which the disks write the backlog; `None`: no scan follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause_ms: Option<u64>,
    /// True if the pause is long enough.
    pub drains: bool,
}

impl Backlog {
    /// Returns the backlog of a scan of this length, with this pause behind it, on disks slower than `rate`.
    pub fn of(
        rate: ByteRate,
        disks: &DiskRate,
        record: Duration,
        pause: Option<Duration>,
    ) -> Option<Self> {
        let duty = Duty::new(record, pause.unwrap_or_default())?;
        let bytes = duty.backlog(rate, disks.rate);
        let ms = |time: Duration| time.as_millis() as u64;
        (bytes > 0).then(|| Self {
            bytes,
            rate,
            disk_rate: disks.rate,
            measured: disks.by.clone(),
            record_ms: ms(record),
            pause_ms: pause.map(ms),
            drains: pause.is_none() || duty.drains(rate, disks.rate),
        })
    }

    /// Returns the time in which the disks write it.
    pub fn drain_s(&self) -> f64 {
        self.bytes as f64 / self.disk_rate.0.max(1) as f64
    }
}

impl fmt::Display for Backlog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        let Self { rate, disk_rate, measured, record_ms, pause_ms, .. } = self;
        let scan_s = seconds(*record_ms);
        write!(
            f,
            "queued in a scan of {scan_s} s, in which {rate} arrive and the disks write {disk_rate} ({measured})"
        )?;
        match pause_ms {
            Some(ms) => write!(f, ", and written in the pause of {} s", seconds(*ms)),
            None => Ok(()),
        }
    }
}

/// The duration of a member's stall.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// In milliseconds, the margin included.
    pub ms: u64,
    /// The source of the measurement; `None`: it is a default.
    pub measured: Option<String>,
}

impl Stall {
    /// The default without a measurement.
    pub fn assumed() -> Self {
        Self { ms: ASSUMED_STALL_MS, measured: None }
    }

    /// The longest stall of a benchmark, with the margin.
    pub fn measured(longest_ms: f64, by: String) -> Self {
        let longest = longest_ms.clamp(0.0, 86_400_000.0).ceil() as u64;
        Self { ms: longest * STALL_MARGIN, measured: Some(by) }
    }
}

/// One item of the budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BudgetItem {
    /// The purpose.
    pub what: String,
    /// The size.
    pub bytes: u64,
}

/// The required block memory, item by item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryBudget {
    /// Total bytes.
    pub bytes: u64,
    /// The rate of all sources together.
    pub rate: ByteRate,
    /// The stall that the memory bridges.
    pub stall: Stall,
    /// The backlog, if the disks are slower than the sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog: Option<Backlog>,
    /// The items, which add up to the total.
    pub reasons: Vec<BudgetItem>,
}

impl BudgetInputs {
    /// Computes the sum.
    pub fn sum(&self) -> MemoryBudget {
        let mut reasons = Vec::new();
        let mut add = |what: String, bytes: u64| {
            if bytes > 0 {
                reasons.push(BudgetItem { what, bytes });
            }
        };
        let stalled = u128::from(self.rate.0) * u128::from(self.stall.ms) / 1000;
        let from = match &self.stall.measured {
            Some(by) => format!("twice the value measured by {by}"),
            None => "a default: `fullbore bench disk` measures it".to_owned(),
        };
        add(
            format!("queued at {} for a stall of {} ms ({from})", self.rate, self.stall.ms),
            u64::try_from(stalled).unwrap_or(u64::MAX),
        );
        if let Some(backlog) = &self.backlog {
            add(backlog.to_string(), backlog.bytes);
        }
        let blocks =
            |count: u64| self.sources.saturating_mul(count).saturating_mul(self.block_bytes);
        add("in the kernel's hands".to_owned(), self.members.saturating_mul(self.depth_bytes));
        add("being filled".to_owned(), blocks(FILLING));
        add("spare".to_owned(), blocks(1));
        let total = |reasons: &[BudgetItem]| {
            reasons.iter().fold(0u64, |sum, reason| sum.saturating_add(reason.bytes))
        };
        let more = LEAST_BYTES.saturating_sub(total(&reasons));
        if more > 0 {
            let what = format!("added up to the minimum of {}", ByteSize(LEAST_BYTES));
            reasons.push(BudgetItem { what, bytes: more });
        }
        MemoryBudget {
            bytes: total(&reasons),
            rate: self.rate,
            stall: self.stall.clone(),
            backlog: self.backlog.clone(),
            reasons,
        }
    }

    /// Returns the longest stall, in milliseconds, that this much block memory bridges.
    pub fn rides_out_ms(&self, bytes: u64) -> u64 {
        let other = BudgetInputs { rate: ByteRate(0), ..self.clone() }.sum();
        let of_it = |what: &str| {
            other.reasons.iter().filter(|it| it.what == what).map(|it| it.bytes).sum::<u64>()
        };
        let backlog = self.backlog.as_ref().map_or(0, |backlog| backlog.bytes);
        let fixed = of_it("in the kernel's hands") + of_it("being filled") + of_it("spare");
        let fixed = fixed.saturating_add(backlog);
        let left = u128::from(bytes.saturating_sub(fixed)) * 1000;
        let ms = left.checked_div(self.rate.0.into()).unwrap_or(u128::MAX);
        u64::try_from(ms).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for MemoryBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of block memory: ", ByteSize(self.bytes))?;
        for (number, BudgetItem { what, bytes }) in self.reasons.iter().enumerate() {
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

    fn sixteen_gigabit() -> BudgetInputs {
        BudgetInputs {
            sources: 8,
            rate: ByteRate(2_000_000_000),
            block_bytes: 4 * MIB,
            members: 4,
            depth_bytes: 32 * MIB,
            stall: Stall::assumed(),
            backlog: None,
        }
    }

    #[test]
    fn backlog_of_a_scan_is_part_of_the_sum_and_the_pause_must_drain_it() {
        // 0.5 GB/s more than the disks write, for 40 s; they need 13.3 s for the rest.
        let disks = DiskRate { rate: ByteRate(1_500_000_000), by: "the benchmark of today".into() };
        let of = |pause_s: Option<u64>| {
            let scan = Duration::from_secs(40);
            Backlog::of(sixteen_gigabit().rate, &disks, scan, pause_s.map(Duration::from_secs))
        };
        let backlog = of(Some(20)).unwrap();
        assert_eq!((backlog.bytes, backlog.drains), (20_000_000_000, true));
        assert!((13.3..13.4).contains(&backlog.drain_s()));
        assert!(!of(Some(13)).unwrap().drains && of(Some(14)).unwrap().drains);
        assert!(of(None).unwrap().drains, "no scan follows");
        let inputs = BudgetInputs { backlog: Some(backlog), ..sixteen_gigabit() };
        let (with, without) = (inputs.sum(), sixteen_gigabit().sum());
        assert_eq!(with.bytes - without.bytes, 20_000_000_000);
        assert_eq!(with.reasons.iter().map(|it| it.bytes).sum::<u64>(), with.bytes);
        assert_eq!(inputs.rides_out_ms(with.bytes), 1000);
        assert!(with.to_string().contains("written in the pause of 20 s"), "{with}");
    }

    #[test]
    fn disks_as_fast_as_the_sources_leave_no_backlog() {
        let disks = DiskRate { rate: sixteen_gigabit().rate, by: String::new() };
        let scan = Duration::from_secs(40);
        assert_eq!(Backlog::of(sixteen_gigabit().rate, &disks, scan, None), None);
    }

    #[test]
    fn sixteen_gigabit_over_four_disks_rides_out_a_second() {
        let inputs = sixteen_gigabit();
        let sum = inputs.sum();
        assert_eq!(sum.bytes, 2_000_000_000 + (4 * 32 + 8 * 4 * 4) * MIB);
        assert_eq!(sum.reasons.iter().map(|it| it.bytes).sum::<u64>(), sum.bytes);
        assert_eq!(inputs.rides_out_ms(sum.bytes), 1000);
        assert!(sum.to_string().contains("a default"), "{sum}");
    }

    #[test]
    fn a_stall_that_was_measured_counts_twice() {
        let stall = Stall::measured(86.3, "the benchmark of 22 November".into());
        let sum = BudgetInputs { stall, ..sixteen_gigabit() }.sum();
        assert_eq!(sum.stall.ms, 174);
        assert_eq!(sum.reasons[0].bytes, 348_000_000);
        assert!(sum.to_string().contains("22 November"), "{sum}");
    }

    #[test]
    fn a_slow_stream_gets_the_least_and_the_sum_still_adds_up() {
        let slow = BudgetInputs { sources: 1, rate: ByteRate(1), ..sixteen_gigabit() };
        let sum = slow.sum();
        assert_eq!(sum.bytes, LEAST_BYTES);
        assert_eq!(sum.reasons.iter().map(|it| it.bytes).sum::<u64>(), sum.bytes);
    }

    #[test]
    fn no_number_is_too_large_to_be_refused() {
        let all = BudgetInputs {
            sources: u64::MAX,
            rate: ByteRate(u64::MAX),
            block_bytes: u64::MAX,
            members: u64::MAX,
            depth_bytes: u64::MAX,
            stall: Stall { ms: u64::MAX, measured: None },
            backlog: None,
        };
        assert_eq!(all.sum().bytes, u64::MAX);
        assert_eq!(sixteen_gigabit().rides_out_ms(0), 0);
    }
}
