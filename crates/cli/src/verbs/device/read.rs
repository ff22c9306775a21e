//! `verify`, `cat` and `convert` of a device: its bytes in order, checked.

#[cfg(feature = "hdf5")]
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::ensure;
use fullbore_core::completeness::Completeness;
use fullbore_core::device::{DeviceEnd, Direction, Status, StoredScan, Word};
use fullbore_core::hint::with_causes;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_device::verify::{Verification, verify_pattern, verify_scan};
use fullbore_device::{DeviceDiagnostic, DeviceReader, Error, Volume};
#[cfg(feature = "hdf5")]
use fullbore_linux::place::PlaceError;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_terminal::screen::device::words;
use indicatif::ProgressBar;
use serde::Serialize;

use super::parse;
use crate::hint::explained;
use crate::output::{self, Output};
use crate::signals;
use crate::verbs::scan_arg;

/// A stop handle for reading: Ctrl-C stops, a second one aborts.
fn control() -> anyhow::Result<Arc<StopHandle>> {
    let control = Arc::new(StopHandle::default());
    signals::stop_recording(&control)?;
    Ok(control)
}

/// `verify device:PATH[?scan=…]`, or `verify device:PATH?first=…&last=…&pattern=prbs31`.
pub fn verify(texts: &[String], output: Output) -> anyhow::Result<ExitCode> {
    let control = control()?;
    let mut worst = output::GOOD;
    for text in texts {
        let end = parse(text)?;
        if let Some(pattern) = end.pattern {
            ensure!(end.scan.is_none(), "a scan has checksums: `pattern` is for bare chunks");
            let bar = scan_arg::bar(output, &end.path.display());
            let progress = |done, total| move_on(&bar, done, total);
            let result = verify_pattern(&end, pattern, &control, &progress);
            bar.finish_and_clear();
            let verification = result.map_err(|error| refused(error, output))?;
            worst = output::worse(worst, tell(&verification, output)?);
            continue;
        }
        ensure!(
            end.first.is_none() && end.last.is_none(),
            "bare chunks have no checksums\n  name the pattern: {text}&pattern=prbs31"
        );
        worst = output::worse(worst, verify_scans(&end, &control, output)?);
    }
    Ok(ExitCode::from(worst))
}

fn verify_scans(end: &DeviceEnd, control: &StopHandle, output: Output) -> anyhow::Result<u8> {
    let mut volume = Volume::open_to_read(&end.path).map_err(explained)?;
    let names: Vec<ScanName> = match &end.scan {
        Some(name) => vec![name.clone()],
        None => volume.superblock().scans.iter().map(|scan| scan.name.clone()).collect(),
    };
    if names.is_empty() && !output.json {
        output::print("no scans\n")?;
    }
    let mut worst = output::GOOD;
    for name in &names {
        let bar = scan_arg::bar(output, name);
        let progress = |done, total| move_on(&bar, done, total);
        let result = verify_scan(&mut volume, name, control, &progress);
        bar.finish_and_clear();
        match result.map_err(explained) {
            Ok(verification) => worst = output::worse(worst, tell(&verification, output)?),
            // If one scan cannot be verified, the others are verified all the same.
            Err(error) if names.len() > 1 => {
                output::complain(None, &with_causes(&*error));
                worst = output::REFUSED;
            }
            Err(error) => return Err(error),
        }
        if control.stop_requests() > 0 {
            break;
        }
    }
    Ok(worst)
}

/// Adds the read status for refused addresses.
fn refused(error: Error, output: Output) -> anyhow::Error {
    if let Error::Address { source, .. } = &error
        && output.json
    {
        let status = Status::refused(Direction::Read, source);
        // The error is returned even if the output is closed.
        let _ =
            output.tell(&serde_json::json!({ "event": "refused", "status": status }), String::new);
    }
    explained(error)
}

/// True if a read was complete.
fn ran_through(status: &Status) -> bool {
    !status.has(Word::Stopped) && !status.has(Word::Aborted) && !status.has(Word::EarlyEnd)
}

fn tell(verification: &Verification, output: Output) -> anyhow::Result<u8> {
    output.tell(verification, || text(verification))?;
    let good = verification.good && ran_through(&verification.status);
    let incomplete =
        verification.completeness.as_ref().is_some_and(|it| it.complete == Some(false));
    Ok(match (good, incomplete) {
        (false, _) => output::FOUND,
        (true, true) => output::INCOMPLETE,
        (true, false) => output::GOOD,
    })
}

fn text(it: &Verification) -> String {
    let what =
        it.scan.as_ref().map_or_else(|| it.device.display().to_string(), ToString::to_string);
    let rate = it.bytes as f64 / it.seconds.max(1e-6);
    let intact = match (it.good, ran_through(&it.status)) {
        (true, true) => "intact",
        (true, false) => "intact as far as it was read",
        (false, _) => "DAMAGED",
    };
    let mut text = match &it.completeness {
        Some(recorded) if it.good => format!("{what}: {}\n  {intact}", recorded.headline),
        Some(recorded) => format!("{what}: {intact}\n  recorded as: {}\n  read", recorded.headline),
        None => format!("{what}: {intact}"),
    };
    text += &format!(
        ": {} in {} of {} good, {:.1} s, {}/s\n  status    {}\n",
        ByteSize(it.bytes),
        it.good_blocks,
        output::count(it.blocks as usize, "block"),
        it.seconds,
        ByteSize(rate as u64),
        words(&it.status),
    );
    it.findings.iter().for_each(|finding| text += &format!("! {finding}\n"));
    if it.unlisted > 0 {
        text += &format!("! and {} more\n", it.unlisted);
    }
    text
}

