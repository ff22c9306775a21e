//! The file that protects a scan from removal.
//!
//! A protected scan has a file `protected` beside each of its streams, on every member.

use std::path::Path;

use fullbore_core::manifest::SIDE_DIRECTORY;

/// The file, in a stream's side directory, that protects its scan.
pub const PROTECTED_FILE: &str = "protected";

/// Returns true if a stream's directory has the protection file.
pub fn is_protected(directory: &Path) -> bool {
    directory.join(SIDE_DIRECTORY).join(PROTECTED_FILE).exists()
}
