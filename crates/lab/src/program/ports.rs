//! Ports of a network namespace and the processes that hold them.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sys::netns::Netns;

use super::ProgramError;
use super::processes;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Transport {
    Tcp,
    Udp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "TCP",
            Transport::Udp => "UDP",
        })
    }
}

/// Socket that holds a port; the text says which: "TCP port 4433 is held by PID 12 (nginx), which listens".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortHolder {
    pub transport: Transport,
    pub port: u16,
    pub use_: PortUse,
    /// Id and name; `None` if no process has the socket (TIME_WAIT) or its descriptors cannot be read.
    pub process: Option<(u32, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortUse {
    /// A closed connection: servers that set SO_REUSEADDR can still use the port.
    TimeWait,
    /// An open or closing connection.
    Connected,
    /// A listening TCP socket, or a bound UDP socket.
    Bound,
}

impl fmt::Display for PortHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PortHolder { transport, port, use_, process } = self;
        write!(f, "{transport} port {port} is held by ")?;
        match (use_, process) {
            (PortUse::TimeWait, _) => write!(f, "a closed connection in TIME_WAIT"),
            (PortUse::Connected, Some((pid, name))) => {
                write!(f, "a connection of PID {pid} ({name})")
            }
            (PortUse::Connected, None) => write!(f, "a connection of an unknown process"),
            (PortUse::Bound, Some((pid, name))) => write!(f, "PID {pid} ({name})"),
            (PortUse::Bound, None) => write!(f, "an unknown process"),
        }
    }
}

/// Returns the socket that holds a port, `None` if the port is free. A listening or bound socket comes
/// before a connection, and that before TIME_WAIT.
///
/// - `netns`: `None` for the caller's.
pub fn port_holder(
    netns: Option<&Netns>,
    transport: Transport,
    port: u16,
) -> Result<Option<PortHolder>, ProgramError> {
    const OWN: &str = "/proc/thread-self/net";
    let rows = match netns {
        Some(netns) => netns
            .run(|| table(OWN, transport))
            .map_err(|source| ProgramError::Sockets { source: Box::new(source) })?,
        None => table(OWN, transport),
    };
    let rows = rows.map_err(|source| ProgramError::Sockets { source: Box::new(source) })?;
    let Some(row) = rows.iter().filter(|row| row.port == port).max_by_key(|row| row.use_) else {
        return Ok(None);
    };
    Ok(Some(PortHolder { transport, port, use_: row.use_, process: socket_holder(row) }))
}

/// Line of a table of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    pub(super) use_: PortUse,
    /// 0 if no process has it.
    inode: u64,
}

/// Sockets of a transport that are bound to a port, of IPv4 and IPv6.
///
/// - `folder`: such as `/proc/12/net`, the namespace of process 12.
///
/// Errors: those of reading the table of IPv4; the kernel may have no IPv6.
fn table(folder: &str, transport: Transport) -> std::io::Result<Vec<Row>> {
    let name = match transport {
        Transport::Tcp => "tcp",
        Transport::Udp => "udp",
    };
    let mut text = fs::read_to_string(format!("{folder}/{name}"))?;
    text += &fs::read_to_string(format!("{folder}/{name}6")).unwrap_or_default();
    Ok(text.lines().filter_map(|line| parse(line, transport)).collect())
}

/// A socket at which a server takes what its clients send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerSocket {
    pub transport: Transport,
    pub port: u16,
    /// A wildcard address is all of them.
    pub address: IpAddr,
}

/// Listening TCP sockets and bound UDP sockets of processes in one namespace, sorted, without doubles.
pub(super) fn listeners(pids: &[u32]) -> Vec<ServerSocket> {
    let own: BTreeSet<u64> =
        pids.iter().filter_map(|pid| processes::socket_inodes(*pid)).flatten().collect();
    let Some(pid) = pids.first() else { return Vec::new() };
    let mut found = BTreeSet::new();
    for transport in [Transport::Tcp, Transport::Udp] {
        let rows = table(&format!("/proc/{pid}/net"), transport).unwrap_or_default();
        let rows = rows.into_iter().filter(|row| row.use_ == PortUse::Bound);
        let rows = rows.filter(|row| own.contains(&row.inode));
        found.extend(rows.map(|Row { port, address, .. }| ServerSocket {
            transport,
            port,
            address,
        }));
    }
    found.into_iter().collect()
}

/// Bound sockets of a port that belong to one of the processes, each namespace once.
///
/// Sockets of a process whose descriptors cannot be read count as its own.
pub(super) fn bound_by(pids: &[u32], transport: Transport, port: u16) -> Vec<Row> {
    let mut namespaces = BTreeSet::new();
    let mut found = Vec::new();
    for pid in pids {
        let namespace = fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        if namespace.is_some() && !namespaces.insert(namespace) {
            continue;
        }
        let rows = table(&format!("/proc/{pid}/net"), transport).unwrap_or_default();
        found.extend(rows.into_iter().filter(|row| row.port == port && row.use_ == PortUse::Bound));
    }
    if found.is_empty() {
        return found;
    }
    let mut own = BTreeSet::new();
    for pid in pids {
        match processes::socket_inodes(*pid) {
            Some(inodes) => own.extend(inodes),
            // Ended, or of another user.
            None if processes::process_name(*pid).is_some() => return found,
            None => {}
        }
    }
    found.retain(|row| own.contains(&row.inode));
    found
}

