//! etransfer 1.2 (protocol version 1) over TCP: a server of the sealed scans of a store, and a client of `etd`.
//!
//! ```text
//!  client                                      server
//!  requests, a line each  ══ control ═══►  session ──► ServedFiles, Part
//!  { uuid:ID, sz:N} bytes ══ data ══════►  header  ──► NAME.part ──► NAME
//!  one byte `y`           ◄═════════════
//! ```
//!
//! - [`codec`]: lines, requests, addresses and headers, sans-IO
//! - [`session`]: the server's end of a control connection, as a pure machine
//! - [`part`]: files that arrive, and the names that they may have
//! - `wire`: a connection that ends when a stop is requested or the other end is silent
//! - `carry`: the bytes of files over such a connection, as fast as the governor allows
//! - [`server`], [`client`]: the sockets and threads around them
//!
//! The protocol has neither encryption nor checksums, and knows no users. Data channels over UDT are not spoken. The
//! crate may open sockets, write the files that arrive, and read scans through `fullbore_transfer::files`. It uses
//! blocking threads, and lets recording come first as `fullbore_transfer::governor` says.

mod carry;
pub mod client;
pub mod codec;
pub mod error;
pub mod part;
pub mod server;
pub mod session;
mod wire;

use std::time::Duration;

/// The port of the control connection.
pub const DEFAULT_PORT: u16 = 4004;

/// An end that says nothing for this long, where it has nothing to wait for, is gone.
pub(crate) const SILENCE: Duration = Duration::from_secs(15);

/// An end may pause for this long: its user is away, its recorder comes first, or its disk is slow.
pub(crate) const PAUSE: Duration = Duration::from_secs(600);
