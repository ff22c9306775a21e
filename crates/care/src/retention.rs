//! Retention: keeps a store within a size or an age, and protects scans from removal.
//!
//! A protected scan has a file `protected` beside each of its streams, on every member, so that it stays protected
//! wherever a member is moved. [`remove`] refuses it.

use std::fmt;
use std::path::PathBuf;

use fullbore_core::name::ScanName;
use fullbore_core::retention::{RetentionCandidate, RetentionPlan, RetentionRule};
use fullbore_store::catalogue::{self, Entry, ScanState};
use fullbore_store::lock::put_file;
use fullbore_store::protection::PROTECTED_FILE;
use fullbore_time::Tai;

use super::remove::{self, Removed, holdings};

/// Protects a scan from removal, or ends the protection. Returns true if it was protected before.
///
/// # Errors
///
/// The scan does not exist, or its directories cannot be written.
pub fn protect(roots: &[PathBuf], scan: &ScanName, on: bool) -> Result<bool, remove::Error> {
    let mut before = false;
    for holding in holdings(roots, &scan.to_string())? {
        let path = holding.side(PROTECTED_FILE);
        before |= path.exists();
        let done = match on {
            true => put_file(&path, b""),
            false => match std::fs::remove_file(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                other => other,
            },
        };
        done.map_err(|source| remove::Error::File { path, source })?;
    }
    Ok(before)
}

/// The result of applying retention.
#[derive(Debug, Default)]
pub struct RetentionResult {
    /// The removed scans.
    pub removed: Vec<Removed>,
    /// Scans that could not be removed, with the errors.
    pub stayed: Vec<(String, remove::Error)>,
    /// Scans that must not be removed and prevent the limit from being met.
    pub in_the_way: Vec<(String, KeepReason)>,
}

/// The reason that a scan must not be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepReason {
    /// The scan is protected.
    Protected,
    /// The scan is being recorded.
    Recording,
    /// The recorder died.
    Unsealed,
    /// No copy of its manifest can be read.
    Broken,
    /// Members that hold a part of it are absent.
    Away(Vec<PathBuf>),
    /// Only scans with a copy elsewhere may be removed, and no other host has sent a receipt.
    NotCopied,
}

impl KeepReason {
    /// Returns the reason why this scan must not be removed, if there is one. With `copied`, it needs a receipt.
    fn of(entry: &Entry, copied: bool) -> Option<Self> {
        match entry.state {
            _ if entry.protected => Some(KeepReason::Protected),
            ScanState::Recording => Some(KeepReason::Recording),
            ScanState::Unsealed => Some(KeepReason::Unsealed),
            ScanState::Broken => Some(KeepReason::Broken),
            _ if !entry.absent.is_empty() => Some(KeepReason::Away(entry.absent.clone())),
            _ if copied && entry.copies == 0 => Some(KeepReason::NotCopied),
            ScanState::Sealed | ScanState::Aborted | ScanState::Recovered => None,
        }
    }
}

impl fmt::Display for KeepReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeepReason::Protected => write!(f, "it is protected"),
            KeepReason::Recording => write!(f, "it is being recorded"),
            KeepReason::Unsealed => write!(f, "it is not sealed"),
            KeepReason::Broken => write!(f, "it is broken"),
            KeepReason::NotCopied => write!(f, "no other host has sent a receipt for it"),
            KeepReason::Away(members) => {
                let members: Vec<_> = members.iter().map(|it| it.display().to_string()).collect();
                write!(f, "a part of it is on {}, which is not attached", members.join(", "))
            }
        }
    }
}

