//! Recording: sources, ring and store put together, watched over by one thread that decides.
//!
//! ```text
//!              ┌────────────── supervisor ──────────────┐
//!     Order ▼  │ ▲ Notice                      ▲ Report │  Event ──► screen, JSON
//!     capture threads ───── Command ─────► writers      │
//!              └─────────────────────────────────────────┘
//! ```
//!
//! [`Recorder::arm`] does everything that can fail before anything is promised: members, sockets,
//! memory, directories. [`Recorder::run`] then watches, cuts one scan from the next, and seals each
//! when its [`Lifecycle`](crate::lifecycle::Lifecycle) says so, while the next is recorded.

mod arm;
mod event;
mod order;
mod panda;
mod read_back;
mod scan;
mod scribe;
mod seal;
mod supervise;

pub use arm::{Limit, PandaPlan, Plan, RecordError, Recorder};
pub use event::{Armed, Event, MemberState, Progress, Sealed, StreamState, Tell};
pub use supervise::Control;
