//! `fullbore recover`: seals a scan whose recorder died.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_care::recover::{self, Options, Outcome, Recovered};
use fullbore_care::remove::{self, Removed};
use fullbore_core::completeness::counted;
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_store::catalogue::{Entry, ScanState};

use crate::glance::{self, Paper, Tone};
use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::scan_arg;

/// Seal scans whose recorder died: by SIGKILL, power loss, or a crash.
///
/// recover keeps all data that was reported durable. It reads and checks the blocks
/// after the last durable mark, and cuts a chunk at the first block that is not
/// whole. Data without an index record is kept if it can be recognised, and marked
/// as unverified. The recorder saves the unfinished blocks of a slow stream once a
/// second; they become the end of the stream, so at most two seconds are lost.
/// recover counts the account again from index and data. A stream that lost nothing
/// keeps its account and verdict.
///
/// recover rebuilds a lost index from the frames; for a sealed scan, only with
/// --reindex. If no copy of the manifest can be read (`fullbore ls` shows such a
/// scan as broken), recover makes one from directory names, indexes, accounts and
/// frames, and lists what remains unknown.
///
/// A scan can also be an HDF5 file whose writer died: recover cuts its columns to
/// the length of the shortest, and the file opens again. It refuses a file that
/// another program has open.
///
/// For a device without a file system, give device:PATH or device:PATH?scan=SCAN.
/// recover keeps the scans up to their durable mark, and the data after it as far as
/// records and checksums reach.
///
/// With --all, recover removes a scan of which nothing was written before its
/// recorder died: it has only empty directories.
///
/// You can interrupt recover and run it again. It does not touch a scan that is
/// sealed or being recorded.
///
/// Exit codes: 0 recovered, or nothing to do; 1 recovered, but some recorded blocks
/// are missing or damaged, or something was found and left alone; 2 a scan could not
/// be recovered.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scans: `session_scan`, or an unambiguous beginning of the name.
    #[arg(value_name = "SCAN", required_unless_present = "all")]
    scan: Vec<String>,
    /// All scans of the store that are unsealed or have lost their manifest.
    #[arg(long, conflicts_with = "scan")]
    all: bool,
    /// Read and check every block, not only those after the last durable mark.
    #[arg(long)]
    deep: bool,
    /// Rebuild the index of a scan if it is lost or damaged, even if the scan is sealed.
    #[arg(long, conflicts_with = "all")]
    reindex: bool,
    /// Recover without the members that are not given: the scan loses the data on them.
    #[arg(long)]
    without_absent_members: bool,
    /// Keep what has arrived of an incomplete copy from another site, as a scan that lost the rest.
    #[arg(long, conflicts_with = "all")]
    incomplete_copy: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// The HDF5 files among the arguments; they cannot be mixed with others.
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
    struct RecoverFileJson<'a> {
        file: &'a Path,
        rows: u64,
        cut: u64,
        ended: bool,
    }
    for file in files {
        let found = fullbore_hdf5::recover(file).map_err(explained)?;
        let fullbore_hdf5::Recovered { rows, cut, ended } = found;
        output.tell(&RecoverFileJson { file, rows, cut, ended }, || match ended {
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

/// Runs the command.
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
        incomplete_copy: args.incomplete_copy,
    };
    let strangers = Cell::new(0);
    let unsealed = |entry: &Entry| match entry.state {
        ScanState::Unsealed => match &entry.incomplete_from {
            Some(host) => {
                let name = &entry.name;
                output::note(format_args!(
                    "{name}: an incomplete copy from {host}: left alone\n  `fullbore send` there \
                     continues it; `fullbore recover {name} --incomplete-copy` keeps what has arrived"
                ));
                false
            }
            None => true,
        },
        ScanState::Broken if entry.is_ours => true,
        ScanState::Broken => {
            strangers.set(strangers.get() + 1);
            output::note(format_args!("{}", is_no_scan(entry)));
            false
        }
        _ => false,
    };
    let scans = scan_arg::find_all(&roots, &args.scan, "recovered", unsealed)?;
    if scans.is_empty() && !output.json {
        output::print("no unsealed scans\n")?;
    }
    let work = |scan: &ScanName| {
        let bar = scan_arg::meter(output, scan);
        let outcome = recover::recover(&roots, scan, options, &|read| bar.set_position(read));
        bar.finish_and_clear();
        match outcome {
            // Its recorder died after creating the directories, before any file.
            Err(recover::Error::NothingLeft { .. }) if args.all => {
                remove::remove(&roots, scan).map(RecoverJson::Nothing).map_err(explained)
            }
            outcome => outcome.map(RecoverJson::Recovered).map_err(explained),
        }
    };
    let told = |told: &RecoverJson| match told {
        RecoverJson::Recovered(outcome) => text(outcome),
        RecoverJson::Nothing(removed) => {
            format!(
                "{}: nothing of it was written; its empty directories are removed\n",
                removed.scan
            )
        }
    };
    let judged = |told: &RecoverJson| match told {
        RecoverJson::Recovered(outcome) => judge(outcome),
        RecoverJson::Nothing(_) => output::GOOD,
    };
    let done = scan_arg::each(&scans, output, work, told, judged)?;
    let left_over = strangers.get() > 0 && done == ExitCode::from(output::GOOD);
    Ok(if left_over { ExitCode::from(output::FOUND) } else { done })
}

/// The result of a scan.
#[derive(serde::Serialize)]
#[serde(untagged)]
enum RecoverJson {
    Recovered(Outcome),
    Nothing(Removed),
}

/// The message about an entry that --all skips, with advice.
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
                text += &format!(
                    "  {} is not attached: the data there was not checked\n",
                    path.display()
                );
            }
            for path in indexes {
                text += &format!("  {} is lost or damaged\n", path.display());
            }
            if !indexes.is_empty() {
                text +=
                    &format!("  `fullbore recover {scan} --reindex` rebuilds it from the chunks\n");
            }
            text
        }
        Outcome::Completed { scan, directories, .. } => format!(
            "{scan} had been sealed: its manifest was missing in some places, and was copied to them ({directories})\n"
        ),
        Outcome::Recovered(recovery) => {
            let paper = Paper::of_stdout();
            let scan = match recovery.state {
                State::Recovered => {
                    format!("{} recovered in {:.1} s", recovery.scan, recovery.seconds)
                }
                state => {
                    let state = format!("{state:?}").to_lowercase();
                    format!("{} stays {state}: it lost nothing", recovery.scan)
                }
            };
            let (mut lines, explanation) = match &recovery.completeness {
                Some(it) => (glance::headline(paper, it, &scan), it.explanation.as_str()),
                None => (vec![scan], ""),
            };
            let each: Vec<(&str, String)> =
                recovery.streams.iter().map(|it| (it.name.as_str(), of_stream(it))).collect();
            let facts = glance::folded(&each).into_iter().chain([explanation.to_owned()]);
            let facts = facts.chain(recovery.warnings.iter().cloned());
            let facts = facts.filter(|fact| !fact.is_empty());
            lines.extend(facts.flat_map(|fact| paper.fact(&fact)));
            let next = format!("`fullbore verify {}` reads it back", recovery.scan);
            lines.extend(paper.hanging("  next: ", &next, Tone::Plain));
            lines.into_iter().map(|line| line + "\n").collect()
        }
    }
}

fn of_stream(stream: &Recovered) -> String {
    let mut text = format!(
        "{}, {}, {} written of {} expected",
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
        text += &format!("; {} {fact}", counted(number, one));
    }
    if let Some(verdict) = stream.verdict {
        text += &format!(", {verdict}");
    }
    if stream.intact {
        text += ": its account is as it was";
    }
    text
}
