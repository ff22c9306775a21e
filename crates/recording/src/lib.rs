//! Recordings as a library. The command line is one user of it; a daemon or a Python program is another.
//!
//! ```text
//! RecordingConfig ──► Recording::start ──► a thread that owns the recorder
//!                          │ stop, abort, status, subscribe, tap, join
//!                     RecordingHandle (any thread)
//! ```
//!
//! There is no global state, no signal handler and no printing: a program can have several recordings, one after the
//! other or at the same time. The engine logs with `tracing`.
//!
//! # Example
//!
//! A program that records a stream into a directory, looks at the newest block, and seals:
//!
//! ```
//! use std::net::UdpSocket;
//! use std::time::Duration;
//!
//! use fullbore_core::endpoint::UdpSource;
//! use fullbore_core::format::vdif::Header;
//! use fullbore_recording::{Recording, RecordingConfig, SinkConfig, StoreConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port(); // any free port
//! let place = tempfile::tempdir()?;
//! let source = format!("udp://127.0.0.1:{port}?format=vdif&frame=1056&fps=1000&block=64KiB");
//! let store = StoreConfig::new(vec![place.path().to_owned()]);
//! let scan = "experiment_scan1".parse()?;
//! let mut config =
//!     RecordingConfig::new(UdpSource::parse(&source)?, SinkConfig::Store(store), vec![scan]);
//! config.buffer = Some("16MiB".parse()?);
//!
//! let recording = Recording::start(config)?; // armed: from now on nothing that arrives is lost
//! let mut tap = recording.tap();
//! let sender = UdpSocket::bind("127.0.0.1:0")?;
//! for number in 0..1000 {
//!     let mut frame = vec![0; 1056];
//!     let header = Header::default().with_reference_epoch(53).with_frame_bytes(1056);
//!     header.with_frame_number(number).write(&mut frame)?;
//!     sender.send_to(&frame, ("127.0.0.1", port))?;
//!     if number % 50 == 0 {
//!         std::thread::sleep(Duration::from_millis(2)); // no faster than a small machine can go
//!     }
//! }
//! let block = tap.next(Duration::from_secs(10)).expect("a block was written");
//! assert_eq!(Header::read(&block.bytes)?.frame_bytes(), 1056);
//!
//! recording.stop();
//! let sealed = recording.join()?;
//! assert_eq!(sealed[0].accounts[0].terms.written, 1000);
//! println!("{}", sealed[0].completeness.headline); // COMPLETE: all 1000 frames, 1.00 s
//! # Ok(())
//! # }
//! ```

mod events;
mod handle;
pub mod options;
mod outcome;
mod retention;
mod run;
pub mod session;
pub mod store;

pub use events::Events;
pub use fullbore_engine::recorder::{Event, PandaConfig, RecordError, RecordingConfig, Sealed};
pub use fullbore_engine::ring::{Tap, TapBlock, TapStream};
pub use fullbore_engine::sink::{SinkConfig, StoreConfig};
pub use handle::{Recording, RecordingState, Status};
pub use options::{OptionError, RecordingOptions};
pub use outcome::{Outcome, RecordingOutcome};
pub use retention::RetentionThread;
pub use run::record;
pub use session::{Session, SessionError, SessionEvent, SessionHandle, SessionOutcome};
