//! `sysctl.d`.
//!
//! Source: sysctl.d(5).

use super::{ExportedFile, Kept, Setting, Source, file, take};

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let lines = take(settings, |kept| match kept {
        Kept::Sysctl { key, value } => Some(vec![format!("{key} = {value}")]),
        _ => None,
    });
    let text = || format!("{}\n{}\n", source.title(), lines.join("\n"));
    (!lines.is_empty()).then(|| file(format!("etc/sysctl.d/60-{}.conf", source.label()), text()))
}
