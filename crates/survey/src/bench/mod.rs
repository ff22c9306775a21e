//! Benchmarks: each measures a stage of the path and leaves one [`result::BenchResult`].
//!
//! ```text
//! disk    targets ──► peak sweep ──► continuous write ──► read back ──► fio, spec, endurance ──► verdict
//! memory  copy, checksum, pattern
//! ring    passing blocks between threads
//! net     packets sent and received
//! all     each stage alone, then the whole path: identifies the slowest stage
//! ```
//!
//! All benchmarks use the same document. Values that a benchmark did not measure are absent or empty.

pub mod all;
pub mod compare;
pub mod disk;
pub mod environment;
pub mod health;
pub mod history;
pub mod measured;
pub mod memory;
pub mod net;
pub mod result;
pub mod ring;
pub mod sets;
