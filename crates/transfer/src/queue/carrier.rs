//! What a runner needs of a way to send a scan: one trait, whatever the scheme of the destination.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fullbore_core::name::ScanName;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::copies;
use fullbore_store::inventory::Inventory;

use super::job::{Job, Target};
use super::scheduler::Ended;
use crate::channel::LinkSettings;
use crate::connect::{Client, ClientSettings, Event};
use crate::error::TransferError;
use crate::governor::{Allowance, Governor, Limits};
use crate::identity::{Destination, Peers};
use crate::objects::send::Sender;
use crate::objects::{Address, Bucket, ObjectError, Trouble};
use crate::protocol::Refusal;

/// Sends scans to destinations.
pub trait Carrier: Sync {
    /// Sends the scan of a job, in one attempt that continues where the last one ended. `tell` is called a few times per
    /// second.
    fn carry(
        &self,
        job: &Job,
        governor: &Arc<Governor>,
        stop: &StopHandle,
        tell: &mut dyn FnMut(Carried),
    ) -> Result<Delivered, Failure>;

    /// Returns true if a receipt beside the scan is from this destination.
    fn has_receipt(&self, target: &Target, store: &[PathBuf], scan: &ScanName) -> bool;
}

/// The progress of an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Bytes that are durable at the destination.
    pub done_bytes: u64,
    /// Bytes of the scan so far.
    pub bytes: u64,
    /// Why nothing is sent now.
    pub holding: Option<String>,
}

/// A scan that is at its destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// Its bytes.
    pub bytes: u64,
    /// Blocks that could not be read here.
    pub missing_blocks: u64,
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What that means for the job: anything but [`Ended::Done`].
    pub how: Ended,
    /// The reason, with advice.
    pub why: String,
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        let how = match &error {
            TransferError::Stopped => Ended::Stopped,
            TransferError::AlreadySending { .. } => Ended::Later,
            // The other end is there, and can take other scans.
            TransferError::Refused {
                refusal: Refusal::Busy | Refusal::NoRoom | Refusal::Failed,
                ..
            } => Ended::Later,
            error if error.is_passing() => Ended::Away,
            _ => Ended::Failed,
        };
        Self { how, why: fullbore_core::hint::explained(&error) }
    }
}

/// Sends to other hosts that run fullbore.
#[derive(Clone, Debug)]
pub struct ToFullbore {
    /// The directory of keys and peers.
    pub config: PathBuf,
    /// The settings of connections.
    pub link: LinkSettings,
}

impl ToFullbore {
    /// See [`Carrier::carry`].
    pub fn carry(
        &self,
        job: &Job,
        governor: &Arc<Governor>,
        stop: &StopHandle,
        tell: &mut dyn FnMut(Carried),
    ) -> Result<Delivered, Failure> {
        let destination =
            destination(&job.target).map_err(|why| Failure { how: Ended::Failed, why })?;
        let settings = ClientSettings {
            members: job.store.clone(),
            config: self.config.clone(),
            connections: None,
            limits: Limits::default(),
            link: self.link.clone(),
            // The scheduler decides when to try again.
            patience: Duration::ZERO,
        };
        let client = Client::with_governor(destination, settings, governor.clone())?;
        let outcome = client.send(&job.scan, stop, &mut |event| {
            if let Event::Sending(state, _) = event {
                let (done_bytes, bytes) = (state.progress.durable_bytes, state.progress.bytes);
                let holding = match &state.allowance {
                    Allowance::Pause(reason) => Some(reason.to_string()),
                    Allowance::Go(_) => None,
                };
                tell(Carried { done_bytes, bytes, holding });
            }
        })?;
        Ok(Delivered { bytes: outcome.receipt.bytes, missing_blocks: outcome.missing_blocks })
    }

    /// See [`Carrier::has_receipt`].
    pub fn has_receipt(&self, target: &Target, store: &[PathBuf], scan: &ScanName) -> bool {
        let Ok(destination) = destination(target) else { return false };
        let key = match &destination.invitation {
            Some(invitation) => Some(invitation.key),
            None => self.key_of(&destination),
        };
        let (Some(key), Ok(inventory)) = (key, Inventory::take(store, scan)) else { return false };
        let receipts = copies::of_scan(&inventory).receipts;
        let uuid = inventory.manifest.uuid;
        receipts.iter().any(|it| it.key == key.hex() && it.scan == uuid)
    }

    fn key_of(&self, destination: &Destination) -> Option<crate::identity::Fingerprint> {
        let peers = Peers::load(&self.config).ok()?;
        peers.of(&destination.address).map(|peer| peer.fingerprint)
    }
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Self {
        let how = match &error {
            ObjectError::Stopped => Ended::Stopped,
            ObjectError::Store { trouble: Trouble::Network, .. } => Ended::Away,
            ObjectError::Store { trouble: Trouble::Other, .. } | ObjectError::Unsealed { .. } => {
                Ended::Later
            }
            _ => Ended::Failed,
        };
        Self { how, why: fullbore_core::hint::explained(&error) }
    }
}

/// Sends to object stores.
#[derive(Clone, Copy, Debug)]
pub struct ToObjects;

impl ToObjects {
    /// See [`Carrier::carry`].
    pub fn carry(
        &self,
        job: &Job,
        governor: &Arc<Governor>,
        stop: &StopHandle,
        tell: &mut dyn FnMut(Carried),
    ) -> Result<Delivered, Failure> {
        let address = job.target.url().parse::<Address>().map_err(ObjectError::from)?;
        // The scheduler decides when to try again.
        let bucket = &Bucket::open(address, Duration::ZERO)?;
        let sender = Sender { bucket, governor: governor.as_ref(), stop, read_back: false };
        let sent = sender.send(&job.store, &job.scan, &mut |progress| {
            let holding = match &progress.allowance {
                Allowance::Pause(reason) => Some(reason.to_string()),
                Allowance::Go(_) => None,
            };
            tell(Carried { done_bytes: progress.done, bytes: progress.all, holding });
        })?;
        Ok(Delivered { bytes: sent.receipt.bytes, missing_blocks: 0 })
    }

    /// See [`Carrier::has_receipt`].
    pub fn has_receipt(&self, target: &Target, store: &[PathBuf], scan: &ScanName) -> bool {
        let Ok(address) = target.url().parse::<Address>() else { return false };
        let Ok(inventory) = Inventory::take(store, scan) else { return false };
        let (place, uuid) = (address.to_string(), inventory.manifest.uuid);
        let receipts = copies::of_scan(&inventory).receipts;
        receipts.iter().any(|it| it.host == place && it.scan == uuid)
    }
}

fn destination(target: &Target) -> Result<Destination, String> {
    target.url().parse().map_err(|error: crate::identity::AddressError| error.to_string())
}
