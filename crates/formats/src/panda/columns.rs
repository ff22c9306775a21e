//! Unpacks samples into columns: integers as captured, or scaled positions.
//!
//! ```text
//! sample 0 | bits | min | max | sum     |        bits | b0 b1 b2 …
//! sample 1 | bits | min | max | sum     |  ──►   min  | m0 m1 m2 …  × scale + offset
//! sample 2 | bits | min | max | sum     |        mean | s0 s1 s2 …  × scale ÷ gate + offset
//! ```
//!
//! Every value is computed in the server's own order of operations, so the result equals that of a scaling server to
//! the last bit. The kernels are loops over slices without branches. They write into buffers of the caller and allocate
//! no memory.

use zerocopy::{FromBytes, IntoBytes};

use super::header::{Field, Header, Kind, Process, Scaling};

/// Samples that are unpacked at a time: their bytes stay in the first-level cache while every column is read from them.
const TILE: usize = 256;

/// The largest number of words in a sample of a PandA, with room for future servers.
const MOST_FIELDS: usize = 1024;

// Buffers are used as the little-endian bytes of files.
const _: () = assert!(cfg!(target_endian = "little"));

/// The form of the columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Positions as doubles, for each field with a scale.
    Scaled,
    /// Integers as captured.
    Native,
}

/// The reason why samples with this header cannot be unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The header has no fields.
    #[error("the header has no fields")]
    Empty,
    /// The header has more fields than any PandA.
    #[error("the header has {fields} fields, more than {MOST_FIELDS}")]
    TooMany {
        /// The number of fields.
        fields: usize,
    },
    /// A field is outside its sample.
    #[error("field {column} ends at byte {end} of a sample of {sample_bytes} bytes")]
    Outside {
        /// The field.
        column: String,
        /// The end of the field.
        end: u64,
        /// Bytes of a sample.
        sample_bytes: u32,
    },
    /// A mean was captured without the gate that divides it.
    #[error(
        "field {column} needs the gate, but neither PCAP.GATE_DURATION nor PCAP.SAMPLES was captured"
    )]
    NoGate {
        /// The field.
        column: String,
    },
    /// A standard deviation was captured without its sum.
    #[error("field {column} needs the sum of the same field, but none was captured before it")]
    NoSum {
        /// The field.
        column: String,
    },
    /// Raw samples have a double with a scale: it is unknown if the scale was applied.
    #[error(
        "field {column} is a double with a scale, in samples that are said to be raw: whether it is scaled \
         already is not known"
    )]
    ScaledTwice {
        /// The field.
        column: String,
    },
    /// The bytes of a field do not match its capture option.
    #[error("field {column} cannot be of type {kind:?}")]
    Kind {
        /// The field.
        column: String,
        /// The kind in the header.
        kind: Kind,
    },
}

/// The type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Bits, or the ticks of the gate.
    Uint32,
    /// A position.
    Int32,
    /// A sum, or a time in ticks.
    Int64,
    /// Unsigned sum of squares, three words, low word first.
    Int96,
    /// A position in its units.
    Double,
}

impl Element {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Element::Uint32 | Element::Int32 => 4,
            Element::Int64 | Element::Double => 8,
            Element::Int96 => 12,
        }
    }
}

/// One output column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// `COUNTER1.OUT.Mean`
    pub name: String,
    /// `Mean`
    pub capture: String,
    /// The type of its values.
    pub element: Element,
    /// The conversion from integer to position, already applied if the values are doubles. Bits have none; that of a
    /// standard deviation has no offset.
    pub scaling: Option<Scaling>,
    kernel: Kernel,
}

/// The computation of a column's values from a sample; numbers are byte offsets in it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kernel {
    Uint32 { at: usize },
    Int32 { at: usize },
    Int64 { at: usize },
    Int96 { at: usize },
    Double { at: usize },
    ScaledUint32 { at: usize, scale: f64, offset: f64 },
    ScaledInt32 { at: usize, scale: f64, offset: f64 },
    ScaledInt64 { at: usize, scale: f64, offset: f64 },
    Mean { at: usize, gate: usize, scale: f64, offset: f64 },
    Deviation { squares: usize, sum: usize, gate: usize, scale: f64 },
}

