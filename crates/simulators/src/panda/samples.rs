//! The samples of a simulated PandA: every 32-bit word of sample `i` is `i`.
//!
//! This reveals a torn or overwritten sample. Every scaled value follows from the index: a 64-bit value is `i × (2³² +
//! 1)`, and the gate, which divides means, is `i` too.

use std::fmt::Write;

use fullbore_formats::panda::{Field, Kind, Process, Scaling, general};
use zerocopy::IntoBytes;

use super::model::{self, CLOCK_HZ};
use super::settings::Settings;

/// Columns of a sample.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub fields: Vec<Field>,
    pub process: Process,
    pub sample_bytes: u32,
    columns: Vec<Column>,
}

/// The rule that derives a scaled column from the index.
#[derive(Clone, Copy, Debug)]
enum Column {
    Bits,
    Narrow { scale: f64, offset: f64 },
    Gate { scale: f64 },
    Wide { scale: f64, offset: f64 },
    Mean { scale: f64, offset: f64 },
    StdDev { scale: f64 },
}

/// A column before its wire format is known.
struct Draft {
    name: String,
    capture: &'static str,
    kind: Kind,
    scaling: Option<Scaling>,
    column: Column,
}

impl Layout {
    /// The columns that these settings capture; `None` if there are none.
    pub fn new(settings: &Settings, process: Process) -> Option<Layout> {
        let drafts = drafts(settings, process);
        if drafts.is_empty() {
            return None;
        }
        let mut offset_bytes = 0;
        let mut layout =
            Layout { fields: Vec::new(), process, sample_bytes: 0, columns: Vec::new() };
        for Draft { name, capture, kind, scaling, column } in drafts {
            let kind = match (process, kind) {
                (Process::Raw, kind) | (Process::Scaled, kind @ Kind::Uint32) => kind,
                (Process::Scaled, _) => Kind::Double,
            };
            let capture = capture.to_owned();
            layout.fields.push(Field { name, capture, kind, offset_bytes, scaling });
            layout.columns.push(column);
            offset_bytes += kind.bytes();
        }
        layout.sample_bytes = offset_bytes;
        Some(layout)
    }

    /// The layout of samples with the given fields.
    pub fn of(fields: Vec<Field>, process: Process) -> Layout {
        let sample_bytes = fields.iter().map(|field| field.kind.bytes()).sum();
        Layout { fields, process, sample_bytes, columns: Vec::new() }
    }

    /// Fills a buffer, whose length is a multiple of the sample size, with samples from `first` on.
    pub fn fill(&self, first: u64, indices: Indices, buffer: &mut Vec<u32>, samples: usize) {
        let words = self.sample_bytes as usize / 4;
        buffer.resize(words * samples, 0);
        match (self.process, indices) {
            (Process::Raw, Indices::True) if words == 15 => fill::<15>(first, buffer),
            (Process::Raw, _) => {
                for (i, sample) in (first..).zip(buffer.chunks_exact_mut(words)) {
                    sample.fill((indices.of(i) as u32).to_le());
                }
            }
            (Process::Scaled, _) => {
                for (i, sample) in (first..).zip(buffer.chunks_exact_mut(words)) {
                    self.scale(indices.of(i), sample);
                }
            }
        }
    }

    fn scale(&self, index: u64, sample: &mut [u32]) {
        let mut at = 0;
        for &column in &self.columns {
            if let Column::Bits = column {
                sample[at] = (index as u32).to_le();
                at += 1;
            } else {
                let bits = column.value(index).to_bits();
                sample[at] = (bits as u32).to_le();
                sample[at + 1] = ((bits >> 32) as u32).to_le();
                at += 2;
            }
        }
    }

    /// Samples as lines of text in a server's format.
    pub fn ascii(&self, bytes: &[u8]) -> String {
        let mut text = String::new();
        for sample in bytes.chunks_exact(self.sample_bytes as usize) {
            for field in &self.fields {
                let at = field.offset_bytes as usize;
                let value = &sample[at..at + field.kind.bytes() as usize];
                match (field.kind, <[u8; 8]>::try_from(value)) {
                    (Kind::Double, Ok(double)) => {
                        text += " ";
                        text += &general(f64::from_le_bytes(double), 10);
                    }
                    _ => value.chunks_exact(4).for_each(|word| {
                        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                        let _ = match self.process {
                            Process::Raw => write!(text, " 0x{word:08x}"),
                            Process::Scaled => write!(text, " {word}"),
                        };
                    }),
                }
            }
            text.push('\n');
        }
        text
    }
}

