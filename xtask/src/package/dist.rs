//! The folder of a release as it is uploaded: programs, packages, sources, install script, descriptions for package managers,
//! checksums, and their signature.
//!
//! Signatures are those of OpenSSH: `ssh-keygen` verifies them and is there on nearly every host, of CI too; minisign and
//! cosign would have to be installed first, and OpenSSL of before 3.0 has no one command for Ed25519.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::binary::{self, SUMS, checksum, sum_up};
use super::{copy, deb, files, image, out, output, rpm};
use crate::run;
use crate::target::{TARGETS, Target};

/// Name of the signer, and purpose of the signature, as `contrib/ci/install.sh` expects them.
const SIGNER: &str = "release@wirepath";
const PURPOSE: &str = "wirepath-release";

const HOME: &str = "https://github.com/wirepath/wirepath";

/// Line of the install script that a signed release fills in.
const NO_SIGNERS: &str = "SIGNERS=''\n";

/// Descriptions for package managers, in `contrib/release`.
const DESCRIPTIONS: [&str; 3] = ["PKGBUILD", "wirepath.rb", "flake.nix"];

/// Mark of a line that only a release for arm64 has.
const ARM64: &str = " # arm64";

/// Choices of `cargo xtask dist`.
#[derive(Debug, Default, PartialEq)]
struct Choices<'a> {
    /// Private key of OpenSSH, or a public one whose private key an agent holds.
    key: Option<&'a Path>,
    /// Folder that the files will be fetched from.
    url: Option<&'a str>,
    /// Build everything first.
    build: bool,
}

impl<'a> Choices<'a> {
    fn parse(mut arguments: &'a [&'a str]) -> Result<Self> {
        let mut choices = Choices::default();
        loop {
            arguments = match arguments {
                [] => return Ok(choices),
                ["--build", rest @ ..] => {
                    choices.build = true;
                    rest
                }
                ["--sign", key, rest @ ..] => {
                    choices.key = Some(Path::new(key));
                    rest
                }
                ["--url", url, rest @ ..] if url.starts_with("https://") => {
                    choices.url = Some(url);
                    rest
                }
                ["--url", url, ..] => bail!("{url} is not an https URL"),
                other => bail!(
                    "unexpected {}; expected --build, --sign KEY or --url URL",
                    other.join(" ")
                ),
            };
        }
    }
}

/// Completes the folder that `cargo xtask release` has filled with the packages in `out/`, and prints its checksums.
pub(crate) fn build(root: &Path, arguments: &[&str]) -> Result<()> {
    let choices = Choices::parse(arguments)?;
    if choices.build {
        build_parts(root)?;
    }
    let version = files::version(root)?;
    let out = out(root)?;
    let folder = out.join(format!("wirepath-{version}"));
    let packages = packages(&out, &version);
    let missing = packages.iter().filter(|package| !package.exists());
    for package in missing {
        let name = package.file_name().unwrap_or_default().to_string_lossy();
        println!("not in the release, as it was not built: {name}");
    }
    for package in packages.iter().filter(|package| package.exists()) {
        copy(package, &folder.join(package.file_name().unwrap_or_default()))?;
    }
    pack_sources(root, &version, &folder)?;
    complete(root, &version, &folder, &choices)?;
    print!("{}", fs::read_to_string(folder.join(SUMS)).context("reading the checksums")?);
    if choices.key.is_none() {
        println!("not signed: give --sign KEY, a private key of ssh-keygen");
    }
    println!("the files to upload are in {}", folder.display());
    Ok(())
}

