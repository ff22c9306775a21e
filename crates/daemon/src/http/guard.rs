//! What every request passes before its handler: a page of another site, or a name that an attacker's DNS leads to this
//! host, reaches no handler, and no write of a browser succeeds without the value that only our pages know.

use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime};

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Station;
use super::audit::CommandRun;
use super::problem::Problem;
use super::who::{Other, Proven};
use crate::auth::Hash;
use crate::auth::sessions::csrf_of;
use crate::net::peer::Peer;

/// The header of writes of a browser.
pub(super) const CSRF: &str = "x-fullbore-csrf";

/// The address of logins.
const LOGIN: &str = "/api/v1/session";

/// The longest text of the framework about an error, in bytes.
const LONGEST_ERROR: usize = 64 << 10;

/// What browsers are told about every answer. The pages load nothing from elsewhere, and have no inline scripts.
const HEADERS: &[(HeaderName, &str)] = &[
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Checks a request, and completes the answer.
pub(super) async fn guard(
    State(station): State<Arc<Station>>,
    mut request: Request,
    next: Next,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let writes = !is_safe(&method);
    // Who logs in proves it by the body, whatever session the browser has had.
    let logs_in = method == Method::POST && path == LOGIN;
    let peer = request.extensions().get::<Peer>().cloned();
    let proven = match &peer {
        Some(peer) => check(&station, peer, &method, request.headers(), !logs_in),
        None => Err(Problem::bad_request("the request came over no connection")),
    };
    let answered = async move {
        let (who, response) = match proven {
            Ok(proven) => {
                let who = proven.as_ref().map(|it| it.identity.clone());
                request.extensions_mut().extend(extension(proven));
                (who, as_problem(next.run(request).await).await)
            }
            Err(problem) => (None, problem.into_response()),
        };
        let status = response.status();
        if writes || status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
            let command = response.extensions().get::<CommandRun>().cloned();
            let note =
                move || station.audit.note(who.as_ref(), &method, &path, status, command.as_ref());
            // The disk of the log may be slow. A panic was told by its own hook.
            let _ = tokio::task::spawn_blocking(note).await;
        }
        response
    };
    // A write is carried out and noted to its end, also if the client closes the connection meanwhile.
    let mut response = match writes {
        true => tokio::spawn(answered)
            .await
            .unwrap_or_else(|error| Problem::internal(&error).into_response()),
        false => answered.await,
    };
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().entry(name.clone()).or_insert(value);
    }
    response
}

fn extension(proven: Option<Proven>) -> axum::http::Extensions {
    let mut extensions = axum::http::Extensions::new();
    proven.map(|proven| extensions.insert(proven));
    extensions
}

/// Makes a problem of an error that the framework found, such as a body that is not the expected JSON.
async fn as_problem(response: Response) -> Response {
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let is_one = kind.is_some_and(|kind| kind == "application/problem+json");
    if is_one || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let body = to_bytes(response.into_body(), LONGEST_ERROR).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    let text = if text.is_empty() { "the request was refused".to_owned() } else { text };
    Problem::new(status, text).into_response()
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Who the client is, by its token or, unless it logs in, by its cookie. `None` if it does not say.
fn check(
    station: &Station,
    peer: &Peer,
    method: &Method,
    headers: &HeaderMap,
    by_cookie: bool,
) -> Result<Option<Proven>, Problem> {
    let forbidden = |why: &str| Problem::new(StatusCode::FORBIDDEN, why);
    let text = |name: &HeaderName| headers.get(name).map(|it| it.to_str().unwrap_or_default());
    let (port, settings) = (peer.port(), station.settings.get());
    if !text(&header::HOST).is_some_and(|host| peer.is_named(host, &settings.names)) {
        let why = "the Host header names another host than this daemon";
        return Err(forbidden(why).advise(
            "use the address that the daemon prints; `names` in its file lists other names of it",
        ));
    }
    if let Some(origin) = text(&header::ORIGIN)
        && !peer.is_origin(origin, &settings.names)
    {
        return Err(forbidden("the request comes from a page of another site"));
    }
    if let Some(authorization) = text(&header::AUTHORIZATION) {
        return token(station, peer, authorization).map(Some);
    }
    if let Peer::Unix { uid } = peer {
        let other = Some(Other::User(*uid));
        return Ok(settings.user(*uid).map(|identity| Proven { identity, cookie: None, other }));
    }
    let cookie = text(&header::COOKIE).and_then(|it| cookie_of(it, port));
    let Some(cookie) = cookie.filter(|_| by_cookie) else { return Ok(None) };
    let Some(identity) = station.sessions.find(cookie, SystemTime::now()) else { return Ok(None) };
    if !is_safe(method) {
        let given = headers.get(CSRF).and_then(|it| it.to_str().ok());
        if given != Some(csrf_of(cookie).as_str()) {
            return Err(forbidden("the request lacks the X-Fullbore-CSRF header of its session"));
        }
    }
    Ok(Some(Proven { identity, cookie: Some(cookie.to_owned()), other: None }))
}

fn token(station: &Station, peer: &Peer, authorization: &str) -> Result<Proven, Problem> {
    let secret = authorization.strip_prefix("Bearer ").unwrap_or_default();
    match station.settings.get().tokens.find(secret) {
        Some(identity) => {
            let other = Some(Other::Token(Hash::of(secret)));
            Ok(Proven { identity, cookie: None, other })
        }
        None => {
            let mut attempts = station.attempts.lock().unwrap_or_else(PoisonError::into_inner);
            let attempts = attempts.of(peer.origin(), Instant::now());
            attempts.check(Instant::now()).map_err(too_many)?;
            attempts.fail(Instant::now());
            Err(Problem::new(StatusCode::UNAUTHORIZED, "the token is not known"))
        }
    }
}

/// Too many logins failed.
pub(super) fn too_many(wait: std::time::Duration) -> Problem {
    let seconds = wait.as_secs() + 1;
    let why = format!("too many logins failed: try again in {seconds} s");
    Problem { retry_after: Some(seconds), ..Problem::new(StatusCode::TOO_MANY_REQUESTS, why) }
}

/// The name of the cookie. Browsers keep cookies by host and not by port, so two daemons would take each other's.
pub(super) fn cookie_name(port: u16) -> String {
    format!("fullbore_{port}")
}

fn cookie_of(cookies: &str, port: u16) -> Option<&str> {
    let name = cookie_name(port);
    let mut pairs = cookies.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_of_this_port_is_found_among_others() {
        let cookies = "a=b; fullbore_8481=no; fullbore_8480=yes; c=d";
        assert_eq!(cookie_of(cookies, 8480), Some("yes"));
        assert_eq!(cookie_of(cookies, 8482), None);
        assert_eq!(cookie_of("fullbore_8480", 8480), None);
    }
}
