//! What a made-up PandA is built of: its blocks, their fields, and what these are set to.

use std::collections::BTreeMap;

/// The FPGA clock, Hz.
pub(super) const CLOCK_HZ: u64 = 125_000_000;

/// What positions can be captured as.
pub(super) const OPTIONS: [&str; 7] = ["Value", "Diff", "Sum", "Min", "Max", "Mean", "StdDev"];

/// The combinations that menus offer.
pub(super) const MENU: [&str; 9] =
    ["No", "Value", "Diff", "Sum", "Mean", "Min", "Max", "Min Max", "Min Max Mean"];

/// Units of times.
const TIME_UNITS: [&str; 5] = ["min", "s", "ms", "us", "ns"];

/// The most lines of a table.
const LONGEST_TABLE: usize = 16_384;

/// One kind of block.
pub(super) struct Block {
    pub name: &'static str,
    pub count: usize,
    pub description: &'static str,
    pub fields: &'static [Field],
}

/// One field of a block.
pub(super) struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub description: &'static str,
}

/// What a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    BitOut,
    PosOut,
    BitMux,
    Time,
    Uint(u32),
    Enum(&'static [&'static str]),
    Table,
    Timestamp,
    Samples,
    Bits(u8),
}

impl Kind {
    /// As `BLOCK.*?` tells it.
    pub fn text(self) -> &'static str {
        match self {
            Kind::BitOut => "bit_out",
            Kind::PosOut => "pos_out",
            Kind::BitMux => "bit_mux",
            Kind::Time => "time",
            Kind::Uint(_) => "param uint",
            Kind::Enum(_) => "param enum",
            Kind::Table => "table",
            Kind::Timestamp => "ext_out timestamp",
            Kind::Samples => "ext_out samples",
            Kind::Bits(_) => "ext_out bits",
        }
    }

    /// As `F.*?` tells them.
    pub fn attributes(self) -> &'static [&'static str] {
        match self {
            Kind::BitOut => &["CAPTURE_WORD", "INFO", "OFFSET"],
            Kind::PosOut => &["CAPTURE", "INFO", "OFFSET", "RAW", "SCALE", "SCALED", "UNITS"],
            Kind::BitMux => &["DELAY", "INFO", "MAX_DELAY"],
            Kind::Time => &["INFO", "MIN", "RAW", "UNITS"],
            Kind::Uint(_) => &["INFO", "MAX", "RAW"],
            Kind::Enum(_) => &["INFO", "LABELS", "RAW"],
            Kind::Table => &["B", "FIELDS", "INFO", "LENGTH", "MAX_LENGTH", "ROW_WORDS"],
            Kind::Timestamp | Kind::Samples => &["CAPTURE", "INFO"],
            Kind::Bits(_) => &["BITS", "CAPTURE", "INFO"],
        }
    }
}

const fn field(name: &'static str, kind: Kind, description: &'static str) -> Field {
    Field { name, kind, description }
}

/// In the order in which samples have their columns.
pub(super) const BLOCKS: &[Block] = &[
    Block {
        name: "TTLIN",
        count: 6,
        description: "TTL input",
        fields: &[
            field("TERM", Kind::Enum(&["High-Z", "50-Ohm"]), "Select TTL input termination"),
            field("VAL", Kind::BitOut, "TTL input value"),
        ],
    },
    Block {
        name: "TTLOUT",
        count: 10,
        description: "TTL output",
        fields: &[field("VAL", Kind::BitMux, "TTL output value")],
    },
    Block {
        name: "INENC",
        count: 4,
        description: "Input encoder",
        fields: &[
            field("CLK", Kind::BitMux, "Clock input"),
            field("CLK_PERIOD", Kind::Time, "Clock rate"),
            field("VAL", Kind::PosOut, "Current position"),
        ],
    },
    Block {
        name: "COUNTER",
        count: 8,
        description: "Up/Down pulse counter",
        fields: &[
            field("ENABLE", Kind::BitMux, "Halt on falling edge, reset and enable on rising"),
            field("TRIG", Kind::BitMux, "Rising edge ticks the counter up/down by STEP"),
            field("DIR", Kind::BitMux, "Up/Down direction (0 = Up, 1 = Down)"),
            field("STEP", Kind::Uint(u32::MAX), "Up/Down step value"),
            field("CARRY", Kind::BitOut, "Internal counter overflow"),
            field("OUT", Kind::PosOut, "Current counter value"),
        ],
    },
    Block {
        name: "PULSE",
        count: 4,
        description: "One-shot pulse delay and stretch",
        fields: &[
            field("ENABLE", Kind::BitMux, "Enable event"),
            field("TRIG", Kind::BitMux, "Input pulse train"),
            field("DELAY", Kind::Time, "Output pulse delay"),
            field("WIDTH", Kind::Time, "Output pulse width"),
            field("OUT", Kind::BitOut, "Output pulse"),
        ],
    },
    Block {
        name: "SEQ",
        count: 2,
        description: "Sequencer",
        fields: &[
            field("ENABLE", Kind::BitMux, "Stop on falling edge, reset and enable on rising"),
            field("PRESCALE", Kind::Time, "Prescalar for all times"),
            field("REPEATS", Kind::Uint(u32::MAX), "Number of times the table repeats"),
            field("TABLE", Kind::Table, "Sequencer table of lines"),
            field("ACTIVE", Kind::BitOut, "Sequencer active flag"),
        ],
    },
    Block {
        name: "PCAP",
        count: 1,
        description: "Position capture control",
        fields: &[
            field("ENABLE", Kind::BitMux, "After arm, when high start capture"),
            field("GATE", Kind::BitMux, "After enable, only process gated values"),
            field("TRIG", Kind::BitMux, "On trigger, capture all data to be captured"),
            field("TRIG_EDGE", Kind::Enum(&["Rising", "Falling", "Either"]), "Trigger edge"),
            field("SHIFT_SUM", Kind::Uint(8), "Shift sums and samples data"),
            field("ACTIVE", Kind::BitOut, "Data capture in progress"),
            field("BITS0", Kind::Bits(0), "Quadrant 0 of bit_bus"),
            field("BITS1", Kind::Bits(1), "Quadrant 1 of bit_bus"),
            field("BITS2", Kind::Bits(2), "Quadrant 2 of bit_bus"),
            field("BITS3", Kind::Bits(3), "Quadrant 3 of bit_bus"),
            field("SAMPLES", Kind::Samples, "Number of gated samples in the current capture"),
            field("TS_START", Kind::Timestamp, "Timestamp of first gate high"),
            field("TS_END", Kind::Timestamp, "Timestamp of last gate high"),
            field("TS_TRIG", Kind::Timestamp, "Timestamp of the capture event"),
            field("TS_CAPTURE", Kind::Timestamp, "Timestamp of the capture event"),
        ],
    },
];

