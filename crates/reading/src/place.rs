//! What a path or a name means: a store, or a scan in one.

use std::path::{Path, PathBuf};

use fullbore_core::manifest::{MANIFEST_FILE, Manifest};
use fullbore_core::name::{Name, ScanName};
use fullbore_store::catalogue::{self, Selected};
use fullbore_store::inventory::{Copy, read_manifest, side_file};
use fullbore_transfer::objects::Address;

use crate::error::ReadError;

/// A place to read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The directories of a store.
    Store(Vec<PathBuf>),
    /// A scan, or a stream of it.
    Scan {
        /// The directories of its store.
        roots: Vec<PathBuf>,
        /// Its name.
        scan: ScanName,
        /// The stream that was named.
        stream: Option<Name>,
    },
}

impl Place {
    /// True if a text has the form of the address of a copy in an object store, which
    /// [`OpenScan::open_copy`](crate::OpenScan::open_copy) opens.
    pub fn is_address(text: &str) -> bool {
        Address::is_meant(text)
    }

    /// Finds out what a text means. With the directories of a store, it is the name of a scan in it, or the beginning of
    /// one. Without, it is a path: of a store, of a stream's directory, or of a scan below a store, whose name need not be
    /// that of a directory (`store/session_scan`).
    pub fn find(text: &str, roots: &[PathBuf]) -> Result<Self, ReadError> {
        if !roots.is_empty() {
            let name = text.strip_prefix("store:").unwrap_or(text);
            let Selected { scan, stream } = catalogue::find(roots, name)?;
            return Ok(Self::Scan { roots: roots.to_vec(), scan, stream });
        }
        let path = Path::new(text);
        let nothing = || ReadError::NoPlace { place: text.to_owned() };
        let name = path.file_name().and_then(|name| name.to_str());
        if path.is_dir() {
            let own = read_manifest(&side_file(path, MANIFEST_FILE));
            return match (own, name) {
                (Copy::Read(manifest), _) => {
                    let parent = path.canonicalize().ok();
                    let parent = parent.as_deref().and_then(Path::parent).ok_or_else(nothing)?;
                    Ok(Self::of_directory(parent, name.unwrap_or_default(), &manifest))
                }
                (_, Some(name)) if ScanName::of_directory(name).is_some() => {
                    Self::below(path, name).map_err(|_| nothing())
                }
                _ => Ok(Self::Store(vec![path.to_owned()])),
            };
        }
        let name = name.ok_or_else(nothing)?;
        Self::below(path, name).map_err(|error| match error {
            ReadError::Find(catalogue::Error::Roots(_) | catalogue::Error::NoScan { .. }) => {
                nothing()
            }
            error => error,
        })
    }

    /// A scan by the path of one of its directories. All members that its manifest names and that are there belong to it.
    fn of_directory(parent: &Path, name: &str, manifest: &Manifest) -> Self {
        let mut roots = vec![parent.to_owned()];
        let others = manifest.members.iter().map(|member| member.path.clone());
        for root in others.filter(|root| root.is_dir()) {
            let known = root.canonicalize().unwrap_or_else(|_| root.clone());
            if !roots.contains(&known) {
                roots.push(known);
            }
        }
        let stream = ScanName::of_directory(name).and_then(|(_, stream)| stream);
        Self::Scan { roots, scan: manifest.scan.clone(), stream }
    }

    /// A scan by its name below a directory of the store.
    fn below(path: &Path, name: &str) -> Result<Self, ReadError> {
        let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let Selected { scan, stream } = catalogue::find(&[parent.to_owned()], name)?;
        let first = directory_of(parent, &scan);
        match first.map(|directory| read_manifest(&side_file(&directory, MANIFEST_FILE))) {
            Some(Copy::Read(manifest)) => {
                let parent = parent.canonicalize().unwrap_or_else(|_| parent.to_owned());
                let found = Self::of_directory(&parent, name, &manifest);
                let Self::Scan { roots, scan, .. } = found else { return Ok(found) };
                Ok(Self::Scan { roots, scan, stream })
            }
            _ => Ok(Self::Scan { roots: vec![parent.to_owned()], scan, stream }),
        }
    }
}

/// A directory of a scan below a root: that of any of its streams.
fn directory_of(root: &Path, scan: &ScanName) -> Option<PathBuf> {
    let entries = std::fs::read_dir(root).ok()?.flatten();
    let mut names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_of_scan =
        |name: &String| ScanName::of_directory(name).is_some_and(|(found, _)| found == *scan);
    names.find(is_of_scan).map(|name| root.join(name))
}

#[cfg(test)]
mod tests {
    use fullbore_store::testing::{Store, StreamPlan};

    use super::*;

    #[test]
    fn a_scan_is_found_by_each_of_its_paths_and_by_its_name() {
        let store = Store::new(2);
        let laid = store.lay_down("s_one", &[StreamPlan::vdif("a"), StreamPlan::vdif("b")]);
        let roots: Vec<PathBuf> =
            store.roots().iter().map(|root| root.canonicalize().unwrap()).collect();
        for path in [roots[1].join("s_one_dsb"), roots[1].join("s_one"), roots[1].join("s_on")] {
            let found = Place::find(path.to_str().unwrap(), &[]).unwrap();
            let Place::Scan { roots: mut of_scan, scan, stream } = found else {
                panic!("{path:?}")
            };
            of_scan.sort();
            let mut all = roots.clone();
            all.sort();
            assert_eq!((of_scan, scan), (all, laid.name.clone()), "{path:?}");
            assert_eq!(stream.is_some(), path.ends_with("s_one_dsb"), "{path:?}");
        }
        let found = Place::find("store:s_one/a", &roots).unwrap();
        assert!(matches!(found, Place::Scan { stream: Some(_), .. }), "{found:?}");
        let store = roots[0].to_str().unwrap();
        assert_eq!(Place::find(store, &[]).unwrap(), Place::Store(vec![roots[0].clone()]));
    }

    #[test]
    fn a_place_without_a_recording_is_told_with_advice() {
        use fullbore_core::hint::Hint;
        let place = tempfile::tempdir().unwrap();
        for text in [place.path().join("no/where"), place.path().join("s_one"), "".into()] {
            let error = Place::find(text.to_str().unwrap(), &[]).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::NotFound, "{error}");
            assert!(error.hint().is_some(), "{error}");
        }
    }
}
