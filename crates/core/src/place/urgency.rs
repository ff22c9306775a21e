//! How urgently threads run: `--priority`, and what it comes to for each.

use std::str::FromStr;

/// The highest priority that is given: the kernel's own interrupt threads run at 50.
pub const HIGHEST: u8 = 49;

/// What capture threads run at where there are cores to spare.
const CAPTURE: u8 = 10;

/// What writers run at then: behind capture, before everybody else.
const WRITER: u8 = 5;

/// How nice capture threads are where they cannot be first.
const NICE: i32 = -10;

/// How urgently threads are to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgency {
    /// First where capture threads have cores of their own, so that nobody else waits for it; elsewhere with more
    /// than their share of the time.
    #[default]
    Auto,
    /// As everybody else.
    Off,
    /// First, at this priority.
    Fifo(u8),
}

/// What a thread asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rank {
    /// Priority under SCHED_FIFO.
    pub fifo: Option<u8>,
    /// Niceness, if it is not first or not allowed to be.
    pub nice: Option<i32>,
}

impl Urgency {
    /// What a capture thread asks for; `pinned`: it has a core of its own.
    pub fn of_capture(self, pinned: bool) -> Rank {
        match self {
            Self::Off => Rank::default(),
            // A thread that is first, on a core that others need too, keeps softirq and whoever sends from running.
            Self::Auto => Rank { fifo: pinned.then_some(CAPTURE), nice: Some(NICE) },
            Self::Fifo(priority) => Rank { fifo: Some(priority), nice: Some(NICE) },
        }
    }

    /// What a writer asks for. Blocks wait for it, and no frame is lost as long as there are any.
    pub fn of_writer(self, pinned: bool) -> Rank {
        match self {
            Self::Off => Rank::default(),
            Self::Auto => Rank { fifo: pinned.then_some(WRITER), nice: None },
            Self::Fifo(priority) => Rank { fifo: Some(priority.div_ceil(2)), nice: None },
        }
    }
}

/// What is no urgency.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}`: write auto, off, or fifo:N with N from 1 to {HIGHEST}")]
pub struct BadUrgency {
    text: String,
}

impl FromStr for Urgency {
    type Err = BadUrgency;

    fn from_str(text: &str) -> Result<Self, BadUrgency> {
        let bad = || BadUrgency { text: text.to_owned() };
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
        assert_eq!("auto".parse(), Ok(Urgency::Auto));
        assert_eq!("fifo:49".parse(), Ok(Urgency::Fifo(49)));
        for bad in ["fifo:0", "fifo:50", "fifo:", "rr:1", "", "nice"] {
            let error = bad.parse::<Urgency>().unwrap_err();
            assert!(error.to_string().contains("1 to 49"), "{bad}: {error}");
        }
    }

    #[test]
    fn only_threads_with_cores_of_their_own_are_first_unasked() {
        assert_eq!(Urgency::Auto.of_capture(false), Rank { fifo: None, nice: Some(NICE) });
        assert_eq!(Urgency::Auto.of_writer(false), Rank::default());
        let (capture, writer) = (Urgency::Auto.of_capture(true), Urgency::Auto.of_writer(true));
        assert!(capture.fifo > writer.fifo && writer.fifo.is_some());
        assert_eq!(Urgency::Off.of_capture(true), Rank::default());
        assert_eq!(Urgency::Fifo(1).of_writer(false).fifo, Some(1));
    }
}