/// Builds program and packages of this machine, and of others that a compiler is here for.
///
/// A Debian package is built on its own machine.
fn build_parts(root: &Path) -> Result<()> {
    // Before the first build, which takes a quarter of an hour.
    deb::check_tools(root)?;
    rpm::check_tools()?;
    image::check_tools()?;
    let native = Target::parse(&[])?;
    deb::build(root)?;
    for target in [native].into_iter().chain(TARGETS.iter().filter(|target| *target != native)) {
        if target.tool("gcc").arg("--version").output().is_err() {
            println!("not built, as {}-gcc is missing: {}", target.gnu, target.triple);
            continue;
        }
        rpm::build(root, target)?;
        image::build(root, target)?;
        binary::build(root, &["--target", target.triple])?;
    }
    Ok(())
}

/// Packages of all machines, built or not.
fn packages(out: &Path, version: &str) -> Vec<PathBuf> {
    let names = TARGETS.iter().flat_map(|target| {
        [
            format!("wirepath_{version}-1_{}.deb", target.debian),
            format!("wirepath-{version}-1.{}.rpm", target.machine),
            format!("wirepath_{version}_{}.oci.tar", target.debian),
        ]
    });
    names.map(|name| out.join(name)).collect()
}

/// The sources of the commit, the same bits each time.
fn pack_sources(root: &Path, version: &str, folder: &Path) -> Result<()> {
    let name = format!("wirepath-{version}");
    let archive = folder.join(format!("{name}.tar"));
    run(Command::new("git")
        .current_dir(root)
        .args(["archive", "--format=tar", &format!("--prefix={name}/"), "--output"])
        .arg(&archive)
        .arg("HEAD"))?;
    run(Command::new("xz").args(["-9", "--threads=1", "--force"]).arg(&archive))
        .context("compressing by xz, of Debian's package xz-utils")
}

/// Adds the generated files, and sums up and signs all.
fn complete(root: &Path, version: &str, folder: &Path, choices: &Choices) -> Result<()> {
    let url = format!("{HOME}/releases/download/v{version}");
    let summary = files::field(root, "description")?;
    let words = Words::new(version, &summary, folder, choices.url.unwrap_or(&url))?;
    for name in DESCRIPTIONS {
        let from = root.join("contrib/release").join(name);
        let text =
            fs::read_to_string(&from).with_context(|| format!("reading {}", from.display()))?;
        let text = words.fill_in(&text).with_context(|| from.display().to_string())?;
        fs::write(folder.join(name), text).with_context(|| format!("writing {name}"))?;
    }
    let script = fs::read_to_string(root.join("contrib/ci/install.sh"))
        .context("reading contrib/ci/install.sh")?;
    let to = folder.join("install.sh");
    fs::write(&to, with_signer(&script, choices.key)?).context("writing install.sh")?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).context("install.sh")?;
    sum_up(folder)?;
    choices.key.map_or(Ok(()), |key| sign(key, &folder.join(SUMS)))
}

/// Replacements in the descriptions for package managers.
struct Words {
    words: Vec<(&'static str, String)>,
    has_arm64: bool,
}

impl Words {
    /// Errors: the folder has no program for x86-64.
    fn new(version: &str, summary: &str, folder: &Path, url: &str) -> Result<Self> {
        let [x86_64, arm64] = ["x86_64", "aarch64"]
            .map(|machine| folder.join(format!("wirepath-{version}-{machine}-linux.xz")));
        if !x86_64.exists() {
            bail!("{} is missing; build it: cargo xtask release", x86_64.display());
        }
        let has_arm64 = arm64.exists();
        let arches = if has_arm64 { "'x86_64' 'aarch64'" } else { "'x86_64'" };
        let mut words = vec![
            ("@VERSION@", version.to_owned()),
            ("@URL@", url.trim_end_matches('/').to_owned()),
            ("@HOME@", HOME.to_owned()),
            ("@SUMMARY@", summary.to_owned()),
            ("@ARCHES@", arches.to_owned()),
            ("@SHA256_x86_64@", checksum(&x86_64)?),
        ];
        if has_arm64 {
            words.push(("@SHA256_aarch64@", checksum(&arm64)?));
        }
        Ok(Words { words, has_arm64 })
    }

