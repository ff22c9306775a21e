//! One thread receives a PandA: payload straight into blocks, and on only what is certified.
//!
//! ```text
//! data port ──► blocks being filled ──certified──► outlet: HDF5 file, or the store's dealer
//!                    ▲                                │
//!                    └───────── emptied ──────────────┘
//! control port: arming, whether it is alive, how many samples it took
//! ```
//!
//! - [`Device`]: a PandA as the thread needs it; tests have one made of bytes
//! - [`Described`]: what it is set to, asked for beside the samples
//! - [`Outlet`]: where blocks of certified samples go
//! - [`Source`]: the thread's work: connects, receives, joins again, keeps the books
//!
//! TCP holds the sender, so a full pool is no loss here: nothing is read until a block is free again,
//! the time is counted, and what may follow is an overrun of the server's ring.

mod described;
mod device;
mod dump;
mod intake;
mod outlet;
mod reach;
mod source;
#[cfg(test)]
mod tests;

pub use described::{Answer, Described};
pub use device::{Captured, Data, Device, Panda};
pub use dump::Dump;
pub use outlet::{Acquisition, Asked, Batch, Halted, Outlet};
pub use reach::{PATIENCE, reach};
pub use source::{Ended, Happening, Settings, Source};
