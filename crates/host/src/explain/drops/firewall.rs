//! The rule of the firewall that dropped a packet.

use crate::net::nftables::{HookPoint, Layer, RulePacket, Suspect};

use super::spaces::Space;
use super::{Advice, DropRule, command_word};

/// Functions that enter the chains of a hook.
///
/// Source: calls of `NF_HOOK` and `nf_hook` in net/ipv4, net/ipv6, net/bridge, net/core/dev.c of Linux 6.12.
const ENTRIES: [(&str, Layer, &str); 34] = [
    ("ip_rcv", Layer::Ip, "prerouting"),
    ("ip_list_rcv", Layer::Ip, "prerouting"),
    ("ip_sublist_rcv", Layer::Ip, "prerouting"),
    ("ipv6_rcv", Layer::Ip, "prerouting"),
    ("ipv6_list_rcv", Layer::Ip, "prerouting"),
    ("ip6_sublist_rcv", Layer::Ip, "prerouting"),
    ("ip_local_deliver", Layer::Ip, "input"),
    ("ip6_input", Layer::Ip, "input"),
    ("ip_forward", Layer::Ip, "forward"),
    ("ip6_forward", Layer::Ip, "forward"),
    ("ip_mr_forward", Layer::Ip, "forward"),
    ("__ip_local_out", Layer::Ip, "output"),
    ("__ip6_local_out", Layer::Ip, "output"),
    ("ip6_xmit", Layer::Ip, "output"),
    ("raw_send_hdrinc", Layer::Ip, "output"),
    ("raw_sendmsg", Layer::Ip, "output"),
    ("rawv6_sendmsg", Layer::Ip, "output"),
    ("ndisc_send_skb", Layer::Ip, "output"),
    ("mld_sendpack", Layer::Ip, "output"),
    ("ip_output", Layer::Ip, "postrouting"),
    ("ip_mc_output", Layer::Ip, "postrouting"),
    ("ip6_output", Layer::Ip, "postrouting"),
    ("ip6_finish_output", Layer::Ip, "postrouting"),
    ("br_handle_frame", Layer::Bridge, "prerouting"),
    ("br_pass_frame_up", Layer::Bridge, "input"),
    ("__br_forward", Layer::Bridge, "forward"),
    ("br_forward_finish", Layer::Bridge, "postrouting"),
    ("br_dev_xmit", Layer::Bridge, "output"),
    ("arp_rcv", Layer::Arp, "input"),
    ("arp_xmit", Layer::Arp, "output"),
    ("__netif_receive_skb_core", Layer::Device, "ingress"),
    ("__netif_receive_skb_core.constprop.0", Layer::Device, "ingress"),
    ("nf_hook_egress", Layer::Device, "egress"),
    ("__dev_queue_xmit", Layer::Device, "egress"),
];

/// Functions of netfilter itself.
const OWN: [&str; 6] = ["nft_", "nf_", "nf_hook", "ipt_", "__nf_", "ip6t_"];

/// The hook at which netfilter dropped a packet, by the call chain of the drop, innermost first; `None` if no known
/// function is in it.
fn hook_of(chain: &[String]) -> Option<HookPoint> {
    let mut callers = chain.iter().skip_while(|name| OWN.iter().any(|own| name.starts_with(own)));
    let (_, layer, hook) =
        callers.find_map(|name| ENTRIES.iter().find(|(entry, ..)| entry == name))?;
    Some(HookPoint { layer: *layer, hook })
}

/// Hooks that a packet may have met, in its order.
fn possible_hooks(packet: &RulePacket) -> Vec<HookPoint> {
    let was_received = packet.input.as_ref().is_some_and(|(index, _)| *index != 0);
    let hooks: &[(Layer, &str)] = if was_received {
        &[
            (Layer::Device, "ingress"),
            (Layer::Ip, "prerouting"),
            (Layer::Ip, "input"),
            (Layer::Ip, "forward"),
            (Layer::Ip, "postrouting"),
        ]
    } else {
        &[(Layer::Ip, "output"), (Layer::Ip, "postrouting"), (Layer::Device, "egress")]
    };
    hooks.iter().map(|(layer, hook)| HookPoint { layer: *layer, hook }).collect()
}

/// Says which rule dropped a packet. The rules are found in the first one of the sample's hooks, as they are now.
///
/// - `what`: the packet in words.
/// - `function`: that dropped it. `chain`: its callers, innermost first.
pub(super) fn explain(
    space: &Space,
    packet: &RulePacket,
    what: &str,
    function: &str,
    chain: &[String],
) -> (Advice, Vec<DropRule>) {
    if function.starts_with("ipt_") || function.starts_with("ip6t_") {
        let advice = Advice::new(
            format!("a rule of iptables-legacy drops {what}"),
            format!("{}iptables-legacy-save -c shows the rules with their counters", space.prefix),
            "none: it changes nothing",
        );
        return (advice, Vec::new());
    }
    let points = hook_of(chain).map_or_else(|| possible_hooks(packet), |point| vec![point]);
    let Some(rules) = space.rules() else {
        let advice = Advice::new(
            format!("a rule of the firewall drops {what}; the rules could not be read"),
            "nft -a list ruleset shows them, as root and in the packet's namespace".to_owned(),
            "none: it changes nothing",
        );
        return (advice, Vec::new());
    };
    let suspects = rules.suspects(packet, &points);
    (advice(space, what, &points, &suspects), suspects.iter().map(named_rule).collect())
}

