//! The exporter of examples/monitoring: a monitor's look over HTTP, and an honest answer where there is none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use serde_json::json;
use taskq_tests::{Db, db::admin, until};

use super::tools::{example, python};

/// Ends with the test.
struct Exporter {
    process: Child,
    address: String,
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Exporter {
    fn start(db: &Db, user: &str) -> Exporter {
        let mut process = python("../monitoring/exporter.py")
            .arg("0")
            .env("PGDATABASE", db.name())
            .env("PGUSER", user)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let address = said.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
        Exporter { address: address.unwrap_or_else(|| panic!("an address: {said}")).to_owned(), process }
    }

    /// Status line and headers, and the body.
    fn get(&self, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }
}

#[test]
fn a_monitor_reads_the_metrics_over_http() {
    let (db, [mut session]) = Db::connected();
    let role = format!("{}_monitor", db.name());
    admin(&format!("CREATE ROLE {role} LOGIN"));
    session.insert(json!([{"id": "a", "action": "x"}])).unwrap();
    let exporter = Exporter::start(&db, &role);
    let (head, body) = exporter.get("/metrics");
    assert!(head.starts_with("HTTP/1.0 503"), "the role may not look yet: {head}\n{body}");
    session.run(&format!("SELECT taskq.grant_monitor('{role}')"));
    let (head, body) = exporter.get("/metrics");
    assert!(head.starts_with("HTTP/1.0 200"), "{head}\n{body}");
    assert!(
        head.contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    assert!(
        body.contains("taskq_tasks{action=\"x\",state=\"ready\"} 1\n") && body.ends_with("# EOF\n"),
        "{body}"
    );
    assert!(exporter.get("/").0.starts_with("HTTP/1.0 404"));
    // A connection that was cut off is opened again.
    session.run(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"));
    until("it looks again", || exporter.get("/metrics").0.starts_with("HTTP/1.0 200").then_some(()));
    drop(exporter);
    session.run(&format!("SELECT taskq.revoke_monitor('{role}')"));
    until("no session has the role any more", || {
        let busy: bool =
            session.one(&format!("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE usename = '{role}')"));
        (!busy).then_some(())
    });
    session.run(&format!("DROP OWNED BY {role}"));
    admin(&format!("DROP ROLE {role}"));
}

#[test]
fn the_dashboard_is_the_one_that_the_script_writes() {
    let written = python("../monitoring/dashboard.py").output().unwrap();
    let kept = std::fs::read(example("../monitoring/grafana.json")).unwrap();
    assert!(written.status.success() && written.stdout == kept, "python dashboard.py > grafana.json");
}
