//! The streams of a summary: incomplete ones individually, the others together.

use std::cmp::Reverse;

use fullbore_core::account::Account;
use fullbore_core::completeness::{Completeness, Status, StreamCompleteness, counted, grouped};
use fullbore_core::gap::Gap;
use fullbore_core::manifest::State;
use fullbore_time::Tai;

use super::{Glance, NAMES, Paper, Stream, Tone, ranges};
use crate::output::count;

/// The most gaps that are located in a summary.
const GAPS: usize = 5;

/// Columns of a pipe that a list of gaps fills.
const COLUMNS_OF_A_PIPE: usize = 160;

/// A line, and a flag for problems.
pub struct Line {
    pub text: String,
    pub is_wrong: bool,
}

/// Streams with the same text.
struct Entry<'a> {
    status: Status,
    lost: u64,
    says: String,
    streams: Vec<&'a Stream<'a>>,
}

/// The lines of all streams, with about `room` lines for incomplete ones.
pub fn lines(glance: &Glance<'_>, paper: Paper, room: usize) -> Vec<Line> {
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for stream in &glance.streams {
        let it = completeness(glance, stream);
        let says = says(&it, stream.name);
        let alike = |entry: &&mut Entry<'_>| {
            entry.says == says && entry.status == it.status && entry.lost == 0
        };
        match entries.iter_mut().find(alike) {
            Some(entry) if it.lost == 0 => entry.streams.push(stream),
            _ => entries.push(Entry {
                status: it.status,
                lost: it.lost,
                says,
                streams: vec![stream],
            }),
        }
    }
    let nothing = |it: &Entry<'_>| it.streams.iter().all(|it| it.account.terms.written == 0);
    entries.sort_by_key(|it| Reverse((it.status, it.lost, nothing(it))));
    let (wrong, well): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|it| matches!(it.status, Status::Lost | Status::Incomplete));
    let mut lines = match glance.streams.as_slice() {
        // The headline contains everything else.
        [only] => the_gaps_of(only, paper),
        _ => wrong_lines(&wrong, paper, room.saturating_sub(well.len())),
    };
    for entry in well.iter().filter(|_| glance.streams.len() > 1) {
        let text = together(entry, glance.streams.len());
        lines.extend(paper.fact(&text).into_iter().map(|text| Line { text, is_wrong: false }));
    }
    lines
}

