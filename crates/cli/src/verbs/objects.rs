//! `verify`, `info`, `ls` and `cat` of copies in object stores, read in place.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use fullbore_care::verify;
use fullbore_core::completeness::Completeness;
use fullbore_core::hint;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_transfer::objects::copy::{self, ListedCopy, RemoteScan, WrongBlock};
use fullbore_transfer::objects::{Address, Bucket, ObjectError};
use serde::Serialize;

use super::{cat as cat_verb, info as info_verb};
use crate::account_table::columns;
use crate::hint::explained;
use crate::output::{self, Output, count};
use crate::verbs::scan_arg;

/// Time during which a request that failed is repeated.
const PATIENCE: Duration = Duration::from_secs(60);

/// Findings that are printed.
const LISTED: usize = 20;

/// Opens the place of a copy.
fn place(text: &str) -> anyhow::Result<(Bucket, ScanName)> {
    let address: Address = text.parse()?;
    let (place, scan) = address.split_scan()?;
    Ok((Bucket::open(place, PATIENCE).map_err(explained)?, scan))
}

/// Lists the copies at a place.
pub fn ls(text: &str, output: Output) -> anyhow::Result<ExitCode> {
    list(&Bucket::open(text.parse()?, PATIENCE).map_err(explained)?, output)
}

/// The same for an opened place.
pub fn list(bucket: &Bucket, output: Output) -> anyhow::Result<ExitCode> {
    let copies = copy::list(bucket).map_err(explained)?;
    output.tell(&copies, || listed(&copies))?;
    Ok(ExitCode::from(output::GOOD))
}

fn listed(copies: &[ListedCopy]) -> String {
    if copies.is_empty() {
        return "no copies\n".into();
    }
    let mut rows = vec![["copy", "state", "size"].map(str::to_owned).to_vec()];
    rows.extend(copies.iter().map(|it| {
        let state = match (it.complete, &it.problem) {
            (true, _) => "complete",
            (false, None) => "incomplete",
            (false, Some(_)) => "broken",
        };
        let size = it.bytes.map_or("-".to_owned(), |bytes| ByteSize(bytes).to_string());
        vec![it.scan.clone(), state.to_owned(), size]
    }));
    let mut text = columns(&rows, 2);
    for copy in copies {
        if let Some(problem) = &copy.problem {
            text += &format!("{}: {problem}\n", copy.scan);
        }
    }
    text
}

/// Shows a copy.
pub fn info(args: &info_verb::Args, output: Output) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!args.follow, "--follow is for a scan of a store");
    let (bucket, scan) = place(&args.scan)?;
    let remote = RemoteScan::open(&bucket, &scan).map_err(explained)?;
    let address = remote.address();
    info_verb::show(args, &remote.roots(), &scan.to_string(), Some(&address), output)
}

/// The result of verifying a copy.
#[derive(Serialize)]
struct Verified {
    scan: String,
    address: String,
    /// True if every block is there, as it was written.
    good: bool,
    #[serde(flatten)]
    completeness: Option<Completeness>,
    blocks: u64,
    bytes: u64,
    seconds: f64,
    /// The reason why the copy cannot be read at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// Blocks that are damaged or missing.
    findings: Vec<WrongBlock>,
}

/// Verifies copies: reads every block.
pub fn verify(texts: &[String], output: Output) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        texts.iter().all(|text| Address::is_meant(text)),
        "scans of a store and copies in object stores cannot be combined\n  use two commands"
    );
    let stop = crate::signals::stop_handle()?;
    let mut worst = output::GOOD;
    for text in texts {
        let verified = verify_one(text, &stop, output)?;
        output.tell(&verified, || verified_text(&verified))?;
        let incomplete =
            verified.completeness.as_ref().is_some_and(|it| it.complete == Some(false));
        let code = match (verified.good, incomplete) {
            (false, _) => output::FOUND,
            (true, true) => output::INCOMPLETE,
            (true, false) => output::GOOD,
        };
        worst = output::worse(worst, code);
    }
    Ok(ExitCode::from(worst))
}

