//! `fullbore rebuild`: what was lost of scans with redundancy, restored.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Args as ClapArgs;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_engine::store::catalogue::{Entry, Standing};
use fullbore_engine::store::lock;
use fullbore_engine::store::redundancy::rebuild::{self, Options, Rebuilt};

use crate::hint::explained;
use crate::output::{self, Output, count};
use crate::signals;
use crate::store_arg::StoreArg;
use crate::verbs::scan_arg;

/// Restore what was lost of scans that were recorded with --redundancy.
///
///   fullbore rebuild r1234_no0001 --store /mnt/disk0,/mnt/disk2 --onto /mnt/new
///
/// reads all of the scan, makes chunks that are damaged or lost of those that are
/// left and of parity, checks them against their index, and writes them: in their
/// places if their member is there, else onto a member that holds nothing of their
/// stripe. Lost parity is made again too, and parity for chunks that have none,
/// because their recorder died before it was made. Of --store, name the members
/// that are left.
///
/// Members that were lost are let go once nothing is missed of them; those of
/// --onto join the scan. One that comes back after that is no member any more:
/// what it holds is left over, `verify` names it, and `fullbore rm --leftovers`
/// removes it.
///
/// A scan whose recorder died together with a disk is rebuilt before it is
/// recovered: what finished stripes make up for is not lost to it then.
///
/// It can be interrupted and run again: a chunk is restored whole or not at all.
///
/// Exit codes: 0 nothing is missing any more; 1 something is left that could not
/// be restored, or it was interrupted; 2 a scan could not be rebuilt.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scans: `session_scan`, or as much of each name as tells it from others.
    #[arg(value_name = "SCAN", required_unless_present = "all")]
    scan: Vec<String>,
    /// Every scan of the store that was recorded with redundancy, and is not being recorded.
    #[arg(long, conflicts_with = "scan")]
    all: bool,
    /// Directories to restore onto, which need not have been members: one each on a disk of its own
    /// [default: the members that are left, as far as they hold nothing of a stripe]
    #[arg(long, value_name = "DIR[,DIR…]", value_delimiter = ',')]
    onto: Vec<PathBuf>,
    #[command(flatten)]
    store: StoreArg,
}

/// Rebuilds.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let roots = args.store.members()?;
    let redundant = |entry: &Entry| {
        entry.state != Standing::Recording
            && entry.name.parse().is_ok_and(|name: ScanName| {
                let scan = scan_arg::open_scan(&roots, &name);
                scan.is_ok_and(|scan| scan.manifest.redundancy.is_some())
            })
    };
    let scans = scan_arg::find_all(&roots, &args.scan, "rebuilt", redundant)?;
    if scans.is_empty() && !output.json {
        println!("no scans with redundancy");
    }
    let stop = signals::stop_flag()?;
    let work = |name: &ScanName| -> anyhow::Result<Rebuilt> {
        let scan = scan_arg::open_scan(&roots, name)?;
        anyhow::ensure!(
            !lock::is_held(&scan.inventory.lock_path()),
            "{name} is being recorded\n  it can be rebuilt once it is sealed"
        );
        let bar = scan_arg::bar(output, name);
        let rebuilt = rebuild::rebuild(
            &roots,
            name,
            &Options {
                onto: args.onto.clone(),
                progress: &|done, total| {
                    bar.set_length(total);
                    bar.set_position(done);
                },
                stop: &|| stop.load(Ordering::SeqCst),
            },
        );
        bar.finish_and_clear();
        rebuilt.map_err(explained)
    };
    let judge = |it: &Rebuilt| if it.is_whole() { output::GOOD } else { output::FOUND };
    scan_arg::each(&scans, output, work, text, judge)
}

fn text(rebuilt: &Rebuilt) -> String {
    let Rebuilt { scan, restored, mended, parity, stripes, bytes, .. } = rebuilt;
    let mut text = match (rebuilt.is_whole(), rebuilt.is_something(), rebuilt.interrupted) {
        (true, false, _) => format!("{scan} is whole: nothing was done\n"),
        (true, true, _) => format!("{scan} is whole again: {} written\n", ByteSize(*bytes)),
        (false, _, true) => format!("{scan}: interrupted; run again, it goes on\n"),
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
            "  {} holds what is left over from before, and was not used: `fullbore rm --leftovers {scan}` removes it\n",
            path.display()
        );
    }
    for left in &rebuilt.left {
        text += &format!("! {left}\n");
    }
    text
}
