//! Transfers of scans to other sites, while they are recorded.
//!
//! ```text
//!  sender                                                        receiver
//!  outgoing ──► schedule ──► data connection 0…N ═════════════► landing (store) ──► members
//!     ▲            ▲                                                │
//!  scan on disk    └── durable, rejected ◄═ control connection ◄────┘ sync rounds
//! ```
//!
//! - [`protocol`]: the messages on a connection, sans-IO (`docs/reference/transfer.md`)
//! - [`schedule`]: which block goes next on which connection, as a pure state machine
//! - [`outgoing`]: the blocks of a scan that is sealed or being recorded, with their index records
//! - [`recordings`]: whether a scan is being recorded on these members
//! - [`governor`]: how fast a transfer may send now
//! - [`identity`]: keys, known peers, invitations
//! - [`channel`]: a TLS connection that carries messages
//! - [`objects`]: copies in object stores, which no other end writes
//! - [`send`], [`receive`]: the two ends of a transfer, whichever of them connected
//! - [`queue`]: transfers as jobs that outlive processes
//! - [`files`]: the sealed scans as plain files, for the protocols of other programs
//! - [`connect`], [`server`]: the end that connects, and the end that listens
//!
//! Either end can connect (`docs/decisions/0023-transfer.md`). It may open sockets, and read and write scans through
//! `fullbore-store`. It uses blocking threads, and touches no block of a recorder.

pub mod channel;
pub mod connect;
mod connections;
pub mod error;
pub mod files;
pub mod governor;
pub mod identity;
mod link;
pub mod objects;
mod open_connections;
pub mod outgoing;
pub mod protocol;
pub mod queue;
pub mod receive;
pub mod recordings;
pub mod schedule;
pub mod send;
pub mod server;
pub mod session;
