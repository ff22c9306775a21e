//! The sender of one port, and the loop that serves all of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::IoSlice;

use fullbore_formats::framed::FrameKind;
use fullbore_formats::vdif::Second;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::send::{Destination, Error, MOST_PACKETS, Packet, Sender};
use fullbore_replay::pace::{Gate, Lateness, Period, Waiting, group_size};
use fullbore_replay::underrun::{Cause, Underruns};
use fullbore_replay::{Progress, StartAccount, Timing, cpu_seconds, start};
use fullbore_time::Tai;

use super::datagram::{HEAD_BYTES, Made, Maker};
use super::fault::{Event, FRAME_DAMAGES, FaultSchedule, RAW_DAMAGES, VDIF_DAMAGES, What};
use super::payload::Payloads;
use super::truth::{Done, StreamTruth, Tally};
use super::vita49::Beside;
use super::{Faults, Form, Pace, Plan, StreamPlan, first_frame, start_of};

/// The most bytes of one message.
const LARGEST_MESSAGE: usize = 65_507;

/// A port, its socket, and its position.
pub struct PortSender {
    sender: Sender,
    fault_schedule: FaultSchedule,
    maker: Maker,
    /// The time between two places.
    period: Period,
    /// The due time of the first place.
    phase_ns: u64,
    /// Place of the first frame of the run.
    first_place: u64,
    /// The context between the packets of VITA-49.
    beside: Option<Beside>,
    /// The number of places sent at once.
    group: u64,
    /// The most places sent at once.
    most: u64,
    events: Vec<Event>,
    /// The due time and the lateness of each event, if there is a pace.
    pace: Vec<Option<(u64, u64)>>,
    heads: Box<[[u8; HEAD_BYTES]; MOST_PACKETS]>,
    truth: StreamTruth,
}

/// The result of the loop.
pub struct Ran {
    pub seconds: f64,
    pub cpu_seconds: f64,
    pub lateness: Lateness,
    pub account: Underruns,
    pub start: Option<StartAccount>,
}

impl PortSender {
    pub fn open(
        stream: &StreamPlan,
        plan: &Plan,
        number: usize,
        start: Tai,
    ) -> Result<Self, Error> {
        let sender = Sender::connect(&Destination::of(&stream.target)?)?;
        let threads = stream.threads.len() as u64;
        let places_per_second = stream.frames_per_second * threads;
        let begins = start_of(&stream.form, start, plan.start.is_some());
        let (first_second, frame) = first_frame(begins, stream.frames_per_second);
        let first_ns = Period::per_second(stream.frames_per_second).times_ns(frame);
        let until_first_ns = first_second.start().plus_ns(first_ns.cast_signed()).since(begins);
        let damages = match &stream.form {
            Form::Frames { kind, .. } if kind.states_length() => VDIF_DAMAGES,
            Form::Frames { .. } => FRAME_DAMAGES,
            Form::Packets(packets) => packets.damages(),
            Form::Raw { .. } => RAW_DAMAGES,
        };
        let places = plan.frames.map_or(u64::MAX, |frames| frames.saturating_mul(threads));
        let fault_schedule =
            FaultSchedule::new(&plan.faults, &stream.name, damages, places, places_per_second);
        let shift = number as u64 * 7;
        let faults = plan.faults.clone();
        let maker = Maker::new(
            since_half_year(&stream.form, first_second),
            &stream.threads,
            stream.frames_per_second,
            first_second,
            stream.first_number,
            shift,
        )
        .miscounting(faults);
        let datagram = stream.form.datagram_bytes();
        let period = Period::per_second(places_per_second);
        let fits = (LARGEST_MESSAGE / datagram as usize).clamp(1, MOST_PACKETS) as u64;
        let (group, most) = match plan.pace {
            Pace::FlatOut => (fits, fits),
            Pace::Nominal { waiting: Waiting::Gentle, .. } => (1, fits),
            Pace::Nominal { waiting: Waiting::Exact, .. } => {
                let group = (group_size(total_rate(plan)) as u64).min(fits);
                (group, group)
            }
        };
        let vdif = matches!(stream.form, Form::Frames { kind: FrameKind::Vdif, .. });
        let numbered = !matches!(
            stream.form,
            Form::Frames { packet_number: false, .. } | Form::Raw { sequence: None, .. }
        );
        Ok(PortSender {
            sender,
            fault_schedule,
            maker,
            period,
            // A frame is never sent before its time. Lanes of equal rate take turns instead of sending at the same
            // time.
            phase_ns: until_first_ns.max(0).unsigned_abs()
                + period.times_ns(number as u64) / plan.streams.len() as u64,
            first_place: frame * threads,
            beside: match &stream.form {
                Form::Packets(packets) => {
                    packets.vita49().map(|form| Beside::new(form, stream.frames_per_second))
                }
                Form::Frames { .. } | Form::Raw { .. } => None,
            },
            group,
            most,
            events: Vec::with_capacity(2 * MOST_PACKETS),
            pace: Vec::with_capacity(2 * MOST_PACKETS),
            heads: Box::new([[0; HEAD_BYTES]; MOST_PACKETS]),
            truth: StreamTruth {
                name: stream.name.clone(),
                target: stream.target.to_string(),
                format: stream.form.name(),
                frame_bytes: stream.form.frame_bytes(),
                datagram_bytes: datagram,
                frames_per_second: stream.frames_per_second,
                threads: stream.threads.clone(),
                first_second: first_second.start(),
                vdif_second: vdif.then(|| header_second(first_second)),
                first_number: numbered.then_some(stream.first_number),
                packets: match &stream.form {
                    Form::Packets(packets) => packets.vita49().cloned(),
                    Form::Frames { .. } | Form::Raw { .. } => None,
                },
                payload_shift: shift,
                port: Tally::default(),
                by_thread: vec![Tally::default(); if threads > 1 { threads as usize } else { 0 }],
            },
        })
    }

    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    pub fn into_truth(self) -> StreamTruth {
        self.truth
    }

