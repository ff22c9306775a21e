//! Generates test streams: valid headers, known payloads, exact pace, and deliberate faults.
//!
//! ```text
//! Schedule (by seed) ────► Maker (heads) ──┐
//!                          Payloads (ready) ─┴─► Sender, paced ──► Truth (frames sent)
//! ```
//!
//! Each port is a *lane* with one socket. The frames of its threads take turns, so *place* = index × threads + rank of
//! the thread counts the frames of the lane. Indices count the frames of a thread from frame 0 of the first second. One
//! thread serves all lanes, in the order of due times.

mod datagram;
mod fault;
mod packets;
mod payload;
mod port_sender;
mod truth;
mod vita49;

use std::borrow::Cow;

use fullbore_core::endpoint::UdpTarget;
use fullbore_core::hint::Hint;
use fullbore_formats::framed::{FrameCodec, FrameKind};
use fullbore_formats::sequence::Field;
use fullbore_formats::vdif::{Backend, Extended, Header, SampleRate, Second, mark5b};
use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::send;
use fullbore_replay::pace::Waiting;
use fullbore_replay::{Progress, Sent, StartAccount, Timing};
use fullbore_time::Tai;
use serde::Serialize;

pub use fault::{Damage, Error as FaultError, Faults, Silence};
pub use packets::PacketForm;
pub use payload::{Burst, PayloadSource, Payloads, SampleError};
pub use truth::{Harm, Set, StreamTruth, Tally, Truth};
pub use vita49::Vita49Form;

use port_sender::PortSender;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The streams, one per port.
    pub streams: Vec<StreamPlan>,
    /// The payload source. Its payloads must be as long as the frames of every stream require.
    pub payload: PayloadSource,
    /// The time of the first frames. A time within a second begins with the frame due then. `None`: the time at the end
    /// of the preparation. Streams without a time field begin at a full second all the same.
    pub start: Option<Tai>,
    /// Frames of each thread; `None`: until stopped.
    pub frames: Option<u64>,
    /// The pacing.
    pub pace: Pace,
    /// The deliberate faults.
    pub faults: Faults,
    /// When sending begins, and which datagrams count as late.
    pub timing: Timing,
}

/// One port.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// The name of the stream in the truth.
    pub name: String,
    /// The destination.
    pub target: UdpTarget,
    /// The form of its datagrams.
    pub form: Form,
    /// Frames per second of each thread.
    pub frames_per_second: u64,
    /// The threads that take turns; one for raw datagrams.
    pub threads: Vec<u16>,
    /// Packet or sequence number of place 0.
    pub first_number: i64,
}

/// The form of datagrams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Form {
    /// Frames that carry their own time.
    Frames {
        /// Their format.
        kind: FrameKind,
        /// The header of all frames, except for time and thread.
        template: Header,
        /// True if a packet number precedes each frame (VTP).
        packet_number: bool,
    },
    /// Packets that tell their stream and count.
    Packets(PacketForm),
    /// Any other datagrams.
    Raw {
        /// The length of a datagram.
        frame_bytes: u32,
        /// The field with the sequence number.
        sequence: Option<Field>,
    },
}

impl Form {
    fn frame_bytes(&self) -> u32 {
        match self {
            Form::Frames { kind, template, .. } => FrameCodec::any_day(*kind).frame_bytes(template),
            Form::Packets(packets) => packets.packet_bytes(),
            Form::Raw { frame_bytes, .. } => *frame_bytes,
        }
    }

    fn payload_bytes(&self) -> u32 {
        match self {
            Form::Frames { template, .. } => template.payload_bytes(),
            Form::Packets(packets) => packets.payload_bytes(),
            Form::Raw { frame_bytes, .. } => *frame_bytes,
        }
    }

    fn datagram_bytes(&self) -> u32 {
        let number = matches!(self, Form::Frames { packet_number: true, .. });
        self.frame_bytes() + if number { Field::PSN.width as u32 } else { 0 }
    }

