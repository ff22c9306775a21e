//! The process of a command: started, followed to its end, and interrupted if its job is cancelled.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::process::Signal;
use serde::Deserialize;

use super::command::{Command, CommandRequest};
use crate::output_log::{Entry, OutputLog};
use crate::recorder::process::{self, Identity};

/// The environment variable by which a command ends with its parent: `fullbore` reads it before it does anything.
const PARENT: &str = "FULLBORE_STOP_WITH_PARENT";

/// The environment variable by which a command tells its progress as lines.
const PROGRESS: &str = "FULLBORE_PROGRESS_LINES";

/// The environment variable with lines and columns of the terminal for which a command writes: `40x100`.
const PAPER: &str = "FULLBORE_PAPER";

/// A line of standard error that begins with this is progress (RFC 7464 begins a record with it).
const RECORD: char = '\u{1e}';

/// The longest line of standard error that is kept whole, in bytes.
const LONGEST_LINE: u64 = 64 << 10;

/// The largest part of standard output that becomes one entry, in bytes.
const LARGEST_PART: usize = 16 << 10;

/// What runs a command.
#[derive(Clone, Debug)]
pub struct Program {
    /// This program.
    pub path: PathBuf,
    /// The members, as `--store` takes them.
    pub store: String,
}

/// A process that a job may interrupt.
#[derive(Debug, Default)]
pub(super) struct Interruptible(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    process: Option<Identity>,
    is_interrupted: bool,
}

impl Interruptible {
    /// Interrupts the process, also one that is not started yet.
    pub(super) fn interrupt(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_interrupted = true;
        state.signal();
    }

    fn begin(&self, process: Identity) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.process = Some(process);
        if state.is_interrupted {
            state.signal();
        }
    }
}

impl State {
    fn signal(&self) {
        if let Some(process) = &self.process
            && let Err(error) = process.signal(Signal::INT)
        {
            tracing::warn!(%error, pid = process.pid, "a command takes no signal");
        }
    }
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Its exit code; 128 and the number of a signal that ended it.
    pub(super) code: i32,
    /// The last line that it said on standard error.
    pub(super) said: Option<String>,
}

