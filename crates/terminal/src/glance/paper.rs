//! The properties of the output: a terminal with size and colours, or a pipe.

use console::{Style, Term};

use crate::output::wrapped;

/// The destination of text.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Columns; unlimited for a pipe.
    pub columns: usize,
    /// Lines on one screen.
    pub lines: usize,
    /// True if colours are used: a terminal, and no NO_COLOR.
    pub colour: bool,
}

/// Lines of a summary in a file or a pipe.
const LINES_OF_A_PIPE: usize = 48;

/// The least number of lines assumed for a terminal: fewer would hide too much.
const FEWEST_LINES: usize = 24;

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// A fact.
    Plain,
    /// Nothing is missing.
    Good,
    /// Something is missing or not known.
    Doubt,
    /// Something is damaged or has failed.
    Bad,
}

/// The environment variable with lines and columns of a station's client: `40x100`.
const OF_CLIENT: &str = "FULLBORE_PAPER";

fn of_client() -> Option<(u16, u16)> {
    let text = std::env::var(OF_CLIENT).ok()?;
    let (lines, columns) = text.split_once('x')?;
    Some((lines.parse().ok()?, columns.parse().ok()?))
}

impl Paper {
    /// Standard output; or, in a command that a station runs, that of its client.
    pub fn of_stdout() -> Self {
        let size = of_client().or_else(|| Term::stdout().size_checked());
        let size = size.map(|(lines, columns)| {
            (usize::from(lines).max(FEWEST_LINES), usize::from(columns.max(1)))
        });
        let (lines, columns) = size.unwrap_or((LINES_OF_A_PIPE, usize::MAX));
        Self { columns, lines, colour: console::colors_enabled() }
    }

    /// A text in a style.
    pub fn styled(&self, text: &str, tone: Tone) -> String {
        let style = Style::new().force_styling(self.colour);
        let style = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Good => style.green().bold(),
            Tone::Doubt => style.yellow().bold(),
            Tone::Bad => style.red().bold(),
        };
        style.apply_to(text).to_string()
    }

    /// A text on lines that fit. The first line begins with `first`, the others with as many blanks.
    pub fn hanging(&self, first: &str, text: &str, tone: Tone) -> Vec<String> {
        let indent = first.chars().count();
        let room = self.columns.saturating_sub(indent);
        let lines = wrapped(&unbroken(text), room).into_iter().enumerate();
        lines
            .map(|(number, line)| {
                let line = self.styled(&line.replace(NO_BREAK, " "), tone);
                if number == 0 { format!("{first}{line}") } else { format!("{:indent$}{line}", "") }
            })
            .collect()
    }

    /// A fact: indented, with its second line indented further.
    pub fn fact(&self, text: &str) -> Vec<String> {
        let lines = self.hanging("    ", text, Tone::Plain).into_iter().enumerate();
        let cut = |number, line: String| if number == 0 { line[2..].to_owned() } else { line };
        lines.map(|(number, line)| cut(number, line)).collect()
    }
}

/// A blank without a line break.
const NO_BREAK: char = '\u{a0}';

/// The text with blanks that do not break within commands in backticks and within numbers such as `12 504`.
fn unbroken(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let digit =
        |at: Option<usize>| at.and_then(|at| letters.get(at)).is_some_and(char::is_ascii_digit);
    let mut quoted = false;
    let keep = |(at, letter): (usize, &char)| {
        quoted ^= *letter == '`';
        let number = digit(at.checked_sub(1)) && (at + 1..at + 4).all(|at| digit(Some(at)));
        if *letter == ' ' && (quoted || number) { NO_BREAK } else { *letter }
    };
    letters.iter().enumerate().map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Paper = Paper { columns: 24, lines: 24, colour: false };

    #[test]
    fn numbers_and_commands_are_not_broken() {
        let text = "6 streams lost 12 504 frames; `fullbore info a` says why";
        assert_eq!(
            PAPER.hanging("! ", text, Tone::Plain),
            ["! 6 streams lost 12 504", "  frames;", "  `fullbore info a` says", "  why"]
        );
    }

    #[test]
    fn the_second_line_of_a_fact_is_indented_further() {
        let lines = ["  one two three four", "    five six seven"];
        assert_eq!(PAPER.fact("one two three four five six seven"), lines);
    }

    #[test]
    fn colours_are_printed_only_where_they_are_wanted() {
        assert_eq!(PAPER.styled("LOST", Tone::Bad), "LOST");
        let terminal = Paper { colour: true, ..PAPER };
        assert_eq!(terminal.styled("LOST", Tone::Bad), "\x1b[31m\x1b[1mLOST\x1b[0m");
        assert_eq!(terminal.styled("COMPLETE", Tone::Good), "\x1b[32m\x1b[1mCOMPLETE\x1b[0m");
    }
}
