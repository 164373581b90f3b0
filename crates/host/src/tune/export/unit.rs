//! A unit of systemd that applies the plan by Wirepath itself.
//!
//! Source: systemd.service(5).

use super::{ExportedFile, Setting, Source};
use crate::generated::{Line, Plain, line};

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Vec<ExportedFile> {
    settings.clear();
    let label = source.label_piece();
    let device = source.device.as_ref().filter(|_| source.plan.netns.is_none());
    let device =
        device.map(|device| line!["sys-subsystem-net-devices-", escaped(&device.name), ".device"]);
    let unit = source.file(format!("etc/systemd/system/{}.service", source.label()), |text| {
        text.literal(
            "# A value that is neither the plan's `seen` nor its `value` at start-up makes the unit fail,\n\
             # and nothing is changed. Stopping the unit restores the earlier values.\n\
             [Unit]",
        )
        .line(&line!["Description=Settings of a Wirepath plan (", label, ")"]);
        if let Some(device) = &device {
            text.line(&line!["BindsTo=", device]).line(&line!["After=", device]);
        }
        text.literal(
            "\n[Service]\n\
             Type=oneshot\n\
             RemainAfterExit=yes\n\
             StateDirectory=wirepath/tune\n\
             StateDirectoryMode=0700",
        )
        .line(&line!["ExecStart=/usr/bin/wirepath tune apply /etc/wirepath/", label, ".toml"])
        .literal("ExecStop=/usr/bin/wirepath tune rollback\n\n[Install]");
        // Started by its device, it does not fail where the device takes longer than systemd waits.
        match &device {
            Some(device) => text.line(&line!["WantedBy=", device]),
            None => text.literal("WantedBy=multi-user.target"),
        };
    });
    let path = format!("etc/wirepath/{}.toml", source.label()).into();
    vec![ExportedFile { path, text: source.plan.to_generated() }, unit]
}

/// Source: systemd.unit(5), "String Escaping for Inclusion in Unit Names".
fn escaped(name: &Plain) -> Line {
    let parts: Vec<Line> = name.as_str().split('-').map(|part| line![plain(part)]).collect();
    Line::joined(&parts, "\\x2d")
}

fn plain(part: &str) -> Plain {
    Plain::new(part).expect("part of a plain text")
}
