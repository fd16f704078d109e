//! `page` is one HTML page, whole in itself, in which nothing that users wrote is ever markup.
//!
//! On wrong code: a name with a tag in it closes an element, and a script of its author runs in the operator's browser.

mod tables;

use serde_json::json;
use taskq_tests::{Db, Session, refused};

/// What would be markup, and a text of it for each place that takes one.
const HOSTILE: &str =
    "</title></style></text></td>\"'><script>alert(1)</script><img src=x onerror=alert(1)>&amp;";

/// The page's tags, which are nested as they have to be, and its text.
fn read(page: &str) -> (Vec<String>, String) {
    let (mut open, mut tags, mut text) = (Vec::<String>::new(), Vec::new(), String::new());
    let body = page.strip_prefix("<!DOCTYPE html>\n").expect("it says what it is");
    let mut rest = body;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        let end = at + rest[at..].find('>').unwrap_or_else(|| panic!("a tag ends: {}", &rest[at..]));
        let tag = &rest[at + 1..end];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "the end of what was begun last");
        } else {
            let name = tag.split([' ', '/']).next().unwrap().to_owned();
            if !tag.ends_with('/') && !matches!(name.as_str(), "meta" | "br") {
                open.push(name.clone());
            }
            tags.push(tag.to_owned());
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest}");
    (tags, text)
}

/// The text of the part of the page with this heading, up to the next part; `None` if there is no such part.
fn part(session: &mut Session, arguments: &str, heading: &str) -> Option<String> {
    let page: String = session.one(&format!("SELECT taskq.page({arguments})"));
    let (_, rest) = page.split_once(&format!("<section><h2>{heading}"))?;
    let (part, _) = rest.split_once("</section>").expect("it ends");
    Some(read(&format!("<!DOCTYPE html>\n<h2>{part}")).1)
}

fn page(session: &mut Session, arguments: &str) -> (Vec<String>, String) {
    let page: String = session.one(&format!("SELECT taskq.page({arguments})"));
    let (tags, text) = read(&page);
    for tag in &tags {
        let name = tag.split([' ', '/']).next().unwrap();
        assert!(
            [
                "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "section",
                "table", "thead", "tbody", "tr", "th", "td", "svg", "path", "rect", "text", "g",
            ]
            .contains(&name),
            "{tag}"
        );
        for bad in [" href", " src", "url(", "onerror", "onclick", "onload"] {
            assert!(!tag.contains(bad), "nothing from elsewhere, and nothing that acts: {tag}");
        }
    }
    assert!(
        !page.contains("http:")
            && !page.contains("https:")
            && !page.contains("@import")
            && !page.contains("url("),
        "nothing from elsewhere"
    );
    (tags, text)
}

#[test]
fn an_empty_queue_has_a_page() {
    let (db, [mut session]) = Db::connected();
    let (tags, text) = page(&mut session, "");
    assert!(text.ends_with("HealthAll is well."), "health, and no table without rows: {text}");
    assert!(text.contains(db.name()), "{text}");
    assert!(tags.iter().any(|tag| tag.contains("color-scheme") && tag.contains("light dark")));
    assert!(text.contains("prefers-color-scheme: dark"));
}

/// The owner of a database may name its time zone, and an operator looks at the page. On wrong code the operator's browser follows a
/// redirect in the name.
#[test]
fn the_name_of_a_time_zone_is_never_markup() {
    let (_db, [mut session]) = Db::with_tasks(
        json!([{"id": "held", "action": "x"}, {"id": "late", "action": "x"}, {"id": "failing", "action": "y"},
               {"id": "lost", "action": "z"}, {"id": "suspended", "action": "s"}]),
    );
    session.own_one("x");
    session.run("SELECT taskq.schedule('next', '0 0 1 1 *', '{\"action\": \"x\"}'), taskq.delay_workgroup('w', '1 hour')");
    session.perform("z", "aborted");
    let grant = session.own_one("y");
    session.give_with(&grant.task_id, grant.token, "pending", "retry_after => '1 hour'").unwrap();
    let grant = session.own_one("s");
    session
        .give_with(
            &grant.task_id,
            grant.token,
            "pending",
            "wait_at_most => '3 hours', depends_on => '[\"held\"]'",
        )
        .unwrap();
    session.set_now(Some("2020-01-01"));
    session.insert(json!([{"id": "over", "action": "o"}])).unwrap();
    session.own_one_with("o", "lease => '1 minute'");
    session.run("SELECT taskq.schedule('due', '0 0 2 1 *', '{\"action\": \"x\"}')");
    session.set_now(None);
    for zone in ["<<meta http-equiv=refresh content=0;url=//x/ >5", "<\"x=>5"] {
        session.run(&format!("SET timezone = '{zone}'"));
        let (tags, text) = page(&mut session, "");
        assert!(!tags.iter().any(|tag| tag.starts_with("meta") && tag.contains("refresh")), "{zone}");
        assert!(text.contains(" -05Health"), "the offset stands for the zone: {text}");
    }
}

