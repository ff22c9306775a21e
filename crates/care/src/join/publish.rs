//! Makes the directories of the new scan aside, syncs them, and renames them into sight.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use fullbore_core::account::Account;
use fullbore_core::index::{Codec, Entry};
use fullbore_core::layout::chunk_file;
use fullbore_core::manifest::{
    ACCOUNT_FILE, INDEX_FILE, MANIFEST_FILE, Manifest, SIDE_DIRECTORY, Stream,
};
use fullbore_linux::clock::Clock;
use fullbore_store::inventory::{Inventory, read_manifest, side_file};
use fullbore_store::lock::{put_file, sync_directory};

use super::Error;
use super::index::{Part, Parts};

/// Makes all directories, then renames each into sight.
pub fn publish(
    pieces: &[Inventory],
    manifest: &Manifest,
    accounts: &[Account],
    mut parts: Parts,
) -> Result<(), Error> {
    let places = places(pieces, manifest);
    for place in &places {
        place.refuse_other(manifest)?;
    }
    for place in places.iter().filter(|it| !it.is_published(manifest)) {
        let part = parts.remove(&(place.number, place.root.clone())).unwrap_or_default();
        place.make(manifest, &accounts[place.number], part)?;
    }
    for place in places.iter().filter(|it| !it.is_published(manifest)) {
        place.show()?;
    }
    for aside in places.iter().map(|place| &place.aside) {
        // It is empty; a directory that another stream still uses was removed before.
        let _ = std::fs::remove_dir(aside);
    }
    Ok(())
}

/// The directory of one stream on one member.
struct Place<'m> {
    number: usize,
    stream: &'m Stream,
    root: PathBuf,
    /// `<root>/.fullbore/joining-<uuid>`.
    aside: PathBuf,
}

/// Every directory that the pieces have.
fn places<'m>(pieces: &[Inventory], manifest: &'m Manifest) -> Vec<Place<'m>> {
    let mut roots: Vec<PathBuf> = Vec::new();
    for piece in pieces {
        roots.extend(piece.holdings.iter().map(|holding| piece.roots[holding.root].path.clone()));
    }
    roots.sort();
    roots.dedup();
    let of_root = |root: PathBuf| {
        let aside = root.join(SIDE_DIRECTORY).join(format!("joining-{}", manifest.uuid));
        let streams = manifest.streams.iter().enumerate();
        streams.map(move |(number, stream)| {
            let (root, aside) = (root.clone(), aside.clone());
            Place { number, stream, root, aside }
        })
    };
    roots.into_iter().flat_map(of_root).collect()
}

impl Place<'_> {
    fn shown(&self) -> PathBuf {
        self.root.join(&self.stream.directory)
    }

    /// True if an earlier attempt has renamed it into sight.
    fn is_published(&self, manifest: &Manifest) -> bool {
        let copy = read_manifest(&side_file(&self.shown(), MANIFEST_FILE));
        copy.get().is_some_and(|it| it.uuid == manifest.uuid)
    }

    fn refuse_other(&self, manifest: &Manifest) -> Result<(), Error> {
        match self.shown().exists() && !self.is_published(manifest) {
            true => Err(Error::Taken { scan: manifest.scan.clone() }),
            false => Ok(()),
        }
    }

    fn make(&self, manifest: &Manifest, account: &Account, part: Part) -> Result<(), Error> {
        let directory = self.aside.join(&self.stream.directory);
        match std::fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed(&directory, "removing an earlier attempt")(error));
            }
            _ => {}
        }
        let side = directory.join(SIDE_DIRECTORY);
        std::fs::create_dir_all(&side).map_err(failed(&side, "making the directory"))?;
        for (chunk, number) in &part.chunks {
            let link = directory.join(chunk_file(&self.stream.directory, *number));
            std::fs::hard_link(chunk, &link).map_err(failed(&link, "linking a chunk file"))?;
        }
        let put = |file: &str, bytes: &[u8]| {
            let path = side.join(file);
            put_file(&path, bytes).map_err(failed(&path, "writing"))
        };
        if !part.records.is_empty() {
            let mark = Entry::Mark { blocks: part.blocks, at: Clock::new().now() };
            let mark = Codec::of_scan(manifest.uuid).encode(self.number as u16, &mark);
            put(INDEX_FILE, &[part.records.as_slice(), &mark].concat())?;
        }
        put(ACCOUNT_FILE, &account.to_json())?;
        put(MANIFEST_FILE, &manifest.to_json())?;
        self.sync(&directory)
    }

    /// Makes the names of the new directory durable.
    fn sync(&self, directory: &Path) -> Result<(), Error> {
        for path in [directory, &self.aside] {
            sync_directory(path).map_err(failed(path, "syncing"))?;
        }
        Ok(())
    }

    fn show(&self) -> Result<(), Error> {
        let shown = self.shown();
        let made = self.aside.join(&self.stream.directory);
        std::fs::rename(made, &shown).map_err(failed(&shown, "renaming the directory"))?;
        sync_directory(&self.root).map_err(failed(&self.root, "syncing"))
    }
}

fn failed<'p>(path: &'p Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error + 'p {
    move |source| Error::File { path: path.to_owned(), doing, source }
}
