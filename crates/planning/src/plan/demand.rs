//! What a recording asks of a machine: streams, and their time.

use fullbore_core::endpoint::UdpSource;
use fullbore_core::pattern::PatternSource;
use fullbore_core::units::{ByteRate, ByteSize};

use super::error::Error;
use super::figure::{Figure, Origin, Unit};
use super::instruments::{Direction, Instrument};
use super::machine::NodeId;

/// The most streams of a plan.
pub const MOST_STREAMS: u32 = 65_536;

/// Streams of one kind.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Their name.
    pub name: String,
    /// Their number.
    pub count: u32,
    /// The rate of each.
    pub rate: Figure,
    /// Their direction.
    pub direction: Direction,
    /// The nodes where they enter or leave, in turn; empty if that is not known.
    pub at: Vec<NodeId>,
    /// The disk set that they use; `None`: all sets.
    pub set: Option<usize>,
    /// True if they go between instrument and disks without memory (PXI peer to peer).
    pub peer: bool,
    /// Onboard memory of each instrument, if known.
    pub fifo: Option<ByteSize>,
}

impl Stream {
    /// The rate of all of them.
    pub fn total(&self) -> f64 {
        self.rate.value * f64::from(self.count)
    }
}

/// The time of a recording, and what runs beside it.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Seconds of a scan; `None`: not asked.
    pub record_s: Option<f64>,
    /// Seconds of the pause after each scan.
    pub pause_s: f64,
    /// The number of scans.
    pub scans: u64,
    /// The rate at which recordings are sent elsewhere meanwhile.
    pub send: Option<Figure>,
    /// The nodes where that leaves.
    pub send_at: Vec<NodeId>,
    /// Bytes of block memory, if they are set.
    pub buffer: Option<Figure>,
    /// A cryptographic checksum of all data, if asked for.
    pub hash: Option<Hash>,
}

impl Run {
    /// The share of the time in which data arrive.
    pub fn share(&self) -> f64 {
        self.record_s.map_or(1.0, |record| record / (record + self.pause_s))
    }

    /// Seconds of recording in all scans.
    pub fn recorded_s(&self) -> Option<f64> {
        Some(self.record_s? * self.scans.max(1) as f64)
    }
}

/// A cryptographic checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// Bytes per second on one core of 2.25 GHz (Zen 3).
    pub fn rate(self) -> Figure {
        let rate = match self {
            Self::Sha256 => 832e6,
            Self::Sha512 => 392e6,
        };
        Figure::new(rate, Unit::Rate, Origin::Table, "one core of 2.25 GHz (Zen 3)")
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA-256",
            Self::Sha512 => "SHA-512",
        }
    }
}

/// The thresholds of the rules.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The share of every capacity that stays free.
    pub headroom: f64,
    /// Flows below this sum, in bytes per second, disturb each other little (R6).
    pub small_flows: f64,
    /// An instrument whose memory bridges less than this time, in seconds, has little (R5).
    pub small_buffer_s: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { headroom: 0.1, small_flows: 400e6, small_buffer_s: 0.01 }
    }
}

/// A stream as typed: `[NAME=][Nx]RATE[@NODE,…]`, with an instrument of the table instead of a rate, or an endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedStream {
    /// The name, if there is one.
    pub name: Option<String>,
    /// The number.
    pub count: u32,
    /// The rate, in words of the user.
    pub what: What,
    /// The names of nodes.
    pub at: Vec<String>,
}

/// The kind of stream.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A rate.
    Rate(ByteRate),
    /// An instrument's name.
    Instrument(String),
    /// Streams of an endpoint, with the rate that it states.
    Endpoint {
        /// The rate of each.
        rate: ByteRate,
        /// The interface, if it names one.
        interface: Option<String>,
    },
}

