//! `fullbore`: the binary. Arguments become a plan, the plan runs, and what happened is told.

// The doc comments of arguments are the help on the terminal, where brackets mean options, not links.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::private_intra_doc_links)]
#![allow(rustdoc::invalid_html_tags, rustdoc::bare_urls)]

mod account_table;
mod config;
mod help;
mod hint;
mod output;
mod screen;
mod signals;
mod store_arg;
mod verbs;

use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use fullbore_core::time::leap;

use output::Output;

/// Record data streams at full rate, and prove that nothing was lost.
///
///   fullbore record 'udp://0.0.0.0:46220?format=vdif' --session test --scan one
///   fullbore verify test_one        is it intact, and is it complete?
///   fullbore info test_one          what is it, and what does its account say?
///
///   fullbore demo                   all of it, on this machine alone, in a minute
///
/// Every command accepts --help, --json for scripts, and --config FILE (TOML;
/// options on the command line override the file). Times are UTC;
/// --version tells the table of leap seconds in force and when it ends.
///
/// Exit codes: 0 done, and nothing is wrong; 1 done, and something is wrong: loss,
/// damage, an abort, a timing not kept; 2 it could not be done; 3 from `verify`
/// only: intact, but the recording is not complete.
#[derive(Parser)]
#[command(version, args_override_self = true, propagate_version = true, verbatim_doc_comment)]
struct Arguments {
    /// Print JSON instead of text for people.
    #[arg(long, global = true)]
    json: bool,
    /// Take options from a TOML file: a table named for the command, with the options' long names as
    /// keys. What is typed wins.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Record(verbs::record::Args),
    Play(verbs::play::Args),
    Generate(verbs::generate::Args),
    Verify(verbs::verify::Args),
    Ls(verbs::ls::Args),
    Info(verbs::info::Args),
    Cat(verbs::cat::Args),
    Recover(verbs::recover::Args),
    Rebuild(verbs::rebuild::Args),
    Rm(verbs::rm::Args),
    Protect(verbs::protect::Args),
    Mark(verbs::mark::Args),
    Demo(verbs::demo::Args),
    #[cfg(feature = "hdf5")]
    Panda(verbs::panda::Args),
    #[cfg(feature = "hdf5")]
    Convert(verbs::convert::Args),
    Simulate(verbs::simulate::Args),
    Bench(verbs::bench::Args),
    Selftest(Box<verbs::selftest::Args>),
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fullbore: {}", hint::told(&error));
            ExitCode::from(output::REFUSED)
        }
    }
}

/// What `--version` says: the version, and by which leap seconds times are converted.
static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{}\nleap seconds: {}", env!("CARGO_PKG_VERSION"), leap::in_force()));

fn run() -> anyhow::Result<ExitCode> {
    // Before anything is read that may tell a time.
    fullbore_engine::leap::install()?;
    let mut command = help::flowing(Arguments::command().long_version(LONG_VERSION.as_str()));
    let typed = help::asked_for_itself(config::with_file(std::env::args_os(), &command)?);
    let arguments = match command.try_get_matches_from_mut(&typed) {
        Ok(matches) => Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()),
        Err(error) => return Ok(help::refused(&error, &command, &typed)),
    };
    let output = Output { json: arguments.json };
    match arguments.verb {
        Verb::Record(args) => verbs::record::run(args, output),
        Verb::Play(args) => verbs::play::run(args, output),
        Verb::Generate(args) => verbs::generate::run(args, output),
        Verb::Verify(args) => verbs::verify::run(args, output),
        Verb::Ls(args) => verbs::ls::run(args, output),
        Verb::Info(args) => verbs::info::run(args, output),
        Verb::Cat(args) => verbs::cat::run(args, output),
        Verb::Recover(args) => verbs::recover::run(args, output),
        Verb::Rebuild(args) => verbs::rebuild::run(args, output),
        Verb::Rm(args) => verbs::rm::run(args, output),
        Verb::Protect(args) => verbs::protect::run(args, output),
        Verb::Mark(args) => verbs::mark::run(args, output),
        Verb::Demo(args) => verbs::demo::run(args, output),
        #[cfg(feature = "hdf5")]
        Verb::Panda(args) => verbs::panda::run(args, output),
        #[cfg(feature = "hdf5")]
        Verb::Convert(args) => verbs::convert::run(args, output),
        Verb::Simulate(args) => verbs::simulate::run(args, output),
        Verb::Bench(args) => verbs::bench::run(args, output),
        Verb::Selftest(args) => verbs::selftest::run(*args, output),
    }
}
