//! Writes events as permanent lines and, on a terminal, draws the picture below them.
//!
//! The picture is erased and redrawn, in place or a few lines lower. The program neither queries the terminal nor
//! changes its modes. A killed recorder therefore leaves it unchanged, and a recorder in the background of a shell is
//! not stopped by it.

use std::io::{self, IsTerminal, Write};

use console::{Term, measure_text_width};
use fullbore_core::affinity::in_words;
use fullbore_core::completeness::counted;
use fullbore_core::panda::{SourceEvent, SourceReport};
use fullbore_core::units::ByteSize;
use fullbore_engine::forward::ForwardCounts;
use fullbore_engine::recorder::{Armed, Event, Memory, Progress, Sealed, SealedFile, SealedSink};
use fullbore_recording::circular::RingName;
use serde::Serialize;

use super::device;
use super::picture::picture;
use crate::account_table;
use crate::glance::{Glance, Paper, Stream};
use crate::output::{Output, count, print_on, wrapped};

/// The size assumed for a terminal that does not report it: lines and columns.
const USUAL_SIZE: (u16, u16) = (24, 80);

/// The environment variable by which a station has the text of events, beside their JSON.
pub const WITH_TEXT: &str = "FULLBORE_EVENTS_WITH_TEXT";

/// The most lines of one event: a warning may quote external text.
const MOST_LINES: usize = 20;

/// The output: lines of text, or JSON.
pub struct Sheet {
    output: Output,
    live: bool,
    /// JSON has the text of each event, for a client of a station that shows it.
    with_text: bool,
    terminal: Term,
    /// The width of each line of the current picture.
    drawn: Vec<usize>,
    latest: Option<Progress>,
    /// What has been sent on.
    forwarded: Vec<ForwardCounts>,
}

