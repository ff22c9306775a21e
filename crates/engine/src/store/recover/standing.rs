//! How a scan stands: whether anything is left to be done, and what.

use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::manifest::{INDEX_FILE, State};

use super::Outcome;
use crate::store::inventory::{Copy, Holding, Index, Inventory};
use crate::store::renumber;

pub fn already_sealed(inventory: &Inventory) -> Outcome {
    Outcome::AlreadySealed {
        scan: inventory.manifest.scan.to_string(),
        state: inventory.manifest.state,
        absent: absent_paths(inventory),
        indexes: bad_indexes(inventory),
    }
}

/// Indexes that do not tell of the chunks beside them.
fn bad_indexes(inventory: &Inventory) -> Vec<PathBuf> {
    let uuid = inventory.manifest.uuid;
    let is_bad = |number: usize, holding: &Holding, path: &Path| {
        match Index::read(path, uuid, number as u16) {
            Ok(index) => index.torn || (index.records == 0 && !holding.chunks.is_empty()),
            // A member that no block was dealt to needs none.
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

/// Whether anything is left to be done, if only to copy the manifest.
pub fn is_unsealed(inventory: &Inventory) -> bool {
    is_recording(inventory) || is_behind(inventory)
}

/// Whether a copy of the manifest tells of files being renamed, though all of them have their names.
pub fn is_behind(inventory: &Inventory) -> bool {
    let copies = inventory.holdings.iter().filter_map(|holding| holding.manifest.get());
    copies.flat_map(|copy| &copy.streams).any(renumber::is_to_be_renamed)
        && !renumber::is_unfinished(inventory)
}

/// Whether any copy of the manifest still says that the scan is being recorded, or files are not where they
/// belong.
pub fn is_recording(inventory: &Inventory) -> bool {
    let says = |holding: &Holding| match &holding.manifest {
        Copy::Read(manifest) => manifest.state == State::Recording,
        // A copy that was never written says nothing.
        Copy::Missing | Copy::Unreadable(_) => false,
    };
    inventory.manifest.state == State::Recording
        || inventory.holdings.iter().any(says)
        || renumber::is_unfinished(inventory)
}

/// Whether one copy says so and all data is in place: only copies of it are left to be written.
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
