//! The destinations of transfers, by the scheme of their addresses.

use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_transfer::governor::Governor;
use fullbore_transfer::objects::Address;
use fullbore_transfer::queue::carrier::{
    Carried, Carrier, Delivered, Failure, ToFullbore, ToObjects,
};
use fullbore_transfer::queue::job::{Job, Target};
use fullbore_transfer::queue::scheduler::Ended;

use super::objects;

/// A kind of destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Fullbore,
    Objects,
}

/// The kind of a destination. A scheme that `send` takes and the queue too has its line here.
fn scheme(url: &str) -> Result<Scheme, String> {
    match url.split_once("://").map(|(scheme, _)| scheme) {
        Some("fullbore") => Ok(Scheme::Fullbore),
        Some(_) if Address::is_meant(url) => Ok(Scheme::Objects),
        _ => Err(format!(
            "{url:?} is no destination of transfers: write fullbore://HOST, or s3://BUCKET/PREFIX"
        )),
    }
}

/// Parses a destination. A secret in it is kept apart.
pub fn target(text: &str) -> Result<Target, String> {
    scheme(text)?;
    text.parse().map(|destination| of_destination(&destination))
}

/// A destination of `send`, for the queue.
/// A destination that the queue does not take is one as text: `scheme` refuses it.
pub fn of_destination(destination: &objects::Target) -> Target {
    match destination {
        objects::Target::Etransfer(place) => Target { to: place.to_string(), secret: None },
        objects::Target::Objects(address) => Target { to: address.to_string(), secret: None },
        objects::Target::Site(site) => {
            let secret = site.invitation.as_ref().map(ToString::to_string);
            Target { to: site.to_string(), secret }
        }
    }
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
            Ok(Scheme::Objects) => ToObjects.carry(job, governor, stop, tell),
            Err(why) => Err(Failure { how: Ended::Failed, why }),
        }
    }

    fn has_receipt(&self, target: &Target, store: &[PathBuf], scan: &ScanName) -> bool {
        match scheme(target.url()) {
            Ok(Scheme::Fullbore) => self.fullbore.has_receipt(target, store, scan),
            Ok(Scheme::Objects) => ToObjects.has_receipt(target, store, scan),
            Err(_) => false,
        }
    }
}
