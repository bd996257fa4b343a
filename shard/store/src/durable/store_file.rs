//! The storage backend under redb that keeps what a full disk refuses in memory until there is room.
//!
//! redb refuses everything, reads included, after one failed write. So a write that finds no room succeeds in memory: readers go on, and
//! the sync that redb waits for comes when the disk has taken all of it. While something is in memory everything else goes there, too,
//! because a header must not reach the disk before the length that it names. The writer accepts no commits meanwhile, so the memory is
//! bounded by the changes since the last checkpoint.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::thread::{self, ThreadId};

use parking_lot::RwLock;
use redb::{BackendError, StorageBackend};

use super::dry_run::{BLOCK, BlockParts};
use super::full_disk::{is_full, sync_error};
use super::intake::Intake;

/// A store file. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StoreFile(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    file: Box<dyn StorageBackend>,
    intake: Arc<Intake>,
    state: RwLock<State>,
}

/// The difference between what redb has written and what the file has.
#[derive(Debug, Default)]
struct State {
    /// The length, if the file is shorter.
    len: Option<u64>,
    /// Written blocks by their number.
    blocks: BTreeMap<u64, Box<[u8]>>,
    /// The thread that has lengthened the file and written nothing since: its next sync is only about the length.
    grown_by: Option<ThreadId>,
}

impl State {
    fn is_behind(&self) -> bool {
        self.len.is_some() || !self.blocks.is_empty()
    }
}

impl StoreFile {
    pub(super) fn new(file: Box<dyn StorageBackend>, intake: Arc<Intake>) -> Self {
        Self(Arc::new(Inner { file, intake, state: RwLock::default() }))
    }

    /// Writes what is in memory, if anything is.
    ///
    /// # Errors
    /// [`is_full`]: there is no room yet.
    pub(super) fn catch_up(&self) -> io::Result<()> {
        let Inner { file, state, .. } = &*self.0;
        if !state.read().is_behind() {
            return Ok(());
        }
        let mut state = state.write();
        if let Some(len) = state.len {
            file.set_len(len)?;
            file.sync_data().map_err(sync_error)?;
            state.len = None;
        }
        let len = file.len()?;
        while let Some(block) = state.blocks.first_entry() {
            let begin = block.key() * BLOCK;
            let used = len.saturating_sub(begin).min(BLOCK) as usize;
            file.write(begin, &block.get()[..used])?;
            block.remove();
        }
        Ok(())
    }
}

impl Inner {
    fn len(&self, state: &State) -> io::Result<u64> {
        state.len.map_or_else(|| self.file.len(), Ok)
    }

    /// A block as it would be in the file.
    fn block(&self, state: &State, number: u64) -> io::Result<Box<[u8]>> {
        if let Some(block) = state.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK as usize].into_boxed_slice();
        let begin = number * BLOCK;
        let used = self.file.len()?.saturating_sub(begin).min(BLOCK) as usize;
        if used > 0 {
            self.file.read(begin, &mut block[..used])?;
        }
        Ok(block)
    }
}

impl StorageBackend for StoreFile {
    fn len(&self) -> io::Result<u64> {
        self.0.len(&self.0.state.read())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.state.read();
        if !state.is_behind() {
            return self.0.file.read(offset, out);
        }
        if offset + out.len() as u64 > self.0.len(&state)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for part in BlockParts::of(offset, out.len()) {
            let block = self.0.block(&state, part.block)?;
            out[part.in_buffer].copy_from_slice(&block[part.in_block]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let Inner { file, state, .. } = &*self.0;
        let mut state = state.write();
        let before = self.0.len(&state)?;
        state.grown_by = (len > before).then(|| thread::current().id());
        if len < before {
            state.blocks.split_off(&len.div_ceil(BLOCK));
            if let Some(last) = state.blocks.get_mut(&(len / BLOCK)) {
                last[(len % BLOCK) as usize..].fill(0);
            }
        }
        // A file that was not lengthened needs not be shortened.
        if state.len.is_some() && len > file.len()? {
            state.len = Some(len);
            return Ok(());
        }
        match file.set_len(len) {
            Err(error) if is_full(&error) => {
                self.0.intake.refused(error);
                state.len = Some(len);
            }
            outcome => {
                outcome?;
                state.len = None;
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let Inner { file, intake, state } = &*self.0;
        {
            let mut state = state.write();
            if state.grown_by.take_if(|thread| *thread == thread::current().id()).is_some() {
                // redb makes the length durable in the middle of a transaction, which must not wait for room. A length that the file
                // does not have yet is synced by `catch_up`, before anything is written.
                return if state.len.is_some() { Ok(()) } else { file.sync_data().map_err(sync_error) };
            }
        }
        while let Err(error) = self.catch_up() {
            if !is_full(&error) {
                return Err(error);
            }
            if !intake.wait_for_room(error) {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        file.sync_data().map_err(sync_error)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let Inner { file, intake, state } = &*self.0;
        if state.read().grown_by == Some(thread::current().id()) {
            state.write().grown_by = None;
        }
        {
            let state = state.read();
            if !state.is_behind() {
                match file.write(offset, data) {
                    Err(error) if is_full(&error) => drop(intake.refused(error)),
                    outcome => return outcome,
                }
            }
        }
        let mut state = state.write();
        for part in BlockParts::of(offset, data.len()) {
            let mut block = self.0.block(&state, part.block)?;
            block[part.in_block].copy_from_slice(&data[part.in_buffer]);
            state.blocks.insert(part.block, block);
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.0.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.0.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.0.file.query_lock_range(start, end)
    }
}
