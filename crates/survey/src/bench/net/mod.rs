//! The network: measures the highest rate at which the generator's packets are received without loss.
//!
//! ```text
//! generator, paced ──► sockets ──► loopback, namespace pair or wire ──► ports ──► ring ──► discarded
//!       sent, by its own count                          received, by sequence; counters of every layer
//! ```
//!
//! Both ends are the usual ones: the paced generator, and the ports and capture thread of a recording. After the ring,
//! blocks return at once, so that no disk slows it. The loss is the number sent less the number received; the counters
//! that moved show its place.

pub mod pair;
pub mod receive;
pub mod search;
pub mod wire;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use fullbore_core::endpoint::{LARGEST_DATAGRAM, UdpTarget};
use fullbore_core::hint::Hint;
use fullbore_core::pattern::{Pattern, Prbs};
use fullbore_core::units::ByteRate;
use fullbore_formats::framed::FrameKind;
use fullbore_linux::clock::Clock;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_replay::pace::{CATCH_UP, Waiting};
use fullbore_replay::{Progress, Timing};
use fullbore_simulators::generate::{
    self, Faults, Form, Generator, Pace, PayloadSource, Plan, StreamPlan, VdifForm,
};
use fullbore_time::Tai;

use self::receive::{Caught, Receiving, Wanted};
use self::search::{Found, Outcome, Range};
use self::wire::Remote;
use super::result::{Level, Note, Spread, Stage};

/// The least share of the requested rate that a sender must reach for a trial to count.
pub const REACHED: f64 = 0.98;

/// Time for packets in transit after the last datagram was sent.
pub(super) const SETTLE: Duration = Duration::from_millis(100);

/// The least frame: a VDIF header and some payload.
const LEAST_FRAME_BYTES: u32 = 64;

/// The settings of the benchmark.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The number of streams, each to its own port.
    pub streams: u16,
    /// Bytes of each datagram.
    pub frame_bytes: u32,
    /// Block memory of the receiver.
    pub pool_bytes: u64,
    /// The share of a rate that the sender must reach for a trial to count; usually [`REACHED`].
    pub reached: f64,
    /// The range of rates to search.
    pub range: Range,
}

/// An error of the benchmark.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An invalid datagram size.
    #[error(
        "datagrams of {bytes} bytes: VDIF frames are multiples of 8 from {LEAST_FRAME_BYTES} to {LARGEST_DATAGRAM}"
    )]
    Frame {
        /// The requested size.
        bytes: u32,
    },
    /// No stream was requested.
    #[error("there is no stream to send")]
    NoStream,
    /// An error of the sender.
    #[error(transparent)]
    Send(#[from] generate::Error),
    /// An error of the receiver on this host.
    #[error(transparent)]
    Receive(#[from] receive::Error),
    /// An error of the remote receiver.
    #[error(transparent)]
    Wire(#[from] wire::Error),
    /// An error of the namespace.
    #[error(transparent)]
    Pair(#[from] pair::Error),
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Frame { .. } => {
                Some("8032 is what VLBI uses, with an MTU of 9000; 1312 fits an MTU of 1500".into())
            }
            Self::Send(error) => error.hint(),
            Self::Wire(error) => error.hint(),
            Self::Pair(error) => error.hint(),
            Self::NoStream | Self::Receive(_) => None,
        }
    }
}

/// The location of the receiver.
pub enum Receiver {
    /// This process, over loopback.
    Loopback,
    /// Another host, or another network namespace.
    Far(Box<Remote>),
}

impl Receiver {
    /// Starts to listen. Returns the destination, and the receive buffer of each port.
    fn arm(&mut self, wanted: Wanted) -> Result<Armed<'_>, Error> {
        match self {
            Self::Loopback => {
                let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
                let receiving = Receiving::arm(&wanted, address, wire::PORT + 1)?;
                let (ports, buffer) = (receiving.ports().to_vec(), receiving.buffer_bytes());
                Ok(Armed { address, ports, buffer, end: End::Here(Box::new(receiving)) })
            }
            Self::Far(remote) => {
                let address = remote.address();
                let (ports, buffer) = remote.arm(wanted)?;
                Ok(Armed { address, ports, buffer, end: End::There(remote) })
            }
        }
    }
}

