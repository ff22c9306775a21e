//! A PandA's acquisition: a dataset for each column, with the names and types that its users' scripts expect.

use std::collections::HashSet;
use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use fullbore_formats::panda::Header;
use fullbore_formats::panda::columns::{Column, Columns, Element};
use fullbore_formats::panda::control::Settings;
use fullbore_linux::sys::hdf5::Wide;
use fullbore_time::Tai;
use hdf5_metno::types::{CompoundField, CompoundType, FloatSize, IntSize, TypeDescriptor};
use hdf5_metno::{Dataset, File, H5Type};
use zerocopy::IntoBytes;

use super::attributes::{self, PreviousRecordings};
use super::column_buffers::ColumnBuffers;
use super::dataset::{Layout, RowDataset};
use super::file::{Begun, Hdf5File, check_ended, kernel, own_datasets, refused};
use super::index::{self, Acquisition};
use super::nexus;
use super::{Ending, Error, Existing, Options, Report, SETTINGS, WRITING};

/// The largest number of threads that compress chunks. Each works on one column.
const MOST_FILTER_THREADS: usize = 4;

/// An HDF5 file for the samples of one acquisition.
#[derive(Debug)]
pub struct PandaFile {
    container: Hdf5File,
    columns: Columns,
    column_buffers: ColumnBuffers,
    rows: Vec<RowDataset>,
    /// Rows in the HDF5 chunk that is being filled.
    filled: usize,
    chunk_rows: usize,
    /// Rows of this acquisition, and the number of them that the last flush has shown.
    written: u64,
    seen: u64,
    about: About,
    /// The number of threads that compress chunks.
    filter_threads: usize,
}

/// The attributes of the acquisition that are written at the end.
#[derive(Debug)]
struct About {
    header: Header,
    /// The settings of the PandA, as JSON.
    settings: Option<String>,
    /// Rows of earlier acquisitions in the file, and their attributes.
    first: u64,
    earlier: PreviousRecordings,
    indexed: bool,
}

impl PandaFile {
    /// Creates a file, or starts one more acquisition in it. Readers have access when this returns.
    pub fn create(path: &Path, header: &Header, options: &Options) -> Result<Self, Error> {
        Self::create_with(path, header, None, options)
    }

