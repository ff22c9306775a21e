//! The spectrum of a stored scan at any time in it.
//!
//! It is computed by a thread of its own, which has the processor and the disks only when nobody else wants them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::sched;
use fullbore_recording::spectra::Request;
use fullbore_recording::spectra::request::{usual_channels, usual_rows, usual_window};
use fullbore_recording::spectra::stored::{self, StoredError};
use fullbore_store::reader::Scan;
use serde::Deserialize;
use tokio::sync::oneshot;
use utoipa::IntoParams;

use super::Shared;
use super::problem::Problem;
use super::scans;
use super::who::Viewer;

/// A moment of a stored stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct At {
    /// The stream.
    stream: String,
    /// Seconds after the start of the stream.
    #[serde(default)]
    after: f64,
    /// Seconds of the part that makes the spectrum: more than 0, and at most 1.
    #[serde(default = "usual_length")]
    length: f64,
    /// Spectral channels: a multiple of 8, from 8 to 8192.
    #[serde(default = "usual_channels")]
    channels: usize,
    /// The thread. Default: that of the first frame.
    thread: Option<u16>,
    /// The channel of the thread, from 0.
    #[serde(default)]
    channel: usize,
    /// rectangular, hann, hamming or blackman.
    #[serde(default = "usual_window")]
    window: String,
}

fn usual_length() -> f64 {
    0.02
}

/// Show the spectrum of a stream of a sealed scan at a moment: the messages of its live spectrum, one after the other.
#[utoipa::path(
    get,
    operation_id = "getSpectrum",
    path = "/api/v1/scans/{scan}/spectrum",
    tag = "scans",
    params(("scan" = String, Path), At),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 422, body = Problem, description = "there is no spectrum at this moment"),
        (status = 503, body = Problem),
    ),
)]
pub(super) async fn spectrum(
    Viewer(proven): Viewer,
    State(station): Shared,
    Path(scan): Path<String>,
    Query(at): Query<At>,
) -> Result<Response, Problem> {
    let seconds = |name, value: f64| {
        let wrong = move |_| Problem::bad_request(format!("{name} is a number of seconds"));
        Duration::try_from_secs_f64(value).map_err(wrong)
    };
    let (after, length) = (seconds("after", at.after)?, seconds("length", at.length)?);
    let At { stream, channels, thread, channel, window, .. } = at;
    let request = Request { stream, channels, rows: usual_rows(), thread, channel, window };
    request.check().map_err(|error| Problem::bad_request(error.to_string()))?;
    let place = station.lookers.take(&proven.identity).ok_or_else(|| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many clients see spectra")
    })?;
    let members = station.members.clone();
    let work = move |stop: &StopHandle| {
        let _place = place;
        let (name, _) = scans::whole(&members, &scan)?;
        let scan = Scan::open(&members, &name)
            .map_err(|error| Problem::of(StatusCode::NOT_FOUND, &error))?;
        stored::messages(&scan, &request, after, length, stop).map_err(|error| of_stored(&error))
    };
    let messages = computed(work).await?;
    let body: Vec<u8> = messages.iter().filter_map(|it| it.encode()).flatten().collect();
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response())
}

/// Stops what a client waits for when the client is gone.
struct StopWhenGone(Arc<StopHandle>);

impl Drop for StopWhenGone {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Computes something on a thread of its own, until it is done or its client is gone.
async fn computed<T: Send + 'static>(
    work: impl FnOnce(&StopHandle) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let client = StopWhenGone(Arc::default());
    let (stop, (tell, told)) = (client.0.clone(), oneshot::channel());
    let compute = move || {
        let polite = sched::run_last().and_then(|()| sched::use_disks_last());
        let done = polite.map_err(|error| Problem::internal(&error)).and_then(|()| work(&stop));
        // The client may be gone.
        let _ = tell.send(done);
    };
    let started = thread::Builder::new().name("spectrum".into()).spawn(compute);
    started.map_err(|error| Problem::internal(&error))?;
    told.await.map_err(|error| Problem::internal(&error))?
}

fn of_stored(error: &StoredError) -> Problem {
    let status = match error {
        StoredError::Request(_) | StoredError::Length => StatusCode::BAD_REQUEST,
        StoredError::Unknown { .. } => StatusCode::NOT_FOUND,
        _ => StatusCode::UNPROCESSABLE_ENTITY,
    };
    Problem::of(status, error)
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[test]
    fn work_is_stopped_when_its_client_is_gone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let patience = Duration::from_secs(20);
        runtime.block_on(async {
            assert_eq!(computed(|_| Ok(7)).await.ok(), Some(7));
            let work = move |stop: &StopHandle| {
                tell.send(stop.wait(patience)).unwrap();
                Ok(())
            };
            timeout(Duration::from_millis(10), computed(work)).await.unwrap_err();
        });
        assert_eq!(told.recv_timeout(2 * patience), Ok(true));
    }
}
