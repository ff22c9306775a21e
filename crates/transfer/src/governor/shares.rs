//! Shares of one cap: as many bytes for each destination, and as many for each transfer to it.
//!
//! Start-time fair queueing on two levels: a destination, and a transfer to it, has a *tag*, the bytes that it was granted
//! plus those that it missed while it wanted none. The transfer with the least tags is next. A transfer that asks for
//! nothing, or that its own cap holds back, does not hold up the others.

use std::collections::BTreeMap;
use std::time::Duration;

use super::bucket::Bucket;

/// A transfer that asked in vain is waited for this long. It asks again much earlier.
const HUNGRY: Duration = Duration::from_millis(50);

/// The longest sleep before a transfer that was not next asks again.
const TURN: Duration = Duration::from_millis(2);

/// The shares of all transfers of a process.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    lines: BTreeMap<u64, Line>,
    destinations: BTreeMap<String, Tag>,
    /// The tag of the destination that was served last.
    now: u64,
    next: u64,
}

/// A transfer.
#[derive(Clone, Debug)]
struct Line {
    destination: String,
    tag: u64,
    rate: Option<u64>,
    bucket: Option<Bucket>,
    /// The time of the last request that was granted nothing although its own cap allowed some.
    hungry: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    own: u64,
    /// The tag of its transfer that was served last.
    now: u64,
}

impl Shares {
    /// Adds a transfer, and returns its number.
    pub fn add(&mut self, destination: &str, rate: Option<u64>, at: Duration) -> u64 {
        let number = self.next;
        self.next += 1;
        self.destinations.entry(destination.to_owned()).or_default();
        let bucket = rate.map(|rate| Bucket::new(rate, at));
        let destination = destination.to_owned();
        self.lines.insert(number, Line { destination, tag: 0, rate, bucket, hungry: None });
        number
    }

    /// Gives a transfer another cap of its own.
    pub fn set_rate(&mut self, number: u64, rate: Option<u64>, at: Duration) {
        if let Some(line) = self.lines.get_mut(&number).filter(|line| line.rate != rate) {
            (line.rate, line.bucket) = (rate, rate.map(|rate| Bucket::new(rate, at)));
        }
    }

    /// The cap of a transfer of its own.
    pub fn rate(&self, number: u64) -> Option<u64> {
        self.lines.get(&number)?.rate
    }

    /// Removes a transfer.
    pub fn remove(&mut self, number: u64) {
        let Some(gone) = self.lines.remove(&number) else { return };
        if !self.lines.values().any(|line| line.destination == gone.destination) {
            self.destinations.remove(&gone.destination);
        }
    }

    /// Takes up to this many bytes for a transfer from its own cap and from that of all. Without any, returns the time after
    /// which to ask again.
    pub fn take(
        &mut self,
        number: u64,
        all: &mut Option<Bucket>,
        wanted: u64,
        at: Duration,
    ) -> Result<u64, Duration> {
        let Some(line) = self.lines.get_mut(&number) else { return Err(TURN) };
        let allowed = line.bucket.as_mut().map_or(wanted, |own| own.take(wanted, at));
        if allowed == 0 {
            line.hungry = None;
            return Err(line.bucket.as_ref().map_or(TURN, |own| own.wait_for(wanted)));
        }
        line.hungry = Some(at);
        let granted = match all {
            None => allowed,
            Some(_) if !self.is_next(number, at) => 0,
            Some(all) => all.take(allowed, at),
        };
        self.give_back(number, allowed - granted);
        if granted == 0 {
            let filled = all.as_ref().map_or(TURN, |all| all.wait_for(wanted));
            return Err(filled.clamp(Duration::from_micros(100), TURN));
        }
        self.count(number, granted);
        Ok(granted)
    }

    fn give_back(&mut self, number: u64, bytes: u64) {
        if let Some(own) = self.lines.get_mut(&number).and_then(|line| line.bucket.as_mut()) {
            own.give_back(bytes);
        }
    }

    /// The tags of a transfer: of its destination, and its own.
    fn tags(&self, line: &Line) -> (u64, u64) {
        let destination = self.destinations.get(&line.destination).copied().unwrap_or_default();
        (destination.own.max(self.now), line.tag.max(destination.now))
    }

    fn is_next(&self, number: u64, at: Duration) -> bool {
        let waits = |line: &Line| line.hungry.is_some_and(|it| at.saturating_sub(it) <= HUNGRY);
        let hungry = self.lines.iter().filter(|(_, line)| waits(line));
        // Destinations with equal tags are in the order of their names, so that two of their transfers are compared by tag.
        let first = hungry.min_by_key(|(number, line)| {
            let (destination, own) = self.tags(line);
            (destination, line.destination.as_str(), own, **number)
        });
        first.is_some_and(|(first, _)| *first == number)
    }

