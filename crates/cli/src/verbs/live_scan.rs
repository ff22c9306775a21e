//! Scans that are still being recorded, for the verbs that follow them.

use std::path::PathBuf;

use fullbore_core::manifest::{Copied, Manifest};
use fullbore_core::name::Name;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::catalogue::Selected;
use fullbore_store::follow::{FollowState, Follower};

use super::scan_arg;
use crate::hint::explained;

/// Finds and opens a scan, finished or being recorded; also returns the stream if one was named.
pub fn open(roots: &[PathBuf], text: &str) -> anyhow::Result<(Follower, Option<Name>)> {
    let Selected { scan, stream } = scan_arg::find(roots, text)?;
    Ok((Follower::open(roots, &scan).map_err(explained)?, stream))
}

/// Waits a moment and updates the scan.
pub fn pause(follower: &mut Follower) -> anyhow::Result<()> {
    follower.wait(&StopHandle::default());
    follower.look().map_err(explained)?;
    Ok(())
}

/// Updates the scan until its files are in order.
pub fn settle(follower: &mut Follower) -> anyhow::Result<()> {
    while follower.status() == FollowState::Sealing {
        pause(follower)?;
    }
    Ok(())
}

/// The message about a scan whose recorder died, or that stopped to arrive.
pub fn died(manifest: &Manifest) -> String {
    let scan = &manifest.scan;
    match manifest.incomplete_copy() {
        // `recover` would make a scan of its own of it, which no transfer continues.
        Some(Copied { host, .. }) => format!(
            "{scan} is an incomplete copy from {host}\n  `fullbore send` there continues it, or `fullbore receive` here if it was fetched"
        ),
        None => format!(
            "{scan} is not sealed: its recorder died\n  `fullbore recover {scan}` seals it with all its data"
        ),
    }
}

/// What happens to a scan that grows.
pub fn growing(manifest: &Manifest) -> String {
    match manifest.incomplete_copy() {
        Some(Copied { host, .. }) => format!("is still being received from {host}"),
        None => "is still being recorded".to_owned(),
    }
}
