//! The commands, each started in a place of its own.

use std::cell::RefCell;
use std::fmt;
use std::fs;

use crate::common::{self, Data, FAR_IP, LONG, NEAR_IP, Running, Spaces, ip, succeed, until};

const GROUP: &str = "239.77.1.9:10000";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Peer,
    Echo(&'static str),
    Ping(&'static str),
    Send,
    Listen,
    Record,
    Replay,
    Tunnel(&'static str),
    Generate,
    Prove,
    Explain,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Peer => f.write_str("peer"),
            Subject::Echo(engine) => write!(f, "probe echo --engine {engine}"),
            Subject::Ping(engine) => write!(f, "probe ping --engine {engine}"),
            Subject::Send => f.write_str("probe send"),
            Subject::Listen => f.write_str("feed listen"),
            Subject::Record => f.write_str("feed record"),
            Subject::Replay => f.write_str("feed replay"),
            Subject::Tunnel(engine) => write!(f, "tunnel run (engine {engine})"),
            Subject::Generate => f.write_str("probe generate --lab"),
            Subject::Prove => f.write_str("prove probe"),
            Subject::Explain => f.write_str("explain"),
        }
    }
}

impl Subject {
    pub(crate) const ALL: [Subject; 15] = [
        Subject::Peer,
        Subject::Echo("udp"),
        Subject::Echo("xdp"),
        Subject::Echo("packet"),
        Subject::Ping("udp"),
        Subject::Ping("xdp"),
        Subject::Send,
        Subject::Listen,
        Subject::Record,
        Subject::Replay,
        Subject::Tunnel("xdp"),
        Subject::Tunnel("packet"),
        Subject::Generate,
        Subject::Prove,
        Subject::Explain,
    ];

    /// Its interface, and whether that is in the near namespace; `None` when it makes its own.
    pub(crate) fn link(self) -> Option<(bool, &'static str)> {
        match self {
            Subject::Peer | Subject::Echo(_) | Subject::Listen | Subject::Record => {
                Some((false, "vb"))
            }
            Subject::Ping(_) | Subject::Send | Subject::Replay | Subject::Tunnel(_) => {
                Some((true, "va"))
            }
            Subject::Explain => Some((false, "vb")),
            Subject::Generate | Subject::Prove => None,
        }
    }

    /// Whether another process of ours answers it.
    pub(crate) fn has_other_end(self) -> bool {
        matches!(self, Subject::Ping(_) | Subject::Send)
    }
}

/// Where a command runs.
pub(crate) struct Stage {
    subject: Subject,
    spaces: Spaces,
    data: Data,
    other_end: RefCell<Option<Running>>,
}

impl Stage {
    pub(crate) fn new(subject: Subject) -> Self {
        let (spaces, data) = (Spaces::new(), Data::new());
        let other_end = subject.has_other_end().then(|| spaces.peer(&[]));
        Stage { subject, spaces, data, other_end: RefCell::new(other_end) }
    }

