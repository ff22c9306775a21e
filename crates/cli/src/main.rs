//! `fullbore`: the binary. Converts arguments to a plan, runs the plan, and reports the result.

// The doc comments of arguments are the help on the terminal, where brackets mean options, not links.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::private_intra_doc_links)]
#![allow(rustdoc::invalid_html_tags, rustdoc::bare_urls)]
// These macros panic if printing fails, which must not end the program: see `output`.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod config;
mod help;
mod hint;
mod logging;
mod signals;
mod store_arg;
mod verbs;

use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use fullbore_core::hint::with_causes;
use fullbore_terminal::{account_table, glance, output, screen};
use fullbore_time::leap;

use config::RecordFile;
use output::Output;

/// Record data streams at full rate, and prove that nothing was lost.
///
///   fullbore record 'udp://0.0.0.0:46220?format=vdif' --session test --scan one
///   fullbore verify test_one        check that it is intact and complete
///   fullbore info test_one          show the scan and its account
///
///   fullbore demo                   try all of it on this machine, in a minute
///
/// Every command accepts --help, --json for scripts, -v for a log of its steps,
/// and --config FILE (TOML; options on the command line override the file). Times are UTC; --version
/// shows the leap-second table in use and when it expires.
///
/// Exit codes: 0 success; 1 the command ran and found a problem: loss, damage,
/// an abort, or missed timing; 2 the command could not run; 3 from `verify`: the data
/// is intact, but the recording is not complete; from `plan` and `doctor`: nothing
/// refuses, but something warns or is not known.
#[derive(Parser)]
#[command(version, args_override_self = true, propagate_version = true, verbatim_doc_comment)]
struct Arguments {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    json: bool,
    /// Read options from a TOML file: a table named after the command, with long option names as keys.
    /// The command line overrides the file.
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<std::path::PathBuf>,
    /// Do it at a running daemon: unix:PATH, http://127.0.0.1:8480, https://HOST:PORT[?pin=SHA256|ca=FILE], or unix: for the
    /// daemon of this user's store [default: $FULLBORE_STATION].
    #[arg(long, global = true, value_name = "URL|PATH")]
    station: Option<String>,
    #[command(flatten)]
    logging: logging::Logging,
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
    Watch(verbs::watch::Args),
    Spectrum(verbs::spectrum::Args),
    Analyse(verbs::analyse::Args),
    Index(verbs::content::IndexArgs),
    Find(verbs::content::FindArgs),
    Cat(verbs::cat::Args),
    Recover(verbs::recover::Args),
    Rebuild(verbs::rebuild::Args),
    Rm(verbs::rm::Args),
    Protect(verbs::protect::Args),
    Mark(verbs::mark::Args),
    Trigger(verbs::trigger::Args),
    Snapshot(verbs::snapshot::Args),
    Serve(verbs::serve::Args),
    Status(verbs::station::status::Args),
    Stop(verbs::station::stop::Args),
    Schedule(verbs::station::schedule::Args),
    Send(verbs::transfer::send::Args),
    Receive(verbs::transfer::receive::Args),
    Transfers(verbs::transfer::transfers::Args),
    Peers(verbs::transfer::peers::Args),
    Demo(verbs::demo::Args),
    #[cfg(feature = "hdf5")]
    Panda(verbs::panda::Args),
    #[cfg(feature = "hdf5")]
    Convert(verbs::convert::Args),
    Simulate(verbs::simulate::Args),
    Bench(verbs::bench::Args),
    Plan(Box<verbs::plan::Args>),
    Doctor(verbs::doctor::Args),
    Selftest(Box<verbs::selftest::Args>),
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => output::judged_by_what_was_told(code),
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::complain(None, &with_causes(&*error));
            ExitCode::from(output::REFUSED)
        }
    }
}

/// The text of `--version`: the version, and the leap-second table in use.
static LONG_VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{}\nleap seconds: {}", env!("CARGO_PKG_VERSION"), leap::in_force()));