    /// The same, with the settings of the PandA.
    pub fn create_with(
        path: &Path,
        header: &Header,
        settings: Option<&Settings>,
        options: &Options,
    ) -> Result<Self, Error> {
        let columns = Columns::new(header, options.form)
            .map_err(|source| Error::Columns { path: path.to_owned(), source })?;
        check_names(columns.list(), path)?;
        let settings = settings.and_then(|settings| serde_json::to_string(settings).ok());
        let (container, inside) = Hdf5File::create(path, options, |file, begun| {
            let inside = match begun {
                Begun::New => begin(file, &columns, header, options, path),
                Begun::Continued => resume(file, &columns, header, path),
            }?;
            if let Some(json) = &settings {
                attributes::text(file, SETTINGS, json, path)?;
            } else if begun == Begun::Continued {
                // These belong to the previous acquisition.
                attributes::remove(file, SETTINGS, path)?;
            }
            Ok(inside)
        })?;
        let (mut container, mut inside) = (container, inside);
        container.keep_room(inside.rows.iter().map(RowDataset::room_to_cut).sum());
        inside.go_direct(&container);
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        Ok(PandaFile {
            container,
            chunk_rows: inside.rows[0].chunk_rows(),
            column_buffers: inside.column_buffers,
            rows: inside.rows,
            filled: inside.filled,
            written: 0,
            seen: 0,
            columns,
            about: About {
                header: header.clone(),
                settings,
                first: inside.first,
                earlier: inside.earlier,
                indexed: options.existing == Existing::Append,
            },
            filter_threads: threads.clamp(1, MOST_FILTER_THREADS),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.container.path
    }

    /// Returns the file's current path, if it was renamed. Refuses a file whose last name was removed.
    pub fn moved_to(&self) -> Result<Option<PathBuf>, Error> {
        self.container.moved_to()
    }

    /// The number of rows of this acquisition so far.
    pub fn rows(&self) -> u64 {
        self.written
    }

    /// Appends whole samples. They must be certified, since data in the file stays.
    pub fn append(&mut self, samples: &[u8]) -> Result<(), Error> {
        let unit = self.columns.sample_bytes();
        if !samples.len().is_multiple_of(unit) {
            let (path, length) = (self.container.path.clone(), samples.len());
            return Err(Error::Ragged { path, length, unit });
        }
        self.container.guard(|_| Ok(()))?;
        let mut rest = samples;
        while !rest.is_empty() {
            let room = (self.chunk_rows - self.filled) * unit;
            let (now, later) = rest.split_at(room.min(rest.len()));
            let (columns, column_buffers) = (&self.columns, &mut self.column_buffers);
            let mut chunks =
                self.container.guard(|path| column_buffers.columns_mut().map_err(writing(path)))?;
            let rows = columns.convert(now, self.filled, &mut chunks);
            self.filled += rows;
            self.written += rows as u64;
            if self.filled == self.chunk_rows {
                self.put()?;
            }
            rest = later;
        }
        Ok(())
    }

    /// Makes all rows visible to readers. Call it about once a second.
    pub fn flush(&mut self) -> Result<(), Error> {
        let PandaFile { container, rows, column_buffers, filled, chunk_rows, .. } = self;
        container.flush(|path| {
            if *filled > 0 {
                // Rows without samples are zeros, not rows of the previous chunk.
                for chunk in column_buffers.columns_mut().map_err(writing(path))? {
                    let from = chunk.len() / *chunk_rows * *filled;
                    chunk[from..].fill(0);
                }
            }
            column_buffers.make_room().map_err(writing(path))?;
            let chunks = rows.iter_mut().zip(column_buffers.columns());
            let places = chunks.map(|(rows, chunk)| rows.show(chunk, *filled, path));
            let places = places.collect::<Result<Vec<_>, _>>()?;
            // The rows that readers see next are in the file by then.
            column_buffers.show(&places).map_err(writing(path))?;
            rows.iter().try_for_each(|rows| rows.flush(path))
        })?;
        self.seen = self.written;
        Ok(())
    }

    /// Syncs flushed data to the disk. It survives a crash of the machine once this returns.
    pub fn sync(&self) -> Result<(), Error> {
        self.container.sync()
    }

    /// Ends the acquisition: writes the last rows and the ending.
    ///
    /// If the last rows cannot be written, the file ends with the rows before them, as with [`PandaFile::abandon`].
    pub fn finish(mut self, ending: &Ending) -> Result<Report, Error> {
        if let Err(error) = self.flush() {
            self.rescue();
            // The first error is more informative than later ones.
            let ending = ending.cut_short(&crate::cause(&error));
            let _ = self.abandon(&Ending { verdict: None, account: None, ..ending });
            return Err(error);
        }
        let longest_write =
            self.rows.iter().map(RowDataset::longest).fold(self.column_buffers.longest(), Ord::max);
        let direct = self.column_buffers.are_direct();
        let path = self.container.path.clone();
        let (rows, about) = (self.written, self.about);
        drop(self.column_buffers);
        let (flushes, file_bytes) =
            self.container.close(self.rows, |file| about.end(file, ending, rows, &path))?;
        Ok(Report {
            rows,
            bytes_in: rows * self.columns.sample_bytes() as u64,
            file_bytes,
            path,
            flushes,
            longest_write,
            direct,
        })
    }

    /// After a failed write: makes the rows visible that are complete in every column, in the space reserved for the
    /// ending. Returns the number of rows of the acquisition that readers see, and that [`PandaFile::abandon`] leaves.
    pub fn rescue(&mut self) -> u64 {
        let whole = self.rows.iter().map(RowDataset::length).min().unwrap_or(0);
        let whole = whole.saturating_sub(self.about.first);
        if self.column_buffers.settle() && whole > self.seen {
            self.container.use_room();
            let path = &self.container.path;
            if self.rows.iter().all(|rows| rows.flush(path).is_ok()) {
                self.seen = whole;
            }
        }
        self.seen
    }

    /// Ends an acquisition to which no more data can be written: cuts every column to the last flush or
    /// [`PandaFile::rescue`], and writes the ending if there is room. Returns the number of rows.
    pub fn abandon(self, ending: &Ending) -> Result<u64, Error> {
        // Waits for the writes under way: their rows are cut off.
        drop(self.column_buffers);
        let (path, seen, about) = (self.container.path.clone(), self.seen, self.about);
        let datasets = self.rows.into_iter().map(|rows| (rows, about.first + seen)).collect();
        self.container.abandon(datasets, |file| about.end(file, ending, seen, &path))?;
        Ok(seen)
    }

    fn put(&mut self) -> Result<(), Error> {
        let PandaFile { container, rows, column_buffers, filter_threads, .. } = self;
        if *filter_threads > 1 && rows.iter().any(RowDataset::is_filtered) {
            filter(rows, column_buffers, *filter_threads);
        }
        container.guard(|path| {
            column_buffers.make_room().map_err(writing(path))?;
            let chunks = rows.iter_mut().zip(column_buffers.columns());
            let places = chunks.map(|(rows, chunk)| rows.put(chunk, path));
            column_buffers.put(&places.collect::<Result<Vec<_>, _>>()?).map_err(writing(path))
        })?;
        self.filled = 0;
        Ok(())
    }
}

impl About {
    /// Writes the ending, with this number of rows.
    fn end(&self, file: &File, ending: &Ending, rows: u64, path: &Path) -> Result<(), Error> {
        attributes::end(file, ending, &self.earlier, self.first + rows, path)?;
        if !self.indexed {
            return Ok(());
        }
        let acquisition = Acquisition::new(ending, self.first, rows);
        let acquisition = acquisition.of_panda(&self.header, self.settings.clone());
        index::add(file, &acquisition).map_err(refused(path, "adding to its index"))
    }
}

/// Compresses the chunks of all columns on several threads. One thread writes them.
fn filter(rows: &mut [RowDataset], column_buffers: &ColumnBuffers, threads: usize) {
    let left = Mutex::new(rows.iter_mut().zip(column_buffers.columns()));
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((rows, chunk)) = next() {
            rows.filter(chunk);
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
}

/// The contents of a file that accepts samples.
struct Inside {
    rows: Vec<RowDataset>,
    column_buffers: ColumnBuffers,
    filled: usize,
    first: u64,
    earlier: PreviousRecordings,
}

impl Inside {
    /// Switches to writes of chunks past the page cache, if worthwhile and possible.
    fn go_direct(&mut self, container: &Hdf5File) {
        let is_plain = !self.rows.iter().any(RowDataset::is_filtered);
        if is_plain && self.column_buffers.go_direct(|page| container.direct(page)) {
            self.rows.iter_mut().for_each(RowDataset::leave_chunks);
        }
    }
}

/// Allocates memory for the chunks of this many rows of all columns.
fn column_buffers(
    columns: &Columns,
    chunk_rows: usize,
    path: &Path,
) -> Result<ColumnBuffers, Error> {
    let chunks = columns.list().iter().map(|column| column.element.bytes() * chunk_rows);
    ColumnBuffers::new(&chunks.collect::<Vec<_>>())
        .map_err(kernel(path, "taking memory for its columns"))
}

fn writing(path: &Path) -> impl FnOnce(io::Error) -> Error {
    kernel(path, WRITING)
}

/// HDF5 takes a name with a slash for a path.
fn check_names(columns: &[Column], path: &Path) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for column in columns {
        let (path, name) = (path.to_owned(), column.name.escape_debug().to_string());
        let is_group = [index::GROUP, nexus::ENTRY].contains(&column.name.as_str());
        if column.name.contains(['/', '\0']) || is_group {
            return Err(Error::Name { path, name });
        }
        if !seen.insert(&column.name) {
            return Err(Error::Twice { path, name });
        }
    }
    Ok(())
}

fn begin(
    file: &File,
    columns: &Columns,
    header: &Header,
    options: &Options,
    path: &Path,
) -> Result<Inside, Error> {
    let chunk_rows = options.chunk_rows();
    let rows: Result<Vec<RowDataset>, Error> =
        columns.list().iter().map(|column| dataset(file, column, options, path)).collect();
    let time = |name, time: Option<Tai>| match time {
        Some(time) => attributes::text(file, name, &format!("{time:.9}"), path),
        None => Ok(()),
    };
    let rows = rows?;
    time("arm_time", header.arm_time)?;
    time("start_time", header.start_time)?;
    if let Some(ns) = header.hw_time_offset_ns {
        attributes::number(file, "hw_time_offset_ns", ns, path)?;
    }
    attributes::number(file, "missed", header.missed, path)?;
    attributes::reserve(file, header.missed, path)?;
    nexus::describe(file, columns.list(), options.nexus, path)?;
    let (column_buffers, earlier) =
        (column_buffers(columns, chunk_rows, path)?, PreviousRecordings::default());
    Ok(Inside { rows, column_buffers, filled: 0, first: 0, earlier })
}

fn dataset(
    file: &File,
    column: &Column,
    options: &Options,
    path: &Path,
) -> Result<RowDataset, Error> {
    let layout = Layout {
        name: &column.name,
        element: type_of(column.element),
        width: None,
        chunk_rows: options.chunk_rows(),
        compression: options.compression.unwrap_or_default(),
    };
    let rows = RowDataset::create(file, &layout).map_err(refused(path, "making its datasets"))?;
    let set = rows.dataset();
    attributes::text(set, "capture", &column.capture, path)?;
    if let Some(scaling) = &column.scaling {
        attributes::text(set, "units", &scaling.units, path)?;
        attributes::number(set, "scale", scaling.scale, path)?;
        attributes::number(set, "offset", scaling.offset, path)?;
    }
    Ok(rows)
}

fn type_of(element: Element) -> TypeDescriptor {
    let (low, high) = (IntSize::U8, IntSize::U4);
    let word = |name: &str, size, offset, index| CompoundField {
        name: name.to_owned(),
        ty: TypeDescriptor::Unsigned(size),
        offset,
        index,
    };
    match element {
        Element::Uint32 => TypeDescriptor::Unsigned(IntSize::U4),
        Element::Int32 => TypeDescriptor::Integer(IntSize::U4),
        Element::Int64 => TypeDescriptor::Integer(IntSize::U8),
        Element::Double => TypeDescriptor::Float(FloatSize::U8),
        Element::Int96 => TypeDescriptor::Compound(CompoundType {
            fields: vec![word("low", low, 0, 0), word("high", high, 8, 1)],
            size: 12,
        }),
    }
}

/// Opens the columns of a file that is continued, and reads its last rows into the buffers: their HDF5 chunks are
/// written again.
fn resume(file: &File, columns: &Columns, header: &Header, path: &Path) -> Result<Inside, Error> {
    let differs = |what: String| Error::Differs { path: path.to_owned(), what };
    check_ended(file, path)?;
    let mut rows = Vec::new();
    let mut length = None;
    for column in columns.list() {
        let set = file
            .dataset(&column.name)
            .map_err(|_| differs(format!("it has no column {}", column.name)))?;
        if let Some(what) = difference(&set, column) {
            return Err(differs(format!("its column {} {what}", column.name)));
        }
        if *length.get_or_insert(set.size()) != set.size() {
            return Err(Error::Unended { path: path.to_owned() });
        }
        let resumed = RowDataset::resume(set, &column.name);
        rows.push(resumed.map_err(|what| differs(format!("its column {} {what}", column.name)))?);
    }
    if own_datasets(file).map_or(0, |sets| sets.len()) != rows.len() {
        return Err(differs("it has columns that were not captured now".into()));
    }
    let (first, chunk_rows) = (length.unwrap_or(0), rows[0].chunk_rows());
    if rows.iter().any(|rows| rows.chunk_rows() != chunk_rows) {
        return Err(differs("its columns have HDF5 chunks of several lengths".into()));
    }
    let filled = first % chunk_rows;
    let mut column_buffers = column_buffers(columns, chunk_rows, path)?;
    let chunks =
        column_buffers.columns_mut().map_err(kernel(path, "taking memory for its columns"))?;
    for ((rows, column), chunk) in rows.iter().zip(columns.list()).zip(chunks) {
        read_back(rows.dataset(), column.element, first - filled..first, chunk)
            .map_err(refused(path, "reading its last rows"))?;
    }
    let (first, earlier) = (first as u64, PreviousRecordings::of(file));
    // From here on the root describes the new acquisition.
    index::complete(file, first, path)?;
    attributes::go_on(file, &earlier, header.missed, path)?;
    Ok(Inside { rows, column_buffers, filled, first, earlier })
}

/// Returns the difference between a dataset and a column's kind.
fn difference(set: &Dataset, column: &Column) -> Option<&'static str> {
    let element = set.dtype().ok().and_then(|kind| kind.to_descriptor().ok());
    let number = |name| attributes::read_number::<f64>(set, name);
    let scaling = column.scaling.as_ref();
    if element.is_none_or(|element| element != type_of(column.element)) {
        return Some("is of another type");
    }
    if attributes::read_text(set, "units").as_deref() != scaling.map(|s| s.units.as_str()) {
        return Some("has other units");
    }
    if number("scale") != scaling.map(|s| s.scale) || number("offset") != scaling.map(|s| s.offset)
    {
        return Some("has another scale or offset");
    }
    None
}

/// Reads rows of a column in the layout of a chunk.
fn read_back(
    set: &Dataset,
    element: Element,
    rows: std::ops::Range<usize>,
    into: &mut [u8],
) -> hdf5_metno::Result<()> {
    fn read<T: H5Type>(set: &Dataset, rows: std::ops::Range<usize>) -> hdf5_metno::Result<Vec<T>> {
        Ok(set.read_slice_1d::<T, _>(rows)?.into_iter().collect())
    }
    if rows.is_empty() {
        return Ok(());
    }
    let into = &mut into[..rows.len() * element.bytes()];
    match element {
        Element::Uint32 => into.copy_from_slice(read::<u32>(set, rows)?.as_bytes()),
        Element::Int32 => into.copy_from_slice(read::<i32>(set, rows)?.as_bytes()),
        Element::Int64 => into.copy_from_slice(read::<i64>(set, rows)?.as_bytes()),
        Element::Double => into.copy_from_slice(read::<f64>(set, rows)?.as_bytes()),
        Element::Int96 => {
            for (value, Wide { low, high }) in
                into.chunks_exact_mut(12).zip(read::<Wide>(set, rows)?)
            {
                value[..8].copy_from_slice(&low.to_le_bytes());
                value[8..].copy_from_slice(&high.to_le_bytes());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fullbore_core::account::Verdict;
    use fullbore_core::hint::Hint;
    use fullbore_formats::panda::{Field, Kind, Process, Scaling};
    use proptest::prelude::*;

    use super::super::Compression;
    use super::*;

    /// Steps of the test on a file, in any order.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Append(usize),
        Flush,
        /// End the acquisition and start the next one in the same file, with or without a request for its compression.
        Next(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..3000usize).prop_map(Step::Append),
            2 => Just(Step::Flush),
            1 => any::<bool>().prop_map(Step::Next),
        ];
        proptest::collection::vec(step, 1..20)
    }

    fn compression() -> impl Strategy<Value = Compression> {
        prop_oneof![Just(Compression::None), (1..=9u8).prop_map(Compression::Gzip)]
    }

    /// A header with a word of bits and a scaled position.
    fn header() -> Header {
        let field = |name: &str, kind, offset_bytes, scaling| Field {
            name: name.to_owned(),
            capture: "Value".to_owned(),
            kind,
            offset_bytes,
            scaling,
        };
        let millimetres = Scaling { scale: 0.5, offset: -1.0, units: "mm".to_owned() };
        Header {
            arm_time: None,
            start_time: None,
            hw_time_offset_ns: None,
            missed: 0,
            process: Process::Raw,
            sample_bytes: 12,
            fields: vec![
                field("BITS", Kind::Uint32, 0, None),
                field("POSITION", Kind::Int64, 4, Some(millimetres)),
            ],
        }
    }

    fn samples(rows: std::ops::Range<u64>) -> Vec<u8> {
        let sample =
            |n: u64| [&(n as u32).to_le_bytes()[..], &(n as i64 * 7).to_le_bytes()].concat();
        rows.flat_map(sample).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

        #[test]
        fn appended_flushed_and_continued_in_any_order_the_file_holds_every_row(
            steps in steps(),
            compression in compression(),
            live: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("any.h5");
            let options = Options {
                existing: Existing::Append,
                rows_per_second: Some(1.0),
                compression: Some(compression),
                live,
                ..Options::default()
            };
            let ok = Ending { reason: "Ok".into(), ..Ending::default() };
            let mut file = PandaFile::create(&path, &header(), &options).unwrap();
            let (mut rows, mut ended) = (0, 1);
            for step in steps {
                match step {
                    Step::Append(count) => {
                        let after = rows + count as u64;
                        file.append(&samples(rows..after)).unwrap();
                        rows = after;
                    }
                    Step::Flush => file.flush().unwrap(),
                    Step::Next(requested) => {
                        file.finish(&ok).unwrap();
                        let compression = requested.then_some(compression);
                        let options = Options { compression, ..options.clone() };
                        file = PandaFile::create(&path, &header(), &options).unwrap();
                        ended += 1;
                    }
                }
            }
            file.finish(&ok).unwrap();
            let file = File::open(&path).unwrap();
            let bits = file.dataset("BITS.Value").unwrap().read_raw::<u32>().unwrap();
            prop_assert!(bits.into_iter().eq((0..rows).map(|n| n as u32)));
            let positions = file.dataset("POSITION.Value").unwrap().read_raw::<f64>().unwrap();
            prop_assert!(positions.into_iter().eq((0..rows).map(|n| (n * 7) as f64 * 0.5 - 1.0)));
            let counts = file.dataset("acquisitions/rows").unwrap().read_raw::<u64>().unwrap();
            prop_assert_eq!((counts.len(), counts.iter().sum::<u64>()), (ended, rows));
            prop_assert_eq!(attributes::read_number::<u64>(&file, "samples"), Some(rows));
        }
    }

    #[test]
    fn what_a_file_held_before_it_was_continued_is_in_its_index() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all.h5");
        let account = |of: &str| Some(format!("account of {of}"));
        let late = Header { missed: 11, ..header() };
        for (header, existing, verdict, name) in [
            (&late, Existing::Refuse, Verdict::Consistent, "first"),
            (&header(), Existing::Append, Verdict::Proven, "second"),
        ] {
            let options = Options { existing, ..Options::default() };
            let mut file = PandaFile::create(&path, header, &options).unwrap();
            file.append(&samples(0..1000)).unwrap();
            let ending = Ending {
                reason: name.to_owned(),
                missing: header.missed + 2,
                verdict: Some(verdict),
                account: account(name),
                headline: format!("LOST 2 of {name}"),
            };
            file.finish(&ending).unwrap();
        }
        let file = File::open(&path).unwrap();
        let numbers = |name: &str| {
            file.dataset(&format!("acquisitions/{name}")).unwrap().read_raw::<u64>().unwrap()
        };
        let texts = |name: &str| -> Vec<String> {
            let column = file.dataset(&format!("acquisitions/{name}")).unwrap();
            let texts = column.read_raw::<hdf5_metno::types::VarLenUnicode>().unwrap();
            texts.iter().map(|text| text.as_str().to_owned()).collect()
        };
        assert_eq!((numbers("first_row"), numbers("rows")), (vec![0, 1000], vec![1000, 1000]));
        assert_eq!((numbers("missed"), numbers("missing")), (vec![11, 0], vec![13, 2]));
        assert_eq!(texts("end_reason"), ["first", "second"]);
        assert_eq!(texts("verdict"), ["consistent", "proven"]);
        assert_eq!(texts("headline"), ["LOST 2 of first", "LOST 2 of second"]);
        assert_eq!(texts("account"), ["account of first", "account of second"]);
        // The root has the header of the first, and the less certain verdict of both.
        assert_eq!(attributes::read_number::<u64>(&file, "missed"), Some(11));
        assert_eq!(attributes::read_number::<u64>(&file, "missing"), Some(15));
        assert_eq!(attributes::read_text(&file, "verdict").as_deref(), Some("consistent"));
    }

    #[test]
    fn what_was_not_flushed_of_a_file_that_is_abandoned_is_in_no_column() {
        let ways = [Compression::None, Compression::Gzip(1)];
        for (compression, rescue) in ways.into_iter().flat_map(|way| [(way, false), (way, true)]) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("full.h5");
            let options = Options {
                rows_per_second: Some(1.0),
                compression: Some(compression),
                ..Options::default()
            };
            let mut file = PandaFile::create(&path, &header(), &options).unwrap();
            file.append(&samples(0..1500)).unwrap();
            file.flush().unwrap();
            file.append(&samples(1500..5000)).unwrap();
            // Rows that are complete in every column are kept if that is requested: here four chunks of 1024 rows.
            let kept = if rescue { file.rescue() } else { 1500 };
            assert_eq!(kept, if rescue { 4096 } else { 1500 });
            let ending = Ending::given_up("No space left on device".into());
            assert_eq!(file.abandon(&ending).unwrap(), kept);
            let file = File::open(&path).unwrap();
            let bits = file.dataset("BITS.Value").unwrap().read_raw::<u32>().unwrap();
            assert!(bits.into_iter().eq(0..kept as u32));
            let positions = file.dataset("POSITION.Value").unwrap().read_raw::<f64>().unwrap();
            assert!(positions.into_iter().eq((0..kept).map(|n| (n * 7) as f64 * 0.5 - 1.0)));
            assert_eq!(attributes::read_text(&file, "verdict").as_deref(), Some("unproven"));
            assert_eq!(attributes::read_number::<u64>(&file, "samples"), Some(kept));
        }
    }

