//! `SCAN`: from what was typed to the scan that was meant.

use std::path::PathBuf;

use fullbore_core::name::Name;
use fullbore_engine::store::catalogue::{self, Selected};
use fullbore_engine::store::reader::Scan;

use crate::hint::hinted;

/// Finds a scan by its name or the beginning of it.
pub fn find(roots: &[PathBuf], text: &str) -> anyhow::Result<Selected> {
    catalogue::find(roots, text).map_err(|error| {
        let hint = error.hint();
        hinted(error, hint)
    })
}

/// Finds and opens a scan; the stream, if one was named with it (`session_scan/stream`).
pub fn open(roots: &[PathBuf], text: &str) -> anyhow::Result<(Scan, Option<Name>)> {
    let Selected { scan, stream } = find(roots, text)?;
    let scan = Scan::open(roots, &scan).map_err(|error| {
        let hint = error.hint();
        hinted(error, hint)
    })?;
    Ok((scan, stream))
}

/// The scans that were typed, or all that `wanted` takes.
pub fn find_all(
    roots: &[PathBuf],
    typed: &[String],
    wanted: impl Fn(&catalogue::Entry) -> bool,
) -> anyhow::Result<Vec<fullbore_core::name::ScanName>> {
    if !typed.is_empty() {
        return typed.iter().map(|text| Ok(find(roots, text)?.scan)).collect();
    }
    let catalogue = catalogue::list(roots).map_err(|error| {
        let hint = error.hint();
        hinted(error, hint)
    })?;
    for failed in &catalogue.failed_roots {
        eprintln!("fullbore: {failed}");
    }
    let names = catalogue.entries.iter().filter(|entry| wanted(entry));
    Ok(names.filter_map(|entry| entry.name.parse().ok()).collect())
}