    /// Errors: a word that is not known.
    fn fill_in(&self, text: &str) -> Result<String> {
        let mut filled = String::new();
        for line in text.lines() {
            let line = match line.strip_suffix(ARM64) {
                Some(_) if !self.has_arm64 => continue,
                Some(line) => line,
                None => line,
            };
            let known = self.words.iter();
            filled += &known.fold(line.to_owned(), |line, (word, by)| line.replace(word, by));
            filled.push('\n');
        }
        match filled.lines().find(|line| line.matches('@').count() > 1) {
            Some(line) => bail!("an unknown word in: {line}"),
            None => Ok(filled),
        }
    }
}

/// The install script with the public key inside.
fn with_signer(script: &str, key: Option<&Path>) -> Result<String> {
    let Some((before, after)) = script.split_once(NO_SIGNERS) else {
        bail!("contrib/ci/install.sh has no line {}", NO_SIGNERS.trim_end());
    };
    let Some(key) = key else { return Ok(script.to_owned()) };
    let signer = format!("{SIGNER} namespaces=\"{PURPOSE}\" {}", public_key(key)?);
    Ok(format!("{before}SIGNERS='{signer}'\n{after}"))
}

/// Kind and number of a public key, without the comment, which may name a person or a host.
fn public_key(key: &Path) -> Result<String> {
    let is_public = key.extension().is_some_and(|extension| extension == "pub");
    let text = if is_public {
        fs::read_to_string(key).with_context(|| format!("reading {}", key.display()))?
    } else {
        output(Command::new("ssh-keygen").arg("-y").arg("-f").arg(key))?
    };
    let mut words = text.split_whitespace();
    match (words.next(), words.next()) {
        (Some(kind), Some(number)) if !text.contains('\'') => Ok(format!("{kind} {number}")),
        _ => bail!("{} is not a key of ssh-keygen", key.display()),
    }
}

/// Writes the signature of a file beside it.
fn sign(key: &Path, file: &Path) -> Result<()> {
    let mut command = Command::new("ssh-keygen");
    run(command.args(["-Y", "sign", "-q", "-n", PURPOSE, "-f"]).arg(key).arg(file))
}

#[cfg(test)]
mod tests {
    use std::process::Output;

    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    /// A folder with programs for these machines, as `cargo xtask release` leaves it.
    fn release(machines: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for machine in machines {
            let program = folder.path().join(format!("wirepath-1.2.3-{machine}-linux"));
            fs::write(&program, format!("#!/bin/sh\necho wirepath 1.2.3 {machine}\n")).unwrap();
            run(Command::new("xz").arg("--keep").arg(program)).unwrap();
        }
        folder
    }

    fn new_key(folder: &Path) -> PathBuf {
        let key = folder.join("key");
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-t", "ed25519", "-N", "", "-C", "me@host", "-f"]).arg(&key);
        run(&mut command).unwrap();
        key
    }

    /// Runs the folder's own install script on the folder.
    fn install(folder: &Path, to: &Path) -> Output {
        let mut command = Command::new(folder.join("install.sh"));
        command.arg(folder).arg(to).env_remove("WIREPATH_SIGNERS").output().unwrap()
    }

