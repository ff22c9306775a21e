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
//!
//! - [`codec`]: the data port, bytes in, events out; payload is never copied
//! - [`certify`]: which of the samples that came can be trusted
//! - [`columns`]: from packed samples to columns of integers or positions
//! - [`books`]: the account of an acquisition, over as many connections as it took
//! - [`control`]: the lines of the control port
//! - [`forecast`]: how large a sample will be, and which rate a link carries
//! - [`triggers`]: whether the times of triggers go forward
//! - [`source`]: which PandA, as `panda://host` says it

pub mod books;
pub mod certify;
pub mod codec;
pub mod columns;
pub mod control;
mod draft;
pub mod forecast;
pub mod header;
mod notes;
pub mod source;
mod text;
pub mod triggers;
mod xml;

pub use books::{Books, Closed};
pub use certify::{Certifier, Ending, Tally};
pub use codec::{Decoder, EndReason, Event, Want};
pub use draft::HeaderError;
pub use header::{Field, Header, Kind, MOST_SAMPLES, Process, Scaling};
pub use source::PandaSource;
pub use text::general;
pub use triggers::Triggers;

#[cfg(test)]
mod golden;
