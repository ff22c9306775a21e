//! Retries to arm a scan, because an obstacle may disappear.

use std::time::Duration;

use fullbore_core::schedule::Planned;

/// The first pause between two attempts to arm a scan …
const FIRST_TRIAL: Duration = Duration::from_millis(250);

/// … and the longest, which limits the loss after the obstacle has disappeared.
const LONGEST_TRIAL: Duration = Duration::from_secs(5);

/// Attempts to arm a scan, at growing intervals.
#[derive(Default)]
pub struct Retry {
    wait: Option<Duration>,
    said: Option<String>,
}

impl Retry {
    /// The pause before the next attempt.
    pub fn wait(&mut self) -> Duration {
        let wait = self.wait.map_or(FIRST_TRIAL, |wait| (wait * 2).min(LONGEST_TRIAL));
        self.wait = Some(wait);
        wait
    }

    /// The message about a failed attempt, unless it repeats the last one.
    pub fn say(&mut self, scan: &Planned, why: &str) -> Option<String> {
        if self.said.as_deref() == Some(why) {
            return None;
        }
        self.said = Some(why.to_owned());
        Some(format!(
            "scan {} cannot be armed now, and is tried again until it is over at {:.1}: {why}",
            scan.name, scan.end
        ))
    }
}

#[cfg(test)]
mod tests {
    use fullbore_time::Tai;

    use super::*;

    fn planned() -> Planned {
        Planned {
            name: "no1".parse().unwrap(),
            start: Tai(0),
            end: Tai(40_000_000_000),
            target: None,
        }
    }

    #[test]
    fn trials_come_soon_at_first_and_say_what_is_new() {
        let mut trials = Retry::default();
        let waits: Vec<Duration> = (0..8).map(|_| trials.wait()).collect();
        assert_eq!((waits[0], waits[7]), (FIRST_TRIAL, LONGEST_TRIAL));
        assert!(waits.is_sorted());
        assert!(trials.say(&planned(), "in use").unwrap().contains("no1 cannot be armed now"));
        assert_eq!(trials.say(&planned(), "in use"), None);
        assert!(trials.say(&planned(), "no memory").is_some());
    }
}
