//! Passes build settings on to the program, for its report.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    let compiler = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output();
    let version = version.map(|output| output.stdout).unwrap_or_default();
    println!("cargo::rustc-env=BENCHES_RUSTC={}", String::from_utf8_lossy(&version).trim());
    println!("cargo::rustc-env=BENCHES_PROFILE={}", profile().unwrap_or_else(|| "unknown".into()));
    println!("cargo::rustc-env=BENCHES_OPT_LEVEL={}", env::var("OPT_LEVEL").unwrap_or_default());
    println!("cargo::rerun-if-changed=build.rs");
}

/// Returns the build profile. Cargo reports only the inherited one; the name of the profile itself
/// is a folder above the output.
fn profile() -> Option<String> {
    let ours = env::var_os("OUT_DIR")?;
    let above = Path::new(&ours).ancestors().find(|folder| folder.ends_with("build"))?.parent()?;
    Some(above.file_name()?.to_string_lossy().into_owned())
}
