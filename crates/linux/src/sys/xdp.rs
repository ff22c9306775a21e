//! An AF_XDP socket that receives the packets of one queue of an interface.
//!
//! Memory of chunks is shared with the kernel. Two rings say whose a chunk is:
//!
//! ```text
//!              ┌── fill ring ◄── give_back ──┐
//!  the kernel's chunks                       ours: read through `bytes`
//!              └── receive ring ── take ─────┘
//! ```
//!
//! A driver with zero-copy writes packets to the chunks itself. For another, the kernel copies them there. A packet that
//! is longer than a chunk has several.
//!
//! The layout is that of `linux/if_xdp.h` and of `Documentation/networking/af_xdp.rst` of Linux.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc,
    XdpDescOptions, XdpOptionsFlags, XdpRingFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};

use super::memory::Region;

/// Bytes at the start of each chunk that the kernel keeps for the program (`XDP_PACKET_HEADROOM`).
pub const HEADROOM: usize = 256;

/// The least chunk that the kernel takes; the most is a page.
pub const LEAST_CHUNK: usize = 2048;

/// The descriptors of a completion ring, which the kernel requires also of a socket that sends nothing.
const COMPLETIONS: u32 = 64;

/// The longest wait for the queue of a socket that another program has just closed.
const PATIENCE: Duration = Duration::from_secs(1);

/// The time between two tries to bind.
const BETWEEN_TRIES: Duration = Duration::from_millis(10);

/// What a socket is opened with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The name of the interface.
    pub name: String,
    /// Its number.
    pub interface: u32,
    /// The number of its receive queue.
    pub queue: u32,
    /// The number of chunks, a power of two.
    pub chunks: u32,
    /// Bytes of a chunk: 2048 or 4096.
    pub chunk_bytes: usize,
    /// True if packets may be longer than a chunk (Linux 6.6).
    pub in_parts: bool,
}

/// A failed step in opening a socket.
#[derive(Debug, thiserror::Error)]
#[error("an XDP socket on queue {queue} of {name}: {action}")]
pub struct Error {
    /// The name of the interface.
    pub name: String,
    /// The queue.
    pub queue: u32,
    /// The failed step.
    pub action: &'static str,
    /// The error of the kernel.
    pub source: io::Error,
}

/// Counters of a socket (`XDP_STATISTICS`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets dropped, for want of a chunk or for another reason.
    pub rx_dropped: u64,
    /// Packets dropped because the receive ring was full.
    pub rx_ring_full: u64,
    /// Times that the kernel found no chunk in the fill ring.
    pub rx_fill_ring_empty_descs: u64,
    /// Wrong descriptors in the fill ring.
    pub rx_invalid_descs: u64,
}

/// A packet, or a part of one, in a chunk that is ours.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: usize,
    bytes: usize,
    more: bool,
}

/// A bound socket with its memory.
#[derive(Debug)]
pub struct XdpSocket {
    // The rings are unmapped first, and the memory last.
    fill: Ring<u64>,
    receive: Ring<XdpDesc>,
    socket: OwnedFd,
    memory: Region,
    chunk_bytes: usize,
    /// The pieces that were taken and not given back.
    held: Vec<Piece>,
}

