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
use super::who::Proven;
use crate::auth::Role;

/// The largest body, except of a schedule, in bytes.
const LARGEST_BODY: usize = 64 << 10;

/// The largest body of a request to this path. Only a client that may give schedules takes the memory for one.
fn largest(path: &str, role: Option<Role>) -> usize {
    match path.starts_with(SCHEDULES) && role >= Some(Role::Operator) {
        true => LARGEST_SCHEDULE,
        false => LARGEST_BODY,
    }
}

/// Reads the body whole.
pub(super) async fn bounded(
    State(station): State<Arc<Station>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let role = parts.extensions.get::<Proven>().map(|it| it.identity.role);
    let largest = largest(parts.uri.path(), role);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_may_give_schedules_sends_a_large_body() {
        let path = "/api/v1/schedules/vgos";
        for role in [Role::Operator, Role::Admin] {
            assert_eq!(largest(path, Some(role)), LARGEST_SCHEDULE);
            assert_eq!(largest("/api/v1/recordings", Some(role)), LARGEST_BODY);
        }
        assert_eq!(largest(path, Some(Role::Viewer)), LARGEST_BODY);
        assert_eq!(largest(path, None), LARGEST_BODY);
    }
}
