//! Signatures at known places of a device: partition tables, file systems, RAID members.
//!
//! The places are documented by libblkid, the kernel's partition code and each format's own documentation.

use std::io::{self, Read, Seek, SeekFrom};

use super::overwrite_guard::ExistingContent;

/// Bytes read at the beginning.
pub const HEAD_BYTES: usize = 256 << 10;

/// Bytes read at the end.
pub const TAIL_BYTES: usize = 128 << 10;

/// The class of content that a signature indicates.
#[derive(Clone, Copy, Debug)]
enum Class {
    Partitions,
    FileSystem,
    Raid,
    VolumeManager,
    Encrypted,
    Swap,
}

/// Bytes that identify the content of a device.
struct Signature {
    class: Class,
    name: &'static str,
    /// Offset from the beginning, or from the end if negative.
    place: i64,
    bytes: &'static [u8],
}

const fn row(class: Class, name: &'static str, place: i64, bytes: &'static [u8]) -> Signature {
    Signature { class, name, place, bytes }
}

const SIGNATURES: &[Signature] = &[
    row(Class::Partitions, "GPT", 512, b"EFI PART"),
    row(Class::Partitions, "GPT", 4096, b"EFI PART"),
    row(Class::Partitions, "GPT (its copy at the end)", -512, b"EFI PART"),
    row(Class::Partitions, "GPT (its copy at the end)", -4096, b"EFI PART"),
    row(Class::Partitions, "MBR or boot sector", 510, b"\x55\xaa"),
    row(Class::FileSystem, "ext2, ext3 or ext4", 1080, b"\x53\xef"),
    row(Class::FileSystem, "XFS", 0, b"XFSB"),
    row(Class::FileSystem, "btrfs", 65_600, b"_BHRfS_M"),
    row(Class::FileSystem, "F2FS", 1024, b"\x10\x20\xf5\xf2"),
    row(Class::FileSystem, "NTFS", 3, b"NTFS    "),
    row(Class::FileSystem, "exFAT", 3, b"EXFAT   "),
    row(Class::FileSystem, "FAT", 54, b"FAT1"),
    row(Class::FileSystem, "FAT", 82, b"FAT32"),
    row(Class::FileSystem, "ISO 9660", 32_769, b"CD001"),
    row(Class::FileSystem, "UDF", 32_769, b"BEA01"),
    row(Class::FileSystem, "UDF", 32_769, b"NSR02"),
    row(Class::FileSystem, "UDF", 32_769, b"NSR03"),
    row(Class::FileSystem, "JFS", 32_768, b"JFS1"),
    row(Class::FileSystem, "ReiserFS", 65_588, b"ReIsErFs"),
    row(Class::FileSystem, "ReiserFS", 65_588, b"ReIsEr2Fs"),
    row(Class::FileSystem, "ReiserFS", 65_588, b"ReIsEr3Fs"),
    row(Class::FileSystem, "ReiserFS", 8244, b"ReIsErFs"),
    row(Class::FileSystem, "Reiser4", 65_536, b"ReIsEr4"),
    // Revision 2.0, before the two bytes of the magic number.
    row(Class::FileSystem, "NILFS2", 1024, b"\x02\0\0\0\0\0\x34\x34"),
    row(Class::FileSystem, "GFS2", 65_536, b"\x01\x16\x19\x70\0\0\0\x01"),
    row(Class::FileSystem, "squashfs", 0, b"hsqs"),
    row(Class::FileSystem, "EROFS", 1024, b"\xe2\xe1\xf5\xe0"),
    row(Class::FileSystem, "APFS", 32, b"NXSB"),
    row(Class::FileSystem, "HFS+", 1024, b"H+\x00\x04"),
    row(Class::FileSystem, "bcache or bcachefs", 4120, b"\xc6\x85\x73\xf6"),
    row(Class::Raid, "Linux RAID 1.1", 0, b"\xfc\x4e\x2b\xa9"),
    row(Class::Raid, "Linux RAID 1.2", 4096, b"\xfc\x4e\x2b\xa9"),
    row(Class::Raid, "DDF RAID", -512, b"\xde\x11\xde\x11"),
    row(Class::Raid, "Intel RAID", -1024, b"Intel Raid ISM Cfg Sig. "),
    row(Class::VolumeManager, "LVM", 0, b"LABELONE"),
    row(Class::VolumeManager, "LVM", 512, b"LABELONE"),
    row(Class::VolumeManager, "LVM", 1024, b"LABELONE"),
    row(Class::VolumeManager, "LVM", 1536, b"LABELONE"),
    row(Class::Encrypted, "LUKS", 0, b"LUKS\xba\xbe"),
    row(Class::Encrypted, "LUKS (its second header)", 16_384, b"SKUL\xba\xbe"),
    row(Class::Encrypted, "BitLocker", 3, b"-FVE-FS-"),
    row(Class::Swap, "swap", 4086, b"SWAPSPACE2"),
    row(Class::Swap, "swap", 4086, b"SWAP-SPACE"),
    row(Class::Swap, "swap", 65_526, b"SWAPSPACE2"),
];

/// The first word of a Linux RAID superblock.
const RAID_WORD: &[u8] = b"\xfc\x4e\x2b\xa9";