impl XdpSocket {
    /// Opens a socket and gives all of its chunks to the kernel. It uses zero-copy if the driver can.
    pub fn open(settings: &Settings) -> Result<Self, Error> {
        let Settings { name, interface, queue, chunks, chunk_bytes, in_parts } = settings.clone();
        let error = |action| {
            let name = name.clone();
            move |source: io::Error| Error { name, queue, action, source }
        };
        let kernel = |action| {
            let error = error(action);
            move |errno: Errno| error(errno.into())
        };
        assert!(chunks.is_power_of_two() && chunk_bytes.is_power_of_two());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
            .map_err(kernel("making it"))?;
        let bytes = chunks as usize * chunk_bytes;
        let memory = Region::new(bytes).map_err(error("mapping its memory"))?;
        let registration = XdpUmemReg {
            addr: memory.pointer(0, bytes).as_ptr() as u64,
            len: bytes as u64,
            chunk_size: chunk_bytes as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, registration).map_err(kernel(REGISTERING))?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, chunks)
            .and_then(|()| sockopt::set_xdp_umem_completion_ring_size(&socket, COMPLETIONS))
            .and_then(|()| sockopt::set_xdp_rx_ring_size(&socket, chunks))
            .map_err(kernel("sizing its rings"))?;
        let places = sockopt::xdp_mmap_offsets(&socket).map_err(kernel("finding its rings"))?;
        let fill = Ring::map(&socket, XDP_UMEM_PGOFF_FILL_RING, &places.fr, chunks)
            .map_err(error("mapping its fill ring"))?;
        let receive = Ring::map(&socket, XDP_PGOFF_RX_RING, &places.rx, chunks)
            .map_err(error("mapping its receive ring"))?;
        let held = Vec::with_capacity(chunks as usize);
        let mut opened = Self { fill, receive, socket, memory, chunk_bytes, held };
        opened.fill.push((0..u64::from(chunks)).map(|number| number * chunk_bytes as u64));
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        flags.set(SocketAddrXdpFlags::XDP_USE_SG, in_parts);
        opened.bind(&SocketAddrXdp::new(flags, interface, queue)).map_err(kernel("binding it"))?;
        Ok(opened)
    }

    /// Binds the socket. The kernel frees the queue of a socket that was closed only some time later.
    fn bind(&self, address: &SocketAddrXdp) -> rustix::io::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            match rustix::net::bind(&self.socket, address) {
                Err(Errno::BUSY) if Instant::now() < end => std::thread::sleep(BETWEEN_TRIES),
                done => return done,
            }
        }
    }

    /// True if the driver writes packets to the memory itself.
    pub fn is_zero_copy(&self) -> bool {
        let options = sockopt::xdp_options(&self.socket);
        options.is_ok_and(|it| it.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// The memory for packets, in bytes.
    pub fn bytes_of_memory(&self) -> usize {
        self.memory.bytes()
    }

    /// Takes packets that have arrived, with at most `most` pieces together. All pieces before were given back. Returns
    /// the number of pieces.
    pub fn take(&mut self, most: usize) -> usize {
        assert!(self.held.is_empty(), "pieces were not given back");
        let mut whole = 0;
        for number in 0..(self.receive.filled() as usize).min(most) {
            let found = self.receive.read(number as u32);
            let (start, bytes) = (found.addr as usize, found.len as usize);
            let more = found.options.contains(XdpDescOptions::XDP_PKT_CONTD);
            let chunk = start & !(self.chunk_bytes - 1);
            let is_inside =
                start.checked_add(bytes).is_some_and(|end| end <= chunk + self.chunk_bytes);
            assert!(
                is_inside && chunk < self.memory.bytes(),
                "the kernel left the chunk {found:?}"
            );
            self.held.push(Piece { start, bytes, more });
            if !more {
                whole = self.held.len();
            }
        }
        // The rest of a packet that is cut here comes with the next call.
        self.held.truncate(whole);
        whole
    }

    /// The bytes of a piece, and whether its packet goes on in the next one.
    pub fn piece(&self, number: usize) -> (&[u8], bool) {
        let Piece { start, bytes, more } = self.held[number];
        let first = self.memory.pointer(start, bytes);
        // SAFETY: `take` has checked that the range is inside one chunk. The chunk came through the receive ring, so the
        // kernel does not write to it before `give_back`, which needs an exclusive borrow. The memory is initialised.
        (unsafe { std::slice::from_raw_parts(first.as_ptr(), bytes) }, more)
    }

    /// The number of pieces that were taken and not given back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Gives all pieces back to the kernel.
    pub fn give_back(&mut self) {
        if self.held.is_empty() {
            return;
        }
        self.receive.release(self.held.len() as u32);
        let mask = !(self.chunk_bytes as u64 - 1);
        self.fill.push(self.held.drain(..).map(|piece| piece.start as u64 & mask));
        if self.fill.needs_wakeup() {
            // A driver that found no chunk waits for a call. There is no data to receive in this way.
            let _ = rustix::net::recv(&self.socket, &mut [0u8; 0][..], RecvFlags::DONTWAIT);
        }
    }

    /// Reads the counters.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let read = sockopt::xdp_statistics(&self.socket)?;
        Ok(Statistics {
            rx_dropped: read.rx_dropped,
            rx_ring_full: read.rx_ring_full.unwrap_or(0),
            rx_fill_ring_empty_descs: read.rx_fill_ring_empty_descs.unwrap_or(0),
            rx_invalid_descs: read.rx_invalid_descs,
        })
    }
}

