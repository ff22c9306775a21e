//! Lists all scans of a store and finds a scan by name.
//!
//! A listing reads one manifest per scan and nothing else. For a scan with redundancy it reads all copies, because the
//! scan may have been rebuilt without a member that is attached again.
//! A directory with the name of a scan but no readable manifest is listed as *broken*, because it may hold data.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::thread;

use fullbore_core::account::Verdict;
use fullbore_core::completeness::Completeness;
use fullbore_core::hint::Hint;
use fullbore_core::layout::chunk_number;
use fullbore_core::manifest::{INDEX_FILE, MANIFEST_FILE, Manifest, SIDE_DIRECTORY, State};
use fullbore_core::name::{Name, ScanName};
use fullbore_time::Tai;
use serde::Serialize;

use super::inventory::{
    self, Copy, Index, MemberFiles, Root, RootError, is_let_go, latest, open_roots, read_manifest,
    side_file,
};
use super::lock;
use super::renumber::is_to_be_renamed;
use crate::protection::is_protected;

/// The state of a scan in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScanState {
    /// A recorder is recording it now.
    Recording,
    /// The recorder died; `recover` seals the scan.
    Unsealed,
    /// Sealed by a stop.
    Sealed,
    /// Sealed by an abort.
    Aborted,
    /// Sealed by `recover`.
    Recovered,
    /// No copy of its manifest can be read.
    Broken,
}

impl ScanState {
    /// As text.
    pub fn as_str(self) -> &'static str {
        match self {
            ScanState::Recording => "recording",
            ScanState::Unsealed => "unsealed",
            ScanState::Sealed => "sealed",
            ScanState::Aborted => "aborted",
            ScanState::Recovered => "recovered",
            ScanState::Broken => "broken",
        }
    }
}

/// A scan in a listing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entry {
    /// The name `<session>_<scan>`, or the directory's name if that is not a scan name.
    pub name: String,
    /// The state of the scan.
    pub state: ScanState,
    /// Time of the first frame, else of its arrival, else of arming.
    pub start: Option<Tai>,
    /// Nanoseconds from the first frame to the last. Arrival times are used if frames carry no time; the time from
    /// arming to stopping is used if nothing is known of frames.
    pub duration_ns: Option<i64>,
    /// Bytes recorded, fill and parity included.
    pub bytes: u64,
    /// The number of streams.
    pub streams: usize,
    /// The worst verdict of its streams.
    pub verdict: Option<Verdict>,
    /// The completeness, once each stream has an account.
    #[serde(flatten)]
    pub completeness: Option<Completeness>,
    /// The roots that hold a part of it.
    pub members: Vec<PathBuf>,
    /// Former locations of the members that are not among the roots. Their data is neither listed nor judged.
    pub absent: Vec<PathBuf>,
    /// Degraded conditions of the disk set at the time of recording, as text.
    pub wanting: Vec<String>,
    /// Roots that are no longer members since the scan was rebuilt, and that still hold their old files.
    pub leftover: Vec<PathBuf>,
    /// True if it is protected from being removed.
    pub protected: bool,
    /// The host that sends it, if it is a copy that has not arrived completely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incomplete_from: Option<String>,
    /// The number of other hosts that sent a receipt for a copy. Whether the receipts prove it, the indexes tell, which
    /// are not read here.
    pub copies: usize,
    /// The reason why it is broken.
    pub problem: Option<String>,
    /// True if the directory has the name of a scan and holds files that only this program makes.
    pub is_ours: bool,
}

/// The scans under some roots.
#[derive(Debug)]
pub struct Catalogue {
    /// In the order of their names.
    pub entries: Vec<Entry>,
    /// Roots that could not be read.
    pub failed_roots: Vec<RootError>,
}

/// A scan, or one stream of it, as selected by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The scan.
    pub scan: ScanName,
    /// The stream, if one was named.
    pub stream: Option<Name>,
}

