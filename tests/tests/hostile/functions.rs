//! Every function that `pg_proc` knows in the schema, so that a new one is covered by being there.

use std::env;

use taskq_tests::random::Random;
use taskq_tests::{Db, Session, state_of_all};

use crate::call::{Caller, End, hostile};
use crate::{scene, values};

struct Function {
    name: String,
    procedure: bool,
    variadic: bool,
    /// How many arguments it must have; the others have defaults.
    required: usize,
    /// Name and type of each argument.
    arguments: Vec<(String, String)>,
}

fn functions(session: &mut Session) -> Vec<Function> {
    let rows = session
        .query(
            "SELECT p.proname::text, p.prokind = 'p', p.provariadic <> 0, (p.pronargs - p.pronargdefaults)::integer, \
                    COALESCE((SELECT array_agg(COALESCE(p.proargnames[a.n], '') ORDER BY a.n) \
                                FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, n)), '{}'), \
                    COALESCE((SELECT array_agg(format_type(a.t, NULL) ORDER BY a.n) \
                                FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, n)), '{}') \
               FROM pg_proc AS p \
              WHERE p.pronamespace = 'taskq'::regnamespace \
                AND NOT 'internal'::regtype = ANY (p.proargtypes::oid[]) \
                AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype) \
              ORDER BY p.oid",
            &[],
        )
        .unwrap();
    rows.iter()
        .map(|row| {
            let (names, kinds): (Vec<String>, Vec<String>) = (row.get(4), row.get(5));
            let required: i32 = row.get(3);
            Function {
                name: row.get(0),
                procedure: row.get(1),
                variadic: row.get(2),
                required: required as usize,
                arguments: names.into_iter().zip(kinds).collect(),
            }
        })
        .collect()
}

impl Function {
    /// The call with these arguments, by name; of the others it must have those that have no default.
    fn call(&self, good: &[String], arguments: &[(usize, String)]) -> String {
        let mut list: Vec<String> = Vec::new();
        for (number, (name, kind)) in self.arguments.iter().enumerate() {
            let chosen = arguments.iter().find(|(chosen, _)| *chosen == number).map(|(_, value)| value);
            let Some(value) = chosen.or((number < self.required).then_some(&good[number])) else { continue };
            let last = self.variadic && number + 1 == self.arguments.len();
            // What has a type of its own keeps it; a literal gets the argument's.
            let bare = value == "NULL" || value.starts_with('\'') && value.ends_with('\'');
            let typed =
                if bare && !kind.starts_with("any") { format!("{value}::{kind}") } else { value.clone() };
            let by_name = if name.is_empty() { String::new() } else { format!("{name} => ") };
            list.push(format!("{}{by_name}{typed}", if last { "VARIADIC " } else { "" }));
        }
        let verb = if self.procedure { "CALL" } else { "SELECT * FROM" };
        format!("{verb} taskq.{}({})", self.name, list.join(", "))
    }

    fn caller(&self) -> Caller {
        if self.name.starts_with('_') {
            Caller::Inside
        } else if self.arguments.iter().any(|(name, _)| ["wait", "timeout"].contains(&name.as_str())) {
            Caller::Sleeper
        } else {
            Caller::Plain
        }
    }

    fn good(&self, token: &str) -> Vec<String> {
        self.arguments.iter().map(|(name, kind)| values::good(name, kind, token)).collect()
    }
}

#[test]
fn one_bad_argument_at_a_time() {
    let db = Db::new();
    let (mut session, grant) = scene::set(&db);
    let token = grant.token.to_string();
    let functions = functions(&mut session);
    assert!(functions.len() > 100, "{} functions", functions.len());
    let (mut worked, mut refused, mut unable) = (0, 0, Vec::new());
    for function in &functions {
        let before = state_of_all(&mut session);
        let good = function.good(&token);
        if let End::Refused(code) = hostile(&mut session, &function.call(&good, &[]), function.caller()) {
            unable.push(format!("{} {code}", function.name));
        }
        for (number, (_, kind)) in function.arguments.iter().enumerate() {
            for value in values::bad(kind) {
                let call = function.call(&good, &[(number, value.to_owned())]);
                match hostile(&mut session, &call, function.caller()) {
                    End::Worked => worked += 1,
                    End::Refused(_) => refused += 1,
                }
            }
        }
        assert!(before == state_of_all(&mut session), "{} has changed something", function.name);
    }
    println!("{} functions, {worked} calls worked, {refused} were refused", functions.len());
    println!("whose good call was refused: {unable:?}");
    assert!(unable.len() * 8 < functions.len(), "most functions get as far as their work: {unable:?}");
}

#[test]
fn several_bad_arguments_by_chance() {
    let db = Db::new();
    let (mut session, grant) = scene::set(&db);
    let token = grant.token.to_string();
    let functions = functions(&mut session);
    let soak: usize = env::var("TASKQ_TEST_SOAK").map_or(1, |times| times.parse().expect("a number"));
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let before = state_of_all(&mut session);
    for _ in 0..2000 * soak {
        let function = random.pick(&functions);
        let good = function.good(&token);
        let mut arguments = Vec::new();
        for (number, (_, kind)) in function.arguments.iter().enumerate() {
            if random.chance(40) {
                let bad: Vec<&str> = values::bad(kind);
                let value = if random.chance(30) { good[number].as_str() } else { random.pick::<&str>(&bad) };
                arguments.push((number, value.to_owned()));
            }
        }
        hostile(&mut session, &function.call(&good, &arguments), function.caller());
    }
    assert!(before == state_of_all(&mut session), "seed {seed}: something has changed");
}
