//! `fullbore._native`: the native part of the Python package `fullbore`.
//!
//! ```text
//! Python  fullbore/*.py   arrays, slices, time, tables        what a user sees
//! here    fullbore._native numbers, texts and memory          converts, releases the interpreter, calls
//! Rust    fullbore-reading, fullbore-recording                reads and records
//! ```
//!
//! It has no logic of its own: each method converts its arguments, releases the interpreter, and calls one function. Results
//! are written into memory that numpy owns. Documents such as accounts cross as JSON, in their published form
//! (`docs/decisions/0042-python.md`).

mod arrays;
mod blocks;
mod errors;
mod recording;
mod samples;
mod scan;
mod stream;

use pyo3::prelude::*;

/// The module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::add(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<samples::Samples>()?;
    module.add_class::<blocks::Blocks>()?;
    module.add_class::<recording::Recording>()?;
    module.add_class::<recording::Tap>()?;
    module.add_function(wrap_pyfunction!(scan::find, module)?)?;
    module.add_function(wrap_pyfunction!(scan::is_address, module)?)?;
    module.add_function(wrap_pyfunction!(scan::catalogue, module)?)?;
    Ok(())
}
