//! Where frames come from.
//!
//! ```text
//! port ──► learn: whose frames are these?
//!      ──► placed    frames with places: predicted, checked, mended        ─┐ Filled
//!      └─► arrived   frames as they come: several threads, varying lengths ─┴───────► dealer ──► members
//! ```
//!
//! A capture thread serves many ports. It never waits for a disk: when no block is free, it goes on
//! reading, and what had no place is counted as overrun.

mod arrived;
mod border;
mod capture;
mod dealer;
mod drops;
mod far;
mod learn;
#[cfg(test)]
mod model;
mod part;
mod placed;
mod port;
mod scratch;
mod stream;
mod tail;
mod unclaimed;

pub use capture::{Capture, Order, Settings};
pub use dealer::Lane;
pub(crate) use dealer::{Course, Dealer};
pub use learn::{stripped_bytes, wanted_block_bytes};
pub use part::{Notice, Opening, Shape, StreamGauge};
pub use port::{AMPLE_BLOCKS, CUT_PATIENCE, FewBlocks, Port, PortError, PortGauge, Sizes, listen};
pub use scratch::Scratch;