    fn due_ns(&self, place: u64) -> u64 {
        self.phase_ns + self.period.times_ns(place)
    }

    /// The due time of the last place of the next group.
    fn group_due_ns(&self) -> u64 {
        self.due_ns(self.fault_schedule.passed() + self.group - 1)
    }

    /// Takes the places due up to `until_ns`, at least one; `false` at the end.
    fn take(&mut self, until_ns: u64, now_ns: u64, lateness: &mut Lateness) -> bool {
        self.events.clear();
        self.pace.clear();
        for taken in 0..self.most {
            let due_ns = self.due_ns(self.fault_schedule.passed());
            if taken > 0 && due_ns > until_ns {
                break;
            }
            if !self.step() {
                return taken > 0;
            }
            let late_ns = now_ns.saturating_sub(due_ns);
            lateness.record(late_ns);
            self.pace.resize(self.events.len(), Some((due_ns, late_ns)));
        }
        true
    }

    /// The same regardless of time.
    fn take_at_once(&mut self) -> bool {
        self.events.clear();
        self.pace.clear();
        (0..self.most).take_while(|_| self.step()).count() > 0
    }

    /// Takes the next place, with the context due before it; `false` at the end.
    #[inline]
    fn step(&mut self) -> bool {
        let before = self.events.len();
        let Some(place) = self.fault_schedule.step(&mut self.events) else { return false };
        let Some(beside) = &mut self.beside else { return true };
        let what = self.events.get(before).map(|event| event.what);
        // A place that has not passed is that of the delayed events at the end.
        if what != Some(What::Silent) && place < self.fault_schedule.passed() {
            let due = beside.before(place + self.first_place);
            self.events.splice(before..before, due.map(|what| Event { place, what }));
        }
        true
    }

    /// Sends the places taken.
    fn send(
        &mut self,
        payloads: &Payloads,
        progress: &Progress,
        mut account: impl FnMut(Option<(u64, u64)>, bool),
    ) -> Result<(), Error> {
        let events = std::mem::take(&mut self.events);
        self.pace.resize(events.len(), None);
        let pace = std::mem::take(&mut self.pace);
        for (chunk, pace) in events.chunks(MOST_PACKETS).zip(pace.chunks(MOST_PACKETS)) {
            self.send_chunk(chunk, payloads, progress, |n, refused| account(pace[n], refused))?;
        }
        (self.events, self.pace) = (events, pace);
        Ok(())
    }