    fn count(&mut self, number: u64, bytes: u64) {
        let Some(line) = self.lines.get(&number) else { return };
        let (destination, own) = self.tags(line);
        self.now = destination;
        if let Some(line) = self.lines.get_mut(&number) {
            (line.tag, line.hungry) = (own + bytes, None);
            if let Some(tag) = self.destinations.get_mut(&line.destination) {
                *tag = Tag { own: destination + bytes, now: own };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CAP: u64 = 10_000_000;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    proptest! {
        /// Transfers that always want more get the same, whatever the order in which they ask.
        #[test]
        fn destinations_get_the_same_and_so_do_the_transfers_to_each(
            destinations in prop::collection::vec(0usize..3, 1..7),
            order in prop::collection::vec(any::<prop::sample::Index>(), 3000),
        ) {
            let mut shares = Shares::default();
            let mut all = Some(Bucket::new(CAP, ms(0)));
            let names = ["x", "y", "z"];
            let numbers: Vec<u64> =
                destinations.iter().map(|it| shares.add(names[*it], None, ms(0))).collect();
            let mut got = vec![0; numbers.len()];
            for (step, index) in order.iter().enumerate() {
                let at = Duration::from_micros(500 * step as u64);
                // Each asks in every round; one chosen by the environment goes first.
                let first = index.index(numbers.len());
                for turn in 0..numbers.len() {
                    let which = (first + turn) % numbers.len();
                    got[which] += shares.take(numbers[which], &mut all, 1 << 16, at).unwrap_or(0);
                }
            }
            let sum = |name: usize| -> u64 {
                destinations.iter().zip(&got).filter(|(it, _)| **it == name).map(|(_, got)| got).sum()
            };
            let used: Vec<usize> = (0..3).filter(|name| destinations.contains(name)).collect();
            // A grant has at most the size of the bucket; a round may change the order of two.
            let most = 4 * CAP / 50;
            for name in &used {
                for other in &used {
                    prop_assert!(sum(*name) <= sum(*other) + most, "{:?} {:?}", destinations, got);
                }
                let lines = || destinations.iter().zip(&got).filter(|(it, _)| *it == name).map(|(_, got)| *got);
                prop_assert!(lines().max() <= lines().min().map(|it| it + most), "{:?} {:?}", destinations, got);
            }
            let total: u64 = got.iter().sum();
            prop_assert!(total > CAP * 5 / 4, "{total} of {}", CAP * 3 / 2);
        }

        #[test]
        fn a_transfer_with_a_cap_or_without_data_leaves_the_rest_to_the_other(idle in any::<bool>()) {
            let mut shares = Shares::default();
            let mut all = Some(Bucket::new(CAP, ms(0)));
            let slow = shares.add("x", Some(CAP / 10), ms(0));
            let fast = shares.add("x", None, ms(0));
            let (mut few, mut many) = (0, 0);
            for step in 0..4000 {
                let at = Duration::from_micros(500 * step);
                if !idle {
                    few += shares.take(slow, &mut all, 1 << 16, at).unwrap_or(0);
                }
                many += shares.take(fast, &mut all, 1 << 16, at).unwrap_or(0);
            }
            let own = if idle { 0 } else { 2 * CAP / 10 };
            prop_assert!(few <= own && few >= own * 8 / 10, "{few} of {own}");
            prop_assert!(many > 2 * CAP * 8 / 10, "{many}");
        }
    }

    #[test]
    fn a_removed_transfer_gets_nothing_and_holds_up_nobody() {
        let mut shares = Shares::default();
        let mut all = Some(Bucket::new(CAP, ms(0)));
        let (one, other) = (shares.add("x", None, ms(0)), shares.add("y", None, ms(0)));
        while shares.take(one, &mut all, 1 << 20, ms(0)).is_ok() {}
        shares.remove(one);
        assert!(shares.take(one, &mut all, 1, ms(10)).is_err());
        assert!(shares.take(other, &mut all, 1, ms(10)).is_ok());
        assert_eq!(shares.destinations.len(), 1);
    }

    #[test]
    fn a_new_cap_counts_at_once() {
        let mut shares = Shares::default();
        let one = shares.add("x", Some(1000), ms(0));
        assert!(shares.take(one, &mut None, 1 << 20, ms(0)).unwrap() <= 20);
        shares.set_rate(one, None, ms(0));
        assert_eq!(shares.take(one, &mut None, 1 << 20, ms(0)), Ok(1 << 20));
        assert_eq!(shares.rate(one), None);
    }
}
