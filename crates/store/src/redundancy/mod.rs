//! Redundancy: parity of chunks on other members, and the rows restored from it.
//!
//! ```text
//! stripe 0   chunk 0 on member 0 │ chunk 1 on member 2 │ parity 0 on member 1
//! stripe 1   chunk 2 on member 1 │ chunk 3 on member 0 │ parity 0 on member 2
//! ```
//!
//! The recorder writes chunks as without redundancy. The striper follows the recording: it combines complete and
//! durable chunks, no two of a stripe from one member, and writes parity chunks to members that hold none of them
//! (`docs/decisions/0012-redundancy.md`). The loss of a member includes its index, so the index records of a stripe's
//! chunks are also stored beside each of its parity chunks.
//!
//! - `reed_solomon`: parity of rows, and restoration of rows
//! - `stripe_metadata`: the metadata file beside a parity chunk
//! - `stripe`: a stripe on the members: rows read, checked and restored
//! - `index_tail`: the chunks of an index that grows
//! - `placement`: the choice of chunks for a stripe, and of members for its parity
//! - `stripe_writer`: writes a stripe's chunks, whole or not at all
//! - `stripe_builder`: makes stripes of the chunks of a scan

mod index_tail;
mod placement;
mod reed_solomon;
pub mod stripe;
pub mod stripe_builder;
mod stripe_metadata;
pub mod stripe_writer;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::index::{Codec, Entry, RECORD_BYTES};
use fullbore_core::redundancy::Redundancy;
use fullbore_linux::regular_file;
use uuid::Uuid;

use self::stripe::{DataChunk, ParityChunk};
pub use self::stripe::{InStripe, RowReconstructor, Stripe};
pub use self::stripe_builder::StripeBuilder;
pub use self::stripe_metadata::ChunkRecords;
use self::stripe_metadata::StripeMetadata;
use super::inventory::{Inventory, MemberFiles};

/// Suffix of the name of an unfinished file.
const MAKING_SUFFIX: &str = ".making";

/// Returns the name of a parity chunk in a stream's side directory.
fn parity_file(directory: &str, stripe: u32, shard: usize) -> String {
    format!("{directory}.{stripe:08}.parity{shard}")
}

/// Returns the name of its metadata file.
pub fn records_file(directory: &str, stripe: u32, shard: usize) -> String {
    format!("{directory}.{stripe:08}.stripe{shard}")
}

/// Returns the number in a name, and the rest of the name.
pub fn numbered<'a>(directory: &str, name: &'a str) -> Option<(u32, &'a str)> {
    let rest = name.strip_prefix(directory)?.strip_prefix('.')?;
    let (digits, rest) = rest.split_at_checked(8)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((digits.parse().ok().filter(|_| is_number)?, rest.strip_prefix('.')?))
}

/// Returns the shard in `parity0` or `stripe0`.
pub fn shard_of(kind: &str, rest: &str) -> Option<usize> {
    let digits = rest.strip_prefix(kind)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|shard| is_number && *shard < usize::from(u8::MAX))
}

/// Returns true if the name, in a stream's side directory, is that of a parity chunk or its metadata, finished or not.
pub fn is_ours(directory: &str, name: &str) -> bool {
    let Some((_, rest)) = numbered(directory, name) else { return false };
    let whole = rest.strip_suffix(MAKING_SUFFIX).unwrap_or(rest);
    let is_shard = shard_of("parity", whole).or(shard_of("stripe", whole)).is_some();
    is_shard || rest == "making" || rest == "new"
}

/// Returns true if a file in a stream's side directory is a complete parity chunk.
pub fn is_parity(directory: &str, path: &std::path::Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let numbered = name.and_then(|name| numbered(directory, name));
    numbered.is_some_and(|(_, rest)| shard_of("parity", rest).is_some())
}

/// Returns the stripe and the shard of a metadata file.
pub fn is_records(holding: &MemberFiles, path: &std::path::Path) -> Option<(u32, usize)> {
    let name = path.file_name()?.to_str()?;
    let (stripe, rest) = numbered(&holding.name, name)?;
    Some((stripe, shard_of("stripe", rest)?))
}

/// Returns true if a process that died left the file unfinished.
pub fn is_unfinished(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|it| it == "making" || it == "new")
}

/// Returns the redundancy scheme of files in these directories, if no manifest has it.
pub fn seen_in(holdings: &[MemberFiles], scan: Uuid) -> Option<Redundancy> {
    let codec = Codec::of_scan(scan);
    let mut most: Option<Redundancy> = None;
    for holding in holdings {
        for path in &holding.redundant {
            let mut record = [0; RECORD_BYTES];
            let read = regular_file::open(path).and_then(|file| file.read_exact_at(&mut record, 0));
            if is_records(holding, path).is_none() || read.is_err() {
                continue;
            }
            let Ok((_, Entry::Stripe(stripe))) = codec.decode(&record) else { continue };
            let seen =
                Redundancy { data: stripe.data, parity: stripe.parity, followed: None, rebuilt: 0 };
            let seen = Some(seen).filter(|it| it.check().is_ok());
            most = most.into_iter().chain(seen).max_by_key(|it| (it.data, it.parity));
        }
    }
    most
}

