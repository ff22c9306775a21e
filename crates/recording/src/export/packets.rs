//! Exports the frames of stored streams as the packets of a pcapng file, for tshark, Wireshark and other readers.
//!
//! The headers of the packets are made anew: a recording does not store them. Each stream is an interface, and the
//! packets of all streams are in the order of their times.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_core::account::{Account, Layer};
use fullbore_core::completeness::{counted, grouped};
use fullbore_core::endpoint::{Endpoint, UdpSource};
use fullbore_core::manifest::{Format, State};
use fullbore_core::name::{Name, ScanName};
use fullbore_formats::pcap::{Interface, PcapngWriter, Statistics, udp_packet};
use fullbore_replay::{FrameSource, StoredFrames};
use fullbore_store::follow;
use fullbore_store::read::Settings;
use fullbore_store::reader::{Scan, StoredStream};
use fullbore_time::Tai;
use serde::Serialize;

use super::{ExportError, in_one_word};
use crate::outcome::Outcome;

/// The port of packets whose stream had none.
const NO_PORT: u16 = 9;

/// A pcapng file that was made of a scan.
#[derive(Clone, Debug, Serialize)]
pub struct ExportedPackets {
    /// The scan.
    #[serde(serialize_with = "in_one_word")]
    pub scan: ScanName,
    /// The file.
    pub file: PathBuf,
    /// The packets of each stream.
    pub streams: Vec<PacketsOfStream>,
    /// The time that it took.
    pub seconds: f64,
}

impl ExportedPackets {
    /// True of an export of a recording that has everything that was to be recorded.
    pub fn outcome(&self) -> Outcome {
        Outcome::of(self.streams.iter().all(|it| it.recorded_whole))
    }
}

/// The packets of one stream.
#[derive(Clone, Debug, Serialize)]
pub struct PacketsOfStream {
    /// The stream.
    pub stream: Name,
    /// The number of packets.
    pub packets: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
    /// The sender in their headers.
    pub from: SocketAddr,
    /// The receiver in their headers.
    pub to: SocketAddr,
    /// True if the recording was complete, by state and account of the scan.
    pub recorded_whole: bool,
}