/// Runs a command until it ends. The calling thread lives as long as the process, which ends with it.
pub(super) fn run(
    program: &Path,
    request: &CommandRequest,
    command: &Command,
    process: &Interruptible,
    log: &OutputLog,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> io::Result<Ended> {
    let mut started = std::process::Command::new(program);
    started.args(&command.words).stdin(Stdio::null());
    started.stdout(Stdio::piped()).stderr(Stdio::piped());
    started.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("FULLBORE_STATION");
    started.env(PARENT, std::process::id().to_string()).env(PROGRESS, "1");
    if let (Some(lines), Some(columns)) = (request.lines, request.columns) {
        started.env(PAPER, format!("{lines}x{columns}"));
    }
    // https://bixense.com/clicolors: a pipe has colours only if they are forced.
    match request.colour {
        true => started.env("CLICOLOR_FORCE", "1"),
        false => started.env_remove("CLICOLOR_FORCE"),
    };
    let (mut child, identity) = process::start(&mut started)?;
    process.begin(identity);
    let said = thread::scope(|scope| {
        let errors = child.stderr.take();
        let listening = scope.spawn(|| errors.map(|it| listen(it, log, progress)));
        if let Some(output) = child.stdout.take() {
            copy(output, log)?;
        }
        // A panic has been printed by the thread itself.
        io::Result::Ok(listening.join().ok().flatten().flatten())
    });
    let code = code_of(&mut child)?;
    log.put(&Entry::Exit(code));
    Ok(Ended { code, said: said? })
}

fn code_of(child: &mut Child) -> io::Result<i32> {
    let status = child.wait()?;
    Ok(status.code().or(status.signal().map(|signal| 128 + signal)).unwrap_or(-1))
}

/// Copies standard output into the log, at the borders of characters.
fn copy(mut output: impl Read, log: &OutputLog) -> io::Result<()> {
    let (mut buffer, mut held) = (vec![0; LARGEST_PART], Vec::new());
    loop {
        let bytes = match output.read(&mut buffer) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        held.extend_from_slice(&buffer[..bytes]);
        let whole = match std::str::from_utf8(&held) {
            // The last bytes may begin a character.
            Err(error) if error.error_len().is_none() && bytes > 0 => error.valid_up_to(),
            _ => held.len(),
        };
        if whole > 0 {
            log.put(&Entry::Out(&String::from_utf8_lossy(&held[..whole])));
            held.drain(..whole);
        }
        if bytes == 0 {
            return Ok(());
        }
    }
}

/// Reads standard error: lines of progress, and what the command says. Returns the last line that it said.
fn listen(errors: impl Read, log: &OutputLog, progress: &dyn Fn(u64, u64)) -> Option<String> {
    #[derive(Deserialize)]
    struct Progress {
        progress: (u64, u64),
    }
    let (mut errors, mut last) = (BufReader::new(errors), None);
    loop {
        let mut line = Vec::new();
        let read = errors.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
        if !matches!(read, Ok(bytes) if bytes > 0) {
            return last;
        }
        let line = String::from_utf8_lossy(&line);
        match line.strip_prefix(RECORD).map(serde_json::from_str::<Progress>) {
            Some(Ok(Progress { progress: (done, total) })) => {
                progress(done, total);
                log.put(&Entry::Progress(done, total));
            }
            // The command was killed while it wrote it.
            Some(Err(_)) => {}
            None => {
                log.put(&Entry::Err(&line));
                last = Some(line.trim_end().to_owned()).filter(|it| !it.is_empty()).or(last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output_log::Taken;

    fn entries(log: &OutputLog) -> String {
        log.end();
        let (mut follower, mut all) = (log.follow(), String::new());
        while let Taken::Lines(text) = follower.take() {
            all += &text;
        }
        all
    }

    #[test]
    fn characters_are_whole_however_the_output_is_split() {
        struct Slowly<'a>(&'a [u8]);
        impl Read for Slowly<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let bytes = self.0.len().min(1);
                buffer[..bytes].copy_from_slice(&self.0[..bytes]);
                self.0 = &self.0[bytes..];
                Ok(bytes)
            }
        }
        let log = OutputLog::new(false);
        copy(Slowly("a–ü".as_bytes()), &log).unwrap();
        copy(&b"\xff"[..], &log).unwrap();
        copy(&b"\xe2"[..], &log).unwrap();
        let expected =
            ["a", "–", "ü", "\u{fffd}", "\u{fffd}"].map(|it| format!("{{\"out\":\"{it}\"}}\n"));
        assert_eq!(entries(&log), expected.concat());
    }

    #[test]
    fn progress_is_told_apart_from_what_is_said() {
        let log = OutputLog::new(false);
        let told = Mutex::new(Vec::new());
        let progress = |done, total| told.lock().unwrap().push((done, total));
        let text = "one\n\u{1e}{\"progress\":[1,2]}\ntwo\n\n\u{1e}{\"progress\":[2,2]}\n\u{1e}{\"progress\":[2,";
        assert_eq!(listen(text.as_bytes(), &log, &progress).as_deref(), Some("two"));
        assert_eq!(*told.lock().unwrap(), [(1, 2), (2, 2)]);
        let expected = "{\"err\":\"one\\n\"}\n{\"progress\":[1,2]}\n{\"err\":\"two\\n\"}\n{\"err\":\"\\n\"}\n{\"progress\":[2,2]}\n";
        assert_eq!(entries(&log), expected);
    }

    #[test]
    fn a_process_that_was_interrupted_before_it_began_ends() {
        let (interruptible, log) = (Interruptible::default(), OutputLog::new(false));
        interruptible.interrupt();
        let request = CommandRequest::default();
        let verb = &super::super::command::VERBS[0];
        let words = vec!["60".to_owned()];
        let command = Command { verb, words, whole: Vec::new(), shown: String::new() };
        let ended =
            run(Path::new("sleep"), &request, &command, &interruptible, &log, &|_, _| {}).unwrap();
        assert_eq!(ended, Ended { code: 130, said: None });
        assert_eq!(entries(&log), "{\"exit\":130}\n");
    }
}
