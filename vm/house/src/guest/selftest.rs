//! `wirepath guest selftest`: tests of the firmware's kernel on the machine.

use clap::Args;
use guest::qemu::GuestSystem;
use guest::selftest;
use house::console;
use house::context::Context;
use model::PathError;
use remote::Failure;
use schemars::JsonSchema;
use serde::Serialize;

use super::ImageArgs;

#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    #[command(flatten)]
    image: ImageArgs,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SelftestDocument {
    schema: u32,
    command: &'static str,
    rows: Vec<SelftestRow>,
}

#[derive(Serialize, JsonSchema)]
struct SelftestRow {
    test: String,
    passed: bool,
    figures: String,
}

pub(super) fn run(context: &Context, args: &SelftestArgs) -> Result<(), Failure> {
    let GuestSystem::Firmware { image, .. } = args.image.boot("")?.system else {
        return Err(Failure::failed("only the firmware has self-tests"));
    };
    let lines = selftest::run(&image).map_err(PathError::from)?.into_iter();
    let mut rows: Vec<SelftestRow> = lines
        .map(|line| {
            let figures = line.figures.iter().map(|(name, value)| format!("{name}={value}"));
            let figures = figures.collect::<Vec<_>>().join(" ");
            SelftestRow { figures, test: line.name, passed: line.passed }
        })
        .collect();
    let overflow = selftest::overflow(&image).map_err(PathError::from)?;
    let passed = overflow.contains("stack overflow: ") && !overflow.contains("FAILED");
    rows.push(SelftestRow { test: "stack-overflow".into(), passed, figures: String::new() });
    let failed: Vec<String> =
        rows.iter().filter(|row| !row.passed).map(|row| row.test.clone()).collect();
    if context.json {
        let document = SelftestDocument { schema: model::SCHEMA, command: "guest selftest", rows };
        console::json(&document)?;
    } else {
        let lines = rows.iter().map(|row| {
            let verdict = if row.passed { "ok" } else { "FAILED" };
            format!("{:26} {verdict:6} {}", row.test, row.figures).trim_end().to_owned() + "\n"
        });
        console::text(&lines.collect::<String>())?;
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::failed(format!("the kernel failed: {}", failed.join(", "))))
}
