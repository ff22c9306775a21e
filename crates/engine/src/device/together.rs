//! Several streams onto several devices at once: one stream for each device, begun and ended together, with one account.
//!
//! ```text
//! plan 0 ── look, open ──┐ opened ┌── index, listen ──┐ ready ┌── record ──┐
//! plan 1 ── look, open ──┤        ├── index, listen ──┤       ├── record ──┤  Together: one sum, one verdict
//!   …                    ┘        └                   ┘       └            ┘
//! ```
//!
//! Each device is recorded onto by a thread of its own, with what records onto one ([`super::record()`]). If a device is
//! refused, all others stay as they are: nothing is written before all are open. No stream begins before all can, a
//! port that cannot be listened to among them. After that each goes on by itself: a device that fails ends only its
//! own stream.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use fullbore_core::account::{Account, Terms, Verdict, judge_together};
use fullbore_core::completeness::{Completeness, Part};
use fullbore_core::manifest::State;
use serde::Serialize;

use super::error::Error;
use super::record::{Plan, Recorded, Stage, record_behind};
use crate::recorder::{Control, LEAVE};

/// How often a wait at the gate looks whether it is to end.
const PATIENCE: Duration = Duration::from_millis(100);

/// Where devices wait for one another.
pub(super) struct Gates {
    /// Until all are open, and may be written.
    pub opened: Gate,
    /// Until the first byte of every source could come.
    pub ready: Gate,
}

/// One of these places.
pub(super) struct Gate {
    state: Mutex<Waiting>,
    changed: Condvar,
}

struct Waiting {
    /// How many are not ready yet.
    missing: usize,
    /// Whether one of them cannot be.
    broken: bool,
}

impl Gate {
    fn new(devices: usize) -> Self {
        let state = Mutex::new(Waiting { missing: devices, broken: false });
        Self { state, changed: Condvar::new() }
    }

    /// Waits until all devices are ready. Fails if one of them cannot be recorded onto.
    pub(super) fn pass(&self, control: &Control) -> Result<(), Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.missing = state.missing.saturating_sub(1);
        self.changed.notify_all();
        while state.missing > 0 && !state.broken && control.asked() < LEAVE {
            let waited = self.changed.wait_timeout(state, PATIENCE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.missing > 0 || state.broken { Err(Error::Companion) } else { Ok(()) }
    }

    /// One of the devices has ended, with an error or without: nobody waits for it any more.
    fn give_up(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.broken |= state.missing > 0;
        self.changed.notify_all();
    }
}

/// What came of a recording onto several devices.
#[derive(Debug)]
pub struct Together {
    /// Each stream in the order of its plan: what was recorded, or why nothing was.
    pub streams: Vec<Result<Recorded, Error>>,
    /// All of them.
    pub sum: Sum,
}

/// The account of several streams together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Sum {
    /// Streams that were to be recorded.
    pub streams_wanted: usize,
    /// Those that ended without an error, a failure of the device, or a loss.
    pub streams_whole: usize,
    /// Bytes written.
    pub bytes: u64,
    /// Bytes of them that a sync has covered.
    pub durable_bytes: u64,
    /// The time of the stream that took longest.
    pub seconds: f64,
    /// Bytes per second of all devices together, over that time.
    pub rate: u64,
    /// The balance of all streams whose frames are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
    /// The worst verdict of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Whether all of them are complete, in words, where each has an account.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub completeness: Option<Completeness>,
}

/// Records each plan onto its device, until all have ended. `tell` gets the number of the plan with what is told of it.
pub fn record_together(
    plans: Vec<Plan>,
    control: &Control,
    tell: &mut (dyn FnMut(usize, &Stage) + Send),
) -> Together {
    let gates = Gates { opened: Gate::new(plans.len()), ready: Gate::new(plans.len()) };
    let tell = Mutex::new(tell);
    let one = |number: usize, plan: Plan| {
        let mut tell = |stage: &Stage| {
            let mut tell = tell.lock().unwrap_or_else(PoisonError::into_inner);
            (*tell)(number, stage);
        };
        let recorded = record_behind(plan, Some(&gates), control, &mut tell);
        gates.opened.give_up();
        gates.ready.give_up();
        recorded
    };
    let mut streams: Vec<Result<Recorded, Error>> = std::thread::scope(|scope| {
        let one = &one;
        let spawn = |(number, plan)| scope.spawn(move || one(number, plan));
        let threads: Vec<_> = plans.into_iter().enumerate().map(spawn).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err(Error::Broken))).collect()
    });
    // What a counter of the whole host explains, it explains once, and not to each stream.
    judge_together(streams.iter_mut().flatten().filter_map(|it| it.account.as_mut()));
    let sum = sum(&streams);
    Together { streams, sum }
}

fn sum(streams: &[Result<Recorded, Error>]) -> Sum {
    let mut sum = Sum { streams_wanted: streams.len(), ..Sum::default() };
    for recorded in streams.iter().flatten() {
        sum.streams_whole += usize::from(recorded.is_whole());
        sum.bytes += recorded.bytes;
        sum.durable_bytes += recorded.durable_bytes;
        sum.seconds = sum.seconds.max(recorded.seconds);
        if let Some(Account { terms, verdict, .. }) = &recorded.account {
            sum.terms.get_or_insert_default().add(terms);
            sum.verdict = sum.verdict.max(Some(*verdict));
        }
    }
    sum.rate = (sum.bytes as f64 / sum.seconds.max(1e-6)) as u64;
    sum.completeness = completeness(streams);
    sum
}

/// Of all streams, named by their devices; nothing where one has no account.
fn completeness(streams: &[Result<Recorded, Error>]) -> Option<Completeness> {
    let part = |recorded: &Result<Recorded, Error>| {
        let recorded = recorded.as_ref().ok()?;
        let device = recorded.device.display().to_string();
        Some(Part::of_account(&device, recorded.account.as_ref()?))
    };
    let parts = streams.iter().map(part).collect::<Option<Vec<_>>>()?;
    Some(Completeness::judged(parts, None, State::Sealed, &[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_passes_a_gate_before_all_are_there_or_when_one_is_not_coming() {
        let control = Control::default();
        for broken in [false, true] {
            let gate = Gate::new(3);
            std::thread::scope(|scope| {
                let waiting =
                    [scope.spawn(|| gate.pass(&control)), scope.spawn(|| gate.pass(&control))];
                match broken {
                    true => gate.give_up(),
                    false => gate.pass(&control).unwrap(),
                }
                for passed in waiting {
                    let passed = passed.join().unwrap();
                    assert_eq!(matches!(passed, Err(Error::Companion)), broken, "{passed:?}");
                }
            });
            // Those that end later, all having passed, stop nobody.
            gate.give_up();
        }
    }
}
