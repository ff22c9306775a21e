//! Copies of a scan at other sites: the receipts beside it, and the digest that both ends compute.
//!
//! A receiver that has sealed a scan sends a receipt. The sender keeps it in `copies.json` beside the first stream of the
//! scan, on every member that accepts it. A receipt counts as a proof only while its digest equals that of the blocks
//! that are here: a scan that has changed since is not proven elsewhere.
//!
//! The file is replaced as a whole, under a lock of its directory. Readers join the files of all members, so a member
//! that was away does not lose a receipt.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use fullbore_core::hint::Hint;
use fullbore_core::index::Block;
use fullbore_core::manifest::{Manifest, State};
use fullbore_core::name::ScanName;
use fullbore_linux::regular_file;
use fullbore_time::Tai;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::diagnostics::{Diagnostic, DiagnosticKind};
use crate::inventory::{self, Inventory, MemberFiles};
use crate::lock::put_file;
use crate::reader::Scan;

/// The file's name in the side directory of a scan's first stream.
pub const COPIES_FILE: &str = "copies.json";

/// The file, in a stream's side directory, that continues the upload of a chunk file to an object store.
pub const UPLOAD_FILE: &str = "upload.jsonl";

/// Maximum size of the file.
const LARGEST: u64 = 1 << 20;

/// Maximum number of receipts of a scan; the newest stay.
pub const MOST: usize = 256;

/// The version of the file's format.
const VERSION: u32 = 1;

/// The digest of a scan's blocks: SHA-256 over stream (u16), sequence (u64), length (u32) and CRC32C (u32), little-endian, of
/// each block in the order of streams and sequences.
pub fn digest<'a>(blocks: impl Iterator<Item = (u16, &'a Block)>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (stream, block) in blocks {
        hash.update(stream.to_le_bytes());
        hash.update(block.sequence.to_le_bytes());
        hash.update(block.bytes.to_le_bytes());
        hash.update(block.crc.to_le_bytes());
    }
    hash.finalize().into()
}

/// The digest of all blocks of a scan that are in any index.
pub fn digest_of(scan: &Scan) -> [u8; 32] {
    let streams = scan.streams.iter();
    digest(streams.flat_map(|stream| {
        let number = stream.number as u16;
        stream.blocks.iter().map(move |it| (number, &it.block))
    }))
}

/// A digest; as text, 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a digest of 64 hexadecimal digits");
        if text.len() != 64 || !text.bytes().all(|it| it.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut digest = [0; 32];
        for (at, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| bad())?;
        }
        Ok(Self(digest))
    }
}

/// The proof of a receiver that it has sealed a scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The name of the receiving host.
    pub host: String,
    /// The fingerprint of its key, as hexadecimal digits.
    pub key: String,
    /// UUID of the scan.
    pub scan: Uuid,
    /// Blocks of all streams.
    pub blocks: u64,
    /// Bytes of all streams.
    pub bytes: u64,
    /// See [`digest`].
    pub digest: Digest,
    /// The time of the seal there.
    pub at: Tai,
}

/// The content of the file.
#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    copies: Vec<Receipt>,
}

/// The receipts of a scan.
#[derive(Clone, Debug, Default)]
pub struct Copies {
    /// One of each host's key, in the order of time.
    pub receipts: Vec<Receipt>,
    /// Files that could not be read.
    pub findings: Vec<Diagnostic>,
}

/// The reason why a receipt proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// There is no receipt.
    #[error("no other host has sent a receipt for it")]
    NoReceipt,
    /// The scan is not over.
    #[error("it is not sealed")]
    Unsealed,
    /// The receipt is for another scan, which had the same name.
    #[error("the receipt is for another scan of this name")]
    OtherScan,
    /// The copy is not of all blocks.
    #[error("the copy has {copied} of {recorded} recorded blocks")]
    Part {
        /// Blocks in the receipt.
        copied: u64,
        /// Recorded blocks.
        recorded: u64,
    },
    /// The blocks here are others.
    #[error("the blocks here differ from those of the copy")]
    Differs,
}

/// A receipt that could not be stored.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scan.
    #[error(transparent)]
    Scan(#[from] inventory::Error),
    /// The receipt is for another scan.
    #[error("{scan} is not the scan that the receipt is for")]
    OtherScan {
        /// The name.
        scan: ScanName,
    },
    /// No member could store it.
    #[error("{}: cannot store the receipt: {source}", path.display())]
    Write {
        /// The first file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Error::Scan(error) => error.hint(),
            Error::OtherScan { .. } => None,
            Error::Write { .. } => Some("is the member full, or read-only?".into()),
        }
    }
}

