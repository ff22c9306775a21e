//! `fullbore serve`: the station, a daemon with REST and a dashboard.

mod leftovers;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Args as ClapArgs;
use fullbore_daemon::config::DEFAULT_ADDRESS;
use fullbore_daemon::log::Log;
use fullbore_daemon::station_file::{self, Fault, StationFile, Summary};
use fullbore_daemon::transfers::Listening;
use fullbore_daemon::{Config, Ready, Told, vsi};
use fullbore_linux::stop_handle::StopHandle;
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
/// A file describes a whole station: members, named inputs, listeners with TLS, tokens and users,
/// limits, schedules, alerts and transfers. --check tells everything that is wrong in it:
///
///   fullbore serve --config station.toml --check
///   fullbore serve --config station.toml
///
/// SIGHUP reads the file again. What counts only after a restart (members, listeners) is named.
///
/// The station runs the queue of transfers of its user, as `fullbore transfers run` does. With
/// [receive] in its file, it takes scans from other sites, as `fullbore receive` does.
///
/// An address that other hosts reach has TLS, and needs tokens. Without a certificate in the file,
/// one that signs itself is made, and its fingerprint is printed.
///
/// --vsi-s opens a port for VSI-S, over which the NASA Field System and m5copy control the station
/// as a FlexBuff. Every host that reaches the port may ask. Only hosts of --vsi-s-allow may command.
///
///   fullbore serve --vsi-s 192.0.2.5 --vsi-s-allow 192.0.2.1
///
/// The daemon's own files are in station/ of $FULLBORE_STATE, else in ~/.local/state/fullbore:
/// the audit log, sessions of browsers, and a directory for each recording that runs.
///
/// Exit codes: 0 it was stopped by Ctrl-C or SIGTERM, or --check found nothing wrong; 1 --check found
/// something wrong; 2 it could not serve.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The address to listen on: in clear on this host, else with TLS, which needs --tokens. Port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = DEFAULT_ADDRESS)]
    listen: SocketAddr,
    /// Show a simulated receiver: its last minute is recorded into a temporary directory of about 0.5 GB, which is
    /// removed at the end.
    #[arg(long, conflicts_with = "store")]
    demo: bool,
    /// A TOML file with the tokens of programs.
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Check the file of --config, and do not serve.
    #[arg(long)]
    check: bool,
    /// Also listen for VSI-S; without an address on 127.0.0.1:2620, without a port on 2620.
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "127.0.0.1",
        value_parser = vsi::address)]
    vsi_s: Option<SocketAddr>,
    /// Also speak as a Mark6 does, to the same hosts; without an address on 127.0.0.1:14242, without a port on 14242.
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "127.0.0.1",
        value_parser = vsi::mark6_address, requires = "vsi_s")]
    mark6: Option<SocketAddr>,
    /// Hosts and networks whose VSI-S commands are obeyed, separated by commas; default: this host.
    #[arg(long, value_name = "ADDRESSES", requires = "vsi_s")]
    vsi_s_allow: Option<AllowList>,
    /// The directory for files of disk2file. Without it, there are none.
    #[arg(long, value_name = "DIRECTORY", requires = "vsi_s")]
    vsi_s_files: Option<PathBuf>,
    /// The directory for files of `convert` and `snapshot` that clients run here. Without it, there are none.
    #[arg(long, value_name = "DIRECTORY")]
    exports: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(Serialize)]
struct ServeJson<'a> {
    event: &'static str,
    address: Option<SocketAddr>,
    urls: &'a [String],
    login: Option<&'a str>,
    fingerprint: Option<&'a str>,
    found: usize,
    state: &'a PathBuf,
    problems: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    vsi: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mark6: Option<SocketAddr>,
    receive: Option<&'a Listening>,
}

#[derive(Serialize)]
struct CheckJson<'a> {
    file: &'a Path,
    good: bool,
    faults: &'a [Fault],
    #[serde(skip_serializing_if = "Option::is_none")]
    describes: Option<Summary>,
}

/// Runs the command. `file` describes the station, and `log` collects what it logs.
pub fn run(
    args: Args,
    file: Option<PathBuf>,
    log: Log,
    output: Output,
) -> anyhow::Result<ExitCode> {
    if args.check {
        let file = file.context("--check checks the file of --config, and none is given")?;
        return check(&file, output);
    }
    if args.demo {
        anyhow::ensure!(file.is_none(), "--demo needs no file, and takes none");
        return demo(args, log, output);
    }
    let (reload, from_file) = (Arc::default(), file.is_some());
    let config = match file {
        Some(file) => {
            let given =
                !args.store.store.is_empty() || args.tokens.is_some() || args.exports.is_some();
            anyhow::ensure!(
                !given && args.listen == DEFAULT_ADDRESS,
                "--store, --exports, --listen and --tokens are for a station without a file\n  write them into \
                 [store], [listen] and [[token]] of {}",
                file.display()
            );
            let station = StationFile::read(&file).map_err(explained)?;
            let (members, listen, tokens) = (station.members.clone(), args.listen, None);
            let program = program()?;
            let (station, demo, exports, vsi) = (Some(station), None, None, vsi(args));
            Config { members, listen, tokens, station, reload, program, demo, exports, vsi, log }
        }
        None => {
            let members = members(&args)?;
            let (listen, tokens, program) = (args.listen, args.tokens.clone(), program()?);
            let exports = exports(&args)?;
            let (station, demo, vsi) = (None, None, vsi(args));
            Config { members, listen, tokens, station, reload, program, demo, exports, vsi, log }
        }
    };
    let stop = match from_file {
        true => signals::stop_or_reload(config.reload.clone())?,
        false => signals::stop_handle()?,
    };
    serve(&config, &stop, "the daemon has ended; recordings that run go on", output)
}

