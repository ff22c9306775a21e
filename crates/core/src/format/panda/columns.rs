//! From packed samples to columns: integers as they came, or the positions that they mean.
//!
//! ```text
//! sample 0 | bits | min | max | sum     |        bits | b0 b1 b2 …
//! sample 1 | bits | min | max | sum     |  ──►   min  | m0 m1 m2 …  × scale + offset
//! sample 2 | bits | min | max | sum     |        mean | s0 s1 s2 …  × scale ÷ gate + offset
//! ```
//!
//! Every value is computed in the server's own order of operations, so what a server would have sent
//! scaled comes out the same to the last bit. The kernels are loops over slices without a branch, and
//! they write into buffers that the caller keeps: nothing is allocated once those are there.

use zerocopy::IntoBytes;

use super::header::{Field, Header, Kind, Process, Scaling};

/// Samples that are taken apart at a time: their bytes stay in the first-level cache while every
/// column is read from them.
const TILE: usize = 256;

/// Words of a sample that a PandA can capture, with room for those of servers to come.
const MOST_FIELDS: usize = 1024;

// Buffers are handed on as the little-endian bytes that files hold.
const _: () = assert!(cfg!(target_endian = "little"));

/// In which form columns are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Positions as doubles, wherever a field has a scale.
    Scaled,
    /// Integers as they were captured.
    Native,
}

/// Why a header's samples cannot be taken apart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was captured.
    #[error("the header names no field")]
    Empty,
    /// More fields than any PandA has.
    #[error("the header names {fields} fields, more than {MOST_FIELDS}")]
    TooMany {
        /// How many.
        fields: usize,
    },
    /// A field lies outside its sample.
    #[error("field {column} ends at byte {end} of a sample of {sample_bytes} bytes")]
    Outside {
        /// The field.
        column: String,
        /// Where it would end.
        end: u64,
        /// Bytes of a sample.
        sample_bytes: u32,
    },
    /// A mean was captured without that which it is divided by.
    #[error(
        "field {column} needs the gate, and neither PCAP.GATE_DURATION nor PCAP.SAMPLES was captured"
    )]
    NoGate {
        /// The field.
        column: String,
    },
    /// A standard deviation was captured without its sum.
    #[error("field {column} needs the sum of the same field, and none was captured before it")]
    NoSum {
        /// The field.
        column: String,
    },
    /// The bytes of a field do not fit what was captured.
    #[error("field {column} cannot be of type {kind:?}")]
    Kind {
        /// The field.
        column: String,
        /// What the header says.
        kind: Kind,
    },
}

/// What a column's values are.
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

/// One column as it comes out.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// `COUNTER1.OUT.Mean`
    pub name: String,
    /// `Mean`
    pub capture: String,
    /// What its values are.
    pub element: Element,
    /// How its integers become a position, done already if the values are doubles. Bits have none.
    pub scaling: Option<Scaling>,
    kernel: Kernel,
}

/// How a column's values are had from a sample; numbers are byte offsets in it.
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
    /// So many zeros.
    pub fn new(element: Element, rows: usize) -> Self {
        match element {
            Element::Uint32 => Values::Uint32(vec![0; rows]),
            Element::Int32 => Values::Int32(vec![0; rows]),
            Element::Int64 => Values::Int64(vec![0; rows]),
            Element::Int96 => Values::Int96(vec![[0; 3]; rows]),
            Element::Double => Values::Double(vec![0.0; rows]),
        }
    }

    /// The values as files hold them: little-endian, one after another.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Values::Uint32(values) => values.as_slice().as_bytes(),
            Values::Int32(values) => values.as_slice().as_bytes(),
            Values::Int64(values) => values.as_slice().as_bytes(),
            Values::Int96(values) => values.as_slice().as_bytes(),
            Values::Double(values) => values.as_slice().as_bytes(),
        }
    }

    /// The same, to be filled from elsewhere.
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

/// The recipe that takes samples of one header apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Columns {
    list: Vec<Column>,
    sample_bytes: usize,
}

impl Columns {
    /// The recipe for a header.
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

    /// The columns, in the order of the header.
    pub fn list(&self) -> &[Column] {
        &self.list
    }

    /// Bytes of a sample.
    pub fn sample_bytes(&self) -> usize {
        self.sample_bytes
    }

    /// A buffer for each column with room for `rows` values.
    pub fn buffers(&self, rows: usize) -> Vec<Values> {
        self.list.iter().map(|column| Values::new(column.element, rows)).collect()
    }

    /// Takes samples apart, into the buffers from value `at` on; says how many samples those were.
    ///
    /// # Panics
    /// If the bytes are no whole samples or the buffers, of [`Columns::buffers`], are too short.
    pub fn convert(&self, samples: &[u8], at: usize, buffers: &mut [Values]) -> usize {
        assert!(samples.len().is_multiple_of(self.sample_bytes), "whole samples are converted");
        assert_eq!(buffers.len(), self.list.len(), "a buffer for each column");
        let mut row = at;
        for tile in samples.chunks(TILE * self.sample_bytes) {
            let rows = tile.len() / self.sample_bytes;
            for (column, values) in self.list.iter().zip(&mut *buffers) {
                fill(column.kernel, tile, self.sample_bytes, row..row + rows, values);
            }
            row += rows;
        }
        row - at
    }
}

