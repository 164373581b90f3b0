//! `wirepath history export`.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use report::export::{Table, TrialsCsv, TrialsJson, TrialsParquet};
use report::store::{Filter, SqliteStore, Store};

use super::args::{ExportArgs, Format};
use crate::args::Cli;
use crate::console;
use crate::end::Failure;

pub(crate) fn run(cli: &Cli, args: &ExportArgs) -> Result<(), Failure> {
    let store = super::open_reading(cli)?;
    let mut ids = args.ids.clone();
    if args.all {
        ids = store.list(&Filter::default())?.into_iter().map(|row| row.id).collect();
        // Oldest first, as a table that grows at its end.
        ids.reverse();
    }
    let Some(file) = &args.output else {
        if args.format == Format::Parquet && io::stdout().is_terminal() {
            let why = "Parquet is not for a terminal: give -o FILE, or redirect standard output";
            return Err(Failure::Usage(why.into()));
        }
        let mut out = Vec::new();
        write(&store, &ids, args.format, &mut out)?;
        return console::bytes(&out);
    };
    let failed = |e: io::Error| Failure::failed(format!("cannot write {}: {e}", file.display()));
    // Beside it first: a full disk must not leave half a table under the name asked for.
    let part = part_of(file);
    let mut out = BufWriter::new(File::create(&part).map_err(failed)?);
    let written = write(&store, &ids, args.format, &mut out)
        .and_then(|()| out.flush().map_err(failed))
        .and_then(|()| std::fs::rename(&part, file).map_err(failed));
    if written.is_err() {
        // Nothing more can be done about it.
        let _ = std::fs::remove_file(&part);
        return written;
    }
    console::say(&format!("wrote {}", file.display()));
    Ok(())
}

fn part_of(file: &Path) -> std::path::PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

fn write(
    store: &SqliteStore,
    ids: &[String],
    format: Format,
    out: &mut (dyn Write + Send),
) -> Result<(), Failure> {
    let failed = |e: io::Error| Failure::failed(format!("cannot write the export: {e}"));
    let mut table: Box<dyn Table + '_> = match format {
        Format::Csv => Box::new(TrialsCsv::new(out).map_err(failed)?),
        Format::Json => Box::new(TrialsJson::new(out).map_err(failed)?),
        Format::Parquet => Box::new(TrialsParquet::new(out).map_err(failed)?),
    };
    for id in ids {
        table.add(&super::outcome_of(store.load(id)?)).map_err(failed)?;
    }
    table.finish().map_err(failed)
}