/// The members of the command line. The default ones are made.
fn members(args: &Args) -> anyhow::Result<Vec<PathBuf>> {
    let is_default = args.store.store.is_empty() && store::of_environment().is_empty();
    let members = args.store.members()?;
    store::check_to_write(&members).map_err(explained)?;
    for member in members.iter().filter(|_| is_default) {
        std::fs::create_dir_all(member)
            .with_context(|| format!("making the default store {}", member.display()))?;
    }
    Ok(members)
}

/// The directory for files, by its whole path.
fn exports(args: &Args) -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = &args.exports else { return Ok(None) };
    let whole = path.canonicalize();
    whole.map(Some).with_context(|| format!("--exports {}", path.display()))
}

/// Serves a demonstration in a temporary directory.
fn demo(args: Args, log: Log, output: Output) -> anyhow::Result<ExitCode> {
    leftovers::remove(&program()?);
    let directory = tempfile::Builder::new().prefix(leftovers::PREFIX).tempdir();
    let directory = directory.context("making a temporary directory for the demonstration")?;
    let member = directory.path().join("disk0");
    std::fs::create_dir(&member).context("making the store of the demonstration")?;
    let (program, listen, tokens) = (program()?, args.listen, args.tokens.clone());
    let (station, reload, demo) = (None, Arc::default(), Some(directory.path().to_owned()));
    let config = Config {
        members: vec![member],
        listen,
        tokens,
        station,
        reload,
        program,
        demo,
        exports: exports(&args)?,
        vsi: vsi(args),
        log,
    };
    let stop = signals::stop_handle()?;
    let served = serve(&config, &stop, "the demonstration has ended", output);
    directory.close().context("removing the directory of the demonstration")?;
    served
}

/// The port for VSI-S, if one is asked for.
fn vsi(args: Args) -> Option<vsi::Settings> {
    Some(vsi::Settings {
        listen: args.vsi_s?,
        mark6: args.mark6,
        allow: args.vsi_s_allow.unwrap_or_else(AllowList::this_host),
        files: args.vsi_s_files,
    })
}

fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("finding this program, which records")
}

/// Serves until it is stopped.
fn serve(
    config: &Config,
    stop: &StopHandle,
    end: &str,
    output: Output,
) -> anyhow::Result<ExitCode> {
    fullbore_daemon::serve(config, stop, |told| tell(told, output)).map_err(explained)?;
    if !output.json {
        output::say(format!("fullbore: {end}"));
    }
    Ok(ExitCode::from(output::GOOD))
}

/// Tells what is wrong in a file.
fn check(file: &Path, output: Output) -> anyhow::Result<ExitCode> {
    let (describes, faults) = match StationFile::read(file) {
        Ok(station) => (Some(station.summary()), station.warnings),
        Err(station_file::Error::Faults { faults, .. }) => (None, faults),
        Err(error) => return Err(explained(error)),
    };
    let good = faults.is_empty();
    let told = CheckJson { file, good, faults: &faults, describes: describes.clone() };
    output.tell(&told, || match &describes {
        Some(of) if good => format!("{}: good: {}\n", file.display(), in_words(of)),
        _ => station_file::shown(file, &faults) + "\n",
    })?;
    Ok(ExitCode::from(if good { output::GOOD } else { output::FOUND }))
}

fn in_words(of: &Summary) -> String {
    let parts = [
        (of.members, "member"),
        (of.inputs, "input"),
        (of.identities, "client"),
        (of.listeners, "listener"),
        (of.schedules, "schedule"),
        (of.alerts, "alert"),
    ];
    parts.map(|(number, noun)| output::count(number, noun)).join(", ")
}

fn tell(told: &Told, output: Output) {
    match told {
        Told::Ready(ready) => tell_ready(ready, output),
        Told::Reloaded(reloaded) => {
            #[derive(Serialize)]
            struct ReloadJson<'a> {
                event: &'static str,
                #[serde(flatten)]
                reloaded: &'a fullbore_daemon::Reloaded,
            }
            if !output.event(&ReloadJson { event: "reloaded", reloaded }) {
                output::print_on(&format!("{reloaded}\n"));
            }
        }
    }
}

fn tell_ready(ready: &Ready, output: Output) {
    let Ready {
        address,
        urls,
        login_url,
        fingerprint,
        found,
        state,
        problems,
        vsi,
        mark6,
        receive,
    } = ready;
    let (login, fingerprint) = (login_url.as_deref(), fingerprint.as_deref());
    let (event, address, found, vsi, mark6) = ("serving", *address, *found, *vsi, *mark6);
    let receive = receive.as_ref();
    let told = ServeJson {
        event,
        address,
        urls,
        login,
        fingerprint,
        found,
        state,
        problems,
        vsi,
        mark6,
        receive,
    };
    if output.event(&told) {
        return;
    }
    let again = match found {
        0 => String::new(),
        found => format!(", found {} again", output::count(found, "recording")),
    };
    let mut text = format!("serving on {}{again}\n", urls.join(", "));
    text += &login.map(|url| format!("log in once, within a day: {url}\n")).unwrap_or_default();
    let shown = |it: &str| format!("SHA-256 of the certificate: {it}\n");
    text += &fingerprint.map(shown).unwrap_or_default();
    text += &vsi.map(|address| format!("VSI-S on {address}\n")).unwrap_or_default();
    text += &mark6.map(|address| format!("as a Mark6 on {address}\n")).unwrap_or_default();
    let shown = |it: &Listening| format!("transfers at {}, key {}\n", it.address, it.key);
    text += &receive.map(shown).unwrap_or_default();
    output::print_on(&text);
    problems.iter().for_each(|problem| output::complain(None, problem));
}
