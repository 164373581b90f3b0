//! A far end on another host, started by the OpenSSH client.
//!
//! One session does everything, so there is one authentication, and no master connection to end. A script
//! reports the platform, the address and the installed version; then the shell becomes the far end. A program
//! that had to be copied has no name from before its first byte, so nothing of it stays however the session
//! ends.

use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lab::{FarEnd, SshHost};
use sys::child::ChildPlace;
use sys::thread::start as start_thread;

use super::{FarHost, FarOptions, START_TIMEOUT, Started, clean, random_secret};
use crate::RemoteError;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// First line of the script; login scripts may print others before it.
const MARK: &str = "wirepath-far";
/// Maximum number of lines before the mark.
const BANNER_LINES_MAX: usize = 1000;
/// Time limit of the connection, which may pass several hosts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for the copy of the program.
const COPY_TIMEOUT: Duration = Duration::from_secs(300);

/// Set before those of the user, because the first value counts.
const CLIENT_OPTIONS: [&str; 9] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    // A master connection would be another process, which may outlive this one.
    "ControlMaster=no",
    "ControlPath=none",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    // An end that does not answer for 15 s is gone.
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
];

/// Runs at the far end, in any login shell: it has no single quote, backslash, exclamation mark or line
/// break.
///
/// Its arguments come by `read`, so no text of the near end is ever parsed by a shell. Descriptor 4 is the
/// copied file, whose name is removed before it is written. A copy on a file system without execution fails
/// at `exec`.
const SCRIPT: &str = concat!(
    "echo wirepath-far; uname -sm; echo \"$SSH_CONNECTION\"; ",
    "wirepath --version 2>/dev/null || echo none; ",
    "read -r how size what address || exit 1; ",
    "if [ \"$how\" = path ]; then exec \"wirepath-$what\" answer path \"$what\"; fi; ",
    "if [ \"$what\" = peer ]; then set -- peer --secret-stdin --listen \"$address:0\"; ",
    "else set -- answer \"$what\"; fi; ",
    "if [ \"$how\" = own ]; then exec wirepath \"$@\"; fi; ",
    "f=$(mktemp) || exit 1; chmod 700 \"$f\"; exec 3>\"$f\" 4<\"$f\"; rm -f \"$f\"; echo send; ",
    "head -c \"$size\" >&3; exec 3>&-; echo sent; ",
    "exec /proc/self/fd/4 \"$@\""
);

pub(super) fn start(host: &SshHost, options: &FarOptions<'_>) -> Result<FarHost, RemoteError> {
    let Opened { mut started, is_copied, .. } = open(host, options, "peer")?;
    let secret = random_secret()?;
    // A program that ended already is reported by the next line.
    let _ = started.send(format!("{secret}\n").as_bytes());
    let at = started.listening();
    let at = at.map_err(|error| if is_copied { not_copied(error, host) } else { error })?;
    Ok(started.into_host(at, secret))
}

/// A program that was started by ssh and has said nothing yet.
pub(crate) struct Opened {
    pub(crate) started: Started,
    /// Address of the far end for the load.
    pub(crate) address: IpAddr,
    pub(crate) is_copied: bool,
}

/// Connects to `host` and starts this program there, a copy of it if need be.
///
/// - `what`: `peer`, or the name of a service.
pub(crate) fn open(
    host: &SshHost,
    options: &FarOptions<'_>,
    what: &str,
) -> Result<Opened, RemoteError> {
    let (mut started, about, address) = connect(host, options)?;
    let is_copied = about.version != format!("wirepath {VERSION}");
    if is_copied {
        about.check_platform(host)?;
        copy(&mut started, what, address).map_err(|error| not_copied(error, host))?;
    } else {
        let _ = started.send(format!("own 0 {what} {}\n", in_url(address)).as_bytes());
    }
    Ok(Opened { started, address, is_copied })
}

/// Connects to `host` by ssh and starts the program of a path there; returns it with its address for the load.
///
/// - `path`: a valid name.
pub(crate) fn open_path(
    host: &SshHost,
    options: &FarOptions<'_>,
    path: &str,
) -> Result<(Started, IpAddr), RemoteError> {
    let (mut started, _, address) = connect(host, options)?;
    let _ = started.send(format!("path 0 {path} {}\n", in_url(address)).as_bytes());
    Ok((started, address))
}

/// A shell at `host` that waits for its work, the facts of the host, and its address for the load.
fn connect(
    host: &SshHost,
    options: &FarOptions<'_>,
) -> Result<(Started, FarFacts, IpAddr), RemoteError> {
    let name = FarEnd::Ssh(host.clone()).to_string();
    let client = client(host, options.ssh_options);
    let mut started = Started::spawn(name, client, &ChildPlace::default())?;
    let about = FarFacts::read(&mut started, host)?;
    let address = about.address(host, options.address)?;
    Ok((started, about, address))
}

/// The error of a copied program that did not start.
pub(crate) fn not_copied(error: RemoteError, host: &SshHost) -> RemoteError {
    match error {
        RemoteError::Ended { said, .. } => {
            RemoteError::Copy { host: host.to_string(), said, version: VERSION }
        }
        other => other,
    }
}

fn client(host: &SshHost, options: &[String]) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-T");
    for option in CLIENT_OPTIONS.into_iter().chain(options.iter().map(String::as_str)) {
        command.args(["-o", option]);
    }
    if let Some(port) = host.port {
        command.args(["-p", &port.to_string()]);
    }
    command.args(["--", &host.destination, &format!("exec sh -c '{SCRIPT}'")]);
    command
}

/// The far host as the script reports it.
struct FarFacts {
    /// `uname -sm`.
    platform: String,
    /// Addresses and ports of both ends.
    connection: String,
    /// `wirepath --version`, or `none`.
    version: String,
}

