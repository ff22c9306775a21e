//! The Linux data path of fullbore: `source ──► ring ──► sink`.
//!
//! - [`device`]: a drive recorded onto without a file system, and what guards it
//! - [`generate`]: streams made for tests, with faults on purpose
//! - [`leap`]: which table of leap seconds is in force
//! - [`pace`]: when packets go out, and how well that went
//! - [`panda`]: PandA position captures over TCP, and a simulated PandA
//! - [`posting`]: where threads run and how urgently, asked for and read back
//! - [`replayer`]: recorded frames sent again, in step
//! - [`ring`]: the block pool and the queues of block handles between threads
//! - [`sink`]: containers that other people's programs read
//! - [`store`]: members, their writers, chunk files and the index
//! - [`store`]: scans on a disk set: finding, reading, verifying, recovering and removing them
//! - [`sys`]: every system call that needs `unsafe`, and nothing else
//! - [`topology`]: what the kernel tells of cores, nodes, cards and disks
//!
//! No async runtime: capture threads, one writer per member, and a supervisor.

pub mod checksum;
pub mod clock;
pub mod device;
pub mod generate;
pub mod leap;
pub mod lifecycle;
pub mod pace;
pub mod panda;
pub mod posting;
pub mod recorder;
pub mod replayer;
pub mod ring;
pub mod sink;
pub mod source;
pub mod store;
pub mod sys;
pub mod topology;
pub mod witness;
