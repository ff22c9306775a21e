//! How results are told: text for people, JSON for scripts, exit codes for shells.

use std::io::{self, IsTerminal, Write};

use anyhow::Context;
use serde::Serialize;

/// Everything asked for was done, and what was checked is good.
pub const GOOD: u8 = 0;
/// The command ran, and what it found is not good (damage, loss that nothing explains).
pub const FOUND: u8 = 1;
/// The command could not run: bad input, no space, no such scan.
pub const REFUSED: u8 = 2;

/// What is stored is as it was written, and the recording was not complete.
pub const INCOMPLETE: u8 = 3;

/// The worse of two exit codes.
pub fn worse(one: u8, other: u8) -> u8 {
    let rank = |code: u8| [GOOD, INCOMPLETE, FOUND, REFUSED].iter().position(|it| *it == code);
    std::cmp::max_by_key(one, other, |code| rank(*code).unwrap_or(usize::MAX))
}

/// Where a command's result goes.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// Print JSON, one document or one line per event.
    pub json: bool,
}

impl Output {
    /// Prints `value` as JSON, or `text` for people.
    pub fn tell<T: Serialize>(
        &self,
        value: &T,
        text: impl FnOnce() -> String,
    ) -> anyhow::Result<()> {
        let text = if self.json { serde_json::to_string(value)? + "\n" } else { text() };
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .context("writing to standard output")
    }

    /// Prints an event as a line of JSON, if that is what is asked for. Whoever reads it may have gone: that ends
    /// nothing.
    pub fn event<T: Serialize>(&self, event: &T) -> bool {
        if self.json {
            let mut out = io::stdout().lock();
            let line = serde_json::to_string(event).expect("events have only plain fields");
            let _ = writeln!(out, "{line}");
            let _ = out.flush();
        }
        self.json
    }

    /// Whether progress may be drawn: a person is watching standard error.
    pub fn progress(&self) -> bool {
        !self.json && io::stderr().is_terminal()
    }
}

/// `1 source`, `2 sources`.
pub fn count(number: usize, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {one}{ending}")
}

/// The lines that a text takes: broken between words, and within those that are longer than a line.
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

/// Whether the reader of our output has gone, which is no error of ours.
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
