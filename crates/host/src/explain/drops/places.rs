//! The sentence and the remedy of drops in one place.

use std::net::IpAddr;

use sys::bpf::explain_drops::Drops;

use super::super::symbols::Symbols;
use super::spaces::{BoundSocket, Space, Spaces};
use super::{
    Advice, DropPlace, DropRow, DropRule, Flow, TCP, command_word, firewall, protocol_name,
    rule_packet,
};

const NO_UNDO: &str = "none: it changes nothing";

/// A kind of drops with all that is known about it.
struct Found<'a> {
    row: &'a DropRow,
    kind: &'a Drops,
    space: &'a Space,
    interface: Option<&'a str>,
    flow: Option<Flow>,
    owner: Option<String>,
}

/// Describes the drops of a kind.
pub(super) fn place(
    row: &DropRow,
    kind: &Drops,
    spaces: &mut Spaces,
    symbols: &Symbols,
) -> DropPlace {
    spaces.open(kind.netns);
    let unknown = Space::default();
    let space = spaces.opened(kind.netns).unwrap_or(&unknown);
    let packet = rule_packet(&kind.sample, space.interfaces());
    let flow = Flow::of(&packet);
    let socket = refuser(kind, space, flow);
    let inode = if kind.sample.socket_inode != 0 {
        Some(kind.sample.socket_inode)
    } else {
        socket.map(|socket| socket.inode)
    };
    let owner = inode.and_then(|inode| spaces.owner(inode));
    let interface = space.interface(kind.ifindex);
    let found = Found { row, kind, space, interface, flow, owner };
    let (advice, rules) = match row.meaning() {
        "NETFILTER_DROP" => {
            let chain: Vec<String> =
                kind.sample.chain.iter().map(|address| symbols.name(*address)).collect();
            firewall::explain(space, &packet, &found.packets(), &row.function, &chain)
        }
        _ => (found.advice(socket, spaces), Vec::<DropRule>::new()),
    };
    let to_port = format!("to port {} of ", kind.port);
    DropPlace {
        count: kind.count,
        of_all_ports: if rules.is_empty() {
            advice.sentence.clone()
        } else {
            advice.sentence.replace(&to_port, "to ")
        },
        sentence: advice.sentence,
        remedy: advice.remedy,
        undo: advice.undo,
        netns: space.name.clone(),
        interface: interface.map(str::to_owned),
        protocol: (kind.protocol != 0).then(|| protocol_name(kind.protocol)),
        port: Some(kind.port).filter(|port| *port != 0),
        sample: flow.map(|flow| flow.to_string()),
        owner: found.owner,
        rules,
    }
}

/// The socket that refused the packets: by its inode, else the one that takes packets of that port.
fn refuser<'a>(kind: &Drops, space: &'a Space, flow: Option<Flow>) -> Option<&'a BoundSocket> {
    if kind.port == 0 {
        return None;
    }
    let by_inode =
        space.bound(kind.protocol, kind.port).find(|one| one.inode == kind.sample.socket_inode);
    by_inode.or_else(|| {
        let takes = |one: &&BoundSocket| flow.is_none_or(|flow| is_bound_to(one, flow.to));
        let mut takers = space.bound(kind.protocol, kind.port).filter(takes);
        let first = takers.next()?;
        // The one that takes any sender's, if there are connections too.
        if first.is_open { Some(first) } else { takers.find(|one| one.is_open).or(Some(first)) }
    })
}

fn is_bound_to(socket: &BoundSocket, address: IpAddr) -> bool {
    let local = socket.local.ip();
    local.is_unspecified() && (local.is_ipv6() || address.is_ipv4()) || local == address
}