    /// The most frames of a thread per second that can be numbered, and the number of threads.
    fn limits(&self) -> (u64, u16) {
        match self {
            Form::Frames { kind, .. } => (kind.most_frames(), kind.threads()),
            Form::Packets(_) | Form::Raw { .. } => (1 << 24, 1),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Form::Frames { kind: FrameKind::Vdif, packet_number: true, .. } => "vtp",
            Form::Frames { kind, .. } => kind.name(),
            Form::Packets(packets) => packets.name(),
            Form::Raw { .. } => "raw",
        }
    }
}

/// The pacing of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At the rate of the streams.
    Nominal {
        /// The way to wait.
        waiting: Waiting,
        /// The factor by which a late stream may be faster.
        catch_up: f64,
    },
    /// As fast as possible, with the streams in step.
    FlatOut,
}

/// A run that could not begin, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing to send.
    #[error("there is no stream to send")]
    NoStreams,
    /// A stream with invalid numbers.
    #[error("stream {name}: {what}")]
    Stream {
        /// Its name.
        name: String,
        /// The reason.
        what: String,
    },
    /// A start time that no header can state.
    #[error("frames cannot begin at {start}: VDIF headers cover the years 2000 to 2031")]
    Start {
        /// The start time.
        start: Tai,
    },
    /// An error in the fault rules.
    #[error(transparent)]
    Faults(#[from] FaultError),
    /// An error in the sample.
    #[error(transparent)]
    Sample(#[from] SampleError),
    /// A socket error.
    #[error(transparent)]
    Send(#[from] send::Error),
    /// A start in the past.
    #[error(transparent)]
    Passed(#[from] fullbore_replay::Passed),
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::Send(error) => return error.hint(),
            Error::Passed(_) => "give an instant a few seconds from now, in UTC",
            Error::Sample(SampleError::Form { .. }) => {
                "a sample is a file of frames of one format and length, from its first byte on"
            }
            _ => return None,
        }))
    }
}

/// The header fields of generated VDIF.
#[derive(Clone, Debug)]
pub struct VdifForm {
    /// Bytes of header and payload together.
    pub frame_bytes: u32,
    /// Frames per second of each thread, for extended data that include a rate.
    pub frames_per_second: u64,
    /// Bits per sample.
    pub bits: u32,
    /// The number of channels, a power of two.
    pub channels: u32,
    /// True if samples are complex.
    pub complex: bool,
    /// Station number.
    pub station: u16,
    /// True for headers of 16 bytes.
    pub legacy: bool,
    /// Extended data version: 0 to 4 or 0xAB.
    pub edv: u8,
}

impl VdifForm {
    /// The header of all frames, except for time and thread.
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
        self.check_version()?;
        match self.edv {
            0 => Ok(header),
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
            // As ALMA writes it. The packet number is set for each frame.
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
            0xAB => Ok(header.with_extended(mark5b(&header, None))),
            edv => {
                Err(format!("headers can be made with EDV 0, 1, 2, 3, 4 or 0xAB, not {edv:#04X}"))
            }
        }
    }

    /// Refuses frames that do not exist with this extended data version: readers would not accept them.
    fn check_version(&self) -> Result<(), String> {
        let bytes = self.frame_bytes;
        match self.edv {
            0 => Ok(()),
            0xAB if self.legacy => Err("legacy headers have no room for EDV 0xAB".to_owned()),
            edv if self.legacy => Err(format!("legacy headers have no room for EDV {edv}")),
            2 if !ALMA_FRAMES.contains(&bytes) || self.bits != 2 || self.complex => {
                let [short, long] = ALMA_FRAMES;
                let real = "with real samples of 2 bits";
                Err(format!("EDV 2 (ALMA) has frames of {short} or {long} bytes {real}, not these"))
            }
            3 if !VLBA_FRAMES.contains(&bytes) => {
                let [short, long] = VLBA_FRAMES;
                Err(format!("EDV 3 (VLBA) has frames of {short} or {long} bytes, not {bytes}"))
            }
            0xAB if bytes != MARK5B_FRAME || self.complex => Err(format!(
                "Mark 5B inside VDIF (EDV 0xAB) has frames of {MARK5B_FRAME} bytes with real samples, not these"
            )),
            _ => Ok(()),
        }
    }
}

