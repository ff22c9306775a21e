//! The body of a request: bounded in size and in time, before any handler has it.

use std::error::Error;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use tokio::time::timeout;

use super::Station;
use super::problem::Problem;
use super::schedules::{LARGEST_SCHEDULE, PATH as SCHEDULES};

/// The largest body, except of a schedule, in bytes.
const LARGEST_BODY: usize = 64 << 10;

/// Reads the body whole.
pub(super) async fn bounded(
    State(station): State<Arc<Station>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let largest = match parts.uri.path().starts_with(SCHEDULES) {
        true => LARGEST_SCHEDULE,
        false => LARGEST_BODY,
    };
    let patience = station.settings.get().patience.body;
    match timeout(patience, to_bytes(body, largest)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(parts, Body::from(bytes))).await,
        Ok(Err(error)) if error.source().is_some_and(|it| it.is::<LengthLimitError>()) => {
            let why = format!("the body is larger than {largest} bytes");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why).into_response()
        }
        Ok(Err(_)) => Problem::bad_request("the body ended early").into_response(),
        Err(_) => {
            let why = format!("the body did not come within {} s", patience.as_secs_f64());
            Problem::new(StatusCode::REQUEST_TIMEOUT, why).into_response()
        }
    }
}
