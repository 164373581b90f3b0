//! Work of a command that goes on after a fault, and its books at its end.

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::common::{self, FAR_IP, LONG, Running, books, ip, succeed, until};
use crate::fault::Fault;
use crate::subject::{GROUP, Stage, Subject};

impl Fault {
    /// True if a command that outlives the fault has to work as before.
    fn leaves_service(self, subject: Subject) -> bool {
        match self {
            // Its route is gone.
            Fault::Flap if subject == Subject::Replay => false,
            Fault::Stop | Fault::Flap | Fault::Mtu | Fault::Unname | Fault::Clock => true,
            // Without a descriptor or a thread, no connection is accepted and no trial begins.
            Fault::Descriptors | Fault::Threads => matches!(
                subject,
                Subject::Echo(_)
                    | Subject::Receive
                    | Subject::Ping(_)
                    | Subject::Send
                    | Subject::Listen
                    | Subject::Record
                    | Subject::Replay
                    | Subject::Tunnel(_)
                    | Subject::Apply
            ),
            _ => false,
        }
    }
}

impl Stage {
    /// Asserts that the command still works after these faults.
    pub(crate) fn assert_serves(&self, running: &Running, faults: &[Fault]) {
        let subject = self.subject;
        if !faults.iter().all(|fault| fault.leaves_service(subject)) {
            return;
        }
        let said = || format!("{subject} after {faults:?}: {}", running.stderr());
        match subject {
            Subject::Peer => assert!(self.is_answered(&[]), "{}", said()),
            Subject::Echo(_) => assert!(self.is_answered(&["--no-peer"]), "{}", said()),
            Subject::Receive | Subject::Explain => self.send("9000"),
            Subject::Listen => {
                let args = ["feed", "replay", "--synthetic", "--rate", "2000", "--to", GROUP];
                succeed(self.in_near(&[&args[..], &["-i", "va", "--time", "200ms"]].concat()));
                assert!(
                    until(LONG, || !running.stdout().is_empty()
                        && delivered(&running.stdout()) > 0),
                    "{}",
                    said()
                );
            }
            Subject::Record => {
                let file = format!("{}/cut.pcapng", self.folder_of(running));
                let len = || fs::metadata(&file).map_or(0, |file| file.len());
                let before = len();
                assert!(until(LONG, || len() > before), "{}", said());
            }
            Subject::Tunnel(_) => {
                // Nothing answers; the request for the address goes into the tunnel.
                let before = self.far_received_count();
                let mut ping = self.near_command(&["ping", "-c", "9", "-W", "1", "10.78.0.9"]);
                let mut ping = ping.stdout(Stdio::null()).spawn().expect("ping");
                let is_sent = until(LONG, || self.far_received_count() > before);
                ping.kill().and_then(|()| ping.wait()).expect("our child");
                assert!(is_sent, "{}", said());
            }
            Subject::Ping(_) | Subject::Send | Subject::Replay => {
                let before = self.far_received_count();
                assert!(until(LONG, || self.far_received_count() > before + 10), "{}", said());
            }
            Subject::Prove(..) | Subject::TuneProve => {
                let before = self.trial_count(running);
                assert!(until(LONG, || self.trial_count(running) > before), "{}", said());
            }
            Subject::Serve => {
                let page = books::first_page(&running.stdout());
                assert!(page.starts_with("HTTP/1.1 200"), "{}{page}", said());
            }
            Subject::Apply => {
                let shown = succeed(self.near_command(&["ip", "link", "show", "va"]));
                assert!(shown.contains("qlen 777"), "{}{shown}", said());
            }
            // A lab of their own, without a service that another process can ask for.
            Subject::Measure | Subject::Generate | Subject::Guest | Subject::Vmnic => {}
        }
    }

    /// Asserts that the books of a command that ended with 0 close, and name its work after these faults.
    pub(crate) fn assert_books(&self, output: &Output, faults: &[Fault]) {
        let doc = books::last(&output.stdout);
        let worked = match self.subject {
            Subject::Echo(_) | Subject::Receive | Subject::Ping(_) | Subject::Send => {
                books::probe(&doc)
            }
            Subject::Listen => books::listen(&doc),
            Subject::Tunnel(_) => books::tunnel(&doc),
            Subject::Replay => books::replay(&doc),
            Subject::Explain => books::count(&doc, "packets_count"),
            _ => return,
        };
        let served = faults.iter().all(|fault| fault.leaves_service(self.subject));
        assert!(!served || worked > 0, "{} after {faults:?}: {doc:#}", self.subject);
    }

    /// True if the far end answers pings of the near one, at the latest the eighth time: a link may
    /// just have come up.
    fn is_answered(&self, args: &[&str]) -> bool {
        let ping = [&["probe", "ping", FAR_IP, "-c", "20"], args].concat();
        (0..8).any(|_| common::run(self.in_near(&ping)).status.success())
    }

    /// Sends datagrams to a port of the far end, and waits until its sockets have been read.
    fn send(&self, port: &str) {
        let up = || succeed(ip(&["-n", &self.spaces.near, "link", "show", "va"]));
        assert!(until(LONG, || up().contains("LOWER_UP")), "{}", up());
        let args = ["probe", "send", FAR_IP, "--no-peer", "--port", port, "-c", "100"];
        succeed(self.in_near(&args));
        std::thread::sleep(std::time::Duration::from_millis(200));
    }

    /// The program in the near namespace, also without the namespace's name.
    fn in_near(&self, args: &[&str]) -> Command {
        let mut command = self.near_command(&[&[env!("CARGO_BIN_EXE_wirepath")], args].concat());
        command.env_remove("WIREPATH_DATA").env("WIREPATH_LOCKS", self.data.path());
        command
    }

    /// Packets that arrived at the far interface.
    fn far_received_count(&self) -> u64 {
        let show = ip(&["-n", &self.spaces.far, "-j", "-s", "link", "show", "vb"]);
        let shown: serde_json::Value = serde_json::from_str(&succeed(show)).expect("a document");
        shown[0]["stats64"]["rx"]["packets"].as_u64().unwrap_or(0)
    }
}

/// Messages that a listener has delivered, by its last document so far.
fn delivered(stdout: &str) -> u64 {
    let doc = books::last(stdout.as_bytes());
    doc["delivered_count"].as_u64().unwrap_or(0)
}
