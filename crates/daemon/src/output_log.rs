//! What a process prints, kept for clients that follow it over the network.
//!
//! Entries are numbered. A log keeps the newest ones, up to [`MOST_BYTES`]. The process of a job waits while a client still
//! has to read the oldest entry, so an answer of any length arrives whole. The recorder of a recording never waits.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

/// The most bytes of entries that a log keeps.
pub const MOST_BYTES: usize = 4 << 20;

/// How long the process of a job waits for its first client.
const UNTIL_FOLLOWED: Duration = Duration::from_secs(10);

/// The most bytes that a client takes at once.
const MOST_TAKEN: usize = 256 << 10;

/// What a process printed, or how it ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry<'a> {
    /// A part of its standard output.
    Out(&'a str),
    /// A line of its standard error.
    Err(&'a str),
    /// The work that is done, and all work.
    Progress(u64, u64),
    /// Its exit code: 128 and the number of a signal, if one ended it. The last entry.
    Exit(i32),
}

/// The output of a process. Clones are handles of the same.
#[derive(Clone, Debug)]
pub struct OutputLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    kept: Mutex<Kept>,
    changed: Condvar,
    begun: Instant,
}

#[derive(Debug, Default)]
struct Kept {
    /// True if the process waits for its reader.
    waits: bool,
    entries: VecDeque<Arc<str>>,
    /// The number of the oldest entry that is kept.
    first: u64,
    bytes: usize,
    /// The number up to which a client has read.
    read: u64,
    followers: usize,
    was_followed: bool,
    is_over: bool,
}

impl OutputLog {
    /// A log that is empty. With `waits`, its process waits for its reader.
    pub fn new(waits: bool) -> Self {
        let kept = Mutex::new(Kept { waits, ..Kept::default() });
        Self(Arc::new(Inner { kept, changed: Condvar::new(), begun: Instant::now() }))
    }

    /// A log of a process that began so long ago that no client will come.
    #[cfg(test)]
    pub fn of_past() -> Option<Self> {
        let begun = Instant::now().checked_sub(UNTIL_FOLLOWED)?;
        Some(Self(Arc::new(Inner { kept: Mutex::default(), changed: Condvar::new(), begun })))
    }

    /// Adds an entry. The oldest ones go if there are too many.
    pub fn put(&self, entry: &Entry<'_>) {
        // Texts and numbers always become JSON.
        let line = serde_json::to_string(entry).unwrap_or_default() + "\n";
        self.put_line(&line);
        if let Entry::Exit(_) = entry {
            self.lock().is_over = true;
            self.0.changed.notify_all();
        }
    }

    /// Adds a line that is an entry already.
    pub fn put_line(&self, line: &str) {
        let mut kept = self.lock();
        while kept.waits && kept.bytes + line.len() > MOST_BYTES {
            if kept.first < kept.read {
                kept.drop_oldest();
            } else if kept.is_awaited(self.0.begun) {
                let waited = self.0.changed.wait_timeout(kept, Duration::from_secs(1));
                kept = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                break;
            }
        }
        kept.bytes += line.len();
        kept.entries.push_back(line.into());
        while kept.bytes > MOST_BYTES && kept.entries.len() > 1 {
            kept.drop_oldest();
        }
    }

    /// Nothing more will come.
    pub fn end(&self) {
        self.lock().is_over = true;
        self.0.changed.notify_all();
    }

    /// Forgets all entries but the last one, which says how the process ended.
    pub fn keep_last(&self) {
        let mut kept = self.lock();
        while kept.entries.len() > 1 {
            kept.drop_oldest();
        }
    }

    /// The process waits for no client from now on.
    pub fn wait_no_more(&self) {
        self.lock().waits = false;
        self.0.changed.notify_all();
    }

    /// Follows the log from its oldest entry on.
    pub fn follow(&self) -> Follower {
        let mut kept = self.lock();
        (kept.followers, kept.was_followed) = (kept.followers + 1, true);
        Follower { log: self.clone(), next: kept.first }
    }

    /// True if nobody follows, and more may come.
    pub fn is_left(&self) -> bool {
        let kept = self.lock();
        kept.followers == 0 && !kept.is_over
    }

    /// True if somebody has followed.
    pub fn was_followed(&self) -> bool {
        self.lock().was_followed
    }

    /// True if more may come, and nobody has followed for so long that nobody will.
    pub fn is_ignored(&self) -> bool {
        let kept = self.lock();
        kept.followers == 0 && !kept.is_over && !kept.may_be_followed(self.0.begun)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    /// True if a client will read the oldest entry.
    fn is_awaited(&self, begun: Instant) -> bool {
        !self.entries.is_empty() && (self.followers > 0 || self.may_be_followed(begun))
    }

    /// True if the first client may still come.
    fn may_be_followed(&self, begun: Instant) -> bool {
        !self.was_followed && begun.elapsed() < UNTIL_FOLLOWED
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            (self.bytes, self.first) = (self.bytes - oldest.len(), self.first + 1);
        }
    }
}

