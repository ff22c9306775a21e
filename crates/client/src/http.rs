//! Requests over TCP, TLS or a Unix socket.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_core::hint::with_causes;
use reqwest::{Certificate, RequestBuilder, Response};
use serde::Deserialize;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use crate::address::{Address, Trust};
use crate::{Error, token, trust};

pub use reqwest::Method;

/// How long a connection may take.
const UNTIL_CONNECTED: Duration = Duration::from_secs(10);

/// How long an answer may take. The start of a recording waits up to 30 s until it is armed.
const UNTIL_ANSWERED: Duration = Duration::from_secs(90);

/// How long the first answer of a stream may take.
const UNTIL_BEGUN: Duration = Duration::from_secs(20);

/// The longest answer, in bytes.
const LONGEST_ANSWER: usize = 256 << 20;

/// The longest reason of a refusal, in bytes.
const LONGEST_REFUSAL: usize = 1 << 20;

/// The longest line of a stream, in bytes.
const LONGEST_LINE: usize = 32 << 20;

/// Time between two turns of a caller that follows a stream.
const TURN: Duration = Duration::from_millis(100);

/// A station, and the right to ask it.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    http: reqwest::Client,
    station: String,
    base: String,
    token: Option<String>,
    /// The directory of a Unix socket, through whose descriptor its path is short.
    _directory: Option<File>,
}

/// What a station says when it refuses.
#[derive(Deserialize)]
struct Problem {
    detail: String,
    advice: Option<String>,
}

impl Client {
    /// A client that sends the token of the environment, if there is one.
    pub fn new(address: &Address) -> Result<Self, Error> {
        Self::with_token(address, token::of_environment()?)
    }

