//! Forms, and the writers of each.

use std::fmt;

use super::{ExportedFile, Setting, Source};
use super::{ansible, link, networkmanager, sysctl, tmpfiles, tuned, udev, unit};

/// Program that keeps the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Form {
    /// A .link file, sysctl.d and tmpfiles.d, and udev rules for the rest
    Systemd,
    /// udev rules
    Udev,
    /// sysctl.d
    Sysctl,
    /// A script that changes a connection by nmcli
    Networkmanager,
    /// A profile of TuneD
    Tuned,
    /// A playbook that installs files of sysctl.d, tmpfiles.d and udev
    Ansible,
    /// A systemd unit that applies the plan by `wirepath tune` at each start
    Unit,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Systemd => "systemd",
            Form::Udev => "udev",
            Form::Sysctl => "sysctl",
            Form::Networkmanager => "NetworkManager",
            Form::Tuned => "TuneD",
            Form::Ansible => "Ansible",
            Form::Unit => "the unit",
        })
    }
}

impl Form {
    pub(super) fn write(
        self,
        source: &Source<'_>,
        settings: &mut Vec<Setting>,
    ) -> Vec<ExportedFile> {
        type Writer = fn(&Source<'_>, &mut Vec<Setting>) -> Option<ExportedFile>;
        let writers: &[Writer] = match self {
            Form::Systemd => &[sysctl::write, link::write, tmpfiles::write, udev::write],
            Form::Udev => &[udev::write],
            Form::Sysctl => &[sysctl::write],
            Form::Networkmanager => &[networkmanager::write],
            Form::Tuned => &[tuned::write],
            Form::Ansible => {
                let parts: [Writer; 3] = [sysctl::write, tmpfiles::write, udev::write];
                let files = parts.iter().filter_map(|write| write(source, settings)).collect();
                return ansible::write(source, files);
            }
            Form::Unit => return unit::write(source, settings),
        };
        writers.iter().filter_map(|write| write(source, settings)).collect()
    }

    /// Commands that make the files take effect now.
    pub(super) fn next(self, source: &Source<'_>, files: &[ExportedFile]) -> Vec<String> {
        let label = source.label();
        let has = |ending: &str| {
            files.iter().any(|file| file.path.extension().is_some_and(|found| found == ending))
        };
        match self {
            Form::Networkmanager => vec![format!("sh {label}.nmcli.sh CONNECTION")],
            Form::Tuned => {
                vec![format!("tuned-adm profile {label}"), "tuned-adm verify".to_owned()]
            }
            Form::Ansible => {
                vec![
                    format!("ansible-playbook -i HOST, {label}.yml"),
                    "again: nothing changes".into(),
                ]
            }
            Form::Unit => vec![format!("systemctl enable --now {label}.service")],
            Form::Systemd | Form::Udev | Form::Sysctl => {
                let mut next = Vec::new();
                if has("link") || has("rules") {
                    next.push("udevadm control --reload".to_owned());
                    next.push(
                        "udevadm trigger --action=add --subsystem-match=net \
                               --subsystem-match=cpu"
                            .to_owned(),
                    );
                }
                if files.iter().any(|file| file.path.starts_with("etc/sysctl.d")) {
                    next.push("sysctl --system".to_owned());
                }
                if files.iter().any(|file| file.path.starts_with("etc/tmpfiles.d")) {
                    next.push(format!("systemd-tmpfiles --create {label}.conf"));
                }
                next
            }
        }
    }
}
