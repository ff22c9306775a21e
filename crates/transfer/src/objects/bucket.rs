//! Requests to an object store, made to wait: the only place with an async runtime.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Once};
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, HeaderMap, ObjectStore, ObjectStoreExt as _,
    ObjectStoreScheme, PutPayload, RetryConfig,
};
use reqwest::header::AUTHORIZATION;
use tokio::runtime::Runtime;
use url::Position;

use super::address::Address;
use super::aws_profile::{AwsProfile, ENDPOINTS};
use super::error::{ObjectError, Trouble};
use super::http_login;
use super::tree::LARGEST;
use super::upload::Upload;
use crate::governor;

/// Threads of the runtime.
const THREADS: usize = 2;

/// Time for a request with its data: a part on a slow link takes minutes.
const REQUEST: &str = "600 seconds";

/// Time without an answer to the first request after which the store counts as unreachable.
const FIRST: Duration = Duration::from_secs(5);

/// The same, for requests to an upload that the store may have forgotten: some stores answer those with a server error.
const CONTINUED: Duration = Duration::from_secs(10);

/// The longest time during which a request is repeated: credentials of a request expire.
const LONGEST_RETRY: Duration = Duration::from_secs(180);

/// Requests at the same time.
pub(super) const AT_ONCE: usize = 4;

/// An object and its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The name, relative to the place that was listed.
    pub name: String,
    /// The size.
    pub bytes: u64,
}

/// Takes what was read of a range, or why it was not, and says whether to go on.
type Take<'a> = dyn FnMut(Result<&[u8], ObjectError>) -> Result<bool, ObjectError> + 'a;

/// A place in an object store.
pub struct Bucket {
    address: Address,
    base: Path,
    store: Arc<dyn ObjectStore>,
    /// The same, for first requests: it gives up soon.
    first: Arc<dyn ObjectStore>,
    /// The same, if it names uploads that a later process can continue.
    parts: Option<Arc<dyn MultipartStore>>,
    /// The same, for uploads that are continued: it gives up soon.
    continued: Option<Arc<dyn MultipartStore>>,
    runtime: Runtime,
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.address)
    }
}

