//! The inventory of a scan: the location and content of its files, before any conclusion.
//!
//! A missing, unreadable or foreign file is not an error here, because the inventory has to find such files. Only roots
//! that do not exist are errors.
//!
//! - `copies`: manifests and accounts, of which every member has a copy
//! - `member_files`: the files in a stream's directory on one member
//! - `index`: the records of a stream on one member
//! - `leftover`: files on former members of a rebuilt scan

mod copies;
mod index;
mod leftover;
mod member_files;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::chunk_map::{RenumberStage, Renumbering};
use fullbore_core::hint::Hint;
use fullbore_core::manifest::{
    Format, MANIFEST_FILE, Manifest, Member, SIDE_DIRECTORY, State, Stream,
};
use fullbore_core::marker::Marker;
use fullbore_core::name::ScanName;
use uuid::Uuid;

pub(super) use self::copies::read_bounded;
pub use self::copies::{Copy, check_geometry, is_of_later_version, read_account, read_manifest};
pub use self::index::{BlockRecord, Growing, Index, read_lengths, read_on};
pub use self::leftover::{Leftover, is_let_go, latest};
pub use self::member_files::{ChunkFile, MemberFiles, side_file};
use super::identity::read_identity;
use super::markers;

/// The file with the identity of a member, in [`fullbore_core::manifest::SIDE_DIRECTORY`] of its root.
pub const MEMBER_FILE: &str = "member.json";

/// Suffix of the name of a chunk that is being filled, in [`fullbore_core::manifest::SIDE_DIRECTORY`].
pub const PART_SUFFIX: &str = ".part";

/// Suffix of the name of a chunk, in [`fullbore_core::manifest::SIDE_DIRECTORY`], that another member holds as well.
pub const SUPERSEDED_SUFFIX: &str = ".superseded";

/// Suffix of the name of a chunk, in [`fullbore_core::manifest::SIDE_DIRECTORY`], whose file is being renumbered; the
/// number is the index's.
pub const RENAMING_SUFFIX: &str = ".renaming";

/// A directory that contains scans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The path as given.
    pub path: PathBuf,
    /// The identity, if it has one.
    pub uuid: Option<Uuid>,
    /// The reason why its identity file is invalid.
    pub unidentified: Option<String>,
    /// True if it holds nothing of a store, like the mount point of a disk that is not mounted.
    pub bare: bool,
    /// The device of the root: two roots of one device are read by one set of threads.
    pub device: u64,
}

/// A root that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct RootError {
    /// The path as given.
    pub path: PathBuf,
    /// The reason.
    pub source: io::Error,
}

impl Root {
    /// Opens a directory and reads its member file.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let failed = |source| RootError { path: path.to_owned(), source };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if !metadata.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let (uuid, unidentified) = match read_identity(path) {
            Ok(uuid) => (uuid, None),
            Err(why) => (None, Some(why)),
        };
        let bare = uuid.is_none() && unidentified.is_none() && is_bare(path);
        Ok(Self { path: path.to_owned(), uuid, unidentified, bare, device: metadata.dev() })
    }
}

/// True if a directory has no side directory, and none of its directories has one. A member that lost its member file
/// still has its scans.
fn is_bare(path: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(path) else { return false };
    let sides = entries.flatten().map(|entry| entry.path().join(SIDE_DIRECTORY));
    !path.join(SIDE_DIRECTORY).is_dir() && sides.into_iter().all(|side| !side.is_dir())
}

/// All directories of one scan on all roots, and the manifest that is used.
#[derive(Debug)]
pub struct Inventory {
    /// The roots looked at.
    pub roots: Vec<Root>,
    /// Roots that were given and cannot be used.
    pub failed_roots: Vec<RootError>,
    /// The directories of the scan, ordered by name, then root.
    pub holdings: Vec<MemberFiles>,
    /// Files on former members of the rebuilt scan: not part of it.
    pub leftovers: Vec<Leftover>,
    /// The manifest in use: the most advanced copy.
    pub manifest: Manifest,
    /// The path of that copy.
    pub manifest_path: PathBuf,
    /// All markers in any copy of the manifest or in any marker file.
    pub markers: Vec<Marker>,
}

