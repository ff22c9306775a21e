//! Model test of the ring: runs all interleavings of its threads, one after the other.
//!
//! This module compiles the wake-up protocol a second time with the atomics of `loom`, which tries every order of the
//! threads and every value that each may read. Queues and eventfd are models: a queue has the memory ordering of
//! [`rtrb`] (the index of the last push is released, then acquired), and an eventfd stays readable until it is read.
//!
//! The model watches block memory: concurrent access to one block by two threads fails the test. So does a thread that
//! sleeps for ever.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc as Shared, Mutex as Cell};

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::atomic::AtomicUsize;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

use self::sleep_flag::SleepFlag;
use self::sync::Ordering;
use super::{Block, Pool};
use crate::sys::memory::Region;

mod sync {
    pub use loom::sync::atomic::{AtomicBool, Ordering, fence};
}

// The same source file with other atomics, which is the purpose of this module.
#[allow(clippy::duplicate_mod)]
#[path = "sleep_flag.rs"]
mod sleep_flag;

/// A model of an eventfd.
struct Bell {
    rung: Mutex<bool>,
    readable: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self { rung: Mutex::new(false), readable: Condvar::new() }
    }

    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.readable.notify_one();
    }

    /// Sleeps until the eventfd is readable.
    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.readable.wait(rung).unwrap();
        }
    }

    fn read(&self) {
        *self.rung.lock().unwrap() = false;
    }
}

/// [`super::Notifier`] with the model of the eventfd.
struct Wake {
    sleeper: SleepFlag,
    bell: Bell,
}

impl Wake {
    fn new() -> Self {
        Self { sleeper: SleepFlag::new(), bell: Bell::new() }
    }

    fn wake(&self) {
        if self.sleeper.is_to_be_woken() {
            self.bell.ring();
        }
    }

    /// Sleeps unless there is something to do, like every loop of the engine.
    fn sleep_unless(&self, is_something: impl Fn() -> bool) {
        self.sleeper.about_to_sleep();
        if !is_something() {
            self.bell.wait();
        }
        if self.sleeper.awake() {
            self.bell.read();
        }
    }
}

/// A queue with room for all pushes of the test.
struct Queue<T> {
    /// The elements are outside the model; only the two indices order access to them.
    slots: Vec<Cell<Option<T>>>,
    touched: Vec<UnsafeCell<()>>,
    pushed: AtomicUsize,
    popped: AtomicUsize,
}

impl<T> Queue<T> {
    fn new(room: usize) -> Self {
        Self {
            slots: (0..room).map(|_| Cell::new(None)).collect(),
            touched: (0..room).map(|_| UnsafeCell::new(())).collect(),
            pushed: AtomicUsize::new(0),
            popped: AtomicUsize::new(0),
        }
    }

    fn push(&self, value: T) {
        let at = self.pushed.load(Ordering::Relaxed);
        let slot = at % self.slots.len();
        assert!(at - self.popped.load(Ordering::Acquire) < self.slots.len(), "a queue is full");
        self.touched[slot].with_mut(|_| ());
        *self.slots[slot].lock().unwrap() = Some(value);
        self.pushed.store(at + 1, Ordering::Release);
    }

    fn is_empty(&self) -> bool {
        self.popped.load(Ordering::Relaxed) == self.pushed.load(Ordering::Acquire)
    }

    fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let at = self.popped.load(Ordering::Relaxed);
        let slot = at % self.slots.len();
        self.touched[slot].with_mut(|_| ());
        let value = self.slots[slot].lock().unwrap().take();
        self.popped.store(at + 1, Ordering::Release);
        Some(value.expect("what was pushed is there"))
    }
}

/// Runs all interleavings with at most this many preemptions.
fn every_order(set_aside: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(set_aside);
    builder.check(body);
}

/// Takes this many elements from these queues, and sleeps whenever all are empty.
fn take_all(wake: &Wake, queues: &[Arc<Queue<u32>>], count: usize) -> Vec<u32> {
    let mut taken = Vec::new();
    while taken.len() < count {
        match queues.iter().find_map(|queue| queue.pop()) {
            Some(value) => taken.push(value),
            None => wake.sleep_unless(|| queues.iter().any(|queue| !queue.is_empty())),
        }
    }
    taken
}

