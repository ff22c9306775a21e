//! What the kernel gives: memory, sockets, io_uring, clocks and threads, and the ring of blocks in that memory.
//!
//! - [`sys`]: all system calls that need `unsafe`, and nothing else. No other crate has `unsafe`.
//! - [`ring`]: the block pool and the queues of block handles between threads
//! - [`ring_sim`]: the ring that a disk needs, by its measured service times
//! - [`thread_config`]: thread affinity and priority, requested and read back
//! - [`writer_thread`]: the thread of a writer
//! - [`rights`]: gives up the rights that only the opening of sources needs
//! - [`stop_handle`]: stops a recording or other long work from another thread
//! - [`clock`]: the host's clock, read once
//! - [`load_file`]: the load of a recorder, published for other processes
//! - [`leap`]: the leap second table in use
//! - [`overlap`]: whether two names are one file
//! - [`read_at`]: bytes at an offset
//! - [`place`]: whether a file can be made at a place
//! - [`regular_file`]: opens stored files, and nothing else in their place
//!
//! It may make any system call. It knows no format, no store and no recorder.

pub mod clock;
pub mod leap;
pub mod load_file;
pub mod overlap;
pub mod place;
pub mod read_at;
pub mod regular_file;
pub mod rights;
pub mod ring;
pub mod ring_sim;
pub mod stop_handle;
pub mod sys;
pub mod thread_config;
pub mod writer_thread;
