//! A command of a client: a verb of `fullbore` that runs at the station, so that its output is that of the verb.
//!
//! A client names a verb, its arguments and its options. The table [`VERBS`] says which of them a client may give, and what
//! their values may be: scans, plain values, and names of files in the directory for exports. None of them names another
//! path, another store, or a device.

use std::collections::BTreeMap;
use std::path::Path;

use fullbore_core::name::{self, Name};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::auth::Role;

mod verbs;

pub use self::verbs::{Kind, VERBS, Verb};

/// The most arguments of a command, and the most values of an option.
pub const MOST_ARGUMENTS: usize = 1000;

/// The longest value, in bytes.
pub const LONGEST_VALUE: usize = 1000;

/// What a client wants to run.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schema(rename_all = "kebab-case", example = json!({"verb": "verify", "arguments": ["r1234_no0001"], "json": true}))]
pub struct CommandRequest {
    /// The verb: ls, info, verify, rm, protect, mark, trigger, snapshot, rebuild, convert, play or watch.
    pub verb: String,
    /// Its arguments, in their order.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Its options by their long names.
    #[serde(default)]
    pub options: BTreeMap<String, Given>,
    /// True for JSON instead of text.
    #[serde(default)]
    pub json: bool,
    /// The columns of the client's terminal. Without it, lines are as long as they need to be.
    #[serde(default)]
    pub columns: Option<u16>,
    /// The lines of the client's terminal.
    #[serde(default)]
    pub lines: Option<u16>,
    /// True if the client shows colours.
    #[serde(default)]
    pub colour: bool,
}

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Given {
    /// An option without a value. False: it is not given.
    Flag(bool),
    /// A value.
    One(String),
    /// Several values.
    Many(Vec<String>),
}

/// A command that the station does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No such verb.
    #[error("verb: a station does not run `{shown}`; it runs {}", known())]
    Verb {
        /// The beginning of the verb.
        shown: String,
    },
    /// An option that the verb does not have here.
    #[error("options: `{verb}` takes no `{shown}` from a client; it takes {known}")]
    Option {
        /// The verb.
        verb: &'static str,
        /// The beginning of the option.
        shown: String,
        /// The options that there are.
        known: String,
    },
    /// The number of arguments is wrong.
    #[error("arguments: `{verb}` takes {least} to {most}, and {count} are given")]
    Count {
        /// The verb.
        verb: &'static str,
        /// The least number.
        least: usize,
        /// The largest number.
        most: usize,
        /// The number given.
        count: usize,
    },
    /// A value is not what it should be.
    #[error("{key}: `{shown}` is not {wanted}")]
    Value {
        /// The option, or `arguments`.
        key: String,
        /// The beginning of the value.
        shown: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// A value is no name.
    #[error("{key}: {source}")]
    Name {
        /// The option, or `arguments`.
        key: String,
        /// The reason.
        source: name::Error,
    },
    /// The station has no directory for exports.
    #[error("this station has no directory for the files of `{verb}`")]
    NoExports {
        /// The verb.
        verb: &'static str,
    },
}

impl fullbore_core::hint::Hint for CommandError {
    fn hint(&self) -> Option<std::borrow::Cow<'static, str>> {
        let advice = "name one with `exports` in [store] of its file, or with `fullbore serve --exports DIRECTORY`";
        matches!(self, Self::NoExports { .. }).then_some(advice.into())
    }
}

fn known() -> String {
    VERBS.iter().map(|it| it.name).collect::<Vec<_>>().join(", ")
}

/// A command that the station may run.
#[derive(Clone, Debug)]
pub struct Command {
    /// The verb.
    pub verb: &'static Verb,
    /// What follows the name of the program.
    pub words: Vec<String>,
    /// Whole names of scans that must be there.
    pub whole: Vec<String>,
    /// The arguments, as they are shown.
    pub shown: String,
}

impl CommandRequest {
    /// The verb, which says the role that a client needs.
    pub fn verb(&self) -> Result<&'static Verb, CommandError> {
        let found = VERBS.iter().find(|it| it.name == self.verb);
        found.ok_or_else(|| CommandError::Verb { shown: short(&self.verb) })
    }

    /// The command. `store` is what `--store` takes, and `exports` the directory for files.
    pub fn command(&self, store: &str, exports: Option<&Path>) -> Result<Command, CommandError> {
        let verb = self.verb()?;
        let mut words = vec![verb.name.to_owned()];
        words.extend(self.json.then(|| "--json".to_owned()));
        words.push(format!("--store={store}"));
        for (key, given) in &self.options {
            let kind = verb.options.iter().find(|(name, _)| name == key);
            let (key, kind) = kind.ok_or_else(|| CommandError::Option {
                verb: verb.name,
                shown: short(key),
                known: verb.options.iter().map(|it| it.0).collect::<Vec<_>>().join(", "),
            })?;
            words.extend(option(verb, key, *kind, given, exports)?);
        }
        let count = self.arguments.len();
        let (least, most) = verb.count;
        if !(least..=most).contains(&count) {
            return Err(CommandError::Count { verb: verb.name, least, most, count });
        }
        words.push("--".to_owned());
        let mut whole = Vec::new();
        for (number, text) in self.arguments.iter().enumerate() {
            let kind = verb.kind_of(number, count);
            words.push(value(verb, "arguments", kind, text, exports)?);
            if kind == Kind::Whole {
                whole.push(text.clone());
            }
        }
        Ok(Command { verb, words, whole, shown: self.arguments.join(" ") })
    }
}

