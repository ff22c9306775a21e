//! A clock that reads the host's clock once and then follows the monotonic clock. A step of the host's clock does not
//! affect a recording.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fullbore_time::Tai;

use crate::sys::clock::is_leap_second;

/// A clock that runs from its creation.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Tai,
    instant: Instant,
}

impl Clock {
    /// Reads the host's clock. In a leap second the host's clock repeats the second before; the kernel reports which of
    /// the two it is.
    pub fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (time, instant) = (Tai::from_unix_ns(unix.as_nanos() as i128), Instant::now());
        let more_ns = if is_leap_second(unix.as_secs() as i64) { 1_000_000_000 } else { 0 };
        Self { start: time.plus_ns(more_ns), instant }
    }

    /// Returns the time now.
    pub fn now(&self) -> Tai {
        self.start.plus_ns(self.instant.elapsed().as_nanos() as i64)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
