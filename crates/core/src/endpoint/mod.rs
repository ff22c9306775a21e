//! Sources and targets of streams as one text: the same on the command line, in a file and over REST.
//!
//! ```text
//! udp://0.0.0.0:46220-46235?format=vdif&fps=32000      sixteen ports, each a stream of its own
//! udp://239.1.1.1:5000?interface=eth0                  a multicast group
//! udp://[::1]:5000?format=raw&seq=0:8:le               any datagrams, counted by their first 8 bytes
//! file:x.vdif                                          one plain file
//! store:r1234_no0001/46220                             a stream of a stored scan
//! ```
//!
//! [`Endpoint`] is the text, split into its parts. Each scheme interprets them in a file of its own: [`UdpSource`],
//! [`UdpTarget`], [`file_path`] and [`stored`] here, others beside the format they belong to. Such a file begins with
//! `Endpoint::must_be`, and reads the parameters after the `?` through a `Query`, by a table of [`Parameter`]s.

mod error;
mod file;
mod query;
mod samples;
mod store;
mod text;
mod udp;
mod udp_frames;
mod udp_source;
mod udp_target;

pub use error::Error;
pub use file::{FileTarget, file_path};
pub(crate) use query::parameter;
pub use query::{Parameter, Query};
pub(crate) use samples::sample_layout;
pub use samples::{SAMPLE_PARAMETERS, samples_of_source};
pub use store::stored;
pub use text::{Authority, Endpoint, LONGEST};
pub use udp::LARGEST_DATAGRAM;
pub use udp_source::{
    Engine, Gro, LONGEST_STRIP, PACKET_NUMBER_BYTES, SourceFormat, Threads, UdpSource,
};
pub use udp_target::UdpTarget;