impl FarFacts {
    fn read(started: &mut Started, host: &SshHost) -> Result<Self, RemoteError> {
        let until = Instant::now() + CONNECT_TIMEOUT;
        for _ in 0..BANNER_LINES_MAX {
            let left = until.saturating_duration_since(Instant::now());
            let Some(line) = started.child.take_line(left) else { break };
            if line == MARK.as_bytes() {
                return Ok(FarFacts {
                    platform: clean(&started.line(START_TIMEOUT)?),
                    connection: clean(&started.line(START_TIMEOUT)?),
                    version: clean(&started.line(START_TIMEOUT)?),
                });
            }
        }
        Err(match started.failure(CONNECT_TIMEOUT) {
            RemoteError::Ended { said, .. } => {
                let remedy = remedy(&said, host);
                RemoteError::Ssh { host: host.to_string(), said, remedy }
            }
            other => other,
        })
    }

    /// Address on which the far end listens.
    fn address(&self, host: &SshHost, given: Option<IpAddr>) -> Result<IpAddr, RemoteError> {
        // The client's address and port, then the server's.
        let own = self.connection.split_whitespace().nth(2);
        let own = own.and_then(|ip| ip.parse().ok()).map(|ip: IpAddr| ip.to_canonical());
        given.or(own).ok_or_else(|| RemoteError::UnknownAddress {
            host: host.to_string(),
            said: self.connection.clone(),
        })
    }

    fn check_platform(&self, host: &SshHost) -> Result<(), RemoteError> {
        let ours = format!("Linux {}", std::env::consts::ARCH);
        if self.platform == ours {
            return Ok(());
        }
        let (host, theirs) = (host.to_string(), self.platform.clone());
        Err(RemoteError::OtherPlatform { host, theirs, ours, version: VERSION })
    }
}

/// An address as it stands in front of a port.
fn in_url(address: IpAddr) -> String {
    match address {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

/// Copies this program to the far end, where the shell becomes it.
fn copy(started: &mut Started, what: &str, address: IpAddr) -> Result<(), RemoteError> {
    let file = File::open("/proc/self/exe");
    let opened = file.and_then(|file| Ok((file.metadata()?.len(), file)));
    let (size, file) =
        opened.map_err(|source| RemoteError::Start { what: "a copy of this program", source })?;
    let _ = started.send(format!("copy {size} {what} {}\n", in_url(address)).as_bytes());
    started.expect("send")?;
    let Some(mut stdin) = started.stdin.take() else { return Err(started.failure(START_TIMEOUT)) };
    let child = &mut started.child;
    // A pipe that is not read blocks its writer, so this thread watches the time.
    let written = thread::scope(|scope| {
        let writing = start_thread(scope, "copy", || {
            io::copy(&mut file.take(size), &mut stdin)?;
            Ok::<_, CopyError>(stdin)
        });
        let until = Instant::now() + COPY_TIMEOUT;
        while !writing.is_finished() {
            if Instant::now() >= until {
                // The end of the client breaks the pipe.
                child.interrupt();
            }
            thread::sleep(Duration::from_millis(10));
        }
        writing.end()
    });
    // A broken pipe is explained by the client's end.
    started.stdin = written.ok();
    // Only now: a program that copies by blocks may read more than it was asked for.
    started.expect("sent")
}

/// Failure of the thread that copies; the far end's own message says more.
#[derive(Debug)]
struct CopyError;

impl From<io::Error> for CopyError {
    fn from(_: io::Error) -> Self {
        CopyError
    }
}

impl From<sys::thread::ThreadError> for CopyError {
    fn from(_: sys::thread::ThreadError) -> Self {
        CopyError
    }
}

/// Advice for the messages of the OpenSSH client that users meet most.
fn remedy(said: &str, host: &SshHost) -> String {
    let destination = &host.destination;
    if said.contains("Host key verification failed") || said.contains("No host key is known") {
        return format!(
            "its host key is not known or has changed: check it, and connect once by `ssh {destination}`"
        );
    }
    if said.contains("Permission denied") {
        return "load a key that it accepts (ssh-add), or name one with --ssh-option IdentityFile=FILE; \
                no password is asked for"
            .into();
    }
    if said.contains("Could not resolve hostname") {
        return "check the name, or its entry in ~/.ssh/config".into();
    }
    format!("try `ssh {destination} true`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_needs_no_quoting_in_any_login_shell() {
        assert!(!SCRIPT.contains(['\'', '\\', '!', '\n']), "{SCRIPT}");
        assert!(SCRIPT.starts_with(&format!("echo {MARK};")));
    }

    #[test]
    fn options_of_the_user_are_words_of_their_own_after_ours() {
        let host = SshHost { destination: "root@db2".into(), port: Some(22) };
        let command = client(&host, &["IdentityFile=/tmp/a key; rm".into()]);
        let args: Vec<_> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
        let [ours, theirs, end, host] =
            ["BatchMode=yes", "IdentityFile=/tmp/a key; rm", "--", "root@db2"]
                .map(|text| args.iter().position(|arg| *arg == text).unwrap());
        assert!(ours < theirs, "{args:?}");
        assert!(end + 1 == host && args.len() == host + 2, "{args:?}");
    }

    #[test]
    fn messages_of_the_client_get_a_remedy() {
        let host = SshHost { destination: "db2".into(), port: None };
        let remedies = [
            ("Host key verification failed.", "ssh db2"),
            ("root@db2: Permission denied (publickey).", "ssh-add"),
            ("ssh: Could not resolve hostname db2: x", "check the name"),
            ("kex_exchange_identification", "`ssh db2 true`"),
        ];
        for (said, expected) in remedies {
            assert!(remedy(said, &host).contains(expected), "{said}");
        }
    }
}
