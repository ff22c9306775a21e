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

/// Parameters of signatures that hold for one object: S3, its older form, and Google Cloud Storage.
const OF_ONE_OBJECT: [&str; 4] =
    ["x-amz-signature", "awsaccesskeyid", "x-goog-signature", "googleaccessid"];

/// A place in an object store. Its texts have neither its signature nor its token, which are secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    url: Url,
    /// The query that each request carries, if the address is signed.
    signature: Option<String>,
    /// The token of a station.
    token: Option<String>,
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

    /// The query that each request carries.
    pub(super) fn signature(&self) -> Option<&str> {
        self.signature.as_deref()
    }

    /// The token that each request carries.
    pub(super) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The same, with a token that each request to an `http` or `https` address carries (`Authorization: Bearer`).
    pub fn with_token(self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self }
    }

    /// The URL, without signature.
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
        Ok((Address { url, ..self.clone() }, scan))
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        // The query may be a signature, which is not for messages.
        let shown = text.split_once('?').map_or(text, |(before, _)| before);
        let wrong = |why: String| AddressError { text: shown.to_owned(), why };
        if !Self::is_meant(text) {
            return Err(wrong(format!("it begins with one of {}", SCHEMES.join("://, "))));
        }
        let mut url = Url::parse(text).map_err(|error| wrong(error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            let why = "it contains a password; credentials come from the environment or a file";
            return Err(wrong(why.to_owned()));
        }
        if url.fragment().is_some() {
            return Err(wrong("it has a `#`".to_owned()));
        }
        let signature = url.query().map(str::to_owned);
        url.set_query(None);
        let (scheme, _) =
            ObjectStoreScheme::parse(&url).map_err(|error| wrong(error.to_string()))?;
        if let Some(query) = &signature {
            check_signature(&url, &scheme, query).map_err(|why| wrong(why.to_owned()))?;
        }
        Ok(Self { url, signature, token: None })
    }
}

/// Refuses a signature that does not hold for all objects of a scan.
fn check_signature(url: &Url, scheme: &ObjectStoreScheme, query: &str) -> Result<(), &'static str> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err("only an http or https address is signed by a query");
    }
    let value_of = |wanted: &str| {
        let mut pairs = url::form_urlencoded::parse(query.as_bytes());
        pairs
            .find(|(name, _)| name.eq_ignore_ascii_case(wanted))
            .map(|(_, value)| value.into_owned())
    };
    let of_one_blob = value_of("sr").is_some_and(|it| it.eq_ignore_ascii_case("b"));
    if of_one_blob || OF_ONE_OBJECT.iter().any(|it| value_of(it).is_some()) {
        return Err(
            "its signature holds for one object, and a scan has many; it needs a signature of a container or \
                    directory (Azure), or of a policy (CloudFront), or credentials",
        );
    }
    if *scheme == ObjectStoreScheme::AmazonS3 {
        return Err("a store with the interface of S3 signs single objects only; use credentials");
    }
    Ok(())
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
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
            "s3://bucket/x?versionId=1",
            "https://host/x#y",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_signature_of_one_object_is_refused_and_not_repeated() {
        for text in [
            "https://host/scans/r1_one?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=5ec2e7",
            "https://host/scans/r1_one?AWSAccessKeyId=A&Expires=1&Signature=5ec2e7",
            "https://storage.googleapis.com/b/r1_one?X-Goog-Signature=5ec2e7",
            "https://me.blob.core.windows.net/c/r1_one?sv=2024&sr=b&sig=5ec2e7",
            "https://bucket.s3.amazonaws.com/r1_one?x=5ec2e7",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("single objects") || error.contains("one object"), "{error}");
            assert!(!error.contains("5ec2e7"), "{error}");
        }
    }

    #[test]
    fn the_signature_of_a_directory_stays_with_its_place_and_out_of_texts() {
        for text in [
            "https://me.blob.core.windows.net/c/2026/r1_one?sv=2024&sr=c&sig=5ec2e7",
            "https://cdn.example.org/2026/r1_one?Policy=p&Signature=5ec2e7&Key-Pair-Id=k",
        ] {
            let address: Address = text.parse().unwrap();
            let (place, scan) = address.split_scan().unwrap();
            assert_eq!(place.signature(), text.split_once('?').map(|it| it.1));
            assert_eq!((place.base().as_ref(), scan.to_string().as_str()), ("2026", "r1_one"));
            let texts = format!("{address} {address:?} {place} {place:?} {}", place.url());
            assert!(!texts.contains("5ec2e7"), "{texts}");
        }
    }

    #[test]
    fn the_token_stays_with_its_place_and_out_of_texts() {
        let address: Address = "http://127.0.0.1:8480/api/v1/copies/r1_one".parse().unwrap();
        let (place, _) = address.with_token(Some("5ec2e7")).split_scan().unwrap();
        assert_eq!((place.token(), place.base().as_ref()), (Some("5ec2e7"), "api/v1/copies"));
        let texts = format!("{place} {place:?} {}", place.url());
        assert!(!texts.contains("5ec2e7"), "{texts}");
    }

    #[test]
    fn a_path_cannot_leave_its_bucket() {
        let address: Address = "s3://bucket/a/../../b".parse().unwrap();
        assert_eq!(address.base().as_ref(), "b");
    }
}
