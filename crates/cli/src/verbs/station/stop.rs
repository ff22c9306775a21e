//! `fullbore stop`: ends recordings of a station.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args as ClapArgs;
use fullbore_client::status::{name_of, of_recording};
use fullbore_client::{Client, Error, Method};
use fullbore_core::hint::with_causes;
use fullbore_terminal::output::{self, Output};
use serde_json::Value;

use crate::hint::explained;
use crate::store_arg::StoreArg;

/// Stop recordings of a station: they write what they hold, and their scans are sealed.
///
/// stop waits until the recordings have ended. A recorder that runs without a daemon stops by Ctrl-C on its terminal.
///
/// Exit codes: 0 all have ended, and nothing is lost; 1 one of them lost frames, was aborted, or has no sealed scan; 2 one
/// could not be stopped.
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
    let mut worst = output::GOOD;
    let what = if args.abort { "abort" } else { "stop" };
    let mut asked = Vec::new();
    for path in &paths {
        match client.send(Method::POST, &format!("{path}/{what}"), None) {
            // With 409 it has just ended.
            Ok(_) | Err(Error::Refused { status: 409, .. }) => asked.push(path),
            // The others are stopped nevertheless.
            Err(error) => {
                output::complain(None, &with_causes(&*explained(error)));
                worst = output::REFUSED;
            }
        }
    }
    for path in asked {
        let ended = until_ended(&client, path)?;
        output.tell(&ended, || of_recording(&ended) + "\n")?;
        worst = output::worse(worst, code_of(&ended));
    }
    Ok(ExitCode::from(worst))
}

/// The exit code of a recording. If another daemon started it, there is none, and its scans tell how it ended.
fn code_of(ended: &Value) -> u8 {
    if let Some(code) = ended["exit_code"].as_u64() {
        return u8::try_from(code).unwrap_or(output::FOUND);
    }
    let finished = ended["finished"].as_array().map_or(&[][..], Vec::as_slice);
    let is_whole = |scan: &Value| scan["complete"] != false && !scan["unsealed"].is_string();
    match ended["complaint"].is_null() && !finished.is_empty() && finished.iter().all(is_whole) {
        true => output::GOOD,
        false => output::FOUND,
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_recording_of_another_daemon_is_judged_by_its_scans() {
        let whole = json!({"complete": true});
        let blind = json!({"complete": null});
        let lossy = json!({"complete": false});
        let unsealed = json!({"complete": true, "unsealed": "the disk is full"});
        for (code, complaint, finished, expected) in [
            (json!(0), json!(null), json!([lossy]), output::GOOD),
            (json!(1), json!(null), json!([whole]), output::FOUND),
            (json!(null), json!(null), json!([whole, blind]), output::GOOD),
            (json!(null), json!(null), json!([whole, lossy]), output::FOUND),
            (json!(null), json!(null), json!([unsealed]), output::FOUND),
            (json!(null), json!(null), json!([]), output::FOUND),
            (json!(null), json!({"error": "killed"}), json!([whole]), output::FOUND),
        ] {
            let ended = json!({"exit_code": code, "complaint": complaint, "finished": finished});
            assert_eq!(code_of(&ended), expected, "{ended}");
        }
    }
}
