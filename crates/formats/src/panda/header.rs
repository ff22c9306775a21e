//! The header of an acquisition, sent before its first sample.

use fullbore_time::Tai;
use serde::{Deserialize, Serialize};

use super::header_builder::HeaderError;

/// The largest valid sample count of an acquisition. At the fastest trigger rate it would take a thousand years, and
/// the sum of two such counts does not overflow.
pub const MOST_SAMPLES: u64 = 1 << 62;

/// The header of one acquisition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Time of arming, by the PandA's clock. Servers before 3.0a1 do not report it.
    pub arm_time: Option<Tai>,
    /// Time at which it was armed and enabled; by a hardware clock if `hw_time_offset_ns` is present.
    pub start_time: Option<Tai>,
    /// System time minus hardware time at the start, in nanoseconds.
    pub hw_time_offset_ns: Option<i64>,
    /// Index of the first sample that follows: the number of samples before this reader joined. At most
    /// [`MOST_SAMPLES`].
    pub missed: u64,
    /// The server's processing of the samples.
    pub process: Process,
    /// Bytes of a sample.
    pub sample_bytes: u32,
    /// The columns of a sample, in the order of their bytes, without gaps.
    pub fields: Vec<Field>,
}

impl Header {
    /// Parses a header as stored in recordings: as received, in XML or as lines of text.
    pub fn of_recording(text: &str) -> Result<Header, HeaderError> {
        match text.trim_start().starts_with('<') {
            true => Header::from_xml(text.as_bytes()),
            false => Header::from_text(text.as_bytes()),
        }
    }

    /// Returns its properties of the whole acquisition, with the names and in the order of both its forms.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let time = |name, time: Option<Tai>| time.map(|time| (name, format!("{time:.9}")));
        let offset = self.hw_time_offset_ns.map(|ns| ("hw_time_offset_ns", ns.to_string()));
        let times = [time("arm_time", self.arm_time), time("start_time", self.start_time), offset];
        let rest = [
            ("missed", self.missed.to_string()),
            ("process", self.process.to_string()),
            ("format", "Framed".to_owned()),
            ("sample_bytes", self.sample_bytes.to_string()),
        ];
        times.into_iter().flatten().chain(rest).collect()
    }
}

/// The server's processing of samples before it sends them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Process {
    /// Integers as captured.
    Raw,
    /// Doubles, scaled by the server.
    Scaled,
}

/// One column of a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// `COUNTER1.OUT`
    pub name: String,
    /// `Value`, `Min`, `Max`, `Mean`, `MemoryBudget`, `Diff`, `StdDev`; older servers have other words.
    pub capture: String,
    /// The kind of its bytes.
    pub kind: Kind,
    /// Offset of the column in the sample.
    pub offset_bytes: u32,
    /// The conversion from integer to position. Bits have none.
    pub scaling: Option<Scaling>,
}

/// The kind of a column's bytes, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Bits, or the ticks of the gate.
    Uint32,
    /// A position.
    Int32,
    /// A sum of positions, or a time in ticks.
    Int64,
    /// Unsigned sum of squares, low word first.
    Int96,
    /// Scaled by the server.
    Double,
}

impl Kind {
    /// Bytes of one value.
    pub fn bytes(self) -> u32 {
        match self {
            Kind::Uint32 | Kind::Int32 => 4,
            Kind::Int64 | Kind::Double => 8,
            Kind::Int96 => 12,
        }
    }
}

/// `position = scale × raw + offset`, in `units`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// The size of one step.
    pub scale: f64,
    /// The position of raw value zero.
    pub offset: f64,
    /// UTF-8; empty if not set.
    pub units: String,
}

impl Field {
    /// Returns `COUNTER1.OUT.Mean`, the column's name in files.
    pub fn column(&self) -> String {
        format!("{}.{}", self.name, self.capture)
    }
}
