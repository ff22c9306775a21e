//! Errors as exceptions of Python, with their advice.

use fullbore_core::hint::{Hint, explained};
use fullbore_reading::{ErrorKind, ReadError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyIndexError};
use pyo3::prelude::*;

create_exception!(
    fullbore,
    Error,
    PyException,
    "Something that fullbore could not do. `hint` is advice, or None."
);
create_exception!(
    fullbore,
    NotFoundError,
    Error,
    "There is no such recording, or no such stream in it."
);
create_exception!(
    fullbore,
    DamagedError,
    Error,
    "Recorded data cannot be read, or its checksum is wrong."
);
create_exception!(
    fullbore,
    UnsupportedError,
    Error,
    "The stream is of a kind that cannot be read in this way."
);
create_exception!(fullbore, OptionError, Error, "An option of a recording is wrong.");

/// Adds the exceptions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let error = py.get_type::<Error>();
    // Errors that the Python files raise have the attribute, too.
    error.setattr("hint", py.None())?;
    module.add("Error", error)?;
    module.add("NotFoundError", py.get_type::<NotFoundError>())?;
    module.add("DamagedError", py.get_type::<DamagedError>())?;
    module.add("UnsupportedError", py.get_type::<UnsupportedError>())?;
    module.add("OptionError", py.get_type::<OptionError>())
}

/// An error of reading.
pub fn of_reading(py: Python<'_>, error: ReadError) -> PyErr {
    let text = explained(&error);
    let raised = match error.kind() {
        ErrorKind::NotFound => NotFoundError::new_err(text),
        ErrorKind::Damaged => DamagedError::new_err(text),
        ErrorKind::Unsupported => UnsupportedError::new_err(text),
        ErrorKind::Range => PyIndexError::new_err(text),
        ErrorKind::Other => Error::new_err(text),
    };
    advised(py, raised, &error)
}

/// Any other error.
pub fn of(py: Python<'_>, error: &dyn Hint) -> PyErr {
    advised(py, Error::new_err(explained(error)), error)
}

/// An error in an option.
pub fn of_option(py: Python<'_>, error: &dyn Hint) -> PyErr {
    advised(py, OptionError::new_err(explained(error)), error)
}

fn advised(py: Python<'_>, raised: PyErr, error: &dyn Hint) -> PyErr {
    let hint = error.hint().map(|hint| hint.into_owned());
    match raised.value(py).setattr("hint", hint) {
        Ok(()) => raised,
        Err(error) => error,
    }
}
