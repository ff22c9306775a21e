//! The thread that owns the files of a recording into a container: it stands where a member's writer stands.
//!
//! ```text
//! capture threads ──Write──► waiting for a time ──► in the file, unseen ──flush──► seen
//!        ▲                                                                          │
//!        └──────────────── Written, or Refused once a write has failed ─────────────┘
//! ```
//!
//! A block is given back when a flush has made it visible, so that what the account calls written is in the
//! file whatever happens later. libhdf5 lets one thread in at a time, so there is one for all files.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

use fullbore_core::layout::Geometry;
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::Name;
use fullbore_core::time::{Tai, frame_ns};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ring::{Command, Filled, Gauge, Returned, Wake};
use crate::sink::hdf5::{About, Error, Options, StreamFile};
use crate::source::StreamGauge;
use crate::store::Lane;

/// Commands of one lane before the next has its turn.
const TURN: usize = 64;

/// The longest sleep while nothing comes.
const NAP: Duration = Duration::from_millis(20);

/// How long a block waits to hear of the rate that its frames' times follow from.
const RATE_COMES: Duration = Duration::from_secs(2);

/// What the thread is told besides blocks.
#[derive(Debug)]
pub enum Word {
    /// A stream's first frames came, and this is known of it.
    Described(Box<Description>),
    /// An end was asked for: nothing waits any longer.
    Hurry,
}

/// What a file begins with.
#[derive(Debug)]
pub struct Description {
    /// Its place in the manifest.
    pub number: u16,
    /// The file.
    pub path: PathBuf,
    /// The scan's name.
    pub scan: String,
    /// The stream's name.
    pub name: Name,
    /// What its frames are.
    pub format: Format,
    /// How it is cut.
    pub geometry: Geometry,
    /// What stands in for frames that are not there.
    pub fill: Fill,
    /// Its counters.
    pub gauge: Arc<StreamGauge>,
}

/// What it tells.
#[derive(Debug)]
pub enum News {
    /// Readers can see so many bytes of a stream.
    Visible {
        /// The stream.
        number: u16,
        /// How many.
        bytes: u64,
    },
    /// Nothing more can be written.
    Failed(Error),
}

/// The thread's work.
pub struct Writer {
    lanes: Vec<Lane>,
    words: Receiver<Word>,
    news: Sender<News>,
    gauge: Arc<Gauge>,
    wake: Arc<Wake>,
    options: Options,
    /// Bytes that may wait for a flush, so that blocks do not run out.
    most_unseen: u64,
    outs: BTreeMap<u16, Out>,
    unseen_bytes: u64,
    flushed: Instant,
    hurried: bool,
    failed: bool,
}

/// A stream on its way into its file.
#[derive(Default)]
struct Out {
    description: Option<Description>,
    file: Option<StreamFile>,
    /// Blocks that cannot be written yet, with the lane they came by and when.
    waiting: VecDeque<(usize, Filled, Instant)>,
    waiting_bytes: u64,
    /// Blocks that are written and that readers cannot see yet.
    unseen: Vec<(usize, Filled)>,
    visible_bytes: u64,
    /// The latest block that told its time.
    timed: Option<(i64, Tai)>,
}

impl Writer {
    /// A writer that takes the blocks of these lanes.
    pub fn new(
        lanes: Vec<Lane>,
        words: Receiver<Word>,
        news: Sender<News>,
        gauge: Arc<Gauge>,
        wake: Arc<Wake>,
        options: Options,
        most_unseen: u64,
    ) -> Self {
        Writer {
            lanes,
            words,
            news,
            gauge,
            wake,
            options,
            most_unseen,
            outs: BTreeMap::new(),
            unseen_bytes: 0,
            flushed: Instant::now(),
            hurried: false,
            failed: false,
        }
    }

    /// Writes until the capture threads have gone. Gives the files, which can be ended then: if a write has failed, with
    /// what the last flush has shown.
    pub fn run(mut self) -> BTreeMap<u16, StreamFile> {
        while !self.is_over() {
            self.listen();
            let taken = self.take_commands();
            self.pour();
            if self.is_flush_due() {
                self.flush();
            }
            if taken == 0 {
                self.rest();
            }
        }
        self.outs.into_iter().filter_map(|(number, out)| Some((number, out.file?))).collect()
    }

