//! A connection that is counted: its place is free when its socket is closed, also after it became a WebSocket.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::table::Table;

/// The connections of all listeners.
pub(super) type Connections = Arc<Mutex<Table<Arc<Notify>>>>;

/// The place of a connection.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) connections: Connections,
    pub(super) id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).closed(self.id);
    }
}

/// A stream with its place.
pub(super) struct Counted<S> {
    pub(super) stream: S,
    pub(super) _place: Place,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// A request is being answered, until this is dropped.
pub(super) struct Serving {
    connections: Connections,
    id: u64,
    /// The connection became another protocol: it serves until it is closed.
    for_good: bool,
}

impl Serving {
    pub(super) fn new(connections: &Connections, id: u64) -> Self {
        connections.lock().unwrap_or_else(PoisonError::into_inner).serves(id);
        Self { connections: connections.clone(), id, for_good: false }
    }

    pub(super) fn for_good(mut self) {
        self.for_good = true;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if !self.for_good {
            self.connections.lock().unwrap_or_else(PoisonError::into_inner).waits(self.id);
        }
    }
}

/// The body of an answer; the connection serves until it is sent.
pub(super) struct Answer {
    pub(super) body: Body,
    pub(super) _serving: Serving,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
