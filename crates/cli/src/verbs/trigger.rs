//! `fullbore trigger`: keeps a part of a circular recording.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args as ClapArgs;
use fullbore_core::marker::Text;
use fullbore_core::name::ScanName;
use fullbore_engine::recorder::Event;
use fullbore_linux::clock::Clock;
use fullbore_recording::circular::{AFTER, BEFORE, RingName, Settled, Trigger, rings, settle};
use fullbore_store::catalogue;
use fullbore_time::Tai;
use serde::Serialize;

use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::sending::duration;

/// Keep a part of a circular recording as a scan of its own.
///
/// trigger keeps the data of `record --circular` from --before until --after a moment, in whole pieces of the recording. No
/// data is copied. The trigger is on the disk when the command returns, and the scan appears when the piece with its end is
/// sealed. Triggers may overlap. If the recorder has died, `fullbore recover` the last piece first.
///
///   fullbore record udp://:46220 --session s --scan sky --circular 30min
///   fullbore trigger s_sky --before 10s --after 5s --name burst1
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The circular recording: `session_scan` as given to `record`, or an unambiguous beginning of it.
    #[arg(value_name = "RECORDING")]
    recording: String,
    /// The time before the moment that is kept [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    before: Option<Duration>,
    /// The time after the moment that is kept [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    after: Option<Duration>,
    /// The moment, in UTC by the clock of the recording host [default: now]
    #[arg(long, value_name = "UTC")]
    at: Option<Tai>,
    /// The name of the scan, without its session [default: the recording, `kept` and the time]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// A note, which becomes a marker of the scan [default: trigger]
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Wait until the scan is there.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Serialize)]
struct TriggerJson<'a> {
    scan: &'a ScanName,
    at: Tai,
    from: Tai,
    to: Tai,
    /// False if a recorder will make the scan.
    done: bool,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let roots = args.store.members()?;
    let ring = find(&roots, &args.recording)?;
    let at = args.at.unwrap_or_else(|| Clock::new().now());
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let from = at.plus_ns(-ns(args.before.unwrap_or(BEFORE)));
    let to = at.plus_ns(ns(args.after.unwrap_or(AFTER)));
    let scan = match &args.name {
        Some(name) => ScanName { session: ring.0.session.clone(), scan: name.parse()? },
        None => ring.kept(at)?,
    };
    ensure!(RingName::of_piece(&scan).is_none(), "{scan} would be the name of a piece");
    ensure!(!exists(&roots, &scan)?, "there is a scan {scan} already: choose another --name");
    let note = Text::typed(args.note.as_deref().unwrap_or("trigger"))?;
    let trigger = Trigger::new(&ring, at, (from, to), scan, note);
    trigger.put(&roots).map_err(explained)?;
    let mut done = false;
    loop {
        match settle(&roots, &ring).map_err(explained)? {
            Settled::Here(told) => {
                done = true;
                told.iter().for_each(say);
            }
            Settled::Unsealed(piece) => {
                bail!("{piece} is not sealed: its recorder died\n  `fullbore recover {piece}`, then trigger again")
            }
            Settled::Recorder => {}
        }
        done |= exists(&roots, &trigger.keep_as)?;
        if done || !args.wait {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let kept = !done || exists(&roots, &trigger.keep_as)?;
    let told = TriggerJson { scan: &trigger.keep_as, at, from, to, done };
    output.tell(&told, || text(&told))?;
    Ok(ExitCode::from(if kept { output::GOOD } else { output::FOUND }))
}

fn text(told: &TriggerJson<'_>) -> String {
    let TriggerJson { scan, from, to, done, .. } = told;
    match done {
        true => format!("{scan}: {from:.3} to {to:.3}\n"),
        false => format!("{scan}: {from:.3} to {to:.3} will be kept\n"),
    }
}

fn say(event: &Event) {
    if let Event::Note { text } | Event::Warning { text } = event {
        output::say(text);
    }
}

/// Finds a circular recording by its name or the beginning of it.
fn find(roots: &[PathBuf], text: &str) -> anyhow::Result<RingName> {
    let all = rings(roots).map_err(explained)?;
    if let Some(exact) = all.iter().find(|ring| ring.to_string() == text) {
        return Ok(exact.clone());
    }
    let mut like = all.into_iter().filter(|ring| ring.to_string().starts_with(text));
    let one = like.next().with_context(|| {
        format!("there is no circular recording `{text}`\n  `fullbore ls` lists the pieces of each")
    })?;
    match like.next() {
        Some(other) => bail!("`{text}` is ambiguous: {one}, {other}"),
        None => Ok(one),
    }
}

fn exists(roots: &[PathBuf], scan: &ScanName) -> anyhow::Result<bool> {
    let entries = catalogue::list(roots).map_err(explained)?.entries;
    Ok(entries.iter().any(|entry| entry.name == scan.to_string()))
}
