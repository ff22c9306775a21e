//! `fullbore status`: what a station does now.

use std::process::ExitCode;

use clap::Args as ClapArgs;
use fullbore_client::status::text;
use fullbore_terminal::output::{self, Output};

use crate::hint::explained;
use crate::store_arg::StoreArg;

/// Show what a station does: its recordings, jobs, schedules, and free space.
///
/// Without --station, it is the daemon of this user that serves the store. With --json, the document is that of
/// `GET /api/v1/status`.
#[derive(ClapArgs)]
pub struct Args {
    #[command(flatten)]
    store: StoreArg,
}

/// Runs the command.
pub fn run(args: &Args, station: Option<&str>, output: Output) -> anyhow::Result<ExitCode> {
    let client = super::client(station, &args.store.store)?;
    let status = client.get("/api/v1/status").map_err(explained)?;
    output.tell(&status, || text(&status))?;
    Ok(ExitCode::from(output::GOOD))
}
