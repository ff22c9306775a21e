//! Loop devices and their backing files: use of one implies use of the other.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use fullbore_linux::sys::loops::{Backing, backing};
use rustix::fs::{major, minor};

use super::overwrite_guard::ExistingContent;

/// The loop devices that map a file, under any of its names.
pub fn over_file(metadata: &Metadata) -> Vec<ExistingContent> {
    let (device, inode) = (metadata.dev(), metadata.ino());
    showing(|shown| (shown.device, shown.inode) == (device, inode))
}

/// The loop devices that map one of these devices, `7:0`.
pub fn over_devices(numbers: &[String]) -> Vec<ExistingContent> {
    showing(|shown| {
        let number = format!("{}:{}", major(shown.shown_device), minor(shown.shown_device));
        shown.shown_device != 0 && numbers.contains(&number)
    })
}

fn showing(is_it: impl Fn(&Backing) -> bool) -> Vec<ExistingContent> {
    let Ok(entries) = fs::read_dir("/sys/block") else { return Vec::new() };
    let mut findings = Vec::new();
    for entry in entries.flatten() {
        let Ok(path) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let device = Path::new("/dev").join(entry.file_name());
        // The device itself is more reliable than the path, which may be deleted or belong to another mount namespace.
        let requested = File::open(&device).and_then(|device| backing(&device)).ok();
        let shown = requested.or_else(|| named(Path::new(path.trim_end_matches('\n'))));
        if shown.is_some_and(|shown| is_it(&shown)) {
            findings.push(ExistingContent::LoopDevice { device: device.display().to_string() });
        }
    }
    findings
}

fn named(path: &Path) -> Option<Backing> {
    let metadata = fs::metadata(path).ok()?;
    let is_device = metadata.file_type().is_block_device();
    let shown_device = if is_device { metadata.rdev() } else { 0 };
    Some(Backing { device: metadata.dev(), inode: metadata.ino(), shown_device })
}