/// The values of one column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// See [`Element::Uint32`].
    Uint32(Vec<u32>),
    /// See [`Element::Int32`].
    Int32(Vec<i32>),
    /// See [`Element::Int64`].
    Int64(Vec<i64>),
    /// See [`Element::Int96`].
    Int96(Vec<[u32; 3]>),
    /// See [`Element::Double`].
    Double(Vec<f64>),
}

impl Values {
    /// Returns `rows` zeros.
    pub fn new(element: Element, rows: usize) -> Self {
        match element {
            Element::Uint32 => Values::Uint32(vec![0; rows]),
            Element::Int32 => Values::Int32(vec![0; rows]),
            Element::Int64 => Values::Int64(vec![0; rows]),
            Element::Int96 => Values::Int96(vec![[0; 3]; rows]),
            Element::Double => Values::Double(vec![0.0; rows]),
        }
    }

    /// Returns the values as in files: little-endian, consecutive.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Values::Uint32(values) => values.as_slice().as_bytes(),
            Values::Int32(values) => values.as_slice().as_bytes(),
            Values::Int64(values) => values.as_slice().as_bytes(),
            Values::Int96(values) => values.as_slice().as_bytes(),
            Values::Double(values) => values.as_slice().as_bytes(),
        }
    }

    /// Returns the same bytes, for writing.
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        match self {
            Values::Uint32(values) => values.as_mut_slice().as_mut_bytes(),
            Values::Int32(values) => values.as_mut_slice().as_mut_bytes(),
            Values::Int64(values) => values.as_mut_slice().as_mut_bytes(),
            Values::Int96(values) => values.as_mut_slice().as_mut_bytes(),
            Values::Double(values) => values.as_mut_slice().as_mut_bytes(),
        }
    }
}

impl AsMut<[u8]> for Values {
    fn as_mut(&mut self) -> &mut [u8] {
        self.as_mut_bytes()
    }
}

/// The plan for unpacking samples with one header.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    list: Vec<Column>,
    sample_bytes: usize,
}

impl Columns {
    /// Returns the plan for a header.
    pub fn new(header: &Header, form: Form) -> Result<Self, Error> {
        if header.fields.is_empty() {
            return Err(Error::Empty);
        }
        if header.fields.len() > MOST_FIELDS {
            return Err(Error::TooMany { fields: header.fields.len() });
        }
        check_places(header)?;
        let list = header.fields.iter().map(|field| column(header, field, form));
        Ok(Columns {
            list: list.collect::<Result<_, _>>()?,
            sample_bytes: header.sample_bytes as usize,
        })
    }

    /// Returns the columns, in the order of the header.
    pub fn list(&self) -> &[Column] {
        &self.list
    }

    /// Bytes of a sample.
    pub fn sample_bytes(&self) -> usize {
        self.sample_bytes
    }

    /// Returns a buffer for each column with room for `rows` values.
    pub fn buffers(&self, rows: usize) -> Vec<Values> {
        self.list.iter().map(|column| Values::new(column.element, rows)).collect()
    }

    /// Unpacks samples into the buffers, from value `at` on. Returns the number of samples.
    ///
    /// The buffers are those of [`Columns::buffers`], or memory for as many values of each column, aligned to them.
    ///
    /// # Panics
    ///
    /// If the bytes are not whole samples, or the buffers are unsuitable or too short.
    pub fn convert(&self, samples: &[u8], at: usize, buffers: &mut [impl AsMut<[u8]>]) -> usize {
        assert!(samples.len().is_multiple_of(self.sample_bytes), "whole samples are converted");
        assert_eq!(buffers.len(), self.list.len(), "a buffer for each column");
        let mut row = at;
        for tile in samples.chunks(TILE * self.sample_bytes) {
            let rows = tile.len() / self.sample_bytes;
            for (column, values) in self.list.iter().zip(&mut *buffers) {
                fill(column.kernel, tile, self.sample_bytes, row..row + rows, values.as_mut());
            }
            row += rows;
        }
        row - at
    }
}

