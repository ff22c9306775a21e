//! Collects the content of a block's frames: time, thread, marks.

use fullbore_core::account::CountedBy;
use fullbore_core::index::Block;
use fullbore_core::manifest::{Fill, Format};
use fullbore_formats::FILL;
use fullbore_formats::framed::FrameCodec;
use fullbore_formats::vdif::Header;
use fullbore_store::reader::{Frame, StoredStream};

use super::numbers::Numbers;

/// The content of a block's frames.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Walk {
    pub(super) walked: bool,
    pub(super) present: u64,
    pub(super) fill: u64,
    pub(super) invalid: u64,
    pub(super) bad: Anomalies,
    pub(super) unmarked: u64,
    pub(super) misplaced: Anomalies,
    pub(super) threads: Vec<ThreadSpan>,
    /// The first frame that is not fill, and the last.
    pub(super) ends: Option<(EndFrame, EndFrame)>,
}

/// A frame at an end, by its own time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct EndFrame {
    /// The place among all frames.
    pub(super) index: i64,
    /// The second in it, and its number there; `None` if they are unreliable.
    pub(super) time: Option<(i64, u32)>,
}

/// Frames that are wrong: their number, and the problem of the first.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Anomalies {
    pub(super) count: u64,
    pub(super) why: Option<String>,
}

impl Anomalies {
    pub(super) fn add(&mut self, why: impl FnOnce() -> String) {
        self.count += 1;
        self.why.get_or_insert_with(why);
    }
}

/// The frames of one thread in a block, by their own time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ThreadSpan {
    pub(super) station: u16,
    pub(super) thread: u16,
    /// The number of all frames.
    pub(super) frames: u64,
    /// The valid frames: only their time is reliable.
    pub(super) timed: Option<Timed>,
    /// The starts of seconds, for frames that have places and no certain rate.
    pub(super) seconds: Vec<OfSecond>,
    /// The numbers of frames in a sequential stream.
    pub(super) numbers: Numbers,
    /// The numbers of those among them that are marked invalid.
    pub(super) doubtful: Numbers,
}

/// The frames of one second, by their places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OfSecond {
    pub(super) second: i64,
    /// The place of its frame 0 among those of the thread.
    pub(super) start: i64,
    /// The place behind the last frame seen.
    pub(super) end: i64,
}

/// Frames by their time: frames since 1970 if the frame rate is certain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timed {
    /// Time minus the place in the stream, which is constant over the whole scan.
    pub(super) offset: i64,
    /// The second of `offset`, if the frame rate is not certain.
    pub(super) second: i64,
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) frames: u64,
}

impl ThreadSpan {
    pub(super) fn add(&mut self, more: &ThreadSpan) {
        self.frames += more.frames;
        self.numbers.add(&more.numbers);
        self.doubtful.add(&more.doubtful);
        match (&mut self.timed, more.timed) {
            (Some(timed), Some(more)) => {
                timed.frames += more.frames;
                timed.first = timed.first.min(more.first);
                timed.last = timed.last.max(more.last);
            }
            (timed @ None, more) => *timed = more,
            (Some(_), None) => {}
        }
    }

    fn new(station: u16, thread: u16) -> Self {
        let (numbers, doubtful) = (Numbers::default(), Numbers::default());
        Self { station, thread, frames: 0, timed: None, seconds: Vec::new(), numbers, doubtful }
    }

    /// Records a frame that has a place. Returns `false` if other frames of its second give it a different start.
    fn note_place(&mut self, second: i64, number: i64, place: i64) -> bool {
        let start = place.saturating_sub(number);
        let end = place.saturating_add(1);
        // Frames come second by second.
        match self.seconds.iter_mut().rev().find(|it| it.second == second) {
            Some(known) => {
                known.end = known.end.max(end);
                known.start == start
            }
            None => {
                self.seconds.push(OfSecond { second, start, end });
                true
            }
        }
    }

    /// Returns the number of times between the first and the last that no frame has.
    pub(super) fn holes(&self) -> u64 {
        self.timed.map_or(0, |timed| {
            let span = timed.last.abs_diff(timed.first).saturating_add(1);
            span.saturating_sub(timed.frames)
        })
    }
}

/// The conversion from the time of a frame to its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// Frames per second of each thread, if that number is certain.
    pub(super) rate: Option<i64>,
    /// The number of threads that alternate frame by frame.
    pub(super) threads: i64,
    /// True if places follow from time.
    pub(super) places: bool,
    /// True in a sequential stream, where only the frames' numbers show which exist.
    pub(super) numbers: bool,
}

