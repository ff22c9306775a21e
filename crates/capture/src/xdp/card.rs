//! The facts of an interface that XDP needs, and the memory of its queues.

use std::path::Path;

use fullbore_linux::sys::xdp::{HEADROOM, LEAST_CHUNK};

use super::program::ETHERNET;

/// The memory for each source, unless its endpoint states it.
const BYTES_OF_SOURCE: u64 = 16 << 20;

/// The least memory of an interface, unless its endpoints state it.
const LEAST_BYTES: u64 = 64 << 20;

/// The most memory of an interface.
const MOST_BYTES: u64 = 1 << 30;

/// The fewest chunks of a queue: twice the longest receive ring of common cards, which takes as many from the fill ring.
const LEAST_CHUNKS: u64 = 4096;

/// The largest chunk: a page.
const MOST_CHUNK: usize = 4096;

/// Bytes that a VLAN tag adds in front of the packet, if the card leaves it there.
const TAG: usize = 4;

/// The most queues of an interface.
const MOST_QUEUES: usize = 256;

/// The hardware type of Ethernet, and of the loopback interface, as `linux/if_arp.h` numbers them.
const IS_ETHERNET: &str = "1";
const IS_LOOPBACK: &str = "772";

/// A property of an interface that AF_XDP cannot do with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// The loopback interface.
    #[error("it is the loopback interface, whose driver runs no XDP program")]
    Loopback,
    /// It has no Ethernet header.
    #[error("its packets have no Ethernet header")]
    NoEthernet,
    /// A VLAN, a bond or a bridge.
    #[error(
        "it is made of other interfaces (VLAN, bond, bridge), and XDP runs in the driver of a card"
    )]
    Stacked,
    /// It does not exist, or `/sys` does not tell of it.
    #[error("its properties cannot be read in /sys/class/net")]
    Unknown,
}

/// Returns the memory of an interface: what the endpoints of its sources state, and enough for the others.
pub fn memory(stated: impl Iterator<Item = Option<u64>>) -> u64 {
    let stated: Vec<Option<u64>> = stated.collect();
    let least = if stated.iter().all(Option::is_some) { 0 } else { LEAST_BYTES };
    let each = stated.into_iter().map(|it| it.unwrap_or(BYTES_OF_SOURCE));
    each.fold(0, u64::saturating_add).clamp(least, MOST_BYTES)
}

/// The facts of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its Ethernet address.
    pub ethernet: [u8; 6],
    /// The longest packet of the network, in bytes.
    pub mtu: usize,
    /// The number of its receive queues.
    pub queues: u32,
}

impl Card {
    /// Reads them in `directory`, which is `/sys/class/net`.
    pub fn read(directory: &Path, name: &str) -> Result<Self, Unfit> {
        if name.contains('/') || name.starts_with('.') {
            return Err(Unfit::Unknown);
        }
        let path = directory.join(name);
        let read = |file: &str| {
            let text = std::fs::read_to_string(path.join(file)).map_err(|_| Unfit::Unknown)?;
            Ok(text.trim().to_owned())
        };
        match read("type")?.as_str() {
            IS_ETHERNET => {}
            IS_LOOPBACK => return Err(Unfit::Loopback),
            _ => return Err(Unfit::NoEthernet),
        }
        let entries = |path: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        let of_card = entries(&path);
        if of_card.iter().any(|it| it.starts_with("lower_") || it == "bridge" || it == "bonding") {
            return Err(Unfit::Stacked);
        }
        let text = read("address")?;
        let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16));
        let bytes: Vec<u8> = bytes.collect::<Result<_, _>>().map_err(|_| Unfit::Unknown)?;
        let ethernet = bytes.try_into().map_err(|_| Unfit::Unknown)?;
        let mtu = read("mtu")?.parse().map_err(|_| Unfit::Unknown)?;
        let queues =
            entries(&path.join("queues")).iter().filter(|it| it.starts_with("rx-")).count();
        Ok(Self { ethernet, mtu, queues: queues.clamp(1, MOST_QUEUES) as u32 })
    }

    /// The shape of the memory of each queue, if all queues have this much together.
    pub fn shape(&self, bytes: u64) -> Shape {
        let longest = self.mtu + ETHERNET + TAG;
        let chunk_bytes = if longest <= LEAST_CHUNK - HEADROOM { LEAST_CHUNK } else { MOST_CHUNK };
        let of_queue = |bytes: u64| bytes / u64::from(self.queues) / chunk_bytes as u64;
        // The least is more than its share for many queues, but never more than the most for all.
        let least = LEAST_CHUNKS.min(of_queue(MOST_BYTES));
        let chunks = of_queue(bytes).max(least).max(1);
        let chunks = 1u32 << chunks.ilog2();
        Shape { chunk_bytes, chunks, in_parts: longest > chunk_bytes - HEADROOM }
    }
}

