//! `fullbore bench`: the sustained performance of this machine, measured with the recorder's code.

mod all;
mod compare;
mod disk;
mod link;
mod memory;
mod net;
mod report;
mod result_output;
mod ring;
mod table;

use std::process::ExitCode;

use clap::{Args as Arguments, Subcommand};

use crate::output::Output;

/// Measure what this machine sustains, with the code that records.
///
///   fullbore bench disk /mnt/disk0 /mnt/disk1 --require 16Gbit/s
///
/// The exit code is 1 if a required rate is not sustained.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Disk(Box<disk::Args>),
    Memory(memory::Args),
    Ring(ring::Args),
    Net(Box<net::Args>),
    Link(Box<link::Args>),
    All(Box<all::Args>),
    Compare(compare::Args),
    Report(report::Args),
}

/// Runs the subcommand.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Disk(args) => disk::run(*args, output),
        Action::Memory(args) => memory::run(args, output),
        Action::Ring(args) => ring::run(args, output),
        Action::Net(args) => net::run(*args, output),
        Action::Link(args) => link::run(*args, output),
        Action::All(args) => all::run(*args, output),
        Action::Compare(args) => compare::run(args, output),
        Action::Report(args) => report::run(args, output),
    }
}
