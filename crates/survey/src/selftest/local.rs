//! A local target: a directory, a file, or a block device.

use std::borrow::Cow;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::device::Direction;
use fullbore_core::hint::Hint;
use fullbore_core::units::ByteSize;
use fullbore_linux::ring::Notifier;
use fullbore_linux::sys::uring::{DONTCACHE, Ring, RingError};

use super::medium::{Link, Look, Medium, Moved, Transfer, transfers};
use super::run::CHUNK;
use crate::bench::disk::Error as PlaceError;
use crate::bench::disk::target::{Place, Scratch};
use crate::bench::environment::{Roots, text};
use crate::bench::result::{Mode, TargetKind};

/// The part of a target to use.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The most bytes.
    pub most: u64,
    /// Bytes of a file system that stay free; `None`: a twentieth of the free space.
    pub reserve: Option<u64>,
}

/// An error of opening a target.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The target is in use, has content, or cannot be written.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The kernel's ring is not available.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// Space cannot be allocated.
    #[error("{}: allocating {} of space: {source}", path.display(), ByteSize(*bytes))]
    Space {
        /// The directory.
        path: PathBuf,
        /// The number of bytes.
        bytes: u64,
        /// The kernel's error.
        source: io::Error,
    },
    /// The target cannot be opened.
    #[error("{}: cannot be opened for testing: {source}", path.display())]
    Open {
        /// The target.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

impl Hint for OpenError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Place(PlaceError::Holds { path, .. }) => Some(Cow::Owned(format!(
                "if all of it can go, type its name once more: --overwrite {}",
                path.display()
            ))),
            Self::Place(error) => error.hint(),
            Self::Ring(error) => error.hint(),
            Self::Space { .. } => Some("ask for less with --size, or free some space".into()),
            Self::Open { .. } => None,
        }
    }
}

/// An open target.
pub struct Local {
    ring: Ring,
    file: Arc<OwnedFd>,
    scratch: Scratch,
    place: Place,
    roots: Roots,
    bytes: u64,
    flags: u32,
}

impl Local {
    /// Opens a target. The content of a file or device is overwritten only if `overwrite` is its exact name. In a
    /// directory, no file is overwritten, and none is left.
    pub fn open(
        path: &Path,
        overwrite: Option<&Path>,
        wanted: Wanted,
        roots: Roots,
    ) -> Result<Self, OpenError> {
        let place = Place::open(path, overwrite, &roots)?;
        let cannot = |source| OpenError::Open { path: path.to_owned(), source };
        let scratch = place.scratch().map_err(cannot)?;
        let mut bytes = place.facts.capacity.0;
        if place.facts.kind == TargetKind::Directory {
            let free = place.facts.free.0;
            let reserve = wanted.reserve.unwrap_or(free / 20);
            bytes = free.saturating_sub(reserve).min(wanted.most) / CHUNK * CHUNK;
            let took = |source| OpenError::Space { path: path.to_owned(), bytes, source };
            scratch.take_space(bytes).map_err(took)?;
        }
        let direct = place.takes(Mode::Direct);
        let mode = if direct { Mode::Direct } else { Mode::Buffered };
        let file = scratch.open(mode).map_err(cannot)?;
        let flags = if !direct && place.takes(Mode::Uncached) { DONTCACHE } else { 0 };
        let wake = Arc::new(Notifier::new().map_err(cannot)?);
        let ring = Ring::new(wake)?;
        Ok(Self { ring, file, scratch, place, roots, bytes, flags })
    }

    /// A file in the kernel's directory of the disk.
    fn disk(&self, name: &str) -> Option<String> {
        let device = self.place.facts.device.as_ref()?;
        text(&self.roots.sysfs.join("class/block").join(device).join(name))
    }

