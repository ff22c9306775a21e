//! The queue behind `error?`: what went wrong apart from the answers to commands.

use std::collections::VecDeque;

use fullbore_time::Tai;

use crate::reply::{Reply, sentence};
use crate::station::Problem;
use crate::vex_time;

/// The most errors that wait. A newer one replaces the oldest.
pub(super) const MOST_ERRORS: usize = 100;

/// The queue. Equal errors are one, with a count.
#[derive(Debug, Default)]
pub(super) struct ErrorQueue(VecDeque<Queued>);

#[derive(Debug)]
struct Queued {
    text: String,
    first: Tai,
    last: Tai,
    count: u64,
}

impl ErrorQueue {
    /// Adds what a station reported.
    pub(super) fn take(&mut self, problems: Vec<Problem>) {
        for Problem { at, text } in problems {
            let text = sentence(&text);
            match self.0.iter_mut().find(|it| it.text == text) {
                Some(known) => (known.last, known.count) = (at, known.count + 1),
                None => {
                    if self.0.len() == MOST_ERRORS {
                        self.0.pop_front();
                    }
                    self.0.push_back(Queued { text, first: at, last: at, count: 1 });
                }
            }
        }
    }

    /// The answer to `error?`. If `takes`, the error leaves the queue.
    pub(super) fn answer(&mut self, takes: bool) -> Reply {
        let reply = match self.0.front() {
            None => Reply::done().with_all([""; 5]),
            Some(Queued { text, first, last, count }) => {
                let times = [vex_time::to_text(*first), vex_time::to_text(*last)];
                Reply::done().with("-1").with(text.clone()).with_all(times).with(count.to_string())
            }
        };
        if takes {
            self.0.pop_front();
        }
        reply
    }

    /// The text and the time of the oldest error.
    pub(super) fn oldest(&self) -> Option<(&str, Tai)> {
        self.0.front().map(|it| (it.text.as_str(), it.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(second: i64, text: &str) -> Problem {
        Problem { at: Tai(second * 1_000_000_000), text: text.to_owned() }
    }

    #[test]
    fn equal_errors_are_counted_and_the_queue_is_bounded() {
        let mut queue = ErrorQueue::default();
        queue.take(vec![problem(1, "a: b"), problem(2, "c"), problem(3, "a: b")]);
        let told = queue.answer(false).fields;
        assert_eq!((told[1].as_str(), told[4].as_str()), ("a. b", "2"));
        assert_eq!(queue.answer(true).fields, told);
        assert_eq!(queue.oldest().unwrap().0, "c");
        queue.take((0..500).map(|number| problem(number, &format!("e{number}"))).collect());
        assert_eq!(queue.0.len(), MOST_ERRORS);
        assert_eq!(queue.oldest().unwrap().0, "e400");
    }
}
