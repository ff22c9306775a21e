//! VDIF, the frame format of VLBI: a header of 32 bytes (legacy: 16), then samples.
//!
//! [`Header`] reads and writes the header, [`Extended`] its last 16 bytes in every registered form, [`Mode`] the text
//! that describes a stream to a recorder, and [`Timeline`] converts the time in the headers of one thread to an index
//! that counts frames without a gap.

mod extended;
mod frame;
#[cfg(test)]
mod golden;
mod header;
pub(super) mod mark5b;
mod mode;
mod samples;
mod second;
mod second_count;
mod threads;
mod timeline;

pub use extended::{Backend, Extended, SampleRate};
pub use frame::Vdif;
pub use header::{Header, HeaderError, StationError, check, station_number};
pub use mark5b::mark5b;
pub use mode::{Mode, ModeError};
pub use samples::{ChannelStatistics, SampleStatistics};
pub use second::Second;
pub use second_count::{Found, SecondCount};
pub use threads::thread_list;
pub use timeline::{NOWHERE, Timeline};
