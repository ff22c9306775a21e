//! `--config FILE`: the options of the command line, in TOML.
//!
//! ```toml
//! [record]
//! source = ["udp://0.0.0.0:46220-46227?format=vdif"]
//! store = ["/mnt/disk0", "/mnt/disk1"]
//! session = "r1234"
//! duration = "40s"
//! ```
//!
//! The table of a subcommand has both names: `[panda.record]`.
//!
//! The table `[record]` is read into the options of the library, and lies below those that are typed: see
//! [`RecordingOptions::or`]. The tables of the other commands, which have no options outside of this program, give
//! values to their arguments. The command line wins: a key is left out if its option, list or positional argument is
//! typed, or if it conflicts with a typed option. An unknown table or key is refused with its line, because a misspelt
//! option would otherwise be ignored.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use clap::parser::ValueSource;
use clap::{Arg, Command};
use fullbore_core::hint::with_causes;
use fullbore_recording::RecordingOptions;
use fullbore_recording::options::FileError;
use serde::Deserialize;
use toml::Value;

use crate::logging::Form;

/// The keys of `[record]` that only change what is shown.
const SHOWN: &[&str] = &["quiet", "json", "log"];

/// The command line, and the options of the file.
#[derive(Debug, Default)]
pub struct Configured {
    /// The arguments, after those of the file.
    pub typed: Vec<OsString>,
    /// The lines of the arguments of the file.
    pub lines: FileOptions,
    /// The options of a recording in the file, if the command is `record`.
    pub record: Option<RecordFile>,
}

/// The table `[record]`.
#[derive(Debug, Default)]
pub struct RecordFile {
    /// The options of the recording.
    pub options: RecordingOptions,
    /// Their lines.
    pub lines: FileOptions,
    /// The options of the screen and the log.
    pub shown: Shown,
}

/// What is shown of a recording.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Shown {
    /// No live screen is drawn.
    pub quiet: bool,
    /// JSON instead of text.
    pub json: bool,
    /// The form of the log, if there is one.
    pub log: Option<Form>,
}

impl RecordFile {
    fn read(path: &Path, text: &str) -> anyhow::Result<Option<Self>> {
        let invalid = |error: FileError| invalid(path, error);
        let options = RecordingOptions::from_toml(text, "record", SHOWN).map_err(invalid)?;
        let Some(options) = options else { return Ok(None) };
        #[derive(Deserialize)]
        struct Tables {
            record: Shown,
        }
        let tables: Tables = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text[..at].lines().count().max(1);
            anyhow!("{}, line {line}: {}", path.display(), error.message())
        })?;
        let lines = options.lines.into_iter().map(|(key, line)| (format!("--{key}"), line));
        let lines = FileOptions { file: path.to_owned(), lines: lines.collect() };
        Ok(Some(Self { options: options.options, lines, shown: tables.record }))
    }
}

/// An error of the file. A value is blamed like that of an option.
fn invalid(path: &Path, FileError { line, key, what }: FileError) -> anyhow::Error {
    let path = path.display();
    match key {
        Some(key) => anyhow!("--{key} {what}\n  --{key} stands in {path}, line {line}"),
        None => anyhow!("{path}, line {line}: {what}"),
    }
}

/// Options from a file, with their lines.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    file: PathBuf,
    /// Names as on the command line, and line numbers.
    lines: Vec<(String, usize)>,
}

impl FileOptions {
    /// Those of these keys.
    pub fn among(&self, keys: &[&str]) -> Self {
        let is_among = |(option, _): &&(String, usize)| keys.contains(&&option[2..]);
        let lines = self.lines.iter().filter(is_among).cloned().collect();
        Self { file: self.file.clone(), lines }
    }

    /// The error, with the lines of the options that it names.
    pub fn blame(&self, error: anyhow::Error) -> anyhow::Error {
        let lines: Vec<String> = self.named_in(&with_causes(&*error)).collect();
        match lines.is_empty() {
            true => error,
            false => anyhow!("{}\n{}", with_causes(&*error), lines.join("\n")),
        }
    }

