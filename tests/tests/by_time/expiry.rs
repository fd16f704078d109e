//! A task that no worker was granted by its time is aborted, wherever it is; a grant keeps it from that for good.

use taskq_tests::{Db, refused, until};

use crate::{at, ends};

const THEN: &str = "2030-01-01 00:01Z";

#[test]
fn it_is_aborted_wherever_it_is() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run(
        "SELECT taskq.insert_task('other', 'x', merge_key => 'k', priority => 9); SELECT taskq.insert_task('late', 'q');
         SELECT taskq.insert_task('blocked', 'y', depends_on => '{late}', expires_in => '1 minute');
         SELECT taskq.insert_task('ready', 'y', expires_in => '1 minute');
         SELECT taskq.insert_task('rides', 'x', merge_key => 'k', expires_in => '1 minute');
         SELECT taskq.own_tasks('w', 1, '{x}');
         SELECT taskq.insert_task('parked', 'x', merge_key => 'k', expires_in => '1 minute');
         SELECT taskq.insert_task('paused', 'p', group_id => 'g', expires_in => '1 minute');
         SELECT taskq.pause_group('g'); SELECT taskq.own_tasks('w', 1, '{p,x}');
         SELECT taskq.insert_task('scheduled', 'y', delay => '1 hour', expires_in => '1 minute');
         SELECT taskq.insert_task('signal', 'y', signal => true, expires_at => '2030-01-01 00:01Z');
         SELECT taskq.insert_task('timer', 'y', spontaneous => true, delay => '1 hour', expires_in => '1 minute');
         SELECT taskq.insert_task('after', 'z', depends_on => '{ready}');
         SELECT taskq.insert_tasks('[{\"id\": \"anyway\", \"action\": \"z\",
                                      \"depends_on\": [{\"id\": \"signal\", \"condition\": \"settled\"}]}]')",
    );
    at(&mut session, "2030-01-01 00:00:59Z", "SELECT taskq.maintain()");
    let expired = "SELECT count(*) FROM taskq.tasks WHERE cause = 'expired'";
    assert_eq!(session.one::<i64>(expired), 0, "it is not time yet");
    at(&mut session, THEN, "SELECT taskq.maintain()");
    assert_eq!(
        ends(&mut session),
        [
            "after aborted dependency",
            "anyway ready",
            "blocked aborted expired",
            "late ready",
            "other in-progress",
            "parked aborted expired",
            "paused aborted expired",
            "ready aborted expired",
            "rides aborted expired",
            "scheduled aborted expired",
            "signal aborted expired",
            "timer aborted expired",
        ]
    );
    let status = |id: &str| format!("SELECT status FROM taskq.tasks WHERE id = '{id}'");
    assert_eq!(
        session.one::<String>(&status("ready")),
        "expired: it was not granted by 2030-01-01 00:01:00Z"
    );
    assert_eq!(
        session.one::<String>(&status("signal")),
        "expired: it was not signalled by 2030-01-01 00:01:00Z"
    );
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.expiry"), 0);
}

#[test]
fn a_grant_keeps_it_from_that() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run(
        "SELECT count(taskq.insert_task(id, id, lease => CASE id WHEN 'overdue' THEN interval '1 second' ELSE '1 day' END,
                                        expires_in => '1 minute'))
           FROM unnest('{completed,given_back,held,overdue,released,retried}'::text[]) AS id",
    );
    for (id, back) in [
        ("completed", "'completed'"),
        ("given_back", "'pending', retry_after => '0'"),
        ("released", "'pending', count_try => false"),
        ("retried", "'aborted'"),
        ("held", ""),
        ("overdue", ""),
    ] {
        let grant = session.own_one(id);
        if !back.is_empty() {
            session.run(&format!("SELECT taskq.return_task('{id}', '{}', {back})", grant.token));
        }
    }
    session.run("SELECT taskq.retry_tasks('{retried}')");
    at(&mut session, THEN, "SELECT taskq.maintain(); SELECT taskq.own_tasks('w', 1, '{nothing}')");
    assert_eq!(
        ends(&mut session),
        [
            "completed completed",
            "given_back ready",
            "held in-progress",
            "overdue in-progress",
            "released ready",
            "retried ready"
        ]
    );
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.expiry"), 0, "what is left goes then");
    session.set_now(Some("2030-01-01 00:02Z"));
    let owned = "SELECT count(*) FROM taskq.own_tasks('w', 9, '{given_back,overdue,released,retried}')";
    assert_eq!(session.one::<i64>(owned), 4);
}

