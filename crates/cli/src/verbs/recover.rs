//! `fullbore recover`: a scan whose recorder died, made a sealed one.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_core::completeness::{Completeness, counted};
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_engine::store::catalogue::{Entry, Standing};
use fullbore_engine::store::recover::{self, Options, Outcome, Recovered};
use fullbore_engine::store::remove::{self, Removed};

use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::scan_arg;

/// Seal scans whose recorder died: by SIGKILL, power loss, or a crash.
///
/// Everything that was reported durable is kept. Blocks written after the last
/// durable mark are read and checked, and a chunk is cut at the first one that is
/// not whole. What was written and not yet recorded in the index is kept as far
/// as it can be recognised, and marked as unverified. What a slow stream had in
/// blocks that were not full was kept beside them once a second, and becomes its
/// end: two seconds of it are lost at most. The account is made anew
/// from index and data, but for streams that have lost nothing: theirs stays, and
/// its verdict. A lost index is rebuilt from the frames; where the scan is
/// sealed, that is asked for (--reindex). Where no copy of the manifest can be
/// read (`fullbore ls` calls such a scan broken), one is made from the names of
/// directories, the indexes, the accounts and the frames, and what they do not
/// tell is said.
///
/// A scan may also be an HDF5 file whose writer died: its columns are cut to the
/// length of the shortest, and it opens again as any other. One that another program
/// has open is refused.
///
/// Of a device without a file system, device:PATH or device:PATH?scan=SCAN, scans
/// are kept up to their durable mark, and what was written after it as far as its
/// records and checksums reach.
///
/// With --all, a scan of which nothing had been written when its recorder died is
/// taken away: it has empty directories only.
///
/// It can be interrupted and run again. A scan that is sealed, or being recorded,
/// is left alone.
///
/// Exit codes: 0 recovered, or nothing to do; 1 recovered, and blocks that had
/// been numbered are nowhere or are damaged, or something was found that is left alone; 2 a scan
/// could not be recovered.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scans: `session_scan`, or as much of each name as tells it from others.
    #[arg(value_name = "SCAN", required_unless_present = "all")]
    scan: Vec<String>,
    /// Every scan of the store that its recorder left unsealed, or that has lost its manifest.
    #[arg(long, conflicts_with = "scan")]
    all: bool,
    /// Read and check every block, not only those after the last durable mark.
    #[arg(long)]
    deep: bool,
    /// Build the index of a scan anew where it is lost or damaged, also if the scan is sealed.
    #[arg(long, conflicts_with = "all")]
    reindex: bool,
    /// Do without members that are not given: what lies on them is lost to the scan.
    #[arg(long)]
    without_absent_members: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// The HDF5 files among what was typed; then nothing else may be.
fn hdf5_files(typed: &[String]) -> anyhow::Result<Option<Vec<PathBuf>>> {
    let is_file = |text: &String| {
        let path = Path::new(text.strip_prefix("hdf5:").unwrap_or(text));
        let named = path.extension().is_some_and(|it| it == "h5" || it == "hdf5" || it == "nxs");
        named.then(|| path.to_owned())
    };
    let files: Vec<PathBuf> = typed.iter().filter_map(is_file).collect();
    anyhow::ensure!(
        files.is_empty() || files.len() == typed.len(),
        "scans and HDF5 files are recovered apart from one another"
    );
    Ok((!files.is_empty()).then_some(files))
}

#[cfg(feature = "hdf5")]
fn recover_files(files: &[PathBuf], output: Output) -> anyhow::Result<ExitCode> {
    #[derive(serde::Serialize)]
    struct Told<'a> {
        file: &'a Path,
        rows: u64,
        cut: u64,
        ended: bool,
    }
    for file in files {
        let found = fullbore_engine::sink::hdf5::recover(file).map_err(explained)?;
        let fullbore_engine::sink::hdf5::Recovered { rows, cut, ended } = found;
        output.tell(&Told { file, rows, cut, ended }, || match ended {
            true => format!("{}: {rows} rows, ended properly\n", file.display()),
            false => format!("{}: {rows} rows are there, {cut} were cut off\n", file.display()),
        })?;
    }
    Ok(ExitCode::from(output::GOOD))
}

#[cfg(not(feature = "hdf5"))]
fn recover_files(_: &[PathBuf], _: Output) -> anyhow::Result<ExitCode> {
    anyhow::bail!("this program was built without HDF5")
}

