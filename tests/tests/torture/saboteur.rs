//! Cancels, replaces, retries, resets, deletes, links and pauses, in the midst of it all.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::book::{Deed, On};
use crate::client::Client;
use crate::families;
use crate::run::Run;

pub fn work(run: &Arc<Run>, number: u64) {
    let mut client = Client::new(run, &format!("saboteur{number}"), 300 + number);
    while !run.is_calm() {
        match client.random.below(10) {
            0..2 => cancel(&mut client),
            2..4 => link(&mut client),
            _ => upset(&mut client),
        }
        thread::sleep(Duration::from_millis(20 + client.random.below(60)));
    }
}

fn cancel(client: &mut Client) {
    let Some(task) = client.run.some_recent(&mut client.random) else { return };
    let deeds = vec![Deed::Cancel { task: task.clone() }];
    client.call("cancel", deeds, |tx, name| {
        tx.query("SELECT taskq.cancel_tasks(ARRAY[$1], $2)", &[&task, &name]).map(drop)
    });
}

/// An edge from an older family to a younger one.
fn link(client: &mut Client) {
    let one = client.run.some_recent(&mut client.random);
    let other = client.run.some_recent(&mut client.random);
    let (Some(one), Some(other)) = (one, other) else { return };
    let family = |id: &str| crate::book::family(id).unwrap_or_default();
    let (after, run) = if family(&one) < family(&other) { (one, other) } else { (other, one) };
    if family(&after) == family(&run) {
        return;
    }
    let on = *client.random.pick(&[On::Settled, On::Completed]);
    let deeds = vec![Deed::Edge { after: after.clone(), run: run.clone(), on }];
    client.call("link", deeds, |tx, _| {
        let query = "SELECT taskq.add_dependencies(ARRAY[$1], ARRAY[$2], $3)";
        tx.query(query, &[&after, &run, &on.name()]).map(drop)
    });
}

/// Something to a family with which anything may be done.
fn upset(client: &mut Client) {
    let (family, tasks) = {
        let loose = client.run.loose.lock().unwrap();
        let place = client.random.below(loose.len().max(1) as u64) as usize;
        let Some(family) = loose.get(place) else { return };
        *family
    };
    let ids: Vec<String> = (0..1 + client.random.below(8))
        .map(|_| format!("{family}.{}", client.random.below(tasks as u64)))
        .collect();
    let group = format!("loose-{family}");
    let random = &mut client.random;
    let action = *random.pick(&families::PLAIN);
    let mut new: Vec<serde_json::Value> = Vec::new();
    for id in &ids {
        if new.iter().all(|task| task["id"] != *id) {
            new.push(serde_json::json!({"id": id, "action": action, "group_id": group}));
        }
    }
    let new = serde_json::Value::from(new);
    let (roll, block) = (random.below(100), random.chance(30));
    let deeds = vec![Deed::Upset { family }];
    client.call("upset", deeds, |tx, name| {
        // Two in one transaction, now and then.
        if block {
            tx.begin()?;
            tx.query("SELECT taskq.update_tasks(ARRAY[$1], priority => 2)", &[&ids[0]])?;
        }
        match roll {
            0..15 => tx.query("SELECT taskq.cancel_tasks($1, $2)", &[&ids, &name]),
            15..35 => tx.query("SELECT taskq.replace_tasks($1)", &[&new]),
            35..47 => tx.query("SELECT taskq.retry_tasks($1)", &[&ids]),
            47..52 => tx.query("SELECT taskq.rerun_tasks($1)", &[&ids]),
            52..55 => tx.query("SELECT taskq.rerun_tasks($1, downstream => false)", &[&ids]),
            55..65 => tx.query("SELECT taskq.retry_group($1)", &[&group]),
            65..70 => tx.query("SELECT taskq.cancel_group($1)", &[&group]),
            70..76 => tx.query("SELECT taskq.reset_group($1)", &[&group]),
            76..80 => tx.query("SELECT taskq.delete_tasks($1)", &[&ids]),
            80..86 => tx.query("SELECT taskq.pause_group($1)", &[&group]),
            86..94 => tx.query("SELECT taskq.resume_group($1)", &[&group]),
            _ => tx.query("SELECT taskq.complete_task($1)", &[&ids[0]]),
        }?;
        if block { tx.commit() } else { Ok(()) }
    });
}
