//! A recording on the thread of its caller, from arming to the last seal.

use std::path::Path;
use std::sync::Arc;

use fullbore_core::manifest::Format;
use fullbore_engine::recorder::{Event, EventHandler, RecordError, Recorder, RecordingConfig};
use fullbore_formats::panda::{EndReason, Ending};
use fullbore_linux::stop_handle::StopHandle;

use crate::forwarding::Forwarding;
use crate::outcome::{Outcome, RecordingOutcome};
use crate::retention::RetentionThread;
use crate::spectra::SpectraServer;

/// Records on this thread. Old scans are removed meanwhile, if a retention thread is given. Returns the outcome once
/// everything is sealed.
///
/// [`Recording`](crate::Recording) does the same on a thread of its own.
pub fn record(
    config: RecordingConfig,
    mut retention: Option<RetentionThread>,
    control: &Arc<StopHandle>,
    tell: &mut EventHandler<'_>,
) -> Result<RecordingOutcome, RecordError> {
    let (wanted, of_pandas) = (config.scan_count(), config.has_acquisitions());
    let (mut outcome, mut advice) = (RecordingOutcome::default(), OverrunAdvice::default());
    let mut forwarding = Forwarding::start(&config)?;
    if let Some(retention) = &mut retention {
        retention.check_room(&config)?.iter().for_each(&mut *tell);
        retention.look_at(&config.taps).map_err(RecordError::Thread)?;
    }
    let _spectra = serve_spectra(&config, tell);
    let mut see = |event: &Event| {
        outcome.see(event);
        tell(event);
        forwarding.after(event, tell);
        advice.after(event).iter().for_each(&mut *tell);
        tell_of(retention.as_ref(), event, tell);
    };
    let ended = Recorder::arm(config, &mut see).and_then(|it| it.run(control, &mut see));
    forwarding.finish().iter().for_each(&mut *tell);
    if !matches!(ended, Err(RecordError::Left { .. }))
        && let Some(retention) = retention
    {
        retention.finish().iter().for_each(&mut *tell);
    }
    ended?;
    if of_pandas && outcome.sealed < wanted.unwrap_or(1) {
        let text = match (wanted, outcome.sealed) {
            (None, _) => "ended before any acquisition came: nothing is recorded".to_owned(),
            (Some(wanted), sealed) => {
                format!("ended before its time: {sealed} of {wanted} acquisitions came")
            }
        };
        tell(&Event::Warning { text });
        outcome.outcome = Outcome::Problem;
    }
    Ok(outcome)
}

/// Serves live spectra, if they are wanted. A recording goes on without them.
pub(crate) fn serve_spectra(
    config: &RecordingConfig,
    tell: &mut EventHandler<'_>,
) -> Option<SpectraServer> {
    SpectraServer::of(config).unwrap_or_else(|error| {
        let path = config.spectra.as_deref().unwrap_or(Path::new("")).display();
        tell(&Event::Warning { text: format!("{path}: no socket for live spectra: {error}") });
        None
    })
}

/// Notifies the retention thread of a sealed scan, and tells its events.
pub(crate) fn tell_of(
    retention: Option<&RetentionThread>,
    event: &Event,
    tell: &mut EventHandler<'_>,
) {
    let Some(retention) = retention else { return };
    if let Event::Sealed(sealed) = event {
        retention.scan_sealed(&sealed.manifest);
    }
    retention.told().iter().for_each(tell);
}

/// Advice after the first scan in which the ring of a PandA's server has overrun.
#[derive(Default)]
struct OverrunAdvice {
    given: bool,
}

impl OverrunAdvice {
    /// Returns the advice if it is due after this event.
    fn after(&mut self, event: &Event) -> Option<Event> {
        let Event::Sealed(sealed) = event else { return None };
        let overran = sealed.manifest.streams.iter().any(|stream| overran(&stream.format));
        if self.given || !overran {
            return None;
        }
        self.given = true;
        let text = "samples came faster than they could be taken: capture Mean instead of every Value, fewer fields, \
                    or trigger less often; `fullbore panda show --rate` says what fits";
        Some(Event::Note { text: text.to_owned() })
    }
}

fn overran(format: &Format) -> bool {
    let Format::Panda { connections, .. } = format else { return false };
    connections.iter().any(|it| it.ending == Ending::End(EndReason::DataOverrun))
}
