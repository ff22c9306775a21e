//! A target: a directory, a file or a block device, and the kernel's information about it.
//!
//! The benchmark leaves no files in a directory, however it ends: its files have no names. A file or a device is
//! written in place, from its first byte, and only after [`clear`] has allowed it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_core::layout::ALIGNMENT;
use fullbore_core::units::ByteSize;
use fullbore_device::overwrite_guard::{self, Cleared, Purpose};
use fullbore_linux::ring::Pool;
use fullbore_linux::sys::cache::holds_first_page;
use fullbore_linux::sys::memory::Region;
use fullbore_linux::sys::uring::DONTCACHE;
use fullbore_store::{Access, Member, open_nameless};
use rustix::fs::{
    FallocateFlags, FlockOperation, IFlags, OFlags, fallocate, flock, ftruncate, ioctl_getflags,
    major, minor,
};
use rustix::io::{Errno, ReadWriteFlags};

use super::error::Error;
use crate::bench::environment::{Roots, chosen, text};
use crate::bench::result::{Level, Mode, Note, Target, TargetKind};

/// A target to measure.
pub struct Place {
    /// The way of writing.
    pub kind: PlaceKind,
    /// The known facts.
    pub facts: Target,
    /// Notes for the reader of the report.
    pub notes: Vec<Note>,
    /// True if the kernel supports `RWF_DONTCACHE` there.
    pub uncached: bool,
    /// The identity of the file or directory: device and inode.
    identity: (u64, u64),
    /// The identity of its free space.
    room: Room,
    /// Prevents others from mounting a block device or recording onto a file meanwhile.
    _claim: Option<File>,
}

/// The free space that a place uses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Room {
    /// That of a file system, or of a target that is one.
    Device(u64),
    /// That of a pool whose parts have separate device numbers: the subvolumes of a btrfs.
    Pool(String),
}

/// The way of writing to a place.
pub enum PlaceKind {
    /// Through the store, as a member.
    Directory(Member),
    /// In place.
    Plain(PathBuf),
}

/// A file for measuring, and a path for opening it again.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// Keeps an unnamed file open.
    file: Arc<OwnedFd>,
    path: PathBuf,
    /// True if its space can be allocated and freed.
    nameless: bool,
}

