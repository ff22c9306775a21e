//! The settings of a simulated PandA, and the changes since a client's last query.

use std::collections::BTreeMap;

use super::model::{Kind, OPTIONS, Place, ROW_WORDS, bit_labels, place, places};

/// Units of times.
const TIME_UNITS: [&str; 5] = ["min", "s", "ms", "us", "ns"];

/// The most lines of a table.
const LONGEST_TABLE: usize = 16_384;

/// Settings whose changes are reported together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Config,
    Bits,
    Posn,
    Read,
    Attr,
    Table,
    Metadata,
}

impl Group {
    pub const ALL: [(Group, &str); 7] = [
        (Group::Config, "CONFIG"),
        (Group::Bits, "BITS"),
        (Group::Posn, "POSN"),
        (Group::Read, "READ"),
        (Group::Attr, "ATTR"),
        (Group::Table, "TABLE"),
        (Group::Metadata, "METADATA"),
    ];
}

/// The value of a setting.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    /// Words of a table, or lines of text.
    Lines(Vec<String>),
}

/// One setting.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub group: Group,
    pub value: Value,
    /// The number of its latest change, counted over all settings.
    pub changed: u64,
}

/// All settings, by full name: `COUNTER1.OUT.SCALE`.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    all: BTreeMap<String, Setting>,
    pub changes: u64,
}

impl Settings {
    /// The settings of a PandA after power-on, except for the captured fields: lines `FIELD options`.
    pub fn new() -> Self {
        let mut settings = Settings { all: BTreeMap::new(), changes: 0 };
        for place in places() {
            let name = place.name();
            let mut put = |suffix: &str, group, text: &str| {
                settings.put(format!("{name}{suffix}"), group, Value::Text(text.to_owned()));
            };
            match place.field.kind {
                Kind::BitOut => put("", Group::Bits, "0"),
                Kind::PosOut => {
                    put("", Group::Posn, "0");
                    put(".CAPTURE", Group::Attr, "No");
                    put(".SCALE", Group::Attr, "1");
                    put(".OFFSET", Group::Attr, "0");
                    put(".UNITS", Group::Attr, "");
                }
                Kind::BitMux => {
                    put("", Group::Config, "ZERO");
                    put(".DELAY", Group::Attr, "0");
                }
                Kind::Time => {
                    put("", Group::Config, "0");
                    put(".UNITS", Group::Attr, "s");
                }
                Kind::Uint(_) => put("", Group::Config, "0"),
                Kind::Enum(labels) => put("", Group::Config, labels[0]),
                Kind::Table => settings.put(name, Group::Table, Value::Lines(Vec::new())),
                Kind::Timestamp | Kind::Samples | Kind::Bits(_) => {
                    put(".CAPTURE", Group::Attr, "No");
                }
            }
        }
        let text = |text: &str| Value::Text(text.to_owned());
        settings.put("*METADATA.LABEL_PCAP1".to_owned(), Group::Metadata, text(""));
        settings.put("*METADATA.DESIGN".to_owned(), Group::Metadata, text("simulated"));
        settings.put("*METADATA.LAYOUT".to_owned(), Group::Metadata, Value::Lines(Vec::new()));
        settings
    }

    fn put(&mut self, name: String, group: Group, value: Value) {
        self.changes += 1;
        self.all.insert(name, Setting { group, value, changed: self.changes });
    }

    /// The text of a setting.
    pub fn text(&self, name: &str) -> Option<&str> {
        match &self.all.get(name)?.value {
            Value::Text(text) => Some(text),
            Value::Lines(_) => None,
        }
    }

    /// The lines of a setting.
    pub fn lines(&self, name: &str) -> Option<&[String]> {
        match &self.all.get(name)?.value {
            Value::Lines(lines) => Some(lines),
            Value::Text(_) => None,
        }
    }

    /// All settings that have changed after `mark`, in the format of `*CHANGES`.
    pub fn changed(&self, group: Group, mark: u64) -> impl Iterator<Item = String> {
        let changed = move |setting: &&Setting| setting.group == group && setting.changed > mark;
        self.all.iter().filter(move |(_, setting)| changed(setting)).map(|(name, setting)| {
            match &setting.value {
                Value::Text(text) => format!("{name}={text}"),
                Value::Lines(_) => format!("{name}<"),
            }
        })
    }

    /// Names of the user's labels.
    pub fn metadata(&self) -> impl Iterator<Item = &str> {
        self.all.keys().filter_map(|name| name.strip_prefix("*METADATA."))
    }