/// The first word of a ZFS uberblock in either byte order, and the offsets of uberblocks in the first label.
const ZFS_WORDS: [u64; 2] = [0x00ba_b10c, 0x0cb1_ba00_0000_0000];
const ZFS_PLACES: std::ops::Range<usize> = (128 << 10)..(256 << 10);

/// Searches a device of `bytes` bytes. Content that is found twice is listed once.
pub fn look(device: &mut (impl Read + Seek), bytes: u64) -> io::Result<Vec<ExistingContent>> {
    let head_bytes = bytes.min(HEAD_BYTES as u64) as usize;
    let mut head = vec![0; head_bytes];
    device.seek(SeekFrom::Start(0))?;
    device.read_exact(&mut head)?;
    let tail_bytes = bytes.min(TAIL_BYTES as u64) as usize;
    let mut tail = vec![0; tail_bytes];
    device.seek(SeekFrom::Start(bytes - tail_bytes as u64))?;
    device.read_exact(&mut tail)?;
    Ok(find(&head, &tail, bytes))
}

fn find(head: &[u8], tail: &[u8], bytes: u64) -> Vec<ExistingContent> {
    let mut found: Vec<ExistingContent> = Vec::new();
    let mut add = |finding: ExistingContent| {
        if !found.contains(&finding) {
            found.push(finding);
        }
    };
    for signature in SIGNATURES {
        let (place, area) = match usize::try_from(signature.place) {
            Ok(place) => (Some(place), head),
            Err(_) => (tail.len().checked_sub(signature.place.unsigned_abs() as usize), tail),
        };
        let there = place
            .and_then(|place| area.get(place..))
            .is_some_and(|it| it.starts_with(signature.bytes));
        if there {
            add(finding(signature.class, signature.name));
        }
    }
    for place in raid_places(bytes) {
        let in_tail = (place + tail.len() as u64).checked_sub(bytes);
        let at = in_tail.and_then(|at| tail.get(at as usize..));
        if at.is_some_and(|it| it.starts_with(RAID_WORD)) {
            add(finding(Class::Raid, "Linux RAID 0.90 or 1.0"));
        }
    }
    let zfs = head.get(ZFS_PLACES).unwrap_or_default().chunks(1024).any(|it| {
        let word = it.first_chunk().map(|word| u64::from_le_bytes(*word));
        word.is_some_and(|word| ZFS_WORDS.contains(&word))
    });
    if zfs {
        add(finding(Class::FileSystem, "ZFS"));
    }
    found
}

/// The offsets of the superblock in the two older versions of Linux RAID.
fn raid_places(bytes: u64) -> impl Iterator<Item = u64> {
    let oldest = (bytes & !0xffff).checked_sub(0x1_0000);
    let old = (bytes & !0xfff).checked_sub(0x2000);
    [oldest, old].into_iter().flatten()
}

fn finding(class: Class, name: &str) -> ExistingContent {
    let kind = name.to_owned();
    match class {
        Class::Partitions => ExistingContent::PartitionTable { kind },
        Class::FileSystem => ExistingContent::FileSystem { kind },
        Class::Raid => ExistingContent::Raid { kind },
        Class::VolumeManager => ExistingContent::VolumeManager { kind },
        Class::Encrypted => ExistingContent::Encrypted { kind },
        Class::Swap => ExistingContent::Swap,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn seen(bytes: &[u8]) -> Vec<ExistingContent> {
        look(&mut Cursor::new(bytes), bytes.len() as u64).unwrap()
    }

    #[test]
    fn each_signature_is_found_where_it_lies_and_a_blank_device_has_none() {
        let blank = vec![0; 1 << 20];
        assert_eq!(seen(&blank), []);
        for signature in SIGNATURES {
            let mut device = blank.clone();
            let place = match usize::try_from(signature.place) {
                Ok(place) => place,
                Err(_) => device.len() - signature.place.unsigned_abs() as usize,
            };
            device[place..place + signature.bytes.len()].copy_from_slice(signature.bytes);
            assert_eq!(
                seen(&device),
                [finding(signature.class, signature.name)],
                "{}",
                signature.name
            );
        }
    }

    #[test]
    fn raid_members_of_the_older_forms_and_pools_of_zfs_are_found() {
        for place in [(1 << 20) - 0x1_0000, (1 << 20) - 0x2000] {
            let mut device = vec![0; (1 << 20) + 512];
            device[place..place + 4].copy_from_slice(RAID_WORD);
            assert!(matches!(&seen(&device)[..], [ExistingContent::Raid { .. }]), "{place:#x}");
        }
        let mut device = vec![0; 1 << 20];
        device[(132 << 10)..(132 << 10) + 8].copy_from_slice(&0x00ba_b10c_u64.to_le_bytes());
        assert_eq!(seen(&device), [ExistingContent::FileSystem { kind: "ZFS".into() }]);
    }

    #[test]
    fn a_device_smaller_than_what_is_looked_at_is_looked_at_whole() {
        for bytes in [0, 1, 511, 512, 4096, 5000] {
            assert_eq!(seen(&vec![0; bytes]), [], "{bytes}");
        }
        let mut small = vec![0; 1024];
        small[510..512].copy_from_slice(b"\x55\xaa");
        assert_eq!(seen(&small).len(), 1);
    }
}
