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
//! The table of a command within another is named for both: `[panda.record]`.
//!
//! The table of the command becomes arguments that stand before those typed, so one parser knows all
//! words and every bad word gets the same message. What is typed wins: a key whose option, list or
//! positional words are typed is left out altogether, and so is one that cannot stand beside what is
//! typed. A table or key that no command knows is refused with its line: a word misspelt in a file would
//! else be a wish that nobody hears.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, bail};
use clap::parser::ValueSource;
use clap::{Arg, Command};
use toml::Value;

/// The arguments with those of the `--config` file put in behind the verb.
pub fn with_file(
    typed: impl IntoIterator<Item = OsString>,
    commands: &Command,
) -> anyhow::Result<Vec<OsString>> {
    let typed: Vec<OsString> = typed.into_iter().collect();
    let Some(path) = config_path(&typed) else { return Ok(typed) };
    // Only a command that was built knows the options that all have, such as --json.
    let mut commands = commands.clone();
    commands.build();
    let commands = &commands;
    let path = Path::new(&path);
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the configuration {}", path.display()))?;
    let tables: toml::Table =
        text.parse().with_context(|| format!("in the configuration {}", path.display()))?;
    if let Some(Unknown { table, key, known }) = unknown(&tables, &[], commands) {
        let line = line_of(&text, &table, key);
        bail!("{}, line {line}: no {known}", path.display());
    }
    let Some((verb, command, table)) = find(&typed, commands, &tables) else { return Ok(typed) };
    let said = said(&typed, commands, command);
    let table = table.iter().filter(|(key, _)| {
        argument(command, key)
            .is_some_and(|wish| !said.iter().any(|it| excludes(command, it, wish)))
    });
    let (options, positional) = arguments(command, table)?;
    Ok(typed[..=verb]
        .iter()
        .cloned()
        .chain(options)
        .chain(positional)
        .chain(typed[verb + 1..].iter().cloned())
        .collect())
}

/// Where the last word of the command stands, the command, and its table in the file.
fn find<'a>(
    typed: &[OsString],
    commands: &'a Command,
    tables: &'a toml::Table,
) -> Option<(usize, &'a Command, &'a toml::Table)> {
    let (mut at, mut command, mut table) = (0, commands, tables);
    while command.has_subcommands() {
        at = word_behind(typed, at)?;
        let name = typed[at].to_str()?;
        command = command.find_subcommand(name)?;
        // By its name, which an alias is not.
        table = table.get(command.get_name())?.as_table()?;
    }
    Some((at, command, table))
}

/// The first word behind a place that is neither an option nor the value of one.
fn word_behind(typed: &[OsString], at: usize) -> Option<usize> {
    let mut words = typed.iter().enumerate().skip(at + 1);
    while let Some((at, word)) = words.next() {
        if word == "--config" {
            words.next();
        } else if !word.to_string_lossy().starts_with('-') {
            return Some(at);
        }
    }
    None
}

/// The arguments of the command that are typed. The parser says so, as nobody else knows what is the
/// value of an option and what is positional; what may be missing or wrong is told later, with the file's.
fn said<'a>(typed: &[OsString], commands: &Command, command: &'a Command) -> Vec<&'a Arg> {
    let parsed = commands.clone().ignore_errors(true).try_get_matches_from(typed);
    let Ok(matches) = parsed else { return Vec::new() };
    let mut matches = &matches;
    while let Some((_, within)) = matches.subcommand() {
        matches = within;
    }
    let is_typed = |it: &&Arg| {
        matches.try_contains_id(it.get_id().as_str()).is_ok()
            && matches.value_source(it.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    command.get_arguments().filter(is_typed).collect()
}

/// Whether what is typed takes the place of what the file wishes: the same argument, or one that the
/// parser takes only without it.
fn excludes(command: &Command, typed: &Arg, wish: &Arg) -> bool {
    let conflict = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|it| it.get_id() == other.get_id())
    };
    typed.get_id() == wish.get_id() || conflict(typed, wish) || conflict(wish, typed)
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

/// A table or key that means nothing.
struct Unknown<'a> {
    table: String,
    key: Option<&'a str>,
    /// What it is not, and what it could be.
    known: String,
}

/// The first thing in the tables of a command that no command would read; `within` names the command.
fn unknown<'a>(
    tables: &'a toml::Table,
    within: &[&str],
    commands: &Command,
) -> Option<Unknown<'a>> {
    let named = |name: &str| [within, &[name]].concat().join(".");
    tables.iter().find_map(|(name, value)| {
        let (Some(command), Value::Table(keys)) = (commands.find_subcommand(name), value) else {
            let all = commands.get_subcommands().map(|it| named(it.get_name()));
            let all = in_a_row(all.filter(|it| !it.ends_with("help")));
            let it = named(name);
            let known = match value.is_table() {
                true => format!("table `{it}` is known; there are {all}"),
                false => format!(
                    "option can stand outside of a command's table, as `{it}` does; the tables are {all}"
                ),
            };
            // A word where only tables can stand is looked for in the table that it is in.
            let key = (!within.is_empty() && !value.is_table()).then_some(name.as_str());
            let table = key.map_or_else(|| named(name), |_| within.join("."));
            return Some(Unknown { table, key, known });
        };
        if command.has_subcommands() {
            return unknown(keys, &[within, &[name]].concat(), command);
        }
        let key = keys.keys().find(|key| argument(command, key).is_none())?;
        let all = command.get_arguments().filter_map(name_of).map(str::to_owned);
        let table = named(name);
        let known = format!("option `{key}` of {table} is known; there are {}", in_a_row(all));
        Some(Unknown { table, key: Some(key), known })
    })
}

