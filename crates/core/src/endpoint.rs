//! Where streams come from and go to, as one text: the same on the command line, in a file, over REST.
//!
//! ```text
//! udp://0.0.0.0:46220-46235?format=vdif&fps=32000      sixteen ports, each a stream of its own
//! udp://239.1.1.1:5000?interface=eth0                  a multicast group
//! udp://[::1]:5000?format=raw&seq=0:8:le               any datagrams, counted by their first 8 bytes
//! file:x.vdif                                          one plain file
//! store:r1234_no0001/46220                             a stream of a stored scan
//! ```
//!
//! [`Endpoint`] is the text cut into its parts; [`UdpSource`], [`UdpTarget`], [`file_path`] and
//! [`stored`] say what the parts mean. `%` and two hexadecimal digits stand for any byte, so a path
//! may hold a `?`.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use crate::account::CountedBy;
use crate::format::FILL;
use crate::format::sequence::Field;
use crate::format::vdif::Mode;
use crate::manifest::Fill;
use crate::name::{Name, ScanName};
use crate::units::{ByteRate, ByteSize};

/// The longest text of an endpoint, in bytes.
pub const LONGEST: usize = 4096;

/// The largest payload of a UDP datagram over IPv4.
pub const LARGEST_DATAGRAM: u32 = 65_507;

/// The most bytes at the start of a datagram that can be left out.
pub const LONGEST_STRIP: u32 = 256;

/// Bytes of the packet number that VTP puts before each frame.
pub const PACKET_NUMBER_BYTES: u32 = 8;

/// An endpoint cut into its parts. Displays as the text that reads back to the same parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// What comes before the first colon, in lower case.
    pub scheme: String,
    /// Host and ports, if `//` follows the scheme.
    pub authority: Option<Authority>,
    /// What follows, up to the `?`.
    pub path: String,
    /// `name=value` after the `?`, in the order given, no name twice.
    pub parameters: Vec<(String, String)>,
}

/// Host and ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    /// An address (IPv6 without its brackets), a host name, or nothing: any address of this host.
    pub host: String,
    /// The ports, first and last.
    pub ports: Option<RangeInclusive<u16>>,
}

/// A text that is no endpoint, or not one of the kind needed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Longer than [`LONGEST`].
    #[error("an endpoint has at most {LONGEST} bytes, and this one has {bytes}")]
    Length {
        /// How long it is.
        bytes: usize,
    },
    /// No scheme, or nothing behind it.
    #[error("`{text}` is not an endpoint")]
    Form {
        /// What was given.
        text: String,
    },
    /// A scheme that cannot stand here.
    #[error("`{scheme}:` cannot be used as a {wanted}")]
    Scheme {
        /// The scheme given.
        scheme: String,
        /// What was looked for.
        wanted: &'static str,
        /// An endpoint that could stand here.
        example: &'static str,
    },
    /// No port, or not one from 1 to 65535, or a range from high to low.
    #[error("`{text}` is not a port or a range of ports")]
    Ports {
        /// What was given.
        text: String,
    },
    /// Not an IP address.
    #[error("`{host}` is not an IP address")]
    Address {
        /// What was given.
        host: String,
    },
    /// A parameter nobody knows.
    #[error("`{name}` is not a parameter of {scheme}: endpoints; they are {known}")]
    Unknown {
        /// The parameter given.
        name: String,
        /// The scheme.
        scheme: String,
        /// All that are known.
        known: String,
    },
    /// A parameter given twice.
    #[error("`{name}` is given twice")]
    Repeated {
        /// The parameter.
        name: String,
    },
    /// A value that its parameter cannot have.
    #[error("`{name}={value}`: {why}")]
    Value {
        /// The parameter.
        name: String,
        /// The value given.
        value: String,
        /// What is wrong with it.
        why: String,
        /// What would have been read.
        example: &'static str,
    },
    /// Two parameters that exclude one another, or one that lacks another.
    #[error("{what}")]
    Together {
        /// What is wrong.
        what: String,
    },
    /// A percent escape that does not make UTF-8.
    #[error("`{text}` does not spell UTF-8")]
    Escape {
        /// What was given.
        text: String,
    },
}

impl Error {
    /// What to write instead, where there is more to say than the error itself does.
    pub fn hint(&self) -> Option<String> {
        let for_example = |example: &str| Some(format!("write for example {example}"));
        match self {
            Error::Form { .. } => for_example("udp://0.0.0.0:46220?format=vdif or file:x.vdif"),
            Error::Scheme { example, .. } => for_example(example),
            Error::Ports { .. } => for_example("udp://0.0.0.0:46220 or udp://0.0.0.0:46220-46235"),
            Error::Address { .. } => for_example(
                "0.0.0.0 for any IPv4 address of this host, [::] for any, or 239.1.1.1 for a group",
            ),
            Error::Value { name, example, .. } => for_example(&format!("{name}={example}")),
            Error::Length { .. }
            | Error::Unknown { .. }
            | Error::Repeated { .. }
            | Error::Together { .. }
            | Error::Escape { .. } => None,
        }
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > LONGEST {
            return Err(Error::Length { bytes: text.len() });
        }
        let bad = || Error::Form { text: text.to_owned() };
        let (scheme, rest) = text.trim().split_once(':').ok_or_else(bad)?;
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '+';
        if scheme.is_empty() || !scheme.chars().all(is_scheme) {
            return Err(bad());
        }
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = match place.strip_prefix("//") {
            None => (None, place),
            Some(place) => {
                let (authority, path) = place.split_at(place.find('/').unwrap_or(place.len()));
                (Some(authority.parse()?), path)
            }
        };
        Ok(Endpoint {
            scheme: scheme.to_ascii_lowercase(),
            authority,
            path: unescape(path)?,
            parameters: parameters(query)?,
        })
    }
}