/// A scan that could not be found by name.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The roots.
    #[error(transparent)]
    Roots(#[from] inventory::Error),
    /// No scan name begins with the name given.
    #[error("there is no scan `{name}` under {}", listed(roots))]
    NoScan {
        /// The name as given.
        name: String,
        /// The roots that were searched.
        roots: Vec<PathBuf>,
    },
    /// Several scan names begin with the name given.
    #[error("`{name}` is ambiguous: {}", among(candidates))]
    Ambiguous {
        /// The name as given.
        name: String,
        /// The scans that match.
        candidates: Vec<String>,
    },
    /// The name given for a stream is not a valid stream name.
    #[error(transparent)]
    Stream(#[from] fullbore_core::name::Error),
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::Roots(error) => return error.hint(),
            Error::NoScan { .. } => "`fullbore ls` lists the scans of a store",
            Error::Ambiguous { .. } => "write more of the name",
            Error::Stream(_) => return None,
        }))
    }
}

fn listed(roots: &[PathBuf]) -> String {
    roots.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The first few of a long list.
fn among(candidates: &[String]) -> String {
    const SHOWN: usize = 6;
    let shown = candidates.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match candidates.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} or {more} others"),
    }
}

/// Directories of a scan: index of the root and name of the directory.
type Places = Vec<(usize, String)>;

/// Lists all scans under `paths`.
pub fn list(paths: &[PathBuf]) -> Result<Catalogue, Error> {
    let (roots, mut failed_roots) = open_roots(paths)?;
    let scans: Vec<(String, Places)> = scans_under(&roots, &mut failed_roots).into_iter().collect();
    let entries = in_parallel(&scans, |(name, places)| entry(&roots, name, places));
    let entries: Vec<Entry> = entries.into_iter().flatten().collect();
    failed_roots.extend(roots.iter().filter(|root| is_no_store(root, &entries)).map(no_store));
    if failed_roots.len() == paths.len() {
        return Err(inventory::Error::Roots { roots: failed_roots }.into());
    }
    Ok(Catalogue { entries, failed_roots })
}

/// Returns true if the directory has neither a member file nor a scan: the user probably meant another one.
fn is_no_store(root: &Root, entries: &[Entry]) -> bool {
    root.uuid.is_none() && !entries.iter().any(|entry| entry.members.contains(&root.path))
}

fn no_store(root: &Root) -> RootError {
    let why = "no store: nothing has been recorded there";
    RootError { path: root.path.clone(), source: std::io::Error::other(why) }
}

/// Finds a scan by `session_scan`, `session_scan/stream`, a directory's name, or the beginning of a
/// scan's name if no other begins so.
pub fn find(paths: &[PathBuf], name: &str) -> Result<Selected, Error> {
    let (roots, _) = open_roots(paths)?;
    let name = name.trim_end_matches('/');
    let (text, stream) = match name.split_once('/').or_else(|| name.split_once("_ds")) {
        Some((scan, stream)) => (scan, Some(stream)),
        None => (name, None),
    };
    let scans = scans_under(&roots, &mut Vec::new());
    let scan = match scans.contains_key(text) {
        true => text.to_owned(),
        false => by_prefix(&scans, text, &roots)?,
    };
    Ok(Selected { scan: scan.parse()?, stream: stream.map(str::parse).transpose()? })
}

/// Returns all scans that match the name, or all scans of the store.
fn by_prefix(
    scans: &BTreeMap<String, Places>,
    text: &str,
    roots: &[Root],
) -> Result<String, Error> {
    let from = scans.range(text.to_owned()..).map(|(name, _)| name.clone());
    let mut candidates: Vec<String> =
        from.take_while(|name| name.starts_with(text) && !text.is_empty()).collect();
    // A directory whose name is not a scan name can be listed but not opened.
    candidates.retain(|name| name.parse::<ScanName>().is_ok());
    match candidates.len() {
        0 => Err(Error::NoScan {
            name: text.to_owned(),
            roots: roots.iter().map(|root| root.path.clone()).collect(),
        }),
        1 => Ok(candidates.remove(0)),
        _ => Err(Error::Ambiguous { name: text.to_owned(), candidates }),
    }
}