/// Checks that every field is inside its sample; otherwise it would use bytes of the next one.
fn check_places(header: &Header) -> Result<(), Error> {
    let outside = header.fields.iter().find_map(|field| {
        let end = u64::from(field.offset_bytes) + u64::from(field.kind.bytes());
        (end > u64::from(header.sample_bytes)).then_some((field, end))
    });
    match outside {
        None => Ok(()),
        Some((field, end)) => {
            Err(Error::Outside { column: field.column(), end, sample_bytes: header.sample_bytes })
        }
    }
}

fn column(header: &Header, field: &Field, form: Form) -> Result<Column, Error> {
    let is_raw = header.process == Process::Raw;
    if is_raw && field.kind == Kind::Double && field.scaling.is_some() {
        return Err(Error::ScaledTwice { column: field.column() });
    }
    let kernel = match form {
        Form::Scaled if is_raw => scaled(header, field)?,
        Form::Scaled | Form::Native => native(header, field),
    };
    Ok(Column {
        name: field.column(),
        capture: field.capture.clone(),
        element: kernel.element(),
        scaling: scaling_of(field),
        kernel,
    })
}

/// The offset does not apply to a deviation, which is the distance of values from their mean.
fn scaling_of(field: &Field) -> Option<Scaling> {
    let scaling = field.scaling.clone()?;
    match field.capture.as_str() {
        "StdDev" => Some(Scaling { offset: 0.0, ..scaling }),
        _ => Some(scaling),
    }
}

fn native(header: &Header, field: &Field) -> Kernel {
    let at = field.offset_bytes as usize;
    match field.kind {
        // A gate of more than 2³¹ ticks is announced as int32 but is not negative.
        Kind::Int32 if gate(header) == Some(at) => Kernel::Uint32 { at },
        Kind::Uint32 => Kernel::Uint32 { at },
        Kind::Int32 => Kernel::Int32 { at },
        Kind::Int64 => Kernel::Int64 { at },
        Kind::Int96 => Kernel::Int96 { at },
        Kind::Double => Kernel::Double { at },
    }
}

fn scaled(header: &Header, field: &Field) -> Result<Kernel, Error> {
    let at = field.offset_bytes as usize;
    let (scale, offset) = field.scaling.as_ref().map_or((1.0, 0.0), |s| (s.scale, s.offset));
    let no_gate = || Error::NoGate { column: field.column() };
    match (field.capture.as_str(), native(header, field)) {
        ("Mean", Kernel::Int64 { at }) => {
            Ok(Kernel::Mean { at, gate: gate(header).ok_or_else(no_gate)?, scale, offset })
        }
        (_, Kernel::Int96 { at: squares }) => {
            let sum =
                sum_of(header, field).ok_or_else(|| Error::NoSum { column: field.column() })?;
            let gate = gate(header).ok_or_else(no_gate)?;
            Ok(Kernel::Deviation { squares, sum, gate, scale })
        }
        ("Mean" | "StdDev", Kernel::Uint32 { .. } | Kernel::Int32 { .. }) => {
            Err(Error::Kind { column: field.column(), kind: field.kind })
        }
        (_, plain) if field.scaling.is_none() => Ok(plain),
        (_, Kernel::Uint32 { .. }) => Ok(Kernel::ScaledUint32 { at, scale, offset }),
        (_, Kernel::Int32 { .. }) => Ok(Kernel::ScaledInt32 { at, scale, offset }),
        (_, Kernel::Int64 { .. }) => Ok(Kernel::ScaledInt64 { at, scale, offset }),
        (_, other) => Ok(other),
    }
}

/// Returns the position of the gate's raw ticks: newer and older FPGAs use different names.
fn gate(header: &Header) -> Option<usize> {
    ["PCAP.GATE_DURATION", "PCAP.SAMPLES"].into_iter().find_map(|name| {
        let field = header.fields.iter().find(|f| f.name == name && f.kind.bytes() == 4)?;
        Some(field.offset_bytes as usize)
    })
}

/// Returns the sum for a sum of squares: that of the same field, sent as its mean.
fn sum_of(header: &Header, field: &Field) -> Option<usize> {
    let sum = header.fields.iter().rfind(|other| {
        other.name == field.name
            && other.capture == "Mean"
            && other.kind == Kind::Int64
            && other.offset_bytes < field.offset_bytes
    })?;
    Some(sum.offset_bytes as usize)
}