impl Clock {
    pub(super) fn of(stream: &StoredStream) -> Self {
        let account = stream.account.as_ref();
        let by_time = account.is_none_or(|it| it.counted_by == CountedBy::FrameTime);
        let restarts = account.map_or(0, |account| account.restarts);
        match &stream.format {
            Format::Frames { frames_per_second, derived, threads, .. } => Self {
                rate: frames_per_second.filter(|_| !derived).and_then(|it| it.try_into().ok()),
                threads: threads.len().max(1) as i64,
                places: by_time && restarts == 0 && stream.is_filled() && !threads.is_empty(),
                numbers: by_time && restarts == 0 && !stream.is_filled(),
            },
            Format::Panda { .. } | Format::Packets { .. } | Format::Raw => {
                Self { rate: None, threads: 1, places: false, numbers: false }
            }
        }
    }
}

/// Collects the content of frames that carry their own time; of others nothing.
pub(super) fn walk_frames(stream: &StoredStream, block: &Block, bytes: &[u8]) -> Walk {
    let Some(codec) = stream.codec else { return Walk::default() };
    let clock = Clock::of(stream);
    let mut walk = Walk { walked: true, ..Walk::default() };
    for frame in stream.frames(block, bytes) {
        if frame.fill {
            walk.fill += 1;
            walk.unmarked += u64::from(!is_fill(codec, stream.fill, frame.bytes));
            continue;
        }
        walk.present += 1;
        let checked = codec.check(frame.bytes, frame.bytes.len());
        let valid = checked.as_ref().ok().filter(|header| !header.invalid());
        let time = valid.map(|header| (header.second().0, header.frame_number()));
        let end = EndFrame { index: frame.index, time };
        walk.ends = Some((walk.ends.map_or(end, |(first, _)| first), end));
        match checked {
            Ok(header) => {
                walk.invalid += u64::from(header.invalid());
                walk.place(stream, clock, &frame, &header);
            }
            Err(damage) => walk.bad.add(|| format!("frame {}: {damage}", frame.index)),
        }
    }
    for span in &mut walk.threads {
        span.numbers.settle();
        span.doubtful.settle();
    }
    walk
}

fn is_fill(codec: FrameCodec, fill: Fill, frame: &[u8]) -> bool {
    let repeats = |word: u32| frame.chunks_exact(4).take(16).all(|it| it == word.to_le_bytes());
    match fill {
        // Without a frame that has thread and time, no header can be made.
        Fill::Invalid => {
            let keeps_header = |it: Header| it.invalid() || codec.is_fill(&it, frame);
            codec.read(frame).is_some_and(keeps_header) || repeats(FILL)
        }
        Fill::Pattern(word) => repeats(word),
        Fill::Omit => false,
    }
}

impl Walk {
    pub(super) fn place(
        &mut self,
        stream: &StoredStream,
        clock: Clock,
        frame: &Frame<'_>,
        header: &Header,
    ) {
        let (station, thread) = (header.station(), header.thread());
        let known = self.threads.iter().position(|it| (it.station, it.thread) == (station, thread));
        let at = known.unwrap_or_else(|| {
            self.threads.push(ThreadSpan::new(station, thread));
            self.threads.len() - 1
        });
        let span = &mut self.threads[at];
        span.frames += 1;
        let (second, number) = (header.second().0, i64::from(header.frame_number()));
        if clock.numbers {
            // In a sequential stream, an invalid frame was counted by its time as well.
            span.numbers.note(second, number);
            if header.invalid() {
                span.doubtful.note(second, number);
            }
        }
        // The time of an invalid frame may be wrong.
        if header.invalid() {
            return;
        }
        if clock.places
            && let Format::Frames { threads, .. } = &stream.format
        {
            let meant = threads[frame.index.rem_euclid(clock.threads) as usize];
            if thread != meant {
                self.misplaced.add(|| format!("thread {thread} in the place of thread {meant}"));
                return;
            }
        }
        if clock.places && clock.rate.is_none() {
            let place = frame.index.div_euclid(clock.threads);
            if !span.note_place(second, number, place) {
                self.misplaced
                    .add(|| format!("frame {} is not at the place of its second", frame.index));
            }
        }
        let time = second.saturating_mul(clock.rate.unwrap_or(0)).saturating_add(number);
        let offset = time.saturating_sub(frame.index.div_euclid(clock.threads));
        let Some(timed) = &mut span.timed else {
            span.timed = Some(Timed { offset, second, first: time, last: time, frames: 1 });
            return;
        };
        timed.frames += 1;
        (timed.first, timed.last) = (timed.first.min(time), timed.last.max(time));
        if clock.rate.is_none() && timed.second != second {
            // Without a certain rate, two seconds cannot be compared.
            (timed.second, timed.offset) = (second, offset);
        } else if clock.places && clock.rate.is_some() && timed.offset != offset {
            let off = offset.saturating_sub(timed.offset);
            self.misplaced.add(|| format!("frame {} is {off:+} frames off", frame.index));
        }
    }
}