/// Every directory under the roots whose name is that of a scan, by scan.
fn scans_under(roots: &[Root], failed: &mut Vec<RootError>) -> BTreeMap<String, Places> {
    let mut scans: BTreeMap<String, Places> = BTreeMap::new();
    for (number, root) in roots.iter().enumerate() {
        let entries = match std::fs::read_dir(&root.path) {
            Ok(entries) => entries,
            Err(source) => {
                failed.push(RootError { path: root.path.clone(), source });
                continue;
            }
        };
        for entry in entries.flatten() {
            let directory = entry.file_name().to_string_lossy().into_owned();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_directory && let Some(scan) = scan_of(&root.path, &directory) {
                scans.entry(scan).or_default().push((number, directory));
            }
        }
    }
    for places in scans.values_mut() {
        places.sort_unstable_by(|a, b| (&a.1, a.0).cmp(&(&b.1, b.0)));
    }
    scans
}

/// Returns the scan that a directory belongs to. A directory that was renamed, and that holds a manifest, counts as a
/// scan by itself.
fn scan_of(root: &Path, directory: &str) -> Option<String> {
    match ScanName::of_directory(directory) {
        Some((scan, _)) => Some(scan.to_string()),
        None => {
            side_file(&root.join(directory), MANIFEST_FILE).is_file().then(|| directory.to_owned())
        }
    }
}

fn entry(roots: &[Root], name: &str, places: &Places) -> Option<Entry> {
    let mut problems = Vec::new();
    for (root, directory) in places {
        let path = side_file(&roots[*root].path.join(directory), MANIFEST_FILE);
        match read_manifest(&path) {
            Copy::Read(manifest) if manifest.scan.to_string() == name => {
                let mut entry = match manifest.redundancy {
                    Some(_) => of_redundant(roots, manifest, places),
                    None => of_manifest(roots, &manifest, places),
                };
                // No manifest has the final state yet. (A recorder that died while sealing leaves copies of both
                // states.)
                if matches!(entry.state, ScanState::Unsealed | ScanState::Recording) {
                    entry.bytes = bytes_on_members(roots, places);
                }
                return Some(entry);
            }
            Copy::Read(manifest) => {
                problems.push(format!("{}: the manifest of {}", path.display(), manifest.scan))
            }
            Copy::Unreadable(why) => problems.push(format!("{}: {why}", path.display())),
            Copy::Missing => {}
        }
    }
    if problems.is_empty() {
        let holds_data = |(root, directory): &(usize, String)| {
            let path = roots[*root].path.join(directory);
            path.join(SIDE_DIRECTORY).is_dir() || has_chunks(&path, directory)
        };
        // An empty directory of such a name, or one of another program, is not a scan of this program.
        if !places.iter().any(holds_data) {
            return None;
        }
        problems.push("no manifest".into());
    }
    Some(broken(roots, name, places, problems.join("; ")))
}

fn has_chunks(path: &Path, directory: &str) -> bool {
    let Ok(entries) = std::fs::read_dir(path) else { return true };
    let mut names = entries.flatten().map(|entry| entry.file_name());
    names.any(|name| chunk_number(directory, &name.to_string_lossy()).is_some())
}

/// Makes the entry of a scan that may have been rebuilt: not every copy of its manifest names the current members.
fn of_redundant(roots: &[Root], first: Manifest, places: &Places) -> Entry {
    let copy = |(root, directory): &(usize, String)| {
        let path = side_file(&roots[*root].path.join(directory), MANIFEST_FILE);
        let copy = read_manifest(&path).get().cloned()?;
        (copy.uuid == first.uuid).then_some((*root, copy))
    };
    let copies: Vec<(usize, Manifest)> = places.iter().filter_map(copy).collect();
    let believed = latest(copies.iter().map(|(_, copy)| copy)).unwrap_or(&first);
    let let_go = |(root, copy): &&(usize, Manifest)| {
        is_let_go(roots[*root].uuid, &roots[*root].path, copy, believed)
    };
    let gone: BTreeSet<usize> = copies.iter().filter(let_go).map(|(root, _)| *root).collect();
    let own: Places = places.iter().filter(|(root, _)| !gone.contains(root)).cloned().collect();
    let leftover = gone.into_iter().map(|root| roots[root].path.clone()).collect();
    Entry { leftover, ..of_manifest(roots, believed, &own) }
}

