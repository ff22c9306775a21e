//! Events of a PandA's capture, besides the acquisitions.

use serde::Serialize;

use crate::name::Name;

/// An event of the capture thread, besides the acquisitions.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum SourceEvent {
    /// The data port accepted a connection.
    Connected {
        /// The number of the connection, counted from 1.
        connection: u64,
    },
    /// The PandA is armed.
    PandaArmed,
    /// The acquisition was joined again after its connection was lost.
    Rejoined {
        /// Samples between the two connections. No connection delivers them.
        gap: u64,
    },
    /// The connection was lost.
    Lost {
        /// The reason.
        why: String,
    },
    /// The armed acquisition brought no samples: it ran while there was no connection, or was disarmed first.
    Unseen {
        /// Samples that the PandA counted in it, if it answered.
        samples: Option<u64>,
    },
    /// The PandA could not be disarmed after this recorder had armed it.
    StaysArmed {
        /// The reason.
        why: String,
    },
}

/// A report of a source with a connection.
#[derive(Clone, Debug, Serialize)]
pub struct SourceReport {
    /// The stream.
    pub stream: Name,
    /// The report.
    #[serde(flatten)]
    pub event: SourceEvent,
}
