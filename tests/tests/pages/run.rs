//! Follows a page from top to bottom.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use postgres::NoTls;
use taskq_tests::Db;
use taskq_tests::db::{admin, config};

use super::page::{Block, blocks, same, statements};
use super::terminal::{Terminal, Typed};
use super::{EXAMPLES_ONLY, ROOT, pages_below, python, read};

#[test]
fn a_reader_who_follows_a_page_sees_what_it_shows() {
    let pages =
        [EXAMPLES_ONLY.map(str::to_owned).to_vec(), pages_below("docs"), pages_below("examples")].concat();
    // From the end: the tutorial takes longest. Few at a time: each has a server process or two, and a program that works.
    let (left, outcomes) = (Mutex::new(pages), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().pop();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(page) = next() {
                    // The thread's name goes into that of the page's database.
                    let name = page.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
                    let copy = page.clone();
                    let reader =
                        thread::Builder::new().name(name).spawn(move || Reader::follow(&copy)).unwrap();
                    outcomes.lock().unwrap().push((page, reader.join()));
                }
            });
        }
    });
    let (failed, followed): (Vec<_>, Vec<_>) =
        outcomes.into_inner().unwrap().into_iter().partition(|(_, end)| end.is_err());
    let failed: Vec<String> = failed.into_iter().map(|(page, _)| page).collect();
    let followed: usize = followed.into_iter().flat_map(|(_, checked)| checked).sum();
    assert!(failed.is_empty(), "these do not do what they say: {failed:?}");
    assert!(followed >= 300, "only {followed} results are shown by all pages");
}

/// A reader with two terminals, an empty folder and an empty database.
struct Reader {
    page: String,
    db: Db,
    folder: PathBuf,
    first: Terminal,
    second: Option<Terminal>,
    /// What the second terminal was given and has not answered yet.
    waits: Option<(Typed, Block)>,
    programs: Vec<Child>,
    /// How many results were compared.
    checked: usize,
}

impl Reader {
    /// Follows a page; how many results it shows.
    fn follow(page: &str) -> usize {
        let text = read(page);
        let mut blocks = blocks(&text);
        if EXAMPLES_ONLY.contains(&page) {
            blocks.retain(|block| block.kind == "sql,example");
        }
        if !blocks.iter().any(|block| block.kind.starts_with("sql") || block.kind.starts_with("sh,")) {
            blocks.iter().for_each(|block| for_the_eye(page, block));
            return 0;
        }
        // Roles are the cluster's, not the database's: one page at a time has some.
        let roles = roles(&text);
        static ROLES: Mutex<()> = Mutex::new(());
        let _others = (!roles.is_empty()).then(|| ROLES.lock().unwrap_or_else(PoisonError::into_inner));
        roles.iter().for_each(|role| drop_role("postgres", role));
        let creates = |block: &Block| block.text.contains("CREATE EXTENSION taskq;");
        let db = if blocks.iter().any(creates) { Db::empty() } else { Db::new() };
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(db.name());
        fs::create_dir_all(&folder).unwrap();
        let first = Terminal::open(db.name());
        let programs = Vec::new();
        let mut reader = Reader {
            page: page.to_owned(),
            db,
            folder,
            first,
            second: None,
            waits: None,
            programs,
            checked: 0,
        };
        for block in blocks {
            reader.block(block);
        }
        reader.wait_for_second();
        let database = reader.db.name().to_owned();
        roles.iter().for_each(|role| drop_role(&database, role));
        reader.checked
    }

    fn block(&mut self, block: Block) {
        match block.kind.as_str() {
            "sql" | "sql,example" => match &block.output {
                None => self.statements(&block),
                Some(_) => {
                    let typed = self.first.type_block(&block.text);
                    let printed = self.first.read(typed).text;
                    self.compare(&block, &printed);
                }
            },
            "sql,second" | "sql,second,waits" => {
                self.wait_for_second();
                let second = self.second.get_or_insert_with(|| Terminal::open(self.db.name()));
                let typed = second.type_block(&block.text);
                let waits = block.kind.ends_with("waits");
                self.waits = Some((typed, block));
                if !waits {
                    self.wait_for_second();
                }
            }
            "sh,run" => {
                let output = self.shell(&block.text).stdin(Stdio::null()).output().unwrap();
                let printed =
                    String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{}{printed}", self.place(&block));
                self.compare(&block, &printed);
            }
            "sh,second" => {
                let log = fs::File::create(self.folder.join("log")).unwrap();
                let mut command = self.shell(&format!("exec {}", block.text));
                command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
                self.programs.push(command.spawn().unwrap());
            }
            _ => match block.comment.as_deref().and_then(|comment| comment.strip_prefix("saved as ")) {
                Some(name) => fs::write(self.folder.join(name), &block.text).unwrap(),
                None => for_the_eye(&self.page, &block),
            },
        }
    }

