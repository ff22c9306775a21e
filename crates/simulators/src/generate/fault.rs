//! Deliberate faults of a stream, chosen by a seed before sending.
//!
//! A port's frames have *places*: with several threads on a port, place = index × threads + rank, so that the places of
//! a port count its frames in sending order. A [`FaultSchedule`] goes through the places one by one and returns the
//! events of each: the frame is sent, dropped, or delayed by some places. Copies and rubbish are sent in between. The
//! schedule does no I/O; the same seed gives the same schedule.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::Duration;

use fullbore_core::pattern::mixed;
use serde::Serialize;

/// Fault rules. Each frame gets at most one fault; the sum of all shares is at most 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Faults {
    /// The seed that chooses the frames.
    pub seed: u64,
    /// Share of frames that are never sent.
    pub drop: f64,
    /// Frames dropped in a row each time; 0 is taken as 1.
    pub drop_run: u64,
    /// Share of frames that are sent twice.
    pub duplicate: f64,
    /// Share of frames that are overtaken by later ones.
    pub reorder: f64,
    /// The largest number of later frames that overtake one; 0 is taken as 1.
    pub reorder_distance: u64,
    /// Share of frames that are damaged, or followed by a datagram of rubbish.
    pub damage: f64,
    /// Share of frames that are delayed by more than any window.
    pub late: f64,
    /// The delay in frames.
    pub late_distance: u64,
    /// Share of frames whose second count in the extended data does not match their time. It is chosen independently of
    /// the other faults.
    pub miscount: f64,
    /// Periods without frames.
    pub silences: Vec<Silence>,
    /// Drift of the sender's clock in parts per million; positive: too fast.
    pub drift_ppm: f64,
}

/// A period in which a stream sends nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Silence {
    /// The stream; `None`: all of them.
    pub stream: Option<String>,
    /// Start, relative to the start of the run.
    pub from: Duration,
    /// End; `None`: for ever.
    pub to: Option<Duration>,
}

/// Invalid fault rules.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A value that is not a share.
    #[error("{what} is {value}, and must be a share from 0 to 1, such as 1e-4")]
    Share {
        /// The rule.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// Shares whose sum is above 1.
    #[error("the shares of faults add up to {total}, and must not exceed 1")]
    Total {
        /// Their sum.
        total: f64,
    },
    /// A drift at which the clock would stop or go backwards, or an invalid number.
    #[error(
        "a drift of {ppm} ppm is out of range: at most {} in either direction",
        Faults::FASTEST_PPM
    )]
    Drift {
        /// The drift.
        ppm: f64,
    },
    /// A distance that would delay too many frames.
    #[error("{what} is {value} frames, and must not exceed {}", Faults::FURTHEST)]
    Distance {
        /// The name of the distance.
        what: &'static str,
        /// Its value.
        value: u64,
    },
}

impl Faults {
    /// The largest distance. It limits the number of delayed frames.
    pub const FURTHEST: u64 = 1 << 24;

    /// The largest drift in either direction.
    pub const FASTEST_PPM: f64 = 100_000.0;

    /// Refuses invalid rules.
    pub fn check(&self) -> Result<(), Error> {
        let shares = [
            ("drop", self.drop),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
            ("damage", self.damage),
            ("late", self.late),
        ];
        for (what, value) in shares {
            if !(0.0..=1.0).contains(&value) {
                return Err(Error::Share { what, value });
            }
        }
        if !(0.0..=1.0).contains(&self.miscount) {
            return Err(Error::Share { what: "miscount", value: self.miscount });
        }
        let total: f64 = shares.iter().map(|(_, share)| share).sum();
        if total > 1.0 {
            return Err(Error::Total { total });
        }
        let distances = [
            ("drop-run", self.drop_run),
            ("reorder-distance", self.reorder_distance),
            ("late-distance", self.late_distance),
        ];
        for (what, value) in distances {
            if value > Self::FURTHEST {
                return Err(Error::Distance { what, value });
            }
        }
        match self.drift_ppm.abs() <= Self::FASTEST_PPM {
            true => Ok(()),
            false => Err(Error::Drift { ppm: self.drift_ppm }),
        }
    }

    /// True if the second count of a place is wrong.
    pub(super) fn miscounts(&self, place: u64) -> bool {
        const APART: u64 = 0x5EC0;
        if self.miscount == 0.0 {
            return false;
        }
        let draw = mixed(mixed(self.seed, APART), place);
        ((draw >> 11) as f64 / (1u64 << 53) as f64) < self.miscount
    }

