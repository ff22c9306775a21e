//! The rate of connections over loopback, memory to memory, and the CPU time of each end.
//!
//! `cargo run --release -p fullbore-transfer --example channel_rate -- [CONNECTIONS [GIGABYTES]]`

use std::error::Error;
use std::net::TcpListener;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use fullbore_transfer::channel::{Channel, LinkSettings};
use fullbore_transfer::identity::Identity;
use fullbore_transfer::protocol::{Message, Role};
use rustix::time::{ClockId, clock_gettime};

const BLOCK_BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(10);

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let connections: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let gigabytes: f64 = arguments.next().map_or(Ok(4.0), |text| text.parse())?;
    let blocks = (gigabytes * 1e9 / BLOCK_BYTES as f64 / connections as f64).ceil() as usize;
    let directory = tempfile::tempdir()?;
    let identity = load(directory.path())?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    let begun = Instant::now();
    let (sent, received) = thread::scope(|scope| -> Outcome<(f64, f64)> {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..connections {
            senders.push(scope.spawn(|| send(&address, &identity, blocks)));
            let stream = listener.accept()?.0;
            receivers.push(scope.spawn(|| receive(stream, &identity, blocks)));
        }
        Ok((total(senders)?, total(receivers)?))
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let gb = (blocks * connections * BLOCK_BYTES) as f64 / 1e9;
    println!(
        "{connections} connections, {gb:.1} GB: {:.1} Gbit/s, CPU s/GB: sender {:.3}, receiver {:.3}",
        gb * 8.0 / seconds,
        sent / gb,
        received / gb
    );
    Ok(())
}

fn load(directory: &Path) -> Outcome<Identity> {
    Ok(Identity::load_or_create(&directory.join("keys"))?)
}

fn total(threads: Vec<thread::ScopedJoinHandle<'_, Outcome<f64>>>) -> Outcome<f64> {
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
}

/// The CPU time of this thread, in seconds.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn send(address: &str, identity: &Identity, blocks: usize) -> Outcome<f64> {
    let settings = LinkSettings::default();
    let mut channel = Channel::connect(address, identity, identity.fingerprint(), &settings)?;
    let (role, name) = (Role::Control, "sender".to_owned());
    channel.send(&Message::Hello { versions: (1, 1), role, secret: None, name })?;
    channel.receive(PATIENCE)?;
    let block = vec![7; BLOCK_BYTES];
    let message = Message::Probe { bytes: BLOCK_BYTES as u32 };
    let begun = cpu_seconds();
    for _ in 0..blocks {
        channel.send_data(&message, &block)?;
    }
    let used = cpu_seconds() - begun;
    channel.finish(PATIENCE);
    Ok(used)
}

fn receive(stream: std::net::TcpStream, identity: &Identity, blocks: usize) -> Outcome<f64> {
    let mut channel = Channel::accept(stream, identity, &LinkSettings::default())?;
    channel.receive(PATIENCE)?;
    channel.send(&Message::Welcome { version: 1, name: "receiver".to_owned() })?;
    let mut block = vec![0; BLOCK_BYTES];
    let begun = cpu_seconds();
    for _ in 0..blocks {
        channel.receive(PATIENCE)?.ok_or("no message")?;
        channel.receive_data(&mut block)?;
    }
    Ok(cpu_seconds() - begun)
}
