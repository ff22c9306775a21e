//! What events are written on: lines that stay, and on a terminal the picture below them.
//!
//! The picture is taken away and drawn again a few lines lower or in place. Nothing is ever asked of the
//! terminal and no mode of it is changed, so a recorder that is killed leaves it as it was, and one in the
//! background of a shell is not halted by it.

use std::io::{self, IsTerminal, Write};

use console::{Term, measure_text_width};
use fullbore_core::manifest::State;
use fullbore_core::place::in_words;
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::{Armed, Event, Memory, Progress, Sealed};

use super::picture::picture;
use crate::account_table;
use crate::output::{Output, count, wrapped};

/// The size of a terminal that does not tell: lines and columns.
const USUAL_SIZE: (u16, u16) = (24, 80);

/// The most lines of one event: a warning may quote what others sent.
const MOST_LINES: usize = 20;

/// Lines for people, or JSON.
pub struct Sheet {
    output: Output,
    live: bool,
    terminal: Term,
    /// How wide each line of the picture is that stands there.
    drawn: Vec<usize>,
    latest: Option<Progress>,
}

impl Sheet {
    /// A picture is drawn if a person is watching and has not asked for quiet.
    pub fn new(output: Output, quiet: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        Self {
            output,
            live: output.progress() && !quiet && !dumb,
            terminal: Term::stderr(),
            drawn: Vec::new(),
            latest: None,
        }
    }

    /// Shows an event. A terminal that has gone away does not end a recording.
    pub fn show(&mut self, event: &Event) {
        if self.output.event(event) {
            return;
        }
        match event {
            Event::Progress(progress) if self.live => {
                self.latest = Some(progress.clone());
                self.draw("");
            }
            Event::Progress(_) | Event::Awaiting { .. } => {}
            Event::Sealed(books) | Event::Unsealed { books, .. } => {
                self.clear();
                let _ = io::stdout().write_all(told(books).as_bytes());
            }
            Event::Memory(_)
            | Event::Armed(_)
            | Event::Opened { .. }
            | Event::Warning { .. }
            | Event::Note { .. } => self.say(lines(event)),
        }
    }

    /// Tells of events for which there was no room.
    pub fn unread(&mut self, events: u64) {
        let text = match events {
            1 => "1 event came while nobody read, and is not shown".to_owned(),
            _ => format!("{events} events came while nobody read, and are not shown"),
        };
        self.show(&Event::Warning { text });
    }

    /// Takes the picture away.
    pub fn clear(&mut self) {
        let erase = self.erase();
        let _ = io::stderr().write_all(erase.as_bytes());
        self.latest = None;
    }

    /// Lines that stay, above the picture if there is one.
    fn say(&mut self, texts: Vec<String>) {
        let width = if io::stderr().is_terminal() { self.size().1 } else { usize::MAX };
        let lines =
            texts.iter().flat_map(|text| wrapped(&plain(text), width).into_iter().take(MOST_LINES));
        let text: String = lines.map(|line| line + "\n").collect();
        self.draw(&text);
    }

    /// Writes lines, and the latest picture below them, in one piece.
    fn draw(&mut self, lines: &str) {
        let mut text = self.erase();
        text += lines;
        if let Some(progress) = self.latest.as_ref().filter(|_| in_foreground()) {
            let (height, width) = self.size();
            let picture = picture(progress, width, height.saturating_sub(1));
            self.drawn = picture.iter().map(|line| measure_text_width(line)).collect();
            picture.iter().for_each(|line| text += &format!("{line}\n"));
        }
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// What takes the picture away, however many lines it has by now: the terminal may be narrower.
    fn erase(&mut self) -> String {
        if !in_foreground() {
            // By now others have written there.
            self.drawn.clear();
        }
        let width = self.size().1;
        let lines: usize = self.drawn.drain(..).map(|wide| wide.div_ceil(width).max(1)).sum();
        if lines == 0 { String::new() } else { format!("\r\x1b[{lines}A\x1b[J") }
    }

    /// Lines and columns.
    fn size(&self) -> (usize, usize) {
        let (lines, columns) = self.terminal.size_checked().unwrap_or(USUAL_SIZE);
        (lines.into(), usize::from(columns.max(1)))
    }
}

/// Whether the terminal is ours to draw on. In the background of a shell it is another's.
fn in_foreground() -> bool {
    // It is no shell's either if it is not the one that we were started from.
    rustix::termios::tcgetpgrp(io::stderr())
        .map_or(true, |group| group == rustix::process::getpgrp())
}

/// What an event says, a line each.
fn lines(event: &Event) -> Vec<String> {
    match event {
        // Getting it takes seconds, so the line says what is under way.
        Event::Memory(memory) => vec![format!("arming: {}", reckoned(memory))],
        Event::Armed(armed) => {
            let memory = memory_of(armed);
            let mut lines = vec![format!(
                "armed {}: {}, {} of block memory ({memory}), {}",
                armed.scan,
                count(armed.sources.len(), "source"),
                ByteSize(armed.pool_bytes),
                count(armed.members.len(), "member")
            )];
            lines.extend(placed(armed));
            lines.extend(armed.begins.map(|begins| format!("  it begins at {begins:.1}")));
            let buffered = armed.members.iter().filter(|member| member.buffered);
            lines.extend(buffered.map(|member| {
                format!(
                    "  {} refuses direct I/O: writing through the page cache, which costs far more",
                    member.path.display()
                )
            }));
            lines
        }
        Event::Opened { stream, frame_bytes, frames_per_second, .. } => {
            let frames = match frame_bytes {
                0 => "frames of varying length".to_owned(),
                bytes => format!("frames of {bytes} bytes"),
            };
            let rate = frames_per_second.map_or(String::new(), |n| format!(", {n} a second"));
            vec![format!("  {stream}: {frames}{rate}")]
        }
        Event::Warning { text } => vec![format!("warning: {text}")],
        Event::Note { text } => vec![text.clone()],
        Event::Awaiting { .. } | Event::Progress(_) | Event::Sealed(_) | Event::Unsealed { .. } => {
            Vec::new()
        }
    }
}

/// What block memory is like: in which pages, and whether it is locked.
fn memory_of(armed: &Armed) -> String {
    let locked = if armed.locked { "locked" } else { "not locked" };
    match &armed.pages {
        Some(pages) if pages.reserved_bytes == pages.bytes => {
            format!("huge pages set aside, {locked}")
        }
        Some(pages) if pages.huge_bytes() == pages.bytes => format!("huge pages, {locked}"),
        Some(pages) => format!("{} of it in huge pages, {locked}", ByteSize(pages.huge_bytes())),
        None => locked.to_owned(),
    }
}

/// Where threads run and how urgently, as they do, and why there: threads that are alike on one line.
fn placed(armed: &Armed) -> Vec<String> {
    let placement = &armed.placement;
    if placement.why.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("  {}", placement.why)];
    let seats = placement.captures.iter().chain(&placement.writers);
    let mut alike: Vec<(String, Vec<&str>)> = Vec::new();
    for (seat, standing) in seats.zip(&armed.threads) {
        let place = match seat.cpus.is_empty() {
            true => String::new(),
            false => format!("on {} ({}), ", in_words(standing.cpus.iter().copied()), seat.why),
        };
        let mut text = place + &standing.urgency();
        if !standing.refused.is_empty() {
            text += &format!("; refused: {}", standing.refused.join("; "));
        }
        match alike.iter_mut().find(|(other, _)| *other == text) {
            Some((_, names)) => names.push(&standing.thread),
            None => alike.push((text, vec![&standing.thread])),
        }
    }
    lines.extend(alike.iter().map(|(text, names)| format!("  {}: {text}", names.join(", "))));
    lines.extend(armed.autogroup.map(|nice| {
        format!(
            "  this session runs at nice {nice} while recording: the kernel schedules sessions as groups (autogroup)"
        )
    }));
    lines
}

