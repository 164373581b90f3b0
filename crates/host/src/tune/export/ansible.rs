//! A playbook of Ansible that installs the files of other writers and makes them take effect when they
//! change.
//!
//! Source: Ansible 2.14 (Debian 12), modules `copy` and `command` of ansible.builtin.

use std::path::Path;

use super::{ExportedFile, Source};
use crate::generated::{Line, Plain, Text, line};

pub(super) fn write(source: &Source<'_>, parts: Vec<ExportedFile>) -> Vec<ExportedFile> {
    if parts.is_empty() {
        return Vec::new();
    }
    let (mut tasks, mut handlers) = (Text::default(), Text::default());
    let unit = line![
        "sh -c 'systemctl daemon-reload && systemctl enable ",
        source.label_piece(),
        "-routes.service && \
                      systemctl restart ",
        source.label_piece(),
        "-routes.service'"
    ];
    let mut named = Vec::new();
    for part in &parts {
        let path = plain_path(&part.path);
        let (name, command) = match part.path.components().nth(1) {
            Some(folder) if folder.as_os_str() == "sysctl.d" => {
                ("Load sysctl.d", line!["sysctl --load=/", path])
            }
            Some(folder) if folder.as_os_str() == "tmpfiles.d" => {
                ("Apply tmpfiles.d", line!["systemd-tmpfiles --create /", path])
            }
            Some(folder) if matches!(folder.as_os_str().to_str(), Some("systemd" | "wirepath")) => {
                ("Start the unit of routes", unit.clone())
            }
            _ => ("Trigger udev", Line::new(&[&TRIGGER])),
        };
        // `copy` makes no folders, and no package makes this one.
        if part.path.starts_with("etc/wirepath") {
            tasks.literal(
                "    - name: Make /etc/wirepath\n      ansible.builtin.file:\n        path: /etc/wirepath\n        \
                 state: directory\n        mode: \"0755\"",
            );
        }
        tasks
            .line(&line!["    - name: Install /", path])
            .literal("      ansible.builtin.copy:")
            .line(&line!["        dest: /", path])
            .literal("        mode: \"0644\"\n        content: |")
            .block("          ", &part.text)
            .line(&line!["      notify: ", name]);
        if named.contains(&name) {
            continue;
        }
        named.push(name);
        handlers
            .line(&line!["    - name: ", name])
            .line(&line!["      ansible.builtin.command: ", command]);
    }
    let playbook = source.file(format!("{}.yml", source.label()), |text| {
        text.literal("- name: Settings of a Wirepath plan\n  hosts: all\n  become: true\n  tasks:")
            .block("", &tasks)
            .literal("  handlers:")
            .block("", &handlers);
    });
    vec![playbook]
}

const TRIGGER: &str = "sh -c 'udevadm control --reload && udevadm trigger --action=add --settle \
                       --subsystem-match=net --subsystem-match=cpu'";

fn plain_path(path: &Path) -> Plain {
    let text = path.to_str().and_then(Plain::new);
    text.expect("paths of exported files are made of a plain label and literals")
}