    fn lines(&self) -> Vec<String> {
        let facts = &self.place.facts;
        let kind = match facts.kind {
            TargetKind::Directory => "a file without a name in the directory",
            TargetKind::File => "the file",
            TargetKind::BlockDevice => "the block device",
            TargetKind::Host => "the host",
        };
        let mut lines = vec![
            format!("target: {kind} {}", facts.path),
            format!("media size: {} ({:#x}) bytes", self.bytes, self.bytes),
            format!("sector: {} bytes", self.sector_bytes()),
        ];
        lines.push(match (facts.direct, self.flags) {
            (true, _) => "access: direct, past the page cache".into(),
            (false, DONTCACHE) => "access: through the page cache, without staying there".into(),
            (false, _) => {
                "access: through the page cache: rates are not those of the medium".into()
            }
        });
        let mut say = |what: &str, value: &Option<String>| {
            lines.extend(value.as_ref().map(|value| format!("{what}: {value}")));
        };
        say("file system", &facts.file_system);
        say("device", &facts.device);
        say("model", &facts.model);
        say("firmware", &facts.firmware);
        say("write cache", &facts.write_cache);
        lines.extend(self.place.notes.iter().map(|note| note.text.clone()));
        lines
    }
}

/// The longest wait before stop requests are checked.
const PATIENCE: Duration = Duration::from_millis(100);

impl Medium for Local {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn sector_bytes(&self) -> u64 {
        u64::from(self.place.facts.sector_bytes.max(512))
    }

    fn submit(&mut self, transfer: Transfer) {
        let Transfer { token, direction, offset, block, part } = transfer;
        match direction {
            Direction::Write => {
                self.ring.write(token, self.file.clone(), offset, block, part, self.flags);
            }
            Direction::Read => {
                self.ring.read(token, self.file.clone(), offset, block, part, self.flags);
            }
        }
    }

    fn wait(&mut self, into: &mut Vec<Moved>) -> io::Result<()> {
        let mut done = Vec::new();
        self.ring.wait(PATIENCE, &mut done)?;
        into.extend(done.into_iter().map(|done| Moved {
            token: done.token,
            result: done.result,
            block: done.block.expect("a transfer brings its block back"),
        }));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        assert_eq!(self.ring.under_way(), 0, "a sync covers only what has come back");
        self.ring.sync(0, self.file.clone(), false);
        let mut done = Vec::new();
        while self.ring.under_way() > 0 {
            self.ring.wait(PATIENCE, &mut done)?;
        }
        done.into_iter().try_for_each(|done| done.result.map(drop))
    }

    fn syncs_done(&self) -> Option<u64> {
        // Only disks with request queues count flushes, and only those with a cache get any.
        let device = self.place.facts.device.as_ref()?;
        let queued = self.roots.sysfs.join("class/block").join(device).join("mq").exists();
        let volatile = self.disk("queue/write_cache").as_deref() == Some("write back");
        let count = self.disk("stat")?.split_whitespace().nth(FLUSHES)?.parse().ok()?;
        (queued && volatile).then_some(count)
    }

    fn forget(&mut self) -> io::Result<()> {
        self.scratch.forget();
        Ok(())
    }

    fn look(&self) -> Look {
        Look {
            bytes: self.size().unwrap_or(0),
            lines: self.lines(),
            link: self.link(),
            errors: self
                .disk("device/ioerr_cnt")
                .and_then(|count| u64::from_str_radix(count.trim_start_matches("0x"), 16).ok()),
        }
    }
}

/// Index of the completed flushes in a disk's `stat`.
const FLUSHES: usize = 15;

impl Local {
    /// The current size: a failing drive can lose its size.
    fn size(&self) -> io::Result<u64> {
        Ok(rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0))?)
    }

    /// The PCI link of the disk.
    fn link(&self) -> Option<Link> {
        let device = self.place.facts.device.as_ref()?;
        link_of(&pci_device(&self.roots.sysfs.join("class/block").join(device))?)
    }
}

