//! Where a thread is put and how urgently it runs, and what came of asking for it.
//!
//! Nothing here is believed because a call succeeded: each thread asks, then reads back what the kernel says of it,
//! and that is what is told. A niceness, for one, is kept and does nothing against threads of another autogroup
//! ([`Autogroup`]).

use std::fs;
use std::io;
use std::path::PathBuf;

use fullbore_core::place::{Rank, Seat};
use serde::Serialize;

use crate::sys::sched;

/// What a thread asks for at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Posting {
    /// Cores to stay on; none: wherever the scheduler wants it.
    pub cpus: Vec<usize>,
    /// How urgently it runs.
    pub rank: Rank,
}

/// How a thread stands, as the kernel says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Its name.
    pub thread: String,
    /// Its number.
    pub id: i32,
    /// Cores that it may run on.
    pub cpus: Vec<usize>,
    /// How it is scheduled: `other`, `fifo`, `round-robin`, `batch`, `idle` or `deadline`.
    pub policy: &'static str,
    /// Its priority, if it is `fifo` or `round-robin`.
    pub priority: i32,
    /// Its niceness, if it is none of these.
    pub nice: i32,
    /// What it asked for and did not get.
    pub refused: Vec<String>,
}

impl Posting {
    /// One core, or none.
    pub fn on(cpu: Option<usize>) -> Self {
        Self { cpus: cpu.into_iter().collect(), rank: Rank::default() }
    }

    /// In a seat, at a rank.
    pub fn in_seat(seat: &Seat, rank: Rank) -> Self {
        Self { cpus: seat.cpus.clone(), rank }
    }

    /// Asks for it on behalf of the calling thread, and tells how that stands then. What is refused leaves the
    /// thread as it was.
    pub fn take_up(&self) -> Standing {
        let mut refused = Vec::new();
        if !self.cpus.is_empty()
            && let Err(error) = sched::stay_on(&self.cpus)
        {
            let cores = fullbore_core::place::in_words(self.cpus.iter().copied());
            refused.push(format!("to stay on {cores}: {error}"));
        }
        let first = self.rank.fifo.map(|priority| (priority, sched::be_first(priority)));
        if let Some((priority, Err(error))) = &first {
            refused.push(format!("SCHED_FIFO at {priority}: {error}"));
        }
        if !matches!(first, Some((_, Ok(()))))
            && let Some(nice) = self.rank.nice
            && let Err(error) = sched::be_nice(nice)
        {
            refused.push(format!("niceness {nice}: {error}"));
        }
        Standing { refused, ..Standing::of_this_thread() }
    }
}

impl Standing {
    /// The calling thread's.
    pub fn of_this_thread() -> Self {
        let treatment = sched::treatment();
        Self {
            thread: std::thread::current().name().unwrap_or_default().to_owned(),
            id: rustix::thread::gettid().as_raw_nonzero().get(),
            cpus: sched::allowed().unwrap_or_default(),
            policy: treatment.as_ref().map_or("not known", |it| policy_name(it.policy)),
            priority: treatment.as_ref().map_or(0, |it| it.priority),
            nice: treatment.as_ref().map_or(0, |it| it.nice),
            refused: Vec::new(),
        }
    }

    /// How urgently it runs, for people.
    pub fn urgency(&self) -> String {
        match (self.priority, self.nice) {
            (0, 0) => "as everybody else".to_owned(),
            (0, nice) => format!("nice {nice}"),
            (priority, _) => format!("{} {priority}", self.policy),
        }
    }
}

fn policy_name(policy: i32) -> &'static str {
    match policy {
        libc::SCHED_OTHER => "other",
        libc::SCHED_FIFO => "fifo",
        libc::SCHED_RR => "round-robin",
        libc::SCHED_BATCH => "batch",
        libc::SCHED_IDLE => "idle",
        libc::SCHED_DEADLINE => "deadline",
        _ => "not known",
    }
}

/// The niceness of all processes of this session together. Where the kernel groups by session
/// (`CONFIG_SCHED_AUTOGROUP`), a thread's own counts only within its group.
///
/// It is as it was before once this is dropped.
#[derive(Debug)]
pub struct Autogroup {
    file: PathBuf,
    before: i32,
    /// What it is now.
    pub nice: i32,
}

impl Autogroup {
    /// Asks for a niceness; `None` where processes are not grouped so, or have it already.
    pub fn raise(nice: i32) -> io::Result<Option<Self>> {
        Self::raise_in(PathBuf::from("/proc/self/autogroup"), nice)
    }

    fn raise_in(file: PathBuf, nice: i32) -> io::Result<Option<Self>> {
        let enabled = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
        let grouped = enabled.is_ok_and(|it| it.trim() == "1");
        let Some(before) = read(&file).filter(|&before| grouped && before > nice) else {
            return Ok(None);
        };
        fs::write(&file, nice.to_string())?;
        Ok(read(&file).map(|nice| Self { file, before, nice }))
    }
}

impl Drop for Autogroup {
    fn drop(&mut self) {
        // Nobody is hurt if that is refused: the group ends with its session.
        let _ = fs::write(&self.file, self.before.to_string());
    }
}

/// `/autogroup-609 nice 0`
fn read(file: &PathBuf) -> Option<i32> {
    fs::read_to_string(file).ok()?.trim().rsplit_once("nice ")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_a_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(work).join().unwrap()
    }

    #[test]
    fn what_a_thread_gets_is_what_the_kernel_says_of_it() {
        let last = *sched::allowed().unwrap().last().unwrap();
        let posting = Posting::on(Some(last));
        let standing = in_a_thread(move || {
            let standing = posting.take_up();
            assert_eq!(Standing::of_this_thread(), standing);
            standing
        });
        assert_eq!(standing.cpus, [last]);
        assert!(standing.refused.is_empty(), "{standing:?}");
    }

    #[test]
    fn a_core_that_is_not_there_is_told_as_refused() {
        let posting = Posting::on(Some(1000));
        let standing = in_a_thread(move || posting.take_up());
        assert_eq!(standing.cpus, sched::allowed().unwrap());
        assert!(standing.refused[0].contains("to stay on core 1000"), "{standing:?}");
    }

    #[test]
    fn a_thread_is_first_or_says_why_not() {
        let rank = Rank { fifo: Some(7), nice: Some(-3) };
        let standing = in_a_thread(move || Posting { cpus: vec![], rank }.take_up());
        match standing.policy {
            "fifo" => assert_eq!((standing.priority, standing.refused.len()), (7, 0)),
            _ => assert!(standing.refused[0].contains("SCHED_FIFO at 7"), "{standing:?}"),
        }
    }
}
