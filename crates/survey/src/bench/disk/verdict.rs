//! What the measurements mean: rings and rates, a recommendation, the data sheet, endurance, a verdict.

use fullbore_core::budget::Service;
use fullbore_core::units::{ByteRate, ByteSize};

use super::Settings;
use super::continuous::{Wish, Written};
use crate::bench::result::{
    BenchResult, Direction, Endurance, RateForRing, Recommendation, RingForRate, Spec, Verdict,
};

/// Shares of the mean rate, in percent, for which the ring is told.
const SHARES: [u64; 10] = [10, 25, 40, 50, 60, 70, 80, 90, 95, 100];

/// Rates of the field, in Gbit/s.
const FIELD_GBIT: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Rings are told from 64 MiB to 16 GiB.
const RINGS: [u64; 9] = [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];

/// Every stall is taken to be so many times as bad as it was.
const STALL_MARGIN: u64 = 2;

/// So many percent of what held are recommended at most.
const RATE_MARGIN: u64 = 90;

const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_YEAR: f64 = 365.0;

/// For each rate, the ring that would have lost nothing.
pub fn rings(service: &Service, require: Option<ByteRate>) -> Vec<RingForRate> {
    let mean = service.mean().0;
    if mean == 0 {
        return vec![];
    }
    let shares = SHARES.map(|percent| (u128::from(mean) * u128::from(percent) / 100) as u64);
    let field = FIELD_GBIT.map(|gigabits| gigabits * 125_000_000);
    let mut rates: Vec<u64> =
        shares.into_iter().chain(field.into_iter().filter(|r| *r <= mean)).collect();
    rates.extend(require.map(|rate| rate.0));
    rates.sort_unstable();
    rates.dedup();
    let ring = |rate| RingForRate {
        rate: ByteRate(rate),
        ring: ByteSize(service.ring_for(ByteRate(rate))),
        unbounded: rate > mean,
    };
    rates.into_iter().map(ring).collect()
}

/// For each ring, the highest rate that would have lost nothing.
pub fn rates(service: &Service, ring_bytes: u64) -> Vec<RateForRing> {
    let mut rings: Vec<u64> = RINGS.map(|mebibytes| mebibytes << 20).into();
    rings.push(ring_bytes);
    rings.sort_unstable();
    rings.dedup();
    rings.retain(|ring| *ring >= service.in_hand());
    let rate = |ring| RateForRing { ring: ByteSize(ring), rate: service.rate_for(ring) };
    rings.into_iter().map(rate).collect()
}

/// What we would record on it.
pub fn recommend(
    service: &Service,
    ring_bytes: u64,
    written: &Written,
    wish: &Wish,
) -> Recommendation {
    let sustained = match wish.pace {
        // What was really held needs no reckoning.
        Some(rate) if written.overrun_bytes == 0 => rate,
        _ => service.rate_for(ring_bytes),
    };
    let share = ByteRate((u128::from(sustained.0) * u128::from(RATE_MARGIN) / 100) as u64);
    let rate = match wish.pace {
        Some(_) => share,
        None => share.min(service.rate_with_margin(ring_bytes, STALL_MARGIN)),
    };
    let margin = format!(
        "at most {RATE_MARGIN} % of the highest rate that a ring of {} would have held{}; seen over \
         {:.0} s and {}, and what did not happen in that time is not covered",
        ByteSize(ring_bytes),
        match wish.pace {
            Some(_) => String::new(),
            None => format!(
                ", and no more than it would hold with every stall {STALL_MARGIN} times as bad"
            ),
        },
        written.elapsed.as_secs_f64(),
        ByteSize(written.bytes),
    );
    Recommendation { rate, ring: ByteSize(ring_bytes), sustained, margin }
}

/// Sets what was measured beside what was promised and asked for.
pub fn judge(result: &mut BenchResult, settings: &Settings) {
    result.spec = settings.spec.map(|rate| spec(result, rate));
    let recommended = result.continuous.as_ref().map(|long| long.recommended.rate);
    if let Some(rate) = settings.require.or(recommended).filter(|rate| rate.0 > 0) {
        result.endurance = Some(endurance(result, rate, settings));
    }
    result.verdict = settings.require.and_then(|required| verdict(result, required));
}

