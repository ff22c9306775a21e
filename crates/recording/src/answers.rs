//! Answers of short commands as JSON, the same from the command line (`--json`) and from the daemon.

use std::path::PathBuf;

use fullbore_core::marker::Marker;
use fullbore_core::name::ScanName;
use fullbore_store::markers::Set;
use serde::Serialize;

/// A marker that was set.
#[derive(Clone, Debug, Serialize)]
pub struct Marked {
    /// The scan.
    pub scan: String,
    /// The marker.
    #[serde(flatten)]
    pub marker: Marker,
    /// Streams whose position is not known yet.
    pub open: Vec<String>,
    /// Members that did not store it.
    pub failed: Vec<FailedMember>,
}

/// A member that did not store a marker.
#[derive(Clone, Debug, Serialize)]
pub struct FailedMember {
    /// The member.
    pub member: PathBuf,
    /// The reason.
    pub why: String,
}

impl Marked {
    /// Of a scan and what was set in it.
    pub fn new(scan: &ScanName, set: &Set) -> Self {
        let failed = set
            .failed
            .iter()
            .map(|(member, why)| FailedMember { member: member.clone(), why: why.clone() });
        Self {
            scan: scan.to_string(),
            marker: set.marker.clone(),
            open: set.open.clone(),
            failed: failed.collect(),
        }
    }
}

/// The protection of a scan from removal.
#[derive(Clone, Debug, Serialize)]
pub struct Protected {
    /// The scan.
    pub scan: String,
    /// Whether it is protected now.
    pub protected: bool,
    /// Whether it was before.
    pub before: bool,
}