impl FromStr for Authority {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let ports_error = || Error::Ports { text: text.to_owned() };
        let (host, ports) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) =
                    rest.split_once(']').ok_or_else(|| Error::Form { text: text.to_owned() })?;
                match (rest, rest.strip_prefix(':')) {
                    ("", _) => (host, None),
                    (_, Some(ports)) => (host, Some(ports)),
                    (_, None) => return Err(ports_error()),
                }
            }
            None => match text.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => {
                    return Err(Error::Address { host: text.to_owned() });
                }
                Some((host, ports)) => (host, Some(ports)),
                None => (text, None),
            },
        };
        let no_part_of_a_name =
            |c: char| matches!(c, '[' | ']' | '@') || c.is_whitespace() || c.is_control();
        if host.contains(no_part_of_a_name) {
            return Err(Error::Address { host: host.to_owned() });
        }
        Ok(Authority { host: host.to_owned(), ports: ports.map(port_range).transpose()? })
    }
}

fn port_range(text: &str) -> Result<RangeInclusive<u16>, Error> {
    let bad = || Error::Ports { text: text.to_owned() };
    let port = |text: &str| {
        let plain = text.bytes().all(|b| b.is_ascii_digit());
        text.parse::<u16>().ok().filter(|&port| plain && port > 0).ok_or_else(bad)
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = port(first)?..=port(last)?;
    if range.is_empty() { Err(bad()) } else { Ok(range) }
}

fn parameters(query: &str) -> Result<Vec<(String, String)>, Error> {
    let mut parameters: Vec<(String, String)> = Vec::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, "true"));
        let (name, value) = (unescape(name)?.to_ascii_lowercase(), unescape(value)?);
        if parameters.iter().any(|(known, _)| *known == name) {
            return Err(Error::Repeated { name });
        }
        parameters.push((name, value));
    }
    Ok(parameters)
}

/// `%41` becomes `A`; a `%` that no two hexadecimal digits follow stays.
fn unescape(text: &str) -> Result<String, Error> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digit = |n: usize| bytes.get(at + n).and_then(|&b| char::from(b).to_digit(16));
        match (byte, digit(1), digit(2)) {
            (b'%', Some(high), Some(low)) => {
                plain.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(plain).map_err(|_| Error::Escape { text: text.to_owned() })
}

/// The escapes that [`unescape`] takes away, for the bytes that would be read as something else.
fn escape(text: &str, special: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        if c == '%' || c.is_whitespace() || c.is_control() || special.contains(c) {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                write!(f, "%{byte:02X}")?;
            }
        } else {
            f.write_char(c)?;
        }
    }
    Ok(())
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host)?,
            false => f.write_str(&self.host)?,
        }
        match &self.ports {
            None => Ok(()),
            Some(ports) if ports.start() == ports.end() => write!(f, ":{}", ports.start()),
            Some(ports) => write!(f, ":{}-{}", ports.start(), ports.end()),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.scheme)?;
        if let Some(authority) = &self.authority {
            write!(f, "//{authority}")?;
        }
        // Two slashes that open a path without a host would be read as the mark of one.
        let path = match (&self.authority, self.path.strip_prefix("//")) {
            (None, Some(path)) => {
                f.write_str("%2F/")?;
                path
            }
            _ => &self.path,
        };
        escape(path, "?", f)?;
        for (n, (name, value)) in self.parameters.iter().enumerate() {
            f.write_char(if n == 0 { '?' } else { '&' })?;
            escape(name, "&=?", f)?;
            f.write_char('=')?;
            escape(value, "&", f)?;
        }
        Ok(())
    }
}

/// One parameter, as help and errors tell of it.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// A value it can have.
    pub example: &'static str,
    /// What it does, and what holds without it.
    pub meaning: &'static str,
}

pub(crate) const fn parameter(
    name: &'static str,
    example: &'static str,
    meaning: &'static str,
) -> Parameter {
    Parameter { name, example, meaning }
}

/// The parameters of an endpoint, looked up by a table of those known.
pub(crate) struct Query<'a> {
    endpoint: &'a Endpoint,
    known: &'static [Parameter],
}

impl<'a> Query<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, known: &'static [Parameter]) -> Result<Self, Error> {
        for (name, _) in &endpoint.parameters {
            if !known.iter().any(|parameter| parameter.name == name) {
                let names: Vec<&str> = known.iter().map(|parameter| parameter.name).collect();
                return Err(Error::Unknown {
                    name: name.clone(),
                    scheme: endpoint.scheme.clone(),
                    known: if names.is_empty() { "none".into() } else { names.join(", ") },
                });
            }
        }
        Ok(Query { endpoint, known })
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        debug_assert!(self.known.iter().any(|known| known.name == name), "`{name}` has no row");
        let mut parameters = self.endpoint.parameters.iter();
        parameters.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value as `read` takes it; its error says what is wrong with the value.
    pub(crate) fn value<T>(
        &self,
        name: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.text(name) else { return Ok(None) };
        read(value).map(Some).map_err(|why| Error::Value {
            name: name.to_owned(),
            value: value.to_owned(),
            why,
            example: self.known.iter().find(|known| known.name == name).map_or("", |k| k.example),
        })
    }

    pub(crate) fn parsed<T: FromStr<Err: fmt::Display>>(
        &self,
        name: &str,
    ) -> Result<Option<T>, Error> {
        self.value(name, |value| value.parse().map_err(|error: T::Err| error.to_string()))
    }

    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, Error> {
        self.value(name, |value| match value {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err("it is true or false".to_owned()),
        })
    }

