//! Property tests of any damage to members and files, also beyond what parity can restore: readable data is read
//! correctly, losses are reported exactly, and the remaining redundancy is reported correctly.
//!
//! The judge knows the stripes as they were made, and compares every file with its original content. It calls no code
//! that reads, checks or repairs.

use fullbore_store::inventory::Inventory;
use fullbore_store::redundancy::{records_file, stripes_of};

use super::*;

/// Damage to a member or a file. Files are those of chunks and of parity, in the order of their names.
#[derive(Clone, Debug)]
enum Harm {
    /// A member is lost.
    Lose(prop::sample::Index),
    /// One bit of a file is flipped.
    Flip(prop::sample::Index, usize),
    /// A file is truncated.
    Cut(prop::sample::Index, usize),
    /// A file is removed.
    Remove(prop::sample::Index),
    /// A file has the content of another.
    Confuse(prop::sample::Index, prop::sample::Index),
    /// The metadata beside a parity chunk is unreadable.
    Forget(prop::sample::Index),
}

fn harms() -> impl Strategy<Value = Vec<Harm>> {
    let file = any::<prop::sample::Index>;
    let harm = prop_oneof![
        2 => file().prop_map(Harm::Lose),
        6 => (file(), any::<usize>()).prop_map(|(file, at)| Harm::Flip(file, at)),
        1 => (file(), any::<usize>()).prop_map(|(file, to)| Harm::Cut(file, to)),
        1 => file().prop_map(Harm::Remove),
        1 => (file(), file()).prop_map(|(file, by)| Harm::Confuse(file, by)),
        1 => file().prop_map(Harm::Forget),
    ];
    prop::collection::vec(harm, 0..9)
}

/// A chunk of a stripe, data or parity, as it was made.
struct Shard {
    root: PathBuf,
    path: PathBuf,
    /// The metadata file, if it is parity.
    metadata: Option<PathBuf>,
    whole: Vec<u8>,
    sheet_whole: Vec<u8>,
    /// The blocks, if it is data: number, and range in the file.
    blocks: Vec<(u64, std::ops::Range<usize>)>,
}

/// A stripe as it was made.
struct Striped {
    row_bytes: usize,
    data: Vec<Shard>,
    parity: Vec<Shard>,
}

/// Computes the readable part of a scan from its original content.
struct Judge {
    /// The stripes of each stream.
    streams: Vec<Vec<Striped>>,
}

/// The expected state of a scan, with these members.
struct Judged {
    /// Blocks of each stream that can be read.
    readable: Vec<BTreeSet<u64>>,
    /// Blocks of each stream that are in no index and no metadata.
    unknown: Vec<u64>,
    stripes: u64,
    lost: u64,
    unprotected: u64,
    /// Files of data chunks that cannot be read in full, although their metadata is known.
    beyond: Vec<PathBuf>,
}

impl Judge {
    fn of(roots: &[PathBuf], laid: &Laid) -> Self {
        let inventory = Inventory::take(roots, &laid.name).unwrap();
        let read = |path: &Path| std::fs::read(path).unwrap();
        let streams = (0..laid.manifest.streams.len()).map(|number| {
            let name = laid.manifest.streams[number].directory.clone();
            let told = stripes_of(&inventory, number);
            let striped = told.iter().map(|told| {
                let stripe = &told.stripe;
                let data = stripe.data.iter().map(|chunk| Shard {
                    root: roots[chunk.root.unwrap()].clone(),
                    path: chunk.path.to_path_buf(),
                    metadata: None,
                    whole: read(&chunk.path),
                    sheet_whole: Vec::new(),
                    blocks: chunk
                        .blocks
                        .iter()
                        .map(|it| {
                            (
                                it.sequence,
                                it.offset as usize..(it.offset + u64::from(it.bytes)) as usize,
                            )
                        })
                        .collect(),
                });
                let parity = stripe.parity.iter().enumerate().map(|(shard, chunk)| {
                    let chunk = chunk.as_ref().unwrap();
                    let side = chunk.path.parent().unwrap();
                    let metadata = side.join(records_file(&name, stripe.number, shard));
                    Shard {
                        root: roots[chunk.root].clone(),
                        path: chunk.path.to_path_buf(),
                        sheet_whole: read(&metadata),
                        metadata: Some(metadata),
                        whole: read(&chunk.path),
                        blocks: Vec::new(),
                    }
                });
                Striped {
                    row_bytes: stripe.row_bytes,
                    data: data.collect(),
                    parity: parity.collect(),
                }
            });
            striped.collect()
        });
        Self { streams: streams.collect() }
    }

