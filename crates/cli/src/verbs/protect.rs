//! `fullbore protect`: protects scans from removal.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_care::retention;
use fullbore_recording::answers::Protected;

use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::scan_arg;

/// Protect scans of a store from removal by `rm` and by `record --keep`.
#[derive(ClapArgs)]
pub struct Args {
    /// The scans: `session_scan`, or an unambiguous beginning of the name.
    #[arg(value_name = "SCAN", required = true)]
    scan: Vec<String>,
    /// Remove the protection.
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let why = "their index has no such mark: what shall stay on a device is not given to `rm` or --overwrite";
    super::device::refuse(&args.scan, "protect", why)?;
    let roots = args.store.members()?;
    let find = |text: &String| scan_arg::find_whole(&roots, text, "protected");
    let scans = args.scan.iter().map(find).collect::<anyhow::Result<Vec<_>>>()?;
    for scan in scans {
        let before = retention::protect(&roots, &scan, !args.off).map_err(explained)?;
        let told = Protected { scan: scan.to_string(), protected: !args.off, before };
        output.tell(&told, || text(&told))?;
    }
    Ok(ExitCode::from(output::GOOD))
}

fn text(told: &Protected) -> String {
    let scan = &told.scan;
    match (told.protected, told.before) {
        (true, false) => format!("{scan} is protected\n"),
        (true, true) => format!("{scan} was protected already\n"),
        (false, true) => format!("{scan} is protected no longer\n"),
        (false, false) => format!("{scan} was not protected\n"),
    }
}