/// All directories of one scan on all roots, whatever their manifests contain.
#[derive(Debug)]
pub struct FoundScan {
    /// The roots looked at.
    pub roots: Vec<Root>,
    /// Roots that were given and cannot be used.
    pub failed_roots: Vec<RootError>,
    /// The directories of the scan, ordered by name, then root.
    pub holdings: Vec<MemberFiles>,
}

impl FoundScan {
    /// Lists all directories of a scan.
    pub fn look(paths: &[PathBuf], scan: &ScanName) -> Result<Self, Error> {
        let (roots, failed_roots) = open_roots(paths)?;
        let scan = scan.to_string();
        let mut holdings = Vec::new();
        for (number, root) in roots.iter().enumerate() {
            for name in directories(&root.path, &scan) {
                holdings.extend(MemberFiles::look(number, &root.path, &name));
            }
        }
        if holdings.is_empty() {
            let roots = roots.into_iter().map(|root| root.path).collect();
            return Err(Error::NoScan { scan, roots });
        }
        holdings.sort_by(|a, b| (&a.name, a.root).cmp(&(&b.name, b.root)));
        Ok(Self { roots, failed_roots, holdings })
    }
}

/// The reason why a scan has no inventory.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None of the roots can be used.
    #[error("no directory of the store can be read: {}", listed(roots))]
    Roots {
        /// The roots with the reasons.
        roots: Vec<RootError>,
    },
    /// No root has a directory of this name.
    #[error("there is no scan {scan} under {}", paths(roots))]
    NoScan {
        /// The name asked for.
        scan: String,
        /// The roots that were searched.
        roots: Vec<PathBuf>,
    },
    /// No copy of the manifest is readable.
    #[error("scan {scan}: no copy of its manifest can be read: {}", why.join("; "))]
    NoManifest {
        /// The scan.
        scan: String,
        /// The copies with the reasons.
        why: Vec<String>,
    },
    /// Two different scans have the same name on different members.
    #[error(
        "two different scans are called {scan}: {} and {}", first.display(), second.display()
    )]
    TwoScans {
        /// The name.
        scan: String,
        /// A manifest of the first scan.
        first: PathBuf,
        /// A manifest of the second scan.
        second: PathBuf,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Error::Roots { .. } => "give the members with --store DIR[,DIR…]",
            Error::NoScan { .. } => "`fullbore ls` lists the scans of a store",
            Error::NoManifest { .. } => {
                "`fullbore recover` makes one from index and chunk files; the chunk files, joined in \
                 the order of their numbers, are the stream"
            }
            Error::TwoScans { .. } => "name with --store only the members of one of them",
        }))
    }
}

fn listed(roots: &[RootError]) -> String {
    roots.iter().map(|error| error.to_string()).collect::<Vec<_>>().join("; ")
}

fn paths(roots: &[PathBuf]) -> String {
    roots.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Opens the roots that can be opened; an error only if none can.
pub fn open_roots(paths: &[PathBuf]) -> Result<(Vec<Root>, Vec<RootError>), Error> {
    let (mut roots, mut failed) = (Vec::new(), Vec::new());
    for path in paths {
        match Root::open(path) {
            Ok(root) => roots.push(root),
            Err(error) => failed.push(error),
        }
    }
    if roots.is_empty() { Err(Error::Roots { roots: failed }) } else { Ok((roots, failed)) }
}

/// Members of a scan that are not among these roots.
pub fn absent_members<'a>(
    roots: &'a [Root],
    manifest: &'a Manifest,
) -> impl Iterator<Item = &'a Member> {
    let given = |uuid| roots.iter().any(|root| root.uuid == Some(uuid));
    // A root without its member file is identified by its path at the time of recording, unless nothing is there.
    let known = |path: &Path| {
        roots.iter().any(|root| root.uuid.is_none() && !root.bare && is_at(root, path))
    };
    manifest.members.iter().filter(move |member| !given(member.uuid) && !known(&member.path))
}

