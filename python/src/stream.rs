//! Streams and their frames.

use std::sync::Arc;

use fullbore_formats::samples::SampleRate;
use fullbore_reading::{OpenScan, ReadError, StreamView};
use fullbore_time::Tai;
use numpy::PyReadwriteArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrays::{length, memory};
use crate::blocks::Blocks;
use crate::errors;
use crate::samples::Samples;
use crate::scan::json;

/// A stream of a scan.
#[pyclass(frozen, module = "fullbore._native")]
pub struct Stream {
    open: Arc<OpenScan>,
    name: String,
}

impl Stream {
    /// A stream that the scan has.
    pub fn new(open: Arc<OpenScan>, name: String) -> Self {
        Self { open, name }
    }

    fn view(&self) -> Result<StreamView<'_>, ReadError> {
        self.open.stream(&self.name)
    }

    /// Calls a function on the stream, while other threads run Python.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(StreamView<'_>) -> Result<T, ReadError> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| call(self.view()?));
        done.map_err(|error| errors::of_reading(py, error))
    }
}

/// A time as nanoseconds of Unix time.
pub fn unix_ns(time: Tai) -> i64 {
    i64::try_from(time.unix_ns()).unwrap_or(i64::MAX)
}

#[pymethods]
impl Stream {
    /// Bytes of each frame.
    fn frame_bytes(&self, py: Python<'_>) -> PyResult<usize> {
        self.with(py, |stream| stream.frame_bytes())
    }

    /// The number of frames.
    fn count(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |stream| Ok(stream.count()))
    }

    /// The index of the first frame in the stream's own count.
    fn first_index(&self, py: Python<'_>) -> PyResult<i64> {
        self.with(py, |stream| Ok(stream.first_index()))
    }

    /// True if absent frames have places.
    fn has_places(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |stream| Ok(stream.stream().is_filled()))
    }

    /// Bytes that are stored.
    fn stored_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |stream| Ok(stream.stream().bytes()))
    }

    /// Gaps as (first index, count, cause).
    fn gaps(&self, py: Python<'_>) -> PyResult<Vec<(i64, u64, String)>> {
        self.with(py, |stream| {
            let gaps = stream.stream().gaps.iter();
            Ok(gaps.map(|gap| (gap.first, gap.count, gap.cause.to_string())).collect())
        })
    }

    /// Runs of frames that are stored, as (first, end).
    fn stored(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        self.with(py, |stream| {
            Ok(stream.stored().into_iter().map(|run| (run.start, run.end)).collect())
        })
    }

    /// The account as JSON; `null` if it is not written yet.
    fn account(&self, py: Python<'_>) -> PyResult<String> {
        let account = self.with(py, |stream| Ok(stream.stream().account.clone()))?;
        json(&account)
    }

    /// What the manifest says of it, as JSON.
    fn described(&self, py: Python<'_>) -> PyResult<String> {
        let described = self.with(py, |stream| Ok(stream.described().cloned()))?;
        json(&described)
    }

    /// Reads frames into an array of their bytes, and says of each whether it was received.
    #[pyo3(signature = (start, end, bytes, valid=None))]
    fn read_frames(
        &self,
        py: Python<'_>,
        start: u64,
        end: u64,
        mut bytes: PyReadwriteArray1<'_, u8>,
        mut valid: Option<PyReadwriteArray1<'_, bool>>,
    ) -> PyResult<()> {
        let frame_bytes = self.frame_bytes(py)?;
        let bytes = memory(&mut bytes, length(start, end, frame_bytes)?)?;
        let valid = match &mut valid {
            Some(valid) => Some(memory(valid, length(start, end, 1)?)?),
            None => None,
        };
        self.with(py, move |stream| stream.read_frames(start..end, bytes, valid))
    }

    /// Says of each frame whether it was received.
    fn read_valid(
        &self,
        py: Python<'_>,
        start: u64,
        end: u64,
        mut valid: PyReadwriteArray1<'_, bool>,
    ) -> PyResult<()> {
        let valid = memory(&mut valid, length(start, end, 1)?)?;
        self.with(py, move |stream| stream.read_valid(start..end, valid))
    }

    /// Writes the times of frames as nanoseconds of Unix time.
    fn read_times(
        &self,
        py: Python<'_>,
        start: u64,
        end: u64,
        mut times: PyReadwriteArray1<'_, i64>,
    ) -> PyResult<()> {
        let times = memory(&mut times, length(start, end, 1)?)?;
        self.with(py, move |stream| {
            let mut tai = vec![Tai(0); times.len()];
            stream.read_times(start..end, &mut tai)?;
            times.iter_mut().zip(tai).for_each(|(time, tai)| *time = unix_ns(tai));
            Ok(())
        })
    }

    /// The first frame at or after a time in nanoseconds of Unix time.
    fn frame_at(&self, py: Python<'_>, ns: i64) -> PyResult<u64> {
        self.with(py, |stream| stream.frame_at(Tai::from_unix_ns(ns.into())))
    }

    /// Its samples. The rate is that of each channel, as a fraction, if the stream does not state it.
    #[pyo3(signature = (rate=None))]
    fn samples(&self, py: Python<'_>, rate: Option<(u64, u64)>) -> PyResult<Samples> {
        let wrong = || PyValueError::new_err("the sample rate is a positive number");
        let rate = match rate {
            Some((above, below)) => Some(SampleRate::new(above, below).ok_or_else(wrong)?),
            None => None,
        };
        let samples = self.with(py, |stream| fullbore_reading::Samples::of(stream, rate))?;
        Ok(Samples::new(self.open.clone(), self.name.clone(), samples))
    }

    /// Its blocks from a frame on.
    fn blocks(&self, py: Python<'_>, from: u64, follow: bool) -> PyResult<Blocks> {
        Blocks::open(py, &self.open, &self.name, from, follow)
    }
}
