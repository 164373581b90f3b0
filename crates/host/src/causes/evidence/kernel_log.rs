//! Messages of the kernel.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use super::Evidence;

/// Most bytes that are read; the kernel's buffer is smaller on most machines.
const BYTES_MAX: usize = 8 << 20;
/// Longest record.
const RECORD_BYTES: usize = 8192;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    /// Time since the kernel's start.
    pub(crate) at: Duration,
    pub(crate) text: String,
}

impl Evidence {
    /// Messages of the kernel that its buffer still has, oldest first.
    ///
    /// Errors: the reason why they cannot be read, such as missing CAP_SYSLOG.
    pub(crate) fn kernel_log(&self) -> Result<&[Message], &str> {
        let log = self.kernel_log.get_or_init(|| {
            read(&self.system.host_path("dev/kmsg"))
                .map_err(|error| format!("cannot read the kernel's log (/dev/kmsg): {error}"))
        });
        log.as_deref().map_err(String::as_str)
    }

    /// Time since the kernel's start, as the messages have it.
    pub(crate) fn uptime(&self) -> Option<Duration> {
        let text = self.system.read_host("proc/uptime").ok()?;
        let seconds: f64 = text.split(' ').next()?.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

fn read(path: &std::path::Path) -> std::io::Result<Vec<Message>> {
    let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let (mut messages, mut left, mut record) = (Vec::new(), BYTES_MAX, [0; RECORD_BYTES]);
    loop {
        match file.read(&mut record) {
            Ok(0) => return Ok(messages),
            Ok(len) if len > left => return Ok(messages),
            Ok(len) => {
                left -= len;
                let text = String::from_utf8_lossy(&record[..len]);
                messages.extend(text.lines().filter_map(parse));
            }
            // Overwritten meanwhile: the next read returns the oldest one that is left.
            Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(messages),
            Err(error) => return Err(error),
        }
    }
}

/// `priority,number,microseconds,flags;text`; `None` for another line, such as a key of the message.
///
/// Source: Documentation/ABI/testing/dev-kmsg.
fn parse(line: &str) -> Option<Message> {
    let (head, text) = line.split_once(';')?;
    let us = head.split(',').nth(2)?.parse().ok()?;
    Some(Message { at: Duration::from_micros(us), text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_time_and_other_lines_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kmsg");
        let text = "6,12,2000000,-;eth0: link down\n SUBSYSTEM=net\nnonsense\n";
        std::fs::write(&file, text).unwrap();
        let wanted = Message { at: Duration::from_secs(2), text: "eth0: link down".to_owned() };
        assert_eq!(read(&file).unwrap(), [wanted]);
        assert!(read(&folder.path().join("none")).is_err());
    }
}
