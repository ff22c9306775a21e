//! The listener: the one of `fullbore receive`, on threads of its own.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use fullbore_core::hint::with_causes;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_recording::transfers::events::ListenerEvent;
use fullbore_transfer::error::TransferError;
use fullbore_transfer::server::{Server, ServerEvent, ServerSettings};

use super::{Error, Listening, ReceiveOptions, Transfers};

/// Binds the listener, and serves it until it is stopped.
pub(super) fn start(
    transfers: &Transfers,
    options: &ReceiveOptions,
    stop: Arc<StopHandle>,
) -> Result<(Listening, JoinHandle<()>), Error> {
    let settings = ServerSettings {
        members: transfers.store().to_vec(),
        config: transfers.0.keys.clone(),
        connections: options.connections,
        limits: options.link.limits(),
        link: options.link.settings(),
    };
    let told = transfers.clone();
    let tell = Box::new(move |event| note(&told, &event));
    let server = Server::bind(options.listen, settings, stop, tell)?;
    let address = server.address();
    let address =
        address.map_err(|source| TransferError::Listen { address: options.listen, source })?;
    let listening = Listening { address, key: server.fingerprint().to_string() };
    transfers.arrivals().listens(listening.clone());
    let own = transfers.clone();
    let serve = move || {
        if let Err(error) = server.run() {
            tracing::error!(error = %with_causes(&error), "the listener for transfers has ended");
            own.arrivals().failed(&error);
        }
    };
    let thread = thread::Builder::new().name("receive".into()).spawn(serve);
    Ok((listening, thread.map_err(Error::Start)?))
}

fn note(transfers: &Transfers, event: &ServerEvent) {
    transfers.arrivals().take(event, Instant::now());
    match ListenerEvent::of(event) {
        Some(told @ (ListenerEvent::Refused { .. } | ListenerEvent::Failed { .. })) => {
            tracing::warn!("{}", told.text());
        }
        Some(told) => tracing::info!("{}", told.text()),
        None => {}
    }
}