    pub(crate) fn number(
        &self,
        name: &str,
        allowed: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Error> {
        self.value(name, |value| {
            let number = value.parse().ok().filter(|number| allowed.contains(number));
            number.ok_or_else(|| {
                format!("it is a whole number from {} to {}", allowed.start(), allowed.end())
            })
        })
    }
}

/// What the datagrams of a source hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceFormat {
    /// One VDIF frame each.
    Vdif,
    /// Anything else.
    Raw,
}

/// What becomes of several VDIF threads that arrive on one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Threads {
    /// They lie in one stream, in the order they came in.
    Together,
    /// Each becomes a stream of its own, `<name>t<thread>`.
    Split,
    /// These lie side by side in one stream in this order, whatever order they came in.
    Listed(Vec<u16>),
}

/// Whether the kernel may merge packets before they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gro {
    /// When it is seen to merge.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// One port to receive datagrams on. [`UdpSource::expand`] makes one per port of the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSource {
    /// The endpoint of this port alone.
    pub endpoint: Endpoint,
    /// Where to bind; for a multicast address, the group to join.
    pub address: SocketAddr,
    /// The network interface that datagrams must come through.
    pub interface: Option<String>,
    /// The only sender whose datagrams count.
    pub sender: Option<IpAddr>,
    /// What the datagrams hold.
    pub format: SourceFormat,
    /// Bytes of each frame, without what is stripped; `None`: as the first good frame says.
    pub frame_bytes: Option<u32>,
    /// Frames differ in length.
    pub varying: bool,
    /// Frames per second of each thread; `None`: derived from the frames.
    pub frames_per_second: Option<u64>,
    /// The mode that frame length and rate were taken from.
    pub mode: Option<Mode>,
    /// A 64-bit packet number, lowest byte first, stands before each VDIF frame.
    pub packet_number: bool,
    /// What becomes of several threads.
    pub threads: Threads,
    /// What raw datagrams are counted by; its offset counts from the start of the datagram.
    pub sequence: Option<Field>,
    /// Bytes at the start of each datagram that are not kept.
    pub strip: u32,
    /// What stands in the place of frames that did not come.
    pub fill: Fill,
    /// Socket buffer to ask for; `None`: 64 MiB.
    pub receive_buffer: Option<ByteSize>,
    /// Whether the kernel may merge packets.
    pub gro: Gro,
    /// Name of the stream.
    pub name: Name,
    /// Size of blocks to come near to; `None`: about 4 MiB.
    pub block: Option<ByteSize>,
}

