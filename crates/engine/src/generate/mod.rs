//! Streams made for tests: true headers, known payloads, a true pace, and faults on purpose.
//!
//! ```text
//! Course (fates by seed) ──► Maker (heads) ──┐
//!                          Payloads (ready) ─┴─► Sender, paced ──► Truth (what was really sent)
//! ```
//!
//! Each port is a *lane* with one socket. The frames of its threads take turns, so *place* =
//! index × threads + rank of the thread counts what the lane sends; indices count frames of a thread
//! from frame 0 of the first second. One thread serves all lanes, whichever is due next.

mod datagram;
mod fault;
mod lane;
mod payload;
mod truth;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fullbore_core::endpoint::UdpTarget;
use fullbore_core::format::sequence::Field;
use fullbore_core::format::vdif::{Backend, Extended, Header, SampleRate, Second, mark5b};
use fullbore_core::time::Tai;
use serde::Serialize;

pub use fault::{Damage, Error as FaultError, Faults, Silence};
pub use payload::{PayloadSource, Payloads, SampleError};
pub use truth::{Harm, Set, StreamTruth, Tally, Truth};

use crate::clock::Clock;
use crate::pace::{LatenessSummary, Waiting};
use crate::sys::send;
use lane::Lane;
pub(crate) use lane::cpu_seconds;

/// What is to be sent.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One stream for each port.
    pub streams: Vec<StreamPlan>,
    /// What payloads are made of; must be as long as the frames of every stream have room for.
    pub payload: PayloadSource,
    /// The time of the first frames. A part of a second begins with the frame due then. `None`: the moment when all is
    /// prepared, for whoever sends at once; what carries no time begins with a second all the same.
    pub start: Option<Tai>,
    /// Frames of each thread; `None`: until stopped.
    pub frames: Option<u64>,
    /// How the pace is kept.
    pub pace: Pace,
    /// What is done wrong on purpose.
    pub faults: Faults,
}

/// One port.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// Its name in the truth.
    pub name: String,
    /// Where it is sent.
    pub target: UdpTarget,
    /// What its datagrams are.
    pub form: Form,
    /// Frames per second of each thread.
    pub frames_per_second: u64,
    /// The threads that take turns; one for raw datagrams.
    pub threads: Vec<u16>,
    /// Packet or sequence number of place 0.
    pub first_number: i64,
}

/// What datagrams are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// VDIF frames.
    Vdif {
        /// The header of all frames but for time and thread.
        template: Header,
        /// A packet number stands before each (VTP).
        packet_number: bool,
    },
    /// Any other datagrams.
    Raw {
        /// Their length.
        frame_bytes: u32,
        /// Where their number stands.
        sequence: Option<Field>,
    },
}

impl Form {
    fn frame_bytes(&self) -> u32 {
        match self {
            Form::Vdif { template, .. } => template.frame_bytes(),
            Form::Raw { frame_bytes, .. } => *frame_bytes,
        }
    }

    fn payload_bytes(&self) -> u32 {
        match self {
            Form::Vdif { template, .. } => template.payload_bytes(),
            Form::Raw { frame_bytes, .. } => *frame_bytes,
        }
    }

    fn datagram_bytes(&self) -> u32 {
        let number = matches!(self, Form::Vdif { packet_number: true, .. });
        self.frame_bytes() + if number { Field::PSN.width as u32 } else { 0 }
    }

    fn name(&self) -> &'static str {
        match self {
            Form::Vdif { packet_number: false, .. } => "vdif",
            Form::Vdif { packet_number: true, .. } => "vtp",
            Form::Raw { .. } => "raw",
        }
    }
}

/// How the pace is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At the rate of the streams.
    Nominal {
        /// How to wait.
        waiting: Waiting,
        /// How much faster a late stream may be.
        catch_up: f64,
    },
    /// As fast as possible, the streams in step.
    FlatOut,
}

/// A plan that cannot be carried out, or was not to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing to send.
    #[error("there is no stream to send")]
    NoStreams,
    /// A stream whose numbers cannot be.
    #[error("stream {name}: {what}")]
    Stream {
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// A time that no header can tell.
    #[error("frames cannot begin at {start}: VDIF headers tell the years 2000 to 2031")]
    Start {
        /// When they should.
        start: Tai,
    },
    /// The rules for faults.
    #[error(transparent)]
    Faults(#[from] FaultError),
    /// The sample.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A socket.
    #[error(transparent)]
    Send(#[from] send::Error),
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Send(error) => error.hint(),
            Error::Sample(SampleError::Form { .. }) => {
                Some("a sample is a file of VDIF frames of one length, from its first byte on")
            }
            _ => None,
        }
    }
}

