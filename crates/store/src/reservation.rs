//! The space that a file of a member reserves at a time.
//!
//! Writes to a file wait while it grows, so a chunk reserves space in large steps, whole if possible, before blocks need
//! it. A step that is too large takes space that other streams need. Streams appear at any time (the threads of a port,
//! for example), so each step depends on the free space and the number of open chunks at that moment:
//!
//! - A step is at most 1/32 of the free space, divided by the number of open chunks. So a stream that is alone leaves
//!   enough for all streams that come later, and the steps become smaller as the disk fills.
//! - A step is at least a block. So no stream is refused while a block fits on the disk.

use std::io;

use fullbore_core::layout::ALIGNMENT;

/// Steps are at most this part of the free space, divided by the number of open chunks.
const SHARE: u64 = 32;

/// A request for space for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceRequest {
    /// The fewest bytes of any use. The disk is full if they do not fit.
    pub least: u64,
    /// The bytes up to the full size of the file.
    pub most: u64,
    /// The number of open chunks on the member, which share the free space. This one is included.
    pub sharing: u64,
}

impl SpaceRequest {
    /// Requests exactly this many bytes.
    pub fn exactly(bytes: u64) -> Self {
        Self { least: bytes, most: bytes, sharing: 1 }
    }

    /// Returns the bytes to reserve while this many are free.
    pub fn step(&self, free: u64) -> u64 {
        let share = free / SHARE / self.sharing.max(1);
        let step = share / ALIGNMENT * ALIGNMENT;
        step.max(self.least).min(self.most)
    }