/// Adds a receipt, in place of an earlier one of the same key. It is on the disk when this returns. Returns the members
/// that could not store it although others did.
pub fn add(
    roots: &[PathBuf],
    scan: &ScanName,
    receipt: &Receipt,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let inventory = Inventory::take(roots, scan)?;
    if inventory.manifest.uuid != receipt.scan {
        return Err(Error::OtherScan { scan: scan.clone() });
    }
    let (mut stored, mut failed, mut first_error) = (0, Vec::new(), None);
    for holding in places(&inventory.holdings, &inventory.manifest) {
        match add_to(&inventory, holding, receipt) {
            Ok(()) => stored += 1,
            Err(source) => {
                failed.push((inventory.roots[holding.root].path.clone(), source.to_string()));
                first_error.get_or_insert((holding.side(COPIES_FILE), source));
            }
        }
    }
    match first_error {
        Some((path, source)) if stored == 0 => Err(Error::Write { path, source }),
        None if stored == 0 => {
            let path = inventory.manifest_path.with_file_name(COPIES_FILE);
            Err(Error::Write { path, source: io::ErrorKind::NotFound.into() })
        }
        _ => Ok(failed),
    }
}

/// Returns the receipts beside a scan, from all members.
pub fn of_scan(inventory: &Inventory) -> Copies {
    let mut copies = Copies::default();
    for holding in places(&inventory.holdings, &inventory.manifest) {
        let path = holding.side(COPIES_FILE);
        match read(&path) {
            Ok(receipts) => copies.receipts.extend(receipts),
            Err(error) => copies.findings.push(Diagnostic {
                stream: None,
                member: Some(inventory.roots[holding.root].path.clone()),
                file: Some(path),
                frames: None,
                what: DiagnosticKind::CopiesUnreadable { why: error.to_string() },
            }),
        }
    }
    copies.receipts = one_of_each_key(copies.receipts);
    copies
}

/// Returns the number of keys with a receipt for this scan, without judging them. Files are those in the directories
/// given, of any streams.
pub(crate) fn count<'a>(directories: impl Iterator<Item = &'a Path>, scan: Uuid) -> usize {
    let read = |directory: &Path| read(&inventory::side_file(directory, COPIES_FILE));
    let all = directories.filter_map(|directory| read(directory).ok()).flatten();
    one_of_each_key(all.filter(|it| it.scan == scan).collect()).len()
}

/// Returns the newest receipt that proves a scan to be elsewhere, whole and unchanged.
pub fn proof(scan: &Scan) -> Result<Receipt, Unproven> {
    let mut why = Unproven::NoReceipt;
    let receipts = of_scan(&scan.inventory).receipts;
    if receipts.is_empty() {
        return Err(why);
    }
    let digest = digest_of(scan);
    for receipt in receipts.into_iter().rev() {
        match judge(scan, &Digest(digest), &receipt) {
            Ok(()) => return Ok(receipt),
            Err(reason) => why = reason,
        }
    }
    Err(why)
}

/// Decides whether a receipt proves a scan with this digest to be elsewhere.
pub fn judge(scan: &Scan, digest: &Digest, receipt: &Receipt) -> Result<(), Unproven> {
    // Blocks that are in no index here may be on a member that is away.
    let recorded = scan.streams.iter().map(|stream| stream.recorded_blocks()).sum();
    if receipt.scan != scan.manifest.uuid {
        Err(Unproven::OtherScan)
    } else if scan.manifest.state == State::Recording {
        Err(Unproven::Unsealed)
    } else if receipt.blocks != recorded {
        Err(Unproven::Part { copied: receipt.blocks, recorded })
    } else if receipt.digest != *digest {
        Err(Unproven::Differs)
    } else {
        Ok(())
    }
}

/// Returns the directories that may hold the file: those of the first stream.
fn places<'a>(
    holdings: &'a [MemberFiles],
    manifest: &'a Manifest,
) -> impl Iterator<Item = &'a MemberFiles> {
    let first = manifest.streams.first().map(|stream| stream.directory.as_str());
    holdings.iter().filter(move |it| Some(it.name.as_str()) == first)
}

