//! Retention: the scans that a store removes to stay within a size or an age.
//!
//! A limit keeps the newest scans; all older ones are beyond it. For a size, a scan is beyond it if it does not fit
//! together with all newer ones; for an age, if it ended earlier. The store removes those scans beyond the limit that
//! are finished and not protected. A scan that cannot be removed stays beyond the limit, and no newer one is removed in
//! its place.
//!
//! ```text
//! older ◄──────────────────────────────────► newer
//! │ protected │ goes │ goes ┊ stays │ protected │ stays │
//!    in the way             ┊◄──── within the limit ────►
//! ```
//!
//! The newest removable scan stays for any size, because it has just been recorded.
//!
//! With the rule `copied`, only scans that are proven elsewhere may be removed; the others are beyond the limit and in the
//! way, like protected ones.

use std::cmp::Reverse;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fullbore_time::Tai;

use crate::units::ByteSize;

/// The retention limit of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// The newest scans with at most this total size.
    Size(ByteSize),
    /// Scans that ended less than this ago.
    Age(Duration),
}

/// The word for [`RetentionRule::copied`].
const COPIED: &str = "copied";

/// A limit, and which scans may be removed for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionRule {
    /// The limit.
    pub limit: Retention,
    /// Only scans that a receipt proves elsewhere may be removed.
    pub copied: bool,
}

/// A text that is no retention.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is neither a size nor an age.
    #[error("`{text}` is neither a size such as 500GB nor an age such as 2d")]
    Limit {
        /// The given text.
        text: String,
    },
    /// There is no limit.
    #[error("`{COPIED}` needs a size or an age, such as 500GB,{COPIED} or 2d,{COPIED}")]
    NoLimit,
    /// A part of the text is no rule.
    #[error(
        "`{text}` is no rule for the scans that stay: after a size or an age, there is `,{COPIED}`"
    )]
    Rule {
        /// The part.
        text: String,
    },
}

/// A scan that retention considers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionCandidate {
    /// Its size in bytes.
    pub bytes: u64,
    /// Time of its end, if known.
    pub ended: Option<Tai>,
    /// True if it may be removed: it is finished and not protected.
    pub may_go: bool,
    /// True if it would have to be proven elsewhere first, and is not.
    pub lacks_copy: bool,
}

/// The scans that a limit removes, as indices, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionPlan {
    /// The scans to remove.
    pub go: Vec<usize>,
    /// The scans that are beyond the limit but cannot be removed.
    pub in_the_way: Vec<usize>,
}

impl RetentionCandidate {
    /// True if the scan may be removed. A scan with an unknown end has no position in the order, and stays.
    fn could_go(&self) -> bool {
        self.is_removable() && !self.lacks_copy
    }

    /// The same without regard to copies: the newest of these has just been recorded.
    fn is_removable(&self) -> bool {
        self.may_go && self.ended.is_some()
    }
}

impl Retention {
    /// Selects the scans to remove.
    pub fn choose(self, scans: &[RetentionCandidate], now: Tai) -> RetentionPlan {
        let mut beyond = match self {
            Retention::Age(age) => ended_before(scans, now, age),
            Retention::Size(size) => not_fitting(scans, size),
        };
        beyond.reverse();
        let (go, mut in_the_way): (Vec<_>, Vec<_>) =
            beyond.into_iter().partition(|&place| scans[place].could_go());
        if let Retention::Size(size) = self {
            let bytes = |scans: &mut dyn Iterator<Item = &RetentionCandidate>| {
                scans.fold(0u64, |sum, scan| sum.saturating_add(scan.bytes))
            };
            let gone = bytes(&mut go.iter().map(|&place| &scans[place]));
            if bytes(&mut scans.iter()).saturating_sub(gone) <= size.0 {
                in_the_way.clear();
            }
        }
        RetentionPlan { go, in_the_way }
    }
}

/// Returns the indices of the scans from the newest on. A scan with an unknown end counts as the oldest, so that it
/// displaces no other.
fn newest_first(scans: &[RetentionCandidate]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..scans.len()).collect();
    places.sort_unstable_by_key(|&place| Reverse((scans[place].ended, place)));
    places
}

fn ended_before(scans: &[RetentionCandidate], now: Tai, age: Duration) -> Vec<usize> {
    let limit = now.plus_ns(-(age.as_nanos().min(i64::MAX as u128) as i64));
    let mut places = newest_first(scans);
    places.retain(|&place| scans[place].ended.is_some_and(|ended| ended <= limit));
    places
}

