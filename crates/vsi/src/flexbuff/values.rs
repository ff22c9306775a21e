//! The values of a set-up: ports, protocols and data streams as text.

use std::net::Ipv4Addr;

use fullbore_core::name::Name;

use crate::line::Statement;
use crate::reply::{Code, Reply};

/// The largest block of `net_protocol`, in bytes.
const LARGEST_BLOCK: u64 = 1 << 30;

/// A UDP port. With a suffix, it is the stream of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) address: Option<Ipv4Addr>,
    pub(super) port: u16,
    pub(super) suffix: Option<Name>,
}

/// What carries the frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Protocol {
    pub(super) kind: Kind,
    pub(super) socket_buffer: u64,
    pub(super) block: u64,
    pub(super) blocks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A frame in each datagram.
    Pudp,
    /// A packet number before each frame.
    Numbered(&'static str),
}

/// A data stream: a selection of VDIF threads with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataStream {
    pub(super) name: String,
    pub(super) spec: String,
}

impl Port {
    /// Reads `port`, `ip@port` or `ip@port=suffix`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (text, suffix) = match text.split_once('=') {
            Some((text, suffix)) => (text, Some(suffix.trim().parse::<Name>().ok()?)),
            None => (text, None),
        };
        // The suffix becomes the end of a directory name, after which no reader looks for more.
        if suffix.as_ref().is_some_and(|it| it.as_str().contains('_')) {
            return None;
        }
        let (address, port) = match text.split_once('@') {
            Some((address, port)) => (Some(address.trim().parse().ok()?), port),
            None => (None, text),
        };
        let port =
            digits(port.trim()).and_then(|it| u16::try_from(it).ok()).filter(|it| *it > 0)?;
        Some(Self { address, port, suffix })
    }

    /// Writes it as it is read.
    pub(super) fn to_text(&self) -> String {
        let address = self.address.map(|it| format!("{it}@")).unwrap_or_default();
        let suffix = self.suffix.as_ref().map(|it| format!("={it}")).unwrap_or_default();
        format!("{address}{}{suffix}", self.port)
    }
}

impl Protocol {
    /// The protocol after `net_protocol=<kind>:<socket buffer>:<block>:<blocks>`. Empty fields keep their value.
    pub(super) fn changed(&self, statement: &Statement) -> Result<Self, Reply> {
        let mut new = self.clone();
        new.kind = match statement.field(0).to_ascii_lowercase().as_str() {
            "" => self.kind,
            "pudp" => Kind::Pudp,
            "udp" => Kind::Numbered("udp"),
            "udps" => Kind::Numbered("udps"),
            "udpsnor" => Kind::Numbered("udpsnor"),
            "vtp" => Kind::Numbered("vtp"),
            "tcp" | "rtcp" | "itcp" | "unix" | "udt" => {
                let why = "frames are received by udp, pudp, udps, udpsnor or vtp, scans are sent by fullbore send";
                return Err(Reply::because(Code::NotImplemented, why));
            }
            _ => return Err(Reply::because(Code::Parameter, "the protocol is not known")),
        };
        let size = |number, now, most| match statement.field(number) {
            "" => Ok(now),
            text => bytes(text).filter(|it| (1..=most).contains(it)).ok_or_else(|| {
                Reply::because(Code::Parameter, "a size is 1 to 1073741824 bytes, with k or M")
            }),
        };
        new.socket_buffer = size(1, self.socket_buffer, LARGEST_BLOCK)?;
        new.block = size(2, self.block, LARGEST_BLOCK)?;
        new.blocks = size(3, self.blocks.into(), 1 << 20)? as u32;
        Ok(new)
    }

    /// The answer to `net_protocol?`.
    pub(super) fn tell(&self) -> Reply {
        let kind = match self.kind {
            Kind::Pudp => "pudp",
            Kind::Numbered(name) => name,
        };
        let numbers = [self.socket_buffer, self.block, self.blocks.into()];
        Reply::done().with(kind).with_all(numbers.map(|it| it.to_string()))
    }
}

impl DataStream {
    /// Reads what `datastream=add` names; `None` if no source can select it.
    pub(super) fn parse(name: &str, spec: &str) -> Option<Self> {
        let stream = Self { name: name.to_owned(), spec: spec.to_owned() };
        let is_listed = spec.len() <= 200
            && spec.split([',', '-']).all(|it| digits(it).is_some_and(|thread| thread < 1024));
        let fits = match (name, spec) {
            ("{thread}", "*") => true,
            (name, spec) => {
                let is_name = name.parse::<Name>().is_ok() && !name.contains('_');
                is_name && (spec == "*" || is_listed)
            }
        };
        fits.then_some(stream)
    }

    /// The parameters of an endpoint that select it.
    pub(super) fn parameters(&self) -> String {
        match (self.name.as_str(), self.spec.as_str()) {
            ("{thread}", _) => "&threads=split".to_owned(),
            (name, "*") => format!("&name={name}"),
            (name, threads) => format!("&threads={threads}&name={name}"),
        }
    }
}

/// A number without a sign.
pub(super) fn digits(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|it| it.is_ascii_digit())).then(|| text.parse().ok())?
}

/// A size with `k` (1024) or `M` (1024 × 1024), as jive5ab reads it.
fn bytes(text: &str) -> Option<u64> {
    let (number, factor) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1 << 10),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1), |number| (number, 1 << 20)),
    };
    digits(number)?.checked_mul(factor)
}
