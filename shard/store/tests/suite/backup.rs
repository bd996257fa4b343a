//! What a reader says of a backup that is not as it was written.

use std::io::Read;

use fairlead_store::{
    BackupContent, BackupError, BackupReader, BackupWriter, Ownership, RecordRef, Revision,
};

use crate::contract::backup::{header, show};

/// A backup that was written by hand.
fn small_backup() -> Vec<u8> {
    let header = header(BackupContent::Whole, Revision(40));
    let mut writer = BackupWriter::begin(Vec::new(), &header).unwrap();
    for (revision, key) in (1..).zip(["a", "b", "c", "d"]) {
        let value = format!("the value of {key} {}", "0123456789".repeat(revision as usize));
        let (created, modified) = (Revision(revision), Revision(revision * 10));
        let record = RecordRef { key: key.as_bytes(), value: value.as_bytes(), created, modified };
        writer.write(record, Ownership::Own).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn a_cut_backup_is_told_from_a_whole_one_wherever_it_is_cut() {
    let backup = small_backup();
    show(&backup).unwrap();
    for length in 0..backup.len() {
        let error = show(&backup[..length]).unwrap_err();
        match error {
            BackupError::Foreign => assert!(length < 8, "{length}"),
            BackupError::Cut { .. } => assert!(length >= 8, "{length}"),
            other => panic!("cut at {length}: {other}"),
        }
    }
}

#[test]
fn a_changed_byte_is_found_wherever_it_is() {
    let backup = small_backup();
    for position in 0..backup.len() {
        for bit in [0x01, 0x10, 0x80] {
            let mut bytes = backup.clone();
            bytes[position] ^= bit;
            match show(&bytes) {
                // The magic, and the format version.
                Err(BackupError::Foreign) => assert!(position < 8, "{position}"),
                Err(BackupError::NewerFormat { .. }) => assert!((8..12).contains(&position), "{position}"),
                Err(BackupError::Altered { .. } | BackupError::Cut { .. }) => {}
                other => panic!("byte {position}: {other:?}"),
            }
        }
    }
}

#[test]
fn other_content_has_one_clear_sentence() {
    let backup = small_backup();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = backup.clone();
        change(&mut bytes);
        bytes
    };
    for (bytes, message) in [
        (b"apiVersion: v1\n".to_vec(), "it is not a backup of a shard"),
        (Vec::new(), "it is not a backup of a shard"),
        (
            with(&|bytes| bytes[8] = 2),
            "it has format version 2, this program supports up to 1: use the newer version",
        ),
        (with(&|bytes| bytes[8] = 0), "it was altered: its header is malformed"),
        (with(&|bytes| bytes[15] = 1), "it was altered: its header is malformed"),
        (with(&|bytes| bytes[40] ^= 1), "it was altered: its checksum does not fit its content"),
        (
            with(&|bytes| bytes.truncate(bytes.len() - 1)),
            "it is incomplete: it ends after 4 records without the mark of its end",
        ),
        (with(&|bytes| bytes.push(b'x')), "it was altered: something follows its end"),
        (with(&|bytes| bytes[55] = 9), "it was altered: it has a block of unknown kind 9"),
        (with(&|bytes| bytes[59] = 9), "it was altered: it has a block of an impossible size"),
        (with(&|bytes| bytes[23] = 0x7f), "it was altered: its header is malformed"),
    ] {
        let error = show(&bytes).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_reader_goes_on_failing_after_a_fault() {
    let backup = small_backup();
    for position in 55..backup.len() {
        let mut altered = backup.clone();
        altered[position] ^= 0xff;
        let mut reader = BackupReader::open(&altered[..]).unwrap();
        while let Ok(read) = reader.next_record() {
            assert!(read.is_some(), "{position}");
        }
        for _ in 0..3 {
            assert!(!matches!(reader.next_record(), Ok(None)), "{position}");
        }
    }
}

#[test]
fn an_error_of_the_input_is_no_fault_of_the_backup() {
    struct Broken<'a>(&'a [u8]);
    impl Read for Broken<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                return Err(std::io::Error::from_raw_os_error(5));
            }
            self.0.read(buffer)
        }
    }
    let backup = small_backup();
    for length in [3, 60, backup.len() - 5] {
        let read = BackupReader::open(Broken(&backup[..length])).and_then(|mut reader| {
            while reader.next_record()?.is_some() {}
            Ok(())
        });
        assert!(matches!(read, Err(BackupError::Io(_))), "{length}: {read:?}");
    }
}