impl Bucket {
    /// Prepares requests to a store. `patience` is the time during which a failed request is repeated. Credentials are
    /// those of the environment, or of the files of [`aws_profile`] and [`http_login`].
    ///
    /// [`aws_profile`]: super::aws_profile
    /// [`http_login`]: super::http_login
    pub fn open(address: Address, patience: Duration) -> Result<Self, ObjectError> {
        install_tls();
        let login = Login::of(&address)?;
        if address.scheme() == ObjectStoreScheme::AmazonS3
            && is_plain_and_not_allowed(login.profile.endpoint())
        {
            let why = "its endpoint does not use TLS".to_owned();
            let address = address.to_string();
            return Err(ObjectError::Store { address, trouble: Trouble::PlainHttp, why });
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("objects")
            // Recording comes first, and without competition this costs nothing.
            .on_thread_start(governor::beside)
            .enable_all()
            .build()
            .map_err(|error| ObjectError::Resources(error.to_string()))?;
        let (base, (store, parts), (first, _), (_, continued)) = {
            // The stores start tasks of their own.
            let _entered = runtime.enter();
            let build = |time| {
                let built = build(&address, &login, time);
                built.map_err(|error| ObjectError::of_store(address.to_string(), &error))
            };
            (
                address.base(),
                build(patience.min(LONGEST_RETRY))?,
                build(patience.min(FIRST))?,
                build(patience.min(CONTINUED))?,
            )
        };
        Ok(Self { address, base, store, first, parts, continued, runtime })
    }

    /// The address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// True if the store itself checks what it is sent against a checksum.
    pub fn checks_uploads(&self) -> bool {
        self.address.scheme() == ObjectStoreScheme::AmazonS3
    }

    /// Refuses what a signed address of a server is not for: listing and writing.
    pub(super) fn refuse_signed(&self) -> Result<(), ObjectError> {
        let is_http = self.address.scheme() == ObjectStoreScheme::Http;
        if is_http && self.address.signature().is_some() {
            return Err(ObjectError::Signed { address: self.address.to_string() });
        }
        Ok(())
    }

    /// True if objects can be put in parts.
    pub(super) fn takes_parts(&self) -> bool {
        self.address.scheme() != ObjectStoreScheme::Http
    }

    /// The full address of an object.
    pub(super) fn address_of(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    fn path(&self, name: &str) -> Path {
        self.base.parts().chain(Path::from(name).parts()).collect()
    }

    fn wait<T>(
        &self,
        name: &str,
        request: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, ObjectError> {
        let result = self.runtime.block_on(request);
        result.map_err(|error| ObjectError::of_store(self.address_of(name), &error))
    }

    /// Runs a future on this runtime.
    pub(super) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Begins an object that is put in parts.
    pub(super) fn begin_parts(&self, name: &str) -> Result<Upload, ObjectError> {
        let path = self.path(name);
        let Some(store) = self.parts.clone() else {
            return self.wait(name, self.store.put_multipart(&path)).map(Upload::OfProcess);
        };
        let id = self.wait(name, store.create_multipart(&path))?;
        Ok(Upload::Named { store, path, id })
    }

    /// Continues an object that another process has begun to put in parts; `None` if this store has no such thing. A
    /// patient upload repeats failed requests as long as any other.
    pub(super) fn continue_parts(&self, name: &str, id: &str, patient: bool) -> Option<Upload> {
        let store = if patient { &self.parts } else { &self.continued };
        let (store, path) = (store.clone()?, self.path(name));
        Some(Upload::Named { store, path, id: id.to_owned() })
    }

    pub(super) fn error(&self, name: &str, error: &object_store::Error) -> ObjectError {
        ObjectError::of_store(self.address_of(name), error)
    }

    /// Puts a whole object.
    pub(super) fn put(&self, name: &str, pieces: PutPayload) -> Result<(), ObjectError> {
        self.wait(name, self.store.put(&self.path(name), pieces)).map(drop)
    }

    /// Removes an object, if it is there.
    pub(super) fn remove(&self, name: &str) -> Result<(), ObjectError> {
        match self.runtime.block_on(self.store.delete(&self.path(name))) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.error(name, &error)),
        }
    }

    /// Returns a document; `None` if it does not exist.
    pub(super) fn document(&self, name: &str) -> Result<Option<Vec<u8>>, ObjectError> {
        self.small(name, LARGEST)
    }

    /// Returns an object of at most this size; `None` if it does not exist.
    pub(super) fn small(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, ObjectError> {
        let read = async {
            let got = self.first.get(&self.path(name)).await?;
            if got.meta.size > most {
                return Ok(Err(got.meta.size));
            }
            let mut stream = got.into_stream();
            let mut data = Vec::new();
            while let Some(piece) = stream.try_next().await? {
                data.extend_from_slice(&piece);
                if data.len() as u64 > most {
                    return Ok(Err(data.len() as u64));
                }
            }
            Ok(Ok(data))
        };
        match self.runtime.block_on(read) {
            Ok(Ok(data)) => Ok(Some(data)),
            Ok(Err(bytes)) => Err(ObjectError::Invalid {
                address: self.address_of(name),
                why: format!("it has {bytes} bytes, and may have {most}"),
            }),
            Err(error) => match self.error(name, &error) {
                ObjectError::Store { trouble: Trouble::Other, .. }
                    if matches!(error, object_store::Error::NotFound { .. }) =>
                {
                    Ok(None)
                }
                failed => Err(failed),
            },
        }
    }

    /// Lists the objects below a name.
    pub(super) fn list(&self, below: &str) -> Result<Vec<Found>, ObjectError> {
        let prefix = self.path(below);
        let listed = self.store.list(Some(&prefix)).try_collect::<Vec<_>>();
        let name = |path: &Path| {
            let rest: Vec<String> =
                path.prefix_match(&prefix)?.map(|part| part.as_ref().to_owned()).collect();
            Some(rest.join("/"))
        };
        match self.runtime.block_on(listed) {
            Ok(all) => {
                let all = all.into_iter();
                Ok(all
                    .filter_map(|it| Some(Found { name: name(&it.location)?, bytes: it.size }))
                    .collect())
            }
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(self.error(below, &error)),
        }
    }

    /// Lists the names directly below this place that have objects below them.
    pub(super) fn folders(&self) -> Result<Vec<String>, ObjectError> {
        self.refuse_signed()?;
        let prefix = Some(&self.base).filter(|base| !base.as_ref().is_empty());
        let listed = self.runtime.block_on(self.first.list_with_delimiter(prefix));
        let folders = match listed {
            Ok(listed) => listed.common_prefixes,
            Err(error) => return Err(ObjectError::of_store(self.address.to_string(), &error)),
        };
        Ok(folders.iter().filter_map(|path| Some(path.filename()?.to_owned())).collect())
    }

    /// Reads ranges of objects, several at a time, and gives each in order to `take`, until that returns false.
    pub(super) fn read<'a>(
        &self,
        ranges: impl Iterator<Item = (&'a str, Range<u64>)>,
        take: &mut Take<'_>,
    ) -> Result<(), ObjectError> {
        let requests = ranges.map(|(name, range)| {
            let (store, path, address) =
                (self.store.clone(), self.path(name), self.address_of(name));
            async move {
                // On a thread of the runtime, so that the data arrives while `take` works.
                let read = tokio::spawn(async move { store.get_range(&path, range).await });
                match read.await {
                    Ok(Ok(data)) => Ok(data),
                    Ok(Err(error)) => Err(ObjectError::of_store(address, &error)),
                    Err(error) => Err(ObjectError::Resources(error.to_string())),
                }
            }
        });
        let mut answers = stream::iter(requests).buffered(AT_ONCE);
        self.runtime.block_on(async {
            while let Some(answer) = answers.next().await {
                let goes_on = match answer {
                    Ok(data) => take(Ok(&data))?,
                    Err(error) => take(Err(error))?,
                };
                if !goes_on {
                    break;
                }
            }
            Ok(())
        })
    }
}

/// Credentials that `object_store` does not look for itself.
#[derive(Default)]
struct Login {
    /// For S3.
    profile: AwsProfile,
    /// For a server that speaks HTTP.
    headers: HeaderMap,
}

impl Login {
    fn of(address: &Address) -> Result<Self, ObjectError> {
        let mut login = Self::default();
        match address.scheme() {
            ObjectStoreScheme::AmazonS3 => login.profile = AwsProfile::of_environment()?,
            ObjectStoreScheme::Http if address.signature().is_none() => {
                if let Some(value) = http_login::header(address.url(), address.token())? {
                    login.headers.insert(AUTHORIZATION, value);
                }
            }
            _ => {}
        }
        Ok(login)
    }
}

/// True if the endpoint of S3 is not encrypted, and the environment does not permit that.
fn is_plain_and_not_allowed(of_profile: Option<&str>) -> bool {
    let of = |name: &str| std::env::var(name).unwrap_or_default().to_ascii_lowercase();
    let plain = ENDPOINTS.iter().any(|name| of(name).starts_with("http://"))
        || of_profile.is_some_and(|it| it.to_ascii_lowercase().starts_with("http://"));
    plain && !["1", "true", "on", "yes", "y"].contains(&of("AWS_ALLOW_HTTP").as_str())
}

/// Chooses the cryptography of HTTPS: that of all other connections.
fn install_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Another part of the process may have chosen before.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// A store, and the same if it names uploads.
type Built = (Arc<dyn ObjectStore>, Option<Arc<dyn MultipartStore>>);

fn named<T: ObjectStore + MultipartStore>(store: T) -> Built {
    let store = Arc::new(store);
    (store.clone(), Some(store))
}

fn build(address: &Address, login: &Login, patience: Duration) -> object_store::Result<Built> {
    let url = address.url().to_string();
    let retry = RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 1000,
        retry_timeout: patience,
    };
    Ok(match address.scheme() {
        ObjectStoreScheme::AmazonS3 => {
            let mut builder = login.profile.apply(AmazonS3Builder::from_env());
            builder = builder.with_url(url).with_retry(retry);
            if std::env::var_os("AWS_CHECKSUM_ALGORITHM").is_none() {
                builder = builder.with_checksum_algorithm(Checksum::CRC64NVME);
            }
            let timeout = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
            named(builder.with_config(timeout, REQUEST).build()?)
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry);
            let timeout = GoogleConfigKey::Client(ClientConfigKey::Timeout);
            named(builder.with_config(timeout, REQUEST).build()?)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let mut builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry);
            if let Some(signature) = address.signature() {
                builder = builder.with_config(AzureConfigKey::SasKey, signature);
            }
            let timeout = AzureConfigKey::Client(ClientConfigKey::Timeout);
            named(builder.with_config(timeout, REQUEST).build()?)
        }
        ObjectStoreScheme::Local => (Arc::new(LocalFileSystem::new().with_fsync(true)), None),
        _ => {
            let plain = address.url().scheme() == "http";
            let options = ClientOptions::new()
                .with_allow_http(plain)
                .with_default_headers(login.headers.clone())
                .with_config(ClientConfigKey::Timeout, REQUEST);
            let mut root = address.url()[..Position::BeforePath].to_owned();
            if let Some(signature) = address.signature() {
                root = format!("{root}/?{signature}");
            }
            let builder = HttpBuilder::new().with_url(root);
            (Arc::new(builder.with_client_options(options).with_retry(retry).build()?), None)
        }
    })
}
