//! `tmpfiles.d`: files of the host that belong to no device.
//!
//! Source: tmpfiles.d(5), type `w`.

use super::{ExportedFile, Kept, Setting, Source, take};
use crate::generated::line;

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let lines = take(settings, |kept| match kept {
        Kept::HostFile { path, value } => Some(vec![line!["w /", path, " - - - - ", value]]),
        _ => None,
    });
    let path = format!("etc/tmpfiles.d/{}.conf", source.label());
    (!lines.is_empty()).then(|| source.file(path, |text| _ = text.lines(&lines)))
}
