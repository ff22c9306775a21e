//! `store:SCAN/STREAM`: a stored scan, or one of its streams.

use super::query::Query;
use super::{Endpoint, Error};
use crate::name::{Name, ScanName};

/// Returns scan and stream of a `store:` endpoint: `store:r1234_no0001` or `store:r1234_no0001/46220`.
pub fn stored(endpoint: &Endpoint) -> Result<(ScanName, Option<Name>), Error> {
    const EXAMPLE: &str = "store:r1234_no0001/46220";
    endpoint.must_be("store", "scan", EXAMPLE)?;
    let Endpoint { authority, path, .. } = endpoint;
    Query::new(endpoint, &[])?;
    if authority.is_some() {
        return Err(Error::Form { text: endpoint.to_string() });
    }
    let bad = |error: crate::name::Error| Error::Value {
        name: "store".to_owned(),
        value: path.clone(),
        why: error.to_string(),
        example: EXAMPLE,
    };
    let (scan, stream) = match path.split_once('/') {
        Some((scan, stream)) => (scan, Some(stream.parse().map_err(bad)?)),
        None => (path.as_str(), None),
    };
    Ok((scan.parse().map_err(bad)?, stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_named_with_or_without_a_stream() {
        let scan: Endpoint = "store:r1234_no0001/46220".parse().unwrap();
        let (name, stream) = stored(&scan).unwrap();
        assert_eq!(
            (name.to_string().as_str(), stream.unwrap().as_str()),
            ("r1234_no0001", "46220")
        );
        assert_eq!(stored(&"store:r1234_no0001".parse().unwrap()).unwrap(), (name, None));
        assert!(stored(&"store:../x".parse().unwrap()).is_err());
    }
}
