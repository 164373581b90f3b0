//! Forms, and the writers of each.

use std::fmt;

use super::{ExportedFile, Setting, Source};
use super::{ansible, link, networkmanager, routes, sysctl, tmpfiles, tuned, udev, unit};

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
                let mut files: Vec<ExportedFile> =
                    parts.iter().filter_map(|write| write(source, settings)).collect();
                files.extend(with_starter(source, settings, routes::unit));
                return ansible::write(source, files);
            }
            Form::Unit => return unit::write(source, settings),
        };
        let mut files: Vec<ExportedFile> =
            writers.iter().filter_map(|write| write(source, settings)).collect();
        match self {
            Form::Systemd => files.extend(with_starter(source, settings, routes::unit)),
            Form::Networkmanager => {
                files.extend(with_starter(source, settings, routes::dispatcher))
            }
            _ => {}
        }
        files
    }

    /// Commands that make the files take effect now.
    pub(super) fn next(self, source: &Source<'_>, files: &[ExportedFile]) -> Vec<String> {
        let label = source.label();
        let has = |ending: &str| {
            files.iter().any(|file| file.path.extension().is_some_and(|found| found == ending))
        };
        match self {
            Form::Networkmanager => {
                let mut next = Vec::new();
                if files.iter().any(|file| file.path.starts_with("etc/NetworkManager")) {
                    let script = format!("/etc/NetworkManager/dispatcher.d/90-{label}.sh");
                    next.push(format!("chmod 755 {script}"));
                    next.push(format!("sh /etc/wirepath/{label}.routes.sh"));
                }
                if files.iter().any(|file| !file.path.starts_with("etc")) {
                    next.push(format!("sh {label}.nmcli.sh CONNECTION"));
                }
                next
            }
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
                if has("service") {
                    next.push("systemctl daemon-reload".to_owned());
                    next.push(format!("systemctl enable --now {label}-routes.service"));
                }
                next
            }
        }
    }
}

/// The script of routes and what starts it; nothing if no setting is of a route.
fn with_starter(
    source: &Source<'_>,
    settings: &mut Vec<Setting>,
    starter: fn(&Source<'_>) -> ExportedFile,
) -> Vec<ExportedFile> {
    let script = routes::write(source, settings);
    script.map_or(Vec::new(), |script| vec![script, starter(source)])
}