/// Returns the members of a scan that are identified by the path of a root only, because that root has no member file.
pub fn members_without_file<'a>(
    roots: &'a [Root],
    manifest: &'a Manifest,
) -> impl Iterator<Item = (&'a Root, &'a Member)> {
    let given = |uuid| roots.iter().any(|root| root.uuid == Some(uuid));
    let without = |root: &&Root| root.uuid.is_none() && root.unidentified.is_none() && !root.bare;
    manifest.members.iter().filter(move |member| !given(member.uuid)).filter_map(move |member| {
        Some((roots.iter().filter(without).find(|root| is_at(root, &member.path))?, member))
    })
}

/// Returns true if the root is at this path of a manifest. Manifests have full paths; a root may be given by a relative
/// one.
fn is_at(root: &Root, place: &Path) -> bool {
    let full = |path: &Path| std::fs::canonicalize(path).ok();
    root.path == place || full(&root.path).is_some_and(|path| full(place) == Some(path))
}

/// Returns true if a directory of this name belongs to the scan.
pub fn is_of_scan(directory: &str, scan: &str) -> bool {
    directory == scan || directory.strip_prefix(scan).is_some_and(|rest| rest.starts_with("_ds"))
}

impl Inventory {
    /// Takes the inventory of a scan.
    pub fn take(paths: &[PathBuf], scan: &ScanName) -> Result<Self, Error> {
        let FoundScan { mut roots, failed_roots, mut holdings } = FoundScan::look(paths, scan)?;
        let (manifest, manifest_path) = agree(&scan.to_string(), &holdings)?;
        let leftovers = leftover::set_aside(&manifest, &mut roots, &mut holdings);
        for holding in holdings.iter_mut().filter(|it| it.manifest.get().is_none()) {
            if let Some(renamed) = renamed_in(&manifest, &holding.name).cloned() {
                holding.number_by(renamed);
            }
        }
        let markers = markers::of_holdings(&holdings);
        Ok(Self { roots, failed_roots, holdings, leftovers, manifest, manifest_path, markers })
    }

    /// Returns the directories of a stream on all members.
    pub fn of_stream(&self, number: usize) -> impl Iterator<Item = &MemberFiles> {
        let directory = self.manifest.streams[number].directory.as_str();
        self.holdings.iter().filter(move |holding| holding.name == directory)
    }

    /// Returns the members in the manifest that are not among the roots.
    pub fn absent_members(&self) -> Vec<&Member> {
        absent_members(&self.roots, &self.manifest).collect()
    }

    /// Returns true if the directory of a member is given and holds nothing of a store.
    pub fn is_bare(&self, member: &Member) -> bool {
        self.roots.iter().any(|root| root.bare && is_at(root, &member.path))
    }

    /// Returns true if the scan is being recorded: its lock is held on some member.
    pub fn is_being_recorded(&self) -> bool {
        let held = |root: &Root| {
            let path = super::lock::lock_path(&root.path, &self.manifest);
            path.is_some_and(|path| super::lock::is_held(&path))
        };
        self.roots.iter().any(held)
    }

    /// Returns the path of the manifest that is locked: the one on the scan's first member, or the copy in use if that
    /// member is not among the roots.
    pub fn lock_path(&self) -> PathBuf {
        let first = self.manifest.members.first();
        let root =
            first.and_then(|member| self.roots.iter().find(|root| root.uuid == Some(member.uuid)));
        root.and_then(|root| super::lock::lock_path(&root.path, &self.manifest))
            .filter(|path| path.exists())
            .unwrap_or_else(|| self.manifest_path.clone())
    }
}

/// Returns the renumbering of a directory's files, by a manifest.
fn renamed_in<'a>(manifest: &'a Manifest, directory: &str) -> Option<&'a Renumbering> {
    manifest.streams.iter().find(|stream| stream.directory == directory)?.renamed.as_ref()
}

