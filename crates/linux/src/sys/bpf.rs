//! The four requests of `bpf(2)` that an XDP program needs: a map of sockets, an entry in it, the program, and its link
//! to an interface.
//!
//! A link is a descriptor. The kernel removes the program from the interface when the last copy of it is closed, also
//! if the process is killed.

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

// Numbers of `linux/bpf.h`.
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const MAP_OF_XDP_SOCKETS: u32 = 17;
const PROGRAM_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const HAS_FRAGMENTS: u32 = 1 << 5;

/// `XDP_FLAGS_DRV_MODE` of `linux/if_link.h`: in the driver, or not at all.
const IN_DRIVER: u32 = 1 << 2;

/// Bytes for the words of the verifier.
const LOG_BYTES: usize = 1 << 16;

/// The licence that the program states. The helpers that it calls are open to every licence.
const LICENCE: &CStr = c"Dual MIT/GPL";

/// An instruction of eBPF (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// The operation.
    pub code: u8,
    /// The destination register in the lower half, the source register in the upper one.
    pub registers: u8,
    /// Instructions to skip, or bytes behind the address in a register.
    pub offset: i16,
    /// The operand.
    pub immediate: i32,
}

// The kernel reads programs as arrays of 8-byte instructions.
const _: () = assert!(size_of::<Instruction>() == 8);

/// A failed request.
#[derive(Debug, thiserror::Error)]
#[error("{action}{}", told(log))]
pub struct Error {
    /// The request.
    pub action: &'static str,
    /// The last words of the verifier, if it refused the program.
    pub log: String,
    /// The error of the kernel.
    pub source: io::Error,
}

fn told(log: &str) -> String {
    if log.is_empty() { String::new() } else { format!(" (the verifier: {log})") }
}

/// A map from the number of a receive queue to the AF_XDP socket that is bound to it (`BPF_MAP_TYPE_XSKMAP`).
#[derive(Debug)]
pub struct SocketMap(OwnedFd);

impl SocketMap {
    /// Makes a map for queues below `queues`.
    pub fn new(queues: u32) -> Result<Self, Error> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            key_bytes: u32,
            value_bytes: u32,
            entries: u32,
        }
        let attributes = Attributes {
            kind: MAP_OF_XDP_SOCKETS,
            key_bytes: size_of::<u32>() as u32,
            value_bytes: size_of::<u32>() as u32,
            entries: queues,
        };
        // SAFETY: the structure is the beginning of `union bpf_attr` for this request, and has no pointer.
        let made = unsafe { descriptor(MAP_CREATE, &attributes) };
        Ok(Self(made.map_err(failed("making a map of XDP sockets"))?))
    }

    /// Enters the socket of a queue.
    pub fn set(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        #[repr(C)]
        struct Attributes {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let value = socket.as_raw_fd();
        let attributes = Attributes {
            map: self.0.as_raw_fd() as u32,
            padding: 0,
            key: (&raw const queue) as u64,
            value: (&raw const value) as u64,
            flags: 0,
        };
        // SAFETY: the structure is the beginning of `union bpf_attr` for this request. The kernel reads four bytes at
        // each address; both values have as many and live through the call.
        let done = unsafe { request(MAP_UPDATE_ELEM, &attributes) };
        done.map(drop).map_err(failed("entering an XDP socket in the map"))
    }

    /// The number of the descriptor, for the program's instruction.
    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

/// A program that the kernel has verified.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Loads an XDP program. `in_parts`: it takes packets that are in several buffers (Linux 5.18).
    pub fn load(instructions: &[Instruction], in_parts: bool) -> Result<Self, Error> {
        #[repr(C)]
        struct Attributes {
            kind: u32,
            instructions: u32,
            program: u64,
            licence: u64,
            log_level: u32,
            log_bytes: u32,
            log: u64,
            kernel: u32,
            flags: u32,
            name: [u8; 16],
            interface: u32,
            attach: u32,
        }
        let mut log = vec![0u8; LOG_BYTES];
        let mut attributes = Attributes {
            kind: PROGRAM_XDP,
            instructions: instructions.len() as u32,
            program: instructions.as_ptr() as u64,
            licence: LICENCE.as_ptr() as u64,
            log_level: 0,
            log_bytes: 0,
            log: 0,
            kernel: 0,
            flags: if in_parts { HAS_FRAGMENTS } else { 0 },
            name: *b"fullbore\0\0\0\0\0\0\0\0",
            interface: 0,
            attach: ATTACH_XDP,
        };
        // SAFETY: the structure is the beginning of `union bpf_attr` for this request. The kernel reads as many
        // instructions as it states, and the licence to its end; both live through the call.
        let source = match unsafe { descriptor(PROG_LOAD, &attributes) } {
            Ok(loaded) => return Ok(Self(loaded)),
            Err(source) if source.raw_os_error() == Some(libc::EPERM) => {
                return Err(failed(LOADING)(source));
            }
            Err(source) => source,
        };
        // Once more, for the reason: a verifier that writes its reasons is slow.
        (attributes.log_level, attributes.log_bytes) = (1, LOG_BYTES as u32);
        attributes.log = log.as_mut_ptr() as u64;
        // SAFETY: as above, and the kernel writes at most `log_bytes` bytes to the log, which has as many.
        match unsafe { descriptor(PROG_LOAD, &attributes) } {
            Ok(loaded) => Ok(Self(loaded)),
            // Its own error may be that the log is too short.
            Err(_) => {
                let text = String::from_utf8_lossy(&log);
                let lines = text.trim_end_matches('\0').trim_end().lines().rev().take(3);
                let lines: Vec<&str> = lines.collect();
                let log = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
                Err(Error { action: LOADING, log, source })
            }
        }
    }

    /// Attaches the program to an interface, in its driver.
    pub fn attach(&self, interface: u32) -> Result<Link, Error> {
        #[repr(C)]
        struct Attributes {
            program: u32,
            interface: u32,
            attach: u32,
            flags: u32,
        }
        let attributes = Attributes {
            program: self.0.as_raw_fd() as u32,
            interface,
            attach: ATTACH_XDP,
            flags: IN_DRIVER,
        };
        // SAFETY: the structure is the beginning of `union bpf_attr` for this request, and has no pointer.
        let linked = unsafe { descriptor(LINK_CREATE, &attributes) };
        Ok(Link { _descriptor: linked.map_err(failed("attaching the XDP program"))? })
    }
}

/// The link of a program to an interface. The program goes with it.
#[derive(Debug)]
pub struct Link {
    _descriptor: OwnedFd,
}

const LOADING: &str = "loading the XDP program";

fn failed(action: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error { action, log: String::new(), source }
}

/// # Safety
///
/// `attributes` is the beginning of `union bpf_attr` for this request, and its addresses hold what the request reads and
/// writes there.
unsafe fn request<T>(number: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    // SAFETY: the caller's promise. The kernel takes what follows `size_of` bytes as zero.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, number, &raw const *attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// # Safety
///
/// As for [`request`], and the request returns a new descriptor.
unsafe fn descriptor<T>(number: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let result = unsafe { request(number, attributes)? };
    // SAFETY: the kernel has just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(result as libc::c_int) })
}
