//! `fullbore stop`: ends recordings of a station.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args as ClapArgs;
use fullbore_client::status::{name_of, of_recording};
use fullbore_client::{Client, Method};
use fullbore_terminal::output::{self, Output};
use serde_json::Value;

use crate::hint::explained;
use crate::store_arg::StoreArg;

/// Stop recordings of a station: they write what they hold, and their scans are sealed.
///
/// stop waits until the recordings have ended. A recorder that runs without a daemon stops by Ctrl-C on its terminal.
///
/// Exit codes: 0 all have ended, and nothing is lost; 1 one of them lost frames, or was aborted; 2 one could not be
/// stopped.
#[derive(ClapArgs)]
pub struct Args {
    /// The recordings: SESSION_SCAN, or the identity that `fullbore status` shows.
    #[arg(value_name = "SCAN|ID", required_unless_present = "all")]
    recording: Vec<String>,
    /// All recordings that run.
    #[arg(long, conflicts_with = "recording")]
    all: bool,
    /// Count what they hold, and drop it.
    #[arg(long)]
    abort: bool,
    #[command(flatten)]
    store: StoreArg,
}

/// Runs the command.
pub fn run(args: &Args, station: Option<&str>, output: Output) -> anyhow::Result<ExitCode> {
    let client = super::client(station, &args.store.store)?;
    let all = client.get("/api/v1/recordings").map_err(explained)?;
    let active: Vec<&Value> =
        all.as_array().into_iter().flatten().filter(|it| it["phase"] != "ended").collect();
    let is_meant = |it: &Value, text: &str| it["id"] == text || name_of(&it["scan"]) == text;
    for text in &args.recording {
        anyhow::ensure!(
            active.iter().any(|it| is_meant(it, text)),
            "the station does not record {text}\n  `fullbore status` shows what it records"
        );
    }
    let wanted =
        active.iter().filter(|it| args.all || args.recording.iter().any(|text| is_meant(it, text)));
    let paths: Vec<String> = wanted
        .map(|it| format!("/api/v1/recordings/{}", it["id"].as_str().unwrap_or_default()))
        .collect();
    for path in &paths {
        let what = if args.abort { "abort" } else { "stop" };
        client.send(Method::POST, &format!("{path}/{what}"), None).map_err(explained)?;
    }
    let mut worst = output::GOOD;
    for path in &paths {
        let ended = until_ended(&client, path)?;
        output.tell(&ended, || of_recording(&ended) + "\n")?;
        // Without a code, another daemon started it.
        let code = ended["exit_code"].as_u64().and_then(|code| u8::try_from(code).ok());
        worst = output::worse(worst, code.unwrap_or(output::GOOD));
    }
    Ok(ExitCode::from(worst))
}

fn until_ended(client: &Client, path: &str) -> anyhow::Result<Value> {
    loop {
        let told = client.get(path).map_err(explained)?;
        if told["phase"] == "ended" {
            return Ok(told);
        }
        thread::sleep(Duration::from_millis(100));
    }
}
