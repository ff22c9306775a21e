//! Jobs over REST.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use uuid::Uuid;

use super::Shared;
use super::problem::Problem;
use super::scans::of_jobs;
use super::who::Viewer;
use crate::auth::Role;
use crate::jobs::Job;

/// List the jobs: those that run, and the last ones that ended.
#[utoipa::path(
    get,
    operation_id = "listJobs",
    path = "/api/v1/jobs",
    tag = "jobs",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = [Job]),
    ),
)]
pub(super) async fn list(_: Viewer, State(station): Shared) -> Json<Vec<Job>> {
    Json(station.jobs.all())
}

/// Show a job, with its progress or its result.
#[utoipa::path(
    get,
    operation_id = "getJob",
    path = "/api/v1/jobs/{id}",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Job),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn show(
    _: Viewer,
    State(station): Shared,
    Path(id): Path<Uuid>,
) -> Result<Json<Job>, Problem> {
    station.jobs.get(id).map(Json).map_err(of_jobs)
}

/// Cancel a job. This needs operator, unless the client has begun it.
#[utoipa::path(
    delete,
    operation_id = "cancelJob",
    path = "/api/v1/jobs/{id}",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 202, body = Job),
        (status = 403, body = Problem, description = "another client has begun it"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn cancel(
    Viewer(proven): Viewer,
    State(station): Shared,
    Path(id): Path<Uuid>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    station.jobs.get(id).map_err(of_jobs)?;
    if !station.jobs.is_of(id, &proven.identity.name) {
        proven.needs(Role::Operator)?;
    }
    let job = station.jobs.cancel(id).map_err(of_jobs)?;
    Ok((StatusCode::ACCEPTED, Json(job)))
}
