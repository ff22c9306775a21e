//! The tokens of programs, in a TOML file:
//!
//! ```toml
//! [[token]]
//! name = "field-system"
//! role = "operator"
//! sha256 = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use serde::Deserialize;

use super::sessions::CONSOLE;
use super::{Hash, Identity, Role};

/// The most tokens of a file.
pub const MOST_TOKENS: usize = 1000;

/// The largest file that is read, in bytes.
pub const LONGEST_FILE: u64 = 1 << 20;

/// The tokens by their hashes.
#[derive(Clone, Debug, Default)]
pub struct Tokens(BTreeMap<Hash, Identity>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    #[serde(default)]
    token: Vec<Token>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    name: String,
    role: Role,
    sha256: Hash,
}

/// A file of tokens is not usable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: reading the tokens", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is too large.
    #[error("{}: a file of tokens has at most {LONGEST_FILE} bytes and {MOST_TOKENS} tokens", path.display())]
    Long {
        /// The file.
        path: PathBuf,
    },
    /// It is not such a file.
    #[error("{}, line {line}: {what}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Two tokens have one name, or are the same.
    #[error("{}: the token `{name}` is given twice, or has the secret of another", path.display())]
    Twice {
        /// The file.
        path: PathBuf,
        /// The name of the token.
        name: String,
    },
    /// A name is not usable in a log.
    #[error("{}: the name of a token is 1 to 63 letters, digits, `-`, `+` and `_`; `{name}` is not", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
    },
}

impl Tokens {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let read = |source| Error::Read { path: path.to_owned(), source };
        if fs::metadata(path).map_err(read)?.len() > LONGEST_FILE {
            return Err(Error::Long { path: path.to_owned() });
        }
        Self::parse(path, &fs::read_to_string(path).map_err(read)?)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let path = path.to_owned();
        let listed: Listed = match toml::from_str(text) {
            Ok(listed) => listed,
            Err(error) => {
                let before = &text[..error.span().map_or(0, |span| span.start)];
                let line = before.matches('\n').count() + 1;
                return Err(Error::Invalid { path, line, what: error.message().to_owned() });
            }
        };
        if listed.token.len() > MOST_TOKENS {
            return Err(Error::Long { path });
        }
        let mut tokens = Self::default();
        for Token { name, role, sha256 } in listed.token {
            if name.parse::<fullbore_core::name::Name>().is_err() {
                let name = name.chars().take(80).collect();
                return Err(Error::Name { path, name });
            }
            if !tokens.add(&name, role, sha256) {
                return Err(Error::Twice { path, name });
            }
        }
        Ok(tokens)
    }

    /// Adds a token. False if its name or its secret is there already. `console` is the name of login links.
    pub fn add(&mut self, name: &str, role: Role, sha256: Hash) -> bool {
        let is_known = *name == *CONSOLE || self.0.values().any(|it| *it.name == *name);
        let identity = || Identity { name: Arc::from(name), role };
        !is_known && self.0.insert(sha256, identity()).is_none()
    }

    /// True if the token with this hash has this name and this role.
    pub fn has(&self, sha256: &Hash, name: &str, role: Role) -> bool {
        self.0.get(sha256).is_some_and(|it| *it.name == *name && it.role == role)
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The client that has this token.
    pub fn find(&self, secret: &str) -> Option<Identity> {
        self.0.get(&Hash::of(secret)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    fn parse(text: &str) -> Result<Tokens, String> {
        Tokens::parse(Path::new("t.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_is_found_by_its_secret() {
        let text = format!("[[token]]\nname = 'fs'\nrole = 'operator'\nsha256 = '{HASH}'\n");
        let tokens = parse(&text).unwrap();
        let found = tokens.find("secret").unwrap();
        assert_eq!((&*found.name, found.role), ("fs", Role::Operator));
        assert_eq!(tokens.find(HASH), None);
        assert_eq!(tokens.find(""), None);
    }

    #[test]
    fn a_wrong_file_is_refused_with_its_line() {
        let token = |name: &str| {
            format!("[[token]]\nname = '{name}'\nrole = 'viewer'\nsha256 = '{HASH}'\n")
        };
        for (text, why) in [
            ("[[token]]\nname = 'a'\nrole = 'god'\n".to_owned(), "line 3"),
            ("tokens = 1".to_owned(), "unknown field `tokens`"),
            (token("a").replace(HASH, "12"), "64 hexadecimal digits"),
            (token("a b"), "the name of a token"),
            (token("a") + &token("b"), "`b` is given twice"),
            (token("a") + &token("a").replace("2bb8", "3bb8"), "`a` is given twice"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(parse("").unwrap().find("secret").is_none());
    }
}
