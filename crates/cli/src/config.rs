//! `--config FILE`: the same words as on the command line, in TOML.
//!
//! ```toml
//! [record]
//! source = ["udp://0.0.0.0:46220-46227?format=vdif"]
//! store = ["/mnt/disk0", "/mnt/disk1"]
//! session = "r1234"
//! duration = "40s"
//! ```
//!
//! The table of the command becomes arguments that stand before those typed, so one parser knows all
//! words, every bad word gets the same message, and what is typed wins. A table or key that no command
//! knows is refused with its line: a word misspelt in a file would else be a wish that nobody hears.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, bail};
use clap::{Arg, Command};
use toml::Value;

/// The arguments with those of the `--config` file put in behind the verb.
pub fn with_file(
    typed: impl IntoIterator<Item = OsString>,
    commands: &Command,
) -> anyhow::Result<Vec<OsString>> {
    let typed: Vec<OsString> = typed.into_iter().collect();
    let Some(path) = config_path(&typed) else { return Ok(typed) };
    let path = Path::new(&path);
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the configuration {}", path.display()))?;
    let tables: toml::Table =
        text.parse().with_context(|| format!("in the configuration {}", path.display()))?;
    if let Some(Unknown { table, key, known }) = unknown(&tables, commands) {
        let line = line_of(&text, table, key);
        bail!("{}, line {line}: no {known}", path.display());
    }
    let Some(verb) = typed
        .iter()
        .skip(1)
        .position(|word| word.to_str().is_some_and(|word| tables.contains_key(word)))
    else {
        return Ok(typed);
    };
    let verb = verb + 1;
    let name = typed[verb].to_string_lossy().into_owned();
    let Value::Table(table) = &tables[&name] else { bail!("`{name}` is not a table of options") };
    let command = commands.find_subcommand(&name).expect("every table is that of a command");
    let (options, positional) = arguments(command, table)?;
    let rest = &typed[verb + 1..];
    // Positional words typed take the place of those in the file.
    let positional = if has_positional(rest) { Vec::new() } else { positional };
    Ok(typed[..=verb]
        .iter()
        .cloned()
        .chain(options)
        .chain(positional)
        .chain(rest.iter().cloned())
        .collect())
}

fn config_path(typed: &[OsString]) -> Option<OsString> {
    let mut words = typed.iter();
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().cloned();
        }
        if let Some(path) = word.to_str().and_then(|word| word.strip_prefix("--config=")) {
            return Some(path.into());
        }
    }
    None
}

/// Whether a typed word looks like a positional one: an endpoint.
fn has_positional(rest: &[OsString]) -> bool {
    rest.first().is_some_and(|word| !word.to_string_lossy().starts_with('-'))
        || rest.iter().any(|word| word.to_string_lossy().contains("://"))
}

/// A table or key that means nothing.
struct Unknown<'a> {
    table: &'a str,
    key: Option<&'a str>,
    /// What it is not, and what it could be.
    known: String,
}

/// The first thing in the file that no command would read.
fn unknown<'a>(tables: &'a toml::Table, commands: &Command) -> Option<Unknown<'a>> {
    tables.iter().find_map(|(table, value)| {
        let (Some(command), Value::Table(keys)) = (commands.find_subcommand(table), value) else {
            let all: Vec<&str> = commands.get_subcommands().map(Command::get_name).collect();
            let known = format!("table `{table}` is known; there are {}", all.join(", "));
            return Some(Unknown { table, key: None, known });
        };
        let key = keys.keys().find(|key| argument(command, key).is_none())?;
        let all: Vec<&str> = command.get_arguments().filter_map(name_of).collect();
        let known = format!("option `{key}` of {table} is known; there are {}", all.join(", "));
        Some(Unknown { table, key: Some(key), known })
    })
}

/// An argument by its name in the file: the long name of an option, or what a positional one is called.
fn argument<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| name_of(argument) == Some(key))
}

fn name_of(argument: &Arg) -> Option<&str> {
    match argument.is_positional() {
        true => Some(argument.get_id().as_str()),
        false => argument.get_long().filter(|name| !matches!(*name, "help" | "version" | "config")),
    }
}