impl Place {
    /// Opens a target. A file or device is opened only if the user has typed its exact name a second time.
    pub fn open(path: &Path, overwrite: Option<&Path>, roots: &Roots) -> Result<Self, Error> {
        let cannot = |source| Error::Open { path: path.to_owned(), source };
        let metadata = fs::metadata(path).map_err(cannot)?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            Self::directory(path, roots)
        } else if kind.is_block_device() || kind.is_file() {
            Self::cleared(&clear(path, overwrite)?, roots)
        } else {
            Err(Error::NotATarget { path: path.to_owned() })
        }
    }

    fn directory(path: &Path, roots: &Roots) -> Result<Self, Error> {
        let member = Member::nameless(path)?;
        let root = member.root().to_owned();
        let cannot = |source| Error::Open { path: root.clone(), source };
        let status = rustix::fs::statvfs(&root).map_err(|error| cannot(error.into()))?;
        let metadata = fs::metadata(&root).map_err(cannot)?;
        let (device, identity) = (metadata.dev(), (metadata.dev(), metadata.ino()));
        let mut facts = facts(roots, &root, device);
        facts.kind = TargetKind::Directory;
        facts.file_system = Some(member.file_system().to_owned());
        let room = room_of(roots, &root, device, member.file_system());
        facts.capacity = ByteSize(status.f_blocks.saturating_mul(status.f_frsize));
        facts.free = ByteSize(member.free_bytes()?);
        facts.direct = !member.buffered();
        let warning = |text: &String| Note { level: Level::Warning, text: text.clone() };
        let notes = member.warnings().iter().map(warning).collect();
        let kind = PlaceKind::Directory(member);
        let mut place = Self { kind, facts, notes, uncached: false, identity, room, _claim: None };
        place.try_out(roots).map_err(cannot)?;
        Ok(place)
    }

    /// A file or block device that the guard has cleared.
    fn cleared(cleared: &Cleared, roots: &Roots) -> Result<Self, Error> {
        let cannot = |source| Error::Open { path: cleared.path().to_owned(), source };
        let root = cleared.path().canonicalize().map_err(cannot)?;
        let metadata = fs::metadata(&root).map_err(cannot)?;
        let is_device = metadata.file_type().is_block_device();
        let claim = Some(claim(&root, is_device).map_err(cannot)?);
        let mut file = File::open(&root).map_err(cannot)?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(cannot)?;
        if bytes == 0 {
            return Err(Error::Empty { path: root });
        }
        if !is_device {
            refuse_holes(&root, &metadata)?;
        }
        let number = if is_device { metadata.rdev() } else { metadata.dev() };
        let mut facts = facts(roots, &root, number);
        facts.kind = if is_device { TargetKind::BlockDevice } else { TargetKind::File };
        facts.capacity = ByteSize(bytes);
        facts.free = ByteSize(bytes);
        if is_device {
            (facts.file_system, facts.mount_options) = (None, None);
        }
        facts.direct = open_as(&root, true).is_ok();
        open_as(&root, false).map_err(cannot)?;
        let kind = PlaceKind::Plain(root);
        let (identity, room) = ((metadata.dev(), metadata.ino()), Room::Device(number));
        let mut place =
            Self { kind, facts, notes: vec![], uncached: false, identity, room, _claim: claim };
        place.try_out(roots).map_err(cannot)?;
        Ok(place)
    }

    /// The path.
    pub fn path(&self) -> &Path {
        match &self.kind {
            PlaceKind::Directory(member) => member.root(),
            PlaceKind::Plain(path) => path,
        }
    }

    /// True if the mode is available there.
    pub fn takes(&self, mode: Mode) -> bool {
        match mode {
            Mode::Direct => self.facts.direct,
            Mode::Uncached => self.uncached,
            Mode::Buffered => true,
        }
    }

    /// A file for measuring: a new unnamed one in a directory, else the target itself.
    pub fn scratch(&self) -> io::Result<Scratch> {
        match &self.kind {
            PlaceKind::Directory(member) => {
                let access = Access { direct: false, ..member.access() };
                let file = Arc::new(open_nameless(member.root(), access)?);
                let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
                Ok(Scratch { file, path, nameless: true })
            }
            PlaceKind::Plain(path) => {
                let file = Arc::new(open_as(path, false)?);
                Ok(Scratch { file, path: path.clone(), nameless: false })
            }
        }
    }

    /// Determines by trial the smallest direct request, and whether direct requests really bypass the page cache.
    fn try_out(&mut self, roots: &Roots) -> io::Result<()> {
        let told = self.facts.sector_bytes.max(512);
        self.facts.sector_bytes = told;
        let scratch = self.scratch()?;
        self.uncached = takes_uncached(&scratch.file);
        let mut pool = Pool::new(Arc::new(Region::new(1)?), TRIAL_BYTES, 0);
        let mut block = pool.take().expect("a region holds a block");
        if !self.facts.direct {
            return Ok(());
        }
        if self.is_copied(&scratch.file, roots) {
            self.facts.direct = false;
            self.notes.push(Note { level: Level::Warning, text: self.not_direct() });
            return Ok(());
        }
        let direct = scratch.open(Mode::Direct)?;
        if scratch.nameless {
            block.fill(0x5A);
            rustix::io::pwrite(&*direct, &block, 0)?;
            // tmpfs has no page cache to bypass.
            let memory = self.facts.file_system.as_deref() == Some("tmpfs");
            if memory || holds_first_page(&scratch.file)? {
                self.facts.direct = false;
                self.notes.push(Note { level: Level::Warning, text: self.not_direct() });
            }
        }
        self.facts.sector_bytes = [512, 1024, 2048, ALIGNMENT as u32]
            .into_iter()
            .filter(|&sector| sector >= told)
            .find(|&sector| {
                let bytes = &mut block[..sector as usize];
                rustix::io::pread(&*direct, bytes, u64::from(sector)).is_ok()
            })
            .unwrap_or(ALIGNMENT as u32);
        Ok(())
    }

    /// True if btrfs copies direct writes through the page cache. It removes them from the cache at once, so that no
    /// trial detects it.
    fn is_copied(&self, file: &OwnedFd, roots: &Roots) -> bool {
        let release = roots.proc("sys/kernel/osrelease").unwrap_or_default();
        // Looked up by path: the number of a subvolume differs from that of its mount.
        let table = roots.proc("self/mountinfo").unwrap_or_default();
        let options = mount_above(&table, self.path()).map(|mount| mount.options);
        let in_place = ioctl_getflags(file).is_ok_and(|flags| flags.contains(IFlags::NOCOW));
        let is_btrfs = self.facts.file_system.as_deref() == Some("btrfs");
        is_btrfs
            && !in_place
            && !is_without_checksums(&options.unwrap_or_default())
            && is_since(&release, (6, 15))
    }

    fn not_direct(&self) -> String {
        let file_system = self.facts.file_system.as_deref().unwrap_or("the file system");
        let why = match file_system {
            "tmpfs" => "it has no disk below it, so all rates are those of memory",
            "btrfs" => {
                "files with checksums are copied through it (since Linux 6.15); switch copy-on-write \
                 off for the directory (chattr +C) to write past it"
            }
            _ => "so rates are those of memory until the kernel writes back",
        };
        format!(
            "{}: {file_system} takes direct writes and puts them into the page cache all the same: {why}",
            self.path().display()
        )
    }
}

