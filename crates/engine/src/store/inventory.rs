//! What files of a scan lie where, and what each of them says, before anything is concluded.
//!
//! Nothing here fails because a file is missing, unreadable or of another scan: that is what is to be
//! found out. Only directories that were named and do not exist are errors.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fullbore_core::account::Account;
use fullbore_core::gap::Gap;
use fullbore_core::index::{Block, Codec, Entry, RECORD_BYTES};
use fullbore_core::layout::{
    ALIGNMENT, Geometry, LARGEST_BLOCK_BYTES, LONGEST_DATAGRAM, chunk_file, chunk_number,
};
use fullbore_core::manifest::{
    self, ACCOUNT_FILE, MANIFEST_FILE, Manifest, Member, SIDE_DIRECTORY, State,
};
use fullbore_core::name::ScanName;
use fullbore_core::renamed::{Renamed, Stage};
use serde::Deserialize;
use uuid::Uuid;

/// The file at a member's root that says who it is, in [`SIDE_DIRECTORY`].
pub const MEMBER_FILE: &str = "member.json";

/// What may follow the name of a chunk that is being filled, in [`SIDE_DIRECTORY`].
pub const PART_SUFFIX: &str = ".part";

/// What follows the name of a chunk, in [`SIDE_DIRECTORY`], that another member holds as well.
pub const SUPERSEDED_SUFFIX: &str = ".superseded";

/// What follows the name of a chunk, in [`SIDE_DIRECTORY`], whose file is being given another number; the
/// number is the index's.
pub const RENAMING_SUFFIX: &str = ".renaming";

/// No manifest or member file is larger; an account of 100 000 gaps has about 8 MB.
const LARGEST_JSON: u64 = 64 << 20;

/// A directory that scans lie under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// As it was given.
    pub path: PathBuf,
    /// Who it is, if it says so.
    pub uuid: Option<Uuid>,
    /// The device it lies on: two roots of one device are read by one set of threads.
    pub device: u64,
}

/// A root that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct RootError {
    /// As it was given.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl Root {
    /// Looks at a directory and its member file.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let failed = |source| RootError { path: path.to_owned(), source };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if !metadata.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        let uuid = member_uuid(path);
        Ok(Self { path: path.to_owned(), uuid, device: metadata.dev() })
    }
}

/// Who the member at `root` is.
fn member_uuid(root: &Path) -> Option<Uuid> {
    #[derive(Deserialize)]
    struct MemberFile {
        uuid: Uuid,
    }
    let json = read_bounded(&root.join(SIDE_DIRECTORY).join(MEMBER_FILE)).ok()?;
    serde_json::from_slice::<MemberFile>(&json).ok().map(|file| file.uuid)
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path)?.take(LARGEST_JSON + 1).read_to_end(&mut bytes)?;
    if read as u64 > LARGEST_JSON {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "larger than 64 MiB"));
    }
    Ok(bytes)
}

/// A file that should be there.
#[derive(Clone, Debug)]
pub enum Copy<T> {
    /// It is, and this is what it says.
    Read(T),
    /// It is not there.
    Missing,
    /// It is there and useless.
    Unreadable(String),
}

impl<T> Copy<T> {
    /// What it says, if it does.
    pub fn get(&self) -> Option<&T> {
        match self {
            Copy::Read(value) => Some(value),
            Copy::Missing | Copy::Unreadable(_) => None,
        }
    }
}

