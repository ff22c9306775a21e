//! The datagrams to one UDP port in a packet capture (pcap or pcapng), as the input of a port.
//!
//! The file is read in large pieces. The time stamps of its packets are the arrival times. A file that ends within a
//! packet gives the packets before.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use fullbore_core::account::Layer;
use fullbore_core::endpoint::{SourceFormat, UdpSource};
use fullbore_formats::packets::PacketFormat;
use fullbore_formats::pcap::{
    Content, Datagram, Decoder, Fragments, Item, Joined, LONGEST_BLOCK, Packet, Step, parse,
};
use fullbore_formats::vita49::Prologue;
use fullbore_linux::sys::receive::Received;
use fullbore_time::Tai;

use super::detect::{DatagramContents, stripped_bytes};
use super::input::{CounterName, DatagramInput};

/// Bytes of one read: they stay in the CPU's cache until they are copied to their slots.
const PIECE: usize = 1 << 20;

/// The longest time between the first and the last datagram of a batch, which has the arrival time of its first.
const BATCH_NS: i64 = 100_000;

/// The longest packet of a network. A longer one was captured before the interface of its sender split it.
const LONGEST_OF_NETWORK: usize = 9216;

/// The packets of a capture file, one after the other, in memory of fixed size.
pub struct PacketFile {
    path: PathBuf,
    file: File,
    decoder: Decoder,
    buffer: Vec<u8>,
    /// Bytes of the buffer that are valid, and the place of the next item in them.
    filled: usize,
    at: usize,
    /// Bytes of the file that are skipped before the next read.
    skip: u64,
    at_end: bool,
    over: bool,
    fragments: Fragments,
    /// The last drop counts of each interface, by section and number.
    statistics: BTreeMap<(u32, u32), (Option<u64>, Option<u64>)>,
    /// Drops that packets tell of.
    told_drops: Option<u64>,
    damaged: u64,
    last: Option<Tai>,
    warnings: Vec<String>,
}

/// A datagram, as it was found.
pub enum Found {
    /// In one packet, whose bytes are this range of the buffer.
    Packet(Packet, Range<usize>),
    /// Joined from fragments.
    Joined(Joined),
}

