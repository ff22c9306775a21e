//! Writes accounts and manifests beside every stream, under the locks that a recorder holds.

use std::path::PathBuf;

use fullbore_core::account::{Account, judge_together};
use fullbore_core::manifest::{ACCOUNT_FILE, MANIFEST_FILE, Manifest, Summary};
use fullbore_store::inventory::{Inventory, MemberFiles};
use fullbore_store::lock::{self, ScanLock};
use fullbore_store::reader::{Presence, Scan};
use fullbore_store::renumber;

use super::{Error, Outcome, apply};

/// Locks every copy that may carry the recorder's lock.
pub fn lock_all(inventory: &Inventory) -> Result<Vec<ScanLock>, lock::Error> {
    let readable = |holding: &&MemberFiles| holding.manifest.get().is_some();
    let copies = inventory.holdings.iter().filter(readable);
    copies.map(|holding| ScanLock::take(&holding.side(MANIFEST_FILE))).collect()
}

/// Copies the sealed manifest and the accounts to all directories that lack them.
pub fn complete(
    roots: &[PathBuf],
    inventory: &Inventory,
    locks: &mut [ScanLock],
) -> Result<Outcome, Error> {
    let mut manifest =
        Manifest { markers: inventory.markers.clone(), ..inventory.manifest.clone() };
    let mut accounts: Vec<Option<Account>> = (0..manifest.streams.len())
        .map(|number| inventory.of_stream(number).find_map(|it| it.account().get().cloned()))
        .collect();
    take_back_reached(roots, &mut manifest, &mut accounts);
    let manifest = &manifest;
    let behind = |holding: &&MemberFiles| holding.manifest.get() != Some(manifest);
    let directories = inventory.holdings.iter().filter(behind).count();
    for (number, account) in accounts.iter().enumerate() {
        if let Some(account) = account {
            put_account(inventory, number, account)?;
        }
    }
    put_manifests(inventory, manifest, locks)?;
    let (scan, state) = (manifest.scan.to_string(), manifest.state);
    Ok(Outcome::Completed { scan, state, directories })
}

/// Removes the note that frames are unreachable from the account of each stream that is whole again.
fn take_back_reached(roots: &[PathBuf], manifest: &mut Manifest, accounts: &mut [Option<Account>]) {
    let is_noted = |it: &Option<Account>| it.as_ref().is_some_and(|it| it.unreachable.is_some());
    if !accounts.iter().any(is_noted) {
        return;
    }
    let Ok(stored) = Scan::open(roots, &manifest.scan) else { return };
    for (account, stream) in accounts.iter_mut().zip(&stored.streams) {
        let whole = stream.blocks.iter().filter(|it| it.presence == Presence::Whole);
        let reached: u64 = whole.map(|it| u64::from(it.block.present)).sum();
        if let Some(account) = account.as_mut().filter(|it| reached >= it.terms.written) {
            account.unreachable = None;
        }
    }
    judge_together(accounts.iter_mut().flatten());
    for (stream, account) in manifest.streams.iter_mut().zip(accounts) {
        if let Some(account) = account {
            stream.account = Some(Summary::from(&*account));
        }
    }
}

/// Writes the new state of the scan into every account and manifest.
pub fn seal(
    inventory: &Inventory,
    manifest: &Manifest,
    accounts: &[Account],
    locks: &mut [ScanLock],
) -> Result<(), Error> {
    for (number, account) in accounts.iter().enumerate() {
        put_account(inventory, number, account)?;
    }
    put_manifests(inventory, manifest, locks)
}

fn put_account(inventory: &Inventory, number: usize, account: &Account) -> Result<(), Error> {
    let json = account.to_json();
    for holding in inventory.of_stream(number) {
        apply::step()?;
        let path = holding.side(ACCOUNT_FILE);
        lock::put_file(&path, &json).map_err(|source| Error::Write {
            path,
            doing: "writing the account",
            source,
        })?;
    }
    Ok(())
}

/// Renumbers chunk files in the order of the stream, as the manifest says.
pub fn rename(
    roots: &[PathBuf],
    inventory: &Inventory,
    manifest: &mut Manifest,
    locks: &mut [ScanLock],
) -> Result<(), Error> {
    renumber::carry_out(roots, manifest, &mut |manifest| {
        put_manifests(inventory, manifest, locks).map_err(|error| renumber::Error::Manifest {
            path: inventory.manifest_path.clone(),
            why: Some(error.to_string()),
        })?;
        Ok(Vec::new())
    })?;
    Ok(())
}

/// Replaces every manifest; the locked ones are replaced under their locks.
fn put_manifests(
    inventory: &Inventory,
    manifest: &Manifest,
    locks: &mut [ScanLock],
) -> Result<(), Error> {
    let json = manifest.to_json();
    for holding in &inventory.holdings {
        apply::step()?;
        let path = holding.side(MANIFEST_FILE);
        match locks.iter_mut().find(|lock| lock.path() == path) {
            Some(lock) => lock.replace(&json)?,
            None => lock::put_file(&path, &json).map_err(|source| Error::Write {
                path,
                doing: "writing the manifest",
                source,
            })?,
        }
    }
    Ok(())
}
