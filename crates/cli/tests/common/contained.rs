//! Files of strangers: their text does not drive the terminal, and their size does not fill the memory.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Output;

use serde_json::Value;
use testkit::hostile;

use super::{Data, all_text, run, run_measured, wirepath};

/// Panics if a text of a stranger drives the terminal, becomes a line of its own, or makes the program panic.
#[track_caller]
pub(crate) fn assert_contained(output: &Output, about: &str) {
    for said in [&output.stdout, &output.stderr] {
        let said = String::from_utf8_lossy(said);
        hostile::assert_shows(&said, &['\r'], about);
        let line = said.lines().find(|line| line.starts_with(hostile::MARK));
        assert_eq!(line, None, "{about}:\n{said}");
        assert!(!said.contains("panicked"), "{about}: {said}");
    }
}

/// Runs commands on a file with each hostile text in each of its fields; none of them drives the terminal.
///
/// - `kind`: name of such a file.
/// - `commands`: words after the program's name; FILE is the file, FOLDER a folder for output.
pub(crate) fn assert_file_is_contained(kind: &str, document: &Value, commands: &[Vec<&str>]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("file.toml");
    let (path, out) = (file.to_str().expect("a plain path"), folder.path().join("out"));
    let out = out.to_str().expect("a plain path");
    let fields = hostile::fields(document);
    let texts = hostile::texts();
    for field in &fields {
        for (name, text) in &texts {
            let document = hostile::replaced(document, field, text);
            fs::write(&file, toml::to_string(&document).expect("TOML")).expect("written");
            for command in commands {
                let words: Vec<&str> = command
                    .iter()
                    .map(|word| match *word {
                        "FILE" => path,
                        "FOLDER" => out,
                        word => word,
                    })
                    .collect();
                let mut command = wirepath(&words);
                command.env("WIREPATH_STATE", folder.path().join("state"));
                let about = format!("{name} in {field:?} of a {kind}, {}", words.join(" "));
                assert_contained(&run(command), &about);
            }
        }
    }
    let (fields, texts, commands) = (fields.len(), texts.len(), commands.len());
    assert!(fields > 0 && texts > 0 && commands > 0, "{kind}: nothing was run");
    testkit::note(&format!("{kind}: {fields} fields, {texts} texts, {commands} commands"));
}

/// Files that are longer than any of their kind.
pub(crate) struct WrongSizes {
    /// Sparse: 8 GiB that take no disk.
    pub(crate) huge: String,
    /// Without an end.
    pub(crate) zeros: String,
}

impl WrongSizes {
    pub(crate) fn new(data: &Data) -> Self {
        let files = WrongSizes { huge: data.file("huge.json"), zeros: data.file("zeros") };
        File::create(&files.huge).and_then(|file| file.set_len(8 << 30)).expect("a sparse file");
        symlink("/dev/zero", &files.zeros).expect("a link");
        fs::set_permissions(&files.huge, Permissions::from_mode(0o600)).expect("our file");
        files
    }

    /// Asserts that a command refuses a file because of its size, and does not read it.
    pub(crate) fn assert_refused(&self, data: &Data, args: &[&str]) {
        let mut command = data.wirepath(args);
        command.env("WIREPATH_STATE", data.file("state"));
        let (output, peak_bytes) = run_measured(command);
        let said = all_text(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(peak_bytes < 100 << 20, "{args:?}: {} MiB", peak_bytes >> 20);
        let is_secret_open = args[0] == "peer" && said.contains("chmod 600");
        assert!(said.contains("bytes") || is_secret_open, "{args:?}: {said}");
    }
}
