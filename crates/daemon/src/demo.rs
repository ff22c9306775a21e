//! A demonstration: a simulated instrument, and a circular recording of it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fullbore_simulators::instrument::{Controls, FRAME_BYTES, FRAMES_PER_SECOND, Instrument};

use crate::recorder::Recorders;
use crate::recorder::life::Phase;
use crate::recorder::request::StartRequest;

/// How long the recorder may take to be armed, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// The newest data that stays: half a gigabyte.
const KEPT: &str = "1min";

/// A demonstration that runs. Its instrument and its recordings end when it is dropped.
#[derive(Debug)]
pub struct Demo {
    recorders: Recorders,
    controls: Controls,
    threads: Vec<JoinHandle<()>>,
}

impl Demo {
    /// Starts the instrument and a recording of it, on threads of their own.
    ///
    /// # Errors
    ///
    /// No port is free, or a thread cannot start.
    pub fn start(recorders: Recorders) -> io::Result<Self> {
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let controls = Controls::default();
        let (starter, of_sender) = (recorders.clone(), controls.clone());
        let record = move || {
            if let Err(error) = starter.start(request(port), PATIENCE) {
                tracing::error!(%error, "the demonstration does not record");
            }
        };
        let send = move || {
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            if let Err(error) = Instrument::new().send(to, &of_sender) {
                tracing::error!(%error, "the instrument of the demonstration does not send");
            }
        };
        let record = thread::Builder::new().name("demo".into()).spawn(record)?;
        let send = thread::Builder::new().name("instrument".into()).spawn(send)?;
        Ok(Self { recorders, controls, threads: vec![record, send] })
    }

    /// The controls of the instrument.
    pub fn controls(&self) -> Controls {
        self.controls.clone()
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.controls.end();
        for thread in self.threads.drain(..) {
            // One that failed has said why.
            let _ = thread.join();
        }
        let runs = || self.recorders.all().into_iter().filter(|it| it.life.phase < Phase::Ended);
        // Nothing of a demonstration is kept, so what is held is dropped.
        runs().for_each(|recording| _ = self.recorders.ask(recording.id, true));
        let until = Instant::now() + PATIENCE;
        while runs().next().is_some() && Instant::now() < until {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The recording of the instrument at a port of this host.
fn request(port: u16) -> StartRequest {
    let source = format!(
        "udp://127.0.0.1:{port}?format=vdif&fps={FRAMES_PER_SECOND}&frame={FRAME_BYTES}&block=256KiB"
    );
    StartRequest {
        source: vec![source],
        session: "demo".to_owned(),
        scan: "sky".to_owned(),
        circular: Some(KEPT.to_owned()),
        chunk: Some("16MB".to_owned()),
        buffer: Some("64MiB".to_owned()),
        ..StartRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recording_is_one_that_a_client_may_ask_for() {
        request(46220).check().unwrap();
        let words = request(46220).words("/m0", &[], None).join(" ");
        assert!(words.contains("--circular=1min") && words.contains("--chunk=16MB"), "{words}");
    }
}
