//! A scan that its recorder left unsealed, made a sealed one.
//!
//! ```text
//! remake    names, indexes, accounts, frames ► a manifest, where no copy of it can be read
//! examine   index ► blocks after the last durable mark are read and checked; a chunk is cut at the
//!                   first one that is not whole
//!           chunks ► what lies behind the last record is kept as far as it can be recognised
//! rebuild   both ► the sequence, its gaps, the account
//! apply     chunks cut and put in place ► indexes ► accounts ► manifests
//! renumber  chunk files renamed, where their order is not that of the stream
//! ```
//!
//! Every step leaves a scan that can be recovered again with the same result: a chunk is cut before its
//! records go, files are replaced whole, and the manifests, which alone say that the scan is sealed,
//! come last but for a renaming, which they tell of (`renumber`).
//!
//! Blocks before the last mark are believed without being read, unless asked for (`deep`); one of
//! those that turns out bad stays where it is, for `verify` to tell.

mod apply;
mod examine;
mod rebuild;
mod remake;
mod salvage;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use fullbore_core::account::{Account, Terms, Verdict};
use fullbore_core::manifest::{ACCOUNT_FILE, INDEX_FILE, MANIFEST_FILE, Manifest, State, Stream};
use fullbore_core::name::ScanName;
use serde::Serialize;

use super::inventory::{self, Copy, Holding, Index, Inventory};
use super::lock::{self, ScanLock};
use super::read::StartError;
use super::renumber;

/// How to recover.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Check every block, not only those after the last durable mark.
    pub deep: bool,
    /// Do without members that are not given: what they hold is lost to the scan.
    pub without_absent_members: bool,
    /// Also when the scan is sealed: build its indexes anew as far as they are not whole.
    pub reindex: bool,
}

/// What became of a scan.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It was sealed, and nothing was done.
    AlreadySealed {
        /// The scan.
        scan: String,
        /// How it was sealed.
        state: State,
        /// Where the members were that are not given: nothing is known of what lies there.
        absent: Vec<PathBuf>,
        /// Indexes that are lost or damaged: what they spoke of cannot be read until they are built anew.
        indexes: Vec<PathBuf>,
    },
    /// Its recorder had sealed it and died before every member said so; now they do.
    Completed {
        /// The scan.
        scan: String,
        /// How it was sealed.
        state: State,
        /// Directories that were brought up to date.
        directories: usize,
    },
    /// It was put together and sealed.
    Recovered(Recovery),
}

/// What recovering a scan did.
#[derive(Clone, Debug, Serialize)]
pub struct Recovery {
    /// The scan.
    pub scan: String,
    /// Each stream.
    pub streams: Vec<Recovered>,
    /// What a user should know of it.
    pub warnings: Vec<String>,
    /// How long it took.
    pub seconds: f64,
}

/// What recovering a stream did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Recovered {
    /// Its name.
    pub name: String,
    /// Blocks it has now.
    pub blocks: u64,
    /// Bytes it has now.
    pub bytes: u64,
    /// Blocks that had no record and were kept.
    pub found: u64,
    /// Blocks that had a record and were not whole on disk: cut off.
    pub cut: u64,
    /// Blocks that must have been there and are nowhere.
    pub lost: u64,
    /// Durable blocks that are damaged; they stay, and `verify` names them.
    pub damaged: u64,
    /// Chunk files put in their place.
    pub placed: u64,
    /// Chunk files that another member holds as well, moved out of sight.
    pub superseded: u64,
    /// The terms of the account made from it.
    pub terms: Terms,
    /// And its verdict.
    pub verdict: Option<Verdict>,
}

