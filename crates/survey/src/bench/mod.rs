//! Benchmarks: each measures a stage of the path and leaves one [`result::BenchResult`].
//!
//! ```text
//! disk    targets ──► peak sweep ──► continuous write ──► read back ──► fio, spec, endurance ──► verdict
//! memory  copy, checksum, pattern
//! ring    hand-over of blocks between threads
//! net     packets sent and received
//! all     each stage alone, then the path whole: the slowest has a name
//! ```
//!
//! The document is the same for all of them: what a benchmark did not measure is absent or empty.

pub mod all;
pub mod compare;
pub mod disk;
pub mod environment;
pub mod health;
pub mod history;
pub mod memory;
pub mod net;
pub mod result;
pub mod ring;
pub mod sets;
