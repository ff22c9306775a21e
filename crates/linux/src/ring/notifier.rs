//! An eventfd doorbell: wakes a thread that sleeps on a file descriptor, at no cost while it is awake.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use super::sleep_flag::SleepFlag;

/// An eventfd that is written only while the flag of the other side says that it sleeps (`sleep_flag`).
///
/// The sleeper calls [`Notifier::about_to_sleep`], checks its queue once more, and only then waits on the descriptor.
/// The waker pushes first and then calls [`Notifier::wake`]. In every order of the two, either the sleeper sees the
/// push or the waker sees the flag.
#[derive(Debug)]
pub struct Notifier {
    descriptor: OwnedFd,
    sleeper: SleepFlag,
}

impl Notifier {
    /// A new notifier that is not signalled.
    pub fn new() -> io::Result<Self> {
        let descriptor = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { descriptor, sleeper: SleepFlag::new() })
    }

    /// Call in the sleeper before its last check of the queue.
    pub fn about_to_sleep(&self) {
        self.sleeper.about_to_sleep();
    }

    /// Call in the sleeper after every wake-up, for any cause.
    pub fn awake(&self) {
        if self.sleeper.awake() {
            // The waker took the flag, so it writes: this read clears the count, or the next wait finds it.
            let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        }
    }

    /// Call in the waker after a push.
    pub fn wake(&self) {
        if self.sleeper.is_to_be_woken() {
            // A write fails only when the count is full, and then the descriptor is readable already.
            let _ = rustix::io::write(&self.descriptor, &1u64.to_ne_bytes());
        }
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn no_push_is_slept_through() {
        let wake = Arc::new(Notifier::new().unwrap());
        let (mut push, mut pop) = rtrb::RingBuffer::<u32>::new(4);
        let waker = wake.clone();
        let producer = std::thread::spawn(move || {
            for n in 0..20_000 {
                while push.push(n).is_err() {
                    std::thread::yield_now();
                }
                waker.wake();
            }
        });
        let mut expected = 0;
        while expected < 20_000 {
            if let Ok(n) = pop.pop() {
                assert_eq!(n, expected);
                expected += 1;
                continue;
            }
            wake.about_to_sleep();
            if pop.is_empty() {
                let timeout = rustix::event::Timespec { tv_sec: 5, tv_nsec: 0 };
                let mut set = [PollFd::new(&*wake, PollFlags::IN)];
                let ready = poll(&mut set, Some(&timeout)).unwrap();
                assert_eq!(ready, 1, "slept for five seconds with {expected} received");
            }
            wake.awake();
        }
        producer.join().unwrap();
    }
}
