//! Packets of the GigE Vision streaming protocol (GVSP): the images of a camera.
//!
//! ```text
//! byte 0   status: 0, 0x0100 sent again, from 0x8000 on an error without payload
//!      2   block id (16 bits); flags, if ids are extended
//!      4   extended ids (bit 7) · content (bits 3-0): 1 leader, 2 trailer, 3 payload, 4 a whole block …
//!      5   packet id (24 bits), from 0 within the block
//!      8   block id (64 bits), 16 packet id (32 bits): only if ids are extended
//! ────────────────────────────────────────────────────────────────────────────► big-endian
//!
//! block    leader 0 · payload 1 … n − 2 · trailer n − 1
//! ```
//!
//! A block id of 16 bits goes from 1 to 65 535 and on to 1: 0 is reserved, but some cameras use it. The number of a
//! block's packets is known from its trailer, or from the size of the image in its leader.
//!
//! Source: the layouts that Wireshark's dissector `gvsp` and the aravis library read.

mod blocks;
pub mod index;
mod leader;
pub mod packet;
pub mod resend;
pub mod write;

pub use leader::{Layout, Leader};
pub use packet::{Content, GvspError, Packet};
