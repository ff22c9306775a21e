//! The time of each frame, and the frame at a time.

use std::ops::Range;

use fullbore_time::Tai;

use crate::error::ReadError;
use crate::scan::StreamView;

impl StreamView<'_> {
    /// Returns the times of frames, by the clock of the stream: the frames' own, else the arrival of their blocks.
    ///
    /// # Panics
    ///
    /// If the memory has another length than the range.
    pub fn read_times(self, frames: Range<u64>, times: &mut [Tai]) -> Result<(), ReadError> {
        let wanted = self.indices(&frames)?;
        assert_eq!(times.len() as u64, frames.end - frames.start, "memory of the range");
        let stream = self.stream();
        let positions = self.positions(&wanted);
        if positions.is_empty() && !wanted.is_empty() {
            return Err(ReadError::Untimed { stream: self.name(), what: "frames" });
        }
        for position in positions.clone() {
            let clock = stream.clock_of(&stream.blocks[position].block);
            let next = stream.blocks.get(position + 1).map(|next| next.block.first);
            let begin = stream.blocks[position].block.first;
            let begin = if position == positions.start { wanted.start } else { begin };
            let end = next.unwrap_or(wanted.end).min(wanted.end);
            for index in begin.max(wanted.start)..end {
                times[(index - wanted.start) as usize] =
                    stream.time_of(index).unwrap_or_else(|| clock.time(index));
            }
        }
        Ok(())
    }

    /// Returns the first frame at or after a time, counted from 0; the number of all frames if none is that late.
    pub fn frame_at(self, time: Tai) -> Result<u64, ReadError> {
        let untimed = || ReadError::Untimed { stream: self.name(), what: "frames" };
        if !self.stream().is_timed() {
            return Err(untimed());
        }
        let index = self.stream().index_at(time).ok_or_else(untimed)?;
        let frame = index.saturating_sub(self.first_index()).max(0).unsigned_abs();
        Ok(frame.min(self.count()))
    }
}

#[cfg(test)]
mod tests {
    use fullbore_core::gap::Cause;
    use fullbore_store::testing::{BLOCK_FRAMES, RATE, Store, StreamPlan};
    use fullbore_time::Tai;

    use crate::OpenScan;

    #[test]
    fn frames_and_times_lead_to_each_other_over_gaps() {
        let store = Store::in_memory(1);
        let plan = StreamPlan::vdif("a").frames(200).gap(40, 5, Cause::Missing).skip_blocks(3..4);
        let laid = store.lay_down("s_one", &[plan]);
        let open = OpenScan::open(&store.roots(), &laid.name, false).unwrap();
        let stream = open.stream("a").unwrap();
        let mut times = vec![Tai(0); 200];
        stream.read_times(0..200, &mut times).unwrap();
        let period = 1_000_000_000 / RATE as i64;
        for (frame, time) in times.iter().enumerate() {
            assert_eq!(time.since(times[0]), frame as i64 * period, "{frame}");
            // Within a gap without a block, time leads to a frame of it too.
            assert_eq!(stream.frame_at(*time).unwrap(), frame as u64, "{frame}");
        }
        assert_eq!(stream.frame_at(times[9].plus_ns(1)).unwrap(), 10);
        assert_eq!(stream.frame_at(times[0].plus_ns(-5)).unwrap(), 0);
        assert_eq!(stream.frame_at(times[199].plus_ns(period)).unwrap(), 200);
        let mut part = vec![Tai(0); 7];
        let from = 3 * BLOCK_FRAMES + 2;
        stream.read_times(from..from + 7, &mut part).unwrap();
        assert_eq!(part, times[from as usize..from as usize + 7]);
    }
}
