//! VITA-49 packets (ANSI/VITA 49.0, 49.2) and DIFI packets (IEEE-ISTO 4900), read in place.
//!
//! ```text
//! prologue (1 to 7 words)                              payload     trailer
//! type, size, count │ stream id │ class id │ time      samples     1 word
//! ────────────────────────────────────────────────────────────────────────► big-endian words of 32 bits
//! ```
//!
//! | file | content |
//! |---|---|
//! | [`packet`] | the prologue, the payload and the trailer of any packet |
//! | [`context`] | the fields of a context packet |
//! | [`index`] | the packets of one kind and stream id, and the stream that stores them |
//! | [`history`] | the values in context packets, and their changes |
//! | [`listing`] | these changes in a manifest |
//! | [`payload_format`] | the encoding of samples that context states |
//! | [`samples`] | the place and the bytes of the samples of each packet |
//! | [`difi`] | the rules that DIFI adds |
//! | [`mod@write`] | packets of data, context and version |

pub mod context;
pub mod difi;
pub mod history;
pub mod index;
pub mod listing;
pub mod packet;
pub mod payload_format;
pub mod samples;
pub mod write;

pub use self::context::{Context, ContextError};
pub use self::packet::{ClassId, Fraction, Kind, Packet, PacketError, Prologue, Trailer};