/// Recovers.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if super::device::are_meant(&args.scan)? {
        return super::device::recover(&args.scan, output);
    }
    if let Some(files) = hdf5_files(&args.scan)? {
        return recover_files(&files, output);
    }
    let roots = args.store.members()?;
    let options = Options {
        deep: args.deep,
        without_absent_members: args.without_absent_members,
        reindex: args.reindex,
    };
    let strangers = Cell::new(0);
    let unsealed = |entry: &Entry| match entry.state {
        Standing::Unsealed => true,
        Standing::Broken if entry.is_ours => true,
        Standing::Broken => {
            strangers.set(strangers.get() + 1);
            eprintln!("fullbore: {}", is_no_scan(entry));
            false
        }
        _ => false,
    };
    let scans = scan_arg::find_all(&roots, &args.scan, "recovered", unsealed)?;
    if scans.is_empty() && !output.json {
        println!("no unsealed scans");
    }
    let work = |scan: &ScanName| {
        let bar = scan_arg::meter(output, scan);
        let outcome = recover::recover(&roots, scan, options, &|read| bar.set_position(read));
        bar.finish_and_clear();
        match outcome {
            // Its recorder died when it had made the directories and nothing in them yet.
            Err(recover::Error::NothingLeft { .. }) if args.all => {
                remove::remove(&roots, scan).map(Told::Nothing).map_err(explained)
            }
            outcome => outcome.map(Told::Recovered).map_err(explained),
        }
    };
    let told = |told: &Told| match told {
        Told::Recovered(outcome) => text(outcome),
        Told::Nothing(removed) => {
            format!(
                "{}: nothing of it was written; its empty directories are removed\n",
                removed.scan
            )
        }
    };
    let judged = |told: &Told| match told {
        Told::Recovered(outcome) => judge(outcome),
        Told::Nothing(_) => output::GOOD,
    };
    let done = scan_arg::each(&scans, output, work, told, judged)?;
    let left_over = strangers.get() > 0 && done == ExitCode::from(output::GOOD);
    Ok(if left_over { ExitCode::from(output::FOUND) } else { done })
}

/// What came of a scan.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum Told {
    Recovered(Outcome),
    Nothing(Removed),
}

/// What --all leaves alone, and what could be done about it.
fn is_no_scan(entry: &Entry) -> String {
    let (name, problem) = (&entry.name, entry.problem.as_deref().unwrap_or("no manifest"));
    match name.parse::<ScanName>() {
        Ok(_) => format!(
            "{name}: {problem}, and nothing that says fullbore made it: left alone\n  \
             `fullbore recover {name}` makes a scan of it"
        ),
        Err(error) => format!(
            "{name}: {problem}: left alone\n  {error}; rename the directory to what its manifest says"
        ),
    }
}

fn judge(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::AlreadySealed { indexes, .. } if !indexes.is_empty() => output::FOUND,
        Outcome::AlreadySealed { .. } | Outcome::Completed { .. } => output::GOOD,
        Outcome::Recovered(recovery) => {
            let whole = |stream: &Recovered| stream.lost == 0 && stream.damaged == 0;
            if recovery.streams.iter().all(whole) { output::GOOD } else { output::FOUND }
        }
    }
}

fn text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::AlreadySealed { scan, state, absent, indexes } => {
            let state = format!("{state:?}").to_lowercase();
            let mut text = format!("{scan} is {state} already: nothing was done\n");
            for path in absent {
                text +=
                    &format!("  {} is absent: what lies there was not looked at\n", path.display());
            }
            for path in indexes {
                text += &format!("  {} is lost or damaged\n", path.display());
            }
            if !indexes.is_empty() {
                text += &format!(
                    "  `fullbore recover {scan} --reindex` builds it anew from what lies in the chunks\n"
                );
            }
            text
        }
        Outcome::Completed { scan, directories, .. } => format!(
            "{scan} had been sealed: its manifest was missing in some places, and was copied to them ({directories})\n"
        ),
        Outcome::Recovered(recovery) => {
            let mut text = match recovery.state {
                State::Recovered => {
                    format!("{} recovered in {:.1} s\n", recovery.scan, recovery.seconds)
                }
                state => {
                    let state = format!("{state:?}").to_lowercase();
                    format!("{} is {state}, and stays so: nothing of it was lost\n", recovery.scan)
                }
            };
            if let Some(Completeness { headline, explanation, .. }) = &recovery.completeness {
                text += &format!("  {headline}\n  {explanation}\n");
            }
            recovery.streams.iter().for_each(|stream| text += &of_stream(stream));
            recovery.warnings.iter().for_each(|warning| text += &format!("  {warning}\n"));
            text
        }
    }
}

fn of_stream(stream: &Recovered) -> String {
    let mut text = format!(
        "  {}: {}, {}, {} written of {} expected",
        stream.name,
        output::count(stream.blocks as usize, "block"),
        ByteSize(stream.bytes),
        counted(stream.terms.written, "frame"),
        stream.terms.expected,
    );
    let facts = [
        (
            stream.tail,
            "block",
            "not full when the recorder died, restored from the tail kept beside the chunks",
        ),
        (stream.tails_ignored, "tail", "damaged, or not the end of the stream: removed"),
        (stream.found, "block", "without an index record: kept, unverified"),
        (stream.cut, "block", "after the last durable mark, not whole: cut off"),
        (stream.lost, "block", "recorded and missing: no member holds it"),
        (stream.damaged, "block", "damaged though durable: `fullbore verify` says which"),
        (stream.superseded, "chunk", "on two members: one copy was moved out of sight"),
    ];
    for (number, one, fact) in facts.into_iter().filter(|(number, ..)| *number > 0) {
        text += &format!("\n    {} {fact}", counted(number, one));
    }
    if let Some(verdict) = stream.verdict {
        text += &format!(", {verdict}");
    }
    if stream.intact {
        text += ": its account is as it was";
    }
    text.push('\n');
    text
}
