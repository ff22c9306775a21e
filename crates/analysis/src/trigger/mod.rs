//! Conditions on samples that arrive: when a circular recording is to keep what it has.
//!
//! ```text
//! blocks of a tap ──► payloads ──► Meter ──► Evaluator ──► Hold ──► HostTime ──► Detected
//!                     by thread    values of   fulfilled     begins,   the time of
//!                     and place    each bin    or not        extends   the host
//! ```
//!
//! A bin is a millisecond, a quarter of the shortest duration of the condition, or the transform of its narrowest band. A
//! tap may skip blocks: what was not looked at is counted ([`Looked`]).
//!
//! - [`evaluate`]: conditions over bins; [`meter`] and [`bands`]: the values of a bin
//! - [`hold`]: hold-off and extension; [`host_time`]: times of samples by the clock of the host

pub mod bands;
pub mod evaluate;
pub mod hold;
pub mod host_time;
pub mod meter;
mod payloads;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use fullbore_core::manifest::Format;
use fullbore_formats::hint::Hint;
use fullbore_formats::samples::{SampleLayout, SampleRate};
use fullbore_time::Tai;

use self::bands::{BandError, Bands};
use self::evaluate::{Evaluator, Lines, Reason, Slack};
use self::hold::{Change, Hold, HoldTimes, StreamNs};
use self::host_time::HostTime;
use self::meter::{Cell, Meter};
use self::payloads::Payloads;
use crate::analysis::full_scale;
use crate::content::query::Query;
use crate::frames::SamplesError;

/// The longest bin that no duration and no band asks for, in seconds.
const BIN_S: f64 = 1e-3;

/// Bins of the shortest duration of a condition.
const BINS_OF_DURATION: f64 = 4.0;

/// The time by which the threads of a stream may be apart, in seconds: they can come from several senders.
const SKEW_S: f64 = 0.1;

/// The time of the host after which a stream that has brought only samples of earlier times has begun anew, in nanoseconds.
const RESTART_NS: i64 = 1_000_000_000;

/// The most values that wait for the other threads.
const MOST_WAITING: usize = 1 << 16;

/// A block of a stream, in the order of the stream.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// The format of the stream.
    pub format: &'a Format,
    /// The samples, as the endpoint describes them.
    pub described: Option<&'a SampleLayout>,
    /// Bytes of a frame; 1 if it has bytes without frames, 0 if lengths vary.
    pub frame_bytes: u32,
    /// Bytes of the stream that were skipped before this block.
    pub skipped: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// A trigger that begins, or lasts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detected {
    /// True if it begins.
    pub begins: bool,
    /// The time of the host at which the condition was fulfilled.
    pub at: Tai,
    /// The value that fulfilled it. `None` if the condition is that a comparison is not fulfilled.
    pub reason: Option<Reason>,
}

/// How much of a stream was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Bytes of blocks that were looked at.
    pub bytes: u64,
    /// Bytes of blocks that were skipped, that came before the sample rate was known, or after samples that are much later.
    pub skipped_bytes: u64,
}

/// A stream whose samples cannot be compared with a condition.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetectError {
    /// The samples cannot be decoded.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// The format is not decoded.
    #[error("{what} are not decoded")]
    Format {
        /// The frames or packets.
        what: &'static str,
    },
    /// A band is not in the spectrum.
    #[error(transparent)]
    Band(#[from] BandError),
    /// The stream does not have a channel.
    #[error("it has no channel ch{channel}, but {count} channels from ch0 on")]
    Channel {
        /// The channel of the condition.
        channel: usize,
        /// The number of channels.
        count: u32,
    },
    /// The endpoint does not state the sample rate.
    #[error("its sample rate is not known")]
    NoRate,
}

impl Hint for DetectError {
    fn hint(&self) -> Option<std::borrow::Cow<'static, str>> {
        match self {
            DetectError::Samples(SamplesError::Undescribed | SamplesError::Packets(_))
            | DetectError::NoRate => Some(
                "describe the samples in the endpoint: samples=ci16_be&channels=1&sample_rate=100MHz".into(),
            ),
            DetectError::Band(_) => {
                Some("`fullbore spectrum` shows the frequencies of a stream".into())
            }
            DetectError::Samples(_) | DetectError::Format { .. } | DetectError::Channel { .. } => {
                None
            }
        }
    }
}

