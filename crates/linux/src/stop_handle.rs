//! Stops a recording, or other long work, from another thread.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Stop requests after which the recorder exits without waiting for stalled members.
pub const LEAVE: u8 = 3;

/// Stop requests that abort a recording.
pub const ABORT: u8 = 2;

/// A handle that ends a recording, or other long work, from outside, for example on a signal.
#[derive(Debug, Default)]
pub struct StopHandle {
    stop_requests: AtomicU8,
    /// The end of the last scan, if it is before the planned end. A waiter sleeps on this lock.
    end_by: Mutex<Option<Instant>>,
    requested: Condvar,
}

impl StopHandle {
    /// Requests an end after all held data is written. The second request aborts. The third exits although a member
    /// does not respond; `recover` then handles the scans that are not sealed.
    pub fn stop(&self) {
        let more = |requested: u8| Some((requested + 1).min(LEAVE));
        let _ = self.stop_requests.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more);
        self.wake();
    }

    /// Requests an end after all held data is written, however often it is called: it never aborts.
    pub fn stop_once(&self) {
        self.stop_requests.fetch_max(1, Ordering::SeqCst);
        self.wake();
    }

    /// Requests an end at once. Held data is counted and dropped.
    pub fn abort(&self) {
        self.stop_requests.fetch_max(ABORT, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        // A waiter that has just found no request holds the lock until it sleeps.
        drop(self.end_by.lock());
        self.requested.notify_all();
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

    /// True if an end was requested.
    pub fn is_requested(&self) -> bool {
        self.stop_requests() > 0
    }

    /// Waits this long, or until an end is requested. Returns true if it was requested.
    pub fn wait(&self, most: Duration) -> bool {
        let lock = self.end_by.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.requested.wait_timeout_while(lock, most, |_| !self.is_requested());
        self.is_requested()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_may_be_repeated_aborts_nothing_and_withdraws_no_abort() {
        let stop = StopHandle::default();
        (0..3).for_each(|_| stop.stop_once());
        assert_eq!(stop.stop_requests(), 1);
        stop.stop();
        stop.stop_once();
        assert_eq!(stop.stop_requests(), ABORT);
    }

    #[test]
    fn a_stop_request_ends_a_wait_at_once() {
        let stop = StopHandle::default();
        assert!(!stop.wait(Duration::from_millis(1)), "nothing was requested");
        let since = Instant::now();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| stop.wait(Duration::from_secs(60)));
            stop.stop();
            assert!(waiter.join().unwrap());
        });
        assert!(stop.wait(Duration::from_secs(60)), "it was requested before");
        assert!(
            since.elapsed() < Duration::from_secs(30),
            "the waits lasted {:?}",
            since.elapsed()
        );
    }
}
