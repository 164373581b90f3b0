//! Counters of the stack.

use std::{fs, io};

/// Table of the calling thread's namespace, for [`snmp_counter`].
pub fn snmp_table() -> io::Result<String> {
    fs::read_to_string("/proc/thread-self/net/snmp")
}

/// Counter of IPv6 in `/proc/net/snmp6` of the calling thread's namespace, such as `Udp6RcvbufErrors`; `None` if the
/// kernel has none.
pub fn snmp6_counter(name: &str) -> Option<u64> {
    let table = fs::read_to_string("/proc/thread-self/net/snmp6").ok()?;
    let mut rows = table.lines().filter_map(|line| line.split_once(char::is_whitespace));
    rows.find(|(row, _)| *row == name)?.1.trim().parse().ok()
}

/// Counter of a protocol in `/proc/net/snmp` or `netstat`, which have one line of names and one of numbers for
/// each.
///
/// - `protocol`, `name`: `Udp` and `RcvbufErrors`.
pub fn snmp_counter(table: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines =
        table.lines().filter_map(|line| str::strip_prefix(line, protocol)?.strip_prefix(": "));
    let place = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::snmp_counter;

    #[test]
    fn counter_is_found_by_name() {
        let table = "Ip: a\nIp: 1\nUdp: InDatagrams NoPorts RcvbufErrors\nUdp: 5 0 7\nUdpLite: RcvbufErrors\nUdpLite: 9\n";
        assert_eq!(snmp_counter(table, "Udp", "RcvbufErrors"), Some(7));
        assert_eq!(snmp_counter(table, "Ip", "a"), Some(1));
        assert_eq!(snmp_counter(table, "Udp", "Other"), None);
        assert_eq!(snmp_counter("Udp: \nUdp: \n", "Udp", "NoPorts"), None);
    }
}
