//! The role that a handler needs, as an argument of it.

use std::time::SystemTime;

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

use super::Station;
use super::problem::Problem;
use crate::auth::{Hash, Identity, Role};

/// How a client proved who it is.
#[derive(Clone, Debug)]
pub(super) struct Proven {
    pub(super) identity: Identity,
    /// The cookie, if it is a browser.
    pub(super) cookie: Option<String>,
    /// What proved it, if it is none.
    pub(super) other: Option<Other>,
}

/// A proof that is no cookie.
#[derive(Clone, Debug)]
pub(super) enum Other {
    /// A token, by its hash.
    Token(Hash),
    /// A user of the Unix socket, by the kernel.
    User(u32),
}

impl Station {
    /// True if a client is still who it was: an answer that goes on for hours ends with the session, the token or the user.
    pub(super) fn still_knows(&self, proven: &Proven) -> bool {
        let (settings, identity) = (self.settings.get(), &proven.identity);
        match (&proven.cookie, &proven.other) {
            (Some(cookie), _) => {
                self.sessions.find(cookie, SystemTime::now()).as_ref() == Some(identity)
            }
            (None, Some(Other::Token(hash))) => {
                settings.tokens.has(hash, &identity.name, identity.role)
            }
            (None, Some(Other::User(uid))) => settings.user(*uid).as_ref() == Some(identity),
            (None, None) => false,
        }
    }
}

/// Any client that has proven who it is.
#[derive(Debug)]
pub(super) struct Viewer(pub(super) Proven);

/// A client that may record.
#[derive(Debug)]
pub(super) struct Operator;

/// A client that may remove.
#[derive(Debug)]
pub(super) struct Admin;

fn at_least(role: Role, parts: &Parts) -> Result<Proven, Problem> {
    let proven = parts.extensions.get::<Proven>().cloned().ok_or_else(|| {
        Problem::new(StatusCode::UNAUTHORIZED, "this needs a login, or a token")
            .advise("the daemon prints a login link when it starts; programs send Authorization: Bearer TOKEN")
    })?;
    proven.needs(role)?;
    Ok(proven)
}

impl Proven {
    /// Refuses a client that has a lesser role.
    pub(super) fn needs(&self, role: Role) -> Result<(), Problem> {
        match self.identity.role >= role {
            true => Ok(()),
            false => {
                let (has, needs) = (named(self.identity.role), named(role));
                let why =
                    format!("this needs the role {needs}, and {} is {has}", self.identity.name);
                Err(Problem::new(StatusCode::FORBIDDEN, why))
            }
        }
    }
}

fn named(role: Role) -> &'static str {
    match role {
        Role::Viewer => "viewer",
        Role::Operator => "operator",
        Role::Admin => "admin",
    }
}

impl<S: Sync> FromRequestParts<S> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        at_least(Role::Viewer, parts).map(Self)
    }
}

impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        at_least(Role::Operator, parts).map(|_| Self)
    }
}

impl<S: Sync> FromRequestParts<S> for Admin {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        at_least(Role::Admin, parts).map(|_| Self)
    }
}
