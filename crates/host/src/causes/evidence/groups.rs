//! Memberships of multicast groups.

use std::net::{IpAddr, Ipv6Addr};

use super::Evidence;

/// Most lines that are read of each IP version.
const LINES_MAX: usize = 100_000;

/// A group that an interface is a member of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership {
    pub(crate) interface: String,
    pub(crate) group: IpAddr,
    /// Sockets that joined it there.
    pub(crate) user_count: u32,
    /// Version of IGMP in which it is announced there, such as `V3`; empty for IPv6.
    pub(crate) version: String,
}

impl Membership {
    /// True for a group that a program joined for data: not those of the hosts themselves, of routing, and of the
    /// discovery of names and services.
    pub(crate) fn is_of_data(&self) -> bool {
        is_of_data(self.group)
    }
}

fn is_of_data(group: IpAddr) -> bool {
    match group {
        // 224.0.0.0/24 stays on the link; SSDP is asked by many desktops.
        IpAddr::V4(group) => !matches!(group.octets(), [224, 0, 0, _] | [239, 255, 255, 250]),
        IpAddr::V6(group) => {
            // Scopes of an interface and a link.
            group.segments()[0] & 0xf > 2 && group.segments()[7] != 0xc
        }
    }
}

impl Evidence {
    /// Memberships of all interfaces of the namespace.
    pub(crate) fn groups(&self) -> &[Membership] {
        self.groups.get_or_init(|| {
            let read = |file: &str| self.proc_net(file).unwrap_or_default();
            let mut groups = igmp(&read("igmp"));
            groups.extend(igmp6(&read("igmp6")));
            groups
        })
    }
}

/// Lines of `/proc/net/igmp`: an interface, and below it its groups, in hexadecimal and host byte order.
fn igmp(text: &str) -> Vec<Membership> {
    let (mut interface, mut version) = (String::new(), String::new());
    let mut groups = Vec::new();
    for line in text.lines().skip(1).take(LINES_MAX) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !line.starts_with(char::is_whitespace) {
            let name = words.get(1).copied().unwrap_or_default();
            interface = name.trim_end_matches(':').to_owned();
            version = words.last().copied().unwrap_or_default().to_owned();
        } else if let [group, users, ..] = words[..]
            && let (Ok(group), Ok(user_count)) = (u32::from_str_radix(group, 16), users.parse())
        {
            let group = IpAddr::from(group.to_ne_bytes());
            let (interface, version) = (interface.clone(), version.clone());
            groups.push(Membership { interface, group, user_count, version });
        }
    }
    groups
}

/// Lines of `/proc/net/igmp6`: index, interface, group, users, flags, timer.
fn igmp6(text: &str) -> Vec<Membership> {
    let groups = text.lines().take(LINES_MAX).filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (interface, group) = (words.next()?, words.next()?);
        let group = Ipv6Addr::from(u128::from_str_radix(group, 16).ok()?);
        Some(Membership {
            interface: interface.to_owned(),
            group: group.into(),
            user_count: words.next()?.parse().ok()?,
            version: String::new(),
        })
    });
    groups.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memberships_are_read_with_their_interface_and_version() {
        let group = u32::from_ne_bytes([239, 1, 1, 1]);
        let text = format!(
            "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n2\teth0      :     2      V2\n\
             \t\t\t\t{group:08X}     3 0:00000000\t\t0\n3\ta-longer-name:     0      V3\nnonsense\n\t\t\t\tzz 1\n"
        );
        let groups = igmp(&text);
        assert_eq!(groups.len(), 1);
        assert_eq!((groups[0].interface.as_str(), groups[0].user_count), ("eth0", 3));
        assert_eq!(
            (groups[0].group.to_string().as_str(), groups[0].version.as_str()),
            ("239.1.1.1", "V2")
        );
        let six = igmp6(
            "2    eth0            ff0500000000000000000000000001ff     1 00000004 0\nshort\n",
        );
        assert_eq!(
            (six.len(), six[0].group.to_string().as_str(), six[0].user_count),
            (1, "ff05::1ff", 1)
        );
    }

    #[test]
    fn groups_of_the_hosts_themselves_are_no_data() {
        for (group, is_data) in [
            ("224.0.0.251", false),
            ("239.255.255.250", false),
            ("224.0.1.129", true),
            ("239.1.1.1", true),
            ("ff02::1:ff00:1", false),
            ("ff05::c", false),
            ("ff15::7", true),
        ] {
            assert_eq!(is_of_data(group.parse().unwrap()), is_data, "{group}");
        }
    }
}
