//! The files of a container: their names, and what happens to files that exist already.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_containers::{SampleError, SampleFormat, SampleOptions};
use fullbore_core::container::Template;
use fullbore_core::name::Name;
use fullbore_hdf5::{self as hdf5, Existing, Options, beside, is_there, numbered};
use fullbore_linux::place::folder_of;
use fullbore_store::file_system;

use super::file::ContainerError;
use crate::error::RecordError;

/// A container file as the sink of a recording.
#[derive(Clone, Debug)]
pub struct ContainerConfig {
    /// The file, or a [`Template`]: `%d` is the number of the scan. With several streams, each has its own file beside
    /// it, and this file is the master file.
    pub template: PathBuf,
    /// The format of the files.
    pub format: ContainerFormat,
    /// Names of the streams that are known beforehand.
    pub streams: Vec<Name>,
    /// True if there is one stream, and no other can be discovered.
    pub single: bool,
    /// True if a source other than a PandA is among the sources. Its frames or bytes go through the page cache.
    pub has_rows: bool,
    /// The number of scans; `None`: until a stop.
    pub scans: Option<u64>,
    /// Writes the acquisition of a PandA into another file beside the intended one if that one cannot take it: an
    /// acquisition cannot be repeated.
    pub alternate_path: bool,
}

/// The format of the files, with its options.
#[derive(Clone, Debug)]
pub enum ContainerFormat {
    /// HDF5.
    Hdf5(Options),
    /// Samples without frames. There is no file that shows all streams.
    Samples {
        /// How samples are written.
        options: SampleOptions,
        /// The time between two syncs.
        flush: Duration,
    },
}

impl ContainerFormat {
    /// The longest time until readers see new data.
    pub(super) fn flush(&self) -> Duration {
        match self {
            Self::Hdf5(options) => options.flush,
            Self::Samples { flush, .. } => *flush,
        }
    }
}

impl ContainerConfig {
    /// The file of a scan, counted from 1, that shows all of its streams.
    pub(super) fn path(&self, scan: u64) -> PathBuf {
        self.numbered(&self.template, scan)
    }

    /// The file of a stream.
    pub(super) fn path_of(&self, scan: u64, stream: &str) -> PathBuf {
        self.numbered(&self.template_of(stream), scan)
    }

    fn numbered(&self, template: &Path, scan: u64) -> PathBuf {
        match self.format {
            ContainerFormat::Hdf5(_) => numbered(template, scan),
            ContainerFormat::Samples { .. } => template.to_owned(),
        }
    }

    /// The file that shows or lists all streams of a scan, if there is one.
    pub(super) fn master(&self, scan: u64) -> Option<PathBuf> {
        match &self.format {
            _ if self.single => None,
            ContainerFormat::Hdf5(_) => Some(self.path(scan)),
            ContainerFormat::Samples { options, .. } => options.format.list_of(&self.template),
        }
    }

    /// The directory of the files.
    pub(super) fn folder(&self) -> &Path {
        folder_of(&self.template)
    }

    fn template_of(&self, stream: &str) -> PathBuf {
        match self.single {
            true => self.template.clone(),
            false => beside(&self.template, stream),
        }
    }

    /// True if all scans go into one file.
    fn is_one(&self) -> bool {
        self.path(1) == self.path(2)
    }

    /// True if a scan continues the files of the scan before.
    pub(super) fn continues(&self, scan: u64) -> bool {
        scan > 1 && self.is_one()
    }

    /// The options for an HDF5 file of a scan. Later scans continue the file of the first.
    pub(super) fn options_of(&self, options: &Options, path: &Path, scan: u64) -> Options {
        let mut options = options.clone();
        if self.is_one() && self.scans != Some(1) {
            if scan == 1 && options.existing == Existing::Overwrite {
                // A file that cannot be removed cannot be continued either, and opening it reports that.
                let _ = hdf5::remove_old(path);
            }
            if scan > 1 || !is_there(path) {
                options.existing = Existing::Append;
            }
        }
        options
    }

    /// Refuses files that exist, or that cannot be continued or replaced if that is requested. Files of threads that are
    /// not discovered yet are checked when they are created.
    pub fn check(&self) -> Result<(), RecordError> {
        hdf5::check_place(&self.path(1))?;
        match &self.format {
            ContainerFormat::Hdf5(options) => self.check_hdf5(options),
            ContainerFormat::Samples { options, .. } => self.check_samples(options.format),
        }
    }

    fn check_samples(&self, format: SampleFormat) -> Result<(), RecordError> {
        let files = self.streams.iter().map(|stream| self.path_of(1, stream.as_str()));
        let files = files.flat_map(|path| format.files(&path)).chain(self.master(1));
        match files.into_iter().find(|path| is_there(path)) {
            Some(path) => Err(ContainerError::from(SampleError::Exists { path }).into()),
            None => Ok(()),
        }
    }

