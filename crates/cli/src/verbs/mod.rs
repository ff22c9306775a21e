//! One file per verb: its arguments, their meaning, and the output of its result.
//!
//! Each has `Args` (the arguments) and `run(Args, Output)`, which returns the exit code.

pub mod analyse;
pub mod bench;
pub mod cat;
pub mod content;
#[cfg(feature = "hdf5")]
pub mod convert;
#[cfg(feature = "hdf5")]
pub mod convert_tdms;
pub mod demo;
pub mod device;
pub mod doctor;
pub mod generate;
pub mod info;
mod live_scan;
pub mod ls;
pub mod mark;
pub mod objects;
pub mod packets;
#[cfg(feature = "hdf5")]
pub mod panda;
pub mod plan;
pub mod play;
pub mod protect;
pub mod rebuild;
pub mod record;
pub mod recover;
pub mod rm;
pub mod scan_arg;
pub mod selftest;
mod sending;
pub mod serve;
pub mod simulate;
pub mod snapshot;
pub mod spectrum;
pub mod station;
pub mod transfer;
pub mod trigger;
pub mod verify;
pub mod watch;

/// Parses arguments as typed after a verb.
#[cfg(test)]
fn typed<A: clap::Args>(words: &str) -> Result<A, clap::Error> {
    #[derive(clap::Parser)]
    #[command(no_binary_name = true)]
    struct Typed<A: clap::Args> {
        #[command(flatten)]
        args: A,
    }
    <Typed<A> as clap::Parser>::try_parse_from(words.split_whitespace()).map(|typed| typed.args)
}