    fn send_chunk(
        &mut self,
        events: &[Event],
        payloads: &Payloads,
        progress: &Progress,
        mut account: impl FnMut(usize, bool),
    ) -> Result<(), Error> {
        let mut made = [Made::default(); MOST_PACKETS];
        let mut done = [(Done::Dropped, None); MOST_PACKETS];
        let mut count = 0;
        for (event, done) in events.iter().zip(&mut done) {
            let event = Event { place: event.place + self.first_place, ..*event };
            let (fate, datagram) = self.maker.make(event, payloads, &mut self.heads[count]);
            *done = (fate, datagram.map(|_| count));
            if let Some(datagram) = datagram {
                made[count] = datagram;
                count += 1;
            }
        }
        let mut packets: [Packet<'_>; MOST_PACKETS] = [[IoSlice::new(&[]); 2]; MOST_PACKETS];
        let mut bytes = 0;
        for ((packet, made), head) in packets.iter_mut().zip(&made[..count]).zip(self.heads.iter())
        {
            let payload = made.payload(payloads);
            bytes += (made.head + payload.len()) as u64;
            *packet = [IoSlice::new(&head[..made.head]), IoSlice::new(payload)];
        }
        let refused = self.sender.send(&packets[..count])?;
        for (n, (event, (fate, packet))) in events.iter().zip(done).enumerate() {
            if let Some(packet) = packet {
                account(n, refused >> packet & 1 == 1);
            }
            let fate = match packet {
                Some(packet) if refused >> packet & 1 == 1 => refused_fate(fate),
                _ => fate,
            };
            self.note(event.place + self.first_place, fate);
        }
        progress.add(count as u64, bytes);
        Ok(())
    }

    #[inline]
    fn note(&mut self, place: u64, done: Done) {
        let truth = &mut self.truth;
        truth.port.note(place.cast_signed(), done);
        let threads = truth.by_thread.len() as u64;
        let miscounted = matches!(done, Done::Sent { .. }) && self.maker.miscounts(place);
        if miscounted {
            truth.port.miscounted.add(place.cast_signed());
        }
        if threads > 1 {
            let (index, rank) = (place / threads, place % threads);
            let thread = &mut truth.by_thread[rank as usize];
            thread.note(index.cast_signed(), done);
            if miscounted {
                thread.miscounted.add(index.cast_signed());
            }
        }
    }
}

fn refused_fate(done: Done) -> Done {
    match done {
        Done::Copy | Done::Rubbish | Done::Beside | Done::RefusedExtra => Done::RefusedExtra,
        Done::Sent { .. } | Done::Damaged { .. } | Done::Dropped | Done::Silent | Done::Refused => {
            Done::Refused
        }
    }
}

fn total_rate(plan: &Plan) -> u64 {
    let rate = |stream: &StreamPlan| {
        let frames = stream.frames_per_second * stream.threads.len() as u64;
        frames * u64::from(stream.form.datagram_bytes())
    };
    plan.streams.iter().map(rate).sum()
}

/// Headers count from the half-year in which the run begins, even if it extends into the next.
fn since_half_year(form: &Form, first: Second) -> Form {
    match form {
        Form::Frames { kind, template, packet_number } => {
            let (epoch, _) = header_second(first);
            let template = template.with_reference_epoch(epoch).with_invalid(false);
            Form::Frames { kind: *kind, template, packet_number: *packet_number }
        }
        other @ (Form::Packets(_) | Form::Raw { .. }) => other.clone(),
    }
}

/// Reference epoch and seconds, counted from the half-year that contains the second.
fn header_second(second: Second) -> (u32, u32) {
    let (epoch, _) = second.start().half_year();
    second.since_epoch(epoch)
}

/// Serves the lanes in the order of due times until all have ended or `stop` is set.
pub fn run(
    port_senders: &mut [PortSender],
    payloads: &Payloads,
    (pace, faults): (Pace, &Faults),
    timing: Timing,
    stop: &StopHandle,
    progress: &Progress,
) -> Result<Ran, super::Error> {
    let (waiting, catch_up, timed) = match pace {
        Pace::Nominal { waiting, catch_up } => (waiting, catch_up, true),
        Pace::FlatOut => (Waiting::Exact, 1.0, false),
    };
    let clock = start(waiting, timing.at, stop)?;
    let mut gate = Gate::new(clock, waiting, catch_up);
    let mut first_sent = None;
    let cpu_before = cpu_seconds();
    let mut lateness = Lateness::default();
    let mut turns: BinaryHeap<Reverse<(u64, usize)>> = port_senders
        .iter()
        .enumerate()
        .map(|(n, port_sender)| Reverse((port_sender.group_due_ns(), n)))
        .collect();
    let names = port_senders.iter().map(|port_sender| port_sender.truth.name.clone());
    let mut account = Underruns::new(names, timing.late_after_ns);
    let mut stopping = false;
    while let Some(Reverse((due_ns, number))) = turns.pop() {
        if !stopping && stop.is_requested() {
            stopping = true;
            port_senders.iter_mut().for_each(|port_sender| port_sender.fault_schedule.stop());
        }
        let port_sender = &mut port_senders[number];
        let more = if !timed || stopping {
            port_sender.take_at_once()
        } else {
            let (until_ns, now_ns) = gate.pass(faults.by_the_host(due_ns));
            // Frames due then are due now, regardless of rounding between the two clocks.
            let until_ns = faults.by_the_sender(until_ns).max(due_ns);
            port_sender.take(until_ns, faults.by_the_sender(now_ns), &mut lateness)
        };
        let (before_ns, stalls) = (gate.now_ns(), port_sender.sender.tally().stalls);
        port_sender.send(payloads, progress, |pace, refused| match (pace, refused) {
            (pace, true) => account.not_sent(number, pace.map(|it| it.0), 1, Cause::Refused),
            (Some((due_ns, late_ns)), false) => account.sent(number, Some(due_ns), late_ns),
            (None, false) => account.sent(number, None, 0),
        })?;
        if let (Some(at), None) = (timing.at, &first_sent) {
            first_sent = Some(StartAccount::read(at));
        }
        if port_sender.sender.tally().stalls != stalls {
            account.waited_for_socket(gate.now_ns().saturating_sub(before_ns));
        }
        if more {
            turns.push(Reverse((port_senders[number].group_due_ns(), number)));
        }
    }
    let seconds = gate.now_ns() as f64 / 1e9;
    let cpu_seconds = cpu_seconds() - cpu_before;
    Ok(Ran { seconds, cpu_seconds, lateness, account, start: first_sent })
}
