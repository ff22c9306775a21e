//! Makes jobs of the sealed scans that rules name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fullbore_core::name::ScanName;
use fullbore_store::catalogue::{self, Entry, ScanState};

use super::carrier::Carrier;
use super::error::QueueError;
use super::files::{Added, Queue, now, sessions};
use super::job::{Job, Rule, VERSION};

/// Makes a job of each sealed scan that a rule names and that has no job of it and no receipt of its destination. Stores
/// that cannot be read now are looked at the next time. Returns the new jobs.
pub fn apply(queue: &Queue, carrier: &dyn Carrier) -> Result<Vec<Added>, QueueError> {
    let rules = queue.rules()?.items;
    if rules.is_empty() {
        return Ok(Vec::new());
    }
    let known = queue.jobs()?.items;
    let mut stores: BTreeMap<&Vec<PathBuf>, Vec<ScanName>> = BTreeMap::new();
    let mut wanted = Vec::new();
    for (id, rule) in &rules {
        let sealed = stores.entry(&rule.store).or_insert_with(|| sealed(&rule.store));
        let there: BTreeSet<&ScanName> = known
            .values()
            .filter(|job| job.target.to == rule.target.to && job.store == rule.store)
            .map(|job| &job.scan)
            .collect();
        let pattern = sessions(&rule.sessions)?;
        let named = sealed.iter().filter(|scan| pattern.matches(scan.session.as_str()));
        let lacking = named.filter(|scan| {
            !there.contains(scan) && !carrier.has_receipt(&rule.target, &rule.store, scan)
        });
        wanted.extend(lacking.map(|scan| job(*id, rule, scan)));
    }
    forget_removed(queue, &known, &stores)?;
    let mut added = queue.add(wanted)?;
    added.retain(|it| it.new);
    Ok(added)
}

/// Removes what keeps a rule from making a job of a scan again, when the scan is gone.
fn forget_removed(
    queue: &Queue,
    known: &BTreeMap<u64, Job>,
    stores: &BTreeMap<&Vec<PathBuf>, Vec<ScanName>>,
) -> Result<(), QueueError> {
    for (id, job) in known.iter().filter(|(_, job)| job.removed) {
        // A store that cannot be read has no scans either; only an empty list of a store that is there counts.
        let there = job.store.iter().all(|member| member.is_dir());
        let gone = stores.get(&job.store).is_some_and(|scans| !scans.contains(&job.scan));
        if there && gone {
            queue.forget(*id)?;
        }
    }
    Ok(())
}

/// The sealed scans of a store. A copy that has not arrived completely is none.
fn sealed(store: &[PathBuf]) -> Vec<ScanName> {
    let Ok(listed) = catalogue::list(store) else { return Vec::new() };
    let is_sealed = |it: &&Entry| {
        let state =
            matches!(it.state, ScanState::Sealed | ScanState::Aborted | ScanState::Recovered);
        state && it.incomplete_from.is_none()
    };
    listed.entries.iter().filter(is_sealed).filter_map(|it| it.name.parse().ok()).collect()
}

fn job(id: u64, rule: &Rule, scan: &ScanName) -> Job {
    Job {
        version: VERSION,
        scan: scan.clone(),
        store: rule.store.clone(),
        target: rule.target.clone(),
        wishes: rule.wishes.clone(),
        paused: false,
        removed: false,
        resumed: 0,
        rule: Some(id),
        added: now(),
    }
}
