//! Links the image for its board.

fn main() {
    println!("cargo::rerun-if-changed=../app/virt.ld");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("none") {
        let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
        println!("cargo::rustc-link-arg-bins=-Timage.ld");
        println!("cargo::rustc-link-arg-bins=-T{folder}/../app/virt.ld");
    }
}