    fn is_over(&self) -> bool {
        let gone = |lane: &Lane| lane.commands.is_abandoned() && lane.commands.is_empty();
        let idle = |out: &Out| out.waiting.is_empty() && out.unseen.is_empty();
        self.lanes.iter().all(gone) && self.outs.values().all(idle)
    }

    fn listen(&mut self) {
        while let Ok(word) = self.words.try_recv() {
            match word {
                Word::Hurry => self.hurried = true,
                Word::Described(description) => {
                    let out = self.outs.entry(description.number).or_default();
                    out.description.get_or_insert(*description);
                }
            }
        }
        // Nobody is left who could give more blocks, or describe a stream.
        self.hurried |= self.lanes.iter().all(|lane| lane.commands.is_abandoned());
    }

    fn take_commands(&mut self) -> usize {
        let mut taken = 0;
        for lane in 0..self.lanes.len() {
            for _ in 0..TURN {
                let Ok(command) = self.lanes[lane].commands.pop() else { break };
                taken += 1;
                // Of a stream that has ended all blocks have come back before.
                let Command::Write(filled) = command else { continue };
                if self.failed {
                    self.give_back(lane, filled, false);
                    continue;
                }
                let out = self.outs.entry(filled.track.number).or_default();
                out.waiting_bytes += u64::from(filled.bytes);
                out.waiting.push_back((lane, filled, Instant::now()));
            }
        }
        taken
    }

    /// Writes what can be written.
    fn pour(&mut self) {
        let numbers: Vec<u16> = self.outs.keys().copied().collect();
        for number in numbers {
            while !self.failed
                && let Some(out) = self.outs.get_mut(&number)
                && out.is_ready(self.hurried, self.most_unseen)
            {
                let Some((lane, filled, _)) = out.waiting.pop_front() else { break };
                out.waiting_bytes -= u64::from(filled.bytes);
                let (bytes, begun) = (u64::from(filled.bytes), Instant::now());
                let written = out.write(&filled, &self.options);
                let took = begun.elapsed().as_nanos() as u64;
                self.gauge.longest_write_ns.fetch_max(took, Relaxed);
                out.unseen.push((lane, filled));
                self.unseen_bytes += bytes;
                if let Err(error) = written {
                    self.fail(error);
                } else if self.unseen_bytes >= self.most_unseen {
                    self.flush();
                }
            }
        }
    }

    fn is_flush_due(&self) -> bool {
        let due = self.hurried || self.flushed.elapsed() >= self.options.flush;
        due && !self.failed && self.unseen_bytes > 0
    }

    /// Makes what was written visible, and gives its blocks back.
    fn flush(&mut self) {
        self.flushed = Instant::now();
        let numbers: Vec<u16> = self.outs.keys().copied().collect();
        for number in numbers {
            let Some(out) = self.outs.get_mut(&number).filter(|out| !out.unseen.is_empty()) else {
                continue;
            };
            if let Some(Err(error)) = out.file.as_mut().map(StreamFile::flush) {
                self.fail(error);
                return;
            }
            let seen = std::mem::take(&mut out.unseen);
            let bytes: u64 = seen.iter().map(|(_, filled)| u64::from(filled.bytes)).sum();
            out.visible_bytes += bytes;
            self.unseen_bytes -= bytes;
            let visible = out.visible_bytes;
            seen.into_iter().for_each(|(lane, filled)| self.give_back(lane, filled, true));
            self.say(News::Visible { number, bytes: visible });
        }
    }

    /// Writes nothing more, and gives back all that no reader can see.
    fn fail(&mut self, error: Error) {
        self.failed = true;
        self.gauge.refusing.store(true, Relaxed);
        self.say(News::Failed(error));
        let mut refused = Vec::new();
        for out in self.outs.values_mut() {
            refused.append(&mut out.unseen);
            refused.extend(out.waiting.drain(..).map(|(lane, filled, _)| (lane, filled)));
        }
        self.unseen_bytes = 0;
        refused.into_iter().for_each(|(lane, filled)| self.give_back(lane, filled, false));
    }

