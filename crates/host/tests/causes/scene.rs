//! Named network namespaces joined by wires, with programs in them.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sys::child::{Child, ChildPlace};
use sys::netns::Netns;
use wirepath_host::causes::{self, DoctorReport, Evidence, Finding, Severity};
use wirepath_host::tune::{Place, Profile, System};

/// Namespaces that are removed, with all that runs in them, when it is dropped.
pub(super) struct Scene {
    prefix: String,
    names: Vec<&'static str>,
    children: Vec<Child>,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Scene {
    /// Makes namespaces with these short names, each with its loopback up.
    pub(super) fn new(names: &[&'static str]) -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // `./test` removes namespaces of this form after a killed test.
        let prefix = format!("wpt{}-{number}", std::process::id());
        let scene = Scene { prefix, names: names.to_vec(), children: Vec::new() };
        for name in names {
            testkit::ip(&format!("netns add {}", scene.netns(name)));
            scene.sh(name, "ip link set lo up");
        }
        scene
    }

    /// Two namespaces, `a` with 10.1.0.1 and `b` with 10.1.0.2, joined by a wire whose ends are called `eth0`.
    pub(super) fn pair() -> Self {
        let scene = Scene::new(&["a", "b"]);
        scene.wire(("a", "eth0", "10.1.0.1/24"), ("b", "eth0", "10.1.0.2/24"));
        scene
    }

    /// Three namespaces in a row: `a` 10.1.0.1 - 10.1.0.254 `r` 10.2.0.254 - 10.2.0.1 `b`, of which `r` routes; its
    /// interfaces are `left` and `right`.
    pub(super) fn routed() -> Self {
        let scene = Scene::new(&["a", "r", "b"]);
        scene.wire(("a", "eth0", "10.1.0.1/24"), ("r", "left", "10.1.0.254/24"));
        scene.wire(("b", "eth0", "10.2.0.1/24"), ("r", "right", "10.2.0.254/24"));
        scene.sh("r", "sysctl -qw net.ipv4.ip_forward=1");
        scene.sh("a", "ip route add default via 10.1.0.254");
        scene.sh("b", "ip route add default via 10.2.0.254");
        scene
    }

    /// Full name of a namespace.
    pub(super) fn netns(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Joins two namespaces by a veth pair: namespace, interface, address with its prefix ("" for none).
    pub(super) fn wire(&self, one: (&str, &str, &str), other: (&str, &str, &str)) {
        testkit::ip(&format!(
            "link add {} netns {} type veth peer name {} netns {}",
            one.1,
            self.netns(one.0),
            other.1,
            self.netns(other.0)
        ));
        for (netns, interface, address) in [one, other] {
            if !address.is_empty() {
                // An IPv6 address is usable at once.
                let nodad = if address.contains(':') { " nodad" } else { "" };
                self.sh(netns, &format!("ip addr add {address} dev {interface}{nodad}"));
            }
            self.sh(netns, &format!("ip link set {interface} up"));
        }
    }

    /// Runs a shell command in a namespace to its end. Returns its output; panics if it fails.
    pub(super) fn sh(&self, name: &str, command: &str) -> String {
        let (ok, output) = self.try_sh(name, command);
        assert!(ok, "{command}: {output}");
        output
    }

    /// As [`Self::sh`], and returns whether it succeeded.
    pub(super) fn try_sh(&self, name: &str, command: &str) -> (bool, String) {
        let mut shell = Command::new("ip");
        shell.args(["netns", "exec", &self.netns(name), "sh", "-c", command]);
        let mut child = Child::spawn(shell, &ChildPlace::default()).unwrap();
        let finished = child.wait(Duration::from_secs(30)).unwrap().expect("ends within 30 s");
        let mut text = String::from_utf8_lossy(&finished.stdout).into_owned();
        let _ = write!(text, "{}", String::from_utf8_lossy(&finished.stderr));
        (finished.status.success(), text)
    }

    /// Starts a shell command in a namespace; it ends with the scene. Returns its process id.
    pub(super) fn start(&mut self, name: &str, command: &str) -> u32 {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {command}")]);
        self.spawn(name, shell)
    }

    /// Starts a Python program in a namespace and waits until it prints a line; it ends with the scene. Returns its
    /// process id.
    pub(super) fn python(&mut self, name: &str, program: &str) -> u32 {
        let mut python = Command::new("python3");
        python.args(["-u", "-c", program]);
        let pid = self.spawn(name, python);
        let child = self.children.last().unwrap();
        let line = child.take_line(Duration::from_secs(20));
        assert!(line.is_some(), "no line of {program}: {:?}", child.stderr_so_far());
        pid
    }

    fn spawn(&mut self, name: &str, command: Command) -> u32 {
        let netns = Netns::open(format!("/run/netns/{}", self.netns(name))).unwrap();
        let child = Child::spawn(command, &ChildPlace { netns: Some(&netns), cpus: &[] }).unwrap();
        let pid = child.pid();
        self.children.push(child);
        pid
    }

    /// Evidence on a namespace, of all its interfaces.
    pub(super) fn evidence(&self, name: &str, profile: Option<Profile>) -> Evidence {
        let place = Place { netns: Some(self.netns(name)), root: None };
        Evidence::new(System::open(&place).unwrap(), None, profile, None).unwrap()
    }

    /// The doctor's report on a namespace.
    pub(super) fn examine(&self, name: &str) -> DoctorReport {
        causes::examine(&self.evidence(name, None))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.children.clear();
        for name in &self.names {
            testkit::ip(&format!("netns del {}", self.netns(name)));
        }
    }
}

/// Asserts that a cause was found with this severity, and that its line, evidence and remedy say all these words.
/// Returns the finding.
pub(super) fn named<'a>(
    report: &'a DoctorReport,
    cause: &str,
    severity: Severity,
    words: &[&str],
) -> &'a Finding {
    let found = report
        .findings
        .iter()
        .filter(|found| found.cause == cause)
        .max_by_key(|found| found.severity)
        .unwrap_or_else(|| {
            panic!("no {cause} in {:#?}, unseen {:?}", report.findings, report.unseen)
        });
    assert_eq!(found.severity, severity, "{found:#?}");
    let evidence: String =
        found.evidence.iter().map(|e| format!(" {} {}", e.source, e.value)).collect();
    let said = format!("{}{evidence} {} {}", found.what, found.change, found.undo);
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {found:#?}");
    }
    let parts = [found.why, found.effect, found.risk, &found.change, &found.undo];
    assert!(parts.iter().all(|part| !part.is_empty()), "{found:#?}");
    assert!(!found.evidence.is_empty(), "{found:#?}");
    found
}

/// Asserts that a cause was looked for and not found, and that the report has nothing else above `low`: a false
/// alarm is a defect.
pub(super) fn silent(twin: &DoctorReport, cause: &str) {
    assert!(!twin.findings.iter().any(|found| found.cause == cause), "{:#?}", twin.findings);
    // Softirqs are the machine's, and may have too much to do.
    let alarms =
        twin.findings.iter().filter(|one| one.severity > Severity::Low && one.cause != "softnet");
    assert_eq!(alarms.collect::<Vec<_>>(), Vec::<&Finding>::new());
    assert!(twin.passed.contains(&cause), "{cause} was not looked for: {:?}", twin.unseen);
}

/// Adds a row to the table of causes, if one is wanted; call it when a planted cause was named and its twin was silent.
///
/// - `planted`: how, in a few words.
/// - `reader`: `doctor`, `explain`, `feed listen`.
pub(super) fn row(cause: &str, planted: &str, reader: &str, found: &Finding) {
    let Some(file) = std::env::var_os("WIREPATH_CAUSES_TABLE") else { return };
    let severity = format!("{:?}", found.severity).to_lowercase();
    let line = format!("{cause}\t{planted}\t{reader}\t{severity}\tsilent\t{}\n", found.what);
    let mut file = OpenOptions::new().create(true).append(true).open(file).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}