/// Removes the oldest finished scans, so that the rest is within the limit. By the rule `copied`, a scan is removed only
/// if a receipt proves a copy of it elsewhere, whole and unchanged.
///
/// # Errors
///
/// The store cannot be listed. A scan that cannot be removed is reported in the result and does not prevent the removal
/// of others.
pub fn keep(
    roots: &[PathBuf],
    rule: impl Into<RetentionRule>,
    now: Tai,
) -> Result<RetentionResult, catalogue::Error> {
    let RetentionRule { limit, copied } = rule.into();
    let entries = catalogue::list(roots)?.entries;
    let held: Vec<RetentionCandidate> = entries
        .iter()
        .map(|entry| RetentionCandidate {
            bytes: entry.bytes,
            ended: entry.start.map(|start| start.plus_ns(entry.duration_ns.unwrap_or(0))),
            may_go: KeepReason::of(entry, false).is_none(),
            lacks_copy: copied && entry.copies == 0,
        })
        .collect();
    let RetentionPlan { go, in_the_way } = limit.choose(&held, now);
    let mut kept = RetentionResult::default();
    for entry in in_the_way.into_iter().map(|place| &entries[place]) {
        kept.in_the_way.extend(KeepReason::of(entry, copied).map(|why| (entry.name.clone(), why)));
    }
    for place in go {
        let name = entries[place].name.clone();
        let Ok(scan) = name.parse::<ScanName>() else { continue };
        let removed = match copied {
            true => remove::remove_copied(roots, &scan, &|_, _| {}),
            false => remove::remove(roots, &scan),
        };
        match removed {
            Ok(removed) => kept.removed.push(removed),
            Err(error) => kept.stayed.push((name, error)),
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use fullbore_core::retention::Retention;
    use fullbore_core::units::ByteSize;
    use fullbore_store::copies::{self, Digest, Receipt, Unproven};
    use fullbore_store::reader::Scan;
    use fullbore_store::testing::{Store, StreamPlan};

    use super::*;

    fn names(store: &Store) -> Vec<String> {
        let entries = catalogue::list(&store.roots()).unwrap().entries;
        entries.into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn unsealed_and_protected_scans_stay_whatever_the_size() {
        let store = Store::new(2);
        for scan in ["r1_a", "r1_b", "r1_c"] {
            store.lay_down(scan, &[StreamPlan::vdif("a")]);
        }
        store.lay_down("r1_d", &[StreamPlan::vdif("a").unsealed()]);
        let protected: ScanName = "r1_b".parse().unwrap();
        assert!(!protect(&store.roots(), &protected, true).unwrap());
        assert!(protect(&store.roots(), &protected, true).unwrap(), "it was before");
        let error = remove::remove(&store.roots(), &protected).unwrap_err();
        assert!(matches!(error, remove::Error::Protected { .. }), "{error}");
        let kept = keep(&store.roots(), Retention::Size(ByteSize(1)), Tai(i64::MAX)).unwrap();
        assert_eq!(names(&store), ["r1_b", "r1_c", "r1_d"], "the newest stays too");
        assert_eq!(kept.removed.len(), 1);
        assert!(kept.stayed.is_empty());
        // Only the start of an unsealed scan is known.
        let in_the_way = [("r1_d", KeepReason::Unsealed), ("r1_b", KeepReason::Protected)];
        assert_eq!(kept.in_the_way, in_the_way.map(|(scan, why)| (scan.to_owned(), why)));
        protect(&store.roots(), &protected, false).unwrap();
        keep(&store.roots(), Retention::Size(ByteSize(1)), Tai(i64::MAX)).unwrap();
        assert_eq!(names(&store), ["r1_c", "r1_d"]);
    }

    #[test]
    fn a_scan_that_cannot_go_costs_no_newer_one_and_is_named() {
        let mut store = Store::new(3);
        store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let roots = store.roots();
        let away = store.split_off(2);
        for scan in ["r1_b", "r1_c", "r1_d"] {
            store.lay_down(scan, &[StreamPlan::vdif("a")]);
        }
        let entries = catalogue::list(&store.roots()).unwrap().entries;
        let size = Retention::Size(ByteSize(entries[2].bytes + entries[3].bytes));
        let kept = keep(&store.roots(), size, Tai(i64::MAX)).unwrap();
        let removed: Vec<&str> = kept.removed.iter().map(|it| it.scan.as_str()).collect();
        assert_eq!(removed, ["r1_b"], "what is newer stays as if the old one were gone");
        assert_eq!(kept.in_the_way, [("r1_a".to_owned(), KeepReason::Away(away.roots()))]);
        // With all its members present the scan is removed, and nothing is in the way any more.
        let kept = keep(&roots, size, Tai(i64::MAX)).unwrap();
        assert_eq!((kept.removed.len(), kept.in_the_way.len()), (1, 0));
        assert_eq!(names(&store), ["r1_c", "r1_d"]);
    }

    fn receipt(store: &Store, name: &str) -> Receipt {
        let scan = Scan::open(&store.roots(), &name.parse().unwrap()).unwrap();
        Receipt {
            host: "far".into(),
            key: "aa".into(),
            scan: scan.manifest.uuid,
            blocks: scan.streams.iter().map(|it| it.blocks.len() as u64).sum(),
            bytes: scan.manifest.bytes(),
            digest: Digest(copies::digest_of(&scan)),
            at: Tai(0),
        }
    }

    #[test]
    fn by_the_rule_copied_only_what_is_proven_elsewhere_is_removed() {
        let store = Store::new(2);
        for scan in ["r1_a", "r1_b", "r1_c", "r1_d"] {
            store.lay_down(scan, &[StreamPlan::vdif("a")]);
        }
        for (scan, change) in [("r1_a", 0), ("r1_c", 1), ("r1_d", 0)] {
            let mut receipt = receipt(&store, scan);
            receipt.digest.0[0] ^= change;
            copies::add(&store.roots(), &scan.parse().unwrap(), &receipt).unwrap();
        }
        let rule: RetentionRule = "1B,copied".parse().unwrap();
        let kept = keep(&store.roots(), rule, Tai(i64::MAX)).unwrap();
        let removed: Vec<&str> = kept.removed.iter().map(|it| it.scan.as_str()).collect();
        assert_eq!(removed, ["r1_a"], "the newest stays");
        assert!(kept.removed[0].kept.is_empty(), "receipts go with their scan");
        assert_eq!(kept.in_the_way, [("r1_b".to_owned(), KeepReason::NotCopied)]);
        let [(scan, error)] = &kept.stayed[..] else { panic!("{:?}", kept.stayed) };
        let differs = matches!(error, remove::Error::Unproven { why: Unproven::Differs, .. });
        assert!(scan == "r1_c" && differs, "{error}");
        assert_eq!(names(&store), ["r1_b", "r1_c", "r1_d"]);
        keep(&store.roots(), Retention::Size(ByteSize(1)), Tai(i64::MAX)).unwrap();
        assert_eq!(names(&store), ["r1_d"]);
    }

    #[test]
    fn a_scan_is_removed_as_copied_only_with_a_valid_receipt() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let remove = || remove::remove_copied(&store.roots(), &laid.name, &|_, _| {});
        let refused = remove().unwrap_err();
        assert!(matches!(refused, remove::Error::Unproven { why: Unproven::NoReceipt, .. }));
        copies::add(&store.roots(), &laid.name, &receipt(&store, "r1_a")).unwrap();
        let refused =
            remove::remove_copied(&store.roots()[..1], &laid.name, &|_, _| {}).unwrap_err();
        assert!(refused.to_string().contains("not proven elsewhere"), "{refused}");
        assert!(remove().unwrap().kept.is_empty());
        assert!(names(&store).is_empty());
    }

    #[test]
    fn one_member_with_the_mark_is_enough() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        protect(&store.roots(), &laid.name, true).unwrap();
        std::fs::remove_file(laid.directory(0, 0).join(".fullbore/protected")).unwrap();
        assert!(catalogue::list(&store.roots()).unwrap().entries[0].protected);
        assert!(remove::remove(&store.roots(), &laid.name).is_err());
    }
}
