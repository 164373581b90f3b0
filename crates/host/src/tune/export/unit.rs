//! A unit of systemd that applies the plan by Wirepath itself.
//!
//! Source: systemd.service(5).

use super::{ExportedFile, Setting, Source, file};

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Vec<ExportedFile> {
    settings.clear();
    let label = source.label();
    let plan = format!("etc/wirepath/{label}.toml");
    let device = source.device.as_ref().filter(|_| source.plan.netns.is_none());
    let device =
        device.map(|device| format!("sys-subsystem-net-devices-{}.device", escape(&device.name)));
    let after =
        device.as_ref().map_or(String::new(), |unit| format!("BindsTo={unit}\nAfter={unit}\n"));
    // Started by its device, it does not fail where the device takes longer than systemd waits.
    let wanted_by = device.as_deref().unwrap_or("multi-user.target");
    let unit = format!(
        "{title}\n\
         # A value that is neither the plan's `seen` nor its `value` at start-up makes the unit fail,\n\
         # and nothing is changed. Stopping the unit restores the earlier values.\n\
         [Unit]\n\
         Description=Settings of a Wirepath plan ({label})\n\
         {after}\
         \n\
         [Service]\n\
         Type=oneshot\n\
         RemainAfterExit=yes\n\
         StateDirectory=wirepath/tune\n\
         StateDirectoryMode=0700\n\
         ExecStart=/usr/bin/wirepath tune apply /{plan}\n\
         ExecStop=/usr/bin/wirepath tune rollback\n\
         \n\
         [Install]\n\
         WantedBy={wanted_by}\n",
        title = source.title(),
    );
    vec![
        file(plan, source.plan.to_text()),
        file(format!("etc/systemd/system/{label}.service"), unit),
    ]
}

/// Source: systemd.unit(5), "String Escaping for Inclusion in Unit Names".
fn escape(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '-' => "\\x2d".to_owned(),
            c => c.to_string(),
        })
        .collect()
}
