//! A script that changes metrics of routes by ip(8), and what starts it: a unit of systemd, or NetworkManager.
//!
//! Routes are made by other programs at start-up and by DHCP, so the script reads a route and changes it as it is then.
//!
//! Source: ip-route(8), systemd.service(5), NetworkManager-dispatcher(8).

use super::{ExportedFile, Kept, Setting, Source, take};
use crate::generated::{Line, line};

/// The script; `None` if no setting is of a route.
pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let changes = take(settings, |kept| match kept {
        Kept::Route { destination, is_ipv6, table, word, value } => {
            let version = if *is_ipv6 { "-6 " } else { "-4 " };
            Some(vec![line!["change ", version, *table, " ", destination, " ", *word, " ", value]])
        }
        _ => None,
    });
    if changes.is_empty() {
        return None;
    }
    let name = &source.device().name;
    let path = format!("etc/wirepath/{}.routes.sh", source.label());
    Some(source.script(path, |text| {
        text.literal("set -eu").line(&line!["interface=", name]).literal(CHANGE).lines(&changes);
    }))
}

/// Words of the state of a route are not settings, and `ip route change` does not know them.
const CHANGE: &str = r#"# change VERSION TABLE DESTINATION METRIC VALUE: all else of the route stays.
change() {
    route=$(ip "$1" route show exact "$3" dev "$interface" table "$2" | sed -E 's/ (linkdown|dead|offload|trap)\b//g')
    if [ -z "$route" ] || [ "$(printf '%s\n' "$route" | wc -l)" != 1 ]; then
        echo "there is not exactly one route to $3 by $interface in table $2: not changed" >&2
        exit 1
    fi
    # shellcheck disable=SC2086 # the words of the route
    ip "$1" route change $route dev "$interface" table "$2" "$4" "$5"
}"#;

/// A unit that runs the script at start-up.
pub(super) fn unit(source: &Source<'_>) -> ExportedFile {
    let label = source.label_piece();
    source.file(format!("etc/systemd/system/{}-routes.service", source.label()), |text| {
        text.literal("[Unit]")
            .line(&line!["Description=Routes of a Wirepath plan (", label, ")"])
            .literal(
                "Wants=network-online.target\n\
                 After=network-online.target\n\
                 \n\
                 [Service]\n\
                 Type=oneshot",
            )
            .line(&script(source, "ExecStart=/bin/sh "))
            .literal("\n[Install]\nWantedBy=multi-user.target");
    })
}

/// A script by which NetworkManager runs the other one whenever it has set the interface's routes.
pub(super) fn dispatcher(source: &Source<'_>) -> ExportedFile {
    let name = &source.device().name;
    let path = format!("etc/NetworkManager/dispatcher.d/90-{}.sh", source.label());
    source.script(path, |text| {
        text.line(&line!["[ \"$1\" = ", name, " ] || exit 0"])
            .literal("case $2 in\nup | reapply | dhcp4-change | dhcp6-change)")
            .line(&script(source, "    exec sh "))
            .literal("    ;;\nesac");
    })
}

fn script(source: &Source<'_>, before: &'static str) -> Line {
    line![before, "/etc/wirepath/", source.label_piece(), ".routes.sh"]
}
