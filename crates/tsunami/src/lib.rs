//! Tsunami-UDP, revision 0x20061025: as a server of the sealed scans of a store, and as a client that fetches files.
//!
//! ```text
//!  client                                    server
//!  name, parameters, port  ── TCP ──►  session ──► ServedFiles
//!  fetching  ◄══════════════ UDP ════  pace    ◄── blocks
//!  resend, restart, stop,  ── TCP ──►  pace
//!  error rate
//! ```
//!
//! - [`codec`]: the bytes, sans-IO
//! - [`session`], [`pace`]: the server as two pure machines: the control connection, and which block is due
//! - [`fetching`]: the client as a pure machine: which blocks are missing, and what to ask for
//! - [`server`], [`client`]: the sockets and threads around them
//!
//! The protocol has neither encryption nor checksums, and no resume. The secret of its handshake is known to everybody
//! unless both ends set another one. The crate may open sockets, write the files that it fetches, and read scans through
//! `fullbore_transfer::files`. It uses blocking threads, and lets recording come first as `fullbore_transfer::governor`
//! says.

pub mod client;
pub mod codec;
pub mod error;
pub mod fetching;
pub mod pace;
pub mod server;
pub mod session;

use std::time::Duration;

/// The port of the control connection.
pub const DEFAULT_PORT: u16 = 46_224;

/// The secret of every program that is not told another.
pub const DEFAULT_SECRET: &str = "kitten";

/// The rate that a client asks for if it is not told another, in bit/s.
pub const DEFAULT_RATE: u32 = 650_000_000;

/// An end that is silent for this long is gone.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// Time between two reports of a client on lost blocks.
pub(crate) const REPORT: Duration = Duration::from_millis(350);
