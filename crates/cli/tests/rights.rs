//! Capabilities of each command: it runs with those of the table and no others, names a missing one
//! with how to grant it, and drops those that it no longer needs once it is set up. `UPDATE=1` writes
//! docs/internals/rights.md.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::{
    Data, FAR_IP, LONG, NEAR_IP, Running, Spaces, all_text, enter, houses, ip, succeed, until,
};

#[cfg(feature = "feed")]
const GROUP: &str = "239.77.1.9:10000";
/// An unprivileged user.
const USER: &str = "65534";

/// A row of the table.
struct Row {
    command: &'static str,
    /// Required capabilities.
    needs: &'static [&'static str],
    /// Optional capabilities and their use.
    more: &'static str,
    /// Capabilities of its threads once it works, started by root; `None` if it ends by itself or
    /// creates labs as long as it runs.
    keeps: Option<&'static [&'static str]>,
    /// FOLDER is replaced by a folder of the test.
    args: &'static [&'static str],
    /// Message once it works; empty if it ends by itself.
    says: &'static str,
}

const ROWS: &[Row] = &[
    Row {
        command: "history, report, feed decode, feed report, tune plan",
        needs: &[],
        more: "",
        keeps: None,
        args: &["history", "list", "--data-dir", "FOLDER"],
        says: "",
    },
    Row {
        command: "doctor",
        needs: &[],
        more: "CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN: more checks; it says which were left out",
        keeps: None,
        args: &["doctor", "vb"],
        says: "",
    },
    Row {
        command: "serve",
        needs: &[],
        more: "CAP_DAC_OVERRIDE: for results of another user, and kept only then",
        keeps: Some(&[]),
        args: &["serve", "--port", "0", "--data-dir", "FOLDER"],
        says: "until Ctrl-C",
    },
    Row {
        command: "peer",
        needs: &[],
        more: "what the engine that a near end asks for needs, below; CAP_NET_BIND_SERVICE to listen on a port below 1024",
        keeps: Some(&["net_admin", "net_raw", "ipc_lock", "perfmon", "bpf"]),
        args: &["peer", "--listen", "10.77.0.2:7117"],
        says: "listening on ",
    },
    Row {
        command: "probe send, receive, echo, ping",
        needs: &[],
        more: "CAP_NET_ADMIN: receive buffers beyond net.core.rmem_max",
        keeps: Some(&[]),
        args: &["probe", "echo"],
        says: "listening on ",
    },
    Row {
        command: "probe send, receive, echo, ping --packet",
        needs: &["net_raw"],
        more: "",
        keeps: Some(&[]),
        args: &["probe", "echo", "-i", "vb", "--packet"],
        says: "listening on ",
    },
    Row {
        command: "probe send, receive, echo, ping --arm bypass",
        needs: &["net_admin", "net_raw", "perfmon", "bpf"],
        more: "CAP_IPC_LOCK: rings beyond `ulimit -l`",
        keeps: Some(&[]),
        args: &["probe", "echo", "-i", "vb", "--arm", "bypass"],
        says: "listening on ",
    },
    #[cfg(feature = "feed")]
    Row {
        command: "feed listen",
        needs: &[],
        more: "CAP_NET_ADMIN: receive buffers beyond net.core.rmem_max; CAP_SYS_NICE: --fifo; CAP_BPF and CAP_PERFMON: --late",
        keeps: Some(&[]),
        args: &["feed", "listen", GROUP, "-i", "vb"],
        says: "Ctrl-C ends",
    },
    #[cfg(feature = "feed")]
    Row {
        command: "feed listen --engine xdp",
        needs: &["net_admin", "net_raw", "perfmon", "bpf"],
        more: "CAP_IPC_LOCK: rings beyond `ulimit -l`",
        keeps: Some(&[]),
        args: &["feed", "listen", GROUP, "-i", "vb", "--engine", "xdp"],
        says: "Ctrl-C ends",
    },
    #[cfg(feature = "feed")]
    Row {
        command: "feed record",
        needs: &[],
        more: "CAP_NET_RAW: whole frames with the kernel's headers; without it, what sockets receive",
        keeps: Some(&[]),
        args: &["feed", "record", GROUP, "-i", "vb", "FOLDER/cut.pcapng"],
        says: "recording to ",
    },
    #[cfg(feature = "feed")]
    Row {
        command: "feed replay",
        needs: &[],
        more: "",
        keeps: None,
        args: &[
            "feed",
            "replay",
            "--synthetic",
            "--rate",
            "1000",
            "--to",
            GROUP,
            "-i",
            "vb",
            "--time",
            "300ms",
        ],
        says: "",
    },
    Row {
        command: "explain --late --cpu",
        needs: &[],
        more: "CAP_BPF, CAP_PERFMON: causes, which are unknown without",
        keeps: None,
        args: &["explain", "--late", "--cpu", "0", "--time", "100ms"],
        says: "",
    },
    #[cfg(feature = "tunnel")]
    Row {
        command: "tunnel run, engine xdp",
        needs: &["net_admin", "net_raw", "ipc_lock", "perfmon", "bpf"],
        more: "CAP_IPC_LOCK is not needed where `ulimit -l` is 33 MiB or more; CAP_DAC_READ_SEARCH: to read a configuration of another user again",
        keeps: Some(&["dac_read_search"]),
        args: &["tunnel", "run", "FOLDER/xdp.toml"],
        says: "tunnel b: ",
    },
    #[cfg(feature = "tunnel")]
    Row {
        command: "tunnel run, engine packet",
        needs: &["net_raw"],
        more: "CAP_DAC_READ_SEARCH, as above",
        keeps: Some(&["dac_read_search"]),
        args: &["tunnel", "run", "FOLDER/packet.toml"],
        says: "tunnel b: ",
    },
    #[cfg(feature = "tunnel")]
    Row {
        command: "tunnel run, engine tap",
        needs: &["net_admin", "net_raw"],
        more: "CAP_DAC_READ_SEARCH, as above",
        keeps: Some(&["dac_read_search"]),
        args: &["tunnel", "run", "FOLDER/tap.toml"],
        says: "tunnel b: ",
    },
    Row {
        command: "probe generate",
        needs: &["net_admin", "bpf", "perfmon"],
        more: "",
        keeps: Some(&["net_admin", "bpf"]),
        args: &["probe", "generate", "10.77.0.1", "-i", "vb", "--time", "20s"],
        says: "",
    },
    Row {
        command: "explain",
        needs: &["perfmon", "bpf"],
        more: "CAP_SYS_ADMIN: --netns, and counting its own cost; CAP_SYSLOG: names of functions where kptr_restrict hides them; CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH: --pid, and owners of sockets; CAP_NET_ADMIN: rules of the firewall",
        keeps: Some(&["dac_read_search", "net_admin", "sys_ptrace", "sys_admin", "perfmon", "bpf"]),
        args: &["explain", "vb", "--time", "20s"],
        says: "tracing packets",
    },
    Row {
        command: "prove fake",
        needs: &[],
        more: "",
        keeps: None,
        args: &[
            "prove",
            "fake",
            "--arms",
            "fast",
            "--trial",
            "5ms",
            "--max-blocks",
            "6",
            "--data-dir",
            "FOLDER",
        ],
        says: "",
    },
    Row {
        command: "prove probe, prove feed, prove command (labs of their own)",
        needs: &[],
        more: "CAP_SYS_ADMIN and CAP_NET_ADMIN: labs in place of a user namespace, and switches that need rights on the host, unsupported without; CAP_NET_RAW, CAP_BPF and CAP_PERFMON: those with rings and XDP; CAP_SYS_NICE, CAP_IPC_LOCK: fifo, lock-memory",
        keeps: None,
        args: &[
            "prove",
            "probe",
            "--load",
            "ping",
            "--arms",
            "spin",
            "--trial",
            "20ms",
            "--max-blocks",
            "6",
            "--data-dir",
            "FOLDER",
        ],
        says: "",
    },
];