/// Fields of a line of a sequencer table, as `FIELDS?` tells them.
pub(super) const TABLE_FIELDS: [(&str, &str, &str); 7] = [
    ("15:0", "REPEATS", "uint"),
    ("19:16", "TRIGGER", "enum"),
    ("63:32", "POSITION", "int"),
    ("95:64", "TIME1", "uint"),
    ("20:20", "OUTA1", "uint"),
    ("127:96", "TIME2", "uint"),
    ("26:26", "OUTA2", "uint"),
];

/// What triggers a line of a sequencer table.
pub(super) const TABLE_TRIGGERS: [&str; 4] = ["Immediate", "BITA=0", "BITA=1", "POSA>=POSITION"];

/// 32-bit words of a line of a sequencer table.
pub(super) const ROW_WORDS: usize = 4;

/// Which settings are reported as changed together.
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

/// What something is set to.
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
    /// Which change it was, counted over all settings.
    pub changed: u64,
}

/// All settings, by full name: `COUNTER1.OUT.SCALE`.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    all: BTreeMap<String, Setting>,
    pub changes: u64,
}

/// A field that exists: `COUNTER1.OUT`.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub block: &'static Block,
    /// From 1; 0 if no number was given.
    pub number: usize,
    pub field: &'static Field,
}

impl Place {
    /// The full name; a block that is there once has no number.
    pub fn name(&self) -> String {
        match self.block.count {
            1 => format!("{}.{}", self.block.name, self.field.name),
            _ => format!("{}{}.{}", self.block.name, self.number.max(1), self.field.name),
        }
    }

    /// The word of bits in which it is captured, and its place there.
    pub fn bit(&self) -> (u8, usize) {
        let at = bit_names().iter().position(|name| *name == self.name()).unwrap_or(0);
        ((at / 32) as u8, at % 32)
    }
}

/// Finds the block that `COUNTER1` or `COUNTER` names.
pub(super) fn block(name: &str) -> Result<(&'static Block, usize), &'static str> {
    let letters = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = &name[letters.len()..];
    let block = BLOCKS.iter().find(|block| block.name == letters).ok_or("No such block")?;
    match number {
        "" => Ok((block, 0)),
        _ => match number.parse() {
            Ok(n) if (1..=block.count).contains(&n) => Ok((block, n)),
            _ => Err("Invalid block number"),
        },
    }
}

/// Finds the field that `COUNTER1.OUT` names, and what follows it: `SCALE`.
pub(super) fn place(name: &str) -> Result<(Place, Option<&str>), &'static str> {
    let (of, rest) = name.split_once('.').ok_or("Missing field")?;
    let (of_field, attribute) = match rest.split_once('.') {
        Some((field, attribute)) => (field, Some(attribute)),
        None => (rest, None),
    };
    let (block, number) = block(of)?;
    let field = block.fields.iter().find(|field| field.name == of_field).ok_or("No such field")?;
    Ok((Place { block, number, field }, attribute))
}

/// Every field of every block, in order.
pub(super) fn places() -> impl Iterator<Item = Place> {
    BLOCKS.iter().flat_map(|block| {
        (1..=block.count).flat_map(move |number| {
            block.fields.iter().map(move |field| Place { block, number, field })
        })
    })
}

/// Names of all bits, in the order of the words that capture them.
pub(super) fn bit_names() -> Vec<String> {
    let bits = places().filter(|place| place.field.kind == Kind::BitOut);
    bits.map(|place| place.name()).collect()
}

/// What a bit input can be connected to.
pub(super) fn bit_labels() -> Vec<String> {
    ["ZERO".to_owned(), "ONE".to_owned()].into_iter().chain(bit_names()).collect()
}

impl Settings {
    /// As a PandA that was just switched on, but for what is captured: lines `FIELD options`.
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

    /// The text that something is set to.
    pub fn text(&self, name: &str) -> Option<&str> {
        match &self.all.get(name)?.value {
            Value::Text(text) => Some(text),
            Value::Lines(_) => None,
        }
    }

    /// The lines that something is set to.
    pub fn lines(&self, name: &str) -> Option<&[String]> {
        match &self.all.get(name)?.value {
            Value::Lines(lines) => Some(lines),
            Value::Text(_) => None,
        }
    }

    /// Everything that has changed after `mark`, as `*CHANGES` tells it.
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

    /// Sets a field or attribute to a text it can have.
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

    /// Sets a table: its words, or text for people.
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

    /// What is captured: full names and options.
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
