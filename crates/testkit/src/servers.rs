//! Real servers for tests: a NATS broker and a PostgreSQL server, each with its files in a temporary folder, on
//! loopback or a socket of that folder. They end with the test.

mod authority;

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sys::child::{Child, ChildPlace};
use tempfile::TempDir;

pub use self::authority::Authority;
use crate::{LONG, skip, until};

/// User without rights: PostgreSQL refuses to run as root.
const USER: u32 = 65534;
/// Bytes that a broker may promise to streams.
const STORE_MAX: u64 = 4 << 30;

/// A broker with JetStream.
pub struct Broker {
    program: PathBuf,
    folder: TempDir,
    /// Port on 127.0.0.1.
    port: u16,
    child: Option<Child>,
}

impl Broker {
    /// Starts a broker. `None`, with a skip, if `nats-server` is not installed.
    ///
    /// - `config`: text of its configuration beside port, folder and JetStream; empty for no accounts.
    #[track_caller]
    pub fn start(config: &str) -> Option<Broker> {
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/nats-server");
        let Some(program) = program("nats-server", &[built]) else {
            skip("nats-server", "not installed; ./test builds it");
            return None;
        };
        let folder = folder("wirepath-nats-");
        // Its user may not reach the folder where it was built.
        let own = folder.path().join("nats-server");
        // By another process: one that this one forks meanwhile would hold the copy open for writing, and the kernel
        // starts no such program.
        let copied = Command::new("cp").arg(&program).arg(&own).status();
        assert!(copied.is_ok_and(|status| status.success()), "a copy of the program");
        // Its own default is a share of the free disk, and streams that reserve more are refused.
        let store = format!("jetstream {{ max_file_store: {STORE_MAX} }}\n{config}");
        fs::write(folder.path().join("nats.conf"), store).expect("a file of the folder");
        let mut broker = Broker { program: own, folder, port: 0, child: None };
        broker.resume();
        Some(broker)
    }

    /// Address for clients.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Its process.
    ///
    /// # Panics
    /// If it was killed.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").pid()
    }

    /// Kills it with SIGKILL; its store stays.
    pub fn kill(&mut self) {
        self.child = None;
    }

    /// Kills it, and deletes all that it stored.
    pub fn kill_and_wipe(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(self.folder.path().join("store"));
    }

    /// Starts it again at the same port.
    pub fn resume(&mut self) {
        let path = self.folder.path();
        let mut command = Command::new(&self.program);
        command.arg("-c").arg(path.join("nats.conf")).args(["-a", "127.0.0.1", "-p"]);
        // -1: a free port.
        command.arg(if self.port == 0 { "-1".to_owned() } else { self.port.to_string() });
        command.args(["-js", "-sd"]).arg(path.join("store")).arg("--ports_file_dir").arg(path);
        as_user(&mut command);
        let child = Child::spawn(command, &ChildPlace::default()).expect("nats-server starts");
        let ports = path.join(format!("nats-server_{}.ports", child.pid()));
        let port = || -> Option<u16> {
            let text = fs::read_to_string(&ports).ok()?;
            // `nats` or `tls`.
            let (_, rest) = text.split_once("://127.0.0.1:")?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        let is_ready = until(LONG, || {
            port().is_some_and(|port| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())
        });
        let said = String::from_utf8_lossy(&child.stderr_so_far()).into_owned();
        assert!(is_ready, "nats-server is not ready: {said}");
        self.port = port().expect("it is ready");
        self.child = Some(child);
    }
}

/// A database server, reached by a socket in its folder alone.
pub struct Database {
    bin: PathBuf,
    folder: TempDir,
    /// Settings beside those of every server.
    settings: Vec<String>,
    child: Option<Child>,
}

impl Database {
    /// Makes and starts a server. `None`, with a skip, if PostgreSQL is not installed.
    #[track_caller]
    pub fn start() -> Option<Database> {
        let mut database = Database::make()?;
        database.resume();
        Some(database)
    }

    /// The same, with commits that wait for the disk, as outside of tests.
    #[track_caller]
    pub fn start_durable() -> Option<Database> {
        let mut database = Database::make()?;
        database.settings.push("fsync=on".into());
        database.resume();
        Some(database)
    }

    /// The same, reached at the authority's address too, if the connection is encrypted.
    #[track_caller]
    pub fn start_encrypted(authority: &Authority) -> Option<Database> {
        let mut database = Database::make()?;
        let rules = "local all all trust\nhostssl all all 127.0.0.0/8 trust\n";
        let file = database.folder.path().join("store/pg_hba.conf");
        fs::write(file, rules).expect("a file of the folder");
        let (certificate, key) = authority.server();
        database.settings = vec![
            format!("listen_addresses={}", authority.address()),
            "ssl=on".into(),
            format!("ssl_cert_file={}", certificate.display()),
            format!("ssl_key_file={}", key.display()),
        ];
        database.resume();
        Some(database)
    }