/// The headers of generated VDIF.
#[derive(Clone, Debug)]
pub struct VdifForm {
    /// Header and payload together.
    pub frame_bytes: u32,
    /// Frames per second of each thread, for the extended data that tell a rate.
    pub frames_per_second: u64,
    /// Bits of a sample.
    pub bits: u32,
    /// Channels, a power of two.
    pub channels: u32,
    /// Samples are complex.
    pub complex: bool,
    /// Station number.
    pub station: u16,
    /// Headers of 16 bytes.
    pub legacy: bool,
    /// Extended data version: 0 to 4 or 0xAB.
    pub edv: u8,
}

impl VdifForm {
    /// The header that all frames have but for time and thread.
    pub fn template(&self) -> Result<Header, String> {
        let use_none = |why: String| format!("{why}; use EDV 0");
        if !self.channels.is_power_of_two() {
            return Err(format!("{} channels are not a power of two", self.channels));
        }
        if !(1..=32).contains(&self.bits) {
            return Err(format!("samples have 1 to 32 bits, not {}", self.bits));
        }
        if !self.frame_bytes.is_multiple_of(8) || self.frame_bytes > Header::LONGEST_FRAME {
            return Err(format!("VDIF frames are multiples of 8 bytes, not {}", self.frame_bytes));
        }
        let header = Header::default()
            .with_legacy(self.legacy)
            .with_frame_bytes(self.frame_bytes)
            .with_bits_per_sample(self.bits)
            .with_log2_channels(self.channels.trailing_zeros())
            .with_complex(self.complex)
            .with_station(self.station);
        if header.payload_bytes() == 0 {
            return Err(format!("frames of {} bytes have no payload", self.frame_bytes));
        }
        match self.edv {
            0 => Ok(header),
            edv if self.legacy => Err(format!("legacy headers have no room for EDV {edv}")),
            1 => Ok(header.with_extended(Extended::Nict {
                rate: sample_rate(&header, self.edv, self.frames_per_second).map_err(use_none)?,
                das: *b"fullbore",
            })),
            3 => Ok(header.with_extended(Extended::Vlba {
                rate: sample_rate(&header, self.edv, self.frames_per_second).map_err(use_none)?,
                lo_tuning: 0,
                unassigned: 0,
                dbe: 0,
                intermediate: 0,
                subband: 0,
                upper_sideband: true,
                major: 0,
                minor: 0,
                personality: 0,
            })),
            // As ALMA writes it. The packet number is put in frame by frame.
            2 => {
                let backend = Backend::Alma {
                    version: 0xA5EA5,
                    polarisation: 0,
                    quadrant: 0,
                    correlator: 0,
                    status: 0,
                };
                Ok(header.with_extended(Extended::AlmaR2dbe { backend, psn: 0 }))
            }
            4 => Ok(header.with_extended(all_channels(self.channels))),
            0xAB if self.frame_bytes != MARK5B_FRAME || self.complex => Err(use_none(format!(
                "Mark 5B inside VDIF has frames of {MARK5B_FRAME} bytes with real samples"
            ))),
            0xAB => Ok(header.with_extended(mark5b(&header, None))),
            edv => {
                Err(format!("headers can be made with EDV 0, 1, 2, 3, 4 or 0xAB, not {edv:#04X}"))
            }
        }
    }
}

/// VDIF header and Mark 5B payload.
const MARK5B_FRAME: u32 = 10_032;

/// A mask that says that the data of all channels are there; one bit stands for several if there are more than 64.
fn all_channels(channels: u32) -> Extended {
    let length = channels.min(64);
    Extended::Mask { length: length as u8, unassigned: 0, validity: u64::MAX >> (64 - length) }
}

/// A sample's header for so many frames a second: where its extended data tell a rate, they tell this one.
pub fn at_rate(template: Header, frames_per_second: u64) -> Result<Header, String> {
    let mut extended = template.extended();
    let (Extended::Nict { rate, .. } | Extended::Vlba { rate, .. }) = &mut extended else {
        return Ok(template);
    };
    *rate = sample_rate(&template, template.edv(), frames_per_second)?;
    Ok(template.with_extended(extended))
}

