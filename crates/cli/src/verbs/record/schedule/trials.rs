//! Trials to arm a scan: what stands in the way of one may pass.

use std::time::Duration;

use fullbore_core::schedule::Planned;

/// The first time between two trials to arm a scan: what stood in the way may be gone at once …
const FIRST_TRIAL: Duration = Duration::from_millis(250);

/// … and the longest: so much of a scan is lost at most once it is gone.
const LONGEST_TRIAL: Duration = Duration::from_secs(5);

/// Trials to arm a scan: soon at first, and ever more rarely.
#[derive(Default)]
pub struct Trials {
    wait: Option<Duration>,
    said: Option<String>,
}

impl Trials {
    /// How long to wait before the next.
    pub fn wait(&mut self) -> Duration {
        let wait = self.wait.map_or(FIRST_TRIAL, |wait| (wait * 2).min(LONGEST_TRIAL));
        self.wait = Some(wait);
        wait
    }

    /// What is to be said of one that failed, unless that is known already.
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
    use fullbore_core::time::Tai;

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
        let mut trials = Trials::default();
        let waits: Vec<Duration> = (0..8).map(|_| trials.wait()).collect();
        assert_eq!((waits[0], waits[7]), (FIRST_TRIAL, LONGEST_TRIAL));
        assert!(waits.is_sorted());
        assert!(trials.say(&planned(), "in use").unwrap().contains("no1 cannot be armed now"));
        assert_eq!(trials.say(&planned(), "in use"), None);
        assert!(trials.say(&planned(), "no memory").is_some());
    }
}
