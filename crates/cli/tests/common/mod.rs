//! Helpers of the program's tests: running it, waiting for its end, namespaces, and a search for
//! resources that a process left behind.
#![allow(dead_code, reason = "every test program uses its own part of this")]

pub(crate) mod books;
pub(crate) mod contained;
pub(crate) mod dying;
pub(crate) mod echo;
pub(crate) mod far_end;
pub(crate) mod group;
pub(crate) mod houses;
pub(crate) mod pins;
pub(crate) mod rig;
mod spaces;
pub(crate) mod star;
pub(crate) mod strangers;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use host::net::ethtool::{self, Feature};
use host::netns::Netns;
use serde_json::Value;
use tempfile::TempDir;

#[allow(unused_imports, reason = "as above")]
pub(crate) use spaces::{
    FAR_IP, NEAR_IP, Spaces, arrived_of_50, enter, let_poll, tunnel_config, udp_in,
};
#[allow(unused_imports, reason = "as above")]
pub(crate) use testkit::{LONG, is_installed, until};

/// A run of the simulated path that ends by itself soon.
pub(crate) const QUICK: [&str; 8] =
    ["prove", "fake", "--arms", "fast,harmful,absent", "--max-blocks", "8", "--trial", "5ms"];

/// Lets a link send whole frames only, as a NIC does.
pub(crate) fn finish_frames(space: &Netns, link: &str) {
    let index = space.run(|| host::net::link_named(link).expect("it was made").index);
    let index = index.expect("the namespace is there");
    for feature in [Feature::TX_CHECKSUM, Feature::TSO, Feature::GSO] {
        // Not every device has each.
        let set = space.run(|| ethtool::set_features(index, &[(feature, false)]));
        let _ = set.expect("the namespace is there");
    }
}

/// Peak of a process's memory, bytes; `None` if it has ended.
pub(crate) fn peak_memory_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Time in which no program reads a file of gigabytes: one that ends sooner may do so before anything sees it.
const UNSEEN_TIME: Duration = Duration::from_millis(200);

/// Runs a command to its end. Returns its output, and the peak of its memory in bytes.
pub(crate) fn run_measured(command: Command) -> (Output, u64) {
    let begun = Instant::now();
    let mut running = Running::start(command);
    let mut peak_bytes = 0;
    while !running.has_ended() {
        peak_bytes = peak_memory_bytes(running.pid()).unwrap_or(0).max(peak_bytes);
        assert!(begun.elapsed() < LONG * 4, "{}", running.stderr());
        std::thread::sleep(Duration::from_millis(1));
    }
    let is_seen = peak_bytes > 1 << 20 || begun.elapsed() < UNSEEN_TIME;
    assert!(is_seen, "the check itself must be able to see");
    (running.finish(LONG).expect("it ended"), peak_bytes)
}

/// The program with nothing of the user's settings.
pub(crate) fn wirepath(args: &[&str]) -> Command {
    clean(Command::new(env!("CARGO_BIN_EXE_wirepath")), args)
}

/// Folder for the machine-wide lock of this test program; others run at the same time.
fn lock_folder() -> PathBuf {
    let folder =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("locks-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for locks");
    folder
}

/// A plan of settings that no load of UDP feels.
pub(crate) const PLAN_WITHOUT_EFFECT: &str = r#"
schema = 1
machine = "of another host"
profile = "forwarding"
[[step]]
knob = "tcp-early-demux"
target = "netns"
seen = "0"
value = "0"
reason = "the load is of UDP: nothing gets better or worse"
"#;

/// Names of the paths that the program has.
pub(crate) fn path_names() -> Vec<String> {
    let list = json(wirepath(&["paths", "--json"]));
    let paths = list["paths"].as_array().expect("a list");
    paths.iter().map(|path| path["name"].as_str().expect("a name").to_owned()).collect()
}

/// Names of the paths that the program has besides `probe`, the hidden `fake` included.
pub(crate) fn paths_besides_probe() -> Vec<String> {
    let mut names = path_names();
    let probe = names.iter().position(|name| name == "probe").expect("every program has it");
    names[probe] = "fake".to_owned();
    names
}