    fn give_back(&mut self, lane: usize, filled: Filled, written: bool) {
        let bytes = filled.bytes;
        self.gauge.backlog_bytes.fetch_sub(bytes.into(), Relaxed);
        let returned = match written {
            true => {
                self.gauge.written_bytes.fetch_add(bytes.into(), Relaxed);
                Returned::Written { block: filled.block, track: filled.track, bytes }
            }
            false => Returned::Refused(filled),
        };
        // The way back has room for every block there is; without anybody there, the memory goes with it.
        let _ = self.lanes[lane].returned.push(returned);
    }

    fn say(&self, news: News) {
        // Without a listener there is nobody to tell.
        let _ = self.news.send(news);
    }

    fn rest(&self) {
        self.wake.about_to_sleep();
        if self.lanes.iter().all(|lane| lane.commands.is_empty()) {
            let due = self.options.flush.saturating_sub(self.flushed.elapsed());
            let nap = if self.unseen_bytes > 0 { NAP.min(due) } else { NAP };
            let timeout = Timespec { tv_sec: 0, tv_nsec: nap.subsec_nanos().max(1_000_000).into() };
            // A wait that fails is only shorter.
            let _ = poll(&mut [PollFd::new(&*self.wake, PollFlags::IN)], Some(&timeout));
        }
        self.wake.awake();
    }
}

impl Out {
    /// Whether its first waiting block can be written: it is known what it is of, and when its frames were.
    fn is_ready(&self, hurried: bool, most_waiting: u64) -> bool {
        let (Some(description), Some((_, first, since))) =
            (&self.description, self.waiting.front())
        else {
            return false;
        };
        let told = !description.follows_a_rate()
            || (description.rate().is_some()
                && (first.time.is_some() || self.timed_next().is_some()));
        let late = since.elapsed() >= RATE_COMES || self.waiting_bytes >= most_waiting;
        told || hurried || late
    }

    /// The next waiting block that tells its time.
    fn timed_next(&self) -> Option<(i64, Tai)> {
        self.waiting.iter().find_map(|(_, filled, _)| Some((filled.first, filled.time?)))
    }

    fn write(&mut self, filled: &Filled, options: &Options) -> Result<(), Error> {
        let next = self.timed_next();
        let Some(description) = &self.description else { return Ok(()) };
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(description.begin(options)?),
        };
        let own = filled.time.map(|time| (filled.first, time));
        self.timed = own.or(self.timed);
        let base = own.or(next).or(self.timed);
        let placed = base.zip(description.rate().filter(|_| description.follows_a_rate()));
        let time_of = |index| placed.map(|(base, rate)| time_of(index, base, rate));
        let of_block = filled.time.or_else(|| time_of(filled.first)).unwrap_or(filled.seen);
        file.append(&filled.block[..filled.bytes as usize], of_block, |number| {
            time_of(filled.first + number as i64).unwrap_or(of_block)
        })
    }
}

impl Description {
    fn begin(&self, options: &Options) -> Result<StreamFile, Error> {
        let about = About {
            scan: &self.scan,
            stream: self.name.as_str(),
            format: &self.format,
            frame_bytes: self.geometry.frame_bytes,
        };
        StreamFile::create(&self.path, &about, options)
    }

    /// Whether frames have places, from which their times follow.
    fn follows_a_rate(&self) -> bool {
        self.fill != Fill::Omit && matches!(self.format, Format::Vdif { .. })
    }

    /// Frames of each thread per second, as far as is known by now, and how many threads lie frame by frame.
    fn rate(&self) -> Option<(u64, i64)> {
        let Format::Vdif { frames_per_second, threads, .. } = &self.format else { return None };
        let learnt = self.gauge.frames_per_second.load(Relaxed);
        let rate = frames_per_second.or((learnt > 0).then_some(learnt)).filter(|&rate| rate > 0)?;
        Some((rate, threads.len().max(1) as i64))
    }
}

/// The time of a frame, from that of another one.
fn time_of(index: i64, (first, time): (i64, Tai), (rate, threads): (u64, i64)) -> Tai {
    let slots = index.div_euclid(threads).saturating_sub(first.div_euclid(threads));
    let ns = frame_ns(slots.unsigned_abs(), rate);
    time.plus_ns(if slots < 0 { -ns } else { ns })
}
