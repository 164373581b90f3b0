//! A guest whose console is read all the time: its log is the evidence of a loss, and its key `d` prints
//! counters and trace when its card is silent.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::series::Loss;
use wirepath_guest::link::GuestLink;
use wirepath_guest::qemu::{Boot, GuestMachine};

const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of a dump on the console.
const DUMP_TIMEOUT: Duration = Duration::from_secs(5);
/// Latest part of the log that is kept. A dump is a tenth of it.
const LOG_BYTES_MAX: usize = 256 << 10;

pub(crate) struct Watched {
    pub(crate) machine: GuestMachine,
    pub(crate) link: GuestLink,
    console: UnixStream,
    log: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Watched {
    /// Starts a guest on a pair of sockets; it is not ready yet.
    pub(crate) fn start(boot: &Boot) -> Watched {
        let (machine, console, link) =
            GuestMachine::start_with_console(boot, None).expect("it starts");
        let link = link.expect("a pair of sockets");
        link.connect().expect("QEMU runs");
        let log = Arc::new(Mutex::new(Vec::new()));
        let (mut stream, kept) = (console.try_clone().expect("a descriptor"), log.clone());
        let reader = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(len @ 1..) = stream.read(&mut part) {
                let mut log = kept.lock().unwrap_or_else(PoisonError::into_inner);
                log.extend_from_slice(&part[..len]);
                let excess = log.len().saturating_sub(LOG_BYTES_MAX);
                log.drain(..excess);
            }
        });
        Watched { machine, link, console, log, reader: Some(reader) }
    }

    fn log(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Waits until the guest prints that it is ready.
    pub(crate) fn await_ready(&mut self) -> Result<(), Loss> {
        let is_ready =
            testkit::until(READY_TIMEOUT, || self.log().contains("wirepath-guest ready"));
        if is_ready { Ok(()) } else { Err(self.lost("the guest did not get ready")) }
    }

    /// A loss of one request, with the guest's log, its counters and its trace.
    pub(crate) fn lost(&mut self, why: impl std::fmt::Display) -> Loss {
        // Fails if QEMU has ended, which its own messages tell.
        let _ = self.console.write_all(b"d");
        let mut before = usize::MAX;
        // A dump is over when nothing more is printed.
        testkit::until(DUMP_TIMEOUT, || {
            std::thread::sleep(Duration::from_millis(200));
            let now = self.log().len();
            std::mem::replace(&mut before, now) == now
        });
        let evidence = format!("{why}\n{}\n{}", self.log(), self.machine.said());
        Loss { answered_count: 0, lost_count: 1, evidence }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // Ends the reader, which QEMU's end would too, but later.
        let _ = self.console.shutdown(std::net::Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
