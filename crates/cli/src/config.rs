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
//! words, every bad word gets the same message, and what is typed wins.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, bail};
use toml::Value;

/// Keys whose values are positional arguments.
const POSITIONAL: [&str; 3] = ["source", "scan-name", "input"];

/// The arguments with those of the `--config` file put in behind the verb.
pub fn with_file(typed: impl IntoIterator<Item = OsString>) -> anyhow::Result<Vec<OsString>> {
    let typed: Vec<OsString> = typed.into_iter().collect();
    let Some(path) = config_path(&typed) else { return Ok(typed) };
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("reading the configuration {}", Path::new(&path).display()))?;
    let tables: toml::Table = text
        .parse()
        .with_context(|| format!("in the configuration {}", Path::new(&path).display()))?;
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
    let (options, positional) = arguments(&name, table)?;
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

fn arguments(verb: &str, table: &toml::Table) -> anyhow::Result<(Vec<OsString>, Vec<OsString>)> {
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
                    bail!("`{verb}.{key}` is neither a value nor a list of values")
                }
            };
            if POSITIONAL.contains(&key.as_str()) {
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