/// What EDV 1 and 3 tell: complex samples per second in kHz or MHz.
fn sample_rate(header: &Header, edv: u8, frames_per_second: u64) -> Result<SampleRate, String> {
    let frame_bits = u128::from(header.payload_bytes()) * 8;
    let bits = frame_bits * u128::from(frames_per_second);
    let sample = u128::from(header.bits_per_sample()) * 2 * u128::from(header.channels());
    let hz = bits / sample;
    let whole = bits.is_multiple_of(sample);
    let count = |unit: u128| u32::try_from(hz / unit).ok().filter(|count| *count < 1 << 23);
    match (whole && hz.is_multiple_of(1000), count(1000), count(1_000_000)) {
        (true, Some(count), _) => Ok(SampleRate { in_mhz: false, count }),
        (true, None, Some(count)) if hz.is_multiple_of(1_000_000) => {
            Ok(SampleRate { in_mhz: true, count })
        }
        _ => Err(format!("{hz} samples a second are no number that EDV {edv} can tell")),
    }
}

/// What is seen of a run while it lasts.
#[derive(Debug, Default)]
pub struct Progress {
    frames: AtomicU64,
    bytes: AtomicU64,
    /// One more than the nanoseconds of it; 0: there is none.
    lag: AtomicU64,
}

impl Progress {
    /// Datagrams sent so far.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Bytes of them.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// How far what is sent is behind what is durable, of what is still being recorded.
    pub fn lag(&self) -> Option<Duration> {
        self.lag.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos)
    }

    pub(crate) fn lags(&self, behind: Duration) {
        let ns = u64::try_from(behind.as_nanos()).unwrap_or(u64::MAX);
        self.lag.store(ns.saturating_add(1), Ordering::Relaxed);
    }

    pub(crate) fn add(&self, frames: u64, bytes: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// How a run went.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Datagrams that the kernel took.
    pub datagrams: u64,
    /// How they went.
    #[serde(flatten)]
    pub sent: Sent,
    /// Whether all sockets could send segmented messages.
    pub segments: bool,
    /// What was really sent.
    pub truth: Truth,
}

/// How sending went, whatever was sent.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sent {
    /// Seconds from the first datagram to the last.
    pub seconds: f64,
    /// Bytes that the kernel took.
    pub bytes: u64,
    /// Bytes per second.
    pub rate: fullbore_core::units::ByteRate,
    /// CPU time of the sending thread, in seconds.
    pub cpu_seconds: f64,
    /// Datagrams that the kernel refused.
    pub refused: u64,
    /// Times a socket was full.
    pub stalls: u64,
    /// Times a receiver said that nobody listens.
    pub unreachable: u64,
    /// How far after their due times datagrams went; empty when flat out.
    pub lateness: LatenessSummary,
}

impl Sent {
    /// What the sockets counted, and the clocks.
    pub(crate) fn of(
        tallies: &[send::Tally],
        bytes: u64,
        seconds: f64,
        cpu_seconds: f64,
        lateness: LatenessSummary,
    ) -> Self {
        let sum = |of: fn(&send::Tally) -> u64| tallies.iter().map(of).sum::<u64>();
        Self {
            seconds,
            bytes,
            rate: rate(bytes, seconds),
            cpu_seconds,
            refused: sum(|tally| tally.refused),
            stalls: sum(|tally| tally.stalls),
            unreachable: sum(|tally| tally.unreachable),
            lateness,
        }
    }
}

/// A plan with its sockets open and its payloads made.
pub struct Generator {
    plan: Plan,
    payloads: Payloads,
    lanes: Vec<Lane>,
}

impl Generator {
    /// Checks the plan, makes the payloads, opens the sockets.
    pub fn prepare(plan: Plan) -> Result<Self, Error> {
        plan.faults.check()?;
        let first = plan.streams.first().ok_or(Error::NoStreams)?;
        let payloads = match &plan.payload {
            PayloadSource::Pattern(pattern) => {
                Payloads::of_pattern(pattern, first.form.payload_bytes() as usize)
            }
            PayloadSource::Sample(path) => Payloads::of_sample(path)?,
        };
        let start = plan.start.unwrap_or_else(|| Clock::new().now());
        check_start(start)?;
        for stream in &plan.streams {
            check(stream, &payloads, &plan.faults)
                .map_err(|what| Error::Stream { name: stream.name.clone(), what })?;
        }
        let mut lanes = Vec::new();
        for (number, stream) in plan.streams.iter().enumerate() {
            lanes.push(Lane::open(stream, &plan, number, start)?);
        }
        Ok(Generator { plan, payloads, lanes })
    }