/// A listening receiver.
struct Armed<'a> {
    address: IpAddr,
    ports: Vec<u16>,
    buffer: u64,
    end: End<'a>,
}

enum End<'a> {
    Here(Box<Receiving>),
    There(&'a mut Remote),
}

impl Armed<'_> {
    fn finish(self) -> Result<Caught, Error> {
        Ok(match self.end {
            End::Here(receiving) => receiving.finish()?,
            End::There(remote) => remote.finish()?,
        })
    }
}

/// A trial of one rate.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The requested rate of all streams, in bytes per second.
    pub requested: f64,
    /// The rate that the sender reached, in bytes per second.
    pub reached: f64,
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of those datagrams.
    pub bytes: u64,
    /// Datagrams that the sender's kernel refused.
    pub refused: u64,
    /// CPU seconds of the sending thread.
    pub sender_cpu_seconds: f64,
    /// The datagrams received.
    pub caught: Caught,
    /// True if the sender reached the requested rate.
    pub kept_pace: bool,
    /// True if it confirms an earlier rate.
    pub confirms: bool,
}

impl Trial {
    /// Compares the datagrams sent at a frame rate per stream with those received.
    pub(super) fn of(
        settings: &Settings,
        frames_per_second: u64,
        sent: &generate::Report,
        caught: Caught,
        confirms: bool,
    ) -> Self {
        let requested = frames_per_second as f64 * turn_bytes(settings);
        let reached = sent.sent.bytes as f64 / sent.sent.seconds.max(1e-9);
        Self {
            requested,
            reached,
            sent: sent.datagrams,
            bytes: sent.sent.bytes,
            refused: sent.sent.refused,
            sender_cpu_seconds: sent.sent.cpu_seconds,
            caught,
            kept_pace: reached >= settings.reached * requested,
            confirms,
        }
    }

    /// Datagrams sent and not received in their places.
    pub fn lost(&self) -> u64 {
        self.sent.saturating_sub(self.caught.frames)
    }

    /// The outcome.
    pub fn outcome(&self) -> Outcome {
        if self.lost() > 0 {
            Outcome::Lost
        } else if self.kept_pace {
            Outcome::Held
        } else {
            Outcome::NotReached
        }
    }

    /// The trial in one line.
    pub fn told(&self) -> String {
        let rate = ByteRate(self.requested as u64);
        match self.outcome() {
            Outcome::Held => format!("{rate}: {} packets, none lost", self.sent),
            Outcome::NotReached => {
                format!("{rate}: the sender reached {} only", ByteRate(self.reached as u64))
            }
            Outcome::Lost => {
                let why = self.caught.where_lost(self.lost());
                format!("{rate}: {} of {} packets lost: {why}", self.lost(), self.sent)
            }
        }
    }
}

/// The results.
pub struct Measured {
    /// The stage, for the document.
    pub stage: Stage,
    /// Notes on the places of loss, and others for the reader of the report.
    pub notes: Vec<Note>,
    /// All trials, in order.
    pub trials: Vec<Trial>,
}

/// Searches the highest rate without loss. `way` describes the path of the packets; `heard` is called after each trial.
/// After `stop` it returns the results so far.
pub fn measure(
    settings: &Settings,
    receiver: &mut Receiver,
    way: &str,
    stop: &StopHandle,
    mut heard: impl FnMut(&Trial),
) -> Result<Measured, Error> {
    check(settings)?;
    let mut trials: Vec<Trial> = Vec::new();
    let mut buffer = 0;
    let found = search::search(&settings.range, |rate, time, confirms| {
        if stop.is_requested() {
            return Ok::<_, Error>(None);
        }
        let (trial, given) = try_once(settings, receiver, rate, time, confirms, stop)?;
        heard(&trial);
        let outcome = trial.outcome();
        buffer = given;
        trials.push(trial);
        Ok((!stop.is_requested()).then_some(outcome))
    })?;
    let notes = notes(settings, &found, &trials, buffer);
    Ok(Measured { stage: stage(settings, &found, &trials, way), notes, trials })
}