fn spec(result: &BenchResult, rate: ByteRate) -> Spec {
    let over = |measured: f64| measured / rate.0.max(1) as f64;
    let writes = result.sweep.iter().filter(|point| point.direction == Direction::Write);
    let peak = writes.map(|point| point.rate.mean).reduce(f64::max);
    let continuous = result.continuous.as_ref().map(|long| long.write.rate);
    Spec { rate, peak_ratio: peak.map(over), continuous_ratio: continuous.map(over) }
}

fn endurance(result: &BenchResult, rate: ByteRate, settings: &Settings) -> Endurance {
    let tb_per_day = rate.0 as f64 * SECONDS_PER_DAY / 1e12;
    let capacity_tb: f64 =
        result.targets.iter().map(|target| target.capacity.0 as f64 / 1e12).sum();
    let warranted =
        settings.drive_writes.map(|(writes, years)| writes * capacity_tb * DAYS_PER_YEAR * years);
    let tbw = settings.tbw.or(warranted);
    Endurance {
        rate,
        tb_per_day,
        tbw,
        days: tbw.map(|tbw| tbw / tb_per_day),
        drive_writes_per_day: (capacity_tb > 0.0).then(|| tb_per_day / capacity_tb),
    }
}

fn verdict(result: &BenchResult, required: ByteRate) -> Option<Verdict> {
    let long = result.continuous.as_ref()?;
    let sustained = long.recommended.sustained;
    let holds = sustained >= required && (long.paced.is_none() || long.overrun_bytes == 0);
    let needed = long.ring_for_rate.iter().find(|row| row.rate == required);
    let ring = long.recommended.ring;
    let sentence = match (holds, needed) {
        (true, Some(row)) if long.paced.is_none() => format!(
            "{required} is held: {} of a ring of {ring} were needed over {:.0} s",
            row.ring, long.write.seconds
        ),
        (true, _) => format!("{required} is held: nothing was lost in {:.0} s", long.write.seconds),
        (false, Some(row)) if !row.unbounded => format!(
            "{required} is not held: it needs a ring of {}, and a ring of {ring} holds {sustained}",
            row.ring
        ),
        (false, _) => {
            format!("{required} is not held by any ring: the target sustains {sustained}")
        }
    };
    let margin = sustained.0 as f64 / required.0.max(1) as f64 - 1.0;
    Some(Verdict { required, sustained, holds, margin, sentence })
}

#[cfg(test)]
mod tests {
    use fullbore_core::budget::Completion;

    use super::*;

    /// 2 GB/s for 10 s, and half a second of nothing in the middle.
    fn service() -> Service {
        let at = |n: u64| 2_000_000 * (n + 1) + if n >= 2500 { 500_000_000 } else { 0 };
        let completions = (0..5000).map(|n| Completion { at_ns: at(n), bytes: 4_000_000 });
        Service::new(completions.collect(), 36_000_000)
    }

    #[test]
    fn rings_grow_with_the_rate_and_rates_with_the_ring() {
        let service = service();
        let rings = rings(&service, Some(ByteRate(3_000_000_000)));
        assert!(rings.is_sorted_by_key(|row| (row.rate, row.ring)), "{rings:?}");
        let beyond = rings.last().unwrap();
        assert!(beyond.unbounded && rings.iter().filter(|row| row.unbounded).count() == 1);
        let one = rings.iter().find(|row| row.rate == ByteRate(1_000_000_000)).unwrap();
        // 1 GB/s for the 502 ms in which nothing was completed, and what is in hand.
        assert_eq!(one.ring, ByteSize(502_000_000 + 36_000_000));
        let rates = rates(&service, 538_000_000);
        assert!(rates.is_sorted_by_key(|row| (row.ring, row.rate)), "{rates:?}");
        let same = rates.iter().find(|row| row.ring == ByteSize(538_000_000)).unwrap();
        assert!(same.rate.0.abs_diff(1_000_000_000) < 10, "{same:?}");
        assert_eq!(rates.last().unwrap().rate, service.mean());
    }
}