    fn judge(&self, given: &[PathBuf]) -> Judged {
        let mut judged = Judged {
            readable: Vec::new(),
            unknown: Vec::new(),
            stripes: 0,
            lost: 0,
            unprotected: 0,
            beyond: Vec::new(),
        };
        for stripes in &self.streams {
            judged.readable.push(BTreeSet::new());
            judged.unknown.push(0);
            stripes.iter().for_each(|stripe| judged.take(stripe, given));
        }
        judged
    }

    /// Returns the number of further members, whichever they are, that may be lost without losing anything that can be
    /// read now.
    fn may_lose(&self, given: &[PathBuf]) -> usize {
        let now = self.judge(given).readable;
        let stays = |left: &[PathBuf]| {
            let then = self.judge(left).readable;
            now.iter().zip(&then).all(|(now, then)| now.is_subset(then))
        };
        let mut most = 0;
        while most < given.len() && subsets(given, most + 1).iter().all(|left| stays(left)) {
            most += 1;
        }
        most
    }
}

/// Returns all subsets that remain when this many are lost.
fn subsets(of: &[PathBuf], lost: usize) -> Vec<Vec<PathBuf>> {
    (0u32..1 << of.len())
        .filter(|mask| mask.count_ones() as usize == lost)
        .map(|mask| {
            let stays = |(n, _): &(usize, &PathBuf)| mask >> n & 1 == 0;
            of.iter().enumerate().filter(stays).map(|(_, root)| root.clone()).collect()
        })
        .collect()
}

impl Shard {
    /// Returns its current bytes.
    fn bytes(&self, given: &[PathBuf]) -> Vec<u8> {
        match given.contains(&self.root) {
            true => std::fs::read(&self.path).unwrap_or_default(),
            false => Vec::new(),
        }
    }

    fn is_told_of(&self, given: &[PathBuf]) -> bool {
        let metadata = self.metadata.as_ref().filter(|_| given.contains(&self.root));
        metadata.is_some_and(|it| std::fs::read(it).is_ok_and(|bytes| bytes == self.sheet_whole))
    }

    /// Returns the parts that have changed: blocks, or rows of parity.
    fn bad(&self, given: &[PathBuf], row_bytes: usize) -> Vec<std::ops::Range<usize>> {
        let rows = (0..self.whole.len()).step_by(row_bytes);
        let pieces: Vec<std::ops::Range<usize>> = match &self.metadata {
            None => self.blocks.iter().map(|(_, range)| range.clone()).collect(),
            Some(_) => rows.map(|at| at..self.whole.len().min(at + row_bytes)).collect(),
        };
        // Parity without metadata does not count.
        if self.metadata.is_some() && !self.is_told_of(given) {
            return pieces;
        }
        let is = self.bytes(given);
        let is_bad = |piece: &std::ops::Range<usize>| {
            is.get(piece.clone()) != Some(&self.whole[piece.clone()])
        };
        pieces.into_iter().filter(is_bad).collect()
    }
}

