//! What a session reports.

use fullbore_core::name::Name;
use fullbore_engine::recorder::Event;
use fullbore_time::Tai;
use serde::Serialize;

/// An event of a session.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum SessionEvent {
    /// The next scan is awaited. Told once a minute.
    Waiting {
        /// The scan.
        scan: Name,
        /// Its planned start.
        start: Tai,
        /// Seconds until then.
        seconds: f64,
    },
    /// A scan is going to be armed, and recorded until [`Over`](Self::Over).
    Arming {
        /// The scan.
        scan: Name,
    },
    /// The scan that was armed, or could not be, is over.
    Over {
        /// The scan.
        scan: Name,
    },
    /// A scan was over before it could be armed.
    Missed {
        /// The scan.
        scan: Name,
        /// Its planned start.
        start: Tai,
        /// Its planned end.
        #[serde(skip)]
        end: Tai,
    },
    /// A scan was recorded before the session was restarted.
    RecordedBefore {
        /// The session.
        #[serde(skip)]
        session: Name,
        /// The scan.
        scan: Name,
        /// Its planned start.
        start: Tai,
        /// Its parts in the store.
        parts: Vec<Name>,
        /// The unsealed parts.
        unsealed: Vec<Name>,
    },
    /// The space that the remaining scans need, and the scan that fills the disk set.
    Room {
        /// The number of remaining scans.
        scans: usize,
        /// Bytes per second.
        rate: u64,
        /// Bytes of all remaining scans.
        needed_bytes: u64,
        /// Bytes free on the disk set.
        free_bytes: u64,
        /// The scan that fills the disk set.
        fills: Option<Name>,
        /// The time at which the disk set is full.
        full: Option<Tai>,
    },
    /// The schedule was read again.
    Schedule {
        /// The number of scans ahead.
        scans: usize,
        /// Scans that are new or have another time.
        added: Vec<Name>,
        /// Scans that were removed.
        removed: Vec<Name>,
        /// Scans that have another time, but were armed or missed already.
        too_late: Vec<Name>,
    },
    /// An event of the recorder, or a warning or a note of the session.
    #[serde(untagged)]
    Recording(Event),
}

/// The handler of the events of a session.
pub type SessionEventHandler<'a> = dyn FnMut(&SessionEvent) + 'a;

impl SessionEvent {
    pub(super) fn warning(text: impl Into<String>) -> Self {
        Self::Recording(Event::Warning { text: text.into() })
    }

    pub(super) fn note(text: impl Into<String>) -> Self {
        Self::Recording(Event::Note { text: text.into() })
    }
}

/// The first few of many names.
pub(super) fn in_a_row(names: &[&Name]) -> String {
    const SHOWN: usize = 6;
    let mut text =
        names.iter().take(SHOWN).map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    if let more @ 1.. = names.len().saturating_sub(SHOWN) {
        text += &format!(" and {more} others");
    }
    text
}

/// `1 scan`, `2 scans`.
pub(super) fn count(number: usize) -> String {
    format!("{number} scan{}", if number == 1 { "" } else { "s" })
}
