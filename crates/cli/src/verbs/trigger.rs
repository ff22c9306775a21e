//! `fullbore trigger`: keeps a part of a circular recording.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args as ClapArgs;
use fullbore_core::name::ScanName;
use fullbore_engine::recorder::Event;
use fullbore_recording::circular::{Settled, TriggerRequest, is_kept, settle};
use fullbore_time::Tai;
use serde::Serialize;

use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::sending::duration;

/// Keep a part of a circular recording as a scan of its own.
///
/// trigger keeps the data of `record --circular` from --before until --after a moment, in whole
/// pieces of the recording. No data is copied. The trigger is on the disk when the command
/// returns, and the scan appears when the piece with its end is sealed. Triggers may overlap.
/// If the recorder has died, `fullbore recover` the last piece first.
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
struct TriggerJson {
    scan: ScanName,
    from: Tai,
    to: Tai,
    /// False if the recorder makes the scan later.
    done: bool,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let roots = args.store.members()?;
    let Args { recording, before, after, at, name, note, wait, .. } = args;
    let request = TriggerRequest { recording, before, after, at, name, note };
    let trigger = request.set(&roots).map_err(explained)?;
    let (ring, scan) = (trigger.ring(), trigger.keep_as);
    let (done, is_there) = loop {
        let settled = settle(&roots, &ring).map_err(explained)?;
        let is_there = is_kept(&roots, &scan).map_err(explained)?;
        match settled {
            Settled::Here(told) => {
                told.iter().for_each(say);
                break (true, is_there);
            }
            Settled::Unsealed { piece, memory } => {
                let members = memory.unwrap_or_default();
                let members = members.iter().map(|it| it.display().to_string()).collect::<Vec<_>>();
                let store = if members.is_empty() { "" } else { " --store " };
                bail!(
                    "{piece} is not sealed: its recorder died, and the trigger waits\n  \
                     `fullbore recover {piece}{store}{}`, then `fullbore trigger {ring} --name {}` completes it",
                    members.join(","),
                    scan.scan
                )
            }
            Settled::Recorder if is_there || !wait => break (is_there, true),
            Settled::Recorder => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    let told = TriggerJson { scan, from: trigger.from, to: trigger.to, done };
    let TriggerJson { scan, from, to, .. } = &told;
    let later = if done { "" } else { " will be kept" };
    output.tell(&told, || format!("{scan}: {from:.3} to {to:.3}{later}\n"))?;
    Ok(ExitCode::from(if is_there { output::GOOD } else { output::FOUND }))
}

fn say(event: &Event) {
    if let Event::Note { text } | Event::Warning { text } = event {
        output::say(text);
    }
}
