//! Namespaces and veth pairs that end with the test.

use std::process::Command;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use std::{fs, io};

type Job = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace of its own.
pub(crate) struct Namespace {
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Names the namespace to `ip link set … netns`.
    pub(crate) task: i32,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            // SAFETY: no pointers; it changes this thread alone.
            let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(answer, 0, "unshare: {}", io::Error::last_os_error());
            // SAFETY: it takes nothing and cannot fail.
            tell.send(unsafe { libc::gettid() }).expect("the test waits");
            // Only the test's own frames: no router solicitations.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            ip("link set lo up");
            for job in inbox {
                job();
            }
        });
        let task = told.recv().expect("the thread started");
        Namespace { jobs: Some(jobs), thread: Some(thread), task }
    }

    /// Runs something in it and waits for the answer.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let job = Box::new(move || {
            let _ = tell.send(job());
        });
        self.jobs.as_ref().expect("open").send(job).expect("the thread lives");
        told.recv().expect("the job did not panic")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// True if `ip` is installed; reports a skip otherwise.
pub(crate) fn can_run() -> bool {
    testkit::is_installed("ip")
}

/// Runs `ip` in this thread's namespace.
pub(crate) fn ip(arguments: &str) {
    let out = Command::new("ip").args(arguments.split_whitespace()).output().expect("ip runs");
    assert!(out.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&out.stderr));
}

pub(crate) fn index_of(name: &str) -> u32 {
    let name = std::ffi::CString::new(name).expect("no zero byte");
    // SAFETY: a string with its zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(index, 0, "no interface {name:?}");
    index
}

/// `near` (10.9.0.1) and `far` (10.9.0.2), joined, with each other's address known.
pub(crate) struct Pair {
    pub(crate) near: Namespace,
    pub(crate) far: Namespace,
    pub(crate) near_index: u32,
    pub(crate) far_index: u32,
}

pub(crate) const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
pub(crate) const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

impl Pair {
    pub(crate) fn new() -> Self {
        let near = Namespace::new();
        let far = Namespace::new();
        let far_task = far.task;
        let near_index = near.run(move || {
            ip("link add near type veth peer name far");
            ip(&format!("link set far netns {far_task}"));
            ip("link set near address 02:00:00:00:00:01");
            ip("addr add 10.9.0.1/24 dev near");
            ip("link set near up");
            ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev near nud permanent");
            index_of("near")
        });
        let far_index = far.run(|| {
            ip("link set far address 02:00:00:00:00:02");
            ip("addr add 10.9.0.2/24 dev far");
            ip("link set far up");
            ip("neigh add 10.9.0.1 lladdr 02:00:00:00:00:01 dev far nud permanent");
            index_of("far")
        });
        // Until the kernel's link watch has run, an interface that is up has no queueing discipline
        // and drops packets; the link watch waits for other holders of the RTNL lock.
        near.run(|| wait_until_running("near"));
        far.run(|| wait_until_running("far"));
        Pair { near, far, near_index, far_index }
    }
}

fn wait_until_running(name: &str) {
    let running = || {
        let out = Command::new("ip").args(["-o", "link", "show", name]).output().expect("ip runs");
        String::from_utf8_lossy(&out.stdout).contains("state UP")
    };
    wait_until(running);
    assert!(running(), "{name} is not running ten seconds after both ends were set up");
}

/// Waits until `done` returns true, for at most ten seconds; the caller asserts the result.
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() && began.elapsed() < Duration::from_secs(10) {
        thread::sleep(Duration::from_millis(2));
    }
}

/// Sends one frame as it is, from this thread's namespace.
pub(crate) fn send_frame(ifindex: u32, frame: &[u8]) {
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    assert!(socket >= 0, "AF_PACKET: {}", io::Error::last_os_error());
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0,
        sll_ifindex: ifindex as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [0; 8],
    };
    // SAFETY: frame and address live through the call and are given with their sizes.
    let sent = unsafe {
        libc::sendto(
            socket,
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const address).cast(),
            size_of_val(&address) as u32,
        )
    };
    assert_eq!(sent, frame.len() as isize, "sendto: {}", io::Error::last_os_error());
    // SAFETY: ours, and not used again.
    unsafe { libc::close(socket) };
}

/// Variations of [`udp_frame`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Shape {
    pub(crate) vlan_tags: usize,
    pub(crate) option_words: u8,
    pub(crate) fragment: u16,
}

/// An IPv4 UDP frame from near to far, UDP checksum 0.
pub(crate) fn udp_frame(port: u16, payload: &[u8], shape: Shape) -> Vec<u8> {
    let header_bytes = 20 + 4 * usize::from(shape.option_words);
    let mut frame = [FAR_MAC, NEAR_MAC].concat();
    for _ in 0..shape.vlan_tags {
        frame.extend([0x81, 0x00, 0x00, 0x05]);
    }
    frame.extend([0x08, 0x00]);
    let ip_start = frame.len();
    let total = (header_bytes + 8 + payload.len()) as u16;
    frame.extend([0x45 + shape.option_words, 0]);
    frame.extend(total.to_be_bytes());
    frame.extend([0, 1]);
    frame.extend(shape.fragment.to_be_bytes());
    frame.extend([64, 17, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2]);
    // No-operation options.
    frame.resize(ip_start + header_bytes, 1);
    let sum: u32 = frame[ip_start..]
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    frame[ip_start + 10..ip_start + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(40_000_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

/// An IPv6 UDP frame from fd09::1 to fd09::2, UDP checksum 0, with `extension` behind the fixed header.
pub(crate) fn udp6_frame(port: u16, payload: &[u8], next: u8, extension: &[u8]) -> Vec<u8> {
    let mut frame = [FAR_MAC, NEAR_MAC].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend(((extension.len() + 8 + payload.len()) as u16).to_be_bytes());
    frame.extend([next, 64]);
    for host in [1, 2] {
        frame.extend([0xfd, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    frame.extend(extension);
    frame.extend(40_000_u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend((8 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}
