//! `udp://address:ports?…` as a source: the selection and the format of its datagrams.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use fullbore_formats::FILL;
use fullbore_formats::framed::FrameKind;
use fullbore_formats::packets::PacketFormat;
use fullbore_formats::sequence::Field;
use fullbore_formats::spead::Divide;
use fullbore_formats::vdif::{Mode, thread_list};

use super::error::together;
use super::query::{Parameter, Query, parameter};
use super::samples::{SAMPLE_PARAMETERS, sample_layout};
use super::udp::{interface, socket_address, udp_authority};
use super::udp_frames::{FrameLength, FrameSize, check_sequence, frame_bytes};
use super::{Authority, Endpoint, Error};
use crate::account::CountedBy;
use crate::hint::Hint;
use crate::manifest::Fill;
use crate::name::Name;
use crate::units::ByteSize;
use serde::{Deserialize, Serialize};

/// The largest number of bytes that can be stripped from the start of a datagram.
pub const LONGEST_STRIP: u32 = 256;

/// Bytes of the packet number before each VTP frame.
pub const PACKET_NUMBER_BYTES: u32 = 8;

/// The contents of a source's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceFormat {
    /// One frame in each, with its own time.
    Frames(FrameKind),
    /// One packet in each that tells its stream.
    Packets {
        /// The format of the packets.
        format: PacketFormat,
        /// True if the packets are checked by the rules of DIFI.
        difi: bool,
    },
    /// Any other data.
    Raw,
}

/// The handling of several VDIF threads on one port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Threads {
    /// All threads in one stream, in order of arrival.
    Together,
    /// One stream for each thread, `<name>t<thread>`.
    Split,
    /// These threads side by side in one stream, in this order, for any order of arrival.
    Listed(Vec<u16>),
}

/// The policy for packet merging by the kernel (GRO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gro {
    /// On if packets are seen to be merged.
    #[default]
    Auto,
    /// Always on.
    On,
    /// Always off.
    Off,
}

/// The way in which datagrams come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// A UDP socket.
    #[default]
    Udp,
    /// A packet ring.
    Packet,
    /// XDP sockets on the queues of its interface.
    Xdp,
    /// The fastest of these that this process may use.
    Auto,
}

/// One receiving port. [`UdpSource::expand`] makes one per port of the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpSource {
    /// The endpoint of this port alone.
    pub endpoint: Endpoint,
    /// The address to bind to; for a multicast address, the group to join.
    pub address: SocketAddr,
    /// The network interface that datagrams must come through.
    pub interface: Option<String>,
    /// The only accepted sender of datagrams.
    pub sender: Option<IpAddr>,
    /// The contents of the datagrams.
    pub format: SourceFormat,
    /// Bytes of each frame, without the stripped bytes; `None`: as the first good frame.
    pub frame_bytes: Option<u32>,
    /// True if frames differ in length.
    pub varying: bool,
    /// Frames per second of each thread; `None`: derived from the frames.
    pub frames_per_second: Option<u64>,
    /// The mode that frame length and rate were taken from.
    pub mode: Option<Mode>,
    /// True if a packet number of eight bytes precedes each VDIF frame (VTP). It is not kept.
    pub packet_number: bool,
    /// The handling of several threads.
    pub threads: Threads,
    /// The sequence field of raw datagrams; its offset counts from the start of the datagram.
    pub sequence: Option<Field>,
    /// Bytes to strip from the start of each datagram.
    pub strip: u32,
    /// The fill for missing frames.
    pub fill: Fill,
    /// The socket buffer to request; `None`: 64 MiB.
    pub receive_buffer: Option<ByteSize>,
    /// The policy for packet merging by the kernel (GRO).
    pub gro: Gro,
    /// The way in which datagrams come from the kernel.
    pub engine: Engine,
    /// Name of the stream.
    pub name: Name,
    /// The approximate size of blocks; `None`: about 4 MiB.
    pub block: Option<ByteSize>,
}