fn named_rule(suspect: &Suspect<'_>) -> DropRule {
    let chain = suspect.chain;
    DropRule {
        family: chain.family,
        table: chain.table.clone(),
        chain: chain.name.clone(),
        handle: suspect.rule.map(|rule| rule.handle),
    }
}

fn advice(space: &Space, what: &str, points: &[HookPoint], suspects: &[Suspect<'_>]) -> Advice {
    let prefix = &space.prefix;
    match suspects {
        [] => {
            let hooks: Vec<&str> = points.iter().map(|point| point.hook).collect();
            Advice::new(
                format!(
                    "netfilter drops {what} at the hook {}, by no rule that is there now: it was removed \
                     meanwhile, or is not of nftables",
                    hooks.join(" or ")
                ),
                format!("{prefix}nft list ruleset; {prefix}conntrack -S (insert_failed, drop)"),
                "none: it changes nothing",
            )
        }
        [suspect] => {
            let Commands { look, change, undo } = commands(prefix, suspect);
            let unread = unread(suspect);
            let sentence = match suspect.rule {
                Some(_) => format!("{} drops {what}{unread}", place(suspect)),
                None => format!("{} drops {what}: no rule accepts it", place(suspect)),
            };
            Advice::new(sentence, format!("{look}; {change}"), undo)
        }
        several => {
            let places: Vec<String> = several
                .iter()
                .take(LISTED_MAX)
                .map(|suspect| place(suspect) + &unread(suspect))
                .collect();
            let more = several.len().saturating_sub(LISTED_MAX);
            let more = if more > 0 { format!(", or {more} others") } else { String::new() };
            Advice::new(
                format!("one of these drops {what}: {}{more}", places.join(", or ")),
                format!(
                    "{}; a `counter` in each rule tells which",
                    commands(prefix, &several[0]).look
                ),
                "none: it changes nothing",
            )
        }
    }
}

/// Most rules in a sentence.
const LISTED_MAX: usize = 4;

fn place(suspect: &Suspect<'_>) -> String {
    let chain = suspect.chain;
    let (family, table, name) = (chain.family, shown(&chain.table), shown(&chain.name));
    match suspect.rule {
        Some(rule) => format!("rule {} of chain {name} of table {family} {table}", rule.handle),
        None => format!("the policy of chain {name} of table {family} {table}"),
    }
}

fn shown(name: &str) -> String {
    crate::text::printable(name, 64)
}

fn unread(suspect: &Suspect<'_>) -> String {
    match suspect.unread.as_slice() {
        [] => String::new(),
        unread => format!(" (its `{}` could not be evaluated)", unread.join("`, `")),
    }
}

/// Commands about a rule.
struct Commands {
    look: String,
    change: String,
    undo: String,
}

fn commands(prefix: &str, suspect: &Suspect<'_>) -> Commands {
    let chain = suspect.chain;
    let path = format!(
        "{} {} {}",
        chain.family,
        command_word(&chain.table, "TABLE"),
        command_word(&chain.name, "CHAIN")
    );
    let look = format!("{prefix}nft -a list chain {path}");
    match suspect.rule {
        Some(rule) => Commands {
            look,
            change: format!("{prefix}nft delete rule {path} handle {}", rule.handle),
            undo: format!(
                "{prefix}nft insert rule {path} with the rule's text as the list shows it"
            ),
        },
        None => Commands {
            look,
            change: format!(
                "{prefix}nft insert rule {path} MATCH accept, with a match for the packets that are \
                 wanted"
            ),
            undo: format!("{prefix}nft delete rule {path} handle N, with the number in the list"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_hook_is_that_of_the_first_caller_outside_netfilter() {
        for (names, hook) in [
            (
                &[
                    "nft_do_chain",
                    "nft_do_chain_inet",
                    "nf_hook_slow",
                    "ip_local_deliver",
                    "ip_rcv",
                ][..],
                "input",
            ),
            (&["nf_hook_slow", "ip_forward", "ip_rcv"], "forward"),
            (&["nft_do_chain", "nf_hook_slow", "__ip_local_out", "ip_send_skb"], "output"),
            (&["nf_hook_slow", "ip_output", "ip_forward"], "postrouting"),
        ] {
            assert_eq!(hook_of(&chain(names)).map(|point| point.hook), Some(hook), "{names:?}");
        }
        assert_eq!(hook_of(&chain(&["kfree_skb"])), None);
    }

    #[test]
    fn functions_of_bridges_and_single_interfaces_have_their_own_layer() {
        let point = hook_of(&chain(&["nf_hook_slow", "__br_forward", "br_handle_frame"]));
        assert_eq!(point, Some(HookPoint { layer: Layer::Bridge, hook: "forward" }));
        let point = hook_of(&chain(&["nft_do_chain", "__netif_receive_skb_core"]));
        assert_eq!(point, Some(HookPoint { layer: Layer::Device, hook: "ingress" }));
    }
}
