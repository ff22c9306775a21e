//! Removes the files of a scan, and no others.
//!
//! Only files that the store itself makes are removed: chunk files by their names, and the known files beside them.
//! Other files in a scan's directories stay, and so do these directories. Chunks are removed first and manifests last,
//! so that an interrupted removal leaves a scan that can be removed again.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::hint::Hint;
use fullbore_core::manifest::{
    ACCOUNT_FILE, INDEX_FILE, MANIFEST_FILE, Manifest, Member, SIDE_DIRECTORY, State,
};
use fullbore_core::marker::MARKERS_FILE;
use fullbore_core::name::ScanName;
use fullbore_store::SPARE_FILE;
use fullbore_store::copies::{self, COPIES_FILE, UPLOAD_FILE, Unproven};
use fullbore_store::diagnostics::{Diagnostic, DiagnosticKind};
use fullbore_store::inventory::{
    self, Copy, Inventory, MemberFiles, is_let_go, is_of_scan, latest, open_roots,
};
use fullbore_store::landing::HELD_FILE;
use fullbore_store::lock::{self, ScanLock};
use fullbore_store::partial_blocks::litter_in;
use fullbore_store::protection::{PROTECTED_FILE, is_protected};
use fullbore_store::reader::Scan;
use fullbore_store::renumber::is_to_be_renamed;
use serde::Serialize;

/// The index of a stream by its content, which `fullbore index` makes beside the manifest.
pub const CONTENT_FILE: &str = "content.json";

/// The result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The scan.
    pub scan: String,
    /// The number of files.
    pub files: u64,
    /// Bytes of these files on the disk, preallocated space included.
    pub bytes: u64,
    /// Directories that were removed.
    pub directories: Vec<PathBuf>,
    /// Files that do not belong to the scan and were kept.
    pub kept: Vec<PathBuf>,
}

/// A scan that could not be removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The roots could not be read.
    #[error(transparent)]
    Roots(#[from] inventory::Error),
    /// The scan is being recorded.
    #[error(transparent)]
    Lock(#[from] lock::Error),
    /// Members that hold a part of it are not among the directories given.
    #[error("{scan} is also on {}, which {} not given", members.join(", "), if members.len() == 1 { "is" } else { "are" })]
    Absent {
        /// The scan.
        scan: String,
        /// The paths of the members when it was recorded.
        members: Vec<String>,
    },
    /// The directories of members that hold a part of it are given, and are not these members now.
    #[error(
        "{scan} is also on {}: {} there, and {} not the member that recorded it",
        members.join(", "),
        if members.len() == 1 { "the directory is" } else { "the directories are" },
        if members.len() == 1 { "is" } else { "are" }
    )]
    Replaced {
        /// The scan.
        scan: String,
        /// The paths of the members.
        members: Vec<String>,
    },
    /// The scan is protected from removal.
    #[error("{scan} is protected")]
    Protected {
        /// The scan.
        scan: String,
    },
    /// No receipt proves a copy of the scan elsewhere.
    #[error("{scan} is not proven elsewhere: {why}")]
    Unproven {
        /// The scan.
        scan: String,
        /// The reason.
        why: Unproven,
    },
    /// The leftover files may be the last copy of some data.
    #[error("{scan} is not whole without the files left over from before it was rebuilt: {why}")]
    Needed {
        /// The scan.
        scan: String,
        /// The missing part.
        why: String,
    },
    /// A file could not be removed. Files removed before are reported.
    #[error("{}: cannot be removed: {source}", path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::Roots(error) => return error.hint(),
            Error::Lock(error) => return error.hint(),
            Error::Absent { .. } => {
                "name every member with --store; if one is lost for good, --without-absent-members removes what is on \
                 the others"
            }
            Error::Replaced { .. } => {
                "mount its disk there; if it is lost for good, --without-absent-members removes what is on the others"
            }
            Error::Protected { .. } => "`fullbore protect --off SCAN` ends the protection",
            Error::Unproven { why: Unproven::Differs | Unproven::Part { .. }, .. } => {
                "give all members with --store; `fullbore info SCAN` shows the receipts"
            }
            Error::Unproven { why: Unproven::Unsealed, .. } => {
                "`fullbore recover` seals it if its recorder died"
            }
            Error::Unproven { .. } => "`fullbore send` copies it, and keeps the receipt",
            Error::Needed { .. } => {
                "give all members with --store, or let `fullbore rebuild` restore it; chunk files are plain: copied to \
                 where one is missed, it is read again"
            }
            Error::File { .. } => "fix the cause, then remove the scan again",
        }))
    }
}

/// Removes a scan, also a broken one.
pub fn remove(roots: &[PathBuf], scan: &ScanName) -> Result<Removed, Error> {
    remove_telling(roots, scan, &|_, _| {})
}

