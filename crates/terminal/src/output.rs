//! The output of results: text for users, JSON for scripts, exit codes for shells.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use fullbore_recording::Outcome;
use serde::Serialize;

/// The command succeeded, and everything checked is good.
pub const GOOD: u8 = 0;
/// The command ran and found a problem (damage, unexplained loss).
pub const FOUND: u8 = 1;
/// The command could not run: bad input, no space, no such scan.
pub const REFUSED: u8 = 2;

/// The stored data is intact, but the recording is not complete.
pub const INCOMPLETE: u8 = 3;

/// The exit code of a recording.
pub fn exit_code(outcome: Outcome) -> ExitCode {
    ExitCode::from(if outcome.is_good() { GOOD } else { FOUND })
}

/// The worse of two exit codes.
pub fn worse(one: u8, other: u8) -> u8 {
    let rank = |code: u8| [GOOD, INCOMPLETE, FOUND, REFUSED].iter().position(|it| *it == code);
    std::cmp::max_by_key(one, other, |code| rank(*code).unwrap_or(usize::MAX))
}

/// The destination of a command's result.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// True to print JSON, one document or one line per event.
    pub json: bool,
    /// True if a log goes to standard error, where progress would be drawn.
    pub logs: bool,
}

impl Output {
    /// Prints `value` as JSON, or `text` for users.
    pub fn tell<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        print(&if self.json { serde_json::to_string(value)? + "\n" } else { text() })
    }

    /// Prints an event as a line of JSON if JSON is requested, as [`print_on`] does.
    pub fn event<T: Serialize>(&self, event: &T) -> bool {
        if self.json {
            let line = serde_json::to_string(event).expect("events have only plain fields");
            print_on(&(line + "\n"));
        }
        self.json
    }

    /// True if progress may be drawn: standard error is a terminal, and free of a log.
    pub fn progress(&self) -> bool {
        !self.json && !self.logs && io::stderr().is_terminal()
    }
}

/// Prints a line on standard error, in one write: another thread may end the process meanwhile. A failure to write is
/// ignored.
pub fn say(line: impl Display) {
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// An error as JSON, the same for all commands.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct ErrorJson<'a> {
    /// What happened.
    error: &'a str,
    /// The scan or the file that it is about, if the command goes on with others.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// Says on standard error what went wrong: the text, with advice on the lines below it, or a line of JSON.
pub fn complain(name: Option<&str>, text: &str) {
    if !ERRORS_AS_JSON.load(Ordering::Relaxed) {
        let name = name.map_or_else(String::new, |name| format!("{name}: "));
        return say(format_args!("fullbore: {name}{text}"));
    }
    say(serde_json::to_string(&error_json(name, text)).expect("it has only texts"));
}

/// A remark of a command that continues, as JSON.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct NoteJson<'a> {
    /// What the user should know.
    note: &'a str,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

/// Says on standard error what the user of a command that continues should know, as [`complain`] does.
pub fn note(text: impl Display) {
    if !ERRORS_AS_JSON.load(Ordering::Relaxed) {
        return say(format_args!("fullbore: {text}"));
    }
    say(serde_json::to_string(&note_json(&text.to_string())).expect("it has only texts"));
}

fn note_json(text: &str) -> NoteJson<'_> {
    let ErrorJson { error: note, advice, .. } = error_json(None, text);
    NoteJson { note, advice }
}

fn error_json<'a>(name: Option<&'a str>, text: &'a str) -> ErrorJson<'a> {
    let (error, advice) = match text.split_once('\n') {
        Some((error, advice)) => (error, Some(advice)),
        None => (text, None),
    };
    let joined = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    ErrorJson { error, name, advice: advice.map(joined) }
}

/// True if errors and notes are JSON.
static ERRORS_AS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on, errors and notes are JSON.
pub fn errors_as_json() {
    ERRORS_AS_JSON.store(true, Ordering::Relaxed);
}

/// Prints text on standard output, the result of the command.
pub fn print(text: &str) -> anyhow::Result<()> {
    written(text).context("writing to standard output")
}