/// Refuses one directory given twice.
pub fn refuse_twice(places: &[Place]) -> Result<(), Error> {
    for (number, place) in places.iter().enumerate() {
        let same = places[..number].iter().find(|before| before.identity == place.identity);
        if let Some(before) = same {
            let (first, second) = (before.path().to_owned(), place.path().to_owned());
            return Err(Error::Twice { first, second });
        }
    }
    Ok(())
}

/// For each place, the first earlier place with the same free space.
pub fn shared(places: &[Place]) -> Vec<Option<usize>> {
    let first = |(number, place): (usize, &Place)| {
        places[..number].iter().position(|before| before.room == place.room)
    };
    places.iter().enumerate().map(first).collect()
}

/// For each place, the number of places with the same free space, including itself.
pub fn sharers(places: &[Place]) -> Vec<u64> {
    let alike = |place: &Place| places.iter().filter(|other| other.room == place.room).count();
    places.iter().map(|place| alike(place) as u64).collect()
}

/// Asks the guard whether a file or block device may be written from its first byte on.
///
/// The guard refuses a target with known content or in use. Beyond that, nothing is written unless the user typed the
/// exact name a second time: bytes without a signature may be a recording.
pub fn clear(path: &Path, overwrite: Option<&Path>) -> Result<Cleared, Error> {
    let cleared = overwrite_guard::clear(path, overwrite, Purpose::Bare, None)?;
    let metadata =
        fs::metadata(path).map_err(|source| Error::Open { path: path.to_owned(), source })?;
    let what = match metadata.file_type().is_block_device() {
        true => "a block device".to_owned(),
        false if metadata.len() == 0 => return Err(Error::Empty { path: path.to_owned() }),
        false => format!("a file of {}", ByteSize(metadata.len())),
    };
    match overwrite {
        Some(_) => Ok(cleared),
        None => Err(Error::Holds { path: path.to_owned(), what }),
    }
}