    fn check_hdf5(&self, options: &Options) -> Result<(), RecordError> {
        for stream in &self.streams {
            for path in taken(&self.template_of(stream.as_str()), self.scans) {
                match options.existing {
                    Existing::Refuse => return Err(hdf5::Error::Exists { path }.into()),
                    Existing::Append => hdf5::check_continuable(&path, options.compression)?,
                    Existing::Overwrite => hdf5::check_replaceable(&path)?,
                }
            }
        }
        let masters = if self.single { Vec::new() } else { taken(&self.template, self.scans) };
        for path in masters {
            match options.existing {
                Existing::Refuse => return Err(hdf5::Error::Exists { path }.into()),
                Existing::Append => drop(hdf5::check_master(&path)?),
                Existing::Overwrite => hdf5::check_replaceable(&path)?,
            }
        }
        Ok(())
    }

    /// A warning about a network file system, which may be slower than the sources.
    pub(super) fn warning_of_place(&self) -> Option<String> {
        warning_of(&file_system(self.folder()).ok()?, self.folder())
    }

    /// Creates the master file of a scan, or renews it. Returns its path, if there is one.
    pub(super) fn show(
        &self,
        scan: u64,
        streams: &[(&str, &Path)],
    ) -> Result<Option<PathBuf>, ContainerError> {
        let Some(master) = self.master(scan).filter(|_| !streams.is_empty()) else {
            return Ok(None);
        };
        match &self.format {
            ContainerFormat::Hdf5(options) => self.show_hdf5(options, scan, &master, streams)?,
            ContainerFormat::Samples { options, .. } => {
                let paths: Vec<PathBuf> = streams.iter().map(|(_, path)| path.into()).collect();
                let path = master.clone();
                let listed = options.format.list(&self.template, &paths);
                listed.map_err(|source| SampleError::Write { path, source })?;
            }
        }
        Ok(Some(master))
    }

    fn show_hdf5(
        &self,
        options: &Options,
        scan: u64,
        master: &Path,
        streams: &[(&str, &Path)],
    ) -> Result<(), hdf5::Error> {
        if options.existing == Existing::Append || self.continues(scan) {
            return hdf5::join_anew(master, streams);
        }
        if options.existing == Existing::Overwrite && is_there(master) {
            hdf5::remove_old(master)?;
        }
        hdf5::join(master, streams)
    }
}

/// The existing files among those of the scans, or of any number of scans if `None`, in their order.
fn taken(template: &Path, scans: Option<u64>) -> Vec<PathBuf> {
    let path = |scan| numbered(template, scan);
    let (first, most) = (path(1), scans.unwrap_or(u64::MAX));
    if first == path(2) || most == 1 {
        return Some(first).filter(|path| is_there(path)).into_iter().collect();
    }
    // The directory is searched, because any number of scans may be requested.
    let Ok(names) = Template::of(template) else { return Vec::new() };
    let entries = std::fs::read_dir(folder_of(template)).into_iter().flatten();
    let numbers = entries.filter_map(|entry| names.number(entry.ok()?.file_name().to_str()?));
    let mut numbers: Vec<u64> = numbers.filter(|number| (1..=most).contains(number)).collect();
    numbers.sort_unstable();
    numbers.into_iter().map(path).collect()
}

fn warning_of(file_system: &str, folder: &Path) -> Option<String> {
    matches!(file_system, "nfs" | "smb").then(|| {
        format!(
            "{} is on a network file system ({file_system}): it may be slower than the sources, so that data is lost, \
             and readers may not see the file grow; record onto a local disk, and copy",
            folder.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_there_will_be_is_looked_for_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let there = |name: &str| std::fs::write(folder.path().join(name), b"").unwrap();
        let first = |name: &str, most| {
            let path = taken(&folder.path().join(name), most).into_iter().next()?;
            Some(path.file_name().unwrap().to_string_lossy().into_owned())
        };
        there("a-7.h5");
        there("a-12.h5");
        there("a-03.h5");
        there("b.h5");
        assert_eq!(first("a-%d.h5", Some(6)), None);
        assert_eq!(first("a-%d.h5", Some(7)), Some("a-7.h5".into()));
        assert_eq!(first("a-%d.h5", None), Some("a-7.h5".into()));
        assert_eq!(first("a-%d.h5", Some(u64::MAX)), Some("a-7.h5".into()));
        assert_eq!(first("c-%d.h5", None), None);
        assert_eq!(first("a-%02d.h5", Some(3)), Some("a-03.h5".into()));
        // The name of a broken link is taken too.
        std::os::unix::fs::symlink("nowhere", folder.path().join("d.h5")).unwrap();
        assert_eq!(first("d.h5", Some(1)), Some("d.h5".into()));
        assert_eq!(first("b.h5", Some(3)), Some("b.h5".into()));
    }

    #[test]
    fn a_place_on_another_machine_is_warned_of_before_anything_is_armed() {
        let folder = Path::new("/scratch");
        for kind in ["nfs", "smb"] {
            let text = warning_of(kind, folder).unwrap();
            assert!(
                text.contains("/scratch") && text.contains(kind) && text.contains("local disk")
            );
        }
        assert_eq!(warning_of("ext4", folder), None);
    }
}
