//! Where a second ends of which nobody has said how long it is.
//!
//! ```text
//! second 0  … 3904 3905        3906   ◄─ overtaken
//! second 1              0 1 2        3 4 5 …
//!                       └── held ──┘
//! ```
//!
//! How many frames a second has is seen when the next one begins, and the places of all that follows are
//! counted from there. So what comes at such a border is held for a moment: the last frames of the second
//! before may have been overtaken, and without them it would be taken to be shorter than it is.

use fullbore_core::count::{Count, Reading};
use fullbore_core::time::Tai;
use fullbore_core::window::Window;

/// So many datagrams are held …
const MOST: usize = 64;

/// … or those of this time.
const PATIENCE_NS: i64 = 20_000_000;

/// Datagrams held at a border, in the order in which they came.
#[derive(Default)]
pub struct Border {
    held: Vec<Vec<u8>>,
    since: Option<Tai>,
}

impl Border {
    /// Holds a datagram.
    pub fn hold(&mut self, datagram: &[u8], now: Tai) {
        self.since.get_or_insert(now);
        self.held.push(datagram.to_vec());
    }

    /// Whether any is held.
    pub fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes the datagrams, to be counted now, if what was overtaken there has had its time, or gets none.
    pub fn take(&mut self, at_once: bool, now: Tai) -> Option<Vec<Vec<u8>>> {
        let waited = self.since.is_some_and(|since| now.since(since) >= PATIENCE_NS);
        let is_over = at_once || waited || self.held.len() >= MOST;
        if !self.is_held() || !is_over {
            return None;
        }
        self.since = None;
        Some(std::mem::take(&mut self.held))
    }
}

/// A frame that was overtaken at a border tells how long its second is, before that is fixed.
pub fn learn_length<B>(count: &mut Count, window: &Window<B>, (head, frame): (&[u8], &[u8])) {
    if let Reading::Frame { index, .. } = count.read(head, frame, head.len() + frame.len())
        && !window.is_far(index)
    {
        count.learn(head, frame);
    }
}