/// The step that fails if the process may not lock that much memory.
pub const REGISTERING: &str = "registering its memory";

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A ring of entries that one side produces and the other one consumes.
#[derive(Debug)]
struct Ring<T> {
    start: NonNull<u8>,
    bytes: usize,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: Option<NonNull<AtomicU32>>,
    entries: NonNull<T>,
    mask: u32,
}

// SAFETY: the mapping belongs to the process and not to a thread, and all access to it goes through `&self` and `&mut
// self` of one owner, or is atomic.
unsafe impl<T> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    fn map(
        socket: &OwnedFd,
        place: u64,
        offsets: &XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        let bytes = offsets.desc as usize + entries as usize * size_of::<T>();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a null hint makes a new mapping, of the ring that the kernel has just allocated with this length.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, socket, place)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the kernel states offsets inside the ring that it allocated, aligned for what is there.
        let at = |offset: u64| unsafe { start.add(offset as usize) };
        Ok(Self {
            start,
            bytes,
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: offsets.flags.map(|offset| at(offset).cast()),
            entries: at(offsets.desc).cast(),
            mask: entries - 1,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: the word is in the mapping, which lives as long as `self`, and both sides access it as one word.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as in `producer`.
        unsafe { self.consumer.as_ref() }
    }

    fn entry(&self, place: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the place below the number of entries, which are all in the mapping.
        unsafe { self.entries.add((place & self.mask) as usize) }
    }

    /// The number of entries that the kernel has produced and that were not released.
    fn filled(&self) -> u32 {
        // The kernel has written the entries before it moved its place.
        let produced = self.producer().load(Ordering::Acquire);
        let filled = produced.wrapping_sub(self.consumer().load(Ordering::Relaxed));
        filled.min(self.mask + 1)
    }

    /// Reads an entry, counted from the oldest that was not released. It must be below [`filled`](Self::filled).
    fn read(&self, number: u32) -> T {
        let place = self.consumer().load(Ordering::Relaxed).wrapping_add(number);
        // SAFETY: the kernel has written the entry and does not touch it before it is released.
        unsafe { self.entry(place).read() }
    }

    /// Releases the oldest entries to the kernel.
    fn release(&mut self, count: u32) {
        let consumed = self.consumer().load(Ordering::Relaxed).wrapping_add(count);
        // All reads of the entries come before the kernel may write there.
        self.consumer().store(consumed, Ordering::Release);
    }

    /// Produces entries. There are never more than the ring has places: each is a chunk, and there are as many.
    fn push(&mut self, entries: impl Iterator<Item = T>) {
        let mut produced = self.producer().load(Ordering::Relaxed);
        for entry in entries {
            // SAFETY: the kernel reads an entry only after the place has moved behind it. It has read those before:
            // there are as many places as chunks.
            unsafe { self.entry(produced).write(entry) };
            produced = produced.wrapping_add(1);
        }
        self.producer().store(produced, Ordering::Release);
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as in `producer`.
        let flags = self.flags.map(|flags| unsafe { flags.as_ref() }.load(Ordering::Relaxed));
        flags.is_some_and(|flags| flags & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0)
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length, and no reference to it outlives `self`.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
