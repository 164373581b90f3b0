//! Messages to the system's log, for processes without a terminal.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

use report::text::visible;

/// Facility and severity of a message.
///
/// Source: RFC 5424 section 6.2.1; facility 3 is that of daemons.
const DAEMON: u8 = 3 << 3;
const ERROR: u8 = 3;
const NOTICE: u8 = 5;

/// Longest message that every receiver accepts.
///
/// Source: RFC 3164 section 4.1.
const BYTES_MAX: usize = 1024;

/// The log's socket, which journald, rsyslog and others read.
pub(crate) struct Log {
    /// `None` if the machine has no log.
    socket: Option<UnixDatagram>,
    name: &'static str,
}

impl Log {
    /// - `path`: `/dev/log`.
    /// - `name`: program that the log shows.
    pub(crate) fn open(path: &Path, name: &'static str) -> Self {
        Log { socket: connected(path).ok(), name }
    }

    pub(crate) fn error(&self, text: &str) {
        self.send(ERROR, text);
    }

    pub(crate) fn notice(&self, text: &str) {
        self.send(NOTICE, text);
    }

    fn send(&self, severity: u8, text: &str) {
        let Some(socket) = &self.socket else { return };
        // One line: a line break would forge another message.
        let text = visible(text).replace(['\n', '\t'], " ");
        let mut line =
            format!("<{}>{}[{}]: {text}", DAEMON | severity, self.name, std::process::id());
        while line.len() > BYTES_MAX {
            line.pop();
        }
        // There is no other place to report it.
        let _lost = socket.send(line.as_bytes());
    }
}

/// A socket that never blocks: a log that does not read must not hold up a rollback.
fn connected(path: &Path) -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_whatever_its_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let controls = ('\0'..='\x1f').chain('\x7f'..='\u{9f}').collect::<String>();
        Log::open(&path, "guard").error(&format!("\x1b]0;owned\x07{controls}{}", "ñ".repeat(2000)));
        let mut bytes = [0; 4096];
        let len = receiver.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..len]).unwrap();
        let head = format!("<27>guard[{}]: ", std::process::id());
        assert!(text.starts_with(&head) && text.contains(r"\u{1b}]0;owned\u{7}"), "{text}");
        assert!(!text.contains(char::is_control) && len <= BYTES_MAX, "{text}");
        // Without a log nothing is sent, and nothing fails.
        Log::open(&folder.path().join("none"), "guard").notice("x");
    }
}
