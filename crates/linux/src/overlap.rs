//! Detects a source that overlaps the destination.

use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// The identity of a file or device, the same for all of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A file: the number of its file system's device, and its inode.
    File(u64, u64),
    /// A block device: its number.
    Device(u64),
}

impl Identity {
    /// The identity of an open file; `None` if it is neither a regular file nor a block device.
    pub fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        let kind = metadata.file_type();
        if kind.is_block_device() {
            Some(Self::Device(metadata.rdev()))
        } else {
            kind.is_file().then(|| Self::File(metadata.dev(), metadata.ino()))
        }
    }
}

/// A range of bytes of a file or device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The file or device.
    pub of: Identity,
    /// Address of the first byte.
    pub first: u64,
    /// Address after the last byte.
    pub end: u64,
}

impl Range {
    /// True if the ranges share a byte.
    pub fn meets(&self, other: &Range) -> bool {
        self.of == other.of && self.first < other.end && other.first < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_meet_only_in_a_byte_of_the_same_file() {
        let of = Identity::File(1, 2);
        let range = |first, end| Range { of, first, end };
        assert!(range(0, 10).meets(&range(9, 20)) && range(5, 6).meets(&range(0, 10)));
        assert!(!range(0, 10).meets(&range(10, 20)) && !range(10, 20).meets(&range(0, 10)));
        assert!(!range(0, 10).meets(&Range { of: Identity::Device(1), ..range(0, 10) }));
    }

    #[test]
    fn two_names_of_a_file_are_one() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        let first = File::create(&one).unwrap();
        std::fs::hard_link(&one, &other).unwrap();
        assert_eq!(Identity::of(&first), Identity::of(&File::open(&other).unwrap()));
        let another = File::create(directory.path().join("another")).unwrap();
        assert_ne!(Identity::of(&first), Identity::of(&another));
        assert_eq!(Identity::of(&File::open("/dev/null").unwrap()), None);
    }
}
