//! `tmpfiles.d`: files of the host that belong to no device.
//!
//! Source: tmpfiles.d(5), type `w`.

use super::{ExportedFile, Kept, Setting, Source, file, take};

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let lines = take(settings, |kept| match kept {
        Kept::HostFile { path, value } => Some(vec![format!("w /{path} - - - - {value}")]),
        _ => None,
    });
    let text = || format!("{}\n{}\n", source.title(), lines.join("\n"));
    (!lines.is_empty()).then(|| file(format!("etc/tmpfiles.d/{}.conf", source.label()), text()))
}
