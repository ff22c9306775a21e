//! VDIF, the frame format of VLBI: a header of 32 bytes (legacy: 16), then samples.
//!
//! [`Header`] reads and writes the header, [`Extended`] its last 16 bytes in every registered form,
//! [`Mode`] the text by which a recorder is told what will come, and [`Timeline`] turns the time in
//! the headers of one thread into an index that counts frames without a gap.

mod extended;
#[cfg(test)]
mod golden;
mod header;
mod mode;
mod second;
mod second_count;
mod timeline;

pub use extended::{Backend, Extended, SampleRate};
pub use header::{Header, HeaderError, StationError, check, station_number};
pub use mode::{Mode, ModeError};
pub use second::Second;
pub use second_count::{Found, SecondCount, mark5b};
pub use timeline::{NOWHERE, Timeline};
