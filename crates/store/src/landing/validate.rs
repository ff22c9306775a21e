//! Checks of what another host sends: manifests and records. Nothing from there is believed.

use std::collections::BTreeSet;

use fullbore_core::chunk_map::LAST_NUMBER;
use fullbore_core::index::{Block, Codec, Entry, RECORD_BYTES};
use fullbore_core::layout::{ALIGNMENT, Geometry};
use fullbore_core::manifest::{
    Copied, Manifest, Member as Listed, SourceStream, State, Stream, VERSION,
};
use fullbore_core::name::ScanName;

use crate::Member;
use crate::inventory::check_geometry;

/// The most streams of a scan that arrives: each has a directory on every member.
const MOST_STREAMS: usize = 4096;

/// The largest manifest that is written: readers refuse larger files.
const LARGEST_MANIFEST: usize = 32 << 20;

/// The longest name of a host.
const LONGEST_HOST: usize = 255;

/// Sequences are smaller than this: no disk set holds more blocks.
const MOST_BLOCKS: u64 = 1 << 48;

/// Checks a manifest before anything of it is used.
pub fn check_manifest(manifest: &Manifest) -> Result<(), String> {
    let Manifest { version, scan, streams, .. } = manifest;
    if *version > VERSION {
        return Err(format!("it has version {version}, and this program reads up to {VERSION}"));
    }
    if scan.to_string().parse::<ScanName>().as_ref() != Ok(scan) {
        return Err(format!("{scan} is not the name of a scan"));
    }
    if streams.is_empty() || streams.len() > MOST_STREAMS {
        return Err(format!("a scan of {} streams", streams.len()));
    }
    let mut directories = BTreeSet::new();
    for stream in streams {
        let Stream { directory, name, .. } = stream;
        let alone = streams.len() == 1 && *directory == scan.directory(None);
        if !alone && *directory != scan.directory(Some(name)) {
            return Err(format!("stream {name} is not in a directory of its own name"));
        }
        if !directories.insert(directory) {
            return Err(format!("two streams have the name {name}"));
        }
        stream.geometry.as_ref().map_or(Ok(()), check_geometry)?;
    }
    let bytes = manifest.to_json().len();
    if bytes > LARGEST_MANIFEST {
        return Err(format!("it has {bytes} bytes"));
    }
    Ok(())
}

/// Checks that a newer manifest continues an earlier one: the same scan, with more streams at most.
pub fn check_continues(newer: &Manifest, before: &Manifest) -> Result<(), String> {
    if newer.uuid != before.uuid || newer.scan != before.scan {
        return Err("it is of another scan".into());
    }
    if newer.streams.len() < before.streams.len() {
        return Err("it has fewer streams than before".into());
    }
    for (newer, before) in newer.streams.iter().zip(&before.streams) {
        let same = newer.name == before.name && newer.directory == before.directory;
        if !same || before.geometry.is_some_and(|it| newer.geometry != Some(it)) {
            return Err(format!("stream {} has changed", before.name));
        }
    }
    Ok(())
}

/// Returns the manifest of the copy while it arrives: the sender's, with the members of this host.
pub fn arriving(sent: &Manifest, members: Vec<Listed>, copied: Copied) -> Manifest {
    let of = |it: &Stream| SourceStream {
        blocks: it.blocks,
        bytes: it.bytes,
        account: it.account.clone(),
    };
    let source = sent.streams.iter().map(of).collect();
    let copied = Copied { source, ..copied };
    let mut manifest = of_this_host(sent, members, copied);
    manifest.state = State::Recording;
    manifest.stopped = None;
    for stream in &mut manifest.streams {
        (stream.blocks, stream.bytes, stream.account) = (0, 0, None);
    }
    manifest
}

/// Returns the manifest of the complete copy.
pub fn arrived(sent: &Manifest, members: Vec<Listed>, copied: Copied) -> Manifest {
    of_this_host(sent, members, copied)
}

fn of_this_host(sent: &Manifest, members: Vec<Listed>, copied: Copied) -> Manifest {
    let mut manifest = Manifest {
        members,
        away: Vec::new(),
        redundancy: None,
        host_setup: None,
        copied: Some(copied),
        ..sent.clone()
    };
    for stream in &mut manifest.streams {
        stream.renamed = None;
    }
    manifest
}

/// Returns a member as manifests list it.
pub fn listed(member: &Member) -> Listed {
    Listed {
        uuid: member.uuid(),
        path: member.root().to_owned(),
        failure: None,
        buffered: member.buffered(),
    }
}

/// Returns a text from outside in a form that is harmless on a screen.
pub fn printable(text: &str) -> String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(LONGEST_HOST).map(shown).collect()
}

/// The records of a block.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The stream.
    pub stream: u16,
    /// The block.
    pub block: Block,
    /// Its index entries, the block first.
    pub entries: Vec<Entry>,
}

/// Decodes the records of a block: the block itself, then the lengths of its frames.
pub fn arrival(codec: Codec, records: &[[u8; RECORD_BYTES]]) -> Result<Arrival, String> {
    let mut entries = Vec::with_capacity(records.len());
    let mut of: Option<(u16, Block)> = None;
    let mut lengths_before = 0;
    for record in records {
        let (stream, entry) = codec.decode(record).map_err(|error| error.to_string())?;
        match (&of, &entry) {
            (None, Entry::Block(block)) => of = Some((stream, *block)),
            (Some((own, block)), Entry::Lengths { sequence, first, lengths })
                if stream == *own && *sequence == block.sequence =>
            {
                if *first != lengths_before || lengths.is_empty() {
                    return Err("lengths of frames are not in order".into());
                }
                lengths_before += lengths.len() as u32;
                if lengths_before > block.frames {
                    return Err("more lengths than frames".into());
                }
            }
            _ => return Err("a record does not belong to the block".into()),
        }
        entries.push(entry);
    }
    let (stream, block) = of.ok_or("there is no record of a block")?;
    Ok(Arrival { stream, block, entries })
}

/// Checks that a block is possible in a stream of this geometry.
pub fn check_block(block: &Block, geometry: &Geometry) -> Result<(), String> {
    let Block { sequence, offset, chunk, bytes, .. } = *block;
    if sequence >= MOST_BLOCKS {
        return Err(format!("block {sequence} cannot exist"));
    }
    let wrong = |what: &str| Err(format!("block {sequence}: {what}"));
    if chunk > LAST_NUMBER {
        return wrong(&format!("there is no chunk {chunk}"));
    }
    if bytes == 0 || bytes > geometry.block_bytes {
        return wrong(&format!("it has {bytes} bytes"));
    }
    let end = offset.checked_add(bytes.into());
    if !offset.is_multiple_of(ALIGNMENT) || end.is_none_or(|end| end > geometry.chunk_bytes()) {
        return wrong(&format!("it cannot be at byte {offset} of a chunk"));
    }
    if block.present > block.frames || block.invalid > block.present {
        return wrong("its frames do not add up");
    }
    Ok(())
}