/// The line that a table, or a key in it, stands on.
fn line_of(text: &str, table: &str, key: Option<&str>) -> usize {
    let named = |line: &str, name: &str, end: char| {
        let rest = line.trim_start().trim_start_matches(['"', '\'']).strip_prefix(name);
        rest.is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ', '\t']).starts_with(end))
    };
    let heads = |line: &str| {
        line.trim_start().strip_prefix('[').is_some_and(|rest| named(rest, table, ']'))
    };
    let lines = || text.lines().enumerate().map(|(number, line)| (number + 1, line));
    let head = lines().find(|(_, line)| heads(line)).map(|(number, _)| number);
    let wanted = key.unwrap_or(table);
    let from = if key.is_some() { head.unwrap_or(1) } else { 1 };
    let keyed = lines().skip(from - 1).find(|(_, line)| named(line, wanted, '='));
    match (key, head) {
        (None, Some(head)) => head,
        (_, head) => keyed.map(|(number, _)| number).or(head).unwrap_or(1),
    }
}

fn arguments(
    command: &Command,
    table: &toml::Table,
) -> anyhow::Result<(Vec<OsString>, Vec<OsString>)> {
    let (mut options, mut positional) = (Vec::new(), Vec::new());
    for (key, value) in table {
        let values = match value {
            Value::Array(list) => list.iter().collect(),
            one => vec![one],
        };
        for value in values {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Boolean(true) => {
                    options.push(format!("--{key}").into());
                    continue;
                }
                Value::Boolean(false) => continue,
                Value::Integer(number) => number.to_string(),
                Value::Float(number) => number.to_string(),
                Value::Datetime(time) => time.to_string(),
                Value::Array(_) | Value::Table(_) => {
                    let verb = command.get_name();
                    bail!("`{verb}.{key}` is neither a value nor a list of values")
                }
            };
            if argument(command, key).is_some_and(Arg::is_positional) {
                positional.push(text.into());
            } else {
                options.push(format!("--{key}={text}").into());
            }
        }
    }
    Ok((options, positional))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands() -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).action(clap::ArgAction::SetTrue);
        let record = Command::new("record")
            .args(["store", "duration"].map(|name| Arg::new(name).long(name)))
            .args([flag("quiet"), Arg::new("source")]);
        Command::new("fullbore").subcommands([record, Command::new("ls")])
    }

    fn with_file(typed: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
        super::with_file(typed, &commands())
    }

    #[test]
    fn what_no_command_knows_is_named_with_its_line() {
        let cases = [
            ("[record]\nquiet = true\ndurration = '3s'\n", 3, "durration"),
            ("# a comment\n\n[recrod]\nquiet = true\n", 3, "recrod"),
            ("quiet = true\n[record]\n", 1, "quiet"),
            ("[ls]\n[record]\n'stor e' = 1\n", 3, "stor e"),
        ];
        for (text, line, word) in cases {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let path = file.path().to_str().unwrap();
            let error = with_file(words(&["fullbore", "--config", path, "ls"])).unwrap_err();
            let told = error.to_string();
            assert!(told.starts_with(&format!("{path}, line {line}: ")), "{told}");
            assert!(told.contains(word), "{told}");
        }
    }

    fn words(list: &[&str]) -> Vec<OsString> {
        list.iter().map(OsString::from).collect()
    }

    #[test]
    fn the_file_stands_before_what_is_typed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text =
            "[record]\nstore = ['/a', '/b']\nduration = '40s'\nquiet = true\nsource = 'udp://:1'\n";
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap();
        let typed = words(&["fullbore", "--config", path, "record", "--duration", "2s"]);
        let all = with_file(typed).unwrap();
        let expected = ["--duration=40s", "--quiet", "--store=/a", "--store=/b", "udp://:1"];
        let mut middle = all[4..9].to_vec();
        middle.sort();
        assert_eq!(middle, words(&expected));
        assert_eq!(all[9..], words(&["--duration", "2s"]));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error =
            with_file(words(&["fullbore", "record", "--config=/nowhere.toml"])).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere.toml"));
    }
}
