//! The instrument of a demonstration.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use utoipa::ToSchema;

use super::Shared;
use super::problem::Problem;
use super::who::Operator;

/// The most packets that one request loses.
const MOST_PACKETS: u32 = 1000;

/// Packets that the simulated instrument is not to send.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Loss {
    /// Their number: 1 to 1000.
    packets: u32,
}

/// Let the simulated instrument of a demonstration lose its next packets.
#[utoipa::path(
    post,
    operation_id = "losePackets",
    path = "/api/v1/demo/loss",
    tag = "demo",
    request_body = Loss,
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 204, description = "they will be lost"),
        (status = 400, body = Problem),
        (status = 404, body = Problem, description = "the daemon is no demonstration"),
    ),
)]
pub(super) async fn lose(
    _: Operator,
    State(station): Shared,
    Json(Loss { packets }): Json<Loss>,
) -> Result<StatusCode, Problem> {
    let Some(controls) = &station.demo else {
        let why = "this daemon has no simulated instrument";
        return Err(Problem::not_found(why).advise("`fullbore serve --demo` starts one"));
    };
    if !(1..=MOST_PACKETS).contains(&packets) {
        return Err(Problem::bad_request(format!("packets is 1 to {MOST_PACKETS}")));
    }
    controls.lose(packets);
    Ok(StatusCode::NO_CONTENT)
}