/// Every field lies in its sample, or its bytes would be those of the next one.
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
    let kernel = match form {
        Form::Scaled if header.process == Process::Raw => scaled(header, field)?,
        Form::Scaled | Form::Native => native(header, field),
    };
    Ok(Column {
        name: field.column(),
        capture: field.capture.clone(),
        element: kernel.element(),
        scaling: field.scaling.clone(),
        kernel,
    })
}

fn native(header: &Header, field: &Field) -> Kernel {
    let at = field.offset_bytes as usize;
    match field.kind {
        // A gate of more than 2³¹ ticks is announced as int32 and yet not negative.
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

/// Where the gate's raw ticks are: newer FPGAs and older ones name it differently.
fn gate(header: &Header) -> Option<usize> {
    ["PCAP.GATE_DURATION", "PCAP.SAMPLES"].into_iter().find_map(|name| {
        let field = header.fields.iter().find(|f| f.name == name && f.kind.bytes() == 4)?;
        Some(field.offset_bytes as usize)
    })
}

/// The sum that belongs to a sum of squares: that of the same field, sent as its mean.
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

/// One column of one tile.
fn fill(kernel: Kernel, tile: &[u8], sample_bytes: usize, rows: Range, values: &mut Values) {
    match (kernel, values) {
        (Kernel::Uint32 { at }, Values::Uint32(out)) => {
            each(tile, sample_bytes, &mut out[rows], |s| u32::from_le_bytes(word(s, at)));
        }
        (Kernel::Int32 { at }, Values::Int32(out)) => {
            each(tile, sample_bytes, &mut out[rows], |s| i32::from_le_bytes(word(s, at)));
        }
        (Kernel::Int64 { at }, Values::Int64(out)) => {
            each(tile, sample_bytes, &mut out[rows], |s| i64::from_le_bytes(long(s, at)));
        }
        (Kernel::Int96 { at }, Values::Int96(out)) => {
            let words = |s: &[u8]| [0, 4, 8].map(|n| u32::from_le_bytes(word(s, at + n)));
            each(tile, sample_bytes, &mut out[rows], words);
        }
        (Kernel::Double { at }, Values::Double(out)) => {
            each(tile, sample_bytes, &mut out[rows], |s| f64::from_le_bytes(long(s, at)));
        }
        (Kernel::ScaledUint32 { at, scale, offset }, Values::Double(out)) => {
            let value = |s: &[u8]| f64::from(u32::from_le_bytes(word(s, at))) * scale + offset;
            each(tile, sample_bytes, &mut out[rows], value);
        }
        (Kernel::ScaledInt32 { at, scale, offset }, Values::Double(out)) => {
            let value = |s: &[u8]| f64::from(i32::from_le_bytes(word(s, at))) * scale + offset;
            each(tile, sample_bytes, &mut out[rows], value);
        }
        (Kernel::ScaledInt64 { at, scale, offset }, Values::Double(out)) => {
            let value = |s: &[u8]| i64::from_le_bytes(long(s, at)) as f64 * scale + offset;
            each(tile, sample_bytes, &mut out[rows], value);
        }
        (Kernel::Mean { at, gate, scale, offset }, Values::Double(out)) => {
            let value = |s: &[u8]| {
                let (sum, ticks) =
                    (i64::from_le_bytes(long(s, at)), u32::from_le_bytes(word(s, gate)));
                mean(sum, ticks, scale, offset)
            };
            each(tile, sample_bytes, &mut out[rows], value);
        }
        (Kernel::Deviation { squares, sum, gate, scale }, Values::Double(out)) => {
            let value = |s: &[u8]| {
                let low = i128::from(u64::from_le_bytes(long(s, squares)));
                let high = i128::from(u32::from_le_bytes(word(s, squares + 8)));
                let sum = i64::from_le_bytes(long(s, sum));
                deviation(high << 64 | low, sum, u32::from_le_bytes(word(s, gate)), scale)
            };
            each(tile, sample_bytes, &mut out[rows], value);
        }
        (kernel, _) => unreachable!("the buffer of {kernel:?} is of another kind"),
    }
}

/// The loop that all kernels are: a value of each sample, without a branch.
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

/// A sum over the gate is no number where the gate was closed.
#[inline(always)]
fn mean(sum: i64, gate: u32, scale: f64, offset: f64) -> f64 {
    // 0 ÷ 0 is what no number is; any other sum over no ticks would be infinite.
    let ticks = if gate == 0 { f64::NAN } else { f64::from(gate) };
    scale * sum as f64 / ticks + offset
}

/// √(A/N − (B/N)²), with the difference of the two great numbers taken in integers.
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