/// Removes a scan as [`remove`] does. `progress` is called with the number of chunk files removed so far, and their
/// total.
pub fn remove_telling(
    roots: &[PathBuf],
    scan: &ScanName,
    progress: &dyn Fn(u64, u64),
) -> Result<Removed, Error> {
    let holdings = holdings(roots, &scan.to_string())?;
    refuse_absent(roots, &scan.to_string(), &holdings)?;
    remove_holdings(scan, &holdings, progress)
}

/// Removes a scan as [`remove_telling`] does, if a receipt proves a copy of it elsewhere.
pub fn remove_copied(
    roots: &[PathBuf],
    scan: &ScanName,
    progress: &dyn Fn(u64, u64),
) -> Result<Removed, Error> {
    prove(roots, scan)?;
    remove_telling(roots, scan, progress)
}

/// Checks that a receipt proves a copy of the scan elsewhere, whole and unchanged.
pub fn prove(roots: &[PathBuf], scan: &ScanName) -> Result<copies::Receipt, Error> {
    let opened = Scan::of_inventory(Inventory::take(roots, scan)?);
    copies::proof(&opened).map_err(|why| Error::Unproven { scan: scan.to_string(), why })
}

/// Removes what is here of a scan, although other members of it are absent. What is on them stays there, and can be
/// removed in the same way.
pub fn remove_without_absent(
    roots: &[PathBuf],
    scan: &ScanName,
    progress: &dyn Fn(u64, u64),
) -> Result<Removed, Error> {
    remove_holdings(scan, &holdings(roots, &scan.to_string())?, progress)
}

fn remove_holdings(
    scan: &ScanName,
    holdings: &[MemberFiles],
    progress: &dyn Fn(u64, u64),
) -> Result<Removed, Error> {
    let name = scan.to_string();
    if holdings.iter().any(|holding| is_protected(&holding.path)) {
        return Err(Error::Protected { scan: name });
    }
    let _locks = lock_all(holdings)?;
    let mut removed = Removed { scan: name, ..Removed::default() };
    let chunks: Vec<&PathBuf> = holdings.iter().flat_map(chunks_of).collect();
    for (gone, path) in chunks.iter().enumerate() {
        removed.file(path)?;
        progress(gone as u64 + 1, chunks.len() as u64);
    }
    for holding in holdings {
        removed.sides_of(holding)?;
    }
    Ok(removed)
}

/// Removes the leftover files on former members of a rebuilt scan, and nothing else. While the scan lacks a file or a
/// member, a leftover file may be the last copy, so the removal is refused.
pub fn remove_leftovers(
    roots: &[PathBuf],
    scan: &ScanName,
    progress: &dyn Fn(u64, u64),
) -> Result<Removed, Error> {
    let opened = Scan::of_inventory(Inventory::take(roots, scan)?);
    let mut removed = Removed { scan: scan.to_string(), ..Removed::default() };
    let is_lack = |it: &&Diagnostic| !matches!(it.what, DiagnosticKind::LeftOver { .. });
    let holdings = || opened.inventory.leftovers.iter().flat_map(|it| &it.holdings);
    if let Some(lack) = opened.findings.iter().find(is_lack).filter(|_| holdings().count() > 0) {
        return Err(Error::Needed { scan: removed.scan, why: lack.to_string() });
    }
    let locks: Result<Vec<ScanLock>, lock::Error> =
        holdings().map(|it| ScanLock::take(&it.side(MANIFEST_FILE))).collect();
    let _locks = locks?;
    let chunks: Vec<&PathBuf> = holdings().flat_map(chunks_of).collect();
    for (gone, path) in chunks.iter().enumerate() {
        removed.file(path)?;
        progress(gone as u64 + 1, chunks.len() as u64);
    }
    for holding in holdings() {
        // The protection applies to the scan, and leftover files are not part of it.
        removed.file(&holding.side(PROTECTED_FILE))?;
        removed.sides_of(holding)?;
    }
    Ok(removed)
}

pub(super) fn holdings(paths: &[PathBuf], scan: &str) -> Result<Vec<MemberFiles>, Error> {
    let (roots, _) = open_roots(paths)?;
    let mut holdings = Vec::new();
    for (number, root) in roots.iter().enumerate() {
        let failed = |source| Error::File { path: root.path.clone(), source };
        for entry in std::fs::read_dir(&root.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // A link may lead out of the store: it is not one of the scan's directories.
            let is_directory = entry.file_type().map_err(failed)?.is_dir();
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_directory && is_of_scan(&name, scan) {
                holdings.extend(MemberFiles::look(number, &root.path, &name));
            }
        }
    }
    if holdings.is_empty() {
        let roots = roots.into_iter().map(|root| root.path).collect();
        return Err(inventory::Error::NoScan { scan: scan.to_owned(), roots }.into());
    }
    Ok(holdings)
}