/// Two namespaces, and a world-writable folder with the program in it.
struct Stage {
    spaces: Spaces,
    data: Data,
}

impl Stage {
    fn new() -> Self {
        let stage = Stage { spaces: Spaces::new(), data: Data::new() };
        let far = &stage.spaces.far;
        for veth in [["pa", "hp"], ["xa", "hx"]] {
            let [one, other] = veth;
            let kind = ["type", "veth", "peer", "name", other];
            succeed(ip(&[&["-n", far, "link", "add", one][..], &kind].concat()));
            succeed(ip(&["-n", far, "link", "set", one, "up"]));
            succeed(ip(&["-n", far, "link", "set", other, "up"]));
        }
        // The generator's frames are received only with GRO on.
        succeed(enter(&stage.spaces.near, &["ethtool", "-K", "va", "gro", "on"]));
        for engine in ["xdp", "packet", "tap"] {
            let port = if engine == "tap" { "tap0" } else { "pa" };
            let config = common::tunnel_config(engine, port, ("vb", FAR_IP), NEAR_IP);
            fs::write(stage.data.file(&format!("{engine}.toml")), config).unwrap();
        }
        let built = env!("CARGO_BIN_EXE_wirepath");
        let program = stage.data.file("wirepath");
        // The build folder may be closed to other users.
        fs::hard_link(built, &program).or_else(|_| fs::copy(built, &program).map(drop)).unwrap();
        succeed(plain(&["chmod", "-R", "a+rwX", stage.data.path().to_str().unwrap()]));
        stage
    }

