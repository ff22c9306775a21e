//! Chunk files of a scan that is sealed put in the order of the stream, if a member died within a chunk.

use fullbore_core::manifest::Manifest;

use super::scan::Scan;
use crate::store::inventory::Inventory;
use crate::store::renumber::{self, Error, is_to_be_renamed};

/// Says in the scan's manifest which files have to be renamed. Tells of what cannot be.
pub fn plan(scan: &mut Scan) -> Vec<String> {
    // Numbers go up with the stream unless a member gave blocks back.
    let failed = scan.manifest.members.iter().any(|member| member.failure.is_some());
    if !failed || scan.roots.is_empty() {
        return Vec::new();
    }
    match Inventory::take(&scan.roots, &scan.manifest.scan) {
        Ok(inventory) => renumber::plan(&inventory, &mut scan.manifest),
        Err(error) => vec![format!("chunk files may not be in the order of the stream: {error}")],
    }
}

/// Renames files as the manifest, which is on disk now, says. Tells if that could not be finished.
pub fn carry_out(scan: &mut Scan) -> Vec<String> {
    if !scan.manifest.streams.iter().any(is_to_be_renamed) {
        return Vec::new();
    }
    let mut manifest = scan.manifest.clone();
    let roots = scan.roots.clone();
    let done = renumber::carry_out(&roots, &mut manifest, &mut |manifest: &Manifest| {
        scan.manifest = manifest.clone();
        Ok::<_, Error>(scan.put_manifests())
    });
    let told = |error| {
        format!(
            "chunk files could not all be put in order (`fullbore recover` finishes it): {error}"
        )
    };
    done.err().map(told).into_iter().collect()
}
