//! What a recording shows while it runs: a table that redraws itself, or a line of JSON an event.

use std::io::{self, Stderr, Write};

use fullbore_core::manifest::State;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::recorder::{Event, MemberState, Progress, Sealed, StreamState};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Table};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use crate::account_table;
use crate::output::{Output, count};

/// Lines that the screen takes besides its rows.
const FRAME_LINES: u16 = 5;

/// The most rows shown of streams.
const MOST_STREAMS: usize = 32;

/// Where events go.
pub struct Screen {
    output: Output,
    live: bool,
    terminal: Option<(Terminal<CrosstermBackend<Stderr>>, u16)>,
}

impl Screen {
    /// A live table if a person is watching, else lines.
    pub fn new(output: Output, quiet: bool) -> Self {
        Self { output, live: output.progress() && !quiet, terminal: None }
    }

    /// Shows an event. A screen that cannot be drawn never ends a recording.
    pub fn event(&mut self, event: &Event) {
        if self.output.json {
            let mut out = io::stdout().lock();
            let line = serde_json::to_string(event).expect("events have only plain fields");
            let _ = writeln!(out, "{line}");
            let _ = out.flush();
            return;
        }
        match event {
            Event::Armed(armed) => {
                let memory = if armed.locked { "locked" } else { "not locked" };
                self.say(format!(
                    "armed {}: {}, {} of block memory ({memory}), {}",
                    armed.scan,
                    count(armed.sources.len(), "source"),
                    ByteSize(armed.pool_bytes),
                    count(armed.members.len(), "member")
                ));
                if let Some(begins) = armed.begins {
                    self.say(format!("  it begins at {begins:.1}"));
                }
                for member in armed.members.iter().filter(|member| member.buffered) {
                    self.say(format!(
                        "  {} refuses direct I/O: writing through the page cache, which costs far more",
                        member.path.display()
                    ));
                }
            }
            Event::Opened { stream, frame_bytes, frames_per_second, .. } => {
                let frames = match frame_bytes {
                    0 => "frames of varying length".to_owned(),
                    bytes => format!("frames of {bytes} bytes"),
                };
                let rate = frames_per_second.map_or(String::new(), |n| format!(", {n} a second"));
                self.say(format!("  {stream}: {frames}{rate}"));
            }
            Event::Warning { text } => self.say(format!("warning: {text}")),
            Event::Note { text } => self.say(text.clone()),
            Event::Progress(progress) => self.draw(progress),
            Event::Sealed(sealed) => {
                self.end();
                let _ = io::stdout().write_all(told(sealed).as_bytes());
            }
        }
    }

    /// A line that stays, above the table if there is one.
    fn say(&mut self, text: String) {
        match &mut self.terminal {
            Some((terminal, _)) => {
                let width = terminal.size().map_or(80, |size| size.width);
                let lines = wrapped(&text, width.into());
                let height = lines.len() as u16;
                let lines = Paragraph::new(lines.join("\n"));
                let _ = terminal.insert_before(height, |buffer| {
                    ratatui::widgets::Widget::render(lines, buffer.area, buffer);
                });
            }
            // A terminal that has gone away does not end a recording.
            None => drop(writeln!(io::stderr(), "{text}")),
        }
    }

    fn draw(&mut self, progress: &Progress) {
        if !self.live {
            return;
        }
        let rows = progress.streams.len().min(MOST_STREAMS) + progress.members.len();
        let height = FRAME_LINES + rows as u16;
        if self.terminal.as_ref().is_none_or(|(_, has)| *has != height) {
            self.end();
            let options = TerminalOptions { viewport: Viewport::Inline(height) };
            let backend = CrosstermBackend::new(io::stderr());
            match Terminal::with_options(backend, options) {
                Ok(terminal) => self.terminal = Some((terminal, height)),
                Err(_) => self.live = false,
            }
        }
        if let Some((terminal, _)) = &mut self.terminal
            && terminal.draw(|frame| picture(frame, progress)).is_err()
        {
            self.live = false;
        }
    }

    /// Takes the table away.
    pub fn end(&mut self) {
        if let Some((mut terminal, _)) = self.terminal.take() {
            let _ = terminal.clear();
            let _ = terminal.show_cursor();
        }
    }
}

