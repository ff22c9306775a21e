//! Preflight: checks a recording before its time and lists what would prevent arming it now.

use std::path::PathBuf;

use super::check::{check, needs};
use super::config::RecordingConfig;
use super::memory::{for_blocks, pool_sizes};
use crate::error::RecordError;
use crate::event::EventHandler;
use crate::sink::{Sinks, device_of, free_in_all};

/// The result of a preflight.
#[derive(Debug)]
pub struct PreflightReport {
    /// The problems that would prevent arming.
    pub problems: Vec<RecordError>,
    /// Bytes per second to all sinks, if all sources state their rate.
    pub rate: Option<u64>,
}

/// Checks members, their free space, memory and ports as they are now. Everything opened is closed again; only the
/// identity of a new member stays. Doubtful points are reported as warnings.
pub fn preflight(plan: &RecordingConfig, tell: &mut EventHandler<'_>) -> PreflightReport {
    let mut problems = Vec::new();
    problems.extend(check(plan).err());
    problems.extend(Sinks::open(&plan.sinks, &needs(plan), tell).err());
    problems.extend(pool_sizes(plan, for_blocks(plan)).err());
    // Everything is held together, because two sources may want the same port.
    let held: Vec<_> = plan.sources.iter().map(|source| source.preflight()).collect();
    problems.extend(held.into_iter().filter_map(Result::err));
    PreflightReport { problems, rate: planned_rate(plan) }
}

/// Returns a warning about disks that are slower than the sources, if neither block memory nor the pause behind the
/// recording makes up for it.
pub fn slow_disks(plan: &RecordingConfig) -> Option<String> {
    super::memory::slow_disks(plan, for_blocks(plan))
}

/// Returns the bytes per second that a recording writes into all sinks, including redundancy. `None` if a source does not
/// state its rate.
pub fn planned_rate(plan: &RecordingConfig) -> Option<u64> {
    let rates: Option<Vec<u64>> = plan.sources.iter().map(|source| source.rate()).collect();
    let rate = rates?.into_iter().fold(0, u64::saturating_add);
    let stores = plan.sinks.iter().filter_map(|sink| sink.store());
    let extra = stores
        .filter_map(|store| Some(store.redundancy?.extra(rate, store.members.len())))
        .fold(0, u64::saturating_add);
    Some(rate.saturating_mul(plan.sinks.len() as u64).saturating_add(extra))
}

/// Returns the bytes free on all members that exist.
pub fn free_bytes(members: &[PathBuf]) -> u64 {
    free_in_all(members.iter().filter_map(|root| {
        let status = rustix::fs::statvfs(root).ok()?;
        Some((device_of(root), status.f_bavail.saturating_mul(status.f_frsize)))
    }))
}
