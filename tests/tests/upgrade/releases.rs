//! The scripts that are kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use taskq_tests::{Db, Session};

use crate::objects::{differences, objects};

/// The folder of the scripts in the repository.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sql/releases")
}

/// The versions that have an install script in the repository.
pub fn released() -> Vec<String> {
    let mut versions: Vec<String> = fs::read_dir(folder())
        .expect("sql/releases")
        .filter_map(|entry| {
            let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
            Some(name.strip_prefix("taskq--")?.strip_suffix(".sql")?.to_owned())
        })
        .filter(|version| !version.contains("--"))
        .collect();
    versions.sort();
    assert!(!versions.is_empty(), "no install script is kept");
    versions
}

/// The version that `CREATE EXTENSION` installs.
pub fn current(session: &mut Session) -> String {
    session.one("SELECT default_version FROM pg_available_extensions WHERE name = 'taskq'")
}

/// Where the server looks for scripts.
pub fn installed(session: &mut Session) -> PathBuf {
    let share: String = session.one("SELECT setting FROM pg_config WHERE name = 'SHAREDIR'");
    Path::new(&share).join("extension")
}

#[test]
fn what_is_installed_is_what_is_kept() {
    let db = Db::empty();
    let mut session = db.connect();
    let folder_of_server = installed(&mut session);
    let mut seen = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let kept = entry.unwrap().path();
        let name = kept.file_name().unwrap();
        let installed = fs::read(folder_of_server.join(name)).unwrap_or_default();
        assert!(
            installed == fs::read(&kept).unwrap(),
            "{name:?} of the server is another one than that in sql/releases. If sql/ has changed since, and the version \
             is not released yet, 'make freeze' keeps what it is now; if it is released, raise the version"
        );
        seen += 1;
    }
    assert!(seen > 0);
    let current = current(&mut session);
    assert!(
        current.contains('-') || released().contains(&current),
        "{current} has no script in sql/releases: 'make freeze'"
    );
}

#[test]
fn from_each_release_an_update_leads_to_what_a_fresh_installation_has() {
    let (fresh, mut compared) = (Db::new(), 0);
    let wanted = objects(&mut fresh.connect());
    for version in released() {
        let db = Db::empty();
        let mut session = db.connect();
        session.run(&format!("CREATE EXTENSION taskq VERSION '{version}'"));
        session.run("ALTER EXTENSION taskq UPDATE");
        let found = differences(&objects(&mut session), &wanted);
        assert!(found.is_empty(), "{version}, updated (-), and fresh (+): {found:#?}");
        compared += 1;
    }
    assert!(compared > 0);
}

/// What a function of the library is called by, how: of all versions.
#[derive(Debug, PartialEq)]
struct Called {
    version: String,
    signature: String,
}

/// The library reads as many arguments, of the types, as the function had for which its symbol was made. A function
/// that takes others has another symbol, and the old one stays for databases that are not updated yet.
#[test]
fn a_symbol_of_the_library_keeps_its_signature() {
    let mut symbols: BTreeMap<String, Called> = BTreeMap::new();
    for version in released() {
        let db = Db::empty();
        let mut session = db.connect();
        // Where the library has a symbol no more, this fails.
        session.run(&format!("CREATE EXTENSION taskq VERSION '{version}'"));
        for (symbol, signature) in signatures(&mut session) {
            clash(&mut symbols, symbol, Called { version: version.clone(), signature })
                .unwrap_or_else(|clash| panic!("{clash}"));
        }
    }
    assert!(symbols.len() > 50, "the functions of the library are found");
    // It would be noticed.
    let (symbol, called) = symbols.first_key_value().unwrap();
    let (symbol, other) = (symbol.clone(), format!("{} and more", called.signature));
    clash(&mut symbols, symbol, Called { version: "9.9.9".to_owned(), signature: other }).unwrap_err();
}

fn signatures(session: &mut Session) -> Vec<(String, String)> {
    let rows = session.query(
        "SELECT p.prosrc, concat_ws(' ', p.prokind, p.proargtypes::regtype[], p.proretset, p.prorettype::regtype, \
                p.proallargtypes::regtype[], p.proargmodes) \
           FROM pg_proc AS p JOIN pg_language AS l ON l.oid = p.prolang \
          WHERE p.pronamespace = 'taskq'::regnamespace AND l.lanname = 'c'",
        &[],
    );
    // Several functions may share a symbol, as long as the library asks for the types: those of one version stand together.
    let mut together: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for row in rows.unwrap() {
        together.entry(row.get(0)).or_default().push(row.get(1));
    }
    together
        .into_iter()
        .map(|(symbol, mut signatures)| {
            signatures.sort();
            (symbol, signatures.join("; "))
        })
        .collect()
}

fn clash(symbols: &mut BTreeMap<String, Called>, symbol: String, called: Called) -> Result<(), String> {
    match symbols.get(&symbol) {
        Some(before) if before.signature != called.signature => {
            Err(format!("{symbol} is called in two ways: {before:?}, {called:?}"))
        }
        _ => {
            symbols.insert(symbol, called);
            Ok(())
        }
    }
}