/// The index that is found in the place of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) enum Indices {
    /// The sample's own index.
    True,
    /// The ring has room for `ring` samples and `written` were written: later samples overwrite earlier ones.
    Lapped { ring: u64, written: u64 },
}

impl Indices {
    #[inline]
    fn of(self, index: u64) -> u64 {
        match self {
            Indices::True => index,
            Indices::Lapped { ring, written } => {
                index + ring * ((written.saturating_sub(1)).saturating_sub(index) / ring)
            }
        }
    }
}

fn fill<const WORDS: usize>(first: u64, buffer: &mut [u32]) {
    let (samples, _) = buffer.as_chunks_mut::<WORDS>();
    for (i, sample) in (first as u32..=u32::MAX).chain((0..=u32::MAX).cycle()).zip(samples) {
        *sample = [i.to_le(); WORDS];
    }
}

/// The bytes of sample words.
pub(super) fn bytes(words: &[u32]) -> &[u8] {
    words.as_bytes()
}

impl Column {
    /// The scaled value, in a server's order of operations.
    fn value(self, index: u64) -> f64 {
        let gate = index as u32;
        let sum = wide(index);
        match self {
            Column::Bits => f64::from(gate),
            Column::Gate { scale } => f64::from(gate) * scale,
            Column::Narrow { scale, offset } => f64::from(gate.cast_signed()) * scale + offset,
            Column::Wide { scale, offset } => sum as f64 * scale + offset,
            Column::Mean { .. } if gate == 0 => f64::NAN,
            Column::Mean { scale, offset } => scale * sum as f64 / f64::from(gate) + offset,
            Column::StdDev { scale } => scale * deviation(u128::from(gate), sum, gate),
        }
    }
}

/// The 64-bit value whose words are both the index.
fn wide(index: u64) -> i64 {
    let word = u64::from(index as u32);
    (word << 32 | word).cast_signed()
}

/// √(A/N − (B/N)²) with the least cancellation, where all words of A are `word`.
fn deviation(word: u128, sum: i64, gate: u32) -> f64 {
    if gate == 0 {
        return f64::NAN;
    }
    let squares = word << 64 | word << 32 | word;
    let (b, n) = (u128::from(sum.unsigned_abs()), u128::from(gate));
    let (d, r) = (b / n, b % n);
    let whole = squares as i128 - ((b + r) * d) as i128;
    let rest = whole as f64 - (r * r) as f64 / n as f64;
    if d >> 32 != 0 || rest < 0.0 { f64::NAN } else { (rest / n as f64).sqrt() }
}

/// Columns in the order of the wire: the gate if it is sent without a request, bits, 32-bit, 64-bit, means, deviations.
fn drafts(settings: &Settings, process: Process) -> Vec<Draft> {
    let mut parts: [Vec<Draft>; 5] = Default::default();
    let (mut averaged, mut gated) = (false, false);
    for (place, options) in settings.captured() {
        let name = place.name();
        let mut put = |part: usize, capture, kind, scaling: Option<Scaling>, column| {
            parts[part].push(Draft { name: name.clone(), capture, kind, scaling, column });
        };
        match place.field.kind {
            model::Kind::Bits(_) => put(0, "Value", Kind::Uint32, None, Column::Bits),
            model::Kind::Samples => {
                gated = true;
                put(1, "Value", Kind::Int32, Some(ticks()), gate());
            }
            model::Kind::Timestamp => {
                let column = Column::Wide { scale: ticks().scale, offset: 0.0 };
                put(2, "Value", Kind::Int64, Some(ticks()), column);
            }
            _ => {
                let scaling = scaling(settings, &name);
                let (scale, offset) = (scaling.scale, scaling.offset);
                let some = || Some(scaling.clone());
                for option in options.split_whitespace() {
                    averaged |= matches!(option, "Mean" | "StdDev");
                    let narrow = Column::Narrow { scale, offset };
                    let mean = Column::Mean { scale, offset };
                    match (option, process) {
                        ("Value", _) => put(1, "Value", Kind::Int32, some(), narrow),
                        ("Diff", _) => put(1, "Diff", Kind::Int32, some(), narrow),
                        ("Min", _) => put(1, "Min", Kind::Int32, some(), narrow),
                        ("Max", _) => put(1, "Max", Kind::Int32, some(), narrow),
                        ("Sum", _) => {
                            let column = Column::Wide { scale, offset };
                            put(2, "Sum", Kind::Int64, some(), column);
                        }
                        // With a deviation, the raw sum precedes its squares.
                        ("Mean", Process::Raw) if options.contains("StdDev") => {}
                        ("Mean", _) => put(3, "Mean", Kind::Int64, some(), mean),
                        (_, process) => {
                            if process == Process::Raw {
                                put(4, "Mean", Kind::Int64, some(), mean);
                            }
                            put(4, "StdDev", Kind::Int96, some(), Column::StdDev { scale });
                        }
                    }
                }
            }
        }
    }
    let mut drafts: Vec<Draft> = parts.into_iter().flatten().collect();
    if averaged && !gated && process == Process::Raw {
        let (name, scaling) = ("PCAP.SAMPLES".to_owned(), Some(ticks()));
        let unasked = Draft { name, capture: "Value", kind: Kind::Int32, scaling, column: gate() };
        drafts.insert(0, unasked);
    }
    drafts
}

