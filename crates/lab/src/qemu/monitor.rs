//! QEMU's monitor, for pausing and resuming a guest.
//!
//! Source: QEMU documentation, QEMU Machine Protocol specification.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::QemuError;

const REPLY_MAX: Duration = Duration::from_secs(10);

/// A connected monitor.
#[derive(Debug)]
pub struct Monitor {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Monitor {
    /// Reads the greeting and enables commands.
    pub fn open(stream: UnixStream) -> Result<Monitor, QemuError> {
        let doing = "setting up QEMU's monitor";
        stream.set_read_timeout(Some(REPLY_MAX)).map_err(QemuError::io(doing))?;
        let writer = stream.try_clone().map_err(QemuError::io(doing))?;
        let mut monitor = Monitor { reader: BufReader::new(stream), writer };
        monitor.line()?;
        monitor.execute("qmp_capabilities")?;
        Ok(monitor)
    }

    /// Pauses the guest, including its clock.
    pub fn pause(&mut self) -> Result<(), QemuError> {
        self.execute("stop")
    }

    pub fn resume(&mut self) -> Result<(), QemuError> {
        self.execute("cont")
    }

    fn execute(&mut self, command: &str) -> Result<(), QemuError> {
        let request = format!("{}\n", json!({ "execute": command }));
        let doing = "writing to QEMU's monitor";
        self.writer.write_all(request.as_bytes()).map_err(QemuError::io(doing))?;
        loop {
            let reply = self.line()?;
            if let Some(error) = reply.get("error") {
                let text = error["desc"].as_str().unwrap_or("an error without a description");
                return Err(QemuError::Monitor { reply: text.to_owned() });
            }
            // Events may come before the reply.
            if reply.get("return").is_some() {
                return Ok(());
            }
        }
    }

    fn line(&mut self) -> Result<Value, QemuError> {
        let mut line = String::new();
        let doing = "reading from QEMU's monitor";
        let bytes = self.reader.read_line(&mut line).map_err(QemuError::io(doing))?;
        if bytes == 0 {
            return Err(QemuError::Monitor { reply: "the connection ended".to_owned() });
        }
        serde_json::from_str(&line)
            .map_err(|error| QemuError::Monitor { reply: format!("{error} in {line:?}") })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    /// Pauses through a monitor that replies with these lines. Returns the requests, too.
    fn pause(replies: &[&str]) -> (Result<(), QemuError>, String) {
        let (ours, mut qemu) = UnixStream::pair().unwrap();
        writeln!(qemu, "{}", replies.join("\n")).unwrap();
        qemu.shutdown(Shutdown::Write).unwrap();
        let paused = Monitor::open(ours).and_then(|mut monitor| monitor.pause());
        let mut requests = String::new();
        std::io::Read::read_to_string(&mut qemu, &mut requests).unwrap_or_default();
        (paused, requests)
    }

    #[test]
    fn reply_is_found_among_events() {
        let (paused, requests) = pause(&[
            r#"{"QMP": {"version": {}, "capabilities": ["oob"]}}"#,
            r#"{"return": {}}"#,
            r#"{"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 2}}"#,
            r#"{"return": {}}"#,
        ]);
        paused.unwrap();
        assert_eq!(requests, "{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"stop\"}\n");
    }

    fn reported(lines: &[&str]) -> String {
        pause(lines).0.unwrap_err().to_string()
    }

    #[test]
    fn errors_and_invalid_replies_are_reported() {
        let error = r#"{"error": {"class": "GenericError", "desc": "no such command"}}"#;
        assert!(reported(&["{}", r#"{"return": {}}"#, error]).contains("no such command"));
        assert!(reported(&["{}", r#"{"return": {}}"#]).contains("the connection ended"));
        assert!(reported(&["hello"]).contains("\"hello"));
    }
}