#[test]
fn what_has_expired_is_never_granted() {
    for (name, begin, own, end) in [
        ("a call", "", "", ""),
        ("a block", "BEGIN", "", "COMMIT"),
        ("a call that waits", "", ", wait => '0.2 seconds'", ""),
    ] {
        let (_db, [mut session]) = Db::connected();
        session.set_now(Some("2030-01-01 00:00Z"));
        session.run(
            "SELECT count(*) FROM taskq.insert_many('x', array_fill(NULL::text, '{500}'), expires_in => '1 minute');
             SELECT taskq.insert_task('fresh', 'x'); SELECT taskq.set_action('x', max_concurrency => 1000);
             SELECT taskq.set_action('x', clear => '{max_concurrency}');
             SELECT taskq.insert_task('given_back', 'x', priority => 1, expires_in => '1 minute')",
        );
        let grant = session.own_one("x");
        session.run(&format!(
            "SELECT taskq.return_task('given_back', '{}', 'pending', count_try => false)",
            grant.token
        ));
        session.set_now(Some("2030-01-01 00:01:01Z"));
        session.run(begin);
        let owned: Vec<String> =
            session.all(&format!("SELECT task_id FROM taskq.own_tasks('w', 1000, '{{x}}'{own})"));
        session.run(end);
        let mut owned: Vec<&str> = owned.iter().map(String::as_str).collect();
        owned.sort_unstable();
        assert_eq!(owned, ["fresh", "given_back"], "{name}");
        let counted = "SELECT count(*) FROM taskq.tasks WHERE cause = 'expired' AND num_tries > 0";
        assert_eq!(session.one::<i64>(counted), 0, "{name}");
        until("all have expired", || {
            session.run("SELECT taskq.maintain()");
            (session.one::<i64>("SELECT count(*) FROM taskq.tasks WHERE cause = 'expired'") == 500)
                .then_some(())
        });
    }
}

#[test]
fn an_action_has_a_default() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run(
        "SELECT taskq.insert_task('before', 'x'); SELECT taskq.set_action('x', expires_in => '1 minute');
         SELECT taskq.insert_task('default', 'x'); SELECT taskq.insert_task('own', 'x', expires_in => '1 hour');
         SELECT taskq.insert_task('never', 'x', expires_at => 'infinity');
         SELECT taskq.insert_task('signal', 'x', signal => true);
         SELECT taskq.insert_task('barrier', 'x', spontaneous => true, depends_on => '{before}')",
    );
    let set = "SELECT coalesce(expires_in::text, 'none') FROM taskq.actions WHERE action = 'x'";
    assert_eq!(session.one::<String>(set), "00:01:00");
    let expires = "SELECT coalesce(expires_at AT TIME ZONE 'UTC', 'infinity')::text FROM taskq.tasks WHERE id = 'default'";
    assert_eq!(session.one::<String>(expires), "2030-01-01 00:01:00");
    at(&mut session, THEN, "SELECT taskq.maintain()");
    assert_eq!(
        ends(&mut session),
        [
            "barrier blocked",
            "before ready",
            "default aborted expired",
            "never ready",
            "own ready",
            "signal aborted expired"
        ]
    );
    session.run("SELECT taskq.set_action('x', max_tries => 3)");
    assert_eq!(session.one::<String>(set), "00:01:00", "what is left out stays");
    session.run("SELECT taskq.set_action('x', clear => '{expires_in}')");
    assert_eq!(session.one::<String>(set), "none");
    refused(
        &mut session,
        "22023",
        "expires_in",
        "SELECT taskq.set_action('x', expires_in => '-1 second')",
        &[],
    );
    refused(
        &mut session,
        "TQ006",
        "expires",
        "SELECT taskq.insert_task('b', 'x', expires_in => '1 second', expires_at => '2030-01-01')",
        &[],
    );
}

#[test]
fn it_counts_no_more_once_it_starts_over() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run(
        "SELECT taskq.insert_task('again', 'x', expires_in => '1 second');
         SELECT taskq.insert_task('reset', 'y', group_id => 'g', expires_in => '1 minute'); SELECT taskq.reset_group('g');
         SELECT taskq.insert_task('gone', 'y', expires_in => '1 minute'); SELECT taskq.delete_tasks('{gone}');
         SELECT taskq.insert_task('replaced', 'y', expires_in => '1 minute');
         SELECT taskq.replace_tasks('[{\"id\": \"replaced\", \"action\": \"y\"}]')",
    );
    at(&mut session, "2030-01-01 00:00:30Z", "SELECT taskq.maintain()");
    assert_eq!(session.state("again"), "aborted");
    session.set_now(Some("2030-01-01 00:00:40Z"));
    session.run("SELECT taskq.retry_tasks('{again}')");
    assert_eq!(session.one::<i64>("SELECT count(*) FROM taskq.expiry"), 0);
    at(&mut session, "2030-01-01 00:05Z", "SELECT taskq.maintain()");
    assert_eq!(ends(&mut session), ["again ready", "replaced ready", "reset ready"]);
}

#[test]
fn why_says_when() {
    let (_db, [mut session]) = Db::connected();
    session.set_now(Some("2030-01-01 00:00Z"));
    session.run("SET timezone = 'UTC'; SELECT taskq.insert_task('a', 'x', expires_in => '1 minute')");
    let says = "SELECT w FROM taskq.why('a') AS w WHERE w LIKE '%expire%'";
    assert_eq!(
        session.one::<String>(says),
        "it expires at 2030-01-01 00:01:00+00, unless it is granted before"
    );
    let grant = session.own_one("x");
    session.run(&format!("SELECT taskq.return_task('a', '{}', 'pending', retry_after => '0')", grant.token));
    assert!(session.all::<String>(says).is_empty());
}
