//! Decides from what is seen of this host whether a transfer may send, as a pure state machine.
//!
//! ```text
//!             ring, receive queue or drops rise
//!  sending ───────────────────────────────────────► paused
//!     ▲                                               │
//!     └───── calm for 0.3 s; for up to 0.8 s ◄────────┘
//!            if the last calm did not last
//! ```
//!
//! The recorder's own signals decide. Pressure on CPU and disks (PSI) includes what the transfer itself waits for, so it
//! is no reason for a pause, but it makes the machine sensitive: the signals then count at half of their limits.

use std::time::Duration;

use super::{Allowance, Limits, Reason, Signal};

/// The use of a recorder's memory at which a transfer pauses, in thousandths.
pub const RING_PERMILLE: u32 = 500;

/// The part of the time in which some task waits for CPU or disks that counts as pressure, in thousandths.
const PRESSURE_PERMILLE: u64 = 600;

/// Pressure is measured over at least this time.
const PRESSURE_OVER: Duration = Duration::from_millis(100);

/// The time without a signal after which a transfer goes on.
const CALM: Duration = Duration::from_millis(300);

/// The same at most, if signals come back.
const MOST_CALM: Duration = Duration::from_millis(800);

/// A signal this soon after a pause makes the next pause longer.
const SOON: Duration = Duration::from_secs(5);

/// Without an observation for this time, the host is too busy even to look at it.
const LATE: Duration = Duration::from_millis(100);

/// What is seen of this host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Time since any fixed moment.
    pub at: Duration,
    /// The second of the day, UTC.
    pub second_of_day: u32,
    /// True if a scan is being recorded on this host.
    pub recording: bool,
    /// The use of the fullest recorder's memory, in thousandths.
    pub ring_permille: u32,
    /// Frames overrun in all recorders so far.
    pub overrun: u64,
    /// Bytes in the fullest receive queue of a recorder's socket.
    pub queue_bytes: u64,
    /// The limit for that; 0 if there is none.
    pub queue_limit: u64,
    /// Datagrams dropped by recorders' sockets so far.
    pub drops: u64,
    /// Time for which some task waited for a CPU, by the kernel, in microseconds.
    pub cpu_waited_us: u64,
    /// The same for disks.
    pub io_waited_us: u64,
}

/// The state.
#[derive(Clone, Debug)]
pub struct Machine {
    limits: Limits,
    last: Option<Observation>,
    /// The observation that pressure is measured from.
    pressure_from: Option<Observation>,
    pressed: bool,
    pause: Option<Pause>,
    /// The end of the last pause, and the calm that it needed.
    before: Option<(Duration, Duration)>,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    signal: Signal,
    /// The last time that a signal was seen.
    seen: Duration,
    /// The calm that ends it.
    needs: Duration,
}

impl Machine {
    /// A machine that has seen nothing.
    pub fn new(limits: Limits) -> Self {
        let (last, pressure_from, pause, before) = (None, None, None, None);
        Self { limits, last, pressure_from, pressed: false, pause, before }
    }

    /// Takes an observation, and returns what a transfer may do until the next.
    pub fn step(&mut self, now: &Observation) -> Allowance {
        self.measure_pressure(now);
        let signal = if now.recording { self.signal(now) } else { None };
        match (signal, self.pause) {
            (Some(signal), None) => {
                let needs = match self.before {
                    Some((end, calm)) if now.at.saturating_sub(end) < SOON => {
                        (calm * 3 / 2).min(MOST_CALM)
                    }
                    _ => CALM,
                };
                self.pause = Some(Pause { signal, seen: now.at, needs });
            }
            (Some(signal), Some(pause)) => {
                self.pause = Some(Pause { signal, seen: now.at, ..pause });
            }
            (None, Some(pause))
                if !now.recording || now.at.saturating_sub(pause.seen) >= pause.needs =>
            {
                self.before = Some((now.at, pause.needs));
                self.pause = None;
            }
            (None, Some(_) | None) => {}
        }
        self.last = Some(*now);
        self.allowance(now.at)
    }

    /// What a transfer may do at this time, by the last observation.
    pub fn allowance(&self, at: Duration) -> Allowance {
        let Some(last) = &self.last else { return Allowance::Go(self.limits.rate) };
        if self.limits.window.is_some_and(|window| !window.contains(last.second_of_day)) {
            return Allowance::Pause(Reason::OutsideWindow);
        }
        match self.needed(at) {
            Some(signal) => Allowance::Pause(Reason::Recording(signal)),
            None => Allowance::Go(self.limits.rate),
        }
    }

    /// Why a recorder needs the machine at this time, whatever the limits of the user are.
    pub fn needed(&self, at: Duration) -> Option<Signal> {
        let last = self.last.as_ref()?;
        let late = last.recording && at.saturating_sub(last.at) > LATE;
        self.pause.map(|pause| pause.signal).or(late.then_some(Signal::Busy))
    }

