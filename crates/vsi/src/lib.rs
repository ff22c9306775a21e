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
//! - [`cplane`]: the dialect of a Mark6
//!
//! The syntax is that of VSI-S, revision 1.0: `cmd = a : b ;` and `cmd ? a : b ;`, several on a line. The dialect
//! follows jive5ab 3.1.0, as far as a client can see. Everything answers from memory, so no answer waits for a disk.
//! The crate touches nothing outside of itself.

#![forbid(unsafe_code)]

pub mod cplane;
pub mod file_facts;
pub mod flexbuff;
pub mod label;
pub mod line;
pub mod reply;
pub mod station;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod vex_time;

use reply::{Code, Reply};
use station::Station;

/// A dialect, with the state that all its connections share.
pub trait Dialect: Default + Send {
    /// A connection.
    type Session: Send;

    /// A new connection; `may_write` allows commands, not only queries.
    fn session(may_write: bool) -> Self::Session;

    /// Answers a line. If `may_wait`, a statement that needs what a disk holds is put off: see [`Outcome::Wait`].
    fn line(
        &mut self,
        session: &mut Self::Session,
        station: &mut dyn Station,
        text: &str,
        may_wait: bool,
    ) -> Outcome;

    /// The answer to text that is no statement.
    fn refuse(code: Code, why: &str) -> Reply {
        Reply::because(code, why)
    }

    /// Takes the end of a connection.
    fn end(&mut self, _session: &Self::Session, _station: &dyn Station) {}
}

/// What became of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The line of the answer, without its end.
    Answer(String),
    /// A scan is being read. The rest of the line is to be given again in a moment, after what is answered so far.
    Wait {
        /// The answers so far.
        answered: String,
        /// What remains.
        rest: String,
    },
}

/// The port of a FlexBuff station.
pub const DEFAULT_PORT: u16 = 2620;