    /// Reserves a step by `take` while this many bytes are free, and returns its bytes. If the step does not fit, smaller
    /// ones are tried: the file system's own metadata takes space, other programs do, or a quota is near.
    pub fn reserve(
        &self,
        free: u64,
        mut take: impl FnMut(u64) -> io::Result<()>,
    ) -> io::Result<u64> {
        let mut step = self.step(free);
        loop {
            match take(step) {
                Ok(()) => return Ok(step),
                Err(error) if is_full(&error) && step > self.least => {
                    step = (step / 2 / ALIGNMENT * ALIGNMENT).max(self.least);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use fullbore_core::layout::BLOCK_BYTES;
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn step(sharing: u64, most: u64, free: u64) -> u64 {
        SpaceRequest { least: BLOCK_BYTES.min(most), most, sharing }.step(free)
    }

    #[test]
    fn chunks_are_reserved_whole_while_there_is_plenty_of_space_and_in_smaller_steps_later() {
        assert_eq!(step(16, GIB / 4, 1000 * GIB), GIB / 4);
        assert_eq!(step(16, GIB / 4, 64 * GIB), GIB / 8);
        assert_eq!(step(1, 10 * GIB, 4 * GIB), GIB / 8, "a chunk larger than the disk");
        assert_eq!(step(8, 10 * GIB, 1 << 20), BLOCK_BYTES, "a block at least");
        assert_eq!(step(8, 4096, 1000 * GIB), 4096, "the rest of a chunk at most");
        assert_eq!(SpaceRequest::exactly(1 << 20).step(0), 1 << 20);
    }

    /// Reserves on a disk that reports 64 MiB and fails by `fails` for some steps. Returns the steps tried, and the result.
    fn tried(
        request: SpaceRequest,
        fails: impl Fn(u64) -> Option<i32>,
    ) -> (Vec<u64>, io::Result<u64>) {
        let mut steps = vec![];
        let reserved = request.reserve(64 << 20, |step| {
            steps.push(step);
            fails(step).map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
        });
        (steps, reserved)
    }

    #[test]
    fn a_step_that_does_not_fit_is_halved_down_to_a_block() {
        let request = SpaceRequest { least: 768 << 10, most: GIB, sharing: 1 };
        let (steps, reserved) = tried(request, |step| (step > 1 << 20).then_some(libc::EDQUOT));
        assert_eq!((steps, reserved.unwrap()), (vec![2 << 20, 1 << 20], 1 << 20));
        let (steps, reserved) = tried(request, |_| Some(libc::ENOSPC));
        assert_eq!(steps, [2 << 20, 1 << 20, 768 << 10]);
        assert_eq!(reserved.unwrap_err().kind(), io::ErrorKind::StorageFull);
        let (steps, reserved) = tried(request, |_| Some(libc::EIO));
        assert_eq!((steps.len(), reserved.is_err()), (1, true), "any other error is final");
        let (steps, _) = tried(SpaceRequest::exactly(1 << 20), |_| Some(libc::ENOSPC));
        assert_eq!(steps, [1 << 20]);
    }

    /// A stream of a simulated disk, with its open chunk.
    #[derive(Clone, Copy, Default)]
    struct Stream {
        filled: u64,
        space: u64,
        step: u64,
        begun: bool,
    }

    /// A disk that streams fill as the writer does.
    struct Disk {
        free: u64,
        block: u64,
        chunk: u64,
        streams: Vec<Stream>,
    }

    impl Disk {
        fn open_chunks(&self) -> u64 {
            self.streams.iter().filter(|stream| stream.begun).count() as u64
        }

        /// Writes a block of a stream; false if the stream is refused.
        fn write(&mut self, number: usize) -> bool {
            let Stream { filled, space, .. } = self.streams[number];
            if filled + self.block > self.chunk {
                (self.streams[number].filled, self.streams[number].space) = (0, 0);
            } else if filled + self.block <= space {
                return self.append(number);
            }
            self.reserve(number) && self.append(number)
        }

        fn append(&mut self, number: usize) -> bool {
            self.streams[number].filled += self.block;
            let Stream { filled, space, step, .. } = self.streams[number];
            if space < (filled + step / 2).min(self.chunk) {
                // Without space, the next block is refused, and not this one.
                self.reserve(number);
            }
            true
        }

        fn reserve(&mut self, number: usize) -> bool {
            self.streams[number].begun = true;
            let most = self.chunk - self.streams[number].space;
            let request =
                SpaceRequest { least: self.block.min(most), most, sharing: self.open_chunks() };
            let step = request.step(self.free);
            if step > self.free {
                return false;
            }
            self.free -= step;
            self.streams[number].space += step;
            self.streams[number].step = step;
            true
        }
    }

    proptest! {
        #[test]
        fn streams_that_appear_in_any_order_are_refused_only_when_no_block_fits(
            capacity_blocks in 1..20_000u64,
            chunk_blocks in 1..40_000u64,
            // Streams, with the number of blocks that each writes in a row.
            turns in prop::collection::vec((0..12usize, 1..3000u64), 1..60),
        ) {
            let block = 16_384;
            let capacity = capacity_blocks * block;
            let mut disk = Disk {
                free: capacity,
                block,
                chunk: chunk_blocks * block,
                streams: vec![Stream::default(); 12],
            };
            let mut order: Vec<usize> = vec![];
            'recording: for (number, blocks) in turns {
                if !order.contains(&number) {
                    order.push(number);
                }
                for _ in 0..blocks {
                    if !disk.write(number) {
                        prop_assert!(disk.free < block, "refused with {} bytes free", disk.free);
                        break 'recording;
                    }
                }
            }
            // A stream holds at most one and a half of the steps that it could get when it appeared.
            for (rank, number) in order.iter().enumerate() {
                let Stream { filled, space, .. } = disk.streams[*number];
                let largest = (capacity / 32 / (rank as u64 + 1)).max(block);
                prop_assert!(space - filled <= largest + largest / 2 + block);
            }
        }

        #[test]
        fn a_step_is_of_use_and_never_more_than_the_share_unless_it_is_a_block(
            free in 0..1u64 << 50,
            blocks in 1..1000u64,
            chunk_blocks in 1..100_000u64,
            sharing in 1..2000u64,
        ) {
            let least = blocks * ALIGNMENT;
            let request = SpaceRequest { least, most: least * chunk_blocks, sharing };
            let step = request.step(free);
            prop_assert!((least..=request.most).contains(&step) && step.is_multiple_of(ALIGNMENT));
            prop_assert!(step == least || step <= free / 32 / sharing);
        }
    }
}