/// Reads a stream as typed.
pub fn stream(text: &str, instruments: &[Instrument]) -> Result<TypedStream, Error> {
    let bad = |why: String| Error::Stream { text: text.to_owned(), why };
    if text.contains("://") || text.starts_with("pattern:") {
        return endpoint(text);
    }
    let (name, rest) = match text.split_once('=') {
        Some((name, rest)) => (Some(name.trim().to_owned()), rest),
        None => (None, text),
    };
    let (rest, at) = rest.split_once('@').unwrap_or((rest, ""));
    let (count, rest) = match rest.split_once('x') {
        Some((count, rest)) if count.chars().all(|it| it.is_ascii_digit()) && !count.is_empty() => {
            let count: u32 = count.parse().map_err(|_| bad("too many streams".to_owned()))?;
            (count, rest)
        }
        _ => (1, rest),
    };
    if !(1..=MOST_STREAMS).contains(&count) {
        return Err(bad(format!("a plan has 1 to {MOST_STREAMS} streams of a kind")));
    }
    let what = match instruments.iter().find(|it| it.name.eq_ignore_ascii_case(rest.trim())) {
        Some(instrument) => What::Instrument(instrument.name.clone()),
        None => {
            let rate: ByteRate = rest.trim().parse().map_err(|error| bad(format!("{error}")))?;
            if rate.0 == 0 {
                return Err(bad("a rate of 0 needs no plan".to_owned()));
            }
            What::Rate(rate)
        }
    };
    let at = at.split(',').map(str::trim).filter(|it| !it.is_empty());
    Ok(TypedStream { name, count, what, at: at.map(str::to_owned).collect() })
}

/// Reads the rate that an endpoint of a recording states.
fn endpoint(text: &str) -> Result<TypedStream, Error> {
    let bad = |why: String| Error::Stream { text: text.to_owned(), why };
    let unknown = || {
        bad("it states no rate: add fps= and frame= (a pattern: rate=), or give the rate itself"
            .to_owned())
    };
    if text.starts_with("pattern:") {
        let source = PatternSource::parse(text).map_err(|error| bad(error.to_string()))?;
        let what = What::Endpoint { rate: source.rate.ok_or_else(unknown)?, interface: None };
        return Ok(TypedStream { name: None, count: 1, what, at: vec![] });
    }
    let sources = UdpSource::parse(text).map_err(|error| bad(error.to_string()))?;
    let of =
        |source: &UdpSource| source.frames_per_second?.checked_mul(u64::from(source.frame_bytes?));
    let first = sources.first().ok_or_else(unknown)?;
    let what = What::Endpoint {
        rate: ByteRate(of(first).ok_or_else(unknown)?),
        interface: first.interface.clone(),
    };
    let count = u32::try_from(sources.len()).map_err(|_| bad("too many ports".to_owned()))?;
    Ok(TypedStream { name: None, count, what, at: vec![] })
}

#[cfg(test)]
mod tests {
    use super::super::instruments::table;
    use super::*;

    #[test]
    fn streams_are_read_as_people_write_them() {
        let read = |text| stream(text, &table()).unwrap();
        let eight = read("8x2Gbit/s@ens1, ens2");
        assert_eq!((eight.count, eight.at), (8, vec!["ens1".to_owned(), "ens2".to_owned()]));
        assert_eq!(eight.what, What::Rate(ByteRate(250_000_000)));
        let named = read("if=2xpxie-5122@slot2");
        assert_eq!((named.name.as_deref(), named.count), (Some("if"), 2));
        assert_eq!(named.what, What::Instrument("PXIe-5122".into()));
        assert_eq!(read("600MB/s").count, 1);
    }

    #[test]
    fn endpoints_state_their_rate_and_ports() {
        let read = |text| stream(text, &table());
        let udp = read("udp://0.0.0.0:46220-46227?format=vdif&frame=8032&fps=32000").unwrap();
        assert_eq!(udp.count, 8);
        let what = What::Endpoint { rate: ByteRate(8032 * 32000), interface: None };
        assert_eq!(udp.what, what);
        assert!(read("udp://0.0.0.0:46220?format=vdif").is_err(), "no rate");
        assert_eq!(read("pattern:prbs31?rate=2Gbit/s").unwrap().count, 1);
        for bad in ["", "8x", "0x1Gbit/s", "99999999x1Gbit/s", "fast", "0MB/s", "tcp://host:1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
