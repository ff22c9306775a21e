//! Shared code of `generate` and `play`: waiting, stopping, progress, and the report on pacing.

use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args as Arguments;
use fullbore_core::endpoint::UdpTarget;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_replay::pace::LatenessSummary;
use fullbore_replay::underrun::short_time;
use fullbore_replay::{Progress, Sent, StartAccount, Timing};
use fullbore_time::Tai;

use crate::hint::explained_of;
use crate::output::{Output, count};

/// When sending begins, and what is late.
#[derive(Arguments, Clone, Copy, Debug)]
pub struct TimingArgs {
    /// Start at this UTC time, to the microsecond. The frames of `generate` begin with it, unless --start says otherwise.
    #[arg(long, value_name = "TIME", help_heading = "Account")]
    pub at: Option<Tai>,
    /// A datagram that is sent more than this after its due time is late.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = some_time, help_heading = "Account")]
    late_after: Duration,
    /// Exit with 1 if any datagram was late or not sent.
    #[arg(long, help_heading = "Account")]
    strict: bool,
}

impl TimingArgs {
    pub fn timing(&self) -> Timing {
        let late_after_ns = u64::try_from(self.late_after.as_nanos()).unwrap_or(u64::MAX);
        Timing { at: self.at, late_after_ns }
    }

    /// False if --strict was given and a datagram was late or not sent.
    pub fn is_met(&self, sent: &Sent) -> bool {
        !self.strict || sent.underruns.is_complete()
    }
}

/// Does `work` on this thread, with a progress line once a second on a terminal.
pub fn with_progress<T>(output: Output, progress: &Progress, work: impl FnOnce() -> T) -> T {
    if !output.progress() {
        return work();
    }
    std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        scope.spawn(move || {
            let (start, mut before) = (Instant::now(), 0);
            while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                let bytes = progress.bytes();
                let rate = ByteRate(bytes - before);
                before = bytes;
                // A closed terminal ends nothing.
                let mut err = std::io::stderr();
                let _ = write!(err, "\r{}   ", line(start.elapsed(), rate, progress));
                let _ = err.flush();
            }
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        });
        let result = work();
        drop(done);
        result
    })
}

/// The progress line of a run.
fn line(elapsed: Duration, rate: ByteRate, progress: &Progress) -> String {
    let (frames, bytes) = (progress.frames(), ByteSize(progress.bytes()));
    let seconds = elapsed.as_secs();
    let mut line = format!("{seconds} s  {rate}  {frames} datagrams, {bytes}");
    if let Some(lag) = progress.lag() {
        line += &format!(", {:.2} s behind the durable data", lag.as_secs_f64());
    }
    line
}

/// The ports of all `--to` endpoints, in the order given.
pub fn targets(texts: &[String]) -> anyhow::Result<Vec<UdpTarget>> {
    let mut targets: Vec<UdpTarget> = Vec::new();
    for text in texts {
        let some = UdpTarget::parse(text).map_err(|error| explained_of(text, error))?;
        targets.extend(some);
    }
    Ok(targets)
}

pub use fullbore_recording::options::value::parse_duration as duration;

/// The same for a measurement, which cannot have zero duration.
pub fn some_time(text: &str) -> Result<Duration, String> {
    lasting(duration(text)?)
}

/// Refuses a duration of zero.
pub fn lasting(time: Duration) -> Result<Duration, String> {
    if time.is_zero() { Err("nothing is measured in no time".to_owned()) } else { Ok(time) }
}

/// The report as text: amount, pace, and counters of the sockets.
pub fn summary(done: &str, what: &str, sent: &Sent, start: Option<&StartAccount>) -> String {
    let mut text = sent.underruns.lines();
    text += &start.map_or_else(String::new, StartAccount::line);
    text += &format!(
        "{done:<8} {what} in {:.2} s: {}, {:.3} CPU s/GB\n",
        sent.seconds,
        sent.rate,
        cost(sent.cpu_seconds, sent.bytes),
    );
    text += &pacing(&sent.lateness);
    text += &socket_notes(sent);
    text
}

/// The lateness of frames as lines of text.
fn pacing(lateness: &LatenessSummary) -> String {
    if lateness.packets == 0 {
        return String::new();
    }
    let LatenessSummary { median_ns, p99_ns, p999_ns, max_ns, late, .. } = *lateness;
    let [median, p99, p999, max] = [median_ns, p99_ns, p999_ns, max_ns].map(short_time);
    let mut text = format!(
        "pacing   after the due time: median {median}, p99 {p99}, p99.9 {p999}, at most {max}; {late} later than 1 ms\n"
    );
    let most = lateness.buckets.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
    for (below, count) in lateness.buckets.iter().filter(|(_, count)| *count > 0) {
        let bar = "█".repeat((count * 40 / most) as usize);
        text += &format!("         < {:>8} {count:>10} {bar}\n", short_time(*below));
    }
    text
}

/// The counters of the sockets, if they are not zero.
fn socket_notes(sent: &Sent) -> String {
    let Sent { refused, stalls, unreachable, .. } = *sent;
    let mut text = String::new();
    if refused > 0 {
        text += &format!(
            "refused  {} by the kernel: a queue on the way out was full\n",
            count(refused as usize, "datagram")
        );
    }
    if stalls > 0 {
        let times = count(stalls as usize, "time");
        text += &format!("stalls   {times} a socket was full and had to be waited for\n");
    }
    if unreachable > 0 {
        let packets = count(unreachable as usize, "packet");
        text += &format!("rejected {packets} refused by the receiver (ICMP port unreachable)\n");
    }
    text
}

/// CPU seconds per gigabyte.
fn cost(cpu_seconds: f64, bytes: u64) -> f64 {
    if bytes == 0 { 0.0 } else { cpu_seconds * 1e9 / bytes as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sockets_had_to_say_is_counted() {
        let sent = Sent { refused: 1, stalls: 2, unreachable: 1, ..Sent::default() };
        let told = socket_notes(&sent);
        assert!(told.contains("refused  1 datagram by the kernel"), "{told}");
        assert!(told.contains("stalls   2 times a socket was full"), "{told}");
        let refused = "1 packet refused by the receiver (ICMP port unreachable)";
        assert!(told.contains(refused), "{told}");
        let many = socket_notes(&Sent { unreachable: 6930, ..Sent::default() });
        assert_eq!(many, "rejected 6930 packets refused by the receiver (ICMP port unreachable)\n");
    }
}
