//! Recordings in the process of Python.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_core::hint::explained;
use fullbore_recording::{Events, RecordingOptions};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::errors;
use crate::scan::json;

/// A running recording.
#[pyclass(frozen, module = "fullbore._native")]
pub struct Recording {
    recording: Mutex<Option<fullbore_recording::Recording>>,
    events: Events,
}

impl Recording {
    fn lock(&self) -> MutexGuard<'_, Option<fullbore_recording::Recording>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn ended() -> PyErr {
    errors::Error::new_err("the recording has ended")
}

fn wait(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(1))
}

#[pymethods]
impl Recording {
    /// Starts a recording of these options, as JSON. Returns when it is armed.
    #[staticmethod]
    fn start(py: Python<'_>, options: &str) -> PyResult<Self> {
        let read = serde_json::from_str::<RecordingOptions>(options);
        let options = read.map_err(|error| errors::OptionError::new_err(error.to_string()))?;
        if options.keep.is_some() || options.circular.is_some() || options.schedule.is_some() {
            let text = "keep, circular and schedule are for `fullbore record` and `fullbore serve`";
            return Err(errors::OptionError::new_err(text));
        }
        let config = options.resolve().map_err(|error| errors::of_option(py, &error))?;
        let events = Events::new();
        let subscribers = vec![events.clone()];
        let started =
            py.detach(|| fullbore_recording::Recording::start_with(config, None, subscribers));
        let recording = started.map_err(|error| errors::of(py, &error))?;
        Ok(Self { recording: Mutex::new(Some(recording)), events })
    }

    /// Stops: everything received so far is written, and the scan is sealed.
    fn stop(&self) {
        if let Some(recording) = &*self.lock() {
            recording.stop();
        }
    }

    /// Aborts: data in memory is counted and dropped, and the scan is sealed.
    fn abort(&self) {
        if let Some(recording) = &*self.lock() {
            recording.abort();
        }
    }

    /// True if the recording has ended.
    fn has_ended(&self) -> bool {
        self.lock().as_ref().is_none_or(|recording| recording.has_ended())
    }

    /// The latest progress as JSON, or `null`.
    fn progress(&self) -> PyResult<String> {
        json(&self.lock().as_ref().and_then(|recording| recording.status().progress))
    }

    /// Waits for events, as JSON. An empty list after this time; `None` after the end.
    fn events(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<Vec<String>>> {
        match py.detach(|| self.events.take_within(wait(seconds))) {
            Err(_) => Ok(Some(Vec::new())),
            Ok(None) => Ok(None),
            Ok(Some((events, _))) => events.iter().map(json).collect::<PyResult<_>>().map(Some),
        }
    }

    /// Waits for the end. Returns the sealed scans as JSON.
    fn join(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let taken = self.lock().take();
        let recording = taken.ok_or_else(ended)?;
        let sealed = py.detach(|| recording.join());
        let sealed = sealed.map_err(|error| errors::Error::new_err(explained(&error)))?;
        sealed.iter().map(json).collect()
    }

    /// Opens a tap.
    fn tap(&self) -> PyResult<Tap> {
        let recording = self.lock();
        let recording = recording.as_ref();
        Ok(Tap(Mutex::new(recording.ok_or_else(ended)?.tap())))
    }
}

/// A reader of the newest written blocks.
#[pyclass(frozen, module = "fullbore._native")]
pub struct Tap(Mutex<fullbore_recording::Tap>);

/// Stream, number of the block, blocks that were skipped, bytes of a frame, bytes.
type TapBlock<'py> = (String, u64, u64, u32, Bound<'py, PyArray1<u8>>);

#[pymethods]
impl Tap {
    /// Returns the newest block of the next stream that has a new one, or `None` after this time.
    fn next<'py>(&self, py: Python<'py>, seconds: f64) -> Option<TapBlock<'py>> {
        let block = py.detach(|| {
            let mut tap = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            tap.next(wait(seconds))
        })?;
        let name = block.stream.as_ref().map_or_else(String::new, |it| it.name.to_string());
        let frame_bytes = block.stream_ref.geometry.frame_bytes;
        Some((name, block.number, block.skipped, frame_bytes, block.bytes.into_pyarray(py)))
    }
}
