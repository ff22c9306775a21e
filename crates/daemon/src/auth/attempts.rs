//! Limits failed logins: after some, further ones wait. Pure: the time is passed in.

use std::time::{Duration, Instant};

/// Failures that are free.
pub const BURST: u32 = 10;

/// After them, one more for each of these.
pub const EVERY: Duration = Duration::from_secs(6);

/// A bucket of attempts. All clients share it, because a daemon on loopback cannot tell them apart.
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
