//! Sends a chunk file in parts, several at a time, and continues an upload that was interrupted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fullbore_linux::stop_handle::StopHandle;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use object_store::PutPayload;
use tokio::sync::mpsc;

use super::bucket::{AT_ONCE, Bucket};
use super::error::{ObjectError, Trouble};
use super::parts::Parts;
use super::reading::{ChunkFile, wait};
use super::upload_log::{Interrupted, Target, UploadLog};
use crate::governor::{self, Governor};

/// Parts that are read ahead of the requests.
const AHEAD: usize = 2;

/// Time between two reports of the progress.
const TELL: Duration = Duration::from_millis(200);

/// Sends a chunk file in parts.
pub(super) struct Upload<'a> {
    /// The store.
    pub bucket: &'a Bucket,
    /// What may be read, and when.
    pub governor: &'a Governor,
    /// The end.
    pub stop: &'a StopHandle,
    /// What the store has confirmed.
    pub log: &'a mut UploadLog,
    /// The name of the object.
    pub object: &'a str,
    /// The object.
    pub target: Target,
    /// The file.
    pub file: ChunkFile<'a>,
}

impl Upload<'_> {
    /// Sends the file. Returns the bytes that were sent by this attempt. `told` is called with the bytes that are there.
    pub(super) fn send(mut self, told: &mut dyn FnMut(u64)) -> Result<u64, ObjectError> {
        let sent = AtomicU64::new(0);
        if let Some(interrupted) = self.log.interrupted(&self.target) {
            let parts = interrupted.parts.len();
            tracing::info!(object = self.object, parts, "an interrupted upload is continued");
            match self.attempt(Some(interrupted), &sent, told) {
                Err(error) if is_about_the_upload(&error) => {
                    tracing::warn!(object = self.object, %error, "the upload is begun anew");
                }
                result => return result.map(|()| sent.into_inner()),
            }
        }
        self.attempt(None, &sent, told)?;
        Ok(sent.into_inner())
    }

    fn attempt(
        &mut self,
        interrupted: Option<Interrupted>,
        sent: &AtomicU64,
        told: &mut dyn FnMut(u64),
    ) -> Result<(), ObjectError> {
        let (id, mut names) = match interrupted {
            Some(Interrupted { upload, parts }) => (Some(upload), parts),
            None => (None, BTreeMap::new()),
        };
        let continues = id.is_some();
        let mut parts = self.bucket.parts_of(self.object, id)?;
        if let (false, Some(id)) = (continues, parts.id()) {
            self.log.begin(&self.target, id);
        }
        let put = self.put_all(&mut parts, &mut names, sent, told).and_then(|()| {
            let done = self.bucket.block_on(parts.complete(names.into_values().collect()));
            done.map_err(|error| self.bucket.error(self.object, &error))
        });
        let kept = self.log.is_kept() && parts.id().is_some();
        let useless = matches!(put, Err(ObjectError::Local { .. }))
            || put.as_ref().is_err_and(|error| continues && is_about_the_upload(error));
        if put.is_err() && (useless || !kept) {
            // The store keeps the parts otherwise. If this fails too, the first error is the one to report.
            let _ = self.bucket.block_on(parts.abort());
        }
        if put.is_ok() || useless {
            self.log.clear();
        }
        put
    }

    /// Puts all parts that have no name yet.
    fn put_all(
        &mut self,
        parts: &mut Parts,
        names: &mut BTreeMap<usize, String>,
        sent: &AtomicU64,
        told: &mut dyn FnMut(u64),
    ) -> Result<(), ObjectError> {
        let (to, mut from) = mpsc::channel(AHEAD);
        let (file, governor, stop) = (&self.file, self.governor, self.stop);
        let known = names.clone();
        let there: u64 = known.keys().map(|&it| file.part(it).end - file.part(it).start).sum();
        let before = sent.load(Ordering::Relaxed);
        let mut tell = || told(there + sent.load(Ordering::Relaxed) - before);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                if governor.is_recording() {
                    governor::beside();
                }
                file.read(
                    |number| !known.contains_key(&number),
                    |bytes| wait(governor, stop, bytes),
                    // The other end goes away when a request has failed.
                    |number, part| to.blocking_send((number, part)).is_ok(),
                )
            });
            let log = &mut *self.log;
            let (bucket, object) = (self.bucket, self.object);
            let put = bucket.block_on(async {
                let put = put_parts(parts, &mut from, stop, &mut tell, &mut |number, bytes, name| {
                    sent.fetch_add(bytes, Ordering::Relaxed);
                    log.confirm(number, &name);
                    names.insert(number, name);
                })
                .await;
                from.close();
                while from.recv().await.is_some() {}
                put
            });
            // A panic of the thread is a fault of the program.
            let read = reader.join().expect("reading a file does not panic");
            read?;
            put.map_err(|failure| match failure {
                Failure::Stopped => ObjectError::Stopped,
                Failure::Store(error) => bucket.error(object, &error),
            })
        })
    }
}

/// Why parts were not put.
enum Failure {
    Stopped,
    Store(object_store::Error),
}

/// Puts the parts that come, several at a time. `confirmed` is called with the number, size and name of each.
async fn put_parts(
    parts: &mut Parts,
    from: &mut mpsc::Receiver<(usize, Vec<u8>)>,
    stop: &StopHandle,
    tell: &mut dyn FnMut(),
    confirmed: &mut dyn FnMut(usize, u64, String),
) -> Result<(), Failure> {
    let mut running = FuturesUnordered::new();
    let mut ticks = tokio::time::interval(TELL);
    let mut over = false;
    while !over || !running.is_empty() {
        tokio::select! {
            part = from.recv(), if !over && running.len() < AT_ONCE => match part {
                Some((number, part)) => {
                    let bytes = part.len() as u64;
                    let put = parts.put(number, PutPayload::from(part));
                    running.push(async move { put.await.map(|name| (number, bytes, name)) });
                }
                None => over = true,
            },
            Some(done) = running.next() => {
                let (number, bytes, name) = done.map_err(Failure::Store)?;
                confirmed(number, bytes, name);
            }
            _ = ticks.tick() => {
                tell();
                if stop.is_requested() {
                    return Err(Failure::Stopped);
                }
            }
        }
    }
    Ok(())
}

/// True if a new upload may succeed where this one failed.
fn is_about_the_upload(error: &ObjectError) -> bool {
    matches!(error, ObjectError::Store { trouble: Trouble::Other | Trouble::Checksum, .. })
}
