//! The layout of a device with a scan index: all addresses are computed, none is looked up.
//!
//! ```text
//! chunk c of the data            at  data_first + c × chunk
//! record of block b of a scan    at  index_first + (c₀ + b) × 64, if the scan begins with chunk c₀
//! ```
//!
//! There is one record per chunk, and a block has one chunk or more, so records of two scans never overlap. Scans begin
//! at every 64th chunk, so they do not share a page of records either.

use serde::Serialize;

use super::address::{AddressError, Span, checked_chunk};
use super::record::{RECORD_BYTES, RECORDS_PER_PAGE};
use super::superblock::COPY_BYTES;
use crate::layout::ALIGNMENT;

/// The unit in which records are written.
pub const PAGE_BYTES: usize = 4096;

/// Scans begin at a multiple of this many chunks of the data.
pub const SCAN_CHUNKS: u64 = RECORDS_PER_PAGE as u64;

/// Address of the records: after the first copy of the superblock and the wiped bytes behind it.
const INDEX_FIRST: u64 = 1 << 20;

/// The layout of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Volume {
    /// Bytes of the device when the index was made.
    pub media_bytes: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Address of the first record.
    pub index_first: u64,
    /// Bytes of the record region.
    pub index_bytes: u64,
    /// Address of the first chunk of data.
    pub data_first: u64,
    /// Address of the last chunk of data.
    pub data_last: u64,
}

/// The error if a device cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no room for a scan beside the index.
    #[error(
        "{media_bytes} bytes are too few for a scan index and one chunk of {chunk_bytes} bytes"
    )]
    Small {
        /// Bytes of the device.
        media_bytes: u64,
        /// Bytes of a chunk.
        chunk_bytes: u32,
    },
    /// The chunk size is invalid.
    #[error(transparent)]
    Chunk(#[from] AddressError),
    /// The numbers contradict each other, so this is not a layout of this program.
    #[error("the addresses in the superblock do not match its sizes")]
    Places,
}

/// Free space for a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// Address of its first chunk.
    pub first: u64,
    /// Address of its last chunk.
    pub last: u64,
}

impl Volume {
    /// Returns the layout of a device of `media_bytes` bytes.
    pub fn of_media(media_bytes: u64, chunk_bytes: u32) -> Result<Self, Error> {
        checked_chunk(chunk_bytes.into())?;
        let small = Error::Small { media_bytes, chunk_bytes };
        let chunk = u64::from(chunk_bytes);
        let end = second_copy(media_bytes).ok_or(small)?;
        let room = end.checked_sub(INDEX_FIRST).ok_or(small)?;
        // Slightly more than the usable number, which remains after the records are allocated.
        let most_chunks = room / chunk;
        let index_bytes = (most_chunks * RECORD_BYTES as u64).next_multiple_of(ALIGNMENT);
        let data_first = (INDEX_FIRST + index_bytes).next_multiple_of(chunk);
        let data_end = end / chunk * chunk;
        if data_first >= data_end {
            return Err(small);
        }
        let (index_first, data_last) = (INDEX_FIRST, data_end - chunk);
        Ok(Self { media_bytes, chunk_bytes, index_first, index_bytes, data_first, data_last })
    }

    /// Refuses addresses that do not follow from the sizes.
    pub fn checked(self) -> Result<Self, Error> {
        let same = Self::of_media(self.media_bytes, self.chunk_bytes)? == self;
        if same { Ok(self) } else { Err(Error::Places) }
    }

    /// Returns the address of the second copy of the superblock.
    pub fn second_copy(&self) -> u64 {
        second_copy(self.media_bytes).expect("a device that was divided has room for it")
    }

    fn chunk(&self) -> u64 {
        self.chunk_bytes.into()
    }

    /// Returns the distance between two possible starts of scans, in bytes.
    fn step(&self) -> u64 {
        SCAN_CHUNKS * self.chunk()
    }

    /// True if a scan may begin at this address.
    pub fn is_beginning(&self, address: u64) -> bool {
        (self.data_first..=self.data_last).contains(&address)
            && (address - self.data_first).is_multiple_of(self.step())
    }

    /// Returns the first possible start of a scan after a chunk, if there is one.
    fn beginning_behind(&self, last: u64) -> Option<u64> {
        let behind = (last + self.chunk()).checked_sub(self.data_first)?;
        let next = self.data_first.checked_add(behind.checked_next_multiple_of(self.step())?)?;
        (next <= self.data_last).then_some(next)
    }

    /// Returns the chunks from one address to another, if they are within the data.
    pub fn span(&self, first: u64, last: u64) -> Option<Span> {
        let inside = self.is_beginning(first) && first <= last && last <= self.data_last;
        let span = Span::new(Some(first), Some(last), self.chunk_bytes, self.media_bytes).ok()?;
        inside.then_some(span)
    }

    /// Returns the address of the record of a block of the scan that begins at `first`; `None` if no scan there can
    /// have that block.
    pub fn record_place(&self, first: u64, number: u32) -> Option<u64> {
        let chunk = first.checked_sub(self.data_first)? / self.chunk();
        let place = (chunk + u64::from(number)) * RECORD_BYTES as u64;
        (place + RECORD_BYTES as u64 <= self.index_bytes).then(|| self.index_first + place)
    }

