//! Container images as programs.

use host::text::chain;
use remote::Failure;
use sys::child::as_the_user;

/// Container engine without a daemon: its containers are in the namespaces of the program that starts them.
const ENGINE: &str = "podman";

/// Commands that run the images in the namespace of a trial.
///
/// - `are_servers`: they are reached over the network.
///
/// Errors: the engine or an image is missing.
pub(super) fn commands(images: [&String; 2], are_servers: bool) -> Result<[String; 2], Failure> {
    for image in images {
        let exists = as_the_user(&mut std::process::Command::new(ENGINE))
            .args(["image", "exists", image])
            .stdin(std::process::Stdio::null())
            .output();
        match exists {
            Err(error) => {
                return Err(Failure::Unsupported(format!(
                    "--image needs {ENGINE}, which starts containers in the lab's namespaces (docker's daemon does not): {}",
                    chain(&error)
                )));
            }
            Ok(output) if !output.status.success() => {
                return Err(Failure::Usage(format!(
                    "{ENGINE} has no image {image:?} here; fetch it first: {ENGINE} pull {image}"
                )));
            }
            Ok(_) => {}
        }
    }
    let network = if are_servers { "host" } else { "none" };
    Ok(images.map(|image| {
        format!(
            "exec {ENGINE} run --rm --network={network} --cgroups=disabled --log-driver=none {}",
            report::quoted(image)
        )
    }))
}
