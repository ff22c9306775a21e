//! How long members took for their longest write in the scans of the store.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fullbore_core::account::Host;
use fullbore_core::name::ScanName;
use fullbore_store::catalogue::{self, Entry, ScanState};
use fullbore_store::reader::Scan;
use fullbore_time::Tai;
use serde::Serialize;
use utoipa::ToSchema;

/// Scans that are shown: the newest.
const SHOWN: usize = 60;

/// The writes of a scan.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ScanWrites {
    /// The scan.
    pub scan: String,
    /// Its start.
    #[schema(value_type = Option<String>)]
    pub start: Option<Tai>,
    /// The longest write of a block by each member, in nanoseconds.
    pub longest_write_ns: BTreeMap<String, u64>,
}

/// The writes of sealed scans, each of which is read once.
#[derive(Default)]
pub(super) struct Cache(BTreeMap<String, ScanWrites>);

impl Cache {
    pub(super) fn look(&mut self, members: &[PathBuf]) -> Vec<ScanWrites> {
        // A store that cannot be read is shown as such elsewhere.
        let mut scans = catalogue::list(members).map(|it| it.entries).unwrap_or_default();
        scans.retain(|it| it.state != ScanState::Recording && it.completeness.is_some());
        scans.sort_by_key(|it| it.start);
        let newest = scans.split_off(scans.len().saturating_sub(SHOWN));
        self.0.retain(|name, _| newest.iter().any(|it| it.name == *name));
        newest.iter().filter_map(|it| self.of(members, it)).collect()
    }

    fn of(&mut self, members: &[PathBuf], entry: &Entry) -> Option<ScanWrites> {
        if let Some(known) = self.0.get(&entry.name).filter(|it| it.start == entry.start) {
            return Some(known.clone());
        }
        let name: ScanName = entry.name.parse().ok()?;
        let scan = Scan::open(members, &name).ok()?;
        let accounts = scan.streams.iter().filter_map(|it| it.account.as_ref());
        let longest_write_ns = longest(accounts.filter_map(|it| it.host.as_ref()));
        let found = ScanWrites { scan: entry.name.clone(), start: entry.start, longest_write_ns };
        self.0.insert(entry.name.clone(), found.clone());
        Some(found)
    }
}

/// The longest write of each member, over all streams.
fn longest<'a>(hosts: impl Iterator<Item = &'a Host>) -> BTreeMap<String, u64> {
    let mut longest = BTreeMap::new();
    for member in hosts.flat_map(|it| &it.members) {
        let most = longest.entry(member.path.clone()).or_insert(0);
        *most = member.longest_write_ns.max(*most);
    }
    longest
}

#[cfg(test)]
mod tests {
    use fullbore_core::account::HostMember;

    use super::*;

    #[test]
    fn the_longest_write_of_all_streams_counts() {
        let member = |path: &str, longest_write_ns| HostMember {
            path: path.into(),
            longest_write_ns,
            failure: None,
        };
        let host = |members| Host { members, ..Host::default() };
        let one = host(vec![member("/m0", 5), member("/m1", 9)]);
        let other = host(vec![member("/m0", 7), member("/m1", 2)]);
        let longest = longest([&one, &other].into_iter());
        assert_eq!(longest, BTreeMap::from([("/m0".into(), 7), ("/m1".into(), 9)]));
    }
}
