//! Position captures of a PandA: a header in XML or text, then frames of packed samples, then an end.
//!
//! ```text
//! data port ──► Header      which columns a sample has, and how integers become positions
//!               BIN frames  whole samples, little-endian, packed; no number in them
//!               END         how many were sent, and why no more will come
//! ```
//!
//! A sample's index is `missed` of the header plus its position after it. Source: the PandABlocks server's
//! documentation of its capture port, and recordings of server 4.1.
//!
//! - [`codec`]: the data port, bytes in, events out; payload is never copied
//! - [`validate`]: decides which of the received samples can be trusted
//! - [`columns`]: from packed samples to columns of integers or positions
//! - [`control`]: the lines of the control port
//! - [`bandwidth`]: the size of a sample, and the rates of a link
//! - [`triggers`]: checks that trigger times increase

pub mod bandwidth;
pub mod codec;
pub mod columns;
pub mod control;
pub mod header;
mod header_builder;
mod text;
pub mod triggers;
pub mod validate;
mod xml;

pub use codec::{Decoder, EndReason, Event, Want};
pub use header::{Field, Header, Kind, MOST_SAMPLES, Process, Scaling};
pub use header_builder::HeaderError;
pub use text::general;
pub use triggers::Triggers;
pub use validate::{ConnectionTotals, Ending, SampleValidator};

#[cfg(test)]
mod golden;