/// Prints text on standard output, from work that continues even if writing fails. A closed pipe is ignored. Any other
/// failure is remembered: see [`judged_by_what_was_told`].
pub fn print_on(text: &str) {
    if let Err(error) = written(text)
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let _ = UNTOLD.set(error);
    }
}

/// The error because of which output is missing from standard output.
static UNTOLD: OnceLock<io::Error> = OnceLock::new();

/// The exit code of completed work: not success if standard output is incomplete.
pub fn judged_by_what_was_told(code: ExitCode) -> ExitCode {
    let Some(error) = UNTOLD.get() else { return code };
    say(format_args!("fullbore: not all that happened is on standard output: {error}"));
    match [GOOD, INCOMPLETE].map(ExitCode::from).contains(&code) {
        true => ExitCode::from(FOUND),
        false => code,
    }
}

/// True if standard output carries the data of a recording.
static STDOUT_HAS_DATA: AtomicBool = AtomicBool::new(false);

/// From now on, results go to standard error, because standard output carries data.
pub fn leave_stdout_to_data() {
    STDOUT_HAS_DATA.store(true, Ordering::Relaxed);
}

fn written(text: &str) -> io::Result<()> {
    if STDOUT_HAS_DATA.load(Ordering::Relaxed) {
        return io::stderr().lock().write_all(text.as_bytes());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// `1 source`, `2 sources`.
pub fn count(number: usize, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {one}{ending}")
}

/// The lines of a text: broken between words, and within words that are longer than a line.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(8);
    let mut lines = Vec::new();
    for line in text.lines() {
        let mut rest: Vec<char> = line.chars().collect();
        while rest.len() > width {
            let blank = rest[..=width].iter().rposition(|it| *it == ' ').filter(|at| *at > 0);
            let behind = rest.split_off(blank.unwrap_or(width));
            lines.push(rest.iter().collect());
            rest = behind.into_iter().skip(usize::from(blank.is_some())).collect();
        }
        lines.push(rest.iter().collect());
    }
    lines
}

/// True if the reader of the output has closed the pipe, which is no error of the program.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(broken)
            || cause
                .downcast_ref::<serde_json::Error>()
                .and_then(serde_json::Error::io_error_kind)
                .is_some_and(|kind| kind == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_worse_than_a_loss_and_a_refusal_is_the_worst() {
        let order = [GOOD, INCOMPLETE, FOUND, REFUSED];
        for (a, one) in order.iter().enumerate() {
            for (b, other) in order.iter().enumerate() {
                assert_eq!(worse(*one, *other), order[a.max(b)]);
            }
        }
    }

    #[test]
    fn an_error_as_json_has_its_advice_apart() {
        let told = error_json(Some("r1_a"), "it is gone\n  look for it\n  or not");
        let advice = Some("look for it\nor not".to_owned());
        assert_eq!(told, ErrorJson { error: "it is gone", name: Some("r1_a"), advice });
        let told = serde_json::to_string(&error_json(None, "it is gone")).unwrap();
        assert_eq!(told, r#"{"error":"it is gone"}"#);
    }

    #[test]
    fn a_note_as_json_has_its_advice_apart() {
        let told = serde_json::to_string(&note_json("it grows\n  --follow goes on")).unwrap();
        assert_eq!(told, r#"{"note":"it grows","advice":"--follow goes on"}"#);
    }

    #[test]
    fn one_thing_is_not_told_as_many() {
        let told = [0, 1, 2].map(|number| count(number, "source"));
        assert_eq!(told, ["0 sources", "1 source", "2 sources"]);
    }

    #[test]
    fn a_long_warning_is_shown_to_its_end() {
        let text = "warning: 46220: the socket got 212 KB of the 64 MB asked for /a/very/long/path/of/a/thing";
        for width in 8..100 {
            let lines = wrapped(text, width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:?}");
            let told = |text: &str| text.replace(' ', "");
            assert_eq!(told(&lines.concat()), told(text), "{width}");
        }
        assert_eq!(wrapped("one two", 80), ["one two"]);
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("a\nb", 80), ["a", "b"]);
    }
}
