//! A stored scan as its streams: blocks in order over all members, what is missing, and their bytes.
//!
//! [`Scan::open`] holds the manifests and indexes of all members against one another and against the
//! files that are there. What does not fit becomes a [`Finding`]; the rest can be read. No byte whose
//! checksum fails is returned unless it was asked for.
//!
//! - `merge`: one list of blocks out of the indexes of all members, and what is not where it should be
//! - `protected`: the stripes that blocks are in, and blocks that only those tell of
//! - `stream`: a stream's blocks and frames, found by index and by time
//! - `blocks`: their bytes, read ahead
//! - `clock`: the one clock that all blocks of a stream go by

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
pub use self::stream::{Absent, Frame, Frames, Placed, Presence, Stream};
use super::finding::{Finding, What};
use super::identity::identity_path;
use super::inventory::{self, Copy, Holding, Inventory, members_without_file};

/// A scan that was opened.
#[derive(Debug)]
pub struct Scan {
    /// What the scan says of itself.
    pub manifest: Manifest,
    /// What files there are.
    pub inventory: Inventory,
    /// Its streams, in the manifest's order.
    pub streams: Vec<Stream>,
    /// What is not as it should be, as far as names, sizes and indexes tell.
    pub findings: Vec<Finding>,
}

impl Scan {
    /// Opens a scan that lies under `roots`.
    pub fn open(roots: &[PathBuf], scan: &ScanName) -> Result<Self, inventory::Error> {
        Ok(Self::of_inventory(Inventory::take(roots, scan)?))
    }

    /// A scan from what is known of its files.
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
    pub fn stream(&self, name: &str) -> Option<&Stream> {
        self.streams.iter().find(|stream| stream.name == name)
    }

    /// What is to be added to the times of a stream that goes by the host's clock, so that it stays in step with those
    /// that go by their frames' own: the sender's clock may be another.
    pub fn ahead_ns(&self, stream: &Stream) -> i64 {
        let streams = self.streams.iter().filter(|_| !stream.goes_by_frames());
        streams.filter_map(Stream::ahead_ns).next().unwrap_or(0)
    }

    /// The index file that knows a block.
    pub fn index_path(&self, placed: &Placed) -> PathBuf {
        if let Some(records) = &placed.records {
            return records.to_path_buf();
        }
        self.inventory.holdings[placed.holding].side(INDEX_FILE)
    }

    /// The lengths of the frames that begin in a block of a stream whose lengths vary.
    pub fn lengths(&self, placed: &Placed) -> io::Result<Vec<u16>> {
        match placed.lengths {
            Some(at) => inventory::read_lengths(&self.index_path(placed), self.manifest.uuid, at),
            None => Ok(Vec::new()),
        }
    }

    /// Bytes that lie on the members.
    pub fn bytes(&self) -> u64 {
        let chunks = self.inventory.holdings.iter().flat_map(|holding| &holding.chunks);
        chunks.map(|(_, file)| file.bytes).sum()
    }
}

pub(super) fn findings_of_members(inventory: &Inventory) -> Vec<Finding> {
    let absent = inventory.absent_members().into_iter().map(|member| Finding {
        stream: None,
        member: Some(member.path.clone()),
        file: None,
        frames: None,
        what: What::MemberAbsent { uuid: member.uuid, was_at: member.path.clone() },
    });
    let doubtful = inventory.roots.iter().filter_map(|root| {
        Some(Finding {
            stream: None,
            member: Some(root.path.clone()),
            file: Some(identity_path(&root.path)),
            frames: None,
            what: What::MemberUnidentified { why: root.unidentified.clone()? },
        })
    });
    let without = members_without_file(&inventory.roots, &inventory.manifest);
    let without = without.map(|(root, member)| Finding {
        stream: None,
        member: Some(root.path.clone()),
        file: Some(identity_path(&root.path)),
        frames: None,
        what: What::MemberFileMissing { uuid: member.uuid },
    });
    let unreadable = inventory.failed_roots.iter().map(|error| Finding {
        stream: None,
        member: Some(error.path.clone()),
        file: None,
        frames: None,
        what: What::Unreadable { why: error.source.to_string() },
    });
    let holdings = inventory.holdings.iter();
    let unlisted =
        holdings.flat_map(|holding| holding.unlisted.iter().map(move |it| (holding, it)));
    let unlisted = unlisted.map(|(holding, (path, why))| Finding {
        file: Some(path.clone()),
        ..about(inventory, holding, None, What::Unreadable { why: why.clone() })
    });
    absent.chain(doubtful).chain(without).chain(unreadable).chain(unlisted).collect()
}

fn findings_of_manifests(inventory: &Inventory) -> Vec<Finding> {
    let mut findings = Vec::new();
    for holding in &inventory.holdings {
        let what = match &holding.manifest {
            Copy::Read(copy) if *copy == inventory.manifest => None,
            Copy::Read(_) => {
                Some(What::ManifestDiffers { believed: inventory.manifest_path.clone() })
            }
            Copy::Missing => Some(What::ManifestMissing),
            Copy::Unreadable(why) => Some(What::ManifestUnreadable { why: why.clone() }),
        };
        findings.extend(what.map(|what| about(inventory, holding, Some(MANIFEST_FILE), what)));
    }
    findings
}

fn findings_of_leftovers(inventory: &Inventory) -> impl Iterator<Item = Finding> {
    inventory.leftovers.iter().map(|leftover| Finding {
        stream: None,
        member: Some(leftover.root.path.clone()),
        file: None,
        frames: None,
        what: What::LeftOver { chunks: leftover.chunks(), bytes: leftover.bytes() },
    })
}

/// A finding about a file beside the chunks of a holding, or about the directory.
fn about(inventory: &Inventory, holding: &Holding, side: Option<&str>, what: What) -> Finding {
    let stream = inventory.manifest.streams.iter().find(|s| s.directory == holding.name);
    Finding {
        stream: stream.map(|stream| stream.name.to_string()),
        member: Some(inventory.roots[holding.root].path.clone()),
        file: Some(side.map_or_else(|| holding.path.clone(), |file| holding.side(file))),
        frames: None,
        what,
    }
}

#[cfg(test)]
mod tests;
