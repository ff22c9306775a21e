//! The progress of a transfer on standard error: a line that changes on a terminal, else a line now and then.

use std::io::Write;
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant, SystemTime};

use fullbore_core::completeness::seconds;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_transfer::connect::Link;
use fullbore_transfer::governor::{Allowance, Reason};
use serde::Serialize;

use crate::output::{self, Output};

/// Time between two lines of progress where no terminal shows it.
const LINES: Duration = Duration::from_secs(10);

/// The form of progress on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// One line on a terminal, which changes.
    Drawn,
    /// A line every ten seconds, and when a wait begins.
    Lines,
    /// The same as JSON.
    Json,
    /// The same in the log.
    Logged,
    /// Nothing.
    Hidden,
}

/// The progress of a transfer: a line that changes on a terminal, else a line now and then.
pub struct ProgressLine {
    form: Form,
    /// The last time that it was shown. Lines begin with the first wait, or after their time.
    shown: Option<Instant>,
    begun: Instant,
    /// The kind of wait that it last showed.
    waiting: Option<Discriminant<Reason>>,
    /// Time and bytes at the last measurement of the rate.
    before: (Instant, u64),
    rate: u64,
}

/// Progress as JSON.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum ProgressJson<'a> {
    Progress { name: &'a str, bytes: u64, expected_bytes: u64, rate: u64, waiting: Option<String> },
    Retry { name: &'a str, why: &'a str, pause_s: f64, at: String },
}

impl ProgressLine {
    /// Shows progress in the form that this output allows.
    pub fn new(output: Output) -> Self {
        let form = match (output.json, output.logs, output.progress()) {
            (true, ..) => Form::Json,
            (_, true, _) => Form::Logged,
            (.., true) => Form::Drawn,
            (.., false) => Form::Lines,
        };
        let now = Instant::now();
        Self { form, shown: None, begun: now, waiting: None, before: (now, 0), rate: 0 }
    }

    /// Shows progress on a terminal alone.
    pub fn on_terminal(output: Output) -> Self {
        let shown = Self::new(output);
        let form = if shown.form == Form::Drawn { Form::Drawn } else { Form::Hidden };
        Self { form, ..shown }
    }

    /// Shows the progress, if it is time.
    pub fn draw(
        &mut self,
        name: &str,
        done: u64,
        all: u64,
        allowance: Option<&Allowance>,
        link: &Link,
    ) {
        let waiting = match allowance {
            Some(Allowance::Pause(reason)) => Some(reason),
            _ => None,
        };
        if !self.is_due(waiting) {
            return;
        }
        let elapsed = self.before.0.elapsed().as_secs_f64();
        if elapsed >= 1.0 {
            self.rate = (done.saturating_sub(self.before.1) as f64 / elapsed) as u64;
            self.before = (Instant::now(), done);
        }
        self.shown = Some(Instant::now());
        self.waiting = waiting.map(discriminant);
        let (rate, reason) = (self.rate, waiting.map(ToString::to_string));
        match self.form {
            Form::Json => Self::event(&ProgressJson::Progress {
                name,
                bytes: done,
                expected_bytes: all,
                rate,
                waiting: reason,
            }),
            Form::Lines => output::say(line(name, done, all, rate, waiting, link)),
            Form::Logged => {
                tracing::info!(name, bytes = done, expected_bytes = all, rate, waiting = reason);
            }
            Form::Drawn => {
                let line = line(name, done, all, rate, waiting, link);
                let mut err = std::io::stderr();
                // A closed terminal ends nothing.
                let _ = write!(err, "\r\x1b[K{line}");
                let _ = err.flush();
            }
            Form::Hidden => {}
        }
    }

    fn is_due(&self, waiting: Option<&Reason>) -> bool {
        let elapsed = self.shown.unwrap_or(self.begun).elapsed();
        let waits_anew = waiting.is_some_and(|it| self.waiting != Some(discriminant(it)));
        match self.form {
            Form::Hidden => false,
            Form::Drawn => self.shown.is_none() || elapsed >= Duration::from_millis(500),
            Form::Json | Form::Lines | Form::Logged => waits_anew || elapsed >= LINES,
        }
    }

    /// Says that an attempt failed, and when the next one begins.
    pub fn retry(&mut self, name: &str, why: &str, pause: Duration) {
        self.clear();
        let (pause_s, at) = (pause.as_secs_f64(), time_of_day(SystemTime::now() + pause));
        match self.form {
            Form::Json => Self::event(&ProgressJson::Retry { name, why, pause_s, at }),
            Form::Hidden => {}
            Form::Drawn | Form::Lines | Form::Logged => {
                output::note(format_args!(
                    "{name}: {why}; trying again in {pause_s:.1} s, at {at} UTC"
                ));
            }
        }
    }

    fn event(event: &ProgressJson<'_>) {
        output::say(serde_json::to_string(event).expect("it has only plain fields"));
    }

    /// Removes the line, before other text.
    pub fn clear(&mut self) {
        if self.form == Form::Drawn && self.shown.take().is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
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
    waiting: Option<&Reason>,
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
    if let Some(reason) = waiting {
        line += &format!("  waiting: {reason}");
    }
    line
}

/// `06:12:33`, UTC.
fn time_of_day(at: SystemTime) -> String {
    let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use fullbore_transfer::governor::Signal;

    use super::*;

    fn lines() -> ProgressLine {
        ProgressLine { form: Form::Lines, ..ProgressLine::new(Output { json: true, logs: false }) }
    }

    #[test]
    fn a_short_transfer_has_no_line_and_a_wait_has_one_at_once() {
        let mut line = lines();
        assert!(!line.is_due(None));
        let full = |permille| Reason::Recording(Signal::Ring { permille });
        assert!(line.is_due(Some(&full(800))));
        (line.shown, line.waiting) = (Some(Instant::now()), Some(discriminant(&full(800))));
        assert!(!line.is_due(Some(&full(900))), "the same wait");
        assert!(!line.is_due(None), "the end of a wait");
        assert!(line.is_due(Some(&Reason::OutsideWindow)), "another wait");
        line.shown = Some(Instant::now() - LINES);
        assert!(line.is_due(None) && line.is_due(Some(&full(900))));
    }

    #[test]
    fn a_listener_shows_progress_on_a_terminal_alone() {
        let mut line = ProgressLine::on_terminal(Output { json: true, logs: false });
        line.shown = Some(Instant::now() - LINES);
        assert!(!line.is_due(Some(&Reason::OutsideWindow)));
    }

    #[test]
    fn a_line_says_why_it_waits() {
        let told = line("r1_a", 50, 200, 25, Some(&Reason::OutsideWindow), &Link::default());
        assert_eq!(
            told,
            "r1_a  25 %  50 B of 200 B  200 bit/s  6.0 s left  waiting: outside window"
        );
    }

    #[test]
    fn the_time_of_the_next_attempt_is_that_of_the_day() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(86_400 * 3 + 3600 * 6 + 61);
        assert_eq!(time_of_day(at), "06:01:01");
    }
}