/// A client that follows a log.
#[derive(Debug)]
pub struct Follower {
    log: OutputLog,
    next: u64,
}

/// What a client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// New entries, a line each.
    Lines(String),
    /// There is nothing new yet.
    NotYet,
    /// All was taken, and nothing more will come.
    Over,
}

impl Follower {
    /// Takes what is new.
    pub fn take(&mut self) -> Taken {
        let mut kept = self.log.lock();
        // Entries that were dropped before they were read are left out.
        let skip = self.next.saturating_sub(kept.first);
        let mut text = String::new();
        let mut taken = 0;
        for entry in kept.entries.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
            if !text.is_empty() && text.len() + entry.len() > MOST_TAKEN {
                break;
            }
            text += entry;
            taken += 1;
        }
        if taken == 0 {
            return if kept.is_over { Taken::Over } else { Taken::NotYet };
        }
        self.next = self.next.max(kept.first) + taken;
        kept.read = kept.read.max(self.next);
        self.log.0.changed.notify_all();
        Taken::Lines(text)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.log.lock().followers -= 1;
        self.log.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn lines(follower: &mut Follower) -> String {
        let mut all = String::new();
        loop {
            match follower.take() {
                Taken::Lines(text) => all += &text,
                Taken::NotYet => thread::sleep(Duration::from_millis(1)),
                Taken::Over => return all,
            }
        }
    }

    #[test]
    fn entries_are_lines_of_json_up_to_the_exit_code() {
        let log = OutputLog::new(true);
        let mut follower = log.follow();
        assert_eq!(follower.take(), Taken::NotYet);
        for entry in [Entry::Out("a\n"), Entry::Err("b"), Entry::Progress(1, 2), Entry::Exit(3)] {
            log.put(&entry);
        }
        let expected = "{\"out\":\"a\\n\"}\n{\"err\":\"b\"}\n{\"progress\":[1,2]}\n{\"exit\":3}\n";
        assert_eq!(lines(&mut follower), expected);
        assert_eq!(lines(&mut log.follow()), expected, "a later client gets the same");
    }

    #[test]
    fn an_answer_of_any_length_arrives_whole_at_a_slow_client() {
        let log = OutputLog::new(true);
        let mut follower = log.follow();
        let part = "x".repeat(100 << 10);
        let (told, count) = (log.clone(), 3 * MOST_BYTES / part.len());
        let teller = thread::spawn(move || {
            (0..count).for_each(|_| told.put(&Entry::Out(&part)));
            told.put(&Entry::Exit(0));
        });
        let got = lines(&mut follower);
        teller.join().unwrap();
        assert_eq!(got.lines().count(), count + 1);
        assert!(log.lock().bytes <= MOST_BYTES);
    }

    #[test]
    fn a_process_waits_for_no_client_that_is_gone() {
        let log = OutputLog::new(true);
        let follower = log.follow();
        assert!(!log.is_left());
        drop(follower);
        assert!(log.is_left());
        let part = "x".repeat(1 << 20);
        (0..10).for_each(|_| log.put(&Entry::Out(&part)));
        assert!(log.lock().bytes <= MOST_BYTES);
        log.end();
        assert!(!log.is_left());
    }

    #[test]
    fn a_process_that_waits_for_a_client_goes_on_when_it_is_told_to() {
        let log = OutputLog::new(true);
        let mut follower = log.follow();
        let told = log.clone();
        let teller = thread::spawn(move || {
            let part = "x".repeat(1 << 20);
            (0..10).for_each(|_| told.put(&Entry::Out(&part)));
        });
        let end = Instant::now() + Duration::from_secs(20);
        while log.lock().entries.len() < 3 {
            assert!(Instant::now() < end);
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!teller.is_finished());
        log.wait_no_more();
        teller.join().unwrap();
        assert!(log.lock().bytes <= MOST_BYTES && matches!(follower.take(), Taken::Lines(_)));
        log.put(&Entry::Exit(0));
        log.keep_last();
        assert_eq!(lines(&mut log.follow()), "{\"exit\":0}\n");
    }

    #[test]
    fn a_log_that_nobody_followed_in_time_is_ignored() {
        let Some(log) = OutputLog::of_past() else { return };
        assert!(log.is_ignored() && !OutputLog::new(true).is_ignored());
        let follower = log.follow();
        assert!(!log.is_ignored());
        drop(follower);
        assert!(log.is_ignored());
    }

    #[test]
    fn a_log_that_does_not_wait_keeps_the_newest_entries() {
        let log = OutputLog::new(false);
        let mut follower = log.follow();
        let part = "x".repeat(1 << 20);
        for number in 0..10 {
            log.put(&Entry::Out(&format!("{number}{part}")));
        }
        log.end();
        let got = lines(&mut follower);
        let numbers: Vec<&str> = got.lines().map(|line| &line[8..9]).collect();
        assert_eq!(numbers, ["7", "8", "9"]);
    }
}
