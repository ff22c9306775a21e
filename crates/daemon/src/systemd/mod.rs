//! What the daemon tells systemd: that it serves, that it reloads, and that everything moves (sd_notify(3)).

pub mod movement;

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The socket of the service manager. Without systemd, nothing is told.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// The time within which the watchdog must be fed.
    watchdog: Option<Duration>,
}

impl Manager {
    /// That of the environment: `NOTIFY_SOCKET`, `WATCHDOG_USEC`, `WATCHDOG_PID`.
    pub fn of_environment() -> Self {
        let own = |pid: String| pid == std::process::id().to_string();
        let is_for_us = env::var("WATCHDOG_PID").ok().is_none_or(own);
        let usec = env::var("WATCHDOG_USEC").ok().filter(|_| is_for_us);
        let watchdog = usec.and_then(|usec| usec.parse().ok()).map(Duration::from_micros);
        let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|it| !it.is_empty()) else {
            return Self::default();
        };
        match open(path.as_bytes()) {
            Ok(socket) => Self { socket: Some(socket), watchdog },
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET cannot be used");
                Self::default()
            }
        }
    }

    /// Time between two feedings of the watchdog.
    pub fn feeds_every(&self) -> Option<Duration> {
        self.watchdog.map(|within| within / 3)
    }

    /// The daemon serves.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", line(status)));
    }

    /// It reads its file again. `ready` ends this.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let usec = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={usec}"));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Everything moves.
    pub fn feed(&self) {
        self.tell("WATCHDOG=1");
    }

    /// One line for `systemctl status`.
    pub fn status(&self, text: &str) {
        self.tell(&format!("STATUS={}", line(text)));
    }

    fn tell(&self, text: &str) {
        let Some((socket, manager)) = &self.socket else { return };
        if let Err(error) = socket.send_to_addr(text.as_bytes(), manager) {
            tracing::debug!(%error, "systemd takes no notice");
        }
    }
}

fn line(text: &str) -> String {
    text.replace('\n', "; ")
}

/// A path, or after `@` a name without a file.
fn open(path: &[u8]) -> io::Result<(UnixDatagram, SocketAddr)> {
    let manager = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read holds nothing up.
    socket.set_nonblocking(true)?;
    Ok((socket, manager))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_gets_whole_messages_by_path_and_by_name() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let name = format!("fullbore-test-{}", std::process::id());
        let by_path = UnixDatagram::bind(&path).unwrap();
        let abstract_name = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let by_name = UnixDatagram::bind_addr(&abstract_name).unwrap();
        for (written, socket) in
            [(path.display().to_string(), by_path), (format!("@{name}"), by_name)]
        {
            let socket_of_ours = Some(open(written.as_bytes()).unwrap());
            let manager = Manager { socket: socket_of_ours, watchdog: None };
            manager.ready("serving\non 1");
            manager.feed();
            let mut buffer = [0; 200];
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"READY=1\nSTATUS=serving; on 1");
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"WATCHDOG=1");
        }
    }
}
