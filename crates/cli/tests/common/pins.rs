//! An XDP program of another tool with a map of AF_XDP sockets, both pinned.

use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::{Running, enter, is_installed, succeed};

/// A bpffs in a mount namespace of its own, with a program and its map.
pub(crate) struct Pins {
    folder: TempDir,
    /// Holds the mount namespace.
    holder: Running,
}

impl Pins {
    pub(crate) fn new() -> Self {
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
    pub(crate) fn at(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A command that sees the pins.
    pub(crate) fn seen_by(&self, command: &Command) -> Command {
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

    pub(crate) fn bpftool(&self, args: &[&str]) {
        let mut bpftool = Command::new("bpftool");
        bpftool.args(args);
        succeed(self.seen_by(&bpftool));
    }

    /// Attaches the program for as long as the interface lives.
    pub(crate) fn attach(&self, space: &str, link: &str) {
        let prog = self.at("prog");
        let attach = ["bpftool", "net", "attach", "xdp", "pinned", &prog, "dev", link];
        succeed(self.seen_by(&enter(space, &attach)));
    }
}

pub(crate) fn source() -> &'static str {
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/xsk_map/redirect.c")
}

fn piped(mut command: Command) -> Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// True if the test can run here.
pub(crate) fn can_pin() -> bool {
    ["bpftool", "unshare"].into_iter().all(is_installed)
}
