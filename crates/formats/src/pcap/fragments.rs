//! Datagrams from their fragments.

use std::collections::VecDeque;

use super::packet::{Addresses, FragmentPart, datagram};

/// The most datagrams that wait for fragments at once. The oldest is given up for a new one.
const MOST_WAITING: usize = 64;

/// The most fragments of a datagram: enough for the longest in packets of 576 bytes.
const MOST_PARTS: usize = 256;

/// The most bytes of an IP packet.
const LONGEST: usize = 65_535;

/// Datagrams whose fragments are being collected: at most 64 of 64 KiB.
#[derive(Clone, Debug, Default)]
pub struct Fragments {
    waiting: VecDeque<Waiting>,
    given_up: u64,
}

#[derive(Clone, Debug)]
struct Waiting {
    addresses: Addresses,
    identification: u32,
    bytes: Vec<u8>,
    /// Ranges that have arrived, in the order of arrival.
    parts: Vec<(usize, usize)>,
    /// The length, once the last fragment has arrived.
    length: Option<usize>,
}

impl Waiting {
    fn is_whole(&self) -> bool {
        let Some(length) = self.length else { return false };
        let mut parts = self.parts.clone();
        parts.sort_unstable();
        let end = parts.iter().try_fold(0, |end, &(from, to)| (from <= end).then_some(to.max(end)));
        end == Some(length)
    }
}

/// A datagram that was joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Sender and receiver.
    pub addresses: Addresses,
    /// The UDP header and the payload.
    bytes: Vec<u8>,
}

impl Joined {
    /// The UDP header and the payload.
    pub fn udp(&self) -> &[u8] {
        &self.bytes
    }

    /// The datagram, if its header fits its length.
    pub fn datagram(&self) -> Option<super::Datagram<'_>> {
        datagram(self.addresses, &self.bytes, self.bytes.len())
    }
}

impl Fragments {
    /// Takes a fragment. Returns its datagram if all parts of it have come, in any order.
    pub fn take(&mut self, part: &FragmentPart<'_>) -> Option<Joined> {
        let end = part.offset + part.data.len();
        if end > LONGEST || part.data.is_empty() {
            self.given_up += 1;
            return None;
        }
        let known = self.waiting.iter().position(|it| {
            (it.identification, it.addresses) == (part.identification, part.addresses)
        });
        let place = known.unwrap_or_else(|| self.begin(part));
        let waiting = &mut self.waiting[place];
        if waiting.bytes.len() < end {
            waiting.bytes.resize(end, 0);
        }
        waiting.bytes[part.offset..end].copy_from_slice(part.data);
        if !waiting.parts.contains(&(part.offset, end)) {
            if waiting.parts.len() == MOST_PARTS {
                self.waiting.remove(place);
                self.given_up += 1;
                return None;
            }
            waiting.parts.push((part.offset, end));
        }
        if !part.more {
            waiting.length = Some(end);
        }
        if !waiting.is_whole() {
            return None;
        }
        let Waiting { addresses, bytes, .. } = self.waiting.remove(place)?;
        Some(Joined { addresses, bytes })
    }

    fn begin(&mut self, part: &FragmentPart<'_>) -> usize {
        if self.waiting.len() == MOST_WAITING {
            self.waiting.pop_front();
            self.given_up += 1;
        }
        self.waiting.push_back(Waiting {
            addresses: part.addresses,
            identification: part.identification,
            bytes: Vec::new(),
            parts: Vec::new(),
            length: None,
        });
        self.waiting.len() - 1
    }

    /// The number of datagrams that were given up, and of those that still wait for fragments.
    pub fn unjoined(&self) -> u64 {
        self.given_up + self.waiting.len() as u64
    }
}
