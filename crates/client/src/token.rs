//! The token of a client: from the environment, or from a file that only its owner can read.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Error;

/// The largest file of a token, in bytes.
const LONGEST: u64 = 4096;

/// The token of `FULLBORE_TOKEN`, or of the file of `FULLBORE_TOKEN_FILE`.
pub(crate) fn of_environment() -> Result<Option<String>, Error> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    match (variable("FULLBORE_TOKEN"), variable("FULLBORE_TOKEN_FILE")) {
        (Some(token), _) => {
            let what = "it is no text".to_owned();
            let path = PathBuf::from("FULLBORE_TOKEN");
            token.into_string().map(Some).map_err(|_| Error::File { path, what })
        }
        (None, Some(path)) => of_file(Path::new(&path)).map(Some),
        (None, None) => Ok(None),
    }
}

fn of_file(path: &Path) -> Result<String, Error> {
    let failed = |what: String| Error::File { path: path.to_owned(), what };
    let found = fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if found.mode() & 0o077 != 0 {
        return Err(Error::Readable { path: path.to_owned() });
    }
    if found.len() > LONGEST {
        return Err(failed("it is too long for a token".to_owned()));
    }
    let text = fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    match text.trim() {
        "" => Err(failed("it has no token".to_owned())),
        token => Ok(token.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        assert!(matches!(of_file(&path), Err(Error::File { .. })));
        fs::write(&path, "secret\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(of_file(&path), Err(Error::Readable { .. })));
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(of_file(&path).unwrap(), "secret");
        fs::write(&path, "\n").unwrap();
        assert!(of_file(&path).unwrap_err().to_string().contains("no token"));
    }
}
