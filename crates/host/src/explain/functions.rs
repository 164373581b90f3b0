//! Timer samples of the CPUs, by activity and function.

use super::symbols::Symbols;

/// Samples of one activity.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlaceRow {
    /// Activity.
    pub name: &'static str,
    pub count: u64,
    /// Share of all samples.
    pub share: f64,
}

/// Samples in one function, without its callees.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FunctionRow {
    /// Kernel function.
    pub name: String,
    pub count: u64,
    /// Share of the samples in which a CPU was not idle.
    pub share: f64,
}

const IDLE: &str = "idle";

/// Activity of a call chain that contains one of these functions; the first match in this order
/// counts.
const PLACES: [(&str, &[&str]); 7] = [
    (IDLE, &["do_idle", "cpu_startup_entry", "default_idle_call"]),
    ("receiving, in a softirq", &["net_rx_action"]),
    (
        "sending, in a system call",
        &["__sys_sendto", "__sys_sendmsg", "__sys_sendmmsg", "sock_write_iter", "io_send"],
    ),
    (
        "receiving, in a system call",
        &["__sys_recvfrom", "__sys_recvmsg", "__sys_recvmmsg", "sock_read_iter", "io_recv"],
    ),
    (
        "waiting for sockets (poll, select, epoll)",
        &["do_epoll_wait", "do_sys_poll", "do_select", "__x64_sys_poll"],
    ),
    ("other softirqs", &["handle_softirqs", "__do_softirq"]),
    ("other system calls", &["do_syscall_64", "el0_svc"]),
];

fn place(chain: &[String]) -> &'static str {
    if chain.is_empty() {
        return "user space";
    }
    let is_in = |names: &[&str]| chain.iter().any(|name| names.contains(&name.as_str()));
    // A softirq may interrupt the idle loop: the softirq counts.
    let softirq = is_in(PLACES[1].1) || is_in(PLACES[5].1);
    PLACES
        .iter()
        .find(|(name, names)| !(softirq && *name == IDLE) && is_in(names))
        .map_or("other kernel work", |(name, _)| *name)
}

/// True if a CPU with this call chain had nothing to do.
pub(crate) fn is_idle(chain: &[String]) -> bool {
    place(chain) == IDLE
}

fn share(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

pub(super) fn rows(
    samples: &[(Vec<u64>, u64)],
    symbols: &Symbols,
) -> (Vec<PlaceRow>, Vec<FunctionRow>) {
    let total: u64 = samples.iter().map(|(_, count)| count).sum();
    let (mut places, mut functions) = (Vec::<PlaceRow>::new(), Vec::<FunctionRow>::new());
    for (chain, count) in samples {
        let chain: Vec<String> = chain.iter().map(|address| symbols.name(*address)).collect();
        let name = place(&chain);
        match places.iter_mut().find(|row| row.name == name) {
            Some(row) => row.count += count,
            None => places.push(PlaceRow { name, count: *count, share: 0.0 }),
        }
        let Some(function) = chain.into_iter().next().filter(|_| name != IDLE) else { continue };
        match functions.iter_mut().find(|row| row.name == function) {
            Some(row) => row.count += count,
            None => functions.push(FunctionRow { name: function, count: *count, share: 0.0 }),
        }
    }
    let idle = places.iter().find(|row| row.name == IDLE).map_or(0, |row| row.count);
    places.iter_mut().for_each(|row| row.share = share(row.count, total));
    functions.iter_mut().for_each(|row| row.share = share(row.count, total - idle));
    places.sort_by_key(|row| std::cmp::Reverse(row.count));
    functions.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
    (places, functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn softirq_on_top_of_the_idle_loop_is_not_idle() {
        assert_eq!(place(&chain(&["udp_rcv", "net_rx_action", "do_idle"])), PLACES[1].0);
        assert_eq!(place(&chain(&["pv_native_safe_halt", "do_idle"])), IDLE);
        assert_eq!(place(&[]), "user space");
        assert_eq!(place(&chain(&["kthread"])), "other kernel work");
        // On loopback, the receive path runs inside the system call that sends.
        let looped = chain(&["udp_rcv", "net_rx_action", "__sys_sendto", "do_syscall_64"]);
        assert_eq!(place(&looped), PLACES[1].0);
    }
}
