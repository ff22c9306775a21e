//! GigE Vision cameras: the port of a UDP source, fed by a camera that is told to send.

use std::sync::Arc;

use fullbore_capture::{Capture, Port, Settings, SinkChain, Sizes};
use fullbore_core::account::CountedBy;
use fullbore_core::endpoint::Gro;
use fullbore_core::manifest::{Fill, Format};
use fullbore_core::name::Name;
use fullbore_gige::{CameraConfig, CameraInput};
use fullbore_linux::sys::memory::Region;

use super::udp::RECEIVE_BUFFER;
use super::{
    CaptureLink, Ending, MemoryNeeds, OpenContext, OpenRequest, OpenSource, Source, Streams,
};
use crate::error::RecordError;

impl Source for CameraConfig {
    fn name(&self) -> &Name {
        &self.udp.name
    }

    fn endpoint(&self) -> String {
        self.udp.endpoint.to_string()
    }

    fn format(&self) -> Format {
        Source::format(&self.udp)
    }

    fn counted_by(&self) -> CountedBy {
        Source::counted_by(&self.udp)
    }

    fn fill(&self) -> Fill {
        self.udp.fill
    }

    fn has_varying_frames(&self) -> bool {
        true
    }

    fn streams(&self) -> Streams {
        Streams::Discovered(1)
    }

    fn memory(&self) -> MemoryNeeds {
        Source::memory(&self.udp)
    }

    fn most_block_bytes(&self) -> u64 {
        Source::most_block_bytes(&self.udp)
    }

    fn least_chunk_bytes(&self, pool_bytes: u64) -> u64 {
        Source::least_chunk_bytes(&self.udp, pool_bytes)
    }

    fn ending(&self) -> Ending {
        Ending::Never
    }

    fn identity(&self) -> Option<String> {
        Some(format!("camera {}", self.camera()))
    }
}

/// A camera under control, with its block memory.
pub(crate) struct OpenCamera {
    port: Port,
    identity: Option<String>,
    about: String,
}

impl OpenCamera {
    /// Takes control of the camera, and maps the block memory.
    pub fn open(
        config: &CameraConfig,
        request: &OpenRequest<'_>,
        context: &OpenContext,
    ) -> Result<Self, RecordError> {
        let buffer_bytes = config.udp.receive_buffer.map_or(RECEIVE_BUFFER, |size| size.0) as usize;
        let (input, about) = CameraInput::open(config, buffer_bytes)?;
        let sizes = Sizes {
            pool_bytes: request.pool_bytes as usize,
            chunk_bytes: context.chunk_bytes,
            buffer_bytes,
        };
        let number = request.number.unwrap_or(u16::MAX);
        let (next, mut udp) = (context.next_number.clone(), config.udp.clone());
        udp.gro = Gro::Off;
        let mut port = Port::with_input(Box::new(input), request.node, udp, number, next, sizes)?;
        port.share_names(&context.names);
        if context.one_stream {
            port.keep_to_one_stream();
        }
        let about = format!("{} is {about}", config.camera());
        Ok(Self { port, identity: config.identity(), about })
    }
}

impl OpenSource for OpenCamera {
    fn memory(&self) -> Vec<Arc<Region>> {
        vec![self.port.region().clone()]
    }

    fn most_blocks(&self) -> usize {
        self.port.most_blocks()
    }

    fn receive_buffers(&self) -> Vec<usize> {
        vec![self.port.input().buffer_bytes()]
    }

    fn identity(&self) -> Option<String> {
        self.identity.clone()
    }

    fn warnings(&self) -> Vec<String> {
        tracing::info!("{}", self.about);
        self.port.warning().into_iter().collect()
    }

    fn start(self: Box<Self>, link: CaptureLink) -> Result<Capture, RecordError> {
        let settings = Settings { thread_config: link.thread_config, hold: link.hold };
        let chain = SinkChain::new(link.sinks);
        Capture::start(link.number, vec![self.port], chain, link.events, settings)
            .map_err(RecordError::Thread)
    }
}
