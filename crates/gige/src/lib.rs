//! GigE Vision cameras: their control, and their images as datagrams.
//!
//! ```text
//! camera ──GVSP: leader, payload, trailer──► CameraInput ──► port, as from a socket
//!        ◄─GVCP: control, heartbeat, start ─┐    │ packets that came
//!        ◄─GVCP: send packets again ────────┴─ control thread ◄─ ResendTracker
//! ```
//!
//! - [`CameraConfig`]: the endpoint, `gvsp://192.0.2.7`
//! - [`Camera`]: a camera that this program controls, by its registers
//! - [`CameraInput`]: its packets, with requests for those that do not come
//!
//! A camera is found by its address, and its commands by its own description of its registers ([`genicam`]). It sends
//! from the begin of the first scan on, until the recording ends.
//!
//! It may open UDP sockets. It knows no block, no store and no file.

pub mod archive;
mod camera;
mod config;
mod control;
pub mod genicam;
mod input;
#[cfg(test)]
mod testing;

use std::borrow::Cow;
use std::io;

use fullbore_core::hint::Hint;
use fullbore_formats::gvcp::Refusal;

pub use camera::Camera;
pub use config::CameraConfig;
pub use control::ControlChannel;
pub use input::CameraInput;

/// A failed request to a camera.
#[derive(Debug, thiserror::Error)]
pub enum CameraError {
    /// The name of the camera has no IPv4 address, which GigE Vision needs.
    #[error("{camera} has no IPv4 address")]
    Name {
        /// The camera, as given.
        camera: String,
    },
    /// A socket failed.
    #[error("{action} for the camera {camera}: {source}")]
    Socket {
        /// The camera, as given.
        camera: String,
        /// The failed step.
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The socket for the images cannot be opened.
    #[error("the images of the camera {camera}: {source}")]
    Listen {
        /// The camera, as given.
        camera: String,
        /// The cause.
        source: Box<fullbore_linux::sys::receive::Error>,
    },
    /// The camera does not answer.
    #[error("the camera {camera} does not answer: {action}")]
    Silent {
        /// The camera, as given.
        camera: String,
        /// The command without an answer.
        action: String,
    },
    /// The camera refuses a command.
    #[error("the camera {camera} refuses: {action}: {refusal}")]
    Refused {
        /// The camera, as given.
        camera: String,
        /// The command.
        action: String,
        /// The reason of the camera.
        refusal: Refusal,
    },
    /// The camera did not take the size of packets.
    #[error("the camera {camera} sends packets of {is} bytes instead of {wanted}")]
    PacketSize {
        /// The camera, as given.
        camera: String,
        /// The size that was asked for.
        wanted: u32,
        /// The size by its register.
        is: u32,
    },
    /// The commands that start and stop the camera were not found.
    #[error("the camera {camera}: {source}")]
    Description {
        /// The camera, as given.
        camera: String,
        /// The cause.
        source: Box<DescriptionError>,
    },
}

/// The reason why a camera's description does not tell a register.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The file cannot be read from its memory.
    #[error(transparent)]
    Archive(#[from] archive::ArchiveError),
    /// The file does not tell the register.
    #[error(transparent)]
    Genicam(#[from] genicam::GenicamError),
}

/// The status of a refusal because another program has control.
const DENIED: Refusal = Refusal(0x8006);

impl Hint for CameraError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Name { .. } => "give its address: gvsp://192.0.2.7",
            Self::Silent { .. } => {
                "check that it has power and is on this network, and that no other program controls it"
            }
            Self::Refused { refusal, .. } if *refusal == DENIED => {
                "end the program that controls the camera, or wait until its heartbeat ends"
            }
            Self::PacketSize { .. } => {
                "take a size that the camera knows: it is often a multiple of 4"
            }
            Self::Description { .. } => {
                "give the registers that start and stop it, from its manual: start=0x40024:1&stop=0x40024:0"
            }
            Self::Socket { .. } | Self::Listen { .. } | Self::Refused { .. } => return None,
        }))
    }
}
