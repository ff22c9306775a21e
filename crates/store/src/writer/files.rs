//! Makes files, names them, and renames them into place.

use std::io;
use std::sync::Arc;

use super::{Engine, MemberState, Purpose};
use crate::chunk::{Chunk, Stage};
use crate::disk::{Disk, Operation};
use crate::journal::{Event, SyncTarget};
use crate::pages::BUFFER_BYTES;
use crate::reservation::SpaceRequest;
use crate::stream::{INDEX_STEP_BYTES, Key, MemberStream, Phase, Spare};
use fullbore_core::layout::Geometry;
use fullbore_linux::ring::{Block, Pool, StreamRef};
use fullbore_linux::sys::memory::Region;

impl<D: Disk> Engine<D> {
    pub(super) fn begin(&mut self, key: Key, stream_ref: Arc<StreamRef>) {
        let directory = stream_ref.directory.clone();
        let stream = MemberStream::new(stream_ref, self.member, self.take_buffer());
        self.streams.insert(key, stream);
        self.chore(key, Purpose::Directories(key), Operation::MakeDirectories { directory });
    }

    pub(super) fn take_buffer(&mut self) -> Block {
        if let Some(buffer) = self.buffers.iter_mut().find_map(Pool::take) {
            return buffer;
        }
        // 32 streams fit in one region, so this happens once, with the first stream.
        let region = Region::new(1).expect("2 MiB of memory for indices");
        let mut pool = Pool::new(Arc::new(region), BUFFER_BYTES, 0);
        let buffer = pool.take().expect("a new pool has free blocks");
        self.buffers.push(pool);
        buffer
    }

    pub(super) fn chore(&mut self, key: Key, purpose: Purpose, operation: Operation<D::File>) {
        if let Some(stream) = self.streams.get_mut(&key) {
            stream.chores += 1;
        }
        self.desk.submit(purpose, operation);
    }

    pub(super) fn open_parts(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.phase = Phase::Opening(4);
        let directories = [SyncTarget::Root, SyncTarget::Directory, SyncTarget::Side];
        let paths = directories.map(|part| (part, stream.path_of(part)));
        let index = stream.index_path();
        for (part, path) in paths {
            self.chore(key, Purpose::Open(key, part), Operation::OpenDirectory { path });
        }
        let space = SpaceRequest::exactly(INDEX_STEP_BYTES);
        let create = Operation::Create { path: index, space };
        self.chore(key, Purpose::Open(key, SyncTarget::Index), create);
    }

    /// Gives files to chunks that have none: the spare to one, new ones to the others.
    pub(super) fn make_wanted(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if stream.phase != Phase::Open || matches!(stream.spare, Spare::Making) {
            return;
        }
        let wanted =
            |chunk: &Chunk<_>| matches!(chunk.stage, Stage::Wanted).then_some(chunk.number);
        let numbers: Vec<u32> = stream.chunks.values().filter_map(wanted).collect();
        for number in numbers {
            self.make(key, number);
        }
    }

    /// Returns the request for more space of a chunk that has this much.
    fn space_request(&self, geometry: Geometry, space: u64) -> SpaceRequest {
        let most = geometry.chunk_bytes() - space;
        let least = u64::from(geometry.block_bytes).min(most);
        let sharing = self.streams.values().map(MemberStream::open_files).sum();
        SpaceRequest { least, most, sharing }
    }

    pub(super) fn make(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let geometry = stream.stream_ref.geometry;
        let (path, spare_path) = (stream.filling_path(number), stream.spare_path());
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        chunk.stage = Stage::Making;
        if let Spare::Ready(file, bytes) = &stream.spare {
            tracing::debug!(member = %self.root.display(), path, "takes the spare file as a chunk");
            let (file, bytes) = (file.clone(), *bytes);
            chunk.add_space(bytes);
            stream.spare = Spare::Leaving(file.clone(), bytes);
            let rename = Some((spare_path, path));
            let settle = Operation::Settle { file: file.clone(), bytes: None, rename };
            chunk.stage = Stage::Open(file);
            self.ready.extend(chunk.take_fitting().map(|ordinal| (key, number, ordinal)));
            self.chore(key, Purpose::Name(key, number), settle);
            return self.grow(key, number);
        }
        if self.state != MemberState::Taking {
            return self.lose_chunk(key, number);
        }
        tracing::debug!(member = %self.root.display(), path, "makes a chunk");
        let space = self.space_request(geometry, 0);
        self.chore(key, Purpose::Make(key, number), Operation::Create { path, space });
    }