    fn command(&self, before: &[&str], args: &[&str]) -> Command {
        let folder = self.data.path().to_str().unwrap();
        let args: Vec<_> = args.iter().map(|arg| arg.replace("FOLDER", folder)).collect();
        let program = self.data.file("wirepath");
        let mut all = before.to_vec();
        all.push(&program);
        all.extend(args.iter().map(String::as_str));
        let mut command = enter(&self.spaces.far, &all);
        command.env("WIREPATH_LOCKS", folder);
        command.env("HOME", folder).current_dir(folder);
        command
    }

    /// Runs as an unprivileged user with these capabilities.
    fn with(&self, capabilities: &[&str], args: &[&str]) -> Command {
        let set = capabilities.iter().fold("-all".to_owned(), |all, one| format!("{all},+{one}"));
        let id = [format!("--reuid={USER}"), format!("--regid={USER}")];
        let sets = ["bounding-set", "inh-caps", "ambient-caps"].map(|s| format!("--{s}={set}"));
        let mut before = vec!["setpriv", "--clear-groups"];
        before.extend(id.iter().chain(&sets).map(String::as_str));
        self.command(&before, args)
    }

    fn as_root(&self, args: &[&str]) -> Command {
        self.command(&[], args)
    }
}

fn plain(line: &[&str]) -> Command {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]);
    command
}

/// Capabilities by the kernel's number.
const NUMBERS: [(&str, u32); 10] = [
    ("dac_override", 1),
    ("dac_read_search", 2),
    ("net_bind_service", 10),
    ("net_admin", 12),
    ("net_raw", 13),
    ("ipc_lock", 14),
    ("sys_ptrace", 19),
    ("sys_admin", 21),
    ("perfmon", 38),
    ("bpf", 39),
];

/// Permitted capabilities of all threads of a process together, as bits of CapPrm.
fn permitted(pid: u32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks.flatten().fold(0, |all, task| {
        // The thread may have ended.
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let bits = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
        all | bits.map_or(0, |bits| u64::from_str_radix(bits.trim(), 16).unwrap())
    })
}

fn bits(names: &[&str]) -> u64 {
    names
        .iter()
        .map(|name| 1 << NUMBERS.iter().find(|(known, _)| known == name).expect("known").1)
        .sum()
}

fn start(row: &Row, command: Command) -> Running {
    let mut running = Running::start(command);
    let said = || format!("{}{}", running.stdout(), running.stderr());
    let is_on = until(LONG, || said().contains(row.says));
    let text = said();
    assert!(is_on && !running.has_ended(), "{}: {text}", row.command);
    running
}

fn await_rights(row: &Row, running: &Running, wanted: u64) {
    let done = until(LONG, || permitted(running.pid()) == wanted);
    let has = permitted(running.pid());
    assert!(done, "{}: {has:x}, not {wanted:x}: {}", row.command, running.stderr());
}

#[test]
fn each_command_runs_with_exactly_the_capabilities_of_the_table() {
    for row in ROWS {
        let stage = Stage::new();
        let command = stage.with(row.needs, row.args);
        let output = match row.keeps {
            None => Running::start(command).finish(LONG).expect("it ends"),
            Some(keeps) => {
                let running = start(row, command);
                await_rights(row, &running, bits(keeps) & bits(row.needs));
                running.end_by("INT", LONG)
            }
        };
        assert!(output.status.success(), "{}: {}", row.command, all_text(&output));
    }
}