fn of_manifest(roots: &[Root], manifest: &Manifest, places: &Places) -> Entry {
    let accounts = || manifest.streams.iter().filter_map(|stream| stream.account.as_ref());
    let covered = || accounts().filter_map(|account| account.beside.as_ref()?.covered);
    let first = accounts().filter_map(|account| account.first).min();
    let first = first.or_else(|| covered().map(|it| it.from).min());
    let last = accounts().filter_map(|account| account.last).max();
    let last = last.or_else(|| covered().map(|it| it.to).max());
    let by_frames = first.zip(last).map(|(first, last)| last.since(first));
    let by_clock = manifest.stopped.map(|stopped| stopped.since(manifest.armed));
    Entry {
        name: manifest.scan.to_string(),
        state: state(roots, manifest, places),
        start: Some(first.unwrap_or(manifest.armed)),
        duration_ns: by_frames.or(by_clock),
        bytes: manifest.bytes().saturating_add(parity_bytes(manifest)),
        streams: manifest.streams.len(),
        verdict: manifest.verdict(),
        completeness: Completeness::of_manifest(manifest),
        members: members(roots, places),
        absent: inventory::absent_members(roots, manifest)
            .map(|member| member.path.clone())
            .collect(),
        wanting: manifest.wanting().iter().map(ToString::to_string).collect(),
        leftover: Vec::new(),
        protected: protected(roots, places),
        incomplete_from: manifest.incomplete_copy().map(|copied| copied.host.clone()),
        copies: copies(roots, manifest, places),
        problem: None,
        is_ours: true,
    }
}

fn state(roots: &[Root], manifest: &Manifest, places: &Places) -> ScanState {
    let state = match manifest.streams.iter().any(is_to_be_renamed) {
        // The recorder is still doing the rest, or `recover` has to.
        true => State::Recording,
        false => manifest.state,
    };
    match state {
        State::Sealed => ScanState::Sealed,
        State::Aborted => ScanState::Aborted,
        State::Recovered => ScanState::Recovered,
        State::Recording => {
            // The lock is on the first member, at its current mount point.
            let mut holders = places.iter().map(|(root, _)| &roots[*root].path);
            let held = |root: &PathBuf| {
                lock::lock_path(root, manifest).is_some_and(|path| lock::is_held(&path))
            };
            if holders.any(held) { ScanState::Recording } else { ScanState::Unsealed }
        }
    }
}

fn parity_bytes(manifest: &Manifest) -> u64 {
    manifest.redundancy.and_then(|it| it.followed).map_or(0, |it| it.bytes)
}

fn members(roots: &[Root], places: &Places) -> Vec<PathBuf> {
    let mut numbers: Vec<usize> = places.iter().map(|(root, _)| *root).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers.into_iter().map(|number| roots[number].path.clone()).collect()
}

fn broken(roots: &[Root], name: &str, places: &Places, problem: String) -> Entry {
    Entry {
        name: name.to_owned(),
        state: ScanState::Broken,
        start: None,
        duration_ns: None,
        bytes: bytes_on_members(roots, places),
        streams: {
            let mut names: Vec<&String> = places.iter().map(|(_, directory)| directory).collect();
            names.dedup();
            names.len()
        },
        verdict: None,
        completeness: None,
        members: members(roots, places),
        absent: Vec::new(),
        wanting: Vec::new(),
        leftover: Vec::new(),
        protected: protected(roots, places),
        incomplete_from: None,
        copies: 0,
        problem: Some(problem),
        is_ours: name.parse::<ScanName>().is_ok()
            && places.iter().any(|(root, directory)| {
                roots[*root].path.join(directory).join(SIDE_DIRECTORY).is_dir()
            }),
    }
}

