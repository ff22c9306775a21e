//! What a session tells beside the events of its recordings: in words, or as lines of JSON.

use std::io::Write;

use fullbore_core::name::Name;
use fullbore_core::schedule::agenda::Changes;
use fullbore_core::time::Tai;
use fullbore_engine::recorder::Event;
use serde::Serialize;

use crate::output::{Output, count};
use crate::screen::Screen;

/// A line of JSON while a scan is awaited, or the schedule changes.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Told<'a> {
    Waiting {
        scan: &'a Name,
        start: Tai,
        seconds: f64,
    },
    Missed {
        scan: &'a Name,
        start: Tai,
    },
    RecordedBefore {
        scan: &'a Name,
        start: Tai,
        parts: &'a [Name],
        unsealed: &'a [Name],
    },
    /// What the scans ahead take of the disk set, and which fills it.
    Room {
        scans: usize,
        rate: u64,
        needed_bytes: u64,
        free_bytes: u64,
        fills: Option<&'a Name>,
        full: Option<Tai>,
    },
    Schedule {
        scans: usize,
        added: &'a [Name],
        removed: &'a [Name],
        too_late: &'a [Name],
    },
}

/// What has come up while a scan is awaited or recorded.
pub enum News {
    Warning(String),
    Schedule { scans: usize, changes: Changes },
}

impl News {
    /// Shows it while no scan is recorded.
    pub fn show(&self, output: Output) {
        match self {
            News::Warning(text) => say(output, &format!("warning: {text}")),
            News::Schedule { scans, changes } => {
                tell(output, &told(*scans, changes), || in_words(*scans, changes));
            }
        }
    }

    /// Shows it while a scan is recorded.
    pub fn during(&self, output: Output, screen: &mut Screen) {
        match self {
            News::Warning(text) => screen.event(&Event::Warning { text: text.clone() }),
            // A reader who has gone does not end a session.
            News::Schedule { scans, changes } if output.json => {
                drop(output.tell(&told(*scans, changes), String::new));
            }
            News::Schedule { scans, changes } => {
                screen.event(&Event::Note { text: in_words(*scans, changes) });
            }
        }
    }
}

fn told(scans: usize, changes: &Changes) -> Told<'_> {
    let Changes { added, removed, too_late } = changes;
    Told::Schedule { scans, added, removed, too_late }
}

fn in_words(scans: usize, changes: &Changes) -> String {
    let Changes { added, removed, too_late } = changes;
    let mut text = format!("the schedule was read again: {} lie ahead", count(scans, "scan"));
    let kinds = [
        ("new or moved", added),
        ("removed", removed),
        ("over or begun, so left as they were", too_late),
    ];
    for (what, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        text += &format!("; {what}: {}", names.join(", "));
    }
    text
}

/// The first few of many names.
pub fn in_a_row(names: &[&Name]) -> String {
    const SHOWN: usize = 6;
    let mut text =
        names.iter().take(SHOWN).map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    if let more @ 1.. = names.len().saturating_sub(SHOWN) {
        text += &format!(" and {more} others");
    }
    text
}

/// Says a sentence while no scan is recorded; one that begins with `warning: ` is a warning in JSON as well.
pub fn say(output: Output, text: &str) {
    if !output.json {
        line_to_stderr(text);
        return;
    }
    let event = match text.strip_prefix("warning: ") {
        Some(text) => Event::Warning { text: text.to_owned() },
        None => Event::Note { text: text.to_owned() },
    };
    // A reader who has gone does not end a session.
    let _ = output.tell(&event, String::new);
}

/// Tells something in words or as JSON, while no scan is recorded.
pub fn tell(output: Output, told: &Told<'_>, text: impl FnOnce() -> String) {
    match output.json {
        true => drop(output.tell(told, String::new)),
        false => line_to_stderr(&text()),
    }
}

/// A line for people. A terminal that has gone away does not end a session.
fn line_to_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