/// Returns the directories of a scan on a root, in order. A root that cannot be listed has none.
fn directories(root: &Path, scan: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| is_of_scan(name, scan)).collect();
    names.sort_unstable();
    names
}

/// Ranks the state of a manifest copy: later states are higher.
fn rank(state: State) -> u8 {
    match state {
        State::Recording => 0,
        State::Recovered => 1,
        State::Aborted | State::Sealed => 2,
    }
}

/// Returns the most advanced copy. Copies of different scans are an error, because the name is ambiguous.
fn agree(scan: &str, holdings: &[MemberFiles]) -> Result<(Manifest, PathBuf), Error> {
    let read = |holding: &MemberFiles| {
        holding.manifest.get().map(|m| (holding.side(MANIFEST_FILE), m.clone()))
    };
    let copies: Vec<_> = holdings.iter().filter_map(read).collect();
    if let Some((first, other)) = copies
        .iter()
        .zip(copies.iter().skip(1))
        .find_map(|(a, b)| (a.1.uuid != b.1.uuid).then(|| (a.0.clone(), b.0.clone())))
    {
        return Err(Error::TwoScans { scan: scan.to_owned(), first, second: other });
    }
    let best = copies.into_iter().max_by_key(|(_, m)| {
        let what = (m.renaming(), m.redundant(), m.markers.len());
        (rank(m.state), m.blocks(), m.streams.len(), m.described(), what)
    });
    best.map(|(path, manifest)| (manifest, path)).ok_or_else(|| Error::NoManifest {
        scan: scan.to_owned(),
        why: holdings.iter().map(why_no_manifest).collect(),
    })
}

fn why_no_manifest(holding: &MemberFiles) -> String {
    let path = holding.side(MANIFEST_FILE);
    match &holding.manifest {
        Copy::Unreadable(why) => format!("{}: {why}", path.display()),
        _ => format!("{}: not there", path.display()),
    }
}

/// The order by which copies of a manifest are compared.
trait Says {
    /// Blocks of all streams.
    fn blocks(&self) -> u64;
    /// The number of streams with a description: streams are described while they are recorded.
    fn described(&self) -> usize;
    /// The progress of each stream's renumbering.
    fn renaming(&self) -> Vec<Option<(u32, RenumberStage)>>;
    /// The number of rebuilds, and whether the manifest says how its redundancy was made.
    fn redundant(&self) -> Option<(u32, bool)>;
}

impl Says for Manifest {
    fn blocks(&self) -> u64 {
        self.streams.iter().map(|stream| stream.blocks).sum()
    }

    fn described(&self) -> usize {
        let of = |stream: &Stream| {
            let told = match &stream.format {
                Format::Frames { frames_per_second, .. } => {
                    usize::from(frames_per_second.is_some())
                }
                Format::Panda { header, ending, captured, connections, notes, settings } => {
                    let once = [
                        !header.is_empty(),
                        settings.is_some(),
                        ending.is_some(),
                        captured.is_some(),
                    ];
                    once.into_iter().filter(|it| *it).count() + connections.len() + notes.len()
                }
                Format::Packets { .. } | Format::Raw => 0,
            };
            told + usize::from(stream.geometry.is_some())
        };
        self.streams.iter().map(of).sum()
    }

    fn renaming(&self) -> Vec<Option<(u32, RenumberStage)>> {
        let of = |renamed: &Renumbering| (renamed.round, renamed.stage);
        self.streams.iter().map(|it| it.renamed.as_ref().map(of)).collect()
    }

    fn redundant(&self) -> Option<(u32, bool)> {
        self.redundancy.map(|it| (it.rebuilt, it.followed.is_some()))
    }
}

/// Returns the chunk files of a stream by number, over all members, each with its holding.
pub fn chunks_by_number<'a>(
    holdings: impl Iterator<Item = &'a MemberFiles>,
) -> BTreeMap<u32, Vec<(&'a MemberFiles, &'a ChunkFile)>> {
    let mut all: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for holding in holdings {
        for (number, file) in &holding.chunks {
            all.entry(*number).or_default().push((holding, file));
        }
    }
    all
}
