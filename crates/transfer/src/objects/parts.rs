//! An object that is put in parts.

use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartUpload, PutPayload, Result};

/// An object that is put in parts. It appears when it is complete.
pub(super) enum Parts {
    /// Another process can continue it.
    Named {
        /// The store.
        store: Arc<dyn MultipartStore>,
        /// The object.
        path: Path,
        /// The identifier of the upload.
        id: String,
    },
    /// It ends with this process: a file of a directory.
    Unnamed(Box<dyn MultipartUpload>),
}

impl Parts {
    /// The identifier of the upload, if it can be continued.
    pub(super) fn id(&self) -> Option<&str> {
        match self {
            Self::Named { id, .. } => Some(id),
            Self::Unnamed(_) => None,
        }
    }

    /// Puts a part. Returns the name that the store gives it. Parts of an upload without identifier come in the order of
    /// their numbers.
    pub(super) fn put(
        &mut self,
        number: usize,
        data: PutPayload,
    ) -> BoxFuture<'static, Result<String>> {
        match self {
            Self::Named { store, path, id } => {
                let (store, path, id) = (store.clone(), path.clone(), id.clone());
                async move { Ok(store.put_part(&path, &id, number, data).await?.content_id) }.boxed()
            }
            Self::Unnamed(upload) => upload.put_part(data).map_ok(|()| String::new()).boxed(),
        }
    }

    /// Joins the parts, whose names are given in their order.
    pub(super) async fn complete(&mut self, names: Vec<String>) -> Result<()> {
        match self {
            Self::Named { store, path, id } => {
                let all = names.into_iter().map(|content_id| PartId { content_id }).collect();
                store.complete_multipart(path, id, all).await.map(drop)
            }
            Self::Unnamed(upload) => upload.complete().await.map(drop),
        }
    }

    /// Lets the store remove the parts.
    pub(super) async fn abort(&mut self) -> Result<()> {
        match self {
            Self::Named { store, path, id } => store.abort_multipart(path, id).await,
            Self::Unnamed(upload) => upload.abort().await,
        }
    }
}
