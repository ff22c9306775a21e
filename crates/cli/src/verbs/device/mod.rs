//! The implementations of verbs for a `device:`: a drive without a file system.
//!
//! There is no separate verb: a device is recorded to, listed, verified and played like a store.

mod info;
mod read;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::ensure;
use fullbore_core::completeness::Completeness;
use fullbore_core::device::{DeviceEnd, Gap, StoredScan};
use fullbore_core::manifest::State;
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteSize;
use fullbore_device::overwrite_guard::{self, ExistingContent};
use fullbore_device::{DeviceReader, Recovered, Recovery, Volume, recover as recover_scans};
use fullbore_replay::FrameFile;
use fullbore_time::Tai;
use serde::Serialize;

use crate::account_table::columns;
use crate::glance::{self, Paper};
use crate::hint::{explained, explained_of};
use crate::output::{self, Output};

pub use info::info;
#[cfg(feature = "hdf5")]
pub use read::convert;
pub use read::{cat, verify};

/// Parses an endpoint.
pub fn parse(text: &str) -> anyhow::Result<DeviceEnd> {
    DeviceEnd::parse(text).map_err(|error| explained_of(text, error))
}

/// True if one of several texts names a device; then all of them must.
pub fn are_meant(texts: &[String]) -> anyhow::Result<bool> {
    let devices = texts.iter().filter(|text| DeviceEnd::is_meant(text)).count();
    ensure!(
        devices == 0 || devices == texts.len(),
        "scans of a store and devices cannot be combined\n  use two commands"
    );
    Ok(devices > 0)
}

/// Refuses devices for a verb that works on scans of a store; `why` names the alternative.
pub fn refuse(texts: &[String], verb: &str, why: &str) -> anyhow::Result<()> {
    match texts.iter().find(|text| DeviceEnd::is_meant(text)) {
        Some(text) => anyhow::bail!("`{verb}` does not take devices, such as {text}\n  {why}"),
        None => Ok(()),
    }
}

/// The index of a device, for text and JSON.
#[derive(Serialize)]
struct Listed<'a> {
    device: PathBuf,
    bytes: u64,
    chunk_bytes: u32,
    generation: u64,
    scans: Vec<ListedScan<'a>>,
    free: Vec<Gap>,
    /// The damage of one copy of the index.
    damage: Option<String>,
    /// Content of other programs, for which the device is refused until `--overwrite` names it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    foreign: Vec<ExistingContent>,
}

/// A scan of the index, and whether it is complete.
#[derive(Serialize)]
struct ListedScan<'a> {
    #[serde(flatten)]
    scan: &'a StoredScan,
    #[serde(flatten)]
    completeness: Option<Completeness>,
}

/// `ls device:PATH`.
pub fn ls(text: &str, output: Output) -> anyhow::Result<ExitCode> {
    let end = parse(text)?;
    let volume = Volume::open_to_read(&end.path).map_err(explained)?;
    let superblock = volume.superblock();
    let layout = volume.layout();
    let scans = superblock
        .scans
        .iter()
        .filter(|scan| end.scan.as_ref().is_none_or(|name| scan.name == *name))
        .map(|scan| ListedScan { scan, completeness: scan.completeness() })
        .collect();
    let listed = Listed {
        device: end.path.clone(),
        bytes: layout.media_bytes,
        chunk_bytes: layout.chunk_bytes,
        generation: superblock.generation,
        scans,
        free: layout.gaps(&superblock.taken()),
        damage: volume.damage().map(ToString::to_string),
        foreign: match volume.damage() {
            Some(_) => foreign_content(&end.path)?,
            None => Vec::new(),
        },
    };
    output.tell(&listed, || table(&listed, &volume))?;
    Ok(ExitCode::from(if listed.damage.is_none() { output::GOOD } else { output::FOUND }))
}

/// Content of other programs on a device.
fn foreign_content(path: &Path) -> anyhow::Result<Vec<ExistingContent>> {
    let found = overwrite_guard::foreign_content(path).map_err(fullbore_device::Error::from);
    found.map_err(explained)
}

fn table(listed: &Listed<'_>, volume: &Volume) -> String {
    let mut text = String::new();
    if listed.scans.is_empty() {
        text += "no scans\n";
    } else {
        let heading = [
            "scan",
            "state",
            "begun (UTC)",
            "size",
            "first",
            "last",
            "ended",
            "complete",
            "verdict",
        ];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(listed.scans.iter().map(|it| row(it.scan, listed.chunk_bytes)));
        text += &columns(&rows, 3);
    }
    let layout = volume.layout();
    let free: u64 = listed.free.iter().map(|&gap| layout.bytes_of(gap)).sum();
    let largest = listed.free.iter().map(|&gap| layout.bytes_of(gap)).max().unwrap_or(0);
    text += &format!(
        "{} free of {}, {} in one piece\n",
        ByteSize(free),
        ByteSize(listed.bytes),
        ByteSize(largest)
    );
    if let Some(damage) = &listed.damage {
        let device = listed.device.display();
        let next = match listed.foreign.as_slice() {
            [] => format!("the next recording or `fullbore recover device:{device}` repairs it"),
            foreign => {
                let foreign: Vec<String> = foreign.iter().map(ToString::to_string).collect();
                format!(
                    "the device contains {} as well, so nothing is changed on it; `fullbore cat` copies its scans elsewhere",
                    foreign.join(", ")
                )
            }
        };
        text += &format!("one copy of the index is damaged: {damage}; {next}\n");
    }
    text
}

