//! A network namespace with a wire of its own into it: the kernel's whole receive path, without a second host.
//!
//! ```text
//! this namespace                        fullbore-bench-<pid>
//!   sender ── fb<pid>a 198.18.x.1 ══ veth ══ fb<pid>b 198.18.x.2 ── bench net --serve
//! ```
//!
//! The addresses are those that RFC 2544 keeps for benchmarks. Namespace, wire and server are gone when
//! the [`Pair`] is dropped.

use std::io::{self, BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::wire::PORT;

/// Jumbo frames, as every VLBI and beamline network has them.
const MTU: &str = "9000";

/// What our namespaces are called, before the number of the process.
const PREFIX: &str = "fullbore-bench-";

/// Where `ip` keeps namespaces.
const NAMESPACES: &str = "/run/netns";

/// A namespace that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `ip` is not there.
    #[error("running `{command}`: {source}")]
    Start {
        /// The command.
        command: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// `ip` refuses.
    #[error("`{command}` failed: {said}")]
    Refused {
        /// The command.
        command: String,
        /// What it said.
        said: String,
    },
    /// The server within did not come up.
    #[error("`{command}` did not begin to listen")]
    Server {
        /// The command.
        command: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Start { .. } => Some("it comes with the package iproute2"),
            Self::Refused { .. } => Some(
                "a network namespace needs the rights of root (CAP_SYS_ADMIN and CAP_NET_ADMIN); loopback needs none",
            ),
            Self::Server { .. } => None,
        }
    }
}

/// A namespace, its wire, and a server in it.
pub struct Pair {
    namespace: String,
    server: Option<Child>,
    address: Ipv4Addr,
}

impl Pair {
    /// Makes all of it; `program` is this binary.
    pub fn make(program: &Path) -> Result<Self, Error> {
        let pid = std::process::id();
        clear_of_the_dead();
        let (namespace, ours, theirs) =
            (format!("{PREFIX}{pid}"), format!("fb{pid}a"), format!("fb{pid}b"));
        // A net of four addresses for each process, from 198.18.0.0/15.
        let net = (u32::from(Ipv4Addr::new(198, 18, 0, 0))) + (pid % (1 << 15)) * 4;
        let (here, there) = (Ipv4Addr::from(net + 1), Ipv4Addr::from(net + 2));
        ip(&["netns", "add", &namespace])?;
        // From here on it is taken away again, however far we come.
        let mut pair = Self { namespace: namespace.clone(), server: None, address: there };
        ip(&[
            "link", "add", &ours, "mtu", MTU, "type", "veth", "peer", "name", &theirs, "mtu", MTU,
            "netns", &namespace,
        ])?;
        ip(&["addr", "add", &format!("{here}/30"), "dev", &ours])?;
        ip(&["link", "set", &ours, "up"])?;
        let within = |words: &[&str]| ip(&[&["-n", &namespace], words].concat());
        within(&["addr", "add", &format!("{there}/30"), "dev", &theirs])?;
        within(&["link", "set", &theirs, "up"])?;
        within(&["link", "set", "lo", "up"])?;
        pair.start_server(program)?;
        Ok(pair)
    }

    fn start_server(&mut self, program: &Path) -> Result<(), Error> {
        let listen = format!("{}:{PORT}", self.address);
        let words = ["netns", "exec", &self.namespace];
        let mut command = Command::new("ip");
        command
            .args(words)
            .arg(program)
            .args(["bench", "net", "--serve", "--once", "--listen", &listen]);
        let told = format!(
            "ip {} {} bench net --serve --once --listen {listen}",
            words.join(" "),
            program.display()
        );
        let start = |source| Error::Start { command: told.clone(), source };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().map_err(start)?;
        let said = server.stdout.take();
        self.server = Some(server);
        let mut line = String::new();
        let read = said.map(|said| BufReader::new(said).read_line(&mut line));
        match (read, line.contains("listening")) {
            (Some(Ok(_)), true) => Ok(()),
            _ => Err(Error::Server { command: told }),
        }
    }

    /// Where the server listens.
    pub fn address(&self) -> String {
        format!("{}:{PORT}", self.address)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // It ends by itself when the conversation does; one that nobody called is ended here.
            let _ = server.kill();
            let _ = server.wait();
        }
        // The wire goes with the namespace that holds its other end.
        let _ = ip(&["netns", "del", &self.namespace]);
    }
}

/// Takes away the namespaces of processes that were killed. Their servers have ended by themselves.
fn clear_of_the_dead() {
    let Ok(entries) = std::fs::read_dir(NAMESPACES) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Whoever else takes it away at the same time does as well.
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<(), Error> {
    let command = format!("ip {}", words.join(" "));
    let start = |source| Error::Start { command: command.clone(), source };
    let done = Command::new("ip").args(words).stdin(Stdio::null()).output().map_err(start)?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            Err(Error::Refused { command, said })
        }
    }
}