    pub(super) fn make_spare(&mut self, key: Key, number: u32) {
        let taking = self.state == MemberState::Taking;
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if taking && stream.wants_spare(number) {
            stream.spare = Spare::Making;
            let (path, geometry) = (stream.spare_path(), stream.stream_ref.geometry);
            let space = self.space_request(geometry, 0);
            self.chore(key, Purpose::Spare(key), Operation::Create { path, space });
        }
    }

    /// Handles the open file of a chunk: its waiting blocks can be written.
    pub(super) fn opened(&mut self, key: Key, number: u32, file: D::File, bytes: u64) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        chunk.stage = Stage::Open(file);
        chunk.add_space(bytes);
        self.ready.extend(chunk.take_fitting().map(|ordinal| (key, number, ordinal)));
        self.named(key, number);
        self.grow(key, number);
    }

    /// Reserves space for the next blocks of a chunk, when half of the last step is left. On a full member, blocks
    /// without space are refused.
    pub(super) fn grow(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let geometry = stream.stream_ref.geometry;
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        let Stage::Open(file) = &chunk.stage else { return };
        let wanted = (chunk.accepted() + chunk.step / 2).min(geometry.chunk_bytes());
        if chunk.growing || chunk.space >= wanted {
            return;
        }
        if self.state != MemberState::Taking {
            chunk.cut_beyond_space();
            return self.release(key, number);
        }
        chunk.growing = true;
        let (file, offset) = (file.clone(), chunk.space);
        let space = self.space_request(geometry, offset);
        let extend = Operation::Extend { file, offset, space };
        self.chore(key, Purpose::Extend(key, number), extend);
    }

    /// Handles the end of a reservation: the chunk has more space, or none is left.
    fn grown(&mut self, key: Key, number: u32, result: io::Result<u64>) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let path = stream.path_of(SyncTarget::Chunk(number));
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        chunk.growing = false;
        match result {
            Ok(bytes) => {
                chunk.add_space(bytes);
                self.ready.extend(chunk.take_fitting().map(|ordinal| (key, number, ordinal)));
            }
            Err(source) => self.not_made(path, source),
        }
        self.grow(key, number);
    }

    /// Handles the final number of a chunk's file: its blocks count once that name is durable, too.
    pub(super) fn named(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if let Some(chunk) = stream.chunks.get_mut(&number) {
            chunk.named = true;
        }
        self.tell(key, Event::Touched(SyncTarget::Side));
        self.release(key, number);
    }

    /// Handles a chunk that gets no file: its waiting blocks are refused.
    pub(super) fn lose_chunk(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        chunk.stage = Stage::Dead;
        chunk.cut_all();
        self.release(key, number);
    }

    /// Renames a chunk into place once all of it is written.
    pub(super) fn place(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        let end = stream.stream_ref.geometry.chunk_bytes();
        let (from, to) = (stream.filling_path(number), stream.place_path(number));
        let Some(chunk) = stream.chunks.get_mut(&number) else { return };
        let complete = chunk.is_idle() && chunk.written() == end;
        let Stage::Open(file) = &chunk.stage else { return };
        // After a failure the chunk waits for the end, when the rename is tried again.
        if !complete || stream.phase != Phase::Open || self.state == MemberState::Failed {
            return;
        }
        let file = file.clone();
        chunk.stage = Stage::Placing(file.clone());
        let settle = Operation::Settle { file, bytes: None, rename: Some((from, to)) };
        self.chore(key, Purpose::Place(key, number), settle);
    }

    /// Handles the end of a chore, with the file that was made or opened and the bytes that were reserved.
    pub(super) fn chore_done(
        &mut self,
        chore: Purpose,
        result: io::Result<(Option<D::File>, u64)>,
    ) {
        let key = match &chore {
            Purpose::Directories(key) | Purpose::Spare(key) | Purpose::Grow(key) => *key,
            Purpose::Open(key, _) => *key,
            Purpose::Extend(key, ..) => *key,
            Purpose::Make(key, _) | Purpose::Name(key, _) | Purpose::Place(key, _) => *key,
            other => unreachable!("{other:?} is no chore"),
        };
        let stream = self.streams.get_mut(&key).expect("a stream stays while it has chores");
        stream.chores -= 1;
        match (chore, result) {
            (Purpose::Directories(_), Ok(_)) => self.open_parts(key),
            (Purpose::Directories(_), Err(source)) => {
                let path = stream.stream_ref.directory.clone();
                self.lose_stream(key, path, source);
            }
            (Purpose::Open(_, part), Ok((file, _))) => self.part_opened(key, part, file),
            (Purpose::Open(_, part), Err(source)) => {
                let path = stream.path_of(part);
                self.lose_stream(key, path, source);
            }
            (Purpose::Make(_, number), Ok((file, bytes))) => {
                self.opened(key, number, file.expect("a file that was made"), bytes);
            }
            (Purpose::Make(_, number), Err(source)) => {
                let path = stream.filling_path(number);
                self.lose_chunk(key, number);
                self.not_made(path, source);
            }
            (Purpose::Name(_, number), Ok(_)) => {
                stream.spare = Spare::None;
                self.named(key, number);
                self.make_wanted(key);
                self.make_spare(key, number);
            }
            (Purpose::Name(_, number) | Purpose::Place(_, number), Err(source)) => {
                let path = stream.path_of(SyncTarget::Chunk(number));
                self.not_settled(key, number, path, source);
            }
            (Purpose::Place(_, number), Ok(_)) => self.placed(key, number),
            (Purpose::Spare(_), Ok((file, bytes))) => {
                stream.spare = Spare::Ready(file.expect("a file that was made"), bytes);
                self.make_wanted(key);
            }
            (Purpose::Spare(_), Err(source)) => {
                stream.spare = Spare::None;
                let path = stream.spare_path();
                self.not_made(path, source);
                self.make_wanted(key);
            }
            (Purpose::Extend(_, number), result) => {
                self.grown(key, number, result.map(|(_, bytes)| bytes));
            }
            (Purpose::Grow(_), Ok(_)) => {
                stream.index_growing = false;
                stream.index_space += INDEX_STEP_BYTES;
            }
            (Purpose::Grow(_), Err(source)) => {
                let path = stream.index_path();
                self.not_made(path, source);
            }
            (other, _) => unreachable!("{other:?} is no chore"),
        }
    }

    pub(super) fn part_opened(&mut self, key: Key, part: SyncTarget, file: Option<D::File>) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        stream.parts.insert(part, file.expect("a file that was made or opened"));
        match stream.phase {
            Phase::Opening(1) => stream.phase = Phase::Open,
            Phase::Opening(left) => stream.phase = Phase::Opening(left - 1),
            // Another part failed.
            _ => return,
        }
        if stream.phase == Phase::Open {
            for part in [SyncTarget::Root, SyncTarget::Directory, SyncTarget::Side] {
                self.tell(key, Event::Touched(part));
            }
            self.make_wanted(key);
        }
    }

    pub(super) fn placed(&mut self, key: Key, number: u32) {
        let Some(stream) = self.streams.get_mut(&key) else { return };
        if let Some(chunk) = stream.chunks.get_mut(&number)
            && let Some(file) = chunk.file()
        {
            // After a crash the file is found under either name, so these names need no sync before the last one.
            chunk.stage = Stage::Placed(file);
        }
        stream.retire(number);
    }
}
