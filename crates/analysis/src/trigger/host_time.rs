//! The time of a stream's samples by the clock of the host.
//!
//! A block is seen some time after its last sample has arrived: it is written first, and the tap may be behind. The
//! shortest of these delays is the best that is known of the stream, so the earliest estimate counts. Only those of the
//! last 10 to 20 seconds do, because the sender's clock may be slower than the host's, and a sender that pauses goes on
//! later in its own count.

use fullbore_time::Tai;

use super::hold::StreamNs;

/// The time for which estimates are collected before those of the time before are forgotten.
const COLLECTED_NS: i64 = 10_000_000_000;

/// A later estimate by more than this is a restart of the stream, and not a delay.
const RESTART_NS: i64 = 10_000_000_000;

/// The relation of a stream's time and the clock of the host. An estimate is the host's time at the stream's time 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTime {
    /// The earliest estimate since a time of the host.
    newer: Option<(Tai, Tai)>,
    /// The earliest estimate before that.
    older: Option<Tai>,
}

impl HostTime {
    /// Learns that the samples up to this time of the stream had arrived by this time of the host.
    pub fn learn(&mut self, arrived: Tai, stream: StreamNs) {
        let new = arrived.plus_ns(-stream);
        if self.of(0).is_some_and(|begin| new.since(begin) > RESTART_NS) {
            *self = Self::default();
        }
        self.newer = match self.newer {
            Some((begin, since)) if arrived.since(since) < COLLECTED_NS => {
                Some((begin.min(new), since))
            }
            before => {
                let is_recent = |since: Tai| arrived.since(since) < 2 * COLLECTED_NS;
                self.older = before.filter(|(_, since)| is_recent(*since)).map(|(begin, _)| begin);
                Some((new, arrived))
            }
        };
    }

    /// The time of the host at a time of the stream. `None` before anything was learnt.
    pub fn of(&self, stream: StreamNs) -> Option<Tai> {
        let (newer, _) = self.newer?;
        Some(self.older.map_or(newer, |older| older.min(newer)).plus_ns(stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    #[test]
    fn the_shortest_delay_counts() {
        let mut time = HostTime::default();
        assert_eq!(time.of(0), None);
        let begin = Tai(1_000_000 * MS);
        for (stream_ms, delay_ms) in [(100, 70), (200, 30), (300, 500), (400, 31)] {
            time.learn(begin.plus_ns((stream_ms + delay_ms) * MS), stream_ms * MS);
        }
        let error = time.of(250 * MS).unwrap().since(begin.plus_ns(250 * MS));
        assert!((30 * MS..31 * MS).contains(&error), "{error}");
    }

    #[test]
    fn a_slow_sender_and_a_restart_are_followed() {
        let mut time = HostTime::default();
        // The sender's second has 100 µs more.
        for second in 0..1000 {
            time.learn(Tai(second * 1000 * MS + second * MS / 10), second * 1000 * MS);
        }
        let error = time.of(999_000 * MS).unwrap().since(Tai(999_000 * MS));
        assert!((97 * MS..101 * MS).contains(&error), "{error}");
        // It pauses for an hour, and goes on in its own count.
        let later = Tai(3_600_000 * MS + 999_000 * MS);
        time.learn(later, 999_100 * MS);
        assert_eq!(time.of(999_100 * MS), Some(later));
    }

    #[test]
    fn a_short_pause_is_followed_within_twenty_seconds() {
        let mut time = HostTime::default();
        let arrives = |stream: i64| if stream < 60 { stream } else { stream + 5 };
        let mut late = 0;
        for stream in 0..120 {
            time.learn(Tai(arrives(stream) * 1000 * MS), stream * 1000 * MS);
            let told = time.of(stream * 1000 * MS).unwrap();
            late += i64::from(told != Tai(arrives(stream) * 1000 * MS));
        }
        assert!((1..=20).contains(&late), "{late} seconds");
    }
}
