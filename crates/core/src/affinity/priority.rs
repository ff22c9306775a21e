//! Scheduling priority of threads: `--priority`, and its meaning for each kind of thread.

use std::str::FromStr;

/// The highest allowed priority: the kernel's own interrupt threads run at 50.
pub const HIGHEST: u8 = 49;

/// The priority of capture threads if there are spare cores.
const CAPTURE: u8 = 10;

/// The priority of writers in that case: below capture, above all other threads.
const WRITER: u8 = 5;

/// The niceness of capture threads that cannot have a real-time priority.
const NICE: i32 = -10;

/// The scheduling policy for threads: `--priority`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchedulingPolicy {
    /// Real-time priority if capture threads have cores of their own, so that no other thread waits for them; else a
    /// higher share of CPU time (nice).
    #[default]
    Auto,
    /// No change: the default policy.
    Off,
    /// SCHED_FIFO at this priority.
    Fifo(u8),
}

/// The priority that a thread requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadPriority {
    /// Priority under SCHED_FIFO.
    pub fifo: Option<u8>,
    /// Niceness, if SCHED_FIFO is not used or not permitted.
    pub nice: Option<i32>,
}

impl SchedulingPolicy {
    /// Returns the priority of a capture thread; `pinned`: it has a core of its own.
    pub fn of_capture(self, pinned: bool) -> ThreadPriority {
        match self {
            Self::Off => ThreadPriority::default(),
            // A real-time thread on a core that others need starves softirq and the sender.
            Self::Auto => ThreadPriority { fifo: pinned.then_some(CAPTURE), nice: Some(NICE) },
            Self::Fifo(priority) => ThreadPriority { fifo: Some(priority), nice: Some(NICE) },
        }
    }

    /// Returns the priority of a writer. Blocks wait for writers, but no frame is lost while free blocks remain.
    pub fn of_writer(self, pinned: bool) -> ThreadPriority {
        match self {
            Self::Off => ThreadPriority::default(),
            Self::Auto => ThreadPriority { fifo: pinned.then_some(WRITER), nice: None },
            Self::Fifo(priority) => ThreadPriority { fifo: Some(priority.div_ceil(2)), nice: None },
        }
    }
}

/// A text that is not a scheduling policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: write auto, off, or fifo:N with N from 1 to {HIGHEST}")]
pub struct InvalidPriority {
    text: String,
}

impl FromStr for SchedulingPolicy {
    type Err = InvalidPriority;

    fn from_str(text: &str) -> Result<Self, InvalidPriority> {
        let bad = || InvalidPriority { text: text.to_owned() };
        match text.trim() {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            other => {
                let priority = other.strip_prefix("fifo:").and_then(|it| it.parse::<u8>().ok());
                priority.filter(|it| (1..=HIGHEST).contains(it)).map(Self::Fifo).ok_or_else(bad)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_urgency_is_a_word_or_a_priority_below_the_kernels_own() {
        assert_eq!("auto".parse(), Ok(SchedulingPolicy::Auto));
        assert_eq!("fifo:49".parse(), Ok(SchedulingPolicy::Fifo(49)));
        for bad in ["fifo:0", "fifo:50", "fifo:", "rr:1", "", "nice"] {
            let error = bad.parse::<SchedulingPolicy>().unwrap_err();
            assert!(error.to_string().contains("1 to 49"), "{bad}: {error}");
        }
    }

    #[test]
    fn only_threads_with_cores_of_their_own_are_first_unasked() {
        assert_eq!(
            SchedulingPolicy::Auto.of_capture(false),
            ThreadPriority { fifo: None, nice: Some(NICE) }
        );
        assert_eq!(SchedulingPolicy::Auto.of_writer(false), ThreadPriority::default());
        let (capture, writer) =
            (SchedulingPolicy::Auto.of_capture(true), SchedulingPolicy::Auto.of_writer(true));
        assert!(capture.fifo > writer.fifo && writer.fifo.is_some());
        assert_eq!(SchedulingPolicy::Off.of_capture(true), ThreadPriority::default());
        assert_eq!(SchedulingPolicy::Fifo(1).of_writer(false).fifo, Some(1));
    }
}