impl PacketFile {
    /// Opens a capture.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut buffer = vec![0; PIECE + LONGEST_BLOCK as usize];
        let filled = read_some(&mut file, &mut buffer[..PIECE])?;
        if let Err(error) = Decoder::new().next(&buffer[..filled]) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        if filled < 4 {
            let why = "it is too short for a packet capture";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            decoder: Decoder::new(),
            buffer,
            filled,
            at: 0,
            skip: 0,
            at_end: false,
            over: false,
            fragments: Fragments::default(),
            statistics: BTreeMap::new(),
            told_drops: None,
            damaged: 0,
            last: None,
            warnings: Vec::new(),
        })
    }

    /// The bytes of a datagram.
    pub fn datagram<'a>(&'a self, found: &'a Found) -> Option<Datagram<'a>> {
        match found {
            Found::Packet(packet, range) => {
                match parse(packet.link, self.buffer.get(range.clone())?) {
                    Content::Datagram(datagram) => Some(datagram),
                    _ => None,
                }
            }
            Found::Joined(joined) => joined.datagram(),
        }
    }

    /// The time stamp of the last packet.
    pub fn time(&self) -> Option<Tai> {
        self.last
    }

    /// True if no packet follows.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Takes the warnings about the file, once it is over.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns the next datagram of the bytes in memory; `None` if more must be read with [`PacketFile::read`].
    pub fn next_here(&mut self) -> io::Result<Option<Found>> {
        while !self.over {
            let buffer = &self.buffer[self.at..self.filled];
            let step = match self.decoder.next(buffer) {
                Ok(step) => step,
                Err(error) => {
                    self.over = true;
                    let text = format!("{}: {error}", self.path.display());
                    return Err(io::Error::new(io::ErrorKind::InvalidData, text));
                }
            };
            let Step::Item { item, bytes } = step else {
                if self.at_end {
                    self.finish(buffer.len() as u64);
                }
                return Ok(None);
            };
            let start = self.at;
            let here = (buffer.len() as u64).min(bytes);
            self.at += here as usize;
            self.skip = bytes - here;
            match item {
                Item::Packet(packet) => {
                    if let Some(found) = self.take(packet, start) {
                        return Ok(Some(found));
                    }
                }
                Item::Drops { section, interface, by_interface, by_system } => {
                    self.statistics.insert((section, interface), (by_interface, by_system));
                }
                Item::Other => {}
            }
            if self.skip > 0 {
                return Ok(None);
            }
        }
        Ok(None)
    }

    fn take(&mut self, packet: Packet, start: usize) -> Option<Found> {
        if let Some(unix_ns) = packet.unix_ns {
            self.last = Some(Tai::from_unix_ns(unix_ns));
        }
        if let Some(dropped) = packet.dropped {
            self.told_drops = Some(self.told_drops.unwrap_or(0).saturating_add(dropped));
        }
        let range = start + packet.data.start..start + packet.data.end;
        match parse(packet.link, &self.buffer[range.clone()]) {
            Content::Datagram(_) => Some(Found::Packet(packet, range)),
            Content::Fragment(part) => self.fragments.take(&part).map(Found::Joined),
            Content::Other => None,
            Content::Damaged => {
                self.damaged += 1;
                None
            }
        }
    }

    /// Reads the next piece of the file. Ranges of packets found before are no longer valid.
    pub fn read(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.at..self.filled, 0);
        (self.filled, self.at) = (self.filled - self.at, 0);
        while self.skip > 0 && !self.at_end {
            let most = self.buffer.len().min(usize::try_from(self.skip).unwrap_or(usize::MAX));
            let read = read_some(&mut self.file, &mut self.buffer[..most])?;
            self.skip -= read as u64;
            self.at_end = read == 0;
        }
        if self.at_end {
            return Ok(());
        }
        let end = (self.filled + PIECE).min(self.buffer.len());
        let read = read_some(&mut self.file, &mut self.buffer[self.filled..end])?;
        self.filled += read;
        self.at_end = read == 0;
        Ok(())
    }

    fn finish(&mut self, left: u64) {
        self.over = true;
        let path = self.path.display();
        if left > 0 || self.skip > 0 {
            self.warnings.push(format!(
                "{path} is cut: it ends within a packet or block, of which {left} bytes are there. All packets before \
                 are read"
            ));
        }
        if self.damaged > 0 {
            let damaged = self.damaged;
            self.warnings.push(format!(
                "{path}: {damaged} packets have headers that are cut or contradict themselves. They are not read"
            ));
        }
        let unjoined = self.fragments.unjoined();
        if unjoined > 0 {
            self.warnings.push(format!(
                "{path}: fragments of {unjoined} datagrams are missing. These datagrams are not read"
            ));
        }
    }

    /// Packets that the capture lost, if the file says so.
    fn dropped(&self) -> Option<u64> {
        let values = self.statistics.values();
        let told = values.filter(|(interface, system)| interface.is_some() || system.is_some());
        let counts = told
            .map(|(interface, system)| interface.unwrap_or(0).saturating_add(system.unwrap_or(0)));
        counts
            .fold(None, |sum: Option<u64>, it| Some(sum.unwrap_or(0).saturating_add(it)))
            .or(self.told_drops)
    }
}