impl Sheet {
    /// Draws a picture if standard error is a terminal and `quiet` is not set.
    pub fn new(output: Output, quiet: bool) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        Self {
            output,
            live: output.progress() && !quiet && !dumb,
            with_text: std::env::var_os(WITH_TEXT).is_some(),
            terminal: Term::stderr(),
            drawn: Vec::new(),
            latest: None,
            forwarded: Vec::new(),
        }
    }

    /// Shows an event. A closed terminal does not end a recording.
    pub fn show(&mut self, event: &Event) {
        if self.output.json {
            match self.with_text.then(|| text_of(event)).flatten() {
                Some(shown) => self.output.event(&WithText { event, shown }),
                None => self.output.event(event),
            };
            return;
        }
        match event {
            Event::Progress(progress) if self.live => {
                self.latest = Some(progress.clone());
                self.draw("");
            }
            Event::Forwarded { over: false, streams } => self.forwarded.clone_from(streams),
            Event::Progress(_) | Event::Awaiting { .. } => {}
            Event::Sealed(sealed) | Event::Unsealed { sealed, .. } => {
                self.clear();
                print_on(&account(sealed));
            }
            Event::Memory(_)
            | Event::Armed(_)
            | Event::Opened { .. }
            | Event::Missed { .. }
            | Event::Warning { .. }
            | Event::Note { .. }
            | Event::Forwarded { .. }
            | Event::Alternate { .. }
            | Event::Source(_) => {
                // The log has the same, on the same stream.
                if !self.output.logs {
                    self.say(lines(event));
                }
            }
        }
    }

    /// Reports events that did not fit in the queue.
    pub fn skipped(&mut self, events: u64) {
        let text = match events {
            1 => "1 event is not shown: the terminal was too slow".to_owned(),
            _ => format!("{events} events are not shown: the terminal was too slow"),
        };
        self.show(&Event::Warning { text });
    }

    /// Erases the picture.
    pub fn clear(&mut self) {
        let erase = self.erase();
        let _ = io::stderr().write_all(erase.as_bytes());
        self.latest = None;
    }

    /// Prints permanent lines, above the picture if there is one.
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
            let lines = height.saturating_sub(1 + usize::from(!self.forwarded.is_empty()));
            let picture = picture(progress, width, lines);
            let mut picture = picture;
            if !self.forwarded.is_empty() {
                picture.push(forwarded_in_all(&self.forwarded).chars().take(width).collect());
            }
            self.drawn = picture.iter().map(|line| measure_text_width(line)).collect();
            picture.iter().for_each(|line| text += &format!("{line}\n"));
        }
        let _ = io::stderr().write_all(text.as_bytes());
    }

    /// The control sequence that erases the picture, even if it takes more lines on a terminal that has become
    /// narrower.
    fn erase(&mut self) -> String {
        if !in_foreground() {
            // Other programs have written there since.
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

/// True if the program is in the foreground of the terminal and may draw on it.
fn in_foreground() -> bool {
    // The terminal must also be the one that started this program.
    rustix::termios::tcgetpgrp(io::stderr())
        .map_or(true, |group| group == rustix::process::getpgrp())
}

/// An event with its text.
#[derive(Serialize)]
struct WithText<'a> {
    #[serde(flatten)]
    event: &'a Event,
    /// The account of a finished scan, the picture of a state, or lines.
    shown: String,
}

/// What is shown of an event. The picture is that of a terminal of the usual size.
fn text_of(event: &Event) -> Option<String> {
    match event {
        Event::Sealed(sealed) | Event::Unsealed { sealed, .. } => Some(account(sealed)),
        Event::Progress(progress) => {
            let (lines, columns) = USUAL_SIZE;
            Some(picture(progress, columns.into(), usize::from(lines) - 1).join("\n") + "\n")
        }
        Event::Awaiting { .. } | Event::Forwarded { over: false, .. } => None,
        event => Some(lines(event).iter().map(|line| plain(line) + "\n").collect()),
    }
}

/// The account of a finished scan.
fn account(sealed: &Sealed) -> String {
    match RingName::of_piece(&sealed.manifest.scan) {
        Some(_) => piece_line(sealed),
        None => told(sealed, Paper::of_stdout()),
    }
}

/// The lines of an event.
fn lines(event: &Event) -> Vec<String> {
    match event {
        // Allocating takes seconds, so the line states the current step.
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
            lines.extend(armed.members.iter().filter_map(device::span));
            lines.extend(placed(armed));
            lines.extend(armed.begins.map(|begins| format!("  recording starts at {begins:.1}")));
            lines
        }
        Event::Opened { stream, frame_bytes, frames_per_second, .. } => {
            let frames = match frame_bytes {
                0 => "frames of varying length".to_owned(),
                1 => "bytes".to_owned(),
                bytes => format!("frames of {bytes} bytes"),
            };
            let rate = frames_per_second.map_or(String::new(), |n| format!(", {n} a second"));
            vec![format!("  {stream}: {frames}{rate}")]
        }
        Event::Missed { scan, end, .. } => {
            vec![format!(
                "MISSED {scan}: it was over at {end:.1}, before it could begin; nothing was recorded"
            )]
        }
        Event::Warning { text } => vec![format!("warning: {text}")],
        Event::Note { text } => vec![text.clone()],
        Event::Forwarded { streams, .. } => streams.iter().map(forwarded).collect(),
        Event::Alternate { stream, meant, file, why, .. } => vec![format!(
            "warning: {stream} goes into {}: {} stays as it is, because {why}",
            file.display(),
            meant.display()
        )],
        Event::Source(SourceReport { stream, event }) => {
            vec![format!("{stream}: {}", report(event))]
        }
        Event::Awaiting { .. } | Event::Progress(_) | Event::Sealed(_) | Event::Unsealed { .. } => {
            Vec::new()
        }
    }
}

