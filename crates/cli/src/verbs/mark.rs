//! `fullbore mark`: marks a moment of a scan.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args as ClapArgs;
use fullbore_core::marker::{Position, Text};
use fullbore_core::name::ScanName;
use fullbore_recording::answers::Marked;
use fullbore_store::catalogue::{self, ScanState};
use fullbore_store::markers::{self, Moment, Set};
use fullbore_time::Tai;

use crate::hint::explained;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;
use crate::verbs::scan_arg;

/// Mark a moment of a scan: while it is recorded, or later.
///
///   fullbore mark --last 'antenna on source'
///   fullbore mark r1234_no0001 'the wind rises' --time 2026-11-22T18:00:12
///   fullbore mark r1234_no0001 'first fringe' --position 46220:1028096000
///
/// The scan keeps the marker: its time, its text, and the frame and byte of each
/// stream at that time. `fullbore info` shows it, and it is in the manifest. Marking
/// does not disturb the recording, and the marker survives a crash of the recorder.
///
/// Exit codes: 0 the marker is set; 1 it is set, but a member refused it or is not attached; 2 it is not set.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The scan (`session_scan`, or an unambiguous beginning of the name) unless --last is given, and the text, a line of
    /// at most 500 bytes.
    #[arg(value_names = ["SCAN", "TEXT"], num_args = 1..=2, required = true)]
    words: Vec<String>,
    /// The scan that is being recorded, or else the newest one.
    #[arg(long)]
    last: bool,
    /// The moment, in UTC by the clock of the recording host [default: now, or the end of a scan that is over]
    #[arg(long, value_name = "UTC", conflicts_with = "position")]
    time: Option<Tai>,
    /// The moment at which a stream had this many bytes: 46220:1000000. For a scan of one stream: 1000000.
    #[arg(long, value_name = "[STREAM:]BYTES")]
    position: Option<String>,
    #[command(flatten)]
    store: StoreArg,
}

/// Runs the command.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let (scan, words) = match (args.last, args.words.as_slice()) {
        (true, [words]) => (None, words),
        (false, [scan, words]) => (Some(scan), words),
        (true, _) => bail!("--last names the scan already: give the text alone, in quotes"),
        (false, _) => bail!("give a scan and the text, in quotes; or --last and the text"),
    };
    let text = Text::typed(words)?;
    if let Some(scan) = scan {
        let why = "their index has no room for markers";
        super::device::refuse(std::slice::from_ref(scan), "mark", why)?;
    }
    let roots = args.store.members()?;
    let scan = match scan {
        Some(scan) => scan_arg::find_whole(&roots, scan, "marked")?,
        None => newest(&roots)?,
    };
    let position = args.position.as_deref().map(position).transpose()?;
    let moment = match (args.time, &position) {
        (Some(time), _) => Moment::Time(time),
        (None, Some((stream, byte))) => Moment::Byte(stream.as_deref(), *byte),
        (None, None) => Moment::Now,
    };
    let set = markers::set(&roots, &scan, moment, text).map_err(explained)?;
    output.tell(&Marked::new(&scan, &set), || shown(&scan, &set))?;
    Ok(ExitCode::from(if set.failed.is_empty() { output::GOOD } else { output::FOUND }))
}

/// The scan that is being recorded, or else the one that began last.
fn newest(roots: &[PathBuf]) -> anyhow::Result<ScanName> {
    let entries = catalogue::list(roots).map_err(explained)?.entries;
    let whole = entries.iter().filter(|entry| entry.state != ScanState::Broken);
    let last = whole.max_by_key(|entry| (entry.state == ScanState::Recording, entry.start));
    let last = last.context("there is no scan to mark")?;
    Ok(last.name.parse()?)
}

/// Parses `46220:1000000`, or the bytes alone.
fn position(text: &str) -> anyhow::Result<(Option<String>, u64)> {
    let (stream, bytes) = match text.rsplit_once(':') {
        Some((stream, bytes)) => (Some(stream.to_owned()), bytes),
        None => (None, text),
    };
    let bytes = bytes.parse().with_context(|| {
        format!("--position {text}\n  write STREAM:BYTES, or the bytes alone: 46220:1000000")
    })?;
    Ok((stream, bytes))
}

fn shown(scan: &ScanName, set: &Set) -> String {
    let Set { marker, open, is_being_recorded, lacks_members, failed } = set;
    let mut text = format!("{scan} is marked at {:.3}: {}\n", marker.time, marker.text);
    for Position { stream, frame, byte } in &marker.positions {
        text += &format!("  {stream}: frame {frame}, byte {byte}\n");
    }
    if !open.is_empty() {
        let open = open.join(", ");
        let why = match (is_being_recorded, lacks_members) {
            (true, _) => "not on the disk yet; `fullbore info` shows the place later",
            (false, true) => "the place is unknown without the missing members",
            (false, false) => "no frame of it is recorded",
        };
        text += &format!("  {open}: {why}\n");
    }
    for (member, why) in failed {
        text += &format!("  warning: {} did not take the marker: {why}\n", member.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_bytes_of_a_stream() {
        assert_eq!(position("46220:17").unwrap(), (Some("46220".into()), 17));
        assert_eq!(position("17").unwrap(), (None, 17));
        for wrong in ["", "a", "46220:", "46220:-1", "46220:1GB"] {
            assert!(position(wrong).unwrap_err().to_string().contains("STREAM:BYTES"), "{wrong}");
        }
    }

    #[test]
    fn the_words_are_a_scan_and_a_text() {
        let typed = |words| crate::verbs::typed::<Args>(words);
        assert_eq!(typed("a_b text").unwrap().words, ["a_b", "text"]);
        assert!(typed("--last text").unwrap().last);
        assert!(typed("a b c").is_err() && typed("").is_err());
        assert!(typed("a b --time 2026-11-22T18:00:00 --position 5").is_err());
    }
}
