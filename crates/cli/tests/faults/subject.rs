//! The commands, each started in its own namespaces and folder.

use std::cell::RefCell;
use std::fmt;
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::OnceLock;

use crate::clock::Clock;
use crate::common::group::{Group, Without};
use crate::common::{
    self, Data, FAR_IP, LONG, NEAR_IP, Running, Spaces, houses, ip, succeed, until,
};

pub(crate) const GROUP: &str = "239.77.1.9:10000";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Peer,
    Echo(&'static [&'static str]),
    Receive,
    Ping(&'static [&'static str]),
    Send,
    Listen,
    Record,
    Replay,
    Tunnel(&'static str),
    Measure,
    Generate,
    /// Path, and an arm that every host supports.
    Prove(&'static str, &'static str),
    Explain,
    Serve,
    Apply,
    TuneProve,
    Guest,
    Vmnic,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Peer => f.write_str("peer"),
            Subject::Echo(engine) => write!(f, "{}", [&["probe echo"], *engine].concat().join(" ")),
            Subject::Receive => f.write_str("probe receive"),
            Subject::Ping(engine) => write!(f, "{}", [&["probe ping"], *engine].concat().join(" ")),
            Subject::Send => f.write_str("probe send"),
            Subject::Listen => f.write_str("feed listen"),
            Subject::Record => f.write_str("feed record"),
            Subject::Replay => f.write_str("feed replay"),
            Subject::Tunnel(engine) => write!(f, "tunnel run (engine {engine})"),
            Subject::Measure => f.write_str("tunnel measure"),
            Subject::Generate => f.write_str("probe generate --lab"),
            Subject::Prove(path, _) => write!(f, "prove {path}"),
            Subject::Explain => f.write_str("explain"),
            Subject::Serve => f.write_str("serve"),
            Subject::Apply => f.write_str("tune apply --confirm-within"),
            Subject::TuneProve => f.write_str("tune prove"),
            Subject::Guest => f.write_str("guest run"),
            Subject::Vmnic => f.write_str("vmnic run"),
        }
    }
}

impl Subject {
    pub(crate) const ALL: [Subject; 26] = [
        Subject::Peer,
        Subject::Echo(&[]),
        Subject::Echo(&["--arm", "bypass"]),
        Subject::Echo(&["--packet"]),
        Subject::Receive,
        Subject::Ping(&[]),
        Subject::Ping(&["--arm", "bypass"]),
        Subject::Send,
        Subject::Listen,
        Subject::Record,
        Subject::Replay,
        Subject::Tunnel("xdp"),
        Subject::Tunnel("packet"),
        Subject::Measure,
        Subject::Generate,
        Subject::Prove("probe", "spin+bypass"),
        Subject::Prove("feed", "spin"),
        Subject::Prove("tunnel", "rps"),
        Subject::Prove("vmnic", "rap-in-kernel"),
        Subject::Prove("guest", "quiet"),
        Subject::Explain,
        Subject::Serve,
        Subject::Apply,
        Subject::TuneProve,
        Subject::Guest,
        Subject::Vmnic,
    ];

    /// True with the name if its interface is in the near namespace; `None` if it creates its own.
    pub(crate) fn link(self) -> Option<(bool, &'static str)> {
        match self {
            Subject::Peer
            | Subject::Echo(_)
            | Subject::Receive
            | Subject::Listen
            | Subject::Record
            | Subject::Explain => Some((false, "vb")),
            Subject::Ping(_)
            | Subject::Send
            | Subject::Replay
            | Subject::Tunnel(_)
            | Subject::Apply
            | Subject::TuneProve => Some((true, "va")),
            Subject::Measure
            | Subject::Generate
            | Subject::Prove(..)
            | Subject::Serve
            | Subject::Guest
            | Subject::Vmnic => None,
        }
    }

    /// True if it writes to disk while it runs.
    pub(crate) fn has_disk(self) -> bool {
        matches!(self, Subject::Record | Subject::Prove(..))
    }

    /// True if the program has it: a command of a house may have been left out.
    pub(crate) fn is_there(self) -> bool {
        match self {
            Subject::Listen | Subject::Record | Subject::Replay | Subject::Prove("feed", _) => {
                houses::FEED
            }
            Subject::Tunnel(_) | Subject::Measure | Subject::Prove("tunnel", _) => houses::TUNNEL,
            Subject::Guest | Subject::Vmnic | Subject::Prove("guest" | "vmnic", _) => houses::VM,
            _ => true,
        }
    }