fn row(scan: &StoredScan, chunk_bytes: u32) -> Vec<String> {
    let state = match scan.state {
        State::Recording => "unsealed".to_owned(),
        State::Sealed | State::Aborted | State::Recovered => {
            format!("{:?}", scan.state).to_lowercase()
        }
    };
    vec![
        scan.name.to_string(),
        state,
        format!("{:.3}", scan.begun),
        ByteSize(scan.bytes).to_string(),
        format!("{:#x}", scan.first),
        scan.last(chunk_bytes).map_or("-".into(), |last| format!("{last:#x}")),
        scan.ending.to_string(),
        scan.completeness().map_or("-".into(), |it| it.short()),
        scan.verdict.to_string(),
    ]
}

/// `recover device:PATH[?scan=…]`.
pub fn recover(texts: &[String], output: Output) -> anyhow::Result<ExitCode> {
    for text in texts {
        let end = parse(text)?;
        let recovery = recover_scans(&end.path, end.scan.as_ref()).map_err(explained)?;
        output.tell(&recovery.scans, || recovered_text(&recovery))?;
    }
    // Blocks that are cut off were never durable.
    Ok(ExitCode::from(output::GOOD))
}

fn recovered_text(recovery: &Recovery) -> String {
    let paper = Paper::of_stdout();
    let mut lines: Vec<String> =
        recovery.scans.iter().flat_map(|it| recovered_lines(it, paper)).collect();
    if lines.is_empty() {
        lines.push("no unsealed scans".to_owned());
    }
    if recovery.repaired_index {
        lines.push("one copy of the index was damaged, and was repaired".to_owned());
    }
    lines.into_iter().map(|line| line + "\n").collect()
}

fn recovered_lines(it: &Recovered, paper: Paper) -> Vec<String> {
    let Recovered { scan, completeness, durable_blocks, checked_blocks, cut_blocks } = it;
    let what = format!(
        "{} recovered: {} in {} ({durable_blocks} durable, {checked_blocks} of the last round checked)",
        scan.name,
        ByteSize(scan.bytes),
        output::count(scan.blocks as usize, "block"),
    );
    let mut lines = match completeness {
        Some(it) => glance::headline(paper, it, &what),
        None => vec![what],
    };
    lines.extend(completeness.iter().flat_map(|it| paper.fact(&it.explanation)));
    if *cut_blocks > 0 {
        let blocks = output::count(*cut_blocks as usize, "block");
        lines.extend(
            paper.fact(&format!("{blocks} after the last durable mark not whole: cut off")),
        );
    }
    lines
}

/// `rm device:PATH?scan=…`: removes scans from the index.
pub fn rm(
    texts: &[String],
    agreed: impl FnOnce(&[String]) -> anyhow::Result<bool>,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let mut ends = Vec::new();
    for text in texts {
        let end = parse(text)?;
        ensure!(end.scan.is_some(), "{text} names no scan\n  write device:PATH?scan=r1234_no0001");
        ends.push(end);
    }
    if !agreed(texts)? {
        output::print("nothing was removed\n")?;
        return Ok(ExitCode::from(output::FOUND));
    }
    for end in ends {
        let Some(name) = &end.scan else { continue };
        let mut volume = Volume::open_to_change(&end.path).map_err(explained)?;
        let removed = volume.remove(name).map_err(explained)?;
        output.tell(&removed, || {
            format!("{} removed: {} freed\n", removed.name, ByteSize(removed.bytes))
        })?;
    }
    Ok(ExitCode::from(output::GOOD))
}

/// The part of a device to play: a scan, or bare chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    end: Box<DeviceEnd>,
    /// The name.
    pub name: String,
}

/// The part that an endpoint names.
pub fn part(text: &str) -> anyhow::Result<Part> {
    let end = Box::new(parse(text)?);
    let name =
        end.scan.as_ref().map_or_else(|| end.path.display().to_string(), ScanName::to_string);
    Ok(Part { end, name })
}

/// Its frames, at the requested rate or the rate in the index.
pub fn frames(part: &Part, frames_per_second: Option<u64>) -> anyhow::Result<FrameFile> {
    let contents = DeviceReader::open(&part.end).map_err(explained)?;
    let rate = contents.scan().and_then(|scan| scan.frames_per_second);
    let checked = contents.checked().map_err(explained)?;
    let bytes = checked.bytes();
    let rate = frames_per_second.or(rate);
    // VDIF headers are complete: no day is needed to read them.
    Ok(FrameFile::of_bytes(Path::new(&part.name), Arc::new(checked), bytes, rate, Tai(0))?)
}
