//! Logins of browsers.

use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime};

use axum::extract::State;
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderName, StatusCode};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::guard::{cookie_name, too_many};
use super::problem::Problem;
use super::who::{Admin, Viewer};
use super::{Shared, Station, blocking};
use crate::auth::sessions::{LASTS, LINK_LASTS, csrf_of};
use crate::auth::{Hash, Role};
use crate::net::peer::Peer;
use crate::net::table::Origin;

/// Who the client is.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SessionTold {
    /// The name of its token, or `console`.
    name: String,
    /// Its role.
    role: Role,
    /// The value of the header X-Fullbore-CSRF that writes of a browser need. Null for a program.
    csrf: Option<String>,
}

/// A login: the code of a login link, or a token.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) enum Login {
    /// The code of a login link. It works once.
    Code(String),
    /// A token of the daemon's file.
    Token(String),
}

/// A login link.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Link {
    /// The address, which logs a browser in once, with the role admin.
    url: String,
    /// Seconds until it does not work any more.
    lasts_seconds: u64,
}

/// Say who the client is.
#[utoipa::path(
    get,
    operation_id = "getSession",
    path = "/api/v1/session",
    tag = "session",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = SessionTold),
        (status = 401, body = Problem),
    ),
)]
pub(super) async fn show(Viewer(proven): Viewer) -> Json<SessionTold> {
    let csrf = proven.cookie.as_deref().map(csrf_of);
    let (name, role) = (proven.identity.name.to_string(), proven.identity.role);
    Json(SessionTold { name, role, csrf })
}

/// Log a browser in: the answer sets its cookie.
#[utoipa::path(
    post,
    operation_id = "openSession",
    path = "/api/v1/session",
    tag = "session",
    request_body = Login,
    security(),
    responses(
        (status = 201, body = SessionTold),
        (status = 401, body = Problem),
        (status = 429, body = Problem),
    ),
)]
pub(super) async fn open(
    State(station): Shared,
    Extension(peer): Extension<Peer>,
    Json(login): Json<Login>,
) -> Result<(StatusCode, [(HeaderName, String); 1], Json<SessionTold>), Problem> {
    let (port, origin) = (peer.port(), peer.origin());
    let opened = blocking(move || try_login(&station, origin, &login)).await?;
    let (cookie, told) = opened;
    let lasts = LASTS.as_secs();
    let set = format!(
        "{}={cookie}; Path=/; HttpOnly; SameSite=Strict; Max-Age={lasts}{}",
        cookie_name(port),
        secure(&peer)
    );
    Ok((StatusCode::CREATED, [(SET_COOKIE, set)], Json(told)))
}

/// A cookie of an encrypted connection is never sent over another one.
fn secure(peer: &Peer) -> &'static str {
    if peer.is_tls() { "; Secure" } else { "" }
}

fn try_login(
    station: &Arc<Station>,
    origin: Origin,
    login: &Login,
) -> Result<(String, SessionTold), Problem> {
    let attempts = || station.attempts.lock().unwrap_or_else(PoisonError::into_inner);
    let begun = Instant::now();
    attempts().of(origin, begun).check(begun).map_err(too_many)?;
    let now = SystemTime::now();
    let (identity, token) = match login {
        Login::Code(code) => (station.sessions.use_link(code, now), None),
        Login::Token(token) => (station.settings.get().tokens.find(token), Some(Hash::of(token))),
    };
    let Some(identity) = identity else {
        attempts().of(origin, begun).fail(begun);
        let (what, advice) = match login {
            Login::Code(_) => (
                "the login link was used already, or is too old",
                "log in with a token, or start the daemon again for a new link: recordings go on",
            ),
            Login::Token(_) => {
                ("the token is not known", "the file of `fullbore serve --tokens` lists the tokens")
            }
        };
        return Err(Problem::new(StatusCode::UNAUTHORIZED, what).advise(advice));
    };
    let opened = station.sessions.open_session(identity, token, now);
    let opened = opened.map_err(|error| Problem::internal(&error))?;
    let csrf = Some(csrf_of(&opened.cookie));
    let (name, role) = (opened.identity.name.to_string(), opened.identity.role);
    Ok((opened.cookie, SessionTold { name, role, csrf }))
}

/// Log out.
#[utoipa::path(
    delete,
    operation_id = "closeSession",
    path = "/api/v1/session",
    tag = "session",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 204),
        (status = 401, body = Problem),
    ),
)]
pub(super) async fn close(
    State(station): Shared,
    Extension(peer): Extension<Peer>,
    Viewer(proven): Viewer,
) -> Result<(StatusCode, [(HeaderName, String); 1]), Problem> {
    let unset = format!(
        "{}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{}",
        cookie_name(peer.port()),
        secure(&peer)
    );
    if let Some(cookie) = proven.cookie {
        blocking(move || {
            station.sessions.close(&cookie).map_err(|error| Problem::internal(&error))
        })
        .await?;
    }
    Ok((StatusCode::NO_CONTENT, [(SET_COOKIE, unset)]))
}

/// Make a login link for another browser.
#[utoipa::path(
    post,
    operation_id = "makeLoginLink",
    path = "/api/v1/login-links",
    tag = "session",
    security(("token" = ["admin"]), ("cookie" = ["admin"])),
    responses(
        (status = 201, body = Link),
        (status = 403, body = Problem),
    ),
)]
pub(super) async fn link(
    _: Admin,
    State(station): Shared,
) -> Result<(StatusCode, Json<Link>), Problem> {
    let url = station.login_url().map_err(|error| Problem::internal(&error))?;
    Ok((StatusCode::CREATED, Json(Link { url, lasts_seconds: LINK_LASTS.as_secs() })))
}

impl Station {
    /// The address of the dashboard, with a code that logs a browser in once. Browsers do not send the part behind `#`.
    pub fn login_url(&self) -> std::io::Result<String> {
        let code = self.sessions.new_link(SystemTime::now())?;
        Ok(format!("{}/#login={code}", self.base))
    }
}
