//! Paths of objects: `/`, `/'group'` and `/'group'/'channel'`. A `'` inside a name is doubled.

use std::fmt;

use super::TdmsError;

/// The path of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectPath {
    /// The file.
    File,
    /// A group of channels.
    Group(String),
    /// A channel of a group.
    Channel(String, String),
}

impl ObjectPath {
    /// Reads a path.
    pub fn read(text: &[u8]) -> Result<Self, TdmsError> {
        let shown = || String::from_utf8_lossy(text).chars().take(100).collect();
        let wrong = || TdmsError::Path { path: shown() };
        let text = std::str::from_utf8(text).map_err(|_| wrong())?;
        if text == "/" {
            return Ok(Self::File);
        }
        let (group, rest) = name(text).ok_or_else(wrong)?;
        if rest.is_empty() {
            return Ok(Self::Group(group));
        }
        match name(rest) {
            Some((channel, "")) => Ok(Self::Channel(group, channel)),
            _ => Err(wrong()),
        }
    }

    /// The group's name, of groups and channels.
    pub fn group(&self) -> Option<&str> {
        match self {
            Self::File => None,
            Self::Group(group) | Self::Channel(group, _) => Some(group),
        }
    }

    /// The channel's name.
    pub fn channel(&self) -> Option<&str> {
        match self {
            Self::Channel(_, channel) => Some(channel),
            Self::File | Self::Group(_) => None,
        }
    }
}

/// The name at the start of `/'name'…`, and the text after it.
fn name(text: &str) -> Option<(String, &str)> {
    let text = text.strip_prefix("/'")?;
    let mut name = String::new();
    let mut rest = text;
    loop {
        let end = rest.find('\'')?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('\'') {
            Some(after) => {
                name.push('\'');
                rest = after;
            }
            None => return Some((name, rest)),
        }
    }
}

impl fmt::Display for ObjectPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |name: &str| name.replace('\'', "''");
        match self {
            Self::File => f.write_str("/"),
            Self::Group(group) => write!(f, "/'{}'", quoted(group)),
            Self::Channel(group, channel) => {
                write!(f, "/'{}'/'{}'", quoted(group), quoted(channel))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_path_is_read_as_it_was_written(group in "['/a-c]{0,6}", channel in "['/a-c]{0,6}") {
            for path in [ObjectPath::Group(group.clone()), ObjectPath::Channel(group, channel)] {
                prop_assert_eq!(ObjectPath::read(path.to_string().as_bytes()), Ok(path));
            }
        }
    }

    #[test]
    fn what_is_no_path_is_refused() {
        for wrong in ["", "a", "/a", "/'a", "/'a'b", "/'a'/'b'/'c'", "//", "/'a'/"] {
            assert!(ObjectPath::read(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(ObjectPath::read(&[b'/', b'\'', 0xFF, b'\'']).is_err());
        assert_eq!(ObjectPath::read(b"/"), Ok(ObjectPath::File));
    }
}
