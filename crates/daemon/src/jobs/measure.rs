//! Benchmarks and self tests of a member, as processes of `fullbore`: they end with the daemon.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullbore_linux::stop_handle::StopHandle;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{End, Kind};

/// The largest result, in bytes. That of a quick benchmark has some hundred kilobytes.
const LARGEST: u64 = 16 << 20;

/// The largest text of errors that is read, in bytes.
const LARGEST_ERRORS: u64 = 64 << 10;

/// Time between two looks at the process.
const LOOK: Duration = Duration::from_millis(50);

/// A process that was asked to end and still runs after this time is killed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Tells a command of `fullbore` the process with which it ends.
const PARENT: &str = "FULLBORE_STOP_WITH_PARENT";

/// Runs it until it ends, or is stopped.
pub(super) fn run(program: &Path, kind: Kind, member: &Path, stop: &StopHandle) -> End {
    let mut command = Command::new(program);
    match kind {
        Kind::SelfTest => command.args(["--json", "selftest", "--quick", "--"]),
        _ => command.args(["--json", "bench", "disk", "--quick", "--skip", "fio", "--"]),
    };
    command.arg(member).env(PARENT, std::process::id().to_string());
    // Only the daemon speaks to systemd.
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
    match of_command(&mut command, stop) {
        Ok(end) => end,
        Err(error) => End::Failed(format!("the command does not run: {error}")),
    }
}

fn of_command(command: &mut Command, stop: &StopHandle) -> io::Result<End> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let output = read_bounded(child.stdout.take(), LARGEST);
    let errors = read_bounded(child.stderr.take(), LARGEST_ERRORS);
    let mut killed_at: Option<Instant> = None;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop.is_requested() {
            end(&mut child, &mut killed_at)?;
        }
        thread::sleep(LOOK);
    };
    if stop.is_requested() {
        return Ok(End::Cancelled);
    }
    let text = |reader: io::Result<JoinHandle<Vec<u8>>>| -> Vec<u8> {
        reader.ok().and_then(|it| it.join().ok()).unwrap_or_default()
    };
    match serde_json::from_slice::<Value>(&text(output)) {
        Ok(result) if result.is_object() => Ok(End::Done(result)),
        _ => Ok(End::Failed(complaint(&text(errors), &status.to_string()))),
    }
}

/// Asks the process to end, once; later kills it.
fn end(child: &mut Child, asked_at: &mut Option<Instant>) -> io::Result<()> {
    match asked_at {
        None => {
            *asked_at = Some(Instant::now());
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It has not been waited for, so the number is its own.
                kill_process(pid, Signal::INT)?;
            }
            Ok(())
        }
        Some(at) if at.elapsed() > PATIENCE => child.kill(),
        Some(_) => Ok(()),
    }
}

/// Reads on a thread. What is longer is cut, and the rest is read and dropped, so that the process does not wait.
fn read_bounded(
    from: Option<impl Read + Send + 'static>,
    most: u64,
) -> io::Result<JoinHandle<Vec<u8>>> {
    let read = move || {
        let mut text = Vec::new();
        if let Some(mut from) = from {
            let _ = from.by_ref().take(most).read_to_end(&mut text);
            let _ = io::copy(&mut from, &mut io::sink());
        }
        text
    };
    thread::Builder::new().name("job".into()).spawn(read)
}

/// The error that the command printed: with `--json`, a line with `error` and `advice`.
fn complaint(errors: &[u8], status: &str) -> String {
    let text = String::from_utf8_lossy(errors);
    let line = text.lines().rev().find(|line| !line.trim().is_empty());
    let Some(line) = line else { return format!("the command ended with {status}") };
    let told: Value = serde_json::from_str(line).unwrap_or_default();
    match (told["error"].as_str(), told["advice"].as_str()) {
        (Some(error), Some(advice)) => format!("{error} ({advice})"),
        (Some(error), None) => error.to_owned(),
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, stop: &StopHandle) -> End {
        of_command(Command::new("sh").args(["-c", script]), stop).unwrap()
    }

    #[test]
    fn a_result_an_error_and_an_end_are_told_apart() {
        let stop = StopHandle::default();
        let End::Done(result) = shell("echo '{\"passed\": false}'; exit 1", &stop) else {
            panic!()
        };
        assert_eq!(result["passed"], false);
        let script =
            "echo '{\"error\": \"too small\", \"advice\": \"free some space\"}' >&2; exit 2";
        let End::Failed(why) = shell(script, &stop) else { panic!() };
        assert_eq!(why, "too small (free some space)");
        let End::Failed(why) = shell("exit 7", &stop) else { panic!() };
        assert!(why.contains("exit status: 7"), "{why}");
        let End::Failed(why) = shell("echo nonsense; echo plain words >&2", &stop) else {
            panic!()
        };
        assert_eq!(why, "plain words");
    }

    #[test]
    fn a_process_is_asked_to_end() {
        let stop = std::sync::Arc::new(StopHandle::default());
        let of_thread = stop.clone();
        let begun = Instant::now();
        let work =
            thread::spawn(move || of_command(Command::new("sleep").arg("60"), &of_thread).unwrap());
        thread::sleep(Duration::from_millis(100));
        stop.stop();
        assert!(matches!(work.join().unwrap(), End::Cancelled));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
