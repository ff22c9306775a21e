//! The thread that looks for conditions in the samples of a recording.
//!
//! It reads a tap at the lowest priority, so it can neither slow the recording nor lose anything of it. Blocks that it
//! does not come to are skipped, and counted.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_analysis::content::query::Query;
use fullbore_analysis::content::yield_to_others;
use fullbore_analysis::trigger::hold::HoldTimes;
use fullbore_analysis::trigger::{Block, DetectError, Detected, Detector, Looked};
use fullbore_core::hint::explained;
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::Event;
use fullbore_linux::clock::Clock;
use fullbore_linux::ring::{Tap, TapBlock, Taps};
use fullbore_time::Tai;

/// The interval in which the thread looks for the end.
const LOOK: Duration = Duration::from_millis(100);

/// The time for the last blocks after the end of the recording.
const REST: Duration = Duration::from_secs(2);

/// Skipped blocks of a stream after which there is a warning.
const MANY_SKIPPED: u64 = 8;

/// A condition on samples.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Condition {
    /// As the user wrote it.
    pub text: String,
    /// The condition.
    pub query: Query,
    /// When a trigger of it begins, and how long it lasts.
    pub hold: HoldTimes,
}

/// A moment at which a condition is fulfilled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The number of the condition.
    pub condition: usize,
    /// True if a trigger begins; false if one lasts.
    pub begins: bool,
    /// The moment, by the host's clock.
    pub at: Tai,
    /// A note.
    pub note: String,
}

/// The running thread.
#[derive(Debug)]
pub(crate) struct Lookout {
    ending: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Event>>,
}

impl Lookout {
    /// Starts to look at what these taps show. Warnings go to `tell`.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(
        taps: &Taps,
        conditions: Vec<Condition>,
        finds: SyncSender<Found>,
        tell: Sender<Event>,
    ) -> io::Result<Self> {
        let ending = Arc::new(AtomicBool::new(false));
        let (tap, of_thread) = (taps.open_for_every(), ending.clone());
        let watch = Watch::new(conditions, finds, tell);
        let work = move || watch.run(tap, &of_thread);
        let thread = std::thread::Builder::new().name("trigger".into()).spawn(work)?;
        Ok(Self { ending, thread })
    }

    /// Looks at the last blocks, and returns how much was looked at.
    pub fn finish(self) -> Vec<Event> {
        self.ending.store(true, Relaxed);
        self.thread.join().unwrap_or_else(|_| {
            let text = "the thread that looks for --trigger-on failed".to_owned();
            vec![Event::Warning { text }]
        })
    }
}

/// What the thread knows.
struct Watch {
    conditions: Vec<Condition>,
    finds: SyncSender<Found>,
    tell: Sender<Event>,
    streams: BTreeMap<u16, Watched>,
    /// Bytes of the blocks of each stream that came before the recorder had described it.
    undescribed: BTreeMap<u16, u64>,
    clock: Clock,
}

/// A stream.
struct Watched {
    name: String,
    /// One for each condition; `None` of a condition that the stream cannot be compared with.
    detectors: Vec<Option<Detector>>,
    /// Blocks that the tap has skipped.
    skipped: u64,
}

impl Watch {
    fn new(conditions: Vec<Condition>, finds: SyncSender<Found>, tell: Sender<Event>) -> Self {
        let (streams, undescribed) = (BTreeMap::new(), BTreeMap::new());
        Self { conditions, finds, tell, streams, undescribed, clock: Clock::new() }
    }

    fn run(mut self, mut tap: Tap, ending: &AtomicBool) -> Vec<Event> {
        yield_to_others();
        let mut until = None;
        loop {
            if until.is_none() && ending.load(Relaxed) {
                until = Some(Instant::now() + REST);
            }
            let is_late = until.is_some_and(|until| Instant::now() >= until);
            match tap.next(if until.is_some() { Duration::ZERO } else { LOOK }) {
                Some(block) if !is_late => self.take(&block),
                _ if until.is_some() => break,
                _ => {}
            }
        }
        let ends: Vec<u16> = self.streams.keys().copied().collect();
        for number in ends {
            self.put(number, |detector| Ok(detector.finish()));
        }
        self.streams.values().filter_map(Watched::report).collect()
    }

    fn take(&mut self, block: &TapBlock) {
        let (number, geometry) = (block.stream_ref.number, block.stream_ref.geometry);
        let skipped = block.skipped.saturating_mul(geometry.block_bytes.into());
        // The recorder describes a stream soon after its first block.
        let Some(stream) = &block.stream else {
            *self.undescribed.entry(number).or_default() += skipped + block.bytes.len() as u64;
            return;
        };
        let skipped = skipped + self.undescribed.remove(&number).unwrap_or(0);
        let conditions = &self.conditions;
        self.streams.entry(number).or_insert_with(|| {
            let detector = |it: &Condition| Some(Detector::new(it.query.clone(), it.hold));
            let detectors = conditions.iter().map(detector).collect();
            Watched { name: stream.name.to_string(), detectors, skipped: 0 }
        });
        let of_block = Block {
            format: &stream.format,
            described: stream.samples.as_ref(),
            frame_bytes: geometry.frame_bytes,
            skipped,
            bytes: &block.bytes,
        };
        let now = self.clock.now();
        self.put(number, |detector| detector.take(of_block, now));
        self.count_skipped(number, block.skipped);
    }