/// Looks for a condition in the samples of one stream.
pub struct Detector {
    query: Query,
    hold: Hold,
    looked: Looked,
    running: Option<Running>,
}

struct Running {
    payloads: Payloads,
    meter: Meter,
    evaluator: Evaluator,
    layout: Arc<SampleLayout>,
    rate: SampleRate,
    bin_samples: u64,
    /// Bins that one thread, and several, may be behind.
    lag: [u64; 2],
    threads: BTreeSet<u16>,
    /// Bins that are not evaluated yet.
    waiting: BTreeMap<u64, Lines>,
    /// The values in them.
    values: usize,
    /// The bin behind those that are evaluated.
    next: u64,
    /// The bin behind the latest in which it is known whether the condition is fulfilled.
    known: u64,
    time: HostTime,
    /// Since this time of the host, all samples were of earlier times.
    behind: Option<Tai>,
}

impl Detector {
    /// A detector of a condition.
    pub fn new(query: Query, times: HoldTimes) -> Self {
        Self { query, hold: Hold::new(times), looked: Looked::default(), running: None }
    }

    /// How much was looked at.
    pub fn looked(&self) -> Looked {
        self.looked
    }

    /// Takes the next block of the stream, which is seen at this time of the host. Returns the triggers in it.
    ///
    /// # Errors
    ///
    /// The samples of the stream cannot be compared with the condition, now and later.
    pub fn take(&mut self, block: Block<'_>, now: Tai) -> Result<Vec<Detected>, DetectError> {
        self.looked.skipped_bytes += block.skipped;
        let bytes = block.bytes.len() as u64;
        if self.running.is_none() {
            self.running = Running::begin(&self.query, block, now)?;
        }
        let Some(running) = &mut self.running else {
            // A stream of context packets has no samples to be looked at.
            if !matches!(block.format, Format::Packets { .. }) {
                self.looked.skipped_bytes += bytes;
            }
            return Ok(Vec::new());
        };
        self.looked.bytes += bytes;
        let (mut cells, mut given) = (Vec::new(), 0);
        let meter = &mut running.meter;
        running.payloads.read(block, &mut |thread, at, bytes| {
            given += bytes.len() as u64;
            meter.take(thread, at, bytes, &mut cells);
        })?;
        let late = meter.take_left_out();
        self.looked.leave_out(late);
        if running.is_restart(given > late, now) {
            let last = self.finish();
            (self.running, self.hold) = (None, self.hold.anew());
            return Ok(last);
        }
        let bits = running.layout.sample_bits().max(1);
        let end = u128::from(running.payloads.end()) * 8 / u128::from(bits);
        running.time.learn(now, running.ns(u64::try_from(end).unwrap_or(u64::MAX)));
        let several = usize::from(running.threads.len() > 1);
        let detected = running.evaluate(cells, running.lag[several], &mut self.hold);
        self.looked.leave_out(running.meter.take_left_out());
        Ok(detected)
    }

    /// Evaluates the last bins: no block follows.
    pub fn finish(&mut self) -> Vec<Detected> {
        let Some(running) = &mut self.running else { return Vec::new() };
        let mut cells = Vec::new();
        running.meter.finish(&mut cells);
        running.evaluate(cells, 0, &mut self.hold)
    }
}

impl Looked {
    /// Bytes of a block that came too late to be looked at.
    fn leave_out(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.skipped_bytes += bytes;
    }
}