/// The words of an option.
fn option(
    verb: &Verb,
    key: &str,
    kind: Kind,
    given: &Given,
    exports: Option<&Path>,
) -> Result<Vec<String>, CommandError> {
    let wrong = |shown: &str, wanted| CommandError::Value {
        key: key.to_owned(),
        shown: short(shown),
        wanted,
    };
    let values = match (kind, given) {
        (Kind::Flag, Given::Flag(on)) => {
            return Ok(on.then(|| format!("--{key}")).into_iter().collect());
        }
        (Kind::Flag, _) => return Err(wrong("a text", "true or false")),
        (_, Given::Flag(on)) => return Err(wrong(&on.to_string(), "a text")),
        (_, Given::One(value)) => std::slice::from_ref(value),
        (_, Given::Many(values)) if values.len() <= MOST_ARGUMENTS => values,
        (_, Given::Many(_)) => return Err(wrong("a list", "short enough")),
    };
    let word = |text: &String| Ok(format!("--{key}={}", value(verb, key, kind, text, exports)?));
    values.iter().map(word).collect()
}

/// Checks a value, and puts a file into the directory for exports.
fn value(
    verb: &Verb,
    key: &str,
    kind: Kind,
    text: &str,
    exports: Option<&Path>,
) -> Result<String, CommandError> {
    let wrong = |wanted| CommandError::Value { key: key.to_owned(), shown: short(text), wanted };
    let named = |source| CommandError::Name { key: key.to_owned(), source };
    if text.is_empty() || text.len() > LONGEST_VALUE || text.chars().any(char::is_control) {
        return Err(wrong("1 to 1000 bytes without control characters"));
    }
    let exports = || exports.ok_or(CommandError::NoExports { verb: verb.name });
    match kind {
        Kind::Flag => return Err(wrong("an argument")),
        Kind::Text => {}
        Kind::Plain if text.chars().all(is_plain) => {}
        Kind::Plain => return Err(wrong("a plain value")),
        Kind::Datagrams if text.starts_with("udp://") => {}
        Kind::Datagrams => return Err(wrong("an address udp://HOST:PORT")),
        Kind::Whole => drop(text.parse::<name::ScanName>().map_err(named)?),
        Kind::Scan => {
            let name = text.strip_prefix("store:").unwrap_or(text);
            let (scan, stream) = match name.split_once('/') {
                Some((scan, stream)) => (scan, Some(stream)),
                None => (name, None),
            };
            // The name of a scan has two parts, each as long as a name may be.
            let mut parts = scan.splitn(2, '_').filter(|part| !part.is_empty());
            parts.try_for_each(|part| part.parse::<Name>().map(drop)).map_err(named)?;
            if let Some(stream) = stream {
                stream.parse::<Name>().map_err(named)?;
            }
        }
        Kind::File => return in_directory(exports()?, text).ok_or_else(|| wrong(FILE)),
        Kind::Export => {
            let (scheme, rest) = match text.split_once(':') {
                Some((scheme, rest)) if SCHEMES.contains(&scheme) => (Some(scheme), rest),
                _ => (None, text),
            };
            let (file, query) = match rest.split_once('?') {
                Some((file, query)) => (file, Some(query)),
                None => (rest, None),
            };
            if query.is_some_and(|query| !query.chars().all(is_plain)) {
                return Err(wrong("an output with plain options"));
            }
            // A channel of Digital RF is a directory in another one.
            let path = match (scheme, file.split_once('/')) {
                (Some("drf"), Some((top, channel))) if is_file_name(channel) => {
                    in_directory(exports()?, top).map(|top| format!("{top}/{channel}"))
                }
                _ => in_directory(exports()?, file),
            };
            let path = path.ok_or_else(|| wrong(FILE))?;
            let scheme = scheme.map(|it| format!("{it}:")).unwrap_or_default();
            let query = query.map(|it| format!("?{it}")).unwrap_or_default();
            return Ok(format!("{scheme}{path}{query}"));
        }
    }
    Ok(text.to_owned())
}

/// Outputs of `convert` that are named by a scheme.
const SCHEMES: &[&str] = &["hdf5", "npy", "wav", "sigmf", "tdms", "zarr", "drf", "pcapng"];

const FILE: &str = "the name of a file: letters, digits, `-`, `+`, `_` and dots, and no directory";

fn in_directory(directory: &Path, file: &str) -> Option<String> {
    let path = is_file_name(file).then(|| directory.join(file))?;
    // A `?` or a comma in the directory would be read as more than a path.
    path.to_str().filter(|it| !it.contains(['?', ','])).map(str::to_owned)
}

fn is_file_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-+_.".contains(c);
    (1..=200).contains(&text.len()) && !text.starts_with(['.', '-']) && text.chars().all(is_part)
}

/// Characters of numbers, times, units, names and lists.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || " .,:-+_=&%".contains(c)
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

impl Verb {
    /// True if a client of this role may run it.
    pub fn may(&self, role: Role) -> bool {
        role >= self.role
    }
}

#[cfg(test)]
mod tests;