fn not_fitting(scans: &[RetentionCandidate], size: ByteSize) -> Vec<usize> {
    let mut places = newest_first(scans);
    let newest = places.iter().copied().find(|&place| scans[place].is_removable());
    let mut sum = 0u64;
    places.retain(|&place| {
        sum = sum.saturating_add(scans[place].bytes);
        sum > size.0 && Some(place) != newest
    });
    places
}

impl FromStr for Retention {
    type Err = Error;

    /// Parses `500GB`, `2TiB`, `2d`, `36h`. A number alone is neither.
    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = || Error::Limit { text: text.to_owned() };
        if text.trim().parse::<f64>().is_ok() {
            return Err(bad());
        }
        match (text.parse::<ByteSize>(), humantime::parse_duration(text.trim())) {
            (Ok(size), _) if size.0 > 0 => Ok(Retention::Size(size)),
            (_, Ok(age)) if !age.is_zero() => Ok(Retention::Age(age)),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Retention::Size(size) => size.fmt(f),
            Retention::Age(age) => humantime::format_duration(*age).fmt(f),
        }
    }
}

impl From<Retention> for RetentionRule {
    fn from(limit: Retention) -> Self {
        Self { limit, copied: false }
    }
}

impl FromStr for RetentionRule {
    type Err = Error;

    /// Parses a limit, or a limit and the rule `copied`: `500GB,copied`.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.trim() == COPIED {
            return Err(Error::NoLimit);
        }
        let (limit, rule) = text.split_once(',').map_or((text, None), |(a, b)| (a, Some(b.trim())));
        let limit = limit.parse()?;
        match rule {
            None => Ok(Self { limit, copied: false }),
            Some(COPIED) => Ok(Self { limit, copied: true }),
            Some(other) => Err(Error::Rule { text: other.to_owned() }),
        }
    }
}

