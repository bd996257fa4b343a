//! A storage backend for redb that reads a file and keeps all writes in memory.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;

use parking_lot::Mutex;
use redb::StorageBackend;

/// Lets redb check and repair a file without a change to the file. Uses as much memory as redb writes.
#[derive(Debug)]
pub(super) struct DryRunFile {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    len: u64,
    /// The length up to which the file is read; a part that was truncated reads as zeros.
    visible_len: u64,
    /// Written blocks by their number.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

/// The size of the blocks in memory.
pub(super) const BLOCK: u64 = 4096;

impl DryRunFile {
    pub(super) fn of(file: File) -> std::io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file, state: Mutex::new(State { len, visible_len: len, blocks: BTreeMap::new() }) })
    }

    /// A block as it would be in the file now.
    fn block(&self, state: &State, number: u64) -> std::io::Result<Box<[u8]>> {
        if let Some(block) = state.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK as usize].into_boxed_slice();
        let begin = number * BLOCK;
        let visible_len = state.visible_len.saturating_sub(begin).min(BLOCK) as usize;
        self.file.read_exact_at(&mut block[..visible_len], begin)?;
        Ok(block)
    }
}

impl StorageBackend for DryRunFile {
    fn len(&self) -> Result<u64, Error> {
        Ok(self.state.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let state = self.state.lock();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > state.len) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let end = offset + out.len() as u64;
        let changed = state.blocks.range(offset / BLOCK..end.div_ceil(BLOCK)).next().is_some();
        if !changed && end <= state.visible_len {
            return self.file.read_exact_at(out, offset);
        }
        for part in BlockParts::of(offset, out.len()) {
            let block = self.block(&state, part.block)?;
            out[part.in_buffer].copy_from_slice(&block[part.in_block]);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), Error> {
        let mut state = self.state.lock();
        if len < state.len {
            state.visible_len = state.visible_len.min(len);
            state.blocks.split_off(&len.div_ceil(BLOCK));
            if let Some(last) = state.blocks.get_mut(&(len / BLOCK)) {
                last[(len % BLOCK) as usize..].fill(0);
            }
        }
        state.len = len;
        Ok(())
    }

    fn sync_data(&self) -> Result<(), Error> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), Error> {
        let mut state = self.state.lock();
        for part in BlockParts::of(offset, data.len()) {
            let mut block = self.block(&state, part.block)?;
            block[part.in_block].copy_from_slice(&data[part.in_buffer]);
            state.blocks.insert(part.block, block);
        }
        state.len = state.len.max(offset + data.len() as u64);
        Ok(())
    }
}

/// Iterates over the blocks that a read or write touches.
pub(super) struct BlockParts {
    offset: u64,
    length: usize,
    done: usize,
}

/// The part of a read or write that falls into one block.
pub(super) struct BlockPart {
    pub(super) block: u64,
    pub(super) in_block: std::ops::Range<usize>,
    pub(super) in_buffer: std::ops::Range<usize>,
}

impl BlockParts {
    pub(super) fn of(offset: u64, length: usize) -> Self {
        Self { offset, length, done: 0 }
    }
}

impl Iterator for BlockParts {
    type Item = BlockPart;

    fn next(&mut self) -> Option<BlockPart> {
        let left = self.length - self.done;
        if left == 0 {
            return None;
        }
        let position = self.offset + self.done as u64;
        let begin = (position % BLOCK) as usize;
        let count = left.min(BLOCK as usize - begin);
        let in_buffer = self.done..self.done + count;
        self.done += count;
        Some(BlockPart { block: position / BLOCK, in_block: begin..begin + count, in_buffer })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_dry_run_file_behaves_like_the_file_and_does_not_change_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let content: Vec<u8> = (0..20_000_u32).map(|number| number as u8).collect();
        std::fs::write(&path, &content).unwrap();
        let dry_run = DryRunFile::of(File::open(&path).unwrap()).unwrap();
        let mut expected = content.clone();
        let same = |expected: &[u8]| {
            let mut read = vec![0; expected.len()];
            dry_run.read(0, &mut read).unwrap();
            assert!(read == expected && dry_run.len().unwrap() == expected.len() as u64);
        };
        same(&expected);
        for (offset, length) in [(0, 3), (4_000, 9_000), (19_990, 500), (30_000, 1)] {
            dry_run.write(offset as u64, &vec![0xaa; length]).unwrap();
            expected.resize(expected.len().max(offset + length), 0);
            expected[offset..offset + length].fill(0xaa);
            same(&expected);
        }
        // A truncated part reads as zeros when the file grows again, even where the file itself had data.
        for (short, long) in [(18_000, 25_000), (5_000, 12_288), (4_096, 4_097)] {
            dry_run.set_len(short as u64).unwrap();
            expected.truncate(short);
            same(&expected);
            dry_run.set_len(long as u64).unwrap();
            expected.resize(long, 0);
            same(&expected);
        }
        assert!(dry_run.read(4_090, &mut [0; 8]).is_err(), "beyond the end");
        assert!(std::fs::read(&path).unwrap() == content);
    }
}
