//! The frames of a Mark 6 recording, in the order in which they were recorded, as a port receives them.
//!
//! ```text
//! disk 0   | 0     | 3 |         | 8 |
//! disk 1     | 1 |     | 5 | 6 |            ──► blocks in order of their numbers ──► frames
//! disk 2     | 2     | 4 |   | 7 |
//! ```
//!
//! The headers of all blocks are read first. A number that no file has is a lost block: its frames are missing, by their
//! time. Bytes that are no whole frame at the end of a block are left out.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_formats::mark6::{BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FileHeader};
use fullbore_linux::sys::receive::Received;

use super::input::DatagramInput;

/// The most blocks of a recording: 160 TB of blocks of 10 MB.
const MOST_BLOCKS: usize = 1 << 24;

/// A block of one of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    number: u32,
    file: u16,
    /// Where its frames begin.
    offset: u64,
    /// Bytes of whole frames.
    bytes: u32,
}

/// The blocks of several files, in order.
pub struct Mark6Input {
    files: Vec<(PathBuf, File)>,
    frame_bytes: u32,
    blocks: VecDeque<Place>,
    buffer: Vec<u8>,
    /// The frames in the buffer that have not been received.
    frames: Range<usize>,
    notes: Vec<String>,
}

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct Mark6FileError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

fn invalid(path: &Path, why: impl std::fmt::Display) -> Mark6FileError {
    failed(path)(io::Error::new(io::ErrorKind::InvalidData, why.to_string()))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Mark6FileError + '_ {
    |source| Mark6FileError { path: path.to_owned(), source }
}

/// Reads the header of a file.
pub fn header_of(path: &Path) -> Result<FileHeader, Mark6FileError> {
    let mut bytes = [0; FILE_HEADER_BYTES];
    let read = File::open(path).and_then(|file| read_at(&file, &mut bytes, 0)).map_err(failed(path))?;
    FileHeader::read(&bytes[..read]).map_err(|error| invalid(path, error))
}

/// Reads up to a buffer's length, or the end of the file.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

impl Mark6Input {
    /// Opens the files of one recording, and finds their blocks.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Mark6FileError> {
        let mut input = Self {
            files: Vec::new(),
            frame_bytes: 0,
            blocks: VecDeque::new(),
            buffer: Vec::new(),
            frames: 0..0,
            notes: Vec::new(),
        };
        let mut blocks = Vec::new();
        for path in paths {
            let header = header_of(path)?;
            if !input.files.is_empty() && header.packet_bytes != input.frame_bytes {
                let (is, of) = (header.packet_bytes, input.frame_bytes);
                return Err(invalid(path, format!("it has packets of {is} bytes, and others have {of}: it is of another recording")));
            }
            input.frame_bytes = header.packet_bytes;
            let file = File::open(path).map_err(failed(path))?;
            let number = u16::try_from(input.files.len()).map_err(|_| invalid(path, "there are too many files"))?;
            find_blocks(path, &file, number, &header, &mut blocks, &mut input.notes)?;
            input.files.push((path.clone(), file));
        }
        blocks.sort_unstable();
        if let Some(twice) = blocks.windows(2).find(|pair| pair[0].number == pair[1].number) {
            let (path, number) = (&input.files[usize::from(twice[1].file)].0, twice[0].number);
            let other = input.files[usize::from(twice[0].file)].0.display();
            return Err(invalid(path, format!("block {number} is in {other} too: the files are not of one recording")));
        }
        if let Some(last) = blocks.last() {
            let lost = u64::from(last.number) + 1 - blocks.len() as u64;
            if lost > 0 {
                let all = u64::from(last.number) + 1;
                input.notes.push(format!("{lost} of {all} blocks are in none of the {} files", paths.len()));
            }
        }
        input.blocks = blocks.into();
        Ok(input)
    }
}

/// Reads the headers of the blocks of a file.
fn find_blocks(
    path: &Path,
    file: &File,
    number: u16,
    header: &FileHeader,
    blocks: &mut Vec<Place>,
    notes: &mut Vec<String>,
) -> Result<(), Mark6FileError> {
    let length = file.metadata().map_err(failed(path))?.len();
    let head_bytes = header.block_header_bytes();
    let mut offset = FILE_HEADER_BYTES as u64;
    while offset < length {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        let read = read_at(file, &mut bytes[..head_bytes], offset).map_err(failed(path))?;
        let block = match header.block(&bytes[..read]) {
            Ok(block) => block,
            Err(error) => {
                let left = length - offset;
                notes.push(format!("{}: the last {left} bytes are left out: {error}", path.display()));
                return Ok(());
            }
        };
        if blocks.len() == MOST_BLOCKS {
            return Err(invalid(path, format!("there are more than {MOST_BLOCKS} blocks")));
        }
        let begin = offset + head_bytes as u64;
        let stated = u64::from(block.bytes) - head_bytes as u64;
        let there = stated.min(length - begin);
        if there < stated {
            let (path, number) = (path.display(), block.number);
            notes.push(format!("{path}: block {number} has {there} of its {stated} bytes: the file is cut"));
        }
        let whole = there - there % u64::from(header.packet_bytes);
        blocks.push(Place { number: block.number, file: number, offset: begin, bytes: whole as u32 });
        offset = begin + stated;
    }
    Ok(())
}