/// A stream that was sent on.
fn forwarded(it: &ForwardCounts) -> String {
    let ForwardCounts { stream, to, sent, skipped, refused, reconnects, unreachable, .. } = it;
    let mut line =
        format!("{stream} to {to}: {sent} frames sent, {skipped} skipped, {refused} refused");
    if *reconnects > 0 {
        line += &format!(", connected again {}", count(*reconnects as usize, "time"));
    }
    if *unreachable > 0 {
        line += "; nothing listens there";
    }
    if let Some(problem) = &it.problem {
        line += &format!("; not reached: {problem}");
    }
    line
}

/// All streams that are sent on.
fn forwarded_in_all(streams: &[ForwardCounts]) -> String {
    let sum = |of: fn(&ForwardCounts) -> u64| streams.iter().map(of).sum::<u64>();
    let (sent, skipped, refused) = (sum(|it| it.sent), sum(|it| it.skipped), sum(|it| it.refused));
    format!("forwarded: {sent} frames sent, {skipped} skipped, {refused} refused")
}

/// A report of a PandA.
fn report(event: &SourceEvent) -> String {
    match event {
        SourceEvent::Connected { connection: 1 } => "connected".to_owned(),
        SourceEvent::Connected { .. } => "connected again".to_owned(),
        SourceEvent::PandaArmed => "armed".to_owned(),
        SourceEvent::Rejoined { gap } => {
            format!("the acquisition continues, {gap} samples later")
        }
        SourceEvent::Lost { why } => format!("connection lost: {why}"),
        SourceEvent::Unseen { samples: Some(samples) } => format!(
            "nothing came of the acquisition: the PandA took {samples} samples, and none of them is recorded"
        ),
        SourceEvent::Unseen { samples: None } => {
            "nothing came of the acquisition, and the number of samples that the PandA took is unknown".to_owned()
        }
        SourceEvent::StaysArmed { why } => format!(
            "the PandA could not be disarmed, and continues: {why}\n  `fullbore panda disarm` ends it"
        ),
    }
}

/// The properties of block memory: page size, and locking.
fn memory_of(armed: &Armed) -> String {
    let locked = if armed.locked { "locked" } else { "not locked" };
    match &armed.pages {
        Some(pages) if pages.reserved_bytes == pages.bytes => {
            format!("reserved huge pages, {locked}")
        }
        Some(pages) if pages.huge_bytes() == pages.bytes => format!("huge pages, {locked}"),
        Some(pages) => format!("{} of it in huge pages, {locked}", ByteSize(pages.huge_bytes())),
        None => locked.to_owned(),
    }
}

/// The cores and priorities of threads, and the reasons: threads with equal settings share a line.
fn placed(armed: &Armed) -> Vec<String> {
    let placement = &armed.placement;
    if placement.why.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("  {}", placement.why)];
    let seats = placement.captures.iter().chain(&placement.writers);
    let mut alike: Vec<(String, Vec<&str>)> = Vec::new();
    for (seat, state) in seats.zip(&armed.threads) {
        let place = match seat.cpus.is_empty() {
            true => String::new(),
            false => format!("on {} ({}), ", in_words(state.cpus.iter().copied()), seat.why),
        };
        let mut text = place + &state.urgency();
        if !state.refused.is_empty() {
            text += &format!("; refused: {}", state.refused.join("; "));
        }
        match alike.iter_mut().find(|(other, _)| *other == text) {
            Some((_, names)) => names.push(&state.thread),
            None => alike.push((text, vec![&state.thread])),
        }
    }
    lines.extend(alike.iter().map(|(text, names)| format!("  {}: {text}", names.join(", "))));
    lines
}

/// A text without control characters: it may quote external text, or contain an unusual path.
pub fn plain(text: &str) -> String {
    let harmless = |c: char| if c.is_control() && c != '\n' { '\u{fffd}' } else { c };
    text.chars().map(harmless).collect()
}

