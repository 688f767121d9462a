//! `cargo xtask deny` and `cargo xtask msrv`: the dependencies of redbolt, and the oldest Rust that
//! builds it.
//!
//! Both need something that only a user can install. They fail if it is missing, and print how to
//! get it.

use std::process::{Command, Stdio};

use crate::{
    package::{PUBLISHED, target},
    step::{self, Failure, cargo, root},
};

/// Checks licences, sources and advisories of all dependencies, and duplicates among the crates
/// that users build. Advisories need the network.
pub(crate) fn deny(advisories: bool) -> Result<(), Failure> {
    if !runs(cargo("deny").arg("--version")) {
        return Err(Failure("`cargo deny` does not run: cargo install --locked cargo-deny".into()));
    }
    let mut all = cargo("deny");
    all.args(["--workspace", "check", "licenses", "sources"]);
    if advisories {
        all.arg("advisories");
    }
    step::run("deny", &mut all)?;
    // The command line depends on the library and the node.
    let mut shipped = cargo("deny");
    shipped.args(["--exclude-dev", "--manifest-path", "crates/cli/Cargo.toml", "--config"]);
    step::run("deny", shipped.arg(root().join("deny.toml")).args(["check", "bans"]))?;
    if !advisories {
        println!("xtask: advisories were NOT checked");
    }
    Ok(())
}

/// Builds the published crates with the Rust that their manifests promise.
pub(crate) fn msrv() -> Result<(), Failure> {
    let rust = env!("CARGO_PKG_RUST_VERSION");
    let with = || {
        let mut command = Command::new("rustup");
        command.current_dir(root()).args(["run", rust, "cargo"]);
        command
    };
    if !runs(with().arg("--version")) {
        return Err(Failure(format!(
            "Rust {rust} is not installed: rustup toolchain install --profile minimal {rust}"
        )));
    }
    let mut check = with();
    check.args(["check", "--locked", "--target-dir"]).arg(target().join("msrv"));
    check.args(PUBLISHED.iter().flat_map(|name| ["--package", name]));
    step::run("msrv", &mut check)?;
    println!("xtask: {} build with Rust {rust}", PUBLISHED.join(", "));
    Ok(())
}

fn runs(command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}