/// Writes the frames of a scan, or of one stream of it, to a new file. Fill in the place of absent frames is left out.
/// A block that cannot be read, or is damaged, ends the export, and no file is made.
pub fn export_packets(
    roots: &[PathBuf],
    name: &ScanName,
    only: Option<&Name>,
    path: &Path,
) -> Result<ExportedPackets, ExportError> {
    let begun = Instant::now();
    let scan = Scan::open(roots, name).map_err(follow::Error::from)?;
    let chosen = super::select(&scan, only)?;
    if let Some(stream) = chosen.iter().find(|it| !has_datagrams(it)) {
        return Err(ExportError::NoDatagrams { stream: stream.name.clone() });
    }
    let failed = |source| ExportError::Packets { path: path.to_owned(), source };
    let file = File::create_new(path).map_err(failed)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = write_all(&scan, &chosen, &mut out, &failed);
    let finished = written.and_then(|streams| out.flush().map(|()| streams).map_err(failed));
    if finished.is_err() {
        // The error says that there is no file.
        let _ = std::fs::remove_file(path);
    }
    Ok(ExportedPackets {
        scan: name.clone(),
        file: path.to_owned(),
        streams: finished?,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// True if a stream came in datagrams.
fn has_datagrams(stream: &StoredStream) -> bool {
    !stream.is_of_bytes() && !matches!(stream.format, Format::Panda { .. })
}

fn write_all(
    scan: &Scan,
    streams: &[&StoredStream],
    out: &mut impl Write,
    failed: &impl Fn(io::Error) -> ExportError,
) -> Result<Vec<PacketsOfStream>, ExportError> {
    let comment = format!("scan {}, by `fullbore convert`", scan.manifest.scan);
    let application = concat!("fullbore ", env!("CARGO_PKG_VERSION"));
    out.write_all(&PcapngWriter::section(&comment, application)).map_err(failed)?;
    let mut packets = Vec::with_capacity(streams.len());
    for stream in streams {
        let stream = Packets::open(scan, stream)?;
        let comment = stream.comment();
        let interface = Interface { name: &stream.told.stream.to_string(), comment: &comment };
        out.write_all(&PcapngWriter::interface(&interface)).map_err(failed)?;
        packets.push(stream);
    }
    let next = |packets: &[Packets<'_>]| {
        let waiting = packets.iter().enumerate().filter(|(_, it)| !it.is_over);
        waiting.min_by_key(|(_, it)| it.time).map(|(number, _)| number)
    };
    while let Some(number) = next(&packets) {
        let stream = &mut packets[number];
        let packet = stream.packet()?;
        let block = PcapngWriter::packet(number as u32, stream.time.unix_ns(), &packet);
        out.write_all(&block).map_err(failed)?;
        stream.pass()?;
    }
    for (number, stream) in packets.iter().enumerate() {
        let Some(account) = &stream.stream.account else { continue };
        let statistics = statistics(account, stream.told.packets);
        let unix_ns = stream.time.unix_ns();
        let block = PcapngWriter::statistics(number as u32, unix_ns, &statistics);
        out.write_all(&block).map_err(failed)?;
    }
    Ok(packets.into_iter().map(|stream| stream.told).collect())
}

/// The packets of one stream, in the order of its frames.
struct Packets<'a> {
    stream: &'a StoredStream,
    frames: StoredFrames<'a>,
    /// The place of the next frame in the loaded run, and its time. After the last frame, the time is that of the last.
    at: usize,
    time: Tai,
    is_over: bool,
    /// Bytes before each frame that were not stored.
    stripped_bytes: u32,
    told: PacketsOfStream,
}

impl<'a> Packets<'a> {
    fn open(scan: &'a Scan, stream: &'a StoredStream) -> Result<Self, ExportError> {
        let described = &scan.manifest.streams[stream.number];
        let (from, to) = addresses(&described.source);
        let told = PacketsOfStream {
            stream: described.name.clone(),
            packets: 0,
            bytes: 0,
            from,
            to,
            recorded_whole: scan.manifest.state == State::Sealed
                && stream.account.as_ref().is_some_and(|it| it.completeness().is_good()),
        };
        let frames = StoredFrames::open(scan, stream, None, None, Settings::default());
        let mut packets = Self {
            stream,
            frames: frames.map_err(|error| ExportError::Frames(error.into()))?,
            at: 0,
            time: scan.manifest.armed,
            is_over: false,
            stripped_bytes: described.stripped_bytes,
            told,
        };
        packets.find()?;
        Ok(packets)
    }

    /// The meaning of headers and times, for readers of the file.
    fn comment(&self) -> String {
        let to = match self.told.to.ip().is_multicast() {
            true => "",
            false => ", and so is the receiver",
        };
        let stripped = match self.stripped_bytes {
            0 => String::new(),
            bytes => {
                format!(" The {bytes} bytes before each frame were not recorded, and are left out.")
            }
        };
        let account = self.stream.account.as_ref().map_or_else(String::new, |account| {
            let terms = &account.terms;
            format!(
                " Account: {} expected, {} written, {} missing, {} overrun, {} damaged, {} late.",
                terms.expected,
                terms.written,
                terms.missing,
                terms.overrun,
                terms.damaged,
                terms.late
            )
        });
        format!(
            "The headers are made anew. The sender is a documentation address{to}. Time stamps are the times of the \
             frames, or lie evenly between the arrivals of blocks if the frames carry no time.{stripped}{account}"
        )
    }

    /// Makes the packet of the frame at the front.
    fn packet(&mut self) -> Result<Vec<u8>, ExportError> {
        let (from, to) = (self.told.from, self.told.to);
        let frame = self.frames.frame(self.at).bytes;
        let Some(packet) = udp_packet(from, to, &[frame]) else {
            return Err(
                self.unreadable(format!("a frame of {} bytes fits no datagram", frame.len()))
            );
        };
        self.told.packets += 1;
        self.told.bytes += frame.len() as u64;
        Ok(packet)
    }

    /// Goes to the next frame.
    fn pass(&mut self) -> Result<(), ExportError> {
        self.at += 1;
        self.find()
    }

    /// Goes to the next frame that is no fill, from this one on.
    fn find(&mut self) -> Result<(), ExportError> {
        loop {
            while self.at < self.frames.count() {
                let frame = self.frames.frame(self.at);
                if !frame.fill {
                    self.time = frame.time.unwrap_or(self.time);
                    return Ok(());
                }
                self.at += 1;
            }
            self.at = 0;
            let more = self.frames.advance().map_err(ExportError::Frames)?;
            if let Some(loss) = self.frames.losses().first() {
                return Err(self.unreadable(loss.clone()));
            }
            if !more {
                self.is_over = true;
                return Ok(());
            }
        }
    }

    fn unreadable(&self, why: String) -> ExportError {
        let account = self.stream.account.as_ref();
        let recorded = self.stream.blocks.iter().map(|it| u64::from(it.block.present)).sum();
        ExportError::NoPackets {
            stream: self.stream.name.clone(),
            after: grouped(self.told.packets),
            of: counted(account.map_or(recorded, |it| it.terms.written), "frame"),
            why,
        }
    }
}

/// The counts of a stream's interface: losses before the socket are those of the interface, and losses in the socket and
/// in the recorder are those of the system.
fn statistics(account: &Account, packets: u64) -> Statistics {
    let moved = |of_interface: bool| -> u64 {
        let counters = account.drop_counters.iter();
        let chosen = counters.filter(|it| (it.layer == Layer::Device) == of_interface);
        chosen.map(|it| it.moved()).fold(0, u64::saturating_add)
    };
    Statistics {
        received: packets,
        dropped_by_interface: moved(true),
        dropped_by_system: moved(false).saturating_add(account.terms.overrun),
    }
}

/// Sender and receiver of a stream's packets. The sender is not known, and the receiver only if it was a group.
fn addresses(source: &str) -> (SocketAddr, SocketAddr) {
    let udp = UdpSource::parse(source).ok().and_then(|ports| ports.into_iter().next());
    let of_capture = || {
        let endpoint: Endpoint = source.parse().ok()?;
        let port = endpoint.parameters.iter().find(|(name, _)| name == "port");
        port.and_then(|(_, port)| port.parse().ok())
    };
    let known = udp.as_ref().map(|udp| udp.address);
    let port = known.map(|it| it.port()).or_else(of_capture).unwrap_or(NO_PORT);
    // RFC 5737 and RFC 3849.
    let v6 = |last| IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
    let v4 = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
    let six = known.is_some_and(|it| it.is_ipv6() && !it.ip().is_unspecified());
    let [from, to] = if six { [v6(1), v6(2)] } else { [v4(1), v4(2)] };
    let to = known.map(|it| it.ip()).filter(IpAddr::is_multicast).unwrap_or(to);
    (SocketAddr::new(from, NO_PORT), SocketAddr::new(to, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_and_a_port_are_kept_and_other_addresses_are_of_documentation() {
        let to = |source: &str| addresses(source).1.to_string();
        assert_eq!(to("udp://239.1.2.3:5000?format=vdif"), "239.1.2.3:5000");
        assert_eq!(to("udp://[ff02::7]:5000"), "[ff02::7]:5000");
        assert_eq!(to("udp://10.0.0.1:46220"), "192.0.2.2:46220");
        assert_eq!(to("udp://[fe80::1]:46220"), "[2001:db8::2]:46220");
        assert_eq!(to("pcap:x.pcapng?port=7&format=vdif"), "192.0.2.2:7");
        assert_eq!(to("something else"), "192.0.2.2:9");
        for source in ["udp://[ff02::7]:5000", "udp://239.1.2.3:5000"] {
            let (from, to) = addresses(source);
            assert_eq!(from.is_ipv4(), to.is_ipv4());
        }
    }
}