impl Judged {
    /// Adds a stripe of the newest stream.
    fn take(&mut self, stripe: &Striped, given: &[PathBuf]) {
        let (readable, unknown) =
            (self.readable.last_mut().unwrap(), self.unknown.last_mut().unwrap());
        let told = stripe.parity.iter().any(|it| it.is_told_of(given));
        let rows_of = |range: &std::ops::Range<usize>| {
            range.start / stripe.row_bytes..range.end.div_ceil(stripe.row_bytes)
        };
        let mut bad_in: std::collections::BTreeMap<usize, usize> = Default::default();
        for shard in stripe.data.iter().chain(&stripe.parity) {
            let bad = shard.bad(given, stripe.row_bytes);
            let rows: BTreeSet<usize> = bad.iter().flat_map(rows_of).collect();
            rows.into_iter().for_each(|row| *bad_in.entry(row).or_default() += 1);
            self.lost += u64::from(told && !bad.is_empty());
        }
        self.stripes += u64::from(told);
        for shard in &stripe.data {
            let bad = shard.bad(given, stripe.row_bytes);
            let is_known = told || given.contains(&shard.root);
            let mut beyond = false;
            for (sequence, range) in &shard.blocks {
                let mended =
                    || told && rows_of(range).all(|row| bad_in[&row] <= stripe.parity.len());
                if !bad.contains(range) || mended() {
                    readable.insert(*sequence);
                } else if is_known {
                    beyond = true;
                } else {
                    *unknown += 1;
                }
            }
            self.unprotected += u64::from(!told && is_known);
            self.lost += u64::from(!told && beyond);
            if beyond {
                self.beyond.push(shard.path.clone());
            }
        }
    }
}

/// Applies the damage to the remaining members and files. Lost members are removed from `roots`.
fn harm(harm: &Harm, roots: &mut Vec<PathBuf>) {
    let all: Vec<PathBuf> = roots.iter().flat_map(|root| files(root)).collect();
    let chosen =
        |index: &prop::sample::Index| (!all.is_empty()).then(|| &all[index.index(all.len())]);
    let is_empty = |path: &PathBuf| std::fs::metadata(path).is_ok_and(|it| it.len() == 0);
    match harm {
        Harm::Lose(index) if roots.len() > 1 => {
            let root = roots.remove(index.index(roots.len()));
            lose(&root);
        }
        Harm::Lose(_) => {}
        Harm::Flip(index, at) => {
            if let Some(path) = chosen(index).filter(|path| !is_empty(path)) {
                flip(path, *at);
            }
        }
        Harm::Cut(index, to) => {
            if let Some(path) = chosen(index) {
                let mut bytes = std::fs::read(path).unwrap();
                bytes.truncate(to % (bytes.len() + 1));
                std::fs::write(path, bytes).unwrap();
            }
        }
        Harm::Remove(index) => {
            if let Some(path) = chosen(index) {
                std::fs::remove_file(path).unwrap();
            }
        }
        Harm::Confuse(index, by) => {
            if let (Some(path), Some(by)) = (chosen(index), chosen(by)) {
                let bytes = std::fs::read(by).unwrap();
                std::fs::write(path, bytes).unwrap();
            }
        }
        Harm::Forget(index) => {
            let parity = |path: &&PathBuf| path.to_string_lossy().contains(".parity");
            if let Some(path) = chosen(index).filter(parity) {
                let metadata = path.to_string_lossy().replace(".parity", ".stripe");
                if Path::new(&metadata).is_file() {
                    flip(Path::new(&metadata), 100);
                }
            }
        }
    }
}

/// Returns the readable blocks of each stream, by number.
fn had(roots: &[PathBuf], laid: &Laid) -> Vec<std::collections::BTreeMap<u64, Vec<u8>>> {
    let scan = Scan::open(roots, &laid.name).unwrap();
    let settings = Settings { ahead_bytes: 0, reads_per_device: 1, ..Settings::default() };
    let of = |stream: &fullbore_store::reader::StoredStream| {
        let items = stream.read(0..stream.blocks.len(), settings).unwrap();
        let blocks = items.filter_map(|item| match item {
            Item::Block(block) => Some((block.location.block.sequence, block.bytes().to_vec())),
            Item::Lost(_) => None,
        });
        blocks.collect()
    };
    scan.streams.iter().map(of).collect()
}

