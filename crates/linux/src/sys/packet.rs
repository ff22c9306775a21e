//! A packet socket with a ring of blocks that the kernel fills (`TPACKET_V3`, `packet(7)`).
//!
//! ```text
//!   kernel writes ──► block 5         a block is the kernel's until it sets TP_STATUS_USER in it,
//!     4 · 3 · 2 full                  and ours until we set TP_STATUS_KERNEL
//!        we read ───► block 2
//! ```
//!
//! The socket gets its filter before it is bound, so nothing else is ever in the ring. It is bound to a protocol and not
//! to all packets: the kernel then shows it what it shows to IP itself. Each packet comes once, behind VLAN, bridge and
//! bond, and those that this host sends to others do not come at all.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use socket2::{Domain, Socket, Type};

use super::receive::set_option;

/// An instruction of the classic packet filter (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// Instructions to skip if a comparison holds.
    pub if_true: u8,
    /// Instructions to skip if it does not.
    pub if_false: u8,
    /// The operand.
    pub operand: u32,
}

// The kernel reads filters as arrays of `sock_filter`.
const _: () = assert!(size_of::<Instruction>() == size_of::<libc::sock_filter>());

/// The largest number of instructions of a filter (`BPF_MAXINSNS`).
pub const MOST_INSTRUCTIONS: usize = 4096;

/// Bytes of a block: many packets, and far more than the longest.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Bytes of the block header before `block_status`, as `struct tpacket_block_desc` lays it out.
const STATUS_AT: usize = 8;

/// Bytes before the length of the filled part of a block.
const LENGTH_AT: usize = 20;

/// The shortest filled part: the header of a block.
const SHORTEST: usize = 48;

/// The Ethernet protocol that a ring takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Protocol {
    fn number(self) -> u16 {
        match self {
            Self::Ipv4 => libc::ETH_P_IP as u16,
            Self::Ipv6 => libc::ETH_P_IPV6 as u16,
        }
    }
}

/// A failed step in opening a ring.
#[derive(Debug, thiserror::Error)]
#[error("a packet ring of {blocks} MiB: {action}")]
pub struct Error {
    /// The size of the ring.
    pub blocks: usize,
    /// The failed step.
    pub action: &'static str,
    /// The error of the kernel.
    pub source: io::Error,
}

/// A bound packet socket with its ring.
pub struct PacketRing {
    socket: Socket,
    start: NonNull<u8>,
    blocks: usize,
    /// The block that the kernel fills next, as seen from here: the oldest that was not given back.
    next: usize,
    /// True if that block is ours.
    held: bool,
    /// The sum of all readings of the kernel's counter, which each reading resets.
    drops: u64,
}

// SAFETY: the mapping belongs to the process and not to a thread, and `&self` reads it only while `held` says that the
// kernel does not write there.
unsafe impl Send for PacketRing {}