fn add_to(inventory: &Inventory, holding: &MemberFiles, receipt: &Receipt) -> io::Result<()> {
    let path = holding.side(COPIES_FILE);
    // Another transfer may add a receipt at the same time.
    let directory = File::open(path.parent().unwrap_or(Path::new(".")))?;
    flock(&directory, FlockOperation::LockExclusive)?;
    // What is on other members but not here was added while this member was away. Of a damaged file, the others tell.
    let mut receipts = of_scan(inventory).receipts;
    receipts.retain(|it| it.key != receipt.key || it.scan != receipt.scan);
    receipts.push(receipt.clone());
    let mut copies = one_of_each_key(receipts);
    copies.drain(..copies.len().saturating_sub(MOST));
    let mut json = serde_json::to_vec_pretty(&Document { version: VERSION, copies })?;
    json.push(b'\n');
    put_file(&path, &json)
}

/// Reads a file; one that does not exist has no receipts.
fn read(path: &Path) -> io::Result<Vec<Receipt>> {
    let file = match regular_file::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut json = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut json)?;
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if json.len() as u64 > LARGEST {
        return Err(invalid(format!("larger than {LARGEST} bytes")));
    }
    let Document { version, copies } = serde_json::from_slice(&json)?;
    if version > VERSION {
        return Err(invalid(format!("it has version {version}, and this program reads {VERSION}")));
    }
    match copies.len() {
        ..=MOST => Ok(copies),
        many => Err(invalid(format!("{many} receipts, more than {MOST}"))),
    }
}

