//! What the pages tell a newcomer to type into a shell needs no more of the machine than they say.

use std::process::Command;

use super::ROOT;

/// Why: the wheel is for machines that have the Debian package and no Rust.
/// How it failed: its preparation refused to go on without cargo, and installed the requirements of the example clients.
#[test]
fn the_python_package_is_built_without_cargo() {
    let empty = concat!(env!("CARGO_TARGET_TMPDIR"), "/without-cargo");
    let setup = Command::new("examples/clients/setup.sh")
        .arg("venv")
        .current_dir(ROOT)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("CARGO_HOME", empty)
        .env("CARGO_TARGET_DIR", empty)
        .output()
        .unwrap();
    assert!(setup.status.success(), "{}", String::from_utf8_lossy(&setup.stderr));
    assert!(!std::path::Path::new(empty).exists(), "what only the example clients need was installed");
}

/// Why: `make install` copies as root where the server's folders belong to root.
/// How it failed: `make uninstall` did not.
#[test]
fn uninstall_takes_sudo_where_install_does() {
    let make = Command::new("make")
        .args(["--no-print-directory", "--dry-run", "uninstall", "SUDO=sudo"])
        .current_dir(ROOT)
        .env_remove("MAKEFLAGS")
        .output()
        .unwrap();
    let commands = String::from_utf8(make.stdout).unwrap();
    assert!(commands.starts_with("sudo rm "), "{commands}");
}
