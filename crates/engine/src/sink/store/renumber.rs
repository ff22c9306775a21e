//! Renumbers the chunk files of a sealed scan into stream order, if a member failed within a chunk.

use std::path::PathBuf;

use fullbore_core::manifest::Manifest;
use fullbore_store::inventory::Inventory;
use fullbore_store::renumber::{self, Error, is_to_be_renamed};

/// Enters the files to rename into the manifest. Returns warnings.
pub fn plan(roots: &[PathBuf], manifest: &mut Manifest) -> Vec<String> {
    // Numbers follow the order of the stream unless a member returned blocks.
    let failed = manifest.members.iter().any(|member| member.failure.is_some());
    if !failed || roots.is_empty() {
        return Vec::new();
    }
    match Inventory::take(roots, &manifest.scan) {
        Ok(inventory) => renumber::plan(&inventory, manifest),
        Err(error) => vec![format!("chunk files may not be in the order of the stream: {error}")],
    }
}

/// Renames files by the manifest on disk. `put` writes a newer manifest to as many places as possible, and returns the
/// places where it failed. Returns warnings.
pub fn carry_out(
    roots: &[PathBuf],
    manifest: &mut Manifest,
    mut put: impl FnMut(&Manifest) -> Vec<PathBuf>,
) -> Vec<String> {
    if !manifest.streams.iter().any(is_to_be_renamed) {
        return Vec::new();
    }
    let mut newest = manifest.clone();
    let done = renumber::carry_out(roots, &mut newest, &mut |newer: &Manifest| {
        *manifest = newer.clone();
        Ok::<_, Error>(put(newer))
    });
    let told = |error| {
        format!(
            "chunk files could not all be put in order (`fullbore recover` finishes it): {error}"
        )
    };
    done.err().map(told).into_iter().collect()
}