fn protected(roots: &[Root], places: &Places) -> bool {
    places.iter().any(|(root, directory)| is_protected(&roots[*root].path.join(directory)))
}

fn copies(roots: &[Root], manifest: &Manifest, places: &Places) -> usize {
    let directories: Vec<PathBuf> =
        places.iter().map(|(root, directory)| roots[*root].path.join(directory)).collect();
    crate::copies::count(directories.iter().map(PathBuf::as_path), manifest.uuid)
}

/// Bytes written, by the indexes: the size of a chunk file tells nothing, because its space is preallocated. Without an
/// index, the bytes of complete chunks.
fn bytes_on_members(roots: &[Root], places: &Places) -> u64 {
    let holdings =
        places.iter().filter_map(|(root, name)| MemberFiles::look(*root, &roots[*root].path, name));
    holdings.map(|holding| bytes_of(&holding)).sum()
}

fn bytes_of(holding: &MemberFiles) -> u64 {
    let path = holding.side(INDEX_FILE);
    let read = |(codec, stream)| Index::read_by(&path, codec, stream).ok();
    match Index::label(&path).and_then(read) {
        Some(index) => index.blocks.iter().map(|it| u64::from(it.block.bytes)).sum(),
        None => {
            let files = holding.chunks.iter().map(|(_, file)| file);
            files.filter(|file| !file.unfinished).map(|file| file.bytes).sum()
        }
    }
}

