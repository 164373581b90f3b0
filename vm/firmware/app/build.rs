//! Links the image for its board.

fn main() {
    println!("cargo::rerun-if-changed=virt.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        // image.ld comes from aarch64-rt; virt.ld defines the memory.
        println!("cargo::rustc-link-arg-bins=-Timage.ld");
        println!("cargo::rustc-link-arg-bins=-T{folder}/virt.ld");
    }
}
