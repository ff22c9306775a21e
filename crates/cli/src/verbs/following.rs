//! Scans that are being recorded, for the verbs that read along.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use fullbore_core::name::{Name, ScanName};
use fullbore_engine::store::catalogue::Selected;
use fullbore_engine::store::follow::{Follower, Standing};

use super::scan_arg;
use crate::hint::explained;

/// Finds and opens a scan, whether it is being recorded or not; the stream, if one was named with it.
pub fn open(roots: &[PathBuf], text: &str) -> anyhow::Result<(Follower, Option<Name>)> {
    let Selected { scan, stream } = scan_arg::find(roots, text)?;
    Ok((Follower::open(roots, &scan).map_err(explained)?, stream))
}

/// Waits a moment and looks again.
pub fn pause(follower: &mut Follower) -> anyhow::Result<()> {
    follower.wait(&AtomicBool::new(false));
    follower.look().map_err(explained)?;
    Ok(())
}

/// Looks until files that are just being put in order have come to rest.
pub fn settle(follower: &mut Follower) -> anyhow::Result<()> {
    while follower.standing() == Standing::Sealing {
        pause(follower)?;
    }
    Ok(())
}

/// What is to be said of a scan whose recorder died.
pub fn died(scan: &ScanName) -> String {
    format!(
        "{scan} was not sealed: its recorder is gone\n  `fullbore recover {scan}` seals it with all that it holds"
    )
}
