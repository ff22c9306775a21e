//! Position captures of a PandA: a header in XML or text, then frames of packed samples, then an end.
//!
//! ```text
//! data port ──► Header      which columns a sample has, and how integers become positions
//!               BIN frames  whole samples, little-endian, packed; no number in them
//!               END         how many were sent, and why no more will come
//! ```
//!
//! A sample's index is `missed` of the header plus its place after it. Source: the PandABlocks
//! server's documentation of its capture port, and recordings of server 4.1.

pub mod columns;
pub mod header;

pub use header::{Field, Header, Kind, Process, Scaling};
