//! The destinations of transfers, by the scheme of their addresses.

use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::hint;
use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_transfer::governor::Governor;
use fullbore_transfer::identity::Destination;
use fullbore_transfer::queue::carrier::{Carried, Carrier, Delivered, Failure, ToFullbore};
use fullbore_transfer::queue::job::{Job, Target};
use fullbore_transfer::queue::scheduler::Ended;

/// A kind of destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Fullbore,
}

/// The kind of a destination. A scheme that `send` takes and the queue too has its line here.
fn scheme(url: &str) -> Result<Scheme, String> {
    match url.split_once("://").map(|(scheme, _)| scheme) {
        Some("fullbore") => Ok(Scheme::Fullbore),
        _ => Err(format!("{url:?} is no destination of transfers: write fullbore://HOST")),
    }
}

/// Parses a destination. A secret in it is kept apart.
pub fn target(text: &str) -> Result<Target, String> {
    match scheme(text)? {
        Scheme::Fullbore => text
            .parse::<Destination>()
            .map(|destination| of_destination(&destination))
            .map_err(|error| hint::explained(&error)),
    }
}

/// A host that runs fullbore, for the queue.
pub fn of_destination(destination: &Destination) -> Target {
    let secret = destination.invitation.as_ref().map(ToString::to_string);
    Target { to: destination.to_string(), secret }
}

/// Sends to every kind of destination.
pub struct ByScheme {
    /// Other hosts that run fullbore.
    pub fullbore: ToFullbore,
}

impl Carrier for ByScheme {
    fn carry(
        &self,
        job: &Job,
        governor: &Arc<Governor>,
        stop: &StopHandle,
        tell: &mut dyn FnMut(Carried),
    ) -> Result<Delivered, Failure> {
        match scheme(job.target.url()) {
            Ok(Scheme::Fullbore) => self.fullbore.carry(job, governor, stop, tell),
            Err(why) => Err(Failure { how: Ended::Failed, why }),
        }
    }

    fn has_receipt(&self, target: &Target, store: &[PathBuf], scan: &ScanName) -> bool {
        match scheme(target.url()) {
            Ok(Scheme::Fullbore) => self.fullbore.has_receipt(target, store, scan),
            Err(_) => false,
        }
    }
}