impl UdpSource {
    /// The parameters that may follow the `?`.
    pub const PARAMETERS: &'static [Parameter] = &[
        parameter(
            "format",
            "vdif",
            "vdif, vtp (vdif behind a packet number), mark5b, vita49, difi, spead, rtp, gvsp or raw (any datagrams); default vdif",
        ),
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
            "frame length and total rate in the notation of VLBI recorders",
        ),
        parameter("psn", "true", "an 8-byte packet number precedes each frame; default false"),
        parameter(
            "threads",
            "split",
            "together, split into streams, or a list such as 0-7,9; default together, where a thread that begins late \
             gets a stream of its own",
        ),
        parameter(
            "divide",
            "item:0x4101",
            "what divides SPEAD packets into streams: an item, or heaps:N if N senders take turns in the heap count; \
             default: one stream",
        ),
        parameter("seq", "0:8:le", "sequence field of raw datagrams: offset, width, le or be"),
        parameter(
            "strip",
            "8",
            "bytes at the start of each datagram that are not kept; default 0, with psn 8",
        ),
        parameter(
            "fill",
            "invalid",
            "for missing frames: invalid (with their header), pattern, a word such as 0x11223344, or omit",
        ),
        parameter("source", "192.0.2.7", "take datagrams of this sender only"),
        parameter(
            "interface",
            "eth0",
            "the network interface to listen on; for a group, to join it on",
        ),
        parameter("rcvbuf", "64MiB", "socket buffer to request; default: 64MiB"),
        parameter("gro", "auto", "let the kernel merge packets: auto, on or off; default auto"),
        parameter(
            "engine",
            "auto",
            "receive from a socket (udp), a packet ring (packet, needs CAP_NET_RAW), by XDP (xdp, needs CAP_NET_RAW, \
             CAP_NET_ADMIN and CAP_BPF), or the fastest that is allowed (auto); default udp",
        ),
        parameter(
            "name",
            "no0001",
            "name of the stream, with the port behind it if there are several; default the port",
        ),
        parameter("block", "4MiB", "approximate block size; default about 4 MiB"),
    ];

    /// Reads one endpoint and makes a source of each of its ports.
    pub fn parse(text: &str) -> Result<Vec<UdpSource>, Error> {
        Self::expand(&text.parse()?)
    }

    /// Returns the number by which its frames are counted.
    pub fn counted_by(&self) -> CountedBy {
        match self.format {
            SourceFormat::Packets {
                format: PacketFormat::Spead(_) | PacketFormat::Gvsp, ..
            } => CountedBy::SequenceField,
            SourceFormat::Frames(_) | SourceFormat::Packets { .. } => CountedBy::FrameTime,
            SourceFormat::Raw if self.sequence.is_some() => CountedBy::SequenceField,
            SourceFormat::Raw => CountedBy::Nothing,
        }
    }

    /// Makes a source of each port.
    pub fn expand(endpoint: &Endpoint) -> Result<Vec<UdpSource>, Error> {
        let (authority, ports) =
            udp_authority(endpoint, "source", "udp://0.0.0.0:46220?format=vdif")?;
        let query = Query::with(endpoint, Self::PARAMETERS, SAMPLE_PARAMETERS)?;
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
        let query = Query::with(&endpoint, Self::PARAMETERS, SAMPLE_PARAMETERS)?;
        let (mut format, vtp) = query
            .value("format", source_format)?
            .unwrap_or((SourceFormat::Frames(FrameKind::Vdif), false));
        let framed = format != SourceFormat::Raw;
        let samples = sample_layout(&endpoint)?;
        if samples.is_some() && format == SourceFormat::Frames(FrameKind::Vdif) {
            return Err(together(
                "the headers of VDIF frames describe the samples: omit `samples`",
            ));
        }
        let divide: Option<Divide> = query.parsed("divide")?;
        if let SourceFormat::Packets { format: PacketFormat::Spead(by), .. } = &mut format {
            *by = divide.unwrap_or_default();
        } else if divide.is_some() {
            return Err(together("`divide` is for format=spead"));
        }
        let packets = matches!(format, SourceFormat::Packets { .. });
        if let SourceFormat::Packets { format, .. } = format
            && let Some(name) = VDIF_ONLY.into_iter().find(|name| query.text(name).is_some())
        {
            let title = format.kind().title();
            return Err(together(format!(
                "`{name}` is not for {title}: its packets tell their stream, count and length"
            )));
        }
        let packet_number = query.flag("psn")?.unwrap_or(vtp);
        if packet_number && format == SourceFormat::Raw {
            return Err(together("`psn` is for VDIF frames; for raw datagrams write seq=0:8:le"));
        }
        let sequence = query.parsed("seq")?;
        if sequence.is_some() && framed {
            return Err(together("`seq` is for format=raw; VDIF frames are counted by their time"));
        }
        let own_strip = if packet_number { PACKET_NUMBER_BYTES } else { 0 };
        let given_strip = query.number("strip", 0..=LONGEST_STRIP.into())?;
        let strip = given_strip.map_or(own_strip, |strip| strip as u32);
        if packet_number && strip != PACKET_NUMBER_BYTES {
            return Err(together(format!(
                "the packet number has {PACKET_NUMBER_BYTES} bytes, which are stripped: omit `strip={strip}`"
            )));
        }
        let usual = if packets { Threads::Split } else { Threads::Together };
        let threads = query.value("threads", threads)?.unwrap_or(usual);
        if threads != Threads::Together && format == SourceFormat::Raw {
            return Err(together("`threads` is for VDIF frames: not with format=raw"));
        }
        if let (SourceFormat::Frames(kind), Threads::Listed(list)) = (format, &threads)
            && list.iter().any(|thread| *thread >= kind.threads())
        {
            let (title, threads) = (kind.title(), kind.threads());
            return Err(together(format!("{title} has {threads} thread: leave out `threads`")));
        }
        let frame = query.value("frame", frame_bytes)?;
        check_sequence(sequence.as_ref(), strip, frame)?;
        let mode = query.value("mode", |value| {
            Mode::parse(value)
                .map_err(|error| format!("{error}: {}", error.hint().unwrap_or_default()))
        })?;
        let size = FrameSize { frame, strip, format, mode };
        let default_fill = match format {
            SourceFormat::Frames(_) => Fill::Invalid,
            SourceFormat::Packets { .. } => Fill::Omit,
            SourceFormat::Raw => Fill::Pattern(FILL),
        };
        let given_fill = query.value("fill", fill)?;
        let uncounted = format == SourceFormat::Raw && sequence.is_none();
        let unfilled = uncounted || frame == Some(FrameLength::Varying);
        if unfilled && matches!(given_fill, Some(Fill::Pattern(_))) {
            return Err(together(
                "`fill` needs frames of one length (`frame`) and a sequence field (`seq`); without them, use omit",
            ));
        }
        let fill = given_fill.unwrap_or(default_fill);
        if fill == Fill::Invalid && format == SourceFormat::Raw {
            return Err(together(
                "`fill=invalid` makes VDIF frames; for format=raw use pattern or omit",
            ));
        }
        let sender = query.value("source", sender)?;
        // The IPv6 wildcard accepts both families.
        let any = address.is_ipv6() && address.ip().is_unspecified();
        if sender.is_some_and(|sender| sender.is_ipv4() != address.is_ipv4() && !any) {
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
            varying: packets || frame == Some(FrameLength::Varying),
            frames_per_second: size.frames_per_second(&query, &threads)?,
            mode,
            packet_number,
            threads,
            sequence,
            strip,
            fill,
            receive_buffer: query.value("rcvbuf", receive_buffer)?,
            gro: query.value("gro", gro)?.unwrap_or_default(),
            engine: query.value("engine", engine)?.unwrap_or_default(),
            name,
            block: query.value("block", block)?,
            endpoint,
        })
    }
}