    /// True if it can be started here; prints the reason if not.
    pub(crate) fn can_run(self) -> bool {
        /// Reason of exit code 3.
        type Missing = OnceLock<Option<String>>;
        static GUEST: Missing = Missing::new();
        static VMNIC: Missing = Missing::new();
        let (need, missing, args): (_, &Missing, &[&str]) = match self {
            Subject::Guest | Subject::Prove("guest", _) => {
                ("qemu-system-aarch64", &GUEST, &["guest", "run", "--time", "1ms"])
            }
            Subject::Vmnic | Subject::Prove("vmnic", _) => {
                ("kvm", &VMNIC, &["vmnic", "run", "--", "true"])
            }
            _ => return true,
        };
        let missing = missing.get_or_init(|| {
            let output = common::run(common::wirepath(args));
            let why = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code() == Some(3)).then_some(why)
        });
        if let Some(why) = missing {
            testkit::skip(need, why);
        }
        missing.is_none()
    }

    /// True if another process of the test answers it.
    pub(crate) fn has_other_end(self) -> bool {
        matches!(self, Subject::Ping(_) | Subject::Send)
    }
}

/// Namespaces and folder in which a command runs.
pub(crate) struct Stage {
    pub(crate) subject: Subject,
    pub(crate) spaces: Spaces,
    pub(crate) data: Data,
    other_end: RefCell<Option<Running>>,
    /// Sender of data for a command that would otherwise have nothing to write.
    traffic: RefCell<Option<Running>>,
    pub(crate) clock: Clock,
    groups: RefCell<Vec<Group>>,
    /// The near namespace, also without its name.
    near: File,
}

impl Stage {
    pub(crate) fn new(subject: Subject) -> Self {
        let (spaces, data) = (Spaces::new(), Data::new());
        let other_end = subject.has_other_end().then(|| spaces.peer(&[]));
        let replay = ["feed", "replay", "--synthetic", "--rate", "5000", "--to", GROUP, "-i", "va"];
        let traffic =
            RefCell::new((subject == Subject::Record).then(|| {
                Running::start(spaces.near(&[&replay[..], &["--time", "300s"]].concat()))
            }));
        if subject == Subject::Serve {
            let quick = ["--trial", "5ms", "--max-blocks", "6"];
            let args = ["prove", "fake", "--arms", "fast"];
            let mut prove = data.wirepath(&[&args[..], &quick].concat());
            prove.env("WIREPATH_LOCKS", data.path());
            succeed(prove);
        }
        let near = File::open(format!("/run/netns/{}", spaces.near)).expect("it is there");
        Stage {
            subject,
            near,
            spaces,
            data,
            other_end: RefCell::new(other_end),
            traffic,
            clock: Clock::new(),
            groups: RefCell::default(),
        }
    }

    /// Starts a command with the stage's clock and its own lock folder.
    fn run(&self, mut command: Command) -> Running {
        self.clock.show_to(&mut command);
        command.env("WIREPATH_LOCKS", self.data.path());
        Running::start(command)
    }

    /// Starts a command in the namespaces of `enter` with a small disk mounted at the stage's folder;
    /// the process id is that of the command.
    fn run_on_disk(&self, enter: Command, args: &[&str]) -> Running {
        let folder = self.data.path().display();
        let mount = format!("mount -t tmpfs -o size=32m none {folder} && exec \"$@\"");
        let program = env!("CARGO_BIN_EXE_wirepath");
        let mut command = enter;
        command.args(["sh", "-c", &mount, "sh", program]).args(args);
        command.env_remove("WIREPATH_DATA");
        self.run(command)
    }

    /// The stage's folder as a command sees it.
    pub(crate) fn folder_of(&self, running: &Running) -> String {
        format!("/proc/{}/root{}", running.pid(), self.data.path().display())
    }

    pub(crate) fn fill_disk(&self, running: &Running) {
        // The command may have ended, and its disk with it.
        let Ok(mut file) = File::create(format!("{}/filler", self.folder_of(running))) else {
            return;
        };
        while file.write_all(&[0; 65536]).is_ok() {}
    }

    pub(crate) fn close_folder(&self) {
        fs::set_permissions(self.data.path(), Permissions::from_mode(0o000)).expect("our folder");
    }

    pub(crate) fn squeeze(&self, running: &Running, without: Without) {
        self.groups.borrow_mut().push(Group::around(running, without));
    }

