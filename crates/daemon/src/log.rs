//! The log of the station: its newest entries, for the dashboard.
//!
//! A layer of `tracing` collects them. What the daemon logs and what recorders tell it are there, whether or not the
//! daemon also logs on standard error. The audit log is apart, because not everybody may read it.

use std::collections::VecDeque;
use std::fmt::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use utoipa::ToSchema;

/// Entries that are kept: the newest.
pub const KEPT: usize = 5000;

/// The longest text of an entry, in bytes.
pub const LONGEST: usize = 2000;

/// The target of audit lines.
pub const AUDIT: &str = "fullbore::audit";

/// How serious an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
#[schema(as = LogLevel)]
pub enum Level {
    /// What happens in normal work.
    Info,
    /// A problem that does not end anything.
    Warning,
    /// Something failed.
    Error,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = LogEntry)]
pub struct Entry {
    /// Its number: 1, 2 and so on since the daemon started.
    pub number: u64,
    /// Its time.
    #[schema(value_type = String)]
    pub time: Tai,
    /// How serious it is.
    pub level: Level,
    /// The recording, if it concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<String>,
    /// What happened.
    pub text: String,
}

/// Which entries are wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Only those with a smaller number.
    pub before: u64,
    /// Only those that are at least so serious.
    pub level: Level,
    /// Only those of this recording.
    pub recording: Option<String>,
    /// Only those whose text contains this.
    pub contains: String,
    /// The most entries.
    pub limit: usize,
}

/// Entries in the order asked for.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = LogPage)]
pub struct Page {
    /// The entries, the newest first.
    pub entries: Vec<Entry>,
    /// The value of `before` for the next page. Null on the last one.
    pub next: Option<u64>,
}

/// The log. Clones are handles of the same.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Ring>>);

#[derive(Debug, Default)]
struct Ring {
    entries: VecDeque<Entry>,
    last: u64,
}

impl Log {
    /// Adds an entry, in place of the oldest one if there are too many.
    pub fn add(&self, level: Level, recording: Option<String>, mut text: String) {
        if text.len() > LONGEST {
            let borders = (0..=LONGEST).rev().find(|at| text.is_char_boundary(*at));
            text.truncate(borders.unwrap_or(0));
            text.push('…');
        }
        let time = Clock::new().now();
        let mut ring = self.lock();
        ring.last += 1;
        let number = ring.last;
        if ring.entries.len() == KEPT {
            ring.entries.pop_front();
        }
        ring.entries.push_back(Entry { number, time, level, recording, text });
    }

    /// A page of entries.
    pub fn page(&self, wanted: &Wanted) -> Page {
        let ring = self.lock();
        let is_of = |it: &&Entry| {
            it.number < wanted.before
                && it.level >= wanted.level
                && wanted.recording.as_ref().is_none_or(|of| it.recording.as_ref() == Some(of))
                && it.text.contains(&wanted.contains)
        };
        let mut found = ring.entries.iter().rev().filter(is_of);
        let entries: Vec<Entry> = found.by_ref().take(wanted.limit).cloned().collect();
        let next = entries.last().map(|it| it.number).filter(|_| found.next().is_some());
        Page { entries, next }
    }

    /// The entries after a number, the oldest first: at most so many, and of more than that the newest.
    pub fn after(&self, number: u64, most: usize) -> Vec<Entry> {
        let ring = self.lock();
        let mut newest: Vec<Entry> = ring
            .entries
            .iter()
            .rev()
            .take_while(|it| it.number > number)
            .take(most)
            .cloned()
            .collect();
        newest.reverse();
        newest
    }

    /// The number of the newest entry; 0 if there is none.
    pub fn last(&self) -> u64 {
        self.lock().last
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() == AUDIT {
            return;
        }
        let level = match *metadata.level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warning,
            _ => Level::Info,
        };
        let mut said = Said::default();
        event.record(&mut said);
        self.add(level, said.recording, said.text + &said.fields);
    }
}

/// The fields of an event as text.
#[derive(Default)]
struct Said {
    text: String,
    fields: String,
    recording: Option<String>,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a text cannot fail.
        let _ = match field.name() {
            "message" => write!(self.text, "{value:?}"),
            "recording" => {
                self.recording = Some(format!("{value:?}"));
                Ok(())
            }
            name => write!(self.fields, "; {name}: {value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tracing_subscriber::prelude::*;

    use super::*;

    fn all() -> Wanted {
        let (before, limit) = (u64::MAX, usize::MAX);
        Wanted { before, level: Level::Info, recording: None, contains: String::new(), limit }
    }

    #[test]
    fn what_is_logged_is_kept_with_its_fields_and_audit_lines_are_not() {
        let log = Log::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(schedule = "vgos", count = 3, "a schedule is not recorded");
            tracing::error!(recording = %"id", "{} is lost", "a frame");
            tracing::info!(target: AUDIT, "audit");
            tracing::info!("{}", "x".repeat(9000));
        });
        let page = log.page(&all());
        let texts: Vec<&str> = page.entries.iter().rev().map(|it| it.text.as_str()).collect();
        assert_eq!(texts[0], "a schedule is not recorded; schedule: vgos; count: 3");
        assert_eq!(
            (texts[1], page.entries[1].recording.as_deref()),
            ("a frame is lost", Some("id"))
        );
        assert_eq!((texts.len(), page.entries[1].level), (3, Level::Error));
        assert!(texts[2].len() < LONGEST + 9);
        let errors = log.page(&Wanted { level: Level::Error, ..all() });
        assert_eq!(errors.entries.len(), 1);
        let of_schedule = log.page(&Wanted { contains: "vgos".into(), ..all() });
        assert_eq!(of_schedule.entries[0].number, 1);
        let of_recording = log.page(&Wanted { recording: Some("id".into()), ..all() });
        assert_eq!(of_recording.entries[0].number, 2);
    }

    #[test]
    fn the_oldest_entries_go() {
        let log = Log::default();
        for number in 0..KEPT + 7 {
            log.add(Level::Info, None, number.to_string());
        }
        let page = log.page(&all());
        assert_eq!((page.entries.len(), page.entries.last().unwrap().number), (KEPT, 8));
        assert_eq!(
            log.after(log.last() - 3, 2).iter().map(|it| it.number).collect::<Vec<_>>(),
            [KEPT as u64 + 6, KEPT as u64 + 7]
        );
    }

    proptest! {
        #[test]
        fn pages_have_each_entry_once(levels in prop::collection::vec(0_u8..3, 0..50), limit in 1_usize..9) {
            let log = Log::default();
            for level in &levels {
                let level = [Level::Info, Level::Warning, Level::Error][usize::from(*level)];
                log.add(level, None, String::new());
            }
            for level in [Level::Info, Level::Warning, Level::Error] {
                let whole = log.page(&Wanted { level, ..all() });
                prop_assert_eq!(whole.next, None);
                let (mut paged, mut before) = (Vec::new(), u64::MAX);
                loop {
                    let page = log.page(&Wanted { level, before, limit, ..all() });
                    prop_assert!(page.entries.len() <= limit);
                    paged.extend(page.entries);
                    let Some(next) = page.next else { break };
                    before = next;
                }
                prop_assert_eq!(&paged, &whole.entries);
            }
        }
    }
}
