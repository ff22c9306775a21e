//! The blocks and fields of a simulated PandA.

/// The FPGA clock, Hz.
pub(super) const CLOCK_HZ: u64 = 125_000_000;

/// Capture options of positions.
pub(super) const OPTIONS: [&str; 7] = ["Value", "Diff", "Sum", "Min", "Max", "Mean", "StdDev"];

/// The option combinations that menus offer.
pub(super) const MENU: [&str; 9] =
    ["No", "Value", "Diff", "Sum", "Mean", "Min", "Max", "Min Max", "Min Max Mean"];

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

/// The type of a field.
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
    /// The text in the answer to `BLOCK.*?`.
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

    /// The attributes in the answer to `F.*?`.
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

/// The blocks, in the order of sample columns.
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

/// Fields of a sequencer table's line, as in the answer to `FIELDS?`.
pub(super) const TABLE_FIELDS: [(&str, &str, &str); 7] = [
    ("15:0", "REPEATS", "uint"),
    ("19:16", "TRIGGER", "enum"),
    ("63:32", "POSITION", "int"),
    ("95:64", "TIME1", "uint"),
    ("20:20", "OUTA1", "uint"),
    ("127:96", "TIME2", "uint"),
    ("26:26", "OUTA2", "uint"),
];

/// Trigger conditions of a sequencer table's line.
pub(super) const TABLE_TRIGGERS: [&str; 4] = ["Immediate", "BITA=0", "BITA=1", "POSA>=POSITION"];

/// 32-bit words per line of a sequencer table.
pub(super) const ROW_WORDS: usize = 4;

/// The place of an existing field: `COUNTER1.OUT`.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub block: &'static Block,
    /// From 1; 0 if no number was given.
    pub number: usize,
    pub field: &'static Field,
}

impl Place {
    /// The full name. A block with a single instance has no number.
    pub fn name(&self) -> String {
        match self.block.count {
            1 => format!("{}.{}", self.block.name, self.field.name),
            _ => format!("{}{}.{}", self.block.name, self.number.max(1), self.field.name),
        }
    }

    /// The bit word in which the field is captured, and its bit there.
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

/// Finds the field that `COUNTER1.OUT` names, and the attribute that follows it: `SCALE`.
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

/// Names of all bits, in the order of the bit words.
pub(super) fn bit_names() -> Vec<String> {
    let bits = places().filter(|place| place.field.kind == Kind::BitOut);
    bits.map(|place| place.name()).collect()
}

/// The possible connections of a bit input.
pub(super) fn bit_labels() -> Vec<String> {
    ["ZERO".to_owned(), "ONE".to_owned()].into_iter().chain(bit_names()).collect()
}
