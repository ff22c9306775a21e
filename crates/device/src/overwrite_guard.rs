//! The overwrite guard: protects a device from being overwritten by mistake.
//!
//! A device that carries anything (partition table, file system, RAID, LVM or swap signature, a scan index) is refused,
//! unless the user has typed its exact name a second time. A device that is in use (mounted, held by another device,
//! swapped to, opened exclusively) is always refused until its user releases it.
//!
//! [`inspect`] lists the existing content. [`clear`] decides, and returns the [`Cleared`] without which no
//! [`BlockDevice`](super::BlockDevice) is opened for writing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use fullbore_core::device::{COPY_BYTES, MAGIC, Superblock, SuperblockError, find_index};
use fullbore_core::hint::Hint;
use serde::Serialize;

use super::{loop_device, signature};

/// Existing content of a device, or a user of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum ExistingContent {
    /// A partition table.
    PartitionTable {
        /// The type of the table.
        kind: String,
    },
    /// A file system.
    FileSystem {
        /// The type of the file system.
        kind: String,
    },
    /// A member of a RAID.
    Raid {
        /// The type of RAID.
        kind: String,
    },
    /// A physical volume of a volume manager.
    VolumeManager {
        /// The volume manager.
        kind: String,
    },
    /// An encrypted volume.
    Encrypted {
        /// The type of encryption.
        kind: String,
    },
    /// Swap space.
    Swap,
    /// A fullbore scan index.
    ScanIndex {
        /// Scans on it.
        scans: usize,
    },
    /// A fullbore scan index without a readable copy.
    UnreadableIndex {
        /// The reason.
        why: String,
    },
    /// Unknown foreign content in the place of the first copy of a scan index.
    Foreign,
    /// Partitions known to the kernel.
    Partitions {
        /// Their names.
        names: Vec<String>,
    },
    /// A mounted file system.
    Mounted {
        /// The device or partition.
        device: String,
        /// The mount point.
        at: PathBuf,
    },
    /// A swap device in use.
    SwappedTo {
        /// The device or partition.
        device: String,
    },
    /// A part of another device: RAID, LVM, encryption, multipath.
    Held {
        /// The device or partition.
        device: String,
        /// The holder.
        by: String,
    },
    /// A file that a loop device maps.
    LoopDevice {
        /// The loop device.
        device: String,
    },
}

impl ExistingContent {
    /// True if the device is in use. Typing its name does not help then.
    pub fn is_in_use(&self) -> bool {
        match self {
            ExistingContent::Mounted { .. }
            | ExistingContent::SwappedTo { .. }
            | ExistingContent::Held { .. }
            | ExistingContent::LoopDevice { .. } => true,
            ExistingContent::PartitionTable { .. }
            | ExistingContent::FileSystem { .. }
            | ExistingContent::Raid { .. }
            | ExistingContent::VolumeManager { .. }
            | ExistingContent::Encrypted { .. }
            | ExistingContent::Swap
            | ExistingContent::ScanIndex { .. }
            | ExistingContent::UnreadableIndex { .. }
            | ExistingContent::Foreign
            | ExistingContent::Partitions { .. } => false,
        }
    }
}

impl fmt::Display for ExistingContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExistingContent::PartitionTable { kind } => write!(f, "a partition table ({kind})"),
            ExistingContent::FileSystem { kind } => write!(f, "a file system ({kind})"),
            ExistingContent::Raid { kind } => write!(f, "a member of a RAID ({kind})"),
            ExistingContent::VolumeManager { kind } => write!(f, "a volume of {kind}"),
            ExistingContent::Encrypted { kind } => write!(f, "an encrypted volume ({kind})"),
            ExistingContent::Swap => write!(f, "swap space"),
            ExistingContent::ScanIndex { scans: 1 } => write!(f, "a scan index with 1 scan"),
            ExistingContent::ScanIndex { scans } => write!(f, "a scan index with {scans} scans"),
            ExistingContent::UnreadableIndex { why } => {
                write!(f, "a scan index that cannot be read any more ({why})")
            }
            ExistingContent::Foreign => {
                write!(f, "unknown data in the place of its first copy")
            }
            ExistingContent::Partitions { names } => write!(f, "partitions ({})", names.join(", ")),
            ExistingContent::Mounted { device, at } => {
                write!(f, "{device} is mounted at {}", at.display())
            }
            ExistingContent::SwappedTo { device } => write!(f, "{device} is swapped to"),
            ExistingContent::Held { device, by } => write!(f, "{device} is held by {by}"),
            ExistingContent::LoopDevice { device } => write!(f, "{device} shows it as a device"),
        }
    }
}

