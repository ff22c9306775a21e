//! Recordings as a library. The command line is one user of it; a daemon or a Python program is another.
//!
//! ```text
//!  command line, TOML, JSON
//!        ▼
//! RecordingOptions ── resolve ──► RecordingConfig ──► Recording::start ──► a thread that owns the recorder
//!        │                                                │ stop, abort, status, subscribe, tap, join
//!        └── Session::open ──► run: a recording for each scan of a schedule, each at its time
//!
//! a stored scan ──► export::ScanExport ──► HDF5 files
//! ```
//!
//! There is no global state, no signal handler and no printing: a program can have several recordings, one after the
//! other or at the same time. Errors are typed, with advice apart from them ([`Hint`](fullbore_core::hint::Hint)). The
//! engine logs with `tracing`.
//!
//! | module or type | content |
//! |---|---|
//! | [`options`] | the options of a recording: read, laid over one another, checked |
//! | [`Recording`] | a recording on a thread of its own; [`record`] is one on the caller's |
//! | [`session`] | the scans of a schedule, recorded unattended |
//! | [`Outcome`], [`RecordingOutcome`] | whether everything that was to be recorded is there |
//! | [`RetentionThread`] | removes old scans |
//! | [`circular`] | keeps the newest data, and what triggers name of it |
//! | [`store`] | the user's default store |
//! | [`spectra`] | spectra of what arrives now |
//! | [`transfers`] | destinations and answers of transfers between sites |
//! | `export` | HDF5 files of stored scans |
//!
//! # Example
//!
//! A program that records a stream into a directory, looks at the newest block, and seals:
//!
//! ```
//! use std::net::UdpSocket;
//! use std::time::Duration;
//!
//! use fullbore_formats::vdif::Header;
//! use fullbore_recording::{Outcome, Recording, RecordingOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port(); // any free port
//! let place = tempfile::tempdir()?;
//! let source = format!("udp://127.0.0.1:{port}?format=vdif&frame=1056&fps=1000&block=64KiB");
//! let options = RecordingOptions {
//!     source: vec![source],
//!     store: vec![place.path().to_owned()],
//!     session: Some("experiment".to_owned()),
//!     scan: Some("scan1".to_owned()),
//!     buffer: Some("16MiB".parse()?),
//!     ..RecordingOptions::default()
//! };
//!
//! let recording = Recording::start(options.resolve()?)?; // armed: from now on nothing that arrives is lost
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
//! assert_eq!(Outcome::of_scan(&sealed[0]), Outcome::Good);
//! println!("{}", sealed[0].completeness.headline); // COMPLETE: all 1000 frames, 1.00 s
//! # assert_eq!(sealed[0].accounts[0].terms.written, 1000);
//! # Ok(())
//! # }
//! ```
//!
//! The same options in a file, with a schedule in place of the scan:
//!
//! ```
//! use fullbore_core::memory_budget::MeasuredDisks;
//! use fullbore_recording::{RecordingOptions, Session, SessionEvent};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # let (store, schedule) = (place.path().display(), place.path().join("day.csv"));
//! # std::fs::write(&schedule, "scan,start,duration\nno1,2026-01-01T00:00:00,1s\n")?;
//! # let schedule = schedule.display();
//! let text = format!(
//!     "[record]
//!      source = 'udp://127.0.0.1:46220?format=vdif'
//!      store = ['{store}']
//!      schedule = '{schedule}'
//!      session = 'day'"
//! );
//! let file = RecordingOptions::from_toml(&text, "record", &[])?.expect("it has the table");
//! let session = Session::open(file.options, MeasuredDisks::default())?;
//! let handle = session.handle(); // stop, abort and reload, from any thread
//! let ended = session.run(&mut |event| match event {
//!     SessionEvent::Missed { scan, .. } => println!("{scan} was over before it could begin"),
//!     SessionEvent::Waiting { .. } => handle.stop(), // only scans that begin at once
//!     _ => {}
//! })?;
//! assert!(!ended.outcome.is_good());
//! # assert_eq!(ended.account.scans.len(), 1);
//! # Ok(())
//! # }
//! ```

pub mod answers;
pub mod circular;
mod events;
#[cfg(feature = "hdf5")]
pub mod export;
mod forwarding;
mod handle;
pub mod options;
mod outcome;
mod retention;
mod run;
pub mod session;
pub mod spectra;
pub mod store;
pub mod transfers;

pub use events::Events;
pub use fullbore_engine::recorder::{Event, PandaConfig, RecordError, RecordingConfig, Sealed};
pub use fullbore_engine::sink::{SinkConfig, StoreConfig};
pub use fullbore_gige::CameraConfig;
pub use fullbore_linux::ring::{Tap, TapBlock, TapStream};
pub use handle::{Recording, RecordingState, Status};
pub use options::{OptionError, RecordingOptions};
pub use outcome::{Outcome, RecordingOutcome};
pub use retention::RetentionThread;
pub use run::record;
pub use session::{Session, SessionError, SessionEvent, SessionHandle, SessionOutcome};
