//! `fullbore panda`: commands for one PandA, from its capture settings to its files.

mod arm;
pub mod record;
mod show;

use std::process::ExitCode;

use clap::{Args as Arguments, Subcommand};
use fullbore_core::panda::PandaSource;
use fullbore_panda::{ControlPort, Timeouts};

use crate::hint::explained;
use crate::output::Output;

/// Show, arm and record a PandA.
///
///   fullbore panda show 172.23.252.201 --rate 1e6
///   fullbore panda record 172.23.252.201 capture-%d.h5 --num 5 --arm
///   fullbore panda disarm 172.23.252.201
///
/// HOST is an address or a name, with `:PORT` if its control port is not 8888, or
/// a whole endpoint: `panda://HOST:8888?data=8889`.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    Show(show::Args),
    Arm(arm::ArmArgs),
    Disarm(arm::DisarmArgs),
    Record(record::Args),
}

/// Runs the subcommand.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Show(args) => show::run(args, output),
        Action::Arm(args) => arm::arm(args, output),
        Action::Disarm(args) => arm::disarm(args, output),
        Action::Record(args) => record::run(args, output),
    }
}

/// `HOST`, `HOST:PORT` or `panda://…`.
pub fn source(host: &str) -> anyhow::Result<PandaSource> {
    let bare_ipv6 = host.parse::<std::net::Ipv6Addr>().is_ok();
    let text = match host {
        _ if host.contains("://") => host.to_owned(),
        _ if bare_ipv6 => format!("panda://[{host}]"),
        _ => format!("panda://{host}"),
    };
    PandaSource::parse(&text).map_err(explained)
}

/// Connects to the control port of a PandA.
fn control(source: &PandaSource) -> anyhow::Result<ControlPort> {
    ControlPort::connect(source, Timeouts::default()).map_err(explained)
}