#[test]
fn a_page_without_a_title_has_the_name_of_the_database() {
    let (db, [mut session]) = Db::connected();
    for arguments in ["", "title => ''", "title => ' '"] {
        let page: String = session.one(&format!("SELECT taskq.page({arguments})"));
        assert!(page.contains(&format!("<h1>{}</h1>", db.name())), "{arguments}");
    }
}

#[test]
fn what_users_write_is_never_markup() {
    let (_db, [mut session]) = Db::connected();
    let name = |what: &str| format!("{what} {HOSTILE}");
    session
        .insert(json!([
            {"id": name("lost"), "action": name("action"), "group_id": name("group"), "max_tries": 1},
            {"id": name("next"), "action": name("other"), "group_id": name("group"), "depends_on": [{"id": name("lost"), "condition": "settled"}]},
        ]))
        .unwrap();
    session.set_now(Some("2020-01-01"));
    session.insert(json!([{"id": name("old"), "action": name("starving")}])).unwrap();
    session.set_now(None);
    let tokens = session
        .query(
            "SELECT task_id, token FROM taskq.own_tasks($1, 1, ARRAY[$2])",
            &[&name("actor"), &name("action")],
        )
        .unwrap();
    session
        .execute(
            "SELECT taskq.return_task($1, $2, 'aborted', $3)",
            &[&tokens[0].get::<_, String>(0), &tokens[0].get::<_, uuid::Uuid>(1), &name("status")],
        )
        .unwrap();
    session
        .execute("SELECT taskq.schedule($1, '0 0 1 1 *', '{\"action\": \"x\"}')", &[&name("schedule")])
        .unwrap();
    session.execute("UPDATE taskq.schedule SET problem = $1", &[&name("problem")]).unwrap();
    session
        .insert(json!([
            {"id": name("put off"), "action": name("fails"), "workgroup": name("workgroup")},
            {"id": name("waits"), "action": name("asks"), "group_id": name("limited")},
            {"id": name("held"), "action": name("holds")},
        ]))
        .unwrap();
    let grant = session.own_one(&name("asks"));
    session
        .execute(
            "SELECT taskq.return_task($1, $2, 'pending', depends_on => $3)",
            &[&grant.task_id, &grant.token, &json!([{"id": name("signal"), "signal": true}])],
        )
        .unwrap();
    let held = session.own(&name("worker"), 1, &[&name("holds")]).unwrap();
    session
        .execute(
            "SELECT taskq.report_status($1, $2, $3)",
            &[&held[0].task_id, &held[0].token, &name("report")],
        )
        .unwrap();
    session.execute("SELECT taskq.delay_workgroup($1, '1 hour')", &[&name("workgroup")]).unwrap();
    session.execute("SELECT taskq.set_action($1, max_concurrency => 3)", &[&name("bounded")]).unwrap();
    session.execute("SELECT taskq.set_group($1, max_concurrency => 0)", &[&name("limited")]).unwrap();
    for graph_of in [name("lost"), name("group")] {
        let arguments =
            format!("E'{}', E'{}'", graph_of.replace('\'', "''"), name("my title").replace('\'', "''"));
        let (_, text) = page(&mut session, &arguments);
        // What was written is there, as text (long ones are cut).
        for what in [
            "lost",
            "next",
            "action",
            "group",
            "starving",
            "status",
            "schedule",
            "problem",
            "my title",
            "fails",
            "waits",
            "asks",
            "signal",
            "limited",
            "held",
            "holds",
            "worker",
            "report",
            "workgroup",
            "bounded",
        ] {
            assert!(text.contains(&format!("{what} &lt;/ti")), "{what} in {text}");
        }
    }
}

