//! Sends a chunk file as an object: whole if it is small, and else in parts, which a later process continues.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fullbore_core::index::Block;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as ObjectPath;
use object_store::{MultipartUpload, PutPayload};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::bucket::AT_ONCE;
use super::error::{ObjectError, Trouble};
use super::kept::{Confirmed, Kept, Named};
use super::reading::{part_bytes, read_parts};
use super::send::Sender;

/// Parts that are read ahead of the requests.
const AHEAD: usize = 2;

/// Time between two reports of the progress.
const TELL: Duration = Duration::from_millis(200);

/// The largest object that is put whole, because the store takes no parts: all of it is in memory.
const LARGEST_WHOLE: u64 = 1 << 30;

/// A chunk file that becomes an object.
pub(super) struct Chunk<'a> {
    /// The identity of its scan.
    pub scan: Uuid,
    /// The name of the object.
    pub object: &'a str,
    /// The file.
    pub path: &'a Path,
    /// Its blocks, in their order.
    pub blocks: &'a [Block],
    /// Its size.
    pub bytes: u64,
    /// CRC32C of all of it.
    pub crc32c: u32,
}

/// An upload in parts, at the store.
pub(super) enum Upload {
    /// The store has given it a name, by which any process can continue it.
    Named { store: Arc<dyn MultipartStore>, path: ObjectPath, id: String },
    /// It ends with this process.
    OfProcess(Box<dyn MultipartUpload>),
}

impl Upload {
    /// Puts a part. The result is what the store asks for at the end: the ETag and checksum of the part.
    fn put(
        &mut self,
        part: usize,
        data: PutPayload,
    ) -> BoxFuture<'static, object_store::Result<String>> {
        match self {
            Self::Named { store, path, id } => {
                let (store, path, id) = (store.clone(), path.clone(), id.clone());
                async move { Ok(store.put_part(&path, &id, part, data).await?.content_id) }.boxed()
            }
            Self::OfProcess(upload) => {
                upload.put_part(data).map(|it| it.map(|()| String::new())).boxed()
            }
        }
    }

    /// Makes the object of its parts.
    async fn complete(&mut self, parts: Confirmed) -> object_store::Result<()> {
        match self {
            Self::Named { store, path, id } => {
                let parts = parts.into_values().map(|content_id| PartId { content_id }).collect();
                store.complete_multipart(path, id, parts).await.map(drop)
            }
            Self::OfProcess(upload) => upload.complete().await.map(drop),
        }
    }

    /// Lets the store remove its parts.
    async fn abort(&mut self) -> object_store::Result<()> {
        match self {
            Self::Named { store, path, id } => store.abort_multipart(path, id).await,
            Self::OfProcess(upload) => upload.abort().await,
        }
    }
}

/// An upload while its parts are sent.
struct Parts<'a> {
    upload: Upload,
    confirmed: Confirmed,
    kept: &'a mut Kept,
}

