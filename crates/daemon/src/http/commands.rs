//! Commands of clients, and what processes print, over REST.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::audit::CommandRun;
use super::problem::Problem;
use super::scans::{listed, of_jobs, whole_among};
use super::who::{Proven, Viewer};
use super::{Shared, Station, blocking};
use crate::jobs::Job;
use crate::jobs::command::{CommandError, CommandRequest};
use crate::output_log::Taken;

/// Time between two looks at what a process has printed.
const LOOK: Duration = Duration::from_millis(20);

/// Time between two looks at whether the client is still known.
const KNOWN_FOR: Duration = Duration::from_millis(500);

/// Run a verb of `fullbore` at the station. The answer is a job, whose output can be followed. The roles: `ls`, `info` and
/// `watch` need viewer, `rm`, `protect` and `rebuild` admin, the others operator.
#[utoipa::path(
    post,
    operation_id = "runCommand",
    path = "/api/v1/commands",
    tag = "jobs",
    request_body = CommandRequest,
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 202, body = Job),
        (status = 400, body = Problem),
        (status = 403, body = Problem, description = "the verb needs another role"),
        (status = 404, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn run(
    Viewer(proven): Viewer,
    State(station): Shared,
    Json(request): Json<CommandRequest>,
) -> Result<(StatusCode, Extension<CommandRun>, Json<Job>), Problem> {
    proven.needs(request.verb().map_err(refused)?.role)?;
    let exports = station.settings.get().exports.clone();
    let command = request.command(&station.program.store, exports.as_deref()).map_err(refused)?;
    if !command.whole.is_empty() {
        let (members, names) = (station.members.clone(), command.whole.clone());
        blocking(move || {
            let listed = listed(&members)?;
            names.iter().try_for_each(|name| whole_among(&listed, name).map(drop))
        })
        .await?;
    }
    // Without the store, which is always that of the station.
    let words = command.words.iter().filter(|it| *it != "--" && !it.starts_with("--store="));
    let run = CommandRun(words.cloned().collect::<Vec<_>>().join(" "));
    let client = proven.identity.name.clone();
    let job = station.jobs.run(client, station.program.clone(), request, command);
    let job = job.map_err(of_jobs)?;
    Ok((StatusCode::ACCEPTED, Extension(run), Json(job)))
}

fn refused(error: CommandError) -> Problem {
    let status = match error {
        CommandError::NoExports { .. } => StatusCode::CONFLICT,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::of(status, &error)
}

/// Follow the output of a job that is a command, from its beginning: a line of JSON for each part of standard output
/// (`out`) and each line of standard error (`err`), `progress` with what is done and all there is, and at the end `exit`.
#[utoipa::path(
    get,
    operation_id = "followJob",
    path = "/api/v1/jobs/{id}/output",
    tag = "jobs",
    params(("id" = String, Path, format = "uuid")),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = String, content_type = "application/x-ndjson"),
        (status = 404, body = Problem),
        (status = 503, body = Problem),
    ),
)]
pub(super) async fn job(
    Viewer(proven): Viewer,
    State(station): Shared,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    let mut following = station.jobs.follow(id).map_err(of_jobs)?;
    followed(station, proven, move || following.take())
}

/// Follow the output of a recorder: a line of JSON for each event, with the text that `fullbore record` shows. Old events
/// are left out if there are many.
#[utoipa::path(
    get,
    operation_id = "followRecording",
    path = "/api/v1/recordings/{id}/output",
    tag = "recordings",
    params(("id" = String, Path, format = "uuid")),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = String, content_type = "application/x-ndjson"),
        (status = 404, body = Problem),
        (status = 503, body = Problem),
    ),
)]
pub(super) async fn recording(
    Viewer(proven): Viewer,
    State(station): Shared,
    Path(id): Path<Uuid>,
) -> Result<Response, Problem> {
    let mut follower = station.recorders.follow_output(id)?;
    followed(station, proven, move || follower.take())
}

/// The entries of a log until it is over, or the client is gone or not known any more.
fn followed(
    station: Arc<Station>,
    proven: Proven,
    take: impl FnMut() -> Taken + Send + 'static,
) -> Result<Response, Problem> {
    let place = station.followers.take(&proven.identity).ok_or_else(|| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many clients follow the station")
    })?;
    let state = (take, place, station, proven, Instant::now());
    let lines = stream::unfold(state, |(mut take, place, station, proven, mut known)| async move {
        loop {
            if known.elapsed() >= KNOWN_FOR {
                known = station.still_knows(&proven).then(Instant::now)?;
            }
            match take() {
                Taken::Lines(text) => {
                    let state = (take, place, station, proven, known);
                    return Some((Ok::<_, Infallible>(Bytes::from(text)), state));
                }
                Taken::NotYet => sleep(LOOK).await,
                Taken::Over => return None,
            }
        }
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((kind, Body::from_stream(lines)).into_response())
}
