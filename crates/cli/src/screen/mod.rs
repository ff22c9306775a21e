//! What a recording shows while it runs: a table that redraws itself, or a line of JSON an event.
//!
//! ```text
//! recorder ──► queue ──► a thread ──► sheet (lines, and the picture below them)
//! ```
//!
//! A terminal or a pipe may stand still: somebody has typed Ctrl-S, a connection is slow, a reader is busy.
//! A recording never waits for that. Events wait in a queue instead, in which newer progress takes the place
//! of older, so whoever reads slowly misses progress and nothing else.

mod picture;
mod sheet;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context;
use fullbore_engine::recorder::Event;

use crate::output::Output;
use sheet::Sheet;

/// Events that wait for whoever reads them; more are only counted. The scans themselves tell of all.
const MOST_WAITING: usize = 1000;

/// Where events go.
pub struct Screen {
    queue: Arc<Queue>,
    painter: Option<JoinHandle<()>>,
}

impl Screen {
    /// A live table if a person is watching, else lines.
    pub fn new(output: Output, quiet: bool) -> anyhow::Result<Self> {
        let queue = Arc::new(Queue::default());
        let read = queue.clone();
        let paint = move || {
            let mut sheet = Sheet::new(output, quiet);
            while let Some((events, unread)) = read.take() {
                events.iter().for_each(|event| sheet.show(event));
                if unread > 0 {
                    sheet.unread(unread);
                }
            }
            sheet.clear();
        };
        let painter = std::thread::Builder::new().name("screen".into()).spawn(paint);
        Ok(Self { queue, painter: Some(painter.context("starting the thread of the screen")?) })
    }

    /// Shows an event, and waits for nobody.
    pub fn event(&mut self, event: &Event) {
        self.queue.put(event.clone());
    }

    /// Shows what is left, and takes the table away.
    pub fn end(&mut self) {
        self.queue.end();
        if let Some(painter) = self.painter.take() {
            // What it panicked of has been told by itself.
            let _ = painter.join();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.end();
    }
}

/// Events on their way to whoever reads them.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    news: Condvar,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Events for which there was no room.
    unread: u64,
    ended: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, event: Event) {
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
        self.news.notify_one();
    }

    fn end(&self) {
        self.lock().ended = true;
        self.news.notify_one();
    }

    /// What waits, and how many events had no room; nothing once it has ended and all was taken.
    fn take(&self) -> Option<(VecDeque<Event>, u64)> {
        let empty = |waiting: &mut Waiting| waiting.events.is_empty() && !waiting.ended;
        let mut waiting =
            self.news.wait_while(self.lock(), empty).unwrap_or_else(PoisonError::into_inner);
        let events = std::mem::take(&mut waiting.events);
        let unread = std::mem::take(&mut waiting.unread);
        (!events.is_empty()).then_some((events, unread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(number: usize) -> Event {
        Event::Warning { text: number.to_string() }
    }

    fn progress(seconds: f64) -> Event {
        Event::Progress(picture::tests::progress(seconds, &[], &[]))
    }

    #[test]
    fn whoever_reads_slowly_misses_progress_and_nothing_else() {
        let queue = Queue::default();
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
        let queue = Queue::default();
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
