//! CPU affinity and scheduling priority of a thread: the request, and the state that the kernel reports.
//!
//! A successful call is no proof. Each thread makes its request, reads back the state that the kernel reports, and
//! reports that state. A niceness, for example, is stored but has no effect against threads of another autogroup
//! ([`sessions_are_groups`]).

use fullbore_core::affinity::{CpuAssignment, ThreadPriority};
use serde::Serialize;

use crate::sys::sched;

/// The configuration that a thread requests at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadConfig {
    /// Cores to run on; empty: any core.
    pub cpus: Vec<usize>,
    /// The priority.
    pub priority: ThreadPriority,
}

/// The status of a thread, as the kernel reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ThreadStatus {
    /// The name.
    pub thread: String,
    /// The thread id.
    pub id: i32,
    /// The cores that it may run on.
    pub cpus: Vec<usize>,
    /// The scheduling policy: `other`, `fifo`, `round-robin`, `batch`, `idle` or `deadline`.
    pub policy: &'static str,
    /// The priority, for `fifo` and `round-robin`.
    pub priority: i32,
    /// The niceness, for the other policies.
    pub nice: i32,
    /// The requests that the kernel refused.
    pub refused: Vec<String>,
}

impl ThreadConfig {
    /// A configuration for one core, or for any core.
    pub fn on(cpu: Option<usize>) -> Self {
        Self { cpus: cpu.into_iter().collect(), priority: ThreadPriority::default() }
    }

    /// A configuration of a CPU assignment and a priority.
    pub fn assigned(seat: &CpuAssignment, rank: ThreadPriority) -> Self {
        Self { cpus: seat.cpus.clone(), priority: rank }
    }

    /// Applies the configuration to the calling thread and returns the resulting status. A refused request leaves the
    /// thread unchanged.
    pub fn apply(&self) -> ThreadStatus {
        let mut refused = Vec::new();
        if !self.cpus.is_empty()
            && let Err(error) = sched::stay_on(&self.cpus)
        {
            let cores = fullbore_core::affinity::in_words(self.cpus.iter().copied());
            refused.push(format!("to stay on {cores}: {error}"));
        }
        let first = self.priority.fifo.map(|priority| (priority, sched::be_first(priority)));
        if let Some((priority, Err(error))) = &first {
            refused.push(format!("SCHED_FIFO at {priority}: {error}"));
        }
        if !matches!(first, Some((_, Ok(()))))
            && let Some(nice) = self.priority.nice
            && let Err(error) = sched::be_nice(nice)
        {
            refused.push(format!("niceness {nice}: {error}"));
        }
        ThreadStatus { refused, ..ThreadStatus::of_this_thread() }
    }
}

impl ThreadStatus {
    /// Returns the status of the calling thread.
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

    /// Describes the priority for people.
    pub fn urgency(&self) -> String {
        match (self.priority, self.nice) {
            (0, 0) => "normal priority".to_owned(),
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

/// True if the kernel schedules login sessions as groups, so that nice values compete only within a session.
pub fn sessions_are_groups() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled")
        .is_ok_and(|enabled| enabled.trim() == "1")
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
        let thread_config = ThreadConfig::on(Some(last));
        let status = in_a_thread(move || {
            let status = thread_config.apply();
            assert_eq!(ThreadStatus::of_this_thread(), status);
            status
        });
        assert_eq!(status.cpus, [last]);
        assert!(status.refused.is_empty(), "{status:?}");
    }

    #[test]
    fn a_core_that_is_not_there_is_told_as_refused() {
        let thread_config = ThreadConfig::on(Some(1000));
        let status = in_a_thread(move || thread_config.apply());
        assert_eq!(status.cpus, sched::allowed().unwrap());
        assert!(status.refused[0].contains("to stay on core 1000"), "{status:?}");
    }

    #[test]
    fn a_thread_is_first_or_says_why_not() {
        let rank = ThreadPriority { fifo: Some(7), nice: Some(-3) };
        let status = in_a_thread(move || ThreadConfig { cpus: vec![], priority: rank }.apply());
        match status.policy {
            "fifo" => assert_eq!((status.priority, status.refused.len()), (7, 0)),
            _ => assert!(status.refused[0].contains("SCHED_FIFO at 7"), "{status:?}"),
        }
    }
}
