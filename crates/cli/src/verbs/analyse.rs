//! `analyse`: hands over to the Python package, which computes with Dask (`docs/decisions/0050-dask.md`).

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use crate::hint::with_advice;
use crate::output::Output;

/// Ends with 3 if the package is not installed, and with 4 if Dask is not.
const PROBE: &str = "import sys; from importlib.util import find_spec as f; \
                     sys.exit(3 if f('fullbore') is None or f('fullbore.analyse') is None else \
                     4 if f('dask') is None or f('distributed') is None else 0)";

const INSTALL: &str =
    "pip install 'fullbore[dask]', in the environment whose python3 is the first in PATH";

/// Compute with scans on several cores or machines, with Dask.
///
///   fullbore analyse spectra    r1234 --store /disk0,/disk1     the spectra of all streams of a session
///   fullbore analyse power      r1234_no0001 --average 10ms     power over time
///   fullbore analyse statistics r1234                           mean, deviation, extremes, absent samples
///   fullbore analyse subband    r1234_no0001/46220 --centre 4MHz --width 1MHz
///   fullbore analyse correlate  r1234_no0001 --pairs a:b --model delays.csv
///
/// It uses all cores of this machine, or a cluster with --scheduler tcp://HOST:PORT. It needs Python with the package
/// fullbore[dask]. `fullbore analyse spectra --help` lists the options of an analysis.
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The analysis, the scans, and options.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "ANALYSIS"
    )]
    words: Vec<OsString>,
}

/// Becomes the process of Python. Returns only if that is not possible.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let python = python();
    let shown = python.display();
    let mut probe = Command::new(&python);
    probe.args(["-c", PROBE]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let refuse = |error: anyhow::Error| Err(with_advice(error, Some(Cow::Borrowed(INSTALL))));
    match probe.status() {
        Ok(status) if status.success() => {}
        Ok(status) if status.code() == Some(4) => {
            return refuse(anyhow::anyhow!("dask and distributed are not installed for {shown}"));
        }
        Ok(_) => {
            return refuse(anyhow::anyhow!("the package fullbore is not installed for {shown}"));
        }
        Err(error) => {
            return refuse(anyhow::Error::from(error).context(format!("{shown} cannot run")));
        }
    }
    let mut command = Command::new(&python);
    command.args(["-m", "fullbore.analyse"]).args(args.words);
    if output.json {
        command.arg("--json");
    }
    Err(anyhow::Error::from(command.exec()).context(format!("{shown} cannot run")))
}

/// The Python beside this program, as in a virtual environment, else the first one in PATH.
fn python() -> PathBuf {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("python3"));
    beside.filter(|it| it.is_file()).unwrap_or_else(|| PathBuf::from("python3"))
}
