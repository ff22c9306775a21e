//! `file:PATH`: one plain file.

use std::path::PathBuf;

use super::query::{Parameter, Query, parameter};
use super::{Endpoint, Error};
use crate::container::{Existing, existing};

/// The path of a `file:` endpoint, which has no parameters.
pub fn file_path(endpoint: &Endpoint) -> Result<PathBuf, Error> {
    endpoint.must_be("file", "file", "file:x.vdif")?;
    let Endpoint { authority, path, .. } = endpoint;
    Query::new(endpoint, &[])?;
    if path.is_empty() || authority.as_ref().is_some_and(|a| !a.host.is_empty()) {
        return Err(Error::Form { text: endpoint.to_string() });
    }
    Ok(PathBuf::from(path))
}

/// A plain file, or standard output, that takes the bytes of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileTarget {
    /// Standard output.
    Standard,
    /// A file.
    File {
        /// The path.
        path: PathBuf,
        /// The action if the file already exists.
        existing: Existing,
    },
}

impl FileTarget {
    /// The parameters that may follow the `?`.
    pub const PARAMETERS: &'static [Parameter] = &[parameter(
        "existing",
        "append",
        "if the file exists: refuse (default), append, overwrite",
    )];

    /// True if the text names such a target, rightly or wrongly spelt.
    pub fn is_meant(text: &str) -> bool {
        let scheme = text.trim_start().split_once(':').map(|(scheme, _)| scheme);
        text.trim() == "-" || scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("file"))
    }

    /// Reads `-` or `file:PATH`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.trim() == "-" {
            return Ok(Self::Standard);
        }
        let mut endpoint: Endpoint = text.parse()?;
        let query = Query::new(&endpoint, Self::PARAMETERS)?;
        let existing = query.value("existing", existing)?.unwrap_or_default();
        endpoint.parameters.clear();
        Ok(Self::File { path: file_path(&endpoint)?, existing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_hold_what_means_something_else() {
        let file: Endpoint = "file:/data/what%3F 1.vdif".parse().unwrap();
        assert_eq!(file_path(&file), Ok(PathBuf::from("/data/what? 1.vdif")));
    }

    #[test]
    fn a_target_is_a_file_or_standard_output() {
        assert_eq!(FileTarget::parse("-"), Ok(FileTarget::Standard));
        let file = |existing| Ok(FileTarget::File { path: "x.raw".into(), existing });
        assert_eq!(FileTarget::parse("file:x.raw"), file(Existing::Refuse));
        assert_eq!(FileTarget::parse("file:x.raw?existing=append"), file(Existing::Append));
        let error = FileTarget::parse("file:x.raw?exist=append").unwrap_err().to_string();
        assert!(error.contains("existing"), "{error}");
        assert!(FileTarget::is_meant("-") && !FileTarget::is_meant("x.raw"));
    }
}