fn check(settings: &Settings) -> Result<(), Error> {
    let bytes = settings.frame_bytes;
    if !(LEAST_FRAME_BYTES..=LARGEST_DATAGRAM).contains(&bytes) || !bytes.is_multiple_of(8) {
        return Err(Error::Frame { bytes });
    }
    if settings.streams == 0 { Err(Error::NoStream) } else { Ok(()) }
}

/// Bytes of one frame of every stream.
fn turn_bytes(settings: &Settings) -> f64 {
    f64::from(settings.frame_bytes) * f64::from(settings.streams)
}

/// Frames per second of each stream, at a total rate.
pub fn frames_per_second(settings: &Settings, rate: f64) -> u64 {
    ((rate / turn_bytes(settings)).round() as u64).max(1)
}

/// True if a trial had this rate, rounded to whole frames.
fn is_of(settings: &Settings, rate: f64, trial: &Trial) -> bool {
    let requested = frames_per_second(settings, rate) as f64 * turn_bytes(settings);
    (trial.requested - requested).abs() < 1.0
}

fn try_once(
    settings: &Settings,
    receiver: &mut Receiver,
    rate: f64,
    time: Duration,
    confirms: bool,
    stop: &StopHandle,
) -> Result<(Trial, u64), Error> {
    let frames = frames_per_second(settings, rate);
    let wanted = Wanted {
        streams: settings.streams,
        frame_bytes: settings.frame_bytes,
        frames_per_second: frames,
        pool_bytes: settings.pool_bytes,
    };
    let here = matches!(receiver, Receiver::Loopback);
    let armed = receiver.arm(wanted)?;
    let targets: Vec<UdpTarget> =
        armed.ports.iter().map(|port| target(armed.address, *port)).collect();
    let plan = plan(&targets, settings.frame_bytes, frames, Some(time))?;
    let sent = Generator::prepare(plan)?.run(stop, &Progress::default());
    std::thread::sleep(SETTLE);
    let buffer = armed.buffer;
    let mut caught = armed.finish()?;
    let sent = sent?;
    if here {
        // The sender is a thread of the same process.
        caught.cpu_seconds = (caught.cpu_seconds - sent.sent.cpu_seconds).max(0.0);
    }
    Ok((Trial::of(settings, frames, &sent, caught, confirms), buffer))
}

/// A port on a host.
pub fn target(address: IpAddr, port: u16) -> UdpTarget {
    UdpTarget { host: address.to_string(), port, ttl: None, interface: None }
}

/// A plan of VDIF with PRBS-31 payload to each of these targets, for a time or until stopped.
pub fn plan(
    targets: &[UdpTarget],
    frame_bytes: u32,
    frames_per_second: u64,
    time: Option<Duration>,
) -> Result<Plan, Error> {
    let form = VdifForm {
        frame_bytes,
        frames_per_second,
        bits: 2,
        channels: 1,
        complex: false,
        station: u16::from_be_bytes(*b"Fb"),
        legacy: false,
        edv: 0,
    };
    let template = form.template().map_err(|_| Error::Frame { bytes: frame_bytes })?;
    let stream = |target: &UdpTarget| StreamPlan {
        name: target.port.to_string(),
        target: target.clone(),
        form: Form::Frames { kind: FrameKind::Vdif, template, packet_number: false },
        frames_per_second,
        threads: vec![0],
        first_number: 0,
    };
    let now = Clock::new().now();
    let frames = |time: Duration| (time.as_secs_f64() * frames_per_second as f64).round().max(1.0);
    Ok(Plan {
        streams: targets.iter().map(stream).collect(),
        payload: PayloadSource::Pattern(Pattern::Prbs(Prbs::PRBS31)),
        start: Some(Tai(now.0 - now.0.rem_euclid(1_000_000_000))),
        frames: time.map(|time| frames(time) as u64),
        pace: Pace::Nominal { waiting: waiting(), catch_up: CATCH_UP },
        faults: Faults::default(),
        timing: Timing::default(),
    })
}

/// Exact if the sender can have a core to itself.
fn waiting() -> Waiting {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores > 1 { Waiting::Exact } else { Waiting::Gentle }
}

