//! Whether a machine sustains streams for a time, before they are recorded.
//!
//! ```text
//! sysfs, hwloc, TOML ──► machine ─┐
//! options, TOML ───────► streams ─┼─► flows ─► load of each link ─► rules R1 to R13 ─► answer
//! bench history, tables ► figures ┘
//! ```
//!
//! [`answer()`] is pure. What reads files is in [`sysfs`], [`hwloc`] and [`measured`].

pub mod answer;
pub mod demand;
pub mod description;
pub mod error;
pub mod examples;
pub mod figure;
pub mod flows;
pub mod hwloc;
pub mod instruments;
pub mod link;
pub mod machine;
pub mod measured;
pub mod page;
pub mod rules;
pub mod screen;
pub mod sysfs;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use fullbore_survey::bench::environment::Roots;

pub use answer::{Answer, Verdict, answer};
use demand::{Run, Settings, Stream};
use description::Description;
pub use error::Error;
use machine::Machine;

/// Streams, a machine and a time.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// A sentence about it, from its description.
    pub about: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// The streams.
    pub streams: Vec<Stream>,
    /// The time.
    pub run: Run,
    /// The thresholds.
    pub settings: Settings,
}

/// What the user gave.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A description in TOML: its name and text.
    pub description: Option<(String, String)>,
    /// A topology of hwloc.
    pub hwloc: Option<PathBuf>,
    /// A copy of `/sys` of another machine.
    pub sysfs_root: Option<PathBuf>,
    /// Streams as typed.
    pub streams: Vec<String>,
    /// Members of the store, on this machine.
    pub store: Vec<PathBuf>,
    /// Times and rates that override those of the description.
    pub run: description::RunText,
}

impl Plan {
    /// Reads everything that the request names.
    pub fn read(request: &Request) -> Result<Self, Error> {
        let (name, text) = request.description.clone().unwrap_or(("options".into(), String::new()));
        let mut description = Description::parse(&name, &text)?;
        description.run.override_with(&request.run);
        let mut machine = base(request, &description)?;
        description.extend(&name, &mut machine)?;
        let instruments = description.known_instruments(&name)?;
        let typed = request.streams.iter().map(|text| demand::stream(text, &instruments));
        let typed = typed.collect::<Result<Vec<_>, _>>()?;
        let streams = description.streams(&name, &typed, &machine)?;
        let run = description.time(&name, &machine)?;
        let settings = description.settings(&name)?;
        Ok(Self { about: description.about, machine, streams, run, settings })
    }
}

/// The machine before its description: another one's, or this one unless the description has a machine.
fn base(request: &Request, description: &Description) -> Result<Machine, Error> {
    let mut machine = match (&request.hwloc, &request.sysfs_root) {
        (Some(path), _) => return hwloc_file(path),
        (None, Some(root)) => return Ok(sysfs::machine(&sysfs::roots(root)?)),
        (None, None) if description.has_machine() => Machine::default(),
        (None, None) => {
            let mut machine = sysfs::machine(&Roots::default());
            measured::processor(&mut machine);
            machine
        }
    };
    if !request.store.is_empty() {
        measured::store(&Roots::default(), &request.store, &mut machine)?;
    }
    Ok(machine)
}

fn hwloc_file(path: &Path) -> Result<Machine, Error> {
    hwloc::machine(path, &hwloc::read_text(path)?)
}
