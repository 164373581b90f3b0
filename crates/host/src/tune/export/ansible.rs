//! A playbook of Ansible that installs the files of other writers and makes them take effect when they
//! change.
//!
//! Source: Ansible 2.14 (Debian 12), modules `copy` and `command` of ansible.builtin.

use super::{ExportedFile, Source, file};

pub(super) fn write(source: &Source<'_>, parts: Vec<ExportedFile>) -> Vec<ExportedFile> {
    if parts.is_empty() {
        return Vec::new();
    }
    let (mut tasks, mut handlers) = (String::new(), String::new());
    for part in &parts {
        let path = part.path.display();
        let (name, command) = match part.path.components().nth(1) {
            Some(folder) if folder.as_os_str() == "sysctl.d" => {
                ("Load sysctl.d", format!("sysctl --load=/{path}"))
            }
            Some(folder) if folder.as_os_str() == "tmpfiles.d" => {
                ("Apply tmpfiles.d", format!("systemd-tmpfiles --create /{path}"))
            }
            _ => (
                "Trigger udev",
                "sh -c 'udevadm control --reload && udevadm trigger --action=add --settle \
                 --subsystem-match=net --subsystem-match=cpu'"
                    .to_owned(),
            ),
        };
        let content: String = part.text.lines().map(|line| format!("          {line}\n")).collect();
        tasks.push_str(&format!(
            "    - name: Install /{path}\n      ansible.builtin.copy:\n        dest: /{path}\n        \
             mode: \"0644\"\n        content: |\n{content}      notify: {name}\n"
        ));
        handlers
            .push_str(&format!("    - name: {name}\n      ansible.builtin.command: {command}\n"));
    }
    let text = format!(
        "{}\n- name: Settings of a Wirepath plan\n  hosts: all\n  become: true\n  tasks:\n{tasks}  \
         handlers:\n{handlers}",
        source.title()
    );
    vec![file(format!("{}.yml", source.label()), text)]
}
