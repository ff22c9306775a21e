//! `fullbore rebuild`: restores lost data of scans with redundancy.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_care::redundancy::restore::{self, Options, Restored};
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_store::catalogue::{Entry, ScanState};
use fullbore_store::lock;

use crate::hint::explained;
use crate::output::{self, Output, count};
use crate::signals;
use crate::store_arg::StoreArg;
use crate::verbs::scan_arg;

/// Restore lost data of scans that were recorded with --redundancy.
///
///   fullbore rebuild r1234_no0001 --store /mnt/disk0,/mnt/disk2 --onto /mnt/new
///
/// reads the whole scan, restores damaged and lost chunks from the remaining
/// chunks and parity, and checks them against their index. It writes each chunk to
/// its own member if that member is attached, else to a member that holds no other
/// chunk of the same stripe. It also restores lost parity, and makes parity for
/// chunks that have none because their recorder died. In --store, name the
/// remaining members.
///
/// Once the scan needs nothing from the lost members, rebuild removes them from
/// the scan; the members of --onto join it. If a removed member comes back later,
/// `verify` names its leftover data, and `fullbore rm --leftovers` removes the data.
///
/// If a recorder died together with a disk, run rebuild before recover: finished
/// stripes then still restore their data.
///
/// You can interrupt rebuild and run it again: it restores each chunk completely
/// or not at all.
///
/// Exit codes: 0 nothing is missing any more; 1 some data could not be restored,
/// or rebuild was interrupted; 2 a scan could not be rebuilt.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scans: `session_scan`, or an unambiguous beginning of the name.
    #[arg(value_name = "SCAN", required_unless_present = "all")]
    scan: Vec<String>,
    /// All scans of the store that have redundancy and are not being recorded.
    #[arg(long, conflicts_with = "scan")]
    all: bool,
    /// Directories to restore onto, each on its own disk. They can be new to the store [default: the remaining
    /// members, as far as they hold no other chunk of a stripe]
    #[arg(long, value_name = "DIR[,DIR…]", value_delimiter = ',')]
    onto: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArg,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let roots = args.store.members()?;
    let redundant = |entry: &Entry| {
        entry.state != ScanState::Recording
            && entry.name.parse().is_ok_and(|name: ScanName| {
                let scan = scan_arg::open_scan(&roots, &name);
                scan.is_ok_and(|scan| scan.manifest.redundancy.is_some())
            })
    };
    let scans = scan_arg::find_all(&roots, &args.scan, "rebuilt", redundant)?;
    if scans.is_empty() && !output.json {
        output::print("no scans with redundancy\n")?;
    }
    let stop = signals::stop_handle()?;
    let work = |name: &ScanName| -> anyhow::Result<Restored> {
        let scan = scan_arg::open_scan(&roots, name)?;
        anyhow::ensure!(
            !lock::is_held(&scan.inventory.lock_path()),
            "{name} is being recorded\n  it can be rebuilt once it is sealed"
        );
        let bar = scan_arg::bar(output, name);
        let rebuilt = restore::rebuild(
            &roots,
            name,
            &Options {
                onto: args.onto.clone(),
                progress: &|done, total| {
                    bar.set_length(total);
                    bar.set_position(done);
                },
                stop: &|| stop.is_requested(),
            },
        );
        bar.finish_and_clear();
        rebuilt.map_err(explained)
    };
    let judge = |it: &Restored| if it.is_whole() { output::GOOD } else { output::FOUND };
    scan_arg::each(&scans, output, work, text, judge)
}

fn text(rebuilt: &Restored) -> String {
    let Restored { scan, restored, mended, parity, stripes, bytes, .. } = rebuilt;
    let mut text = match (rebuilt.is_whole(), rebuilt.is_something(), rebuilt.interrupted) {
        (true, false, _) => format!("{scan} is whole: nothing was done\n"),
        (true, true, _) => format!("{scan} is whole again: {} written\n", ByteSize(*bytes)),
        (false, _, true) => format!("{scan}: interrupted: run it again to continue\n"),
        (false, _, false) => format!("{scan} is NOT whole: {} written\n", ByteSize(*bytes)),
    };
    let facts = [
        (*restored, "data chunk", "restored onto other members"),
        (*mended, "data chunk", "mended in place"),
        (*parity, "parity chunk", "made again"),
        (*stripes, "stripe", "made of chunks that had no parity"),
    ];
    for (number, thing, fact) in facts.into_iter().filter(|(number, _, _)| *number > 0) {
        text += &format!("  {} {fact}\n", count(number as usize, thing));
    }
    if rebuilt.removed > 0 {
        text += &format!("  {} removed that lay twice\n", count(rebuilt.removed as usize, "file"));
    }
    for path in &rebuilt.gone {
        text += &format!("  {} is no member of it any more\n", path.display());
    }
    for path in &rebuilt.joined {
        text += &format!("  {} is a member of it now\n", path.display());
    }
    for path in &rebuilt.leftover {
        text += &format!(
            "  {} has leftover data that was not used: `fullbore rm --leftovers {scan}` removes it\n",
            path.display()
        );
    }
    for left in &rebuilt.left {
        text += &format!("! {left}\n");
    }
    text
}