    /// The lines of those options that a text names.
    pub fn named_in<'a>(&'a self, text: &'a str) -> impl Iterator<Item = String> + 'a {
        let named = self.lines.iter().filter(|(option, _)| names(text, option));
        named.map(|(option, line)| {
            format!("  {option} stands in {}, line {line}", self.file.display())
        })
    }
}

/// True if a text names an option, and not just a longer name with the same beginning.
fn names(text: &str, option: &str) -> bool {
    text.match_indices(option).any(|(at, _)| {
        let behind = text[at + option.len()..].chars().next();
        !behind.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-')
    })
}

/// Reads the `--config` file, and inserts the arguments of a command other than `record` after the verb.
pub fn with_file(typed: Vec<OsString>, commands: &Command) -> anyhow::Result<Configured> {
    let Some(path) = config_path(&typed) else {
        return Ok(Configured { typed, ..Configured::default() });
    };
    // Only a built command has the global options, such as --json.
    let mut commands = commands.clone();
    commands.build();
    let commands = &commands;
    // `serve` has a file of another kind, which describes a station.
    let is_serve = |at: usize| typed[at] == "serve";
    if word_behind(&typed, 0).is_some_and(is_serve) {
        return Ok(Configured { typed, ..Configured::default() });
    }
    let path = Path::new(&path);
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the configuration {}", path.display()))?;
    let tables: toml::Table =
        text.parse().with_context(|| format!("in the configuration {}", path.display()))?;
    if let Some(Unknown { table, key, known }) = unknown(&tables, &[], commands) {
        let line = line_of(&text, &table, key);
        bail!("{}, line {line}: no {known}", path.display());
    }
    let Some((verb, command, table)) = find(&typed, commands, &tables) else {
        return Ok(Configured { typed, ..Configured::default() });
    };
    let name = table_of(&typed[..=verb], commands);
    if name == "record" {
        let record = RecordFile::read(path, &text)?;
        return Ok(Configured { typed, record, ..Configured::default() });
    }
    let said = said(&typed, commands, command);
    let wishes: Vec<(&String, &Value)> = table
        .iter()
        .filter(|(key, _)| {
            argument(command, key)
                .is_some_and(|wish| !said.iter().any(|it| excludes(command, it, wish)))
        })
        .collect();
    let lines = wishes.iter().filter_map(|(key, _)| {
        let option = argument(command, key).filter(|it| !it.is_positional())?.get_long()?;
        Some((format!("--{option}"), line_of(&text, &name, Some(key))))
    });
    let lines = FileOptions { file: path.to_owned(), lines: lines.collect() };
    let (options, positional) = arguments(command, wishes.into_iter())?;
    let typed = typed[..=verb]
        .iter()
        .cloned()
        .chain(options)
        .chain(positional)
        .chain(typed[verb + 1..].iter().cloned())
        .collect();
    Ok(Configured { typed, lines, record: None })
}

/// The name of a command's table.
fn table_of(typed: &[OsString], commands: &Command) -> String {
    let (mut command, mut names) = (commands, Vec::new());
    for word in typed {
        if let Some(within) = command.find_subcommand(word) {
            names.push(within.get_name());
            command = within;
        }
    }
    names.join(".")
}

/// The position of the command's last word, the command, and its table in the file.
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
        // The command's own name, which an alias is not.
        table = table.get(command.get_name())?.as_table()?;
    }
    Some((at, command, table))
}

/// The first word after a position that is neither an option nor the value of one.
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

/// The arguments of the command that are typed. The parser determines them, because it knows the values of options and
/// the positional words. Missing or wrong arguments are reported later, together with the file's.
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

/// True if a typed argument replaces the file's: it is the same, or the parser refuses both together.
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

/// An unknown table or key.
struct Unknown<'a> {
    table: String,
    key: Option<&'a str>,
    /// The end of the message: the kind of name, and the known names.
    known: String,
}

