//! Why a copy in an object store could not be made or read.

use std::borrow::Cow;
use std::error::Error;
use std::io;
use std::path::PathBuf;

use fullbore_core::hint::Hint;
use fullbore_core::name::ScanName;
use fullbore_store::landing::{BlockError, LandingError};
use fullbore_store::{MemberError, copies, inventory};

use super::address::AddressError;
use super::aws_profile::ProfileError;
use super::http_login::LoginError;

/// The longest text of a store that is repeated.
const LONGEST: usize = 400;

/// A failed request, by what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// There are no credentials.
    NoCredentials,
    /// The credentials do not suffice.
    Denied,
    /// There is no such bucket.
    NoBucket,
    /// The store cannot be reached.
    Network,
    /// The endpoint is not encrypted.
    PlainHttp,
    /// The store does not know a checksum that was sent.
    Checksum,
    /// Anything else.
    Other,
}

/// An error of a copy in an object store.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A profile of AWS.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The user and password of a server.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// A signed address is only for reading scans whose names are known.
    #[error("{address} is a signed address, with which scans are only read, by their names")]
    Signed {
        /// The place.
        address: String,
    },
    /// A request failed.
    #[error("{address}: {why}")]
    Store {
        /// The object or place.
        address: String,
        /// The kind.
        trouble: Trouble,
        /// The reason, as the store tells it.
        why: String,
    },
    /// There is no copy.
    #[error("there is no copy of a scan at {address}")]
    NoCopy {
        /// The place.
        address: String,
    },
    /// The copy is not complete.
    #[error("{address} is an incomplete copy: {why}")]
    Incomplete {
        /// The copy.
        address: String,
        /// What is missing.
        why: String,
    },
    /// Another scan is there.
    #[error("{address} is a copy of another scan, or of other data than the scan here has")]
    Exists {
        /// The copy.
        address: String,
    },
    /// A document or file of the copy is not as it was written.
    #[error("{address}: {why}")]
    Invalid {
        /// The object.
        address: String,
        /// The reason.
        why: String,
    },
    /// A name that no copy has.
    #[error("{address} lists a file that no scan has: {name:?}")]
    Name {
        /// The copy.
        address: String,
        /// The name.
        name: String,
    },
    /// Blocks at the store differ from the index.
    #[error(
        "{address}: {blocks} of its blocks differ from the index, or cannot be read; the first: {first}"
    )]
    Damaged {
        /// The copy.
        address: String,
        /// The number of blocks.
        blocks: u64,
        /// The first of them.
        first: String,
    },
    /// The scan here.
    #[error(transparent)]
    Scan(#[from] inventory::Error),
    /// The scan is not over.
    #[error("{scan} is not sealed")]
    Unsealed {
        /// The scan.
        scan: ScanName,
    },
    /// Blocks are not all here.
    #[error("{scan}: {why}")]
    Unreadable {
        /// The scan.
        scan: ScanName,
        /// The first of them.
        why: String,
    },
    /// A file of this host.
    #[error("{}: {source}", path.display())]
    Local {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The receipt could not be kept.
    #[error(transparent)]
    Receipt(#[from] copies::Error),
    /// The scan cannot be received.
    #[error(transparent)]
    Landing(#[from] LandingError),
    /// A block cannot be received.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// A member cannot be used.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// Memory or threads are not to be had.
    #[error("not enough memory or threads: {0}")]
    Resources(String),
    /// The user stopped it.
    #[error("stopped")]
    Stopped,
}

impl ObjectError {
    /// Makes an error of a failed request.
    pub(super) fn of_store(address: String, error: &object_store::Error) -> Self {
        let why = chain(error);
        let trouble = trouble(error, &why);
        Self::Store { address, trouble, why: shortened(&without_queries(&why)) }
    }

    /// True if other scans will meet it as well.
    pub fn is_about_the_store(&self) -> bool {
        matches!(
            self,
            Self::Address(_)
                | Self::Profile(_)
                | Self::Login(_)
                | Self::Signed { .. }
                | Self::Store { .. }
                | Self::Resources(_)
        )
    }
}

/// The texts of an error and of its causes, each once.
fn chain(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}

fn trouble(error: &object_store::Error, why: &str) -> Trouble {
    let has = |words: &[&str]| words.iter().any(|word| why.contains(word));
    if has(&[
        "169.254.169.254",
        "metadata.google.internal",
        "MissingAccount",
        "Missing AccessKeyId",
    ]) {
        return Trouble::NoCredentials;
    }
    if has(&["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"]) {
        return Trouble::NoBucket;
    }
    if has(&["URL scheme is not allowed", "scheme is not https"]) {
        return Trouble::PlainHttp;
    }
    if has(&["x-amz-checksum", "InvalidDigest", "XAmzContentChecksumMismatch"]) {
        return Trouble::Checksum;
    }
    let denied = matches!(
        error,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }
    );
    if denied
        || has(&["AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "403 Forbidden"])
    {
        return Trouble::Denied;
    }
    if has(&["error sending request", "onnect error", "dns error", "timed out"]) {
        return Trouble::Network;
    }
    Trouble::Other
}

/// The text without the queries of addresses in it: they can be signatures.
fn without_queries(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "\"')>,".contains(c);
    let words = text.split_inclusive(ends).map(|word| match word.split_once('?') {
        Some((before, query)) if before.contains("://") => {
            let end = query.rfind(ends).map_or("", |at| &query[at..]);
            format!("{before}?…{end}")
        }
        _ => word.to_owned(),
    });
    words.collect()
}

fn shortened(text: &str) -> String {
    let shown = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = text.chars().take(LONGEST).map(shown).collect();
    if text.chars().count() > LONGEST {
        short.push('…');
    }
    short
}

impl Hint for ObjectError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let hint = match self {
            Self::Scan(error) => return error.hint(),
            Self::Landing(error) => return error.hint(),
            Self::Member(error) => return error.hint(),
            Self::Receipt(error) => return error.hint(),
            Self::Store { trouble, .. } => match trouble {
                Trouble::NoCredentials => {
                    "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE (S3), \
                     GOOGLE_APPLICATION_CREDENTIALS (gs), or AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY (az)"
                }
                Trouble::Denied => {
                    "the credentials must allow to list, read and write objects there"
                }
                Trouble::NoBucket => {
                    "create the bucket first; is AWS_ENDPOINT_URL that of its store, and AWS_REGION its region?"
                }
                Trouble::Network => {
                    "is the store's endpoint (AWS_ENDPOINT_URL, for S3) right and reachable? The same command continues"
                }
                Trouble::PlainHttp => {
                    "the endpoint is not encrypted: AWS_ALLOW_HTTP=true permits it, in a network that you trust"
                }
                Trouble::Checksum => {
                    "the store does not accept this checksum: AWS_CHECKSUM_ALGORITHM=SHA256 uses another one"
                }
                Trouble::Other => return None,
            },
            Self::Profile(ProfileError::Missing { .. }) => {
                "AWS_PROFILE names a section of ~/.aws/credentials, or `[profile NAME]` of ~/.aws/config"
            }
            Self::Profile(ProfileError::NoKeys { .. }) => {
                "only static keys are read; `eval \"$(aws configure export-credentials --format env)\"` sets those of other profiles"
            }
            Self::Login(LoginError::Plain { .. }) => "use an https address",
            Self::Login(LoginError::Exposed { .. }) => "`chmod 600` makes it yours alone",
            Self::Signed { .. } => {
                "name the scan at the end of the address; to send, use credentials"
            }
            Self::NoCopy { .. } => "`fullbore receive --list --from` lists the copies at a place",
            Self::Incomplete { .. } => "run the same `fullbore send` again: only the rest is sent",
            Self::Exists { .. } => "send it to another prefix",
            Self::Damaged { .. } => {
                "remove the objects named by `fullbore verify`, and send the scan again: only they are sent"
            }
            Self::Unsealed { .. } => {
                "send it when its recording is over; `fullbore recover` seals a scan whose recorder died"
            }
            Self::Unreadable { .. } => {
                "an object store takes only whole scans: attach all members, or `fullbore rebuild`"
            }
            Self::Stopped => "the same command continues: only the rest is sent",
            _ => return None,
        };
        Some(hint.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_of_addresses_are_not_shown() {
        for (text, shown) in [
            (
                "error for url (https://h/x?sig=a&b=c): timed out",
                "error for url (https://h/x?…): timed out",
            ),
            ("https://h/x?sig=a", "https://h/x?…"),
            (
                "\"https://h/x?a=1\" and http://h/y?b=2 end",
                "\"https://h/x?…\" and http://h/y?… end",
            ),
            ("is it there? yes", "is it there? yes"),
        ] {
            assert_eq!(without_queries(text), shown);
        }
    }
}
