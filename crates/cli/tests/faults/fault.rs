//! Faults that strike a running command.

use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::clock;
use crate::common::group::{Group, Without};
use crate::common::{Running, ip};
use crate::subject::{Stage, Subject};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Interrupt,
    Terminate,
    Kill,
    /// SIGSTOP, then SIGCONT.
    Stop,
    /// Its interface goes down and comes up again.
    Flap,
    /// The MTU of its interface is reduced.
    Mtu,
    /// Its interface is deleted.
    Unplug,
    /// The name of its namespace is deleted.
    Unname,
    /// Its limit of descriptors is reached.
    Descriptors,
    /// Its limit of address space is reached.
    Memory,
    /// The other end is killed.
    Widow,
    /// Its disk is full.
    Disk,
    /// Its files become unreadable.
    Permission,
    /// The wall clock goes a day ahead, then two days back.
    Clock,
    /// Its control group reaches its memory limit.
    Group,
    /// Its control group reaches its thread limit.
    Threads,
}

impl Fault {
    pub(crate) const ALL: [Fault; 16] = [
        Fault::Interrupt,
        Fault::Terminate,
        Fault::Kill,
        Fault::Stop,
        Fault::Flap,
        Fault::Mtu,
        Fault::Unplug,
        Fault::Unname,
        Fault::Descriptors,
        Fault::Memory,
        Fault::Widow,
        Fault::Disk,
        Fault::Permission,
        Fault::Clock,
        Fault::Group,
        Fault::Threads,
    ];

    /// Column title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Fault::Interrupt => "SIGINT",
            Fault::Terminate => "SIGTERM",
            Fault::Kill => "SIGKILL",
            Fault::Stop => "stopped for 1 s",
            Fault::Flap => "link down and up",
            Fault::Mtu => "MTU changed",
            Fault::Unplug => "interface deleted",
            Fault::Unname => "namespace's name deleted",
            Fault::Descriptors => "no descriptors left",
            Fault::Memory => "no address space left",
            Fault::Widow => "other end killed",
            Fault::Disk => "disk full",
            Fault::Permission => "permission lost",
            Fault::Clock => "wall clock set",
            Fault::Group => "control group's memory used up",
            Fault::Threads => "no threads left",
        }
    }

    pub(crate) fn can_strike(self, subject: Subject) -> bool {
        match self {
            Fault::Flap | Fault::Mtu | Fault::Unplug | Fault::Unname => subject.link().is_some(),
            Fault::Widow => subject.has_other_end(),
            Fault::Disk => subject.has_disk(),
            // Only this one drops the capability that overrides permissions.
            Fault::Permission => subject == Subject::Serve,
            Fault::Clock => clock::is_there(),
            Fault::Group => Group::is_there(Without::Memory),
            Fault::Threads => Group::is_there(Without::Threads),
            _ => true,
        }
    }

    /// True if the effect is random: it depends on the next allocation or map, or on whether a trial or
    /// a setting first finds no descriptor or thread.
    pub(crate) fn is_chance(self, subject: Subject) -> bool {
        matches!(self, Fault::Memory | Fault::Group)
            || self == Fault::Descriptors && subject == Subject::Explain
            || matches!(self, Fault::Descriptors | Fault::Threads) && subject == Subject::TuneProve
    }

    pub(crate) fn strike(self, stage: &Stage, running: &Running) {
        let set = |what: &[&str]| {
            if let Some((namespace, link)) = stage.link() {
                let line = ["-n", namespace, "link", "set", "dev", link];
                // An earlier fault may have removed it.
                let _ = ip(&[&line[..], what].concat()).output();
            }
        };
        match self {
            Fault::Interrupt => running.signal("INT"),
            Fault::Terminate => running.signal("TERM"),
            Fault::Kill => running.signal("KILL"),
            Fault::Stop => {
                running.signal("STOP");
                thread::sleep(Duration::from_secs(1));
                running.signal("CONT");
            }
            Fault::Flap => {
                set(&["down"]);
                thread::sleep(Duration::from_millis(100));
                set(&["up"]);
            }
            Fault::Mtu => set(&["mtu", "1300"]),
            Fault::Unplug => {
                if let Some((namespace, link)) = stage.link() {
                    let _ = ip(&["-n", namespace, "link", "delete", link]).output();
                }
            }
            Fault::Unname => stage.unname(),
            Fault::Descriptors => limit(running, "--nofile=3"),
            Fault::Memory => limit(running, "--as=1048576"),
            Fault::Widow => stage.kill_other_end(),
            Fault::Disk => stage.fill_disk(running),
            Fault::Permission => stage.close_folder(),
            Fault::Clock => {
                stage.clock.set(86_400);
                thread::sleep(Duration::from_millis(100));
                stage.clock.set(-86_400);
            }
            Fault::Group => stage.squeeze(running, Without::Memory),
            Fault::Threads => stage.squeeze(running, Without::Threads),
        }
    }
}

fn limit(running: &Running, what: &str) {
    let mut command = Command::new("prlimit");
    command.args(["--pid", &running.pid().to_string(), what]);
    // The command may have ended.
    let _ = command.output().expect("prlimit, of util-linux");
}
