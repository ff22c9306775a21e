//! The choice of the receive engine of each source of a capture thread.

use std::error::Error;

use fullbore_capture::{Copies, DatagramInput, PortError, open_ring, open_xdp};
use fullbore_core::endpoint::{Engine, UdpSource};
use fullbore_core::manifest::SourceEngine;

use crate::error::RecordError;

/// The inputs of the sources that do not simply use their socket.
#[derive(Default)]
pub(super) struct Chosen {
    /// For each source.
    pub inputs: Vec<Option<Box<dyn DatagramInput>>>,
    /// What was chosen, and why.
    pub engines: Vec<SourceEngine>,
}

/// Opens the engine that each source requests. A source with `auto` gets the first that this process may use: XDP with
/// zero-copy, a packet ring, its socket. A queue of an interface has one XDP socket, so XDP is for one thread: with several
/// (`threads`), they would take the queues from one another.
pub(super) fn choose(sources: &[&UdpSource], threads: usize) -> Result<Chosen, RecordError> {
    let numbers_of = |engine| -> Vec<usize> {
        (0..sources.len()).filter(|number| sources[*number].engine == engine).collect()
    };
    let of = |numbers: &[usize]| -> Vec<&UdpSource> {
        numbers.iter().map(|number| sources[*number]).collect()
    };
    let mut choice = Choice::new(sources);
    let requested = numbers_of(Engine::Xdp);
    if !requested.is_empty() {
        let opened = open_xdp(&of(&requested), Copies::Allowed).map_err(PortError::from)?;
        let why = format!("the endpoint requests it; {}", opened.how);
        choice.take(&requested, opened.inputs, Engine::Xdp, |_| why.clone());
    }
    let mut auto = numbers_of(Engine::Auto);
    let mut no_xdp = None;
    if !auto.is_empty() && threads > 1 {
        no_xdp = Some(format!(
            "XDP cannot be used: it needs one capture thread for all sources, and there are {threads}"
        ));
    } else if !auto.is_empty() {
        match open_xdp(&of(&auto), Copies::Refused) {
            Ok(opened) => {
                let why = format!("it is the fastest, and allowed here; {}", opened.how);
                choice.take(&auto, opened.inputs, Engine::Xdp, |_| why.clone());
                auto.clear();
            }
            Err(error) => no_xdp = Some(format!("XDP cannot be used: {}", reason(&error))),
        }
    }
    let requested = numbers_of(Engine::Packet);
    let mut users = [requested.clone(), auto.clone()].concat();
    users.sort_unstable();
    if users.is_empty() {
        return Ok(choice.in_order());
    }
    match open_ring(&of(&users)) {
        Ok(inputs) => choice.take(&users, inputs, Engine::Packet, |source| match &no_xdp {
            Some(no_xdp) if source.engine == Engine::Auto => {
                format!("it is the fastest that is allowed here. {no_xdp}")
            }
            _ => "the endpoint requests it".to_owned(),
        }),
        Err(error) if requested.is_empty() => {
            let no_ring = format!("no packet ring can be used: {}", reason(&error));
            let why = format!("{}; {no_ring}", no_xdp.unwrap_or_default());
            auto.iter().for_each(|number| choice.tell(*number, Engine::Udp, why.clone()));
        }
        Err(error) => return Err(PortError::from(error).into()),
    }
    Ok(choice.in_order())
}

struct Choice<'a> {
    sources: &'a [&'a UdpSource],
    /// The endpoints, in order.
    order: Vec<String>,
    chosen: Chosen,
}

impl<'a> Choice<'a> {
    fn new(sources: &'a [&'a UdpSource]) -> Self {
        let inputs = sources.iter().map(|_| None).collect();
        let order = sources.iter().map(|source| source.endpoint.to_string()).collect();
        Self { sources, order, chosen: Chosen { inputs, engines: Vec::new() } }
    }

    fn take<I: DatagramInput + 'static>(
        &mut self,
        numbers: &[usize],
        inputs: Vec<I>,
        engine: Engine,
        why: impl Fn(&UdpSource) -> String,
    ) {
        for (&number, input) in numbers.iter().zip(inputs) {
            self.chosen.inputs[number] = Some(Box::new(input));
            self.tell(number, engine, why(self.sources[number]));
        }
    }

    fn in_order(mut self) -> Chosen {
        let place = |it: &SourceEngine| self.order.iter().position(|of| *of == it.source);
        self.chosen.engines.sort_by_key(place);
        self.chosen
    }

    fn tell(&mut self, number: usize, engine: Engine, why: String) {
        let source = self.order[number].clone();
        self.chosen.engines.push(SourceEngine { source, engine, why });
    }
}

/// Returns an error with its causes.
fn reason(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_leaves_xdp_alone_where_several_threads_would_want_the_same_queues() {
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let text = format!("udp://127.0.0.1:{free}?engine=auto");
        let source = UdpSource::parse(&text).unwrap().remove(0);
        for (threads, why) in [(4, "and there are 4"), (1, "loopback")] {
            let chosen = choose(&[&source], threads).unwrap();
            assert!(chosen.engines[0].why.contains(why), "{}", chosen.engines[0].why);
        }
    }
}