/// Refuses a file with holes for which the file system has no space: it would run full during the benchmark.
fn refuse_holes(path: &Path, metadata: &fs::Metadata) -> Result<(), Error> {
    let cannot = |errno: Errno| Error::Open { path: path.to_owned(), source: errno.into() };
    let status = rustix::fs::statvfs(path).map_err(cannot)?;
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    let holes = metadata.len().saturating_sub(metadata.blocks() * STAT_BLOCK_BYTES);
    match holes > free {
        true => Err(Error::Holes {
            path: path.to_owned(),
            bytes: ByteSize(metadata.len()),
            holes: ByteSize(holes),
            free: ByteSize(free),
        }),
        false => Ok(()),
    }
}

/// Opens a block device exclusively so that it cannot be mounted, and locks it or a file as a recorder does. Fails if
/// another process has it.
fn claim(path: &Path, is_device: bool) -> io::Result<File> {
    let exclusive = if is_device { OFlags::EXCL } else { OFlags::empty() };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(exclusive.bits().cast_signed());
    let file = options.open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(Errno::BUSY.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// The unit of a file's allocated space in `stat`, for all file systems.
const STAT_BLOCK_BYTES: u64 = 512;

/// Bytes of a trial write.
const TRIAL_BYTES: usize = 64 << 10;

impl Scratch {
    /// Opens the file for a mode.
    pub fn open(&self, mode: Mode) -> io::Result<Arc<OwnedFd>> {
        Ok(Arc::new(open_as(&self.path, mode == Mode::Direct)?))
    }

    /// A path by which another process of this user can open the same file while this process runs, without special
    /// characters.
    pub fn path_for_others(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Allocates unwritten space, like the chunks of a recording. A named file has its space already.
    pub fn take_space(&self, bytes: u64) -> io::Result<()> {
        if !self.nameless {
            return Ok(());
        }
        ftruncate(&self.file, 0)?;
        match fallocate(&self.file, FallocateFlags::empty(), 0, bytes.max(1)) {
            Err(Errno::OPNOTSUPP) => Ok(ftruncate(&self.file, bytes)?),
            taken => Ok(taken?),
        }
    }

    /// Frees the space.
    pub fn release(&self) -> io::Result<()> {
        if self.nameless { Ok(ftruncate(&self.file, 0)?) } else { Ok(()) }
    }

    /// Drops the file from the page cache, so that reads go to the disk.
    pub fn forget(&self) {
        // If this fails, the data stays in memory, and the rates show it.
        let _ = rustix::fs::fdatasync(&self.file);
        let _ = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
    }
}

fn open_as(path: &Path, direct: bool) -> io::Result<OwnedFd> {
    let flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags.bits().cast_signed());
    Ok(options.open(path)?.into())
}

/// True if the kernel supports uncached buffered I/O there.
fn takes_uncached(file: &OwnedFd) -> bool {
    let mut page = [0; 512];
    let mut bytes = [io::IoSliceMut::new(&mut page)];
    let flags = ReadWriteFlags::from_bits_retain(DONTCACHE);
    rustix::io::preadv2(file, &mut bytes, 0, flags).is_ok()
}

/// The kernel's information about the device below a path, and its mount.
pub fn facts(roots: &Roots, path: &Path, device: u64) -> Target {
    let mut target = Target { path: path.display().to_string(), ..Target::default() };
    let number = format!("{}:{}", major(device), minor(device));
    let mount = roots.proc("self/mountinfo").and_then(|table| mount_of(&table, &number, path));
    let source = mount.as_ref().map(|mount| mount.source.clone()).unwrap_or_default();
    if let Some(mount) = mount {
        target.file_system = Some(mount.file_system);
        target.mount_options = Some(mount.options);
    }
    let Some(block) = block_device(roots, &number, &source) else { return target };
    let read = |name: &str| text(&block.join(name));
    let number_in = |name: &str| read(name).and_then(|text| text.parse::<u32>().ok());
    target.device = block.file_name().map(|name| name.to_string_lossy().into_owned());
    target.model = read("device/model")
        .map(|model| model.trim().to_owned())
        .or_else(|| read("loop/backing_file").map(|file| format!("loop over {file}")));
    target.firmware = read("device/firmware_rev").or_else(|| read("device/rev"));
    target.link_speed = read("device/device/current_link_speed");
    target.link_width = number_in("device/device/current_link_width");
    target.numa_node = read("device/device/numa_node")
        .and_then(|node| node.parse().ok())
        .filter(|node: &i32| *node >= 0);
    target.rotational = number_in("queue/rotational").map(|turns| turns == 1);
    target.write_cache = read("queue/write_cache");
    target.scheduler = read("queue/scheduler").map(|all| chosen(&all).unwrap_or(all));
    target.sector_bytes = number_in("queue/logical_block_size").unwrap_or(0);
    target.physical_sector_bytes = number_in("queue/physical_block_size");
    target
}

/// The free space that a directory uses.
fn room_of(roots: &Roots, path: &Path, device: u64, file_system: &str) -> Room {
    let table = || roots.proc("self/mountinfo");
    match file_system {
        "btrfs" => table().and_then(|table| mount_above(&table, path)).map(|it| it.source),
        _ => None,
    }
    .map_or(Room::Device(device), Room::Pool)
}

/// True if a btrfs is mounted so that new files have no checksums.
fn is_without_checksums(options: &str) -> bool {
    options.split(',').any(|option| matches!(option, "nodatasum" | "nodatacow"))
}

/// True if a release of Linux, `6.18.44-cloud`, is this one or later.
fn is_since(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = numbers.next().zip(numbers.next());
    version.is_some_and(|version| version >= wanted)
}

/// The directory of the whole disk below `/sys`, for a disk or a partition of it.
fn block_device(roots: &Roots, number: &str, source: &str) -> Option<PathBuf> {
    let by_number = roots.sysfs.join("dev/block").join(number);
    let name = source.strip_prefix("/dev/").and_then(|path| path.rsplit('/').next());
    let by_name = || roots.sysfs.join("class/block").join(name?).canonicalize().ok();
    let found = by_number.canonicalize().ok().or_else(by_name)?;
    let is_partition = found.join("partition").exists();
    if is_partition { found.parent().map(Path::to_owned) } else { Some(found) }
}

/// The mount of a file system.
#[derive(Debug, PartialEq)]
struct Mount {
    file_system: String,
    source: String,
    options: String,
}

/// The mount that contains a path, from `/proc/self/mountinfo`.
fn mount_of(table: &str, number: &str, path: &Path) -> Option<Mount> {
    deepest(table, path, |device| device == number)
}

/// The same for a subvolume of a btrfs, whose number may be in no line.
fn mount_above(table: &str, path: &Path) -> Option<Mount> {
    deepest(table, path, |_| true)
}

fn deepest(table: &str, path: &Path, is_wanted: impl Fn(&str) -> bool) -> Option<Mount> {
    let mut best: Option<(usize, Mount)> = None;
    for line in table.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let left: Vec<&str> = left.split(' ').collect();
        let right: Vec<&str> = right.split(' ').collect();
        let (&[_, _, device, _, point, options, ..], &[file_system, source, ..]) =
            (left.as_slice(), right.as_slice())
        else {
            continue;
        };
        let point = point.replace("\\040", " ");
        let deeper = best.as_ref().is_none_or(|(length, _)| point.len() >= *length);
        if is_wanted(device) && path.starts_with(&point) && deeper {
            let own = right.get(2).filter(|own| **own != options);
            let options = match own {
                Some(own) => format!("{options},{own}"),
                None => options.to_owned(),
            };
            let mount = Mount { file_system: file_system.into(), source: source.into(), options };
            best = Some((point.len(), mount));
        }
    }
    best.map(|(_, mount)| mount)
}

#[cfg(test)]
mod tests {
    use fullbore_core::hint::Hint;

    use super::*;

    #[test]
    fn the_deepest_mount_that_holds_a_path_is_its_own() {
        let table = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,discard
30 22 8:17 / /mnt/my\\040disk rw,noatime - xfs /dev/sdb1 rw,attr2
31 22 8:17 /sub /mnt rw - xfs /dev/sdb1 rw
32 22 0:44 / /mnt/b rw - btrfs /dev/sdc rw";
        let mount = |number: &str, path: &str| mount_of(table, number, Path::new(path));
        let found = mount("8:17", "/mnt/my disk/x").unwrap();
        assert_eq!((found.file_system.as_str(), found.source.as_str()), ("xfs", "/dev/sdb1"));
        assert_eq!(found.options, "rw,noatime,rw,attr2");
        assert_eq!(mount("0:44", "/mnt/b/deep").unwrap().file_system, "btrfs");
        assert_eq!(mount("8:1", "/mnt/b").unwrap().source, "/dev/sda1");
        assert_eq!(mount("9:9", "/"), None);
    }

    #[test]
    fn releases_of_linux_are_told_apart_and_mounts_without_checksums_known() {
        for release in ["6.15", "6.15.0", "6.18.44-cloud", "7.0-rc1"] {
            assert!(is_since(release, (6, 15)), "{release}");
        }
        for release in ["6.14.9", "6.9.1", "5.19", "", "none"] {
            assert!(!is_since(release, (6, 15)), "{release}");
        }
        assert!(is_without_checksums("rw,nodatasum,relatime"));
        assert!(!is_without_checksums("rw,relatime") && !is_without_checksums("nodatasum2"));
    }

    #[test]
    fn subvolumes_of_one_pool_take_its_room_though_their_numbers_differ() {
        let saved = tempfile::tempdir().unwrap();
        fs::create_dir_all(saved.path().join("self")).unwrap();
        let table = "\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
32 22 0:44 /a /mnt/a rw - btrfs /dev/sdc rw
33 22 0:45 /b /mnt/b rw - btrfs /dev/sdc rw
34 22 0:46 / /mnt/c rw - btrfs /dev/sdd rw";
        fs::write(saved.path().join("self/mountinfo"), table).unwrap();
        let roots = Roots { procfs: saved.path().to_owned(), ..Roots::default() };
        let room = |path: &str, number| room_of(&roots, Path::new(path), number, "btrfs");
        assert_eq!(room("/mnt/a", 44), room("/mnt/b/deep", 45));
        assert_eq!(room("/mnt/a/nested", 77), room("/mnt/b", 45), "not mounted by itself");
        assert_ne!(room("/mnt/a", 44), room("/mnt/c", 46));
        let plain = |number| room_of(&roots, Path::new("/x"), number, "ext4");
        assert_eq!(plain(7), plain(7));
        assert_ne!(plain(7), plain(8));
    }

    #[test]
    fn directories_of_one_file_system_are_known_and_one_given_twice_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        let link = directory.path().join("link");
        fs::create_dir(&one).unwrap();
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&one, &link).unwrap();
        let open = |path: &Path| Place::open(path, None, &Roots::default()).unwrap();
        let places = [open(&one), open(&other)];
        assert_eq!((shared(&places), sharers(&places)), (vec![None, Some(0)], vec![2, 2]));
        assert!(refuse_twice(&places).is_ok());
        let again = [open(&one), open(&other), open(&link)];
        assert!(matches!(refuse_twice(&again), Err(Error::Twice { .. })));
    }

    #[test]
    fn what_the_kernel_says_of_a_drive_is_told() {
        let saved = tempfile::tempdir().unwrap();
        let sys = saved.path().join("sys");
        let drive = "devices/pci0000:00/0000:01:00.0/nvme/nvme0";
        let put = |path: &str, text: &str| {
            let path = sys.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put(&format!("{drive}/model"), "A Drive 960GB      \n");
        put(&format!("{drive}/firmware_rev"), "1.2  \n");
        put("devices/pci0000:00/0000:01:00.0/current_link_speed", "8.0 GT/s PCIe\n");
        put("devices/pci0000:00/0000:01:00.0/current_link_width", "4\n");
        put("devices/pci0000:00/0000:01:00.0/numa_node", "-1\n");
        put(&format!("{drive}/nvme0n1/queue/logical_block_size"), "512\n");
        put(&format!("{drive}/nvme0n1/queue/scheduler"), "[none] mq-deadline\n");
        put(&format!("{drive}/nvme0n1/queue/rotational"), "0\n");
        put(&format!("{drive}/nvme0n1/nvme0n1p2/partition"), "2\n");
        let link = |to: &str, at: &str| {
            let at = sys.join(at);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(sys.join(to), at).unwrap();
        };
        link(drive, &format!("{drive}/nvme0n1/device"));
        link("devices/pci0000:00/0000:01:00.0", &format!("{drive}/device"));
        link(&format!("{drive}/nvme0n1/nvme0n1p2"), "dev/block/259:2");
        let procfs = saved.path().join("proc");
        fs::create_dir_all(procfs.join("self")).unwrap();
        let mounts = "22 1 259:2 / /data rw - ext4 /dev/nvme0n1p2 rw\n";
        fs::write(procfs.join("self/mountinfo"), mounts).unwrap();
        let roots = Roots { sysfs: sys, procfs };
        let target = facts(&roots, Path::new("/data/x"), rustix::fs::makedev(259, 2));
        assert_eq!(target.device.as_deref(), Some("nvme0n1"));
        assert_eq!(target.model.as_deref(), Some("A Drive 960GB"));
        assert_eq!(target.link_speed.as_deref(), Some("8.0 GT/s PCIe"));
        assert_eq!((target.link_width, target.numa_node), (Some(4), None));
        assert_eq!(target.scheduler.as_deref(), Some("none"));
        assert_eq!((target.sector_bytes, target.rotational), (512, Some(false)));
        assert_eq!(target.mount_options.as_deref(), Some("rw"));
    }

    #[test]
    fn a_directory_is_tried_out_and_left_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::open(directory.path(), None, &Roots::default()).unwrap();
        assert!(place.facts.sector_bytes.is_power_of_two() && place.facts.capacity.0 > 0);
        let scratch = place.scratch().unwrap();
        scratch.take_space(1 << 20).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_recorded_onto_is_not_measured() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, vec![1; 8192]).unwrap();
        let open = || Place::open(&path, Some(&path), &Roots::default());
        let recorder = File::open(&path).unwrap();
        flock(&recorder, FlockOperation::NonBlockingLockExclusive).unwrap();
        let error = open().err().expect("somebody has it");
        assert!(error.hint().unwrap().contains("somebody uses it"), "{error}");
        drop(recorder);
        let place = open().unwrap();
        assert!(open().is_err(), "nor is it measured by two at once");
        drop(place);
        assert!(open().is_ok());
    }

    #[test]
    fn files_are_overwritten_only_on_demand() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "").unwrap();
        let open = |overwrite: bool| {
            Place::open(&path, overwrite.then_some(path.as_path()), &Roots::default())
        };
        assert!(matches!(open(true), Err(Error::Empty { .. })));
        fs::write(&path, vec![1; 8192]).unwrap();
        assert!(matches!(open(false), Err(Error::Holds { .. })));
        assert_eq!(open(true).unwrap().facts.capacity, ByteSize(8192));
        assert_eq!(fs::read(&path).unwrap(), vec![1; 8192], "opening writes nothing");
        let gone = Place::open(&directory.path().join("none"), None, &Roots::default());
        assert!(matches!(gone, Err(Error::Open { .. })));
    }
}
