//! The recovery status of a scan: the work that is left, if any.

use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::manifest::{INDEX_FILE, State};
use fullbore_store::inventory::{Copy, Index, Inventory, MemberFiles};
use fullbore_store::renumber;

use super::Outcome;

pub fn already_sealed(inventory: &Inventory) -> Outcome {
    Outcome::AlreadySealed {
        scan: inventory.manifest.scan.to_string(),
        state: inventory.manifest.state,
        absent: absent_paths(inventory),
        indexes: bad_indexes(inventory),
    }
}

/// Returns the indexes that do not cover the chunks beside them.
fn bad_indexes(inventory: &Inventory) -> Vec<PathBuf> {
    let uuid = inventory.manifest.uuid;
    let is_bad = |number: usize, holding: &MemberFiles, path: &Path| {
        match Index::read(path, uuid, number as u16) {
            Ok(index) => index.torn || (index.records == 0 && !holding.chunks.is_empty()),
            // A member that received no block needs none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => !holding.chunks.is_empty(),
            Err(_) => true,
        }
    };
    let mut bad = Vec::new();
    for number in 0..inventory.manifest.streams.len() {
        for holding in inventory.of_stream(number) {
            let path = holding.side(INDEX_FILE);
            if is_bad(number, holding, &path) {
                bad.push(path);
            }
        }
    }
    bad
}

pub fn absent_paths(inventory: &Inventory) -> Vec<PathBuf> {
    inventory.absent_members().into_iter().map(|member| member.path.clone()).collect()
}

/// Returns true if work is left, even if only to copy the manifest.
pub fn is_unsealed(inventory: &Inventory) -> bool {
    is_recording(inventory) || is_behind(inventory)
}

/// Returns true if a copy of the manifest announces a renumbering, although all files have their final names.
pub fn is_behind(inventory: &Inventory) -> bool {
    let copies = inventory.holdings.iter().filter_map(|holding| holding.manifest.get());
    copies.flat_map(|copy| &copy.streams).any(renumber::is_to_be_renamed)
        && !renumber::is_unfinished(inventory)
}

/// Returns true if any copy of the manifest still has the state *recording*, or files do not have their final names.
pub fn is_recording(inventory: &Inventory) -> bool {
    let says = |holding: &MemberFiles| match &holding.manifest {
        Copy::Read(manifest) => manifest.state == State::Recording,
        // A copy that was never written has no state.
        Copy::Missing | Copy::Unreadable(_) => false,
    };
    inventory.manifest.state == State::Recording
        || inventory.holdings.iter().any(says)
        || renumber::is_unfinished(inventory)
}

/// Returns true if one copy has a sealed state and all data is in place: only its other copies are missing.
pub fn sealed_by_its_recorder(inventory: &Inventory) -> bool {
    let sealed = matches!(inventory.manifest.state, State::Sealed | State::Aborted);
    let unfinished =
        inventory.holdings.iter().flat_map(|it| &it.chunks).any(|(_, it)| it.unfinished);
    let accounts = (0..inventory.manifest.streams.len()).all(|number| {
        let mut holdings = inventory.of_stream(number).peekable();
        holdings.peek().is_none() || holdings.any(|it| it.account().get().is_some())
    });
    sealed && !unfinished && accounts
}
