//! `fullbore doctor`: the settings of this host that cost a recorder frames.

use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args as Arguments;
use fullbore_planning::doctor::{Grade, Host, Report, examine, fix, lasting, screen};
use fullbore_planning::plan::sysfs;

use crate::hint::explained;
use crate::output::{FOUND, GOOD, INCOMPLETE, Output, print, say};

/// Look at this host as a recorder: each setting that costs frames, what it costs, and the command that changes it.
///
///   fullbore doctor --interface ens1 --store /mnt/d0,/mnt/d1
///   fullbore doctor --interface ens1 --fix      change what can be changed, after one question
///   fullbore doctor --fix --only rmem-max,gro   change these two only
///   fullbore doctor --undo                      put everything back
///   fullbore doctor --systemd /tmp/files        write a sysctl file and a unit that make it last
///
/// What could not be read is shown as not known. Nothing is changed without --fix, and --fix changes no MTU, no pause
/// frames, no mount and no service.
///
/// Exit codes: 0 everything is good; 1 something can cost frames, or a change failed; 2 the command could not run;
/// 3 something could be better, or is not known.
#[derive(Arguments)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Interfaces that receive [default: all cards that are up]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    interface: Vec<String>,
    /// Members of the store.
    #[arg(long, value_name = "DIR,…", value_delimiter = ',')]
    store: Vec<PathBuf>,
    /// Look at a saved tree with sys and proc instead of this host.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["fix", "undo", "store"])]
    root: Option<PathBuf>,
    /// Only these checks, by their names in parentheses.
    #[arg(long, value_name = "CHECK,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Show what is good, too.
    #[arg(long)]
    all: bool,
    /// Change the settings, after one question. The values of now go to the undo file first.
    #[arg(long, conflicts_with = "undo")]
    fix: bool,
    /// Do not ask.
    #[arg(long, requires = "fix")]
    yes: bool,
    /// Put back what --fix changed.
    #[arg(long, conflicts_with = "systemd")]
    undo: bool,
    /// The file with the values before the first change.
    #[arg(long, value_name = "FILE", default_value = "/var/lib/fullbore/doctor-undo.json")]
    undo_file: PathBuf,
    /// Write a sysctl file and a systemd unit with the changes into this directory.
    #[arg(long, value_name = "DIR")]
    systemd: Option<PathBuf>,
}

/// Examines the host, and changes or restores it if asked to.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if args.undo {
        return told(&fix::undo(&args.undo_file).map_err(explained)?, output);
    }
    let roots = args.root.as_deref().map(sysfs::roots).transpose().map_err(explained)?;
    let host = Host {
        is_this: roots.is_none(),
        quick: false,
        roots: roots.unwrap_or_default(),
        interfaces: args.interface.clone(),
        store: args.store.clone(),
    };
    let mut report = examine(&host);
    if let Err(name) = report.keep(&args.only) {
        bail!(
            "there is no check `{name}` here\n  `fullbore doctor --all` shows the names in parentheses"
        );
    }
    let settings = screen::settings(&report);
    if let Some(directory) = &args.systemd {
        let files = lasting::write(directory, &settings)
            .with_context(|| format!("writing into {}", directory.display()))?;
        files.iter().for_each(|file| say(format_args!("wrote {}", file.display())));
    }
    if !args.fix {
        output.tell(&report, || screen::screen(&report, args.all))?;
        return Ok(code(&report));
    }
    if settings.is_empty() {
        say("there is nothing that --fix changes");
        return told(&[], output);
    }
    if !args.yes && !agreed(&settings)? {
        bail!("nothing was changed");
    }
    told(&fix::apply(&settings, &args.undo_file).map_err(explained)?, output)
}

/// Shows the changes, and asks once.
fn agreed(settings: &[fix::Setting]) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("--fix asks before it changes anything, and there is no terminal\n  add --yes");
    }
    settings.iter().for_each(|setting| say(format_args!("  {}", setting.command())));
    say(format_args!("Change these {} settings of this host? [y/N]", settings.len()));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn code(report: &Report) -> ExitCode {
    ExitCode::from(match report.grade {
        Grade::Good => GOOD,
        Grade::Unknown | Grade::Advice => INCOMPLETE,
        Grade::Problem => FOUND,
    })
}

fn told(changes: &[fix::Change], output: Output) -> anyhow::Result<ExitCode> {
    for change in changes {
        let error = change.failed.as_ref().map(ToString::to_string);
        output.event(&serde_json::json!({ "setting": change.command, "error": error }));
    }
    if !output.json {
        print(&screen::changes(changes))?;
    }
    let failed = changes.iter().any(|change| change.failed.is_some());
    Ok(ExitCode::from(if failed { FOUND } else { GOOD }))
}
