//! Recording: sources, ring and store put together, watched over by one thread that decides.
//!
//! ```text
//!              ┌────────────── supervisor ──────────────┐
//!     Order ▼  │ ▲ Notice                      ▲ Report │  Event ──► screen, JSON
//!     capture threads ───── Command ─────► writers      │
//!              └────── Task ──► scribes ──► Answers ─────┘
//! ```
//!
//! [`Recorder::arm`] does everything that can fail before anything is promised: members, sockets,
//! memory, directories. [`Recorder::run`] then watches, cuts one scan from the next, and seals each
//! when its [`Lifecycle`](crate::lifecycle::Lifecycle) says so, while the next is recorded. What waits for a
//! member is done by others: directories, manifests and accounts by a scribe for each, and what sealing reads
//! by a thread for each scan.

mod arm;
mod check;
mod clocks;
#[cfg(feature = "hdf5")]
pub mod container;
mod error;
mod event;
mod following;
mod memory;
mod order;
mod panda;
mod place;
mod plan;
mod read_back;
mod rehearse;
pub(crate) mod scan;
mod scribe;
mod seal;
mod sealing;
mod set;
mod supervise;
#[cfg(test)]
mod tests;

pub use arm::Recorder;
pub use error::RecordError;
pub use event::{Armed, Event, MemberState, Memory, Progress, Sealed, StreamState, Tell};
pub use plan::{Limit, PandaPlan, Plan};
pub use rehearse::{Rehearsal, free_bytes, rehearse};
pub(crate) use seal::within_limits;
pub use supervise::Control;
pub(crate) use supervise::LEAVE;
