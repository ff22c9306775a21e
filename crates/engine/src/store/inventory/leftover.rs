//! What lies on members that a scan does without since it was rebuilt.
//!
//! A member that seemed lost may come back after `rebuild` has put all that was on it elsewhere. What it holds then is
//! as good as it was, and lies twice: it is set aside before anything else looks at the scan, so that it is neither
//! read nor written, and told of until somebody asks for its removal (`remove`).
//!
//! Its own manifest knows it by: there it is a member, and a later one, of a scan rebuilt more often, does not name it.

use std::collections::BTreeSet;
use std::path::Path;

use fullbore_core::manifest::Manifest;
use uuid::Uuid;

use super::{Holding, Root};

/// A root that was a member of a scan once, and what it still holds of it.
#[derive(Debug)]
pub struct Leftover {
    /// The root.
    pub root: Root,
    /// The directories of the scan there.
    pub holdings: Vec<Holding>,
}

impl Leftover {
    /// Chunk files, data and parity alike.
    pub fn chunks(&self) -> u64 {
        self.holdings.iter().map(|it| it.chunks.len() as u64 + it.parity().count() as u64).sum()
    }

    /// Bytes in them.
    pub fn bytes(&self) -> u64 {
        let data = self.holdings.iter().flat_map(|it| &it.chunks).map(|(_, file)| file.bytes);
        let length = |path: &Path| std::fs::metadata(path).map_or(0, |it| it.len());
        let parity = self.holdings.iter().flat_map(Holding::parity).map(|path| length(path));
        data.chain(parity).sum()
    }
}

fn rebuilt(manifest: &Manifest) -> u32 {
    manifest.redundancy.map_or(0, |it| it.rebuilt)
}

/// Of copies of a scan's manifest the one after which it was not rebuilt any more; the first of those, if there are more.
pub fn latest<'a>(copies: impl Iterator<Item = &'a Manifest>) -> Option<&'a Manifest> {
    copies.reduce(|best, it| if rebuilt(it) > rebuilt(best) { it } else { best })
}

/// Whether the root that this copy lies on was a member by it, and is none by the manifest that is believed.
pub fn is_let_go(uuid: Option<Uuid>, path: &Path, copy: &Manifest, believed: &Manifest) -> bool {
    // A root without its member file is known by the place it was recorded at.
    let was = copy.members.iter().find(|it| match uuid {
        Some(uuid) => it.uuid == uuid,
        None => it.path == path,
    });
    let Some(was) = was else { return false };
    copy.uuid == believed.uuid
        && rebuilt(copy) < rebuilt(believed)
        && believed.members.iter().all(|it| it.uuid != was.uuid)
}

/// Takes the roots that were let go out of those of the scan, with all that lies on them.
pub(super) fn set_aside(
    believed: &Manifest,
    roots: &mut Vec<Root>,
    holdings: &mut Vec<Holding>,
) -> Vec<Leftover> {
    let let_go = |holding: &&Holding| {
        let root = &roots[holding.root];
        let copy = holding.manifest.get();
        copy.is_some_and(|copy| is_let_go(root.uuid, &root.path, copy, believed))
    };
    let gone: BTreeSet<usize> = holdings.iter().filter(let_go).map(|it| it.root).collect();
    if gone.is_empty() {
        return Vec::new();
    }
    let (aside, kept): (Vec<Holding>, Vec<Holding>) =
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
