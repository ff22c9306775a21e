//! The only place with `unsafe`: memory that the kernel writes to, sockets, loop devices, io_uring.
//!
//! Each `unsafe` block is preceded by the fact it relies on and the code that guarantees it.

#![allow(unsafe_code)]

pub mod bpf;
pub mod cache;
pub mod clock;
#[cfg(feature = "hdf5")]
pub mod driver;
pub mod ethtool;
#[cfg(feature = "hdf5")]
pub mod hdf5;
pub mod interfaces;
pub mod loops;
#[cfg(feature = "hdf5")]
pub mod mark;
pub mod memory;
pub mod packet;
pub mod passed_sockets;
pub mod receive;
pub mod sched;
pub mod send;
pub mod session;
pub mod tcp;
pub mod uring;
pub mod xdp;
