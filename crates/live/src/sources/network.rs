//! Counters of the service's network namespace, and queues of its connections.

use std::fs::File;
use std::io::{self, Read, Seek};

use host::net::{TcpSocket, TcpState, snmp_counter, tcp_sockets};
use host::netns::Netns;

use super::error::LiveError;

/// Counters of a namespace: name, table, protocol, name in the table.
///
/// Source: Linux, Documentation/networking/snmp_counter.rst.
const COUNTERS: [(&str, bool, &str, &str); 7] = [
    ("segments received", true, "Tcp", "InSegs"),
    ("segments sent", true, "Tcp", "OutSegs"),
    ("segments sent again", true, "Tcp", "RetransSegs"),
    ("resets sent", true, "Tcp", "OutRsts"),
    ("listen queue overflows", false, "TcpExt", "ListenOverflows"),
    ("listen drops", false, "TcpExt", "ListenDrops"),
    ("retransmission timeouts", false, "TcpExt", "TCPTimeouts"),
];

/// Tables of a namespace, which stay those of it wherever they are read.
#[derive(Debug)]
pub(super) struct Counters {
    snmp: File,
    netstat: File,
}

impl Counters {
    pub(super) fn open(netns: &Netns) -> Result<Counters, LiveError> {
        netns.run(|| Ok(Counters { snmp: open_table("snmp")?, netstat: open_table("netstat")? }))?
    }

    /// In the order of [`names`]; `None` for one that this kernel does not have.
    pub(super) fn read(&mut self) -> io::Result<Vec<Option<u64>>> {
        let (snmp, netstat) = (again(&mut self.snmp)?, again(&mut self.netstat)?);
        let counters = COUNTERS.into_iter();
        Ok(counters
            .map(|(_, is_snmp, protocol, name)| {
                snmp_counter(if is_snmp { &snmp } else { &netstat }, protocol, name)
            })
            .collect())
    }
}

/// A table of the calling thread's namespace.
fn open_table(name: &str) -> Result<File, LiveError> {
    let path = format!("/proc/thread-self/net/{name}");
    File::open(&path).map_err(|source| LiveError::Read { path: path.into(), source })
}

fn again(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    COUNTERS.into_iter().map(|(name, ..)| name)
}

/// Bytes in the queues of all connections at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Queues {
    /// Not read by the service.
    pub(super) receive_bytes: u64,
    /// Not acknowledged, or not sent.
    pub(super) send_bytes: u64,
}

/// Connections of a service.
pub(super) fn connections(netns: &Netns, ports: &[u16]) -> Result<Vec<TcpSocket>, LiveError> {
    let mut sockets = netns.run(tcp_sockets)??;
    sockets.retain(|socket| {
        let is_open = !matches!(
            socket.state,
            TcpState::Listen | TcpState::TimeWait | TcpState::Closed | TcpState::SynReceived
        );
        is_open && ports.contains(&socket.local.port())
    });
    Ok(sockets)
}

impl Queues {
    pub(super) fn sum(connections: &[TcpSocket]) -> Queues {
        let mut sum = Queues::default();
        for socket in connections {
            sum.receive_bytes += u64::from(socket.receive_queue);
            sum.send_bytes += u64::from(socket.send_queue);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn queues_of_a_port_hold_what_is_not_read() {
        let netns = Netns::current().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (_server, _) = listener.accept().unwrap();
        client.write_all(b"unread").unwrap();
        let found = connections(&netns, &[port]).unwrap();
        assert_eq!(found.len(), 1, "the server's end alone");
        assert_eq!(Queues::sum(&found), Queues { receive_bytes: 6, send_bytes: 0 });
    }

    #[test]
    fn counters_of_a_namespace_are_read_again_from_outside() {
        let Ok(netns) = Netns::new() else {
            return testkit::skip("root", "a network namespace");
        };
        let mut counters = Counters::open(&netns).unwrap();
        let values = counters.read().unwrap();
        assert_eq!(values.len(), names().count());
        assert!(values.iter().all(|value| *value == Some(0)), "{values:?}");
        assert_eq!(counters.read().unwrap(), values);
    }
}
