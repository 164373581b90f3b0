//! A script that adds the settings to a connection of NetworkManager.
//!
//! Source: nm-settings-nmcli(5), as of version 1.42 (Debian 12).

use super::{ExportedFile, Kept, Setting, Source, take};
use crate::generated::{Line, Plain, line};
use crate::tune::knob::Ethtool;

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let properties = take(settings, |kept| match kept {
        Kept::Ethtool { what, words } => {
            words.iter().map(|(name, value)| property(*what, name, value)).collect()
        }
        // Version 1.42 accepts a limit and drops it without a message.
        Kept::Qdisc { words } if !words.as_str().contains(' ') => {
            Some(vec![line!["tc.qdiscs \"root ", words, "\""]])
        }
        _ => None,
    });
    if properties.is_empty() {
        return None;
    }
    let (label, name) = (source.label_piece(), &source.device().name);
    let path = format!("{}.nmcli.sh", source.label());
    Some(source.script(path, |text| {
        text.line(&line![
            "# sh ",
            label,
            ".nmcli.sh CONNECTION                          changes a connection of ",
            name
        ])
        .line(&line![
            "# sh ",
            label,
            ".nmcli.sh --offline <old.nmconnection >new    changes a file"
        ])
        .literal(
            "set -eu\n\
             case ${1:?name a connection, or --offline} in\n\
             --offline) set -- --offline connection modify ;;\n\
             *) set -- connection modify \"$1\" ;;\n\
             esac\n\
             exec nmcli \"$@\" \\",
        );
        let (last, others) = properties.split_last().expect("there is one");
        for property in others {
            text.line(&line!["    ", property, " \\"]);
        }
        text.line(&line!["    ", last]);
    }))
}

fn property(what: Ethtool, name: &Plain, value: &Plain) -> Option<Line> {
    let group = match what {
        Ethtool::Features => "feature-",
        Ethtool::Rings => "ring-",
        Ethtool::Coalescing => "coalesce-",
        Ethtool::Channels | Ethtool::Table | Ethtool::HashFields | Ethtool::Rules => return None,
    };
    // Features are words, adaptive coalescing is a number.
    Some(match (what, value.as_str()) {
        (Ethtool::Coalescing, "on") => line!["ethtool.", group, name, " 1"],
        (Ethtool::Coalescing, "off") => line!["ethtool.", group, name, " 0"],
        _ => line!["ethtool.", group, name, " ", value],
    })
}
