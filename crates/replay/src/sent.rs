//! What a sender has sent: its progress, the counts and the times.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fullbore_core::units::ByteRate;
use fullbore_linux::sys::send;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::pace::LatenessSummary;
use crate::underrun::UnderrunAccount;

/// The progress of a run.
#[derive(Debug, Default)]
pub struct Progress {
    frames: AtomicU64,
    bytes: AtomicU64,
    /// The lag in nanoseconds plus one; 0: no lag is known.
    lag: AtomicU64,
}

impl Progress {
    /// Datagrams sent so far.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }

    /// Bytes of those datagrams.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The lag of the frames sent behind the durable ones, when a recording is followed.
    pub fn lag(&self) -> Option<Duration> {
        self.lag.load(Ordering::Relaxed).checked_sub(1).map(Duration::from_nanos)
    }

    /// States the lag behind the durable frames.
    pub fn lags(&self, behind: Duration) {
        let ns = u64::try_from(behind.as_nanos()).unwrap_or(u64::MAX);
        self.lag.store(ns.saturating_add(1), Ordering::Relaxed);
    }

    /// Counts datagrams that were sent.
    pub fn add(&self, frames: u64, bytes: u64) {
        self.frames.fetch_add(frames, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The counts and times of sending, for any source.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Sent {
    /// Seconds from the first datagram to the last.
    pub seconds: f64,
    /// Bytes that the kernel took.
    pub bytes: u64,
    /// Bytes per second.
    pub rate: ByteRate,
    /// CPU time of the sending thread, in seconds.
    pub cpu_seconds: f64,
    /// Datagrams that the kernel refused.
    pub refused: u64,
    /// Times a socket was full.
    pub stalls: u64,
    /// Packets refused by the receiver (ICMP port unreachable).
    pub unreachable: u64,
    /// Delay of datagrams after their due times; empty without a pace.
    pub lateness: LatenessSummary,
    /// The account of the planned datagrams.
    pub underruns: UnderrunAccount,
}

impl Sent {
    /// Collects the counters of the sockets, and the clocks.
    pub fn of(
        tallies: &[send::Tally],
        bytes: u64,
        seconds: f64,
        cpu_seconds: f64,
        lateness: LatenessSummary,
        underruns: UnderrunAccount,
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
            underruns,
        }
    }
}

/// CPU time of this thread.
pub fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Bytes per second; 0 if no time has passed.
pub fn rate(bytes: u64, seconds: f64) -> ByteRate {
    let rate = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
    ByteRate(rate as u64)
}