impl UdpSource {
    /// What may follow the `?`.
    pub const PARAMETERS: &'static [Parameter] = &[
        parameter("format", "vdif", "vdif, vtp (vdif behind a packet number) or raw; default vdif"),
        parameter(
            "frame",
            "8032",
            "bytes of each frame, or varying; default: as the first frame says",
        ),
        parameter(
            "fps",
            "32000",
            "frames per second of each thread; default: learned from the frames",
        ),
        parameter("rate", "2048Mbit/s", "payload rate of each thread, instead of fps; needs frame"),
        parameter(
            "mode",
            "VDIF_8000-2048-16-2",
            "frame length and total rate as VLBI recorders say it",
        ),
        parameter("psn", "true", "8 bytes of packet number stand before each frame; default false"),
        parameter(
            "threads",
            "split",
            "together, split into streams, or a list such as 0-7,9; default together",
        ),
        parameter("seq", "0:8:le", "what raw datagrams are counted by: offset, width, le or be"),
        parameter(
            "strip",
            "8",
            "bytes at the start of each datagram that are not kept; default 0, with psn 8",
        ),
        parameter(
            "fill",
            "invalid",
            "for missing frames: invalid (vdif), pattern, a word such as 0x11223344, or omit",
        ),
        parameter("source", "192.0.2.7", "take datagrams of this sender only"),
        parameter(
            "interface",
            "eth0",
            "the network interface to listen on; for a group, to join it on",
        ),
        parameter("rcvbuf", "64MiB", "socket buffer to ask for; default: 64MiB"),
        parameter("gro", "auto", "let the kernel merge packets: auto, on or off; default auto"),
        parameter(
            "name",
            "no0001",
            "name of the stream, with the port behind it if there are several; default the port",
        ),
        parameter("block", "4MiB", "size of blocks to come near to; default about 4 MiB"),
    ];

    /// Reads one endpoint and makes a source of each of its ports.
    pub fn parse(text: &str) -> Result<Vec<UdpSource>, Error> {
        Self::expand(&text.parse()?)
    }

    /// By what its frames are counted.
    pub fn counted_by(&self) -> CountedBy {
        match self.format {
            SourceFormat::Vdif if self.packet_number => CountedBy::PacketNumber,
            SourceFormat::Vdif => CountedBy::FrameTime,
            SourceFormat::Raw if self.sequence.is_some() => CountedBy::SequenceField,
            SourceFormat::Raw => CountedBy::Nothing,
        }
    }

    /// Makes a source of each port.
    pub fn expand(endpoint: &Endpoint) -> Result<Vec<UdpSource>, Error> {
        let (authority, ports) =
            udp_authority(endpoint, "source", "udp://0.0.0.0:46220?format=vdif")?;
        let query = Query::new(endpoint, Self::PARAMETERS)?;
        let given_name = query.text("name");
        let several = ports.clone().count() > 1;
        ports
            .map(|port| {
                let own_name = match given_name {
                    Some(name) if several => format!("{name}{port}"),
                    Some(name) => name.to_owned(),
                    None => port.to_string(),
                };
                let mut endpoint = endpoint.clone();
                endpoint.authority =
                    Some(Authority { host: authority.host.clone(), ports: Some(port..=port) });
                for (name, value) in &mut endpoint.parameters {
                    if name == "name" {
                        value.clone_from(&own_name);
                    }
                }
                let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
                Self::of_port(endpoint, socket_address(&authority.host, address)?, &own_name)
            })
            .collect()
    }

    fn of_port(endpoint: Endpoint, address: SocketAddr, name: &str) -> Result<Self, Error> {
        let query = Query::new(&endpoint, Self::PARAMETERS)?;
        let (format, vtp) = query
            .value("format", |value| match value.to_ascii_lowercase().as_str() {
                "vdif" => Ok((SourceFormat::Vdif, false)),
                "vtp" => Ok((SourceFormat::Vdif, true)),
                "raw" => Ok((SourceFormat::Raw, false)),
                _ => Err("it is vdif, vtp or raw".to_owned()),
            })?
            .unwrap_or((SourceFormat::Vdif, false));
        let packet_number = query.flag("psn")?.unwrap_or(vtp);
        if packet_number && format == SourceFormat::Raw {
            return Err(together("`psn` counts VDIF frames; for raw datagrams write seq=0:8:le"));
        }
        let sequence = query.parsed("seq")?;
        if sequence.is_some() && format == SourceFormat::Vdif {
            return Err(together("`seq` is for format=raw; VDIF frames are counted by their time"));
        }
        let own_strip = if packet_number { PACKET_NUMBER_BYTES } else { 0 };
        let given_strip = query.number("strip", 0..=LONGEST_STRIP.into())?;
        let strip = given_strip.map_or(own_strip, |strip| strip as u32);
        if packet_number && strip != PACKET_NUMBER_BYTES {
            return Err(together(format!(
                "the packet number has {PACKET_NUMBER_BYTES} bytes, and they are left out: not `strip={strip}`"
            )));
        }
        let threads = query.value("threads", threads)?.unwrap_or(Threads::Together);
        if threads != Threads::Together && (packet_number || format == SourceFormat::Raw) {
            return Err(together(
                "`threads` tells VDIF threads apart by their time: not with a packet number, nor format=raw",
            ));
        }
        let frame = query.value("frame", frame_bytes)?;
        check_sequence(sequence.as_ref(), strip, frame)?;
        let mode = query.value("mode", |value| {
            Mode::parse(value).map_err(|error| format!("{error}: {}", error.hint()))
        })?;
        let size = FrameSize { frame, strip, format, mode };
        let default_fill = match format {
            SourceFormat::Vdif => Fill::Invalid,
            SourceFormat::Raw => Fill::Pattern(FILL),
        };
        let given_fill = query.value("fill", fill)?;
        let uncounted = format == SourceFormat::Raw && sequence.is_none();
        let unfilled = uncounted || frame == Some(FrameLength::Varying);
        if unfilled && matches!(given_fill, Some(Fill::Pattern(_))) {
            return Err(together(
                "`fill` stands for frames of one length (`frame`) that are counted (`seq`); without, use omit",
            ));
        }
        let fill = given_fill.unwrap_or(default_fill);
        if fill == Fill::Invalid && format == SourceFormat::Raw {
            return Err(together(
                "`fill=invalid` makes VDIF frames; for format=raw use pattern or omit",
            ));
        }
        let sender = query.value("source", sender)?;
        if sender.is_some_and(|sender| sender.is_ipv4() != address.is_ipv4()) {
            return Err(together(
                "`source` and the address listened on are not both IPv4 or both IPv6",
            ));
        }
        let name = name.parse().map_err(|error: crate::name::Error| Error::Value {
            name: "name".into(),
            value: name.to_owned(),
            why: error.to_string(),
            example: "no0001",
        })?;
        Ok(UdpSource {
            address,
            interface: query.value("interface", interface)?,
            sender,
            format,
            frame_bytes: size.checked()?,
            varying: frame == Some(FrameLength::Varying),
            frames_per_second: size.frames_per_second(&query, &threads)?,
            mode,
            packet_number,
            threads,
            sequence,
            strip,
            fill,
            receive_buffer: query.value("rcvbuf", receive_buffer)?,
            gro: query.value("gro", gro)?.unwrap_or_default(),
            name,
            block: query.value("block", block)?,
            endpoint,
        })
    }
}

impl fmt::Display for UdpSource {
    /// The endpoint of this port, which reads back as the same source.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

/// What `frame=` said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameLength {
    Bytes(u32),
    Varying,
}

/// The parameters that speak of the length of frames.
struct FrameSize {
    frame: Option<FrameLength>,
    strip: u32,
    format: SourceFormat,
    mode: Option<Mode>,
}

impl FrameSize {
    fn checked(&self) -> Result<Option<u32>, Error> {
        let of_mode = self.mode.map(|mode| mode.frame_bytes());
        let raw = self.format == SourceFormat::Raw;
        let bytes = match self.frame {
            _ if raw && of_mode.is_some() => {
                return Err(together("`mode` speaks of VDIF, and not of format=raw"));
            }
            None => of_mode,
            Some(FrameLength::Varying) if raw => None,
            Some(FrameLength::Varying) => {
                return Err(together(
                    "`frame=varying` is for format=raw; the VDIF frames of a stream have one length",
                ));
            }
            Some(FrameLength::Bytes(bytes)) => Some(bytes),
        };
        let Some(bytes) = bytes else { return Ok(None) };
        if of_mode.is_some_and(|of_mode| of_mode != bytes) {
            return Err(together(format!("`mode` makes other frames than `frame={bytes}`")));
        }
        if bytes.saturating_add(self.strip) > LARGEST_DATAGRAM {
            let strip = self.strip;
            return Err(together(format!(
                "frames of {bytes} bytes behind {strip} that are stripped do not fit a datagram"
            )));
        }
        if !raw && (!bytes.is_multiple_of(8) || bytes <= 16) {
            return Err(together(format!(
                "VDIF frames are multiples of 8 bytes, header included, so `frame={bytes}` cannot be"
            )));
        }
        Ok(Some(bytes))
    }

