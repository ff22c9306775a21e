//! The queue of replies from a writer to a capture thread. A reply wakes the thread if it is parked.

use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use rtrb::{Consumer, PopError, Producer, PushError, RingBuffer};

use super::WriterReply;

/// A queue with room for this number of replies.
///
/// The thread that receives may call [`std::thread::park_timeout`] when it finds the queue empty: a reply, and the end
/// of the sender, wake it.
pub fn reply_queue(room: usize) -> (ReplySender, ReplyReceiver) {
    let (replies, taken) = RingBuffer::new(room);
    let receiver = Receiver::default();
    let sender = ReplySender { replies, receiver: WakeAtEnd(receiver.clone()) };
    (sender, ReplyReceiver { replies: taken, receiver })
}

/// The thread that receives, once it has looked into the queue.
type Receiver = Arc<OnceLock<Thread>>;

/// The writer's end.
#[derive(Debug)]
pub struct ReplySender {
    replies: Producer<WriterReply>,
    // Dropped after the queue, so that the receiver finds it abandoned.
    receiver: WakeAtEnd,
}

impl ReplySender {
    /// Sends a reply, and wakes the receiver. A reply without room is returned.
    // The reply is given back as it is, without a box.
    #[allow(clippy::result_large_err)]
    pub fn push(&mut self, reply: WriterReply) -> Result<(), PushError<WriterReply>> {
        self.replies.push(reply)?;
        self.receiver.wake();
        Ok(())
    }

    /// True if the receiver is gone.
    pub fn is_abandoned(&self) -> bool {
        self.replies.is_abandoned()
    }
}

/// The capture thread's end.
#[derive(Debug)]
pub struct ReplyReceiver {
    replies: Consumer<WriterReply>,
    receiver: Receiver,
}

impl ReplyReceiver {
    /// Takes the next reply, if there is one. The thread of the first call is the one that replies wake.
    pub fn pop(&mut self) -> Result<WriterReply, PopError> {
        self.receiver.get_or_init(std::thread::current);
        self.replies.pop()
    }
}

#[derive(Debug)]
struct WakeAtEnd(Receiver);

impl WakeAtEnd {
    fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}

impl Drop for WakeAtEnd {
    fn drop(&mut self) {
        self.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use fullbore_core::layout::Geometry;
    use uuid::Uuid;

    use super::*;
    use crate::ring::{Pool, StreamRef};
    use crate::sys::memory::Region;

    #[test]
    fn a_reply_and_the_end_of_the_writer_wake_the_parked_receiver() {
        let (mut sender, mut replies) = reply_queue(1);
        let (parked, parks) = mpsc::channel();
        let receiver = std::thread::spawn(move || {
            let since = Instant::now();
            let mut taken = 0;
            while !replies.replies.is_abandoned() {
                taken += usize::from(replies.pop().is_ok());
                parked.send(()).unwrap();
                std::thread::park_timeout(Duration::from_secs(60));
            }
            (taken + usize::from(replies.pop().is_ok()), since.elapsed())
        });
        parks.recv().unwrap();
        let mut pool = Pool::new(Arc::new(Region::new(4096).unwrap()), 4096, 0);
        let geometry = Geometry { frame_bytes: 1, block_bytes: 4096, chunk_blocks: 1 };
        let directory = "s_a".to_owned();
        let stream_ref = Arc::new(StreamRef { scan: Uuid::nil(), number: 0, directory, geometry });
        let block = pool.take().unwrap();
        assert!(sender.push(WriterReply::Written { block, stream_ref, bytes: 1 }).is_ok());
        parks.recv_timeout(Duration::from_secs(30)).expect("the reply wakes it");
        drop(sender);
        let (taken, time) = receiver.join().unwrap();
        assert!(taken == 1 && time < Duration::from_secs(30), "{taken} in {time:?}");
    }
}