    #[test]
    fn what_is_added_to_a_file_is_compressed_as_the_file_is() {
        let ways = [Compression::None, Compression::Gzip(1), Compression::BitshuffleLz4];
        let of = |existing, compression| Options {
            existing,
            compression,
            rows_per_second: Some(1.0),
            ..Options::default()
        };
        for has in ways {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("all.h5");
            for (existing, requested, rows) in [
                (Existing::Refuse, Some(has), 0..3000),
                (Existing::Append, None, 3000..9000),
                (Existing::Append, Some(has), 9000..20_000),
            ] {
                let mut file =
                    PandaFile::create(&path, &header(), &of(existing, requested)).unwrap();
                file.append(&samples(rows)).unwrap();
                file.finish(&Ending::default()).unwrap();
            }
            for other in ways.into_iter().chain([Compression::Gzip(9)]).filter(|it| *it != has) {
                let options = of(Existing::Append, Some(other));
                let refused = PandaFile::create(&path, &header(), &options).unwrap_err();
                let (said, has) = (refused.to_string(), has.to_string());
                assert!(said.contains(&has) && said.contains(&other.to_string()), "{said}");
                assert!(refused.hint().is_some());
            }
            let file = File::open(&path).unwrap();
            let bits = file.dataset("BITS.Value").unwrap();
            // One chunk is in the form that readers saw. libhdf5 has no bitshuffle here to read the others.
            let packed = |chunk: usize| bits.chunk_info(chunk).unwrap().filter_mask == 0;
            assert!((3..19).all(|chunk| packed(chunk) || chunk == 8), "{has}");
            let stored = |chunk: usize| bits.chunk_info(chunk).unwrap().size;
            assert_eq!(stored(5) < 1024 * 4, has != Compression::None, "{has}");
            if has != Compression::BitshuffleLz4 {
                assert!(bits.read_raw::<u32>().unwrap().into_iter().eq(0..20_000));
            }
        }
    }