    /// Sends until all is sent or `stop` is set.
    pub fn run(mut self, stop: &AtomicBool, progress: &Progress) -> Result<Report, Error> {
        let started = Clock::new().now();
        let ran = lane::run(
            &mut self.lanes,
            &self.payloads,
            (self.plan.pace, &self.plan.faults),
            stop,
            progress,
        )?;
        let tallies: Vec<send::Tally> =
            self.lanes.iter().map(|lane| lane.sender().tally()).collect();
        let segments = self.lanes.iter().all(|lane| lane.sender().segments());
        let bytes = progress.bytes();
        Ok(Report {
            datagrams: tallies.iter().map(|tally| tally.sent).sum(),
            sent: Sent::of(&tallies, bytes, ran.seconds, ran.cpu_seconds, ran.lateness.summary()),
            segments,
            truth: Truth {
                software: concat!("fullbore ", env!("CARGO_PKG_VERSION")).to_owned(),
                started,
                faults: self.plan.faults.clone(),
                payload: self.plan.payload.clone(),
                payload_count: self.payloads.count(),
                streams: self.lanes.into_iter().map(Lane::into_truth).collect(),
            },
        })
    }
}

pub(crate) fn rate(bytes: u64, seconds: f64) -> fullbore_core::units::ByteRate {
    let rate = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
    fullbore_core::units::ByteRate(rate as u64)
}

/// When a stream's first frames are, if all begin at `start`.
fn start_of(form: &Form, start: Tai, given: bool) -> Tai {
    match form {
        // There is no second to be in the middle of.
        Form::Raw { .. } if !given => start.plus_ns(-start.0.rem_euclid(1_000_000_000)),
        Form::Raw { .. } | Form::Vdif { .. } => start,
    }
}

/// Frame 0 of which second is place 0, and how many frames after it the first one is.
fn first_frame(start: Tai, frames_per_second: u64) -> (Second, u64) {
    let (second, ns) = (start.0.div_euclid(1_000_000_000), start.0.rem_euclid(1_000_000_000));
    let frame = (ns as u128 * u128::from(frames_per_second)).div_ceil(1_000_000_000);
    (Second(second), frame as u64)
}

/// Frames of a second that the 24 bits of a VDIF header can number.
const MOST_FRAMES: u64 = 1 << 24;

/// The times that VDIF headers can tell (VDIF 1.1.1, word 0 and 1: 64 reference epochs of half a year since 2000).
fn check_start(start: Tai) -> Result<(), Error> {
    const HALF_YEAR: u32 = 184 * 86_400;
    let known = Second::of(0, 0).start()..Second::of(63, HALF_YEAR).start();
    known.contains(&start).then_some(()).ok_or(Error::Start { start })
}

/// What is wrong with a stream, if anything is.
fn check(stream: &StreamPlan, payloads: &Payloads, faults: &Faults) -> Result<(), String> {
    const LARGEST: u32 = fullbore_core::endpoint::LARGEST_DATAGRAM;
    let (form, datagram) = (&stream.form, stream.form.datagram_bytes());
    if form.payload_bytes() as usize != payloads.each() {
        return Err(format!(
            "its frames have room for payloads of {} bytes, and those there are have {}",
            form.payload_bytes(),
            payloads.each()
        ));
    }
    let spare = if faults.damage > 0.0 { payload::SPARE_BYTES as u32 } else { 0 };
    if datagram == 0 || datagram > LARGEST - spare {
        return Err(format!(
            "datagrams have 1 to {} bytes, and these would have {datagram}",
            LARGEST - spare
        ));
    }
    if !(1..=MOST_FRAMES).contains(&stream.frames_per_second) {
        return Err(format!(
            "frames come 1 to {MOST_FRAMES} times a second, and these of {datagram} bytes would come {} \
             times; choose another rate",
            stream.frames_per_second
        ));
    }
    let counted = match form {
        Form::Vdif { template, .. } => matches!(template.edv(), 2 | 4 | 0xAB),
        Form::Raw { .. } => false,
    };
    if faults.miscount > 0.0 && !counted {
        return Err(
            "only headers of EDV 2, 4 and 0xAB have a second count that can be wrong".to_owned()
        );
    }
    match form {
        Form::Raw { .. } if stream.threads.len() != 1 => {
            return Err("raw datagrams have no threads".to_owned());
        }
        Form::Raw { frame_bytes, sequence: Some(field) } => {
            let most = datagram::HEAD_BYTES.min(*frame_bytes as usize);
            if field.end() > most {
                return Err(format!("its number must end within the first {most} bytes"));
            }
        }
        Form::Raw { sequence: None, .. } | Form::Vdif { .. } => {}
    }
    match stream.threads.iter().find(|thread| **thread > 1023) {
        Some(thread) => Err(format!("threads are numbered 0 to 1023, not {thread}")),
        None if stream.threads.is_empty() => Err("it has no threads".to_owned()),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