/// Refuses to remove only a part of a scan: its manifests name all of its members.
fn refuse_absent(paths: &[PathBuf], scan: &str, holdings: &[MemberFiles]) -> Result<(), Error> {
    let (roots, _) = open_roots(paths)?;
    let given = |member: &Member| roots.iter().any(|root| root.uuid == Some(member.uuid));
    let mut members: Vec<String> = Vec::new();
    let believed = latest(holdings.iter().filter_map(|it| it.manifest.get()));
    let let_go = |holding: &MemberFiles, copy: &Manifest| {
        let root = &roots[holding.root];
        believed.is_some_and(|believed| is_let_go(root.uuid, &root.path, copy, believed))
    };
    for holding in holdings {
        let Copy::Read(manifest) = &holding.manifest else { continue };
        // Former members of a rebuilt scan are not needed.
        if let_go(holding, manifest) {
            continue;
        }
        for member in manifest.members.iter().filter(|member| !given(member)) {
            let path = member.path.display().to_string();
            if !members.contains(&path) {
                members.push(path);
            }
        }
    }
    if members.is_empty() {
        return Ok(());
    }
    let scan = scan.to_owned();
    let given: Vec<PathBuf> = paths.iter().filter_map(|it| std::path::absolute(it).ok()).collect();
    let is_given = |member: &String| given.iter().any(|path| path == Path::new(member));
    Err(match members.iter().all(is_given) {
        true => Error::Replaced { scan, members },
        false => Error::Absent { scan, members },
    })
}

/// Locks every manifest of a scan that may still be recorded, so that the recorder's lock is met whichever manifest has
/// it.
fn lock_all(holdings: &[MemberFiles]) -> Result<Vec<ScanLock>, lock::Error> {
    let open = |holding: &&MemberFiles| {
        let follows = |it: &Manifest| it.redundancy.is_some_and(|it| it.followed.is_none());
        let busy = |it: &Manifest| {
            let renames = it.streams.iter().any(is_to_be_renamed);
            it.state == State::Recording || renames || follows(it)
        };
        holding.manifest.get().is_some_and(busy)
    };
    let locks =
        holdings.iter().filter(open).map(|holding| ScanLock::take(&holding.side(MANIFEST_FILE)));
    locks.collect()
}

fn chunks_of(holding: &MemberFiles) -> impl Iterator<Item = &PathBuf> {
    let chunks = holding.chunks.iter().map(|(_, chunk)| &chunk.path);
    chunks.chain(&holding.superseded).chain(&holding.redundant)
}

impl Removed {
    fn sides_of(&mut self, holding: &MemberFiles) -> Result<(), Error> {
        let side = holding.path.join(SIDE_DIRECTORY);
        for path in litter_in(&holding.path) {
            self.file(&path)?;
        }
        let names = [
            HELD_FILE,
            SPARE_FILE,
            INDEX_FILE,
            ACCOUNT_FILE,
            MARKERS_FILE,
            COPIES_FILE,
            UPLOAD_FILE,
            CONTENT_FILE,
            MANIFEST_FILE,
        ];
        for name in names {
            let path = side.join(name);
            self.file(&path.with_extension("new"))?;
            self.file(&path)?;
        }
        self.directory(&side)?;
        self.directory(&holding.path)
    }

