//! Which scans a store lets go of so that it stays within a size or an age.
//!
//! A limit keeps the newest scans, and everything older than these is beyond it: of a size, what does not fit with all
//! that is newer; of an age, what ended before. Of what is beyond it, scans go that are finished and that nobody
//! protects. One that cannot go stays beyond the limit, and no newer one goes in its place.
//!
//! ```text
//! older ◄──────────────────────────────────► newer
//! │ protected │ goes │ goes ┊ stays │ protected │ stays │
//!    in the way             ┊◄──── within the limit ────►
//! ```
//!
//! Of scans that could go the newest stays whatever its size: it has just been recorded.

use std::cmp::Reverse;
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

/// What a limit means for the scans of a store, as places among them, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Those to let go of.
    pub go: Vec<usize>,
    /// Those because of which the limit is not kept to: they are beyond it, and cannot go.
    pub in_the_way: Vec<usize>,
}

impl Held {
    /// One whose end is not known has no place among the others, and stays.
    fn could_go(&self) -> bool {
        self.may_go && self.ended.is_some()
    }
}

impl Keep {
    /// What is to become of `scans`.
    pub fn choose(self, scans: &[Held], now: Tai) -> Choice {
        let mut beyond = match self {
            Keep::Age(age) => ended_before(scans, now, age),
            Keep::Size(size) => not_fitting(scans, size),
        };
        beyond.reverse();
        let (go, mut in_the_way): (Vec<_>, Vec<_>) =
            beyond.into_iter().partition(|&place| scans[place].could_go());
        if let Keep::Size(size) = self {
            let bytes = |scans: &mut dyn Iterator<Item = &Held>| {
                scans.fold(0u64, |sum, scan| sum.saturating_add(scan.bytes))
            };
            let gone = bytes(&mut go.iter().map(|&place| &scans[place]));
            if bytes(&mut scans.iter()).saturating_sub(gone) <= size.0 {
                in_the_way.clear();
            }
        }
        Choice { go, in_the_way }
    }
}

/// Places of the scans from the newest on. One whose end is not known counts as older than any other, so that it pushes
/// none of them out.
fn newest_first(scans: &[Held]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..scans.len()).collect();
    places.sort_unstable_by_key(|&place| Reverse((scans[place].ended, place)));
    places
}

fn ended_before(scans: &[Held], now: Tai, age: Duration) -> Vec<usize> {
    let limit = now.plus_ns(-(age.as_nanos().min(i64::MAX as u128) as i64));
    let mut places = newest_first(scans);
    places.retain(|&place| scans[place].ended.is_some_and(|ended| ended <= limit));
    places
}

fn not_fitting(scans: &[Held], size: ByteSize) -> Vec<usize> {
    let mut places = newest_first(scans);
    let newest = places.iter().copied().find(|&place| scans[place].could_go());
    let mut sum = 0u64;
    places.retain(|&place| {
        sum = sum.saturating_add(scans[place].bytes);
        sum > size.0 && Some(place) != newest
    });
    places
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
        let choice = |size: u64| Keep::Size(ByteSize(size)).choose(&scans, Tai(9 * HOUR));
        assert_eq!(choice(25), Choice { go: vec![1], in_the_way: vec![3] });
        assert_eq!(choice(15), Choice { go: vec![1, 2], in_the_way: vec![3] });
        assert_eq!(choice(1), choice(15), "the newest stays whatever its size");
        assert_eq!(choice(40), Choice::default());
    }

    #[test]
    fn an_age_lets_go_of_what_ended_before() {
        let scans = [held(10, 3, true), held(10, 1, true), held(10, 0, false)];
        let two_hours = Keep::Age(Duration::from_secs(7200));
        let choice = |hours: i64| two_hours.choose(&scans, Tai(hours * HOUR));
        assert_eq!(choice(4), Choice { go: vec![1], in_the_way: vec![2] });
        assert_eq!(choice(1), Choice::default());
    }

    #[test]
    fn what_must_stay_pushes_out_what_is_older_and_nothing_that_is_newer() {
        let size = Keep::Size(ByteSize(25));
        let choice = |scans: &[Held]| size.choose(scans, Tai(9 * HOUR));
        let old = [held(20, 0, false), held(10, 1, true), held(10, 2, true)];
        assert_eq!(choice(&old), Choice { go: vec![], in_the_way: vec![0] });
        let new = [held(10, 0, true), held(10, 1, true), held(20, 2, false)];
        assert_eq!(choice(&new), Choice { go: vec![0], in_the_way: vec![] }, "the newest stays");
        let unknown = Held { ended: None, ..held(20, 0, true) };
        let broken = [unknown, held(10, 1, true), held(10, 2, true)];
        assert_eq!(choice(&broken), Choice { go: vec![], in_the_way: vec![0] });
    }

    #[test]
    fn nothing_is_in_the_way_of_a_limit_that_is_kept_to() {
        let scans = [held(3, 0, false), held(20, 1, true), held(10, 2, true)];
        let choice = Keep::Size(ByteSize(25)).choose(&scans, Tai(9 * HOUR));
        assert_eq!(choice, Choice { go: vec![1], in_the_way: vec![] });
    }

    fn some_scans() -> impl Strategy<Value = Vec<Held>> {
        let scan = (0u64..100, prop::option::of(0i64..50), any::<bool>());
        let scan = scan.prop_map(|(bytes, hours, may_go)| {
            let ended = hours.map(|hours| Tai(hours * HOUR));
            Held { bytes, ended, may_go }
        });
        prop::collection::vec(scan, 1..20)
    }

    fn a_limit() -> impl Strategy<Value = Keep> {
        prop_oneof![
            (1u64..1000).prop_map(|size| Keep::Size(ByteSize(size))),
            (1u64..60).prop_map(|hours| Keep::Age(Duration::from_secs(3600 * hours))),
        ]
    }

    proptest! {
        #[test]
        fn what_goes_may_go_and_its_going_was_needed(scans in some_scans(), size in 1u64..1000) {
            let Choice { go, in_the_way } = Keep::Size(ByteSize(size)).choose(&scans, Tai(100 * HOUR));
            prop_assert!(go.iter().all(|&place| scans[place].could_go()));
            prop_assert!(in_the_way.iter().all(|&place| !scans[place].could_go()));
            let bytes = |places: &[usize]| places.iter().map(|&it| scans[it].bytes).sum::<u64>();
            let all: u64 = scans.iter().map(|scan| scan.bytes).sum();
            let could_go = scans.iter().filter(|scan| scan.could_go()).count();
            let stays = all - bytes(&go);
            // Only what is in the way, or is the newest, can hold more than the limit.
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
            let newer = |choice: Choice| {
                choice.go.into_iter().filter(|&it| age(it) > age(chosen)).collect::<Vec<_>>()
            };
            prop_assert_eq!(newer(limit.choose(&scans, now)), newer(limit.choose(&guarded, now)));
        }
    }
}
