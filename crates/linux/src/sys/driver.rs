//! HDF5 file driver (VFD) based on sec2 that skips chunk data written elsewhere.
//!
//! libhdf5 keeps the metadata (the place of a chunk in the file, the index, the data visible to readers), and its
//! driver passes the bytes to the kernel. This driver is a copy of libhdf5's driver for ordinary files, with one
//! function changed:
//!
//! ```text
//! place_chunk ──► H5Dwrite_chunk ──► metadata ──► the driver's write ──┬─ this chunk: its place is recorded
//!                                                                      └─ other data: written as usual
//! ```
//!
//! Calls of libhdf5 run in the calling thread, so the record is thread-local.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use hdf5_metno::plist::FileAccess;
use hdf5_metno::{Dataset, File};
use hdf5_metno_sys::LOCK;
use hdf5_metno_sys::h5f::{H5F_ACC_EXCL, H5F_ACC_RDONLY, H5F_ACC_RDWR, H5Fcreate, H5Fopen};
use hdf5_metno_sys::h5fd::{H5FDclose, H5FDopen, H5FDregister};
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::h5p::{H5P_DEFAULT, H5Pset_driver};

use super::hdf5::{done, failure, write_chunk};

/// libhdf5 writes chunks that are not on such a boundary.
pub const PAGE: u64 = 4096;

/// The layout version of [`Class`] that this file knows (`H5FD_CLASS_VERSION`).
const VERSION: c_uint = 1;

/// The name of the driver, and its number. Numbers up to 255 are libhdf5's own.
const NAME: &CStr = c"fullbore";
const NUMBER: c_int = 46_220;

/// No address: the driver's own limit applies.
const UNDEFINED: u64 = u64::MAX;

type Write = unsafe extern "C" fn(*mut c_void, c_int, hid_t, u64, usize, *const c_void) -> c_int;

/// The part of libhdf5's description of a driver (`H5FD_class_t` of its `H5FDdevelop.h`) that this file uses.
#[repr(C)]
#[derive(Clone, Copy)]
struct Class {
    version: c_uint,
    number: c_int,
    name: *const c_char,
    most_address: u64,
    close_degree: c_int,
    /// From `terminate` to `read`: functions, and the lengths of two property lists.
    before: [*const c_void; 23],
    write: Option<Write>,
    /// From `read_vector` to `ctl`.
    after: [*const c_void; 10],
    free_lists: [c_int; 7],
}

// The size of the whole structure on every machine with 64-bit pointers.
const _: () = assert!(size_of::<Class>() == 336);

/// The driver, once libhdf5 has registered it.
struct Driver {
    id: hid_t,
    /// libhdf5's own write function.
    write: Write,
}

static DRIVER: OnceLock<Option<Driver>> = OnceLock::new();

/// The bytes of a chunk that libhdf5 must not write, and their place in the file.
#[derive(Clone, Copy)]
struct Left {
    bytes: usize,
    length: usize,
    address: Option<u64>,
}

thread_local! {
    static LEFT: Cell<Option<Left>> = const { Cell::new(None) };
}

/// Creates a file whose chunks can be [placed](place_chunk).
pub fn create_excl(path: &Path, access: &FileAccess) -> hdf5_metno::Result<File> {
    let name = name_of(path)?;
    let _one_at_a_time = LOCK.lock();
    choose(access)?;
    // SAFETY: `name` ends in a zero byte and `access` is an open property list; both outlive the call.
    let id = unsafe { H5Fcreate(name.as_ptr(), H5F_ACC_EXCL, H5P_DEFAULT, access.id()) };
    opened(id)
}

/// Opens a file whose chunks can be [placed](place_chunk), for writing.
pub fn open_rw(path: &Path, access: &FileAccess) -> hdf5_metno::Result<File> {
    let name = name_of(path)?;
    let _one_at_a_time = LOCK.lock();
    choose(access)?;
    // SAFETY: `name` ends in a zero byte and `access` is an open property list; both outlive the call.
    let id = unsafe { H5Fopen(name.as_ptr(), H5F_ACC_RDWR, access.id()) };
    opened(id)
}

/// Lets libhdf5 do everything that it does for [`write_chunk`] except writing the bytes. Returns their place in the
/// file, where the caller writes them. Returns `None` if libhdf5 has written them, because the place does not begin a
/// page or the file was opened with libhdf5's own driver.
pub fn place_chunk(
    dataset: &Dataset,
    offset: &[u64],
    bytes: &[u8],
) -> hdf5_metno::Result<Option<u64>> {
    let left = Left { bytes: bytes.as_ptr() as usize, length: bytes.len(), address: None };
    LEFT.set(Some(left));
    let placed = write_chunk(dataset, offset, 0, bytes);
    let left = LEFT.take();
    placed.map(|()| left.and_then(|left| left.address))
}

/// The write function that libhdf5 calls.
unsafe extern "C" fn write(
    file: *mut c_void,
    kind: c_int,
    transfer: hid_t,
    address: u64,
    length: usize,
    bytes: *const c_void,
) -> c_int {
    let is_left = |left: &Left| {
        left.bytes == bytes as usize && left.length == length && address.is_multiple_of(PAGE)
    };
    if let Some(left) = LEFT.get().filter(is_left) {
        LEFT.set(Some(Left { address: Some(address), ..left }));
        return 0;
    }
    let Some(driver) = DRIVER.get().and_then(Option::as_ref) else { return -1 };
    // SAFETY: these are the arguments that libhdf5 has given for the very function that is called here, of a file that
    // its own driver has opened.
    unsafe { (driver.write)(file, kind, transfer, address, length, bytes) }
}

