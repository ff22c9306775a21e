//! The disk set of a recording: opens its members and reports members that are left out.
//!
//! A directory without a member identity becomes a new member. If scans on the other members list this path as a member
//! that is not in the set, its disk is probably not mounted: nothing is created there, unless the user confirms it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use fullbore_core::hint::Hint;
use fullbore_core::manifest::{AbsentMember, MANIFEST_FILE};
use fullbore_core::name::ScanName;
use fullbore_store::inventory::{MEMBER_FILE, Root, read_manifest, side_file};
use fullbore_store::{Member, MemberError};
use uuid::Uuid;

use super::StoreConfig;
use crate::error::RecordError;
use crate::event::{Event, EventHandler};

/// The number of scans, newest first, whose lists of members are read.
const MOST_ASKED: usize = 64;

/// Opens the members. Returns the open members and the missing ones; at least one must be usable.
pub(crate) fn open(
    config: &StoreConfig,
    tell: &mut EventHandler<'_>,
) -> Result<(Vec<Member>, Vec<AbsentMember>), RecordError> {
    let missed = missed(config);
    let mut members: Vec<Member> = Vec::with_capacity(config.members.len());
    let mut away: Vec<(AbsentMember, MemberError)> = Vec::new();
    for path in &config.members {
        let known = config.degraded_start.as_ref().and_then(|known| known.get(path).copied());
        let opened = match (known, missed.get(path)) {
            (Some(uuid), _) => Member::open_again(path, uuid),
            (None, Some(_)) => Err(MemberError::Missed { path: path.clone() }),
            (None, None) => Member::open(path),
        };
        match opened {
            Ok(member) => {
                refuse_twin(path, &member, &members)?;
                members.push(member);
            }
            Err(error) => {
                let goes_on = config.degraded_start.is_some();
                if !goes_on && !matches!(error, MemberError::Missed { .. }) {
                    return Err(error.into());
                }
                let uuid = known.or(missed.get(path).copied());
                away.push((AbsentMember { uuid, path: found_at(path), why: error.cause() }, error));
            }
        }
    }
    if members.is_empty() && !away.is_empty() {
        return Err(away.swap_remove(0).1.into());
    }
    for (paths, why) in by_cause(away.iter().map(|(it, _)| (it.path.clone(), it.why.clone()))) {
        let is_missed = |(it, error): &&(AbsentMember, MemberError)| {
            it.why == why && matches!(error, MemberError::Missed { .. })
        };
        let hint = away.iter().find(is_missed).and_then(|(_, error)| error.hint());
        let hint = hint.map_or(String::new(), |hint| format!(" ({hint})"));
        let text = format!("{} no part: {why}{hint}", verb(&paths, "takes", "take"));
        tell(&Event::Warning { text });
    }
    Ok((members, away.into_iter().map(|(it, _)| it).collect()))
}

fn refuse_twin(path: &Path, member: &Member, others: &[Member]) -> Result<(), RecordError> {
    if others.iter().any(|other| other.root() == member.root()) {
        return Err(RecordError::SameMember { path: path.to_owned() });
    }
    match others.iter().find(|other| other.uuid() == member.uuid()) {
        None => Ok(()),
        Some(twin) => Err(RecordError::SameIdentity {
            first: twin.root().to_owned(),
            second: member.root().to_owned(),
            uuid: member.uuid(),
        }),
    }
}

/// Returns members of this store that scans on the other members list, and that are neither at their path nor anywhere
/// else in the set.
fn missed(config: &StoreConfig) -> BTreeMap<PathBuf, Uuid> {
    let (there, mut bare): (Vec<&PathBuf>, Vec<&PathBuf>) =
        config.members.iter().partition(|path| side_file(path, MEMBER_FILE).exists());
    bare.retain(|path| !config.new_members.contains(path));
    if bare.is_empty() {
        return BTreeMap::new();
    }
    let roots = there.iter().filter_map(|path| Root::open(path).ok());
    let present: BTreeSet<Uuid> = roots.filter_map(|root| root.uuid).collect();
    let were = members_before(&there);
    let missed = bare.into_iter().filter_map(|path| {
        let uuid = were.get(&found_at(path)).filter(|uuid| !present.contains(uuid))?;
        Some((path.clone(), *uuid))
    });
    missed.collect()
}

/// Returns the path and identity of each member in the newest scans on these members.
fn members_before(roots: &[&PathBuf]) -> BTreeMap<PathBuf, Uuid> {
    let mut newest: BTreeMap<ScanName, (SystemTime, PathBuf)> = BTreeMap::new();
    for entry in roots.iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten().flatten() {
        let name = entry.file_name();
        let Some((scan, _)) = name.to_str().and_then(ScanName::of_directory) else { continue };
        let path = side_file(&entry.path(), MANIFEST_FILE);
        let Ok(written) = path.metadata().and_then(|it| it.modified()) else { continue };
        let found = newest.entry(scan).or_insert((written, path.clone()));
        if found.0 < written {
            *found = (written, path);
        }
    }
    let mut manifests: Vec<(SystemTime, PathBuf)> = newest.into_values().collect();
    manifests.sort_unstable_by(|a, b| b.cmp(a));
    let mut were = BTreeMap::new();
    for (_, path) in manifests.into_iter().take(MOST_ASKED) {
        let Some(manifest) = read_manifest(&path).get().cloned() else { continue };
        for member in manifest.members {
            were.entry(member.path).or_insert(member.uuid);
        }
        for AbsentMember { path, uuid, .. } in manifest.away {
            uuid.map(|uuid| were.entry(path).or_insert(uuid));
        }
    }
    were
}

/// Returns a path in the form of manifests, even if nothing exists there.
fn found_at(path: &Path) -> PathBuf {
    let canonical = |path: &Path| path.canonicalize().ok();
    let beside = || Some(canonical(path.parent()?)?.join(path.file_name()?));
    canonical(path).or_else(beside).unwrap_or_else(|| path.to_owned())
}

/// Groups members by cause, so that one report covers several members.
pub(super) fn by_cause(
    all: impl IntoIterator<Item = (PathBuf, String)>,
) -> Vec<(Vec<PathBuf>, String)> {
    let mut causes: Vec<(Vec<PathBuf>, String)> = Vec::new();
    for (path, why) in all {
        match causes.iter_mut().find(|(_, other)| *other == why) {
            Some((paths, _)) if paths.contains(&path) => {}
            Some((paths, _)) => paths.push(path),
            None => causes.push((vec![path], why)),
        }
    }
    causes
}

/// The beginning of a sentence about members.
pub(super) fn verb(paths: &[PathBuf], one: &str, several: &str) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    format!("{} {}", names.join(", "), if paths.len() == 1 { one } else { several })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_to_several_members_is_told_once() {
        let all = [("/a", "full"), ("/b", "gone"), ("/c", "full"), ("/a", "full")];
        let all = all.map(|(path, why)| (PathBuf::from(path), why.to_owned()));
        let told: Vec<String> = by_cause(all)
            .iter()
            .map(|(paths, why)| format!("{} no part: {why}", verb(paths, "takes", "take")))
            .collect();
        assert_eq!(told, ["/a, /c take no part: full", "/b takes no part: gone"]);
    }
}