impl Kernel {
    fn element(self) -> Element {
        match self {
            Kernel::Uint32 { .. } => Element::Uint32,
            Kernel::Int32 { .. } => Element::Int32,
            Kernel::Int64 { .. } => Element::Int64,
            Kernel::Int96 { .. } => Element::Int96,
            Kernel::Double { .. }
            | Kernel::ScaledUint32 { .. }
            | Kernel::ScaledInt32 { .. }
            | Kernel::ScaledInt64 { .. }
            | Kernel::Mean { .. }
            | Kernel::Deviation { .. } => Element::Double,
        }
    }
}

type Range = std::ops::Range<usize>;

/// Computes one column of one tile.
fn fill(kernel: Kernel, tile: &[u8], sample_bytes: usize, rows: Range, values: &mut [u8]) {
    match kernel {
        Kernel::Uint32 { at } => {
            let value = |s: &[u8]| u32::from_le_bytes(word(s, at));
            each(tile, sample_bytes, &mut values_of(values)[rows], value);
        }
        Kernel::Int32 { at } => {
            let value = |s: &[u8]| i32::from_le_bytes(word(s, at));
            each(tile, sample_bytes, &mut values_of(values)[rows], value);
        }
        Kernel::Int64 { at } => {
            let value = |s: &[u8]| i64::from_le_bytes(long(s, at));
            each(tile, sample_bytes, &mut values_of(values)[rows], value);
        }
        Kernel::Int96 { at } => {
            let value = |s: &[u8]| [0, 4, 8].map(|n| u32::from_le_bytes(word(s, at + n)));
            each(tile, sample_bytes, &mut values_of(values)[rows], value);
        }
        Kernel::Double { at } => {
            let value = |s: &[u8]| f64::from_le_bytes(long(s, at));
            each(tile, sample_bytes, &mut values_of(values)[rows], value);
        }
        Kernel::ScaledUint32 { at, scale, offset } => {
            let value = |s: &[u8]| f64::from(u32::from_le_bytes(word(s, at))) * scale + offset;
            each(tile, sample_bytes, &mut values_of(values)[rows], value);
        }
        Kernel::ScaledInt32 { at, scale, offset } => {
            let value = |s: &[u8]| f64::from(i32::from_le_bytes(word(s, at))) * scale + offset;
            each(tile, sample_bytes, &mut values_of(values)[rows], value);
        }
        Kernel::ScaledInt64 { at, scale, offset } => {
            let value = |s: &[u8]| i64::from_le_bytes(long(s, at)) as f64 * scale + offset;
            each(tile, sample_bytes, &mut values_of(values)[rows], value);
        }
        Kernel::Mean { at, gate, scale, offset } => {
            let value = |s: &[u8]| {
                let (sum, ticks) =
                    (i64::from_le_bytes(long(s, at)), u32::from_le_bytes(word(s, gate)));
                mean(sum, ticks, scale, offset)
            };
            each(tile, sample_bytes, &mut values_of(values)[rows], value);
        }
        Kernel::Deviation { squares, sum, gate, scale } => {
            let value = |s: &[u8]| {
                let low = i128::from(u64::from_le_bytes(long(s, squares)));
                let high = i128::from(u32::from_le_bytes(word(s, squares + 8)));
                let sum = i64::from_le_bytes(long(s, sum));
                deviation(high << 64 | low, sum, u32::from_le_bytes(word(s, gate)), scale)
            };
            each(tile, sample_bytes, &mut values_of(values)[rows], value);
        }
    }
}

/// Returns the values in these bytes.
fn values_of<T: FromBytes + IntoBytes>(bytes: &mut [u8]) -> &mut [T] {
    <[T]>::mut_from_bytes(bytes).expect("a buffer holds whole values, aligned to them")
}

/// The common loop of all kernels: one value per sample, without a branch.
#[inline(always)]
fn each<T>(tile: &[u8], sample_bytes: usize, out: &mut [T], value: impl Fn(&[u8]) -> T) {
    for (out, sample) in out.iter_mut().zip(tile.chunks_exact(sample_bytes)) {
        *out = value(sample);
    }
}

