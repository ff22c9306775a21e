//! Decoded samples.

use std::sync::Arc;

use fullbore_formats::samples::decode::Output;
use fullbore_reading::OpenScan;
use fullbore_time::Tai;
use numpy::{Element, PyReadwriteArray1};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::arrays::{length, memory};
use crate::errors;
use crate::scan::json;
use crate::stream::unix_ns;

/// The samples of a stream.
#[pyclass(frozen, module = "fullbore._native")]
pub struct Samples {
    open: Arc<OpenScan>,
    stream: String,
    samples: fullbore_reading::Samples,
}

impl Samples {
    /// Samples of a stream that the scan has.
    pub fn new(open: Arc<OpenScan>, stream: String, samples: fullbore_reading::Samples) -> Self {
        Self { open, stream, samples }
    }

    fn read_into<T: Output + Element>(
        &self,
        py: Python<'_>,
        (start, end): (u64, u64),
        columns: &[usize],
        mut values: PyReadwriteArray1<'_, T>,
        mut valid: Option<PyReadwriteArray1<'_, bool>>,
    ) -> PyResult<()> {
        let parts = self.samples.layout.encoding.parts() as usize;
        let values = memory(&mut values, length(start, end, columns.len() * parts)?)?;
        let valid = match &mut valid {
            Some(valid) => Some(memory(valid, length(start, end, columns.len())?)?),
            None => None,
        };
        let done = py.detach(|| {
            let stream = self.open.stream(&self.stream)?;
            self.samples.read(stream, start..end, columns, values, valid)
        });
        done.map_err(|error| errors::of_reading(py, error))
    }
}

#[pymethods]
impl Samples {
    /// The layout as JSON.
    fn layout(&self) -> PyResult<String> {
        json(&self.samples.layout)
    }

    /// The layout in words.
    fn words(&self) -> String {
        self.samples.layout.to_string()
    }

    /// True if values are complex.
    #[getter]
    fn complex(&self) -> bool {
        self.samples.layout.encoding.complex
    }

    /// The number of rows.
    #[getter]
    fn count(&self) -> u64 {
        self.samples.count
    }

    /// The lines as (thread, channel).
    #[getter]
    fn lines(&self) -> Vec<(u16, usize)> {
        self.samples.lines.iter().map(|line| (line.thread, line.channel)).collect()
    }

    /// The sample rate of each channel as a fraction of hertz.
    #[getter]
    fn rate(&self) -> Option<(u64, u64)> {
        self.samples.layout.sample_rate.map(|rate| rate.ratio())
    }

    /// The time of row 0 in nanoseconds of Unix time.
    #[getter]
    fn start_ns(&self) -> Option<i64> {
        self.samples.start.map(unix_ns)
    }

    /// The first row at or after a time in nanoseconds of Unix time.
    fn row_at(&self, py: Python<'_>, ns: i64) -> PyResult<u64> {
        let time = Tai::from_unix_ns(ns.into());
        let row = self.open.stream(&self.stream).and_then(|it| self.samples.row_at(it, time));
        row.map_err(|error| errors::of_reading(py, error))
    }

    /// Decodes rows of lines into an array of i8, i16, i32 or f32.
    #[pyo3(signature = (start, end, columns, values, valid=None))]
    fn read(
        &self,
        py: Python<'_>,
        start: u64,
        end: u64,
        columns: Vec<usize>,
        values: &Bound<'_, PyAny>,
        valid: Option<PyReadwriteArray1<'_, bool>>,
    ) -> PyResult<()> {
        let range = (start, end);
        if let Ok(values) = values.extract::<PyReadwriteArray1<'_, f32>>() {
            return self.read_into(py, range, &columns, values, valid);
        }
        if let Ok(values) = values.extract::<PyReadwriteArray1<'_, i8>>() {
            return self.read_into(py, range, &columns, values, valid);
        }
        if let Ok(values) = values.extract::<PyReadwriteArray1<'_, i16>>() {
            return self.read_into(py, range, &columns, values, valid);
        }
        if let Ok(values) = values.extract::<PyReadwriteArray1<'_, i32>>() {
            return self.read_into(py, range, &columns, values, valid);
        }
        Err(PyTypeError::new_err("samples are decoded to int8, int16, int32 or float32"))
    }
}
