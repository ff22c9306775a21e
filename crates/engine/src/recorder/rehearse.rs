//! What can be known of a recording long before its time: whatever would keep it from being armed now.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::arm::{available_memory, share_of};
use super::check::{
    check, check_chunk, check_space, fit_chunk, in_all, judge_redundancy, known_rate,
};
use super::error::RecordError;
use super::event::{Event, Tell};
use super::plan::Plan;
use super::set;
use crate::source::listen;
use crate::store::Member;

/// Receive buffer of a socket that is only tried.
const LITTLE_BUFFER: usize = 1 << 16;

/// What a rehearsal has shown.
#[derive(Debug)]
pub struct Rehearsal {
    /// Whatever would keep the recording from being armed.
    pub problems: Vec<RecordError>,
    /// Bytes per second that it takes of the disk set, if every source says its rate.
    pub rate: Option<u64>,
}

/// Looks at members, their room, memory and ports as they are now. Of what is opened nothing stays, but for the
/// identity of a new member. What is doubtful is told.
pub fn rehearse(plan: &Plan, tell: &mut Tell<'_>) -> Rehearsal {
    let mut problems = Vec::new();
    problems.extend(check(plan).err());
    match set::open(plan, tell) {
        Ok((members, _)) => problems.extend(judge_members(plan, &members, tell).err()),
        Err(error) => problems.push(error),
    }
    if !plan.sources.is_empty() {
        let share = share_of(plan, available_memory());
        problems.extend(share.and_then(|share| check_chunk(plan, share)).err());
    }
    // All of them together, since two may want one port.
    let ports: Vec<_> = plan.sources.iter().map(|it| listen(it, LITTLE_BUFFER)).collect();
    problems.extend(ports.into_iter().filter_map(Result::err).map(RecordError::Port));
    Rehearsal { problems, rate: rate_of(plan) }
}

fn judge_members(plan: &Plan, members: &[Member], tell: &mut Tell<'_>) -> Result<(), RecordError> {
    check_space(plan, members)?;
    fit_chunk(plan, members, tell)?;
    judge_redundancy(plan, members, tell);
    for text in members.iter().flat_map(Member::warnings) {
        tell(&Event::Warning { text: text.clone() });
    }
    Ok(())
}

/// Bytes per second that a recording takes, its redundancy included.
fn rate_of(plan: &Plan) -> Option<u64> {
    let rates: Option<Vec<u64>> = plan.sources.iter().map(known_rate).collect();
    let rate = rates?.into_iter().fold(0, u64::saturating_add);
    Some(rate.saturating_add(plan.redundancy.map_or(0, |it| it.extra(rate, plan.members.len()))))
}

/// Bytes free on all members that are there.
pub fn free_bytes(members: &[PathBuf]) -> u64 {
    in_all(members.iter().filter_map(|root| {
        let device = std::fs::metadata(root).ok()?.dev();
        let status = rustix::fs::statvfs(root).ok()?;
        Some((Some(device), status.f_bavail.saturating_mul(status.f_frsize)))
    }))
}