/// True if scans can still be found on a device that another program has written to.
fn survives(findings: &[ExistingContent]) -> bool {
    let has_scans = |it: &ExistingContent| matches!(it, ExistingContent::ScanIndex { scans: 1.. });
    findings.len() > 1 && findings.iter().any(has_scans)
}

fn listed(findings: &[ExistingContent]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A device that may not be written.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The device cannot be inspected.
    #[error("{}: it cannot be inspected: {source}", path.display())]
    Look {
        /// The device.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A directory, a socket, a terminal.
    #[error("{}: neither a block device nor a file", path.display())]
    NoDevice {
        /// The given path.
        path: PathBuf,
    },
    /// The kernel allows no writes to the device.
    #[error("{}: the device is read-only", path.display())]
    ReadOnly {
        /// The device.
        path: PathBuf,
    },
    /// The device has content.
    #[error("{}: it contains {}", path.display(), listed(findings))]
    Occupied {
        /// The device.
        path: PathBuf,
        /// The content.
        findings: Vec<ExistingContent>,
    },
    /// The device is in use.
    #[error("{}: it is in use: {}", path.display(), listed(findings))]
    InUse {
        /// The device.
        path: PathBuf,
        /// The users.
        findings: Vec<ExistingContent>,
    },
    /// The user typed another name.
    #[error("--overwrite names {}, but the target is {}", typed.display(), path.display())]
    OtherName {
        /// The device.
        path: PathBuf,
        /// The name typed.
        typed: PathBuf,
    },
}

impl Hint for GuardError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            GuardError::Look { path, source } if source.kind() == io::ErrorKind::NotFound => {
                Some(match path.starts_with("/dev") {
                    true => "`lsblk` lists the block devices of this host".into(),
                    false => "a file in the place of a drive is made with size=…, such as \
                              device:disk.img?size=1GiB"
                        .into(),
                })
            }
            GuardError::Look { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                Some(
                    "run it as root, or as a member of the group that owns the device (`disk`)"
                        .into(),
                )
            }
            GuardError::Look { path, source } => named_like_a_stream(path, source),
            GuardError::NoDevice { .. } => {
                Some("for a directory use --store; a device is something like /dev/nvme0n1".into())
            }
            GuardError::ReadOnly { path } => Some(Cow::Owned(format!(
                "`blockdev --setrw {}` lifts that, unless a switch on the drive does it",
                path.display()
            ))),
            GuardError::Occupied { path, findings } => {
                let path = path.display();
                let scans = match survives(findings) {
                    true => format!(
                        " (its scans as well: `fullbore verify device:{path}` tells which of them \
                         are whole, and `fullbore cat` copies them elsewhere)"
                    ),
                    false => String::new(),
                };
                Some(Cow::Owned(format!(
                    "if all its data can be lost{scans}, repeat its name: --overwrite {path}"
                )))
            }
            GuardError::InUse { .. } => Some(
                "unmount it, or remove it from its holder; --overwrite does not help here".into(),
            ),
            GuardError::OtherName { path, .. } => {
                Some(Cow::Owned(format!("give the exact name: --overwrite {}", path.display())))
            }
        }
    }
}

/// Advice for a path below a device, as if the device were a directory of scans.
pub(super) fn named_like_a_stream(path: &Path, source: &io::Error) -> Option<Cow<'static, str>> {
    let (device, scan) = (path.parent()?, path.file_name()?.to_str()?);
    (source.kind() == io::ErrorKind::NotADirectory).then(|| {
        Cow::Owned(format!(
            "a scan on a device is named by ?scan=NAME: device:{}?scan={scan}",
            device.display()
        ))
    })
}

/// A device and its inspection results.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// The path as given.
    pub path: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// True for a block device, false for a file.
    pub block_device: bool,
    /// The device's content and users.
    pub findings: Vec<ExistingContent>,
}

/// The purpose of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Chunks at any address: existing content may be lost.
    Bare,
    /// A scan beside others: a fullbore scan index is expected.
    Index,
}

/// A device that may be written. Only [`clear`] creates one.
#[derive(Debug)]
pub struct Cleared {
    path: PathBuf,
    create_bytes: Option<u64>,
    indexed: bool,
}

impl Cleared {
    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The size of the file to create first, if it does not exist.
    pub fn create_bytes(&self) -> Option<u64> {
        self.create_bytes
    }

