//! Spectra of what arrives now: blocks of a tap, one after the other, on one thread.
//!
//! A tap skips blocks. Frames that carry their time find their place behind the gap; in other streams each block stands
//! for itself.

use std::sync::Arc;

use fullbore_core::manifest::Format;
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::samples::SampleLayout;
use fullbore_time::Tai;

use crate::accumulate::Accumulator;
use crate::analysis::Analysis;
use crate::batch::{Batch, Batcher};
use crate::frames::SampleFrames;
use crate::plan::Plan;
use crate::source::Error;

/// A block of a stream.
#[derive(Clone, Copy, Debug)]
pub struct LiveBlock<'a> {
    /// The format of the stream.
    pub format: &'a Format,
    /// Bytes of a frame; 0 or 1 if there are no frames of one length.
    pub frame_bytes: u32,
    /// The position of the block among the bytes of the stream.
    pub position: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// The sums of a stream since they were last taken.
pub struct Live {
    name: String,
    plan: Arc<Plan>,
    described: Option<SampleLayout>,
    running: Option<Running>,
}

struct Running {
    layout: Arc<SampleLayout>,
    frames: SampleFrames,
    batcher: Batcher,
    accumulator: Accumulator,
    codec: Option<FrameCodec>,
    unpaired: Option<Batch>,
}

impl Live {
    /// A stream of this name, whose samples may be described.
    pub fn new(name: String, plan: Arc<Plan>, described: Option<SampleLayout>) -> Self {
        Self { name, plan, described, running: None }
    }

    /// Takes a block.
    pub fn take(&mut self, block: LiveBlock<'_>, now: Tai) -> Result<(), Error> {
        let name = || self.name.clone();
        let plain = |source| Error::Samples { name: name(), source };
        let refused = |source| Error::Plan { name: name(), source };
        if let Format::Packets { .. } = block.format {
            // A tap skips blocks, and with them the context and the start of packets.
            let why = "packets cannot be analysed live: record them, and analyse the scan";
            return Err(Error::Refused { name: name(), why });
        }
        let frame_bytes =
            if block.frame_bytes > 1 { block.frame_bytes as usize } else { block.bytes.len() };
        if self.running.is_none() {
            let codec = block.format.codec(now);
            let rate = match block.format {
                Format::Frames { frames_per_second, .. } => *frames_per_second,
                Format::Panda { .. } | Format::Packets { .. } | Format::Raw => None,
            };
            let frame = block.bytes.get(..frame_bytes).unwrap_or_default();
            let described = self.described.clone();
            let frames = SampleFrames::of(described, codec, rate, frame).map_err(plain)?;
            let layout = Arc::new(frames.layout.clone());
            self.plan.check(&layout).map_err(refused)?;
            let batcher = Batcher::new(self.plan.segment(&layout), layout.sample_bits());
            let accumulator = Accumulator::new(&self.plan, &layout);
            let unpaired = None;
            self.running = Some(Running { layout, frames, batcher, accumulator, codec, unpaired });
        }
        let running = self.running.as_mut().expect("made above");
        let Running { layout, frames, batcher, accumulator, codec, .. } = running;
        let mut batches = Vec::new();
        let mut complete = |batch| batches.push(batch);
        match *codec {
            Some(codec) => {
                for frame in block.bytes.chunks_exact(frame_bytes.max(1)) {
                    let fill = codec.read(frame).is_none_or(|header| codec.is_fill(&header, frame));
                    let Some(placed) = frames.place(frame, fill, Some(codec)).map_err(plain)?
                    else {
                        continue;
                    };
                    let payload = &frame[placed.payload];
                    batcher.take(placed.thread, placed.at, payload, &mut Vec::new, &mut complete);
                }
            }
            None => {
                let bits = layout.sample_bits();
                let group = (bits >> bits.trailing_zeros().min(3)).max(1);
                let into = ((group - block.position % group) % group) as usize;
                *batcher = Batcher::new(self.plan.segment(layout), bits);
                let samples = block.bytes.get(into..).unwrap_or_default();
                batcher.take(0, 0, samples, &mut Vec::new, &mut complete);
                batcher.finish(&mut complete);
            }
        }
        let first = frames.first_thread();
        let lines = self.plan.wanted.cross;
        for batch in batches {
            let Some([one, other]) = lines else {
                accumulator.add(&batch).map_err(refused)?;
                continue;
            };
            let [a, b] = [one, other].map(|line| line.thread.unwrap_or(first));
            match running.unpaired.take() {
                _ if a == b && batch.thread == a => {
                    accumulator.add_cross((&batch, one.channel), (&batch, other.channel));
                }
                Some(before)
                    if before.first == batch.first && before.thread == a && batch.thread == b =>
                {
                    accumulator.add_cross((&before, one.channel), (&batch, other.channel));
                }
                Some(before)
                    if before.first == batch.first && before.thread == b && batch.thread == a =>
                {
                    accumulator.add_cross((&batch, one.channel), (&before, other.channel));
                }
                before if batch.thread != a && batch.thread != b => running.unpaired = before,
                _ => running.unpaired = Some(batch),
            }
        }
        Ok(())
    }

    /// The result since the last call. `None` if no segment was whole.
    pub fn result(&mut self) -> Option<Analysis> {
        let running = self.running.as_mut()?;
        let sums = running.accumulator.take();
        let (plan, layout) = (self.plan.clone(), running.layout.clone());
        let analysis = Analysis::new(&self.name, plan, layout, None, sums, 0);
        (analysis.segments > 0).then_some(analysis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Wanted;
    use crate::window::Window;

    #[test]
    fn packets_are_refused() {
        use fullbore_formats::packets::PacketKind;
        let wanted = Wanted { power: true, ..Wanted::default() };
        let plan = Plan { channels: 8, window: Window::Hann, bin: None, wanted };
        let layout = SampleLayout::new("ci16_be".parse().unwrap(), 1);
        let mut live = Live::new("rx-00000001".into(), Arc::new(plan), Some(layout));
        let format = &Format::Packets { kind: PacketKind::Vita49 };
        let block = LiveBlock { format, frame_bytes: 0, position: 0, bytes: &[0; 400] };
        let refused = live.take(block, Tai(0)).unwrap_err();
        assert!(refused.to_string().contains("cannot be analysed live"));
    }

    #[test]
    fn blocks_of_bytes_begin_at_a_whole_sample() {
        let wanted = Wanted { power: true, ..Wanted::default() };
        let plan = Plan { channels: 8, window: Window::Hann, bin: None, wanted };
        let layout = SampleLayout::new("ri8".parse().unwrap(), 3);
        let mut live = Live::new("raw".into(), Arc::new(plan), Some(layout));
        assert!(live.result().is_none());
        // Channel n has the value n + 1, and no block is a whole number of samples.
        let stream: Vec<u8> = (0..4000).map(|n: usize| (n % 3) as u8 + 1).collect();
        for (number, bytes) in stream.chunks(1000).enumerate() {
            let position = number as u64 * 1000;
            let block = LiveBlock { format: &Format::Raw, frame_bytes: 1, position, bytes };
            live.take(block, Tai(0)).unwrap();
        }
        let result = live.result().unwrap();
        let powers: Vec<f64> =
            result.lines().into_iter().map(|line| result.power(line, 0).unwrap()).collect();
        assert_eq!(powers, [1.0, 4.0, 9.0]);
        assert_eq!(result.segments, 4 * 20);
        assert!(live.result().is_none(), "it was taken");
    }
}
