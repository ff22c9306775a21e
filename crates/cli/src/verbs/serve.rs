//! `fullbore serve`: the station, a daemon with REST and a dashboard.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args as ClapArgs;
use fullbore_daemon::config::DEFAULT_ADDRESS;
use fullbore_daemon::{Config, Ready, vsi};
use fullbore_recording::store;
use fullbore_terminal::output::{self, Output};
use fullbore_transfer::files::AllowList;
use serde::Serialize;

use crate::hint::explained;
use crate::signals;
use crate::store_arg::StoreArg;

/// Run the station: record over REST and from a browser.
///
///   fullbore serve
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
/// --vsi-s opens a port for VSI-S, over which the NASA Field System and m5copy control the station
/// as a FlexBuff. Every host that reaches the port may ask. Only hosts of --vsi-s-allow may command.
///
///   fullbore serve --vsi-s 192.0.2.5 --vsi-s-allow 192.0.2.1
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
    /// A TOML file with the tokens of programs.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Also listen for VSI-S; without an address on 127.0.0.1:2620, without a port on 2620.
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "127.0.0.1",
        value_parser = vsi::address)]
    vsi_s: Option<SocketAddr>,
    /// Hosts and networks whose VSI-S commands are obeyed, separated by commas; default: this host.
    #[arg(long, value_name = "ADDRESSES", requires = "vsi_s")]
    vsi_s_allow: Option<AllowList>,
    /// The directory for files of disk2file. Without it, there are none.
    #[arg(long, value_name = "DIRECTORY", requires = "vsi_s")]
    vsi_s_files: Option<PathBuf>,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    vsi: Option<SocketAddr>,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let is_default = args.store.store.is_empty() && store::of_environment().is_empty();
    let members = args.store.members()?;
    store::check_to_write(&members).map_err(explained)?;
    for member in members.iter().filter(|_| is_default) {
        std::fs::create_dir_all(member)
            .with_context(|| format!("making the default store {}", member.display()))?;
    }
    let program = std::env::current_exe().context("finding this program, which records")?;
    let vsi = args.vsi_s.map(|listen| vsi::Settings {
        listen,
        allow: args.vsi_s_allow.unwrap_or_else(AllowList::this_host),
        files: args.vsi_s_files,
    });
    let config = Config { members, listen: args.listen, tokens: args.tokens, program, vsi };
    let stop = signals::stop_handle()?;
    fullbore_daemon::serve(&config, &stop, |ready| tell(ready, output)).map_err(explained)?;
    if !output.json {
        output::say("fullbore: the daemon has ended; recordings that run go on");
    }
    Ok(ExitCode::from(output::GOOD))
}

fn tell(ready: &Ready, output: Output) {
    let Ready { address, login_url: login, found, state, vsi } = ready;
    let told =
        ServeJson { event: "serving", address: *address, login, found: *found, state, vsi: *vsi };
    if !output.event(&told) {
        let again = match found {
            0 => String::new(),
            found => format!(", found {} again", output::count(*found, "recording")),
        };
        output::print_on(&format!(
            "serving on http://{address}{again}\nlog in once, within a day: {login}\n"
        ));
        if let Some(vsi) = vsi {
            output::print_on(&format!("VSI-S on {vsi}\n"));
        }
    }
}
