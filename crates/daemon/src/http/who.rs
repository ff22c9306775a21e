//! The role that a handler needs, as an argument of it.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;

use super::problem::Problem;
use crate::auth::{Identity, Role};

/// How a client proved who it is.
#[derive(Clone, Debug)]
pub(super) struct Proven {
    pub(super) identity: Identity,
    /// The cookie, if it is a browser.
    pub(super) cookie: Option<String>,
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
