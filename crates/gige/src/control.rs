//! The control channel: commands to a camera over UDP, each repeated until it is answered.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use fullbore_formats::gvcp::{Answer, Command, Content, MOST_MEMORY};
use fullbore_formats::gvsp::resend::Request;

use crate::CameraError;

/// The time for an answer.
const PATIENCE: Duration = Duration::from_millis(300);

/// The times that a command is sent.
const TRIES: usize = 3;

/// The longest time that a camera can ask for, in all.
const LONGEST_PENDING: Duration = Duration::from_secs(5);

/// A socket that is connected to a camera.
#[derive(Debug)]
pub struct ControlChannel {
    camera: String,
    socket: UdpSocket,
    next_id: AtomicU16,
}

impl ControlChannel {
    /// Opens a socket to a host. Nothing is sent. `camera` is its name in messages.
    pub fn open(camera: &str, host: &str, port: u16) -> Result<Self, CameraError> {
        let failed = |action| {
            let camera = camera.to_owned();
            move |source| CameraError::Socket { camera, action, source }
        };
        let addresses = (host, port).to_socket_addrs().map_err(failed("finding the address"))?;
        let address = addresses
            .into_iter()
            .find(SocketAddr::is_ipv4)
            .ok_or_else(|| CameraError::Name { camera: camera.to_owned() })?;
        let socket =
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed("making a socket"))?;
        socket.connect(address).map_err(failed("finding the way"))?;
        Ok(Self { camera: camera.to_owned(), socket, next_id: AtomicU16::new(1) })
    }

    /// The camera in messages.
    pub fn camera(&self) -> &str {
        &self.camera
    }

    /// The address of this host on the way to the camera.
    pub fn local_address(&self) -> Result<Ipv4Addr, CameraError> {
        match self.socket.local_addr().map(|address| address.ip()) {
            Ok(IpAddr::V4(address)) => Ok(address),
            Ok(IpAddr::V6(_)) => Err(CameraError::Name { camera: self.camera.clone() }),
            Err(source) => Err(self.failed("finding the address of this host", source)),
        }
    }

    /// Reads a register.
    pub fn read(&self, address: u32) -> Result<u32, CameraError> {
        let action = || format!("reading register {address:#x}");
        match self.request(Command::ReadRegister { address }, TRIES, &action)? {
            Content::Register(value) => Ok(value),
            _ => Err(self.silent(action())),
        }
    }

    /// Reads a register with one try: `None` if the camera does not answer in time.
    pub fn try_read(&self, address: u32) -> Option<u32> {
        match self.request(Command::ReadRegister { address }, 1, &String::new).ok()? {
            Content::Register(value) => Some(value),
            _ => None,
        }
    }

    /// Writes a register.
    pub fn write(&self, address: u32, value: u32) -> Result<(), CameraError> {
        let action = || format!("writing {value:#x} to register {address:#x}");
        match self.request(Command::WriteRegister { address, value }, TRIES, &action)? {
            Content::Written => Ok(()),
            _ => Err(self.silent(action())),
        }
    }

    /// Reads memory.
    pub fn read_memory(&self, address: u32, bytes: u32) -> Result<Vec<u8>, CameraError> {
        let mut memory = Vec::new();
        while (memory.len() as u32) < bytes {
            let done = memory.len() as u32;
            let part = (bytes - done).next_multiple_of(4).min(MOST_MEMORY.into()) as u16;
            let address = address.wrapping_add(done);
            let action = || format!("reading {part} bytes of memory at {address:#x}");
            match self.request(Command::ReadMemory { address, bytes: part }, TRIES, &action)? {
                Content::Memory { address: at, bytes } if at == address && !bytes.is_empty() => {
                    memory.extend(bytes.into_iter().take(part.into()));
                }
                _ => return Err(self.silent(action())),
            }
        }
        memory.truncate(bytes as usize);
        Ok(memory)
    }

    /// Asks for packets again. A lost request is a request without effect.
    pub fn resend(&self, request: Request) {
        let Request { block, extended, first, last } = request;
        let command = Command::Resend { channel: 0, block, first, last, extended };
        let _ = self.socket.send(&command.datagram(self.id()));
    }

    /// Sends a command until it is answered.
    fn request(
        &self,
        command: Command,
        tries: usize,
        action: &dyn Fn() -> String,
    ) -> Result<Content, CameraError> {
        let id = self.id();
        let datagram = command.datagram(id);
        for _ in 0..tries {
            match self.socket.send(&datagram) {
                Ok(_) => {}
                // The answer to an earlier datagram: nothing listens there.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(source) => return Err(self.failed("sending a command", source)),
            }
            match self.answer(id)? {
                None => {}
                Some(Ok(content)) => return Ok(content),
                Some(Err(refusal)) => {
                    let camera = self.camera.clone();
                    return Err(CameraError::Refused { camera, action: action(), refusal });
                }
            }
        }
        Err(self.silent(action()))
    }

    /// Waits for the answer to a request; `None` if none comes in time.
    fn answer(
        &self,
        id: u16,
    ) -> Result<Option<Result<Content, fullbore_formats::gvcp::Refusal>>, CameraError> {
        let begun = Instant::now();
        let mut end = begun + PATIENCE;
        let mut buffer = [0; 1024];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let waits = self.socket.set_read_timeout(Some(left));
            waits.map_err(|source| self.failed("setting a timeout", source))?;
            let length = match self.socket.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => return Ok(None),
                    io::ErrorKind::Interrupted => continue,
                    io::ErrorKind::ConnectionRefused => {
                        std::thread::sleep(left.min(PATIENCE / 4));
                        return Ok(None);
                    }
                    _ => return Err(self.failed("receiving an answer", error)),
                },
            };
            match Answer::read(&buffer[..length]) {
                Ok(Answer { id: of, content: Ok(Content::Pending { milliseconds }) })
                    if of == id =>
                {
                    end = begun + extended(begun.elapsed(), milliseconds);
                }
                Ok(answer) if answer.id == id => return Ok(Some(answer.content)),
                // A late answer to an earlier command, or no answer at all.
                _ => {}
            }
        }
    }

    /// The next request id, which is not 0.
    fn id(&self) -> u16 {
        match self.next_id.fetch_add(1, Ordering::Relaxed) {
            0 => self.id(),
            id => id,
        }
    }

    fn silent(&self, action: String) -> CameraError {
        CameraError::Silent { camera: self.camera.clone(), action }
    }

    fn failed(&self, action: &'static str, source: io::Error) -> CameraError {
        CameraError::Socket { camera: self.camera.clone(), action, source }
    }
}

