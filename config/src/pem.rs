//! Line numbers of faults in PEM files, which the parsers of certificates and keys do not report.

use std::fmt;
use std::path::{Path, PathBuf};

use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::regular_file::read_regular_file;

/// The first fault of a PEM file, displayed as `file:line: problem`. Never contains key material.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PemFault {
    file: PathBuf,
    /// Line number, from 1.
    line: usize,
    problem: &'static str,
}

/// Extensions of PEM files. Other files are checked only if they have a PEM section.
const EXTENSIONS: [&str; 6] = ["crt", "cert", "cer", "pem", "key", "pub"];

impl PemFault {
    /// `None` if the file cannot be read, is no PEM file, or has no fault that is independent of its use.
    pub fn first_in(file: &Path) -> Option<Self> {
        let text = String::from_utf8(read_regular_file(file)?).ok()?;
        let must_be_pem =
            file.extension().is_some_and(|found| EXTENSIONS.iter().any(|known| *known == found));
        let (line, problem) = first_fault(&text, must_be_pem)?;
        Some(Self { file: file.to_owned(), line, problem })
    }
}

impl fmt::Display for PemFault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file.display(), self.line, self.problem)
    }
}

/// An open section.
struct Section<'a> {
    label: &'a str,
    line: usize,
    /// Offset in the text.
    offset: usize,
}

fn first_fault(text: &str, must_be_pem: bool) -> Option<(usize, &'static str)> {
    let mut open: Option<Section<'_>> = None;
    let mut sections = 0;
    let mut offset = 0;
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        let (line, content) = (index + 1, whole.trim());
        let begins = content.starts_with("-----BEGIN");
        let ends = content.starts_with("-----END");
        match &open {
            None if begins => match label(content, "-----BEGIN ") {
                Some(label) => open = Some(Section { label, line, offset }),
                None => return Some((line, "this line should end in -----")),
            },
            None if ends => return Some((line, "this line ends a section that has not begun")),
            // Text between sections is ignored.
            None => {}
            Some(_) if begins => return Some((line, "the section before this line has no end")),
            Some(section) if ends => {
                if label(content, "-----END ") != Some(section.label) {
                    return Some((line, "this is not the end of the section that has begun"));
                }
                let whole_section = text.get(section.offset..offset + whole.len())?;
                if let Some(problem) = fault_in(section, whole_section) {
                    return Some((section.line, problem));
                }
                sections += 1;
                open = None;
            }
            Some(_) if content.contains("ENCRYPTED") => return Some((line, "encrypted keys cannot be used")),
            Some(_) if !content.chars().all(is_base64) => return Some((line, "this is not base64")),
            Some(_) => {}
        }
        offset += whole.len();
    }
    match open {
        Some(section) => Some((section.line, "this section has no end")),
        None if sections == 0 && must_be_pem => Some((1, "there is no -----BEGIN … in this file")),
        None => None,
    }
}

fn label<'a>(line: &'a str, prefix: &str) -> Option<&'a str> {
    line.strip_prefix(prefix)?.strip_suffix("-----")
}

fn is_base64(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '+' | '/' | '=')
}

fn fault_in(section: &Section<'_>, text: &str) -> Option<&'static str> {
    match section.label {
        "CERTIFICATE" => {
            let Ok(der) = CertificateDer::from_pem_slice(text.as_bytes()) else {
                return Some("this is not base64");
            };
            X509Certificate::from_der(&der).is_err().then_some("this is not a certificate")
        }
        "ENCRYPTED PRIVATE KEY" => Some("encrypted keys cannot be used"),
        "PRIVATE KEY" | "RSA PRIVATE KEY" | "EC PRIVATE KEY" => {
            let Ok(der) = PrivateKeyDer::from_pem_slice(text.as_bytes()) else {
                return Some("this is not base64");
            };
            any_supported_type(&der).is_err().then_some("this is not a private key of a supported kind")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_fault_is_reported_with_its_line() {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let lines = certificate.lines().count();
        let without_end: String =
            certificate.lines().take(lines - 1).map(|line| format!("{line}\n")).collect();
        let swapped = certificate.replacen("MII", "MIX", 1);
        for (text, expected) in [
            (certificate.clone(), None),
            (format!("# a comment\n{certificate}\r\n{key}"), None),
            ("no PEM\n".to_owned(), Some(1)),
            (String::new(), Some(1)),
            (format!("{certificate}{swapped}"), Some(lines + 1)),
            (format!("\n{without_end}"), Some(2)),
            (format!("{without_end}{key}"), Some(lines)),
            (certificate.replacen("\nMII", "\nM!I", 1), Some(2)),
            (certificate.replace("-----END CERTIFICATE", "-----END KEY"), Some(lines)),
            (certificate.replacen("CERTIFICATE-----", "CERTIFICATE", 1), Some(1)),
            ("-----END CERTIFICATE-----".to_owned(), Some(1)),
            (certificate.replace("CERTIFICATE", "PRIVATE KEY"), Some(1)),
            (
                format!("{certificate}-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"),
                Some(lines + 2),
            ),
        ] {
            let found = first_fault(&text, true);
            assert_eq!(found.map(|(line, _)| line), expected, "{found:?} in\n{text}");
        }
    }

    #[test]
    fn other_files_are_not_checked() {
        assert_eq!(first_fault("listeners: []\n", false), None);
        assert_eq!(first_fault("token,user,1,\"group\"\n", false), None);
    }
}
