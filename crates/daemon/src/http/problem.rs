//! Errors as `application/problem+json` (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fullbore_core::hint::{Hint, with_causes};
use serde::Serialize;
use utoipa::ToSchema;

use crate::recorder;

/// An error.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`: the status says what kind of error it is.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The name of the status.
    pub title: &'static str,
    /// The status.
    pub status: u16,
    /// What happened.
    pub detail: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// Seconds until it is worth trying again.
    #[serde(skip)]
    pub retry_after: Option<u64>,
}

impl Problem {
    /// An error with a status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            advice: None,
            retry_after: None,
        }
    }

    /// The same with advice.
    pub fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    /// Of an error of a library, with its causes and its advice.
    pub fn of<E: std::error::Error + Hint>(status: StatusCode, error: &E) -> Self {
        let advice = error.hint().map(|advice| advice.into_owned());
        Self { advice, ..Self::new(status, with_causes(error)) }
    }

    /// The client asked for something that is not there.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// The request has a mistake.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The daemon failed.
    pub fn internal(error: &dyn std::error::Error) -> Self {
        tracing::error!(error = %with_causes(error), "a request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, with_causes(error))
    }
}

impl From<recorder::Error> for Problem {
    fn from(error: recorder::Error) -> Self {
        use recorder::Error::{Ended, Many, Refused, Request, System, Unknown};
        let detail = with_causes(&error);
        match error {
            Request(_) => Self::bad_request(detail),
            Many | Ended { .. } => Self::new(StatusCode::CONFLICT, detail),
            Unknown { .. } => Self::not_found(detail),
            Refused(complaint) => Self {
                advice: complaint.advice,
                ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
            },
            System { .. } => Self::internal(&error),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (status, kind, body).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            let how = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, how);
        }
        response
    }
}