    /// Returns the free space for scans, given the used chunks (first and last address each), in any order.
    pub fn gaps(&self, taken: &[(u64, u64)]) -> Vec<Gap> {
        let mut taken = taken.to_vec();
        taken.sort_unstable();
        let mut gaps = Vec::new();
        let mut next = Some(self.data_first);
        for (first, last) in taken {
            if let Some(begin) = next
                && first > begin
            {
                gaps.push(Gap { first: begin, last: first - self.chunk() });
            }
            let behind = self.beginning_behind(last);
            next = match (next, behind) {
                (Some(next), Some(behind)) => Some(next.max(behind)),
                _ => None,
            };
        }
        gaps.extend(next.map(|first| Gap { first, last: self.data_last }));
        gaps
    }

    /// Bytes of a gap.
    pub fn bytes_of(&self, gap: Gap) -> u64 {
        gap.last - gap.first + self.chunk()
    }

    /// Returns the largest gap; the first of several equal ones.
    pub fn largest_gap(&self, taken: &[(u64, u64)]) -> Option<Gap> {
        let gaps = self.gaps(taken);
        let largest = gaps.iter().map(|&gap| self.bytes_of(gap)).max()?;
        gaps.into_iter().find(|&gap| self.bytes_of(gap) == largest)
    }
}

/// Returns the address of the second copy of the superblock: at the end, where it also overwrites the remains of a
/// partition table.
pub(super) fn second_copy(media_bytes: u64) -> Option<u64> {
    let place = media_bytes.checked_sub(COPY_BYTES as u64)? / ALIGNMENT * ALIGNMENT;
    (place >= INDEX_FIRST).then_some(place)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_drive_gives_a_two_thousandth_of_itself_to_records() {
        let volume = Volume::of_media(960_197_124_096, 128 << 10).unwrap();
        let share = volume.index_bytes as f64 / volume.media_bytes as f64;
        assert!(share < 0.0005, "{share}");
        assert_eq!(volume.checked(), Ok(volume));
        assert_eq!(Volume { data_first: 0, ..volume }.checked(), Err(Error::Places));
    }

    #[test]
    fn a_medium_without_room_is_refused() {
        for bytes in [0, 4096, 1 << 20, (1 << 20) + (256 << 10)] {
            assert!(
                matches!(Volume::of_media(bytes, 128 << 10), Err(Error::Small { .. })),
                "{bytes}"
            );
        }
        assert!(Volume::of_media(4 << 20, 128 << 10).is_ok());
        assert!(matches!(Volume::of_media(4 << 20, 1000), Err(Error::Chunk(_))));
    }

    proptest! {
        #[test]
        fn copies_records_and_data_lie_apart_and_on_the_medium(
            media in 0u64..(1 << 42), chunk in 1u32..300,
        ) {
            let chunk_bytes = chunk * 4096;
            if let Ok(volume) = Volume::of_media(media, chunk_bytes) {
                prop_assert!(volume.index_first >= COPY_BYTES as u64);
                prop_assert!(volume.index_first + volume.index_bytes <= volume.data_first);
                prop_assert!(volume.data_last + u64::from(chunk_bytes) <= volume.second_copy());
                prop_assert!(volume.second_copy() + COPY_BYTES as u64 <= media);
                let chunks = (volume.data_last - volume.data_first) / u64::from(chunk_bytes) + 1;
                prop_assert!(volume.record_place(volume.data_first, (chunks - 1) as u32).is_some());
                prop_assert!(volume.record_place(volume.data_last, 0).is_some());
            }
        }

        #[test]
        fn scans_put_into_gaps_share_neither_chunks_nor_pages(
            lengths in proptest::collection::vec((1u64..400, any::<bool>()), 1..40),
        ) {
            let volume = Volume::of_media(600 << 20, 128 << 10).unwrap();
            let chunk = u64::from(volume.chunk_bytes);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (chunks, remove) in lengths {
                if remove && !taken.is_empty() {
                    taken.remove(chunks as usize % taken.len());
                    continue;
                }
                let Some(gap) = volume.largest_gap(&taken) else { break };
                prop_assert!(volume.is_beginning(gap.first), "{:?}", gap);
                let last = gap.last.min(gap.first + (chunks - 1) * chunk);
                prop_assert!(volume.span(gap.first, last).is_some());
                for &(first, end) in &taken {
                    prop_assert!(last < first || end < gap.first);
                    let page = |address: u64, block: u64| {
                        volume.record_place(address, block as u32).unwrap() / PAGE_BYTES as u64
                    };
                    let (ours, theirs) = ((last - gap.first) / chunk, (end - first) / chunk);
                    prop_assert!(
                        page(gap.first, ours) < page(first, 0) || page(first, theirs) < page(gap.first, 0)
                    );
                }
                taken.push((gap.first, last));
            }
        }
    }
}