/// The first key in the tables of a command that no command reads; `within` names the command.
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
            // A key in the place of a table is searched in the table that contains it.
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

/// An argument by its name in the file: the long name of an option, or the name of a positional argument.
fn argument<'a>(command: &'a Command, key: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|argument| name_of(argument) == Some(key))
}

fn name_of(argument: &Arg) -> Option<&str> {
    match argument.is_positional() {
        true => Some(argument.get_id().as_str()),
        false => argument.get_long().filter(|name| !matches!(*name, "help" | "version" | "config")),
    }
}

/// The line number of a table, or of a key in it.
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
        Ok(super::with_file(typed, &crate::Arguments::command())?.typed)
    }

    #[test]
    fn an_option_of_the_file_is_known_by_its_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[record]\nquiet = true\n\nduration = '1s'\n").unwrap();
        let path = file.path().to_str().unwrap();
        let typed = words(&["fullbore", "--config", path, "record", "--scan", "a"]);
        let configured = super::with_file(typed.clone(), &crate::Arguments::command()).unwrap();
        assert_eq!(configured.typed, typed, "no argument is made of the table");
        let record = configured.record.unwrap();
        assert!(record.shown.quiet && record.options.given() == ["duration"]);
        let told = |text| record.lines.named_in(text).collect::<Vec<_>>();
        assert_eq!(told("--duration <TIME>"), [format!("  --duration stands in {path}, line 4")]);
        assert_eq!(told("--duration is zero").len(), 1);
        assert!(told("--scan and --durations and --quietly").is_empty());
        assert_eq!(record.lines.among(&["scan"]).named_in("--duration").count(), 0);
    }

    #[test]
    fn a_value_of_record_that_cannot_be_is_named_with_key_and_line() {
        for (text, said) in [
            ("[record]\n\nduration = 1\n", "--duration `1`: it is no length of time"),
            ("[record]\n\ncpus = ['x']\n", "--cpus `x`: invalid digit"),
            ("[record]\n\nquiet = 'yes'\n", "line 3: invalid type"),
            ("[record]\n\nlog = 'loud'\n", "line 3: unknown variant `loud`"),
            ("[record]\n\nscans = \n", "line 3"),
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let path = file.path().to_str().unwrap();
            let typed = words(&["fullbore", "--config", path, "record"]);
            let error = super::with_file(typed, &crate::Arguments::command()).unwrap_err();
            let told = format!("{error:#}");
            assert!(told.contains(said) && told.contains(path), "{told}");
            assert!(told.contains("line 3"), "{told}");
        }
    }

    /// The arguments after applying this file.
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
        let text = "[info]\nstore = ['/a', '/b']\njson = true\nscan = 'a_b'\n";
        let mut all = with_text(text, &["info", "--gaps", "2"]);
        assert_eq!(all[5..], words(&["--gaps", "2"]));
        all[..5].sort();
        assert_eq!(all[..5], words(&["--json", "--store=/a", "--store=/b", "a_b", "info"]));
    }

    #[test]
    fn what_is_typed_takes_the_place_of_a_whole_list() {
        let info = "[info]\nstore = ['/a', '/b']\ngaps = 3\nscan = 'a_b'\n";
        for typed in [
            &["info", "--store", "/c", "--gaps=5", "c_d"][..],
            &["info", "c_d", "--store=/c,/d", "--gaps", "5"],
            &["info", "--gaps", "5", "--store", "/c", "--", "c_d"],
        ] {
            assert_eq!(with_text(info, typed), words(typed));
        }
        // The value of an option is not a positional word, although it may look like one.
        let typed = ["info", "--store", "x_y", "--gaps", "5"];
        let all = with_text(info, &typed);
        assert_eq!(all[1..], words(&[&["a_b"], &typed[1..]].concat()));
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
        // `--all` of the file conflicts with a typed scan.
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