    /// Sets a field or attribute to a valid text.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), &'static str> {
        if name.starts_with("*METADATA.") {
            return self.replace(name, Value::Text(text.to_owned()));
        }
        let (place, attribute) = place(name)?;
        if place.number == 0 && place.block.count > 1 {
            return Err("Missing block number");
        }
        let text = match (place.field.kind, attribute) {
            (Kind::BitOut | Kind::PosOut, None) => return Err("Field is read only"),
            (Kind::PosOut, Some("CAPTURE")) => captures(text, &OPTIONS)?,
            (Kind::Timestamp | Kind::Samples | Kind::Bits(_), Some("CAPTURE")) => {
                captures(text, &OPTIONS[..1])?
            }
            (Kind::PosOut, Some("SCALE" | "OFFSET")) | (Kind::Time, None) => {
                let finite = text.parse().ok().filter(|number: &f64| number.is_finite());
                finite.ok_or("Invalid number")?;
                text.to_owned()
            }
            (Kind::PosOut, Some("UNITS")) => text.to_owned(),
            (Kind::Time, Some("UNITS")) if TIME_UNITS.contains(&text) => text.to_owned(),
            (Kind::BitMux, None) if bit_labels().iter().any(|label| label == text) => {
                text.to_owned()
            }
            (Kind::BitMux, None) => return Err("Invalid bit bus selection"),
            (Kind::BitMux, Some("DELAY")) => number(text, 31)?,
            (Kind::Uint(most), None) => number(text, most)?,
            (Kind::Enum(labels), None) if labels.contains(&text) => text.to_owned(),
            (Kind::Enum(_), None) | (Kind::Time, Some("UNITS")) => return Err("Label not found"),
            (_, Some(name)) if place.field.kind.attributes().contains(&name) => {
                return Err("Attribute is read only");
            }
            (_, Some(_)) => return Err("No such attribute"),
            (_, None) => return Err("Field not writeable"),
        };
        let full = match attribute {
            Some(attribute) => format!("{}.{attribute}", place.name()),
            None => place.name(),
        };
        self.replace(&full, Value::Text(text))
    }

    /// Sets a table: its words, or text for users.
    pub fn set_lines(&mut self, name: &str, lines: Vec<String>) -> Result<(), &'static str> {
        if name.starts_with("*METADATA.") {
            return self.replace(name, Value::Lines(lines));
        }
        let (place, _) = place(name)?;
        if place.field.kind != Kind::Table {
            return Err("Field is not a table");
        }
        if lines.len() > LONGEST_TABLE {
            return Err("Too many values");
        }
        if !lines.len().is_multiple_of(ROW_WORDS) {
            return Err("Table does not end on a row");
        }
        if lines.iter().any(|word| word.parse::<u32>().is_err()) {
            return Err("Number missing");
        }
        self.replace(&place.name(), Value::Lines(lines))
    }

    /// The most words of a table.
    pub const LONGEST_TABLE: usize = LONGEST_TABLE;

    /// Labels of the units of times.
    pub const TIME_UNITS: &'static [&'static str] = &TIME_UNITS;

    /// Captures nothing.
    pub fn clear_capture(&mut self) {
        let names: Vec<String> =
            self.all.keys().filter(|name| name.ends_with(".CAPTURE")).cloned().collect();
        for name in names {
            if self.text(&name) != Some("No") {
                self.put(name, Group::Attr, Value::Text("No".to_owned()));
            }
        }
    }

    /// The captured fields: full names and options.
    pub fn captured(&self) -> impl Iterator<Item = (Place, &str)> {
        places().filter_map(|place| {
            let options = self.text(&format!("{}.CAPTURE", place.name()))?;
            (options != "No").then_some((place, options))
        })
    }

    fn replace(&mut self, name: &str, value: Value) -> Result<(), &'static str> {
        let group = match self.all.get(name) {
            Some(setting) => match (&setting.value, &value) {
                (Value::Text(_), Value::Lines(_)) => return Err("Not a table"),
                (Value::Lines(_), Value::Text(_)) => return Err("Not a single value"),
                _ => setting.group,
            },
            None if name.starts_with("*METADATA.LABEL_") && name.len() < 64 => Group::Metadata,
            None if name.starts_with("*METADATA.") => return Err("Not a metadata key"),
            None => return Err("No such attribute"),
        };
        self.put(name.to_owned(), group, value);
        Ok(())
    }
}

fn captures(text: &str, options: &[&str]) -> Result<String, &'static str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [] | ["No"] => Ok("No".to_owned()),
        words if words.iter().all(|word| options.contains(word)) => {
            let kept = options.iter().filter(|option| words.contains(option));
            Ok(kept.copied().collect::<Vec<_>>().join(" "))
        }
        _ => Err("Invalid capture option"),
    }
}

fn number(text: &str, most: u32) -> Result<String, &'static str> {
    match text.parse::<u32>() {
        Ok(n) if n <= most => Ok(n.to_string()),
        Ok(_) => Err("Number out of range"),
        Err(_) => Err("Number missing"),
    }
}