fn verify_one(text: &str, stop: &StopHandle, output: Output) -> anyhow::Result<Verified> {
    let begun = Instant::now();
    let (bucket, scan) = place(text)?;
    let mut verified = Verified {
        scan: scan.to_string(),
        address: text.to_owned(),
        good: false,
        completeness: None,
        blocks: 0,
        bytes: 0,
        seconds: 0.0,
        problem: None,
        findings: Vec::new(),
    };
    let remote = match RemoteScan::open(&bucket, &scan) {
        Ok(remote) => remote,
        Err(error) if is_about_the_copy(&error) => {
            verified.problem = Some(hint::explained(&error).to_string());
            return Ok(verified);
        }
        Err(error) => return Err(explained(error)),
    };
    let bar = scan_arg::bar(output, &scan);
    bar.set_length(remote.bytes());
    let findings = remote.check(stop, &mut |done| bar.set_position(done));
    bar.finish_and_clear();
    verified.findings = findings.map_err(explained)?;
    verified.good = verified.findings.is_empty() && remote.scan().findings.is_empty();
    verified.problem = remote.scan().findings.first().map(ToString::to_string);
    verified.completeness = verify::completeness(remote.scan());
    verified.blocks = remote.scan().streams.iter().map(|it| it.blocks.len() as u64).sum();
    verified.bytes = remote.bytes();
    verified.seconds = begun.elapsed().as_secs_f64();
    Ok(verified)
}

/// True if an error says that a copy is not whole, rather than that nobody can know.
fn is_about_the_copy(error: &ObjectError) -> bool {
    matches!(
        error,
        ObjectError::Incomplete { .. } | ObjectError::Invalid { .. } | ObjectError::Name { .. }
    )
}

fn verified_text(it: &Verified) -> String {
    let Verified { scan, address, blocks, bytes, seconds, .. } = it;
    let blocks = count(*blocks as usize, "block");
    let read = format!("{} in {blocks}, {seconds:.1} s, at {address}", ByteSize(*bytes));
    let recorded =
        it.completeness.as_ref().map_or("UNKNOWN: the scan has no account", |it| &it.headline);
    let mut text = match (it.good, it.findings.len()) {
        (true, _) => format!("{recorded}\n  {scan} intact: {read}\n"),
        (false, 0) => format!("NOT INTACT: {scan} at {address}\n"),
        (false, wrong) => {
            format!("DAMAGED: {} of {scan}\n  read: {read}\n", count(wrong, "block"))
        }
    };
    text += &it.problem.as_ref().map_or(String::new(), |why| format!("! {why}\n"));
    for wrong in it.findings.iter().take(LISTED) {
        text += &format!("! {wrong}\n");
    }
    if it.findings.len() > LISTED {
        text += &format!("! and {} more; --json lists all\n", it.findings.len() - LISTED);
    }
    text
}

/// Writes a stream of a copy.
pub fn cat(args: &cat_verb::Args, output: Output) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!args.follow, "--follow is for a scan of a store");
    let (bucket, name) = place(&args.scan)?;
    let remote = RemoteScan::open(&bucket, &name).map_err(explained)?;
    let scan = remote.scan();
    let stream = cat_verb::choose(scan, args.stream.as_ref())?;
    if scan_arg::never_came(scan, stream) {
        return Ok(ExitCode::from(output::FOUND));
    }
    let frames = cat_verb::range(stream, args.from, args.until)?;
    cat_verb::ensure_fillable(args, stream)?;
    let positions = cat_verb::positions(stream, &frames);
    let mut out = io::stdout().lock();
    let (mut wrong, mut failed) = (Vec::new(), None);
    remote
        .read(vec![(stream.number, positions)], &|_| true, &mut |read| {
            let damaged = read.wrong.is_some();
            if !damaged || args.allow_damaged {
                let block = &read.location.block;
                let no_fill = args.no_fill;
                if let Err(error) =
                    cat_verb::write_block(&mut out, stream, block, read.data, &frames, no_fill)
                {
                    failed = Some(error);
                    return Ok(false);
                }
            }
            wrong.extend(read.wrong);
            Ok(!damaged || args.allow_damaged)
        })
        .map_err(explained)?;
    if let Some(error) = failed {
        return Err(error);
    }
    out.flush()?;
    report(&wrong, args.allow_damaged, output)
}

/// Tells on standard error what could not be written.
fn report(wrong: &[WrongBlock], allowed: bool, output: Output) -> anyhow::Result<ExitCode> {
    if output.json {
        output::say(serde_json::to_string(&wrong)?);
    } else {
        for it in wrong {
            output::note(format_args!("{it}"));
        }
        if !wrong.is_empty() && !allowed {
            output::say("  --allow-damaged continues without it");
        }
    }
    Ok(ExitCode::from(if wrong.is_empty() { output::GOOD } else { output::FOUND }))
}