/// Bytes of frames with EDV 2.
const ALMA_FRAMES: [u32; 2] = [5032, 8032];
/// Bytes of frames with EDV 3.
const VLBA_FRAMES: [u32; 2] = [1032, 5032];
/// VDIF header and Mark 5B payload.
const MARK5B_FRAME: u32 = 10_032;

/// The header of all Mark 5B frames, except for time: that of the VDIF frame around each.
pub fn mark5b_template() -> Header {
    let header = Header::default().with_frame_bytes(MARK5B_FRAME);
    header.with_extended(mark5b(&header, None))
}

/// A mask that marks the data of all channels as present. One bit stands for several channels if there are more than
/// 64.
fn all_channels(channels: u32) -> Extended {
    let length = channels.min(64);
    Extended::Mask { length: length as u8, unassigned: 0, validity: u64::MAX >> (64 - length) }
}

/// Adapts a sample's header to this frame rate: extended data that include a rate get the new one.
pub fn at_rate(template: Header, frames_per_second: u64) -> Result<Header, String> {
    let mut extended = template.extended();
    let (Extended::Nict { rate, .. } | Extended::Vlba { rate, .. }) = &mut extended else {
        return Ok(template);
    };
    *rate = sample_rate(&template, template.edv(), frames_per_second)?;
    Ok(template.with_extended(extended))
}

/// The rate in EDV 1 and 3: complex samples per second in kHz or MHz.
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

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Datagrams that the kernel took.
    pub datagrams: u64,
    /// The counts and times of sending.
    #[serde(flatten)]
    pub sent: Sent,
    /// True if all sockets could send segmented messages.
    pub segments: bool,
    /// The start, if it was to be at an instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<StartAccount>,
    /// The truth: the frames sent.
    pub truth: Truth,
}

/// A plan with open sockets and prepared payloads.
pub struct Generator {
    plan: Plan,
    payloads: Payloads,
    port_senders: Vec<PortSender>,
}

impl Generator {
    /// Checks the plan, prepares the payloads, and opens the sockets.
    pub fn prepare(plan: Plan) -> Result<Self, Error> {
        plan.faults.check()?;
        let first = plan.streams.first().ok_or(Error::NoStreams)?;
        let payloads = match &plan.payload {
            PayloadSource::Pattern(pattern) => {
                Payloads::of_pattern(pattern, first.form.payload_bytes() as usize)
            }
            PayloadSource::Sample(path) => Payloads::of_sample(path)?,
            PayloadSource::Burst(pattern, burst) => {
                Payloads::of_burst(pattern, first.form.payload_bytes() as usize, *burst)
            }
        };
        let start = plan.start.unwrap_or_else(|| Clock::new().now());
        check_start(start)?;
        for stream in &plan.streams {
            check(stream, &payloads, &plan.faults)
                .map_err(|what| Error::Stream { name: stream.name.clone(), what })?;
        }
        let mut port_senders = Vec::new();
        for (number, stream) in plan.streams.iter().enumerate() {
            port_senders.push(PortSender::open(stream, &plan, number, start)?);
        }
        Ok(Generator { plan, payloads, port_senders })
    }

