//! Builds a header from the words of either form, XML or text, and checks it.

use fullbore_time::Tai;

use super::header::{Field, Header, Kind, MOST_SAMPLES, Process, Scaling};

/// The longest header that is read, and the most bytes that are skipped before one.
pub(super) const LONGEST_HEADER: usize = 64 << 10;

/// The largest sample, in bytes. A PandA captures at most 63 words, which is about 500 bytes when scaled.
pub(super) const LARGEST_SAMPLE: u32 = 4096;

/// Field names on the server have less than 32 bytes.
const LONGEST_NAME: usize = 64;

/// The text that servers print for units that are not set.
const NO_UNITS: &str = "(null)";

/// The reason why a header is invalid.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HeaderError {
    /// The header is longer than any valid header.
    #[error("the header is longer than {LONGEST_HEADER} bytes")]
    TooLong,
    /// The text is not XML of a header.
    #[error("the header is not the XML of a capture: {what}")]
    Xml {
        /// The reason.
        what: String,
    },
    /// A line of a text header is invalid.
    #[error("`{line}` is not a line of a capture header")]
    Line {
        /// The received line.
        line: String,
    },
    /// An item that is necessary to read samples is missing.
    #[error("the header does not say {what}")]
    Absent {
        /// The missing item, and its field.
        what: String,
    },
    /// A value is invalid.
    #[error("the header says {name}=\"{value}\": {why}")]
    Value {
        /// The attribute, and its field if it has one.
        name: String,
        /// The received value.
        value: String,
        /// The reason.
        why: &'static str,
    },
    /// The columns do not add up to a sample.
    #[error(
        "the header states samples of {sample_bytes} bytes, but its {fields} fields take {columns}"
    )]
    Size {
        /// Bytes of a sample, by the header.
        sample_bytes: u32,
        /// Number of fields.
        fields: usize,
        /// Bytes of all fields together.
        columns: u64,
    },
    /// The header has no column.
    #[error("the header has no fields")]
    Empty,
}

impl HeaderError {
    /// True if the text is clear and the same PandA would send it again: neither another connection nor another
    /// acquisition helps. Unclear text may be damage in transit.
    pub fn would_come_again(&self) -> bool {
        match self {
            Self::Absent { .. } | Self::Value { .. } | Self::Size { .. } | Self::Empty => true,
            Self::TooLong | Self::Xml { .. } | Self::Line { .. } => false,
        }
    }
}

/// Names and values as in the header.
pub(super) type Words = Vec<(String, String)>;

/// Builds a header from the parsed words, if they are consistent.
pub(super) fn header(data: &Words, fields: &[Words]) -> Result<Header, HeaderError> {
    let format = required(data, "format", "")?;
    if !format.eq_ignore_ascii_case("framed") {
        return Err(bad("format", "", format, "only framed samples can be certified"));
    }
    let process = match required(data, "process", "")? {
        "Raw" | "Unscaled" => Process::Raw,
        "Scaled" => Process::Scaled,
        other => return Err(bad("process", "", other, "it is Raw or Scaled")),
    };
    let sample_bytes: u32 = number(data, "sample_bytes", "")?;
    if !(1..=LARGEST_SAMPLE).contains(&sample_bytes) {
        let value = sample_bytes.to_string();
        return Err(bad("sample_bytes", "", &value, "a sample has 1 to 4096 bytes"));
    }
    let missed: u64 = number(data, "missed", "")?;
    if missed > MOST_SAMPLES {
        return Err(bad("missed", "", &missed.to_string(), "no PandA takes so many samples"));
    }
    let mut header = Header {
        arm_time: time(data, "arm_time")?,
        start_time: time(data, "start_time")?,
        hw_time_offset_ns: optional(data, "hw_time_offset_ns", "")?,
        missed,
        process,
        sample_bytes,
        fields: fields.iter().map(|words| field(words, process)).collect::<Result<_, _>>()?,
    };
    place(&mut header)?;
    Ok(header)
}

fn field(words: &Words, process: Process) -> Result<Field, HeaderError> {
    let name = plain(required(words, "name", "a field's")?, "name")?;
    let capture = plain(required(words, "capture", &name)?, "capture")?;
    let kind = match required(words, "type", &name)? {
        "uint32" => Kind::Uint32,
        "int32" => Kind::Int32,
        "int64" => Kind::Int64,
        "int96" | "uint96" => Kind::Int96,
        "double" => Kind::Double,
        other => {
            let why = "it is uint32, int32, int64, int96 or double";
            return Err(bad("type", &name, other, why));
        }
    };
    if process == Process::Raw && capture == "Mean" && kind != Kind::Int64 {
        let why = "the mean of unscaled samples is a sum of 64 bits";
        return Err(bad("type", &name, required(words, "type", &name)?, why));
    }
    let scaling = match (optional(words, "scale", &name)?, optional(words, "offset", &name)?) {
        (None, None) => None,
        (Some(scale), Some(offset)) => {
            finite("scale", &name, scale)?;
            finite("offset", &name, offset)?;
            Some(Scaling { scale, offset, units: units(words) })
        }
        (None, Some(_)) => return Err(absent("scale", &name)),
        (Some(_), None) => return Err(absent("offset", &name)),
    };
    Ok(Field { name, capture, kind, offset_bytes: 0, scaling })
}

