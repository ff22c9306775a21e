//! Redundancy: parity of chunks on other members, and what was lost made of it again.
//!
//! ```text
//! stripe 0   chunk 0 on member 0 │ chunk 1 on member 2 │ parity 0 on member 1
//! stripe 1   chunk 2 on member 1 │ chunk 3 on member 0 │ parity 0 on member 2
//! ```
//!
//! Chunks are recorded as if there were no such thing. Whoever follows the recording takes those that are complete and
//! durable, no two of a stripe from one member, and puts parity chunks onto members that hold none of them
//! (`docs/decisions/0012-redundancy.md`). A member that is lost takes its index with it, so what the indexes say of a
//! stripe's chunks lies beside each of its parity chunks.
//!
//! - `code`: parity of rows, and rows made of those that are left
//! - `records`: what lies beside a parity chunk
//! - `stripe`: a stripe as it lies there: rows read, checked and completed
//! - `tail`: the chunks of an index that grows
//! - `choose`: which chunks make a stripe, and who takes its parity
//! - `pour`: a stripe's chunks written, whole or not at all
//! - `compose`: stripes made of the chunks of a scan
//! - [`check`]: how much redundancy is left
//! - [`rebuild`]: what was lost restored onto other members

pub mod check;
mod choose;
mod code;
mod compose;
mod pour;
pub mod rebuild;
mod records;
mod stripe;
mod tail;
mod twins;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::index::{Codec, Entry, RECORD_BYTES};
use fullbore_core::redundancy::Redundancy;
use uuid::Uuid;

pub use self::compose::Composer;
pub use self::records::ChunkRecords;
use self::records::Sheet;
use self::stripe::{DataChunk, ParityChunk};
pub use self::stripe::{InStripe, Mender, Stripe};
use super::inventory::{Holding, Inventory};

/// What follows the name of a file that is not whole yet.
const MAKING_SUFFIX: &str = ".making";

/// The name, under a stream's `.fullbore/`, of a parity chunk.
fn parity_file(directory: &str, stripe: u32, shard: usize) -> String {
    format!("{directory}.{stripe:08}.parity{shard}")
}

/// The name of the records beside it.
fn records_file(directory: &str, stripe: u32, shard: usize) -> String {
    format!("{directory}.{stripe:08}.stripe{shard}")
}

/// The number in a name, and what follows it.
fn numbered<'a>(directory: &str, name: &'a str) -> Option<(u32, &'a str)> {
    let rest = name.strip_prefix(directory)?.strip_prefix('.')?;
    let (digits, rest) = rest.split_at_checked(8)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((digits.parse().ok().filter(|_| is_number)?, rest.strip_prefix('.')?))
}

/// The shard in `parity0` or `stripe0`.
fn shard_of(kind: &str, rest: &str) -> Option<usize> {
    let digits = rest.strip_prefix(kind)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|shard| is_number && *shard < usize::from(u8::MAX))
}

/// Whether a name under a stream's `.fullbore/` is that of redundancy, finished or not.
pub fn is_ours(directory: &str, name: &str) -> bool {
    let Some((_, rest)) = numbered(directory, name) else { return false };
    let whole = rest.strip_suffix(MAKING_SUFFIX).unwrap_or(rest);
    let is_shard = shard_of("parity", whole).or(shard_of("stripe", whole)).is_some();
    is_shard || rest == "making" || rest == "new"
}

/// Whether a file under a stream's `.fullbore/` is a parity chunk that is whole.
pub fn is_parity(directory: &str, path: &std::path::Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let numbered = name.and_then(|name| numbered(directory, name));
    numbered.is_some_and(|(_, rest)| shard_of("parity", rest).is_some())
}

/// Which stripe and shard a file holds the records of.
fn is_records(holding: &Holding, path: &std::path::Path) -> Option<(u32, usize)> {
    let name = path.file_name()?.to_str()?;
    let (stripe, rest) = numbered(&holding.name, name)?;
    Some((stripe, shard_of("stripe", rest)?))
}