/// Applies `work` to every item, in order, on a few threads: most of the time is spent waiting for directories and
/// small files.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    const THREADS: usize = 4;
    if items.len() < 64 {
        return items.iter().map(work).collect();
    }
    let work = &work;
    thread::scope(|scope| {
        let parts = items.chunks(items.len().div_ceil(THREADS));
        let running: Vec<_> = parts
            .map(|part| scope.spawn(move || part.iter().map(work).collect::<Vec<R>>()))
            .collect();
        let joined = running.into_iter().map(|thread| match thread.join() {
            Ok(results) => results,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Store, StreamPlan};

    #[test]
    fn ten_thousand_scans_on_two_members_are_listed_within_two_seconds() {
        let store = Store::in_memory(2);
        store.lay_down_many(10_000);
        let catalogue = list(&store.roots()).unwrap();
        assert_eq!(catalogue.entries.len(), 10_000);
        assert!(catalogue.entries.iter().all(|entry| entry.state == ScanState::Sealed));
        assert!(catalogue.entries.iter().all(|entry| entry.members.len() == 2));
        // Other tests run at the same time, so one quick run out of several is enough.
        let took = std::iter::repeat_with(|| {
            let started = std::time::Instant::now();
            list(&store.roots()).unwrap();
            started.elapsed().as_secs_f64()
        });
        assert!(took.take(5).any(|seconds| seconds < 2.0), "five times longer than two seconds");
    }

    #[test]
    fn a_scan_is_found_by_its_name_a_stream_of_it_or_the_beginning_of_its_name() {
        let store = Store::new(2);
        for scan in ["r1_on1", "r1_on2", "r1_on22", "r2_a"] {
            store.lay_down(scan, &[StreamPlan::vdif("a"), StreamPlan::vdif("b")]);
        }
        let roots = store.roots();
        let found = |text: &str| find(&roots, text).map(|it| (it.scan.to_string(), it.stream));
        let b: Name = "b".parse().unwrap();
        assert_eq!(found("r1_on2").unwrap(), ("r1_on2".into(), None));
        assert_eq!(found("r2").unwrap(), ("r2_a".into(), None));
        assert_eq!(found("r1_on1/b").unwrap(), ("r1_on1".into(), Some(b.clone())));
        assert_eq!(found("r1_on1_dsb").unwrap(), ("r1_on1".into(), Some(b)));
        let error = found("r1_on").unwrap_err().to_string();
        assert_eq!(error, "`r1_on` is ambiguous: r1_on1, r1_on2, r1_on22");
        let error = found("x").unwrap_err().to_string();
        assert!(error.contains(&roots[1].display().to_string()), "{error}");
        assert!(found("").is_err());
    }

    #[test]
    fn a_directory_without_a_readable_manifest_is_listed_as_broken_and_says_why() {
        let store = Store::new(2);
        let scan = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let (first, second) = (scan.manifest_path(0, 0), scan.manifest_path(0, 1));
        std::fs::remove_file(&first).unwrap();
        let state = |store: &Store| list(&store.roots()).unwrap().entries[0].clone();
        assert_eq!(state(&store).state, ScanState::Sealed, "one copy is enough");
        std::fs::write(&second, b"{\"version\":1,").unwrap();
        let entry = state(&store);
        assert_eq!(entry.state, ScanState::Broken);
        assert!(entry.bytes > 0);
        assert!(entry.problem.unwrap().contains(&second.display().to_string()));
        std::fs::remove_file(&second).unwrap();
        assert_eq!(state(&store).problem.unwrap(), "no manifest");
    }

    #[test]
    fn a_scan_that_is_not_sealed_has_the_size_that_its_indexes_tell() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a").unrecorded(1)]);
        let unrecorded: u64 = (0..2)
            .map(|member| {
                let own = laid.blocks[0].iter().rfind(|(of, _)| *of == member);
                u64::from(own.unwrap().1.bytes)
            })
            .sum();
        let size = || list(&store.roots()).unwrap().entries[0].bytes;
        let told = laid.bytes[0].len() as u64 - unrecorded;
        assert_eq!(size(), told, "space that is taken beforehand is no data");
        let lock = crate::lock::ScanLock::take(&laid.manifest_path(0, 0)).unwrap();
        assert_eq!(size(), told, "while it is recorded too");
        drop(lock);
        for member in 0..2 {
            std::fs::remove_file(laid.manifest_path(0, member)).unwrap();
        }
        assert_eq!(size(), told, "without a manifest too");
        std::fs::remove_file(laid.index_path(0, 0)).unwrap();
        assert!((1..told).contains(&size()));
    }

    #[test]
    fn a_scan_of_which_a_member_is_not_given_names_that_member() {
        let store = Store::new(3);
        store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let roots = store.roots();
        let (given, absent) = roots.split_at(2);
        let entry = list(given).unwrap().entries[0].clone();
        assert_eq!((entry.state, entry.absent.as_slice()), (ScanState::Sealed, absent));
        assert!(list(&store.roots()).unwrap().entries[0].absent.is_empty());
    }

    #[test]
    fn directories_of_others_are_not_scans() {
        let store = Store::new(1);
        let root = &store.roots()[0];
        for name in ["lost+found", "some_thing", ".fullbore"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(root.join("a_file"), b"").unwrap();
        assert_eq!(list(&store.roots()).unwrap().entries, []);
        std::fs::write(root.join("some_thing/some_thing.00000000"), b"x").unwrap();
        assert_eq!(list(&store.roots()).unwrap().entries[0].state, ScanState::Broken);
    }

    #[test]
    fn a_scan_whose_manifest_is_locked_is_being_recorded() {
        let store = Store::new(2);
        let scan = store.lay_down("r1_a", &[StreamPlan::vdif("a").unsealed()]);
        let state = || list(&store.roots()).unwrap().entries[0].state;
        assert_eq!(state(), ScanState::Unsealed);
        let lock = crate::lock::ScanLock::take(&scan.manifest_path(0, 0)).unwrap();
        assert_eq!(state(), ScanState::Recording);
        drop(lock);
        assert_eq!(state(), ScanState::Unsealed);
    }

    #[test]
    fn a_root_that_does_not_exist_is_named_and_the_others_are_listed() {
        let store = Store::new(1);
        store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let nowhere = PathBuf::from("/nowhere/at/all");
        let catalogue = list(&[nowhere.clone(), store.roots()[0].clone()]).unwrap();
        assert_eq!(catalogue.entries.len(), 1);
        assert_eq!(catalogue.failed_roots[0].path, nowhere);
        let error = list(&[nowhere]).unwrap_err().to_string();
        assert!(error.contains("/nowhere/at/all"), "{error}");
    }
}
