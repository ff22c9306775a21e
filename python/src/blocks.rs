//! Blocks of a stream, one after the other.

use std::sync::{Arc, Mutex, PoisonError};

use fullbore_linux::stop_handle::StopHandle;
use fullbore_reading::{Next, OpenScan};
use numpy::{IntoPyArray, PyArray1};
use pyo3::exceptions::PyStopIteration;
use pyo3::prelude::*;

use crate::errors;
use crate::stream::unix_ns;

/// The blocks of a stream from a frame on.
#[pyclass(frozen, module = "fullbore._native")]
pub struct Blocks(Mutex<fullbore_reading::Blocks>);

/// First frame, bytes of a frame, bytes, which frames were received, time in nanoseconds of Unix time.
type Block<'py> = (u64, usize, Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<bool>>, Option<i64>);

impl Blocks {
    /// Begins to read.
    pub fn open(
        py: Python<'_>,
        open: &Arc<OpenScan>,
        stream: &str,
        from: u64,
        follow: bool,
    ) -> PyResult<Self> {
        let blocks = py.detach(|| fullbore_reading::Blocks::open(open, stream, from, follow));
        let blocks = blocks.map_err(|error| errors::of_reading(py, error))?;
        Ok(Self(Mutex::new(blocks)))
    }
}

#[pymethods]
impl Blocks {
    /// Returns the next block, or `None` if there is none within a tenth of a second. Raises `StopIteration` at the end.
    fn next<'py>(&self, py: Python<'py>) -> PyResult<Option<Block<'py>>> {
        let next = py.detach(|| {
            let mut blocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            blocks.next(&StopHandle::default())
        });
        match next.map_err(|error| errors::of_reading(py, error))? {
            Next::Block(block) => Ok(Some((
                block.first,
                block.frame_bytes,
                block.bytes.into_pyarray(py),
                block.valid.into_pyarray(py),
                block.time.map(unix_ns),
            ))),
            Next::NotYet => Ok(None),
            Next::End => Err(PyStopIteration::new_err(())),
        }
    }
}
