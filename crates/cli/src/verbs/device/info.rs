//! `info` of a device: the index, and each scan.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use fullbore_core::account::Terms;
use fullbore_core::completeness::{Completeness, Planned};
use fullbore_core::device::{Kind, StoredScan};
use fullbore_core::manifest::State;
use fullbore_core::units::ByteSize;
use fullbore_device::Volume;
use fullbore_time::Tai;
use serde::Serialize;

use super::parse;
use crate::hint::explained;
use crate::output::{self, Output, count};

/// The document of `--json`.
#[derive(Serialize)]
struct Info {
    device: PathBuf,
    /// The identity of the index.
    uuid: String,
    made: Tai,
    generation: u64,
    bytes: u64,
    chunk_bytes: u32,
    /// The damage of one copy of the index.
    damage: Option<String>,
    /// The named scan, or all.
    scans: Vec<Known>,
}

/// The facts about a scan.
#[derive(Serialize)]
struct Known {
    #[serde(flatten)]
    scan: StoredScan,
    /// The completeness, if its frames were counted.
    #[serde(flatten)]
    completeness: Option<Completeness>,
    /// Address of its last chunk with data.
    last: Option<u64>,
}

/// `info device:PATH[?scan=…]`.
pub fn info(text: &str, output: Output) -> anyhow::Result<ExitCode> {
    let end = parse(text)?;
    ensure!(
        end.first.is_none() && end.last.is_none(),
        "nothing is known of bare chunks: they have no index\n  `fullbore verify` holds them against a pattern"
    );
    let volume = Volume::open_to_read(&end.path).map_err(explained)?;
    let scans = match &end.scan {
        Some(name) => vec![volume.scan(name).map_err(explained)?.clone()],
        None => volume.superblock().scans.clone(),
    };
    let (superblock, layout) = (volume.superblock(), volume.layout());
    let known = |scan: StoredScan| Known {
        completeness: scan.completeness(),
        last: scan.last(layout.chunk_bytes),
        scan,
    };
    let info = Info {
        device: end.path.clone(),
        uuid: superblock.uuid.to_string(),
        made: superblock.made,
        generation: superblock.generation,
        bytes: layout.media_bytes,
        chunk_bytes: layout.chunk_bytes,
        damage: volume.damage().map(ToString::to_string),
        scans: scans.into_iter().map(known).collect(),
    };
    output.tell(&info, || told(&info))?;
    Ok(ExitCode::from(output::GOOD))
}

fn told(info: &Info) -> String {
    let mut text = format!(
        "{}: {} in chunks of {}, {}\n  index     {}, made {:.3}, changed {}\n",
        info.device.display(),
        ByteSize(info.bytes),
        ByteSize(info.chunk_bytes.into()),
        count(info.scans.len(), "scan"),
        info.uuid,
        info.made,
        // Each change is written twice, once to each copy.
        count(info.generation.div_ceil(2) as usize, "time"),
    );
    if let Some(damage) = &info.damage {
        text +=
            &format!("! one copy of the index is damaged: {damage}; the next change repairs it\n");
    }
    info.scans.iter().for_each(|known| text += &of_scan(known, &info.device));
    text
}

fn of_scan(known: &Known, device: &std::path::Path) -> String {
    let Known { scan, completeness, last } = known;
    let status = match scan.state {
        State::Recording => format!(
            "is being recorded, or was never sealed: then run `fullbore recover device:{}`",
            device.display()
        ),
        State::Sealed => "is sealed".into(),
        State::Aborted => "is sealed, by an abort".into(),
        State::Recovered => "is sealed, by recover".into(),
    };
    let ended = scan.ended.map_or("(not sealed)".into(), |time| format!("{time:.3}"));
    let last = last.map_or("none".into(), |last| format!("{last:#x}"));
    let mut text = format!(
        "\n{} {status}\n  recorded  {:.3} – {ended}, ended: {}\n  source    {}\n  identity  {}\n  \
         size      {} in {} of {}\n  addresses first {:#x}, last {last}\n  holds     {}\n",
        scan.name,
        scan.begun,
        scan.ending,
        scan.source,
        scan.uuid,
        ByteSize(scan.bytes),
        count(scan.blocks as usize, "block"),
        ByteSize(scan.block_bytes.into()),
        scan.first,
        held(scan),
    );
    if let Some(Planned { begin, end }) = scan.planned {
        let time = |time: Option<Tai>| time.map_or("any time".into(), |time| format!("{time:.3}"));
        text += &format!("  planned   {} – {}\n", time(begin), time(end));
    }
    if let Some(Completeness { headline, explanation, .. }) = completeness {
        text += &format!("  {headline}\n  {explanation}\n");
    }
    if scan.frame_bytes > 0 {
        let Terms { expected, written, missing, overrun, damaged, late, .. } = scan.terms;
        text += &format!(
            "  account   {expected} frames expected, {written} written, {missing} missing, {overrun} \
             overrun, {damaged} damaged, {late} late: {}\n",
            scan.verdict
        );
    }
    text
}

/// The type of its bytes.
fn held(scan: &StoredScan) -> String {
    let rate = scan.frames_per_second.map_or(String::new(), |rate| format!(", {rate} a second"));
    match (scan.kind, scan.frame_bytes) {
        (Kind::Raw, 0) => "bytes in order of arrival".into(),
        (Kind::Raw, bytes) => format!("frames of {bytes} bytes{rate}"),
        (Kind::Vdif, bytes) => format!("VDIF, frames of {bytes} bytes{rate}"),
    }
}