impl DatagramInput for Mark6Input {
    fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        let mut count = 0;
        for (message, parts) in received.iter_mut().zip(slices.chunks_exact_mut(per_message)) {
            if self.frames.is_empty() {
                break;
            }
            let end = self.frames.start + self.frame_bytes as usize;
            let mut rest = &self.buffer[self.frames.start..end];
            self.frames.start = end;
            *message = Received { bytes: rest.len(), segment: None, sender: None };
            for part in parts {
                let (now, later) = rest.split_at(rest.len().min(part.len()));
                part[..now.len()].copy_from_slice(now);
                rest = later;
            }
            count += 1;
        }
        Ok(count)
    }

    fn emptied(&self) -> bool {
        self.frames.is_empty()
    }

    fn drops(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn has_drops(&self) -> bool {
        false
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn read_ahead(&mut self) -> io::Result<()> {
        if !self.frames.is_empty() {
            return Ok(());
        }
        let Some(block) = self.blocks.pop_front() else { return Ok(()) };
        let (path, file) = &self.files[usize::from(block.file)];
        self.buffer.resize(block.bytes as usize, 0);
        let read = read_at(file, &mut self.buffer, block.offset)?;
        if read < self.buffer.len() {
            return Err(io::Error::other(invalid(path, "the file has become shorter")));
        }
        self.frames = 0..read;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.frames.is_empty() && self.blocks.is_empty()
    }

    fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: usize = 16;

    /// A file with these blocks: number and frames.
    fn file(place: &Path, name: &str, version: i32, blocks: &[(i32, &[u8])]) -> PathBuf {
        let head = [0xFEED_6666_u32 as i32, version, 8 + 4 * FRAME as i32, 0, FRAME as i32];
        let mut bytes: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
        for (number, frames) in blocks {
            bytes.extend(number.to_le_bytes());
            if version == 2 {
                bytes.extend((8 + (frames.len() * FRAME) as i32).to_le_bytes());
            }
            frames.iter().for_each(|frame| bytes.extend([*frame; FRAME]));
        }
        let path = place.join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// The first byte of each frame, and the warnings.
    fn read(paths: &[PathBuf]) -> (Vec<u8>, Vec<String>) {
        let mut input = Mark6Input::open(paths).unwrap();
        let mut frames = Vec::new();
        while !input.is_over() {
            input.read_ahead().unwrap();
            let mut slots = [[0; FRAME]; 3];
            loop {
                let mut slices: Vec<IoSliceMut<'_>> = slots.iter_mut().map(|it| IoSliceMut::new(it)).collect();
                let mut messages = [Received::default(); 3];
                let count = input.receive(&mut slices, 1, &mut messages).unwrap();
                frames.extend(slots.iter().take(count).map(|slot| slot[0]));
                if count == 0 {
                    break;
                }
            }
        }
        (frames, input.take_warnings())
    }

    #[test]
    fn blocks_of_several_files_come_in_order_and_lost_ones_are_told() {
        let place = tempfile::tempdir().unwrap();
        let paths = [
            file(place.path(), "0", 2, &[(0, &[0, 1]), (3, &[6, 7, 8]), (7, &[14])]),
            file(place.path(), "1", 2, &[(1, &[2, 3]), (4, &[9, 10])]),
            file(place.path(), "2", 2, &[(2, &[4, 5]), (5, &[11])]),
        ];
        let (frames, told) = read(&paths);
        assert_eq!(frames, (0..12).chain([14]).collect::<Vec<u8>>());
        assert_eq!(told, ["1 of 8 blocks are in none of the 3 files"]);
    }

    #[test]
    fn a_file_that_is_cut_gives_its_whole_frames() {
        let place = tempfile::tempdir().unwrap();
        let path = file(place.path(), "0", 2, &[(0, &[0, 1]), (1, &[2, 3])]);
        let whole = std::fs::read(&path).unwrap();
        for length in 20..whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let (frames, told) = read(std::slice::from_ref(&path));
            let first = length.saturating_sub(28).min(2 * FRAME) / FRAME;
            let second = length.saturating_sub(36 + 2 * FRAME) / FRAME;
            assert_eq!(frames, (0..(first + second) as u8).collect::<Vec<u8>>(), "{length}");
            let is_whole = length == 20 || length == 28 + 2 * FRAME;
            assert_eq!(told.is_empty(), is_whole, "{length}: {told:?}");
        }
    }

    #[test]
    fn blocks_of_version_1_have_the_size_of_the_file() {
        let place = tempfile::tempdir().unwrap();
        let path = file(place.path(), "0", 1, &[(0, &[0, 1, 2, 3]), (1, &[4, 5, 6, 7])]);
        // Their header has 4 bytes, so 4 bytes of each block are no frame.
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.splice(20 + 4 + 4 * FRAME..20 + 4 + 4 * FRAME, [9; 4]);
        std::fs::write(&path, bytes).unwrap();
        let (frames, told) = read(&[path]);
        assert_eq!(frames, (0..8).collect::<Vec<u8>>());
        assert!(told[0].contains("block 1 has 64 of its 68 bytes"), "{told:?}");
    }

    #[test]
    fn files_of_different_recordings_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let one = file(place.path(), "0", 2, &[(0, &[0])]);
        let other = file(place.path(), "1", 2, &[(0, &[0])]);
        let error = |paths: &[PathBuf]| Mark6Input::open(paths).err().unwrap().to_string();
        assert!(error(&[one.clone(), other.clone()]).contains("block 0 is in"));
        let mut bytes = std::fs::read(&other).unwrap();
        bytes[16] = 8;
        std::fs::write(&other, &bytes).unwrap();
        assert!(error(&[one, other.clone()]).contains("packets of 8 bytes"));
        bytes[0] = 0;
        std::fs::write(&other, bytes).unwrap();
        assert!(error(&[other]).contains("0xfeed6666"));
    }
}
