//! Addresses of object stores: `s3://bucket/prefix`, `gs://…`, `az://…`, `http(s)://…`, `file:///dir`.

use std::fmt;
use std::str::FromStr;

use fullbore_core::name::ScanName;
use object_store::ObjectStoreScheme;
use object_store::path::Path;
use url::Url;

/// The beginnings of addresses of object stores.
const SCHEMES: [&str; 11] =
    ["s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss", "http", "https", "file"];

/// A place in an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    url: Url,
}

/// A text that is no address of an object store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an address of an object store: {why}")]
pub struct AddressError {
    /// The text.
    pub text: String,
    /// The reason.
    pub why: String,
}

impl Address {
    /// True if a text has the form of such an address.
    pub fn is_meant(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
    }

    /// The kind of store.
    pub(super) fn scheme(&self) -> ObjectStoreScheme {
        // The address was parsed in this way before.
        ObjectStoreScheme::parse(&self.url).map_or(ObjectStoreScheme::Http, |(scheme, _)| scheme)
    }

    /// The path in the store.
    pub(super) fn base(&self) -> Path {
        ObjectStoreScheme::parse(&self.url).map(|(_, path)| path).unwrap_or_default()
    }

    /// The URL of the store itself.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// Splits the name of a scan from the end.
    pub fn split_scan(&self) -> Result<(Address, ScanName), AddressError> {
        let wrong = |why: &str| AddressError { text: self.to_string(), why: why.to_owned() };
        let path = self.url.path().trim_end_matches('/');
        let (before, last) = path.rsplit_once('/').unwrap_or(("", path));
        let scan = last.parse::<ScanName>();
        let scan = scan.map_err(|_| wrong("the name of a scan is missing at its end"))?;
        let mut url = self.url.clone();
        url.set_path(before);
        Ok((Address { url }, scan))
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = |why: String| AddressError { text: text.to_owned(), why };
        if !Self::is_meant(text) {
            return Err(wrong(format!("it begins with one of {}", SCHEMES.join("://, "))));
        }
        let url = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            let why = "it contains a password; credentials come from the environment";
            return Err(wrong(why.to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong(
                "it has a query: signed addresses of single objects cannot hold a scan".to_owned(),
            ));
        }
        ObjectStoreScheme::parse(&url).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { url })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_names_the_scan() {
        let address: Address = "s3://bucket/a/b/r1234_no0001/".parse().unwrap();
        let (place, scan) = address.split_scan().unwrap();
        assert_eq!(
            (place.to_string().as_str(), scan.to_string().as_str()),
            ("s3://bucket/a/b", "r1234_no0001")
        );
        assert_eq!(place.base().as_ref(), "a/b");
        assert!("s3://bucket/a".parse::<Address>().unwrap().split_scan().is_err());
    }

    #[test]
    fn secrets_and_other_schemes_are_refused() {
        for text in [
            "fullbore://host",
            "r1234_no0001",
            "s3://",
            "https://me:secret@host/x",
            "https://host/x?sig=1",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_path_cannot_leave_its_bucket() {
        let address: Address = "s3://bucket/a/../../b".parse().unwrap();
        assert_eq!(address.base().as_ref(), "b");
    }
}
