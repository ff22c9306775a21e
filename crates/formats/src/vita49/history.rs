//! What context packets say of their streams over time: the first values, and each change.

use fullbore_time::Tai;

use super::context::Context;
use super::index::PacketIndexer;
use super::listing::{ListedChange, Listing};
use super::packet::{Packet, Prologue};

/// The changes that a history lists; further ones are only counted. A manifest with them has about 300 KB.
pub const LISTED: usize = 1000;

/// The stream ids whose values are compared.
const MOST_STREAMS: usize = 1024;

/// The values of a stream from a time on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The stream id.
    pub stream: u32,
    /// The time in the packet, if it has one.
    pub time: Option<Tai>,
    /// The values.
    pub context: Context,
}

/// Collects the changes in context packets that follow one another.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The end of the bytes so far, which is no whole packet.
    rest: Vec<u8>,
    /// True if the bytes are no packets: the packets after them are not found.
    broken: bool,
    latest: Vec<Change>,
    changes: Vec<Change>,
    unlisted: u64,
}

impl History {
    /// Takes the next bytes, split anywhere.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.broken {
            return;
        }
        self.rest.extend_from_slice(bytes);
        let all = std::mem::take(&mut self.rest);
        let mut left = all.as_slice();
        while let Some(first) = left.first_chunk::<4>() {
            let length = 4 * usize::from(u16::from_be_bytes([first[2], first[3]]));
            let Some((packet, more)) = left.split_at_checked(length.max(4)) else { break };
            if Prologue::read(packet).is_err() {
                self.broken = true;
                return;
            }
            self.take(packet);
            left = more;
        }
        self.rest = left.to_vec();
    }

    /// Returns the history of the packets that follow: it begins with the values so far.
    pub fn continued(&self) -> Self {
        Self { latest: self.latest.clone(), changes: self.latest.clone(), ..Self::default() }
    }

    /// Takes one whole packet.
    pub fn take(&mut self, bytes: &[u8]) {
        let Ok(packet) = Packet::read(bytes) else { return };
        let Some(stream) = packet.prologue.stream else { return };
        let Ok(context) = Context::read(&packet) else { return };
        // Version packets and the like say nothing of the samples.
        if context.described() == Context::default() {
            return;
        }
        let time = PacketIndexer::of(bytes).and_then(|indexer| indexer.stamp(bytes));
        let room = self.latest.len() < MOST_STREAMS;
        let known = self.latest.iter_mut().find(|known| known.stream == stream);
        let merged = context.described().over(known.as_deref().map(|known| known.context));
        let change = Change { stream, time, context: merged };
        match known {
            Some(known) if known.context == merged => return,
            Some(known) => *known = change,
            None if room => self.latest.push(change),
            None => {}
        }
        match self.changes.len() < LISTED {
            true => self.changes.push(change),
            false => self.unlisted += 1,
        }
    }

    /// The changes, in order of the packets; the first one of each stream has its first values.
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Returns the changes for a manifest.
    pub fn listing(&self) -> Listing {
        let changes = self.changes.iter().map(ListedChange::from).collect();
        Listing { changes, unlisted: self.unlisted }
    }

    /// True if bytes were no packets, so that later changes are not known.
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vita49::write::{COMPLEX_16, Stamp, Values, context, version};

    fn packets() -> Vec<u8> {
        let values = |rate| Values {
            changed: false,
            bandwidth: 800_000,
            rf_frequency: 1_575_420_000,
            reference_level: -512,
            gain: 768,
            sample_rate: rate,
            payload_format: COMPLEX_16,
        };
        let stamp = |seconds| Stamp { seconds, picoseconds: 0 };
        let first = 1_700_000_000;
        [
            context(1, stamp(first), 0, &values(1_000_000)),
            version(1, stamp(first), 0, 0),
            context(2, stamp(first), 0, &values(1_000_000)),
            context(1, stamp(first + 1), 1, &values(1_000_000)),
            context(1, stamp(first + 2), 2, &values(2_000_000)),
        ]
        .concat()
    }

    #[test]
    fn changes_are_the_same_at_every_split() {
        let bytes = packets();
        for size in 1..=bytes.len() {
            let mut history = History::default();
            bytes.chunks(size).for_each(|part| history.feed(part));
            let told: Vec<String> =
                history.listing().changes.iter().map(ListedChange::to_string).collect();
            let values = "RF 1575420000 Hz, IF 0 Hz, bandwidth 800000 Hz, rate";
            let rest = "reference level -4 dBm, gain 6 dB, payload format A00003CF00000000";
            let line = |stream, second, rate| {
                format!(
                    "0000000{stream} 2023-11-14T22:13:{second}.000Z, {values} {rate} Hz, {rest}"
                )
            };
            assert_eq!(
                told,
                [line(1, 20, 1_000_000), line(2, 20, 1_000_000), line(1, 22, 2_000_000)]
            );
            assert!(!history.is_broken());
        }
    }

    #[test]
    fn a_history_that_is_continued_begins_with_the_latest_values() {
        let mut history = History::default();
        history.feed(&packets());
        let mut next = history.continued();
        let rates = |history: &History| -> Vec<(u32, Option<f64>)> {
            let changes = history.changes().iter();
            changes.map(|change| (change.stream, change.context.sample_rate)).collect()
        };
        assert_eq!(rates(&next), [(1, Some(2e6)), (2, Some(1e6))]);
        next.feed(&packets()[..108]);
        assert_eq!(rates(&next).last(), Some(&(1, Some(1e6))));
    }

    #[test]
    fn bytes_that_are_no_packets_end_the_history() {
        let mut history = History::default();
        history.feed(&[&packets()[..108], &[0xFF; 8][..], &packets()].concat());
        assert!(!history.is_broken(), "a packet of 65535 words is awaited");
        history.feed(&vec![0; 4 * 65_535]);
        assert!(history.is_broken());
        assert_eq!(history.changes().len(), 1);
    }
}
