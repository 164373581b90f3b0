//! Linux as a process: a kernel of architecture `um`, whose virtio-net driver finds the card at a socket.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Kernel and modules, of `cargo xtask linux-guest`.
const FOLDER: &str = "../../target/firmware/linux/um";
/// Modules of the driver, in the order in which they are loaded.
const MODULES: [&str; 3] = ["failover.ko", "net_failover.ko", "virtio_net.ko"];
/// Limit for a script on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(240);
/// Line of the guest when its script has ended.
const END: &str = "wirepath-linux: end";

/// Folder of kernel and modules; `None` if they were not built, after a skip.
pub(crate) fn folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    let Ok(folder) = folder.canonicalize() else {
        testkit::skip("linux-guest", format!("no {}: cargo xtask linux-guest", folder.display()));
        return None;
    };
    ["ethtool", "ip", "ping"].iter().all(|program| testkit::is_installed(program)).then_some(folder)
}

/// A guest that runs. Drop ends it.
pub(crate) struct Guest {
    process: Child,
    console: mpsc::Receiver<String>,
}

impl Guest {
    /// Starts the kernel at this socket, with `script` as its init behind the start of the interface. The guest sees
    /// this machine's files, and writes none.
    pub(crate) fn start(folder: &Path, socket: &Path, work: &Path, script: &str) -> Self {
        let init = work.join("init");
        let insmod: String = MODULES
            .map(|module| format!("{0}/busybox insmod {0}/{module}\n", folder.display()))
            .concat();
        let text = format!(
            "#!/bin/bash\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\nmount -t proc proc /proc\n\
             mount -t sysfs sysfs /sys\n{insmod}set -e\nip link set lo up\nip addr add 10.77.0.2/24 dev eth0\n\
             {script}\necho {END}\nwhile :; do sleep 1; done\n"
        );
        fs::write(&init, text).expect("a file of the test");
        Command::new("chmod").arg("+x").arg(&init).status().expect("chmod");
        let device = format!("virtio_uml.device={}:1", socket.display());
        let init = format!("init={}", init.display());
        let process = Command::new(folder.join("linux"))
            .args(["mem=160M", "root=/dev/root", "rootfstype=hostfs", "ro", "quiet"])
            .args(["con=null", "con0=null,fd:1", &device, &init])
            .env("TMPDIR", work)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        let mut process = process.expect("the kernel starts");
        let stdout = process.stdout.take().expect("a pipe");
        let (sender, console) = mpsc::channel();
        // Fails if the test has ended.
        std::thread::spawn(move || sender.send(read(stdout)));
        Guest { process, console }
    }

    /// Waits for the end of the script, and returns its output.
    pub(crate) fn output(&self) -> String {
        self.console.recv_timeout(TIMEOUT).expect("the script ends")
    }
}

/// Reads to the end of the script.
fn read(console: impl Read) -> String {
    let mut said = String::new();
    for line in BufReader::new(console).split(b'\n') {
        let line = line.expect("a console");
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        if line == END {
            break;
        }
        said.push_str(line);
        said.push('\n');
    }
    said
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Its helper processes are of its group.
        let group = format!("-{}", self.process.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.process.wait();
    }
}