    /// Sends until all frames are sent or `stop` is set.
    pub fn run(mut self, stop: &StopHandle, progress: &Progress) -> Result<Report, Error> {
        let started = Clock::new().now();
        let ran = port_sender::run(
            &mut self.port_senders,
            &self.payloads,
            (self.plan.pace, &self.plan.faults),
            self.plan.timing,
            stop,
            progress,
        )?;
        let tallies: Vec<send::Tally> =
            self.port_senders.iter().map(|port_sender| port_sender.sender().tally()).collect();
        let segments = self.port_senders.iter().all(|port_sender| port_sender.sender().segments());
        let bytes = progress.bytes();
        Ok(Report {
            datagrams: tallies.iter().map(|tally| tally.sent).sum(),
            sent: Sent::of(
                &tallies,
                bytes,
                ran.seconds,
                ran.cpu_seconds,
                ran.lateness.summary(),
                ran.account.finish(),
            ),
            segments,
            start: ran.start,
            truth: Truth {
                software: concat!("fullbore ", env!("CARGO_PKG_VERSION")).to_owned(),
                started,
                faults: self.plan.faults.clone(),
                payload: self.plan.payload.clone(),
                payload_count: self.payloads.count(),
                streams: self.port_senders.into_iter().map(PortSender::into_truth).collect(),
            },
        })
    }
}

/// The time of a stream's first frames if all begin at `start`.
fn start_of(form: &Form, start: Tai, given: bool) -> Tai {
    match form {
        // These carry no time within a second.
        Form::Packets(PacketForm::Spead { .. } | PacketForm::Rtp { .. }) | Form::Raw { .. }
            if !given =>
        {
            start.plus_ns(-start.0.rem_euclid(1_000_000_000))
        }
        Form::Packets(_) | Form::Raw { .. } | Form::Frames { .. } => start,
    }
}

/// The second whose frame 0 is place 0, and the number of frames from there to the first one.
fn first_frame(start: Tai, frames_per_second: u64) -> (Second, u64) {
    let (second, ns) = (start.0.div_euclid(1_000_000_000), start.0.rem_euclid(1_000_000_000));
    let frame = (ns as u128 * u128::from(frames_per_second)).div_ceil(1_000_000_000);
    (Second(second), frame as u64)
}

/// Refuses times that VDIF headers cannot state (VDIF 1.1.1, word 0 and 1: 64 reference epochs of half a year since
/// 2000).
fn check_start(start: Tai) -> Result<(), Error> {
    const HALF_YEAR: u32 = 184 * 86_400;
    let known = Second::of(0, 0).start()..Second::of(63, HALF_YEAR).start();
    known.contains(&start).then_some(()).ok_or(Error::Start { start })
}

/// Returns the problem of a stream, if there is one.
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
    let (most_frames, threads) = form.limits();
    if !(1..=most_frames).contains(&stream.frames_per_second) {
        return Err(format!(
            "frames come 1 to {most_frames} times a second, and these of {datagram} bytes would come {} \
             times; choose another rate",
            stream.frames_per_second
        ));
    }
    let counted = match form {
        Form::Frames { kind: FrameKind::Vdif, template, .. } => {
            matches!(template.edv(), 2 | 4 | 0xAB)
        }
        _ => false,
    };
    if faults.miscount > 0.0 && !counted {
        return Err(
            "only headers of EDV 2, 4 and 0xAB have a second count that can be wrong".to_owned()
        );
    }
    match form {
        Form::Packets(_) | Form::Raw { .. } if stream.threads.len() != 1 => {
            return Err(format!("{} datagrams have no threads", form.name()));
        }
        Form::Packets(PacketForm::Vita49(form)) => form.check()?,
        Form::Raw { frame_bytes, sequence: Some(field) } => {
            let most = datagram::NUMBERED_BYTES.min(*frame_bytes as usize);
            if field.end() > most {
                return Err(format!("its number must end within the first {most} bytes"));
            }
        }
        Form::Raw { sequence: None, .. } | Form::Packets(_) | Form::Frames { .. } => {}
    }
    match stream.threads.iter().find(|thread| **thread >= threads) {
        Some(thread) => Err(format!("threads are numbered 0 to {}, not {thread}", threads - 1)),
        None if stream.threads.is_empty() => Err("it has no threads".to_owned()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