#[test]
fn no_push_is_slept_through_in_any_order() {
    every_order(4, || {
        let (wake, queue) = (Arc::new(Wake::new()), Arc::new(Queue::new(2)));
        let pusher = {
            let (wake, queue) = (wake.clone(), queue.clone());
            thread::spawn(move || {
                for number in 0..2 {
                    queue.push(number);
                    wake.wake();
                }
            })
        };
        assert_eq!(take_all(&wake, &[queue], 2), [0, 1]);
        pusher.join().unwrap();
    });
}

#[test]
fn two_who_push_at_once_wake_the_one_who_sleeps() {
    every_order(3, || {
        let wake = Arc::new(Wake::new());
        let queues = [Arc::new(Queue::new(1)), Arc::new(Queue::new(1))];
        let pushers: Vec<_> = (0..2u32)
            .map(|number| {
                let (wake, queue) = (wake.clone(), queues[number as usize].clone());
                thread::spawn(move || {
                    queue.push(number);
                    wake.wake();
                })
            })
            .collect();
        let mut taken = take_all(&wake, &queues, 2);
        taken.sort_unstable();
        assert_eq!(taken, [0, 1]);
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
    });
}

/// Tests the model itself: it finds the order in which a thread that omits the last check never wakes.
#[test]
fn whoever_does_not_look_once_more_would_sleep_for_ever() {
    let found = Shared::new(AtomicBool::new(false));
    let never_woken = found.clone();
    every_order(2, move || {
        let (wake, queue) = (Arc::new(Wake::new()), Arc::new(Queue::new(1)));
        let pusher = {
            let (wake, queue) = (wake.clone(), queue.clone());
            thread::spawn(move || {
                queue.push(7);
                wake.wake();
            })
        };
        let was_empty = queue.is_empty();
        wake.sleeper.about_to_sleep();
        pusher.join().unwrap();
        if was_empty && !*wake.bell.rung.lock().unwrap() {
            never_woken.store(true, Ordering::SeqCst);
        }
    });
    assert!(found.load(Ordering::SeqCst));
}

/// Block memory, watched by the model.
struct Memory(Vec<UnsafeCell<()>>);

impl Memory {
    fn new(blocks: usize) -> Self {
        Self((0..blocks).map(|_| UnsafeCell::new(())).collect())
    }

    fn touch(&self, block: &Block) {
        self.0[block.number() as usize].with_mut(|_| ());
    }
}

/// One end of a queue, and the notifier of the thread there.
struct End {
    queue: Queue<Block>,
    wake: Wake,
}

impl End {
    fn new(room: usize) -> Self {
        Self { queue: Queue::new(room), wake: Wake::new() }
    }

    fn send(&self, block: Block) {
        self.queue.push(block);
        self.wake.wake();
    }

    /// Sleeps until a block arrives.
    fn receive(&self) -> Block {
        loop {
            match self.queue.pop() {
                Some(block) => return block,
                None => self.wake.sleep_unless(|| !self.queue.is_empty()),
            }
        }
    }
}

#[test]
fn a_block_is_with_one_thread_at_a_time_and_all_come_home() {
    const BLOCKS: usize = 2;
    const FILLED: usize = 3;
    let region = Shared::new(Region::new(BLOCKS << 20).unwrap());
    every_order(2, move || {
        let mut pool = Pool::new(region.clone(), 1 << 20, 0);
        assert_eq!(pool.blocks(), BLOCKS);
        let memory = Arc::new(Memory::new(BLOCKS));
        let (commands, returned) = (Arc::new(End::new(BLOCKS)), Arc::new(End::new(BLOCKS)));
        let writer = {
            let (commands, returned, memory) = (commands.clone(), returned.clone(), memory.clone());
            thread::spawn(move || {
                for _ in 0..FILLED {
                    let block = commands.receive();
                    memory.touch(&block);
                    returned.send(block);
                }
            })
        };
        for _ in 0..FILLED {
            // The real thread that fills blocks polls for returned blocks and never sleeps for one; here it may sleep.
            let block = pool.take().unwrap_or_else(|| {
                pool.put(returned.receive());
                pool.take().expect("one came back")
            });
            memory.touch(&block);
            commands.send(block);
        }
        while pool.free() < BLOCKS {
            pool.put(returned.receive());
        }
        writer.join().unwrap();
        assert!(returned.queue.is_empty() && commands.queue.is_empty());
    });
}