fn read_copy<T>(path: &Path, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Copy<T> {
    match read_bounded(path) {
        Ok(bytes) => match parse(&bytes) {
            Ok(value) => Copy::Read(value),
            Err(why) => Copy::Unreadable(why),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Copy::Missing,
        Err(error) => Copy::Unreadable(error.to_string()),
    }
}

/// Reads a manifest from where it lies. One that would lead out of its scan's directories, or that
/// speaks of blocks that cannot be, counts as unreadable: nothing that follows has to ask again.
pub fn read_manifest(path: &Path) -> Copy<Manifest> {
    read_copy(path, |json| {
        let manifest = Manifest::from_json(json).map_err(|error| error.to_string())?;
        check_directories(&manifest)?;
        for stream in &manifest.streams {
            stream.geometry.as_ref().map_or(Ok(()), check_geometry)?;
            stream.renamed.as_ref().map_or(Ok(()), Renamed::check)?;
        }
        Ok(manifest)
    })
}

/// Whether what lies there is the manifest of a later version of this program.
pub fn is_of_later_version(path: &Path) -> bool {
    let read = read_bounded(path).map(|json| Manifest::from_json(&json));
    matches!(read, Ok(Err(manifest::Error::Version { .. })))
}

fn check_directories(manifest: &Manifest) -> Result<(), String> {
    let scan = &manifest.scan;
    let mut seen = BTreeSet::new();
    for stream in &manifest.streams {
        let directory = &stream.directory;
        if ScanName::of_directory(directory).is_none_or(|(of, _)| of != *scan) {
            return Err(format!("`{directory}` is no directory of scan {scan}"));
        }
        if !seen.insert(directory) {
            return Err(format!("two streams lie in `{directory}`"));
        }
    }
    if manifest.streams.is_empty() || manifest.streams.len() > usize::from(u16::MAX) {
        return Err(format!("a scan of {} streams", manifest.streams.len()));
    }
    Ok(())
}

/// Whether blocks of this geometry can be.
pub fn check_geometry(geometry: &Geometry) -> Result<(), String> {
    let Geometry { frame_bytes, block_bytes, chunk_blocks } = *geometry;
    let block = u64::from(block_bytes);
    if block == 0 || block > LARGEST_BLOCK_BYTES || !block.is_multiple_of(ALIGNMENT) {
        return Err(format!("blocks of {block_bytes} bytes"));
    }
    if chunk_blocks == 0 {
        return Err("chunks of no block".into());
    }
    if frame_bytes > LONGEST_DATAGRAM
        || (frame_bytes > 0 && !block_bytes.is_multiple_of(frame_bytes))
    {
        return Err(format!("frames of {frame_bytes} bytes in blocks of {block_bytes}"));
    }
    Ok(())
}

/// Reads an account from where it lies.
pub fn read_account(path: &Path) -> Copy<Account> {
    read_copy(path, |json| serde_json::from_slice(json).map_err(|error| error.to_string()))
}

/// The files beside the chunks of a stream's directory.
pub fn side_file(directory: &Path, file: &str) -> PathBuf {
    directory.join(SIDE_DIRECTORY).join(file)
}

/// A chunk file, complete or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its visible size.
    pub bytes: u64,
    /// Whether it lies under its working name.
    pub unfinished: bool,
}

/// What a directory of a stream holds: one stream on one member.
#[derive(Debug)]
pub struct Holding {
    /// Which of the roots it is on.
    pub root: usize,
    /// Its name, the same on every member.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Chunk files by the number that the index has for them. A number can stand here twice: finished and
    /// unfinished.
    pub chunks: Vec<(u32, ChunkFile)>,
    /// Which numbers its files bear, if others.
    pub renamed: Option<Renamed>,
    /// Chunk files that `recover` moved out of sight, because another member holds them as well.
    pub superseded: Vec<PathBuf>,
    /// The manifest's copy.
    pub manifest: Copy<Manifest>,
    /// Entries that look like nothing of ours.
    pub strangers: Vec<PathBuf>,
    /// Directories that could not be listed, and why.
    pub unlisted: Vec<(PathBuf, String)>,
}

impl Holding {
    /// Looks into the directory `name` on a root. `None` if there is no such directory.
    pub fn look(root: usize, at: &Path, name: &str) -> Option<Self> {
        let path = at.join(name);
        if !std::fs::metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            return None;
        }
        let mut holding = Self {
            root,
            name: name.to_owned(),
            manifest: read_manifest(&side_file(&path, MANIFEST_FILE)),
            path,
            chunks: Vec::new(),
            renamed: None,
            superseded: Vec::new(),
            strangers: Vec::new(),
            unlisted: Vec::new(),
        };
        holding.list_chunks();
        holding.list_parts();
        holding.chunks.sort_by_key(|(number, file)| (*number, file.unfinished));
        // What its own manifest says is true of this directory, however far others are.
        if let Some(renamed) = holding.manifest.get().and_then(|it| renamed_in(it, name)).cloned() {
            holding.number_by(renamed);
        }
        Some(holding)
    }

    /// Gives files the numbers that the index has for them.
    fn number_by(&mut self, renamed: Renamed) {
        for (number, file) in std::mem::take(&mut self.chunks) {
            let in_sight = file.path.parent() == Some(&self.path);
            match if in_sight { renamed.in_sight().chunk_of(number) } else { Some(number) } {
                Some(chunk) => self.chunks.push((chunk, file)),
                None => self.strangers.push(file.path),
            }
        }
        self.chunks.sort_by_key(|(number, file)| (*number, file.unfinished));
        self.renamed = Some(renamed);
    }

    /// Where the file of a chunk lies, or would, when it is complete.
    pub fn chunk_path(&self, chunk: u32) -> PathBuf {
        let number = self.renamed.as_ref().map_or(chunk, |it| it.in_sight().file_of(chunk));
        self.path.join(chunk_file(&self.name, number))
    }

    /// The path of a file beside the chunks.
    pub fn side(&self, file: &str) -> PathBuf {
        side_file(&self.path, file)
    }

    /// The account's copy.
    pub fn account(&self) -> Copy<Account> {
        read_account(&self.side(ACCOUNT_FILE))
    }

    /// The file of a chunk, the finished one if there are two.
    pub fn chunk(&self, number: u32) -> Option<&ChunkFile> {
        let at = self.chunks.partition_point(|(other, _)| *other < number);
        self.chunks.get(at).filter(|(other, _)| *other == number).map(|(_, file)| file)
    }

    fn list_chunks(&mut self) {
        for (name, path, metadata) in self.entries(&self.path.clone()) {
            if name == SIDE_DIRECTORY {
                continue;
            }
            match chunk_number(&self.name, &name).filter(|_| metadata.is_file()) {
                Some(number) => self.add(number, path, metadata.len(), false),
                None => self.strangers.push(path),
            }
        }
    }

    fn list_parts(&mut self) {
        let side = self.path.join(SIDE_DIRECTORY);
        if !side.is_dir() {
            return;
        }
        for (name, path, metadata) in self.entries(&side) {
            let aside = name.strip_suffix(SUPERSEDED_SUFFIX);
            if aside.is_some_and(|name| chunk_number(&self.name, name).is_some()) {
                self.superseded.push(path);
                continue;
            }
            let renaming = name.strip_suffix(RENAMING_SUFFIX);
            let whole = renaming.or(name.strip_suffix(PART_SUFFIX)).unwrap_or(&name);
            if let Some(number) = chunk_number(&self.name, whole) {
                self.add(number, path, metadata.len(), renaming.is_none());
            }
        }
    }

    fn add(&mut self, number: u32, path: PathBuf, bytes: u64, unfinished: bool) {
        self.chunks.push((number, ChunkFile { path, bytes, unfinished }));
    }

    fn entries(&mut self, directory: &Path) -> Vec<(String, PathBuf, std::fs::Metadata)> {
        let list = || -> io::Result<Vec<_>> {
            let mut list = Vec::new();
            for entry in std::fs::read_dir(directory)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                list.push((name, entry.path(), entry.metadata()?));
            }
            Ok(list)
        };
        list().unwrap_or_else(|error| {
            self.unlisted.push((directory.to_owned(), error.to_string()));
            Vec::new()
        })
    }
}