/// The lines that a text takes: broken between words, and within those that are longer than a line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    /// A warning may quote what others sent.
    const MOST_LINES: usize = 20;
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
    lines.truncate(MOST_LINES);
    lines
}

fn picture(frame: &mut Frame<'_>, progress: &Progress) {
    let streams = progress.streams.len().min(MOST_STREAMS) as u16;
    let [head, upper, lower] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(streams + 2),
        Constraint::Length(progress.members.len() as u16 + 2),
    ])
    .areas(frame.area());
    frame.render_widget(Line::from(headline(progress)).bold(), head);
    let widths = [16, 12, 12, 9, 9, 9, 7, 9, 11].map(Constraint::Length);
    let names = [
        "stream",
        "rate",
        "frames",
        "missing",
        "overrun",
        "damaged",
        "late",
        "foreign",
        "high water",
    ];
    let rows = progress.streams.iter().take(MOST_STREAMS).map(stream_row);
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).dim()), upper);
    let widths = [32, 12, 12, 12, 14].map(Constraint::Length);
    let names = ["member", "rate", "backlog", "free", "longest write"];
    let rows = progress.members.iter().map(member_row);
    frame.render_widget(Table::new(rows, widths).header(Row::new(names).dim()), lower);
}

fn headline(progress: &Progress) -> String {
    let left = progress.seconds_left.map_or(String::new(), |left| format!(", {left:.0} s left"));
    let full = progress
        .seconds_until_full
        .map_or(String::new(), |seconds| format!(", full in {}", span(seconds)));
    format!(
        "{}  {:.0} s  {} ({} durable){left}{full}",
        progress.scan,
        progress.seconds,
        ByteSize(progress.bytes),
        ByteSize(progress.durable_bytes)
    )
}

fn span(seconds: f64) -> String {
    humantime::format_duration(std::time::Duration::from_secs(seconds as u64 / 60 * 60)).to_string()
}

fn stream_row(stream: &StreamState) -> Row<'static> {
    let count = |value: u64| {
        let style = if value > 0 { Style::new().fg(Color::Yellow) } else { Style::new() };
        Cell::from(value.to_string()).style(style)
    };
    let (used, blocks) = stream.high_water;
    Row::new([
        Cell::from(stream.name.to_string()),
        Cell::from(ByteRate(stream.rate).to_string()),
        Cell::from(stream.frames.to_string()),
        count(stream.missing),
        count(stream.overrun),
        count(stream.damaged),
        count(stream.late),
        count(stream.foreign),
        Cell::from(format!("{used}/{blocks}")),
    ])
}

fn member_row(member: &MemberState) -> Row<'static> {
    let state = match &member.failure {
        Some(_) => Cell::from("FAILED").style(Style::new().fg(Color::Red)),
        None => Cell::from(ByteRate(member.rate).to_string()),
    };
    Row::new([
        Cell::from(member.path.display().to_string()),
        state,
        Cell::from(ByteSize(member.backlog_bytes).to_string()),
        Cell::from(ByteSize(member.free_bytes).to_string()),
        Cell::from(format!("{:.1} ms", member.longest_write_ns as f64 / 1e6)),
    ])
}

/// A sealed scan, for people.
fn told(sealed: &Sealed) -> String {
    let names = sealed.manifest.streams.iter().map(|stream| stream.name.as_str());
    // A second Ctrl-C may come when all was written.
    let lost = sealed.accounts.iter().any(|account| account.terms.overrun > 0);
    let end = match sealed.manifest.state {
        State::Aborted if lost => "aborted",
        State::Aborted => "aborted, and nothing that had come was lost by it",
        _ => "sealed",
    };
    let size = ByteSize(sealed.manifest.bytes());
    let mut text = format!("\n{} {end}, {size}\n\n", sealed.manifest.scan);
    text += &account_table::table(names.zip(&sealed.accounts));
    for (stream, account) in sealed.manifest.streams.iter().zip(&sealed.accounts) {
        for presence in &account.presence {
            text += &format!("  {}: {presence}\n", stream.name);
        }
    }
    if let Some(verdict) = sealed.manifest.verdict() {
        text += &format!("{verdict}: {}\n", account_table::meaning(verdict, &sealed.accounts));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

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
