//! The destinations of transfers, by the scheme of their addresses.

use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::hint::with_causes;
use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_transfer::governor::Governor;
use fullbore_transfer::identity::Destination;
use fullbore_transfer::objects::Address;
use fullbore_transfer::queue::carrier::{
    Carried, Carrier, Delivered, Failure, ToFullbore, ToObjects,
};
use fullbore_transfer::queue::job::{Job, Target};
use fullbore_transfer::queue::scheduler::Ended;

/// A kind of destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Another host that runs fullbore.
    Fullbore,
    /// An object store.
    Objects,
}

impl Scheme {
    /// The kind of a destination. A scheme that `send` takes and the queue too has its line here.
    pub fn of(url: &str) -> Result<Self, String> {
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("fullbore") => Ok(Self::Fullbore),
            Some(_) if Address::is_meant(url) => Ok(Self::Objects),
            _ => Err(format!(
                "{url:?} is no destination of transfers: write fullbore://HOST, or s3://BUCKET/PREFIX"
            )),
        }
    }
}

/// Parses a destination. A secret in it is kept apart.
pub fn target(text: &str) -> Result<Target, String> {
    match Scheme::of(text)? {
        Scheme::Fullbore => {
            text.parse().map(|site| of_site(&site)).map_err(|error| with_causes(&error))
        }
        Scheme::Objects => {
            text.parse().map(|it| of_objects(&it)).map_err(|error| with_causes(&error))
        }
    }
}

/// Another host that runs fullbore, as a destination.
pub fn of_site(site: &Destination) -> Target {
    let secret = site.invitation.as_ref().map(ToString::to_string);
    Target { to: site.to_string(), secret }
}

/// A place in an object store, as a destination.
pub fn of_objects(address: &Address) -> Target {
    Target { to: address.to_string(), secret: None }
}

/// Sends to every kind of destination.
#[derive(Clone, Debug)]
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
        match Scheme::of(job.target.url()) {
            Ok(Scheme::Fullbore) => self.fullbore.carry(job, governor, stop, tell),
            Ok(Scheme::Objects) => ToObjects.carry(job, governor, stop, tell),
            Err(why) => Err(Failure { how: Ended::Failed, why }),
        }
    }

    fn has_receipt(&self, target: &Target, store: &[PathBuf], scan: &ScanName) -> bool {
        match Scheme::of(target.url()) {
            Ok(Scheme::Fullbore) => self.fullbore.has_receipt(target, store, scan),
            Ok(Scheme::Objects) => ToObjects.has_receipt(target, store, scan),
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_known_by_its_scheme() {
        let to = |text| target(text).map(|it| (it.to, it.secret));
        assert_eq!(to("fullbore://Far").unwrap(), ("fullbore://far:4780".to_owned(), None));
        assert_eq!(to("s3://bucket/prefix").unwrap(), ("s3://bucket/prefix".to_owned(), None));
        for wrong in ["far", "ftp://far", "etransfer://far/data/", "fullbore://", "fullbore://a b"]
        {
            to(wrong).unwrap_err();
        }
    }

    #[test]
    fn the_secret_of_an_invitation_is_kept_apart() {
        let fingerprint = fullbore_transfer::identity::Fingerprint([7; 32]);
        let invitation = fullbore_transfer::identity::Invitation {
            address: "far:4780".into(),
            key: fingerprint,
            secret: [9; 16],
        };
        let made = target(&invitation.to_string()).unwrap();
        assert_eq!(made.to, "fullbore://far:4780");
        assert_eq!(made.secret, Some(invitation.to_string()));
        assert!(!format!("{made:?}").contains(&invitation.to_string()));
    }
}
