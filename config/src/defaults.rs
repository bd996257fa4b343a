//! The defaults as a configuration file with a comment per key.

use crate::cache::CacheConfig;
use crate::gateway::GatewayConfig;
use crate::issuer::IssuerConfig;
use crate::load::ProcessKind;
use crate::setting::{Entry, Setting};
use crate::shard::ShardConfig;
use crate::virtual_workspaces::VirtualWorkspacesConfig;

/// A complete configuration of a process with every default, ready to be edited.
pub fn defaults_yaml(kind: ProcessKind) -> String {
    let config: &dyn Setting = match kind {
        ProcessKind::Gateway => &GatewayConfig::default(),
        ProcessKind::Shard => &ShardConfig::default(),
        ProcessKind::Cache => &CacheConfig::default(),
        ProcessKind::Issuer => &IssuerConfig::default(),
        ProcessKind::VirtualWorkspaces => &VirtualWorkspacesConfig::default(),
    };
    let mut out = format!(
        "# Every setting of fairlead's {kind} with its default, which omitted settings have, too.\n\
         # Relative paths are relative to the folder of this file.\n"
    );
    write_entries(&mut out, config.entries().unwrap_or_default(), 0, "");
    out
}

/// `first`, the dash of a list element, replaces the last spaces before the first key.
fn write_entries(out: &mut String, entries: Vec<Entry<'_>>, indent: usize, first: &str) {
    let blanks = " ".repeat(indent);
    for (index, entry) in entries.into_iter().enumerate() {
        if indent == 0 {
            out.push('\n');
        }
        for line in entry.doc {
            out.push_str(&format!("{blanks}#{line}\n"));
        }
        if index == 0 && !first.is_empty() {
            out.push_str(&" ".repeat(indent - first.len()));
            out.push_str(first);
        } else {
            out.push_str(&blanks);
        }
        out.push_str(entry.key);
        out.push(':');
        write_value(out, entry.value, indent);
        if let Some(value) = entry.value.omitted() {
            let mut example = format!("{}:", entry.key);
            write_value(&mut example, value.as_ref(), 0);
            out.extend(example.lines().map(|line| format!("{blanks}# {line}\n")));
        }
    }
}

fn write_value(out: &mut String, value: &dyn Setting, indent: usize) {
    if let Some(entries) = value.entries() {
        out.push('\n');
        return write_entries(out, entries, indent + 2, "");
    }
    let elements = value.elements().unwrap_or_default();
    let structs: Vec<_> = elements.iter().filter_map(|element| element.entries()).collect();
    if structs.is_empty() {
        out.push_str(&format!(" {}\n", value.inline()));
        return;
    }
    out.push('\n');
    for entries in structs {
        write_entries(out, entries, indent + 4, "- ");
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn each_key_has_its_comment() {
        let text = defaults_yaml(ProcessKind::Gateway);
        let start: Vec<&str> = text.lines().take(24).collect();
        expect![[r##"
            # Every setting of fairlead's gateway with its default, which omitted settings have, too.
            # Relative paths are relative to the folder of this file.

            # Listeners. Each has its own address, certificate and authentication.
            listeners:
                # Name in logs and metrics.
              - name: "internal"
                # Address and serving certificate.
                serving:
                  # IP address and port; port 0 selects a free one. Flags: --bind-address, --secure-port.
                  address: "0.0.0.0:6443"
                  # PEM file: the certificate, then its intermediates. Flag: --tls-cert-file.
                  certificate: "tls.crt"
                  # PEM file: the private key of the certificate. Flag: --tls-private-key-file.
                  privateKey: "tls.key"
                # A Unix socket to listen on in place of serving.address, also with TLS. The permissions of its file limit who may
                # connect.
                socket: null
                # socket:
                #   # File of the socket. A stale one is replaced; one that a process listens on is not.
                #   path: "gateway.sock"
                #   # Permissions of the file, octal: users with write permission may connect. Its owner is the user of the process.
                #   mode: "0600"
                # PEM bundle: authorities of client certificates. Without it certificates do not authenticate here."##]].assert_eq(&start.join("\n"));
        for kind in ProcessKind::ALL {
            let text = defaults_yaml(kind);
            let lines: Vec<&str> = text.lines().collect();
            for (above, line) in lines.iter().zip(&lines[1..]) {
                let is_comment = |line: &str| line.trim_start().starts_with('#');
                assert!(is_comment(line) || line.is_empty() || is_comment(above), "{line:?} has no comment");
            }
        }
    }
}
