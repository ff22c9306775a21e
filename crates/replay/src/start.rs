//! The start of sending, at once or at an instant of UTC.
//!
//! The sender sleeps until shortly before the instant, reads the host's clock once more, and spins for the last part. The
//! start is therefore as exact as the host's clock. The account states how far the first packet was from the instant, and
//! whether the kernel considers the clock synchronised.

use std::time::{Duration, Instant};

use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::clock::is_synchronised;
use fullbore_time::Tai;
use serde::Serialize;

use crate::pace::{LATE_NS, Monotonic, Waiting};

/// When sending begins, and which packets count as late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The instant at which the first packet is due; `None`: at once.
    pub at: Option<Tai>,
    /// A packet that is sent more than this after its due time is late, in nanoseconds.
    pub late_after_ns: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Timing { at: None, late_after_ns: LATE_NS }
    }
}

/// The instant of the start has passed.
#[derive(Debug, thiserror::Error)]
#[error("the start at {at} has passed: it is {now}")]
pub struct Passed {
    /// The requested instant.
    pub at: Tai,
    /// The time by the host's clock.
    pub now: Tai,
}

/// The start of a run that was to begin at an instant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StartAccount {
    /// The requested instant.
    pub at: Tai,
    /// When the kernel had the first packet, by the host's clock.
    pub first_sent: Tai,
    /// The time from the instant to the first packet, in seconds.
    pub error_seconds: f64,
    /// True if the host's clock is synchronised, as far as the kernel knows.
    pub clock_synchronised: Option<bool>,
}

impl StartAccount {
    /// Reads the host's clock after the first packet was sent.
    pub fn read(at: Tai) -> Self {
        let first_sent = Clock::new().now();
        StartAccount {
            at,
            first_sent,
            error_seconds: first_sent.since(at) as f64 / 1e9,
            clock_synchronised: is_synchronised(),
        }
    }

    /// The start as a line of text.
    pub fn line(&self) -> String {
        let clock = match self.clock_synchronised {
            Some(true) => "synchronised",
            Some(false) => "not synchronised",
            None => "of unknown error",
        };
        format!(
            "start    at {}: the first datagram was sent {:.1} µs later, by a clock that is {clock}\n",
            self.at,
            self.error_seconds * 1e6
        )
    }
}

/// Before this time to the start, the sender sleeps; then it reads the host's clock again.
const NEAR: Duration = Duration::from_millis(100);

/// The number of times that the host's clock is read, to find the reading that took least.
const READINGS: usize = 16;

/// Starts the clock of a run. At an instant, it waits until then, or until a stop is requested.
pub fn start(waiting: Waiting, at: Option<Tai>, stop: &StopHandle) -> Result<Monotonic, Passed> {
    let Some(at) = at else { return Ok(Monotonic::start(waiting)) };
    let now = Clock::new().now();
    if now >= at {
        return Err(Passed { at, now });
    }
    loop {
        // The host's clock may be set while the sender sleeps.
        let left = Duration::from_nanos(at.since(Clock::new().now()).max(0).unsigned_abs());
        if left <= NEAR {
            break;
        }
        if stop.wait((left - NEAR).min(Duration::from_secs(10))) {
            return Ok(Monotonic::start(waiting));
        }
    }
    Ok(Monotonic::start_at(waiting, instant_of(at)))
}

/// The instant of the monotonic clock at which the host's clock shows `at`.
fn instant_of(at: Tai) -> Instant {
    let reading = || {
        let before = Instant::now();
        let left = at.since(Clock::new().now()).max(0).unsigned_abs();
        (before.elapsed(), before + Duration::from_nanos(left))
    };
    // `before` is earlier than the reading by at most the time that it took.
    let quickest = (1..READINGS).map(|_| reading()).fold(reading(), |best, it| best.min(it));
    quickest.1 + quickest.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Clock as _;

    #[test]
    fn the_clock_reads_zero_at_the_instant_of_the_start() {
        let at = Clock::new().now().plus_ns(150_000_000);
        let clock = start(Waiting::Exact, Some(at), &StopHandle::default()).unwrap();
        let (real, own) = (Clock::new().now().since(at), clock.now_ns());
        assert!(real >= 0, "it began {} ns early", -real);
        // Both readings are of one moment; the tolerance is for a busy machine.
        assert!(real.abs_diff(own as i64) < 5_000_000, "{real} ns, {own} ns");
    }

    #[test]
    fn a_start_that_has_passed_is_refused_and_a_stop_ends_the_wait() {
        let (past, soon) =
            (Clock::new().now().plus_ns(-1), Clock::new().now().plus_ns(60_000_000_000));
        let stop = StopHandle::default();
        let error = start(Waiting::Exact, Some(past), &stop).unwrap_err();
        assert!(error.to_string().contains("has passed"), "{error}");
        stop.stop();
        start(Waiting::Exact, Some(soon), &stop).unwrap();
        assert!(Clock::new().now() < soon);
    }
}
