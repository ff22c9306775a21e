//! Connections: sockets that listen, how many clients may connect, and how long they may take.
//!
//! ```text
//! accept ──► Table: a place, or that of one who waits ──► TLS ──► hyper ──► router
//!                                                          10 s     10 s for the head of each request
//! ```
//!
//! A thousand clients that connect and say nothing hold as many places as the limit allows, push each other out, and
//! are closed after the header timeout. A client over TCP that does not read its answer is closed after [`UNREAD`]. On
//! the Unix socket it keeps its place, which is one of its own user's.

pub mod peer;
mod stream;
pub mod table;
pub mod tls;

use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use self::peer::Peer;
use self::stream::{Answer, Connections, Counted, Place, Serving};
use self::table::{Admitted, Limits, Table};

/// After this time without an acknowledgement of what was sent, a connection is closed (`TCP_USER_TIMEOUT`).
pub const UNREAD: Duration = Duration::from_secs(30);

/// The largest head of a request, in bytes.
const LARGEST_HEAD: usize = 32 << 10;

/// The most headers of a request.
const MOST_HEADERS: usize = 64;

/// Time until the next try, after the kernel could not accept a connection.
const AGAIN: Duration = Duration::from_millis(100);

/// How long a client may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// For the handshake of TLS, and for the head of each request, also while it sends none.
    pub head: Duration,
    /// For the body of a request.
    pub body: Duration,
}

/// A socket that listens.
pub enum Listener {
    /// TCP, with TLS or without.
    Tcp(TcpListener, Option<TlsAcceptor>),
    /// A Unix socket.
    Unix(UnixListener),
}

/// Where all listeners of a station let connections in. Clones are handles of the same.
#[derive(Clone)]
pub struct Entrance {
    connections: Connections,
    patience: Arc<Mutex<Patience>>,
    router: Router,
}

impl Entrance {
    /// Nothing is connected.
    pub fn new(limits: Limits, patience: Patience, router: Router) -> Self {
        let connections = Arc::new(Mutex::new(Table::new(limits)));
        Self { connections, patience: Arc::new(Mutex::new(patience)), router }
    }

    /// Sets other limits, for new connections.
    pub fn limit(&self, limits: Limits, patience: Patience) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).limit(limits);
        *self.patience.lock().unwrap_or_else(PoisonError::into_inner) = patience;
    }

    /// Accepts connections of a listener, for good.
    pub async fn accept(self, listener: Listener) {
        loop {
            let accepted = match &listener {
                Listener::Tcp(listener, tls) => {
                    self.tcp(listener.accept().await.map(|it| it.0), tls.as_ref())
                }
                Listener::Unix(listener) => self.unix(listener.accept().await.map(|it| it.0)),
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "accepting a connection");
                // No descriptor is free, or no memory. A client that is gone already holds up nobody.
                if error.kind() != io::ErrorKind::ConnectionAborted {
                    sleep(AGAIN).await;
                }
            }
        }
    }

    fn tcp(&self, stream: io::Result<TcpStream>, tls: Option<&TlsAcceptor>) -> io::Result<()> {
        let stream = stream?;
        if let Err(error) = self.let_in(stream, tls) {
            tracing::debug!(%error, "a client is gone already");
        }
        Ok(())
    }

    fn let_in(&self, stream: TcpStream, tls: Option<&TlsAcceptor>) -> io::Result<()> {
        let socket = socket2::SockRef::from(&stream);
        socket.set_tcp_nodelay(true)?;
        socket.set_tcp_user_timeout(Some(UNREAD))?;
        socket.set_keepalive(true)?;
        let (local, remote) = (stream.local_addr()?, stream.peer_addr()?);
        self.admit(stream, Peer::Tcp { local, remote, tls: tls.is_some() }, tls.cloned());
        Ok(())
    }

    fn unix(&self, stream: io::Result<UnixStream>) -> io::Result<()> {
        let stream = stream?;
        match stream.peer_cred() {
            Ok(credentials) => self.admit(stream, Peer::Unix { uid: credentials.uid() }, None),
            Err(error) => tracing::debug!(%error, "a client is gone already"),
        }
        Ok(())
    }

    fn admit<S>(&self, stream: S, peer: Peer, tls: Option<TlsAcceptor>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let close = Arc::new(Notify::new());
        let mut table = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Admitted { id, instead_of }) = table.admit(peer.origin(), close.clone()) else {
            tracing::warn!(?peer, "too many connections");
            return;
        };
        drop(table);
        // A permit: the other connection finds it, even if it does not wait for it yet.
        instead_of.inspect(|victim| victim.notify_one());
        let counted =
            Counted { stream, _place: Place { connections: self.connections.clone(), id } };
        let entrance = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = entrance.serve(counted, peer, tls, id) => {}
                () = close.notified() => {}
            }
        });
    }

    async fn serve<S>(self, stream: Counted<S>, peer: Peer, tls: Option<TlsAcceptor>, id: u64)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let head = self.patience.lock().unwrap_or_else(PoisonError::into_inner).head;
        match tls {
            None => self.http(stream, peer, id, head).await,
            Some(tls) => match timeout(head, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.http(stream, peer, id, head).await,
                Ok(Err(error)) => tracing::debug!(?peer, %error, "no TLS"),
                Err(_) => tracing::debug!(?peer, "no TLS in time"),
            },
        }
    }

    async fn http<S>(self, stream: S, peer: Peer, id: u64, head: Duration)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (connections, router, shown) = (self.connections, self.router, peer.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            let serving = Serving::new(&connections, id);
            request.extensions_mut().insert(peer.clone());
            let answer = router.clone().call(request.map(Body::new));
            async move {
                let answer = answer.await?;
                if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
                    serving.for_good();
                    return Ok::<_, Infallible>(answer);
                }
                Ok(answer.map(|body| Body::new(Answer { body, _serving: serving })))
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(head);
        builder.max_buf_size(LARGEST_HEAD).max_headers(MOST_HEADERS);
        let served = builder.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        if let Err(error) = served {
            tracing::debug!(peer = ?shown, %error, "a connection ended");
        }
    }
}

/// Binds a Unix socket. A file that an earlier daemon left is replaced, if nobody listens to it.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<(std::os::unix::net::UnixListener, Bound)> {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    use std::os::unix::net::{UnixListener, UnixStream};
    if let Ok(found) = std::fs::symlink_metadata(path) {
        let is_ours = found.file_type().is_socket() && UnixStream::connect(path).is_err();
        match is_ours {
            true => std::fs::remove_file(path)?,
            false => return Err(io::ErrorKind::AddrInUse.into()),
        }
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    listener.set_nonblocking(true)?;
    Ok((listener, Bound(path.to_owned())))
}

/// The file of a Unix socket, which goes with the daemon.
#[derive(Debug)]
pub struct Bound(PathBuf);

impl Bound {
    /// The socket at a path is to go.
    pub fn at(path: PathBuf) -> Self {
        Self(path)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // The next daemon replaces a file that stays.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests;
