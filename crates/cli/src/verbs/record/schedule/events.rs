//! Events of a session other than those of its recordings: as text, or as lines of JSON.

use fullbore_core::name::Name;
use fullbore_core::schedule::agenda::Changes;
use fullbore_engine::recorder::Event;
use fullbore_time::Tai;
use serde::Serialize;

use crate::output::{self, Output, count};
use crate::screen::Screen;

/// A line of JSON while waiting for a scan, or when the schedule changes.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventJson<'a> {
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
    /// The space that the remaining scans need, and the scan that fills the disk set.
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

/// An event while waiting for or recording a scan.
pub enum SessionEvent {
    Warning(String),
    Schedule { scans: usize, changes: Changes },
}

impl SessionEvent {
    /// Shows it between recordings.
    pub fn show(&self, output: Output) {
        match self {
            SessionEvent::Warning(text) => say(output, &format!("warning: {text}")),
            SessionEvent::Schedule { scans, changes } => {
                tell(output, &told(*scans, changes), || in_words(*scans, changes));
            }
        }
    }

    /// Shows it during a recording.
    pub fn during(&self, output: Output, screen: &mut Screen) {
        match self {
            SessionEvent::Warning(text) => screen.event(&Event::Warning { text: text.clone() }),
            SessionEvent::Schedule { scans, changes } if output.json => {
                output.event(&told(*scans, changes));
            }
            SessionEvent::Schedule { scans, changes } => {
                screen.event(&Event::Note { text: in_words(*scans, changes) });
            }
        }
    }
}

fn told(scans: usize, changes: &Changes) -> EventJson<'_> {
    let Changes { added, removed, too_late } = changes;
    EventJson::Schedule { scans, added, removed, too_late }
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

/// Prints a sentence between recordings. A sentence that begins with `warning: ` is a warning in JSON as well.
pub fn say(output: Output, text: &str) {
    if !output.json {
        output::say(text);
        return;
    }
    let event = match text.strip_prefix("warning: ") {
        Some(text) => Event::Warning { text: text.to_owned() },
        None => Event::Note { text: text.to_owned() },
    };
    output.event(&event);
}

/// Prints an event as text or JSON, between recordings.
pub fn tell(output: Output, told: &EventJson<'_>, text: impl FnOnce() -> String) {
    if !output.event(told) {
        output::say(text());
    }
}
