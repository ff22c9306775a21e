//! The events of a recording for a subscriber that may be slow.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_engine::recorder::Event;

/// The most events that wait for a subscriber; more are only counted.
const MOST_WAITING: usize = 1000;

/// A queue of events between a recording and a subscriber. The recording never waits: newer progress replaces older, and
/// events that do not fit are counted. Clones are handles of the same queue.
#[derive(Clone, Debug, Default)]
pub struct Events(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Events that did not fit.
    unread: u64,
    ended: bool,
}

impl Events {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event without waiting for the subscriber.
    pub fn put(&self, event: Event) {
        let mut waiting = self.lock();
        let passing = matches!(event, Event::Progress(_));
        if passing && let Some(last @ Event::Progress(_)) = waiting.events.back_mut() {
            *last = event;
        } else if waiting.events.len() < MOST_WAITING {
            waiting.events.push_back(event);
        } else if !passing {
            waiting.unread += 1;
        }
        drop(waiting);
        self.0.news.notify_one();
    }

    /// Ends the queue: a subscriber gets the events that wait, and then `None`.
    pub fn end(&self) {
        self.lock().ended = true;
        self.0.news.notify_all();
    }

    /// Waits for events. Returns them with the number of those that did not fit; `None` after the end.
    pub fn take(&self) -> Option<(VecDeque<Event>, u64)> {
        self.take_within(Duration::MAX).unwrap_or_default()
    }

    /// The same, for at most this time: `Err(TimedOut)` if no event came. The inner `None` is the end.
    #[allow(clippy::type_complexity)]
    pub fn take_within(&self, time: Duration) -> Result<Option<(VecDeque<Event>, u64)>, TimedOut> {
        let empty = |waiting: &mut Waiting| waiting.events.is_empty() && !waiting.ended;
        let (lock, news) = (self.lock(), &self.0.news);
        let mut waiting = match time {
            Duration::MAX => news.wait_while(lock, empty).unwrap_or_else(PoisonError::into_inner),
            time => {
                let waited = news.wait_timeout_while(lock, time, empty);
                let (waiting, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                if timeout.timed_out() {
                    return Err(TimedOut);
                }
                waiting
            }
        };
        let events = std::mem::take(&mut waiting.events);
        let unread = std::mem::take(&mut waiting.unread);
        Ok((!events.is_empty()).then_some((events, unread)))
    }
}

/// No event came in the given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;

#[cfg(test)]
mod tests {
    use fullbore_engine::recorder::{Phase, Progress};

    use super::*;

    fn warning(number: usize) -> Event {
        Event::Warning { text: number.to_string() }
    }

    fn progress(seconds: f64) -> Event {
        Event::Progress(Progress {
            scan: "s_a".parse().unwrap(),
            phase: Phase::Recording,
            seconds,
            bytes: 0,
            durable_bytes: 0,
            streams: Vec::new(),
            members: Vec::new(),
            free_bytes: 0,
            seconds_left: None,
            seconds_until_full: None,
        })
    }

    #[test]
    fn whoever_reads_slowly_misses_progress_and_nothing_else() {
        let queue = Events::new();
        for number in 0..100 {
            queue.put(progress(number as f64));
            queue.put(progress(number as f64 + 0.5));
            queue.put(warning(number));
        }
        queue.end();
        let (events, unread) = queue.take().unwrap();
        assert_eq!((events.len(), unread), (200, 0));
        for (number, pair) in events.iter().collect::<Vec<_>>().chunks(2).enumerate() {
            let Event::Progress(progress) = pair[0] else { panic!("{:?}", pair[0]) };
            assert_eq!(progress.seconds, number as f64 + 0.5);
            assert!(matches!(pair[1], Event::Warning { text } if *text == number.to_string()));
        }
        assert!(queue.take().is_none());
    }

    #[test]
    fn what_nobody_reads_takes_no_memory_without_end_and_is_counted() {
        let queue = Events::new();
        for number in 0..MOST_WAITING + 7 {
            queue.put(warning(number));
            queue.put(progress(number as f64));
        }
        let (events, unread) = queue.take().unwrap();
        assert_eq!(events.len(), MOST_WAITING);
        assert_eq!(unread as usize, MOST_WAITING + 7 - MOST_WAITING / 2);
        queue.put(warning(1));
        assert_eq!(queue.take().map(|(events, unread)| (events.len(), unread)), Some((1, 0)));
    }
}
