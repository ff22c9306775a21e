//! The time of a stream's samples by the clock of the host.
//!
//! A block is seen some time after its last sample has arrived: it is written first, and the tap may be behind. The
//! shortest of these delays is the best that is known of the stream, so the earliest estimate counts. It gives way slowly,
//! because the sender's clock may be slower than the host's.

use fullbore_time::Tai;

use super::hold::StreamNs;

/// The largest drift of the sender's clock that is followed: in parts per million.
const DRIFT_PPM: i64 = 200;

/// A later estimate by more than this is a restart of the stream, and not a delay.
const RESTART_NS: i64 = 10_000_000_000;

/// The relation of a stream's time and the clock of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostTime {
    /// The time of the host at the stream's time 0, and the stream's time for which it was estimated.
    begin: Option<(Tai, StreamNs)>,
}

impl HostTime {
    /// Learns that the samples up to this time of the stream had arrived by this time of the host.
    pub fn learn(&mut self, arrived: Tai, stream: StreamNs) {
        let new = arrived.plus_ns(-stream);
        let begin = match self.begin {
            None => new,
            Some((begin, since)) => {
                let passed = stream.saturating_sub(since).max(0);
                let begin = begin.plus_ns(passed / 1_000_000 * DRIFT_PPM);
                match new.since(begin) {
                    later if later > RESTART_NS => new,
                    later if later > 0 => begin,
                    _ => new,
                }
            }
        };
        self.begin = Some((begin, stream));
    }

    /// The time of the host at a time of the stream. `None` before anything was learnt.
    pub fn of(&self, stream: StreamNs) -> Option<Tai> {
        Some(self.begin?.0.plus_ns(stream))
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
        assert!((99 * MS..101 * MS).contains(&error), "{error}");
        // It pauses for an hour, and goes on in its own count.
        let later = Tai(3_600_000 * MS + 999_000 * MS);
        time.learn(later, 999_100 * MS);
        assert_eq!(time.of(999_100 * MS), Some(later));
    }
}
