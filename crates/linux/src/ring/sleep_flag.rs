//! The wake-up protocol between a sleeping thread and the threads that wake it.
//!
//! ```text
//! sleeper   sets the flag ─► checks its queue once more ─► sleeps ─► clears the flag
//! waker     pushes ─► reads the flag ─► signals the eventfd
//! ```
//!
//! In every order of the two, either the sleeper sees the push or the waker sees the flag: each side writes, passes a
//! fence, then reads the other side's write. The eventfd itself is in [`super::Notifier`].

use super::sync::{AtomicBool, Ordering, fence};

/// A flag that is set while the thread sleeps.
#[derive(Debug)]
pub struct SleepFlag {
    sleeping: AtomicBool,
}

impl SleepFlag {
    /// A flag of a thread that is awake.
    pub fn new() -> Self {
        Self { sleeping: AtomicBool::new(false) }
    }

    /// Call in the sleeper before its last check of the queue.
    pub fn about_to_sleep(&self) {
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Call after waking. Returns true if the eventfd was or will be signalled.
    pub fn awake(&self) -> bool {
        !self.sleeping.swap(false, Ordering::SeqCst)
    }

    /// Call in the waker after a push. Returns true if the waker must signal; no other waker does for this sleep.
    pub fn is_to_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        // The load comes first, because a swap would take the cache line from the sleeper's core each time.
        self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst)
    }
}