    #[test]
    fn descriptions_have_the_sums_of_the_files_and_are_valid() {
        for machines in [&["x86_64", "aarch64"][..], &["x86_64"]] {
            let folder = release(machines);
            let folder = folder.path();
            complete(root(), "1.2.3", folder, &Choices::default()).unwrap();
            for name in DESCRIPTIONS {
                let text = fs::read_to_string(folder.join(name)).unwrap();
                for machine in ["x86_64", "aarch64"] {
                    let file = folder.join(format!("wirepath-1.2.3-{machine}-linux.xz"));
                    let is_there = machines.contains(&machine);
                    let sum = if is_there { checksum(&file).unwrap() } else { machine.into() };
                    assert_eq!(text.contains(&sum), is_there, "{name}, {machine}:\n{text}");
                }
                let url = "/releases/download/v1.2.3/wirepath-";
                assert!(text.contains(url), "{name}:\n{text}");
            }
            let scripts = ["PKGBUILD", "install.sh"].map(|name| folder.join(name));
            let checked = Command::new("shellcheck").args(scripts).output();
            // .ci/run installs it.
            if let Ok(checked) = checked {
                assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
            }
            let checked = Command::new("ruby").arg("-c").arg(folder.join("wirepath.rb")).output();
            assert!(checked.is_err() || checked.is_ok_and(|checked| checked.status.success()));
            let mut flake = Command::new("nix-instantiate");
            flake.arg("--parse").arg(folder.join("flake.nix"));
            let checked = flake.output();
            assert!(checked.is_err() || checked.is_ok_and(|checked| checked.status.success()));
            run(Command::new("bash").arg("-n").arg(folder.join("PKGBUILD"))).unwrap();
        }
    }

    #[test]
    fn release_without_a_program_is_refused() {
        let folder = release(&["aarch64"]);
        let error = complete(root(), "1.2.3", folder.path(), &Choices::default()).unwrap_err();
        assert!(error.to_string().contains("build it: cargo xtask release"), "{error}");
    }

    #[test]
    fn signed_folder_installs_itself_and_a_changed_one_does_not() {
        let machine = std::env::consts::ARCH;
        let folder = release(&["x86_64", "aarch64"]);
        let (folder, keys, to) =
            (folder.path(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (key, bin) = (new_key(keys.path()), to.path().join("bin"));
        let choices = Choices { key: Some(&key), ..Choices::default() };
        complete(root(), "1.2.3", folder, &choices).unwrap();
        let script = fs::read_to_string(folder.join("install.sh")).unwrap();
        assert!(script.contains(" ssh-ed25519 ") && !script.contains("me@host"), "{script}");
        let installed = install(folder, &bin);
        assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
        fs::remove_dir_all(&bin).unwrap();

        // Program and checksum changed together: the old signature no longer fits, and summing up removes it.
        let signature = folder.join(format!("{SUMS}.sig"));
        let kept = fs::read(&signature).unwrap();
        let program = folder.join(format!("wirepath-1.2.3-{machine}-linux"));
        fs::write(&program, "#!/bin/sh\necho other\n").unwrap();
        sum_up(folder).unwrap();
        assert!(!signature.exists());
        for (signature_text, refusal) in
            [(None, "no SHA256SUMS.sig beside"), (Some(kept), "not signed by a known key")]
        {
            if let Some(text) = signature_text {
                fs::write(&signature, text).unwrap();
            }
            let refused = install(folder, &bin);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success() && said.contains(refusal), "{said}");
            assert!(said.trim_end().lines().count() == 1 && !bin.exists(), "{said}");
        }
    }

    #[test]
    fn choices_are_a_build_a_key_and_an_address() {
        let words = ["--build", "--sign", "key", "--url", "https://example.org/1"];
        let choices = Choices::parse(&words).unwrap();
        assert_eq!(
            choices,
            Choices { key: Some(Path::new("key")), url: Some(words[4]), build: true }
        );
        assert!(Choices::parse(&["--url", "http://example.org"]).is_err());
        assert!(Choices::parse(&["--sign"]).is_err() && Choices::parse(&["other", "x"]).is_err());
    }

    #[test]
    fn unknown_word_is_an_error() {
        let folder = release(&["x86_64"]);
        let words = Words::new("1.2.3", "", folder.path(), "https://example.org/").unwrap();
        let filled = words.fill_in("a @VERSION@ @URL@\nb # arm64\n").unwrap();
        assert_eq!(filled, "a 1.2.3 https://example.org\n");
        assert!(words.fill_in("@OTHER@\n").is_err());
    }
}
