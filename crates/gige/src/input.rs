//! The packets of a camera, as a port receives them, with requests for those that do not come.
//!
//! A thread of its own talks to the camera. It starts the camera when the first scan begins, so that the scan begins with
//! a whole image. The socket holds a datagram of ours until then, so that the capture thread reads it at once.

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{self, Receiver as Orders, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fullbore_capture::DatagramInput;
use fullbore_formats::gvcp::{CONTROL_BIT, register};
use fullbore_formats::gvsp::resend::{ResendTracker, Resends};
use fullbore_linux::sys::receive::{Listen, Received, Receiver};

use crate::CameraError;
use crate::camera::Camera;
use crate::config::CameraConfig;

/// The longest time between a gap's due time and its request.
const TICK: Duration = Duration::from_millis(2);

/// Requests in a row, so that heartbeats are not late.
const MOST_REQUESTS: usize = 64;

/// Heartbeats without an answer after which the camera is said to be silent.
const SILENT_BEATS: u32 = 3;

/// An open camera with the socket for its images.
pub struct CameraInput {
    receiver: Receiver,
    shared: Arc<Shared>,
    resend: bool,
    /// Its end tells the thread to stop the camera.
    start: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    started: bool,
    told: bool,
}

/// What the capture thread and the thread of the camera share.
struct Shared {
    camera: String,
    origin: Instant,
    tracker: Mutex<ResendTracker>,
    warnings: Mutex<Vec<String>>,
}

impl Shared {
    fn tracker(&self) -> MutexGuard<'_, ResendTracker> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn warn(&self, text: String) {
        let text = format!("the camera {} {text}", self.camera);
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

impl CameraInput {
    /// Takes control of the camera, and opens the socket for its images. Returns the input and the camera's words about
    /// itself.
    pub fn open(config: &CameraConfig, buffer_bytes: usize) -> Result<(Self, String), CameraError> {
        let camera = Camera::open(config)?;
        let name = config.camera();
        let address = SocketAddrV4::new(camera.control().local_address()?, config.data_port);
        let listen =
            Listen { address: address.into(), interface: None, buffer_bytes, holds_only: false };
        let receiver = Receiver::listen(&listen, false).map_err(|source| CameraError::Listen {
            camera: name.clone(),
            source: Box::new(source),
        })?;
        let Some(SocketAddr::V4(to)) = receiver.address() else {
            return Err(CameraError::Name { camera: name });
        };
        camera.aim(to)?;
        let socket = |action| {
            let camera = name.clone();
            move |source| CameraError::Socket { camera, action, source }
        };
        let wake = UdpSocket::bind((*to.ip(), 0)).map_err(socket("making a socket"))?;
        wake.send_to(&[0], to).map_err(socket("reaching the socket for its images"))?;
        let it = camera.description();
        let about = format!("{} {} (serial number {})", it.manufacturer, it.model, it.serial);
        let resend = config.resend.unwrap_or(camera.can_resend());
        let shared = Arc::new(Shared {
            camera: name.clone(),
            origin: Instant::now(),
            tracker: Mutex::default(),
            warnings: Mutex::default(),
        });
        let (start, orders) = mpsc::channel();
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("camera".into())
            .spawn(move || {
                Control { camera, to, shared: theirs, silent: 0, lost: false }.run(&orders)
            })
            .map_err(socket("starting a thread"))?;
        let (start, thread) = (Some(start), Some(thread));
        Ok((Self { receiver, shared, resend, start, thread, started: false, told: false }, about))
    }
}

impl DatagramInput for CameraInput {
    fn receive(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        per_message: usize,
        received: &mut [Received],
    ) -> io::Result<usize> {
        let count = self.receiver.receive(slices, per_message, received)?;
        if !self.started {
            // The first scan has begun. What came before is no packet of it.
            if self.receiver.emptied() {
                self.started = true;
                let _ = self.start.as_ref().map(|start| start.send(()));
            }
            return Ok(0);
        }
        if self.resend && count > 0 {
            let now = self.shared.origin.elapsed();
            let mut tracker = self.shared.tracker();
            let messages = received.iter().take(count).zip(slices.chunks_exact(per_message));
            for (message, parts) in messages {
                let seen = message.bytes.min(parts[0].len());
                tracker.take(&parts[0][..seen], message.bytes, now);
            }
        }
        Ok(count)
    }

    fn emptied(&self) -> bool {
        self.receiver.emptied()
    }

    fn drops(&self) -> io::Result<u64> {
        self.receiver.drops()
    }

    fn buffer_bytes(&self) -> usize {
        self.receiver.buffer_bytes()
    }

    fn address(&self) -> Option<SocketAddr> {
        self.receiver.address()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.receiver.readiness()
    }

    /// Before the first scan the camera does not send, and the datagram of ours must stay.
    fn discard(&mut self) -> bool {
        !self.started
    }

    fn take_news(&mut self) -> Vec<String> {
        let mut warnings = self.shared.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *warnings)
    }

    fn take_warnings(&mut self) -> Vec<String> {
        let mut taken = self.take_news();
        if !std::mem::replace(&mut self.told, true) {
            let resends = self.shared.tracker().resends();
            taken.extend(summary(&self.shared.camera, resends));
        }
        taken
    }
}

/// What became of the packets that did not come at first.
fn summary(camera: &str, resends: Resends) -> Option<String> {
    let Resends { requests, filled, unavailable, given_up } = resends;
    if requests == 0 {
        return None;
    }
    Some(format!(
        "the camera {camera} was asked {requests} times to send packets again: {filled} came, {given_up} did not come in \
         time, among them {unavailable} that it no longer had"
    ))
}

impl Drop for CameraInput {
    fn drop(&mut self) {
        drop(self.start.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread that talks to the camera.
struct Control {
    camera: Camera,
    to: SocketAddrV4,
    shared: Arc<Shared>,
    /// Heartbeats in a row without an answer.
    silent: u32,
    /// True if control was lost, and could not be taken again.
    lost: bool,
}

impl Control {
    /// Runs until the input is dropped.
    fn run(mut self, orders: &Orders<()>) {
        let mut next_beat = Instant::now() + self.camera.beat();
        let mut started = false;
        loop {
            match orders.recv_timeout(TICK) {
                Ok(()) => {
                    started = true;
                    // It may have been left alone since it was opened, and refuses commands of those without control.
                    let begun = self.camera.start().or_else(|_| self.camera.resume(self.to));
                    if let Err(error) = begun {
                        self.shared.warn(format!("could not be started: {error}"));
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.ask_again();
            if Instant::now() >= next_beat {
                self.beat(started);
                next_beat = Instant::now() + self.camera.beat();
            }
        }
        if started {
            let _ = self.camera.stop();
        }
    }

    /// Sends the requests that are due.
    fn ask_again(&self) {
        for _ in 0..MOST_REQUESTS {
            let now = self.shared.origin.elapsed();
            let Some(request) = self.shared.tracker().request(now) else { return };
            self.camera.control().resend(request);
        }
    }

    /// Shows the camera that this program lives, and takes control again if it was lost.
    fn beat(&mut self, started: bool) {
        match self.camera.control().try_read(register::CONTROL) {
            None => {
                self.silent += 1;
                if self.silent == SILENT_BEATS {
                    self.shared.warn("did not answer to heartbeats for a while".to_owned());
                }
            }
            Some(control) => {
                self.silent = 0;
                if control & CONTROL_BIT != 0 {
                    self.lost = false;
                } else if started {
                    self.take_again();
                }
            }
        }
    }

    fn take_again(&mut self) {
        // It counts its images anew.
        self.shared.tracker().restart();
        let taken = self.camera.resume(self.to);
        if !std::mem::replace(&mut self.lost, taken.is_err()) {
            let text = match taken {
                Ok(()) => "had lost its controller, and was started again".to_owned(),
                Err(error) => format!("is no longer under control: {error}"),
            };
            self.shared.warn(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use fullbore_formats::gvsp::write::{Images, LONGEST_HEAD};

    use super::*;
    use crate::testing::TestCamera;

    const START: u32 = 0x40;
    const STOP: u32 = 0x44;

    fn open(camera: &TestCamera) -> CameraInput {
        let text = format!("gvsp://127.0.0.1:{}?start={START}:1&stop={STOP}:1", camera.port());
        CameraInput::open(&CameraConfig::parse(&text).unwrap(), 1 << 20).unwrap().0
    }

    /// Receives as a capture thread does when a scan begins.
    fn begin(input: &mut CameraInput) {
        while !input.started {
            let mut slot = [0; 2048];
            let mut slices = [IoSliceMut::new(&mut slot)];
            assert_eq!(input.receive(&mut slices, 1, &mut [Received::default()]).unwrap(), 0);
        }
    }

    fn until(what: impl FnMut() -> bool) {
        let mut what = what;
        let end = Instant::now() + Duration::from_secs(20);
        while !what() {
            assert!(Instant::now() < end, "it does not come");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_camera_sends_from_the_first_scan_on_and_is_free_in_the_end() {
        let camera = TestCamera::new();
        let mut input = open(&camera);
        assert_eq!((camera.register(register::CONTROL), camera.register(START)), (CONTROL_BIT, 0));
        begin(&mut input);
        until(|| camera.register(START) == 1);
        drop(input);
        let ends = [STOP, register::CONTROL, register::STREAM_PORT];
        assert_eq!(ends.map(|address| camera.register(address)), [1, 0, 0]);
    }

    #[test]
    fn a_camera_that_cannot_be_started_is_told_of_at_once() {
        let camera = TestCamera::new();
        camera.refuse(START);
        let mut input = open(&camera);
        begin(&mut input);
        let mut news = Vec::new();
        until(|| {
            news.extend(input.take_news());
            !news.is_empty()
        });
        assert!(news[0].contains("could not be started: the camera 127.0.0.1:"), "{news:?}");
    }

    #[test]
    fn a_camera_that_lost_its_controller_before_the_first_scan_is_started_with_it() {
        let camera = TestCamera::new();
        let mut input = open(&camera);
        camera.forget_controller();
        begin(&mut input);
        until(|| camera.register(START) == 1);
        assert_eq!(camera.register(register::CONTROL), CONTROL_BIT);
        assert_eq!(input.take_news(), Vec::<String>::new());
    }

    #[test]
    fn lost_packets_are_asked_for_after_a_camera_was_switched_off_too() {
        let camera = TestCamera::new();
        let mut input = open(&camera);
        begin(&mut input);
        until(|| camera.register(START) == 1);
        let packets = |input: &CameraInput, numbers: &[u64]| {
            let images = Images { payload_packets: 8, payload_bytes: 30, extended: true };
            for number in numbers {
                let mut bytes = vec![0; LONGEST_HEAD + 30];
                images.write(*number, &mut bytes).unwrap();
                input.shared.tracker().take(&bytes, bytes.len(), input.shared.origin.elapsed());
            }
        };
        packets(&input, &(5000..5010).collect::<Vec<_>>());
        camera.forget_controller();
        let mut news = Vec::new();
        until(|| {
            news.extend(input.take_news());
            !news.is_empty()
        });
        assert!(news[0].ends_with("had lost its controller, and was started again"), "{news:?}");
        packets(&input, &[0, 1, 4]);
        until(|| input.shared.tracker().resends().requests > 0);
    }
}
