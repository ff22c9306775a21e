//! Reads TDMS files, also those that were never closed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_formats::tdms::{
    ChannelCursor, Contents, DataType, ObjectId, Run, Scanner, Step, TdmsError,
};

use super::transpose::swap;

/// Bytes that are read at once to find a segment.
const LOOK: usize = 4096;

/// Bytes of rows that are read at once.
pub(super) const WINDOW: u64 = 4 << 20;

/// A file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TdmsFileError {
    /// It could not be read.
    #[error("{}: it cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It is not TDMS that can be read.
    #[error("{}: {source}", path.display())]
    Tdms {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: TdmsError,
    },
    /// Its content does not fit what is made of it.
    #[error("{}: {why}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

/// Reads all segments, and tells of each step. The outer error is one of reading.
pub(super) fn scan(
    file: &File,
    mut scanner: Scanner,
    mut tell: impl FnMut(Step) -> io::Result<()>,
) -> io::Result<Result<Contents, TdmsError>> {
    let mut bytes = Vec::new();
    let mut wanted = LOOK;
    loop {
        bytes.resize(wanted, 0);
        let there = read_at_most(file, &mut bytes, scanner.position())?;
        let step = match scanner.step(&bytes[..there]) {
            Ok(step) => step,
            Err(error) => return Ok(Err(error)),
        };
        match step {
            Step::More(needed) if needed <= there => unreachable!("it has these bytes"),
            // The file was cut meanwhile.
            Step::More(_) if there < wanted => return Err(io::ErrorKind::UnexpectedEof.into()),
            Step::More(needed) => wanted = needed,
            Step::Segment { .. } => wanted = LOOK,
            Step::End => return Ok(Ok(scanner.finish())),
        }
        tell(step)?;
    }
}

fn read_at_most(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut there = 0;
    while there < bytes.len() {
        match file.read_at(&mut bytes[there..], at + there as u64) {
            Ok(0) => break,
            Ok(more) => there += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(there)
}

/// A TDMS file.
pub struct TdmsFile {
    path: PathBuf,
    file: File,
    contents: Contents,
}

impl TdmsFile {
    /// True if the path is a file that begins as TDMS, or has the name of one.
    pub fn is_one(path: &Path) -> bool {
        let mut first = [0; 4];
        let read = |file: File| file.read_exact_at(&mut first, 0);
        // Opening a pipe would wait for its writer.
        let begins = path.is_file() && File::open(path).and_then(read).is_ok();
        begins && first == *b"TDSm" || path.extension().is_some_and(|it| it == "tdms")
    }

    /// Opens a file and finds its segments.
    pub fn open(path: &Path) -> Result<Self, TdmsFileError> {
        let failed = |source| TdmsFileError::Read { path: path.to_owned(), source };
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() {
            let why = "it is not a regular file".to_owned();
            return Err(TdmsFileError::Content { path: path.to_owned(), why });
        }
        let file = File::open(path).map_err(failed)?;
        let scanner = Scanner::new(file.metadata().map_err(failed)?.len());
        let found = scan(&file, scanner, |_| Ok(())).map_err(failed)?;
        let contents =
            found.map_err(|source| TdmsFileError::Tdms { path: path.to_owned(), source })?;
        if contents.segment_count() == 0 {
            let why = "it has no segment of TDMS".to_owned();
            return Err(TdmsFileError::Content { path: path.to_owned(), why });
        }
        Ok(Self { path: path.to_owned(), file, contents })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it has.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// An error about its content.
    pub fn refuse(&self, why: impl Into<String>) -> TdmsFileError {
        TdmsFileError::Content { path: self.path.clone(), why: why.into() }
    }

    pub(super) fn failed(&self, source: io::Error) -> TdmsFileError {
        TdmsFileError::Read { path: self.path.clone(), source }
    }
}

/// Rows that channels read one after the other.
#[derive(Default)]
pub struct Window {
    at: u64,
    bytes: Vec<u8>,
}

impl Window {
    fn rows(&mut self, file: &File, at: u64, length: usize) -> io::Result<&[u8]> {
        let end = at + length as u64;
        if at < self.at || end > self.at + self.bytes.len() as u64 {
            self.bytes.resize(length, 0);
            self.at = at;
            if let Err(error) = file.read_exact_at(&mut self.bytes, at) {
                self.bytes.clear();
                return Err(error);
            }
        }
        let from = (at - self.at) as usize;
        Ok(&self.bytes[from..from + length])
    }
}

/// Reads the values of a channel in order, little-endian.
pub struct ChannelReader {
    cursor: ChannelCursor,
    size: usize,
    part_bytes: usize,
}

impl ChannelReader {
    /// A reader of a channel with values of this type.
    ///
    /// # Panics
    ///
    /// If the type is text.
    pub fn new(channel: ObjectId, data_type: DataType) -> Self {
        let sizes = data_type.bytes().zip(data_type.part_bytes());
        let (size, part_bytes) = sizes.expect("text has no size");
        let cursor = ChannelCursor::new(channel);
        Self { cursor, size: size as usize, part_bytes: part_bytes as usize }
    }

    /// Reads the next values. There are as many.
    pub fn read(
        &mut self,
        file: &TdmsFile,
        window: &mut Window,
        mut values: &mut [u8],
    ) -> io::Result<()> {
        while !values.is_empty() {
            let most = (values.len() / self.size) as u64;
            let run = self.cursor.next(&file.contents, most, WINDOW);
            let run = run.ok_or(io::ErrorKind::UnexpectedEof)?;
            let (here, rest) = values.split_at_mut(run.values as usize * self.size);
            self.read_run(file, window, run, here)?;
            values = rest;
        }
        Ok(())
    }

    fn read_run(
        &self,
        file: &TdmsFile,
        window: &mut Window,
        run: Run,
        values: &mut [u8],
    ) -> io::Result<()> {
        if run.row_bytes == self.size as u64 && run.bit.is_none() {
            file.file.read_exact_at(values, run.at)?;
        } else {
            let length = run.values * run.row_bytes;
            let rows = window.rows(&file.file, run.at, length as usize)?;
            gather(rows, run, self.size, values);
        }
        if run.big_endian {
            swap(values, self.part_bytes);
        }
        Ok(())
    }
}

fn gather(rows: &[u8], run: Run, size: usize, values: &mut [u8]) {
    let rows = rows[run.in_row as usize..].chunks(run.row_bytes as usize);
    match (run.bit, size) {
        (Some(bit), _) => {
            values.iter_mut().zip(rows).for_each(|(value, row)| *value = row[0] >> bit & 1);
        }
        (None, 1) => each::<1>(rows, values),
        (None, 2) => each::<2>(rows, values),
        (None, 4) => each::<4>(rows, values),
        (None, 8) => each::<8>(rows, values),
        (None, _) => each::<16>(rows, values),
    }
}

fn each<'a, const N: usize>(rows: impl Iterator<Item = &'a [u8]>, values: &mut [u8]) {
    for (value, row) in values.as_chunks_mut::<N>().0.iter_mut().zip(rows) {
        value.copy_from_slice(&row[..N]);
    }
}