fn move_on(bar: &ProgressBar, done: u64, total: u64) {
    bar.set_length(total);
    bar.set_position(done);
}

/// The report on the bytes written.
#[derive(Serialize)]
struct Given {
    device: PathBuf,
    scan: Option<ScanName>,
    /// The output file, if not standard output.
    file: Option<PathBuf>,
    /// The read status.
    status: Status,
    bytes: u64,
    /// The damaged or missing parts.
    wrong: Vec<DeviceDiagnostic>,
    /// The completeness of the recording, if its frames were counted.
    #[serde(flatten)]
    completeness: Option<Completeness>,
}

impl Given {
    fn code(&self) -> ExitCode {
        let good = self.wrong.is_empty() && ran_through(&self.status);
        ExitCode::from(if good { output::GOOD } else { output::FOUND })
    }
}

/// `cat device:PATH?scan=…`, or of bare chunks.
pub fn cat(text: &str, allow_damaged: bool, output: Output) -> anyhow::Result<ExitCode> {
    ensure!(
        !io::stdout().is_terminal(),
        "refusing to write a device's bytes to a terminal: use a pipe or a file"
    );
    let end = parse(text)?;
    let bar = scan_arg::bar(output, &end.path.display());
    let given = give(&end, allow_damaged, &mut io::stdout().lock(), &bar, output);
    bar.finish_and_clear();
    let given = given?;
    if output.json {
        output::say(serde_json::to_string(&given)?);
    }
    Ok(given.code())
}

/// `convert device:PATH?scan=… file:OUT`: its bytes as a plain file.
#[cfg(feature = "hdf5")]
pub fn convert(
    from: &str,
    to: &str,
    allow_damaged: bool,
    quiet: bool,
    output: Output,
) -> anyhow::Result<ExitCode> {
    use anyhow::Context;
    use fullbore_core::endpoint::{Endpoint, file_path};

    use crate::hint::explained_of;

    let end = parse(from)?;
    let target = to.parse::<Endpoint>().ok().filter(|target| target.scheme == "file");
    let target = target.with_context(|| {
        format!("{to}: a scan on a device is converted to a plain file\n  write for example file:out.vdif")
    })?;
    let path = file_path(&target).map_err(|error| explained_of(to, error))?;
    let made = File::create_new(&path);
    let mut file = made.map_err(|error| explained(PlaceError::new(&path, error)))?;
    let bar = if quiet { ProgressBar::hidden() } else { scan_arg::bar(output, &path.display()) };
    let given = give(&end, allow_damaged, &mut file, &bar, output)
        .and_then(|given| file.sync_all().map(|()| given).context("syncing the file"));
    bar.finish_and_clear();
    let given = Given { file: Some(path.clone()), ..given? };
    output.tell(&given, || {
        let (path, bytes) = (path.display(), ByteSize(given.bytes));
        let headline = given.completeness.as_ref().map_or(String::new(), |recorded| {
            let scan = given.scan.as_ref().map_or(String::new(), ToString::to_string);
            format!("{scan}: {}\n  {}\n", recorded.headline, recorded.explanation)
        });
        format!(
            "{headline}{path}: {bytes}, {}\n  status    {}\n",
            whole(&given),
            words(&given.status)
        )
    })?;
    Ok(given.code())
}

#[cfg(feature = "hdf5")]
fn whole(given: &Given) -> String {
    match (given.wrong.len(), ran_through(&given.status)) {
        (0, true) => "whole".into(),
        (0, false) => "ended early".into(),
        (wrong, _) => format!("{} wrong", output::count(wrong, "block")),
    }
}

fn give(
    end: &DeviceEnd,
    allow_damaged: bool,
    out: &mut dyn Write,
    bar: &ProgressBar,
    output: Output,
) -> anyhow::Result<Given> {
    let contents = DeviceReader::open(end).map_err(|error| refused(error, output))?;
    let mut given = Given {
        device: contents.path().to_owned(),
        scan: end.scan.clone(),
        file: None,
        status: contents.status(),
        bytes: 0,
        wrong: contents.findings().to_vec(),
        completeness: contents.scan().and_then(StoredScan::completeness),
    };
    if !given.wrong.is_empty() && !allow_damaged {
        given.wrong.iter().for_each(|finding| complain(finding, output, true));
        return Ok(given);
    }
    let control = control()?;
    let progress = |done, total| move_on(bar, done, total);
    let status = contents.read::<anyhow::Error>(&control, &progress, |part| {
        let damaged = part.finding.is_some();
        if let Some(finding) = part.finding {
            bar.suspend(|| complain(&finding, output, !allow_damaged));
            given.wrong.push(finding);
        }
        if damaged && !allow_damaged {
            return Ok(ControlFlow::Break(()));
        }
        if let Some(bytes) = part.bytes {
            out.write_all(bytes)?;
            given.bytes += bytes.len() as u64;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    given.status = status;
    out.flush()?;
    Ok(given)
}

fn complain(finding: &DeviceDiagnostic, output: Output, ends: bool) {
    if !output.json {
        output::note(format_args!("{finding}"));
        if ends {
            output::say("  --allow-damaged continues without it");
        }
    }
}