impl Running {
    /// Finds out what the samples are. `None` if that is not known yet.
    fn begin(query: &Query, block: Block<'_>, now: Tai) -> Result<Option<Self>, DetectError> {
        let Some(payloads) = Payloads::of(block, now)? else { return Ok(None) };
        let layout = Arc::new(payloads.layout().clone());
        let Some(rate) = layout.sample_rate else {
            // The recorder measures the rate of frames in the first second.
            let is_measured = block.format.is_frames() && block.described.is_none();
            return if is_measured { Ok(None) } else { Err(DetectError::NoRate) };
        };
        if let Some(channel) = evaluate::largest_channel(query)
            && channel >= layout.channels as usize
        {
            return Err(DetectError::Channel { channel, count: layout.channels });
        }
        let in_query = evaluate::bands(query);
        let bands = match in_query.as_slice() {
            [] => None,
            bands => Some(Bands::new(bands, &layout, rate.hertz())?),
        };
        let bin_samples =
            bin_samples(query, rate.hertz(), bands.as_ref().map_or(0, Bands::segment));
        let bin_s = bin_samples as f64 / rate.hertz();
        let lag = match block.format.is_frames() {
            true => {
                let one = payloads.frame_samples().div_ceil(bin_samples) + 1;
                [one, one.max((SKEW_S / bin_s).ceil() as u64)]
            }
            false => [0, 0],
        };
        Ok(Some(Self {
            meter: Meter::new(&layout, bin_samples, bands),
            evaluator: Evaluator::new(query, bin_s, full_scale(layout.encoding.code)),
            payloads,
            layout,
            rate,
            bin_samples,
            lag,
            threads: BTreeSet::new(),
            waiting: BTreeMap::new(),
            values: 0,
            next: 0,
            known: 0,
            time: HostTime::default(),
            behind: None,
        }))
    }

    /// Takes whether a block had samples that are no earlier than those before. Returns true if none had for a while: its
    /// sender counts from an earlier time.
    fn is_restart(&mut self, has_new: bool, now: Tai) -> bool {
        if has_new {
            self.behind = None;
            return false;
        }
        now.since(*self.behind.get_or_insert(now)) >= RESTART_NS
    }

    /// Evaluates the bins that no thread adds to any more.
    fn evaluate(&mut self, cells: Vec<Cell>, lag: u64, hold: &mut Hold) -> Vec<Detected> {
        for Cell { thread, bin, lines } in cells {
            self.threads.insert(thread);
            if bin >= self.next {
                let bin = self.waiting.entry(bin).or_default();
                self.values -= bin.len();
                bin.extend((0..).zip(lines).map(|(channel, line)| ((thread, channel), line)));
                self.values += bin.len();
            } else {
                self.meter.leave_out();
            }
        }
        let mut detected = Vec::new();
        let newest = self.waiting.last_key_value().map_or(0, |(bin, _)| *bin);
        while let Some(first) = self.waiting.first_entry()
            && (first.key() + lag <= newest || self.values > MOST_WAITING)
        {
            let (bin, lines) = first.remove_entry();
            (self.next, self.values) = (bin + 1, self.values - lines.len());
            let start = |bin: u64| self.ns(bin.saturating_mul(self.bin_samples));
            // The end of the bin: the condition is known to be fulfilled there.
            let ns = start(bin + 1);
            hold.pause(start(bin) - start(self.known));
            let slack = if hold.is_armed() { Slack::None } else { Slack::Relaxed };
            let fulfilled = self.evaluator.step(bin, &lines, slack);
            let Some(fulfilled) = fulfilled else { continue };
            self.known = bin + 1;
            let Some(change) = hold.step(ns, fulfilled) else { continue };
            let (begins, at) = match change {
                Change::Begin(at) => (true, at),
                Change::Extend(at) => (false, at),
            };
            let reason = self.evaluator.reason();
            detected.extend(self.time.of(at).map(|at| Detected { begins, at, reason }));
        }
        detected
    }

    /// The time of a sample from the first one.
    fn ns(&self, sample: u64) -> StreamNs {
        let (above, below) = self.rate.ratio();
        let ns = u128::from(sample) * u128::from(below) * 1_000_000_000 / u128::from(above);
        // A hundred years.
        i64::try_from(ns).unwrap_or(i64::MAX).min(3_200_000_000_000_000_000)
    }
}

/// The samples of a bin: whole bytes, and at least one transform.
fn bin_samples(query: &Query, rate_hz: f64, segment: usize) -> u64 {
    let of_duration = evaluate::shortest(query).map_or(BIN_S, |it| it / BINS_OF_DURATION);
    let samples = (rate_hz * BIN_S.min(of_duration)).round().min(1e12) as u64;
    samples.max(segment as u64).max(1).next_multiple_of(8)
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, value, unit } = self;
        let gap = if unit.is_empty() { "" } else { " " };
        write!(f, "{value:.1}{gap}{unit} in ch{line}")
    }
}

#[cfg(test)]
mod tests;