/// The incomplete streams, as far as they fit; the rest is counted.
fn wrong_lines(wrong: &[Entry<'_>], paper: Paper, room: usize) -> Vec<Line> {
    let width = wrong.iter().map(|it| label(it).chars().count()).max().unwrap_or(0);
    let mut lines: Vec<String> = Vec::new();
    for (number, entry) in wrong.iter().enumerate() {
        let own = of_entry(entry, width, paper);
        let last = number + 1 == wrong.len();
        let needs = own.len() + usize::from(!last);
        if number > 0 && lines.len() + needs > room {
            lines.extend(paper.fact(&rest(&wrong[number..])));
            break;
        }
        lines.extend(own);
    }
    lines.into_iter().map(|text| Line { text, is_wrong: true }).collect()
}

/// The first gaps of the only stream.
fn the_gaps_of(stream: &Stream<'_>, paper: Paper) -> Vec<Line> {
    let place = located(stream, paper.columns.min(COLUMNS_OF_A_PIPE).saturating_sub(4));
    let lines = if place.is_empty() { Vec::new() } else { paper.fact(&place) };
    lines.into_iter().map(|text| Line { text, is_wrong: true }).collect()
}

fn label(entry: &Entry<'_>) -> String {
    let names: Vec<&str> = entry.streams.iter().map(|it| it.name).collect();
    ranges(&names, NAMES)
}

/// The losses of one stream, or of several with the same text: number, reason, and place.
fn of_entry(entry: &Entry<'_>, width: usize, paper: Paper) -> Vec<String> {
    let tone = if entry.status == Status::Lost { Tone::Bad } else { Tone::Doubt };
    let label = label(entry);
    let mut first = format!("  {label:<width$}  ");
    if first.chars().count() > paper.columns / 2 {
        first = format!("  {label}: ");
    }
    let [stream] = entry.streams.as_slice() else {
        return paper.hanging(&first, &entry.says, tone);
    };
    let indent = first.chars().count();
    let room = paper.columns.min(COLUMNS_OF_A_PIPE).saturating_sub(indent);
    let place = located(stream, room);
    let together = indent + entry.says.chars().count() + 2 + place.chars().count();
    if !place.is_empty() && together <= paper.columns {
        return vec![format!("{first}{}; {place}", paper.styled(&entry.says, tone))];
    }
    let mut lines = paper.hanging(&first, &entry.says, tone);
    if !place.is_empty() {
        lines.extend(paper.hanging(&" ".repeat(indent), &place, Tone::Plain));
    }
    lines
}

/// The first gaps that fit on a line of this width: `missing 7–9 at 13:11:36.004, and 3 more gaps`.
fn located(stream: &Stream<'_>, width: usize) -> String {
    let Account { gaps, gaps_unlisted, .. } = stream.account;
    let day = stream.account.first.and_then(|edge| edge.time).map(day);
    let all = gaps.len() as u64 + gaps_unlisted;
    let mut text = String::new();
    for (number, gap) in gaps.iter().take(GAPS).enumerate() {
        let same = number > 0 && gaps[number - 1].cause == gap.cause;
        let cause = if same { String::new() } else { format!("{} ", gap.cause) };
        let gap = cause + &place(gap, (stream.time_of)(gap.first), day.as_deref());
        let next = if text.is_empty() { gap } else { format!("{text}, {gap}") };
        let with_rest = next.chars().count() + more(all - number as u64 - 1).chars().count();
        if number > 0 && with_rest > width {
            return text + &more(all - number as u64);
        }
        text = next;
    }
    if text.is_empty() { text } else { text + &more(all.saturating_sub(GAPS as u64)) }
}

fn more(gaps: u64) -> String {
    if gaps == 0 { String::new() } else { format!(", and {} more", counted(gaps, "gap")) }
}

/// `7–9 at 13:11:36.004`; with the date if it differs from the stream's.
fn place(gap: &Gap, time: Option<Tai>, of_day: Option<&str>) -> String {
    let last = gap.first.saturating_add_unsigned(gap.count.saturating_sub(1));
    let mut text = match gap.count {
        1 => gap.first.to_string(),
        _ => format!("{}–{last}", gap.first),
    };
    if let Some(time) = time {
        let written = format!("{time:.3}");
        let clock = written.split_once('T').map_or("", |(_, clock)| clock.trim_end_matches('Z'));
        match of_day {
            Some(known) if day(time) == known => text += &format!(" at {clock}"),
            _ => text += &format!(" at {written}"),
        }
    }
    text
}

fn day(time: Tai) -> String {
    let text = format!("{time:.1}");
    text.split_once('T').map_or_else(String::new, |(day, _)| day.to_owned())
}

/// Streams that did not fit.
fn rest(entries: &[Entry<'_>]) -> String {
    let streams = entries.iter().flat_map(|entry| &entry.streams);
    let names: Vec<&str> = streams.map(|it| it.name).collect();
    let lost: u64 = entries.iter().map(|entry| entry.lost).sum();
    let what = match lost {
        0 => "are not complete".to_owned(),
        lost => format!("lost {}", counted(lost, "frame")),
    };
    let streams = count(names.len(), "more stream");
    format!("{streams} {what}: {}", ranges(&names, NAMES))
}

/// Streams without known problems: `6 streams complete: 46220–46225, 12 504 frames each`.
fn together(entry: &Entry<'_>, all: usize) -> String {
    let names: Vec<&str> = entry.streams.iter().map(|it| it.name).collect();
    let expected = entry.streams.iter().map(|it| it.account.terms.written);
    let (least, most) = (expected.clone().min().unwrap_or(0), expected.max().unwrap_or(0));
    let mut units = entry.streams.iter().map(|it| it.account.counted_by.unit());
    let unit = units.next().filter(|first| units.all(|unit| unit == *first)).unwrap_or("frame");
    let counts = match (names.len(), least == most) {
        (1, _) => counted(most, unit),
        (_, true) => format!("{} each", counted(most, unit)),
        (_, false) => format!("{}–{} {unit}s each", grouped(least), grouped(most)),
    };
    let status = if entry.status == Status::Complete { "complete" } else { "unknown" };
    let streams = match names.len() {
        2 if all == 2 => "both streams".to_owned(),
        some if some == all => format!("all {}", count(some, "stream")),
        some => count(some, "stream"),
    };
    let says = if entry.says.is_empty() { String::new() } else { format!(": {}", entry.says) };
    format!("{streams} {status}: {}, {counts}{says}", ranges(&names, NAMES))
}

/// The completeness of a single stream.
fn completeness(glance: &Glance<'_>, stream: &Stream<'_>) -> Completeness {
    let part = StreamCompleteness::of_account(stream.name, stream.account);
    Completeness::judged(vec![part], glance.manifest.planned, State::Sealed, &[])
}

/// The text after a stream's name. For a stream without known problems, only the reason for doubts.
fn says(it: &Completeness, name: &str) -> String {
    let text = it.headline.replace(&format!("stream {name} "), "it ");
    match it.status {
        Status::Lost | Status::Incomplete => text,
        Status::Complete => String::new(),
        Status::Unknown => {
            text.split_once("; ").map_or_else(String::new, |(_, why)| why.to_owned())
        }
    }
}
