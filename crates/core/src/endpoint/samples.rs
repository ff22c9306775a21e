//! The parameters of an endpoint that describe its samples.

use fullbore_formats::samples::{LayoutError, PARAMETERS, SampleLayout};

use super::query::{Parameter, parameter};
use super::{Endpoint, Error};

/// The parameters that describe samples, of each source that carries them unframed.
pub const SAMPLE_PARAMETERS: &[Parameter] = &{
    let mut rows = [parameter("", "", ""); PARAMETERS.len()];
    let mut row = 0;
    while row < rows.len() {
        let (name, example, meaning) = PARAMETERS[row];
        rows[row] = parameter(name, example, meaning);
        row += 1;
    }
    rows
};

/// Reads the layout of the samples of an endpoint, if its parameters describe one.
pub(crate) fn sample_layout(endpoint: &Endpoint) -> Result<Option<SampleLayout>, Error> {
    let value = |name| {
        let mut parameters = endpoint.parameters.iter();
        parameters.find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    };
    SampleLayout::of_parameters(value).map_err(|error| match error {
        LayoutError::Alone { .. } => Error::Together { what: error.to_string() },
        LayoutError::Value { name, value, why } => {
            let row = PARAMETERS.iter().find(|row| row.0 == name);
            let example = row.map_or("", |row| row.1);
            Error::Value { name: name.into(), value, why, example }
        }
    })
}

/// Returns the layout of the samples of a source, by its endpoint.
pub fn samples_of_source(text: &str) -> Option<SampleLayout> {
    sample_layout(&text.parse().ok()?).ok()?
}
