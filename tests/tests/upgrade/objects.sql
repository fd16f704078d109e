-- Everything of the schema taskq and of the extension that the catalog knows, one line for each thing: what it is, its
-- name, and all that is said of it. Two databases with the same lines have the same extension. Numbers that differ from
-- one database to the other (OIDs) are not in it, but the places of columns are: the library goes by them.
SELECT 'extension' AS kind, e.extname::text AS name,
       concat_ws(' ', e.extversion, e.extnamespace::regnamespace, e.extrelocatable, e.extowner::regrole,
                 quote_nullable(obj_description(e.oid, 'pg_extension'))) AS said
  FROM pg_extension AS e WHERE e.extname = 'taskq'
UNION ALL
-- What belongs to it.
SELECT 'member', pg_describe_object(d.classid, d.objid, d.objsubid), ''
  FROM pg_depend AS d
 WHERE d.deptype = 'e' AND d.refclassid = 'pg_extension'::regclass
   AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'taskq')
UNION ALL
-- Whose rows are dumped.
SELECT 'dumped', c.oid::regclass::text, quote_nullable(e.extcondition[i])
  FROM pg_extension AS e, generate_subscripts(e.extconfig, 1) AS i, pg_class AS c
 WHERE e.extname = 'taskq' AND c.oid = e.extconfig[i]
UNION ALL
-- What rights pg_dump takes for granted.
SELECT 'initial rights', pg_describe_object(p.classoid, p.objoid, p.objsubid),
       concat_ws(' ', p.privtype, (SELECT string_agg(x::text, ' ' ORDER BY x::text) FROM unnest(p.initprivs) AS x))
  FROM pg_init_privs AS p
  JOIN pg_depend AS d ON d.deptype = 'e' AND d.classid = p.classoid AND d.objid = p.objoid
 WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'taskq')
UNION ALL
SELECT 'schema', n.nspname::text,
       concat_ws(' ', n.nspowner::regrole, n.nspacl, quote_nullable(obj_description(n.oid, 'pg_namespace')))
  FROM pg_namespace AS n WHERE n.nspname = 'taskq'
UNION ALL
SELECT 'rights by default', a.defaclobjtype::text, concat_ws(' ', a.defaclrole::regrole, a.defaclacl)
  FROM pg_default_acl AS a WHERE a.defaclnamespace = 'taskq'::regnamespace
UNION ALL
-- Tables, views, indexes, sequences, row types: c.relkind tells which.
SELECT 'relation ' || c.relkind::text, c.oid::regclass::text,
       concat_ws(' ', c.relpersistence, c.relreplident, c.relrowsecurity, c.relforcerowsecurity, c.relispartition, c.relowner::regrole,
                 'AM', (SELECT a.amname FROM pg_am AS a WHERE a.oid = c.relam), 'tablespace', c.reltablespace,
                 'options', c.reloptions, 'columns', c.relnatts, 'rights', c.relacl,
                 quote_nullable(obj_description(c.oid, 'pg_class')))
  FROM pg_class AS c WHERE c.relnamespace = 'taskq'::regnamespace
UNION ALL
-- Dropped columns count: they take a place. Some servers note in `pg_attver` by which change a column came.
SELECT 'column', c.oid::regclass || ' ' || a.attnum || ' ' || a.attname,
       concat_ws(' ', CASE WHEN a.attisdropped THEN 'dropped' ELSE format_type(a.atttypid, a.atttypmod) END, a.attnotnull,
                 'default', pg_get_expr(b.adbin, b.adrelid), 'identity', a.attidentity, 'generated', a.attgenerated,
                 'collation', (SELECT o.collname FROM pg_collation AS o WHERE o.oid = a.attcollation), 'storage', a.attstorage,
                 'compression', a.attcompression, 'statistics', NULLIF(a.attstattarget, -1),
                 'options', ARRAY(SELECT o FROM unnest(a.attoptions) AS o WHERE NOT starts_with(o, 'pg_attver=')),
                 'rights', a.attacl, quote_nullable(col_description(c.oid, a.attnum)))
  FROM pg_class AS c
  JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0
  LEFT JOIN pg_attrdef AS b ON b.adrelid = c.oid AND b.adnum = a.attnum
 WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind NOT IN ('i', 'I', 'S', 't')
UNION ALL
SELECT 'constraint', concat_ws(' ', NULLIF(k.conrelid, 0)::regclass, NULLIF(k.contypid, 0)::regtype, k.conname),
       concat_ws(' ', k.contype, pg_get_constraintdef(k.oid), k.convalidated, k.condeferrable, k.condeferred, k.connoinherit,
                 quote_nullable(obj_description(k.oid, 'pg_constraint')))
  FROM pg_constraint AS k WHERE k.connamespace = 'taskq'::regnamespace
