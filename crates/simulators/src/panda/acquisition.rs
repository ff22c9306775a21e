//! One acquisition of a simulated PandA: the position of its writer, and its end.
//!
//! The server's ring has no memory behind it. The content of a sample follows from its index, so the number of written
//! samples is enough: a sample further back than the length of the ring is overwritten by a later one.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_formats::panda::{EndReason, Process};
use fullbore_time::Tai;

use super::Plan;
use super::fault::{Fault, What};
use super::samples::Layout;
use super::settings::Settings;

/// Blocks of the server's ring.
pub(super) const RING_BLOCKS: u64 = 128;

/// A connection joins at the first sample while fewer blocks than this are written.
const JOINS_AT_START: u64 = 95;

/// Later it joins this number of blocks above the oldest.
const JOIN_MARGIN: u64 = 33;

/// The driver passes on a partly filled block after this time.
const HAND_OVER: Duration = Duration::from_millis(100);

/// An acquisition, from ARM to its end.
#[derive(Debug)]
pub(super) struct Acquisition {
    pub number: u64,
    pub armed: Tai,
    pub started: Tai,
    begun: Instant,
    /// Samples per second; `None`: as fast as readers take them.
    rate: Option<f64>,
    /// The number of samples and the reason of the end, if the acquisition has an end.
    limit: Option<(u64, EndReason)>,
    /// Samples per block of the ring.
    block: u64,
    raw: Layout,
    scaled: Layout,
    progress: Mutex<Progress>,
    moved: Condvar,
}

#[derive(Debug)]
struct Progress {
    /// Samples that readers have requested, if they set the pace.
    taken: u64,
    /// The number of samples by which the writer was moved ahead.
    jumped: u64,
    /// Samples before this one were overwritten deliberately.
    spoiled: u64,
    end: Option<(u64, EndReason)>,
    faults: Vec<Fault>,
    closing: bool,
}

/// The samples that a reader may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ready {
    /// Samples up to this one.
    Upto(u64),
    /// The acquisition is over, for this reason.
    Over(EndReason),
    /// The server is shutting down.
    Closing,
}

impl Acquisition {
    /// Begins now with the current capture settings; `None` if no field is captured.
    pub fn new(number: u64, armed: Tai, settings: &Settings, plan: &Plan) -> Option<Self> {
        let layout = |process| match &plan.replay {
            Some(replay) => Some(replay.layout(process)),
            None => Layout::new(settings, process),
        };
        let (raw, scaled) = (layout(Process::Raw)?, layout(Process::Scaled)?);
        let block = (plan.ring_bytes / RING_BLOCKS / u64::from(raw.sample_bytes)).max(1);
        let (rate, mut faults) = (plan.samples_per_second, plan.faults.clone());
        let recorded = plan.replay.as_ref().map(|replay| (replay.samples(), replay.reason()));
        let wanted = plan.samples.map(|samples| (samples, EndReason::Ok));
        let mut limit = recorded.into_iter().chain(wanted).min_by_key(|(samples, _)| *samples);
        faults.retain(|fault| match &fault.what {
            What::End(reason) => {
                if limit.as_ref().is_none_or(|(samples, _)| fault.at <= *samples) {
                    limit = Some((fault.at, reason.clone()));
                }
                false
            }
            _ => true,
        });
        faults.sort_by_key(|fault| fault.at);
        let (begun, started) = (Instant::now(), armed.plus_ns(1_000_000));
        let progress =
            Progress { taken: 0, jumped: 0, spoiled: 0, end: None, faults, closing: false };
        let (progress, moved) = (Mutex::new(progress), Condvar::new());
        Some(Acquisition {
            number,
            armed,
            started,
            begun,
            rate,
            limit,
            block,
            raw,
            scaled,
            progress,
            moved,
        })
    }

    /// Its columns.
    pub fn layout(&self, process: Process) -> &Layout {
        match process {
            Process::Raw => &self.raw,
            Process::Scaled => &self.scaled,
        }
    }

    /// Samples in the ring.
    pub fn ring(&self) -> u64 {
        self.block * RING_BLOCKS
    }

    /// Samples written by now.
    pub fn written(&self) -> u64 {
        self.written_of(&mut self.lock())
    }

