//! A stored scan as streams: blocks in order over all members, missing data, and bytes.
//!
//! [`Scan::open`] compares the manifests and indexes of all members with each other and with the files. Every
//! disagreement becomes a [`Diagnostic`]; the rest can be read. Bytes whose checksum fails are returned only on
//! request.
//!
//! - `merge`: one list of blocks from the indexes of all members, and missing blocks
//! - `protected`: the stripes of the blocks, and blocks that only stripe metadata lists
//! - `stream`: a stream's blocks and frames, found by index and by time
//! - `blocks`: the bytes of blocks, read ahead
//! - `clock`: the one clock of all blocks of a stream

mod blocks;
mod clock;
mod merge;
mod protected;
mod stream;

use std::io;
use std::path::PathBuf;

use fullbore_core::manifest::{INDEX_FILE, MANIFEST_FILE, Manifest};
use fullbore_core::name::ScanName;

pub use self::blocks::{Cursor, Delivered, Item, StreamReader};
pub use self::clock::BlockClock;
use self::merge::Merge;
pub use self::stream::{Absent, BlockLocation, Frame, Frames, Presence, StoredStream};
use super::diagnostics::{Diagnostic, DiagnosticKind};
use super::identity::identity_path;
use super::inventory::{self, Copy, Inventory, MemberFiles, members_without_file};

/// An opened scan.
#[derive(Debug)]
pub struct Scan {
    /// The manifest.
    pub manifest: Manifest,
    /// The inventory of its files.
    pub inventory: Inventory,
    /// The streams, in the manifest's order.
    pub streams: Vec<StoredStream>,
    /// Problems found in names, sizes and indexes.
    pub findings: Vec<Diagnostic>,
}

impl Scan {
    /// Opens a scan under `roots`.
    pub fn open(roots: &[PathBuf], scan: &ScanName) -> Result<Self, inventory::Error> {
        Ok(Self::of_inventory(Inventory::take(roots, scan)?))
    }

    /// Makes a scan from an inventory.
    pub fn of_inventory(inventory: Inventory) -> Self {
        let manifest = inventory.manifest.clone();
        let mut findings = findings_of_members(&inventory);
        let members_given = findings.is_empty();
        findings.extend(findings_of_manifests(&inventory));
        findings.extend(findings_of_leftovers(&inventory));
        let mut streams = Vec::new();
        for number in 0..manifest.streams.len() {
            let (stream, found) = Merge::new(&inventory, number, members_given).finish();
            streams.push(stream);
            findings.extend(found);
        }
        Self { manifest, inventory, streams, findings }
    }

    /// The stream of this name.
    pub fn stream(&self, name: &str) -> Option<&StoredStream> {
        self.streams.iter().find(|stream| stream.name == name)
    }

    /// Returns the offset to add to the times of a stream on the host's clock, so that they match those of streams on
    /// their frames' own clock, which may differ.
    pub fn ahead_ns(&self, stream: &StoredStream) -> i64 {
        let streams = self.streams.iter().filter(|_| !stream.goes_by_frames());
        streams.filter_map(StoredStream::ahead_ns).next().unwrap_or(0)
    }

    /// Returns the path of the index file that lists a block.
    pub fn index_path(&self, location: &BlockLocation) -> PathBuf {
        if let Some(records) = &location.records {
            return records.to_path_buf();
        }
        self.inventory.holdings[location.holding].side(INDEX_FILE)
    }

    /// The lengths of the frames that begin in a block of a stream whose lengths vary.
    pub fn lengths(&self, location: &BlockLocation) -> io::Result<Vec<u16>> {
        match location.lengths {
            Some(at) => inventory::read_lengths(&self.index_path(location), self.manifest.uuid, at),
            None => Ok(Vec::new()),
        }
    }

