//! `fullbore schedule`: the schedules of a station.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args as ClapArgs, Subcommand};
use fullbore_client::Method;
use fullbore_client::status::of_schedule;
use fullbore_core::schedule::{LARGEST, Schedule};
use fullbore_terminal::output::{self, Output};
use serde_json::{Map, Value, json};

use crate::hint::explained;
use crate::store_arg::StoreArg;

/// Give schedules to a station, list and remove them.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the schedules, with the number of scans ahead.
    Ls(ListArgs),
    /// Check a file of scans, here and without a station.
    Check(CheckArgs),
    /// Start a schedule, or replace the scans of one that runs.
    Put(Box<PutArgs>),
    /// Cancel a schedule: the running scan is sealed, and those ahead are not recorded.
    Rm(RemoveArgs),
}

#[derive(ClapArgs)]
struct ListArgs {
    #[command(flatten)]
    store: StoreArg,
}

#[derive(ClapArgs)]
struct CheckArgs {
    /// The scans: TOML, CSV or VEX.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// For a VEX file: the station whose scans are recorded.
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
}

#[derive(ClapArgs)]
struct PutArgs {
    /// The name of the schedule.
    #[arg(value_name = "NAME")]
    name: String,
    /// The scans: TOML, CSV or VEX.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// An input of the station, `input:NAME`, or an endpoint; may be given several times.
    #[arg(long, required = true, value_name = "SOURCE")]
    source: Vec<String>,
    /// The session [default: that of the file]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// For a VEX file: the station whose scans are recorded.
    #[arg(long, value_name = "CODE")]
    code: Option<String>,
    /// The time before its start at which a scan is armed.
    #[arg(long, value_name = "TIME")]
    lead: Option<String>,
    /// Block memory of all sources together.
    #[arg(long, value_name = "SIZE")]
    buffer: Option<String>,
    /// The size of chunk files.
    #[arg(long, value_name = "SIZE")]
    chunk: Option<String>,
    /// `mirror`, or `parity:K+M`.
    #[arg(long, value_name = "SCHEME")]
    redundancy: Option<String>,
    #[command(flatten)]
    store: StoreArg,
}

#[derive(ClapArgs)]
struct RemoveArgs {
    /// The name of the schedule.
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    store: StoreArg,
}

/// Runs the command.
pub fn run(args: Args, station: Option<&str>, output: Output) -> anyhow::Result<ExitCode> {
    match args.verb {
        Verb::Check(CheckArgs { file, code }) => return check(&file, code.as_deref(), output),
        Verb::Ls(args) => {
            let client = super::client(station, &args.store.store)?;
            let all = client.get("/api/v1/schedules").map_err(explained)?;
            let listed = all.as_array().cloned().unwrap_or_default();
            output.tell(&all, || match listed.is_empty() {
                true => "no schedules\n".to_owned(),
                false => listed.iter().map(of_schedule).collect(),
            })?;
        }
        Verb::Put(args) => {
            let client = super::client(station, &args.store.store)?;
            let path = path_of(&args.name)?;
            let body = body_of(*args)?;
            let told = client.send(Method::PUT, &path, Some(&body)).map_err(explained)?;
            output.tell(&told, || of_schedule(&told))?;
        }
        Verb::Rm(args) => {
            let client = super::client(station, &args.store.store)?;
            let told = client.send(Method::DELETE, &path_of(&args.name)?, None);
            let told = told.map_err(explained)?;
            output.tell(&told, || of_schedule(&told))?;
        }
    }
    Ok(ExitCode::from(output::GOOD))
}

fn path_of(name: &str) -> anyhow::Result<String> {
    let name: fullbore_core::name::Name = name.parse().context("the name of a schedule")?;
    // A `+` in a path stands for itself.
    Ok(format!("/api/v1/schedules/{name}"))
}

fn body_of(args: PutArgs) -> anyhow::Result<Value> {
    let PutArgs { file, source, session, code, lead, buffer, chunk, redundancy, .. } = args;
    let mut options = Map::new();
    options.insert("source".to_owned(), source.into());
    let texts = [
        ("session", session),
        ("station", code),
        ("lead", lead),
        ("buffer", buffer),
        ("chunk", chunk),
        ("redundancy", redundancy),
    ];
    for (key, text) in texts {
        options.extend(text.map(|text| (key.to_owned(), Value::String(text))));
    }
    let bytes = read(&file)?;
    let scans =
        String::from_utf8(bytes).with_context(|| format!("{}: it is no text", file.display()))?;
    Ok(json!({ "options": options, "scans": scans }))
}

/// Reads a file that is small enough for a schedule.
fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    let reading = || format!("reading {}", file.display());
    let mut bytes = Vec::new();
    let opened = File::open(file).with_context(reading)?;
    opened.take(LARGEST as u64 + 1).read_to_end(&mut bytes).with_context(reading)?;
    let is_small = bytes.len() <= LARGEST;
    anyhow::ensure!(is_small, "{}: a schedule has at most {LARGEST} bytes", file.display());
    Ok(bytes)
}

fn check(file: &Path, code: Option<&str>, output: Output) -> anyhow::Result<ExitCode> {
    let schedule = Schedule::read_bytes(&read(file)?, code).map_err(explained)?;
    let session = schedule.session_name().map_err(explained)?.map(|it| it.to_string());
    let scans = schedule.scans.len();
    let told = json!({ "file": file, "good": true, "session": session, "scans": scans });
    output
        .tell(&told, || format!("{}: good: {}\n", file.display(), output::count(scans, "scan")))?;
    Ok(ExitCode::from(output::GOOD))
}