/// What of a file was left unfinished by a process that died.
fn is_unfinished(path: &std::path::Path) -> bool {
    path.extension().is_some_and(|it| it == "making" || it == "new")
}

/// The redundancy that files in these directories were made with, where no manifest tells it.
pub fn seen_in(holdings: &[Holding], scan: Uuid) -> Option<Redundancy> {
    let codec = Codec::of_scan(scan);
    let mut most: Option<Redundancy> = None;
    for holding in holdings {
        for path in &holding.redundant {
            let mut record = [0; RECORD_BYTES];
            let read = File::open(path).and_then(|file| file.read_exact_at(&mut record, 0));
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

/// A stripe of a stream, and what lies beside one of its parity chunks.
#[derive(Debug)]
pub struct Told {
    /// It.
    pub stripe: Arc<Stripe>,
    /// Which of the inventory's holdings tells of it.
    pub holding: usize,
    /// In which file.
    pub path: Arc<PathBuf>,
    /// What the indexes said of its data chunks, in their order.
    pub chunks: Vec<ChunkRecords>,
}

/// The stripes of a stream, by number, as far as any member tells of them.
pub fn stripes_of(inventory: &Inventory, number: usize) -> Vec<Told> {
    let codec = Codec::of_scan(inventory.manifest.uuid);
    let directory = &inventory.manifest.streams[number].directory;
    let all = inventory.holdings.iter().enumerate();
    let holdings: Vec<(usize, &Holding)> = all.filter(|(_, it)| it.name == *directory).collect();
    let mut sheets: BTreeMap<u32, Vec<(usize, PathBuf, Sheet)>> = BTreeMap::new();
    for (at, holding) in &holdings {
        for path in &holding.redundant {
            let Some((stripe, shard)) = is_records(holding, path) else { continue };
            let Ok(sheet) = Sheet::read(path, codec, number as u16) else { continue };
            let is_it = sheet.stripe.number == stripe && usize::from(sheet.stripe.shard) == shard;
            if is_it {
                sheets.entry(stripe).or_default().push((*at, path.clone(), sheet));
            }
        }
    }
    sheets.into_values().filter_map(|sheets| told(inventory, &holdings, sheets)).collect()
}

/// A stripe from the records beside its parity chunks.
fn told(
    inventory: &Inventory,
    holdings: &[(usize, &Holding)],
    mut sheets: Vec<(usize, PathBuf, Sheet)>,
) -> Option<Told> {
    sheets.sort_by_key(|(_, _, sheet)| sheet.stripe.shard);
    let mut parity: Vec<Option<ParityChunk>> = Vec::new();
    let agreed = sheets.first()?.2.layout();
    for (at, _, sheet) in &sheets {
        let shard = usize::from(sheet.stripe.shard);
        if sheet.layout() != agreed {
            continue;
        }
        parity.resize_with(parity.len().max(usize::from(sheet.stripe.parity)), || None);
        let holding = &inventory.holdings[*at];
        let path = holding.side(&parity_file(&holding.name, sheet.stripe.number, shard));
        if parity[shard].is_none() && path.is_file() {
            parity[shard] = Some(ParityChunk {
                path: Arc::new(path),
                root: holding.root,
                device: inventory.roots[holding.root].device,
                crcs: sheet.crcs.clone(),
            });
        }
    }
    let (holding, path, sheet) = sheets.swap_remove(0);
    let data = sheet.chunks.iter().map(|it| data_chunk(inventory, holdings, it)).collect();
    let stripe = Stripe {
        number: sheet.stripe.number,
        row_bytes: sheet.stripe.row_bytes as usize,
        data,
        parity,
    };
    Some(Told { stripe: Arc::new(stripe), holding, path: Arc::new(path), chunks: sheet.chunks })
}

/// Where a data chunk lies now, or lay.
fn data_chunk(
    inventory: &Inventory,
    holdings: &[(usize, &Holding)],
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