/// The memory of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// The number of chunks, a power of two.
    pub chunks: u32,
    /// True if packets may be longer than a chunk.
    pub in_parts: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(mtu: usize, queues: u32) -> Card {
        Card { ethernet: [2, 0, 0, 0, 0, 1], mtu, queues }
    }

    #[test]
    fn memory_has_what_endpoints_state_and_chunks_that_hold_the_packets() {
        let shape = |mtu, queues, bytes| {
            let Shape { chunk_bytes, chunks, in_parts } = card(mtu, queues).shape(bytes);
            (chunk_bytes, chunks, in_parts)
        };
        assert_eq!(shape(1500, 1, 64 << 20), (2048, 32_768, false));
        assert_eq!(shape(1774, 1, 64 << 20), (2048, 32_768, false));
        assert_eq!(shape(1775, 1, 64 << 20), (4096, 16_384, false));
        assert_eq!(shape(3822, 1, 64 << 20), (4096, 16_384, false));
        assert_eq!(shape(3823, 1, 64 << 20), (4096, 16_384, true));
        assert_eq!(shape(9000, 4, 256 << 20), (4096, 16_384, true));
        assert_eq!(shape(9000, 3, 256 << 20), (4096, 16_384, true), "a power of two");
        assert_eq!(shape(9000, 16, 64 << 20), (4096, 4096, true), "the least of a queue");
        assert_eq!(shape(9000, 256, 64 << 20), (4096, 1024, true), "the most of all");
        let memory = |stated: &[Option<u64>]| memory(stated.iter().copied());
        assert_eq!(memory(&[None]), 64 << 20);
        assert_eq!(memory(&[None; 16]), 256 << 20);
        assert_eq!(memory(&[Some(8 << 20); 2]), 16 << 20);
        assert_eq!(memory(&[Some(u64::MAX), None]), 1 << 30);
    }

    #[test]
    fn an_interface_is_read_and_one_that_runs_no_program_is_told_why() {
        let root = tempfile::tempdir().unwrap();
        for (name, kind, extra) in [
            ("eth0", "1", "queues/rx-0"),
            ("lo", "772", "queues/rx-0"),
            ("tun0", "65534", "queues/rx-0"),
            ("eth0.5", "1", "lower_eth0"),
            ("br0", "1", "bridge"),
        ] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.join(extra)).unwrap();
            for (file, text) in [("type", kind), ("mtu", "9000"), ("address", "02:00:00:00:00:01")]
            {
                std::fs::write(path.join(file), format!("{text}\n")).unwrap();
            }
        }
        std::fs::create_dir_all(root.path().join("eth0/queues/rx-1")).unwrap();
        std::fs::create_dir_all(root.path().join("eth0/queues/tx-0")).unwrap();
        let read = |name: &str| Card::read(root.path(), name);
        assert_eq!(read("eth0"), Ok(card(9000, 2)));
        for (name, why) in [
            ("lo", Unfit::Loopback),
            ("tun0", Unfit::NoEthernet),
            ("eth0.5", Unfit::Stacked),
            ("br0", Unfit::Stacked),
            ("eth9", Unfit::Unknown),
            ("../eth0", Unfit::Unknown),
        ] {
            assert_eq!(read(name), Err(why), "{name}");
        }
    }
}
