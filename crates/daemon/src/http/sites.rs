//! Known sites and invitations over REST.

use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use fullbore_recording::transfers::answers::{InvitationAnswer, PeerAnswer, Sites};
use fullbore_transfer::identity::{IdentityError, Permissions};
use serde::Deserialize;
use utoipa::ToSchema;

use super::problem::Problem;
use super::who::{Admin, Viewer};
use super::{Shared, blocking};

/// How long an invitation can be valid.
const LONGEST_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

/// How long an invitation is valid if nothing else is said.
const LIFETIME: Duration = fullbore_transfer::identity::DEFAULT_LIFETIME;

/// An invitation that is to be made.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "correlator"}))]
pub(super) struct InvitationRequest {
    /// The address by which the other site reaches this one: HOST[:PORT]. Without it: `address` of `[receive]`.
    address: Option<String>,
    /// The name that the other site gets here. Without it: the name of its host.
    name: Option<String>,
    /// True if it may send scans to here. Without it: unless `fetch` is true.
    send: Option<bool>,
    /// True if it may fetch scans from here.
    #[serde(default)]
    fetch: bool,
    /// The time for which the invitation is valid, at most 30 days: `"24h"`, which is the default.
    lifetime: Option<String>,
}

/// List the known sites and the open invitations.
#[utoipa::path(
    get,
    operation_id = "listSites",
    path = "/api/v1/transfers/sites",
    tag = "transfers",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Object, description = "as `fullbore peers --json`"),
        (status = 503, body = Problem),
    ),
)]
pub(super) async fn list(_: Viewer, State(station): Shared) -> Result<Json<Sites>, Problem> {
    let transfers = station.transfers()?.clone();
    blocking(move || transfers.sites().map_err(of_identity)).await.map(Json)
}

/// Forget a site, by its name or its key. Its next connection is refused.
#[utoipa::path(
    delete,
    operation_id = "forgetSite",
    path = "/api/v1/transfers/sites/{name}",
    tag = "transfers",
    params(("name" = String, Path)),
    security(("token" = ["admin"]), ("cookie" = ["admin"])),
    responses(
        (status = 200, body = Object, description = "the site, as in `fullbore peers --json`"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn forget(
    _: Admin,
    State(station): Shared,
    Path(name): Path<String>,
) -> Result<Json<PeerAnswer>, Problem> {
    let transfers = station.transfers()?.clone();
    blocking(move || transfers.forget(&name).map_err(of_identity)).await.map(Json)
}

/// Make an invitation, which one site can use once. The answer has its secret.
#[utoipa::path(
    post,
    operation_id = "inviteSite",
    path = "/api/v1/transfers/invitations",
    tag = "transfers",
    request_body = InvitationRequest,
    security(("token" = ["admin"]), ("cookie" = ["admin"])),
    responses(
        (status = 201, body = Object, description = "as `fullbore peers invite --json`"),
        (status = 400, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn invite(
    _: Admin,
    State(station): Shared,
    Json(request): Json<InvitationRequest>,
) -> Result<(StatusCode, Json<InvitationAnswer>), Problem> {
    let InvitationRequest { address, name, send, fetch, lifetime } = request;
    let transfers = station.transfers()?.clone();
    let address = address.or_else(|| transfers.address().map(str::to_owned));
    let address = address.ok_or_else(|| {
        Problem::bad_request(
            "address: the address by which other sites reach this one is not known",
        )
        .advise("give `address`, or write it into [receive] of the file")
    })?;
    let lifetime = lifetime.as_deref().map_or(Ok(LIFETIME), of_text)?;
    let may = Permissions { send: send.unwrap_or(!fetch), fetch };
    if !may.send && !may.fetch {
        let why = "send, fetch: both are false, and the other site may do nothing then";
        return Err(Problem::bad_request(why));
    }
    let made = blocking(move || {
        transfers.invite(&address, may, lifetime, name.as_deref()).map_err(of_identity)
    });
    Ok((StatusCode::CREATED, Json(made.await?)))
}

fn of_text(text: &str) -> Result<Duration, Problem> {
    let parsed = humantime::parse_duration(text).ok();
    parsed.filter(|it| (Duration::from_secs(1)..=LONGEST_LIFETIME).contains(it)).ok_or_else(|| {
        Problem::bad_request("lifetime: it is a time from 1s to 30days, such as \"24h\"")
    })
}

/// Withdraw an open invitation.
#[utoipa::path(
    delete,
    operation_id = "withdrawInvitation",
    path = "/api/v1/transfers/invitations/{id}",
    tag = "transfers",
    params(("id" = String, Path)),
    security(("token" = ["admin"]), ("cookie" = ["admin"])),
    responses(
        (status = 204),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn withdraw(
    _: Admin,
    State(station): Shared,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let transfers = station.transfers()?.clone();
    let withdrawn = blocking(move || transfers.withdraw(&id).map_err(of_identity));
    match withdrawn.await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("there is no such open invitation")),
    }
}

/// An error of keys, sites and invitations.
fn of_identity(error: IdentityError) -> Problem {
    let status = match &error {
        IdentityError::NoSuchPeer { .. } => StatusCode::NOT_FOUND,
        IdentityError::Address(_) | IdentityError::BadName { .. } | IdentityError::NoName => {
            StatusCode::BAD_REQUEST
        }
        IdentityError::NameTaken { .. }
        | IdentityError::NameInvited { .. }
        | IdentityError::Full { .. } => StatusCode::CONFLICT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Problem::of(status, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_is_valid_for_at_most_a_month() {
        assert_eq!(of_text("2h").unwrap().as_secs(), 7200);
        for wrong in ["", "2", "0s", "31days", "-1h"] {
            assert_eq!(of_text(wrong).unwrap_err().status, 400, "{wrong}");
        }
    }
}
