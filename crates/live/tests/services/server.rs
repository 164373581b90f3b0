//! A namespace with a server in it, and its clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use host::child::{Child, ChildPlace};
use host::netns::Netns;
use wirepath_live::sources::{MetricSpec, Service, SourceSpec, Sources};

pub(crate) const PORT: u16 = 6390;
/// Index of the loopback in each namespace.
const LOOPBACK: u32 = 1;

/// A server in a namespace that has nothing but a loopback.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) netns: Netns,
}

impl Server {
    /// Starts a server, and waits until it listens. `None` without the right to make a namespace.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Option<Server> {
        let netns = match Netns::new() {
            Ok(netns) => netns,
            Err(why) => {
                testkit::skip("netns", why);
                return None;
            }
        };
        netns.run(|| host::net::set_up(LOOPBACK, true)).unwrap().unwrap();
        let mut command = Command::new(program);
        command.args(arguments);
        let place = ChildPlace { netns: Some(&netns), ..ChildPlace::default() };
        let child = Child::spawn(command, &place).unwrap();
        let server = Server { child, netns };
        let is_ready = testkit::until(testkit::LONG, || server.try_connect().is_some());
        let said = String::from_utf8_lossy(&server.child.stderr_so_far()).into_owned();
        assert!(is_ready, "{program}: {said}");
        Some(server)
    }

    /// A Python program, with [`PORT`] as `PORT`.
    pub(crate) fn python(text: &str) -> Option<Server> {
        if !testkit::is_installed("python3") {
            return None;
        }
        let text = text.replace("PORT", &PORT.to_string());
        Server::start("python3", &["-c", &text])
    }

    fn try_connect(&self) -> Option<TcpStream> {
        self.netns.run(|| TcpStream::connect(("127.0.0.1", PORT))).unwrap().ok()
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = self.try_connect().expect("it listens");
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(testkit::LONG)).unwrap();
        stream
    }

    /// True if all its threads are stopped by a signal.
    pub(crate) fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.pid())).unwrap();
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
        })
    }

    /// Runs a program in the namespace to its end; returns its output.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments);
        let place = ChildPlace { netns: Some(&self.netns), ..ChildPlace::default() };
        let mut child = Child::spawn(command, &place).unwrap();
        let finished = child.wait(testkit::LONG * 2).unwrap().expect("it ends");
        let text = String::from_utf8_lossy(&finished.stdout).into_owned();
        let said = String::from_utf8_lossy(&finished.stderr).into_owned();
        assert!(finished.status.success(), "{program}: {text}{said}");
        text
    }

    /// Sources of the service at the port. `None` without the right to load BPF programs.
    pub(crate) fn sources(&self, metrics: &[&str]) -> Option<Sources> {
        let spec = SourceSpec {
            service: Some(Service::Port(PORT)),
            netns: Some(PathBuf::from(format!("/proc/{}/ns/net", self.child.pid()))),
            metrics: metrics.iter().map(|text| text.parse::<MetricSpec>().unwrap()).collect(),
        };
        let sources = Sources::open(&spec).unwrap();
        if let Some((_, why)) = sources.absent().first() {
            testkit::skip("bpf", why);
            return None;
        }
        Some(sources)
    }
}

/// Place of a judged figure.
pub(crate) fn place(sources: &Sources, name: &str) -> usize {
    let names: Vec<&str> = sources.figures().iter().map(|figure| figure.name.as_str()).collect();
    names.iter().position(|found| *found == name).unwrap_or_else(|| panic!("{name}: {names:?}"))
}

/// Sends a request of one byte, and reads its answer of one byte.
pub(crate) fn ask(client: &mut TcpStream, request: u8) {
    client.write_all(&[request]).unwrap();
    client.read_exact(&mut [0]).unwrap();
}
