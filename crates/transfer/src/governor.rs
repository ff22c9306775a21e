//! How fast a transfer may send now: the user's cap and time window, and what the recorder on this host needs.

use std::time::Duration;

/// The limits of a transfer, from its user.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// The most bytes per second.
    pub rate: Option<u64>,
    /// The time of day in which to send, UTC.
    pub window: Option<Window>,
}

/// A time of day, UTC: from, until. It may pass midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {}

/// What a transfer may do now, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Allowance {
    /// Send at up to this many bytes per second; without one, as fast as it goes.
    Go(Option<u64>),
    /// Send nothing for now.
    Pause(Reason),
}

/// The reason for a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Outside the time window.
    OutsideWindow,
    /// The recorder needs the machine.
    Recording,
}

/// The governor of all transfers of a process.
#[derive(Debug)]
pub struct Governor {}

impl Governor {
    /// Starts to watch this host.
    pub fn start(_limits: Limits) -> Self {
        todo!()
    }

    /// Waits until sending is allowed, at most this long; returns the allowance.
    pub fn wait(&self, _most: Duration) -> Allowance {
        todo!()
    }

    /// The allowance now.
    pub fn now(&self) -> Allowance {
        todo!()
    }
}