/// The trials that support the result: those that confirm a rate. If the sender never reached the rate, the fastest
/// trial without loss.
fn good<'a>(settings: &Settings, found: &Found, trials: &'a [Trial]) -> Vec<&'a Trial> {
    if found.rate > 0.0 {
        let confirming =
            trials.iter().filter(|trial| trial.confirms && trial.outcome() == Outcome::Held);
        return confirming.filter(|trial| is_of(settings, found.rate, trial)).collect();
    }
    let whole = trials.iter().filter(|trial| trial.outcome() != Outcome::Lost && trial.sent > 0);
    whole.max_by(|a, b| a.reached.total_cmp(&b.reached)).into_iter().collect()
}

pub(super) fn stage(settings: &Settings, found: &Found, trials: &[Trial], way: &str) -> Stage {
    let good = good(settings, found, trials);
    let rates: Vec<f64> = good.iter().map(|trial| trial.reached).collect();
    let bytes: f64 = good.iter().map(|trial| trial.bytes as f64).sum();
    let per_gb = |seconds: f64| if bytes > 0.0 { seconds * 1e9 / bytes } else { 0.0 };
    let received: f64 = good.iter().map(|trial| trial.caught.cpu_seconds).sum();
    let sent: f64 = good.iter().map(|trial| trial.sender_cpu_seconds).sum();
    let mut figures = BTreeMap::new();
    let mut put = |name: &str, value: f64| {
        figures.insert(name.to_owned(), value);
    };
    put("streams", f64::from(settings.streams));
    put("frame_bytes", f64::from(settings.frame_bytes));
    put("trials", trials.len() as f64);
    let rate = Spread::of(&rates);
    put("packets_per_s", rate.mean / f64::from(settings.frame_bytes));
    put("sender_cpu_s_per_gb", per_gb(sent));
    if let Some((above, _)) = found.above {
        put("next_tried_bytes_per_s", above);
    }
    let mark = good.iter().map(|trial| trial.caught.high_water).max();
    if let Some((high, blocks)) = mark {
        put("high_water_blocks", high as f64);
        put("pool_blocks", blocks as f64);
    }
    Stage {
        name: "receive".into(),
        what: format!(
            "{} of {}-byte VDIF frames received into blocks, {way}",
            if settings.streams == 1 {
                "a stream".to_owned()
            } else {
                format!("{} streams", settings.streams)
            },
            settings.frame_bytes
        ),
        rate,
        cpu_s_per_gb: (bytes > 0.0).then(|| per_gb(received)),
        threads: 1,
        figures,
    }
}