    /// Returns the signal that the recording needs the machine, if there is one. A pause lasts until the signals are
    /// well below the limits that began it.
    fn signal(&self, now: &Observation) -> Option<Signal> {
        let share = if self.pressed { 2 } else { 1 };
        let (ring, queue) = match self.pause {
            None => (RING_PERMILLE / share, now.queue_limit / u64::from(share)),
            Some(_) => (RING_PERMILLE / share * 4 / 5, now.queue_limit / u64::from(share) / 2),
        };
        let before = self.last.as_ref();
        if before.is_some_and(|it| now.overrun > it.overrun) {
            return Some(Signal::Overrun);
        }
        if before.is_some_and(|it| now.drops > it.drops) {
            return Some(Signal::Drops);
        }
        if now.ring_permille >= ring {
            return Some(Signal::Ring { permille: now.ring_permille });
        }
        (queue > 0 && now.queue_bytes >= queue)
            .then_some(Signal::ReceiveQueue { bytes: now.queue_bytes })
    }

    fn measure_pressure(&mut self, now: &Observation) {
        // Pressure is read only beside a recorder.
        let Some(from) = self.pressure_from.filter(|from| from.recording) else {
            (self.pressed, self.pressure_from) = (false, Some(*now));
            return;
        };
        let passed = now.at.saturating_sub(from.at);
        if passed < PRESSURE_OVER {
            return;
        }
        let waited = |now: u64, from: u64| now.saturating_sub(from);
        let cpu = waited(now.cpu_waited_us, from.cpu_waited_us);
        let io = waited(now.io_waited_us, from.io_waited_us);
        let us = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        self.pressed = cpu.max(io).saturating_mul(1000) / us.max(1) >= PRESSURE_PERMILLE;
        self.pressure_from = Some(*now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STEP_MS: u64 = 50;

    fn at(ms: u64) -> Observation {
        Observation {
            at: Duration::from_millis(ms),
            recording: true,
            queue_limit: 1 << 20,
            ..Observation::default()
        }
    }

    fn is_paused(allowance: Allowance) -> bool {
        matches!(allowance, Allowance::Pause(_))
    }

    fn machine() -> Machine {
        Machine::new(Limits::default())
    }

    #[test]
    fn each_signal_pauses_and_is_told() {
        let signals = [
            (Observation { ring_permille: 700, ..at(50) }, Signal::Ring { permille: 700 }),
            (Observation { overrun: 1, ..at(50) }, Signal::Overrun),
            (Observation { drops: 1, ..at(50) }, Signal::Drops),
            (
                Observation { queue_bytes: 1 << 20, ..at(50) },
                Signal::ReceiveQueue { bytes: 1 << 20 },
            ),
        ];
        for (observation, signal) in signals {
            let mut machine = machine();
            assert_eq!(machine.step(&at(0)), Allowance::Go(None));
            let paused = Allowance::Pause(Reason::Recording(signal));
            assert_eq!(machine.step(&observation), paused);
            let mut elsewhere = self::machine();
            elsewhere.step(&Observation { recording: false, ..at(0) });
            let nothing = Observation { recording: false, ..observation };
            assert_eq!(elsewhere.step(&nothing), Allowance::Go(None), "nothing is recorded");
        }
    }

    #[test]
    fn what_was_dropped_before_is_no_reason() {
        let mut machine = machine();
        assert_eq!(
            machine.step(&Observation { drops: 9, overrun: 7, ..at(0) }),
            Allowance::Go(None)
        );
    }

    #[test]
    fn under_pressure_the_signals_count_at_half() {
        let mut machine = machine();
        let ring = |ms: u64, waited: u64| Observation {
            ring_permille: 300,
            cpu_waited_us: waited,
            ..at(ms)
        };
        assert!(!is_paused(machine.step(&ring(0, 0))));
        assert!(!is_paused(machine.step(&ring(100, 10_000))));
        assert!(is_paused(machine.step(&ring(200, 100_000))));
        let mut alone = self::machine();
        for step in 0..100 {
            let pressed = Observation { io_waited_us: step * 50_000, ..at(step * STEP_MS) };
            assert!(!is_paused(alone.step(&pressed)), "pressure alone is no reason");
        }
    }

    #[test]
    fn a_host_that_is_too_busy_to_be_observed_pauses_the_transfer() {
        let mut machine = machine();
        machine.step(&at(0));
        assert_eq!(machine.allowance(Duration::from_millis(90)), Allowance::Go(None));
        let busy = Allowance::Pause(Reason::Recording(Signal::Busy));
        assert_eq!(machine.allowance(Duration::from_millis(110)), busy);
        machine.step(&Observation { recording: false, ..at(120) });
        assert_eq!(machine.allowance(Duration::from_millis(900)), Allowance::Go(None));
    }

    #[test]
    fn outside_the_window_nothing_is_sent() {
        let window = Some("22:00-06:00".parse().unwrap());
        let mut machine = Machine::new(Limits { rate: Some(5), window });
        let noon = Observation { second_of_day: 12 * 3600, ring_permille: 900, ..at(0) };
        assert_eq!(machine.step(&noon), Allowance::Pause(Reason::OutsideWindow));
        let night = Observation { second_of_day: 0, recording: false, ..at(50) };
        assert_eq!(machine.step(&night), Allowance::Go(Some(5)));
    }

    #[test]
    fn pauses_get_longer_while_each_return_brings_the_signal_back() {
        let mut machine = machine();
        let mut lengths = Vec::new();
        let mut since = None;
        for step in 0..200 {
            let now = step * 10;
            // The ring fills whenever the transfer sends.
            let ring_permille = if since.is_none() { 900 } else { 0 };
            let paused = is_paused(machine.step(&Observation { ring_permille, ..at(now) }));
            match (paused, since) {
                (true, None) => since = Some(now),
                (false, Some(began)) => {
                    lengths.push(now - began);
                    since = None;
                }
                _ => {}
            }
        }
        assert_eq!(lengths[..3], [300, 450, 680]);
    }

    fn observations() -> impl Strategy<Value = Vec<(u64, Observation)>> {
        let one = (
            1..=STEP_MS,
            any::<[bool; 4]>(),
            0u32..=1000,
            0u64..3 << 20,
            0u64..60_000,
            0u64..60_000,
        );
        let one = one.prop_map(|(ms, flags, ring_permille, queue_bytes, cpu, io)| {
            let [recording, dropped, overran, quiet] = flags;
            let observation = Observation {
                recording,
                ring_permille: if quiet { 0 } else { ring_permille },
                queue_bytes: if quiet { 0 } else { queue_bytes },
                overrun: u64::from(overran && !quiet),
                drops: u64::from(dropped && !quiet),
                cpu_waited_us: cpu,
                io_waited_us: io,
                queue_limit: 1 << 20,
                ..Observation::default()
            };
            (ms, observation)
        });
        prop::collection::vec(one, 1..100)
    }

    /// Runs a machine over observations whose counters are increments; returns it with the last observation.
    fn run(steps: &[(u64, Observation)]) -> (Machine, Observation) {
        let mut machine = machine();
        let mut now = Observation::default();
        for (ms, step) in steps {
            now = Observation {
                at: now.at + Duration::from_millis(*ms),
                overrun: now.overrun + step.overrun,
                drops: now.drops + step.drops,
                cpu_waited_us: now.cpu_waited_us + step.cpu_waited_us,
                io_waited_us: now.io_waited_us + step.io_waited_us,
                ..*step
            };
            machine.step(&now);
        }
        (machine, now)
    }

    proptest! {
        #[test]
        fn whatever_went_before_a_rise_pauses_within_100_ms(
            steps in observations(), ms in 1..=STEP_MS, which in 0..4
        ) {
            let (mut machine, before) = run(&steps);
            let at = before.at + Duration::from_millis(ms);
            let mut now = Observation { at, recording: true, ring_permille: 0, queue_bytes: 0, ..before };
            match which {
                0 => now.ring_permille = RING_PERMILLE,
                1 => now.queue_bytes = now.queue_limit,
                2 => now.drops += 1,
                _ => now.overrun += 1,
            }
            prop_assert!(is_paused(machine.step(&now)), "the next observation is at most {STEP_MS} ms later");
            prop_assert!(is_paused(machine.allowance(now.at + Duration::from_secs(9))));
        }

        #[test]
        fn whatever_went_before_a_calm_second_ends_the_pause(steps in observations(), ms in 1..=STEP_MS) {
            let (mut machine, before) = run(&steps);
            let mut now = Observation { recording: true, ring_permille: 100, queue_bytes: 0, ..before };
            let mut calm = Duration::ZERO;
            loop {
                now.at += Duration::from_millis(ms);
                calm += Duration::from_millis(ms);
                if !is_paused(machine.step(&now)) {
                    break;
                }
                prop_assert!(calm < Duration::from_secs(1), "still paused after {calm:?}");
            }
        }

        #[test]
        fn without_a_recording_nothing_but_the_window_pauses(steps in observations()) {
            let quiet: Vec<_> = steps
                .iter()
                .map(|(ms, it)| (*ms, Observation { recording: false, ..*it }))
                .collect();
            let (machine, last) = run(&quiet);
            prop_assert_eq!(machine.allowance(last.at), Allowance::Go(None));
        }
    }
}
