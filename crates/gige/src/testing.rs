//! A camera for tests: registers that are read and written over UDP, as a camera that obeys its controller does.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};

use fullbore_formats::gvcp::register;

/// The camera. Its thread ends with the test.
pub struct TestCamera {
    port: u16,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    registers: HashMap<u32, u32>,
    refused: HashSet<u32>,
    controller: Option<SocketAddr>,
}

impl TestCamera {
    /// A camera on a port of its own.
    pub fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let registers = [(register::CAPABILITY, 4), (register::HEARTBEAT_TIMEOUT, 300)].into();
        let state = Arc::new(Mutex::new(State { registers, ..State::default() }));
        let theirs = state.clone();
        std::thread::spawn(move || {
            let mut command = [0; 100];
            while let Ok((length, from)) = socket.recv_from(&mut command) {
                if let Some(answer) = theirs.lock().unwrap().obey(&command[..length], from) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        Self { port, state }
    }

    /// The port of its control.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A register; 0 if it was never written.
    pub fn register(&self, address: u32) -> u32 {
        self.state().registers.get(&address).copied().unwrap_or_default()
    }

    /// Refuses writes to a register from now on.
    pub fn refuse(&self, address: u32) {
        self.state().refused.insert(address);
    }

    /// Forgets who controls it, and stops, as after a pause without heartbeats.
    pub fn forget_controller(&self) {
        let mut state = self.state();
        state.controller = None;
        state.registers.retain(|address, _| *address < register::CONTROL);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    /// Obeys a command. Returns the answer, if it wants one.
    fn obey(&mut self, command: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
        let half = |at: usize| u16::from_be_bytes([command[at], command[at + 1]]);
        let word = |at: usize| u32::from(half(at)) << 16 | u32::from(half(at + 2));
        let (status, body) = match half(2) {
            0x80 => (0, self.registers.get(&word(8)).unwrap_or(&0).to_be_bytes().to_vec()),
            0x82 => (self.write(word(8), word(12), from), 1u32.to_be_bytes().to_vec()),
            0x84 => (0, [&command[8..12], &[0; 512][..half(14).into()]].concat()),
            _ => return None,
        };
        let head = [status, half(2) + 1, body.len() as u16, half(6)].map(u16::to_be_bytes);
        Some([head.as_flattened(), &body].concat())
    }

    /// Writes a register. Returns the status.
    fn write(&mut self, address: u32, value: u32, from: SocketAddr) -> u16 {
        if self.refused.contains(&address) {
            return 0x8004;
        }
        if address == register::CONTROL && self.controller.is_none() {
            self.controller = Some(from);
        }
        if self.controller != Some(from) {
            return 0x8006;
        }
        if address == register::CONTROL && value == 0 {
            self.controller = None;
        }
        self.registers.insert(address, value);
        0
    }
}