fn in_a_row(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
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

fn arguments<'a>(
    command: &Command,
    table: impl Iterator<Item = (&'a String, &'a Value)>,
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
    use clap::CommandFactory;

    use super::*;

    fn with_file(typed: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
        super::with_file(typed, &crate::Arguments::command())
    }

    /// What the words mean with this file.
    fn with_text(text: &str, typed: &[&str]) -> Vec<OsString> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let path = file.path().to_str().unwrap();
        let all = words(&["fullbore", "--config", path]).into_iter().chain(words(typed));
        with_file(all.collect()).unwrap()[3..].to_vec()
    }

    #[test]
    fn what_no_command_knows_is_named_with_its_line() {
        let cases = [
            ("[record]\nquiet = true\ndurration = '3s'\n", 3, "durration"),
            ("# a comment\n\n[recrod]\nquiet = true\n", 3, "recrod"),
            ("quiet = true\n[record]\n", 1, "outside of a command's table, as `quiet` does"),
            ("[ls]\n[record]\n'stor e' = 1\n", 3, "stor e"),
            ("[panda.record]\nquiet = true\nscann = 3\n", 3, "scann"),
            ("[ls]\n[panda.recrod]\n", 2, "panda.recrod"),
            ("[panda]\nquiet = true\n", 2, "panda.quiet"),
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
        let text = "[record]\nstore = ['/a', '/b']\nquiet = true\nsource = 'udp://:1'\n";
        let mut all = with_text(text, &["record", "--duration", "2s"]);
        assert_eq!(all[5..], words(&["--duration", "2s"]));
        all[..5].sort();
        assert_eq!(all[..5], words(&["--quiet", "--store=/a", "--store=/b", "record", "udp://:1"]));
    }

    #[test]
    fn what_is_typed_takes_the_place_of_a_whole_list() {
        let record = "[record]\nstore = ['/a', '/b']\ncpus = [2, 3]\nsource = 'udp://:1'\n";
        for typed in [
            &["record", "--store", "/c", "--cpus=5", "udp://:2"][..],
            &["record", "udp://:2", "--store=/c,/d", "--cpus", "5"],
            &["record", "--cpus", "5", "--store", "/c", "--", "udp://:2"],
        ] {
            assert_eq!(with_text(record, typed), words(typed));
        }
        // The value of an option is no positional word, though it may look like one.
        let typed = ["record", "--session", "x://y", "--store", "/c", "--cpus", "5"];
        let all = with_text(record, &typed);
        assert_eq!(all[1..], words(&[&["udp://:1"], &typed[1..]].concat()));
        let to = "[generate]\nto = ['udp://a:1', 'udp://b:1']\n";
        let typed = ["generate", "--to", "udp://c:1"];
        assert_eq!(with_text(to, &typed), words(&typed));
    }

    #[test]
    fn a_command_within_another_has_a_table_of_both_names() {
        let text = "[simulate.panda]\ncontrol = '127.0.0.2:1'\n[panda.record]\nquiet = true\n";
        let typed = ["simulate", "panda"];
        assert_eq!(with_text(text, &typed), words(&["simulate", "panda", "--control=127.0.0.2:1"]));
        let typed = ["simulate", "panda", "--control", "127.0.0.3:1"];
        assert_eq!(with_text(text, &typed), words(&typed));
    }

    #[test]
    fn an_option_that_every_command_has_can_stand_in_the_table_of_each() {
        for verb in ["ls", "verify"] {
            let all = with_text(&format!("[{verb}]\njson = true\n"), &[verb, "x"]);
            assert_eq!(all, words(&[verb, "--json", "x"]));
        }
    }

    #[test]
    fn scans_of_the_file_are_not_removed_beside_the_one_typed() {
        for text in ["[rm]\nscan = ['s_a', 's_c']\n", "[rm]\nyes = true\nscan = 's_a'\n"] {
            let typed = ["rm", "--yes", "s_b"];
            assert_eq!(with_text(text, &typed), words(&typed), "{text}");
        }
        // `--all` of the file cannot stand beside a scan that is typed.
        let typed = ["verify", "s_b"];
        assert_eq!(with_text("[verify]\nall = true\n", &typed), words(&typed));
        let typed = ["verify", "--all"];
        assert_eq!(with_text("[verify]\nscan = ['s_a']\n", &typed), words(&typed));
    }

    #[test]
    fn the_name_of_the_file_is_no_command() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ls");
        std::fs::write(&path, "[ls]\nstore = '/a'\n").unwrap();
        let typed = [OsString::from("fullbore"), "--config".into(), path.into(), "ls".into()];
        let all = with_file(typed.to_vec()).unwrap();
        assert_eq!(all[3..], words(&["ls", "--store=/a"]));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error =
            with_file(words(&["fullbore", "record", "--config=/nowhere.toml"])).unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere.toml"));
    }
}