fn socket_holder(row: &Row) -> Option<(u32, String)> {
    if row.inode == 0 {
        return None;
    }
    // A process that another one begins shares its sockets for a moment: the oldest has made it.
    let holders = processes::all()
        .into_iter()
        .filter(|pid| processes::socket_inodes(*pid).is_some_and(|own| own.contains(&row.inode)));
    let (_, pid) = holders.filter_map(|pid| Some((processes::start_ticks(pid)?, pid))).min()?;
    Some((pid, processes::process_name(pid)?))
}

/// Source: proc_pid_net(5): `sl local_address rem_address st queues timer retransmits uid timeout inode`;
/// an address is words in the byte order of the host, a port is a number.
fn parse(line: &str, transport: Transport) -> Option<Row> {
    const TCP_TIME_WAIT: u8 = 6;
    const TCP_LISTEN: u8 = 10;
    let mut fields = line.split_ascii_whitespace();
    let (address, port) = fields.nth(1)?.split_once(':')?;
    let state = u8::from_str_radix(fields.nth(1)?, 16).ok()?;
    let inode = fields.nth(5)?.parse().ok()?;
    let mut octets = Vec::new();
    for word in address.as_bytes().chunks(8) {
        let word = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        octets.extend(word.to_ne_bytes());
    }
    let address = match octets.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(octets).ok()?)),
        _ => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(octets).ok()?)),
    };
    let use_ = match (transport, state) {
        (Transport::Udp, _) | (_, TCP_LISTEN) => PortUse::Bound,
        (_, TCP_TIME_WAIT) => PortUse::TimeWait,
        _ => PortUse::Connected,
    };
    Some(Row { address, port: u16::from_str_radix(port, 16).ok()?, use_, inode })
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn lines_are_parsed_and_headings_are_not() {
        let line = "   0: 0100007F:1151 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                    0 0 31 1 000 100 0 0 10 0";
        let address = u32::from_ne_bytes([127, 0, 0, 1]);
        let line = line.replace("0100007F", &format!("{address:08X}"));
        let row = parse(&line, Transport::Tcp).unwrap();
        let expected = Row {
            address: Ipv4Addr::LOCALHOST.into(),
            port: 4433,
            use_: PortUse::Bound,
            inode: 31,
        };
        assert_eq!(row, expected);
        let any = line.replace(&format!("{address:08X}"), &"0".repeat(32)).replace(" 0A ", " 06 ");
        let row = parse(&any, Transport::Tcp).unwrap();
        assert_eq!((row.address, row.use_), (Ipv6Addr::UNSPECIFIED.into(), PortUse::TimeWait));
        assert_eq!(parse("  sl  local_address rem_address   st tx_queue", Transport::Tcp), None);
        assert_eq!(parse("", Transport::Udp), None);
    }

    fn holder(transport: Transport, port: u16) -> Option<PortHolder> {
        port_holder(None, transport, port).unwrap()
    }

    #[test]
    fn holders_are_found_with_their_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let own = std::process::id();
        let held = holder(Transport::Tcp, port).unwrap();
        assert_eq!((held.use_, held.process.as_ref().unwrap().0), (PortUse::Bound, own));
        let text = held.to_string();
        assert!(text.starts_with(&format!("TCP port {port} is held by PID {own} (")), "{text}");
        assert_eq!(bound_by(&[own], Transport::Tcp, port)[0].address, Ipv4Addr::LOCALHOST);
        assert_eq!(bound_by(&[1], Transport::Tcp, port), []);
        let address = Ipv4Addr::LOCALHOST.into();
        let listening = listeners(&[own]);
        assert!(listening.contains(&ServerSocket { transport: Transport::Tcp, port, address }));
        // The server closes first, so its end waits.
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        drop(listener.accept().unwrap());
        assert_eq!(std::io::Read::read(&mut client, &mut [0]).unwrap(), 0);
        drop((client, listener));
        let waits = testkit::until(testkit::LONG, || {
            holder(Transport::Tcp, port).is_some_and(|held| held.use_ == PortUse::TimeWait)
        });
        assert!(waits, "{:?}", holder(Transport::Tcp, port));
        assert!(holder(Transport::Tcp, port).unwrap().to_string().contains("TIME_WAIT"));
        let socket = UdpSocket::bind("[::]:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(holder(Transport::Udp, port).unwrap().process.unwrap().0, own);
        drop(socket);
        assert_eq!(holder(Transport::Udp, port), None);
    }
}
