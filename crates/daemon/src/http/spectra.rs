//! Live spectra over a WebSocket: what the socket of a recorder says, passed on to a browser or a program.
//!
//! ```text
//! Tap ──► SpectraServer ── Unix socket ──► here ── WebSocket ──► browser
//! └────── recorder, SCHED_IDLE ─────┘
//! ```
//!
//! Nothing is held here but one message. A client that takes none for some seconds is given up, and so is its connection
//! to the recorder. While the client is slow, the recorder makes fewer rows.

use std::io::{ErrorKind, Write};
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message as Frame, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use fullbore_recording::spectra::message::{Decoder, Message};
use fullbore_recording::spectra::request::{usual_channels, usual_rows, usual_window};
use fullbore_recording::spectra::{Request, place};
use serde::Deserialize;
use tokio::net::UnixStream;
use tokio::time::timeout;
use utoipa::IntoParams;
use uuid::Uuid;

use super::problem::Problem;
use super::who::Viewer;
use super::{Shared, blocking};

/// Browsers and programs that may see spectra at once, of all recordings together.
pub(super) const MOST_LOOKERS: usize = 16;

/// How long a client may take for a message.
const PATIENCE: Duration = Duration::from_secs(5);

/// The largest message of a client, in bytes. None means anything.
const LARGEST_FRAME: usize = 1024;

/// What is asked for.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Look {
    /// The stream.
    stream: String,
    /// Spectral channels: a multiple of 8, from 8 to 8192.
    #[serde(default = "usual_channels")]
    channels: usize,
    /// The most rows in a second: 1 to 25.
    #[serde(default = "usual_rows")]
    rows: u32,
    /// The thread. Default: that of the first frame.
    thread: Option<u16>,
    /// The channel of the thread, from 0.
    #[serde(default)]
    channel: usize,
    /// rectangular, hann, hamming or blackman.
    #[serde(default = "usual_window")]
    window: String,
}

/// Follow the spectrum of a stream: a WebSocket with a binary message for each row. Only while a client follows is anything
/// computed.
#[utoipa::path(
    get,
    operation_id = "followSpectra",
    path = "/api/v1/recordings/{id}/spectra",
    tag = "recordings",
    params(("id" = String, Path, format = "uuid"), Look),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 101, description = "the connection is a WebSocket from now on"),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 409, body = Problem),
        (status = 503, body = Problem),
    ),
)]
pub(super) async fn follow(
    Viewer(proven): Viewer,
    State(station): Shared,
    Path(id): Path<Uuid>,
    Query(look): Query<Look>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    // The guard refuses an origin that is not ours. A browser always says its own, so a cookie without one is no browser's.
    if proven.cookie.is_some() && !headers.contains_key(header::ORIGIN) {
        let why = "a WebSocket of a browser's session needs the Origin header";
        return Err(Problem::new(StatusCode::FORBIDDEN, why));
    }
    let Look { stream, channels, rows, thread, channel, window } = look;
    let request = Request { stream, channels, rows, thread, channel, window };
    request.check().map_err(|error| Problem::bad_request(error.to_string()))?;
    let path = station.recorders.spectra(id)?;
    let upgrade = upgrade.map_err(|error| {
        Problem::bad_request(error.to_string()).advise("spectra are read over a WebSocket")
    })?;
    let place = station.lookers.take(&proven.identity).ok_or_else(|| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many clients see spectra")
    })?;
    let connect = move || -> std::io::Result<_> {
        let mut socket = place::connect(&path)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        socket.write_all(&line)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    };
    let socket = blocking(move || connect().map_err(unreachable)).await?;
    let recorder = UnixStream::from_std(socket).map_err(|error| Problem::internal(&error))?;
    let upgrade = upgrade.max_message_size(LARGEST_FRAME).max_frame_size(LARGEST_FRAME);
    Ok(upgrade.on_upgrade(async move |client| {
        let _place = place;
        pass(client, recorder, &|| station.still_knows(&proven)).await;
    }))
}

/// The recorder has no socket, because an older version started it, or it is about to end.
fn unreachable(error: std::io::Error) -> Problem {
    let why = format!("the recorder shows no spectra: {error}");
    Problem::new(StatusCode::CONFLICT, why)
}

/// Passes messages on until one side is gone, or the client is not known any more.
async fn pass(mut client: WebSocket, recorder: UnixStream, is_known: &(impl Fn() -> bool + Sync)) {
    let (mut decoder, mut buffer) = (Decoder::default(), vec![0; 16 << 10]);
    loop {
        tokio::select! {
            came = client.recv() => match came {
                Some(Ok(Frame::Close(_)) | Err(_)) | None => return,
                Some(Ok(_)) => {}
            },
            ready = recorder.readable() => {
                let read = ready.and_then(|()| recorder.try_read(&mut buffer));
                match read {
                    Ok(0) => break,
                    Ok(bytes) => decoder.feed(&buffer[..bytes]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(_) => break,
                }
                if !is_known() {
                    break;
                }
                if !forward(&mut client, &mut decoder).await {
                    return;
                }
            }
        }
    }
    // The client learns that there is no more, if it still reads.
    let _ = timeout(PATIENCE, client.send(Frame::Close(None))).await;
}

/// Sends the messages that are whole. False if the client takes none.
async fn forward(client: &mut WebSocket, decoder: &mut Decoder) -> bool {
    loop {
        let frame = match decoder.next_message() {
            Ok(Some(Message::Text(text))) => Frame::Text(text.into()),
            Ok(Some(Message::Row(row))) => Frame::Binary(row.into()),
            Ok(None) => return true,
            Err(error) => {
                tracing::warn!(%error, "what a recorder sends are no spectra");
                return false;
            }
        };
        if !matches!(timeout(PATIENCE, client.send(frame)).await, Ok(Ok(()))) {
            return false;
        }
    }
}