/// A stripe of a stream, with the content of one of its metadata files.
#[derive(Debug)]
pub struct StripeRecord {
    /// The stripe.
    pub stripe: Arc<Stripe>,
    /// The index of the inventory's holding with the metadata file.
    pub holding: usize,
    /// The path of the metadata file.
    pub path: Arc<PathBuf>,
    /// The index records of its data chunks, in their order.
    pub chunks: Vec<ChunkRecords>,
}

/// Returns the stripes of a stream, by number, that any member has metadata of.
pub fn stripes_of(inventory: &Inventory, number: usize) -> Vec<StripeRecord> {
    let codec = Codec::of_scan(inventory.manifest.uuid);
    let directory = &inventory.manifest.streams[number].directory;
    let all = inventory.holdings.iter().enumerate();
    let holdings: Vec<(usize, &MemberFiles)> =
        all.filter(|(_, it)| it.name == *directory).collect();
    let mut sheets: BTreeMap<u32, Vec<(usize, PathBuf, StripeMetadata)>> = BTreeMap::new();
    for (at, holding) in &holdings {
        for path in &holding.redundant {
            let Some((stripe, shard)) = is_records(holding, path) else { continue };
            let Ok(metadata) = StripeMetadata::read(path, codec, number as u16) else { continue };
            let is_it =
                metadata.stripe.number == stripe && usize::from(metadata.stripe.shard) == shard;
            if is_it {
                sheets.entry(stripe).or_default().push((*at, path.clone(), metadata));
            }
        }
    }
    sheets.into_values().filter_map(|sheets| told(inventory, &holdings, sheets)).collect()
}

/// Makes a stripe from the metadata beside its parity chunks.
fn told(
    inventory: &Inventory,
    holdings: &[(usize, &MemberFiles)],
    mut sheets: Vec<(usize, PathBuf, StripeMetadata)>,
) -> Option<StripeRecord> {
    sheets.sort_by_key(|(_, _, metadata)| metadata.stripe.shard);
    let mut parity: Vec<Option<ParityChunk>> = Vec::new();
    let agreed = sheets.first()?.2.layout();
    for (at, _, metadata) in &sheets {
        let shard = usize::from(metadata.stripe.shard);
        if metadata.layout() != agreed {
            continue;
        }
        parity.resize_with(parity.len().max(usize::from(metadata.stripe.parity)), || None);
        let holding = &inventory.holdings[*at];
        let path = holding.side(&parity_file(&holding.name, metadata.stripe.number, shard));
        if parity[shard].is_none() && path.is_file() {
            parity[shard] = Some(ParityChunk {
                path: Arc::new(path),
                root: holding.root,
                device: inventory.roots[holding.root].device,
                crcs: metadata.crcs.clone(),
            });
        }
    }
    let (holding, path, metadata) = sheets.swap_remove(0);
    let data = metadata.chunks.iter().map(|it| data_chunk(inventory, holdings, it)).collect();
    let stripe = Stripe {
        number: metadata.stripe.number,
        row_bytes: metadata.stripe.row_bytes as usize,
        data,
        parity,
    };
    Some(StripeRecord {
        stripe: Arc::new(stripe),
        holding,
        path: Arc::new(path),
        chunks: metadata.chunks,
    })
}

/// Returns a data chunk with its current or former location.
fn data_chunk(
    inventory: &Inventory,
    holdings: &[(usize, &MemberFiles)],
    records: &ChunkRecords,
) -> DataChunk {
    let blocks = records.blocks.iter().map(|it| it.block).collect();
    let there = holdings.iter().find_map(|(_, it)| Some((*it, it.chunk(records.chunk)?)));
    let (path, root) = match there {
        Some((holding, file)) => (file.path.clone(), Some(holding.root)),
        None => {
            let holding = holdings.first().map(|(_, holding)| *holding);
            let file = holding.map(|it| it.chunk_path(records.chunk)).unwrap_or_default();
            let member = inventory.manifest.members.iter().find(|it| it.uuid == records.member);
            let root = member.map(|it| it.path.clone()).unwrap_or_default();
            let name = file.file_name().map(PathBuf::from).unwrap_or_default();
            let directory = holding.map(|it| it.name.clone()).unwrap_or_default();
            (root.join(directory).join(name), None)
        }
    };
    DataChunk {
        chunk: records.chunk,
        path: Arc::new(path),
        root,
        device: root.map_or(0, |root| inventory.roots[root].device),
        bytes: records.bytes(),
        blocks,
    }
}
