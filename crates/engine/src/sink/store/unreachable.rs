//! Finds frames that were written to a member that cannot be read when its scan is sealed: the member was unmounted, or
//! its files were removed.
//!
//! A member can fail long after its chunks became durable. Their frames were written, so they stay in the balance. If
//! they can no longer be read, the account says so, and the scan is not complete until they can.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::Builder;
use std::time::Instant;

use fullbore_core::account::{Account, Unreachable};
use fullbore_core::manifest::Manifest;
use fullbore_store::reader::{Presence, Scan, StoredStream};
use fullbore_store::stall_hooks;

use super::metadata_writer::PATIENCE;

/// Enters the frames that cannot be reached under `roots` into the accounts.
pub fn find_unreachable(
    roots: &[PathBuf],
    manifest: &Manifest,
    accounts: &mut BTreeMap<u16, Account>,
) {
    let scan = Scan::open(&responding(roots), &manifest.scan).ok();
    let members = members_to_name(scan.as_ref(), roots, manifest);
    for (number, account) in accounts {
        let stored = scan.as_ref().and_then(|scan| scan.streams.get(usize::from(*number)));
        let frames = account.terms.written.saturating_sub(stored.map_or(0, reachable));
        account.unreachable =
            (frames > 0).then(|| Unreachable { frames, members: members.clone() });
    }
}

/// Returns the directories that respond within [`PATIENCE`]. Others would block this thread.
fn responding(roots: &[PathBuf]) -> Vec<PathBuf> {
    let (tell, told) = mpsc::channel();
    for root in roots.iter().cloned() {
        let tell = tell.clone();
        let _ = Builder::new().name("reach".into()).spawn(move || {
            stall_hooks::at(&root);
            if root.read_dir().is_ok() {
                // The receiver may be gone; ignore the error.
                let _ = tell.send(root);
            }
        });
    }
    drop(tell);
    let until = Instant::now() + PATIENCE;
    let next = || told.recv_timeout(until.saturating_duration_since(Instant::now())).ok();
    let mut found: Vec<PathBuf> = std::iter::from_fn(next).collect();
    found.sort_by_key(|root| roots.iter().position(|it| it == root));
    found
}

/// Frames whose blocks are in place, or can be restored from their stripe.
fn reachable(stream: &StoredStream) -> u64 {
    let blocks = stream.blocks.iter();
    let there = blocks.filter(|it| it.presence == Presence::Whole || it.stripe.is_some());
    there.map(|it| u64::from(it.block.present)).sum()
}

/// The members that are absent. If none is, files are missing on those that failed.
fn members_to_name(scan: Option<&Scan>, roots: &[PathBuf], manifest: &Manifest) -> Vec<String> {
    let used = manifest.members.iter().filter(|member| roots.contains(&member.path));
    let absent = scan.map(|scan| scan.inventory.absent_members());
    let is_absent = |uuid| absent.as_ref().is_none_or(|all| all.iter().any(|it| it.uuid == uuid));
    let (gone, there): (Vec<_>, Vec<_>) = used.partition(|member| is_absent(member.uuid));
    let named = match gone.is_empty() {
        true => there.into_iter().filter(|member| member.failure.is_some()).collect(),
        false => gone,
    };
    named.into_iter().map(|member| member.path.display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{remove_dir_all, remove_file, rename};

    use fullbore_core::account::Verdict;
    use fullbore_store::testing::{Laid, Store, StreamPlan};

    use super::*;

    /// A scan on two members, of which the second failed when its data was durable.
    fn degraded() -> (Store, Laid, Manifest) {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let mut manifest = laid.manifest.clone();
        manifest.members[1].failure = Some("cannot rename proven".into());
        (store, laid, manifest)
    }

    fn found(store: &Store, laid: &Laid, manifest: &Manifest) -> Account {
        let mut accounts = BTreeMap::from([(0, laid.accounts[0].clone())]);
        find_unreachable(&store.roots(), manifest, &mut accounts);
        accounts.remove(&0).unwrap()
    }

    #[test]
    fn frames_on_a_member_whose_files_are_gone_or_unmounted_are_told_until_they_are_there() {
        let (store, laid, manifest) = degraded();
        let there = found(&store, &laid, &manifest);
        assert_eq!((there.unreachable.clone(), there.judge()), (None, Verdict::Proven));
        let root = store.roots()[1].clone();
        let on_it = laid.blocks[0].iter().filter(|(member, _)| *member == 1);
        let frames: u64 = on_it.map(|(_, block)| u64::from(block.present)).sum();
        assert!(frames > 0 && frames < there.terms.written);
        let expected = Unreachable { frames, members: vec![root.display().to_string()] };

        // An unmounted member is an empty directory, or none.
        let away = root.with_extension("away");
        rename(&root, &away).unwrap();
        assert_eq!(found(&store, &laid, &manifest).unreachable.as_ref(), Some(&expected));
        std::fs::create_dir(&root).unwrap();
        let account = found(&store, &laid, &manifest);
        assert_eq!(account.unreachable.as_ref(), Some(&expected));
        assert_eq!(account.terms, there.terms, "the frames were written");
        assert_eq!(account.judge(), Verdict::Consistent);
        remove_dir_all(&root).unwrap();
        rename(&away, &root).unwrap();
        assert_eq!(found(&store, &laid, &manifest).unreachable, None);

        // One chunk is gone, and the member is there.
        let chunk = laid.blocks[0].iter().find(|(member, _)| *member == 1).unwrap().1.chunk;
        remove_file(laid.chunk_path(0, chunk)).unwrap();
        let account = found(&store, &laid, &manifest);
        let unreachable = account.unreachable.unwrap();
        assert!(unreachable.frames > 0 && unreachable.frames <= frames);
        assert_eq!(unreachable.members, expected.members);
    }
}
