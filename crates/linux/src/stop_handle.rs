//! Stops a recording, or a long check, from another thread.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Stop requests after which the recorder exits without waiting for stalled members.
pub const LEAVE: u8 = 3;

/// Stop requests that abort a recording.
pub const ABORT: u8 = 2;

/// A handle that ends a recording from outside, for example on a signal.
#[derive(Debug, Default)]
pub struct StopHandle {
    stop_requests: AtomicU8,
    /// The end of the last scan, if it is before the planned end.
    end_by: Mutex<Option<Instant>>,
}

impl StopHandle {
    /// Requests an end after all held data is written. The second request aborts. The third exits although a member
    /// does not respond; `recover` then handles the scans that are not sealed.
    pub fn stop(&self) {
        let more = |requested: u8| Some((requested + 1).min(LEAVE));
        let _ = self.stop_requests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
    }

    /// Requests an end at once. Held data is counted and dropped.
    pub fn abort(&self) {
        self.stop_requests.fetch_max(ABORT, Ordering::SeqCst);
    }

    /// Ends the last scan at this time, as if it had reached its limit; `None` restores the planned end.
    pub fn end_by(&self, at: Option<Instant>) {
        *self.end_by.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// True if the end set by [`end_by`](Self::end_by) has passed.
    pub fn is_to_end(&self) -> bool {
        let end_by = *self.end_by.lock().unwrap_or_else(PoisonError::into_inner);
        end_by.is_some_and(|at| Instant::now() >= at)
    }

    /// The number of stop requests: 0, 1 (stop), 2 (abort) or 3 (exit).
    pub fn stop_requests(&self) -> u8 {
        self.stop_requests.load(Ordering::SeqCst)
    }
}