#[inline(always)]
fn word(sample: &[u8], at: usize) -> [u8; 4] {
    sample[at..at + 4].try_into().expect("four bytes")
}

#[inline(always)]
fn long(sample: &[u8], at: usize) -> [u8; 8] {
    sample[at..at + 8].try_into().expect("eight bytes")
}

/// Returns the mean. It is NaN if the gate was closed.
#[inline(always)]
fn mean(sum: i64, gate: u32, scale: f64, offset: f64) -> f64 {
    // 0 ÷ 0 is NaN; any other sum over zero ticks would be infinite.
    let ticks = if gate == 0 { f64::NAN } else { f64::from(gate) };
    scale * sum as f64 / ticks + offset
}

/// Returns √(A/N − (B/N)²). The difference of the two large numbers is computed in integers.
fn deviation(squares: i128, sum: i64, gate: u32, scale: f64) -> f64 {
    if gate == 0 {
        return f64::NAN;
    }
    let (magnitude, ticks) = (i128::from(sum.unsigned_abs()), i128::from(gate));
    let (quotient, rest) = (magnitude / ticks, magnitude % ticks);
    if quotient >= 1 << 32 {
        return f64::NAN;
    }
    let difference = squares - (magnitude + rest) * quotient;
    let rest = rest as f64;
    let variance = difference as f64 - rest * rest / f64::from(gate);
    if variance < 0.0 { f64::NAN } else { scale * (variance / f64::from(gate)).sqrt() }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use proptest::prelude::*;

    use super::*;

    /// Scale and offset, for fields other than bits.
    type Scale = Option<(f64, f64)>;

    /// Returns a header of packed fields: name, capture, kind and scale.
    fn header(fields: &[(&str, &str, Kind, Scale)]) -> Header {
        let mut sample_bytes = 0;
        let fields = fields.iter().map(|&(name, capture, kind, scaling)| {
            let offset_bytes = sample_bytes;
            sample_bytes += kind.bytes();
            let scaling =
                scaling.map(|(scale, offset)| Scaling { scale, offset, units: "mm".into() });
            Field { name: name.into(), capture: capture.into(), kind, offset_bytes, scaling }
        });
        let fields = fields.collect();
        Header {
            arm_time: None,
            start_time: None,
            hw_time_offset_ns: None,
            missed: 0,
            process: Process::Raw,
            sample_bytes,
            fields,
        }
    }

    /// The columns of the recordings in `tests/data/panda`.
    fn recorded() -> Header {
        let same = Some((1.0, 0.0));
        let half = Some((0.5, 3.0));
        let ticks = Some((8e-9, 0.0));
        header(&[
            ("PCAP.BITS0", "Value", Kind::Uint32, None),
            ("COUNTER1.OUT", "Min", Kind::Int32, same),
            ("COUNTER1.OUT", "Max", Kind::Int32, same),
            ("COUNTER2.OUT", "Min", Kind::Int32, half),
            ("COUNTER2.OUT", "Max", Kind::Int32, half),
            ("COUNTER3.OUT", "Value", Kind::Int32, same),
            ("PCAP.SAMPLES", "Value", Kind::Int32, ticks),
            ("PCAP.TS_START", "Value", Kind::Int64, ticks),
            ("PCAP.TS_CAPTURE", "Value", Kind::Int64, ticks),
            ("COUNTER1.OUT", "Mean", Kind::Int64, same),
            ("COUNTER2.OUT", "Mean", Kind::Int64, half),
        ])
    }

    /// Returns samples in which every 32-bit word of sample i is i, as in the recordings.
    fn numbered(sample_bytes: usize, rows: u32) -> Vec<u8> {
        (0..rows).flat_map(|i| i.to_le_bytes().repeat(sample_bytes / 4)).collect()
    }

    fn converted(header: &Header, form: Form, samples: &[u8]) -> Vec<Values> {
        let columns = Columns::new(header, form).unwrap();
        let mut buffers = columns.buffers(samples.len() / columns.sample_bytes());
        columns.convert(samples, 0, &mut buffers);
        buffers
    }

    /// Returns the payload of all frames of a recording.
    fn samples_of(recording: &[u8]) -> Vec<u8> {
        let mut unpacked = Vec::new();
        flate2::read::GzDecoder::new(recording).read_to_end(&mut unpacked).unwrap();
        let end = b"</header>\n\n";
        let start = unpacked.windows(end.len()).position(|bytes| bytes == end).unwrap() + end.len();
        let (mut rest, mut samples) = (&unpacked[start..], Vec::new());
        while let Some(frame) = rest.strip_prefix(b"BIN ") {
            let length = u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize;
            samples.extend_from_slice(&rest[8..length]);
            rest = &rest[length..];
        }
        assert!(rest.starts_with(b"END "));
        samples
    }

    #[test]
    fn scaled_here_is_bit_for_bit_what_a_server_scales() {
        let raw = recorded();
        let recording = include_bytes!("../../../../tests/data/panda/scaled_ok.bin.gz");
        let mut scaled = raw.clone();
        scaled.process = Process::Scaled;
        scaled.sample_bytes = 0;
        for field in &mut scaled.fields {
            field.kind = if field.scaling.is_some() { Kind::Double } else { Kind::Uint32 };
            field.offset_bytes = scaled.sample_bytes;
            scaled.sample_bytes += field.kind.bytes();
        }
        let theirs = converted(&scaled, Form::Scaled, &samples_of(recording));
        let ours = converted(&raw, Form::Scaled, &numbered(60, 5000));
        for (column, (ours, theirs)) in raw.fields.iter().zip(ours.iter().zip(&theirs)) {
            match (ours, theirs) {
                (Values::Double(ours), Values::Double(theirs)) => {
                    assert_eq!(ours.len(), theirs.len());
                    let alike = |(a, b): (&f64, &f64)| {
                        a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
                    };
                    assert!(ours.iter().zip(theirs).all(alike), "{}", column.column());
                }
                (ours, theirs) => assert_eq!(ours, theirs, "{}", column.column()),
            }
        }
    }

    #[test]
    fn a_recording_whose_gate_was_not_asked_for_divides_by_its_first_word() {
        let recording = include_bytes!("../../../../tests/data/panda/raw_anon_samples.bin.gz");
        let anonymous = header(&[
            ("PCAP.SAMPLES", "Value", Kind::Int32, Some((8e-9, 0.0))),
            ("COUNTER2.OUT", "Mean", Kind::Int64, Some((0.5, 3.0))),
        ]);
        let mut wide = anonymous.clone();
        let samples = samples_of(recording);
        wide.sample_bytes = (samples.len() / 5000) as u32;
        let columns = converted(&wide, Form::Scaled, &samples);
        let Values::Double(mean) = &columns[1] else { panic!("a mean is a double") };
        assert!(mean[0].is_nan());
        assert!(mean[1..].iter().all(|&mean| mean == 2_147_483_651.5));
    }

    #[test]
    fn a_gate_beyond_half_the_words_range_is_not_negative() {
        let fields = [
            ("PCAP.GATE_DURATION", "Value", Kind::Int32, Some((1.0, 0.0))),
            ("A", "Mean", Kind::Int64, Some((1.0, 0.0))),
        ];
        let mut sample = 3_000_000_000u32.to_le_bytes().to_vec();
        sample.extend_from_slice(&6_000_000_000i64.to_le_bytes());
        let scaled = converted(&header(&fields), Form::Scaled, &sample);
        assert_eq!(scaled, [Values::Double(vec![3e9]), Values::Double(vec![2.0])]);
        let native = converted(&header(&fields), Form::Native, &sample);
        assert_eq!(
            native,
            [Values::Uint32(vec![3_000_000_000]), Values::Int64(vec![6_000_000_000])]
        );
    }

    #[test]
    fn a_deviation_of_great_numbers_does_not_cancel() {
        // 125 values, alternately 2³⁰ and 2³⁰ + 2, and one more of 2³⁰.
        let (low, gate) = (1i128 << 30, 125);
        let sum = 63 * low + 62 * (low + 2);
        let squares = 63 * low * low + 62 * (low + 2) * (low + 2);
        let expected = (4.0 * 63.0 * 62.0 / (125.0f64 * 125.0)).sqrt();
        let got = deviation(squares, sum as i64, gate, 0.5);
        assert!((got - 0.5 * expected).abs() < 1e-12, "{got} is not {expected}");
        assert!(deviation(squares, -sum as i64, gate, -1.0) < 0.0);
        assert!(deviation(1, 0, 0, 1.0).is_nan());
        assert!(deviation(0, i64::MAX, 1, 1.0).is_nan());
        assert!(deviation(0, 5, 2, 1.0).is_nan());
        assert!(deviation((1 << 96) - 1, i64::MIN, u32::MAX, 1.0).is_finite());
    }

    #[test]
    fn a_header_that_lies_is_refused() {
        let good = [("A", "Mean", Kind::Int64, None)];
        assert_eq!(
            Columns::new(&header(&good), Form::Scaled).unwrap_err(),
            Error::NoGate { column: "A.Mean".into() }
        );
        assert!(Columns::new(&header(&good), Form::Native).is_ok());
        let mut outside = recorded();
        outside.sample_bytes = 56;
        assert!(matches!(
            Columns::new(&outside, Form::Native),
            Err(Error::Outside { end: 60, .. })
        ));
        assert_eq!(Columns::new(&header(&[]), Form::Native).unwrap_err(), Error::Empty);
        let squares =
            [("PCAP.SAMPLES", "Value", Kind::Int32, None), ("A", "StdDev", Kind::Int96, None)];
        assert!(matches!(Columns::new(&header(&squares), Form::Scaled), Err(Error::NoSum { .. })));
        let short =
            [("PCAP.SAMPLES", "Value", Kind::Int32, None), ("A", "Mean", Kind::Int32, None)];
        assert!(matches!(Columns::new(&header(&short), Form::Scaled), Err(Error::Kind { .. })));
        let mut twice = header(&[("A", "Value", Kind::Double, Some((2.0, 1.0)))]);
        for form in [Form::Scaled, Form::Native] {
            assert!(matches!(Columns::new(&twice, form), Err(Error::ScaledTwice { .. })));
        }
        twice.process = Process::Scaled;
        assert!(Columns::new(&twice, Form::Scaled).is_ok(), "the server has scaled it");
    }

    #[test]
    fn a_deviation_has_a_scale_and_no_offset() {
        let fields = [
            ("PCAP.SAMPLES", "Value", Kind::Int32, None),
            ("A", "Mean", Kind::Int64, Some((2.0, 3.0))),
            ("A", "StdDev", Kind::Int96, Some((2.0, 3.0))),
        ];
        for form in [Form::Scaled, Form::Native] {
            let columns = Columns::new(&header(&fields), form).unwrap();
            let of = |n: usize| {
                let scaling = columns.list()[n].scaling.as_ref().unwrap();
                (scaling.scale, scaling.offset)
            };
            assert_eq!((of(1), of(2)), ((2.0, 3.0), (2.0, 0.0)));
        }
    }

    fn fields() -> impl Strategy<Value = Vec<(Kind, Scale, bool)>> {
        let kind = prop_oneof![
            Just(Kind::Uint32),
            Just(Kind::Int32),
            Just(Kind::Int64),
            Just(Kind::Int96),
            Just(Kind::Double)
        ];
        let scaling = proptest::option::of((-1e3..1e3, -1e6..1e6));
        proptest::collection::vec((kind, scaling, any::<bool>()), 1..12)
    }

    /// Returns one value as in §4, from its own bytes, the gate and the sum alone.
    fn naive(field: &Field, gate: u32, sum: i64, bytes: &[u8], scaled: bool) -> Vec<u8> {
        let at = field.offset_bytes as usize;
        let own = &bytes[at..at + field.kind.bytes() as usize];
        let (scale, offset) = field.scaling.as_ref().map_or((1.0, 0.0), |s| (s.scale, s.offset));
        let is_gate = field.name == "PCAP.GATE_DURATION";
        let raw = match field.kind {
            Kind::Uint32 => f64::from(u32::from_le_bytes(own.try_into().unwrap())),
            Kind::Int32 if is_gate => f64::from(u32::from_le_bytes(own.try_into().unwrap())),
            Kind::Int32 => f64::from(i32::from_le_bytes(own.try_into().unwrap())),
            Kind::Int64 => i64::from_le_bytes(own.try_into().unwrap()) as f64,
            Kind::Int96 | Kind::Double => 0.0,
        };
        let value = match (scaled, field.kind, field.capture.as_str(), &field.scaling) {
            (true, Kind::Int64, "Mean", _) if gate == 0 => f64::NAN,
            (true, Kind::Int64, "Mean", _) => scale * raw / f64::from(gate) + offset,
            (true, Kind::Int96, ..) => {
                let mut wide = [0; 16];
                wide[..12].copy_from_slice(own);
                deviation(i128::from_le_bytes(wide), sum, gate, scale)
            }
            (true, Kind::Uint32 | Kind::Int32 | Kind::Int64, _, Some(_)) => raw * scale + offset,
            _ => return own.to_vec(),
        };
        value.to_le_bytes().to_vec()
    }

    proptest! {
        #[test]
        fn any_sample_converts_as_if_taken_apart_by_hand(
            fields in fields(),
            seed in proptest::collection::vec(any::<u8>(), 12 * 14),
            rows in 1usize..700,
            cut in 0usize..700,
            scaled: bool,
        ) {
            let mut named = vec![
                ("PCAP.GATE_DURATION".to_owned(), "Value", Kind::Int32, Some((8e-9, 0.0))),
                ("WIDE".to_owned(), "Mean", Kind::Int64, Some((2.0, 1.0))),
            ];
            for (n, (kind, scaling, mean)) in fields.into_iter().enumerate() {
                // A raw double has no scale.
                let scaling = scaling.filter(|_| kind != Kind::Double);
                let (name, capture) = match kind {
                    Kind::Int96 => ("WIDE".to_owned(), "StdDev"),
                    Kind::Int64 if mean => (format!("F{n}"), "Mean"),
                    _ => (format!("F{n}"), "Value"),
                };
                named.push((name, capture, kind, scaling));
            }
            let borrowed: Vec<_> = named.iter().map(|(n, c, k, s)| (n.as_str(), *c, *k, *s)).collect();
            let header = header(&borrowed);
            let stride = header.sample_bytes as usize;
            let mut state = 7u8;
            let samples: Vec<u8> = (0..rows * stride)
                .map(|n| {
                    state = state.wrapping_mul(31).wrapping_add(seed[n % seed.len()]);
                    state
                })
                .collect();
            let form = if scaled { Form::Scaled } else { Form::Native };
            let columns = Columns::new(&header, form).unwrap();
            let mut buffers = columns.buffers(rows);
            let (first, second) = samples.split_at(cut.min(rows) * stride);
            let at = columns.convert(first, 0, &mut buffers);
            columns.convert(second, at, &mut buffers);
            for (field, values) in header.fields.iter().zip(&buffers) {
                let expected: Vec<u8> = samples
                    .chunks_exact(stride)
                    .flat_map(|sample| {
                        let gate = u32::from_le_bytes(sample[..4].try_into().unwrap());
                        let sum = i64::from_le_bytes(sample[4..12].try_into().unwrap());
                        naive(field, gate, sum, sample, scaled)
                    })
                    .collect();
                prop_assert!(values.as_bytes() == expected, "{} differs", field.column());
            }
        }
    }

    /// Prints the rate and requires none, because machines differ.
    #[test]
    fn how_fast_samples_are_taken_apart() {
        let (header, rows) = (recorded(), 64 * 1024);
        let samples = numbered(60, rows);
        for form in [Form::Scaled, Form::Native] {
            let columns = Columns::new(&header, form).unwrap();
            let mut buffers = columns.buffers(rows as usize);
            columns.convert(&samples, 0, &mut buffers);
            let (started, rounds) = (Instant::now(), 20);
            for _ in 0..rounds {
                columns.convert(&samples, 0, &mut buffers);
            }
            let rate = (rounds * samples.len()) as f64 / started.elapsed().as_secs_f64();
            println!("{form:?}: {:.2} GB/s of samples", rate / 1e9);
            assert!(rate > 0.0);
        }
    }
}
