//! Finds earlier parts of a scan in a store: a recorder that died has left the first part of it.
//!
//! The rest of a scan is recorded under a name of its own, `NAME-2`, then `NAME-3`, and so on.

use std::collections::BTreeSet;
use std::path::PathBuf;

use fullbore_core::manifest::{Manifest, State};
use fullbore_core::name::{Name, ScanName};
use fullbore_time::Tai;

use super::inventory::Inventory;

/// The maximum number of parts of one scan.
const MOST_PARTS: usize = 999;

/// The maximum time that a scan may have begun before its scheduled start.
const EARLY_NS: i64 = 1_000_000_000;

/// All scan names in use in a store.
#[derive(Debug)]
pub struct TakenNames {
    roots: Vec<PathBuf>,
    taken: BTreeSet<ScanName>,
}

impl TakenNames {
    /// Lists the members. A member that cannot be read contributes no names.
    pub fn look(roots: &[PathBuf]) -> Self {
        let entries = roots.iter().filter_map(|root| std::fs::read_dir(root).ok()).flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        let scan = |name: std::ffi::OsString| ScanName::of_directory(name.to_str()?);
        let taken = names.filter_map(scan).map(|(scan, _)| scan).collect();
        Self { roots: roots.to_vec(), taken }
    }

    /// Returns true if the name is in use.
    pub fn is_taken(&self, scan: &ScanName) -> bool {
        self.taken.contains(scan)
    }

    /// Returns the first name for a scan that is neither in use nor `kept` for others: its own, or one with a number
    /// behind it.
    pub fn free_name(&self, scan: &ScanName, kept: impl Fn(&Name) -> bool) -> Option<ScanName> {
        let is_free =
            |name: &ScanName| !self.is_taken(name) && (name.scan == scan.scan || !kept(&name.scan));
        names(scan).find(is_free)
    }

    /// Returns the manifests of the parts of a scan recorded from `start` to `end`, in order.
    pub fn parts(&self, scan: &ScanName, start: Tai, end: Tai) -> Vec<Manifest> {
        let there = names(scan).take_while(|name| self.is_taken(name));
        let manifests = there.filter_map(|name| Inventory::take(&self.roots, &name).ok());
        let within = |it: &Manifest| it.armed >= start.plus_ns(-EARLY_NS) && it.armed < end;
        manifests.map(|inventory| inventory.manifest).filter(within).collect()
    }
}

/// Returns true if no more data will be added to the scan.
pub fn is_sealed(manifest: &Manifest) -> bool {
    manifest.state != State::Recording
}

/// Returns `NAME`, `NAME-2`, `NAME-3`, … as far as these are names.
fn names(scan: &ScanName) -> impl Iterator<Item = ScanName> {
    let numbered = (2..=MOST_PARTS).map_while(|number| {
        let scan_name = format!("{}-{number}", scan.scan).parse().ok()?;
        Some(ScanName { session: scan.session.clone(), scan: scan_name })
    });
    std::iter::once(scan.clone()).chain(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_scan_takes_the_next_name_that_is_free() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let roots = [one.path().to_owned(), two.path().to_owned(), "/nowhere".into()];
        let scan: ScanName = "day_no1".parse().unwrap();
        let free = |kept: &str| {
            let free = TakenNames::look(&roots).free_name(&scan, |name| name.as_str() == kept);
            free.unwrap().to_string()
        };
        assert_eq!(free("no1"), "day_no1", "its own name is kept for itself");
        std::fs::create_dir(one.path().join("day_no1_ds46220")).unwrap();
        assert_eq!(free(""), "day_no1-2");
        assert_eq!(free("no1-2"), "day_no1-3", "another scan is to have that name");
        std::fs::create_dir(two.path().join("day_no1-2")).unwrap();
        assert_eq!(free(""), "day_no1-3");
        assert!(TakenNames::look(&roots).parts(&scan, Tai(0), Tai(1)).is_empty());
        let long: ScanName = format!("day_{}", "n".repeat(63)).parse().unwrap();
        std::fs::create_dir(one.path().join(long.to_string())).unwrap();
        assert_eq!(TakenNames::look(&roots).free_name(&long, |_| false), None);
    }
}