/// A block's record, and where in the index the lengths of its frames stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRecord {
    /// What the record says.
    pub block: Block,
    /// Number of the first lengths record in the file, and how many follow.
    pub lengths: Option<(u64, u32)>,
}

/// What an index file says, up to the first record that cannot be trusted.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// The member in the header record.
    pub member: Option<Uuid>,
    /// The geometry in the header record.
    pub geometry: Option<Geometry>,
    /// Blocks in the order of their records.
    pub blocks: Vec<BlockRecord>,
    /// Gap records.
    pub gaps: Vec<Gap>,
    /// Runs of blocks that `recover` found without records: first sequence, count.
    pub found: Vec<(u64, u64)>,
    /// How many of the blocks were durable at the last mark.
    pub durable: usize,
    /// Records that can be trusted.
    pub records: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Whether what lies behind the records is more than zeroes.
    pub torn: bool,
    /// A stream number other than ours in a record that is otherwise good.
    pub foreign_stream: Option<u16>,
}

impl Index {
    /// Reads the index of a stream of a scan.
    pub fn read(path: &Path, scan: Uuid, stream: u16) -> io::Result<Self> {
        Self::read_by(path, Codec::of_scan(scan), stream)
    }

    /// By what codec it was written, and for which stream, by its own words. Any bytes are a record to some codec, so
    /// the one that opens it has to say what can be.
    pub fn label(path: &Path) -> Option<(Codec, u16)> {
        use std::os::unix::fs::FileExt;
        let mut record = [0; RECORD_BYTES];
        File::open(path).ok()?.read_exact_at(&mut record, 0).ok()?;
        let codec = Codec::of_record(&record);
        let (number, entry) = codec.decode(&record).ok()?;
        let Entry::Header { frame_bytes, block_bytes, chunk_blocks, .. } = entry else {
            return None;
        };
        let geometry = Geometry { frame_bytes, block_bytes, chunk_blocks };
        let plain = codec.encode(number, &entry) == record;
        (plain && check_geometry(&geometry).is_ok()).then_some((codec, number))
    }