    fn file(&mut self, path: &Path) -> Result<(), Error> {
        use std::os::unix::fs::MetadataExt;
        let failed = |source| Error::File { path: path.to_owned(), source };
        let taken = match std::fs::symlink_metadata(path) {
            Ok(metadata) => metadata.blocks() * 512,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        std::fs::remove_file(path).map_err(failed)?;
        self.files += 1;
        self.bytes += taken;
        Ok(())
    }

    /// Removes a directory if it is empty; if not, reports its content.
    fn directory(&mut self, path: &Path) -> Result<(), Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        match std::fs::remove_dir(path) {
            Ok(()) => self.directories.push(path.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                for entry in std::fs::read_dir(path).map_err(failed)? {
                    let path = entry.map_err(failed)?.path();
                    if path.file_name() != Some(SIDE_DIRECTORY.as_ref()) {
                        self.kept.push(path);
                    }
                }
            }
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use fullbore_store::testing::{Laid, Store, StreamPlan};

    use super::*;

    fn names(store: &Store) -> Vec<String> {
        let mut all = Vec::new();
        for root in store.roots() {
            let entries = std::fs::read_dir(root).unwrap().flatten();
            all.extend(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        }
        all.retain(|name| name != SIDE_DIRECTORY);
        all.sort();
        all
    }

    fn two(store: &Store) -> (Laid, Laid) {
        let streams = [StreamPlan::vdif("a").unsealed(), StreamPlan::raw("b").unsealed()];
        let first = store.lay_down("r1_a", &streams);
        let other = store.lay_down("r1_ab", &[StreamPlan::vdif("a")]);
        (first, other)
    }

    #[test]
    fn how_many_chunks_are_gone_is_told_one_by_one() {
        let store = Store::new(2);
        let laid = store.lay_down("r1_a", &[StreamPlan::vdif("a")]);
        let all = laid.chunks(0).len() as u64;
        let told = std::cell::RefCell::new(Vec::new());
        remove_telling(&store.roots(), &laid.name, &|gone, of| told.borrow_mut().push((gone, of)))
            .unwrap();
        assert!(told.into_inner().into_iter().eq((1..=all).map(|gone| (gone, all))));
    }

    #[test]
    fn a_scan_goes_whole_and_its_neighbour_stays() {
        let store = Store::new(2);
        let (laid, _) = two(&store);
        let removed = remove(&store.roots(), &laid.name).unwrap();
        assert_eq!(names(&store), ["r1_ab", "r1_ab"]);
        assert_eq!(removed.kept, Vec::<PathBuf>::new());
        let bytes: usize = laid.bytes.iter().map(Vec::len).sum();
        assert!(removed.bytes >= bytes as u64);
    }

    #[test]
    fn what_does_not_belong_to_it_stays_and_is_named() {
        let store = Store::new(1);
        let (laid, _) = two(&store);
        let notes = laid.directory(0, 0).join("notes.txt");
        let stranger = laid.directory(0, 0).join(".fullbore/other");
        std::fs::write(&notes, b"x").unwrap();
        std::fs::write(&stranger, b"x").unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("precious"), b"x").unwrap();
        let link = store.roots()[0].join("r1_a_dslink");
        std::os::unix::fs::symlink(outside.path(), &link).unwrap();
        let removed = remove(&store.roots(), &laid.name).unwrap();
        assert_eq!(removed.kept, [stranger.clone(), notes.clone()]);
        assert!(notes.exists() && stranger.exists() && link.exists());
        assert!(outside.path().join("precious").exists());
    }

    #[test]
    fn a_scan_that_is_being_recorded_is_refused_and_untouched() {
        let store = Store::new(2);
        let (laid, _) = two(&store);
        let lock = ScanLock::take(&laid.manifest_path(0, 0)).unwrap();
        let error = remove(&store.roots(), &laid.name).unwrap_err();
        assert!(matches!(error, Error::Lock(lock::Error::Held { .. })), "{error}");
        assert!(laid.chunk_path(0, 0).exists());
        drop(lock);
        remove(&store.roots(), &laid.name).unwrap();
    }

    #[test]
    fn a_scan_on_a_lost_member_is_removed_from_the_others_if_that_is_meant() {
        let store = Store::new(2);
        let (laid, _) = two(&store);
        let lost = store.roots()[1].clone();
        let away = lost.with_extension("away");
        std::fs::rename(&lost, &away).unwrap();
        std::fs::create_dir(&lost).unwrap();
        let error = remove(&store.roots(), &laid.name).unwrap_err();
        assert!(matches!(error, Error::Replaced { .. }), "{error}");
        assert!(error.to_string().contains(lost.to_str().unwrap()), "{error}");
        assert!(error.hint().unwrap().contains("--without-absent-members"));
        let error = remove(&store.roots()[..1], &laid.name).unwrap_err();
        assert!(matches!(error, Error::Absent { .. }), "{error}");
        assert!(laid.chunk_path(0, 0).exists());
        let removed = remove_without_absent(&store.roots(), &laid.name, &|_, _| {}).unwrap();
        assert!(removed.files > 0);
        assert_eq!(names(&store), ["r1_ab"]);
        // What is on the lost member can be removed when it is found again.
        std::fs::remove_dir(&lost).unwrap();
        std::fs::rename(&away, &lost).unwrap();
        remove(&store.roots(), &laid.name).unwrap();
        assert_eq!(names(&store), ["r1_ab", "r1_ab"]);
    }

    #[test]
    fn a_broken_scan_can_be_removed() {
        let store = Store::new(1);
        let (laid, _) = two(&store);
        std::fs::write(laid.manifest_path(0, 0), b"{").unwrap();
        std::fs::remove_file(laid.manifest_path(1, 0)).unwrap();
        remove(&store.roots(), &laid.name).unwrap();
        assert_eq!(names(&store), ["r1_ab"]);
        let error = remove(&store.roots(), &laid.name).unwrap_err().to_string();
        assert!(error.contains("r1_a"), "{error}");
    }
}