/// Assigns an offset to every column, including the gate that old servers send first and do not list.
fn place(header: &mut Header) -> Result<(), HeaderError> {
    let columns: u64 = header.fields.iter().map(|field| u64::from(field.kind.bytes())).sum();
    if columns == 0 {
        return Err(HeaderError::Empty);
    }
    let sample_bytes = header.sample_bytes;
    if u64::from(sample_bytes) == columns + 4 && header.process == Process::Raw {
        header.fields.insert(0, unlisted_gate());
    } else if u64::from(sample_bytes) != columns {
        return Err(HeaderError::Size { sample_bytes, fields: header.fields.len(), columns });
    }
    let mut offset_bytes = 0;
    for field in &mut header.fields {
        field.offset_bytes = offset_bytes;
        offset_bytes += field.kind.bytes();
    }
    Ok(())
}

/// Before server 2.1 the gate was sent unnamed if a mean needed it.
fn unlisted_gate() -> Field {
    Field {
        name: "PCAP.SAMPLES".to_owned(),
        capture: "Value".to_owned(),
        kind: Kind::Uint32,
        offset_bytes: 0,
        scaling: None,
    }
}

/// Checks a name. It becomes the name of a column in files, so it has letters, digits and few other characters.
fn plain(text: &str, what: &'static str) -> Result<String, HeaderError> {
    let fine = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '\\' | '"' | '<' | '>' | '&');
    if (1..=LONGEST_NAME).contains(&text.len()) && text.chars().all(fine) {
        Ok(text.to_owned())
    } else {
        let value = text.chars().take(LONGEST_NAME).collect::<String>();
        Err(bad(what, "", &value, "it is 1 to 64 letters, digits and dots"))
    }
}

/// Returns the units as text for people: unset ones are empty, and control characters are removed.
fn units(words: &Words) -> String {
    match get(words, "units") {
        None | Some(NO_UNITS) => String::new(),
        Some(units) => units.chars().filter(|c| !c.is_control()).take(64).collect(),
    }
}

/// Returns a time with any number of digits.
fn time(data: &Words, name: &'static str) -> Result<Option<Tai>, HeaderError> {
    let Some(text) = get(data, name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let nanoseconds = match text.split_once('.') {
        Some((whole, fraction)) => {
            let digits = fraction.bytes().take_while(u8::is_ascii_digit).take(9).count();
            format!("{whole}.{}", &fraction[..digits])
        }
        None => text.to_owned(),
    };
    nanoseconds.parse().map(Some).map_err(|_| bad(name, "", text, "it is a UTC time"))
}

fn finite(what: &'static str, field: &str, value: f64) -> Result<(), HeaderError> {
    if value.is_finite() {
        Ok(())
    } else {
        Err(bad(what, field, &value.to_string(), "it is a finite number"))
    }
}

fn get<'a>(words: &'a Words, name: &str) -> Option<&'a str> {
    words.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

fn required<'a>(words: &'a Words, name: &'static str, field: &str) -> Result<&'a str, HeaderError> {
    get(words, name).ok_or_else(|| absent(name, field))
}

fn number<T: std::str::FromStr>(
    words: &Words,
    name: &'static str,
    field: &str,
) -> Result<T, HeaderError> {
    optional(words, name, field)?.ok_or_else(|| absent(name, field))
}

fn optional<T: std::str::FromStr>(
    words: &Words,
    name: &'static str,
    field: &str,
) -> Result<Option<T>, HeaderError> {
    let Some(text) = get(words, name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| bad(name, field, text, "it is not a number of that kind"))
}

fn absent(name: &str, field: &str) -> HeaderError {
    let what = if field.is_empty() { name.to_owned() } else { format!("{name} of {field}") };
    HeaderError::Absent { what }
}

fn bad(name: &str, field: &str, value: &str, why: &'static str) -> HeaderError {
    let name = if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
    let value = value.chars().filter(|c| !c.is_control()).take(80).collect();
    HeaderError::Value { name, value, why }
}
