//! `SCAN`: resolves a scan argument, the same for every verb: `session_scan`, or an unambiguous beginning of it;
//! followed by `/stream` to select one stream; optionally preceded by `store:`.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use fullbore_core::account::Account;
use fullbore_core::hint::with_causes;
use fullbore_core::name::{Name, ScanName};
use fullbore_store::catalogue::{self, Selected};
use fullbore_store::reader::{Scan, StoredStream};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::hint::explained;
use crate::output::{self, Output};

/// Finds a scan by its name or the beginning of it.
pub fn find(roots: &[PathBuf], text: &str) -> anyhow::Result<Selected> {
    must_name_a_scan(text)?;
    let name = text.strip_prefix("store:").unwrap_or(text);
    catalogue::find(roots, name).map_err(explained)
}

/// Refuses arguments that cannot be a scan of a store: other endpoints, and paths.
pub fn must_name_a_scan(text: &str) -> anyhow::Result<()> {
    let advice = match text.split_once(':').map(|(scheme, _)| scheme) {
        None if text.starts_with(['/', '.']) => {
            "name the directories of the store with --store, and the scan by its name: `fullbore ls` lists them"
        }
        None | Some("store") => return Ok(()),
        Some("file") => {
            "`fullbore play` takes a file of VDIF frames, and `fullbore convert` a dump of the data port of a PandA"
        }
        Some("udp" | "panda") => "`fullbore record` makes a scan of what it receives from there",
        Some("device") => "this command is for scans of a store alone: `fullbore ls` lists them",
        Some(_) => "`fullbore ls` lists the scans of a store",
    };
    let what = if text.contains(':') { "an address" } else { "a path" };
    anyhow::bail!(
        "`{text}` is {what}, and this command takes a scan of a store: SESSION_SCAN\n  {advice}"
    )
}

/// Finds a scan for a verb that works on whole scans; `what` describes its action.
pub fn find_whole(roots: &[PathBuf], text: &str, what: &str) -> anyhow::Result<ScanName> {
    let Selected { scan, stream } = find(roots, text)?;
    anyhow::ensure!(
        stream.is_none(),
        "`{text}` is one stream of a scan\n  scans are {what} whole: name {scan}"
    );
    Ok(scan)
}

/// Finds and opens a scan; the stream, if one was named with it (`session_scan/stream`).
pub fn open(roots: &[PathBuf], text: &str) -> anyhow::Result<(Scan, Option<Name>)> {
    let Selected { scan, stream } = find(roots, text)?;
    Ok((open_scan(roots, &scan)?, stream))
}

/// Opens a found scan.
pub fn open_scan(roots: &[PathBuf], scan: &ScanName) -> anyhow::Result<Scan> {
    Scan::open(roots, scan).map_err(explained)
}

/// A stream of a scan by its name.
pub fn stream<'a>(scan: &'a Scan, name: &str) -> anyhow::Result<&'a StoredStream> {
    scan.stream(name).ok_or_else(|| {
        let known: Vec<&str> = scan.streams.iter().map(|it| it.name.as_str()).collect();
        anyhow::anyhow!("{} has no stream {name}; it has {}", scan.manifest.scan, known.join(", "))
    })
}

/// True if a stream never came; prints a message. The exit code is 1, as for `record`.
pub fn never_came(scan: &Scan, stream: &StoredStream) -> bool {
    let account = stream.account.as_ref();
    let never = account.is_some_and(Account::never_came);
    if never {
        let (scan, stream) = (&scan.manifest.scan, &stream.name);
        output::note(format_args!("{scan}/{stream} never came: there are no frames of it"));
    }
    never
}

/// The scans that were typed, whole, or all that `wanted` accepts.
pub fn find_all(
    roots: &[PathBuf],
    typed: &[String],
    what: &str,
    wanted: impl Fn(&catalogue::Entry) -> bool,
) -> anyhow::Result<Vec<ScanName>> {
    if !typed.is_empty() {
        for root in roots {
            if let Err(error) = std::fs::read_dir(root) {
                output::complain(None, &format!("{}: {error}", root.display()));
            }
        }
        return typed.iter().map(|text| find_whole(roots, text, what)).collect();
    }
    let catalogue = catalogue::list(roots).map_err(explained)?;
    for failed in &catalogue.failed_roots {
        output::complain(None, &failed.to_string());
    }
    let names = catalogue.entries.iter().filter(|entry| wanted(entry));
    Ok(names.filter_map(|entry| entry.name.parse().ok()).collect())
}

/// Does the same for each scan and prints the results. A failure with one scan does not stop the others. Returns the
/// worst exit code.
pub fn each<T: Serialize>(
    scans: &[ScanName],
    output: Output,
    work: impl Fn(&ScanName) -> anyhow::Result<T>,
    text: impl Fn(&T) -> String,
    judge: impl Fn(&T) -> u8,
) -> anyhow::Result<ExitCode> {
    let mut worst = output::GOOD;
    for scan in scans {
        match work(scan) {
            Ok(result) => {
                output.tell(&result, || text(&result))?;
                worst = output::worse(worst, judge(&result));
            }
            Err(error) if scans.len() > 1 => {
                output::complain(None, &with_causes(&*error));
                worst = output::REFUSED;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ExitCode::from(worst))
}

/// The same for an unknown total.
pub fn meter(output: Output, name: &ScanName) -> ProgressBar {
    if !output.progress() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{msg} {spinner} {bytes} read, {bytes_per_sec}, {elapsed}");
    let style = style.expect("the template is well-formed");
    ProgressBar::new_spinner().with_style(style).with_message(name.to_string())
}

/// A progress bar with bytes, rate and time left on standard error, on a terminal only.
pub fn bar(output: Output, name: &impl Display) -> ProgressBar {
    drawn(output, name, "{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left")
}

/// The same for files.
pub fn files(output: Output, name: &ScanName) -> ProgressBar {
    drawn(output, name, "{msg} {bar:30} {pos} of {len} files, {eta} left")
}

fn drawn(output: Output, name: &impl Display, style: &str) -> ProgressBar {
    if are_lines_asked_for() {
        return told_as_lines(ProgressBar::hidden());
    }
    if !output.progress() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(style).expect("the template is well-formed");
    ProgressBar::new(0).with_style(style).with_message(name.to_string())
}

/// True if a station runs this command, and wants to know its progress.
pub fn are_lines_asked_for() -> bool {
    std::env::var_os("FULLBORE_PROGRESS_LINES").is_some()
}

/// Tells the progress of a bar on standard error several times a second: a record (RFC 7464) on a line.
pub fn told_as_lines(bar: ProgressBar) -> ProgressBar {
    let weak = bar.downgrade();
    let tell = move || {
        let mut told = None;
        while let Some(bar) = weak.upgrade().filter(|bar| !bar.is_finished()) {
            let now = (bar.position(), bar.length().unwrap_or(0));
            if told.replace(now) != Some(now) {
                output::say(format_args!("\u{1e}{{\"progress\":[{},{}]}}", now.0, now.1));
            }
            drop(bar);
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    // Without the thread there is no progress, and all else is as good.
    let _ = std::thread::Builder::new().name("progress".into()).spawn(tell);
    bar
}
