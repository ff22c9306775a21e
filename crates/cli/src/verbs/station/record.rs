//! `record --station`: the station starts a recorder, and its events are shown here.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use fullbore_client::output::Told;
use fullbore_client::status::name_of;
use fullbore_client::{Client, Error, Method};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_terminal::output::{self, Output};
use serde_json::Value;

use super::{Given, told_by_station};
use crate::hint::explained;
use crate::signals;

/// Options that a station takes: those of `StartRequest` of its REST interface.
const TAKEN: &[&str] = &[
    "session",
    "scan",
    "scans",
    "start",
    "until",
    "duration",
    "bytes",
    "circular",
    "buffer",
    "chunk",
    "redundancy",
    "arm",
];

/// Starts the recording, and follows it to its end.
pub(super) fn run(client: &Client, given: Given, output: Output) -> anyhow::Result<ExitCode> {
    let Given { arguments, mut options } = given;
    let is_set = |flag: Option<Value>| flag == Some(Value::Bool(true));
    let (detach, quiet) = (is_set(options.remove("detach")), is_set(options.remove("quiet")));
    if let Some(key) = options.keys().find(|key| !TAKEN.contains(&key.as_str())) {
        let advice = match key.as_str() {
            "schedule" => "`fullbore schedule put NAME FILE` gives a schedule to a station",
            _ => "a station records into its own store, with its own settings",
        };
        anyhow::bail!("--{key} is not for a recording at a station\n  {advice}");
    }
    if let Some(scans) = options.get_mut("scans") {
        let number = scans.as_str().and_then(|text| text.parse::<u32>().ok());
        *scans = number.into();
    }
    options.insert("source".to_owned(), arguments.into());
    let body = Value::Object(options);
    let begun = client.send(Method::POST, "/api/v1/recordings", Some(&body)).map_err(explained)?;
    let id = begun["id"].as_str().unwrap_or_default().to_owned();
    if detach {
        let scan = name_of(&begun["scan"]);
        output.tell(&begun, || format!("{scan}: recording {id} at {}\n", client.station()))?;
        return Ok(ExitCode::from(output::GOOD));
    }
    follow(client, &id, output, quiet)
}

fn follow(client: &Client, id: &str, output: Output, quiet: bool) -> anyhow::Result<ExitCode> {
    let stop = Arc::new(StopHandle::default());
    signals::stop_recording(&stop)?;
    let mut screen = Screen { output, quiet, drawn: 0 };
    let (mut code, mut requests, mut left) = (None, 0, false);
    let path = format!("/api/v1/recordings/{id}");
    let followed = client.follow(&format!("{path}/output"), |line| -> anyhow::Result<()> {
        while requests < stop.stop_requests() && !left {
            screen.erase();
            match requests == 0 && !wants_to_stop(client)? {
                true => left = true,
                false => {
                    let what = if requests == 0 { "stop" } else { "abort" };
                    match client.send(Method::POST, &format!("{path}/{what}"), None) {
                        // It has just ended, and its last line is still to come.
                        Err(Error::Refused { status: 409, .. }) => {}
                        asked => drop(asked.map_err(explained)?),
                    }
                    requests += 1;
                }
            }
        }
        anyhow::ensure!(!left, "the client leaves");
        let Some(told) = line.and_then(Told::of_line) else { return Ok(()) };
        if told.event == "ended" {
            let complaint = &told.value["complaint"];
            if let Some(error) = complaint["error"].as_str() {
                let advice = complaint["advice"].as_str();
                let advice = advice.map(|it| format!("\n  {it}")).unwrap_or_default();
                output::complain(None, &format!("{error}{advice}"));
            }
            code = told.value["exit_code"].as_u64().and_then(|code| u8::try_from(code).ok());
            return Ok(());
        }
        screen.show(&told)
    });
    screen.erase();
    if left {
        let station = client.station();
        output::note(format_args!(
            "recording {id} goes on at {station}\n  `fullbore stop {id}` ends it"
        ));
        return Ok(ExitCode::from(output::GOOD));
    }
    followed.map_err(told_by_station)?;
    match code {
        Some(code) => Ok(ExitCode::from(code)),
        None => anyhow::bail!(
            "how the recording ended is not known: the daemon was started again meanwhile"
        ),
    }
}

/// Asks on a terminal. Without one, a signal stops the recording.
fn wants_to_stop(client: &Client) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Ok(true);
    }
    write!(
        io::stderr(),
        "\nstop the recording at {}, or leave it running? [s/l] ",
        client.station()
    )?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(!matches!(answer.trim(), "l" | "L" | "leave"))
}

/// What `record` shows: JSON, or lines with the picture of the newest state below them.
struct Screen {
    output: Output,
    quiet: bool,
    /// Lines of the picture that is drawn.
    drawn: usize,
}

impl Screen {
    fn show(&mut self, told: &Told) -> anyhow::Result<()> {
        if self.output.json {
            return output::print(&format!("{}\n", told.line));
        }
        let Some(text) = &told.shown else { return Ok(()) };
        let text = console::strip_ansi_codes(text);
        match told.event.as_str() {
            "sealed" | "unsealed" => {
                self.erase();
                output::print(&text)?;
            }
            "progress" if !self.quiet && self.output.progress() => {
                self.erase();
                self.drawn = text.lines().count();
                self.say(&text);
            }
            "progress" => {}
            _ => {
                self.erase();
                self.say(&text);
            }
        }
        Ok(())
    }

    fn erase(&mut self) {
        if self.drawn > 0 {
            let up = format!("\r\x1b[{}A\x1b[J", self.drawn);
            self.drawn = 0;
            self.say(&up);
        }
    }

    /// A closed terminal ends no recording.
    fn say(&self, text: &str) {
        let _ = io::stderr().lock().write_all(text.as_bytes());
    }
}