    /// Starts the command and waits until it works.
    pub(crate) fn start(&self, subject: Subject) -> Running {
        let Stage { spaces, data, .. } = self;
        match subject {
            Subject::Peer => {
                let args = ["peer", "--listen", &format!("{FAR_IP}:7117")];
                let mut peer = self.run(spaces.far(&args));
                peer.await_stderr("listening on ");
                peer
            }
            Subject::Echo(engine) => spaces.listening(
                "echo",
                &[&["-i", "vb", "--json"], engine].concat(),
                |command: &mut Command| self.clock.show_to(command),
            ),
            Subject::Receive => {
                spaces.listening("receive", &["-i", "vb", "--json"], |command: &mut Command| {
                    self.clock.show_to(command)
                })
            }
            Subject::Ping(engine) => {
                let args = ["probe", "ping", FAR_IP, "--json", "--rate", "1000", "--time", "300s"];
                self.near(&[&args[..], engine].concat())
            }
            Subject::Send => {
                self.near(&["probe", "send", FAR_IP, "--json", "--rate", "1000", "--time", "300s"])
            }
            Subject::Listen => {
                let args = ["feed", "listen", GROUP, "-i", "vb", "--json"];
                let mut listen = self.run(spaces.far(&args));
                listen.await_stderr("Ctrl-C ends");
                listen
            }
            Subject::Record => {
                let file = data.file("cut.pcapng");
                let args = ["feed", "record", GROUP, "-i", "vb", &file];
                let mut record = self.run_on_disk(common::enter(&spaces.far, &[]), &args);
                record.await_stderr("recording to ");
                record
            }
            Subject::Replay => {
                let args = ["feed", "replay", "--synthetic", "--rate", "5000", "--to", GROUP];
                let args = [&args[..], &["-i", "va", "--time", "300s", "--json"]].concat();
                let replay = self.run(spaces.near(&args));
                assert!(
                    until(LONG, || {
                        let dir = ["-n", &spaces.far, "-s", "link", "show", "vb"];
                        let text = succeed(ip(&dir));
                        let counts = text.lines().skip_while(|line| !line.contains("RX:")).nth(1);
                        let bytes = counts.and_then(|line| line.split_whitespace().next());
                        bytes.and_then(|b| b.parse::<u64>().ok()).is_some_and(|b| b > 10_000)
                    }),
                    "{}",
                    replay.stderr()
                );
                replay
            }
            Subject::Tunnel(engine) => {
                spaces.add_port();
                let hp = ["-n", &spaces.near, "address", "add", "10.78.0.1/24", "dev", "hp"];
                succeed(ip(&hp));
                let file = data.file("tunnel.toml");
                let config = common::tunnel_config(engine, "pa", ("va", NEAR_IP), FAR_IP);
                fs::write(&file, config).expect("a file");
                let args = ["tunnel", "run", &file, "--json"];
                let mut tunnel = self.run(spaces.near(&args));
                tunnel.await_stderr("tunnel b: ");
                tunnel
            }
            Subject::Measure => {
                let args = ["tunnel", "measure", "--trial", "2s"];
                let measure = self.run(data.wirepath(&args));
                // The sink, both ends of the tunnel, the generator and its counter, loaded last.
                let seen = until(LONG, || measure.holdings().programs.len() >= 5);
                assert!(seen, "{}", measure.stderr());
                measure
            }
            Subject::Generate => {
                let args = ["probe", "generate", "--lab", "--time", "300s"];
                let generate = self.run(common::wirepath(&args));
                let seen = until(LONG, || generate.holdings().programs.len() >= 3);
                assert!(seen, "{}", generate.stderr());
                generate
            }
            Subject::Prove(path, arm) => {
                let args = ["prove", path, "--arms", arm, "--trial", "50ms"];
                let args = [&args[..], &["--time", "300s", "--min-blocks", "100"]].concat();
                let folder = data.path().display().to_string();
                let args = [&args[..], &["--data-dir", &folder]].concat();
                let mut unshare = Command::new("unshare");
                unshare.arg("--mount");
                let prove = self.run_on_disk(unshare, &args);
                self.await_trials(&prove, 9);
                prove
            }
            Subject::Explain => {
                let args = ["explain", "--netns", &spaces.far, "vb", "--time", "300s"];
                let args = [&args[..], &["--duty", "100", "--json"]].concat();
                let mut explain = self.run(common::wirepath(&args));
                explain.await_stderr("tracing packets");
                explain
            }
            Subject::Serve => {
                let serve = self.run(data.wirepath(&["serve", "--port", "0"]));
                let is_on = until(LONG, || serve.stdout().contains("until Ctrl-C"));
                assert!(is_on, "{}", serve.stderr());
                serve
            }
            Subject::Apply => {
                let args = ["tune", "apply", &self.plan(), "--confirm-within", "300s"];
                let mut apply = self.run(self.tune(&args));
                apply.await_stderr("unless `wirepath tune confirm`");
                apply
            }
            Subject::TuneProve => {
                let args = ["tune", "prove", &self.plan(), "--from", &spaces.far, "--load", "ping"];
                let long = ["--time", "300s", "--max-blocks", "200", "--trial", "40ms"];
                let folder = data.path().display().to_string();
                let args = [&args[..], &long, &["--data-dir", &folder]].concat();
                let prove = self.run(self.tune(&args));
                self.await_trials(&prove, 30);
                prove
            }
            Subject::Guest => {
                let mut guest = self.run(common::wirepath(&["guest", "run", "--time", "300s"]));
                let boots = until(LONG, || !guest.stdout().is_empty() || guest.has_ended());
                assert!(boots, "{}", guest.stderr());
                guest
            }
            Subject::Vmnic => {
                let mut vmnic = self.run(common::wirepath(&["vmnic", "run"]));
                vmnic.await_stderr("Ctrl-C ends it");
                vmnic
            }
        }
    }

