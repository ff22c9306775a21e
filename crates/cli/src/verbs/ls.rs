//! `fullbore ls`: the scans of a store.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_core::completeness::Completeness;
use fullbore_core::device::DeviceEnd;
use fullbore_core::units::ByteSize;
use fullbore_store::catalogue::{self, Entry, ScanState};
use fullbore_transfer::objects::Address;

use crate::account_table::columns;
use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::scan_arg;

/// List the scans of a store.
///
/// One line per scan: its name; its state (recording, receiving, sealed, aborted, recovered; unsealed: its recorder
/// died, or it is an incomplete copy; broken: no manifest can be read; run `fullbore recover` for the last two); the
/// time of its first frame; its length; its size; the number of streams; whether it is complete, or how many frames it
/// LOST; and the verdict of
/// its account, with the number of members that are not attached. The state also says if the scan is protected, and how
/// many other hosts have sent receipts for copies (`fullbore info` checks them). Below the table, ls names those members, members
/// that were away or failed during the recording, and redundancy that could not be made.
///
/// For a device without a file system, `fullbore ls device:/dev/nvme0n1` lists the scans of its index, with their
/// addresses.
///
/// The exit code is 1 if a member of the store could not be read; ls lists the others. It says nothing about the
/// scans: ls lists a scan whose member is absent as such.
#[derive(ClapArgs)]
pub struct Args {
    /// List only scans whose name starts with this; or a device, device:PATH; or the copies at a place in an object store,
    /// s3://bucket/prefix.
    #[arg(value_name = "PREFIX|DEVICE|URL")]
    prefix: Option<String>,
    #[command(flatten)]
    store: StoreArg,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if let Some(text) = args.prefix.as_ref().filter(|text| DeviceEnd::is_meant(text)) {
        return super::device::ls(text, output);
    }
    if let Some(text) = args.prefix.as_ref().filter(|text| Address::is_meant(text)) {
        return super::objects::ls(text, output);
    }
    if let Some(prefix) = &args.prefix {
        scan_arg::must_name_a_scan(prefix)?;
    }
    let roots = args.store.members()?;
    let catalogue = catalogue::list(&roots).map_err(explained)?;
    for failed in &catalogue.failed_roots {
        output::complain(None, &failed.to_string());
    }
    let mut entries = catalogue.entries;
    if let Some(prefix) = &args.prefix {
        entries.retain(|entry| entry.name.starts_with(prefix));
    }
    output.tell(&entries, || text(&entries))?;
    let whole = catalogue.failed_roots.is_empty();
    Ok(ExitCode::from(if whole { output::GOOD } else { output::FOUND }))
}

fn text(entries: &[Entry]) -> String {
    if entries.is_empty() {
        return "no scans\n".into();
    }
    let heading =
        ["scan", "state", "start (UTC)", "seconds", "size", "streams", "complete", "verdict"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(entries.iter().map(row));
    let mut text = columns(&rows, 3);
    for entry in entries {
        for path in &entry.absent {
            text += &format!("{}: {} is not attached\n", entry.name, path.display());
        }
        for wanting in &entry.wanting {
            text += &format!("{}: {wanting}\n", entry.name);
        }
        for path in &entry.leftover {
            text += &format!(
                "{}: {} has leftover data from before the rebuild\n",
                entry.name,
                path.display()
            );
        }
        if let Some(host) = &entry.incomplete_from {
            text += &format!("{}: an incomplete copy from {host}\n", entry.name);
        }
        if let Some(problem) = &entry.problem {
            text += &format!("{}: {problem}\n", entry.name);
        }
    }
    text
}

fn row(entry: &Entry) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    vec![
        entry.name.clone(),
        state(entry),
        or_dash(entry.start.map(|start| format!("{start:.3}"))),
        or_dash(entry.duration_ns.map(|ns| format!("{:.3}", ns as f64 / 1e9))),
        ByteSize(entry.bytes).to_string(),
        entry.streams.to_string(),
        entry.completeness.as_ref().map_or("-".into(), Completeness::short),
        verdict(entry),
    ]
}

fn state(entry: &Entry) -> String {
    let protected = if entry.protected { ", protected" } else { "" };
    let copies = match entry.copies {
        0 => String::new(),
        1 => ", 1 copy".to_owned(),
        copies => format!(", {copies} copies"),
    };
    let state = match (entry.state, &entry.incomplete_from) {
        (ScanState::Recording, Some(_)) => "receiving",
        (state, _) => state.as_str(),
    };
    format!("{state}{protected}{copies}")
}

/// The verdict on the whole scan, with a remark if a part of it is not available.
fn verdict(entry: &Entry) -> String {
    let verdict = entry.verdict.map_or("-".into(), |verdict| verdict.to_string());
    match entry.absent.len() {
        0 => verdict,
        1 => format!("{verdict}, 1 member not attached"),
        absent => format!("{verdict}, {absent} members not attached"),
    }
}