/// Compares the data read with the expected data, block by block.
fn check_had(
    laid: &Laid,
    roots: &[PathBuf],
    readable: &[BTreeSet<u64>],
) -> Result<(), TestCaseError> {
    for (number, had) in had(roots, laid).into_iter().enumerate() {
        let names: BTreeSet<u64> = had.keys().copied().collect();
        prop_assert_eq!(&names, &readable[number], "blocks of stream {}", number);
        let mut at = 0;
        for (_, block) in &laid.blocks[number] {
            let whole = &laid.bytes[number][at..at + block.bytes as usize];
            at += block.bytes as usize;
            let read = had.get(&block.sequence);
            prop_assert!(read.is_none_or(|read| read == whole), "block {}", block.sequence);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn what_parity_makes_up_for_is_read_and_rebuilt_and_what_is_lost_is_named_exactly(
        data in 1..4u16,
        parity in 1..3u16,
        spare in 0..2usize,
        plans in plans(),
        harms in harms(),
    ) {
        let scheme = Scheme { data, parity };
        let Made { store, laid, .. } = make(scheme.members() + spare, scheme, &plans);
        let all = store.roots();
        let judge = Judge::of(&all, &laid);
        let whole = judge.judge(&all);
        let mut roots = all.clone();
        harms.iter().for_each(|it| harm(it, &mut roots));

        let judged = judge.judge(&roots);
        check_had(&laid, &roots, &judged.readable)?;
        let found = verified(&roots, &laid);
        let left = found.redundancy.unwrap();
        prop_assert_eq!(left.stripes, judged.stripes);
        prop_assert_eq!(left.lost, judged.lost, "{:?}", found.findings);
        prop_assert_eq!(left.unprotected, judged.unprotected);
        let chunk_blocks = u64::from(fullbore_store::testing::CHUNK_BLOCKS);
        let unknown: u64 = judged.unknown.iter().map(|it| it.div_ceil(chunk_blocks)).sum();
        prop_assert_eq!(left.beyond, judged.beyond.len() as u64 + unknown);
        let is_lost = left.beyond > 0;
        if is_lost {
            prop_assert_eq!(left.may_lose, 0);
        } else {
            let most = judge.may_lose(&roots).min(usize::from(parity));
            prop_assert_eq!(left.may_lose, most, "{:?}", found.findings);
        }
        for path in &judged.beyond {
            let named = |it: &fullbore_store::diagnostics::Diagnostic| it.file.as_ref() == Some(path);
            prop_assert!(found.findings.iter().any(named), "{} is not named", path.display());
        }
        for (number, stream) in found.streams.iter().enumerate() {
            // Exact to the block; the frames of an unlisted block are known if the missing ones are known.
            let lost = whole.readable[number].len() - judged.readable[number].len();
            prop_assert_eq!(lost == 0, stream.lost == 0, "{:?}", stream);
        }
        let is_hurt = judged.lost + judged.unprotected + unknown > 0 || roots.len() < all.len();
        prop_assert_eq!(found.good, !is_hurt, "{:?}", found.findings);

        let (_others, onto) = fresh(all.len() - roots.len());
        let done = restored(&roots, &laid, &onto);
        prop_assert_eq!(done.is_whole(), !is_lost, "{:?}", done);
        let now: Vec<PathBuf> = roots.iter().chain(&onto).cloned().collect();
        check_had(&laid, &now, &judged.readable)?;
        if is_lost {
            prop_assert!(done.gone.is_empty());
            let told = done.left.join("\n");
            for path in &judged.beyond {
                prop_assert!(told.contains(&path.display().to_string()), "{} in {told}", path.display());
            }
        } else {
            let after = verified(&now, &laid);
            prop_assert!(after.good, "{:?}", after.findings);
            prop_assert_eq!(after.redundancy.unwrap().may_lose, usize::from(parity));
        }
    }
}
