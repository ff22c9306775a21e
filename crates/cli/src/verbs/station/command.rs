//! A verb that the station runs.

use std::io::{self, Write};
use std::process::ExitCode;

use console::Term;
use fullbore_client::output::Entry;
use fullbore_client::{Client, Error, Method};
use fullbore_terminal::output::{self, Output};
use serde_json::{Value, json};

use super::{Given, told_by_station};
use crate::hint::explained;
use crate::signals;
use crate::verbs::{rm, scan_arg};

/// The exit code of a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Runs the verb, and shows what it prints. Ctrl-C cancels it.
pub(super) fn run(
    client: &Client,
    verb: &str,
    mut given: Given,
    output: Output,
) -> anyhow::Result<ExitCode> {
    if verb == "rm" && !given.options.contains_key("yes") {
        let names: Vec<String> =
            given.arguments.iter().map(|scan| format!("{scan} at {}", client.station())).collect();
        if !rm::agreed(&names, output)? {
            output::print("nothing was removed\n")?;
            return Ok(ExitCode::from(output::FOUND));
        }
        given.options.insert("yes".to_owned(), Value::Bool(true));
    }
    let Given { arguments, options } = given;
    let size = Term::stdout().size_checked();
    let body = json!({
        "verb": verb,
        "arguments": arguments,
        "options": options,
        "json": output.json,
        "lines": size.map(|it| it.0),
        "columns": size.map(|it| it.1),
        "colour": console::colors_enabled() && !output.json,
    });
    let stop = signals::stop_handle()?;
    let job = client.send(Method::POST, "/api/v1/commands", Some(&body)).map_err(explained)?;
    let job = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap_or_default());
    let bar = scan_arg::bar(output, &arguments.join(" "));
    let (mut code, mut cancelled, mut left) = (None, false, false);
    let followed = client.follow(&format!("{job}/output"), |line| -> anyhow::Result<()> {
        if stop.is_requested() && !cancelled {
            cancelled = true;
            match client.send(Method::DELETE, &job, None) {
                // A viewer cannot cancel. What it may run ends when nobody follows it.
                Err(Error::Refused { status: 403, .. }) => left = true,
                // It has ended, and the station has forgotten it.
                Err(Error::Refused { status: 404, .. }) => {}
                asked => drop(asked.map_err(explained)?),
            }
        }
        anyhow::ensure!(!left, "the client leaves");
        match line.and_then(Entry::of_line) {
            Some(Entry::Out(text)) => bar.suspend(|| output::print(&text))?,
            Some(Entry::Err(text)) => bar.suspend(|| {
                // A closed terminal ends nothing.
                let _ = io::stderr().lock().write_all(text.as_bytes());
            }),
            Some(Entry::Progress(done, total)) => {
                bar.set_length(total);
                bar.set_position(done);
            }
            Some(Entry::Exit(exit)) => code = Some(exit),
            None => {}
        }
        Ok(())
    });
    bar.finish_and_clear();
    if left {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    followed.map_err(told_by_station)?;
    match code.and_then(|code| u8::try_from(code).ok()) {
        Some(code) => Ok(ExitCode::from(code)),
        None => anyhow::bail!("{}: the command ended without an exit code", client.station()),
    }
}
