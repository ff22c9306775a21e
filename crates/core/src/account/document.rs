//! `account.json`: an account as JSON that ends in a checksum of the text before it.
//!
//! ```json
//! {
//!   "terms": { … },
//!   …
//!   "verdict": "proven",
//!   "crc32c": "5d3c0e1f"
//! }
//! ```
//!
//! Many fields (drop counters, write times, arrival times) have no second source, so only a checksum shows that they
//! changed. Files of version 0.1.0 have no checksum, and no field that is unknown here: any other field is a damaged
//! name.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Account;

/// Text that is not an account.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The text is not JSON, or not an account.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The text differs from the text that was written.
    #[error("it is not as it was written: its checksum is wrong")]
    Checksum,
    /// A field has a name that no version without a checksum wrote.
    #[error("it is not as it was written: `{name}` is no field of an account")]
    Field {
        /// The name.
        name: String,
    },
}

/// An account and the names of all fields that are not of an account.
#[derive(Deserialize)]
struct WithOthers {
    #[serde(flatten)]
    account: Account,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

impl Account {
    /// Returns the account as formatted JSON with its checksum.
    pub fn to_json(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec_pretty(self).expect("an account has only plain fields");
        json.truncate(json.len() - END.len());
        let tail = tail(&json);
        json.extend_from_slice(tail.as_bytes());
        json
    }

    /// Reads an account, and checks its checksum if it has one.
    pub fn from_json(json: &[u8]) -> Result<Self, DocumentError> {
        if let Some((body, found)) = json.split_at_checked(json.len().saturating_sub(TAIL_BYTES))
            && is_tail(found)
        {
            return match found == tail(body).as_bytes() {
                true => Ok(serde_json::from_slice(json)?),
                false => Err(DocumentError::Checksum),
            };
        }
        let WithOthers { account, others } = serde_json::from_slice(json)?;
        match others.into_keys().next() {
            None => Ok(account),
            Some(name) => Err(DocumentError::Field { name }),
        }
    }
}

/// The end of formatted JSON, which the checksum precedes.
const END: &str = "\n}";

/// The text between the last field and the digits of the checksum.
const BEFORE: &str = ",\n  \"crc32c\": \"";

/// The text behind the digits.
const AFTER: &str = "\"\n}\n";

/// Digits of the checksum.
const DIGITS: usize = 8;

const TAIL_BYTES: usize = BEFORE.len() + DIGITS + AFTER.len();

/// Returns the end of a document: the checksum of everything before it.
fn tail(body: &[u8]) -> String {
    format!("{BEFORE}{:08x}{AFTER}", crc32c::crc32c(body))
}

/// True if this is the end of a document with a checksum, right or wrong.
fn is_tail(text: &[u8]) -> bool {
    text.starts_with(BEFORE.as_bytes()) && text.ends_with(AFTER.as_bytes())
}

#[cfg(test)]
mod tests {
    use fullbore_time::Tai;

    use super::*;
    use crate::account::{CountedBy, DropCounter, Edge, Host, Layer};
    use crate::gap::{Cause, Gap};

    fn account() -> Account {
        let mut account = Account::new(CountedBy::FrameTime);
        account.terms.expected = 1000;
        account.terms.written = 993;
        account.terms.missing = 7;
        account.push_gap(Gap { first: 31, count: 7, cause: Cause::Missing });
        account.last = Some(Edge { index: 999, time: None, seen: Tai(1_000_000_000) });
        account.host = Some(Host { pool_blocks: 7, ..Host::default() });
        account.drop_counters.push(DropCounter {
            layer: Layer::Udp,
            counter: "InErrors".into(),
            scope: "udp".into(),
            own: false,
            coarse: false,
            before: 3,
            after: 10,
        });
        account
    }

    #[test]
    fn every_bit_that_flips_is_found() {
        let json = account().to_json();
        assert_eq!(Account::from_json(&json).unwrap(), account());
        for bit in 0..json.len() * 8 {
            let mut flipped = json.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let text = String::from_utf8_lossy(&flipped);
            assert!(Account::from_json(&flipped).is_err(), "bit {bit}: {text}");
        }
        for length in 0..json.len() {
            assert!(Account::from_json(&json[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn account_without_a_checksum_is_read_if_it_has_no_other_field() {
        let mut json = serde_json::to_vec_pretty(&account()).unwrap();
        json.push(b'\n');
        assert_eq!(Account::from_json(&json).unwrap(), account());
        let text = String::from_utf8(json).unwrap().replace("drop_counters", "witnesses");
        assert_eq!(Account::from_json(text.as_bytes()).unwrap(), account());
        let text = text.replace("\"explained\"", "\"witnesses\"").replace("\"gaps\"", "\"gapr\"");
        assert!(Account::from_json(text.as_bytes()).is_err());
        let text = text.replace("\"gapr\"", "\"gaps\"").replace("\"host\"", "\"hosu\"");
        let error = Account::from_json(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "it is not as it was written: `hosu` is no field of an account");
    }

    #[test]
    fn account_of_a_later_version_is_read_if_its_checksum_is_right() {
        let mut json = serde_json::to_string_pretty(&account()).unwrap();
        json.truncate(json.len() - END.len());
        json.push_str(",\n  \"later\": 1");
        let tail = tail(json.as_bytes());
        assert_eq!(Account::from_json((json + &tail).as_bytes()).unwrap(), account());
    }
}