/// Returns the newest receipt of each key, in the order of time.
fn one_of_each_key(receipts: Vec<Receipt>) -> Vec<Receipt> {
    let mut newest: BTreeMap<(String, Uuid), Receipt> = BTreeMap::new();
    for receipt in receipts {
        let key = (receipt.key.clone(), receipt.scan);
        match newest.get(&key) {
            Some(known) if known.at >= receipt.at => {}
            _ => drop(newest.insert(key, receipt)),
        }
    }
    let mut all: Vec<Receipt> = newest.into_values().collect();
    all.sort_by(|a, b| (a.at, &a.key).cmp(&(b.at, &b.key)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Laid, Store, StreamPlan};

    fn receipt(store: &Store, laid: &Laid, key: &str, at: i64) -> Receipt {
        let scan = Scan::open(&store.roots(), &laid.name).unwrap();
        Receipt {
            host: "far".into(),
            key: key.into(),
            scan: scan.manifest.uuid,
            blocks: scan.streams.iter().map(|it| it.blocks.len() as u64).sum(),
            bytes: scan.manifest.bytes(),
            digest: Digest(digest_of(&scan)),
            at: Tai(at),
        }
    }

    fn there(store: &Store, laid: &Laid) -> Copies {
        of_scan(&Inventory::take(&store.roots(), &laid.name).unwrap())
    }

    fn proven(store: &Store, laid: &Laid) -> Result<Receipt, Unproven> {
        proof(&Scan::open(&store.roots(), &laid.name).unwrap())
    }

    fn file(laid: &Laid, member: usize) -> PathBuf {
        inventory::side_file(&laid.directory(0, member), COPIES_FILE)
    }

    #[test]
    fn a_receipt_is_beside_the_first_stream_on_every_member_and_proves_the_copy() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a"), StreamPlan::varying("b")]);
        assert_eq!(proven(&store, &laid), Err(Unproven::NoReceipt));
        let (first, second) = (receipt(&store, &laid, "aa", 1), receipt(&store, &laid, "bb", 2));
        assert_eq!(add(&store.roots(), &laid.name, &second).unwrap(), []);
        add(&store.roots(), &laid.name, &first).unwrap();
        let again = Receipt { at: Tai(3), ..first };
        add(&store.roots(), &laid.name, &again).unwrap();
        assert_eq!(there(&store, &laid).receipts, [second, again.clone()]);
        assert_eq!(proven(&store, &laid), Ok(again));
        assert_eq!(std::fs::read(file(&laid, 0)).unwrap(), std::fs::read(file(&laid, 1)).unwrap());
        assert!(!inventory::side_file(&laid.directory(1, 0), COPIES_FILE).exists());
        assert!(Scan::open(&store.roots(), &laid.name).unwrap().findings.is_empty());
    }

    #[test]
    fn what_is_on_one_member_is_added_to_the_others_with_the_next() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        add(&store.roots(), &laid.name, &receipt(&store, &laid, "aa", 1)).unwrap();
        std::fs::remove_file(file(&laid, 1)).unwrap();
        assert_eq!(there(&store, &laid).receipts.len(), 1);
        add(&store.roots(), &laid.name, &receipt(&store, &laid, "bb", 2)).unwrap();
        assert_eq!(read(&file(&laid, 1)).unwrap().len(), 2);
    }

    #[test]
    fn a_damaged_file_is_reported_and_the_others_count() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let receipt = receipt(&store, &laid, "aa", 1);
        add(&store.roots(), &laid.name, &receipt).unwrap();
        let whole = std::fs::read(file(&laid, 0)).unwrap();
        let later =
            String::from_utf8(whole.clone()).unwrap().replace("\"version\": 1", "\"version\": 2");
        let long = vec![b' '; LARGEST as usize + 1];
        for damage in [&whole[..whole.len() / 2], b"", later.as_bytes(), &long] {
            std::fs::write(file(&laid, 0), damage).unwrap();
            let copies = there(&store, &laid);
            assert_eq!(copies.receipts, std::slice::from_ref(&receipt));
            let [finding] = &copies.findings[..] else { panic!("{:?}", copies.findings) };
            assert!(matches!(finding.what, DiagnosticKind::CopiesUnreadable { .. }));
            assert!(finding.to_string().contains("copies.json"), "{finding}");
        }
        add(&store.roots(), &laid.name, &receipt).unwrap();
        assert!(there(&store, &laid).findings.is_empty(), "the next receipt repairs the file");
    }

    #[test]
    fn a_receipt_that_does_not_fit_proves_nothing() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let good = receipt(&store, &laid, "aa", 1);
        let other = Receipt { scan: Uuid::from_u128(7), ..good.clone() };
        let error = add(&store.roots(), &laid.name, &other).unwrap_err();
        assert!(matches!(error, Error::OtherScan { .. }), "{error}");
        let blocks = good.blocks;
        for (wrong, why) in [
            (Receipt { digest: Digest([7; 32]), ..good.clone() }, Unproven::Differs),
            (
                Receipt { blocks: blocks - 1, ..good.clone() },
                Unproven::Part { copied: blocks - 1, recorded: blocks },
            ),
        ] {
            add(&store.roots(), &laid.name, &wrong).unwrap();
            assert_eq!(proven(&store, &laid), Err(why));
        }
        add(&store.roots(), &laid.name, &good).unwrap();
        proven(&store, &laid).unwrap();
        // Without a member, not all of the scan can be compared.
        let scan = Scan::open(&store.roots()[..1], &laid.name).unwrap();
        assert_eq!(proof(&scan), Err(Unproven::Differs));
        let unsealed = store.lay_down("r1_b", &[StreamPlan::vdif("a").unsealed()]);
        let receipt = receipt(&store, &unsealed, "aa", 1);
        add(&store.roots(), &unsealed.name, &receipt).unwrap();
        assert_eq!(proven(&store, &unsealed), Err(Unproven::Unsealed));
    }

    #[test]
    fn receipts_that_are_added_at_once_are_all_there_and_their_number_is_bounded() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").frames(64)]);
        let receipt = receipt(&store, &laid, "aa", 1);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (store, laid, receipt) = (&store, &laid, &receipt);
                scope.spawn(move || {
                    for number in 0..5 {
                        let key = format!("{thread}{number}");
                        add(&store.roots(), &laid.name, &Receipt { key, ..receipt.clone() })
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(there(&store, &laid).receipts.len(), 20);
        let full: Vec<Receipt> = (0..MOST as i64)
            .map(|at| Receipt { key: format!("k{at}"), at: Tai(at), ..receipt.clone() })
            .collect();
        let json = serde_json::to_vec(&Document { version: VERSION, copies: full }).unwrap();
        std::fs::write(file(&laid, 0), json).unwrap();
        add(&store.roots(), &laid.name, &Receipt { at: Tai(999), ..receipt }).unwrap();
        let receipts = there(&store, &laid).receipts;
        assert_eq!((receipts.len(), receipts[0].at), (MOST, Tai(1)), "the oldest made room");
    }

    #[test]
    fn digests_are_64_digits() {
        let digest = Digest(std::array::from_fn(|at| at as u8 * 7));
        let text = serde_json::to_string(&digest).unwrap();
        assert_eq!(text.len(), 66);
        assert_eq!(serde_json::from_str::<Digest>(&text).unwrap(), digest);
        for bad in ["\"\"", "\"00\"", &text.replace('0', "g"), &text.replace("00", "é")] {
            assert!(serde_json::from_str::<Digest>(bad).is_err(), "{bad}");
        }
    }
}