    /// True if the device has a scan index that is to be kept.
    pub fn is_indexed(&self) -> bool {
        self.indexed
    }
}

/// Inspects a device without changing it.
pub fn inspect(path: &Path) -> Result<Inspection, GuardError> {
    let look = |source| GuardError::Look { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(look)?;
    let block_device = metadata.file_type().is_block_device();
    if !block_device && !metadata.is_file() {
        return Err(GuardError::NoDevice { path: path.to_owned() });
    }
    let mut file = File::open(path).map_err(look)?;
    let bytes = file.seek(SeekFrom::End(0)).map_err(look)?;
    let mut findings = read_index(&file, bytes).map_err(look)?;
    findings.extend(signature::look(&mut file, bytes).map_err(look)?);
    match block_device {
        true => findings.extend(users_of(&metadata)),
        false => findings.extend(loop_device::over_file(&metadata)),
    }
    Ok(Inspection { path: path.to_owned(), bytes, block_device, findings })
}

/// Decides whether a device may be written for this purpose, given the name that the user typed.
///
/// A file that does not exist is cleared if its size is given.
pub fn clear(
    path: &Path,
    overwrite: Option<&Path>,
    purpose: Purpose,
    size: Option<u64>,
) -> Result<Cleared, GuardError> {
    if let Some(typed) = overwrite
        && typed != path
    {
        return Err(GuardError::OtherName { path: path.to_owned(), typed: typed.to_owned() });
    }
    let cleared = |create_bytes, indexed| Cleared { path: path.to_owned(), create_bytes, indexed };
    let inspection = match inspect(path) {
        Ok(inspection) => inspection,
        // A device that does not exist must not become a regular file below /dev.
        Err(GuardError::Look { source, .. })
            if source.kind() == io::ErrorKind::NotFound
                && size.is_some()
                && !path.starts_with("/dev") =>
        {
            return Ok(cleared(size, false));
        }
        Err(error) => return Err(error),
    };
    if inspection.block_device && is_read_only(path) {
        return Err(GuardError::ReadOnly { path: path.to_owned() });
    }
    let (users, marks): (Vec<ExistingContent>, Vec<ExistingContent>) =
        inspection.findings.into_iter().partition(ExistingContent::is_in_use);
    if !users.is_empty() {
        return Err(GuardError::InUse { path: path.to_owned(), findings: users });
    }
    if purpose == Purpose::Index && overwrite.is_none() && is_ours_alone(&marks) {
        return Ok(cleared(None, true));
    }
    if marks.is_empty() || overwrite.is_some() {
        return Ok(cleared(None, false));
    }
    Err(GuardError::Occupied { path: path.to_owned(), findings: marks })
}

/// Returns the content for which a device with a scan index is refused: content of another program.
pub fn foreign_content(path: &Path) -> Result<Vec<ExistingContent>, GuardError> {
    let findings = inspect(path)?.findings.into_iter();
    Ok(findings.filter(|it| !it.is_in_use() && !is_ours(it)).collect())
}

/// True if the kernel reports a block device as read-only. Opening such a device for writing succeeds all the same.
fn is_read_only(path: &Path) -> bool {
    let told = fs::metadata(path).and_then(|metadata| {
        let (major, minor) =
            (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"))
    });
    told.is_ok_and(|text| text.trim() == "1")
}

/// True if a scan index is the only content. Any other content is newer, because creating an index wipes both ends of
/// the device. Another program has taken the device since, and a surviving copy of the index is no permission to write.
fn is_ours_alone(marks: &[ExistingContent]) -> bool {
    let is_index = |mark: &ExistingContent| {
        matches!(mark, ExistingContent::ScanIndex { .. } | ExistingContent::UnreadableIndex { .. })
    };
    marks.iter().any(is_index) && marks.iter().all(is_ours)
}

/// True if no other program made it.
fn is_ours(mark: &ExistingContent) -> bool {
    match mark {
        ExistingContent::ScanIndex { .. } | ExistingContent::UnreadableIndex { .. } => true,
        // Partitions of a table that no longer exists: the kernel has not read the table again.
        ExistingContent::Partitions { .. } => true,
        _ => false,
    }
}

/// The index on a device, if it has one, and any foreign content in the place of its first copy.
fn read_index(file: &File, bytes: u64) -> io::Result<Vec<ExistingContent>> {
    let found = find_index(bytes, |place| {
        let mut copy = vec![0; COPY_BYTES];
        file.read_exact_at(&mut copy, place)?;
        Ok::<_, io::Error>(Superblock::decode(&copy))
    })?;
    let mut expected = Vec::new();
    let index = match found {
        Ok((superblock, _)) => {
            expected = copies_beside(&superblock);
            ExistingContent::ScanIndex { scans: superblock.scans.len() }
        }
        Err(SuperblockError::Magic) => return Ok(vec![]),
        // A fullbore index that is damaged or of a later version must not be overwritten either.
        Err(error) => ExistingContent::UnreadableIndex { why: error.to_string() },
    };
    let mut first = vec![0; COPY_BYTES];
    file.read_exact_at(&mut first, 0)?;
    let ours = first.starts_with(&MAGIC) || is_wiped(&first, &expected);
    let foreign = (!ours).then_some(ExistingContent::Foreign);
    Ok([index].into_iter().chain(foreign).collect())
}

/// The copies that can stand beside this one: each has the next generation, or the one before.
fn copies_beside(superblock: &Superblock) -> Vec<Vec<u8>> {
    let before = superblock.generation.checked_sub(1);
    let generations = before.into_iter().chain(superblock.generation.checked_add(1));
    let copy = |generation| Superblock { generation, ..superblock.clone() }.encode();
    generations.map(copy).collect()
}

/// True if a copy was overwritten with zeros, as a whole or in part: all other bytes are those of a copy.
fn is_wiped(copy: &[u8], expected: &[Vec<u8>]) -> bool {
    let is_rest = |of: &Vec<u8>| copy.iter().zip(of).all(|(is, was)| *is == 0 || is == was);
    copy.iter().all(|byte| *byte == 0) || expected.iter().any(is_rest)
}

/// The device's own number, and those of its partitions.
struct Numbers {
    /// Numbers and names, such as `8:1`.
    all: Vec<(String, String)>,
}

/// Partitions, mounts, swap and holders as the kernel reports them.
fn users_of(metadata: &Metadata) -> Vec<ExistingContent> {
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let number = format!("{major}:{minor}");
    let directory = Path::new("/sys/dev/block").join(&number);
    let own = fs::canonicalize(&directory).ok();
    let name = own
        .as_deref()
        .and_then(Path::file_name)
        .map_or_else(|| number.clone(), |name| name.to_string_lossy().into_owned());
    let partitions = partitions_of(&directory);
    let mut findings = Vec::new();
    if !partitions.is_empty() {
        let names = partitions.iter().map(|(_, name)| name.clone()).collect();
        findings.push(ExistingContent::Partitions { names });
    }
    let numbers = Numbers { all: [(number, name)].into_iter().chain(partitions).collect() };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    findings.extend(numbers.mounted(&mounts));
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    findings.extend(numbers.swapped_to(&swaps));
    findings.extend(numbers.held());
    findings.extend(loop_device::over_devices(&numbers.with_whole_disk(&directory)));
    findings
}

/// Number and name of each partition.
fn partitions_of(directory: &Path) -> Vec<(String, String)> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut partitions = Vec::new();
    for entry in entries.flatten() {
        if entry.path().join("partition").exists()
            && let Ok(number) = fs::read_to_string(entry.path().join("dev"))
        {
            let name = entry.file_name().to_string_lossy().into_owned();
            partitions.push((number.trim().to_owned(), name));
        }
    }
    partitions.sort();
    partitions
}

impl Numbers {
    fn name_of(&self, number: &str) -> Option<&str> {
        self.all.iter().find(|(own, _)| own == number).map(|(_, name)| name.as_str())
    }

    /// The third field of a line is the device number, the fifth the mount point. The text after the dash names the
    /// device, which is the only information for file systems over several devices.
    fn mounted(&self, mountinfo: &str) -> Vec<ExistingContent> {
        let mut seen = BTreeSet::new();
        let mut findings = Vec::new();
        for line in mountinfo.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let (Some(number), Some(at)) = (fields.get(2), fields.get(4)) else { continue };
            let source = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').nth(1));
            let by_name = source.and_then(|source| source.strip_prefix("/dev/")).and_then(|name| {
                self.all.iter().find(|(_, own)| own == name).map(|(_, own)| own.as_str())
            });
            if let Some(device) = self.name_of(number).or(by_name)
                && seen.insert(*at)
            {
                let at = PathBuf::from(at.replace("\\040", " "));
                findings.push(ExistingContent::Mounted { device: device.to_owned(), at });
            }
        }
        findings
    }

    fn swapped_to(&self, swaps: &str) -> Vec<ExistingContent> {
        let mut findings = Vec::new();
        for path in swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()) {
            let Ok(metadata) = fs::metadata(path) else { continue };
            let device = metadata.rdev();
            let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
            if let Some(name) = self.name_of(&number) {
                findings.push(ExistingContent::SwappedTo { device: name.to_owned() });
            }
        }
        findings
    }

    /// The numbers, and the number of the disk that contains a partition.
    fn with_whole_disk(&self, directory: &Path) -> Vec<String> {
        let disk = directory.join("partition").exists().then(|| directory.join("../dev"));
        let disk = disk.and_then(|disk| fs::read_to_string(disk).ok());
        let numbers = self.all.iter().map(|(number, _)| number.clone());
        numbers.chain(disk.map(|number| number.trim().to_owned())).collect()
    }

    fn held(&self) -> Vec<ExistingContent> {
        let mut findings = Vec::new();
        for (number, name) in &self.all {
            let holders = Path::new("/sys/dev/block").join(number).join("holders");
            let Ok(entries) = fs::read_dir(holders) else { continue };
            for entry in entries.flatten() {
                let by = entry.file_name().to_string_lossy().into_owned();
                findings.push(ExistingContent::Held { device: name.clone(), by });
            }
        }
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(bytes: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(bytes).unwrap();
        file
    }

    #[test]
    fn a_blank_file_is_cleared_and_one_that_carries_something_only_by_its_very_name() {
        let image = image(1 << 20);
        let path = image.path();
        assert!(clear(path, None, Purpose::Bare, None).is_ok());
        image.as_file().write_all_at(b"XFSB", 0).unwrap();
        let error = clear(path, None, Purpose::Bare, None).unwrap_err();
        assert!(matches!(&error, GuardError::Occupied { .. }), "{error}");
        assert!(error.to_string().contains("XFS"), "{error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains(&format!("--overwrite {}", path.display())), "{hint}");
        let other = clear(path, Some(Path::new("/dev/sda")), Purpose::Bare, None).unwrap_err();
        assert!(matches!(other, GuardError::OtherName { .. }));
        assert!(clear(path, Some(path), Purpose::Bare, None).is_ok());
    }

    #[test]
    fn a_scan_index_is_wanted_by_scans_and_refused_to_bare_chunks() {
        let image = image(64 << 20);
        let volume = fullbore_core::device::Volume::of_media(64 << 20, 128 << 10).unwrap();
        let uuid = uuid::Uuid::from_u128(1);
        let superblock = Superblock::new(uuid, fullbore_time::Tai(0), volume);
        image.as_file().write_all_at(&superblock.encode(), volume.second_copy()).unwrap();
        let path = image.path();
        let cleared = clear(path, None, Purpose::Index, None).unwrap();
        assert!(cleared.is_indexed());
        let error = clear(path, None, Purpose::Bare, None).unwrap_err();
        assert!(error.to_string().contains("scan index with 0 scans"), "{error}");
        let wiped = clear(path, Some(path), Purpose::Index, None).unwrap();
        assert!(!wiped.is_indexed(), "who types the name has it made anew");
    }

    /// A device with an index in both copies, as a recording leaves it.
    fn indexed() -> (tempfile::NamedTempFile, fullbore_core::device::Volume) {
        let image = image(64 << 20);
        let volume = fullbore_core::device::Volume::of_media(64 << 20, 128 << 10).unwrap();
        let uuid = uuid::Uuid::from_u128(1);
        let mut superblock = Superblock::new(uuid, fullbore_time::Tai(0), volume);
        for place in [0, volume.second_copy()] {
            superblock.generation = u64::from(place > 0);
            image.as_file().write_all_at(&superblock.encode(), place).unwrap();
        }
        (image, volume)
    }

    #[test]
    fn an_index_gives_no_right_to_what_somebody_else_has_put_there_since() {
        let marks: [(u64, &[u8]); 5] = [
            (4086, b"SWAPSPACE2"),
            (510, b"\x55\xaa"),
            (1080, b"\x53\xef"),
            (0, b"XFSB"),
            (0, b"a form that nobody has heard of"),
        ];
        for (place, mark) in marks {
            let (image, volume) = indexed();
            assert!(clear(image.path(), None, Purpose::Index, None).unwrap().is_indexed());
            image.as_file().write_all_at(mark, place).unwrap();
            let error = clear(image.path(), None, Purpose::Index, None).unwrap_err();
            assert!(matches!(error, GuardError::Occupied { .. }), "{error}");
            assert!(error.to_string().contains("a scan index"), "{error}");
            let refused = super::super::Volume::open_to_change(image.path()).map(|_| ());
            assert!(refused.is_err(), "nothing is removed or recovered there either");
            let zeros = vec![0; COPY_BYTES];
            image.as_file().write_all_at(&zeros, 0).unwrap();
            assert!(clear(image.path(), None, Purpose::Index, None).unwrap().is_indexed());
            image.as_file().write_all_at(&zeros, volume.second_copy()).unwrap();
        }
    }

    #[test]
    fn first_copy_that_is_partly_zeros_is_ours_and_is_repaired() {
        for (from, to) in [(0, 4096), (0, 8), (0, 4100), (0, COPY_BYTES)] {
            let (image, _) = indexed();
            image.as_file().write_all_at(&vec![0; to - from], from as u64).unwrap();
            assert_eq!(foreign_content(image.path()).unwrap(), []);
            let damaged = super::super::Volume::open_to_read(image.path()).unwrap();
            assert!(damaged.damage().is_some());
            let recovery = super::super::recover(image.path(), None).unwrap();
            assert!(recovery.repaired_index && recovery.scans.is_empty());
            let repaired = super::super::Volume::open_to_read(image.path()).unwrap();
            assert_eq!(repaired.damage(), None);
            assert_eq!(repaired.superblock().scans, damaged.superblock().scans);
            assert!(!super::super::recover(image.path(), None).unwrap().repaired_index);
        }
        let (image, _) = indexed();
        image.as_file().write_all_at(b"another form", 0).unwrap();
        assert_eq!(foreign_content(image.path()).unwrap(), [ExistingContent::Foreign]);
    }

    #[test]
    fn an_index_of_which_both_copies_are_damaged_is_not_taken_for_nothing() {
        let (image, volume) = indexed();
        for place in [0, volume.second_copy()] {
            image.as_file().write_all_at(b"damage", place + 100).unwrap();
        }
        let error = clear(image.path(), None, Purpose::Bare, None).unwrap_err();
        assert!(error.to_string().contains("cannot be read any more"), "{error}");
        let refused = super::super::Volume::open_to_change(image.path()).map(|_| ());
        assert!(refused.unwrap_err().to_string().contains("cannot be used"));
    }

    #[test]
    fn scans_are_promised_to_be_there_still_only_where_they_are() {
        let occupied = |findings: Vec<ExistingContent>| {
            GuardError::Occupied { path: "/dev/x".into(), findings }.hint().unwrap()
        };
        let table = || ExistingContent::PartitionTable { kind: "GPT".into() };
        let unreadable = ExistingContent::UnreadableIndex { why: "its checksum is wrong".into() };
        let told = occupied(vec![ExistingContent::ScanIndex { scans: 2 }, table()]);
        assert!(told.contains("fullbore verify device:/dev/x"), "{told}");
        for lost in [ExistingContent::ScanIndex { scans: 0 }, unreadable] {
            let told = occupied(vec![lost, table()]);
            assert!(!told.contains("scans"), "{told}");
        }
    }

    #[test]
    fn what_is_no_device_is_refused_and_a_file_is_made_only_with_a_size() {
        let directory = tempfile::tempdir().unwrap();
        let error = clear(directory.path(), None, Purpose::Bare, None).unwrap_err();
        assert!(matches!(error, GuardError::NoDevice { .. }));
        let missing = directory.path().join("disk.img");
        let error = clear(&missing, None, Purpose::Bare, None).unwrap_err();
        assert!(error.hint().unwrap().contains("size="));
        let cleared = clear(&missing, None, Purpose::Bare, Some(4096)).unwrap();
        assert_eq!(cleared.create_bytes(), Some(4096));
        let below_dev = Path::new("/dev/fullbore-no-such-device");
        assert!(clear(below_dev, None, Purpose::Bare, Some(4096)).is_err());
    }

    #[test]
    fn a_mount_is_found_by_number_and_by_name() {
        let numbers =
            Numbers { all: vec![("8:0".into(), "sda".into()), ("8:1".into(), "sda1".into())] };
        let mountinfo = "22 1 8:1 / /data\\040one rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                         23 1 0:45 / /pool rw - btrfs /dev/sda rw\n\
                         24 1 8:17 / /other rw - ext4 /dev/sdb1 rw\n\
                         broken\n";
        let findings = numbers.mounted(mountinfo);
        let told: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["sda1 is mounted at /data one", "sda is mounted at /pool"]);
        assert!(findings.iter().all(ExistingContent::is_in_use));
    }
}