/// The size of the block memory, and the reason.
fn reckoned(memory: &Memory) -> String {
    let bytes = ByteSize(memory.bytes);
    let text = match (memory.requested, &memory.sum, memory.rides_out_ms) {
        (false, Some(sum), _) => sum.to_string(),
        (true, Some(sum), Some(ms)) => format!(
            "{bytes} of block memory (--buffer): enough for a stall of {ms} ms at {}; computed from the rate: {}",
            sum.rate,
            ByteSize(sum.bytes)
        ),
        (true, ..) => format!("{bytes} of block memory (--buffer)"),
        (false, ..) => format!(
            "{bytes} of block memory (default). For a store or a device, fps= and frame= of every source let it be computed from the rate"
        ),
    };
    let pieces = match memory.pieces {
        0 => String::new(),
        pieces => format!("; {} more for the pieces of the circular recording", ByteSize(pieces)),
    };
    let text = text + &pieces;
    match (memory.of_waiting, memory.requested || memory.sum.is_none()) {
        (0, _) => text,
        (bytes, true) => format!("{text}; {} of it for sources that can wait", ByteSize(bytes)),
        (bytes, false) => format!("{text}; sources that can wait get {} more", ByteSize(bytes)),
    }
}

/// The short summary of a finished scan.
fn told(sealed: &Sealed, paper: Paper) -> String {
    let Sealed { manifest, accounts, completeness, devices, files, sinks } = sealed;
    let named = manifest.streams.iter().zip(accounts);
    let streams = named.map(|(stream, account)| Stream {
        name: stream.name.as_str(),
        account,
        time_of: Box::new(account_table::time_between(account)),
    });
    let glance = Glance { manifest, completeness, missing: None, streams: streams.collect() };
    let on_devices: String = devices.iter().map(device::lines).collect();
    let files: Vec<String> = files.iter().map(file_line).collect();
    let in_sinks: String = match sinks.as_slice() {
        [] | [_] => String::new(),
        several => several.iter().map(sink_line).collect(),
    };
    format!("\n{}{on_devices}{in_sinks}", glance.text(paper, &files))
}

/// The line of a piece of a circular recording.
fn piece_line(sealed: &Sealed) -> String {
    let Sealed { manifest, accounts, .. } = sealed;
    let seconds = manifest.stopped.map_or(0.0, |it| it.since(manifest.armed) as f64 / 1e9);
    let bytes: u64 = manifest.streams.iter().map(|stream| stream.bytes).sum();
    let lacking = accounts.iter().map(|it| it.terms.expected.saturating_sub(it.terms.written));
    let lacking = match lacking.sum::<u64>() {
        0 => String::new(),
        frames => format!(", lacks {}", counted(frames, "frame")),
    };
    plain(&format!("{}: {seconds:.1} s, {}{lacking}\n", manifest.scan, ByteSize(bytes)))
}

/// What one of several sinks has of a scan.
fn sink_line(sink: &SealedSink) -> String {
    let SealedSink { place, bytes, lacking, failure, .. } = sink;
    let has = match lacking {
        0 => "all of it".to_owned(),
        frames => format!("lacks {}", counted(*frames, "frame")),
    };
    let why = failure.as_ref().map_or_else(String::new, |why| format!(": {why}"));
    plain(&format!("  in {place}: {}, {has}{why}\n", ByteSize(*bytes)))
}

/// A container file, with how long its flushes took.
fn file_line(file: &SealedFile) -> String {
    let path = file.path.display();
    let Some(stream) = &file.stream else { return format!("{path} shows all streams") };
    let Some(written) = &file.written else {
        return format!("{stream} in {path}: {}", file.reason);
    };
    let [half, most, longest] = written.flush_us.map(|us| us as f64 / 1000.0);
    format!(
        "{stream} in {path}, {}; flushes: half within {half:.1} ms, 99 of 100 within {most:.1} ms, the longest {longest:.1} ms",
        ByteSize(written.file_bytes)
    )
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
