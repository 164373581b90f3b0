//! One QEMU with the firmware in it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::link::Link;

/// How long the firmware may take to get ready.
const READY_MAX: Duration = Duration::from_secs(20);

/// What is to be booted.
#[derive(Debug, Clone)]
pub struct Boot<'a> {
    /// The image.
    pub image: &'a Path,
    /// Names of switches, between commas.
    pub switches: &'a str,
    /// More words for the command line.
    pub more: &'a str,
    /// More arguments for QEMU.
    pub qemu: &'a [&'a str],
}

/// A machine that runs. It is killed when this is dropped, and when this process dies.
pub struct Qemu {
    child: Child,
    folder: TempDir,
    started: Instant,
}

impl Qemu {
    /// Starts QEMU. The network's far end is bound before, so that nothing is lost.
    ///
    /// The console goes to a file, or, if `talks`, over its standard input and output.
    fn spawn(boot: &Boot<'_>, talks: bool) -> Result<(Qemu, UnixDatagram)> {
        let folder = tempfile::tempdir().context("making a folder")?;
        let (near, far) = (folder.path().join("host"), folder.path().join("card"));
        let socket = UnixDatagram::bind(&near).context("binding the near end")?;
        let append = format!("wirepath.switches={} {}", boot.switches, boot.more);
        // The parent-death signal survives exec; so QEMU cannot outlive us, even by kill -9.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "qemu-system-aarch64"])
            .args(["-M", "virt,gic-version=3", "-cpu", "cortex-a57", "-m", "64"])
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"])
            .args(["-global", "virtio-mmio.force-legacy=false"])
            .arg("-serial")
            .arg(if talks {
                "stdio".to_owned()
            } else {
                format!("file:{}", folder.path().join("console").display())
            })
            .arg("-netdev")
            .arg(format!(
                "dgram,id=n,local.type=unix,local.path={},remote.type=unix,remote.path={}",
                far.display(),
                near.display()
            ))
            .args(["-device", "virtio-net-device,netdev=n"])
            .arg("-kernel")
            .arg(boot.image)
            .args(["-append", append.trim()])
            .args(boot.qemu)
            .stdin(if talks { Stdio::piped() } else { Stdio::null() })
            .stdout(if talks { Stdio::piped() } else { Stdio::null() })
            .stderr(Stdio::piped());
        let started = Instant::now();
        let child = command.spawn().context("setpriv (util-linux) or QEMU did not start")?;
        Ok((Qemu { child, folder, started }, socket))
    }

    /// Boots and waits until the firmware has announced its address.
    ///
    /// Returns how long that took from the start of QEMU.
    pub fn boot(boot: &Boot<'_>) -> Result<(Qemu, Link, Duration)> {
        let (mut qemu, socket) = Qemu::spawn(boot, false)?;
        let card = qemu.folder.path().join("card");
        let link = Link::new(socket, card);
        loop {
            if let Some(ready) = link.announcement()? {
                let taken = ready.duration_since(qemu.started);
                return Ok((qemu, link, taken));
            }
            let over = qemu.child.try_wait().context("waiting for QEMU")?.is_some();
            if over || qemu.started.elapsed() > READY_MAX {
                bail!("the firmware did not get ready: {}", qemu.say()?);
            }
        }
    }

    /// Boots something that switches itself off; returns what it printed.
    pub fn run_to_end(boot: &Boot<'_>, at_most: Duration) -> Result<String> {
        let (mut qemu, _socket) = Qemu::spawn(boot, false)?;
        while qemu.child.try_wait().context("waiting for QEMU")?.is_none() {
            if qemu.started.elapsed() > at_most {
                bail!("the firmware did not end: {}", qemu.say()?);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        qemu.say()
    }

    /// Boots, presses keys once the firmware is ready, and returns all that it printed until it
    /// switched itself off: the last key must ask for that.
    pub fn press(boot: &Boot<'_>, keys: &[u8], at_most: Duration) -> Result<String> {
        let (mut qemu, _socket) = Qemu::spawn(boot, true)?;
        let mut stdin = qemu.child.stdin.take().context("its input is a pipe")?;
        let mut stdout = BufReader::new(qemu.child.stdout.take().context("its output is a pipe")?);
        let (keys, (tell, told)) = (keys.to_vec(), mpsc::channel());
        // Reading may take for ever; so it is done aside, and ends when QEMU is killed.
        thread::spawn(move || {
            let mut work = || -> std::io::Result<String> {
                let mut text = String::new();
                while !text.contains("ready") && stdout.read_line(&mut text)? > 0 {}
                stdin.write_all(&keys)?;
                stdout.read_to_string(&mut text)?;
                Ok(text)
            };
            let _ = tell.send(work());
        });
        match told.recv_timeout(at_most) {
            Ok(text) => text.context("talking to the console"),
            Err(_) => bail!("the firmware did not switch itself off"),
        }
    }

    /// All that came over the console, and QEMU's own messages once it has ended.
    pub fn say(&mut self) -> Result<String> {
        let console = self.console_path();
        let mut text = std::fs::read_to_string(&console).unwrap_or_default();
        if self.child.try_wait().context("waiting for QEMU")?.is_some()
            && let Some(mut stderr) = self.child.stderr.take()
        {
            stderr.read_to_string(&mut text).context("reading QEMU's messages")?;
        }
        Ok(text)
    }

    /// Where the console is written to.
    pub fn console_path(&self) -> PathBuf {
        self.folder.path().join("console")
    }

    /// Time that QEMU's main thread has waited for a CPU since it started.
    pub fn main_thread_wait(&self) -> Result<Duration> {
        let pid = self.child.id();
        let path = format!("/proc/{pid}/task/{pid}/schedstat");
        let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
        let waited = text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok());
        Ok(Duration::from_nanos(waited.with_context(|| format!("{path} says {text:?}"))?))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
