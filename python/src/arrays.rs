//! Memory of numpy arrays.

use numpy::{Element, PyReadwriteArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The memory of an array of one dimension, which must have this length.
pub fn memory<'a, T: Element>(
    array: &'a mut PyReadwriteArray1<'_, T>,
    length: u64,
) -> PyResult<&'a mut [T]> {
    let memory = array.as_slice_mut();
    let memory = memory.map_err(|_| PyValueError::new_err("the array is not contiguous"))?;
    if memory.len() as u64 != length {
        let text = format!("the array has {} elements, and {length} are wanted", memory.len());
        return Err(PyValueError::new_err(text));
    }
    Ok(memory)
}

/// The number of elements of a range, times their width.
pub fn length(start: u64, end: u64, width: usize) -> PyResult<u64> {
    let count = end.checked_sub(start).and_then(|count| count.checked_mul(width as u64));
    count.ok_or_else(|| PyValueError::new_err("the range ends before it begins, or is too long"))
}