    /// From `fps`, or `rate` and the frame's length, or the mode, whose rate its threads share.
    fn frames_per_second(
        &self,
        query: &Query<'_>,
        threads: &Threads,
    ) -> Result<Option<u64>, Error> {
        let fps = query.number("fps", 1..=1 << 24)?;
        let rate: Option<ByteRate> = query.parsed("rate")?;
        match (fps, rate, self.mode) {
            (Some(_), Some(_), _) => Err(together("give `fps` or `rate`, not both")),
            (Some(fps), None, _) => Ok(Some(fps)),
            (None, Some(rate), _) => self.frames_of_rate(rate).map(Some),
            (None, None, Some(mode)) => share_of_mode(mode, threads).map(Some),
            (None, None, None) => Ok(None),
        }
    }

    fn frames_of_rate(&self, rate: ByteRate) -> Result<u64, Error> {
        let Some(bytes) = self.checked()? else {
            return Err(together("`rate` needs `frame`, to know how many frames it makes"));
        };
        let header = if self.format == SourceFormat::Vdif { 32 } else { 0 };
        let payload = u64::from(bytes.saturating_sub(header).max(1));
        if rate.0 == 0 || !rate.0.is_multiple_of(payload) {
            return Err(together(format!(
                "{rate} is not a whole number of frames of {payload} payload bytes per second; give `fps`"
            )));
        }
        Ok(rate.0 / payload)
    }
}

/// A mode tells the rate of all threads together. Listed ones share it; otherwise one is assumed.
fn share_of_mode(mode: Mode, threads: &Threads) -> Result<u64, Error> {
    let threads = match threads {
        Threads::Listed(list) => list.len() as u64,
        Threads::Together | Threads::Split => 1,
    };
    if !mode.frames_per_second().is_multiple_of(threads) {
        return Err(together(format!(
            "{threads} threads cannot share the frames of `mode={mode}`"
        )));
    }
    Ok(mode.frames_per_second() / threads)
}

/// A counter lies wholly in what is left out or wholly in the frame, and not beyond it.
fn check_sequence(
    sequence: Option<&Field>,
    strip: u32,
    frame: Option<FrameLength>,
) -> Result<(), Error> {
    let Some(field) = sequence else { return Ok(()) };
    let (strip, end) = (strip as usize, field.end());
    if field.offset < strip && end > strip {
        return Err(together(format!(
            "`seq={field}` ends at byte {end}, across the {strip} bytes that are stripped"
        )));
    }
    let whole = match frame {
        Some(FrameLength::Bytes(bytes)) => strip + bytes as usize,
        Some(FrameLength::Varying) | None => LARGEST_DATAGRAM as usize,
    };
    if end > whole {
        return Err(together(match frame {
            Some(FrameLength::Bytes(bytes)) => format!(
                "`seq={field}` ends at byte {} + {} = {end}, and a datagram has {strip} stripped + {bytes} of frame = {whole}",
                field.offset, field.width
            ),
            _ => format!("`seq={field}` ends at byte {end}, and no datagram has more than {whole}"),
        }));
    }
    Ok(())
}

fn together(what: impl Into<String>) -> Error {
    Error::Together { what: what.into() }
}

fn frame_bytes(value: &str) -> Result<FrameLength, String> {
    if value == "varying" {
        return Ok(FrameLength::Varying);
    }
    let bytes = value.parse().ok().filter(|bytes| (1..=LARGEST_DATAGRAM).contains(bytes));
    bytes
        .map(FrameLength::Bytes)
        .ok_or_else(|| format!("it is 1 to {LARGEST_DATAGRAM} bytes, or varying"))
}

/// VDIF threads have ten bits.
const HIGHEST_THREAD: u16 = 1023;

/// Reads `0-7,9`; no thread twice.
pub fn thread_list(text: &str) -> Result<Vec<u16>, String> {
    let bad = || format!("threads are numbers from 0 to {HIGHEST_THREAD}, such as 0-7,9");
    let number = |text: &str| {
        text.parse::<u16>().ok().filter(|&thread| thread <= HIGHEST_THREAD).ok_or_else(bad)
    };
    let mut threads = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let range = number(first)?..=number(last)?;
        if range.is_empty() {
            return Err(bad());
        }
        for thread in range {
            if threads.contains(&thread) {
                return Err(format!("thread {thread} is listed twice"));
            }
            threads.push(thread);
        }
    }
    Ok(threads)
}

fn threads(value: &str) -> Result<Threads, String> {
    match value {
        "together" => Ok(Threads::Together),
        "split" => Ok(Threads::Split),
        list => thread_list(list).map(Threads::Listed),
    }
}

fn fill(value: &str) -> Result<Fill, String> {
    match value {
        "invalid" => Ok(Fill::Invalid),
        "omit" => Ok(Fill::Omit),
        "pattern" => Ok(Fill::Pattern(FILL)),
        word => word
            .strip_prefix("0x")
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .map(Fill::Pattern)
            .ok_or_else(|| "it is invalid, omit, pattern, or a word such as 0x11223344".to_owned()),
    }
}

