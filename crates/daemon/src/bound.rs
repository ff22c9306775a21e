//! The sockets of the daemon, bound before anything else happens: two daemons do not come into each other's way.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullbore_linux::sys::passed_sockets::passed_sockets;
use fullbore_recording::spectra::place;
use tokio::net::{TcpListener, UnixListener};

use crate::config::SOCKET;
use crate::net::tls::{Certificate, Source};
use crate::net::{self, Entrance, Listener};
use crate::serve::Error;
use crate::station_file::Listen;

/// The sockets.
pub(crate) struct Bound {
    /// Each address with its socket, and true if it has TLS.
    tcp: Vec<(SocketAddr, std::net::TcpListener, bool)>,
    unix: Option<(PathBuf, std::os::unix::net::UnixListener, Option<net::Bound>)>,
    /// The socket in the directory of the daemon, for commands of its own user.
    own: (PathBuf, std::os::unix::net::UnixListener, net::Bound),
    /// The certificate of those with TLS.
    pub(crate) certificate: Option<Arc<Certificate>>,
    names: Vec<String>,
}

/// Where the certificate comes from. One that signs itself is in the directory of the station.
pub(crate) fn source_of(listen: &Listen, names: &[String], state: &Path) -> Source {
    match listen.certificate.clone() {
        Some((certificate, key)) => Source::Files { certificate, key },
        None => {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let mut names = [names, &[host, "localhost".to_owned()]].concat();
            // An address that stands for all of the host is no name of it.
            let own = listen.https.iter().map(|it| it.ip()).filter(|it| !it.is_unspecified());
            names.extend(own.map(|it| it.to_string()));
            Source::Own { directory: state.join("tls"), names }
        }
    }
}

impl Bound {
    /// Binds all of them.
    pub(crate) fn bind(listen: &Listen, names: &[String], state: &Path) -> Result<Self, Error> {
        let mut passed = Passed::take()?;
        let https = listen.https.iter().map(|it| (*it, true));
        let http = listen.http.iter().map(|it| (*it, false));
        let tcp = http.chain(https).map(|(address, tls)| bind(address, tls, &mut passed));
        let tcp = tcp.collect::<Result<Vec<_>, _>>()?;
        let unix = listen.unix.as_ref().map(|it| {
            let failed = |source| Error::Socket { path: it.path.clone(), source };
            let (listener, file) = match passed.unix(&it.path) {
                Some(listener) => (listener, None),
                None => {
                    let (listener, file) = net::bind_unix(&it.path, it.mode).map_err(failed)?;
                    (listener, Some(file))
                }
            };
            listener.set_nonblocking(true).map_err(failed)?;
            Ok::<_, Error>((it.path.clone(), listener, file))
        });
        let unix = unix.transpose()?;
        passed.none_left()?;
        let path = state.join(SOCKET);
        let failed = |source| Error::Socket { path: path.clone(), source };
        let listener = place::listen(&path).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let own = (path.clone(), listener, net::Bound::at(path));
        let certificate = match listen.https.is_empty() {
            true => None,
            false => Some(Arc::new(Certificate::load(&source_of(listen, names, state))?)),
        };
        Ok(Self { tcp, unix, own, certificate, names: names.to_vec() })
    }

    /// The first address.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.tcp.first().map(|it| it.0)
    }

    /// True if a browser can reach it.
    pub(crate) fn has_web(&self) -> bool {
        !self.tcp.is_empty()
    }

    /// The beginning of the address that a browser uses.
    pub(crate) fn base(&self) -> String {
        match self.tcp.first() {
            Some((address, _, false)) => format!("http://{address}"),
            Some((address, _, true)) => match (address.ip().is_unspecified(), self.names.first()) {
                (_, Some(name)) => format!("https://{name}:{}", address.port()),
                (true, None) => format!("https://localhost:{}", address.port()),
                (false, None) => format!("https://{address}"),
            },
            None => String::new(),
        }
    }

    /// Where it listens.
    pub(crate) fn urls(&self) -> Vec<String> {
        let tcp = self.tcp.iter().map(|(address, _, tls)| {
            let scheme = if *tls { "https" } else { "http" };
            format!("{scheme}://{address}")
        });
        let unix = self.unix.iter().map(|(path, ..)| format!("unix:{}", path.display()));
        tcp.chain(unix).collect()
    }

    /// Lets clients in. Returns the files of the Unix sockets, which are removed when they are dropped.
    pub(crate) fn accept(self, entrance: &Entrance) -> Result<Vec<net::Bound>, Error> {
        let acceptor = self.certificate.map(Certificate::acceptor).transpose()?;
        for (address, listener, tls) in self.tcp {
            let failed = |source| Error::Listen { address, source };
            let listener = TcpListener::from_std(listener).map_err(failed)?;
            let tls = acceptor.clone().filter(|_| tls);
            tokio::spawn(entrance.clone().accept(Listener::Tcp(listener, tls)));
        }
        let (path, listener, file) = self.own;
        let mut files = Vec::new();
        for (path, listener, file) in self.unix.into_iter().chain([(path, listener, Some(file))]) {
            let listener = UnixListener::from_std(listener);
            let listener = listener.map_err(|source| Error::Socket { path, source })?;
            tokio::spawn(entrance.clone().accept(Listener::Unix(listener)));
            files.extend(file);
        }
        Ok(files)
    }
}

fn bind(
    address: SocketAddr,
    tls: bool,
    passed: &mut Passed,
) -> Result<(SocketAddr, std::net::TcpListener, bool), Error> {
    let failed = |source: io::Error| Error::Listen { address, source };
    let listener = match passed.tcp(address) {
        Some(listener) => listener,
        None => std::net::TcpListener::bind(address).map_err(failed)?,
    };
    listener.set_nonblocking(true).map_err(failed)?;
    Ok((listener.local_addr().map_err(failed)?, listener, tls))
}

/// Sockets that systemd has bound. Each takes the place of the address that it has.
struct Passed(Vec<socket2::Socket>);

impl Passed {
    fn take() -> Result<Self, Error> {
        let passed = passed_sockets().map_err(Error::Passed)?;
        Ok(Self(passed.into_iter().map(socket2::Socket::from).collect()))
    }

    fn tcp(&mut self, address: SocketAddr) -> Option<std::net::TcpListener> {
        let has = |it: &socket2::Socket| it.local_addr().ok()?.as_socket();
        let place = self.0.iter().position(|it| has(it) == Some(address))?;
        Some(self.0.remove(place).into())
    }

    fn unix(&mut self, path: &Path) -> Option<std::os::unix::net::UnixListener> {
        let has = |it: &socket2::Socket| it.local_addr().ok()?.as_pathname().map(Path::to_owned);
        let place = self.0.iter().position(|it| has(it).as_deref() == Some(path))?;
        Some(std::os::fd::OwnedFd::from(self.0.remove(place)).into())
    }

    /// A socket that the file does not name is not served, for it could be one that other hosts reach.
    fn none_left(self) -> Result<(), Error> {
        let Some(left) = self.0.first() else { return Ok(()) };
        let address = left.local_addr().map_err(Error::Passed)?;
        let shown = match (address.as_socket(), address.as_pathname()) {
            (Some(address), _) => address.to_string(),
            (None, Some(path)) => path.display().to_string(),
            (None, None) => "a socket".to_owned(),
        };
        Err(Error::Unlisted { shown })
    }
}