/// Reads once, again after a signal.
fn read_some(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match file.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A datagram to the port, in the order of the file.
struct Queued {
    found: Found,
    arrival: Tai,
}

/// The datagrams to one port, as a port receives them.
pub struct FileInput {
    file: PacketFile,
    source: UdpSource,
    queue: VecDeque<Queued>,
    emptied: bool,
    cut: u64,
    told: bool,
}

impl FileInput {
    /// The datagrams of the capture to the port of `source`.
    pub fn open(path: &Path, source: UdpSource) -> io::Result<Self> {
        let file = PacketFile::open(path)?;
        Ok(Self { file, source, queue: VecDeque::new(), emptied: false, cut: 0, told: false })
    }

    /// The length of each datagram in a packet that holds several: the interface of the sender was to split it.
    fn segment(&self, payload: &[u8]) -> Option<usize> {
        let strip = stripped_bytes(&self.source) as usize;
        if let Some(frame_bytes) = self.source.frame_bytes {
            let bytes = strip + frame_bytes as usize;
            return (payload.len() > bytes).then_some(bytes);
        }
        if matches!(self.source.format, SourceFormat::Packets { format: PacketFormat::Vita49, .. })
        {
            return packet_segment(payload.get(strip..)?).filter(|_| strip == 0);
        }
        if payload.len() <= LONGEST_OF_NETWORK || strip > 0 {
            return None;
        }
        match DatagramContents::of(&self.source, payload) {
            Some(DatagramContents::Several { frame_bytes, .. }) => Some(frame_bytes),
            _ => None,
        }
    }
}

/// Returns the length of each packet of VITA-49, if a payload holds several and nothing else: all have that of the first,
/// and the last one may be shorter.
fn packet_segment(payload: &[u8]) -> Option<usize> {
    let length = |packet: &[u8]| Prologue::read(packet).ok().map(|it| 4 * usize::from(it.words));
    let segment = length(payload).filter(|segment| *segment < payload.len())?;
    let mut packets = payload.chunks(segment);
    packets.all(|packet| length(packet) == Some(packet.len())).then_some(segment)
}

impl DatagramInput for FileInput {
    fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        let Some(first) = self.queue.front().map(|queued| queued.arrival) else {
            self.emptied = true;
            return Ok(0);
        };
        let mut count = 0;
        for (message, parts) in received.iter_mut().zip(slices.chunks_exact_mut(per_message)) {
            let Some(next) = self.queue.front() else { break };
            if next.arrival.since(first).unsigned_abs() > BATCH_NS as u64 {
                break;
            }
            let Some(next) = self.queue.pop_front() else { break };
            let datagram = self.file.datagram(&next.found).expect("it was found there");
            let mut rest = datagram.payload;
            for part in parts {
                let (now, later) = rest.split_at(rest.len().min(part.len()));
                part[..now.len()].copy_from_slice(now);
                rest = later;
            }
            let sender: IpAddr = datagram.addresses.source;
            *message = Received {
                bytes: datagram.payload.len(),
                segment: self.segment(datagram.payload),
                sender: Some(sender),
            };
            self.cut += u64::from(datagram.is_cut());
            count += 1;
        }
        self.emptied = self.queue.is_empty();
        Ok(count)
    }

    fn emptied(&self) -> bool {
        self.emptied
    }

    fn drops(&self) -> io::Result<u64> {
        match self.file.dropped() {
            Some(dropped) => Ok(dropped),
            // Nothing is read before the first scan.
            None if self.file.time().is_none() => Ok(0),
            None => Err(io::Error::other("the capture tells of no dropped packets up to here")),
        }
    }

    fn counter(&self) -> Option<CounterName> {
        let scope = self.file.path.display().to_string();
        let (layer, counter) = (Layer::Device, "isb_ifdrop + isb_osdrop");
        Some(CounterName { layer, counter, scope, own: false, coarse: false })
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn read_ahead(&mut self) -> io::Result<()> {
        if !self.queue.is_empty() || self.file.is_over() {
            return Ok(());
        }
        self.file.read()?;
        while let Some(found) = self.file.next_here()? {
            let port = self.source.address.port();
            let Some(datagram) = self.file.datagram(&found).filter(|it| it.port == port) else {
                continue;
            };
            // Without a known length, nothing else shows that it is not whole.
            if datagram.is_cut() && self.source.varying {
                self.cut += 1;
            } else {
                let arrival = self.file.time().unwrap_or(Tai(0));
                self.queue.push_back(Queued { found, arrival });
            }
        }
        Ok(())
    }

    fn arrival(&self) -> Option<Tai> {
        self.queue.front().map(|queued| queued.arrival).or(self.file.time())
    }

    fn is_over(&self) -> bool {
        self.queue.is_empty() && self.file.is_over()
    }

    fn take_warnings(&mut self) -> Vec<String> {
        if self.is_over() && !std::mem::replace(&mut self.told, true) && self.cut > 0 {
            let (endpoint, cut) = (&self.source.endpoint, self.cut);
            self.file.warnings.push(format!(
                "{endpoint}: {cut} datagrams are cut by the snapshot length of the capture{}",
                if self.source.varying { ". They are left out" } else { "" }
            ));
        }
        self.file.take_warnings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data packet of this many words, with a stream id.
    fn packet(words: u8) -> Vec<u8> {
        let mut packet = vec![0; 4 * usize::from(words)];
        (packet[0], packet[3], packet[7]) = (0x10, words, 5);
        packet
    }

    #[test]
    fn several_packets_in_one_datagram_are_split_and_damaged_ones_are_not() {
        let several = [packet(9), packet(9), packet(4)].concat();
        assert_eq!(packet_segment(&several), Some(36));
        assert_eq!(packet_segment(&packet(9)), None);
        assert_eq!(packet_segment(&[packet(9), packet(12)].concat()), None);
        assert_eq!(packet_segment(&[packet(4), packet(9)].concat()), None);
        for extra in 1..64 {
            assert_eq!(packet_segment(&[packet(9), vec![0xA5; extra]].concat()), None);
        }
        for cut in 1..several.len() {
            assert_eq!(packet_segment(&several[..cut]).is_some(), cut == 72, "{cut}");
        }
    }
}
