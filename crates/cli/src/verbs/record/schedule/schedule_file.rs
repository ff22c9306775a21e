//! The schedule file: reading it, and warnings about its contents.

use std::path::Path;

use anyhow::{Context, bail};
use fullbore_core::name::Name;
use fullbore_core::schedule::{LARGEST, Schedule};

use super::Args;
use super::events::in_a_row;
use crate::hint::explained;

/// Reads a schedule file.
pub fn read(file: &Path, station: Option<&str>) -> anyhow::Result<Schedule> {
    let shown = file.display();
    let bytes = std::fs::metadata(file).with_context(|| format!("{shown}"))?.len();
    if bytes > LARGEST as u64 {
        bail!("{shown} has {bytes} bytes; a schedule has {LARGEST} at most");
    }
    let bytes = std::fs::read(file).with_context(|| format!("{shown}"))?;
    Schedule::read_bytes(&bytes, station).map_err(explained).with_context(|| format!("{shown}"))
}

/// The session that was typed, or the schedule's.
pub fn session_of(args: &Args, schedule: &Schedule) -> anyhow::Result<Name> {
    if !args.session.is_empty() {
        return Name::session(&args.session).context("--session");
    }
    let named = schedule.session_name().map_err(explained)?;
    named.context("the schedule names no session\n  give one with --session")
}

/// Warnings about a schedule: changes that make it recordable, and scans that will be late. `session` is the session of
/// the scans.
pub fn doubts(schedule: &Schedule, args: &Args, session: &Name) -> Vec<String> {
    let mut doubts = schedule.notes.clone();
    let short: Vec<&Name> =
        schedule.short_pauses(args.lead()).map(|(_, next)| &next.name).collect();
    if !short.is_empty() {
        let lead = humantime::format_duration(args.lead());
        doubts.push(format!(
            "less than --lead {lead} lies before {}: sealing the scan before and arming the next may take longer, and \
             what it takes is late",
            in_a_row(&short)
        ));
    }
    if let Some(other) = &schedule.session
        && !other.eq_ignore_ascii_case(session.as_str())
    {
        doubts.push(format!(
            "the schedule is of the session {other}, and its scans are recorded in {session}{}",
            if args.session.is_empty() { ", as it said at first" } else { ", as --session says" }
        ));
    }
    doubts
}
