//! A script that adds the settings to a connection of NetworkManager.
//!
//! Source: nm-settings-nmcli(5), as of version 1.42 (Debian 12).

use super::{ExportedFile, Kept, Setting, Source, file, take};
use crate::tune::knob::Ethtool;

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let properties = take(settings, |kept| match kept {
        Kept::Ethtool { what, words } => {
            words.iter().map(|(name, value)| property(*what, name, value)).collect()
        }
        // Version 1.42 accepts a limit and drops it without a message.
        Kept::Qdisc { words } if !words.contains(' ') => {
            Some(vec![format!("tc.qdiscs \"root {words}\"")])
        }
        _ => None,
    });
    if properties.is_empty() {
        return None;
    }
    let text = format!(
        "#!/bin/sh\n\
         {title}\n\
         # sh {label}.nmcli.sh CONNECTION                          changes a connection of {name}\n\
         # sh {label}.nmcli.sh --offline <old.nmconnection >new    changes a file\n\
         set -eu\n\
         case ${{1:?name a connection, or --offline}} in\n\
         --offline) set -- --offline connection modify ;;\n\
         *) set -- connection modify \"$1\" ;;\n\
         esac\n\
         exec nmcli \"$@\" \\\n    {properties}\n",
        title = source.title(),
        label = source.label(),
        name = source.device().name,
        properties = properties.join(" \\\n    "),
    );
    Some(file(format!("{}.nmcli.sh", source.label()), text))
}

fn property(what: Ethtool, name: &str, value: &str) -> Option<String> {
    let group = match what {
        Ethtool::Features => "feature",
        Ethtool::Rings => "ring",
        Ethtool::Coalescing => "coalesce",
        Ethtool::Channels | Ethtool::Table | Ethtool::HashFields | Ethtool::Rules => return None,
    };
    // Features are words, adaptive coalescing is a number.
    let value = match (what, value) {
        (Ethtool::Coalescing, "on") => "1",
        (Ethtool::Coalescing, "off") => "0",
        _ => value,
    };
    Some(format!("ethtool.{group}-{name} {value}"))
}
