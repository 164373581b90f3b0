//! Netfilter hook functions of a network namespace.

use std::fmt;
use std::io::{self, Read};

use super::error::{BpfError, kernel_for};
use super::object::{Opened, embedded};
use crate::capability::Capability;
use crate::netns::Netns;

/// A function that netfilter calls for packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookFunction {
    /// `ip`, `ip6` or `bridge`.
    pub family: &'static str,
    /// `prerouting`, `input`, `forward`, `output` or `postrouting`.
    pub hook: &'static str,
    /// Name of the kernel function; `more` if there are more than the program lists.
    pub function: String,
}

impl fmt::Display for HookFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.family, self.hook, self.function)
    }
}

/// Functions hooked into the IP and bridge stacks of a network namespace, in the order of
/// execution.
///
/// # Errors
/// [`BpfError::Permission`] without CAP_BPF and CAP_PERFMON; [`BpfError::Load`] where the kernel has
/// no BTF or no task iterator (before 5.8).
pub fn hook_functions(netns: &Netns) -> Result<Vec<HookFunction>, BpfError> {
    let text = read_inside(netns, "hooks", embedded!("hooks"))?;
    Ok(text.lines().filter_map(parse).collect())
}

/// Output of a task iterator that prints the reader's namespace, read inside `netns`.
pub(super) fn read_inside(
    netns: &Netns,
    name: &'static str,
    object: &[u8],
) -> Result<String, BpfError> {
    let needs = kernel_for(name, false);
    let failed =
        |source: io::Error| BpfError::Load { program: name, needs, log: String::new(), source };
    let loaded =
        Opened::open(name, object)?.needs(&[Capability::Bpf, Capability::Perfmon]).load()?;
    let link = loaded.program(name)?.attach().map_err(|why| failed(io::Error::other(why)))?;
    let text = netns.run(|| {
        let mut text = String::new();
        libbpf_rs::Iter::new(&link)
            .map_err(io::Error::other)?
            .read_to_string(&mut text)
            .map(|_| text)
    });
    text.map_err(|why| failed(io::Error::other(why)))?.map_err(failed)
}

fn parse(line: &str) -> Option<HookFunction> {
    let mut words = line.split_whitespace();
    // Source: linux/netfilter.h, NFPROTO_* and nf_inet_hooks.
    let family = match words.next()? {
        "2" => "ip",
        "7" => "bridge",
        "10" => "ip6",
        _ => return None,
    };
    const HOOKS: [&str; 5] = ["prerouting", "input", "forward", "output", "postrouting"];
    let hook = HOOKS.get(words.next()?.parse::<usize>().ok()?)?;
    Some(HookFunction { family, hook, function: words.next()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_and_nonsense_is_not() {
        let hook = parse("2 3 nft_do_chain_ipv4 [nf_tables]").unwrap();
        assert_eq!(hook.to_string(), "ip output nft_do_chain_ipv4");
        for bad in ["", "2", "2 5 x", "3 0 x", "2 x y", "2 1"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_empty_namespace_has_no_firewall_function() {
        let hooks = hook_functions(&Netns::new().unwrap()).unwrap();
        assert!(!hooks.iter().any(|hook| hook.function.starts_with("nft_")), "{hooks:?}");
    }
}
