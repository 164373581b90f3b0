//! Figures of a trial, each from the output that it names.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use host::user_file;
use lab::adapters::{Figure, FigureError, OUTPUT_BYTES_MAX, Origin};
use lab::program::{FinishedProgram, is_changed_since};
use model::PathError;

use crate::CheckedPrograms;

/// Units that followed bare numbers in the outputs so far, by figure.
pub(crate) type UnitsBeside = BTreeMap<String, Option<String>>;

/// Values by figure.
pub(crate) type FigureValues = BTreeMap<String, f64>;

/// Figures of the program that is measured; a missing one fails the trial.
pub(crate) fn own_figures<'a>(
    spec: &'a CheckedPrograms,
    program: &FinishedProgram,
    files: &Files<'_>,
    units_beside: &mut UnitsBeside,
) -> Result<Vec<(&'a Figure, f64)>, PathError> {
    let name = "client";
    let failed = |error: FigureError| {
        let why = host::text::chain(&error);
        PathError::at(name, format!("{why}; {}", program.last_lines()))
    };
    let output = program.stdout.bytes();
    let mut taken = Vec::new();
    if let Some(adapter) = &spec.adapter {
        let values = adapter.take(output).map_err(failed)?.into_iter().map(|(_, value)| value);
        taken.extend(adapter.figures.iter().zip(values));
    }
    for figure in spec.figures.iter().filter(|figure| !spec.is_of_far(figure)) {
        let beside = units_beside.entry(figure.name.clone()).or_default();
        let value = match &figure.origin {
            Origin::File(path) => {
                let bytes = files.read(path).map_err(|why| PathError::at(name, why))?;
                figure.take_beside(&bytes, beside)
            }
            _ => figure.take_beside(output, beside),
        };
        taken.push((figure, value.map_err(failed)?));
    }
    Ok(taken)
}

/// Adds the figures of the server's end to those of the other. Errors: that end has not sent one.
pub(crate) fn add_figures_of_far(
    spec: &CheckedPrograms,
    values: &FigureValues,
    m: &mut model::Measurement,
) -> Result<(), PathError> {
    for figure in spec.figures_of_far() {
        let value = values.get(&figure.name).copied().filter(|value| value.is_finite());
        let value = value.ok_or_else(|| {
            PathError::at("server", format!("the far end sent no value of {}", figure.name))
        })?;
        figure.enter(value, m);
    }
    Ok(())
}

/// Files that the programs of a trial write.
pub(crate) struct Files<'a> {
    /// Working directory of the programs.
    pub(crate) folder: &'a Path,
    /// Start of the trial: an older file is of an earlier one.
    pub(crate) since: SystemTime,
}

impl Files<'_> {
    /// Contents of a file. Errors: it is missing, older than the trial, no file, or too long.
    pub(crate) fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        let at = self.folder.join(path);
        let failed = |why: String| format!("cannot read {}: {why}", at.display());
        // Of a link, that of its target; a pipe would wait for a writer.
        let metadata = fs::metadata(&at).map_err(|error| {
            failed(format!("{error}; the program has to write it before it ends"))
        })?;
        if !metadata.is_file() {
            return Err(failed("it is not a regular file".into()));
        }
        if !is_changed_since(&metadata, self.since) {
            return Err(failed(
                "it is older than the trial; the program has to write it in each trial".into(),
            ));
        }
        user_file::read(&at, OUTPUT_BYTES_MAX as u64).map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_file_of_an_earlier_trial_is_refused_and_so_is_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let read = |since| Files { folder: folder.path(), since }.read(Path::new("f"));
        let begun = SystemTime::now();
        assert!(read(begun).unwrap_err().contains("before it ends"));
        fs::write(folder.path().join("f"), "{}").unwrap();
        assert_eq!(read(begun).unwrap(), b"{}");
        let later = SystemTime::now() + Duration::from_secs(1);
        assert!(read(later).unwrap_err().contains("older than the trial"));
        fs::remove_file(folder.path().join("f")).unwrap();
        fs::create_dir(folder.path().join("f")).unwrap();
        assert!(read(begun).unwrap_err().contains("not a regular file"));
    }
}