    /// Bytes on the members.
    pub fn bytes(&self) -> u64 {
        let chunks = self.inventory.holdings.iter().flat_map(|holding| &holding.chunks);
        chunks.map(|(_, file)| file.bytes).sum()
    }
}

pub(super) fn findings_of_members(inventory: &Inventory) -> Vec<Diagnostic> {
    let absent = inventory.absent_members().into_iter().map(|member| Diagnostic {
        stream: None,
        member: Some(member.path.clone()),
        file: None,
        frames: None,
        what: DiagnosticKind::MemberAbsent {
            uuid: member.uuid,
            was_at: member.path.clone(),
            bare: inventory.is_bare(member),
        },
    });
    let doubtful = inventory.roots.iter().filter_map(|root| {
        Some(Diagnostic {
            stream: None,
            member: Some(root.path.clone()),
            file: Some(identity_path(&root.path)),
            frames: None,
            what: DiagnosticKind::MemberUnidentified { why: root.unidentified.clone()? },
        })
    });
    let without = members_without_file(&inventory.roots, &inventory.manifest);
    let without = without.map(|(root, member)| Diagnostic {
        stream: None,
        member: Some(root.path.clone()),
        file: Some(identity_path(&root.path)),
        frames: None,
        what: DiagnosticKind::MemberFileMissing { uuid: member.uuid },
    });
    // If all of its members are there, a directory that cannot be read is no part of the scan.
    let whole = !inventory.manifest.members.is_empty() && inventory.absent_members().is_empty();
    let unreadable = inventory.failed_roots.iter().filter(|_| !whole).map(|error| Diagnostic {
        stream: None,
        member: Some(error.path.clone()),
        file: None,
        frames: None,
        what: DiagnosticKind::Unreadable { why: error.source.to_string() },
    });
    let holdings = inventory.holdings.iter();
    let unlisted =
        holdings.flat_map(|holding| holding.unlisted.iter().map(move |it| (holding, it)));
    let unlisted = unlisted.map(|(holding, (path, why))| Diagnostic {
        file: Some(path.clone()),
        ..about(inventory, holding, None, DiagnosticKind::Unreadable { why: why.clone() })
    });
    absent.chain(doubtful).chain(without).chain(unreadable).chain(unlisted).collect()
}

fn findings_of_manifests(inventory: &Inventory) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    for holding in &inventory.holdings {
        let what = match &holding.manifest {
            Copy::Read(copy) if *copy == inventory.manifest => None,
            Copy::Read(_) => {
                Some(DiagnosticKind::ManifestDiffers { believed: inventory.manifest_path.clone() })
            }
            Copy::Missing => Some(DiagnosticKind::ManifestMissing),
            Copy::Unreadable(why) => Some(DiagnosticKind::ManifestUnreadable { why: why.clone() }),
        };
        findings.extend(what.map(|what| about(inventory, holding, Some(MANIFEST_FILE), what)));
    }
    findings
}

fn findings_of_leftovers(inventory: &Inventory) -> impl Iterator<Item = Diagnostic> {
    inventory.leftovers.iter().map(|leftover| Diagnostic {
        stream: None,
        member: Some(leftover.root.path.clone()),
        file: None,
        frames: None,
        what: DiagnosticKind::LeftOver { chunks: leftover.chunks(), bytes: leftover.bytes() },
    })
}

/// Makes a diagnostic about a file in a holding's side directory, or about the directory.
fn about(
    inventory: &Inventory,
    holding: &MemberFiles,
    side: Option<&str>,
    what: DiagnosticKind,
) -> Diagnostic {
    let stream = inventory.manifest.streams.iter().find(|s| s.directory == holding.name);
    Diagnostic {
        stream: stream.map(|stream| stream.name.to_string()),
        member: Some(inventory.roots[holding.root].path.clone()),
        file: Some(side.map_or_else(|| holding.path.clone(), |file| holding.side(file))),
        frames: None,
        what,
    }
}

#[cfg(test)]
mod tests;
