//! Leftover files on roots that are no longer members since the scan was rebuilt.
//!
//! A member that seemed lost may be attached again after `rebuild` has put all of its data elsewhere. Its files are
//! then duplicates: they are set aside before anything else looks at the scan, so that they are neither read nor
//! written. They are reported until the user asks for their removal (`remove`).
//!
//! The member's own manifest identifies them: it names the root as a member, and a later manifest, of a scan rebuilt
//! more often, does not.

use std::collections::BTreeSet;
use std::path::Path;

use fullbore_core::manifest::Manifest;
use uuid::Uuid;

use super::{MemberFiles, Root};

/// A root that is a former member of a scan, and its leftover files.
#[derive(Debug)]
pub struct Leftover {
    /// The root.
    pub root: Root,
    /// The directories of the scan there.
    pub holdings: Vec<MemberFiles>,
}

impl Leftover {
    /// The number of chunk files, data and parity.
    pub fn chunks(&self) -> u64 {
        self.holdings.iter().map(|it| it.chunks.len() as u64 + it.parity().count() as u64).sum()
    }

    /// The bytes in them.
    pub fn bytes(&self) -> u64 {
        let data = self.holdings.iter().flat_map(|it| &it.chunks).map(|(_, file)| file.bytes);
        let length = |path: &Path| std::fs::metadata(path).map_or(0, |it| it.len());
        let parity = self.holdings.iter().flat_map(MemberFiles::parity).map(|path| length(path));
        data.chain(parity).sum()
    }
}

fn rebuilt(manifest: &Manifest) -> u32 {
    manifest.redundancy.map_or(0, |it| it.rebuilt)
}

/// Returns, of the copies of a scan's manifest, the one with the most rebuilds; the first of several.
pub fn latest<'a>(copies: impl Iterator<Item = &'a Manifest>) -> Option<&'a Manifest> {
    copies.reduce(|best, it| if rebuilt(it) > rebuilt(best) { it } else { best })
}

/// Returns true if this copy names its root as a member, and the manifest in use does not.
pub fn is_let_go(uuid: Option<Uuid>, path: &Path, copy: &Manifest, believed: &Manifest) -> bool {
    // A root without its member file is identified by its path at the time of recording.
    let was = copy.members.iter().find(|it| match uuid {
        Some(uuid) => it.uuid == uuid,
        None => it.path == path,
    });
    let Some(was) = was else { return false };
    copy.uuid == believed.uuid
        && rebuilt(copy) < rebuilt(believed)
        && believed.members.iter().all(|it| it.uuid != was.uuid)
}

/// Removes former members from the roots of the scan, with all of their files.
pub(super) fn set_aside(
    believed: &Manifest,
    roots: &mut Vec<Root>,
    holdings: &mut Vec<MemberFiles>,
) -> Vec<Leftover> {
    let let_go = |holding: &&MemberFiles| {
        let root = &roots[holding.root];
        let copy = holding.manifest.get();
        copy.is_some_and(|copy| is_let_go(root.uuid, &root.path, copy, believed))
    };
    let gone: BTreeSet<usize> = holdings.iter().filter(let_go).map(|it| it.root).collect();
    if gone.is_empty() {
        return Vec::new();
    }
    let (aside, kept): (Vec<MemberFiles>, Vec<MemberFiles>) =
        std::mem::take(holdings).into_iter().partition(|it| gone.contains(&it.root));
    let before = |root: usize| gone.range(..root).count();
    *holdings = kept;
    holdings.iter_mut().for_each(|it| it.root -= before(it.root));
    let mut leftovers: Vec<Leftover> = Vec::new();
    let all = std::mem::take(roots).into_iter().enumerate();
    let mut aside = aside;
    for (number, root) in all {
        if !gone.contains(&number) {
            roots.push(root);
            continue;
        }
        let (own, others) = aside.into_iter().partition(|it| it.root == number);
        aside = others;
        leftovers.push(Leftover { root, holdings: own });
    }
    leftovers
}