    /// Reads the index of a stream whose records were written by this codec.
    pub fn read_by(path: &Path, codec: Codec, stream: u16) -> io::Result<Self> {
        let file = File::open(path)?;
        let mut index = Self { file_bytes: file.metadata()?.len(), ..Self::default() };
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let mut record = [0; RECORD_BYTES];
        loop {
            let got = read_full(&mut reader, &mut record)?;
            if got < RECORD_BYTES {
                index.torn |= record[..got].iter().any(|&byte| byte != 0);
                return Ok(index);
            }
            match codec.decode(&record) {
                Ok((number, entry)) if number == stream => index.take(entry),
                Ok((number, _)) => {
                    index.foreign_stream = Some(number);
                    index.torn = true;
                    return Ok(index);
                }
                Err(_) => {
                    index.torn = record != [0; RECORD_BYTES] || !only_zeroes(&mut reader)?;
                    return Ok(index);
                }
            }
        }
    }

    /// Bytes of the records that can be trusted.
    pub fn trusted_bytes(&self) -> u64 {
        self.records * RECORD_BYTES as u64
    }

    fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Header { member, frame_bytes, block_bytes, chunk_blocks } => {
                let geometry = Geometry { frame_bytes, block_bytes, chunk_blocks };
                self.member = Some(member);
                self.geometry = Some(geometry).filter(|it| check_geometry(it).is_ok());
            }
            Entry::Block(block) => self.blocks.push(BlockRecord { block, lengths: None }),
            Entry::Lengths { sequence, .. } => {
                let last = self.blocks.last_mut().filter(|last| last.block.sequence == sequence);
                if let Some(last) = last {
                    let (_, count) = last.lengths.get_or_insert((self.records, 0));
                    *count += 1;
                }
            }
            Entry::Gap(gap) => self.gaps.push(gap),
            Entry::Mark { blocks, .. } => {
                let blocks = usize::try_from(blocks).unwrap_or(usize::MAX);
                self.durable = blocks.min(self.blocks.len());
            }
            Entry::Found { first, count } => self.found.push((first, count)),
        }
        self.records += 1;
    }
}

/// Reads the lengths of the frames that begin in a block.
pub fn read_lengths(path: &Path, scan: Uuid, at: (u64, u32)) -> io::Result<Vec<u16>> {
    use std::os::unix::fs::FileExt;
    let file = File::open(path)?;
    let codec = Codec::of_scan(scan);
    let mut record = [0; RECORD_BYTES];
    let mut all = Vec::new();
    for number in at.0..at.0 + u64::from(at.1) {
        file.read_exact_at(&mut record, number * RECORD_BYTES as u64)?;
        match codec.decode(&record) {
            Ok((_, Entry::Lengths { lengths, .. })) => all.extend(lengths),
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "no record of lengths")),
        }
    }
    Ok(all)
}