impl Sender<'_> {
    /// Sends a chunk file. Returns the bytes that were sent.
    pub(super) fn chunk(
        &self,
        chunk: &Chunk<'_>,
        told: &mut dyn FnMut(u64),
    ) -> Result<u64, ObjectError> {
        let whole = chunk.bytes <= part_bytes(chunk.bytes) as u64;
        if !whole && self.bucket.takes_parts() {
            return self.in_parts(chunk, told);
        }
        if chunk.bytes > LARGEST_WHOLE {
            let why = format!(
                "the store takes no parts, and {} bytes do not fit into memory; record with smaller --chunk",
                chunk.bytes
            );
            let address = self.bucket.address_of(chunk.object);
            return Err(ObjectError::Invalid { address, why });
        }
        let mut pieces = Vec::new();
        self.read(chunk, &|_| false, |_, part| {
            pieces.push(part);
            told(0);
            true
        })?;
        self.bucket.put(chunk.object, pieces.into_iter().map(Bytes::from).collect())?;
        Ok(chunk.bytes)
    }

    fn read(
        &self,
        chunk: &Chunk<'_>,
        known: &dyn Fn(usize) -> bool,
        take: impl FnMut(usize, Vec<u8>) -> bool,
    ) -> Result<(), ObjectError> {
        let Chunk { path, bytes, blocks, .. } = chunk;
        read_parts(path, *bytes, blocks, self.governor, self.stop, known, take)
    }

    /// Sends a chunk file in parts: those that the store does not have from an earlier process.
    fn in_parts(&self, chunk: &Chunk<'_>, told: &mut dyn FnMut(u64)) -> Result<u64, ObjectError> {
        let address = self.bucket.address_of(chunk.object);
        let size = part_bytes(chunk.bytes) as u64;
        let mut named = Named::new(chunk.scan, address, chunk.bytes, chunk.crc32c, size);
        let (mut kept, before) = Kept::open(chunk.path, &named);
        if let Some((before, confirmed)) = before
            && let Some(upload) = self.bucket.continue_parts(chunk.object, &before.upload, false)
        {
            let mut parts = Parts { upload, confirmed, kept: &mut kept };
            let mut put = self.put_all(chunk, &mut parts, told);
            if let Err(ObjectError::Store { trouble: Trouble::Network, .. }) = &put
                && let Some(patient) =
                    self.bucket.continue_parts(chunk.object, &before.upload, true)
            {
                parts.upload = patient;
                put = self.put_all(chunk, &mut parts, told);
            }
            match put {
                Err(error) if is_refusal(&error) => {
                    tracing::info!(%error, "the store does not continue an upload: it begins anew");
                }
                result => return self.settle(result, &mut parts),
            }
            // If this fails too, the store has forgotten the upload.
            let _ = self.bucket.block_on(parts.upload.abort());
        }
        let upload = self.bucket.begin_parts(chunk.object)?;
        if let Upload::Named { id, .. } = &upload {
            named.upload.clone_from(id);
            kept.begin(&named);
        }
        let mut parts = Parts { upload, confirmed: Confirmed::new(), kept: &mut kept };
        let result = self.put_all(chunk, &mut parts, told);
        self.settle(result, &mut parts)
    }

    /// Keeps an upload that a later process can continue, and lets the store forget any other.
    fn settle(
        &self,
        result: Result<u64, ObjectError>,
        parts: &mut Parts<'_>,
    ) -> Result<u64, ObjectError> {
        match &result {
            Ok(_) => parts.kept.remove(),
            Err(error)
                if matches!(parts.upload, Upload::Named { .. })
                    && parts.kept.is_kept()
                    && continues(error) => {}
            Err(_) => {
                parts.kept.remove();
                // The store keeps the parts otherwise. If this fails too, the first error is the one to report.
                let _ = self.bucket.block_on(parts.upload.abort());
            }
        }
        result
    }

    /// Sends the parts that are not confirmed, and completes the object. Returns the bytes sent.
    fn put_all(
        &self,
        chunk: &Chunk<'_>,
        parts: &mut Parts<'_>,
        told: &mut dyn FnMut(u64),
    ) -> Result<u64, ObjectError> {
        let size = part_bytes(chunk.bytes) as u64;
        let bytes_of = |part: usize| size.min(chunk.bytes.saturating_sub(part as u64 * size));
        let before: u64 = parts.confirmed.keys().map(|&part| bytes_of(part)).sum();
        let known = parts.confirmed.clone();
        let (to, mut from) = mpsc::channel(AHEAD);
        let sent = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                // The other end goes away when a request has failed.
                let take = |part, data: Vec<u8>| to.blocking_send((part, data)).is_ok();
                let read = self.read(chunk, &|part| known.contains_key(&part), take);
                drop(to);
                read
            });
            let mut tell = || told(before + sent.load(Ordering::Relaxed));
            let put = self.bucket.block_on(async {
                let put = self.put_parts(chunk.object, parts, &mut from, &sent, &mut tell).await;
                from.close();
                while from.recv().await.is_some() {}
                put
            });
            // A panic of the thread is a fault of the program.
            reader.join().expect("reading a file does not panic").and(put)
        })?;
        let confirmed = std::mem::take(&mut parts.confirmed);
        let done = self.bucket.block_on(parts.upload.complete(confirmed));
        done.map_err(|error| self.bucket.error(chunk.object, &error))?;
        Ok(sent.into_inner())
    }

    /// Puts parts, several at a time, and keeps which of them the store has confirmed.
    async fn put_parts(
        &self,
        object: &str,
        parts: &mut Parts<'_>,
        from: &mut mpsc::Receiver<(usize, Vec<u8>)>,
        sent: &AtomicU64,
        tell: &mut dyn FnMut(),
    ) -> Result<(), ObjectError> {
        let mut running = FuturesUnordered::new();
        let mut ticks = tokio::time::interval(TELL);
        let mut over = false;
        while !over || !running.is_empty() {
            tokio::select! {
                part = from.recv(), if !over && running.len() < AT_ONCE => match part {
                    Some((part, data)) => {
                        let bytes = data.len() as u64;
                        let put = parts.upload.put(part, PutPayload::from(data));
                        running.push(async move { (part, bytes, put.await) });
                    }
                    None => over = true,
                },
                Some((part, bytes, put)) = running.next() => {
                    let id = put.map_err(|error| self.bucket.error(object, &error))?;
                    parts.kept.add(part, &id);
                    parts.confirmed.insert(part, id);
                    sent.fetch_add(bytes, Ordering::Relaxed);
                }
                _ = ticks.tick() => {
                    tell();
                    if self.stop.is_requested() {
                        return Err(ObjectError::Stopped);
                    }
                }
            }
        }
        Ok(())
    }
}

/// True if the parts that the store has are still good after this error.
fn continues(error: &ObjectError) -> bool {
    match error {
        ObjectError::Stopped => true,
        ObjectError::Store { trouble, .. } => {
            !matches!(trouble, Trouble::Other | Trouble::Checksum)
        }
        _ => false,
    }
}

/// True if the store does not take more parts of an upload, or does not make an object of them. Some stores deny access to
/// an upload that they do not have.
fn is_refusal(error: &ObjectError) -> bool {
    matches!(error, ObjectError::Store { trouble, .. } if *trouble != Trouble::Network)
}
