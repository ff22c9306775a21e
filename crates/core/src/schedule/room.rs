//! The space that a disk set has for future scans, and the scan that fills it.

use fullbore_time::Tai;

use super::Planned;

/// The space that scans need on a disk set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of all of them.
    pub needed_bytes: u64,
    /// The scan that fills the disk set, and the time.
    pub full: Option<(Planned, Tai)>,
}

/// Computes the space that `scans`, in their order, need from `now` on at `rate` bytes per second, with `free_bytes`
/// free.
pub fn room<'a>(
    scans: impl IntoIterator<Item = &'a Planned>,
    now: Tai,
    rate: u64,
    free_bytes: u64,
) -> Room {
    const SECOND: u128 = 1_000_000_000;
    let (mut needed, mut full) = (0u128, None);
    for scan in scans {
        let begin = scan.start.max(now);
        let lasts_ns = scan.end.since(begin).max(0).unsigned_abs();
        let bytes = u128::from(rate) * u128::from(lasts_ns) / SECOND;
        let left = u128::from(free_bytes).saturating_sub(needed);
        if full.is_none() && bytes > left {
            // The remaining space is less than the scan needs, so the time is within the scan.
            let after_ns = left * SECOND / u128::from(rate);
            full = Some((scan.clone(), begin.plus_ns(after_ns as i64)));
        }
        needed += bytes;
    }
    Room { needed_bytes: u64::try_from(needed).unwrap_or(u64::MAX), full }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// Scans of `lasts` seconds, a minute apart.
    fn scans(lasts: &[i64]) -> Vec<Planned> {
        let planned = |(n, lasts): (usize, &i64)| Planned {
            name: format!("no{n}").parse().unwrap(),
            start: Tai(n as i64 * 60 * SECOND),
            end: Tai((n as i64 * 60 + lasts) * SECOND),
            target: None,
        };
        lasts.iter().enumerate().map(planned).collect()
    }

    #[test]
    fn the_scan_that_fills_the_set_is_told_and_when() {
        let scans = scans(&[40; 60]);
        let all = room(&scans, Tai(0), 1_000_000, 2_400_000_000);
        assert_eq!(all, Room { needed_bytes: 2_400_000_000, full: None });
        let less = room(&scans, Tai(0), 1_000_000, 1_210_000_000).full.unwrap();
        assert_eq!((less.0.name.as_str(), less.1), ("no30", Tai((30 * 60 + 10) * SECOND)));
        // A running scan needs only its remaining time; a past one needs nothing.
        assert_eq!(
            room(&scans, Tai(80 * SECOND), 1_000_000, 0).needed_bytes,
            (20 + 58 * 40) * 1_000_000
        );
        assert_eq!(room(&scans, Tai(i64::MAX), u64::MAX, 0), Room { needed_bytes: 0, full: None });
        assert_eq!(room(&scans, Tai(0), 0, 0).full, None);
        assert_eq!(room(&scans, Tai(0), u64::MAX, 0).needed_bytes, u64::MAX);
    }

    proptest! {
        /// The set is full if and only if the scans need more than the free space, within the named scan.
        #[test]
        fn it_is_full_when_the_sum_says_so(
            lasts in prop::collection::vec(1i64..60, 0..20),
            now in -100i64..2_000,
            rate in 0u64..1 << 40,
            free in 0u64..1 << 50,
        ) {
            let scans = scans(&lasts);
            let Room { needed_bytes, full } = room(&scans, Tai(now * SECOND), rate, free);
            prop_assert_eq!(full.is_some(), needed_bytes > free);
            if let Some((scan, at)) = full {
                prop_assert!(scan.start <= at && at < scan.end && at >= Tai(now * SECOND));
                let before = scans.iter().take_while(|it| it.name != scan.name);
                prop_assert_eq!(room(before, Tai(now * SECOND), rate, free).full, None);
            }
        }
    }
}
