//! The header as lines of text, parsed and written, and numbers in C format.

use std::fmt::Write;

use super::header::Header;
use super::header_builder::{self, HeaderError, LONGEST_HEADER, Words};

/// The first words of a text header.
pub(super) const FIRST_WORDS: [&[u8]; 4] = [b"arm_time:", b"start_time:", b"missed:", b"process:"];

impl Header {
    /// Parses the lines of a text header, with or without the empty line at its end.
    pub fn from_text(bytes: &[u8]) -> Result<Header, HeaderError> {
        if bytes.len() > LONGEST_HEADER {
            return Err(HeaderError::TooLong);
        }
        let text = String::from_utf8_lossy(bytes);
        let mut data = Words::new();
        let mut lines = text.lines();
        for line in lines.by_ref() {
            let (name, value) = line.split_once(':').ok_or_else(|| bad(line))?;
            if name == "fields" {
                break;
            }
            data.push((name.to_owned(), value.trim().to_owned()));
        }
        let fields: Vec<Words> =
            lines.take_while(|line| !line.is_empty()).map(field).collect::<Result<_, _>>()?;
        header_builder::header(&data, &fields)
    }

    /// Returns the header as lines of text, without the empty line after it.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, value) in self.facts() {
            let _ = writeln!(text, "{name}: {value}");
        }
        text.push_str("fields:\n");
        for field in &self.fields {
            let _ = write!(text, " {} {} {}", field.name, field.kind, field.capture);
            if let Some(scaling) = &field.scaling {
                let (scale, offset) = (general(scaling.scale, 12), general(scaling.offset, 12));
                let _ = write!(text, " scale: {scale} offset: {offset} units: {}", scaling.units);
            }
            text.push('\n');
        }
        text
    }
}

/// ` COUNTER2.OUT int32 Min scale: 0.5 offset: 3 units: mm`; units may hold blanks.
fn field(line: &str) -> Result<Words, HeaderError> {
    let (what, units) = match line.split_once(" units:") {
        Some((what, units)) => (what, Some(units.trim())),
        None => (line, None),
    };
    let words: Vec<&str> = what.split_whitespace().collect();
    let mut read: Words = Vec::new();
    let mut say = |name: &str, value: &str| read.push((name.to_owned(), value.to_owned()));
    match words.as_slice() {
        [name, kind, capture, rest @ ..] => {
            say("name", name);
            say("type", kind);
            say("capture", capture);
            match rest {
                [] if units.is_none() => {}
                ["scale:", scale, "offset:", offset] => {
                    say("scale", scale);
                    say("offset", offset);
                    say("units", units.unwrap_or_default());
                }
                _ => return Err(bad(line)),
            }
        }
        _ => return Err(bad(line)),
    }
    Ok(read)
}

fn bad(line: &str) -> HeaderError {
    HeaderError::Line { line: line.chars().filter(|c| !c.is_control()).take(80).collect() }
}

/// Returns a number as `%.<digits>g` prints it in C: servers write scales and samples in this format.
pub fn general(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return format!("{value}").to_lowercase();
    }
    let digits = digits.clamp(1, 17);
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = (digits as i32 - 1 - exponent).max(0) as usize;
    trimmed(&format!("{value:.decimals$}")).to_owned()
}

fn trimmed(number: &str) -> &str {
    match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    }
}
