//! `fullbore rm`: removes scans.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args as ClapArgs;
use fullbore_care::remove::{self, Removed};
use fullbore_core::hint;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;

use crate::hint::{explained, with_advice};
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::{scan_arg, station};

/// Remove scans from all members, for good.
///
/// rm removes only files that the store made. Other files in a scan's directories stay, and rm names them. It refuses a
/// scan that is being recorded. For a scan of a device, device:PATH?scan=SCAN, it removes the entry in the device's index.
/// With --copied, rm removes only scans that are proven to be on another host: `fullbore send` keeps the receipt beside the
/// scan, and its digest must equal that of the blocks here. rm refuses the others with the reason, and exits with 1.
/// rm asks before it removes a scan; without a terminal, give --yes. The exit code is 1 if the answer was no.
#[derive(ClapArgs)]
pub struct Args {
    /// The scans: `session_scan`, or an unambiguous beginning of the name.
    #[arg(value_name = "SCAN", required = true)]
    scan: Vec<String>,
    /// Remove only leftover data on disks that `fullbore rebuild` replaced and that came back. Refused while the scan is
    /// not whole without it.
    #[arg(long)]
    leftovers: bool,
    /// Remove what is here of a scan, although members of it are not here. What is on them stays there; after a loss for
    /// good this removes the rest.
    #[arg(long, conflicts_with = "leftovers")]
    without_absent_members: bool,
    /// Remove only scans that a receipt proves to be on another host, whole and unchanged.
    #[arg(long, conflicts_with_all = ["leftovers", "without_absent_members"])]
    copied: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if super::device::are_meant(&args.scan)? {
        anyhow::ensure!(
            !args.leftovers && !args.without_absent_members,
            "a device has no members: nothing is left over of its scans"
        );
        anyhow::ensure!(
            !args.copied,
            "a device has no receipts of copies: --copied is for a store"
        );
        let ask = |names: &[String]| Ok(args.yes || agreed(names, output)?);
        return super::device::rm(&args.scan, ask, output);
    }
    let roots = args.store.members()?;
    let mut scans: Vec<ScanName> = Vec::new();
    for text in &args.scan {
        scans.push(scan_arg::find_whole(&roots, text, "removed")?);
    }
    scans.sort();
    scans.dedup();
    let asked_for = scans.len();
    if args.copied {
        scans.retain(|scan| is_proven(&roots, scan));
    }
    let done = match scans.len() == asked_for {
        true => output::GOOD,
        false => output::FOUND,
    };
    if scans.is_empty() {
        return Ok(ExitCode::from(done));
    }
    let what = if args.leftovers { "leftover data of " } else { "" };
    let names: Vec<String> = scans.iter().map(|scan| format!("{what}{scan}")).collect();
    if !args.yes && !agreed(&names, output)? {
        output::print("nothing was removed\n")?;
        return Ok(ExitCode::from(output::FOUND));
    }
    for scan in &scans {
        let bar = scan_arg::files(output, scan);
        let progress = |gone, all| {
            bar.set_length(all);
            bar.set_position(gone);
        };
        let removed = match (args.leftovers, args.without_absent_members) {
            _ if args.copied => remove::remove_copied(&roots, scan, &progress),
            (true, _) => remove::remove_leftovers(&roots, scan, &progress),
            (false, true) => remove::remove_without_absent(&roots, scan, &progress),
            (false, false) => remove::remove_telling(&roots, scan, &progress),
        };
        bar.finish_and_clear();
        let removed = removed.map_err(|error| {
            let advice = station::here::advice_on(&roots, &scan.to_string());
            match advice {
                Some(advice) => with_advice(error.into(), Some(advice.into())),
                None => explained(error),
            }
        })?;
        output.tell(&removed, || text(&removed, what))?;
    }
    Ok(ExitCode::from(done))
}

/// Returns true if a receipt proves a copy of the scan elsewhere; if not, says why.
fn is_proven(roots: &[PathBuf], scan: &ScanName) -> bool {
    match remove::prove(roots, scan) {
        Ok(_) => true,
        Err(error) => {
            output::complain(None, &hint::explained(&error));
            false
        }
    }
}

/// Asks whether to remove them.
pub(super) fn agreed(names: &[String], output: Output) -> anyhow::Result<bool> {
    let asks = io::stdin().is_terminal() && !output.json;
    anyhow::ensure!(
        asks,
        "removing {} for good: there is no terminal to ask on, so give --yes",
        names.join(", ")
    );
    // Without a visible question there can be no answer, so an error of writing it is returned.
    write!(io::stderr(), "remove {} for good? [y/N] ", names.join(", "))
        .context("asking on standard error")?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn text(removed: &Removed, what: &str) -> String {
    if !what.is_empty() && removed.files == 0 {
        return format!("nothing is left over of {}\n", removed.scan);
    }
    let mut text = format!(
        "{what}{} removed: {} files, {} freed\n",
        removed.scan,
        removed.files,
        ByteSize(removed.bytes)
    );
    for path in &removed.kept {
        text += &format!("  {} does not belong to it and stays\n", path.display());
    }
    text
}
