//! Staging memory for datagrams that were not received into their slots.

use std::io::{self, IoSliceMut};
use std::net::IpAddr;
use std::ops::Range;

use fullbore_linux::sys::receive::{MOST_MESSAGES, Received};

use super::input::DatagramInput;

/// A bound on the length of a message, merged or not.
const LONGEST_MESSAGE: usize = 1 << 16;

/// The staging memory of a capture thread.
pub struct StagingBuffer {
    /// Memory behind every message of a call, so that none is truncated.
    overflow: Vec<u8>,
    /// Frames received in the wrong slots, to be processed first.
    pub early: StagedDatagram,
    /// Datagrams from messages of an unexpected kind.
    pub kept: StagedDatagram,
    /// Datagrams of excluded senders since the last reading.
    pub excluded: u64,
}

/// Staged datagrams, back to back.
#[derive(Default)]
pub struct StagedDatagram {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Default for StagingBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl StagingBuffer {
    /// Memory for one call of [`MOST_MESSAGES`] messages.
    pub fn new() -> Self {
        let overflow = vec![0; MOST_MESSAGES * LONGEST_MESSAGE];
        Self {
            overflow,
            early: StagedDatagram::default(),
            kept: StagedDatagram::default(),
            excluded: 0,
        }
    }

    /// Returns the overflow memory of each message, and the place for copies.
    pub fn parts(&mut self) -> (impl Iterator<Item = &mut [u8]>, &mut StagedDatagram) {
        (self.overflow.chunks_exact_mut(LONGEST_MESSAGE), &mut self.kept)
    }

    /// Receives whole messages for processing one by one. Returns the numbers of datagrams kept and of messages. If
    /// `only` is given, messages of other senders are excluded.
    pub fn receive(
        &mut self,
        input: &mut dyn DatagramInput,
        only: Option<IpAddr>,
    ) -> io::Result<(usize, usize)> {
        let mut received = [Received::default(); MOST_MESSAGES];
        let Self { overflow, kept, excluded, .. } = self;
        let slices = overflow.chunks_exact_mut(LONGEST_MESSAGE);
        let mut slices: Vec<IoSliceMut<'_>> = slices.map(IoSliceMut::new).collect();
        let messages = input.receive(&mut slices, 1, &mut received)?;
        let mut datagrams = 0;
        for (slice, told) in slices.iter().zip(&received[..messages]) {
            let segment = told.segment.unwrap_or(told.bytes);
            if only.is_some() && told.sender != only {
                *excluded += told.bytes.div_ceil(segment.max(1)).max(1) as u64;
                continue;
            }
            datagrams += kept.gather(std::slice::from_ref(slice), 0..told.bytes, segment);
        }
        Ok((datagrams, messages))
    }

    /// Takes the staged datagrams. [`StagingBuffer::give_back`] returns the memory.
    pub fn take(&mut self) -> [StagedDatagram; 2] {
        [std::mem::take(&mut self.early), std::mem::take(&mut self.kept)]
    }

    /// Returns emptied memory for reuse.
    pub fn give_back(&mut self, [mut early, mut kept]: [StagedDatagram; 2]) {
        early.clear();
        kept.clear();
        (self.early, self.kept) = (early, kept);
    }
}

impl StagedDatagram {
    /// Stores one datagram, given in pieces.
    pub fn push(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        self.ends.push(self.bytes.len());
    }

    /// Copies `range` of a scattered message, and splits it into datagrams of `segment` bytes; the last may be shorter.
    /// Returns their number.
    pub fn gather(
        &mut self,
        slices: &[IoSliceMut<'_>],
        range: Range<usize>,
        segment: usize,
    ) -> usize {
        let start = self.bytes.len();
        let mut at = 0;
        for slice in slices {
            let from = range.start.clamp(at, at + slice.len()) - at;
            let to = range.end.clamp(at, at + slice.len()) - at;
            self.bytes.extend_from_slice(&slice[from..to]);
            at += slice.len();
        }
        let before = self.ends.len();
        let length = self.bytes.len() - start;
        if length == 0 && range.is_empty() && range.start == 0 {
            // An empty datagram counts too.
            self.ends.push(start);
        }
        let step = segment.max(1);
        self.ends.extend((0..length.div_ceil(step)).map(|n| start + ((n + 1) * step).min(length)));
        self.ends.len() - before
    }

    /// Returns the datagrams in order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scattered_message_is_cut_into_its_datagrams() {
        let (mut first, mut second) = (*b"aaab", *b"bbcc--");
        let slices = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        let mut kept = StagedDatagram::default();
        assert_eq!(kept.gather(&slices, 0..8, 3), 3);
        assert_eq!(kept.gather(&slices, 3..8, 3), 2);
        assert_eq!(kept.gather(&slices, 0..0, 0), 1);
        kept.push(&[b"he", b"ad"]);
        let list: Vec<&[u8]> = kept.iter().collect();
        assert_eq!(list, [&b"aaa"[..], b"bbb", b"cc", b"bbb", b"cc", b"", b"head"]);
    }
}