    #[track_caller]
    fn make() -> Option<Database> {
        let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
        let mut known: Vec<PathBuf> =
            versions.map(|version| version.path().join("bin/postgres")).collect();
        known.sort();
        let Some(postgres) = program("postgres", &known) else {
            skip("postgres", "not installed");
            return None;
        };
        let bin = postgres.parent().expect("a file has a folder").to_owned();
        let folder = folder("wirepath-postgres-");
        let mut initdb = Command::new(bin.join("initdb"));
        initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"]);
        initdb.args(["--locale=C", "-D"]).arg(folder.path().join("store"));
        as_user(&mut initdb);
        let made = initdb.current_dir("/").output().expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let settings = vec!["listen_addresses=".into()];
        Some(Database { bin, folder, settings, child: None })
    }

    pub fn address(&self, database: &str) -> String {
        format!("host={} user=postgres dbname={database}", self.folder.path().display())
    }

    /// Ends it as a power cut does: no session is finished.
    pub fn kill(&mut self) {
        self.end("KILL");
        let socket = self.folder.path().join(".s.PGSQL.5432");
        let _ = fs::remove_file(&socket);
        let _ = fs::remove_file(self.folder.path().join(".s.PGSQL.5432.lock"));
        let _ = fs::remove_file(self.folder.path().join("store/postmaster.pid"));
    }

    pub fn resume(&mut self) {
        let path = self.folder.path().to_owned();
        // It refuses to start while a process of an earlier one has its shared memory.
        let has_started = until(LONG, || {
            let mut command = self.server();
            command.arg("-D").arg(path.join("store")).arg("-k").arg(&path);
            command.args(["-c", "fsync=off", "-c", "max_connections=60"]);
            for setting in &self.settings {
                command.args(["-c", setting]);
            }
            command.current_dir("/");
            let mut child = Child::spawn(command, &ChildPlace::default()).expect("postgres starts");
            let is_ready = until(LONG, || {
                let ended = child.wait(std::time::Duration::ZERO).ok().flatten().is_some();
                ended || self.answers()
            });
            let is_alive = child.wait(std::time::Duration::ZERO).ok().flatten().is_none();
            let has_started = is_ready && is_alive;
            self.child = Some(child);
            has_started
        });
        assert!(has_started, "postgres does not start in {}", path.display());
    }

    /// Sends it a signal, and waits until its last process has closed its output.
    fn end(&mut self, signal: &str) {
        let Some(mut child) = self.child.take() else { return };
        let group = format!("-{}", child.pid());
        let _ = Command::new("kill").args(["-s", signal, "--", &group]).status();
        // Killed, if it has not ended then.
        let _ = child.wait(LONG);
    }

    /// The server, which starts processes and a segment of shared memory that would outlive a SIGKILL of it.
    ///
    /// As root it has namespaces of its own for both: the kernel ends them with their first process, and that one with
    /// this program, even by SIGKILL.
    fn server(&self) -> Command {
        let postgres = self.bin.join("postgres");
        if !is_root() {
            return Command::new(postgres);
        }
        let user = USER.to_string();
        let mut command = Command::new("unshare");
        command.args(["--pid", "--ipc", "--fork", "--kill-child", "setpriv", "--clear-groups"]);
        // A change of the user clears the signal that `unshare` asked for.
        command.args(["--reuid", &user, "--regid", &user, "--pdeathsig", "KILL"]).arg(postgres);
        command
    }

    fn answers(&self) -> bool {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-qAt", "-U", "postgres", "-c", "SELECT 1", "-h"]).arg(self.folder.path());
        psql.current_dir("/").output().is_ok_and(|out| out.status.success())
    }

    #[track_caller]
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args([
            "-qAt",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-d",
            database,
            "-c",
            sql,
            "-h",
        ]);
        let out = psql.arg(self.folder.path()).current_dir("/").output().expect("psql runs");
        assert!(out.status.success(), "{sql}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).trim().to_owned()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Without namespaces of its own it ends its processes itself, without a checkpoint.
        self.end(if is_root() { "KILL" } else { "QUIT" });
    }
}

fn program(name: &str, known: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join(name));
    let found = known.iter().rev().cloned().chain(in_path).find(|file| file.is_file())?;
    // Beside it are its other programs.
    fs::canonicalize(found).ok()
}

/// A folder of the user that runs servers.
fn folder(prefix: &str) -> TempDir {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir().expect("a temporary folder");
    if is_root() {
        chown(folder.path(), Some(USER), Some(USER)).expect("root may");
    }
    folder
}

/// As root, runs a command as another user.
fn as_user(command: &mut Command) {
    if is_root() {
        command.uid(USER).gid(USER);
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
