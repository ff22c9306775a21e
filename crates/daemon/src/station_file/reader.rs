//! Reads the tables of a TOML file, and collects everything that is wrong in it, each with its line.

use std::cell::RefCell;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Serialize;
use toml::de::{DeTable, DeValue};

/// Something that is wrong in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Fault {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// True if the station can be served all the same, such as with a disk that is not mounted.
    pub warning: bool,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.warning { "warning: " } else { "" };
        write!(f, "line {}: {kind}{}", self.line, self.what)
    }
}

/// A value, and the line in which it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given<T> {
    pub value: T,
    pub line: usize,
}

/// The text of a file, and what is wrong in it so far.
pub(super) struct Reader<'t> {
    text: &'t str,
    faults: RefCell<Vec<Fault>>,
}

impl<'t> Reader<'t> {
    pub fn new(text: &'t str) -> Self {
        Self { text, faults: RefCell::default() }
    }

    /// Notes something that is wrong.
    pub fn fault(&self, line: usize, what: impl Into<String>, advice: &str) {
        self.note(line, what.into(), advice, false);
    }

    fn note(&self, line: usize, what: String, advice: &str, warning: bool) {
        let advice = Some(advice.to_owned()).filter(|it| !it.is_empty());
        self.faults.borrow_mut().push(Fault { line, what, warning, advice });
    }

    /// The line of a byte.
    pub fn line(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }

    /// The faults in the order of their lines.
    pub fn faults(self) -> Vec<Fault> {
        let mut faults = self.faults.into_inner();
        faults.sort();
        faults
    }
}