/// The PCI device of a disk: its controller, or the first controller of a multipath drive.
fn pci_device(disk: &Path) -> Option<PathBuf> {
    let device = disk.join("device");
    if let Ok(found) = device.join("device").canonicalize() {
        return Some(found);
    }
    let names = std::fs::read_dir(&device).ok()?.filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut controllers: Vec<_> =
        names.filter(|name| name.as_encoded_bytes().starts_with(b"nvme")).collect();
    controllers.sort();
    controllers.iter().find_map(|name| device.join(name).join("device").canonicalize().ok())
}

/// The link of a PCI device, whose abilities are limited by the port above it.
fn link_of(pci: &Path) -> Option<Link> {
    let width = |path: &Path| text(path)?.parse::<u32>().ok();
    let speed = text(&pci.join("current_link_speed"))?;
    let lanes = width(&pci.join("current_link_width"))?;
    let port = pci.parent();
    let ends = [Some(pci), port];
    let speeds = ends.iter().flatten().filter_map(|end| text(&end.join("max_link_speed")));
    let widths = ends.iter().flatten().filter_map(|end| width(&end.join("max_link_width")));
    Some(Link {
        best_speed: speeds.min_by_key(|it| transfers(it)).unwrap_or_else(|| "Unknown".into()),
        best_width: widths.min().unwrap_or(0),
        port_speed: port.and_then(|port| text(&port.join("current_link_speed"))),
        port_width: port.and_then(|port| width(&port.join("current_link_width"))),
        speed,
        width: lanes,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Creates files below the port of a saved tree.
    fn saved(port: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = port.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_best_of_a_link_is_what_both_ends_can() {
        let tree = tempfile::tempdir().unwrap();
        let port = tree.path().join("0000:00:02.1");
        saved(
            &port,
            &[
                ("max_link_speed", "8.0 GT/s PCIe\n"),
                ("max_link_width", "16\n"),
                ("current_link_speed", "8.0 GT/s PCIe\n"),
                ("current_link_width", "2\n"),
                ("0000:01:00.0/max_link_speed", "16.0 GT/s PCIe\n"),
                ("0000:01:00.0/max_link_width", "4\n"),
                ("0000:01:00.0/current_link_speed", "8.0 GT/s PCIe\n"),
                ("0000:01:00.0/current_link_width", "2\n"),
            ],
        );
        let link = link_of(&port.join("0000:01:00.0")).unwrap();
        assert_eq!((link.best_speed.as_str(), link.best_width), ("8.0 GT/s PCIe", 4));
        assert_eq!((link.speed.as_str(), link.width), ("8.0 GT/s PCIe", 2));
        assert_eq!((link.port_speed.as_deref(), link.port_width), (Some("8.0 GT/s PCIe"), Some(2)));
        assert_eq!(link_of(tree.path()), None);
    }

    #[test]
    fn what_both_ends_can_is_not_made_up_where_it_is_not_told() {
        let tree = tempfile::tempdir().unwrap();
        let port = tree.path().join("0000:00:02.1");
        saved(
            &port,
            &[
                ("0000:01:00.0/current_link_speed", "8.0 GT/s PCIe\n"),
                ("0000:01:00.0/current_link_width", "4\n"),
            ],
        );
        let link = link_of(&port.join("0000:01:00.0")).unwrap();
        assert_eq!((link.best_speed.as_str(), link.best_width), ("Unknown", 0));
        assert_eq!((link.port_speed, link.port_width), (None, None));
    }

    #[test]
    fn a_drive_with_several_paths_has_the_link_of_its_first_controller() {
        let tree = tempfile::tempdir().unwrap();
        let disk = tree.path().join("nvme-subsys0/nvme0n1");
        let pci = tree.path().join("pci/0000:01:00.0");
        for directory in [&disk, &tree.path().join("nvme-subsys0/nvme0"), &pci] {
            fs::create_dir_all(directory).unwrap();
        }
        std::os::unix::fs::symlink("..", disk.join("device")).unwrap();
        let controller = tree.path().join("nvme-subsys0/nvme0/device");
        std::os::unix::fs::symlink(&pci, controller).unwrap();
        assert_eq!(pci_device(&disk), Some(pci.canonicalize().unwrap()));
    }
}
