//! Calls of libhdf5 that its bindings do not wrap.
//!
//! libhdf5 allows one thread at a time, so each call takes the lock of the bindings.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use hdf5_metno::{Dataset, File};
use hdf5_metno_sys::LOCK;
use hdf5_metno_sys::h5::hsize_t;
use hdf5_metno_sys::h5d::H5Dwrite_chunk;
use hdf5_metno_sys::h5f::{H5F_ACC_RDWR, H5Fopen};
use hdf5_metno_sys::h5i::hid_t;
use hdf5_metno_sys::h5p::{H5P_DEFAULT, H5Pset};

unsafe extern "C" {
    /// Public since 1.10.2, and missing in the bindings' declarations.
    fn H5Fincrement_filesize(file_id: hid_t, increment: hsize_t) -> c_int;
}

/// A sum of squares in the form of the file: 96 bits in two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, hdf5_metno::H5Type)]
#[repr(C, packed)]
pub struct Wide {
    /// The low 64 bits.
    pub low: u64,
    /// The high 32 bits.
    pub high: u32,
}

/// Writes one whole HDF5 chunk past filters and cache. A bit set in `skipped` means that the filter of that number was
/// not applied to it.
pub fn write_chunk(
    dataset: &Dataset,
    offset: &[u64],
    skipped: u32,
    bytes: &[u8],
) -> hdf5_metno::Result<()> {
    assert_eq!(offset.len(), dataset.ndim(), "an offset for each dimension");
    let _one_at_a_time = LOCK.lock();
    // SAFETY: the dataset's id is open as long as `dataset` is borrowed; `offset` has a number for each
    // of its dimensions, asserted above; libhdf5 reads `bytes.len()` bytes and keeps no pointer.
    let status = unsafe {
        H5Dwrite_chunk(
            dataset.id(),
            H5P_DEFAULT,
            skipped,
            offset.as_ptr(),
            bytes.len(),
            bytes.as_ptr().cast::<c_void>(),
        )
    };
    done(status)
}

/// Opens a file whose writer died. Clears the mark of being written, and treats data beyond the length in the
/// superblock as allocated, so that nothing is overwritten.
pub fn open_abandoned(path: &Path) -> hdf5_metno::Result<File> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| "a path with a zero byte")?;
    let access = hdf5_metno::plist::FileAccess::build().file_locking(false).finish()?;
    let _one_at_a_time = LOCK.lock();
    for property in [c"clear_status_flags", c"skip_eof_check"] {
        set_true(access.id(), property)?;
    }
    // SAFETY: `name` ends in a zero byte and `access` is an open property list; both outlive the call.
    let id = unsafe { H5Fopen(name.as_ptr(), H5F_ACC_RDWR, access.id()) };
    if id < 0 {
        return Err(failure());
    }
    // SAFETY: the id was just opened here and no other code holds it, so `file` alone closes it.
    let file: File = unsafe { hdf5_metno::from_id(id) }?;
    // SAFETY: `file` keeps the id open.
    done(unsafe { H5Fincrement_filesize(file.id(), 0) })?;
    Ok(file)
}

/// Sets one of the library's internal properties, which its h5clear uses for opening files.
fn set_true(list: hid_t, property: &CStr) -> hdf5_metno::Result<()> {
    let mut yes = true;
    // SAFETY: `property` ends in a zero byte; the library copies one byte, the size of its `bool`,
    // from `yes`, which lives until then.
    done(unsafe { H5Pset(list, property.as_ptr(), ptr::from_mut(&mut yes).cast::<c_void>()) })
}

pub(super) fn done(status: c_int) -> hdf5_metno::Result<()> {
    if status < 0 { Err(failure()) } else { Ok(()) }
}

/// Returns the library's error of the call that has just failed in this thread.
pub(super) fn failure() -> hdf5_metno::Error {
    hdf5_metno::Error::query().unwrap_or_else(|_| "libhdf5 failed and does not say why".into())
}
