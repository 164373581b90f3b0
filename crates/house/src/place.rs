//! Arguments that name a journal or a host; `doctor` and `tunnel check` take them, too.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use host::tune::{self, JournalStore, Phase, Place, System};
use remote::Failure;
use runner::JournalFolder;

use crate::console;
use crate::next::CommandLine;

/// Environment variable of `--state`.
pub const STATE_VARIABLE: &str = "WIREPATH_STATE";
/// Environment variable of `--root`.
pub const ROOT_VARIABLE: &str = "WIREPATH_ROOT";

/// Folder of journals, and for tests a replacement of `/`.
#[derive(Debug, Args)]
pub struct StateArgs {
    /// Folder of the journal
    #[arg(long, global = true, value_name = "DIR", env = STATE_VARIABLE,
          default_value = tune::DEFAULT_FOLDER)]
    pub state: PathBuf,
    /// Folder that replaces / for machine-wide settings
    #[arg(long, global = true, value_name = "DIR", env = ROOT_VARIABLE, hide = true)]
    pub root: Option<PathBuf>,
}

impl StateArgs {
    pub fn store(&self) -> JournalStore {
        JournalStore::new(&self.state)
    }

    /// Its folders as a run needs them.
    pub fn journal(&self) -> JournalFolder {
        JournalFolder { folder: self.state.clone(), root: self.root.clone() }
    }

    /// A command line for the same journal.
    pub fn given_to(&self, line: CommandLine) -> CommandLine {
        let state = self.state.as_path();
        let is_implied = state == Path::new(tune::DEFAULT_FOLDER)
            || std::env::var_os(STATE_VARIABLE).is_some_and(|given| state == Path::new(&given));
        let given = state.to_string_lossy();
        line.option("--state", (!is_implied).then_some(&given))
    }

    /// A path of the host, such as `dev/log`.
    pub fn host_path(&self, path: &str) -> PathBuf {
        self.root.as_deref().unwrap_or(Path::new("/")).join(path)
    }
}

/// Interface and namespace to examine, with the interface as an argument.
#[derive(Debug, Args)]
pub struct ExamineArgs {
    /// Interface; default: all
    #[arg(value_name = "INTERFACE")]
    interface: Option<String>,
    /// Network namespace: a name in /run/netns, the id of a process in it, or a file
    #[arg(long, value_name = "NAME|PID|FILE")]
    netns: Option<String>,
}

impl ExamineArgs {
    pub fn place(&self) -> PlaceArgs {
        PlaceArgs { interface: self.interface.clone(), netns: self.netns.clone() }
    }
}

/// Interface and namespace of a command that has other arguments.
#[derive(Debug, Args)]
pub struct PlaceArgs {
    /// Interface
    #[arg(short = 'i', long, value_name = "IF")]
    pub interface: Option<String>,
    /// Network namespace: a name in /run/netns, the id of a process in it, or a file
    #[arg(long, value_name = "NAME|PID|FILE")]
    pub netns: Option<String>,
}

impl PlaceArgs {
    pub fn title(&self) -> String {
        let what = self.interface.as_deref().unwrap_or("all interfaces");
        let of = self.netns.as_ref().map_or(String::new(), |name| format!(" of namespace {name}"));
        format!("{what}{of}")
    }

    pub fn open(&self, state: &StateArgs) -> Result<System, Failure> {
        let place = Place { netns: self.netns.clone(), root: state.root.clone() };
        let system = System::open(&place)?;
        if let Some(interface) = &self.interface {
            system.index(interface)?;
        }
        Ok(system)
    }
}

/// Warns if a process was killed while it changed settings.
pub fn notice(state: &StateArgs) {
    let store = state.store();
    match store.read() {
        Ok(Some(journal)) => {
            let is_midway =
                matches!(journal.phase, Phase::Unchanged | Phase::Applying | Phase::RollingBack);
            // The process that waited for the confirmation is gone.
            let is_alone = !Path::new(&format!("/proc/{}", journal.header.pid)).exists();
            let is_late = matches!(
                journal.phase,
                Phase::Applied(Some(by_ms)) if is_alone || by_ms < tune::boot_clock_ms()
            );
            // A process that is still working holds the lock.
            if (is_midway || is_late) && store.lock_within(Duration::ZERO).is_ok() {
                console::say(&format!(
                    "note: process {} was ended while its changes were unconfirmed; \
                     `wirepath tune rollback` restores the earlier values",
                    journal.header.pid
                ));
            }
        }
        Ok(None) => {}
        // Root's own.
        Err(error) if error.is_denied() => {}
        Err(error) => console::say(&format!("note: {}", host::text::chain(&error))),
    }
}