fn gro(value: &str) -> Result<Gro, String> {
    match value {
        "auto" => Ok(Gro::Auto),
        "on" | "true" => Ok(Gro::On),
        "off" | "false" => Ok(Gro::Off),
        _ => Err("it is auto, on or off".to_owned()),
    }
}

fn block(value: &str) -> Result<ByteSize, String> {
    let size: ByteSize = value.parse().map_err(|e: crate::units::Error| e.to_string())?;
    if ((64 << 10)..=(1 << 30)).contains(&size.0) {
        Ok(size)
    } else {
        Err("a block has 64 KiB to 1 GiB".to_owned())
    }
}

fn receive_buffer(value: &str) -> Result<ByteSize, String> {
    let size: ByteSize = value.parse().map_err(|e: crate::units::Error| e.to_string())?;
    if ((4 << 10)..=(1 << 30)).contains(&size.0) {
        Ok(size)
    } else {
        Err("a receive buffer has 4 KiB to 1 GiB".to_owned())
    }
}

/// The kernel's limit for names of interfaces is 15 bytes.
fn interface(value: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_graphic() && c != '/';
    if (1..=15).contains(&value.len()) && value.chars().all(fine) {
        Ok(value.to_owned())
    } else {
        Err("it is the name of a network interface, up to 15 characters".to_owned())
    }
}

fn sender(value: &str) -> Result<IpAddr, String> {
    let address: Option<IpAddr> = value.trim_matches(['[', ']']).parse().ok();
    let one_host = |address: &IpAddr| !address.is_unspecified() && !address.is_multicast();
    address.filter(one_host).ok_or_else(|| "it is the IP address of one host".to_owned())
}

/// One port to send datagrams to. [`UdpTarget::expand`] makes one per port of the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpTarget {
    /// The address or host name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How many routers a datagram may pass; `None`: 1 for a group, else as the system has it.
    pub ttl: Option<u8>,
    /// The network interface to send through.
    pub interface: Option<String>,
}

impl UdpTarget {
    /// What may follow the `?`.
    pub const PARAMETERS: &'static [Parameter] = &[
        parameter(
            "ttl",
            "8",
            "how many routers a datagram may pass; default 1 for a multicast group",
        ),
        parameter("interface", "eth0", "the network interface to send through"),
    ];

    /// Reads one endpoint and makes a target of each of its ports.
    pub fn parse(text: &str) -> Result<Vec<UdpTarget>, Error> {
        Self::expand(&text.parse()?)
    }

    /// Makes a target of each port.
    pub fn expand(endpoint: &Endpoint) -> Result<Vec<UdpTarget>, Error> {
        let (authority, ports) = udp_authority(endpoint, "target", "udp://127.0.0.1:46220")?;
        let host = &authority.host;
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(Error::Address { host: host.clone() });
        }
        let query = Query::new(endpoint, Self::PARAMETERS)?;
        let ttl = query.number("ttl", 0..=255)?.map(|ttl| ttl as u8);
        let interface = query.value("interface", interface)?;
        let of_port =
            |port| UdpTarget { host: host.clone(), port, ttl, interface: interface.clone() };
        Ok(ports.map(of_port).collect())
    }
}

impl fmt::Display for UdpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ttl = self.ttl.map(|ttl| ("ttl".to_owned(), ttl.to_string()));
        let interface = self.interface.clone().map(|name| ("interface".to_owned(), name));
        let ports = Some(self.port..=self.port);
        Endpoint {
            scheme: "udp".to_owned(),
            authority: Some(Authority { host: self.host.clone(), ports }),
            path: String::new(),
            parameters: ttl.into_iter().chain(interface).collect(),
        }
        .fmt(f)
    }
}

/// Host and ports of a `udp://` endpoint.
fn udp_authority<'a>(
    endpoint: &'a Endpoint,
    wanted: &'static str,
    example: &'static str,
) -> Result<(&'a Authority, RangeInclusive<u16>), Error> {
    if endpoint.scheme != "udp" {
        return Err(Error::Scheme { scheme: endpoint.scheme.clone(), wanted, example });
    }
    let no_ports = || Error::Ports { text: endpoint.to_string() };
    let authority = endpoint.authority.as_ref().ok_or_else(no_ports)?;
    if !matches!(endpoint.path.as_str(), "" | "/") {
        return Err(Error::Form { text: endpoint.to_string() });
    }
    Ok((authority, authority.ports.clone().ok_or_else(no_ports)?))
}

/// An address of this host or a group; `any` is taken when no host is named.
fn socket_address(host: &str, any: SocketAddr) -> Result<SocketAddr, Error> {
    match host {
        "" | "*" => Ok(any),
        "localhost" => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), any.port())),
        host if host.contains('%') => {
            let address = format!("[{host}]:{}", any.port()).parse::<SocketAddrV6>();
            address.map(SocketAddr::V6).map_err(|_| Error::Address { host: host.to_owned() })
        }
        host => {
            let ip = host.parse().map_err(|_| Error::Address { host: host.to_owned() })?;
            Ok(SocketAddr::new(ip, any.port()))
        }
    }
}

/// The path of a `file:` endpoint, which has no parameters.
pub fn file_path(endpoint: &Endpoint) -> Result<PathBuf, Error> {
    let Endpoint { scheme, authority, path, .. } = endpoint;
    if scheme != "file" {
        let scheme = scheme.clone();
        return Err(Error::Scheme { scheme, wanted: "file", example: "file:x.vdif" });
    }
    Query::new(endpoint, &[])?;
    if path.is_empty() || authority.as_ref().is_some_and(|a| !a.host.is_empty()) {
        return Err(Error::Form { text: endpoint.to_string() });
    }
    Ok(PathBuf::from(path))
}