impl PacketRing {
    /// Opens a ring of `blocks` blocks of [`BLOCK_BYTES`] for the packets that `filter` accepts. The kernel hands a block
    /// over when it is full, or when packets have waited in it for `retire_ms`.
    pub fn open(
        protocol: Protocol,
        filter: &[Instruction],
        blocks: usize,
        retire_ms: u32,
    ) -> Result<Self, Error> {
        let error = |action| move |source| Error { blocks, action, source };
        // Protocol 0: nothing arrives before the socket is bound.
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)
            .map_err(error("making a packet socket"))?;
        socket.set_nonblocking(true).map_err(error("making it non-blocking"))?;
        attach_filter(&socket, filter).map_err(error("attaching the filter"))?;
        let set = |name, value| set_option(&socket, libc::SOL_PACKET, name, value);
        set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V3 as libc::c_int)
            .map_err(error("choosing TPACKET_V3"))?;
        // It tells of each packet whether it stands for several.
        set(libc::PACKET_VNET_HDR, 1).map_err(error("requesting PACKET_VNET_HDR"))?;
        request_ring(&socket, blocks, retire_ms).map_err(error("allocating the ring"))?;
        let start = map(&socket, blocks).map_err(error("mapping the ring"))?;
        let mut ring = Self { socket, start, blocks, next: 0, held: false, drops: 0 };
        ring.bind(protocol).map_err(error("binding the packet socket"))?;
        ring.drops().map_err(error("reading PACKET_STATISTICS"))?;
        ring.drops = 0;
        Ok(ring)
    }

    fn bind(&self, protocol: Protocol) -> io::Result<()> {
        // SAFETY: all-zero is a valid value of this plain C structure.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.number().to_be();
        // SAFETY: the kernel reads `size_of` bytes of the address, which lives through the call.
        let result = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The size of the ring, in bytes.
    pub fn bytes(&self) -> usize {
        self.blocks * BLOCK_BYTES
    }

    /// The oldest block that the kernel has handed over and that was not given back, from its first byte to its last
    /// filled one.
    pub fn block(&mut self) -> Option<&[u8]> {
        let start = self.block_start();
        // SAFETY: the status of a block is aligned to 4 bytes and inside the mapping, and both sides access it as one
        // word.
        let status = unsafe { AtomicU32::from_ptr(start.add(STATUS_AT).cast().as_ptr()) };
        // The kernel has written the block before it set the status.
        self.held = self.held || status.load(Ordering::Acquire) & libc::TP_STATUS_USER != 0;
        if !self.held {
            return None;
        }
        // SAFETY: as above; the kernel does not write to a block that is ours.
        let length = unsafe { start.add(LENGTH_AT).cast::<u32>().read() } as usize;
        let length = length.clamp(SHORTEST, BLOCK_BYTES);
        // SAFETY: the block has `BLOCK_BYTES` bytes in the mapping, which lives as long as `self`. The kernel writes to
        // it only after `give_back`, which needs the exclusive borrow that the slice keeps.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
    }

    /// Gives the block back to the kernel.
    pub fn give_back(&mut self) {
        assert!(std::mem::take(&mut self.held), "the block is the kernel's already");
        let start = self.block_start();
        // SAFETY: as in `block`.
        let status = unsafe { AtomicU32::from_ptr(start.add(STATUS_AT).cast().as_ptr()) };
        // All reads of the block come before the kernel may write to it.
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.blocks;
    }

    fn block_start(&self) -> NonNull<u8> {
        // SAFETY: `next < blocks`, and the mapping has `blocks` blocks.
        unsafe { self.start.add(self.next * BLOCK_BYTES) }
    }

    /// Returns the number of packets that the ring has dropped since it was opened (`PACKET_STATISTICS`).
    pub fn drops(&mut self) -> io::Result<u64> {
        // `struct tpacket_stats_v3`: packets, drops, times that the ring was full.
        let mut values = [0u32; 3];
        let mut length = size_of::<[u32; 3]>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, the size of `values`, which outlives the call.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                values.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        self.drops += u64::from(values[1]);
        Ok(self.drops)
    }

    /// Returns another descriptor of the socket, which is ready when the kernel has handed a block over.
    pub fn readiness(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }
}

impl AsFd for PacketRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no slice of it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes()) };
    }
}

/// Attaches a filter: the socket gets the packets for which it returns a number above 0.
pub(super) fn attach_filter(socket: &Socket, filter: &[Instruction]) -> io::Result<()> {
    let length = u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: filter.as_ptr().cast_mut().cast() };
    // SAFETY: the kernel reads the structure and the `length` instructions that it points at, which all live through the
    // call; `Instruction` has the layout of `sock_filter` (asserted above).
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn request_ring(socket: &Socket, blocks: usize, retire_ms: u32) -> io::Result<()> {
    // The kernel checks the size of frames, and does not use it in this version of rings.
    const FRAME_BYTES: u32 = 2048;
    let blocks = u32::try_from(blocks).map_err(|_| io::ErrorKind::InvalidInput)?;
    let request = libc::tpacket_req3 {
        tp_block_size: BLOCK_BYTES as u32,
        tp_block_nr: blocks,
        tp_frame_size: FRAME_BYTES,
        tp_frame_nr: BLOCK_BYTES as u32 / FRAME_BYTES * blocks,
        tp_retire_blk_tov: retire_ms,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    // SAFETY: the kernel reads the structure, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_RX_RING,
            (&raw const request).cast(),
            size_of::<libc::tpacket_req3>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn map(socket: &Socket, blocks: usize) -> io::Result<NonNull<u8>> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // SAFETY: a null hint makes a new mapping, of the ring that the kernel has just allocated with this length.
    let start = unsafe {
        mmap(std::ptr::null_mut(), blocks * BLOCK_BYTES, protection, flags, socket.as_fd(), 0)?
    };
    Ok(NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?)
}
