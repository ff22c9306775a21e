//! The files in a stream's directory on one member.

use std::io;
use std::path::{Path, PathBuf};

use fullbore_core::account::Account;
use fullbore_core::chunk_map::Renumbering;
use fullbore_core::layout::{chunk_file, chunk_number};
use fullbore_core::manifest::{ACCOUNT_FILE, MANIFEST_FILE, Manifest, SIDE_DIRECTORY};

use super::copies::{Copy, read_account, read_manifest};
use super::{PART_SUFFIX, RENAMING_SUFFIX, SUPERSEDED_SUFFIX, renamed_in};
use crate::redundancy;

/// Returns the path of a file in the side directory of a stream.
pub fn side_file(directory: &Path, file: &str) -> PathBuf {
    directory.join(SIDE_DIRECTORY).join(file)
}

/// A chunk file, complete or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkFile {
    /// The path.
    pub path: PathBuf,
    /// The visible size.
    pub bytes: u64,
    /// True if the file has its working name.
    pub unfinished: bool,
}

/// The files of one stream on one member.
#[derive(Debug)]
pub struct MemberFiles {
    /// The index of its root.
    pub root: usize,
    /// The name of the directory, the same on every member.
    pub name: String,
    /// The path.
    pub path: PathBuf,
    /// Chunk files by the number in the index. A number can occur twice: finished and unfinished.
    pub chunks: Vec<(u32, ChunkFile)>,
    /// The numbers of the files, if they differ from those in the index.
    pub renamed: Option<Renumbering>,
    /// Chunk files that `recover` renamed away because another member holds them as well.
    pub superseded: Vec<PathBuf>,
    /// Parity of the stream's chunks and the records beside it, finished or not.
    pub redundant: Vec<PathBuf>,
    /// The manifest's copy.
    pub manifest: Copy<Manifest>,
    /// Entries that this program did not make.
    pub strangers: Vec<PathBuf>,
    /// Directories that could not be listed, and the reasons.
    pub unlisted: Vec<(PathBuf, String)>,
}

impl MemberFiles {
    /// Lists the directory `name` on a root. `None` if there is no such directory.
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
            redundant: Vec::new(),
            strangers: Vec::new(),
            unlisted: Vec::new(),
        };
        holding.list_chunks();
        holding.list_parts();
        holding.chunks.sort_by_key(|(number, file)| (*number, file.unfinished));
        // The manifest in this directory describes this directory, even if other copies differ.
        if let Some(renamed) = holding.manifest.get().and_then(|it| renamed_in(it, name)).cloned() {
            holding.number_by(renamed);
        }
        Some(holding)
    }

    /// Assigns the index's chunk numbers to the files.
    pub(super) fn number_by(&mut self, renamed: Renumbering) {
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

    /// Returns the path of a complete chunk's file, existing or not.
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

    /// Returns the file of a chunk, the finished one if there are two.
    pub fn chunk(&self, number: u32) -> Option<&ChunkFile> {
        let at = self.chunks.partition_point(|(other, _)| *other < number);
        self.chunks.get(at).filter(|(other, _)| *other == number).map(|(_, file)| file)
    }

    /// Complete parity chunks, by their names.
    pub fn parity(&self) -> impl Iterator<Item = &PathBuf> {
        self.redundant.iter().filter(|path| redundancy::is_parity(&self.name, path))
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
            if redundancy::is_ours(&self.name, &name) {
                self.redundant.push(path);
                continue;
            }
            let renaming = name.strip_suffix(RENAMING_SUFFIX);
            let whole = renaming.or(name.strip_suffix(PART_SUFFIX)).unwrap_or(&name);
            match chunk_number(&self.name, whole) {
                Some(number) if metadata.is_file() => {
                    self.add(number, path, metadata.len(), renaming.is_none());
                }
                Some(_) => self.strangers.push(path),
                None => {}
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
