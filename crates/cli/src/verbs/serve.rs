//! `fullbore serve`: the station, a daemon with REST and a dashboard.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args as ClapArgs;
use fullbore_daemon::config::DEFAULT_ADDRESS;
use fullbore_daemon::{Config, Ready};
use fullbore_recording::store;
use fullbore_terminal::output::{self, Output};
use serde::Serialize;

use crate::hint::explained;
use crate::signals;
use crate::store_arg::StoreArg;

/// Run the station: record over REST and from a browser.
///
///   fullbore serve
///   fullbore serve --demo     a simulated receiver, to look at the dashboard without an instrument
///
/// serve listens on this host only, and prints the address of its dashboard with a code that
/// logs a browser in once, as an admin. Recordings are processes of their own. They go on when
/// the daemon ends or is killed, and the next daemon of the same store finds them again.
///
/// Programs use a token, which a file lists by its SHA-256 (`printf %s TOKEN | sha256sum`):
///
///   [[token]]
///   name = "field-system"
///   role = "operator"       # viewer, operator or admin
///   sha256 = "…"
///
///   curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8480/api/v1/status
///
/// The daemon's own files are in station/ of $FULLBORE_STATE, else in ~/.local/state/fullbore:
/// the audit log, sessions of browsers, and a directory for each recording that runs.
///
/// Exit codes: 0 it was stopped by Ctrl-C or SIGTERM; 2 it could not serve.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The address to listen on; only loopback, for there is no TLS yet. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = DEFAULT_ADDRESS)]
    listen: SocketAddr,
    /// Show a simulated receiver: its last minute is recorded into a temporary directory of about 0.5 GB, which is
    /// removed at the end.
    #[arg(long, conflicts_with = "store")]
    demo: bool,
    /// A TOML file with the tokens of programs.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Serialize)]
struct ServeJson<'a> {
    event: &'static str,
    address: SocketAddr,
    login: &'a str,
    found: usize,
    state: &'a PathBuf,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if args.demo {
        return demo(&args, output);
    }
    let is_default = args.store.store.is_empty() && store::of_environment().is_empty();
    let members = args.store.members()?;
    store::check_to_write(&members).map_err(explained)?;
    for member in members.iter().filter(|_| is_default) {
        std::fs::create_dir_all(member)
            .with_context(|| format!("making the default store {}", member.display()))?;
    }
    let (program, listen, tokens) = (program()?, args.listen, args.tokens);
    let config = Config { members, listen, tokens, program, demo: None };
    serve(&config, "the daemon has ended; recordings that run go on", output)
}

/// Serves a demonstration in a temporary directory.
fn demo(args: &Args, output: Output) -> anyhow::Result<ExitCode> {
    let directory = tempfile::Builder::new().prefix("fullbore-demo-").tempdir();
    let directory = directory.context("making a temporary directory for the demonstration")?;
    let member = directory.path().join("disk0");
    std::fs::create_dir(&member).context("making the store of the demonstration")?;
    let (program, listen, tokens) = (program()?, args.listen, args.tokens.clone());
    let demo = Some(directory.path().to_owned());
    let config = Config { members: vec![member], listen, tokens, program, demo };
    let served = serve(&config, "the demonstration has ended", output);
    directory.close().context("removing the directory of the demonstration")?;
    served
}

fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("finding this program, which records")
}

/// Serves until it is stopped.
fn serve(config: &Config, end: &str, output: Output) -> anyhow::Result<ExitCode> {
    let stop = signals::stop_handle()?;
    fullbore_daemon::serve(config, &stop, |ready| tell(ready, output)).map_err(explained)?;
    if !output.json {
        output::say(&format!("fullbore: {end}"));
    }
    Ok(ExitCode::from(output::GOOD))
}

fn tell(ready: &Ready, output: Output) {
    let Ready { address, login_url: login, found, state } = ready;
    let told = ServeJson { event: "serving", address: *address, login, found: *found, state };
    if !output.event(&told) {
        let again = match found {
            0 => String::new(),
            found => format!(", found {} again", output::count(*found, "recording")),
        };
        output::print_on(&format!(
            "serving on http://{address}{again}\nlog in once, within a day: {login}\n"
        ));
    }
}