    /// The final number of samples and the reason of the end, if it has ended.
    pub fn end(&self) -> Option<(u64, EndReason)> {
        let mut progress = self.lock();
        self.written_of(&mut progress);
        progress.end.clone()
    }

    /// Ends it now, unless it is over.
    pub fn disarm(&self) {
        let mut progress = self.lock();
        let written = self.written_of(&mut progress);
        progress.end.get_or_insert((written, EndReason::Disarmed));
        self.moved.notify_all();
    }

    /// The server is shutting down: wakes all waiting threads.
    pub fn close(&self) {
        self.lock().closing = true;
        self.moved.notify_all();
    }

    /// The oldest sample that is still in the ring.
    pub fn oldest(&self) -> u64 {
        let mut progress = self.lock();
        let written = self.written_of(&mut progress);
        written.saturating_sub(self.ring()).max(progress.spoiled)
    }

    /// The first sample of a connection that is made now.
    pub fn join(&self) -> u64 {
        let mut progress = self.lock();
        let written = self.written_of(&mut progress);
        let blocks = written / self.block;
        let above_oldest = match blocks < JOINS_AT_START {
            true => 0,
            false => (blocks.saturating_sub(RING_BLOCKS) + JOIN_MARGIN) * self.block,
        };
        above_oldest.max(progress.spoiled).min(written)
    }

    /// Waits until the block that begins at `position` is full, or has waited long enough.
    pub fn wait(&self, position: u64) -> Ready {
        let begun = Instant::now();
        let full = position.saturating_add(self.block);
        let mut progress = self.lock();
        if self.rate.is_none() && progress.end.is_none() {
            progress.taken = progress.taken.max(full);
        }
        loop {
            let written = self.written_of(&mut progress);
            if progress.closing {
                return Ready::Closing;
            }
            match &progress.end {
                Some((end, reason)) if *end <= position => return Ready::Over(reason.clone()),
                Some((end, _)) => return Ready::Upto((*end).min(full)),
                None if written >= full => return Ready::Upto(full),
                None if written > position && begun.elapsed() >= HAND_OVER => {
                    return Ready::Upto(written);
                }
                None => {}
            }
            let due = match self.rate {
                Some(rate) => Duration::from_secs_f64(((full - written) as f64 / rate).min(0.1)),
                None => HAND_OVER,
            };
            let left = HAND_OVER.saturating_sub(begun.elapsed());
            let nap = due.min(left.max(Duration::from_millis(1))).max(Duration::from_micros(100));
            // Samples come by the clock.
            let woken = self.moved.wait_timeout(progress, nap);
            progress = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for `pause`, or until the server shuts down.
    pub fn stall(&self, pause: Duration) {
        let closing = |progress: &mut Progress| !progress.closing;
        let _ = self.moved.wait_timeout_while(self.lock(), pause, closing);
    }

    /// Takes the next fault among samples before `end` that matches `wanted`.
    pub fn fault(&self, end: u64, wanted: impl Fn(&What) -> bool) -> Option<Fault> {
        let mut progress = self.lock();
        let at = progress.faults.iter().position(|fault| fault.at < end && wanted(&fault.what))?;
        Some(progress.faults.remove(at))
    }

    /// Overwrites the samples up to a block behind `position`: the writer moves ahead by a whole ring. If the
    /// acquisition ends before that, the samples are overwritten and the writer stays in place.
    pub fn lap(&self, position: u64) {
        let mut progress = self.lock();
        let written = self.written_of(&mut progress);
        let spoiled = position + self.block;
        let whole = spoiled + self.ring();
        let has_so_many = self.limit.as_ref().is_none_or(|(limit, _)| whole < *limit);
        let ahead = if has_so_many { whole } else { spoiled };
        progress.jumped += ahead.saturating_sub(written);
        if self.rate.is_none() {
            progress.taken = progress.taken.max(ahead);
        }
        progress.spoiled = progress.spoiled.max(spoiled);
    }

    fn written_of(&self, progress: &mut Progress) -> u64 {
        if let Some((end, _)) = &progress.end {
            return *end;
        }
        let written = match self.rate {
            Some(rate) => (self.begun.elapsed().as_secs_f64() * rate) as u64 + progress.jumped,
            None => progress.taken,
        };
        match &self.limit {
            Some((limit, reason)) if written >= *limit => {
                progress.end = Some((*limit, reason.clone()));
                *limit
            }
            _ => written,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