fn run() -> anyhow::Result<ExitCode> {
    signals::stop_with_parent()?;
    // Before any time is converted.
    fullbore_linux::leap::install()?;
    let mut command = help::flowing(Arguments::command().long_version(LONG_VERSION.as_str()));
    let typed = help::with_negative_values(std::env::args_os());
    let config::Configured { typed, lines, record } = config::with_file(typed, &command)?;
    if record.is_none() {
        command = command.mut_subcommand("record", verbs::record::with_requirements);
    }
    let typed = help::asked_for_itself(typed);
    if typed.iter().any(|word| word == "--json") {
        output::errors_as_json();
    }
    let arguments = match command.try_get_matches_from_mut(&typed) {
        Ok(matches) => {
            if let Some(code) = verbs::station::redirected(&matches, &command, record.is_some())? {
                return Ok(code);
            }
            Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
        }
        Err(error) => return Ok(help::refused(&error, &command, &typed, &lines)),
    };
    obey(arguments, record.unwrap_or_default()).map_err(|error| lines.blame(error))
}

/// Runs the command. `file` has the options of a recording that are not typed.
fn obey(arguments: Arguments, file: RecordFile) -> anyhow::Result<ExitCode> {
    let logging = arguments.logging.or(file.shown.log);
    let of_station = fullbore_daemon::log::Log::default();
    let serves = matches!(arguments.verb, Verb::Serve(_));
    let _log = logging.start(serves.then(|| of_station.clone()));
    let output = Output { json: arguments.json || file.shown.json, logs: logging.is_on() };
    if output.json {
        output::errors_as_json();
    }
    let station = arguments.station.as_deref();
    match arguments.verb {
        Verb::Record(args) => verbs::record::run(args, file, output),
        Verb::Play(args) => verbs::play::run(args, output),
        Verb::Generate(args) => verbs::generate::run(args, output),
        Verb::Verify(args) => verbs::verify::run(args, output),
        Verb::Ls(args) => verbs::ls::run(args, output),
        Verb::Info(args) => verbs::info::run(args, output),
        Verb::Watch(args) => verbs::watch::run(&args, output),
        Verb::Spectrum(args) => verbs::spectrum::run(args, output),
        Verb::Analyse(args) => verbs::analyse::run(args, output),
        Verb::Index(args) => verbs::content::index(&args, output),
        Verb::Find(args) => verbs::content::find(&args, output),
        Verb::Cat(args) => verbs::cat::run(args, output),
        Verb::Recover(args) => verbs::recover::run(args, output),
        Verb::Rebuild(args) => verbs::rebuild::run(args, output),
        Verb::Rm(args) => verbs::rm::run(args, output),
        Verb::Protect(args) => verbs::protect::run(args, output),
        Verb::Mark(args) => verbs::mark::run(args, output),
        Verb::Trigger(args) => verbs::trigger::run(args, output),
        Verb::Snapshot(args) => verbs::snapshot::run(args, output),
        Verb::Serve(args) => verbs::serve::run(args, arguments.config, of_station, output),
        Verb::Status(args) => verbs::station::status::run(&args, station, output),
        Verb::Stop(args) => verbs::station::stop::run(&args, station, output),
        Verb::Schedule(args) => verbs::station::schedule::run(args, station, output),
        Verb::Send(args) => verbs::transfer::send::run(args, output),
        Verb::Receive(args) => verbs::transfer::receive::run(args, output),
        Verb::Transfers(args) => verbs::transfer::transfers::run(args, output),
        Verb::Peers(args) => verbs::transfer::peers::run(args, output),
        Verb::Demo(args) => verbs::demo::run(args, output),
        #[cfg(feature = "hdf5")]
        Verb::Panda(args) => verbs::panda::run(args, output),
        #[cfg(feature = "hdf5")]
        Verb::Convert(args) => verbs::convert::run(args, output),
        Verb::Simulate(args) => verbs::simulate::run(args, output),
        Verb::Bench(args) => verbs::bench::run(args, output),
        Verb::Plan(args) => verbs::plan::run(*args, output),
        Verb::Doctor(args) => verbs::doctor::run(args, output),
        Verb::Selftest(args) => verbs::selftest::run(*args, output),
    }
}
