//! `send`, `receive`, `transfers` and `peers`: scans to and from other sites and object stores.

mod carrier;
mod etransfer;
mod objects;
pub mod peers;
pub mod receive;
pub mod send;
pub mod transfers;
mod tsunami;

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use fullbore_core::completeness::seconds;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_transfer::channel::LinkSettings;
use fullbore_transfer::connect::Link;
use fullbore_transfer::error::TransferError;
use fullbore_transfer::governor::{Allowance, Limits, Window};
use fullbore_transfer::queue::job::Wishes;

use crate::output::{self, Output};

/// How a transfer uses its link.
#[derive(Arguments, Clone, Debug)]
pub struct LinkArgs {
    /// The most that transfers send or fetch together, for example 2Gbit/s.
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Link")]
    rate: Option<ByteRate>,
    /// The time of day in which transfers send or fetch, UTC: 22:00-06:00.
    #[arg(long, value_name = "FROM-UNTIL", help_heading = "Link")]
    window: Option<Window>,
    /// Congestion control of the connections [default: bbr on a WAN if the kernel offers it, else the system's].
    #[arg(long, value_name = "NAME", help_heading = "Link")]
    congestion: Option<String>,
}

/// The lowest rate of a transfer. Below it, the connections of a transfer would time out.
const LOWEST: ByteRate = ByteRate(12_500);

/// Parses a rate at which something is sent.
fn rate(text: &str) -> Result<ByteRate, String> {
    let rate: ByteRate = text.parse().map_err(|error| format!("{error}"))?;
    if rate < LOWEST {
        return Err(format!(
            "{rate} is too low for a transfer: {LOWEST} or more, for example 2Gbit/s"
        ));
    }
    Ok(rate)
}

impl LinkArgs {
    fn limits(&self) -> Limits {
        Limits { rate: self.rate.map(|rate| rate.0), window: self.window }
    }

    fn wishes(&self, priority: i32) -> Wishes {
        Wishes { priority, rate: self.rate.map(|rate| rate.0), window: self.window }
    }

    fn settings(&self) -> LinkSettings {
        LinkSettings { congestion: self.congestion.clone(), rate: None }
    }
}

/// True if other scans may fare better, or the transfer was under way.
fn is_about_this_scan(error: &TransferError) -> bool {
    use TransferError::{Channel, Identity, UnknownSite};
    !matches!(error, Identity(_) | Channel(_) | UnknownSite { .. })
}

/// The progress line of a transfer, on a terminal.
pub struct ProgressLine {
    shown: bool,
    drawn: Option<Instant>,
    /// Time and bytes at the last measurement of the rate.
    before: (Instant, u64),
    rate: u64,
}

impl ProgressLine {
    /// A line that is drawn if progress may be drawn.
    pub fn new(output: Output) -> Self {
        Self { shown: output.progress(), drawn: None, before: (Instant::now(), 0), rate: 0 }
    }

    /// Draws the line, at most twice per second.
    fn draw(
        &mut self,
        scan: &str,
        done: u64,
        all: u64,
        allowance: Option<&Allowance>,
        link: &Link,
    ) {
        let due = self.drawn.is_none_or(|at| at.elapsed() >= Duration::from_millis(500));
        if !self.shown || !due {
            return;
        }
        let elapsed = self.before.0.elapsed().as_secs_f64();
        if elapsed >= 1.0 {
            self.rate = (done.saturating_sub(self.before.1) as f64 / elapsed) as u64;
            self.before = (Instant::now(), done);
        }
        self.drawn = Some(Instant::now());
        let line = line(scan, done, all, self.rate, allowance, link);
        let mut err = std::io::stderr();
        // A closed terminal ends nothing.
        let _ = write!(err, "\r\x1b[K{line}");
        let _ = err.flush();
    }

    /// Removes the line, before other text.
    fn clear(&mut self) {
        if self.shown && self.drawn.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    /// Prints a line of text in place of the progress line.
    pub fn say(&mut self, text: std::fmt::Arguments<'_>) {
        self.clear();
        output::say(text);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// `r1234_no0001  62 %  1.2 of 2.0 GB  2.4 Gbit/s  5 min left  8 connections, 40 ms`
fn line(
    scan: &str,
    done: u64,
    all: u64,
    rate: u64,
    allowance: Option<&Allowance>,
    link: &Link,
) -> String {
    let share = if all == 0 { 0 } else { (u128::from(done) * 100 / u128::from(all)).min(100) };
    let mut line =
        format!("{scan}  {share} %  {} of {}  {}", ByteSize(done), ByteSize(all), ByteRate(rate));
    if let Some(left) = all.saturating_sub(done).checked_div(rate) {
        line += &format!("  {} left", seconds(left as i64 * 1_000_000_000));
    }
    if link.connections > 0 {
        line += &format!("  {}", output::count(link.connections.into(), "connection"));
    }
    if let Some(status) = &link.status {
        line += &format!(", {:.1} ms", status.round_trip.as_secs_f64() * 1e3);
    }
    if let Some(Allowance::Pause(reason)) = allowance {
        line += &format!("  waiting: {reason}");
    }
    line
}
