//! VSI-S, the control language of VLBI recorders, without sockets, clocks and disks.
//!
//! ```text
//!  bytes ──► Lines ──► statements ──► dialect ──► reply line
//!                                        │
//!                                     Station      what the recorder does, from memory
//! ```
//!
//! - [`mod@line`]: the bytes of a connection as lines, and lines as statements
//! - [`reply`]: the answer to a statement, with its code
//! - [`label`]: the name of a scan, as a client gives it
//! - [`vex_time`]: times such as `2026y325d19h51m48.9638s`
//! - [`file_facts`]: what the ends of a VDIF file tell of it
//! - [`station`]: the interface to the recorder
//! - [`flexbuff`]: the dialect of a FlexBuff station, which the NASA Field System and m5copy speak
//!
//! The syntax is that of VSI-S, revision 1.0: `cmd = a : b ;` and `cmd ? a : b ;`, several on a line. The dialect
//! follows jive5ab 3.1.0, as far as a client can see. Everything answers from memory, so no answer waits for a disk.
//! The crate touches nothing outside of itself.

#![forbid(unsafe_code)]

pub mod file_facts;
pub mod flexbuff;
pub mod label;
pub mod line;
pub mod reply;
pub mod station;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod vex_time;

/// The port of a FlexBuff station.
pub const DEFAULT_PORT: u16 = 2620;
