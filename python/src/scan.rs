//! Scans and stores.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use fullbore_care::verify;
use fullbore_core::name::ScanName;
use fullbore_reading::{OpenScan, Place};
use fullbore_store::catalogue as listing;
use fullbore_store::read::Settings;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use serde::Serialize;

use crate::errors;
use crate::stream::Stream;

/// A scan that is open for reading.
#[pyclass(frozen, module = "fullbore._native")]
pub struct Scan(Arc<OpenScan>);

/// A document in its published form.
pub fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| PyValueError::new_err(error.to_string()))
}

fn name_of(py: Python<'_>, name: &str) -> PyResult<ScanName> {
    let error = |error| errors::of_reading(py, listing::Error::Stream(error).into());
    name.parse().map_err(error)
}

#[pymethods]
impl Scan {
    /// Opens a scan. Ctrl-C ends the wait for one that is being sealed.
    #[staticmethod]
    fn open(py: Python<'_>, roots: Vec<PathBuf>, name: &str, skip_damaged: bool) -> PyResult<Self> {
        let name = name_of(py, name)?;
        let interrupt = Mutex::new(None);
        let is_wanted = || {
            let raised = Python::attach(|py| py.check_signals()).err();
            let mut interrupt = interrupt.lock().unwrap_or_else(PoisonError::into_inner);
            *interrupt = raised;
            interrupt.is_none()
        };
        let opened = py.detach(|| OpenScan::open_while(&roots, &name, skip_damaged, &is_wanted));
        match opened.map_err(|error| errors::of_reading(py, error))? {
            Some(opened) => Ok(Self(Arc::new(opened))),
            None => {
                let raised = interrupt.into_inner().unwrap_or_else(PoisonError::into_inner);
                Err(raised.unwrap_or_else(|| PyKeyboardInterrupt::new_err(())))
            }
        }
    }

    /// Opens a copy in an object store, or at a station, by its address.
    #[staticmethod]
    #[pyo3(signature = (address, skip_damaged, token=None))]
    fn open_copy(
        py: Python<'_>,
        address: &str,
        skip_damaged: bool,
        token: Option<&str>,
    ) -> PyResult<Self> {
        let opened = py.detach(|| OpenScan::open_copy(address, token, skip_damaged));
        let opened = opened.map_err(|error| errors::of_reading(py, error))?;
        Ok(Self(Arc::new(opened)))
    }

    /// The directories of the store.
    #[getter]
    fn roots(&self) -> Vec<OsString> {
        texts(self.0.roots().to_vec())
    }

    /// The names of its streams.
    #[getter]
    fn streams(&self) -> Vec<String> {
        self.0.scan().streams.iter().map(|stream| stream.name.clone()).collect()
    }

    /// A stream by its name.
    fn stream(&self, py: Python<'_>, name: &str) -> PyResult<Stream> {
        self.0.stream(name).map_err(|error| errors::of_reading(py, error))?;
        Ok(Stream::new(self.0.clone(), name.to_owned()))
    }

    /// The manifest, as JSON.
    fn manifest(&self) -> PyResult<String> {
        json(&self.0.scan().manifest)
    }

    /// The markers, as JSON.
    fn markers(&self) -> PyResult<String> {
        json(&self.0.scan().inventory.markers)
    }

    /// The completeness, as JSON; `null` as long as it is not known.
    fn completeness(&self) -> PyResult<String> {
        json(&verify::completeness(self.0.scan()))
    }

    /// Problems found in names, sizes and indexes.
    fn findings(&self) -> Vec<String> {
        self.0.scan().findings.iter().map(ToString::to_string).collect()
    }

    /// Reads and checks every block. Returns the result as JSON.
    fn verify(&self, py: Python<'_>) -> PyResult<String> {
        if self.0.roots().is_empty() {
            let text = "a copy in an object store is verified by `fullbore verify`";
            return Err(errors::UnsupportedError::new_err(text));
        }
        let verified = py.detach(|| verify::verify(self.0.scan(), Settings::default(), &|_, _| {}));
        match verified {
            Ok(verified) => json(&verified),
            Err(error) => Err(errors::Error::new_err(error.to_string())),
        }
    }
}

/// The directories of the store, the scan, the stream.
type Found = (Vec<OsString>, Option<String>, Option<String>);

fn texts(paths: Vec<PathBuf>) -> Vec<OsString> {
    paths.into_iter().map(PathBuf::into_os_string).collect()
}

/// Finds out what a text means: the directories of the store, the scan and the stream.
#[pyfunction]
pub fn find(py: Python<'_>, text: &str, roots: Vec<PathBuf>) -> PyResult<Found> {
    let found = py.detach(|| Place::find(text, &roots));
    Ok(match found.map_err(|error| errors::of_reading(py, error))? {
        Place::Store(roots) => (texts(roots), None, None),
        Place::Scan { roots, scan, stream } => {
            (texts(roots), Some(scan.to_string()), stream.map(String::from))
        }
    })
}

/// True if a text has the form of an address in an object store.
#[pyfunction]
pub fn is_address(text: &str) -> bool {
    Place::is_address(text)
}

/// Lists the scans of a store, as JSON.
#[pyfunction]
pub fn catalogue(py: Python<'_>, roots: Vec<PathBuf>) -> PyResult<String> {
    let listed = py.detach(|| listing::list(&roots));
    let listed = listed.map_err(|error| errors::of_reading(py, error.into()))?;
    json(&listed.entries)
}