impl fmt::Display for RetentionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limit, copied } = self;
        if *copied { write!(f, "{limit},{COPIED}") } else { limit.fmt(f) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    fn held(bytes: u64, hours: i64, may_go: bool) -> RetentionCandidate {
        RetentionCandidate { bytes, ended: Some(Tai(hours * HOUR)), may_go, lacks_copy: false }
    }

    #[test]
    fn sizes_and_ages_are_told_apart() {
        assert_eq!("500GB".parse(), Ok(Retention::Size(ByteSize(500_000_000_000))));
        assert_eq!("2d".parse(), Ok(Retention::Age(Duration::from_secs(2 * 86_400))));
        assert_eq!("36h".parse(), Ok(Retention::Age(Duration::from_secs(36 * 3600))));
        for text in ["", "500", "0B", "0s", "all", "-2d"] {
            assert!(text.parse::<Retention>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_rule_follows_the_limit() {
        let rule = |text: &str| text.parse::<RetentionRule>();
        let limit = Retention::Age(Duration::from_secs(2 * 86_400));
        assert_eq!(rule("2d"), Ok(RetentionRule { limit, copied: false }));
        assert_eq!(rule("2d,copied"), Ok(RetentionRule { limit, copied: true }));
        assert_eq!(rule("2d, copied"), rule("2d,copied"));
        assert_eq!(rule("2d,copied").unwrap().to_string(), "2days,copied");
        assert_eq!(rule("copied"), Err(Error::NoLimit));
        for text in ["2d,", "2d,copies", "2d,copied,copied", "copied,2d", "all", ""] {
            let error = rule(text).unwrap_err().to_string();
            assert!(error.contains("500GB") || error.contains(",copied"), "{text}: {error}");
        }
    }

    #[test]
    fn the_oldest_go_first_and_no_more_than_needed() {
        let scans = [held(10, 3, true), held(10, 1, true), held(10, 2, true), held(10, 0, false)];
        let choice = |size: u64| Retention::Size(ByteSize(size)).choose(&scans, Tai(9 * HOUR));
        assert_eq!(choice(25), RetentionPlan { go: vec![1], in_the_way: vec![3] });
        assert_eq!(choice(15), RetentionPlan { go: vec![1, 2], in_the_way: vec![3] });
        assert_eq!(choice(1), choice(15), "the newest stays whatever its size");
        assert_eq!(choice(40), RetentionPlan::default());
    }

    #[test]
    fn an_age_lets_go_of_what_ended_before() {
        let scans = [held(10, 3, true), held(10, 1, true), held(10, 0, false)];
        let two_hours = Retention::Age(Duration::from_secs(7200));
        let choice = |hours: i64| two_hours.choose(&scans, Tai(hours * HOUR));
        assert_eq!(choice(4), RetentionPlan { go: vec![1], in_the_way: vec![2] });
        assert_eq!(choice(1), RetentionPlan::default());
    }

    #[test]
    fn what_must_stay_pushes_out_what_is_older_and_nothing_that_is_newer() {
        let size = Retention::Size(ByteSize(25));
        let choice = |scans: &[RetentionCandidate]| size.choose(scans, Tai(9 * HOUR));
        let old = [held(20, 0, false), held(10, 1, true), held(10, 2, true)];
        assert_eq!(choice(&old), RetentionPlan { go: vec![], in_the_way: vec![0] });
        let new = [held(10, 0, true), held(10, 1, true), held(20, 2, false)];
        assert_eq!(
            choice(&new),
            RetentionPlan { go: vec![0], in_the_way: vec![] },
            "the newest stays"
        );
        let unknown = RetentionCandidate { ended: None, ..held(20, 0, true) };
        let broken = [unknown, held(10, 1, true), held(10, 2, true)];
        assert_eq!(choice(&broken), RetentionPlan { go: vec![], in_the_way: vec![0] });
    }

    #[test]
    fn the_newest_stays_although_it_lacks_a_copy_and_costs_no_older_one_its_place() {
        let lacking = |scan| RetentionCandidate { lacks_copy: true, ..scan };
        let scans = [lacking(held(10, 0, true)), held(10, 1, true), lacking(held(10, 2, true))];
        let choice = Retention::Size(ByteSize(1)).choose(&scans, Tai(9 * HOUR));
        assert_eq!(choice, RetentionPlan { go: vec![1], in_the_way: vec![0] });
    }

    #[test]
    fn nothing_is_in_the_way_of_a_limit_that_is_kept_to() {
        let scans = [held(3, 0, false), held(20, 1, true), held(10, 2, true)];
        let choice = Retention::Size(ByteSize(25)).choose(&scans, Tai(9 * HOUR));
        assert_eq!(choice, RetentionPlan { go: vec![1], in_the_way: vec![] });
    }

    fn some_scans() -> impl Strategy<Value = Vec<RetentionCandidate>> {
        let scan = (0u64..100, prop::option::of(0i64..50), any::<bool>(), any::<bool>());
        let scan = scan.prop_map(|(bytes, hours, may_go, lacks_copy)| {
            let ended = hours.map(|hours| Tai(hours * HOUR));
            RetentionCandidate { bytes, ended, may_go, lacks_copy }
        });
        prop::collection::vec(scan, 1..20)
    }

    fn a_limit() -> impl Strategy<Value = Retention> {
        prop_oneof![
            (1u64..1000).prop_map(|size| Retention::Size(ByteSize(size))),
            (1u64..60).prop_map(|hours| Retention::Age(Duration::from_secs(3600 * hours))),
        ]
    }

    proptest! {
        #[test]
        fn what_goes_may_go_and_its_going_was_needed(scans in some_scans(), size in 1u64..1000) {
            let RetentionPlan { go, in_the_way } = Retention::Size(ByteSize(size)).choose(&scans, Tai(100 * HOUR));
            prop_assert!(go.iter().all(|&place| scans[place].could_go()));
            prop_assert!(in_the_way.iter().all(|&place| !scans[place].could_go()));
            let bytes = |places: &[usize]| places.iter().map(|&it| scans[it].bytes).sum::<u64>();
            let all: u64 = scans.iter().map(|scan| scan.bytes).sum();
            let could_go = scans.iter().filter(|scan| scan.could_go()).count();
            let stays = all - bytes(&go);
            // Only the newest scan, or scans that cannot be removed, can exceed the limit.
            prop_assert!(stays <= size || !in_the_way.is_empty() || go.len() + 1 >= could_go);
            prop_assert!(stays > size || in_the_way.is_empty());
            if let Some((last, before)) = go.split_last() {
                prop_assert!(all - bytes(before) > size, "scan {last} need not have gone");
            }
        }

        #[test]
        fn protecting_a_scan_costs_no_newer_one(
            scans in some_scans(), limit in a_limit(), chosen in any::<prop::sample::Index>(),
        ) {
            let chosen = chosen.index(scans.len());
            let mut guarded = scans.clone();
            guarded[chosen].may_go = false;
            let (now, age) = (Tai(60 * HOUR), |place: usize| (scans[place].ended, place));
            let newer = |choice: RetentionPlan| {
                choice.go.into_iter().filter(|&it| age(it) > age(chosen)).collect::<Vec<_>>()
            };
            prop_assert_eq!(newer(limit.choose(&scans, now)), newer(limit.choose(&guarded, now)));
        }
    }
}
