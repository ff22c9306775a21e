//! `fullbore plan`: whether a machine sustains a recording, before it begins.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as Arguments;
use fullbore_planning::plan::description::RunText;
use fullbore_planning::plan::{Plan, Request, Verdict, answer, examples, hwloc, page, screen};
use fullbore_survey::bench::history;

use crate::hint::explained;
use crate::output::{FOUND, GOOD, INCOMPLETE, Output, print};

/// Say whether a machine sustains streams for a time, before they are recorded.
///
///   fullbore plan --stream 8x2Gbit/s@ens1 --store /mnt/d0,/mnt/d1 --duration 2h
///   fullbore plan station.toml --html station.html
///   fullbore plan --example station          60 scans of 16 Gbit/s, from a paper
///   fullbore plan --example station --toml   its description, to begin with
///
/// The plan checks links, disks, memory and processors by rules R1 to R13. Each result has its sum and the origin of
/// its numbers: measured by `fullbore bench`, read from the kernel, given, from a table, or assumed.
///
/// Examples: chassis, chassis-apart, terabyte, nvme-peak, nvme-continuous, station, panda.
///
/// Exit codes: 0 it fits; 1 it does not fit; 2 the command could not run; 3 it fits with warnings, or a number that
/// the answer needs is not known.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// A description in TOML: machine, streams, time [default: this machine, and the options]
    #[arg(value_name = "DESCRIPTION", conflicts_with = "example")]
    description: Option<PathBuf>,
    /// Answer a published example instead.
    #[arg(long, value_name = "NAME")]
    example: Option<String>,
    /// Print the description of the example.
    #[arg(long, requires = "example")]
    toml: bool,
    /// Streams: [NAME=][Nx]RATE[@PLACE,…], with an instrument such as PXIe-5122 instead of a rate, or an endpoint. Repeatable.
    #[arg(long = "stream", value_name = "STREAM")]
    streams: Vec<String>,
    /// Members of the store, on this machine.
    #[arg(long, value_name = "DIR,…", value_delimiter = ',', conflicts_with_all = ["hwloc", "sysfs_root"])]
    store: Vec<PathBuf>,
    /// Plan for the machine whose /sys was copied to this directory.
    #[arg(long, value_name = "DIR")]
    sysfs_root: Option<PathBuf>,
    /// Plan for the machine of this topology (`lstopo --of xml`).
    #[arg(long, value_name = "FILE", conflicts_with = "sysfs_root")]
    hwloc: Option<PathBuf>,
    /// The length of one recording.
    #[arg(long, value_name = "TIME", conflicts_with = "record")]
    duration: Option<String>,
    /// The length of each scan, with --pause and --scans.
    #[arg(long, value_name = "TIME")]
    record: Option<String>,
    /// The pause after each scan.
    #[arg(long, value_name = "TIME")]
    pause: Option<String>,
    /// The number of scans.
    #[arg(long, value_name = "N")]
    scans: Option<u64>,
    /// The rate at which recordings are sent elsewhere meanwhile.
    #[arg(long, value_name = "RATE")]
    send: Option<String>,
    /// The places where they leave.
    #[arg(long, value_name = "PLACE,…", value_delimiter = ',')]
    send_at: Vec<String>,
    /// Block memory [default: what is available]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<String>,
    /// Show the rules that hold, too.
    #[arg(long)]
    all: bool,
    /// Write a page with the machine and its flows here.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Answers the plan.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let description = match (&args.example, &args.description) {
        (Some(name), _) => {
            let example = examples::example(name).map_err(explained)?;
            if args.toml {
                print(example.text)?;
                return Ok(ExitCode::from(GOOD));
            }
            Some((format!("example {name}"), example.text.to_owned()))
        }
        (None, Some(path)) => {
            Some((path.display().to_string(), hwloc::read_text(path).map_err(explained)?))
        }
        (None, None) => None,
    };
    let Args { duration, record, pause, scans, send, send_at, buffer, .. } = args;
    let run = RunText { duration, record, pause, scans, send, send_at, buffer, hash: None };
    let Args { hwloc, sysfs_root, streams, store, .. } = args;
    let request = Request { description, hwloc, sysfs_root, streams, store, run };
    let answer = answer(&Plan::read(&request).map_err(explained)?);
    if let Some(path) = &args.html {
        history::write_text(path, &page::page(&answer)).map_err(explained)?;
    }
    output.tell(&answer, || screen::screen(&answer, args.all))?;
    Ok(ExitCode::from(match answer.verdict {
        Verdict::Fits => GOOD,
        Verdict::FitsWithWarnings | Verdict::NotKnown => INCOMPLETE,
        Verdict::DoesNotFit => FOUND,
    }))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_help_lists_every_example() {
        let command = crate::Arguments::command();
        let plan = command.find_subcommand("plan").unwrap();
        let help = plan.get_long_about().map(ToString::to_string).unwrap_or_default();
        let named = help.split("Examples: ").nth(1).and_then(|it| it.split('.').next());
        let names: Vec<&str> = named.unwrap_or_default().split(", ").collect();
        assert_eq!(names, examples::ALL.iter().map(|it| it.name).collect::<Vec<_>>());
    }
}
