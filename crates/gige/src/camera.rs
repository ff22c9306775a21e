//! A camera that this program controls.

use std::net::SocketAddrV4;
use std::time::Duration;

use fullbore_formats::gvcp::{self, CONTROL_BIT, Description, RESEND_BIT, register};

use crate::archive::{self, Place};
use crate::config::CameraConfig;
use crate::control::ControlChannel;
use crate::genicam::{Features, Write};
use crate::{CameraError, DescriptionError};

/// Bytes of a description, and of the address of the XML file.
const DESCRIPTION_BYTES: u32 = 0xF8;
const XML_ADDRESS_BYTES: u32 = 512;

/// The shortest and the longest time between two heartbeats.
const BEATS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(1);

/// The size of packets in its register.
const SIZE_BITS: u32 = 0xFFFF;

/// A camera under control. It is free again when this is dropped.
#[derive(Debug)]
pub struct Camera {
    control: ControlChannel,
    description: Description,
    start: Write,
    stop: Write,
    /// What tells the camera that its stream is in use, if it has that.
    lock: Option<Write>,
    packet_bytes: Option<u16>,
    can_resend: bool,
    beat: Duration,
}

impl Camera {
    /// Takes control of a camera, and finds its commands. It does not send yet.
    pub fn open(config: &CameraConfig) -> Result<Self, CameraError> {
        let control = ControlChannel::open(&config.camera(), &config.host, config.port)?;
        let silent = |action: &str| CameraError::Silent {
            camera: config.camera(),
            action: action.to_owned(),
        };
        let bytes = control.read_memory(register::DESCRIPTION, DESCRIPTION_BYTES)?;
        let description = Description::read(&bytes).ok_or_else(|| silent("its description"))?;
        let can_resend = control.read(register::CAPABILITY)? & RESEND_BIT != 0;
        let timeout = Duration::from_millis(control.read(register::HEARTBEAT_TIMEOUT)?.into());
        let (start, stop, lock) = commands(config, &control)?;
        control.write(register::CONTROL, CONTROL_BIT)?;
        let camera = Self {
            control,
            description,
            start,
            stop,
            lock,
            packet_bytes: config.packet_bytes,
            can_resend,
            beat: (timeout / 3).clamp(*BEATS.start(), *BEATS.end()),
        };
        if !camera.has_control()? {
            return Err(silent("it does not give control"));
        }
        Ok(camera)
    }

    /// The camera by its own words.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The control channel.
    pub fn control(&self) -> &ControlChannel {
        &self.control
    }

    /// The time between two heartbeats.
    pub fn beat(&self) -> Duration {
        self.beat
    }

    /// True if it says that it sends packets again.
    pub fn can_resend(&self) -> bool {
        self.can_resend
    }

    /// True if this program has control.
    fn has_control(&self) -> Result<bool, CameraError> {
        Ok(self.control.read(register::CONTROL)? & CONTROL_BIT != 0)
    }

    /// Sets where the images go, and the size of the packets.
    pub fn aim(&self, to: SocketAddrV4) -> Result<(), CameraError> {
        if let Some(wanted) = self.packet_bytes.map(u32::from) {
            self.control.write(register::PACKET_SIZE, gvcp::DO_NOT_FRAGMENT | wanted)?;
            let is = self.control.read(register::PACKET_SIZE)? & SIZE_BITS;
            if is != wanted {
                let camera = self.control.camera().to_owned();
                return Err(CameraError::PacketSize { camera, wanted, is });
            }
        }
        self.control.write(register::STREAM_ADDRESS, u32::from(*to.ip()))?;
        self.control.write(register::STREAM_PORT, to.port().into())
    }

    /// Starts the images.
    pub fn start(&self) -> Result<(), CameraError> {
        if let Some(Write { address, value }) = self.lock {
            self.control.write(address, value)?;
        }
        self.control.write(self.start.address, self.start.value)
    }

    /// Takes control again, which the camera has given up, and starts the images.
    pub fn resume(&self, to: SocketAddrV4) -> Result<(), CameraError> {
        self.control.write(register::CONTROL, CONTROL_BIT)?;
        self.aim(to)?;
        self.start()
    }

    /// Stops the images.
    pub fn stop(&self) -> Result<(), CameraError> {
        self.control.write(self.stop.address, self.stop.value)?;
        if let Some(Write { address, .. }) = self.lock {
            self.control.write(address, 0)?;
        }
        self.control.write(register::STREAM_PORT, 0)
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        // The camera is free after its heartbeat timeout in any case.
        let _ = self.control.write(register::CONTROL, 0);
    }
}

/// The writes that start and stop a camera, and the one that locks its settings meanwhile.
fn commands(
    config: &CameraConfig,
    control: &ControlChannel,
) -> Result<(Write, Write, Option<Write>), CameraError> {
    if let (Some(start), Some(stop)) = (config.start, config.stop) {
        return Ok((start, stop, None));
    }
    let failed = |source: DescriptionError| CameraError::Description {
        camera: config.camera(),
        source: Box::new(source),
    };
    let features = features(control, &failed)?;
    let command = |name| features.command(name).map_err(|error| failed(error.into()));
    let lock = features.integer("TLParamsLocked", 1);
    Ok((command("AcquisitionStart")?, command("AcquisitionStop")?, lock))
}

/// Reads the camera's description of its registers.
fn features(
    control: &ControlChannel,
    failed: &dyn Fn(DescriptionError) -> CameraError,
) -> Result<Features, CameraError> {
    let place = |address| {
        let text = gvcp::text(&control.read_memory(address, XML_ADDRESS_BYTES)?);
        Place::parse(&text).map_err(|error| failed(error.into()))
    };
    let place = match place(register::XML_ADDRESS) {
        Err(first @ CameraError::Description { .. }) => {
            place(register::SECOND_XML_ADDRESS).map_err(|_| first)?
        }
        other => other?,
    };
    let packed = control.read_memory(place.address, place.bytes)?;
    let text = archive::unpack(packed).map_err(|error| failed(error.into()))?;
    Features::read(&text).map_err(|error| failed(error.into()))
}
