//! `fullbore protect`: scans that nothing may remove.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_engine::store::keep;
use serde::Serialize;

use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::scan_arg;

/// Protect scans of a store from being removed, by `rm` as well as by `record --keep`.
#[derive(ClapArgs)]
pub struct Args {
    /// The scans: `session_scan`, or as much of each name as tells it from others.
    #[arg(value_name = "SCAN", required = true)]
    scan: Vec<String>,
    /// Protect them no longer.
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Serialize)]
struct Told {
    scan: String,
    protected: bool,
    before: bool,
}

/// Protects.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let why = "their index has no such mark: what shall stay on a device is not given to `rm` or --overwrite";
    super::device::refuse(&args.scan, "protect", why)?;
    let roots = args.store.members()?;
    let find = |text: &String| scan_arg::find_whole(&roots, text, "protected");
    let scans = args.scan.iter().map(find).collect::<anyhow::Result<Vec<_>>>()?;
    for scan in scans {
        let before = keep::protect(&roots, &scan, !args.off).map_err(explained)?;
        let told = Told { scan: scan.to_string(), protected: !args.off, before };
        output.tell(&told, || text(&told))?;
    }
    Ok(ExitCode::from(output::GOOD))
}

fn text(told: &Told) -> String {
    let scan = &told.scan;
    match (told.protected, told.before) {
        (true, false) => format!("{scan} is protected\n"),
        (true, true) => format!("{scan} was protected already\n"),
        (false, true) => format!("{scan} is protected no longer\n"),
        (false, false) => format!("{scan} was not protected\n"),
    }
}
