//! Limits failed logins: after some, further ones wait. Pure: the time is passed in.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::net::table::Origin;

/// Failures that are free.
pub const BURST: u32 = 10;

/// After them, one more for each of these.
pub const EVERY: Duration = Duration::from_secs(6);

/// Origins with a bucket of their own. Further ones share one.
pub const MOST_ORIGINS: usize = 1000;

/// A bucket of attempts for each origin. On loopback that is one, because a daemon cannot tell these clients apart.
#[derive(Debug)]
pub struct AttemptsOfAll {
    origins: BTreeMap<Origin, Attempts>,
    others: Attempts,
}

impl AttemptsOfAll {
    /// None has failed.
    pub fn new(now: Instant) -> Self {
        Self { origins: BTreeMap::new(), others: Attempts::new(now) }
    }

    /// The attempts of an origin.
    pub fn of(&mut self, origin: Origin, now: Instant) -> &mut Attempts {
        if !self.origins.contains_key(&origin) && self.origins.len() >= MOST_ORIGINS {
            self.origins.retain(|_, attempts| !attempts.is_rested(now));
        }
        match self.origins.len() < MOST_ORIGINS || self.origins.contains_key(&origin) {
            true => self.origins.entry(origin).or_insert_with(|| Attempts::new(now)),
            false => &mut self.others,
        }
    }
}

/// A bucket of attempts.
#[derive(Debug)]
pub struct Attempts {
    left: u32,
    since: Instant,
}

impl Attempts {
    /// None has failed.
    pub fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    /// Refuses if too many failed. Returns how long to wait.
    pub fn check(&mut self, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.since);
        let more = u32::try_from(passed.as_nanos() / EVERY.as_nanos()).unwrap_or(BURST);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.since = match self.left == BURST {
                true => now,
                false => self.since + EVERY * more,
            };
        }
        match self.left {
            0 => Err(EVERY.saturating_sub(now.saturating_duration_since(self.since))),
            _ => Ok(()),
        }
    }

    /// True if all attempts are free again.
    fn is_rested(&mut self, now: Instant) -> bool {
        self.check(now).is_ok() && self.left == BURST
    }

    /// Counts a failure.
    pub fn fail(&mut self, now: Instant) {
        if self.left == BURST {
            self.since = now;
        }
        self.left = self.left.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_failures_are_free_and_then_one_each_six_seconds() {
        let start = Instant::now();
        let mut attempts = Attempts::new(start);
        for _ in 0..BURST {
            attempts.check(start).unwrap();
            attempts.fail(start);
        }
        assert_eq!(attempts.check(start), Err(EVERY));
        let later = start + EVERY - Duration::from_millis(1);
        assert_eq!(attempts.check(later), Err(Duration::from_millis(1)));
        let later = start + EVERY;
        attempts.check(later).unwrap();
        attempts.fail(later);
        assert_eq!(attempts.check(later), Err(EVERY));
    }

    #[test]
    fn one_origin_does_not_use_up_the_attempts_of_another() {
        let start = Instant::now();
        let mut all = AttemptsOfAll::new(start);
        let origin = |number: u32| Origin::of(std::net::Ipv4Addr::from_bits(number).into());
        (0..BURST).for_each(|_| all.of(origin(1), start).fail(start));
        assert!(all.of(origin(1), start).check(start).is_err());
        all.of(origin(2), start).check(start).unwrap();
        for number in 0..2 * u32::try_from(MOST_ORIGINS).unwrap() {
            all.of(origin(number), start).fail(start);
        }
        assert_eq!(all.origins.len(), MOST_ORIGINS);
        // The attempts of a guesser are not forgotten, however many addresses it has.
        assert!(all.of(origin(1), start).check(start).is_err());
        let later = start + EVERY * BURST;
        all.of(origin(9_999_999), later).check(later).unwrap();
        assert_eq!(all.origins.len(), 1);
    }

    #[test]
    fn a_pause_restores_all_of_them_and_no_more() {
        let start = Instant::now();
        let mut attempts = Attempts::new(start);
        (0..BURST).for_each(|_| attempts.fail(start));
        let later = start + Duration::from_secs(86_400 * 3650);
        for _ in 0..BURST {
            attempts.check(later).unwrap();
            attempts.fail(later);
        }
        assert!(attempts.check(later).is_err());
    }
}
