//! Whether a recorder that ended without its parent has sealed its scan: the store says so.
//!
//! The daemon that starts a recorder learns how it ended from the kernel. A later daemon does not, and would show a
//! recorder that was killed as one that was stopped.

use std::path::PathBuf;

use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_store::inventory::Inventory;

use super::life::{Complaint, Life};
use super::request::StartRequest;

/// What is to be said of a recorder that is gone. `store` is the members as `--store` takes them. `None` if its scan is
/// sealed, or was not kept, or is not known.
pub fn complaint(store: &str, request: &StartRequest, life: &Life) -> Option<Complaint> {
    let scan = life.scan.clone().or_else(|| only_scan(request))?;
    let name = scan.to_string();
    if life.finished.iter().any(|it| it.scan == name) {
        return None;
    }
    let members: Vec<PathBuf> = store.split(',').map(PathBuf::from).collect();
    // Without a readable manifest there is no scan to speak of.
    let inventory = Inventory::take(&members, &scan).ok()?;
    let is_left = inventory.manifest.state == State::Recording && !inventory.is_being_recorded();
    is_left.then(|| Complaint {
        error: format!("the recorder ended without sealing {name}"),
        advice: Some(format!("`fullbore recover {name}` seals it with all durable data")),
    })
}

/// The scan of a request that names its only one.
fn only_scan(request: &StartRequest) -> Option<ScanName> {
    let is_only =
        request.schedule.is_none() && request.scans.is_none() && request.circular.is_none();
    let name = || format!("{}_{}", request.session, request.scan).parse().ok();
    is_only.then(name).flatten()
}
