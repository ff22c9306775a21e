//! Exports the frames of stored streams as the packets of a pcapng file, for tshark, Wireshark and other readers.
//!
//! The headers of the packets are made anew: a recording does not store them. Streams follow one another in the file, an
//! interface each; programs such as reordercap sort packets by time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_core::account::Account;
use fullbore_core::endpoint::{Endpoint, UdpSource};
use fullbore_core::index::Block;
use fullbore_core::name::{Name, ScanName};
use fullbore_formats::pcap::{PcapngWriter, udp_packet};
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, Scan, StoredStream};
use serde::Serialize;

use super::ExportError;

/// The port of packets whose stream had none.
const NO_PORT: u16 = 9;

/// A pcapng file that was made of a scan.
#[derive(Clone, Debug, Serialize)]
pub struct ExportedPackets {
    /// The scan.
    pub scan: ScanName,
    /// The file.
    pub file: PathBuf,
    /// The packets of each stream.
    pub streams: Vec<PacketsOfStream>,
    /// The time that it took.
    pub seconds: f64,
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
    /// The addresses in their headers.
    pub from: SocketAddr,
    /// The receiver in their headers.
    pub to: SocketAddr,
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
    let scan = Scan::open(roots, name).map_err(fullbore_store::follow::Error::from)?;
    let chosen: Vec<&StoredStream> =
        scan.streams.iter().filter(|it| only.is_none_or(|only| it.name == only.as_str())).collect();
    if chosen.is_empty() {
        return Err(ExportError::NoStreams { scan: name.clone() });
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

fn write_all(
    scan: &Scan,
    streams: &[&StoredStream],
    out: &mut impl Write,
    failed: &impl Fn(io::Error) -> ExportError,
) -> Result<Vec<PacketsOfStream>, ExportError> {
    let comment = format!("scan {}, by `fullbore convert`", scan.manifest.scan);
    let application = concat!("fullbore ", env!("CARGO_PKG_VERSION"));
    out.write_all(&PcapngWriter::section(&comment, application)).map_err(failed)?;
    let ends: Vec<(SocketAddr, SocketAddr)> = streams
        .iter()
        .map(|stream| addresses(&scan.manifest.streams[stream.number].source))
        .collect();
    for (stream, (_, to)) in streams.iter().zip(&ends) {
        let comment = format!(
            "The headers are made anew. The sender is a documentation address{}. Time stamps are those of the frames, \
             or the arrival of their block",
            if to.ip().is_multicast() { "" } else { ", and so is the receiver" }
        );
        out.write_all(&PcapngWriter::interface(&stream.name, &comment)).map_err(failed)?;
    }
    let mut told = Vec::new();
    for (number, (stream, (from, to))) in streams.iter().zip(ends).enumerate() {
        let packets = Packets { scan, stream, interface: number as u32, from, to };
        told.push(packets.write(out, failed)?);
    }
    Ok(told)
}

/// The packets of one stream.
struct Packets<'a> {
    scan: &'a Scan,
    stream: &'a StoredStream,
    interface: u32,
    from: SocketAddr,
    to: SocketAddr,
}

impl Packets<'_> {
    fn write(
        &self,
        out: &mut impl Write,
        failed: &impl Fn(io::Error) -> ExportError,
    ) -> Result<PacketsOfStream, ExportError> {
        let Self { stream, from, to, .. } = *self;
        let unreadable = |packets: u64, why: String| ExportError::Unreadable {
            stream: stream.name.clone(),
            after: packets.to_string(),
            of: stream.account.as_ref().map_or(0, |account| account.terms.written).to_string(),
            why,
        };
        let (mut packets, mut bytes, mut last) = (0, 0, 0);
        let reader = stream.read(0..stream.blocks.len(), Settings::default());
        for item in reader.map_err(|error| unreadable(0, error.to_string()))? {
            let block = match item {
                Item::Lost(finding) => return Err(unreadable(packets, finding.to_string())),
                Item::Block(block) => block,
            };
            let record = &block.location.block;
            let lengths = self.scan.lengths(&block.location).map_err(failed)?;
            for (frame, unix_ns) in self.frames(record, block.bytes(), &lengths) {
                let Some(packet) = udp_packet(from, to, &[frame]) else {
                    let why = format!("a frame of {} bytes fits no UDP datagram", frame.len());
                    return Err(unreadable(packets, why));
                };
                let packet = PcapngWriter::packet(self.interface, unix_ns, &packet);
                out.write_all(&packet).map_err(failed)?;
                (packets, bytes, last) = (packets + 1, bytes + frame.len() as u64, unix_ns);
            }
        }
        let dropped = stream.account.as_ref().map_or(0, drops);
        let statistics = PcapngWriter::statistics(self.interface, last, packets, dropped);
        out.write_all(&statistics).map_err(failed)?;
        let stream = self.scan.manifest.streams[stream.number].name.clone();
        Ok(PacketsOfStream { stream, packets, bytes, from, to })
    }

    /// The frames of a block that are no fill, each with its time.
    fn frames<'b>(
        &'b self,
        record: &Block,
        bytes: &'b [u8],
        lengths: &[u16],
    ) -> Vec<(&'b [u8], i128)> {
        if !lengths.is_empty() {
            let seen = record.seen.unix_ns();
            let mut rest = bytes;
            let cut = |length: &u16| {
                let (frame, later) = rest.split_at(usize::from(*length).min(rest.len()));
                rest = later;
                (frame, seen)
            };
            return lengths.iter().map(cut).collect();
        }
        let clock = self.stream.codec.map(|_| self.stream.clock_of(record));
        let frames = self.stream.frames(record, bytes).filter(|frame| !frame.fill);
        let timed = frames.map(|frame| {
            let time = clock.as_ref().map_or(record.seen, |clock| clock.time(frame.index));
            (frame.bytes, time.unix_ns())
        });
        timed.collect()
    }
}

/// Frames that arrived and were not recorded, as far as counted here: no block was free, or a counter of the stream's own
/// socket moved.
fn drops(account: &Account) -> u64 {
    let own = account.drop_counters.iter().filter(|counter| counter.own);
    account.terms.overrun + own.map(|counter| counter.moved()).sum::<u64>()
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