    /// The host time at which frames due at `ns` of the sender's clock are due.
    pub(super) fn by_the_host(&self, ns: u64) -> u64 {
        drifted(ns, -self.drift_ppm / (1.0 + self.drift_ppm / 1e6))
    }

    /// The sender's clock at host time `ns`.
    pub(super) fn by_the_sender(&self, ns: u64) -> u64 {
        drifted(ns, self.drift_ppm)
    }

    /// The places in which a stream with this many places per second is silent, relative to its first place.
    fn silent_places(&self, stream: &str, places_per_second: u64) -> Vec<Range<u64>> {
        let place = |time: Duration| {
            let place = time.as_nanos() * u128::from(places_per_second) / 1_000_000_000;
            u64::try_from(place).unwrap_or(u64::MAX)
        };
        let concerned =
            |silence: &&Silence| silence.stream.as_deref().is_none_or(|name| name == stream);
        let range = |silence: &Silence| place(silence.from)..silence.to.map_or(u64::MAX, place);
        self.silences.iter().filter(concerned).map(range).collect()
    }
}

/// The time `ns` on a clock with this drift.
fn drifted(ns: u64, ppm: f64) -> u64 {
    ns.saturating_add_signed((ns as f64 * (ppm / 1e6)) as i64)
}

/// The kind of damage of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Damage {
    /// Cut short.
    Truncated,
    /// Extra bytes at the end.
    Extended,
    /// A wrong length in the header.
    LengthField,
    /// The header is all zeros.
    ZeroedHeader,
}

/// The kind of event at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The frame is sent.
    Sent,
    /// The frame is sent long after its turn, by the rule for late frames.
    SentLate,
    /// The frame is sent again.
    Copy,
    /// The frame is sent damaged; `amount` selects the extent.
    Damaged {
        /// The kind of damage.
        damage: Damage,
        /// Any number.
        amount: u64,
    },
    /// A datagram of random content is sent; `amount` selects the content.
    Rubbish {
        /// Any number.
        amount: u64,
    },
    /// The frame is never sent.
    Dropped,
    /// The frame is never sent, because the stream is silent.
    Silent,
    /// A packet that describes the stream is sent before the frame; no schedule has one.
    Beside {
        /// True for a version packet, false for context.
        version: bool,
        /// The packets of this kind before it.
        number: u64,
    },
}

/// An event of the frame at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The place, counted from the first one of the run.
    pub place: u64,
    /// The kind of event.
    pub what: What,
}

/// The events of a port's frames, in the order in which they are carried out.
#[derive(Clone, Debug)]
pub struct FaultSchedule {
    faults: Faults,
    /// The seed combined with the stream's own.
    seed: u64,
    /// Kinds of damage that fit the stream's format.
    damages: &'static [Option<Damage>],
    silent: Vec<Range<u64>>,
    next: u64,
    end: u64,
    dropping: u64,
    /// Delayed events by place of release; earliest first.
    held: BinaryHeap<Reverse<(u64, u64, Kept)>>,
}

/// A delayed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    Frame,
    LateFrame,
    Copy,
}

/// Possible damage of VDIF frames; `None` is rubbish after a good frame.
pub const VDIF_DAMAGES: &[Option<Damage>] = &[
    Some(Damage::Truncated),
    Some(Damage::Extended),
    Some(Damage::LengthField),
    Some(Damage::ZeroedHeader),
    None,
];

/// Possible damage of frames whose header has no length; `None` is rubbish after a good frame.
pub const FRAME_DAMAGES: &[Option<Damage>] =
    &[Some(Damage::Truncated), Some(Damage::Extended), Some(Damage::ZeroedHeader), None];

/// Possible damage of datagrams without a known header.
pub const RAW_DAMAGES: &[Option<Damage>] = &[Some(Damage::Truncated), Some(Damage::Extended), None];

/// Rubbish alone: the headers of these datagrams have no length, so no damage could be seen.
pub const RUBBISH: &[Option<Damage>] = &[None];

/// The largest number of places between a frame and its copy.
const COPY_DISTANCE: u64 = 4;

impl FaultSchedule {
    /// The schedule of `stream`, with `places` frames at `places_per_second`.
    pub fn new(
        faults: &Faults,
        stream: &str,
        damages: &'static [Option<Damage>],
        places: u64,
        places_per_second: u64,
    ) -> Self {
        let own = stream.bytes().fold(faults.seed, |seed, byte| mixed(seed, u64::from(byte)));
        FaultSchedule {
            silent: faults.silent_places(stream, places_per_second),
            faults: faults.clone(),
            seed: own,
            damages,
            next: 0,
            end: places,
            dropping: 0,
            held: BinaryHeap::new(),
        }
    }

