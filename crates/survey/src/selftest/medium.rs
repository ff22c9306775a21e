//! What a self test needs of a target: blocks moved at addresses, several of them under way at once.

use std::io;

use fullbore_core::device::Direction;
use fullbore_engine::ring::Block;
use serde::Serialize;

/// A block on its way.
#[derive(Debug)]
pub struct Transfer {
    /// The number under which it comes back.
    pub token: u64,
    /// Which way.
    pub direction: Direction,
    /// Where on the target.
    pub offset: u64,
    /// The memory.
    pub block: Block,
    /// First byte and number of bytes in the block.
    pub part: (u32, u32),
}

/// A block that came back.
#[derive(Debug)]
pub struct Moved {
    /// The number it was submitted under.
    pub token: u64,
    /// Bytes moved, or what went wrong.
    pub result: io::Result<u32>,
    /// The memory.
    pub block: Block,
}

/// A target: a real one, or one with a fault that a test has to find.
pub trait Medium {
    /// Bytes of it, to its very end.
    fn bytes(&self) -> u64;

    /// The smallest part that can be moved, and what all addresses are multiples of.
    fn sector_bytes(&self) -> u64;

    /// Starts to move a block. It comes back from [`Medium::wait`], in any order.
    fn submit(&mut self, transfer: Transfer);

    /// Waits for a block, but not for long.
    fn wait(&mut self, into: &mut Vec<Moved>) -> io::Result<()>;

    /// Makes safe whatever has come back.
    fn sync(&mut self) -> io::Result<()>;

    /// How many syncs the device below has carried out, as the kernel counts; `None`: nobody counts them,
    /// or the device has nothing that could be lost.
    fn syncs_done(&self) -> Option<u64>;

    /// From here on what is read comes from the medium, and from no cache of this host.
    fn forget(&mut self) -> io::Result<()>;

    /// What can be seen of it from outside.
    fn look(&self) -> Look;
}

/// What can be seen of a target from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Look {
    /// Its size.
    pub bytes: u64,
    /// What it is, in lines for people.
    pub lines: Vec<String>,
    /// Its link, if it has one that is known.
    pub link: Option<Link>,
    /// Errors that the kernel has counted.
    pub errors: Option<u64>,
}

/// A PCI link: as it is, and as the two ends of it could have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// `8.0 GT/s PCIe`.
    pub speed: String,
    /// Lanes.
    pub width: u32,
    /// The speed that both ends can; `Unknown` where the kernel does not tell.
    pub best_speed: String,
    /// The lanes that both ends have; 0 where the kernel does not tell.
    pub best_width: u32,
    /// The speed that the port above the drive tells, if it tells one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_speed: Option<String>,
    /// The lanes that the port above the drive tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_width: Option<u32>,
}

/// The number that a speed begins with, in tenths; 0 for `Unknown`.
pub fn transfers(speed: &str) -> u64 {
    let number = speed.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    number.map_or(0, |number| (number * 10.0) as u64)
}