/// A table of the file.
pub(super) struct Keys<'a> {
    reader: &'a Reader<'a>,
    /// As it is written: `[listen]`.
    name: &'static str,
    pub line: usize,
    table: &'a DeTable<'a>,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Keys<'a> {
    pub fn new(
        reader: &'a Reader<'a>,
        name: &'static str,
        line: usize,
        table: &'a DeTable<'a>,
    ) -> Self {
        Self { reader, name, line, table, known: RefCell::default() }
    }

    fn take(&self, key: &'static str) -> Option<(usize, &'a DeValue<'a>)> {
        self.known.borrow_mut().push(key);
        let (name, value) = self.table.iter().find(|(name, _)| name.get_ref().as_ref() == key)?;
        Some((self.reader.line(name.span().start), value.get_ref()))
    }

    /// A text.
    pub fn text(&self, key: &'static str) -> Option<Given<String>> {
        let (line, value) = self.take(key)?;
        let text = value.as_str().map(str::to_owned);
        if text.is_none() {
            self.reader.fault(line, format!("`{key}` is a text in quotes"), "");
        }
        Some(Given { value: text?, line })
    }

    /// Notes that a key is missing.
    pub fn needs(&self, key: &'static str) {
        if self.take(key).is_none() {
            self.reader.fault(self.line, format!("{} needs `{key}`", self.name), "");
        }
    }

    /// A text, or a list of texts.
    pub fn texts(&self, key: &'static str) -> Vec<Given<String>> {
        let Some((line, value)) = self.take(key) else { return Vec::new() };
        if let Some(text) = value.as_str() {
            return vec![Given { value: text.to_owned(), line }];
        }
        let Some(list) = value.as_array() else {
            self.reader.fault(line, format!("`{key}` is a text in quotes, or a list of them"), "");
            return Vec::new();
        };
        let one = |item: &toml::Spanned<DeValue<'_>>| {
            let line = self.reader.line(item.span().start);
            let text = item.get_ref().as_str().map(str::to_owned);
            if text.is_none() {
                self.reader.fault(line, format!("an item of `{key}` is a text in quotes"), "");
            }
            text.map(|value| Given { value, line })
        };
        list.iter().filter_map(one).collect()
    }

    /// A text that is read further; `advice` says how to write it.
    pub fn parsed<T, E: Display>(
        &self,
        key: &'static str,
        advice: &str,
        read: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<Given<T>> {
        let Given { value, line } = self.text(key)?;
        match read(&value) {
            Ok(value) => Some(Given { value, line }),
            Err(error) => {
                self.reader.fault(line, format!("`{key}`: {error}"), advice);
                None
            }
        }
    }

    /// A length of time within a range.
    pub fn time(&self, key: &'static str, range: RangeInclusive<Duration>) -> Option<Duration> {
        let told = |time: &Duration| humantime::format_duration(*time).to_string();
        let (least, most) = (told(range.start()), told(range.end()));
        let read = |text: &str| match humantime::parse_duration(text) {
            Ok(time) if range.contains(&time) => Ok(time),
            _ => Err(format!("it is a time from {least} to {most}")),
        };
        self.parsed(key, "write it with its unit: \"10s\"", read).map(|it| it.value)
    }

    /// A number within a range.
    pub fn number(&self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let (line, value) = self.take(key)?;
        let digits = value.as_integer().map(|it| (it.as_str().replace('_', ""), it.radix()));
        let number = digits.and_then(|(digits, radix)| u64::from_str_radix(&digits, radix).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = (range.start(), range.end());
            self.reader.fault(line, format!("`{key}` is a number from {least} to {most}"), "");
        }
        number
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &'static str) -> bool {
        let Some((line, value)) = self.take(key) else { return false };
        value.as_bool().unwrap_or_else(|| {
            self.reader.fault(line, format!("`{key}` is true or false"), "");
            false
        })
    }

    /// A table.
    pub fn table(&self, key: &'static str, name: &'static str) -> Option<Keys<'a>> {
        let (line, value) = self.take(key)?;
        let table = value.as_table();
        if table.is_none() {
            self.reader.fault(
                line,
                format!("`{key}` is a table"),
                &format!("begin it with {name}"),
            );
        }
        Some(Keys::new(self.reader, name, line, table?))
    }

    /// Tables of one kind, at most so many.
    pub fn tables(&self, key: &'static str, name: &'static str, most: usize) -> Vec<Keys<'a>> {
        let Some((line, value)) = self.take(key) else { return Vec::new() };
        let list = value.as_array().filter(|list| list.iter().all(|it| it.get_ref().is_table()));
        let Some(list) = list else {
            let advice = format!("begin each with {name}");
            self.reader.fault(line, format!("`{key}` is a list of tables"), &advice);
            return Vec::new();
        };
        if list.iter().count() > most {
            self.reader.fault(line, format!("there are more than {most} {name}"), "");
            return Vec::new();
        }
        let one = |item: &'a toml::Spanned<DeValue<'a>>| {
            let line = self.reader.line(item.span().start);
            Some(Keys::new(self.reader, name, line, item.get_ref().as_table()?))
        };
        list.iter().filter_map(one).collect()
    }

    /// True if the table has the key.
    pub fn has(&self, key: &'static str) -> bool {
        self.take(key).is_some()
    }

    /// The line of a key, or else of the table.
    pub fn line_of(&self, key: &'static str) -> usize {
        self.take(key).map_or(self.line, |(line, _)| line)
    }

    /// Notes something that is wrong in the table.
    pub fn fault(&self, line: usize, what: impl Into<String>, advice: &str) {
        self.reader.fault(line, what, advice);
    }

    /// Notes something with which the station can be served all the same.
    pub fn warn(&self, line: usize, what: impl Into<String>, advice: &str) {
        self.reader.note(line, what.into(), advice, true);
    }

    /// Refuses keys that nothing has read. To be called when all are read.
    pub fn finish(self) {
        let mut known = self.known.into_inner();
        known.sort_unstable();
        known.dedup();
        for (name, _) in self.table {
            let key = name.get_ref().as_ref();
            if !known.contains(&key) {
                let shown: String = key.chars().take(40).collect();
                let what = match self.name {
                    "" => format!("there is no table or key `{shown}`"),
                    table => format!("there is no key `{shown}` in {table}"),
                };
                let advice = format!("there are {}", known.join(", "));
                self.reader.fault(self.reader.line(name.span().start), what, &advice);
            }
        }
    }
}
