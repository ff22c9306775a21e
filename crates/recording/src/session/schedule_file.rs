//! The schedule file: reading it, and warnings about its contents.

use std::path::Path;

use fullbore_core::name::Name;
use fullbore_core::schedule::{LARGEST, Schedule};

use super::error::SessionError;
use super::events::in_a_row;
use crate::options::{OptionError, RecordingOptions};

/// Reads a schedule file.
pub fn read(path: &Path, station: Option<&str>) -> Result<Schedule, SessionError> {
    let unread = |source| SessionError::Read { path: path.to_owned(), source };
    let bytes = std::fs::metadata(path).map_err(unread)?.len();
    if bytes > LARGEST as u64 {
        return Err(SessionError::Size { path: path.to_owned(), bytes });
    }
    let bytes = std::fs::read(path).map_err(unread)?;
    Schedule::read_bytes(&bytes, station)
        .map_err(|source| SessionError::Schedule { path: path.to_owned(), source })
}

/// The session in the options, or the schedule's.
pub fn session_of(options: &RecordingOptions, schedule: &Schedule) -> Result<Name, SessionError> {
    if let Some(session) = options.session.as_deref().filter(|it| !it.is_empty()) {
        let invalid = |source| OptionError::Name { option: "--session", source };
        return Ok(Name::session(session).map_err(invalid)?);
    }
    let named = schedule.session_name().map_err(SessionError::Name)?;
    named.ok_or(SessionError::NoSession)
}

/// Warnings about a schedule: changes that make it recordable, and scans that will be late. `session` is the session of
/// the scans.
pub fn doubts(schedule: &Schedule, options: &RecordingOptions, session: &Name) -> Vec<String> {
    let mut doubts = schedule.notes.clone();
    let short: Vec<&Name> =
        schedule.short_pauses(options.lead()).map(|(_, next)| &next.name).collect();
    if !short.is_empty() {
        let lead = humantime::format_duration(options.lead());
        doubts.push(format!(
            "less than --lead {lead} lies before {}: sealing the scan before and arming the next may take longer, and \
             what it takes is late",
            in_a_row(&short)
        ));
    }
    if let Some(other) = &schedule.session
        && !other.eq_ignore_ascii_case(session.as_str())
    {
        let by_option = options.session.as_ref().is_some_and(|it| !it.is_empty());
        doubts.push(format!(
            "the schedule is of the session {other}, and its scans are recorded in {session}{}",
            if by_option { ", as --session says" } else { ", as it said at first" }
        ));
    }
    doubts
}
