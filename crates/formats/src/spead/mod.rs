//! SPEAD packets (Streaming Protocol for Exchanging Astronomical Data, SKA SA and CASPER, 2010), read in place.
//!
//! ```text
//! header (8 bytes)                                   item pointers (8 bytes each)              payload
//! 0x53 'S' │ 4 │ bytes of id │ bytes of address │    immediate (1 bit) │ id │ value, or        a piece of the
//! reserved (2 bytes) │ number of items (2 bytes)                            offset in the heap  heap's payload
//! ───────────────────────────────────────────────────────────────────────────────────────────► big-endian
//! ```
//!
//! A *heap* is a message of any length, sent as packets. Each packet has the count of its heap (item 1), the length of
//! the heap's payload (2), and the offset (3) and length (4) of its own piece. In SPEAD-64-48 an id has 15 bits and a
//! value 48; the header says how many bytes each has, and together they are 8.
//!
//! | file | content |
//! |---|---|
//! | [`packet`] | the header, the items and the payload of a packet |
//! | [`divide`] | the value that divides packets into streams |
//! | [`shape`] | the pieces into which heaps of one length are cut |
//! | [`heaps`] | the index of a packet, by the heaps before it |
//! | [`index`] | the packets of one stream |
//! | [`mod@write`] | packets |

pub mod divide;
pub mod heaps;
pub mod index;
pub mod packet;
pub mod shape;
pub mod write;

pub use self::divide::Divide;
pub use self::index::SpeadIndexer;
pub use self::packet::{Packet, PacketError};
