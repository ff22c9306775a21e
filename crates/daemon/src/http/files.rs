//! The streams of sealed scans as plain files, for a browser to save.
//!
//! A thread of its own reads each file, checks its blocks, and has the disks only when nobody else wants them. A client
//! that reads slowly holds a few hundred kilobytes, and one that is gone ends its thread.

use std::io;
use std::thread;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use fullbore_linux::sys::sched;
use fullbore_transfer::files::{FilesError, ServedFile, ServedFiles};
use futures_util::stream;
use serde::Serialize;
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::problem::Problem;
use super::scans::whole;
use super::who::Viewer;
use super::{Shared, blocking};

/// Files that are read at once.
pub(super) const MOST_READ: usize = 4;

/// Bytes of a piece.
const PIECE: u64 = 256 << 10;

/// Pieces that wait for the client.
const WAITING: usize = 2;

/// A file of a scan.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct FileOfScan {
    /// Its name: that of the stream, with an ending for its format.
    name: String,
    /// Its length.
    bytes: u64,
}

/// List the streams of a sealed scan as files.
#[utoipa::path(
    get,
    operation_id = "listFiles",
    path = "/api/v1/scans/{scan}/files",
    tag = "scans",
    params(("scan" = String, Path)),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = [FileOfScan]),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "blocks are missing"),
    ),
)]
pub(super) async fn list(
    _: Viewer,
    State(station): Shared,
    Path(scan): Path<String>,
) -> Result<Json<Vec<FileOfScan>>, Problem> {
    let members = station.members.clone();
    blocking(move || {
        let (name, _) = whole(&members, &scan)?;
        let files = ServedFiles::of(members).of_scan(&name).map_err(|error| of_files(&error))?;
        let shown = |name: String| name.rsplit('/').next().map(str::to_owned).unwrap_or(name);
        let file = |it: fullbore_transfer::files::Listed| FileOfScan {
            name: shown(it.name),
            bytes: it.bytes,
        };
        Ok(Json(files.into_iter().map(file).collect()))
    })
    .await
}

/// Save a stream of a sealed scan as a file, with the bytes that `fullbore cat` writes. If a block is damaged, the answer
/// ends before it, shorter than its Content-Length.
#[utoipa::path(
    get,
    operation_id = "getFile",
    path = "/api/v1/scans/{scan}/files/{file}",
    tag = "scans",
    params(("scan" = String, Path), ("file" = String, Path)),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 404, body = Problem),
        (status = 409, body = Problem, description = "four files are read already"),
    ),
)]
pub(super) async fn get(
    Viewer(proven): Viewer,
    State(station): Shared,
    Path((scan, file)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let members = station.members.clone();
    let place = station.readers.take(&proven.identity).ok_or_else(|| {
        let why = format!("{MOST_READ} files are read already, or half of them by this client");
        Problem::new(StatusCode::CONFLICT, why).advise("wait until one is complete")
    })?;
    let opened = blocking(move || {
        let (scan, _) = whole(&members, &scan)?;
        let name = format!("{scan}/{file}");
        ServedFiles::of(members).open(&name).map_err(|error| of_files(&error))
    });
    let opened = opened.await?;
    // Names of scans and streams have no character that is special in a header.
    let disposition = format!("attachment; filename=\"{}\"", opened.name().replace('/', "_"));
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, opened.length().to_string()),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    let (pieces, taken) = mpsc::channel(WAITING);
    let read = move || {
        let _place = place;
        send(opened, &pieces);
    };
    thread::Builder::new().name("file".into()).spawn(read).map_err(|it| Problem::internal(&it))?;
    let body = stream::unfold(taken, async |mut taken| Some((taken.recv().await?, taken)));
    Ok((headers, Body::from_stream(body)).into_response())
}

/// Reads the file to its end, or until the client is gone.
fn send(mut file: ServedFile, pieces: &mpsc::Sender<Result<Bytes, io::Error>>) {
    // If that is refused, the file is read all the same.
    let _ = sched::run_last().and_then(|()| sched::use_disks_last());
    let mut at = 0;
    while at < file.length() {
        let mut piece = vec![0; PIECE.min(file.length() - at) as usize];
        let read = file.read_at(at, &mut piece).map_err(io::Error::other);
        at += piece.len() as u64;
        let is_over = read.is_err();
        if let Err(error) = &read {
            tracing::warn!("{}: not sent whole: {error}", file.name());
        }
        if pieces.blocking_send(read.map(|()| piece.into())).is_err() || is_over {
            return;
        }
    }
}

fn of_files(error: &FilesError) -> Problem {
    let status = match error {
        FilesError::NoSuchFile(_) => StatusCode::NOT_FOUND,
        FilesError::Unreadable { .. } | FilesError::Outside { .. } => StatusCode::CONFLICT,
        FilesError::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    Problem::of(status, error)
}
