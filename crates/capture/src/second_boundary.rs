//! Holds datagrams at a VDIF second boundary while the frame rate is unknown.
//!
//! ```text
//! second 0  … 3904 3905        3906   ◄─ overtaken
//! second 1              0 1 2        3 4 5 …
//!                       └── held ──┘
//! ```
//!
//! The number of frames in a second is known when the next second begins, and the indices of all later frames are
//! counted from there. So datagrams at such a boundary are held for a moment: the last frames of the second before may
//! have been overtaken, and without them the second would seem shorter than it is.

use crate::window::Window;
use fullbore_core::frame_index::{FrameIndexer, IndexResult};
use fullbore_time::Tai;

/// The number of datagrams that are held …
const MOST: usize = 64;

/// … or the time that they are held for.
const PATIENCE_NS: i64 = 20_000_000;

/// Datagrams held at a second boundary, in receive order.
#[derive(Default)]
pub struct SecondBoundary {
    held: Vec<Vec<u8>>,
    since: Option<Tai>,
}

impl SecondBoundary {
    /// Holds a datagram.
    pub fn hold(&mut self, datagram: &[u8], now: Tai) {
        self.since.get_or_insert(now);
        self.held.push(datagram.to_vec());
    }

    /// True if a datagram is held.
    pub fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns the datagrams for counting, if the wait for overtaken frames is over, or at once.
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

/// Learns the length of a second from a frame that was overtaken at its boundary, before that length is fixed.
pub fn learn_length<B>(
    count: &mut FrameIndexer,
    window: &Window<B>,
    (head, frame): (&[u8], &[u8]),
) {
    if let IndexResult::Frame { index, .. } = count.read(head, frame, head.len() + frame.len())
        && !window.is_out_of_window(index)
    {
        count.learn(head, frame);
    }
}