/// A scan that could not be recovered. Nothing was lost by trying.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be looked at.
    #[error(transparent)]
    Inventory(#[from] inventory::Error),
    /// Somebody records it, or its manifest cannot be written.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// Its manifest is of a later version of this program.
    #[error("{}: the manifest is of a later version of this program", path.display())]
    LaterVersion {
        /// The manifest.
        path: PathBuf,
    },
    /// Of a scan without a manifest nothing else is there.
    #[error("scan {scan}: there is neither a manifest of it, nor an index, an account or a chunk")]
    NothingLeft {
        /// The scan.
        scan: String,
    },
    /// A member is not there.
    #[error("scan {scan}: members are missing: {}", listed(members))]
    MembersAbsent {
        /// The scan.
        scan: String,
        /// Where each was.
        members: Vec<PathBuf>,
    },
    /// No memory or threads.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Chunk files could not be put in order.
    #[error(transparent)]
    Renumber(#[from] renumber::Error),
    /// A file could not be read.
    #[error("{}: reading it: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file could not be changed.
    #[error("{}: {doing}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Inventory(error) => error.hint(),
            Error::Lock(error) => error.hint(),
            Error::MembersAbsent { .. } => Some(
                "give them with --store, or do without what they hold (--without-absent-members)",
            ),
            Error::Write { .. } | Error::Renumber(_) => {
                Some("mend that, and recover the scan again")
            }
            Error::LaterVersion { .. } => Some("recover it with that version"),
            Error::NothingLeft { .. } => Some("`fullbore rm` takes the empty directories away"),
            Error::Start(_) | Error::Read { .. } => None,
        }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Recovers a scan. `progress` is called with bytes read so far.
pub fn recover(
    roots: &[PathBuf],
    scan: &ScanName,
    options: Options,
    progress: &dyn Fn(u64),
) -> Result<Outcome, Error> {
    let started = Instant::now();
    let (inventory, mut warnings) = look(roots, scan)?;
    if !options.reindex && !is_unsealed(&inventory) {
        return Ok(match warnings.is_empty() {
            true => already_sealed(&inventory),
            false => Outcome::Recovered(as_it_was(&inventory, warnings, started)),
        });
    }
    let mut locks = lock_all(&inventory)?;
    // Whoever held it may have sealed it while we waited.
    let mut inventory = Inventory::take(roots, scan)?;
    if !options.reindex && !is_unsealed(&inventory) {
        return Ok(already_sealed(&inventory));
    }
    let was_renaming = renumber::is_unfinished(&inventory) || is_behind(&inventory);
    if renumber::is_unfinished(&inventory) {
        refuse_absent_members(&inventory, options)?;
        let mut manifest = inventory.manifest.clone();
        rename(roots, &inventory, &mut manifest, &mut locks)?;
        inventory = Inventory::take(roots, scan)?;
    }
    let is_whole = was_renaming && !is_recording(&inventory);
    if !options.reindex && (is_whole || sealed_by_its_recorder(&inventory)) {
        return complete(&inventory, &mut locks);
    }
    refuse_absent_members(&inventory, options)?;
    let mut manifest = inventory.manifest.clone();
    let mut accounts = Vec::new();
    let mut streams = Vec::new();
    for number in 0..manifest.streams.len() {
        let examined = examine::examine(&inventory, number, options, progress)?;
        let rebuilt = rebuild::rebuild(&inventory, number, examined, progress)?;
        apply::apply(&inventory, &rebuilt)?;
        streams.push(rebuilt.told());
        rebuilt.write_into(&mut manifest);
        accounts.push(rebuilt.account);
    }
    manifest.state = State::Recovered;
    warnings.extend(renumber::plan(&Inventory::take(roots, scan)?, &mut manifest));
    seal(&inventory, &manifest, &accounts, &mut locks)?;
    if manifest.streams.iter().any(renumber::is_to_be_renamed) {
        rename(roots, &inventory, &mut manifest, &mut locks)?;
    }
    let seconds = started.elapsed().as_secs_f64();
    Ok(Outcome::Recovered(Recovery { scan: scan.to_string(), streams, warnings, seconds }))
}

/// What there is of a scan, with a manifest that is made where there is none; then with what is to be told of it.
fn look(roots: &[PathBuf], scan: &ScanName) -> Result<(Inventory, Vec<String>), Error> {
    match Inventory::take(roots, scan) {
        Err(inventory::Error::NoManifest { .. }) => {
            let told = remake::remake(roots, scan)?;
            Ok((Inventory::take(roots, scan)?, told))
        }
        inventory => Ok((inventory?, Vec::new())),
    }
}

/// A scan that lacked its manifest and nothing else.
fn as_it_was(inventory: &Inventory, warnings: Vec<String>, started: Instant) -> Recovery {
    let of_stream = |stream: &Stream| Recovered {
        name: stream.name.to_string(),
        blocks: stream.blocks,
        bytes: stream.bytes,
        terms: stream.account.as_ref().map(|account| account.terms).unwrap_or_default(),
        verdict: stream.account.as_ref().map(|account| account.verdict),
        ..Recovered::default()
    };
    Recovery {
        scan: inventory.manifest.scan.to_string(),
        streams: inventory.manifest.streams.iter().map(of_stream).collect(),
        warnings,
        seconds: started.elapsed().as_secs_f64(),
    }
}

/// Puts chunk files in the order of the stream, as the manifest says.
fn rename(
    roots: &[PathBuf],
    inventory: &Inventory,
    manifest: &mut Manifest,
    locks: &mut [ScanLock],
) -> Result<(), Error> {
    renumber::carry_out(roots, manifest, &mut |manifest| {
        put_manifests(inventory, manifest, locks).map_err(|error| renumber::Error::Manifest {
            path: inventory.manifest_path.clone(),
            why: Some(error.to_string()),
        })?;
        Ok(Vec::new())
    })?;
    Ok(())
}

fn already_sealed(inventory: &Inventory) -> Outcome {
    Outcome::AlreadySealed {
        scan: inventory.manifest.scan.to_string(),
        state: inventory.manifest.state,
        absent: absent_paths(inventory),
        indexes: bad_indexes(inventory),
    }
}

/// Indexes that do not tell of the chunks beside them.
fn bad_indexes(inventory: &Inventory) -> Vec<PathBuf> {
    let uuid = inventory.manifest.uuid;
    let is_bad = |number: usize, holding: &Holding, path: &Path| {
        match Index::read(path, uuid, number as u16) {
            Ok(index) => index.torn || (index.records == 0 && !holding.chunks.is_empty()),
            // A member that no block was dealt to needs none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => !holding.chunks.is_empty(),
            Err(_) => true,
        }
    };
    let mut bad = Vec::new();
    for number in 0..inventory.manifest.streams.len() {
        for holding in inventory.of_stream(number) {
            let path = holding.side(INDEX_FILE);
            if is_bad(number, holding, &path) {
                bad.push(path);
            }
        }
    }
    bad
}

fn absent_paths(inventory: &Inventory) -> Vec<PathBuf> {
    inventory.absent_members().into_iter().map(|member| member.path.clone()).collect()
}

/// Whether anything is left to be done, if only to copy the manifest.
fn is_unsealed(inventory: &Inventory) -> bool {
    is_recording(inventory) || is_behind(inventory)
}

/// Whether a copy of the manifest tells of files being renamed, though all of them have their names.
fn is_behind(inventory: &Inventory) -> bool {
    let copies = inventory.holdings.iter().filter_map(|holding| holding.manifest.get());
    copies.flat_map(|copy| &copy.streams).any(renumber::is_to_be_renamed)
        && !renumber::is_unfinished(inventory)
}

/// Whether any copy of the manifest still says that the scan is being recorded, or files are not where they
/// belong.
fn is_recording(inventory: &Inventory) -> bool {
    let says = |holding: &Holding| match &holding.manifest {
        Copy::Read(manifest) => manifest.state == State::Recording,
        // A copy that was never written says nothing.
        Copy::Missing | Copy::Unreadable(_) => false,
    };
    inventory.manifest.state == State::Recording
        || inventory.holdings.iter().any(says)
        || renumber::is_unfinished(inventory)
}

/// Whether one copy says so and all data is in place: only copies of it are left to be written.
fn sealed_by_its_recorder(inventory: &Inventory) -> bool {
    let sealed = matches!(inventory.manifest.state, State::Sealed | State::Aborted);
    let unfinished =
        inventory.holdings.iter().flat_map(|it| &it.chunks).any(|(_, it)| it.unfinished);
    let accounts = (0..inventory.manifest.streams.len()).all(|number| {
        let mut holdings = inventory.of_stream(number).peekable();
        holdings.peek().is_none() || holdings.any(|it| it.account().get().is_some())
    });
    sealed && !unfinished && accounts
}

/// Holds every copy that may carry the recorder's lock.
fn lock_all(inventory: &Inventory) -> Result<Vec<ScanLock>, lock::Error> {
    let readable = |holding: &&Holding| holding.manifest.get().is_some();
    let copies = inventory.holdings.iter().filter(readable);
    copies.map(|holding| ScanLock::take(&holding.side(MANIFEST_FILE))).collect()
}

fn refuse_absent_members(inventory: &Inventory, options: Options) -> Result<(), Error> {
    let members = absent_paths(inventory);
    if members.is_empty() || options.without_absent_members {
        return Ok(());
    }
    Err(Error::MembersAbsent { scan: inventory.manifest.scan.to_string(), members })
}

/// Copies the sealed manifest and the accounts to wherever they are not.
fn complete(inventory: &Inventory, locks: &mut [ScanLock]) -> Result<Outcome, Error> {
    let manifest = &inventory.manifest;
    let accounts: Vec<Option<Account>> = (0..manifest.streams.len())
        .map(|number| inventory.of_stream(number).find_map(|it| it.account().get().cloned()))
        .collect();
    let behind = |holding: &&Holding| holding.manifest.get() != Some(manifest);
    let directories = inventory.holdings.iter().filter(behind).count();
    for (number, account) in accounts.iter().enumerate() {
        if let Some(account) = account {
            put_account(inventory, number, account)?;
        }
    }
    put_manifests(inventory, manifest, locks)?;
    let (scan, state) = (manifest.scan.to_string(), manifest.state);
    Ok(Outcome::Completed { scan, state, directories })
}

fn seal(
    inventory: &Inventory,
    manifest: &Manifest,
    accounts: &[Account],
    locks: &mut [ScanLock],
) -> Result<(), Error> {
    for (number, account) in accounts.iter().enumerate() {
        put_account(inventory, number, account)?;
    }
    put_manifests(inventory, manifest, locks)
}

fn put_account(inventory: &Inventory, number: usize, account: &Account) -> Result<(), Error> {
    let mut json = serde_json::to_vec_pretty(account).expect("an account has only plain fields");
    json.push(b'\n');
    for holding in inventory.of_stream(number) {
        apply::step()?;
        let path = holding.side(ACCOUNT_FILE);
        lock::put_file(&path, &json).map_err(|source| Error::Write {
            path,
            doing: "writing the account",
            source,
        })?;
    }
    Ok(())
}

/// Replaces every manifest, those that are locked under their locks.
fn put_manifests(
    inventory: &Inventory,
    manifest: &Manifest,
    locks: &mut [ScanLock],
) -> Result<(), Error> {
    let json = manifest.to_json();
    for holding in &inventory.holdings {
        apply::step()?;
        let path = holding.side(MANIFEST_FILE);
        match locks.iter_mut().find(|lock| lock.path() == path) {
            Some(lock) => lock.replace(&json)?,
            None => lock::put_file(&path, &json).map_err(|source| Error::Write {
                path,
                doing: "writing the manifest",
                source,
            })?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use fullbore_core::gap::Cause;
    use fullbore_core::manifest::{Fill, Format};

    use super::*;
    use crate::store::read::Settings;
    use crate::store::reader::{Item, Scan};
    use crate::store::testing::{Laid, RATE, Store, StreamPlan};
    use crate::store::verify::verify;

    fn recovered(store: &Store, laid: &Laid) -> Recovery {
        recovered_with(store, laid, Options::default())
    }

    fn recovered_with(store: &Store, laid: &Laid, options: Options) -> Recovery {
        match recover(&store.roots(), &laid.name, options, &|_| {}).unwrap() {
            Outcome::Recovered(recovery) => recovery,
            other => panic!("{other:?}"),
        }
    }

    fn opened(store: &Store, laid: &Laid) -> Scan {
        Scan::open(&store.roots(), &laid.name).unwrap()
    }

    fn assert_verifies(store: &Store, laid: &Laid) {
        let scan = opened(store, laid);
        assert_eq!(scan.manifest.state, State::Recovered);
        let verification = verify(&scan, Settings::default(), &|_, _| {}).unwrap();
        let found: Vec<String> = verification.findings.iter().map(ToString::to_string).collect();
        assert_eq!(found, Vec::<String>::new());
    }

    fn bytes(store: &Store, laid: &Laid, stream: usize) -> Vec<u8> {
        let scan = opened(store, laid);
        let reader = scan.streams[stream].read(0..usize::MAX, Settings::default()).unwrap();
        let mut bytes = Vec::new();
        for item in reader {
            match item {
                Item::Block(block) => bytes.extend_from_slice(block.bytes()),
                Item::Lost(finding) => panic!("{finding}"),
            }
        }
        bytes
    }

    fn plans() -> Vec<StreamPlan> {
        vec![
            StreamPlan::vdif("a")
                .threads(&[1, 3])
                .gap(40, 3, Cause::Missing)
                .gap(100, 1, Cause::Damaged)
                .skip_blocks(10..12)
                .invalid(&[7, 500]),
            StreamPlan::vdif("b").fill(Fill::Omit).gap(31, 2, Cause::Missing),
            StreamPlan::raw("c").fill(Fill::Pattern(0x5555_5555)).gap(5, 9, Cause::Missing),
            StreamPlan::varying("d").frames(700),
        ]
    }

    fn each(of: impl Fn(StreamPlan) -> StreamPlan) -> Vec<StreamPlan> {
        plans().into_iter().map(of).collect()
    }

    #[test]
    fn a_scan_whose_recorder_died_is_sealed_with_every_block_and_its_account() {
        for members in [1, 2, 4] {
            let store = Store::new(members);
            let laid = store.lay_down("r1_a", &each(StreamPlan::unsealed));
            let recovery = recovered(&store, &laid);
            assert_verifies(&store, &laid);
            for (number, stream) in recovery.streams.iter().enumerate() {
                assert_eq!(stream.terms, laid.accounts[number].terms, "{}", stream.name);
                assert_eq!((stream.cut, stream.lost, stream.found), (0, 0, 0));
                assert!(stream.verdict > Some(Verdict::Proven), "its counters are lost");
                assert!(bytes(&store, &laid, number) == laid.bytes[number], "{}", stream.name);
            }
            let again = recover(&store.roots(), &laid.name, Options::default(), &|_| {});
            let again = again.unwrap();
            assert!(matches!(again, Outcome::AlreadySealed { state: State::Recovered, .. }));
        }
    }

    #[test]
    fn blocks_that_were_written_and_not_recorded_are_kept_and_marked_unverified() {
        let store = Store::new(2);
        // The last block of a headerless stream cannot be told from space that was never written.
        let headerless = StreamPlan::raw("c").frames(992).fill(Fill::Pattern(0x5555_5555));
        let plans = [plans().remove(0), plans().remove(1), headerless].map(|it| it.unrecorded(2));
        let laid = store.lay_down("r1_a", &plans);
        let recovery = recovered(&store, &laid);
        assert_verifies(&store, &laid);
        let scan = opened(&store, &laid);
        for (number, stream) in recovery.streams.iter().enumerate() {
            assert_eq!(stream.found, 4, "{}", stream.name);
            assert!(bytes(&store, &laid, number) == laid.bytes[number], "{}", stream.name);
            let account = scan.streams[number].account.clone().unwrap();
            assert_eq!(account.terms, laid.accounts[number].terms, "{}", stream.name);
            assert!(account.unverified > 0);
        }
    }

    #[test]
    fn blocks_of_varying_frames_without_a_record_are_counted_by_the_next_that_has_one() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::varying("a").frames(700).unsealed()]);
        fs::remove_file(laid.index_path(0, 1)).unwrap();
        let recovery = recovered(&store, &laid);
        assert_verifies(&store, &laid);
        let stream = &recovery.streams[0];
        let whole = laid.bytes[0].len() / 16384 * 16384;
        assert!(bytes(&store, &laid, 0).starts_with(&laid.bytes[0][..whole]));
        assert_eq!(stream.terms.expected, stream.terms.written, "nothing is told as missing");
        assert!(stream.terms.written > 600);
    }

    #[test]
    fn a_rate_that_no_manifest_had_yet_is_learnt_from_the_index() {
        let store = Store::new(2);
        let plan = plans().remove(0).unrecorded(2);
        let laid = store.lay_down("r1_a", &[plan]);
        for member in 0..2 {
            let path = laid.manifest_path(0, member);
            let mut manifest = Manifest::from_json(&fs::read(&path).unwrap()).unwrap();
            let Format::Vdif { frames_per_second, .. } = &mut manifest.streams[0].format else {
                unreachable!("the plan is VDIF")
            };
            *frames_per_second = None;
            fs::write(&path, manifest.to_json()).unwrap();
        }
        recovered(&store, &laid);
        assert_verifies(&store, &laid);
        let scan = opened(&store, &laid);
        assert_eq!(scan.streams[0].frames_per_second(), Some(2 * RATE));
        let account = scan.streams[0].account.as_ref().unwrap();
        assert_eq!(account.first.unwrap().time, laid.accounts[0].first.unwrap().time);
        assert_eq!(account.last.unwrap().time, laid.accounts[0].last.unwrap().time);
    }

    #[test]
    fn a_chunk_is_cut_at_the_first_block_after_the_mark_that_is_not_whole() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unmarked(4)]);
        let scan = opened(&store, &laid);
        // Members hold 16 blocks each, dealt by threes; 29 is the last but one of its chunk.
        let placed = &scan.streams[0].blocks[28];
        assert_eq!(placed.block.offset, 16384);
        let mut chunk = fs::read(placed.path.as_path()).unwrap();
        chunk[16384 + 5000] ^= 1;
        fs::write(placed.path.as_path(), &chunk).unwrap();
        let recovery = recovered(&store, &laid);
        let stream = &recovery.streams[0];
        assert_eq!((stream.cut, stream.lost, stream.blocks), (2, 2, 30));
        assert_eq!((stream.terms.overrun, stream.terms.missing), (64, 0));
        assert_verifies(&store, &laid);
        let kept = [&laid.bytes[0][..28 * 16384], &laid.bytes[0][30 * 16384..]].concat();
        assert!(bytes(&store, &laid, 0) == kept);
    }

    #[test]
    fn a_durable_block_that_is_damaged_is_never_cut_off() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
        let path = laid.chunk_path(0, 2);
        let mut chunk = fs::read(&path).unwrap();
        chunk[100] ^= 1;
        fs::write(&path, &chunk).unwrap();
        let options = Options { deep: true, ..Options::default() };
        let recovery = recovered_with(&store, &laid, options);
        assert_eq!((recovery.streams[0].damaged, recovery.streams[0].cut), (1, 0));
        let scan = opened(&store, &laid);
        let verification = verify(&scan, Settings::default(), &|_, _| {}).unwrap();
        assert_eq!(verification.findings.len(), 1, "{:?}", verification.findings);
        assert_eq!(verification.findings[0].file, Some(path));
    }

    #[test]
    fn a_lost_index_is_rebuilt_from_the_frames() {
        for sealed in [false, true] {
            let store = Store::new(3);
            let plan = plans().remove(0);
            let plan = if sealed { plan } else { plan.unsealed() };
            let laid = store.lay_down("r1_a", &[plan]);
            for member in 0..3 {
                fs::remove_file(laid.index_path(0, member)).unwrap();
            }
            let options = Options { reindex: sealed, ..Options::default() };
            let recovery = recovered_with(&store, &laid, options);
            assert_verifies(&store, &laid);
            assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
            let (terms, before) = (&recovery.streams[0].terms, &laid.accounts[0].terms);
            assert_eq!((terms.expected, terms.written), (before.expected, before.written));
            let scan = opened(&store, &laid);
            let account = scan.streams[0].account.clone().unwrap();
            assert_eq!(account.unverified, before.written);
            assert_eq!(account.invalid, 2);
        }
    }

    #[test]
    fn a_sealed_scan_that_lost_an_index_says_which_and_has_it_back_when_asked() {
        let store = Store::new(3);
        let laid = store.lay_down("r1_a", &plans());
        let outcome = || recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
        let lost = laid.index_path(0, 1);
        fs::remove_file(&lost).unwrap();
        let Outcome::AlreadySealed { indexes, .. } = outcome() else { panic!("not left alone") };
        assert_eq!(indexes, [lost]);
        recovered_with(&store, &laid, Options { reindex: true, ..Options::default() });
        assert_verifies(&store, &laid);
        assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
        let Outcome::AlreadySealed { indexes, .. } = outcome() else { panic!("not sealed") };
        assert_eq!(indexes, [] as [std::path::PathBuf; 0]);
    }

    #[test]
    fn no_complete_chunk_loses_a_byte_when_an_index_is_built_anew() {
        for frames in [3, 700, 1000] {
            for plan in [StreamPlan::raw("a"), StreamPlan::varying("a"), StreamPlan::vdif("a")] {
                let store = Store::new(1);
                let laid = store.lay_down("r1_a", &[plan.frames(frames)]);
                fs::remove_file(laid.index_path(0, 0)).unwrap();
                recovered_with(&store, &laid, Options { reindex: true, ..Options::default() });
                assert!(bytes(&store, &laid, 0) == laid.bytes[0], "{frames} frames");
                assert_verifies(&store, &laid);
            }
        }
    }

    fn forget_manifests(laid: &Laid, members: usize) {
        for stream in 0..laid.manifest.streams.len() {
            for member in 0..members {
                fs::remove_file(laid.manifest_path(stream, member)).unwrap();
            }
        }
    }

    #[test]
    fn a_scan_that_lost_every_manifest_has_its_account_back_as_it_was() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        forget_manifests(&laid, 2);
        let recovery = recovered(&store, &laid);
        assert!(recovery.warnings.iter().any(|it| it.contains("not known")), "{recovery:?}");
        assert_verifies(&store, &laid);
        let scan = opened(&store, &laid);
        for (number, (stream, told)) in
            scan.manifest.streams.iter().zip(&laid.manifest.streams).enumerate()
        {
            assert_eq!((&stream.name, stream.fill), (&told.name, told.fill));
            if told.fill != Fill::Omit {
                assert_eq!(stream.format, derived(&told.format), "{}", stream.name);
            }
            let account = scan.streams[number].account.as_ref();
            assert_eq!(account, Some(&laid.accounts[number]), "{}", stream.name);
            assert!(bytes(&store, &laid, number) == laid.bytes[number], "{}", stream.name);
        }
    }

    #[test]
    fn files_that_were_renamed_are_told_from_others_without_any_manifest() {
        for unsealed in [true, false] {
            let store = Store::new(2);
            let plan = StreamPlan::vdif("a").frames(288).numbered(&[0, 2, 1]);
            let plan = if unsealed { plan.unsealed() } else { plan };
            let laid = store.lay_down("r1_a", &[plan]);
            if unsealed {
                recovered(&store, &laid);
                let scan = opened(&store, &laid);
                assert!(scan.manifest.streams[0].renamed.is_some(), "they were put in order");
            }
            forget_manifests(&laid, 2);
            recovered(&store, &laid);
            assert_verifies(&store, &laid);
            assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
            let renamed = opened(&store, &laid).manifest.streams[0].renamed.is_some();
            assert_eq!(renamed, unsealed);
        }
    }

    /// A rate that nobody gave.
    fn derived(format: &Format) -> Format {
        let mut format = format.clone();
        if let Format::Vdif { derived, .. } = &mut format {
            *derived = true;
        }
        format
    }

    #[test]
    fn a_scan_whose_recorder_died_and_that_lost_every_manifest_is_sealed_all_the_same() {
        for lost_indexes in [false, true] {
            let store = Store::new(3);
            let laid = store.lay_down("r1_a", &[plans().remove(0).unrecorded(1)]);
            forget_manifests(&laid, 3);
            if lost_indexes {
                fs::remove_file(laid.index_path(0, 1)).unwrap();
                fs::write(laid.manifest_path(0, 0), b"{\"version\":1,").unwrap();
            }
            let recovery = recovered(&store, &laid);
            assert_verifies(&store, &laid);
            let (terms, before) = (&recovery.streams[0].terms, &laid.accounts[0].terms);
            assert_eq!((terms.expected, terms.written), (before.expected, before.written));
            assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
        }
    }

    #[test]
    fn a_manifest_of_a_later_version_is_not_replaced_and_an_empty_directory_is_no_scan() {
        let store = Store::new(1);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        fs::write(laid.manifest_path(0, 0), b"{\"version\":99}").unwrap();
        let recover = |name: &str| {
            recover(&store.roots(), &name.parse().unwrap(), Options::default(), &|_| {})
        };
        let error = recover("r1_a").unwrap_err();
        assert!(matches!(error, Error::LaterVersion { .. }), "{error}");
        fs::create_dir_all(store.roots()[0].join("r1_b/.fullbore")).unwrap();
        let error = recover("r1_b").unwrap_err();
        assert!(matches!(error, Error::NothingLeft { .. }), "{error}");
        assert!(error.hint().is_some());
    }

    #[test]
    fn an_index_cut_anywhere_is_mended_from_the_chunks() {
        let whole = {
            let store = Store::new(2);
            let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
            fs::read(laid.index_path(0, 1)).unwrap()
        };
        for cut in (0..whole.len().min(2600)).step_by(64) {
            let store = Store::new(2);
            let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
            fs::write(laid.index_path(0, 1), &whole[..cut]).unwrap();
            recovered(&store, &laid);
            assert_verifies(&store, &laid);
            assert!(bytes(&store, &laid, 0) == laid.bytes[0], "cut at {cut}");
        }
    }

    #[test]
    fn a_recovery_that_dies_at_any_step_can_be_run_again_with_the_same_result() {
        let damaged = || {
            let store = Store::new(2);
            let plans = [plans().remove(0).unrecorded(1), plans().remove(1).unmarked(3)];
            let laid = store.lay_down("r1_a", &plans);
            let scan = opened(&store, &laid);
            let placed = scan.streams[1].blocks.last().unwrap();
            let mut chunk = fs::read(placed.path.as_path()).unwrap();
            chunk[placed.block.offset as usize + 9] ^= 1;
            fs::write(placed.path.as_path(), &chunk).unwrap();
            (store, laid)
        };
        let result = |store: &Store, laid: &Laid| {
            assert_verifies(store, laid);
            let scan = opened(store, laid);
            let terms = scan.streams.iter().map(|it| it.account.as_ref().unwrap().terms);
            let all: Vec<_> = terms.collect();
            (all, bytes(store, laid, 0), bytes(store, laid, 1))
        };
        let (store, laid) = damaged();
        recovered(&store, &laid);
        let expected = result(&store, &laid);
        for steps in 0.. {
            let (store, laid) = damaged();
            crate::store::dying::after(steps);
            let died = recover(&store.roots(), &laid.name, Options::default(), &|_| {}).is_err();
            crate::store::dying::after(u32::MAX);
            if !died {
                assert!(steps > 15, "only {steps} steps were seen");
                break;
            }
            recovered(&store, &laid);
            assert!(result(&store, &laid) == expected, "died after {steps} steps");
        }
    }

    #[test]
    fn a_scan_that_is_being_recorded_is_left_alone() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
        let lock = ScanLock::take(&laid.manifest_path(0, 0)).unwrap();
        let error = recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap_err();
        assert!(matches!(error, Error::Lock(lock::Error::Held { .. })), "{error}");
        assert!(error.hint().is_some());
        drop(lock);
        recovered(&store, &laid);
    }

    #[test]
    fn a_sealed_scan_is_left_alone_and_one_half_sealed_is_completed() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &plans());
        let again = || recover(&store.roots(), &laid.name, Options::default(), &|_| {}).unwrap();
        assert!(matches!(again(), Outcome::AlreadySealed { state: State::Sealed, .. }));
        let mut manifest = laid.manifest.clone();
        manifest.state = State::Recording;
        fs::write(laid.manifest_path(2, 1), manifest.to_json()).unwrap();
        fs::remove_file(laid.account_path(2, 1)).unwrap();
        let outcome = again();
        let completed =
            matches!(outcome, Outcome::Completed { state: State::Sealed, directories: 1, .. });
        assert!(completed, "{outcome:?}");
        let verification = verify(&opened(&store, &laid), Settings::default(), &|_, _| {}).unwrap();
        assert!(verification.good, "{:?}", verification.findings);
    }

    #[test]
    fn an_absent_member_is_named_and_can_be_done_without() {
        let store = Store::new(3);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
        let roots = &store.roots()[..2];
        let error = recover(roots, &laid.name, Options::default(), &|_| {}).unwrap_err();
        assert!(error.to_string().contains(&store.roots()[2].display().to_string()), "{error}");
        let options = Options { without_absent_members: true, ..Options::default() };
        let outcome = recover(roots, &laid.name, options, &|_| {}).unwrap();
        let Outcome::Recovered(recovery) = outcome else { panic!("{outcome:?}") };
        let stream = &recovery.streams[0];
        assert_eq!((stream.blocks, stream.lost), (23, 9));
        assert_eq!(stream.terms.expected, 1000, "what lay there is told as lost");
    }

    #[test]
    fn a_member_that_came_back_with_the_beginning_of_a_chunk_gives_way() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
        let path = laid.chunk_path(0, 1);
        let name = path.file_name().unwrap().to_str().unwrap();
        let began = laid.directory(0, 0).join(format!(".fullbore/{name}.part"));
        fs::write(&began, &fs::read(&path).unwrap()[..20_000]).unwrap();
        let recovery = recovered(&store, &laid);
        assert_eq!(recovery.streams[0].superseded, 1);
        assert!(!Path::new(&began).exists());
        assert_verifies(&store, &laid);
        assert!(bytes(&store, &laid, 0) == laid.bytes[0]);
        crate::store::remove::remove(&store.roots(), &laid.name).unwrap();
        assert!(!laid.directory(0, 0).exists());
    }
}