/// Selects this driver for files with these properties; if it is not available, libhdf5's own stays selected.
fn choose(access: &FileAccess) -> hdf5_metno::Result<()> {
    let Some(driver) = DRIVER.get_or_init(register) else { return Ok(()) };
    // SAFETY: both ids are open; the driver has no properties of its own, so none are read.
    done(unsafe { H5Pset_driver(access.id(), driver.id, ptr::null()) })
}

/// Registers this driver with libhdf5. Returns `None` if libhdf5's own driver has a layout that this file does not
/// know.
fn register() -> Option<Driver> {
    // SAFETY: the name ends in a zero byte. The file is only opened to see by which driver libhdf5 does that.
    let file = unsafe { H5FDopen(c"/dev/null".as_ptr(), H5F_ACC_RDONLY, H5P_DEFAULT, UNDEFINED) };
    if file.is_null() {
        return None;
    }
    // SAFETY: libhdf5 has just opened `file`, and its class is a constant of libhdf5. In every layout the version comes
    // first, and one of this version is laid out as `Class` is.
    let own = unsafe {
        let class = (*file).cls.cast::<Class>();
        ((*class).version == VERSION).then(|| class.read())
    };
    // SAFETY: `file` was opened above and is used no more.
    unsafe { H5FDclose(file) };
    let own = own?;
    // SAFETY: the name of a class ends in a zero byte.
    let is_ordinary = unsafe { CStr::from_ptr(own.name) } == c"sec2";
    let how = own.write.filter(|_| is_ordinary)?;
    let ours = Class { number: NUMBER, name: NAME.as_ptr(), write: Some(write), ..own };
    // SAFETY: libhdf5 copies what `ours` holds; its functions and its name are there for ever.
    let id = unsafe { H5FDregister(ptr::from_ref(&ours).cast()) };
    (id >= 0).then_some(Driver { id, write: how })
}

fn name_of(path: &Path) -> hdf5_metno::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path with a zero byte".into())
}

fn opened(id: hid_t) -> hdf5_metno::Result<File> {
    if id < 0 {
        return Err(failure());
    }
    // SAFETY: the id was just opened by the caller and no other code holds it, so the file alone closes it.
    unsafe { hdf5_metno::from_id(id) }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use super::*;

    /// Creates a dataset with chunks of this many bytes, in a file that aligns larger objects to pages.
    fn made(path: &Path, chunk: usize) -> (File, Dataset) {
        let access = FileAccess::build().alignment(PAGE, PAGE).meta_block_size(PAGE).finish();
        let file = create_excl(path, &access.unwrap()).unwrap();
        let dataset = file.new_dataset::<u8>().shape((0..,)).chunk((chunk,)).create("bytes");
        let dataset = dataset.unwrap();
        dataset.resize(2 * chunk).unwrap();
        (file, dataset)
    }

    #[test]
    fn a_chunk_that_begins_a_page_is_left_to_the_caller_and_lies_where_he_was_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pages.h5");
        let (file, dataset) = made(&path, 8192);
        let places = [[1; 8192], [2; 8192]].map(|bytes| {
            let at = bytes[0] as u64 - 1;
            place_chunk(&dataset, &[at * 8192], &bytes).unwrap().expect("left to the caller")
        });
        assert!(places.iter().all(|at| at.is_multiple_of(PAGE)) && places[0] != places[1]);
        file.flush().unwrap();
        assert_eq!(dataset.read_raw::<u8>().unwrap(), [0; 16_384], "nobody has written them");
        drop((dataset, file));
        let raw = OpenOptions::new().write(true).open(&path).unwrap();
        raw.write_all_at(&[1; 8192], places[0]).unwrap();
        raw.write_all_at(&[2; 8192], places[1]).unwrap();
        // Reads with libhdf5's own driver.
        let read = File::open(&path).unwrap().dataset("bytes").unwrap().read_raw::<u8>().unwrap();
        assert!(read[..8192] == [1; 8192] && read[8192..] == [2; 8192]);
    }

    #[test]
    fn what_begins_no_page_and_what_is_not_meant_is_written_as_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("parts.h5");
        let (file, dataset) = made(&path, 1000);
        let places = [[1; 1000], [2; 1000]]
            .map(|bytes| place_chunk(&dataset, &[(bytes[0] as u64 - 1) * 1000], &bytes).unwrap());
        // One of them may begin a page by chance.
        assert!(places.contains(&None), "{places:?}");
        for n in (0..2).filter(|n| places[*n].is_some()) {
            write_chunk(&dataset, &[n as u64 * 1000], 0, &[n as u8 + 1; 1000]).unwrap();
        }
        drop((dataset, file));
        let read = File::open(&path).unwrap().dataset("bytes").unwrap().read_raw::<u8>().unwrap();
        assert!(read[..1000] == [1; 1000] && read[1000..] == [2; 1000]);
    }

    #[test]
    fn a_file_of_another_driver_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("plain.h5")).unwrap();
        let dataset = file.new_dataset::<u8>().shape((0..,)).chunk((8192,)).create("bytes");
        let dataset = dataset.unwrap();
        dataset.resize(8192).unwrap();
        assert_eq!(place_chunk(&dataset, &[0], &[7; 8192]).unwrap(), None);
        assert_eq!(dataset.read_raw::<u8>().unwrap(), [7; 8192]);
    }
}