    /// Waits until a run has stored `count` trials: its warm-up and two blocks.
    fn await_trials(&self, prove: &Running, count: u64) {
        assert!(until(LONG, || self.trial_count(prove) >= count), "{}", prove.stderr());
    }

    /// Trials that a run has stored.
    pub(crate) fn trial_count(&self, prove: &Running) -> u64 {
        let mut list = Command::new("nsenter");
        if matches!(self.subject, Subject::Prove(..)) {
            // SQLite would follow a path through /proc out of the disk's namespace.
            list.arg(format!("--mount=/proc/{}/ns/mnt", prove.pid()));
        }
        list.args([env!("CARGO_BIN_EXE_wirepath"), "history", "list", "--json", "--data-dir"]);
        let output = common::run({
            list.arg(self.data.path());
            list
        });
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        list["experiments"][0]["trials"].as_u64().unwrap_or(0)
    }

    /// A command in the near namespace, also without its name.
    pub(crate) fn near_command(&self, program: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/fd/{}", std::process::id(), self.near.as_raw_fd()));
        command.args(program);
        command
    }

    fn tune(&self, args: &[&str]) -> Command {
        let mut command = common::wirepath(args);
        command.env("WIREPATH_STATE", self.data.file("state"));
        command
    }

    /// A plan for its interface with a setting that no other command changes.
    fn plan(&self) -> String {
        let at = ["--interface", "va", "--netns", &self.spaces.near];
        let plan = ["tune", "plan", "--profile", "forwarding"];
        let plan = succeed(common::wirepath(&[&plan[..], &at].concat()));
        let step = "[[step]]\nknob = \"tx-queue-len\"\ntarget = \"interface va\"\n\
                    seen = \"1000\"\nvalue = \"777\"\nreason = \"a test\"\n";
        let file = self.data.file("plan.toml");
        fs::write(&file, format!("{plan}\n{step}")).expect("a file");
        file
    }

    fn near(&self, args: &[&str]) -> Running {
        let mut near = self.run(self.spaces.near(args));
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

    /// Asserts that remaining interfaces have no program and their original settings, and that the
    /// control group is empty.
    pub(crate) fn assert_clean(&self) {
        self.kill_other_end();
        drop(self.traffic.take());
        drop(self.groups.take());
        if matches!(self.subject, Subject::Apply | Subject::TuneProve) {
            let mut show = self.near_command(&["ip", "link", "show", "va"]);
            assert!(
                until(LONG, &mut || {
                    let shown = show.output().expect("ip").stdout;
                    shown.is_empty() || String::from_utf8_lossy(&shown).contains("qlen 1000")
                }),
                "what was not confirmed stays"
            );
        }
        for (namespace, link) in [(&self.spaces.near, "va"), (&self.spaces.far, "vb")] {
            let has_program = || {
                let shown = ip(&["-n", namespace, "-d", "link", "show", link]).output();
                String::from_utf8_lossy(&shown.expect("ip").stdout).contains("xdp")
            };
            assert!(until(LONG, || !has_program()), "a program is left on {link}");
        }
    }

    /// Replaces names, addresses and progress in a message by placeholders.
    pub(crate) fn without_names(&self, text: &str) -> String {
        let data = self.data.path().display().to_string();
        let text = match text.split_once("packet ") {
            Some((before, rest)) if rest.starts_with(|c: char| c.is_ascii_digit()) => {
                let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
                format!("{before}packet N{rest}")
            }
            _ => text.to_owned(),
        };
        text.replace(FAR_IP, "ADDRESS")
            .replace(&self.spaces.near, "NAMESPACE")
            .replace(&self.spaces.far, "NAMESPACE")
            .replace(&data, "FOLDER")
    }
}