/// The length of a wait for an answer when the camera asks for more milliseconds after some time.
fn extended(passed: Duration, more: u16) -> Duration {
    (passed + Duration::from_millis(more.into())).min(LONGEST_PENDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A camera that gives each of these answers to one command, and its channel. An empty answer is none.
    fn channel(answers: Vec<Vec<u8>>) -> (ControlChannel, std::thread::JoinHandle<Vec<Vec<u8>>>) {
        let camera = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = camera.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let mut commands = Vec::new();
            for mut answer in answers {
                let mut buffer = [0; 100];
                let (length, from) = camera.recv_from(&mut buffer).unwrap();
                if !answer.is_empty() {
                    answer[6..8].copy_from_slice(&buffer[6..8]);
                    camera.send_to(&answer, from).unwrap();
                }
                commands.push(buffer[..length].to_vec());
            }
            commands
        });
        (ControlChannel::open("it", "127.0.0.1", port).unwrap(), thread)
    }

    #[test]
    fn a_lost_command_is_repeated() {
        let value = vec![0, 0, 0, 0x81, 0, 4, 0, 0, 0, 0, 0, 7];
        let (channel, camera) = channel(vec![vec![], value]);
        assert_eq!(channel.read(0xA00).unwrap(), 7);
        let commands = camera.join().unwrap();
        assert_eq!(commands[0], commands[1]);
    }

    #[test]
    fn a_refusal_is_an_error_at_once() {
        let (channel, camera) = channel(vec![vec![0x80, 6, 0, 0x83, 0, 0, 0, 0]]);
        let error = channel.write(0xA00, 2).unwrap_err().to_string();
        assert!(error.contains("writing 0x2 to register 0xa00: another program"), "{error}");
        camera.join().unwrap();
    }

    #[test]
    fn a_camera_that_asks_for_time_again_and_again_gets_five_seconds_in_all() {
        let ms = Duration::from_millis;
        assert_eq!(extended(ms(100), 700), ms(800));
        assert_eq!(extended(ms(100), u16::MAX), LONGEST_PENDING);
        assert_eq!(extended(ms(4900), 700), LONGEST_PENDING);
    }

    #[test]
    fn memory_is_read_in_parts() {
        let answer = |address: u32, bytes: usize| {
            let mut answer = vec![0, 0, 0, 0x85];
            answer.extend((4 + bytes as u16).to_be_bytes());
            answer.extend([0, 0]);
            answer.extend(address.to_be_bytes());
            answer.extend((0..bytes).map(|place| (address as usize + place) as u8));
            answer
        };
        let (channel, camera) = channel(vec![answer(64, 512), answer(576, 92)]);
        let memory = channel.read_memory(64, 601).unwrap();
        assert_eq!(memory, (0..601).map(|place| (64 + place) as u8).collect::<Vec<_>>());
        assert_eq!(camera.join().unwrap().len(), 2);
    }

    #[test]
    fn a_camera_that_is_not_there_is_named() {
        let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let channel = ControlChannel::open("it", "127.0.0.1", gone).unwrap();
        let error = channel.read(0).unwrap_err().to_string();
        assert_eq!(error, "the camera it does not answer: reading register 0x0");
    }
}