pub(crate) fn clean(mut command: Command, args: &[&str]) -> Command {
    command
        .args(args)
        .env_remove("WIREPATH_DATA")
        .env_remove("NO_COLOR")
        .env("WIREPATH_LOCKS", lock_folder())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Time until the end of a command: what `--time` gives it, and [`LONG`].
fn limit_of(command: &Command) -> Duration {
    let given = command.get_args().skip_while(|arg| *arg != "--time").nth(1);
    let given = given.and_then(|time| humantime::parse_duration(time.to_str()?).ok());
    given.unwrap_or_default() + LONG
}

/// Runs a command to its end, which must come within `--time` and [`LONG`].
pub(crate) fn run(command: Command) -> Output {
    run_within(limit_of(&command), command)
}

pub(crate) fn run_within(limit: Duration, command: Command) -> Output {
    let shown = format!("{command:?}");
    Running::start(command).finish(limit).unwrap_or_else(|| panic!("{shown} does not end"))
}

/// Runs a command that must succeed; its standard output.
pub(crate) fn succeed(command: Command) -> String {
    succeed_within(limit_of(&command), command)
}

/// As [`succeed`], within a time of the test's own.
pub(crate) fn succeed_within(limit: Duration, command: Command) -> String {
    let shown = format!("{command:?}");
    let output = run_within(limit, command);
    assert!(output.status.success(), "{shown}: {}\n{}", output.status, all_text(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a command that must succeed and print one JSON document.
pub(crate) fn json(command: Command) -> Value {
    let text = succeed(command);
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e} in {text}"))
}

/// Runs a command that must fail with a code and one line that says why.
pub(crate) fn fail(command: Command, code: i32) -> String {
    let shown = format!("{command:?}");
    let output = run(command);
    assert_eq!(output.status.code(), Some(code), "{shown}: {}", all_text(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{shown}: no result of a failure");
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(!said.contains("panicked"), "{shown}: {said}");
    said
}

/// Body of the answer of the server whose address is in `said`.
pub(crate) fn get(said: &str, path: &str) -> String {
    let address = said.split("http://").nth(1).and_then(|rest| rest.split('/').next());
    let address = address.expect("an address");
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
}

pub(crate) fn all_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// Everything that has come out of a pipe so far.
#[derive(Clone, Default)]
struct Pipe(Arc<Mutex<Vec<u8>>>);

impl Pipe {
    fn fill_from(mut from: impl Read + Send + 'static) -> (Self, thread::JoinHandle<()>) {
        let pipe = Pipe::default();
        let into = pipe.clone();
        let filler = thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(len @ 1..) = from.read(&mut piece) {
                into.0.lock().unwrap().extend_from_slice(&piece[..len]);
            }
        });
        (pipe, filler)
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

/// A program under way; killed when dropped.
pub(crate) struct Running {
    child: Child,
    mark: String,
    stdout: Pipe,
    stderr: Pipe,
    fillers: Vec<thread::JoinHandle<()>>,
}

impl Running {
    /// Starts it with a mark in the environment, which its children inherit.
    pub(crate) fn start(mut command: Command) -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let n = STARTED.fetch_add(1, Ordering::Relaxed);
        let mark = format!("WIREPATH_TEST_CHILD={}.{n}.", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        command.env(name, value).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (stdout, out) = Pipe::fill_from(child.stdout.take().unwrap());
        let (stderr, err) = Pipe::fill_from(child.stderr.take().unwrap());
        Running { child, mark, stdout, stderr, fillers: vec![out, err] }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until it has said so on standard error.
    pub(crate) fn await_stderr(&mut self, text: &str) {
        let said = until(LONG, || self.stderr.text().contains(text) || self.has_ended());
        let now = self.stderr.text();
        assert!(said && now.contains(text), "waited for {text:?}, heard: {now}");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_some()
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill");
        assert!(sent.success(), "kill -s {name} {pid}");
    }

    /// Waits for its end, at most so long; what it wrote and how it ended.
    pub(crate) fn finish(mut self, limit: Duration) -> Option<Output> {
        until(limit, || self.has_ended()).then(|| self.collect())
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end_by(self, signal: &str, limit: Duration) -> Output {
        self.signal(signal);
        let (pid, said) = (self.pid(), self.stderr.clone());
        let ended = self.finish(limit);
        ended.unwrap_or_else(|| panic!("{pid} outlives {signal}; it said: {}", said.text()))
    }

    fn collect(&mut self) -> Output {
        let status: ExitStatus = self.child.wait().expect("our child");
        // A grandchild that outlived it would hold the pipes open: that is for tests to find.
        until(Duration::from_secs(2), || self.fillers.iter().all(|f| f.is_finished()));
        Output { status, stdout: self.stdout.bytes(), stderr: self.stderr.bytes() }
    }

    /// Its living children, and theirs, as (process id, command line).
    pub(crate) fn descendants(&self) -> Vec<(u32, String)> {
        marked(&self.mark).into_iter().filter(|(pid, _)| *pid != self.pid()).collect()
    }

    /// Its network namespaces besides ours, held open.
    pub(crate) fn namespaces(&self) -> Vec<sys::netns::Netns> {
        namespaces_of(&[self.pid()])
    }

    /// Kernel resources that it holds now.
    pub(crate) fn holdings(&self) -> Holdings {
        Holdings::of(&self.mark)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Living processes with a mark in their environment.
fn marked(mark: &str) -> Vec<(u32, String)> {
    processes()
        .filter(|(_, dir)| {
            fs::read(dir.join("environ"))
                .is_ok_and(|e| e.windows(mark.len()).any(|w| w == mark.as_bytes()))
        })
        .map(|(pid, dir)| {
            let line = fs::read(dir.join("cmdline")).unwrap_or_default();
            (pid, String::from_utf8_lossy(&line).replace('\0', " "))
        })
        .collect()
}

fn processes() -> impl Iterator<Item = (u32, PathBuf)> {
    entries("/proc".as_ref())
        .filter_map(|dir| Some((dir.file_name()?.to_str()?.parse().ok()?, dir.clone())))
}

fn entries(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

/// Resources of a process that could outlive it: BPF programs, network namespaces, children.
pub(crate) struct Holdings {
    mark: String,
    /// Ids of its BPF programs.
    pub(crate) programs: BTreeSet<u32>,
    /// Views of its namespaces besides our own, which do not keep them alive.
    pub(crate) namespaces: Vec<sys::sysfs::Sysfs>,
}

impl Holdings {
    /// Those of all living processes with the mark: the process and its children.
    fn of(mark: &str) -> Self {
        let pids: Vec<u32> = marked(mark).into_iter().map(|(pid, _)| pid).collect();
        let views = namespaces_of(&pids).iter().map(sys::sysfs::Sysfs::of).collect();
        let namespaces = Result::<_, _>::expect(views, "a view of each namespace");
        let programs = pids
            .iter()
            .flat_map(|pid| entries(Path::new(&format!("/proc/{pid}/fdinfo"))))
            .filter_map(|file| fs::read_to_string(file).ok())
            .filter_map(|text| {
                let line = text.lines().find_map(|l| l.strip_prefix("prog_id:"))?;
                line.trim().parse().ok()
            })
            .collect();
        Holdings { mark: mark.to_owned(), programs, namespaces }
    }

    /// Interfaces that its namespaces still have, their loopbacks among them.
    ///
    /// The kernel takes a namespace's last interface away when nothing holds the namespace any
    /// more. Its inode number says nothing: the next namespace, perhaps of the test beside this
    /// one, gets the same.
    pub(crate) fn links(&self) -> Vec<String> {
        let shown = self.namespaces.iter().map(|view| view.list("class/net"));
        shown.flat_map(|names| names.expect("a namespace's view outlives it")).collect()
    }

    /// Frames received by all interfaces of its namespaces.
    pub(crate) fn received_count(&self) -> u64 {
        self.namespaces
            .iter()
            .map(|view| {
                view.list("class/net")
                    .unwrap_or_default()
                    .iter()
                    .filter_map(|name| {
                        let path = format!("class/net/{name}/statistics/rx_packets");
                        view.read(path).ok().and_then(|text| text.trim().parse::<u64>().ok())
                    })
                    .sum::<u64>()
            })
            .sum()
    }

    /// Asserts that all of it goes away by itself.
    pub(crate) fn assert_gone(&self) {
        let processes = || marked(&self.mark);
        assert!(until(LONG, || processes().is_empty()), "still there: {:?}", processes());
        let left = || self.links();
        assert!(until(LONG, || left().is_empty()), "interfaces left: {:?}", left());
        if !self.programs.is_empty() && is_installed("bpftool") {
            let left = || self.programs.iter().filter(|id| has_program(**id)).collect::<Vec<_>>();
            assert!(until(LONG, || left().is_empty()), "BPF programs left: {:?}", left());
        }
    }
}

/// True if the process has a thread of this name.
pub(crate) fn has_thread(pid: u32, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    names.any(|comm| comm.trim() == name)
}

/// True if the kernel has a BPF program with this id.
pub(crate) fn has_program(id: u32) -> bool {
    let mut bpftool = Command::new("bpftool");
    bpftool.args(["prog", "show", "id", &id.to_string()]);
    bpftool.output().expect("bpftool").status.success()
}

fn inode(link: &Path) -> Option<u64> {
    let target = fs::read_link(link).ok()?;
    target.to_str()?.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

/// Network namespaces that processes live in or hold open, besides our own and those with a
/// name, which are a test's own and stay.
fn namespaces_of(pids: &[u32]) -> Vec<sys::netns::Netns> {
    let own = inode("/proc/thread-self/ns/net".as_ref());
    let named = entries("/run/netns".as_ref())
        .filter_map(|file| Some(fs::metadata(file).ok()?.ino()))
        .map(Some);
    let mut seen: BTreeSet<_> = named.chain([own]).collect();
    pids.iter()
        .flat_map(|pid| {
            let dir = PathBuf::from(format!("/proc/{pid}"));
            let tasks = entries(&dir.join("task")).map(|task| task.join("ns/net"));
            entries(&dir.join("fd")).chain(tasks)
        })
        .filter(|file| inode(file).is_some() && seen.insert(inode(file)))
        .filter_map(|file| sys::netns::Netns::open(file).ok())
        .collect()
}

/// Interfaces of this namespace with all that is said of them, XDP programs included; counters
/// and the running timers of bridges apart.
pub(crate) fn own_links() -> String {
    let text = succeed(ip(&["-d", "link", "show"]));
    text.lines().map(without_timers).collect::<Vec<_>>().join("\n")
}

/// A line without the values of its timers: `hello_timer    0.31` changes by itself.
fn without_timers(line: &str) -> String {
    let mut words = line.split_whitespace();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        kept.push(word);
        if word.ends_with("_timer") {
            words.next();
        }
    }
    kept.join(" ")
}

pub(crate) fn ip(args: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(args).stdin(Stdio::null());
    command
}

/// Writes a secret as its owner should: readable by no other user.
pub(crate) fn write_secret(file: &str, text: &str) {
    fs::write(file, text).expect("a file");
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("our file");
}

/// A folder for results, gone when dropped.
pub(crate) struct Data(TempDir);

impl Data {
    pub(crate) fn new() -> Self {
        Data(TempDir::new().expect("a temporary folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.path().join(name).to_str().expect("a plain path").to_owned()
    }

    /// The program with its results here.
    pub(crate) fn wirepath(&self, args: &[&str]) -> Command {
        let mut command = wirepath(args);
        command.env("WIREPATH_DATA", self.path());
        command
    }

    /// Trials of the only experiment so far.
    pub(crate) fn trial_count(&self) -> u64 {
        let list = json(self.wirepath(&["history", "list", "--json"]));
        list["experiments"][0]["trials"].as_u64().unwrap_or(0)
    }
}
