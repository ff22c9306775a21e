//! Errors of endpoint texts, with suggestions.

use std::borrow::Cow;

use super::text::LONGEST;
use crate::hint::Hint;

/// The text is not an endpoint, or not an endpoint of the required kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is longer than [`LONGEST`].
    #[error("the endpoint has {bytes} bytes; the maximum is {LONGEST}")]
    Length {
        /// The length of the text.
        bytes: usize,
    },
    /// There is no scheme, or no text after it.
    #[error("`{text}` is not an endpoint")]
    Form {
        /// The given text.
        text: String,
    },
    /// The scheme is not permitted here.
    #[error("`{scheme}:` cannot be used as a {wanted}")]
    Scheme {
        /// The scheme given.
        scheme: String,
        /// The expected kind of endpoint.
        wanted: &'static str,
        /// A valid endpoint as an example.
        example: &'static str,
    },
    /// The port is missing or not from 1 to 65535, or a range runs from high to low.
    #[error("`{text}` is not a port or a range of ports")]
    Ports {
        /// The given text.
        text: String,
    },
    /// The host is not an IP address.
    #[error("`{host}` is not an IP address")]
    Address {
        /// The given text.
        host: String,
    },
    /// The parameter is unknown.
    #[error("`{name}` is not a parameter of {scheme}: endpoints; they are {known}")]
    Unknown {
        /// The parameter given.
        name: String,
        /// The scheme.
        scheme: String,
        /// All known parameters.
        known: String,
    },
    /// A parameter is given twice.
    #[error("`{name}` is given twice")]
    Repeated {
        /// The parameter.
        name: String,
    },
    /// The value is invalid for its parameter.
    #[error("`{}`: {why}", typed(name, value))]
    Value {
        /// The parameter.
        name: String,
        /// The value given.
        value: String,
        /// The reason.
        why: String,
        /// A valid value as an example.
        example: &'static str,
    },
    /// Two parameters exclude each other, or one requires another.
    #[error("{what}")]
    Together {
        /// The reason.
        what: String,
    },
    /// The name of a file is not a valid template.
    #[error("`{name}` is not a valid file name template: {why}")]
    Template {
        /// The name.
        name: String,
        /// The reason.
        why: &'static str,
    },
    /// Parameters follow the plain name of a file.
    #[error("`{text}` has parameters, which only an endpoint can have")]
    Unprefixed {
        /// The given text.
        text: String,
    },
    /// The file or endpoint is not an HDF5 file.
    #[error("`{text}` names no container that can be written: there is HDF5")]
    Container {
        /// The given text.
        text: String,
    },
    /// A percent escape does not make UTF-8.
    #[error("the escapes in `{text}` are not valid UTF-8")]
    Escape {
        /// The given text.
        text: String,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        let for_example = |example: &str| Some(Cow::Owned(format!("write for example {example}")));
        match self {
            Error::Form { text } | Error::Ports { text } if text.starts_with("panda:") => {
                for_example("panda://172.23.252.201 or panda://[fe80::1%25eth0]:8888")
            }
            Error::Form { text } if text.starts_with("hdf5:") => for_example("hdf5:capture-%d.h5"),
            Error::Form { .. } => for_example("udp://0.0.0.0:46220?format=vdif or file:x.vdif"),
            Error::Scheme { example, .. } => for_example(example),
            Error::Ports { .. } => for_example("udp://0.0.0.0:46220 or udp://0.0.0.0:46220-46235"),
            Error::Address { .. } => for_example(
                "0.0.0.0 for any IPv4 address of this host, [::] for any IPv4 or IPv6 address, or 239.1.1.1 for a group",
            ),
            Error::Unprefixed { text } => Some(Cow::Owned(format!("write hdf5:{text}"))),
            Error::Container { .. } => Some(
                "give a name that ends in .h5, .hdf5, .hdf, .he5, .nxs or .nx5, or hdf5:NAME with any ending"
                    .into(),
            ),
            Error::Template { .. } => for_example("capture-%d.h5 or capture-%03d.h5"),
            Error::Value { name, example, .. } => for_example(&typed(name, example)),
            Error::Length { .. }
            | Error::Unknown { .. }
            | Error::Repeated { .. }
            | Error::Together { .. }
            | Error::Escape { .. } => None,
        }
    }
}

/// Returns a value as it is typed: after a parameter, or after a scheme with its colon.
fn typed(name: &str, value: &str) -> String {
    let sign = if name.ends_with(':') { "" } else { "=" };
    format!("{name}{sign}{value}")
}

/// Returns the error for parameters that contradict each other.
pub(super) fn together(what: impl Into<String>) -> Error {
    Error::Together { what: what.into() }
}
