//! `--station`: commands at a running daemon, with the same output as on this host.
//!
//! ```text
//! ls, info, verify, rm, …   the daemon runs the verb, and its output comes back
//! record                    the daemon starts a recorder, whose events come back
//! status, stop, schedule    only a daemon has these
//! ```

mod command;
pub mod here;
mod record;
pub mod schedule;
pub mod status;
pub mod stop;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use fullbore_client::{Address, Client, Error};
use fullbore_daemon::Config;
use fullbore_recording::store;
use serde_json::{Map, Value};

use crate::hint::explained;
use crate::output::Output;

/// Verbs that a station runs.
const RUN_THERE: &[&str] = &[
    "ls", "info", "watch", "verify", "rm", "protect", "mark", "trigger", "snapshot", "rebuild",
    "convert", "play",
];

/// Verbs that ask a station on their own.
const OF_STATIONS: &[&str] = &["status", "stop", "schedule"];

/// Runs the command at a station, if the arguments or the environment name one and the verb can run there. `has_file`: a
/// file has options of the recording, and they are not among the matches.
pub fn redirected(
    matches: &ArgMatches,
    commands: &Command,
    has_file: bool,
) -> anyhow::Result<Option<ExitCode>> {
    let Some((verb, typed)) = matches.subcommand() else { return Ok(None) };
    let given = typed.try_get_one::<String>("station").ok().flatten();
    // `generate` has a --station of its own. For `record`, a plain word is the station of a VEX file.
    let given = given.filter(|text| match verb {
        "generate" => false,
        "record" => Address::is_meant(text),
        _ => true,
    });
    if OF_STATIONS.contains(&verb) {
        return Ok(None);
    }
    let can = RUN_THERE.contains(&verb) || verb == "record";
    let has_store = typed.try_contains_id("store").unwrap_or(false)
        && typed.value_source("store") == Some(ValueSource::CommandLine);
    let of_environment = std::env::var("FULLBORE_STATION").ok().filter(|text| !text.is_empty());
    let text = match (given, of_environment) {
        (Some(text), _) => text.clone(),
        (None, Some(text)) if can && !has_store && !has_file => text,
        (None, _) => return Ok(None),
    };
    anyhow::ensure!(
        can,
        "`{verb}` runs on this host only\n  --station is for {}, record, {}",
        RUN_THERE.join(", "),
        OF_STATIONS.join(", ")
    );
    anyhow::ensure!(
        !has_file,
        "[record] of --config is for a recording on this host\n  type the options of one at a station"
    );
    let members = match has_store {
        true => typed.get_many::<PathBuf>("store").unwrap_or_default().cloned().collect(),
        false => Vec::new(),
    };
    let output = Output { json: matches.get_flag("json"), logs: false };
    let client = client(Some(&text), &members)?;
    let command = commands.find_subcommand(verb);
    let given = command.map(|command| given_of(command, typed)).unwrap_or_default();
    match verb {
        "record" => record::run(&client, given, output).map(Some),
        _ => command::run(&client, verb, given, output).map(Some),
    }
}

/// A client of the station that is named, or of the daemon of these members, or of the user's own store.
pub fn client(named: Option<&str>, members: &[PathBuf]) -> anyhow::Result<Client> {
    let of_environment = std::env::var("FULLBORE_STATION").ok().filter(|text| !text.is_empty());
    let named = named.map(str::to_owned).or(of_environment.filter(|_| members.is_empty()));
    let address = match named.as_deref() {
        Some(other) if other != "unix:" && !members.is_empty() => anyhow::bail!(
            "--store names directories of this host, and --station another store\n  give one of them; \
             `--station unix:` takes the daemon of --store"
        ),
        None | Some("unix:") => {
            let members = match members.is_empty() {
                true => store::default_members().map_err(explained)?,
                false => members.to_vec(),
            };
            let socket = Config::socket_of(&members);
            let socket = socket.filter(|it| it.exists());
            Address::Unix(socket.ok_or_else(|| {
                anyhow::anyhow!(
                    "no daemon of this user serves this store\n  `fullbore serve` starts one; name another \
                     with --station URL|PATH"
                )
            })?)
        }
        Some(text) => Address::parse(text).map_err(explained)?,
    };
    Client::new(&address).map_err(explained)
}

/// The arguments and the options that are typed, as texts.
#[derive(Debug, Default)]
struct Given {
    arguments: Vec<String>,
    options: Map<String, Value>,
}

fn given_of(command: &Command, typed: &ArgMatches) -> Given {
    let mut given = Given::default();
    for argument in command.get_arguments().filter(|it| !it.is_global_set()) {
        let id = argument.get_id().as_str();
        let is_typed = typed.try_contains_id(id).is_ok()
            && typed.value_source(id) == Some(ValueSource::CommandLine);
        if !is_typed || ["store", "station"].contains(&id) {
            continue;
        }
        let texts = typed.get_raw(id).into_iter().flatten();
        let texts: Vec<String> = texts.map(|it| it.to_string_lossy().into_owned()).collect();
        match (argument.get_long(), argument.get_action()) {
            (None, _) => given.arguments.extend(texts),
            (Some(name), ArgAction::SetTrue) => {
                given.options.insert(name.to_owned(), Value::Bool(true));
            }
            (Some(name), ArgAction::Append) => {
                given.options.insert(name.to_owned(), texts.into());
            }
            (Some(name), _) => {
                let text = texts.into_iter().next().unwrap_or_default();
                given.options.insert(name.to_owned(), Value::String(text));
            }
        }
    }
    given
}

/// An error of the station, with its advice.
fn told_by_station(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Error>() {
        Ok(error) => explained(error),
        Err(error) => error,
    }
}