#[test]
fn a_missing_capability_is_named_with_how_to_grant_it() {
    for row in ROWS {
        for missing in row.needs {
            let stage = Stage::new();
            let rest: Vec<_> = row.needs.iter().copied().filter(|one| one != missing).collect();
            let ended = Running::start(stage.with(&rest, row.args)).finish(LONG);
            let what = format!("{} without {missing}", row.command);
            let output = ended.unwrap_or_else(|| panic!("{what} runs"));
            let said = all_text(&output);
            // The ends of a probe run in threads, whose errors are texts.
            let is_probe = row.command.starts_with("probe");
            let code = output.status.code();
            assert!(code == Some(3) || is_probe && code == Some(1), "{what}: {code:?} {said}");
            let name = format!("CAP_{}", missing.to_uppercase());
            assert!(said.contains(&name) && said.contains("setcap"), "{what}: {said}");
        }
    }
}

#[test]
fn unneeded_capabilities_are_dropped_by_root_too() {
    let own = permitted(std::process::id());
    for row in ROWS {
        let Some(keeps) = row.keeps else { continue };
        let stage = Stage::new();
        let running = start(row, stage.as_root(row.args));
        await_rights(row, &running, bits(keeps) & own);
        let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
        assert!(status.contains("NoNewPrivs:\t1"), "{}: {status}", row.command);
        // The peer acts for remote users, so it must hold the least.
        let is_confined = status.contains("Seccomp:\t2");
        assert!(is_confined || row.command != "peer" || cfg!(not(target_arch = "x86_64")));
        let output = running.end_by("INT", LONG);
        assert!(output.status.success(), "{}: {}", row.command, all_text(&output));
    }
}

const HEAD: &str = "\
# Privileges

Capabilities that each command requires from an ordinary user, optional ones with their use, and those that it keeps
once it is set up (started by root). Recorded and checked by `cargo test -p wirepath --test rights` (`UPDATE=1`
records again): each command runs as an ordinary user with exactly these capabilities; without any one of them it
ends with an error that names it and says how to grant it; and the capabilities of its threads are checked while it runs.

`sudo setcap cap_net_raw,cap_net_admin,cap_bpf,cap_perfmon+ep $(command -v wirepath)` grants everything that commands
on existing interfaces need. Labs create network namespaces, which requires CAP_SYS_ADMIN and CAP_NET_ADMIN. `prove`
without them runs in a user namespace of its own, in which the user's id stays the same: programs of the user have no
capabilities there, and switches that need a right on the host are unsupported. Checked by `cargo test -p wirepath --test
unprivileged`. A host that forbids user namespaces is named with its setting and the remedy; Debian's package brings the
AppArmor profile that Ubuntu 24.04 requires. `tunnel measure`, `vmnic`, `guest --tap` and `probe generate --lab` use
rights on the host: run those as root, or as root of a virtual machine.

Commands that drop capabilities also set `no_new_privs`, so that no child gains privileges from its file. `tune apply`
writes files that root owns: run it as root. `prove`, `guest`, `vmnic`, `tune` and `tunnel measure` create labs or
change settings as long as they run, and keep their capabilities.

| Command | Required | Optional | Keeps |
|---|---|---|---|
";

#[test]
fn the_page_matches_the_table() {
    if !houses::are_all_there() {
        return;
    }
    let list = |names: &[&str]| match names {
        [] => "nothing".to_owned(),
        some => {
            let names = some.iter().map(|name| format!("CAP_{}", name.to_uppercase()));
            names.collect::<Vec<_>>().join(", ")
        }
    };
    let mut table = HEAD.to_owned();
    for row in ROWS {
        let keeps = row.keeps.map_or("–".to_owned(), list);
        let more = if row.more.is_empty() { "–" } else { row.more };
        table += &format!("| {} | {} | {more} | {keeps} |\n", row.command, list(row.needs));
    }
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/internals/rights.md");
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        return fs::write(file, table).unwrap();
    }
    assert!(fs::read_to_string(file).is_ok_and(|written| written == table), "run with UPDATE=1");
}
