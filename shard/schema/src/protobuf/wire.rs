//! The protobuf wire format: tags, varints, fixed numbers, length-delimited bytes.

use super::ProtobufError;

/// The value after a field's tag.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

impl<'a> Payload<'a> {
    pub(super) fn bytes(self) -> Result<&'a [u8], ProtobufError> {
        match self {
            Payload::Bytes(bytes) => Ok(bytes),
            _ => Err(ProtobufError::Malformed("a length-delimited field has another wire type")),
        }
    }

    /// Validates UTF-8, because JSON cannot represent other bytes.
    pub(super) fn text(self) -> Result<&'a str, ProtobufError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ProtobufError::Malformed("a string is not UTF-8"))
    }

    /// Negative numbers are sign-extended to ten bytes on the wire, so the bits are reinterpreted.
    pub(super) fn integer(self) -> Result<i64, ProtobufError> {
        match self {
            Payload::Varint(number) => Ok(number.cast_signed()),
            _ => Err(ProtobufError::Malformed("an integer field has another wire type")),
        }
    }

    pub(super) fn double(self) -> Result<f64, ProtobufError> {
        match self {
            Payload::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(ProtobufError::Malformed("a double field has another wire type")),
        }
    }
}

/// A cursor over the fields of one message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field's number and payload; `None` at the end of the message.
    pub(super) fn next_field(&mut self) -> Result<Option<(u32, Payload<'a>)>, ProtobufError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|number| (1..1 << 29).contains(number));
        let number = number.ok_or(ProtobufError::Malformed("a field number is out of range"))?;
        let payload = match tag & 7 {
            0 => Payload::Varint(self.varint()?),
            1 => Payload::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.varint()?).unwrap_or(usize::MAX);
                Payload::Bytes(self.take(length)?)
            }
            5 => Payload::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(ProtobufError::Malformed("an unknown wire type")),
        };
        Ok(Some((number, payload)))
    }

    fn varint(&mut self) -> Result<u64, ProtobufError> {
        let mut number = 0u64;
        for (index, &byte) in self.rest.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if index == 9 && bits > 1 {
                return Err(ProtobufError::Malformed("a varint overflows 64 bits"));
            }
            number |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[index + 1..];
                return Ok(number);
            }
        }
        Err(ProtobufError::Malformed("a varint does not end"))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(ProtobufError::Malformed("the body ends inside a field"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ProtobufError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(ProtobufError::Malformed("the body ends inside a field"))?;
        self.rest = rest;
        Ok(*taken)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn broken_wire_data_is_refused() {
        for (case, bytes) in [
            ("tag without payload", &[0x08][..]),
            ("field number zero", &[0x00, 0x01]),
            ("endless varint", &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            ("varint of 65 bits", &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]),
            ("length beyond the end", &[0x0a, 0x05, 0x61]),
            ("huge length", &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            ("start of a group", &[0x0b]),
            ("short fixed64", &[0x09, 1, 2, 3]),
            ("short fixed32", &[0x0d, 1, 2, 3]),
        ] {
            let result = Reader::new(bytes).next_field();
            assert!(matches!(result, Err(ProtobufError::Malformed(_))), "{case}: {result:?}");
        }
    }

    #[test]
    fn every_wire_type_is_read() {
        let bytes = [0x08, 0x96, 0x01, 0x12, 0x01, b'a', 0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0x25, 2, 0, 0, 0];
        let mut reader = Reader::new(&bytes);
        let mut seen = Vec::new();
        while let Some(field) = reader.next_field().unwrap() {
            seen.push(field);
        }
        assert_eq!(
            seen,
            [
                (1, Payload::Varint(150)),
                (2, Payload::Bytes(b"a")),
                (3, Payload::Fixed64(1)),
                (4, Payload::Fixed32(2))
            ]
        );
    }
}