/// A text without what a terminal would obey: it may quote what others sent, or name a strange path.
pub fn plain(text: &str) -> String {
    let harmless = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    text.chars().map(harmless).collect()
}

/// How much block memory there will be, and why.
fn reckoned(memory: &Memory) -> String {
    let bytes = ByteSize(memory.bytes);
    let text = match (memory.asked, &memory.sum, memory.rides_out_ms) {
        (false, Some(sum), _) => sum.to_string(),
        (true, Some(sum), Some(ms)) => format!(
            "{bytes} of block memory, as asked: it rides out a stall of {ms} ms at {}; by its sum it would be {}",
            sum.rate,
            ByteSize(sum.bytes)
        ),
        (true, ..) => format!("{bytes} of block memory, as asked"),
        (false, ..) => format!(
            "{bytes} of block memory, the default: give fps= and frame= of every source, and it is computed from the rate"
        ),
    };
    match (memory.of_pandas, memory.asked || memory.sum.is_none()) {
        (0, _) => text,
        (of_pandas, true) => format!("{text}; {} of it for PandAs", ByteSize(of_pandas)),
        (of_pandas, false) => format!("{text}; PandAs get {} more", ByteSize(of_pandas)),
    }
}

/// Gaps of each stream that are shown at the end of a recording.
const GAPS: usize = 5;

/// Lines that are shown below the table; `info` tells the rest.
const MOST_DETAILS: usize = 24;

/// A scan that is over, for people: whether it is complete, how sure that is, and where it is not.
fn told(sealed: &Sealed) -> String {
    let Sealed { manifest, accounts, completeness } = sealed;
    let end = match manifest.state {
        State::Aborted if completeness.lost > 0 => "aborted",
        State::Aborted => "aborted, and nothing that had come was lost by it",
        State::Recording => "not sealed",
        _ => "sealed",
    };
    let mut size = ByteSize(manifest.bytes()).to_string();
    if let Some(followed) = manifest.redundancy.and_then(|it| it.followed) {
        let (parity, factor) = (ByteSize(followed.bytes), followed.factor(manifest.bytes()));
        size += &format!(" and {parity} of parity ({factor:.2}×)");
    }
    let mut text = format!(
        "\n{}\n  {}\n  {} {end}, {size}\n\n",
        completeness.headline, completeness.explanation, manifest.scan
    );
    let streams = || manifest.streams.iter().map(|stream| stream.name.as_str()).zip(accounts);
    text += &account_table::table(streams());
    let details: String =
        streams().map(|(name, account)| account_table::at_the_end(name, account, GAPS)).collect();
    let lines: Vec<&str> = details.lines().collect();
    lines.iter().take(MOST_DETAILS).for_each(|line| text += &format!("{line}\n"));
    if lines.len() > MOST_DETAILS {
        let more = count(lines.len() - MOST_DETAILS, "line");
        text += &format!("  and {more} more: `fullbore info {}`\n", manifest.scan);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_quoted_commands_the_terminal() {
        assert_eq!(
            plain("warning: \x1b[2J\r\u{9b}K\nmore"),
            "warning: \u{fffd}[2J\u{fffd}\u{fffd}K\nmore"
        );
    }
}
