//! AF_XDP behind an XDP program of another tool, whose map of sockets is pinned (`--xsk-map`).

#[path = "../common/mod.rs"]
mod common;

use std::process::Command;

use common::{FAR_IP, LONG, Running, Spaces, all_text, fail, json, run, succeed};
use tempfile::TempDir;

/// A bpffs in a mount namespace of its own, with a program and its map.
struct Pins {
    folder: TempDir,
    /// Holds the mount namespace.
    holder: Running,
}

impl Pins {
    fn new() -> Self {
        // libbpf replaces dots in the paths of pins.
        let folder = tempfile::Builder::new().prefix("wirepath-pins").tempdir().expect("a folder");
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-c"]).arg(format!(
            "mount --make-rprivate / && mount -t bpf none {} && echo mounted >&2 && exec sleep 600",
            folder.path().display()
        ));
        let mut holder = Running::start(piped(unshare));
        holder.await_stderr("mounted");
        let pins = Pins { folder, holder };
        let (source, object) = (source(), tempfile::NamedTempFile::new().expect("a file"));
        let mut clang = Command::new("clang");
        clang.args(["-target", "bpf", "-O2", "-g", "-c", source, "-o"]).arg(object.path());
        succeed(piped(clang));
        let object = object.path().display().to_string();
        pins.bpftool(&["prog", "load", &object, &pins.at("prog"), "pinmaps", &pins.at("maps")]);
        pins
    }

    /// Path of a pin.
    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A command that sees the pins.
    fn seen_by(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--mount=/proc/{}/ns/mnt", self.holder.pid()));
        inside.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(key, value),
                None => inside.env_remove(key),
            };
        }
        piped(inside)
    }

    fn bpftool(&self, args: &[&str]) {
        let mut bpftool = Command::new("bpftool");
        bpftool.args(args);
        succeed(self.seen_by(&bpftool));
    }

    /// Attaches the program for as long as the interface lives.
    fn attach(&self, space: &str, link: &str) {
        let prog = self.at("prog");
        let attach = ["bpftool", "net", "attach", "xdp", "pinned", &prog, "dev", link];
        succeed(self.seen_by(&common::enter(space, &attach)));
    }
}

fn source() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/xsk_map/redirect.c")
}

fn piped(mut command: Command) -> Command {
    use std::process::Stdio;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// True if the test can run here.
fn can_run() -> bool {
    ["bpftool", "unshare"].into_iter().all(common::is_installed)
}

fn ping(spaces: &Spaces) {
    let ping = ["probe", "ping", FAR_IP, "--no-peer", "-c", "50", "--json"];
    let document = json(spaces.near(&ping));
    assert_eq!(document["deliveries"]["round-trip"]["received_count"], 50, "{document:#}");
}

#[test]
fn an_attached_program_is_used_and_its_map_is_empty_after_every_end() {
    if !can_run() {
        return;
    }
    let spaces = Spaces::new();
    let pins = Pins::new();
    pins.attach(&spaces.far, "vb");
    let map = pins.at("maps/others");
    let echo = ["probe", "echo", "--arm", "bypass", "-i", "vb"];

    let told = fail(pins.seen_by(&spaces.far(&echo)), 1);
    for part in ["already has an XDP program `other` (id ", "map pin id ", "--xsk-map"] {
        assert!(told.contains(part), "{told}");
    }

    let through = [&echo[..], &["--xsk-map", &map, "--json"]].concat();
    let start = || {
        let mut running = Running::start(pins.seen_by(&spaces.far(&through)));
        running.await_stderr("listening on ");
        running
    };
    for signal in ["INT", "TERM", "KILL"] {
        let running = start();
        ping(&spaces);
        let ended = running.end_by(signal, LONG);
        if signal == "KILL" {
            continue;
        }
        let text = all_text(&ended);
        assert!(text.contains("by other (id "), "{text}");
        assert!(text.contains("\"near_xdp_bypassed_count\": 0"), "{text}");
    }
    // Nothing was left in the map: each start took the same entry. The program is as it was.
    let running = start();
    ping(&spaces);
    drop(running);
    assert!(spaces.far_link().contains("prog/xdp"), "{}", spaces.far_link());

    let group = "239.77.1.1:10000";
    let listen = ["feed", "listen", "--group", group, "-i", "vb", "--from-start", "--json"];
    let listen = [&listen[..], &["--engine", "xdp", "--xsk-map", &map]].concat();
    let mut listener = Running::start(pins.seen_by(&spaces.far(&listen)));
    listener.await_stderr("listening");
    let replay = ["feed", "replay", "--synthetic", "--symbols", "5", "--rate", "2000", "-c", "200"];
    succeed(spaces.near(&[&replay[..], &["--to", group, "-i", "va"]].concat()));
    let told = all_text(&listener.end_by("INT", LONG));
    assert!(
        told.contains("\"datagram_count\":200") || told.contains("\"datagram_count\": 200"),
        "{told}"
    );
    assert!(spaces.far_link().contains("prog/xdp"), "{}", spaces.far_link());
}

#[test]
fn a_map_that_cannot_be_used_is_refused_with_the_reason() {
    if !can_run() {
        return;
    }
    let spaces = Spaces::with_queues(3);
    let pins = Pins::new();
    let hash = pins.at("hash");
    let make = ["map", "create", &hash, "type", "hash", "key", "4", "value", "4", "entries", "1"];
    pins.bpftool(&[&make[..], &["name", "h"]].concat());
    let map = pins.at("maps/others");
    let refused = |path: &str, more: &[&str]| {
        let echo = ["probe", "echo", "--arm", "bypass", "-i", "vb", "--xsk-map", path];
        fail(pins.seen_by(&spaces.far(&[&echo[..], more].concat())), 1)
    };
    let none = refused(&map, &[]);
    assert!(none.contains("vb") && none.contains("has no XDP program"), "{none}");
    pins.attach(&spaces.far, "vb");
    let cases = [
        (pins.at("prog"), "is not a map: a program or a link is pinned there"),
        (hash, "is a map of type Hash, not an XSKMAP"),
        (source().into(), "cannot be opened as a pinned map"),
        (pins.at("nothing"), "cannot be opened"),
        (pins.at("maps"), "is not a pinned map"),
    ];
    for (path, why) in cases {
        let told = refused(&path, &[]);
        assert!(told.contains(&path) && told.contains(why), "{told}");
    }
    let told = refused(&map, &["-q", "2"]);
    assert!(told.contains("has 2 entries, none for queue 2"), "{told}");

    // A socket of another interface has the entry.
    pins.attach(&spaces.near, "va");
    let holder = ["probe", "echo", "--arm", "bypass", "-i", "va", "--xsk-map", &map, "-q", "1"];
    let mut holder = Running::start(pins.seen_by(&spaces.near(&holder)));
    holder.await_stderr("listening on ");
    let told = refused(&map, &["-q", "1"]);
    assert!(told.contains("has a socket of another process for queue 1"), "{told}");
    drop(holder);

    for args in [&["--xsk-map", "/x"][..], &["--arm", "bypass+native", "--xsk-map", "/x"]] {
        let output = run(spaces.far(&[&["probe", "echo", "-i", "vb"], args].concat()));
        assert_eq!(output.status.code(), Some(2), "{}", all_text(&output));
    }
}