    /// Appends the events of the next place and returns its number; `None` at the end. Events that are still delayed at
    /// the end get places of their own after the last.
    #[inline]
    pub fn step(&mut self, events: &mut Vec<Event>) -> Option<u64> {
        let place = self.next;
        if place >= self.end {
            return self.release_all(events).then_some(place);
        }
        self.next += 1;
        self.decide(place, events);
        while let Some(&Reverse((release, ..))) = self.held.peek()
            && release <= place
        {
            self.release(events);
        }
        Some(place)
    }

    /// Ends the run before the next place. Delayed events still follow.
    pub fn stop(&mut self) {
        self.end = self.end.min(self.next);
    }

    /// Places completed.
    pub fn passed(&self) -> u64 {
        self.next
    }

    fn release(&mut self, events: &mut Vec<Event>) {
        let Some(Reverse((_, place, kept))) = self.held.pop() else { return };
        let what = match kept {
            Kept::Frame => What::Sent,
            Kept::LateFrame => What::SentLate,
            Kept::Copy => What::Copy,
        };
        events.push(Event { place, what });
    }

    fn release_all(&mut self, events: &mut Vec<Event>) -> bool {
        let any = !self.held.is_empty();
        while !self.held.is_empty() {
            self.release(events);
        }
        any
    }

    fn hold(&mut self, place: u64, distance: u64, kept: Kept) {
        self.held.push(Reverse((place + distance.max(1), place, kept)));
    }

