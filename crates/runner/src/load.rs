//! The load of a request.

use model::{Load, LoadKind, LoadRequest, Path, Support, did_you_mean};
use remote::Failure;

/// Load of a path with this name; the path's first one unless named.
pub fn find_load(path: &dyn Path, name: Option<&str>) -> Result<&'static LoadKind, Failure> {
    let loads = path.loads();
    let Some(name) = name else { return Ok(&loads[0]) };
    loads.iter().find(|load| load.name == name).ok_or_else(|| {
        let known = loads.iter().map(|load| load.name).collect::<Vec<_>>().join(", ");
        let hint = did_you_mean(name, loads.iter().map(|load| load.name));
        let path = path.name();
        Failure::Usage(format!("'{name}' is not a load of {path}{hint}it has: {known}"))
    })
}

/// Errors: the host lacks something.
pub fn check_support(support: &Support) -> Result<(), Failure> {
    match support {
        Support::Unsupported { what, needs } => {
            Err(Failure::Unsupported(format!("{what} is not possible here: {needs}")))
        }
        _ => Ok(()),
    }
}

/// The load with the values of the request. Errors: the path or its load has no such value.
pub fn requested_load(
    path: &dyn Path,
    kind: &LoadKind,
    request: &LoadRequest,
) -> Result<Load, Failure> {
    request.check().map_err(Failure::usage)?;
    if kind.size_bytes == 0 && request.size_bytes.is_some() {
        return Err(Failure::Usage(format!(
            "load {} defines its own message sizes; remove --size",
            kind.name
        )));
    }
    let of_probe = [
        ("--ip", request.ipv6),
        ("--vlan", request.vlan_tag.is_some()),
        ("--wire", request.wire.is_some()),
    ];
    for (option, is_given) in of_probe {
        if is_given && path.name() != "probe" {
            let name = path.name();
            let why = format!("{option} is of path probe; leave it out of path {name}");
            return Err(Failure::Usage(why));
        }
    }
    Ok(Load {
        kind: kind.name.to_owned(),
        size_bytes: request.size_bytes.unwrap_or(kind.size_bytes),
        rate_pps: request.rate_pps.unwrap_or(kind.rate_pps),
        trial: request.trial.unwrap_or(kind.trial),
        ipv6: request.ipv6,
        vlan_tag: request.vlan_tag,
        wire: request.wire.clone(),
        far: request.far.clone(),
    })
}