impl fmt::Display for UdpSource {
    /// Writes the endpoint of this port, which parses to the same source.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

/// The parameters that packets with their own stream and count make needless.
const VDIF_ONLY: [&str; 8] = ["psn", "seq", "threads", "frame", "fps", "rate", "mode", "fill"];

/// Reads the name of a format, and whether a packet number precedes its frames.
fn source_format(value: &str) -> Result<(SourceFormat, bool), String> {
    let name = value.to_ascii_lowercase();
    match (name.as_str(), FrameKind::named(&name)) {
        ("vtp", _) => Ok((SourceFormat::Frames(FrameKind::Vdif), true)),
        ("raw", _) => Ok((SourceFormat::Raw, false)),
        (_, Some(kind)) => Ok((SourceFormat::Frames(kind), false)),
        (_, None) => {
            if let Some(format) = PacketFormat::named(&name) {
                return Ok((SourceFormat::Packets { format, difi: name == "difi" }, false));
            }
            let names: Vec<&str> = FrameKind::ALL.iter().map(|kind| kind.name()).collect();
            Err(format!("it is {}, vtp, vita49, difi, spead, rtp, gvsp or raw", names.join(", ")))
        }
    }
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

fn engine(value: &str) -> Result<Engine, String> {
    match value {
        "udp" => Ok(Engine::Udp),
        "packet" => Ok(Engine::Packet),
        "xdp" => Ok(Engine::Xdp),
        "auto" => Ok(Engine::Auto),
        _ => Err("it is auto, udp, packet or xdp".to_owned()),
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

fn sender(value: &str) -> Result<IpAddr, String> {
    let address: Option<IpAddr> = value.trim_matches(['[', ']']).parse().ok();
    let one_host = |address: &IpAddr| !address.is_unspecified() && !address.is_multicast();
    address.filter(one_host).ok_or_else(|| "it is the IP address of one host".to_owned())
}

#[cfg(test)]
mod tests {
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
        assert_eq!(source.format, SourceFormat::Frames(FrameKind::Vdif));
        assert_eq!((source.frame_bytes, source.frames_per_second), (None, None));
        assert_eq!(source.fill, Fill::Invalid);
        assert_eq!((source.strip, source.packet_number), (0, false));
        assert_eq!(source.threads, Threads::Together);
    }

    #[test]
    fn every_parameter_is_read() {
        let source = one("udp://239.1.1.1:5000?format=vtp&frame=8032&rate=2048Mbit/s\
             &fill=omit&source=192.0.2.7&interface=eth0&rcvbuf=64MiB&gro=off&engine=packet&name=a&block=8MiB");
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
        assert_eq!(source.engine, Engine::Packet);
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
            ("udp://:5000?divide=item:1&format=spead", "divide=item:0x4101"),
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
            ("format=rtp&divide=heaps:4", "format=spead"),
            ("format=spead&fps=4", "SPEAD"),
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
}
