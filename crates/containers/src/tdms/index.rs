//! The index of a file: its lead-ins and metadata without the raw data, with the tag `TDSh`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use fullbore_formats::tdms::{LEAD_IN_BYTES, Scanner, Step};

use super::reader::scan;

/// The index of a closed file.
pub fn of(file: &File, file_bytes: u64) -> io::Result<Vec<u8>> {
    let mut index = Vec::new();
    let scanner = Scanner::new(file_bytes);
    scan(file, scanner, |step| {
        if let Step::Segment { lead_in, at } = step {
            index.extend(lead_in.to_bytes(true));
            let first = index.len();
            index.resize(first + lead_in.metadata_bytes as usize, 0);
            file.read_exact_at(&mut index[first..], at + LEAD_IN_BYTES)?;
        }
        Ok(())
    })?
    .map_err(io::Error::other)?;
    Ok(index)
}