UNION ALL
SELECT 'index', i.indexrelid::regclass::text,
       concat_ws(' ', pg_get_indexdef(i.indexrelid), 'primary', i.indisprimary, 'unique', i.indisunique, 'at once', i.indimmediate, 'clustered', i.indisclustered,
                 'valid', i.indisvalid, i.indisready, i.indislive, 'identity', i.indisreplident)
  FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE c.relnamespace = 'taskq'::regnamespace
UNION ALL
SELECT 'view', c.oid::regclass::text, pg_get_viewdef(c.oid)
  FROM pg_class AS c WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind IN ('v', 'm')
UNION ALL
-- Without the values that they have got to.
SELECT 'sequence', s.seqrelid::regclass::text,
       concat_ws(' ', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle, 'of',
                 (SELECT string_agg(d.refobjid::regclass || ' ' || d.refobjsubid, ' ') FROM pg_depend AS d
                   WHERE d.objid = s.seqrelid AND d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
                     AND d.deptype IN ('a', 'i')))
  FROM pg_sequence AS s JOIN pg_class AS c ON c.oid = s.seqrelid WHERE c.relnamespace = 'taskq'::regnamespace
UNION ALL
-- Arguments with names and defaults, attributes, settings and body.
SELECT 'function', p.oid::regprocedure::text,
       concat_ws(' ', pg_get_functiondef(p.oid), p.proowner::regrole, 'rights', p.proacl, quote_nullable(obj_description(p.oid, 'pg_proc')))
  FROM pg_proc AS p WHERE p.pronamespace = 'taskq'::regnamespace AND p.prokind <> 'a'
UNION ALL
SELECT 'type', t.oid::regtype::text,
       concat_ws(' ', t.typtype, t.typcategory, t.typlen, t.typbyval, t.typdelim, t.typstorage, 'base', NULLIF(t.typbasetype, 0)::regtype, t.typtypmod, t.typnotnull,
                 'default', t.typdefault, 'labels',
                 (SELECT string_agg(l.enumlabel, ', ' ORDER BY l.enumsortorder) FROM pg_enum AS l WHERE l.enumtypid = t.oid),
                 t.typowner::regrole, 'rights', t.typacl, quote_nullable(obj_description(t.oid, 'pg_type')))
  FROM pg_type AS t WHERE t.typnamespace = 'taskq'::regnamespace
UNION ALL
SELECT 'operator', o.oid::regoperator::text,
       concat_ws(' ', o.oprcode, o.oprrest, o.oprjoin, NULLIF(o.oprcom, 0)::regoperator, NULLIF(o.oprnegate, 0)::regoperator,
                 o.oprcanmerge, o.oprcanhash, o.oprresult::regtype, o.oprowner::regrole, quote_nullable(obj_description(o.oid, 'pg_operator')))
  FROM pg_operator AS o WHERE o.oprnamespace = 'taskq'::regnamespace
UNION ALL
SELECT 'trigger', c.oid::regclass || ' ' || g.tgname, concat_ws(' ', pg_get_triggerdef(g.oid), g.tgenabled)
  FROM pg_trigger AS g JOIN pg_class AS c ON c.oid = g.tgrelid
 WHERE c.relnamespace = 'taskq'::regnamespace AND NOT g.tgisinternal
UNION ALL
SELECT 'rule', c.oid::regclass || ' ' || r.rulename, concat_ws(' ', pg_get_ruledef(r.oid), r.ev_enabled)
  FROM pg_rewrite AS r JOIN pg_class AS c ON c.oid = r.ev_class
 WHERE c.relnamespace = 'taskq'::regnamespace AND r.rulename <> '_RETURN'
UNION ALL
SELECT 'policy', c.oid::regclass || ' ' || p.polname,
       concat_ws(' ', p.polcmd, p.polpermissive, pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid))
  FROM pg_policy AS p JOIN pg_class AS c ON c.oid = p.polrelid WHERE c.relnamespace = 'taskq'::regnamespace
UNION ALL
SELECT 'statistics', s.stxname::text, pg_get_statisticsobjdef(s.oid)
  FROM pg_statistic_ext AS s WHERE s.stxnamespace = 'taskq'::regnamespace
UNION ALL
-- What depends on what, but for the belonging: DROP goes by it, and so does the order of a dump.
SELECT 'dependence', pg_describe_object(d.classid, d.objid, d.objsubid),
       concat_ws(' ', d.deptype, pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid), count(*))
  FROM pg_depend AS d
  JOIN pg_depend AS e ON e.deptype = 'e' AND e.classid = d.classid AND e.objid = d.objid
 WHERE d.deptype <> 'e' AND e.refclassid = 'pg_extension'::regclass
   AND e.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'taskq')
 GROUP BY d.classid, d.objid, d.objsubid, d.deptype, d.refclassid, d.refobjid, d.refobjsubid
