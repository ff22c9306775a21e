//! Which scans a store lets go of so that it stays within a size or an age.
//!
//! Only scans that are finished and not protected are ever let go of, the oldest first, and no more of
//! them than needed. What must stay counts towards the size all the same, and of scans that could go the newest stays
//! whatever its size: it has just been recorded.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::time::Tai;
use crate::units::ByteSize;

/// How much of the past is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// The newest scans that are not larger than this together.
    Size(ByteSize),
    /// Scans that ended less than this ago.
    Age(Duration),
}

/// A text that says neither a size nor an age.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is neither a size such as 500GB nor an age such as 2d")]
pub struct Error {
    /// What was given.
    pub text: String,
}

/// A scan, as far as keeping it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Bytes it takes.
    pub bytes: u64,
    /// When it ended, if that is known.
    pub ended: Option<Tai>,
    /// Whether it may go: it is finished, and nobody protects it.
    pub may_go: bool,
}

impl Keep {
    /// The places in `scans` of those to let go of, the oldest first. One whose end is not known stays.
    pub fn let_go(self, scans: &[Held], now: Tai) -> Vec<usize> {
        let mut old: Vec<(Tai, usize)> = scans
            .iter()
            .enumerate()
            .filter(|(_, scan)| scan.may_go)
            .filter_map(|(place, scan)| Some((scan.ended?, place)))
            .collect();
        old.sort_unstable();
        match self {
            Keep::Age(age) => {
                let limit = now.plus_ns(-(age.as_nanos().min(i64::MAX as u128) as i64));
                old.retain(|(ended, _)| *ended <= limit);
            }
            Keep::Size(size) => {
                old.pop();
                let all = scans.iter().fold(0u64, |sum, scan| sum.saturating_add(scan.bytes));
                let mut above = all.saturating_sub(size.0);
                old.retain(|&(_, place)| {
                    let goes = above > 0;
                    above = above.saturating_sub(scans[place].bytes);
                    goes
                });
            }
        }
        old.into_iter().map(|(_, place)| place).collect()
    }
}

impl FromStr for Keep {
    type Err = Error;

    /// `500GB`, `2TiB`, `2d`, `36h`. A number alone is neither.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error { text: text.to_owned() };
        if text.trim().parse::<f64>().is_ok() {
            return Err(bad());
        }
        match (text.parse::<ByteSize>(), humantime::parse_duration(text.trim())) {
            (Ok(size), _) if size.0 > 0 => Ok(Keep::Size(size)),
            (_, Ok(age)) if !age.is_zero() => Ok(Keep::Age(age)),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keep::Size(size) => size.fmt(f),
            Keep::Age(age) => humantime::format_duration(*age).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn held(bytes: u64, hours: i64, may_go: bool) -> Held {
        Held { bytes, ended: Some(Tai(hours * HOUR)), may_go }
    }

    #[test]
    fn sizes_and_ages_are_told_apart() {
        assert_eq!("500GB".parse(), Ok(Keep::Size(ByteSize(500_000_000_000))));
        assert_eq!("2d".parse(), Ok(Keep::Age(Duration::from_secs(2 * 86_400))));
        assert_eq!("36h".parse(), Ok(Keep::Age(Duration::from_secs(36 * 3600))));
        for text in ["", "500", "0B", "0s", "all", "-2d"] {
            assert!(text.parse::<Keep>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_oldest_go_first_and_no_more_than_needed() {
        let scans = [held(10, 3, true), held(10, 1, true), held(10, 2, true), held(10, 0, false)];
        assert_eq!(Keep::Size(ByteSize(25)).let_go(&scans, Tai(9 * HOUR)), [1, 2]);
        assert_eq!(Keep::Size(ByteSize(40)).let_go(&scans, Tai(9 * HOUR)), [0; 0]);
        assert_eq!(Keep::Size(ByteSize(1)).let_go(&scans, Tai(9 * HOUR)), [1, 2]);
    }

    #[test]
    fn an_age_lets_go_of_what_ended_before() {
        let scans = [held(10, 3, true), held(10, 1, true), held(10, 0, false)];
        let two_hours = Keep::Age(Duration::from_secs(7200));
        assert_eq!(two_hours.let_go(&scans, Tai(4 * HOUR)), [1]);
        assert_eq!(two_hours.let_go(&scans, Tai(2 * HOUR)), [0; 0]);
    }

    proptest! {
        #[test]
        fn what_must_stay_stays_and_what_goes_was_needed(
            scans in prop::collection::vec((0u64..100, prop::option::of(0i64..50), any::<bool>()), 0..20),
            size in 1u64..1000,
        ) {
            let scans: Vec<Held> = scans
                .into_iter()
                .map(|(bytes, hours, may_go)| Held { bytes, ended: hours.map(|h| Tai(h * HOUR)), may_go })
                .collect();
            let gone = Keep::Size(ByteSize(size)).let_go(&scans, Tai(100 * HOUR));
            prop_assert!(gone.iter().all(|&place| scans[place].may_go));
            let all: u64 = scans.iter().map(|scan| scan.bytes).sum();
            let freed: u64 = gone.iter().map(|&place| scans[place].bytes).sum();
            let could_go = scans.iter().filter(|scan| scan.may_go && scan.ended.is_some()).count();
            prop_assert!(all - freed <= size || gone.len() == could_go.saturating_sub(1));
            if let Some((&last, before)) = gone.split_last() {
                let freed_before: u64 = before.iter().map(|&place| scans[place].bytes).sum();
                prop_assert!(all - freed_before > size, "scan {last} need not have gone");
            }
        }
    }
}