fn read_full(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn only_zeroes(reader: &mut impl Read) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    loop {
        let got = read_full(reader, &mut buffer)?;
        if buffer[..got].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        if got < buffer.len() {
            return Ok(true);
        }
    }
}

/// All directories of one scan on all roots, and the manifest that they agree on.
#[derive(Debug)]
pub struct Inventory {
    /// The roots looked at.
    pub roots: Vec<Root>,
    /// Roots that were given and cannot be used.
    pub failed_roots: Vec<RootError>,
    /// What lies on them, by directory name, then root.
    pub holdings: Vec<Holding>,
    /// The manifest believed: the one that says most.
    pub manifest: Manifest,
    /// Where it was read.
    pub manifest_path: PathBuf,
}

/// All directories of one scan on all roots, whatever their manifests say.
#[derive(Debug)]
pub struct Found {
    /// The roots looked at.
    pub roots: Vec<Root>,
    /// Roots that were given and cannot be used.
    pub failed_roots: Vec<RootError>,
    /// What lies on them, by directory name, then root.
    pub holdings: Vec<Holding>,
}

impl Found {
    /// Looks at all directories of a scan.
    pub fn look(paths: &[PathBuf], scan: &ScanName) -> Result<Self, Error> {
        let (roots, failed_roots) = open_roots(paths)?;
        let scan = scan.to_string();
        let mut holdings = Vec::new();
        for (number, root) in roots.iter().enumerate() {
            for name in directories(&root.path, &scan) {
                holdings.extend(Holding::look(number, &root.path, &name));
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

/// A scan that cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// None of the roots can be used.
    #[error("no directory of the store can be read: {}", listed(roots))]
    Roots {
        /// Each with its reason.
        roots: Vec<RootError>,
    },
    /// No root has a directory of this name.
    #[error("there is no scan {scan} under {}", paths(roots))]
    NoScan {
        /// The name asked for.
        scan: String,
        /// Where it was looked for.
        roots: Vec<PathBuf>,
    },
    /// Every copy of the manifest is gone or unreadable.
    #[error("scan {scan}: no copy of its manifest can be read: {}", why.join("; "))]
    NoManifest {
        /// The scan.
        scan: String,
        /// Each copy with its reason.
        why: Vec<String>,
    },
    /// Two scans of one name on different members.
    #[error(
        "two different scans are called {scan}: {} and {}", first.display(), second.display()
    )]
    TwoScans {
        /// The name.
        scan: String,
        /// A manifest of the one.
        first: PathBuf,
        /// A manifest of the other.
        second: PathBuf,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Roots { .. } => Some("give the members with --store DIR[,DIR…]"),
            Error::NoScan { .. } => Some("`fullbore ls` lists the scans of a store"),
            Error::NoManifest { .. } => Some(
                "`fullbore recover` makes one from index and chunk files; these are plain: joined in the order of \
                 their numbers they are the stream",
            ),
            Error::TwoScans { .. } => Some("name with --store only the members of one of them"),
        }
    }
}

fn listed(roots: &[RootError]) -> String {
    roots.iter().map(|error| error.to_string()).collect::<Vec<_>>().join("; ")
}

fn paths(roots: &[PathBuf]) -> String {
    roots.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Opens those roots that can be opened; an error only when none can.
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
    // A root without its member file is known by the place it was recorded at.
    let known = |path: &Path| roots.iter().any(|root| root.uuid.is_none() && root.path == path);
    manifest.members.iter().filter(move |member| !given(member.uuid) && !known(&member.path))
}

/// Whether a directory of this name belongs to the scan.
pub fn is_of_scan(directory: &str, scan: &str) -> bool {
    directory == scan || directory.strip_prefix(scan).is_some_and(|rest| rest.starts_with("_ds"))
}

