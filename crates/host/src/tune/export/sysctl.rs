//! `sysctl.d`.
//!
//! Source: sysctl.d(5).

use super::{ExportedFile, Kept, Setting, Source, take};
use crate::generated::line;

pub(super) fn write(source: &Source<'_>, settings: &mut Vec<Setting>) -> Option<ExportedFile> {
    let lines = take(settings, |kept| match kept {
        Kept::Sysctl { key, value } => Some(vec![line![key, " = ", value]]),
        _ => None,
    });
    let path = format!("etc/sysctl.d/60-{}.conf", source.label());
    (!lines.is_empty()).then(|| source.file(path, |text| _ = text.lines(&lines)))
}