fn ticks() -> Scaling {
    Scaling { scale: 1.0 / CLOCK_HZ as f64, offset: 0.0, units: "s".to_owned() }
}

fn gate() -> Column {
    Column::Gate { scale: ticks().scale }
}

fn scaling(settings: &Settings, name: &str) -> Scaling {
    let text = |what: &str| settings.text(&format!("{name}.{what}")).unwrap_or_default();
    Scaling {
        scale: text("SCALE").parse().unwrap_or(1.0),
        offset: text("OFFSET").parse().unwrap_or(0.0),
        units: text("UNITS").to_owned(),
    }
}

/// Bytes in base64, as lines of `per_line` bytes each.
pub(super) fn base64(bytes: &[u8], per_line: usize) -> impl Iterator<Item = String> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    bytes.chunks(per_line).map(|line| {
        let mut text = String::new();
        for three in line.chunks(3) {
            let word = three.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte))
                << (8 * (3 - three.len()));
            for digit in 0..4 {
                let value = (word >> (18 - 6 * digit)) & 63;
                text.push(if digit > three.len() { '=' } else { DIGITS[value as usize].into() });
            }
        }
        text
    })
}

/// Decodes base64; `None` if it is malformed.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut word, mut bits) = (0u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        word = word << 6 | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((word >> bits) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_back_and_padded() {
        for length in 0..100u8 {
            let bytes: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37)).collect();
            let lines: Vec<String> = base64(&bytes, 57).collect();
            assert!(lines.iter().all(|line| line.len().is_multiple_of(4) && line.len() <= 76));
            let back: Vec<u8> = lines.iter().flat_map(|line| from_base64(line).unwrap()).collect();
            assert_eq!(back, bytes);
        }
        assert_eq!(base64(b"PandA", 57).next().as_deref(), Some("UGFuZEE="));
    }

    #[test]
    fn a_lapped_place_holds_the_latest_sample_written_there() {
        let lapped = Indices::Lapped { ring: 10, written: 25 };
        let held: Vec<u64> = (0..25).map(|i| lapped.of(i)).collect();
        assert_eq!(held[..10], [20, 21, 22, 23, 24, 15, 16, 17, 18, 19]);
        assert_eq!(held[15..], [15, 16, 17, 18, 19, 20, 21, 22, 23, 24]);
    }

    #[test]
    fn indices_wrap_as_the_words_do() {
        let mut buffer = vec![0; 60];
        fill::<15>(u64::from(u32::MAX) - 1, &mut buffer);
        let firsts: Vec<u32> = buffer.iter().step_by(15).copied().collect();
        assert_eq!(firsts, [u32::MAX - 1, u32::MAX, 0, 1]);
    }

    #[test]
    fn a_deviation_of_equal_values_is_nothing() {
        assert_eq!(deviation(0, 0, 5), 0.0);
        assert!(deviation(7, wide(7), 7).is_nan(), "the mean has more than 32 bits");
    }
}