/// On wrong code a title of 50 MB takes 1.2 GB of the server's memory.
#[test]
fn a_title_is_cut() {
    let (_db, [mut session]) = Db::connected();
    let (_, plain) = page(&mut session, "");
    let (_, text) = page(&mut session, "title => repeat('<', 1000000)");
    assert!(text.len() < plain.len() + 10_000, "{}", text.len());
    assert!(text.contains("&lt;&lt;…"));
}

/// Should a name get through all the same, the browser runs nothing and fetches nothing. What the page itself has is styles.
#[test]
fn its_policy_lets_nothing_in_but_its_styles() {
    let db = Db::new();
    let (tags, _) = page(&mut db.connect(), "");
    let policy = "content=\"default-src 'none'; style-src 'unsafe-inline'\"";
    let at = tags.iter().position(|tag| {
        tag.starts_with("meta http-equiv=\"Content-Security-Policy\"") && tag.ends_with(policy)
    });
    let style = tags.iter().position(|tag| tag == "style");
    assert!(at.is_some() && at < style, "before what it is for: {tags:?}");
}

#[test]
fn a_browser_can_be_told_to_load_it_anew() {
    let (_db, [mut session]) = Db::connected();
    let refresh = |tags: &[String]| {
        tags.iter()
            .find(|tag| tag.contains("\"refresh\""))
            .map(|tag| tag.split('"').nth(3).unwrap().to_owned())
    };
    assert_eq!(refresh(&page(&mut session, "").0), None);
    assert_eq!(refresh(&page(&mut session, "refresh => '1 minute'").0).as_deref(), Some("60"));
    assert_eq!(refresh(&page(&mut session, "refresh => '1.9 seconds'").0).as_deref(), Some("2"));
    refused(&mut session, "22023", "refresh", "SELECT taskq.page(refresh => '2000 years')", &[]);
    for less in ["0.9 seconds", "-1 minute"] {
        let call = format!("SELECT taskq.page(refresh => '{less}')");
        let error = refused(&mut session, "22023", "refresh", &call, &[]);
        assert_eq!(error.hint(), Some("Give a second or more."));
    }
}

/// Neither HTML nor XML has them: on wrong code a strict reader refuses the whole page for one id.
#[test]
fn characters_that_no_page_may_have_are_not_there() {
    let (_db, [mut session]) = Db::connected();
    let odd = [
        '\u{1}',
        '\u{b}',
        '\u{1b}',
        '\u{7f}',
        '\u{9f}',
        '\u{fdd0}',
        '\u{fdef}',
        '\u{fffe}',
        '\u{ffff}',
        '\u{1fffe}',
        '\u{10ffff}',
        '\u{202e}',
    ];
    let tasks = odd
        .iter()
        .enumerate()
        .map(|(n, c)| json!({"id": format!("{n}{c}"), "action": format!("{c}"), "group_id": "g"}));
    session.insert(tasks.collect()).unwrap();
    for c in odd {
        let page: String =
            session.query_one("SELECT taskq.page('g', $1)", &[&format!("t{c}")]).unwrap().get(0);
        let bad: Vec<char> = page.chars().filter(|c| odd.contains(c)).collect();
        assert!(bad.is_empty(), "{bad:?}");
        assert!(page.contains("<title>t\u{fffd}: taskq</title>"));
    }
    for format in ["dot", "mermaid"] {
        let picture: String = session.one(&format!("SELECT taskq.graph('g', '{format}')"));
        let bad: Vec<char> = picture.chars().filter(|c| odd.contains(c)).collect();
        assert!(bad.is_empty(), "{format}: {bad:?}");
    }
}

#[test]
fn the_page_of_a_task_that_is_not_there_is_refused() {
    let db = Db::new();
    refused(&mut db.connect(), "TQ003", "nothing", "SELECT taskq.page('nothing')", &[]);
}