    /// Lets every detector of a stream do something, and passes on what it finds.
    fn put(
        &mut self,
        number: u16,
        mut work: impl FnMut(&mut Detector) -> Result<Vec<Detected>, DetectError>,
    ) {
        let Some(watched) = self.streams.get_mut(&number) else { return };
        for (condition, slot) in watched.detectors.iter_mut().enumerate() {
            let Some(detector) = slot else { continue };
            let text = &self.conditions[condition].text;
            let detected = match work(detector) {
                Ok(detected) => detected,
                Err(error) => {
                    *slot = None;
                    let why = explained(&error);
                    let text = format!("`{text}` is not looked for in {}: {why}", watched.name);
                    // The receiver may be gone.
                    let _ = self.tell.send(Event::Warning { text });
                    continue;
                }
            };
            for Detected { begins, at, reason } in only_last_extensions(&detected) {
                let reason = reason.map_or_else(String::new, |it| format!(": {it}"));
                let note = format!("{text}{reason} of {}", watched.name);
                // The receiver may be gone.
                let _ = self.finds.send(Found { condition, begins, at, note });
            }
        }
    }

    /// Counts skipped blocks, and warns once.
    fn count_skipped(&mut self, number: u16, skipped: u64) {
        let Some(watched) = self.streams.get_mut(&number) else { return };
        let before = watched.skipped;
        watched.skipped = before.saturating_add(skipped);
        if before < MANY_SKIPPED && watched.skipped >= MANY_SKIPPED {
            let text = format!(
                "{}: --trigger-on skips blocks, because the processor has no time for them; what is in them triggers \
                 nothing",
                watched.name
            );
            // The receiver may be gone.
            let _ = self.tell.send(Event::Warning { text });
        }
    }
}

impl Watched {
    /// The least that a condition has looked at.
    fn looked(&self) -> Option<Looked> {
        self.detectors.iter().flatten().map(Detector::looked).min_by_key(|it| it.bytes)
    }

    fn report(&self) -> Option<Event> {
        let Looked { bytes, skipped_bytes } = self.looked()?;
        let all = bytes.saturating_add(skipped_bytes);
        if all == 0 {
            return None;
        }
        let percent = bytes as f64 / all as f64 * 100.0;
        let (name, skipped) = (&self.name, ByteSize(skipped_bytes));
        let text = format!(
            "{name}: --trigger-on has looked at {percent:.1} % of the data; {skipped} were not looked at"
        );
        Some(Event::Note { text })
    }
}

/// The begins of triggers, and of each run of extensions the last one.
fn only_last_extensions(detected: &[Detected]) -> Vec<Detected> {
    let next = detected.iter().skip(1).map(Some).chain([None]);
    let is_kept = |(it, next): &(&Detected, Option<&Detected>)| {
        it.begins || next.is_none_or(|next| next.begins)
    };
    detected.iter().zip(next).filter(is_kept).map(|(it, _)| *it).collect()
}

#[cfg(test)]
mod tests {
    use fullbore_core::layout::Geometry;
    use fullbore_core::manifest::Format;
    use fullbore_formats::samples::SampleLayout;
    use fullbore_linux::ring::{StreamRef, TapStream};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn blocks_before_a_stream_is_described_are_counted_as_not_looked_at() {
        let (finds, _found) = std::sync::mpsc::sync_channel(1);
        let (tell, _told) = std::sync::mpsc::channel();
        let hold = HoldTimes { off_ns: 0, longest_ns: 0 };
        let query = Query::of_samples("level(any) > 1").unwrap();
        let mut watch = Watch::new(vec![Condition { text: "x".into(), query, hold }], finds, tell);
        let samples = Some(SampleLayout {
            sample_rate: "1MHz".parse().ok(),
            ..SampleLayout::new("ri8".parse().unwrap(), 1)
        });
        let (scan, name) = ("s_a".parse().unwrap(), "x".parse().unwrap());
        let described = Arc::new(TapStream { scan, name, format: Format::Raw, samples });
        let geometry = Geometry::of_frames(64, 4096, 1 << 20).unwrap();
        let stream_ref =
            Arc::new(StreamRef { scan: Uuid::nil(), number: 3, directory: "x".into(), geometry });
        for (number, skipped, stream) in
            [(0, 0, None), (2, 1, None), (3, 0, Some(described.clone())), (5, 1, Some(described))]
        {
            let stream_ref = stream_ref.clone();
            watch.take(&TapBlock { stream_ref, stream, number, skipped, bytes: vec![0; 4096] });
        }
        let looked = watch.streams[&3].looked().unwrap();
        assert_eq!(looked, Looked { bytes: 8192, skipped_bytes: 4 * 4096 });
    }

    #[test]
    fn extensions_in_a_row_are_one() {
        let detected = |begins, at| Detected { begins, at: Tai(at), reason: None };
        let all = [(true, 1), (false, 2), (false, 3), (true, 4), (true, 5), (false, 6)];
        let all = all.map(|(begins, at)| detected(begins, at));
        let kept: Vec<i64> = only_last_extensions(&all).iter().map(|it| it.at.0).collect();
        assert_eq!(kept, [1, 3, 4, 5, 6]);
    }
}