    /// Chooses the fault of a frame with a single random number.
    fn decide(&mut self, place: u64, events: &mut Vec<Event>) {
        if self.silent.iter().any(|range| range.contains(&place)) {
            self.dropping = 0;
            return events.push(Event { place, what: What::Silent });
        }
        if self.dropping > 0 {
            self.dropping -= 1;
            return events.push(Event { place, what: What::Dropped });
        }
        let draw = mixed(self.seed, place.wrapping_mul(2));
        let amount = mixed(self.seed, place.wrapping_mul(2).wrapping_add(1));
        let mut rest = (draw >> 11) as f64 / (1u64 << 53) as f64;
        let mut chosen = |share: f64| {
            let hit = rest < share;
            rest -= share;
            hit
        };
        let run = self.faults.drop_run.max(1);
        if chosen(self.faults.drop / run as f64) {
            self.dropping = run - 1;
            events.push(Event { place, what: What::Dropped });
        } else if chosen(self.faults.duplicate) {
            events.push(Event { place, what: What::Sent });
            match amount % (COPY_DISTANCE + 1) {
                0 => events.push(Event { place, what: What::Copy }),
                distance => self.hold(place, distance, Kept::Copy),
            }
        } else if chosen(self.faults.reorder) {
            let distance = 1 + amount % self.faults.reorder_distance.max(1);
            self.hold(place, distance, Kept::Frame);
        } else if chosen(self.faults.damage) {
            let (kind, amount) = (amount % self.damages.len() as u64, mixed(amount, 0));
            match self.damages[kind as usize] {
                Some(damage) => {
                    events.push(Event { place, what: What::Damaged { damage, amount } });
                }
                None => {
                    events.push(Event { place, what: What::Sent });
                    events.push(Event { place, what: What::Rubbish { amount } });
                }
            }
        } else if chosen(self.faults.late) {
            self.hold(place, self.faults.late_distance, Kept::LateFrame);
        } else {
            events.push(Event { place, what: What::Sent });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn all(faults: &Faults, places: u64) -> Vec<Event> {
        let mut fault_schedule = FaultSchedule::new(faults, "46220", VDIF_DAMAGES, places, 1000);
        let mut events = Vec::new();
        let mut steps = 0;
        while fault_schedule.step(&mut events).is_some() {
            steps += 1;
            assert!(steps <= places + 1, "the course does not end");
        }
        events
    }

    #[test]
    fn a_sender_whose_clock_is_fast_has_sent_more_by_the_hosts() {
        let fast = Faults { drift_ppm: 100.0, ..Faults::default() };
        assert_eq!(fast.by_the_sender(1_000_000_000), 1_000_100_000);
        let due = fast.by_the_host(1_000_100_000);
        assert!(due.abs_diff(1_000_000_000) <= 1, "{due}");
        let true_one = Faults::default();
        for ns in [0, 17, 1 << 53, u64::MAX] {
            assert_eq!((true_one.by_the_host(ns), true_one.by_the_sender(ns)), (ns, ns));
        }
    }

    #[test]
    fn without_faults_every_frame_goes_in_order() {
        let events = all(&Faults::default(), 1000);
        let expected = (0..1000).map(|place| Event { place, what: What::Sent });
        assert_eq!(events, expected.collect::<Vec<_>>());
    }

    #[test]
    fn shares_and_runs_are_as_asked_for() {
        let faults = Faults { seed: 1, drop: 0.1, drop_run: 5, ..Faults::default() };
        let events = all(&faults, 100_000);
        let dropped: Vec<u64> =
            events.iter().filter(|e| e.what == What::Dropped).map(|e| e.place).collect();
        assert!((9_000..11_000).contains(&dropped.len()), "{}", dropped.len());
        let starts = dropped.iter().filter(|p| !dropped.contains(&p.wrapping_sub(1))).count();
        assert!((1700..2200).contains(&starts), "{starts}");
    }

    #[test]
    fn a_silence_concerns_its_stream_alone() {
        let silence = |stream: Option<&str>| Faults {
            silences: vec![Silence {
                stream: stream.map(str::to_owned),
                from: Duration::from_millis(100),
                to: Some(Duration::from_millis(200)),
            }],
            ..Faults::default()
        };
        let silent = |faults| all(&faults, 1000).iter().filter(|e| e.what == What::Silent).count();
        assert_eq!(silent(silence(None)), 100);
        assert_eq!(silent(silence(Some("46220"))), 100);
        assert_eq!(silent(silence(Some("46221"))), 0);
    }

    #[test]
    fn rules_that_cannot_be_followed_are_refused() {
        let share = Faults { drop: 1.5, ..Faults::default() };
        assert!(matches!(share.check(), Err(Error::Share { what: "drop", .. })));
        let nan = Faults { late: f64::NAN, ..Faults::default() };
        assert!(nan.check().is_err());
        let total = Faults { drop: 0.6, late: 0.6, ..Faults::default() };
        assert!(matches!(total.check(), Err(Error::Total { .. })));
        let fast = Faults { drift_ppm: f64::NAN, ..Faults::default() };
        assert!(fast.check().unwrap_err().to_string().contains("ppm"));
        let far = Faults { late_distance: 1 << 40, ..Faults::default() };
        assert!(matches!(far.check(), Err(Error::Distance { .. })));
    }

    proptest! {
        #[test]
        fn every_frame_has_one_fate_and_the_sums_agree(
            seed in any::<u64>(),
            drop in 0.0..0.2f64,
            drop_run in 0u64..5,
            duplicate in 0.0..0.2f64,
            reorder in 0.0..0.2f64,
            reorder_distance in 0u64..20,
            damage in 0.0..0.2f64,
            late in 0.0..0.2f64,
            late_distance in 0u64..200,
            places in 0u64..500,
            stop in prop::option::of(0u64..500),
        ) {
            let faults = Faults {
                seed, drop, drop_run, duplicate, reorder, reorder_distance, damage, late,
                miscount: 0.0,
                late_distance, silences: vec![],
                drift_ppm: 0.0,
            };
            prop_assert!(faults.check().is_ok());
            let mut fault_schedule = FaultSchedule::new(&faults, "a", VDIF_DAMAGES, places, 1000);
            let mut events = Vec::new();
            let mut fates: BTreeMap<u64, Vec<What>> = BTreeMap::new();
            while let Some(now) = fault_schedule.step(&mut events) {
                for event in events.drain(..) {
                    let distance = now - event.place.min(now);
                    match event.what {
                        What::SentLate => prop_assert!(distance <= late_distance.max(1)),
                        _ => prop_assert!(distance <= reorder_distance.max(COPY_DISTANCE)),
                    }
                    fates.entry(event.place).or_default().push(event.what);
                }
                if stop == Some(now) {
                    fault_schedule.stop();
                }
            }
            let meant = stop.map_or(places, |at| places.min(at + 1));
            prop_assert_eq!(fault_schedule.passed(), meant);
            prop_assert_eq!(fates.len() as u64, meant);
            for (place, fate) in fates {
                let main = fate.iter().filter(|what| {
                    !matches!(what, What::Copy | What::Rubbish { .. })
                });
                prop_assert_eq!(main.count(), 1, "place {}: {:?}", place, fate);
                prop_assert!(fate.len() <= 2);
                let extra = matches!(fate[0], What::Copy | What::Rubbish { .. });
                prop_assert!(!extra, "place {}: {:?}", place, fate);
            }
        }
    }
}