    /// Types one statement after the other, and looks at what the comments promise.
    fn statements(&mut self, block: &Block) {
        let statements = statements(&block.text);
        let last = statements.len();
        for (n, statement) in statements.into_iter().enumerate() {
            let place = format!("{}, line {}: {}", self.page, block.line + statement.line, statement.text);
            let printed = self.first.statement(&statement);
            let promise = statement.promise.as_deref();
            if printed.sqlstate != "00000" {
                let kept = promise.is_some_and(|promise| promise.starts_with(&printed.sqlstate));
                assert!(kept, "{place}promises {promise:?}, but is refused: {}", printed.text);
                self.checked += 1;
                continue;
            }
            if statement.text.contains("\\gset") {
                assert_eq!(printed.text, "", "{place}");
            }
            if let Some(promise) = promise {
                let result = printed.text.lines().collect::<Vec<_>>().join(", ");
                let kept = promise == result || promise.starts_with(&format!("{result}: "));
                assert!(kept, "{place}promises {promise}, but gives {result}");
                self.checked += 1;
            } else if let Some(shown) = block.result.as_deref().filter(|_| n + 1 == last) {
                assert_eq!(shown.trim_end(), printed.text.trim_end(), "{place}");
                self.checked += 1;
            }
        }
    }

    fn compare(&mut self, block: &Block, printed: &str) {
        let place = self.place(block);
        match &block.output {
            Some(shown) => {
                assert!(same(shown, printed), "{place}shows\n{shown}\nand prints\n{printed}");
                self.checked += 1;
            }
            None => assert!(!printed.contains("ERROR:"), "{place}prints\n{printed}"),
        }
    }

    fn wait_for_second(&mut self) {
        if let (Some((typed, block)), Some(second)) = (self.waits.take(), &mut self.second) {
            let printed = second.read(typed).text;
            self.compare(&block, &printed);
        }
    }

    /// A shell in the folder where the page's files are saved, with the Python that `examples/clients/setup.sh` has set up, and
    /// our package for it.
    fn shell(&self, commands: &str) -> Command {
        let path = format!("{}:{}", python().display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell.args(["-ec", commands]).current_dir(&self.folder);
        shell.env("PATH", path).env("PGDATABASE", self.db.name()).env("LC_ALL", "C.UTF-8");
        shell.env("PYTHONPATH", Path::new(ROOT).join("clients/python/src"));
        shell
    }

    fn place(&self, block: &Block) -> String {
        format!("{}, line {}: {}\n", self.page, block.line, block.text)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        for program in &mut self.programs {
            program.kill().ok();
            program.wait().ok();
        }
        if thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.folder.join("log")).unwrap_or_default());
        }
        fs::remove_dir_all(&self.folder).ok();
        // What a page restores elsewhere it drops itself, if it comes so far.
        if thread::panicking() {
            let drop = format!("DROP DATABASE IF EXISTS \"{}_copy\" WITH (FORCE)", self.db.name());
            let client = config().dbname("postgres").connect(NoTls);
            client.map(|mut client| client.batch_execute(&drop)).ok();
        }
    }
}

/// A block that is not run has to be one that cannot: a part of a file that other tests run, a program of another queue, or
/// one of the kinds that are made for the reader alone.
fn for_the_eye(page: &str, block: &Block) {
    let Block { line, kind, comment, text, .. } = block;
    if kind.ends_with(",peer") || ["sh", "ini", "yaml", "text", "mermaid", ""].contains(&kind.as_str()) {
        return;
    }
    let file = comment.as_deref().unwrap_or_else(|| panic!("{page}, line {line}: {kind} from nowhere"));
    // The tests of the client packages run the programs of their pages.
    if file.starts_with("saved as ") || file == "in short" {
        return;
    }
    let program = read(file);
    let (program, block): (Vec<&str>, Vec<&str>) = (program.lines().collect(), text.lines().collect());
    let there = program.windows(block.len()).any(|window| window == block);
    assert!(there, "{page}, line {line}: this is not in {file}:\n{text}");
}

/// The roles that a page makes.
fn roles(page: &str) -> BTreeSet<String> {
    let name = |rest: &str| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap().to_owned();
    page.split("CREATE ROLE ").skip(1).map(name).collect()
}

fn drop_role(database: &str, role: &str) {
    let there = format!("SELECT FROM pg_roles WHERE rolname = '{role}'");
    let drop = format!(
        "DO $$ BEGIN IF EXISTS ({there}) THEN DROP OWNED BY {role}; DROP ROLE {role}; END IF; END $$"
    );
    if database == "postgres" {
        return admin(&drop);
    }
    let mut client = config().dbname(database).connect(NoTls).unwrap();
    client.batch_execute(&drop).unwrap_or_else(|error| panic!("{drop}: {error:?}"));
}
