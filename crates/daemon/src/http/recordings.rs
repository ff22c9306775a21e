//! Recordings over REST.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::problem::Problem;
use super::scans::{self, MarkRequest};
use super::who::{Operator, Viewer};
use super::{Shared, Station, blocking};
use crate::recorder::Recording;
use crate::recorder::request::StartRequest;

/// How long a start waits until the recorder is armed. Memory of many gigabytes takes its time.
const UNTIL_ARMED: Duration = Duration::from_secs(30);

/// List the recordings: those that run, and the last ones that ended.
#[utoipa::path(
    get,
    operation_id = "listRecordings",
    path = "/api/v1/recordings",
    tag = "recordings",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = [Recording]),
    ),
)]
pub(super) async fn list(_: Viewer, State(station): Shared) -> Json<Vec<Recording>> {
    Json(station.recorders.all())
}

/// Start a recording. The answer comes when it is armed: all memory is mapped, and all ports listen.
#[utoipa::path(
    post,
    operation_id = "startRecording",
    path = "/api/v1/recordings",
    tag = "recordings",
    request_body = StartRequest,
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 201, body = Recording),
        (status = 400, body = Problem),
        (status = 409, body = Problem),
        (status = 422, body = Problem, description = "the recorder refused"),
    ),
)]
pub(super) async fn start(
    _: Operator,
    State(station): Shared,
    Json(request): Json<StartRequest>,
) -> Result<(StatusCode, Json<Recording>), Problem> {
    request.check_of_client().map_err(|error| Problem::bad_request(error.to_string()))?;
    let endpoints = station.settings.get().endpoints(&request);
    let endpoints = endpoints.map_err(|error| Problem::bad_request(error.to_string()))?;
    let recorders = station.recorders.clone();
    let start = move || Ok(recorders.start_with(request, &endpoints, None, UNTIL_ARMED)?);
    let begun = blocking(start).await?;
    Ok((StatusCode::CREATED, Json(begun)))
}

/// Show a recording.
#[utoipa::path(
    get,
    operation_id = "getRecording",
    path = "/api/v1/recordings/{id}",
    tag = "recordings",
    params(("id" = String, Path, format = "uuid")),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Recording),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn show(
    _: Viewer,
    State(station): Shared,
    Path(id): Path<Uuid>,
) -> Result<Json<Recording>, Problem> {
    Ok(Json(station.recorders.get(id)?))
}

/// Stop a recording: what it holds is written, and its scan is sealed.
#[utoipa::path(
    post,
    operation_id = "stopRecording",
    path = "/api/v1/recordings/{id}/stop",
    tag = "recordings",
    params(("id" = String, Path, format = "uuid")),
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 202, body = Recording),
        (status = 404, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn stop(
    _: Operator,
    State(station): Shared,
    Path(id): Path<Uuid>,
) -> Result<(StatusCode, Json<Recording>), Problem> {
    let asked = blocking(move || end(&station, id, false)).await?;
    Ok((StatusCode::ACCEPTED, Json(asked)))
}

/// Abort a recording: what it holds is counted and dropped.
#[utoipa::path(
    post,
    operation_id = "abortRecording",
    path = "/api/v1/recordings/{id}/abort",
    tag = "recordings",
    params(("id" = String, Path, format = "uuid")),
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 202, body = Recording),
        (status = 404, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn abort(
    _: Operator,
    State(station): Shared,
    Path(id): Path<Uuid>,
) -> Result<(StatusCode, Json<Recording>), Problem> {
    let asked = blocking(move || end(&station, id, true)).await?;
    Ok((StatusCode::ACCEPTED, Json(asked)))
}

/// Ends a recording. A schedule is cancelled with it, because its recorder would be started again.
fn end(station: &Station, id: Uuid, abort: bool) -> Result<Recording, Problem> {
    let recording = station.recorders.get(id)?;
    if let Some(schedule) = recording.request.schedule.filter(|_| recording.life.is_active())
        && let Err(error) = station.schedules.cancel(&schedule)
    {
        tracing::warn!(schedule, %error, "the recording is ended, and its schedule is not cancelled");
    }
    Ok(station.recorders.ask(id, abort)?)
}

/// List the inputs of the station, with their endpoints. A request names one as `input:NAME`.
#[utoipa::path(
    get,
    operation_id = "listInputs",
    path = "/api/v1/inputs",
    tag = "recordings",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Inputs),
    ),
)]
pub(super) async fn inputs(_: Viewer, State(station): Shared) -> Json<Inputs> {
    let settings = station.settings.get();
    Json(Inputs { inputs: settings.inputs.clone(), only: settings.inputs_only })
}

/// The inputs of a station.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Inputs {
    /// The endpoints of each.
    inputs: BTreeMap<String, Vec<String>>,
    /// True if a request may name inputs only.
    only: bool,
}

/// Mark the present moment of a recording.
#[utoipa::path(
    post,
    operation_id = "markRecording",
    path = "/api/v1/recordings/{id}/marks",
    tag = "recordings",
    request_body = MarkRequest,
    params(("id" = String, Path, format = "uuid")),
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 201, body = Object, description = "as `fullbore mark --json`"),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn mark(
    _: Operator,
    State(station): Shared,
    Path(id): Path<Uuid>,
    Json(request): Json<MarkRequest>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let recording = station.recorders.get(id)?;
    let scan =
        recording.life.scan.filter(|_| recording.life.phase < crate::recorder::life::Phase::Ended);
    let scan = scan.ok_or_else(|| {
        Problem::new(StatusCode::CONFLICT, "the recording has no scan now that could be marked")
    })?;
    let members = station.members.clone();
    let marked = blocking(move || scans::set_mark(&members, &scan, &request)).await?;
    Ok((StatusCode::CREATED, Json(marked)))
}