/// Scan and stream of a `store:` endpoint: `store:r1234_no0001` or `store:r1234_no0001/46220`.
pub fn stored(endpoint: &Endpoint) -> Result<(ScanName, Option<Name>), Error> {
    const EXAMPLE: &str = "store:r1234_no0001/46220";
    let Endpoint { scheme, authority, path, .. } = endpoint;
    if scheme != "store" {
        return Err(Error::Scheme { scheme: scheme.clone(), wanted: "scan", example: EXAMPLE });
    }
    Query::new(endpoint, &[])?;
    if authority.is_some() {
        return Err(Error::Form { text: endpoint.to_string() });
    }
    let bad = |error: crate::name::Error| Error::Value {
        name: "store".to_owned(),
        value: path.clone(),
        why: error.to_string(),
        example: EXAMPLE,
    };
    let (scan, stream) = match path.split_once('/') {
        Some((scan, stream)) => (scan, Some(stream.parse().map_err(bad)?)),
        None => (path.as_str(), None),
    };
    Ok((scan.parse().map_err(bad)?, stream))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(text: &str) -> UdpSource {
        let mut sources = UdpSource::parse(text).unwrap();
        assert_eq!(sources.len(), 1, "{text}");
        sources.remove(0)
    }

    fn refused(text: &str) -> Error {
        UdpSource::parse(text).unwrap_err()
    }

    #[test]
    fn a_range_of_ports_is_one_source_each_named_for_its_port() {
        let sources = UdpSource::parse("udp://0.0.0.0:46220-46235?format=vdif").unwrap();
        assert_eq!(sources.len(), 16);
        assert_eq!(sources[15].address, "0.0.0.0:46235".parse().unwrap());
        assert_eq!(sources[15].name.as_str(), "46235");
        assert_eq!(sources[15].to_string(), "udp://0.0.0.0:46235?format=vdif");
        let named = UdpSource::parse("udp://:5000-5001?name=if").unwrap();
        assert_eq!(named[1].name.as_str(), "if5001");
    }

    #[test]
    fn nothing_said_means_vdif_learned_from_its_frames() {
        let source = one("udp://:46220");
        assert_eq!(source.address, "0.0.0.0:46220".parse().unwrap());
        assert_eq!(source.format, SourceFormat::Vdif);
        assert_eq!((source.frame_bytes, source.frames_per_second), (None, None));
        assert_eq!(source.fill, Fill::Invalid);
        assert_eq!((source.strip, source.packet_number), (0, false));
        assert_eq!(source.threads, Threads::Together);
    }

    #[test]
    fn every_parameter_is_read() {
        let source = one("udp://239.1.1.1:5000?format=vtp&frame=8032&rate=2048Mbit/s\
             &fill=omit&source=192.0.2.7&interface=eth0&rcvbuf=64MiB&gro=off&name=a&block=8MiB");
        assert!(source.address.ip().is_multicast());
        assert!(source.packet_number);
        assert_eq!(source.strip, 8);
        assert_eq!(source.frame_bytes, Some(8032));
        assert_eq!(source.frames_per_second, Some(32_000));
        let listed = one("udp://:5000?threads=0-7,9").threads;
        assert_eq!(listed, Threads::Listed(vec![0, 1, 2, 3, 4, 5, 6, 7, 9]));
        assert_eq!(source.fill, Fill::Omit);
        assert_eq!(source.sender, Some("192.0.2.7".parse().unwrap()));
        assert_eq!(source.interface.as_deref(), Some("eth0"));
        assert_eq!(source.receive_buffer, Some(ByteSize(64 << 20)));
        assert_eq!((source.gro, source.block), (Gro::Off, Some(ByteSize(8 << 20))));
        let mode = one("udp://:5000?mode=VDIF_8000-2048-16-2&threads=0-3");
        assert_eq!((mode.frame_bytes, mode.frames_per_second), (Some(8032), Some(8000)));
        let raw = one("udp://[::1]:5000?format=raw&seq=42:4:be&strip=50&frame=varying");
        assert_eq!(raw.address, "[::1]:5000".parse().unwrap());
        assert_eq!(raw.sequence.unwrap().to_string(), "42:4:be");
        assert!(raw.varying);
        assert_eq!((raw.strip, raw.fill), (50, Fill::Pattern(FILL)));
    }

    #[test]
    fn bad_input_names_the_thing_and_what_could_stand_there() {
        let error = refused("udp://:5000?farme=8032");
        assert!(error.to_string().contains("farme"), "{error}");
        assert!(error.to_string().contains("frame, fps"), "{error}");
        assert!(refused("udp://:5000?fps=1&fps=2").to_string().contains("twice"));
        for (text, word) in [
            ("udp://:5000?frame=70000", "frame=8032"),
            ("udp://:5000?fps=0", "fps=32000"),
            ("udp://:5000?format=pcap", "format=vdif"),
            ("udp://:5000?threads=0-2000", "threads=split"),
            ("udp://:5000?seq=0:9:le&format=raw", "seq=0:8:le"),
            ("udp://:5000?fill=zero", "fill=invalid"),
            ("udp://:5000?name=ds1", "name=no0001"),
            ("udp://:5000?block=1", "block=4MiB"),
            ("udp://:0", "46220"),
            ("udp://:5001-5000", "46220"),
            ("udp://:99999", "46220"),
            ("udp://0.0.0.0", "46220"),
            ("udp://host.example:5000", "0.0.0.0"),
            ("udp://::1:5000", "[::]"),
            ("5000", "udp://"),
            ("tcp://0.0.0.0:1", "udp://"),
        ] {
            let error = refused(text);
            let hint = error.hint().unwrap_or_default();
            assert!(hint.contains(word), "{text}: {error}; {hint}");
        }
        for text in [
            "udp://:5000?fps=1&rate=1MB/s",
            "udp://:5000?rate=1MB/s",
            "udp://:5000?frame=8032&rate=1234567B/s",
            "udp://:5000?frame=8031",
            "udp://:5000?frame=varying",
            "udp://:5000?seq=0:8:le",
            "udp://:5000?mode=VDIF_8000-2048-16-2&frame=1032",
            "udp://:5000?mode=VDIF_8000-2048-16-2&threads=0-6",
            "udp://:5000?mode=VDIF_8000-2048-16-2&format=raw",
            "udp://:5000?format=raw&psn=true",
            "udp://:5000?format=raw&fill=invalid",
        ] {
            assert!(matches!(refused(text), Error::Together { .. }), "{text}");
        }
    }

    #[test]
    fn a_parameter_that_could_do_nothing_is_refused_with_the_sum() {
        for (text, words) in [
            ("format=raw&frame=100&seq=96:8:le", "96 + 8 = 104"),
            ("format=raw&frame=100&strip=8&seq=102:8:le", "8 stripped + 100 of frame = 108"),
            ("format=raw&strip=8&seq=4:8:le", "across the 8 bytes"),
            ("format=raw&frame=varying&seq=65500:8:le", "65507"),
            ("format=vtp&strip=12", "8 bytes"),
            ("format=vtp&threads=split", "threads"),
            ("format=vtp&threads=0-3", "threads"),
            ("format=raw&seq=0:8:le&threads=split", "threads"),
            ("format=raw&fill=pattern", "fill"),
            ("format=raw&frame=varying&seq=0:8:le&fill=0x1", "fill"),
            ("source=0.0.0.0", "one host"),
            ("source=239.0.0.1", "one host"),
            ("source=2001:db8::1", "IPv6"),
            ("rcvbuf=0", "4 KiB"),
            ("rcvbuf=3GiB", "1 GiB"),
            ("strip=257", "256"),
        ] {
            let error = refused(&format!("udp://0.0.0.0:5000?{text}")).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        for text in [
            "format=raw&frame=100&seq=92:8:le",
            "format=raw&frame=100&strip=8&seq=100:8:le",
            "format=raw&frame=100&strip=8&seq=0:8:le",
            "format=raw&fill=omit",
            "format=vtp&strip=8",
        ] {
            one(&format!("udp://0.0.0.0:5000?{text}"));
        }
    }

    #[test]
    fn targets_files_and_scans_are_endpoints_too() {
        let targets = UdpTarget::parse("udp://recorder.example:5000-5007?ttl=8").unwrap();
        assert_eq!(targets.len(), 8);
        assert_eq!(targets[7].to_string(), "udp://recorder.example:5007?ttl=8");
        assert!(UdpTarget::parse("udp://:5000").is_err());
        let file: Endpoint = "file:/data/what%3F 1.vdif".parse().unwrap();
        assert_eq!(file_path(&file), Ok(PathBuf::from("/data/what? 1.vdif")));
        let scan: Endpoint = "store:r1234_no0001/46220".parse().unwrap();
        let (name, stream) = stored(&scan).unwrap();
        assert_eq!(
            (name.to_string().as_str(), stream.unwrap().as_str()),
            ("r1234_no0001", "46220")
        );
        assert!(stored(&"store:../x".parse().unwrap()).is_err());
    }

    #[test]
    fn what_prints_reads_back_where_the_text_could_mean_something_else() {
        let slashes: Endpoint = "file:%2F%2Fhome/x.vdif".parse().unwrap();
        assert_eq!((slashes.authority.as_ref(), slashes.path.as_str()), (None, "//home/x.vdif"));
        assert_eq!(slashes.to_string().parse(), Ok(slashes));
        for host in ["a b", "a\u{b}?", "\u{7f}", "a\t:5000"] {
            let error = format!("udp://{host}").parse::<Endpoint>().unwrap_err();
            assert!(matches!(error, Error::Address { .. }), "{host:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_what_is_read_prints_back(text in "\\PC{0,60}") {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>(), Ok(endpoint));
            }
        }

        #[test]
        fn texts_that_look_like_endpoints_do_so_too(
            text in "(udp|file|store):(//)?(\\[::1\\]|[a-z0-9.*]{0,8})(:[0-9]{0,5}(-[0-9]{1,5})?)?\
                     [/a-z%?]{0,5}(\\?[a-z]{1,5}=[^&]{0,6}(&(fps|frame|threads|seq|fill|format)=[^&]{0,6}){0,3})?"
        ) {
            if let Ok(endpoint) = text.parse::<Endpoint>() {
                prop_assert_eq!(endpoint.to_string().parse::<Endpoint>(), Ok(endpoint.clone()));
                let ports = endpoint.authority.as_ref().and_then(|a| a.ports.clone());
                if ports.is_some_and(|ports| ports.count() < 100) {
                    for source in UdpSource::expand(&endpoint).unwrap_or_default() {
                        prop_assert_eq!(UdpSource::parse(&source.to_string()), Ok(vec![source]));
                    }
                    for target in UdpTarget::expand(&endpoint).unwrap_or_default() {
                        prop_assert_eq!(UdpTarget::parse(&target.to_string()), Ok(vec![target]));
                    }
                }
            }
        }
    }
}
