//! The word between one who sleeps and those who wake him.
//!
//! ```text
//! sleeper   says that he sleeps ─► looks at his queue once more ─► sleeps ─► says that he is awake
//! waker     pushes ─► looks whether he sleeps ─► rings the bell
//! ```
//!
//! In whichever order the two run, either the sleeper sees the push or the waker sees that he sleeps: each writes, then
//! there is a fence, then each reads what the other has written. The bell itself is [`super::Wake`]'s.

use super::sync::{AtomicBool, Ordering, fence};

/// Whether somebody sleeps.
#[derive(Debug)]
pub struct Sleeper {
    sleeping: AtomicBool,
}

impl Sleeper {
    /// One who is awake.
    pub fn new() -> Self {
        Self { sleeping: AtomicBool::new(false) }
    }

    /// Said by the sleeper before it looks at its queue for the last time.
    pub fn about_to_sleep(&self) {
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Said by the sleeper when it runs again, whoever woke it. True if the bell was rung for it, or is about to be.
    pub fn awake(&self) -> bool {
        !self.sleeping.swap(false, Ordering::SeqCst)
    }

    /// Asked by a waker after it pushed. True if it is to ring the bell, which nobody else does for this sleep.
    pub fn is_to_be_woken(&self) -> bool {
        fence(Ordering::SeqCst);
        // Looked at first, since a swap would take the line from the sleeper's core each time.
        self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst)
    }
}
