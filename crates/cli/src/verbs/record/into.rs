//! `fullbore record --to`: datagrams into a container, seen while they come.

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, ensure};
use fullbore_core::container::Hdf5Target;
use fullbore_core::endpoint::UdpSource;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::container::{ContainerPlan, record};
use fullbore_engine::recorder::{Control, Event, Limit};
use fullbore_engine::sink::hdf5;

use super::{Args, judge};
use crate::hint::{explained, explained_of};
use crate::output::{self, Output};
use crate::screen::Screen;
use crate::signals;
use crate::verbs::panda::record::options;

/// What files say that they are of, where nobody says otherwise.
const SESSION: &str = "live";

/// Records.
pub fn run(args: &Args, target: &Hdf5Target, output: Output) -> anyhow::Result<ExitCode> {
    let plan = resolve(args, target)?;
    let control = Arc::new(Control::default());
    signals::stop_recording(&control)?;
    let mut screen = Screen::new(output, args.quiet)?;
    let mut code = output::GOOD;
    let mut tell = |event: &Event| {
        if let Event::Sealed(sealed) = event {
            code = code.max(judge(sealed));
        }
        screen.event(event);
    };
    let ended = record(plan, &control, &mut tell);
    screen.end();
    ended.map_err(explained)?;
    Ok(ExitCode::from(code))
}

/// From what was typed to what was meant.
fn resolve(args: &Args, target: &Hdf5Target) -> anyhow::Result<ContainerPlan> {
    ensure!(
        args.scans == 1,
        "--scans {}: a container takes one scan of datagrams\n  record several into a store, and convert each",
        args.scans
    );
    ensure!(!args.arm, "--arm: there is no PandA among the sources");
    ensure!(args.buffer != Some(ByteSize(0)), "--buffer is zero");
    ensure!(args.bytes != Some(ByteSize(0)), "--bytes is zero");
    ensure!(args.duration.is_none_or(|it| !it.is_zero()), "--duration is zero");
    ensure!(args.capture_threads != Some(0), "--capture-threads is zero: nothing would listen");
    let mut sources = Vec::new();
    for text in &args.source {
        sources.extend(UdpSource::parse(text).map_err(|error| explained_of(text, error))?);
    }
    Ok(ContainerPlan {
        sources,
        name: name(args, target)?,
        path: hdf5::numbered(&target.path, 1),
        options: options(target),
        limit: Limit {
            duration: args.duration,
            bytes: args.bytes.map(|size| size.0),
            until: args.until,
        },
        buffer: args.buffer,
        capture_threads: args.capture_threads,
        cpus: args.cpus.clone(),
        clock: args.clock.limits(),
    })
}

/// What was given, else `live` and what the file is called.
fn name(args: &Args, target: &Hdf5Target) -> anyhow::Result<ScanName> {
    let session = if args.session.is_empty() { SESSION } else { &args.session };
    let session = Name::session(session).context("--session")?;
    let stem = target.path.file_stem().map(|stem| stem.to_string_lossy()).unwrap_or_default();
    let letters: String = stem.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    let scan = match (args.scan.as_str(), letters.as_str()) {
        ("", "") => "scan",
        ("", letters) => letters,
        (given, _) => given,
    };
    Ok(ScanName { session, scan: scan.parse().context("--scan")? })
}
