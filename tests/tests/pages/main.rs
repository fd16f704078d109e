//! The pages that teach do what they say: a reader who types into psql what they show sees what they show.
//!
//! All pages below docs/ and examples/ are read, and README.md and SECURITY.md. Each has a fresh database and is followed
//! from top to bottom:
//!
//! * "```sql" is typed into a psql, statement by statement, and so is "```sql,example" (in README.md and SECURITY.md only
//!   that); a comment behind the end of a statement is its result: columns separated by ` | `, rows by `, `; an explanation
//!   may follow after `: `. A result that begins with a SQLSTATE is a refusal. A statement that fails without such a comment
//!   fails the test.
//! * "```text,result" right behind a block is the result of its last statement, a row a line.
//! * "```text" right behind a block is what psql, as it comes, or the program prints for the whole block. `…` stands for
//!   what differs each time.
//! * "```sql,second" is typed into a second psql; with ",waits" the page goes on without waiting for its end.
//! * a block of a program below a comment `<!-- saved as worker.py -->` is saved under that name; below one with the path of
//!   a file it is a part of this file, word for word. (`<!-- in short -->`: no program. Programs of pages that have nothing else to
//!   run are for the tests of the packages.)
//! * "```sh,run" is run where the files are saved, "```sh,second" as well, and ended with the page.
//! * "```js,peer" and the like show other queues; they are not run.
//! * "```sh", "```ini", "```yaml": for the reader alone. Any other block fails the test.
//!
//! A page whose calls have changed, or whose shown output is out of date, fails with its line.

mod links;
mod page;
mod run;
mod setup;
mod terminal;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};

/// The repository.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Pages with blocks of SQL that are no examples.
const EXAMPLES_ONLY: [&str; 2] = ["README.md", "SECURITY.md"];

/// The Markdown files below a folder of the repository, as paths from there.
fn pages_below(folder: &str) -> Vec<String> {
    let mut pages = Vec::new();
    let mut folders = vec![PathBuf::from(ROOT).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                let page = path.strip_prefix(ROOT).unwrap().to_str().unwrap();
                pages.push(page.trim_start_matches('/').to_owned());
            }
        }
    }
    pages.sort();
    pages
}

/// The folder with a Python that has the packages of the examples.
fn python() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in target");
    let python = target.join("clients/python/bin");
    assert!(python.exists(), "{} is missing: run examples/clients/setup.sh", python.display());
    python
}

fn read(page: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}
