//! `file:PATH`: one plain file.

use std::path::PathBuf;

use super::query::Query;
use super::{Endpoint, Error};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_may_hold_what_means_something_else() {
        let file: Endpoint = "file:/data/what%3F 1.vdif".parse().unwrap();
        assert_eq!(file_path(&file), Ok(PathBuf::from("/data/what? 1.vdif")));
    }
}
