//! Configuration of nats-server: two accounts, and rights for each host.
//!
//! Streams are in account CORE, agents in AGENTS. The broker writes its answer to the reply subject of a message
//! and does not check whether the sender may publish there: in one account, an agent could replace the job of
//! another host. Between accounts the answer stays in AGENTS, where nothing is stored.

use super::Fleet;
use crate::nats::subjects::{self, Opened};

/// Largest message of the broker: [`MESSAGE_MAX`](crate::message::MESSAGE_MAX) and its headers.
const PAYLOAD_MAX: usize = crate::message::MESSAGE_MAX + 16 * 1024;

/// Text of `nats.conf`.
///
/// - `certificate`: files of the broker's certificate and its key; without them, connections are not encrypted.
pub fn configuration(fleet: &Fleet, certificate: Option<(&str, &str)>) -> String {
    let opened = subjects::opened();
    let export =
        |of: &Opened| format!("      {{ service: \"{}\", accounts: [AGENTS] }}\n", of.core);
    let exports: String = opened.iter().map(export).collect();
    let import = |of: &Opened| {
        format!(
            "      {{ service: {{ account: CORE, subject: \"{}\" }}, to: \"{}\" }}\n",
            of.core, of.agent
        )
    };
    let imports: String = opened.iter().map(import).collect();
    let mut users = String::new();
    for (host, keys) in &fleet.hosts {
        let publish = subjects::host_subjects(host);
        users.push_str(&format!(
            "      # {host}\n      {{ nkey: {}, permissions: {{ publish: \"{publish}\", subscribe: [\"wp.job.{host}\", \"_INBOX_{host}.>\"] }} }}\n",
            keys.login
        ));
    }
    let tls = certificate.map_or(String::new(), |(cert, key)| {
        format!("tls {{ cert_file: {}, key_file: {} }}\n", quoted(cert), quoted(key))
    });
    format!(
        "# Written by `wirepath fleet init`, which replaces it. nats-server 2.11 or later:
#   nats-server -c nats.conf -js -sd STORE
# Other settings (cluster, limits, listen) belong in a file that includes this one.
max_payload: {PAYLOAD_MAX}
max_subscriptions: 16384
{tls}accounts {{
  CORE {{
    jetstream: enabled
    users: [
      {{ nkey: {core} }}
    ]
    exports: [
      {{ stream: \"wp.job.*\", accounts: [AGENTS] }}
{exports}    ]
  }}
  AGENTS {{
    imports: [
      {{ stream: {{ account: CORE, subject: \"wp.job.*\" }} }}
{imports}    ]
    users: [
{users}    ]
  }}
}}
",
        core = fleet.coordinator.login,
    )
}

/// A path in quotes: it cannot end them or its line.
///
/// Source: nats-server, conf/lex.go, `lexStringEscape`.
fn quoted(path: &str) -> String {
    let mut text = String::from("\"");
    for c in path.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c.is_control() && c.is_ascii() => {
                text.push_str(&format!("\\x{:02x}", u32::from(c)))
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}
