//! Unmodified programs to trace: echo servers in Python.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use lab::{End, Pair};
use sys::child::{Child, ChildPlace};
use testkit::{LONG, until};

/// Answers each datagram. Arguments: port, seconds to sleep before each read.
pub(crate) const UDP: &str = r#"
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
SO_RCVBUFFORCE = 33
s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
s.bind(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    time.sleep(float(sys.argv[2]))
    text, peer = s.recvfrom(2048)
    s.sendto(text, peer)
"#;

/// Answers all it reads on each connection. Arguments: as above.
pub(crate) const TCP: &str = r#"
import socket, sys, time
s = socket.create_server(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    c, _ = s.accept()
    c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        time.sleep(float(sys.argv[2]))
        text = c.recv(65536)
        if not text:
            break
        c.sendall(text)
    c.close()
"#;

/// Waits for a line, then answers datagrams in a child process. Arguments: as above.
pub(crate) const FORKED_UDP: &str = r#"
import os, socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    text, peer = s.recvfrom(2048)
    if text == b"fork" and os.fork() != 0:
        os.wait()
    s.sendto(text, peer)
"#;

/// Sends one datagram with a wrong checksum, so long that the kernel checks it at the read (shorter
/// ones never reach the socket). Arguments: address, port.
///
/// Source: linux/skbuff.h, CHECKSUM_BREAK.
pub(crate) const WRONG_CHECKSUM: &str = r#"
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
s.sendto(struct.pack("!HHHH", 4000, int(sys.argv[2]), 208, 0x1234) + bytes(200), (sys.argv[1], 0))
"#;

/// A cgroup (version 2) of a test; its processes are killed and it is removed on drop.
#[derive(Debug)]
pub(crate) struct Cgroup {
    folder: PathBuf,
}

impl Cgroup {
    /// `None` without Python, or where cgroup version 2 is not mounted: that is a skip.
    pub(crate) fn new() -> Option<Cgroup> {
        if !testkit::is_installed("python3") {
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Source: proc_pid_mountinfo(5).
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let Some(mount) = mount.and_then(|line| line.split(' ').nth(4)) else {
            testkit::skip("cgroup", "cgroup version 2 is not mounted");
            return None;
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("wirepath-stages-{}-{number}", std::process::id());
        let folder = PathBuf::from(mount).join(name);
        fs::create_dir(&folder).expect("a cgroup");
        Some(Cgroup { folder })
    }

    /// A cgroup inside this one; drop it first.
    pub(crate) fn below(&self) -> Cgroup {
        let folder = self.folder.join("below");
        fs::create_dir(&folder).expect("a cgroup");
        Cgroup { folder }
    }

    pub(crate) fn id(&self) -> u64 {
        fs::metadata(&self.folder).expect("its folder").ino()
    }

    fn procs(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _killed = fs::write(self.folder.join("cgroup.kill"), "1");
        let removed = until(LONG, || fs::remove_dir(&self.folder).is_ok());
        assert!(removed || std::thread::panicking(), "{} is left", self.folder.display());
    }
}

/// A server at the far end that is ready.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn start(
        end: &End,
        script: &str,
        port: u16,
        pause: &str,
        cgroup: Option<&Cgroup>,
    ) -> Server {
        // Into the cgroup before it has a socket.
        let enter =
            cgroup.map_or("".into(), |group| format!("echo $$ > {}; ", group.procs().display()));
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{enter}exec python3 -c \"$0\" \"$@\""), script]);
        command.args([&port.to_string(), pause]);
        let place = ChildPlace { netns: Some(&end.netns), cpus: &[] };
        let child = Child::spawn(command, &place).expect("it starts");
        let address = SocketAddr::from((end.ip, port));
        let server = Server { child, address };
        let is_ready = server.child.wait_for_stdout("ready", LONG);
        assert!(is_ready, "{}", String::from_utf8_lossy(&server.child.stderr_so_far()));
        server
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Stops the server; on return it reads nothing more.
    pub(crate) fn pause(&self) {
        self.child.pause();
        let stat = format!("/proc/{}/stat", self.child.pid());
        assert!(
            until(LONG, || fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T "))),
            "it runs on"
        );
    }

    pub(crate) fn resume(&self) {
        self.child.resume();
    }

    /// Bytes that wait in the sockets of its port, by the kernel's table.
    ///
    /// Source: proc_pid_net(5): local address, remote address, state, tx_queue:rx_queue.
    pub(crate) fn waiting_bytes(&self, table: &str) -> u64 {
        let path = format!("/proc/{}/net/{table}", self.child.pid());
        let table = fs::read_to_string(path).expect("its table");
        let port = format!(":{:04X}", self.address.port());
        // A listening socket has the length of its backlog there.
        let lines = table.lines().filter(|line| !line.contains(" 00000000:0000 0A "));
        let of_port = lines.map(|line| line.split_whitespace().collect::<Vec<_>>());
        let of_port =
            of_port.filter(|line| line.get(1).is_some_and(|local| local.ends_with(&port)));
        of_port
            .filter_map(|line: Vec<&str>| {
                let (_, receive) = line.get(4)?.split_once(':')?;
                u64::from_str_radix(receive, 16).ok()
            })
            .sum()
    }
}

/// Exchanges datagrams with an echo, one at a time.
pub(crate) fn exchange_datagrams(pair: &Pair, to: SocketAddr, count: usize) {
    pair.near
        .run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
            socket.set_read_timeout(Some(LONG)).expect("a limit");
            let mut answer = [0; 64];
            for number in 0..count {
                socket.send_to(&number.to_be_bytes(), to).expect("sent");
                let (len, _) = socket.recv_from(&mut answer).expect("an answer");
                assert_eq!(answer[..len], number.to_be_bytes());
            }
        })
        .expect("a namespace");
}

/// Sends datagrams without a pause; returns the socket, which gets the answers.
pub(crate) fn send_datagrams(pair: &Pair, to: SocketAddr, count: usize) -> UdpSocket {
    pair.near
        .run(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).expect("a socket");
            socket.set_read_timeout(Some(LONG)).expect("a limit");
            for _ in 0..count {
                socket.send_to(b"datagram", to).expect("sent");
            }
            socket
        })
        .expect("a namespace")
}

/// A connection from the near end.
pub(crate) fn connect(pair: &Pair, to: SocketAddr) -> TcpStream {
    let stream = pair.near.run(|| TcpStream::connect(to)).expect("a namespace").expect("connected");
    stream.set_nodelay(true).expect("no delay");
    stream.set_read_timeout(Some(LONG)).expect("a limit");
    stream
}

/// Exchanges messages with an echo, one at a time.
pub(crate) fn exchange_messages(mut stream: &TcpStream, count: usize) {
    for number in 0..count {
        let message = number.to_be_bytes();
        stream.write_all(&message).expect("sent");
        let mut answer = message.map(|_| 0);
        stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(answer, message);
    }
}
