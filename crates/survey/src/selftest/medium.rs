//! The interface of a target for self tests: moves blocks at addresses, several at once.

use std::io;

use fullbore_core::device::Direction;
use fullbore_linux::ring::Block;
use serde::Serialize;

/// A block to move.
#[derive(Debug)]
pub struct Transfer {
    /// The token under which it returns.
    pub token: u64,
    /// The direction.
    pub direction: Direction,
    /// The offset on the target.
    pub offset: u64,
    /// The memory.
    pub block: Block,
    /// First byte and number of bytes in the block.
    pub part: (u32, u32),
}

/// A completed block.
#[derive(Debug)]
pub struct Moved {
    /// The token of its submission.
    pub token: u64,
    /// Bytes moved, or the error.
    pub result: io::Result<u32>,
    /// The memory.
    pub block: Block,
}

/// A target: a real one, or a simulated one with a fault.
pub trait Medium {
    /// Its total bytes.
    fn bytes(&self) -> u64;

    /// The smallest unit; all addresses are multiples of it.
    fn sector_bytes(&self) -> u64;

    /// Starts to move a block. It returns from [`Medium::wait`], in any order.
    fn submit(&mut self, transfer: Transfer);

    /// Waits a short time for completed blocks.
    fn wait(&mut self, into: &mut Vec<Moved>) -> io::Result<()>;

    /// Makes all completed writes durable.
    fn sync(&mut self) -> io::Result<()>;

    /// The number of syncs that the device has completed, as counted by the kernel; `None`: they are not counted, or
    /// the device has no volatile cache.
    fn syncs_done(&self) -> Option<u64>;

    /// Drops the host's caches, so that later reads come from the medium.
    fn forget(&mut self) -> io::Result<()>;

    /// Inspects the properties of the target.
    fn look(&self) -> Look;
}

/// The properties of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Look {
    /// The size.
    pub bytes: u64,
    /// The description, as lines of text.
    pub lines: Vec<String>,
    /// The link, if known.
    pub link: Option<Link>,
    /// Errors counted by the kernel.
    pub errors: Option<u64>,
}

/// A PCI link: its state, and the best state that both ends support.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// `8.0 GT/s PCIe`.
    pub speed: String,
    /// Lanes.
    pub width: u32,
    /// The speed that both ends support; `Unknown` if the kernel does not report it.
    pub best_speed: String,
    /// The lanes that both ends support; 0 if the kernel does not report them.
    pub best_width: u32,
    /// The speed reported by the port above the drive, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_speed: Option<String>,
    /// The lanes reported by the port above the drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_width: Option<u32>,
}

/// The number at the beginning of a speed, in tenths; 0 for `Unknown`.
pub fn transfers(speed: &str) -> u64 {
    let number = speed.split(' ').next().and_then(|number| number.parse::<f64>().ok());
    number.map_or(0, |number| (number * 10.0) as u64)
}