    /// Starts the command and waits until it is at work.
    pub(crate) fn start(&self, subject: Subject) -> Running {
        let Stage { spaces, data, .. } = self;
        match subject {
            Subject::Peer => spaces.peer(&[]),
            Subject::Echo(engine) => spaces.echo(&["-i", "vb", "--engine", engine]),
            Subject::Ping(engine) => {
                let args = ["probe", "ping", FAR_IP, "--rate", "1000", "-d", "300s"];
                self.near(&[&args[..], &["--engine", engine]].concat())
            }
            Subject::Send => self.near(&["probe", "send", FAR_IP, "--rate", "1000", "-d", "300s"]),
            Subject::Listen => {
                let args = ["feed", "listen", "--group", GROUP, "-i", "vb", "--json"];
                let mut listen = Running::start(spaces.far(&args));
                listen.await_stderr("Ctrl-C ends");
                listen
            }
            Subject::Record => {
                let file = data.file("cut.pcapng");
                let args = ["feed", "record", "--group", GROUP, "-i", "vb", &file];
                let mut record = Running::start(spaces.far(&args));
                record.await_stderr("recording to ");
                record
            }
            Subject::Replay => {
                let args = ["feed", "replay", "--synthetic", "--rate", "5000", "--to", GROUP];
                let args = [&args[..], &["-i", "va", "-d", "300s"]].concat();
                let replay = Running::start(spaces.near(&args));
                let sent = || {
                    let dir = ["-n", &spaces.far, "-s", "link", "show", "vb"];
                    let text = succeed(ip(&dir));
                    let counts = text.lines().skip_while(|line| !line.contains("RX:")).nth(1);
                    let bytes = counts.and_then(|line| line.split_whitespace().next());
                    bytes.and_then(|b| b.parse::<u64>().ok()).is_some_and(|b| b > 10_000)
                };
                assert!(until(LONG, sent), "{}", replay.stderr());
                replay
            }
            Subject::Tunnel(engine) => {
                let near = &spaces.near;
                let veth = ["-n", near, "link", "add", "pa", "type", "veth", "peer", "name", "hp"];
                succeed(ip(&veth));
                for args in [&["pa", "mtu", "1400", "up"][..], &["hp", "mtu", "1400", "up"]] {
                    succeed(ip(&[&["-n", near, "link", "set"][..], args].concat()));
                }
                let file = data.file("tunnel.toml");
                let config = format!(
                    "workers = 2\nengine = \"{engine}\"\n\
                     [port]\ninterface = \"pa\"\nmtu = 1400\n\
                     [underlay]\ninterface = \"va\"\naddress = \"{NEAR_IP}\"\nmtu = 1500\n\
                     [[tunnel]]\nname = \"b\"\ncarrier = \"vxlan\"\nvni = 42\n\
                     remote = \"{FAR_IP}\"\n"
                );
                fs::write(&file, config).expect("a file");
                let args = ["tunnel", "run", "--config", &file];
                let mut tunnel = Running::start(spaces.near(&args));
                tunnel.await_stderr("tunnel b: ");
                tunnel
            }
            Subject::Generate => {
                let args = ["probe", "generate", "--lab", "-d", "300s"];
                let generate = Running::start(common::wirepath(&args));
                let seen = until(LONG, || generate.holdings().programs.len() >= 3);
                assert!(seen, "{}", generate.stderr());
                generate
            }
            Subject::Prove => {
                let args = ["prove", "probe", "--load", "ping", "--arms", "spin+bypass"];
                let args = [&args[..], &["--time", "300s", "--min-blocks", "100"]].concat();
                let prove = Running::start(data.wirepath(&args));
                // The warm-up and two blocks.
                let saved = until(LONG, || data.trial_count() >= 9);
                assert!(saved, "{}", prove.stderr());
                prove
            }
            Subject::Explain => {
                let args = ["explain", "--netns", &spaces.far, "-i", "vb", "-d", "300s"];
                let mut explain = Running::start(common::wirepath(&args));
                explain.await_stderr("following packets");
                explain
            }
        }
    }

    fn near(&self, args: &[&str]) -> Running {
        let mut near = Running::start(self.spaces.near(args));
        near.await_stderr("peer at ");
        let other_end = self.other_end.borrow();
        let peer = other_end.as_ref().expect("it was started");
        assert!(until(LONG, || peer.stderr().contains("payloads")), "{}", near.stderr());
        near
    }

    /// Namespace and name of its interface.
    pub(crate) fn link(&self) -> Option<(&str, &'static str)> {
        let (is_near, link) = self.subject.link()?;
        Some((if is_near { &self.spaces.near } else { &self.spaces.far }, link))
    }

    pub(crate) fn unname(&self) {
        if let Some((namespace, _)) = self.link() {
            let _ = ip(&["netns", "delete", namespace]).output();
        }
    }

    pub(crate) fn kill_other_end(&self) {
        if let Some(other_end) = self.other_end.borrow_mut().take() {
            other_end.end_by("KILL", LONG);
        }
    }

    /// Asserts that the interfaces, where they are still there, carry no program.
    pub(crate) fn assert_clean(&self) {
        self.kill_other_end();
        for (namespace, link) in [(&self.spaces.near, "va"), (&self.spaces.far, "vb")] {
            let has_program = || {
                let shown = ip(&["-n", namespace, "-d", "link", "show", link]).output();
                String::from_utf8_lossy(&shown.expect("ip").stdout).contains("xdp")
            };
            assert!(until(LONG, || !has_program()), "a program is left on {link}");
        }
    }

    /// A sentence of the command's without the names and addresses that this stage gave.
    pub(crate) fn without_names(&self, text: &str) -> String {
        let data = self.data.path().display().to_string();
        text.replace(FAR_IP, "ADDRESS")
            .replace(&self.spaces.near, "NAMESPACE")
            .replace(&self.spaces.far, "NAMESPACE")
            .replace(&data, "FOLDER")
    }
}