impl Inventory {
    /// Looks at all directories of a scan.
    pub fn take(paths: &[PathBuf], scan: &ScanName) -> Result<Self, Error> {
        let Found { roots, failed_roots, mut holdings } = Found::look(paths, scan)?;
        let (manifest, manifest_path) = agree(&scan.to_string(), &holdings)?;
        for holding in holdings.iter_mut().filter(|it| it.manifest.get().is_none()) {
            if let Some(renamed) = renamed_in(&manifest, &holding.name).cloned() {
                holding.number_by(renamed);
            }
        }
        Ok(Self { roots, failed_roots, holdings, manifest, manifest_path })
    }

    /// What the members hold of a stream.
    pub fn of_stream(&self, number: usize) -> impl Iterator<Item = &Holding> {
        let directory = self.manifest.streams[number].directory.as_str();
        self.holdings.iter().filter(move |holding| holding.name == directory)
    }

    /// Members of the manifest that are not among the roots.
    pub fn absent_members(&self) -> Vec<&Member> {
        absent_members(&self.roots, &self.manifest).collect()
    }

    /// The manifest that carries the lock: the one on the scan's first member, or the believed copy
    /// where that member is not given.
    pub fn lock_path(&self) -> PathBuf {
        let first = self.manifest.members.first();
        let root =
            first.and_then(|member| self.roots.iter().find(|root| root.uuid == Some(member.uuid)));
        root.and_then(|root| super::lock::lock_path(&root.path, &self.manifest))
            .filter(|path| path.exists())
            .unwrap_or_else(|| self.manifest_path.clone())
    }
}

/// What a manifest says of the numbers of the files in a directory.
fn renamed_in<'a>(manifest: &'a Manifest, directory: &str) -> Option<&'a Renamed> {
    manifest.streams.iter().find(|stream| stream.directory == directory)?.renamed.as_ref()
}

/// Directories of a scan on a root, in order. A root that cannot be listed has none.
fn directories(root: &Path, scan: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(root) else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| is_of_scan(name, scan)).collect();
    names.sort_unstable();
    names
}

/// How much a copy of the manifest says.
fn rank(state: State) -> u8 {
    match state {
        State::Recording => 0,
        State::Recovered => 1,
        State::Aborted | State::Sealed => 2,
    }
}

/// The copy that says most. Copies of another scan are an error: nobody can tell which is meant.
fn agree(scan: &str, holdings: &[Holding]) -> Result<(Manifest, PathBuf), Error> {
    let read = |holding: &Holding| {
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
    let best = copies
        .into_iter()
        .max_by_key(|(_, m)| (rank(m.state), m.blocks(), m.streams.len(), m.renaming()));
    best.map(|(path, manifest)| (manifest, path)).ok_or_else(|| Error::NoManifest {
        scan: scan.to_owned(),
        why: holdings.iter().map(why_no_manifest).collect(),
    })
}

fn why_no_manifest(holding: &Holding) -> String {
    let path = holding.side(MANIFEST_FILE);
    match &holding.manifest {
        Copy::Unreadable(why) => format!("{}: {why}", path.display()),
        _ => format!("{}: not there", path.display()),
    }
}

/// How much a manifest says.
trait Says {
    /// Blocks of all streams.
    fn blocks(&self) -> u64;
    /// How far the renaming of each stream is.
    fn renaming(&self) -> Vec<Option<(u32, Stage)>>;
}

impl Says for Manifest {
    fn blocks(&self) -> u64 {
        self.streams.iter().map(|stream| stream.blocks).sum()
    }

    fn renaming(&self) -> Vec<Option<(u32, Stage)>> {
        let of = |renamed: &Renamed| (renamed.round, renamed.stage);
        self.streams.iter().map(|it| it.renamed.as_ref().map(of)).collect()
    }
}

/// Chunk files of a stream by number, over all members, with who holds each.
pub fn chunks_by_number<'a>(
    holdings: impl Iterator<Item = &'a Holding>,
) -> BTreeMap<u32, Vec<(&'a Holding, &'a ChunkFile)>> {
    let mut all: BTreeMap<u32, Vec<_>> = BTreeMap::new();
    for holding in holdings {
        for (number, file) in &holding.chunks {
            all.entry(*number).or_default().push((holding, file));
        }
    }
    all
}
