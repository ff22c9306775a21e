//! Spectra of what arrives now: blocks of a tap, one after the other, on one thread.
//!
//! A tap skips blocks. Frames that carry their time find their place behind the gap; in other streams each block stands
//! for itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use fullbore_core::manifest::Format;
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::samples::SampleLayout;
use fullbore_time::Tai;

use crate::accumulate::Accumulator;
use crate::analysis::Analysis;
use crate::batch::{Batch, Batcher};
use crate::frames::SampleFrames;
use crate::plan::{LineId, Plan};
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
    only: Option<LineId>,
    running: Option<Running>,
}

struct Running {
    layout: Arc<SampleLayout>,
    frames: SampleFrames,
    batcher: Batcher,
    accumulator: Accumulator,
    codec: Option<FrameCodec>,
    unpaired: Option<Batch>,
    threads: BTreeSet<u16>,
}

impl Live {
    /// A stream of this name, whose samples may be described.
    pub fn new(name: String, plan: Arc<Plan>, described: Option<SampleLayout>) -> Self {
        Self { name, plan, described, only: None, running: None }
    }

    /// The same, with the sums of the thread of this line alone, and with sums that take little memory.
    pub fn of_thread(self, line: LineId) -> Self {
        Self { only: Some(line), ..self }
    }

    /// The samples, once the first block has shown them.
    pub fn layout(&self) -> Option<&Arc<SampleLayout>> {
        self.running.as_ref().map(|running| &running.layout)
    }

    /// The threads of which a frame came, summed or not.
    pub fn threads(&self) -> impl Iterator<Item = u16> {
        self.running.iter().flat_map(|running| running.threads.iter().copied())
    }

    /// The thread of the first frame.
    pub fn first_thread(&self) -> u16 {
        self.running.as_ref().map_or(0, |running| running.frames.first_thread())
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
            if let Some(line) = self.only {
                self.plan.check_line(&layout, line).map_err(refused)?;
            }
            let batcher = Batcher::new(self.plan.segment(&layout), layout.sample_bits());
            let accumulator = Accumulator::new(&self.plan, &layout);
            let (unpaired, threads) = (None, BTreeSet::new());
            self.running =
                Some(Running { layout, frames, batcher, accumulator, codec, unpaired, threads });
        }
        let running = self.running.as_mut().expect("made above");
        let Running { layout, frames, batcher, accumulator, codec, threads, unpaired } = running;
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
                    threads.insert(placed.thread);
                    let first = frames.first_thread();
                    let only = self.only.map(|line| line.thread.unwrap_or(first));
                    if only.is_some_and(|only| only != placed.thread) {
                        continue;
                    }
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
            match unpaired.take() {
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
                before if batch.thread != a && batch.thread != b => *unpaired = before,
                _ => *unpaired = Some(batch),
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
    use fullbore_formats::framed::FrameKind;
    use fullbore_formats::vdif::{Header, Second};

    use super::*;
    use crate::plan::{PlanError, Wanted};
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

    /// Frames of two threads in turn, whose samples are all the highest level in thread 3, and the lowest in thread 5.
    fn two_threads(frames: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..frames {
            for (thread, payload) in [(3, 0xFF), (5, 0x00)] {
                let mut header = Header::default().with_frame_bytes(1056).with_bits_per_sample(2);
                header.set_time(Second(1_700_000_000), number);
                let mut frame = vec![payload; 1056];
                header.with_thread(thread).write(&mut frame).unwrap();
                bytes.extend(frame);
            }
        }
        bytes
    }

    fn of_thread(thread: Option<u16>, channel: usize) -> Result<Live, Error> {
        let wanted = Wanted { power: true, levels: true, ..Wanted::default() };
        let plan = Plan { channels: 8, window: Window::Hann, bin: None, wanted };
        let live = Live::new("46220".into(), Arc::new(plan), None);
        let mut live = live.of_thread(LineId { thread, channel });
        let format = Format::Frames {
            kind: FrameKind::Vdif,
            frames_per_second: Some(1000),
            derived: false,
            threads: vec![],
        };
        let bytes = &two_threads(200);
        live.take(LiveBlock { format: &format, frame_bytes: 1056, position: 0, bytes }, Tai(0))?;
        Ok(live)
    }

    #[test]
    fn the_sums_of_one_thread_have_no_sample_of_another() {
        for (asked, thread, mean) in
            [(None, 3, 3.3165), (Some(3), 3, 3.3165), (Some(5), 5, -3.3165)]
        {
            let mut live = of_thread(asked, 0).unwrap();
            assert_eq!((live.threads().collect::<Vec<_>>(), live.first_thread()), (vec![3, 5], 3));
            let result = live.result().unwrap();
            let line = LineId { thread: Some(thread), channel: 0 };
            assert_eq!(result.lines(), [line]);
            let sums = result.whole(line);
            assert!((sums.sum / sums.values as f64 - mean).abs() < 1e-3, "{asked:?}");
        }
        assert!(of_thread(Some(9), 0).unwrap().result().is_none(), "there is no such thread");
    }

    #[test]
    fn a_line_that_is_not_there_or_takes_much_memory_is_refused() {
        let Err(Error::Plan { source, .. }) = of_thread(None, 1) else { panic!() };
        assert_eq!(source, PlanError::Line { channel: 1, count: 1 });
        let plan = |channels| Plan {
            channels,
            window: Window::Hann,
            bin: None,
            wanted: Wanted::default(),
        };
        let wide = SampleLayout::new("ro2".parse().unwrap(), 512);
        let line = LineId { thread: None, channel: 0 };
        assert_eq!(plan(1024).check_line(&wide, line), Ok(()));
        assert!(matches!(plan(1032).check_line(&wide, line), Err(PlanError::Live { .. })));
    }
}
