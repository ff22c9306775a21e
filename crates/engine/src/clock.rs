//! The host's clock, read once, and then the monotonic one: no step of it moves a recording.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use fullbore_core::time::Tai;

/// A clock that runs from when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Tai,
    instant: Instant,
}

impl Clock {
    /// Reads the host's clock.
    pub fn new() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        Self { start: Tai::from_unix_ns(unix as i128), instant: Instant::now() }
    }

    /// The time now.
    pub fn now(&self) -> Tai {
        self.start.plus_ns(self.instant.elapsed().as_nanos() as i64)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}
