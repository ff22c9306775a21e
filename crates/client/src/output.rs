//! The lines of a stream: what a command printed, and what a recorder told.

use serde::Deserialize;
use serde_json::Value;

/// A line of `/api/v1/jobs/{id}/output`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A part of standard output.
    Out(String),
    /// A line of standard error.
    Err(String),
    /// The work that is done, and all work.
    Progress(u64, u64),
    /// The exit code, at the end.
    Exit(i32),
}

impl Entry {
    /// Reads a line. A kind of entry that this version does not know is none.
    pub fn of_line(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// A line of `/api/v1/recordings/{id}/output`.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The line as `fullbore record --json` prints it.
    pub line: String,
    /// The kind of event.
    pub event: String,
    /// What `fullbore record` shows of it.
    pub shown: Option<String>,
    /// The whole event.
    pub value: Value,
}

impl Told {
    /// Reads a line.
    pub fn of_line(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let (event, shown) = (text("event").unwrap_or_default(), text("shown"));
        // The text is the last key, and a quotation mark in it is escaped, so this is where it begins.
        let end = shown.as_ref().and_then(|_| line.rfind(",\"shown\":\""));
        let line = match end {
            Some(end) => format!("{}}}", &line[..end]),
            None => line.to_owned(),
        };
        Some(Self { line, event, shown, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_commands_are_told_apart() {
        assert_eq!(Entry::of_line(r#"{"out":"a\n"}"#), Some(Entry::Out("a\n".into())));
        assert_eq!(Entry::of_line(r#"{"err":"b"}"#), Some(Entry::Err("b".into())));
        assert_eq!(Entry::of_line(r#"{"progress":[1,2]}"#), Some(Entry::Progress(1, 2)));
        assert_eq!(Entry::of_line(r#"{"exit":3}"#), Some(Entry::Exit(3)));
        assert_eq!(Entry::of_line(r#"{"later":3}"#), None);
    }

    #[test]
    fn the_text_of_an_event_is_apart_from_its_json() {
        let line = r#"{"event":"warning","text":"a,\"shown\":\"b","shown":"c \",\"shown\":\"d\n"}"#;
        let told = Told::of_line(line).unwrap();
        assert_eq!(told.event, "warning");
        assert_eq!(told.shown.as_deref(), Some("c \",\"shown\":\"d\n"));
        assert_eq!(told.line, r#"{"event":"warning","text":"a,\"shown\":\"b"}"#);
        let plain = r#"{"event":"armed"}"#;
        assert_eq!(Told::of_line(plain).unwrap().line, plain);
        assert_eq!(Told::of_line("x"), None);
    }
}