/// Notes on the end of the search and the places of loss.
pub(super) fn notes(
    settings: &Settings,
    found: &Found,
    trials: &[Trial],
    buffer: u64,
) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |level, text| notes.push(Note { level, text });
    let above = found.above.and_then(|(rate, _)| {
        let failed =
            |trial: &&Trial| is_of(settings, rate, trial) && trial.outcome() != Outcome::Held;
        trials.iter().rev().find(failed)
    });
    match above {
        None => note(
            Level::Info,
            format!(
                "nothing was lost up to {}, the highest rate tried",
                ByteRate(settings.range.most as u64)
            ),
        ),
        Some(trial) if trial.outcome() == Outcome::NotReached => note(
            Level::Warning,
            format!(
                "at {} the sender could not keep up ({}): the receiver may hold more than was found",
                ByteRate(trial.requested as u64),
                ByteRate(trial.reached as u64)
            ),
        ),
        Some(trial) => {
            note(Level::Info, format!("the next rate above lost packets: {}", trial.told()))
        }
    }
    if found.rate == 0.0
        && let [fastest] = good(settings, found, trials)[..]
    {
        note(
            Level::Warning,
            format!(
                "no rate was confirmed: the sender reached {} at most of which nothing was lost, in one trial",
                ByteRate(fastest.reached as u64)
            ),
        );
    }
    if trials.iter().any(|trial| trial.refused > 0) {
        note(
            Level::Warning,
            "the sending kernel refused packets: a queue on the way out was full".into(),
        );
    }
    if buffer > 0 && buffer < 32 << 20 {
        note(
            Level::Warning,
            format!(
                "the receive buffers are {buffer} bytes only: allow more with `sysctl net.core.rmem_max=67108864`"
            ),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(rate: f64) -> Settings {
        Settings {
            streams: 2,
            frame_bytes: 1032,
            pool_bytes: 64 << 20,
            // The test machine may be busy with other tasks.
            reached: 0.3,
            range: Range {
                start: rate,
                most: rate,
                precision: 0.2,
                time: Duration::from_millis(100),
                confirmations: 1,
            },
        }
    }

    #[test]
    fn a_rate_that_loopback_holds_is_confirmed() {
        let mut heard = 0;
        let stop = StopHandle::default();
        let measured =
            measure(&settings(4e6), &mut Receiver::Loopback, "over loopback", &stop, |_| {
                heard += 1
            })
            .unwrap();
        assert!(heard >= 2, "{heard} trials");
        let rate = measured.stage.rate.mean;
        assert!((1e6..4.2e6).contains(&rate), "{:?}", measured.trials);
        assert!(measured.trials.iter().all(|trial| trial.lost() == 0));
    }

    #[test]
    fn another_host_counts_what_it_was_sent() {
        let stop = StopHandle::default();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                wire::serve("127.0.0.1:0".parse().unwrap(), true, &stop, |text| {
                    drop(tell.send(text))
                })
            });
            let told = told.recv().unwrap();
            let (remote, _) = Remote::call(told.strip_prefix("listening on ").unwrap()).unwrap();
            let mut far = Receiver::Far(Box::new(remote));
            let quiet = StopHandle::default();
            let measured = measure(&settings(4e6), &mut far, "to itself", &quiet, |_| ()).unwrap();
            assert!(measured.stage.rate.mean > 5e5, "{:?}", measured.trials);
            drop(far);
            server.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_sender_that_never_kept_pace_still_tells_what_was_received() {
        let settings = settings(4e6);
        let trial = |reached, lost: u64| Trial {
            requested: 4e6,
            reached,
            sent: 100,
            bytes: 103_200,
            refused: 0,
            sender_cpu_seconds: 0.1,
            caught: receive::Caught { frames: 100 - lost, ..Default::default() },
            kept_pace: false,
            confirms: false,
        };
        let trials = [trial(1e6, 0), trial(2e6, 0), trial(3e6, 1)];
        let found = Found { rate: 0.0, above: Some((4e6, Outcome::NotReached)) };
        assert_eq!(stage(&settings, &found, &trials, "").rate.mean, 2e6);
        let notes = notes(&settings, &found, &trials, 64 << 20);
        assert!(notes.iter().any(|note| note.text.contains("no rate was confirmed")), "{notes:?}");
        let nothing = Found { rate: 0.0, above: Some((4e6, Outcome::Lost)) };
        assert_eq!(stage(&settings, &nothing, &trials[2..], "").rate.runs, 0);
    }

    #[test]
    fn frames_that_cannot_be_are_refused() {
        let stop = StopHandle::default();
        for bytes in [0, 8, 1001, 70_000] {
            let settings = Settings { frame_bytes: bytes, ..settings(1e6) };
            let measured = measure(&settings, &mut Receiver::Loopback, "", &stop, |_| ());
            assert!(matches!(measured.map(|_| ()), Err(Error::Frame { .. })), "{bytes}");
        }
    }

    #[test]
    fn a_trial_says_where_packets_were_lost() {
        let caught = Caught {
            frames: 90,
            overrun: 4,
            moved: vec![receive::Moved {
                layer: fullbore_core::account::Layer::Socket,
                counter: "socket 127.0.0.1:1 drops".into(),
                by: 6,
            }],
            ..Caught::default()
        };
        let trial = Trial {
            requested: 1e9,
            reached: 1e9,
            sent: 100,
            bytes: 803_200,
            refused: 0,
            sender_cpu_seconds: 0.1,
            caught,
            kept_pace: true,
            confirms: false,
        };
        let told = trial.told();
        assert!(
            told.contains("10 of 100 packets lost")
                && told.contains("the receive buffer dropped 6"),
            "{told}"
        );
        assert!(told.contains("4 found no block free"), "{told}");
        let unseen = Trial { caught: Caught { frames: 99, ..Caught::default() }, ..trial };
        assert!(unseen.told().contains("lost before it"), "{}", unseen.told());
    }
}