    #[test]
    fn a_column_with_filters_of_others_is_not_continued() {
        use hdf5_metno::filters::Filter as Declared;
        let gzip = Declared::Deflate(1);
        for filters in [vec![gzip], vec![Declared::Shuffle], vec![Declared::Fletcher32]] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("others.h5");
            let options = Options::default();
            PandaFile::create(&path, &header(), &options)
                .unwrap()
                .finish(&Ending::default())
                .unwrap();
            let file = File::open_rw(&path).unwrap();
            file.unlink("BITS.Value").unwrap();
            let builder = file.new_dataset::<u32>().chunk(1024).set_filters(&filters);
            let set = builder.shape(0..).create("BITS.Value").unwrap();
            attributes::text(&set, "capture", "Value", &path).unwrap();
            drop(set);
            file.close().unwrap();
            let options = Options { existing: Existing::Append, ..options };
            let refused = PandaFile::create(&path, &header(), &options).unwrap_err().to_string();
            assert!(refused.contains("BITS.Value has a compression"), "{refused}");
        }
    }

    #[test]
    fn columns_that_hdf5_would_take_for_paths_or_each_other_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["A/B", "../A", "A\0", "POSITION"] {
            let mut header = header();
            header.fields[0].name = name.to_owned();
            let path = folder.path().join("never.h5");
            let refused = PandaFile::create(&path, &header, &Options::default());
            let error = refused.unwrap_err();
            match name {
                "POSITION" => assert!(error.to_string().contains("twice"), "{error}"),
                _ => assert!(matches!(error, Error::Name { .. }), "{name}"),
            }
            assert!(!path.exists());
        }
    }
}
