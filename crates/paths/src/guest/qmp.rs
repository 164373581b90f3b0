//! QEMU's monitor, as far as it is needed: which thread a vCPU is, stopping and going on.
//!
//! Source: QEMU documentation, QEMU Machine Protocol specification.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::error::GuestError;

/// How long QEMU may take to connect, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A place where QEMU will connect.
pub(super) struct Waiting(UnixListener);

/// The connected monitor.
#[derive(Debug)]
pub(super) struct Monitor {
    reader: BufReader<UnixStream>,
    writer: UnixStream,
}

impl Waiting {
    pub(super) fn at(path: &Path) -> Result<Waiting, GuestError> {
        let failed = "listening for QEMU's monitor";
        let listener = UnixListener::bind(path).map_err(GuestError::io(failed))?;
        listener.set_nonblocking(true).map_err(GuestError::io(failed))?;
        Ok(Waiting(listener))
    }

    /// Takes the connection, which QEMU makes as it starts. `ended` tells whether it still may.
    pub(super) fn accept(self, ended: impl FnMut() -> bool) -> Result<Monitor, GuestError> {
        let stream = accept(&self.0, PATIENCE, ended, "waiting for QEMU's monitor")?;
        let failed = "setting up QEMU's monitor";
        stream.set_read_timeout(Some(PATIENCE)).map_err(GuestError::io(failed))?;
        let writer = stream.try_clone().map_err(GuestError::io(failed))?;
        let mut monitor = Monitor { reader: BufReader::new(stream), writer };
        // Its greeting comes first; commands are taken after this one.
        monitor.line()?;
        monitor.execute("qmp_capabilities")?;
        Ok(monitor)
    }
}

/// The first connection, in blocking mode.
pub(super) fn accept(
    listener: &UnixListener,
    patience: Duration,
    mut ended: impl FnMut() -> bool,
    doing: &'static str,
) -> Result<UnixStream, GuestError> {
    let begun = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).map_err(GuestError::io(doing))?;
                return Ok(stream);
            }
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => {
                return Err(GuestError::Io { doing, source: error });
            }
            Err(source) if ended() || begun.elapsed() > patience => {
                return Err(GuestError::Io { doing, source });
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

impl Monitor {
    /// Thread of the only vCPU, by the kernel's number.
    pub(super) fn vcpu_thread(&mut self) -> Result<u32, GuestError> {
        let answer = self.execute("query-cpus-fast")?;
        let thread = answer[0]["thread-id"].as_u64().and_then(|id| u32::try_from(id).ok());
        thread.ok_or_else(|| GuestError::Monitor { said: format!("no vCPU in {answer}") })
    }

    /// Stops the machine, its clock included.
    pub(super) fn stop(&mut self) -> Result<(), GuestError> {
        self.execute("stop").map(drop)
    }

    /// Lets it go on.
    pub(super) fn resume(&mut self) -> Result<(), GuestError> {
        self.execute("cont").map(drop)
    }

    fn execute(&mut self, command: &str) -> Result<Value, GuestError> {
        self.ask(&json!({ "execute": command }))
    }

    fn ask(&mut self, command: &Value) -> Result<Value, GuestError> {
        let failed = "writing to QEMU's monitor";
        self.writer.write_all(format!("{command}\n").as_bytes()).map_err(GuestError::io(failed))?;
        loop {
            let mut said = self.line()?;
            if let Some(error) = said.get("error") {
                let words = error["desc"].as_str().unwrap_or("an error without words");
                return Err(GuestError::Monitor { said: words.to_owned() });
            }
            // Between question and answer it may tell of events.
            if let Some(answer) = said.get_mut("return") {
                return Ok(answer.take());
            }
        }
    }

    fn line(&mut self) -> Result<Value, GuestError> {
        let mut line = String::new();
        let failed = "reading from QEMU's monitor";
        let bytes = self.reader.read_line(&mut line).map_err(GuestError::io(failed))?;
        if bytes == 0 {
            return Err(GuestError::Monitor { said: "the connection ended".to_owned() });
        }
        serde_json::from_str(&line)
            .map_err(|error| GuestError::Monitor { said: format!("{error} in {line:?}") })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// A monitor whose other end says these lines.
    fn with(says: &[&str]) -> (Result<u32, GuestError>, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qmp");
        let waiting = Waiting::at(&path).unwrap();
        let says = says.join("\n");
        let qemu = thread::spawn(move || {
            let mut stream = UnixStream::connect(path).unwrap();
            // Our end may have hung up by then.
            let _ = writeln!(stream, "{says}");
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut heard = String::new();
            std::io::Read::read_to_string(&mut stream, &mut heard).unwrap_or_default();
            heard
        });
        let thread = waiting.accept(|| false).and_then(|mut monitor| monitor.vcpu_thread());
        (thread, qemu.join().unwrap())
    }

    #[test]
    fn the_vcpu_s_thread_is_found_among_events() {
        let (thread, heard) = with(&[
            r#"{"QMP": {"version": {}, "capabilities": ["oob"]}}"#,
            r#"{"return": {}}"#,
            r#"{"event": "RESUME", "timestamp": {"seconds": 1, "microseconds": 2}}"#,
            r#"{"return": [{"cpu-index": 0, "thread-id": 4711}]}"#,
        ]);
        assert_eq!(thread.unwrap(), 4711);
        assert!(heard.starts_with("{\"execute\":\"qmp_capabilities\"}\n"), "{heard}");
    }

    #[test]
    fn errors_ends_and_nonsense_are_told_in_its_words() {
        let error = r#"{"error": {"class": "GenericError", "desc": "no such command"}}"#;
        let said = |lines: &[&str]| with(lines).0.unwrap_err().to_string();
        assert!(said(&["{}", r#"{"return": {}}"#, error]).contains("no such command"));
        assert!(said(&["{}", r#"{"return": {}}"#]).contains("the connection ended"));
        assert!(said(&["{}", r#"{"return": {}}"#, r#"{"return": []}"#]).contains("no vCPU"));
        assert!(said(&["hello"]).contains("\"hello"));
    }
}