impl Found<'_> {
    /// `TCP to port 80`, or what else is known of the packets.
    fn packets(&self) -> String {
        match (self.kind.protocol, self.kind.port, self.flow) {
            (0, _, None) => "packets that are not IP".to_owned(),
            (protocol, 0, None) => format!("{} packets", protocol_name(protocol)),
            (protocol, 0, Some(flow)) => format!("{} to {}", protocol_name(protocol), flow.to),
            (protocol, port, None) => format!("{} to port {port}", protocol_name(protocol)),
            (protocol, port, Some(flow)) => {
                format!("{} to port {port} of {}", protocol_name(protocol), flow.to)
            }
        }
    }

    fn port(&self) -> String {
        let protocol = protocol_name(self.kind.protocol);
        match self.kind.port {
            0 => format!("{protocol} ports"),
            port => format!("{protocol} port {port}"),
        }
    }

    fn owner(&self) -> &str {
        self.owner.as_deref().unwrap_or("an unknown program")
    }

    fn interface(&self) -> String {
        match self.interface {
            Some(name) => crate::text::printable(name, 16),
            None if self.kind.ifindex == 0 => "no interface".to_owned(),
            None => format!("interface {}", self.kind.ifindex),
        }
    }

    fn interface_word(&self) -> String {
        command_word(self.interface.unwrap_or_default(), "INTERFACE")
    }

    fn advice(&self, socket: Option<&BoundSocket>, spaces: &Spaces) -> Advice {
        match self.row.meaning() {
            "NO_SOCKET" => self.no_socket(spaces),
            "SOCKET_RCVBUFF"
            | "SOCKET_BACKLOG"
            | "PROTO_MEM"
            | "TCP_ZEROWINDOW"
            | "TCP_OFO_QUEUE_PRUNE" => self.full_socket(socket),
            "TCP_LISTEN_OVERFLOW" => self.full_accept_queue(socket),
            "QDISC_DROP" | "QDISC_OVERLIMIT" | "QDISC_CONGESTED" | "FQ_BAND_LIMIT"
            | "FQ_HORIZON_LIMIT" | "FQ_FLOW_LIMIT" | "CAKE_FLOOD" | "DUALPI2_STEP_DROP" => {
                self.full_queue()
            }
            "IP_RPFILTER" => self.reverse_path(),
            "NEIGH_FAILED" | "NEIGH_QUEUEFULL" | "NEIGH_CREATEFAIL" | "NEIGH_DEAD"
            | "NEIGH_HH_FILLFAIL" => self.neighbour(),
            "TC_INGRESS" | "TC_EGRESS" => self.traffic_control(),
            "IP_INNOROUTES" | "IP_OUTNOROUTES" => self.no_route(),
            _ => self.general(),
        }
    }

    /// The sentence of the reason, with its place.
    fn general(&self) -> Advice {
        let reason = &self.row.reason;
        let said = self.row.sentence.map_or_else(
            || format!("the kernel gives {reason}, in {}", self.row.function),
            str::to_owned,
        );
        let at = self.interface.map_or(String::new(), |_| format!(" at {}", self.interface()));
        let remedy = self.row.remedy.unwrap_or(
            "search the function's name in the kernel's source; `wirepath doctor` looks for known causes",
        );
        Advice::new(
            format!("{}{at}: {said}", self.packets()),
            remedy,
            self.row.undo.unwrap_or(NO_UNDO),
        )
    }

    fn no_socket(&self, spaces: &Spaces) -> Advice {
        let (prefix, protocol) = (&self.space.prefix, self.kind.protocol);
        if !matches!(protocol, TCP | super::UDP) {
            return self.general();
        }
        let address = self.flow.map_or("this host".to_owned(), |flow| flow.to.to_string());
        let kind = if protocol == TCP { "t" } else { "u" };
        if self.kind.port == 0 {
            return Advice::new(
                format!("nothing listens on many {} of {address}: a scan, perhaps", self.port()),
                format!("{prefix}ss -ln{kind} lists the ports with a listener"),
                NO_UNDO,
            );
        }
        let port = self.kind.port;
        let look = format!("{prefix}ss -ln{kind}p 'sport = :{port}'");
        let open = self.space.bound(protocol, port).find(|one| one.is_open);
        match open {
            None => Advice::new(
                format!("nothing listens on {} of {address}", self.port()),
                format!("start the program, or correct the port at the sender; {look}"),
                NO_UNDO,
            ),
            Some(open) => {
                let owner = spaces.owner(open.inode);
                let owner = owner.as_deref().unwrap_or("an unknown program");
                let is_same = self.flow.is_some_and(|flow| is_bound_to(open, flow.to));
                let sentence = if is_same {
                    format!("nothing listened on {} of {address}; {owner} does now", self.port())
                } else {
                    format!(
                        "nothing listens on {} of {address}: {owner} listens on {} only",
                        self.port(),
                        open.local
                    )
                };
                let remedy = if is_same {
                    format!("start the program before its senders; {look}")
                } else {
                    format!("bind the program to {address} or to all addresses; {look}")
                };
                Advice::new(sentence, remedy, "the program's previous address")
            }
        }
    }

    fn full_socket(&self, socket: Option<&BoundSocket>) -> Advice {
        let (port, owner, prefix) = (self.port(), self.owner(), &self.space.prefix);
        let size = socket.map_or(String::new(), |socket| {
            format!(" ({} bytes as the kernel counts)", socket.receive_buffer_bytes)
        });
        match self.row.meaning() {
            "SOCKET_BACKLOG" => Advice::new(
                format!(
                    "{owner} holds the socket of {port}, and its backlog is full: it reads too slowly"
                ),
                "more readers, or fewer system calls for each packet; a larger receive buffer helps if bursts \
                 fill it",
                "the program's previous setting",
            ),
            "PROTO_MEM" => Advice::new(
                format!(
                    "the memory for all sockets of {} is used up; {port} of {owner} is refused",
                    protocol_name(self.kind.protocol)
                ),
                format!(
                    "{prefix}ss -m finds the sockets that hold it; net.ipv4.udp_mem or tcp_mem is the limit"
                ),
                "the previous value",
            ),
            _ if self.kind.protocol == TCP => Advice::new(
                format!(
                    "the receive buffer of {port} of {owner} is full{size}: it reads too slowly"
                ),
                format!(
                    "a faster reader; {prefix}sysctl -w net.ipv4.tcp_rmem with a larger third value lets the \
                     buffer grow, unless the program sets SO_RCVBUF"
                ),
                "the previous value of net.ipv4.tcp_rmem",
            ),
            _ => {
                let most = self.space.setting("net/core/rmem_max").unwrap_or_default();
                Advice::new(
                    format!(
                        "the receive buffer of {port} of {owner} is full{size}: it reads too slowly"
                    ),
                    "if bursts fill it: a larger SO_RCVBUF in the program, up to net.core.rmem_max \
                         (sysctl -w net.core.rmem_max=26214400); if it never keeps up: a faster reader".to_owned(),
                    format!("sysctl -w net.core.rmem_max={most}"),
                )
            }
        }
    }

    fn full_accept_queue(&self, socket: Option<&BoundSocket>) -> Advice {
        let (prefix, port, owner) = (&self.space.prefix, self.port(), self.owner());
        let somaxconn = self.space.setting("net/core/somaxconn").unwrap_or_default();
        let queue = socket.and_then(|socket| socket.queue).map_or(String::new(), |(now, most)| {
            format!(" ({now} connections wait now, {most} may)")
        });
        Advice::new(
            format!("the accept queue of {port} of {owner} is full{queue}: it accepts too slowly"),
            format!(
                "a larger backlog in the program (listen(2)), and {prefix}sysctl -w net.core.somaxconn=4096 \
                 (now {somaxconn}) before its restart; more threads that accept"
            ),
            format!(
                "{prefix}sysctl -w net.core.somaxconn={somaxconn}, and the program's previous backlog"
            ),
        )
    }

    fn full_queue(&self) -> Advice {
        let (prefix, name, word) = (&self.space.prefix, self.interface(), self.interface_word());
        let discipline = self.space.discipline(self.kind.ifindex);
        let discipline = discipline.map_or(String::new(), |text| format!(" ({text})"));
        Advice::new(
            format!(
                "the queue of {name}{discipline} is full: packets come faster than it lets them go"
            ),
            format!(
                "{prefix}tc -s -d qdisc show dev {word}; if it is left over: {prefix}tc qdisc del dev {word} root"
            ),
            "the same tree of tc qdisc add, as the first command showed it",
        )
    }

    fn reverse_path(&self) -> Advice {
        let (prefix, name, word) = (&self.space.prefix, self.interface(), self.interface_word());
        let Some(flow) = self.flow else { return self.general() };
        let from = flow.from;
        let route = match self.space.route(from) {
            Some((other, _)) if Some(other.as_str()) != self.interface => {
                format!("the route to {from} leads to {}", crate::text::printable(&other, 16))
            }
            Some(_) => format!("the route to {from} led to another interface"),
            None => format!("there is no route to {from}"),
        };
        let was =
            self.space.setting(&format!("net/ipv4/conf/{word}/rp_filter")).unwrap_or_default();
        Advice::new(
            format!("packets from {from} come in at {name}, but {route} (rp_filter)"),
            format!(
                "a route: {prefix}ip route add {from} dev {word}; or a loose check: {prefix}sysctl -w \
                 net.ipv4.conf.{word}.rp_filter=2"
            ),
            format!(
                "{prefix}ip route del {from} dev {word}; {prefix}sysctl -w net.ipv4.conf.{word}.rp_filter={was}"
            ),
        )
    }

    fn neighbour(&self) -> Advice {
        let (prefix, name, word) = (&self.space.prefix, self.interface(), self.interface_word());
        let Some(flow) = self.flow else { return self.general() };
        let next = match self.space.route(flow.to) {
            Some((_, Some(gateway))) => gateway,
            _ => flow.to,
        };
        Advice::new(
            format!(
                "{next} does not answer address resolution on {name}: packets to {} wait and are dropped",
                flow.to
            ),
            format!(
                "{prefix}ip neigh show {next} dev {word}; is it up and in the same network, and does no firewall \
                 drop ARP or neighbour solicitations? {prefix}ip route get {}",
                flow.to
            ),
            NO_UNDO,
        )
    }

    fn traffic_control(&self) -> Advice {
        let (prefix, name, word) = (&self.space.prefix, self.interface(), self.interface_word());
        let way = if self.row.reason == "TC_INGRESS" { "ingress" } else { "egress" };
        Advice::new(
            format!(
                "a filter of tc or a BPF program at the {way} of {name} drops {}",
                self.packets()
            ),
            format!("{prefix}tc -s filter show dev {word} {way}; bpftool net show dev {word}"),
            NO_UNDO,
        )
    }

    fn no_route(&self) -> Advice {
        let prefix = &self.space.prefix;
        let Some(flow) = self.flow else { return self.general() };
        let sentence = if self.kind.sample.iif == 0 {
            format!("no route to {}", flow.to)
        } else {
            format!(
                "no route from {}, which {} received, to {}",
                flow.from,
                self.interface(),
                flow.to
            )
        };
        Advice::new(sentence, format!("{prefix}ip route get {}; {prefix}ip rule", flow.to), NO_UNDO)
    }
}
