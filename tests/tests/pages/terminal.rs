//! A psql into which a test types.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use super::page::Statement;

/// Longer than any statement may take. What takes longer is a psql that waits for the end of a string, for instance.
const PATIENCE: Duration = Duration::from_secs(150);

/// psql as it comes, but for a time-out of statements.
pub struct Terminal {
    process: Child,
    input: ChildStdin,
    /// What it prints, line by line, with the ends of lines.
    output: Receiver<String>,
    /// How many marks were printed.
    marks: u32,
}

/// What was typed and is not read yet: the number of the mark behind it.
pub struct Typed(u32);

/// What a statement or a block has printed, errors and notices included.
pub struct Printed {
    pub text: String,
    /// That of the last statement, `00000` where it worked.
    pub sqlstate: String,
}

impl Terminal {
    pub fn open(database: &str) -> Terminal {
        // One pipe for both, so that errors stand where they come.
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec psql -X -q 2>&1"])
            .env("PGDATABASE", database)
            .env("PGOPTIONS", "-c statement_timeout=120s")
            .env("PGCLIENTENCODING", "UTF8")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("PSQLRC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().expect("psql is in the PATH");
        let input = process.stdin.take().unwrap();
        let mut printed = BufReader::new(process.stdout.take().unwrap());
        let (sender, output) = mpsc::channel();
        thread::spawn(move || {
            let mut line = String::new();
            while printed.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    break;
                }
            }
        });
        Terminal { process, input, output, marks: 0 }
    }

    /// What a statement prints, a row a line, columns separated by ` | `, without what the server remarks.
    pub fn statement(&mut self, statement: &Statement) -> Printed {
        self.type_in("\\set QUIET on\n\\pset format unaligned\n\\pset fieldsep ' | '\n\\pset null NULL\n\\pset tuples_only on\n");
        let typed = self.send(&statement.text);
        let printed = self.read(typed);
        Printed { text: without_remarks(&printed.text), ..printed }
    }

    /// Types a block into a psql without settings of its own.
    pub fn type_block(&mut self, block: &str) -> Typed {
        self.type_in("\\set QUIET on\n\\pset format aligned\n\\pset null ''\n\\pset tuples_only off\n\\set QUIET off\n");
        self.send(block)
    }

    /// Waits until what was typed is done.
    pub fn read(&mut self, Typed(mark): Typed) -> Printed {
        let mut text = String::new();
        loop {
            let line = self.output.recv_timeout(PATIENCE);
            let line = line.unwrap_or_else(|error| panic!("psql says no more ({error}) after: {text}"));
            // The mark has a line of its own, but what stands before it may lack the end of its last one.
            if let Some((before, sqlstate)) = line.split_once(&format!("@@{mark} ")) {
                text.push_str(before);
                return Printed { text, sqlstate: sqlstate.trim().to_owned() };
            }
            text.push_str(&line);
        }
    }

    fn send(&mut self, text: &str) -> Typed {
        self.marks += 1;
        // To the stream that is not buffered; what has been printed to the other one by then was flushed with its result.
        self.type_in(&format!("{text}\n\\warn @@{} :SQLSTATE\n", self.marks));
        Typed(self.marks)
    }

    fn type_in(&mut self, text: &str) {
        self.input.write_all(text.as_bytes()).expect("psql reads");
        self.input.flush().expect("psql reads");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// NOTICE and WARNING, with what belongs to them, are not a part of the result.
fn without_remarks(text: &str) -> String {
    let mut remark = false;
    let line = |line: &&str| {
        let begins = |words: &[&str]| words.iter().any(|word| line.starts_with(&format!("{word}:  ")));
        remark = begins(&["NOTICE", "WARNING"]) || remark && begins(&["DETAIL", "HINT", "CONTEXT"]);
        !remark
    };
    text.lines().filter(line).collect::<Vec<_>>().join("\n")
}
