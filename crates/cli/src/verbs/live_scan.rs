//! Scans that are still being recorded, for the verbs that follow them.

use std::path::PathBuf;

use fullbore_core::name::{Name, ScanName};
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

/// The message about a scan whose recorder died.
pub fn died(scan: &ScanName) -> String {
    format!(
        "{scan} is not sealed: its recorder died\n  `fullbore recover {scan}` seals it with all its data"
    )
}
