//! Alerts: what is wrong at the station is told to a web address, or to a program.
//!
//! ```text
//! Status, 5 times a second ──► problems ──► Tracker: begins, again, ends ──► queue ──► webhook, command
//!                                                                          bounded     a thread for each alert
//! ```
//!
//! Nothing waits for a receiver: if it is slow, notices wait in a queue of [`LONGEST_QUEUE`], and the oldest are dropped
//! and counted.

mod deliver;
pub mod history;
pub mod problems;
pub mod tracker;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use self::history::History;
use self::problems::Problem;
use self::tracker::{Change, Tracker};
use crate::status::Status;

/// Notices that wait for a receiver.
pub const LONGEST_QUEUE: usize = 100;

/// How long a receiver may take, if nothing else is said.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Tries to deliver a notice, with [`PAUSES`] between them.
pub const TRIES: usize = 3;

/// The pauses before the second and the third try.
pub const PAUSES: [Duration; TRIES - 1] = [Duration::from_secs(2), Duration::from_secs(10)];

/// The most words of a command.
pub const MOST_WORDS: usize = 20;

/// A kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Frames of a stream are lost.
    Loss,
    /// A member of the store has failed, or does not answer.
    Member,
    /// A recorder has ended with an error.
    Recorder,
    /// The disk set will be full soon.
    Space,
    /// A schedule is not recorded.
    Schedule,
    /// A transfer of the queue failed, the queue does not run, or the listener for transfers has ended.
    Transfer,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Loss, Self::Member, Self::Recorder, Self::Space, Self::Schedule, Self::Transfer];

    /// Its name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Loss => "loss",
            Self::Member => "member",
            Self::Recorder => "recorder",
            Self::Space => "space",
            Self::Schedule => "schedule",
            Self::Transfer => "transfer",
        }
    }
}

/// Who is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A web address, which gets each notice as JSON by POST.
    Webhook(String),
    /// A program, which gets each notice as JSON on its standard input.
    Command {
        /// The program.
        program: PathBuf,
        /// Its arguments.
        words: Vec<String>,
    },
}

/// Who is told about which problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// Its name.
    pub name: String,
    /// The kinds of problems.
    pub on: BTreeSet<Kind>,
    /// Who is told.
    pub target: Target,
    /// How long the receiver may take for a notice.
    pub timeout: Duration,
    /// The time after which a problem that lasts is told again. None: once.
    pub repeat: Option<Duration>,
}

/// What a receiver is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Notice {
    /// The alert.
    pub alert: String,
    /// The host of the station.
    pub host: String,
    /// The time.
    pub time: fullbore_time::Tai,
    /// What happened to the problem.
    pub state: Change,
    /// The problem.
    #[serde(flatten)]
    pub problem: Problem,
    /// Notices before this one that were dropped, because the receiver was too slow.
    pub dropped: u64,
}

/// Receives the notices of one alert.
struct Receiver {
    alert: Alert,
    tracker: Tracker,
    queue: Arc<Queue>,
}

/// The alerts in force. Clones are handles of the same.
#[derive(Clone, Default)]
pub struct Alerts {
    receivers: Arc<Mutex<Vec<Receiver>>>,
    history: History,
}

impl Alerts {
    /// The problems that last, and those that are over.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Replaces the alerts. Those that stay keep what they have told.
    pub fn set(&self, alerts: &[Alert]) -> io::Result<()> {
        let mut receivers = self.receivers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut fresh = Vec::new();
        for alert in alerts {
            let known = receivers.iter().position(|it| it.alert == *alert);
            fresh.push(match known {
                Some(place) => receivers.remove(place),
                None => Receiver::start(alert.clone())?,
            });
        }
        // The threads of the others end, once their queue is empty.
        receivers.iter().for_each(|gone| gone.queue.close());
        *receivers = fresh;
        Ok(())
    }

    /// Looks at the state of the station.
    pub fn look(&self, status: &Status, now: Instant) {
        let all = problems::of(status);
        self.history.step(now, status.time, &all);
        let mut receivers = self.receivers.lock().unwrap_or_else(PoisonError::into_inner);
        for Receiver { alert, tracker, queue } in receivers.iter_mut() {
            let own = all.iter().filter(|it| alert.on.contains(&it.kind)).cloned();
            for (state, problem) in tracker.step(now, own, alert.repeat) {
                let (name, host) = (alert.name.clone(), status.host.clone());
                let notice =
                    Notice { alert: name, host, time: status.time, state, problem, dropped: 0 };
                queue.push(notice);
            }
        }
    }
}

impl Receiver {
    fn start(alert: Alert) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let (own, of) = (queue.clone(), alert.clone());
        let deliver = move || {
            while let Some(notice) = own.next() {
                deliver::with_retries(&of, &notice, &PAUSES);
            }
        };
        thread::Builder::new().name("alert".into()).spawn(deliver)?;
        Ok(Self { alert, tracker: Tracker::default(), queue })
    }
}

/// Notices that wait.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    notices: VecDeque<Notice>,
    dropped: u64,
    closed: bool,
}

impl Queue {
    fn push(&self, notice: Notice) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.notices.len() == LONGEST_QUEUE {
            waiting.notices.pop_front();
            waiting.dropped += 1;
        }
        waiting.notices.push_back(notice);
        self.changed.notify_one();
    }

    fn close(&self) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_one();
    }

    /// The next one, once there is one. `None` after the last one.
    fn next(&self) -> Option<Notice> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = |waiting: &mut Waiting| waiting.notices.is_empty() && !waiting.closed;
        let waited = self.changed.wait_while(waiting, idle);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner);
        let mut notice = waiting.notices.pop_front()?;
        notice.dropped = std::mem::take(&mut waiting.dropped);
        Some(notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_receiver_loses_the_oldest_notices_and_is_told_how_many() {
        let queue = Queue::default();
        let problem = |text: String| Problem { kind: Kind::Loss, subject: "s".into(), text };
        for number in 0..LONGEST_QUEUE + 7 {
            queue.push(Notice {
                alert: "a".into(),
                host: "h".into(),
                time: fullbore_time::Tai::from_unix_ns(0),
                state: Change::Begins,
                problem: problem(number.to_string()),
                dropped: 0,
            });
        }
        queue.close();
        let first = queue.next().unwrap();
        assert_eq!((first.problem.text.as_str(), first.dropped), ("7", 7));
        let rest: Vec<Notice> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(rest.len(), LONGEST_QUEUE - 1);
        assert!(rest.iter().all(|it| it.dropped == 0));
    }
}