    /// A client with a token, which is sent to this host or over TLS only.
    pub fn with_token(address: &Address, token: Option<String>) -> Result<Self, Error> {
        if token.is_some() && address.is_readable() {
            return Err(Error::Clear { station: address.to_string() });
        }
        let prepare = |what: String| Error::Prepare { what };
        // One that is installed already is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = reqwest::Client::builder().connect_timeout(UNTIL_CONNECTED);
        // A connection that waited may be closed by a daemon that was started again.
        let builder = builder.pool_max_idle_per_host(0);
        let builder = builder.redirect(reqwest::redirect::Policy::none()).no_proxy();
        let builder = builder.user_agent(concat!("fullbore/", env!("CARGO_PKG_VERSION")));
        let (builder, base, directory) = match address {
            Address::Unix(path) => {
                let (path, directory) = short(path)?;
                (builder.unix_socket(path), "http://station".to_owned(), directory)
            }
            Address::Web { base, trust } => {
                let builder = match trust {
                    Trust::System => builder,
                    Trust::Authority(path) => builder.tls_certs_only(authorities(path)?),
                    Trust::Pinned(digest) => {
                        let config =
                            trust::pinned(*digest).map_err(|error| prepare(error.to_string()))?;
                        builder.tls_backend_preconfigured(config)
                    }
                };
                (builder, base.clone(), None)
            }
        };
        let http = builder.build().map_err(|error| prepare(with_causes(&error)))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| prepare(error.to_string()))?;
        let station = address.to_string();
        Ok(Self { runtime, http, station, base, token, _directory: directory })
    }

    /// Where the station is.
    pub fn station(&self) -> &str {
        &self.station
    }

    /// Asks for a resource.
    pub fn get(&self, path: &str) -> Result<Value, Error> {
        self.send(Method::GET, path, None)
    }

    /// The same, if the answer comes within a time.
    pub fn get_within(&self, path: &str, time: Duration) -> Result<Value, Error> {
        self.sent(self.request(Method::GET, path).timeout(time))
    }

    /// Sends a request, and returns the JSON of its answer. `path` begins with `/api/v1/`.
    pub fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Error> {
        let mut request = self.request(method, path).timeout(UNTIL_ANSWERED);
        if let Some(body) = body {
            request = request.header("Content-Type", "application/json").body(body.to_string());
        }
        self.sent(request)
    }

    fn sent(&self, request: RequestBuilder) -> Result<Value, Error> {
        self.runtime.block_on(async {
            let response = self.answered(request).await?;
            let text = self.read(response, LONGEST_ANSWER).await?;
            match text.is_empty() {
                true => Ok(Value::Null),
                false => serde_json::from_slice(&text).map_err(|it| self.strange(&it.to_string())),
            }
        })
    }

    /// Follows a stream of lines until it ends. `take` gets each line, and `None` several times a second.
    pub fn follow<E: From<Error>>(
        &self,
        path: &str,
        mut take: impl FnMut(Option<&str>) -> Result<(), E>,
    ) -> Result<(), E> {
        let request = self.request(Method::GET, path);
        // The stream itself has no limit of time, so the request has none.
        let begun = async { timeout(UNTIL_BEGUN, self.answered(request)).await };
        let begun = self.runtime.block_on(begun);
        let mut response = begun.map_err(|_| self.lost("the station does not answer"))??;
        let mut held = Vec::new();
        loop {
            // A caller's turn may ask the station too, so each wait is a run of its own.
            let part = self.runtime.block_on(async { timeout(TURN, response.chunk()).await });
            match part {
                Err(_) => take(None)?,
                Ok(Err(error)) => return Err(self.broken(&error).into()),
                Ok(Ok(None)) => return Ok(()),
                Ok(Ok(Some(part))) => {
                    held.extend_from_slice(&part);
                    while let Some(end) = held.iter().position(|byte| *byte == b'\n') {
                        take(Some(&String::from_utf8_lossy(&held[..end])))?;
                        held.drain(..=end);
                    }
                    if held.len() > LONGEST_LINE {
                        return Err(self.strange("a line is too long").into());
                    }
                    take(None)?;
                }
            }
        }
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// The answer, if it is not an error.
    async fn answered(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await.map_err(|error| Error::Connection {
            station: self.station.clone(),
            unreached: error.is_connect(),
            why: with_causes(&error.without_url()),
        })?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = self.read(response, LONGEST_REFUSAL).await?;
        let problem: Problem = serde_json::from_slice(&text)
            .map_err(|_| self.strange(&format!("its status is {status}")))?;
        let Problem { detail, advice } = problem;
        Err(Error::Refused { status: status.as_u16(), detail, advice })
    }

    /// The whole body of an answer, which has at most so many bytes.
    async fn read(&self, mut response: Response, most: usize) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        while let Some(part) = response.chunk().await.map_err(|it| self.broken(&it))? {
            text.extend_from_slice(&part);
            if text.len() > most {
                return Err(self.strange("it is too long"));
            }
        }
        Ok(text)
    }

    fn broken(&self, error: &reqwest::Error) -> Error {
        self.lost(&format!("the connection broke: {}", with_causes(error)))
    }

    fn lost(&self, why: &str) -> Error {
        Error::Connection { station: self.station.clone(), why: why.to_owned(), unreached: false }
    }

    fn strange(&self, why: &str) -> Error {
        Error::Strange { station: self.station.clone(), why: why.to_owned() }
    }
}

/// The path of a socket through the descriptor of its directory: an address has 108 bytes (`sun_path`, unix(7)).
fn short(path: &Path) -> Result<(PathBuf, Option<File>), Error> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok((path.to_owned(), None));
    };
    if path.as_os_str().len() < 100 {
        return Ok((path.to_owned(), None));
    }
    let opened = File::open(parent);
    let directory =
        opened.map_err(|error| Error::File { path: parent.to_owned(), what: error.to_string() })?;
    let through = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    Ok((through, Some(directory)))
}

/// The certificates of a PEM file.
fn authorities(path: &Path) -> Result<Vec<Certificate>, Error> {
    let failed = |what: String| Error::File { path: path.to_owned(), what };
    let text = fs::read(path).map_err(|error| failed(error.to_string()))?;
    let found = Certificate::from_pem_bundle(&text).map_err(|error| failed(with_causes(&error)))?;
    match found.is_empty() {
        true => Err(failed("it has no certificate".to_owned())),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests;
