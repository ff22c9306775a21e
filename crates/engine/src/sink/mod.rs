//! Containers that other people's programs read, written live or by `convert`.
//!
//! The store keeps a stream as it came; these sinks keep what it means. Each takes the bytes of whole
//! samples or frames, makes them visible to readers about once a second, and is told at the end how the
//! recording ended and what its account says.

#[cfg(feature = "hdf5")]
pub mod hdf5;
