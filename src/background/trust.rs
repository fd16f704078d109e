//! Whether what the worker is about to touch belongs to one role, and has nothing of others on it.
//!
//! The worker does its work as the extension's owner, in a security-restricted operation. So what this finds could do no more than the
//! owner can. It could still do it whenever the worker comes by, such as by a trigger of another role on a table of the queue. As
//! installed, the tables have no trigger, rule, policy or child table. No index, default or constraint of theirs depends on a function,
//! operator or type of a user or of another extension.

use pgrx::pg_sys::Oid;
use pgrx::pg_sys::SysCacheIdentifier::{NAMESPACEOID, PROCOID, RELOID};

use crate::memory::{Belief, Latest, Memory};
use crate::pg::changes::Changes;
use crate::pg::extension::Held;
use crate::pg::statement::Statement;

/// What may have come to belong to others. A change that Postgres tells of without a catalog row is found by the time.
static CATALOG: Changes<3> = Changes::of([NAMESPACEOID, PROCOID, RELOID]);

/// One thing of these kinds that is not as the install script has left it. What is numbered below 16384 is the server's own.
static FOREIGN: Statement<(Oid, Oid), String> = Statement::new(
    c"WITH place AS MATERIALIZED (SELECT n.oid, n.nspowner FROM pg_catalog.pg_namespace n WHERE n.nspname = 'taskq'),
     relations AS MATERIALIZED (SELECT c.oid, c.relname, c.relkind, c.relowner
                                  FROM pg_catalog.pg_class c JOIN place ON place.oid = c.relnamespace),
     ours AS MATERIALIZED (SELECT d.classid, d.objid FROM pg_catalog.pg_depend d
                            WHERE d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass AND d.refobjid = $1
                              AND d.deptype = 'e'),
     parts AS MATERIALIZED (
        SELECT 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid AS classid, r.oid AS objid, r.relname
          FROM relations r WHERE r.relkind = 'i'
         UNION ALL
        SELECT 'pg_catalog.pg_constraint'::pg_catalog.regclass, o.oid, r.relname
          FROM pg_catalog.pg_constraint o JOIN relations r ON r.oid = o.conrelid
         UNION ALL
        SELECT 'pg_catalog.pg_attrdef'::pg_catalog.regclass, a.oid, r.relname
          FROM pg_catalog.pg_attrdef a JOIN relations r ON r.oid = a.adrelid)
    SELECT f.what
      FROM (SELECT 'schema taskq belongs to another role' AS what FROM place WHERE place.nspowner <> $2
             UNION ALL
            SELECT pg_catalog.format('%s belongs to another role', r.relname) FROM relations r WHERE r.relowner <> $2
             UNION ALL
            SELECT pg_catalog.format('function %s belongs to another role', p.proname)
              FROM pg_catalog.pg_proc p JOIN place ON place.oid = p.pronamespace WHERE p.proowner <> $2
             UNION ALL
            SELECT pg_catalog.format('there is a trigger on %s', r.relname)
              FROM pg_catalog.pg_trigger t JOIN relations r ON r.oid = t.tgrelid
             UNION ALL
            SELECT pg_catalog.format('there is a rule on %s', r.relname)
              FROM pg_catalog.pg_rewrite w JOIN relations r ON r.oid = w.ev_class WHERE r.relkind <> 'v'
             UNION ALL
            SELECT pg_catalog.format('there is a policy on %s', r.relname)
              FROM pg_catalog.pg_policy p JOIN relations r ON r.oid = p.polrelid
             UNION ALL
            SELECT pg_catalog.format('a table inherits from %s', r.relname)
              FROM pg_catalog.pg_inherits i JOIN relations r ON r.oid = i.inhparent
             UNION ALL
            SELECT pg_catalog.format('%s depends on a function of another extension or of a user', p.relname)
              FROM parts p
              JOIN pg_catalog.pg_depend d ON d.classid = p.classid AND d.objid = p.objid
             WHERE d.refclassid IN ('pg_catalog.pg_proc'::pg_catalog.regclass, 'pg_catalog.pg_operator'::pg_catalog.regclass,
                                    'pg_catalog.pg_opclass'::pg_catalog.regclass, 'pg_catalog.pg_type'::pg_catalog.regclass)
               AND d.refobjid >= 16384
               AND NOT EXISTS (SELECT FROM ours o WHERE o.classid = d.refclassid AND o.objid = d.refobjid)) AS f
     LIMIT 1",
);

/// What was trusted.
static TRUSTED: Memory<Latest<Held, ()>> = Memory::of(Belief::Trusted);

/// What speaks against it; `None`: nothing. To be asked as the owner.
pub(super) fn objection(held: Held) -> Option<String> {
    // From before the look.
    let version = CATALOG.version();
    let as_before = TRUSTED.with(|trusted| {
        trusted.as_of(version);
        trusted.get(&held).is_some()
    });
    if as_before {
        return None;
    }
    let objection = FOREIGN.first((held.extension, held.owner));
    TRUSTED.with(|trusted| if objection.is_none() { trusted.note(held, ()) } else { trusted.clear() });
    objection
}
