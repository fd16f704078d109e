\echo Use "CREATE EXTENSION taskq" to load this file. \quit
-- taskq: the stored state. The tables are here, but for part_action (grants.sql); a change needs a migration script.
--
-- A task's state is *where its rows are*. Every task has one row in `task` and one row in exactly
-- one of `run`, `blocked`, `scheduled`, `parked` and `settled`; see docs/architecture.md for the whole map.
-- Of these `task` is wide, and its rows hardly ever change; those that change as a task goes on are in narrow tables.

-- Views and the bodies of functions that are parsed here (BEGIN ATOMIC) bind their operators for good while this script runs.
-- Nothing but pg_catalog may be searched by then: otherwise a role that may create operators in a schema of the caller's
-- search_path could have its own operator run in calls of others. (`schema = pg_catalog` in the control file has the same effect; this
-- one also holds where the script is run by hand.)
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

-- The library goes by heap tables (src/pg/table), whatever new tables are by default.
SELECT pg_catalog.set_config('default_table_access_method', 'heap', true);

-- Texts go to and from Rust as they are stored, which is UTF-8 there.
DO $$
BEGIN
    IF pg_catalog.getdatabaseencoding() OPERATOR(pg_catalog.<>) 'UTF8' THEN
        RAISE EXCEPTION 'extension "taskq" needs a database with the encoding UTF8'
            USING ERRCODE = 'feature_not_supported',
                  DETAIL = pg_catalog.format('The encoding of database "%s" is %s.',
                                             pg_catalog.current_database(), pg_catalog.getdatabaseencoding()),
                  HINT = 'Create the database with ENCODING ''UTF8'' TEMPLATE template0. Clients may use any encoding.';
    END IF;
END
$$;

CREATE SCHEMA taskq;
COMMENT ON SCHEMA taskq IS 'a task queue with dependencies between tasks';

-- Its name has the number of the schema, which the library looks for before it touches a table (src/pg/fit.rs). An update
-- after which an older library could trip over what it finds (it knows columns by their places) gives it the next one:
-- ALTER TYPE taskq._schema_1 RENAME TO _schema_2.
CREATE TYPE taskq._schema_1 AS ();
COMMENT ON TYPE taskq._schema_1 IS 'internal: the number of the schema, for the library';

CREATE DOMAIN taskq.status_code AS text
    CONSTRAINT status_code_check CHECK (VALUE IN ('pending', 'in-progress', 'aborted', 'completed'));
COMMENT ON DOMAIN taskq.status_code IS 'what has become of a task: pending, in-progress, aborted or completed';

CREATE DOMAIN taskq.dependency_condition AS text
    CONSTRAINT dependency_condition_check CHECK (VALUE IN ('completed', 'settled', 'aborted'));
COMMENT ON DOMAIN taskq.dependency_condition IS
    'how the task waited for must end for the waiting one to run: completed, settled (either way) or aborted';

-- Has no value on purpose: see taskq.add_dependencies.
CREATE TYPE taskq.named_only AS ENUM ();
COMMENT ON TYPE taskq.named_only IS
    'of an argument that takes no value: the arguments behind it are given by their names';

-- Numbers of tasks and positions in the order of claiming come from this one sequence. CACHE 1, and a
-- transaction that takes a position has its id before. So once all transactions have ended that had an id when
-- a position was the last one taken, no entry comes to it or below, except in the place of another. The low-water mark of
-- claiming rests on that.
CREATE SEQUENCE taskq.position_seq AS bigint CACHE 1;

CREATE SEQUENCE taskq.action_no_seq AS integer CACHE 1;

-- Names of actions. *Not* unique on purpose: of two transactions that use a new name at the same time one would have to wait.
-- Each makes a number of its own instead, and claiming looks at all numbers of a name.
-- A row is not deleted, but marked, when a name is forgotten: an insertion may have read the number before.
CREATE TABLE taskq.action (
    action_no integer PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    forgotten boolean NOT NULL DEFAULT false,   -- the name was not used any more: an insertion that sees this takes another number
    CONSTRAINT action_name_check CHECK (name <> '')
);
CREATE INDEX action_name_idx ON taskq.action (name);    -- numbers of a name
COMMENT ON TABLE taskq.action IS 'names of actions and the numbers that stand for them in the narrow tables';

-- What is set for an action, by name: it may come before the action's first task.
CREATE TABLE taskq.action_setting (
    name text COLLATE "C" PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    max_tries integer,
    max_duration interval,
    backoff jsonb,
    max_concurrency integer,
    rate_limit integer,                         -- grants per rate_period
    rate_period interval,
    retention interval,
    retention_aborted interval,                 -- of those that abort; NULL: the same
    notify boolean NOT NULL DEFAULT false,      -- NOTIFY when tasks are ready
    on_timeout text NOT NULL DEFAULT 'retry',
    max_timeouts integer,                       -- the deadline that makes so many of a task aborts it
    fair boolean NOT NULL DEFAULT false,        -- its groups take turns
    max_per_group integer,                      -- how many tasks of one group are in progress at most
    expires_in interval,                        -- of tasks that say nothing else: how soon they expire
    max_run_time interval,                      -- likewise: no deadline of a try is later than its grant plus this
    CONSTRAINT action_setting_max_tries_check CHECK (max_tries >= 1),
    CONSTRAINT action_setting_max_concurrency_check CHECK (max_concurrency BETWEEN 0 AND 100000),
    CONSTRAINT action_setting_rate_check CHECK ((rate_limit IS NULL) = (rate_period IS NULL)
                                                AND rate_limit BETWEEN 1 AND 1000000000),
    CONSTRAINT action_setting_on_timeout_check CHECK (on_timeout IN ('retry', 'abort')),
    CONSTRAINT action_setting_max_timeouts_check CHECK (max_timeouts >= 1),
    CONSTRAINT action_setting_max_per_group_check CHECK (max_per_group BETWEEN 1 AND 100000)
);
COMMENT ON TABLE taskq.action_setting IS 'what is set for actions: defaults and limits, for instance';

-- The places that limits allow, one row each; `task_no` is whose place it is. A grant takes free ones that no other
-- transaction has locked; the end of the performance frees it. Rows above the limit are what is left of a higher
-- one, or belong to performances that began before it was set. There are three kinds of limits: an action's max_concurrency
-- (no group), its max_per_group (both), and a group's own (no action). Rows of the first kind are made with the limit,
-- the others when they are first needed.
CREATE TABLE taskq.slot (
    group_id text COLLATE "C" NOT NULL,         -- '' for any
    name text COLLATE "C" NOT NULL,             -- of the action; '' for any
    slot_no integer NOT NULL,
    task_no bigint,
    -- In the order of these free ones are taken; new each time it is freed.
    position bigint NOT NULL DEFAULT pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass),
    -- With the position: an insertion into a unique index visits all versions that have the key, dead ones too. The code
    -- that makes the slots of a limit sees to it that their numbers differ; one call at a time makes them.
    CONSTRAINT slot_pkey PRIMARY KEY (group_id, name, slot_no, position)
) WITH (fillfactor = 50);
CREATE INDEX slot_free_idx ON taskq.slot (group_id, name, position) WHERE task_no IS NULL;    -- which to take next
CREATE INDEX slot_task_idx ON taskq.slot (task_no) WHERE task_no IS NOT NULL;     -- what a performance holds
-- Which groups are at their limits.
CREATE INDEX slot_held_idx ON taskq.slot (name, group_id) WHERE task_no IS NOT NULL AND group_id <> '';
COMMENT ON TABLE taskq.slot IS 'which tasks hold the places that limits of concurrency allow';

-- One row per rate-limited action: how many grants there were left, and when.
CREATE TABLE taskq.bucket (
    name text COLLATE "C" NOT NULL,
    level double precision NOT NULL,
    measured_at timestamptz NOT NULL,
    -- New at each change: of the versions of a row, dead ones too, the last in the index is the one there is.
    position bigint NOT NULL DEFAULT pg_catalog.nextval('taskq.position_seq'::pg_catalog.regclass),
    CONSTRAINT bucket_pkey PRIMARY KEY (name, position)
) WITH (fillfactor = 50);
COMMENT ON TABLE taskq.bucket IS 'what is left of the rate limits of actions';

-- One row per task, inserted and deleted with it. Only update_tasks updates it.
CREATE TABLE taskq.task (
    task_no bigint PRIMARY KEY,
    action_no integer NOT NULL,
    priority integer NOT NULL,
    max_tries integer,                          -- NULL: the action's default, else the setting's
    num_required integer,                       -- how many of its dependencies it needs; NULL: all
    spontaneous boolean NOT NULL,               -- completed by the queue itself
    signal boolean NOT NULL,                    -- completed from outside, as a rule by taskq.signal
    post_result boolean NOT NULL,               -- NOTIFY when settled
    inserted_at timestamptz NOT NULL,
    not_before timestamptz,
    expires_at timestamptz,                     -- when it expires, as said at its insertion; see the table expiry
    max_duration interval,                      -- default lease
    max_run_time interval,                      -- no deadline of a try is later than its grant plus this; NULL: the action's
    retention interval,                         -- how long it is kept once completed; NULL: as its action says, else the setting
    retention_aborted interval,                 -- or aborted
    backoff jsonb,                              -- delays between tries; NULL: the action's
    seed boolean NOT NULL,                      -- survives a reset of its group
    id text COLLATE "C" NOT NULL,
    group_id text COLLATE "C",
    workgroup text COLLATE "C",                 -- rate-limit domain
    merge_key text COLLATE "C",
    unique_key text COLLATE "C",                -- see the table unique_key
    unique_until timestamptz,                   -- end of its period; no retention ends before. NULL: none
    unique_states smallint,                     -- in which it holds the key: the sum of 1 blocked, 2 scheduled,
                                                -- 4 ready, 8 in-progress, 16 completed, 32 aborted
    body text,
    metadata jsonb,
    CONSTRAINT task_id_key UNIQUE (id)
);
CREATE INDEX task_group_idx ON taskq.task (group_id) WHERE group_id IS NOT NULL;    -- tasks of a group
CREATE INDEX task_workgroup_idx ON taskq.task (workgroup) WHERE workgroup IS NOT NULL;  -- of a workgroup
CREATE INDEX task_merge_key_idx ON taskq.task (merge_key) WHERE merge_key IS NOT NULL;  -- riders, tidying
CREATE INDEX task_inserted_idx ON taskq.task (inserted_at);                         -- the newest, for views that are read often
COMMENT ON TABLE taskq.task IS 'what was asked for: one row per task, which only update_tasks changes';

-- Tasks that nothing blocks: ready, in progress, or set aside for a reason. Narrow, with room on the page for a newer and longer
-- version of each row, so that a grant can be a HOT update: nothing that a grant changes is indexed.
CREATE TABLE taskq.run (
    -- What most grants leave as it is comes first: of a new version on the same page the log has, as a rule, only what is behind
    -- that.
    task_no bigint PRIMARY KEY,
    position bigint NOT NULL,                   -- place in the queue; new at each comeback
    lane bigint NOT NULL,                       -- stands for its group; 0: it is in no lane
    prev_nonce bigint NOT NULL,                 -- the nonce before, while a grant looks whether it may stand
    action_no integer NOT NULL,
    priority integer NOT NULL,
    failures integer NOT NULL,                  -- dependencies that aborted
    dependencies integer NOT NULL,              -- dependencies in all
    gated boolean NOT NULL,                     -- it has a group, a workgroup or a merge key
    max_duration interval,
    max_run_time interval,
    key_hash bigint,                            -- stands for its action, group and merge key; NULL: no merge key
    aside bigint,                               -- set aside under this reason, see store::aside; NULL: not
    tries integer NOT NULL,
    nonce bigint NOT NULL,                      -- secret part of the last token granted; 0: none is valid
    deadline timestamptz NOT NULL,              -- of the grant; infinity: it never expires, or no grant
    granted_at timestamptz,
    grantable boolean NOT NULL,                 -- false while a grant holds it, or it is set aside
    limited boolean NOT NULL,                   -- it holds slots
    keyed boolean NOT NULL,                     -- it holds its merge key
    actor_id text,
    prev_deadline timestamptz,                  -- what went with prev_nonce, if that was not 0
    prev_granted_at timestamptz,
    prev_actor_id text
) WITH (fillfactor = 45);
CREATE INDEX run_claim_idx ON taskq.run (action_no, priority DESC, position)      -- the order of claiming
    WHERE lane = 0;
CREATE INDEX run_lane_idx ON taskq.run (action_no, priority DESC, lane, position) -- the same within each lane
    WHERE lane <> 0;
CREATE INDEX run_key_idx ON taskq.run (key_hash) WHERE key_hash IS NOT NULL;      -- what shares a merge key
CREATE INDEX run_aside_idx ON taskq.run (aside) WHERE aside IS NOT NULL;          -- set aside under a reason
COMMENT ON TABLE taskq.run IS 'tasks that nothing blocks: ready or in progress';

-- Tasks that wait for other tasks, and signals, which are completed from outside. The row is the counter of a task: it is deleted
-- when `remaining` reaches zero, for instance, or when counting brings `spare` below zero.
CREATE TABLE taskq.blocked (
    task_no bigint PRIMARY KEY,
    remaining integer NOT NULL,                 -- dependencies that have to end as they should; one more for a signal
    failures integer NOT NULL,
    dependencies integer NOT NULL,
    tries integer NOT NULL,
    not_before timestamptz,                     -- besides the task's own: of delay_children or retry_after, for instance
    action_no integer NOT NULL,                 -- the task's, so that counting reads this table only
    spare integer NOT NULL,                     -- dependencies of which it can do without; of a signal -1
    wait_no integer NOT NULL,                   -- names this wait of the task: see `dependency`
    since timestamptz,                          -- of a suspended task; NULL: it is none
    until timestamptz,                          -- when the wait of a suspended task is over at the latest; NULL: no such time
    CONSTRAINT blocked_remaining_check CHECK (remaining > 0 AND spare >= -1)
) WITH (fillfactor = 70);
-- Suspended tasks, by the time at which their wait is over.
CREATE INDEX blocked_until_idx ON taskq.blocked (until) WHERE since IS NOT NULL;
COMMENT ON TABLE taskq.blocked IS 'tasks that wait for other tasks or for a signal from outside, and what is still due';

-- Tasks that nothing blocks but their time, or that of their workgroup.
CREATE TABLE taskq.scheduled (
    task_no bigint PRIMARY KEY,
    due timestamptz NOT NULL,
    action_no integer NOT NULL,
    tries integer NOT NULL,
    failures integer NOT NULL,
    dependencies integer NOT NULL,
    position bigint NOT NULL,                   -- where it stood when it was held back; else its number
    held_back boolean NOT NULL,                 -- by its workgroup, or a closed turnstile
    timer boolean NOT NULL                      -- it completes by itself when its time has come
);
CREATE INDEX scheduled_due_idx ON taskq.scheduled (action_no, due, position);     -- what is due by now
CREATE INDEX scheduled_timer_idx ON taskq.scheduled (due) WHERE timer;            -- timers, whatever their action
COMMENT ON TABLE taskq.scheduled IS 'tasks that nothing blocks but their time, or that of their workgroup';

-- Tasks that nothing blocks but a reason without a time: a paused group, a busy merge key, or another task
-- whose end they share. As a rule a claim moves them here, so that later claims do not meet them.
CREATE TABLE taskq.parked (
    task_no bigint PRIMARY KEY,
    kind "char" NOT NULL,                       -- g: group, k: key, m: rides on leader_no
    name text COLLATE "C",                      -- the group ('' for none); NULL where it rides
    key text COLLATE "C",
    action text COLLATE "C",                    -- of the key
    leader_no bigint,
    priority integer NOT NULL,
    position bigint NOT NULL,                   -- where it stood
    tries integer NOT NULL,
    failures integer NOT NULL,
    dependencies integer NOT NULL,
    action_no integer NOT NULL,                 -- the task's, so that counting reads this table only
    CONSTRAINT parked_kind_check CHECK (kind IN ('g', 'k', 'm')),
    CONSTRAINT parked_reason_check CHECK ((kind = 'm') = (leader_no IS NOT NULL) AND (kind <> 'm') = (name IS NOT NULL)
                                          AND (kind = 'k') = (key IS NOT NULL) AND (kind = 'k') = (action IS NOT NULL))
);
CREATE INDEX parked_reason_idx ON taskq.parked (name, key) WHERE kind <> 'm';     -- under a group or a key
CREATE INDEX parked_leader_idx ON taskq.parked (leader_no) WHERE kind = 'm';      -- the riders of a task
COMMENT ON TABLE taskq.parked IS 'tasks that are ready but for a paused group or a busy merge key, and those that ride on another';

-- Groups about which something is known besides their tasks.
CREATE TABLE taskq.task_group (
    group_id text COLLATE "C" PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    max_concurrency integer,                    -- how many tasks of it are in progress at most, over all actions
    weight integer,                             -- its share where groups take turns; NULL: 1
    CONSTRAINT task_group_max_concurrency_check CHECK (max_concurrency BETWEEN 0 AND 100000),
    CONSTRAINT task_group_weight_check CHECK (weight BETWEEN 1 AND 1000)
);
CREATE INDEX task_group_closed_idx ON taskq.task_group (group_id) WHERE max_concurrency = 0;  -- always full
COMMENT ON TABLE taskq.task_group IS 'groups that were paused, or for which something was set';

-- How many tasks groups have, and how many of them have ended: the sum of all rows of a group. Rows are
-- appended, and folded now and then, but not updated, so that no transaction waits for another one because of them.
CREATE TABLE taskq.group_tally (
    group_id text COLLATE "C" NOT NULL,
    folded boolean NOT NULL,                    -- a sum of earlier rows
    tasks bigint NOT NULL,
    completed bigint NOT NULL,
    aborted bigint NOT NULL,                    -- those that were skipped not counted
    span timestamptz NOT NULL,                  -- the ten seconds in which they settled; -infinity: long ago, or nothing settled
    first_at timestamptz NOT NULL,              -- first insertion; infinity: none
    last_at timestamptz NOT NULL,               -- last end; -infinity: none
    skipped bigint NOT NULL
);
CREATE INDEX group_tally_idx ON taskq.group_tally (folded, group_id);            -- of a group; what is to be folded
ALTER TABLE taskq.group_tally REPLICA IDENTITY FULL;
COMMENT ON TABLE taskq.group_tally IS 'numbers of tasks of groups, to be summed up';

CREATE TABLE taskq.workgroup (
    name text COLLATE "C" PRIMARY KEY,
    not_before timestamptz NOT NULL
) WITH (fillfactor = 50);
COMMENT ON TABLE taskq.workgroup IS 'until when the tasks of a workgroup are held back';

-- One row per merge key that tasks have, of an action and a group; its holder is the one that runs.
CREATE TABLE taskq.merge_key (
    action text COLLATE "C" NOT NULL,
    group_id text COLLATE "C" NOT NULL,         -- '' for tasks without a group
    key text COLLATE "C" NOT NULL,
    holder_no bigint,
    CONSTRAINT merge_key_pkey PRIMARY KEY (action, group_id, key)
) WITH (fillfactor = 50);
CREATE INDEX merge_key_holder_idx ON taskq.merge_key (holder_no) WHERE holder_no IS NOT NULL;
COMMENT ON TABLE taskq.merge_key IS 'which task with a merge key runs';

-- One row per key of unique tasks: which task was inserted with it last. Whether that task holds the key is
-- worked out from the task; a key whose task is gone is free.
CREATE TABLE taskq.unique_key (
    action text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    task_no bigint NOT NULL,
    behind_no bigint,                           -- the one before, if that had begun
    since timestamptz NOT NULL,                 -- when the first of those that replaced each other was inserted
    not_before timestamptz,                     -- the end of the period of the one before
    CONSTRAINT unique_key_pkey PRIMARY KEY (action, key)
) WITH (fillfactor = 80);
COMMENT ON TABLE taskq.unique_key IS 'which task was inserted last with a unique key';

-- How tasks ended. The row of a replaced task is kept for an hour at least after its `task` row, so that a call that waits
-- for it learns of its end.
CREATE TABLE taskq.settled (
    task_no bigint PRIMARY KEY,
    expires_at timestamptz NOT NULL,            -- end of its retention, which upkeep may put off; infinity: kept for ever
    settled_at timestamptz NOT NULL,
    granted_at timestamptz,
    tries integer NOT NULL,
    failures integer NOT NULL,
    dependencies integer NOT NULL,
    signals integer NOT NULL,                   -- dependencies that had signalled when it ended
    action_no integer NOT NULL,                 -- the task's, so that counting per action reads this table only
    grouped boolean NOT NULL,                   -- the task has a group, whose tally counts it
    code "char" NOT NULL,                       -- c: completed, a: aborted
    cause "char" NOT NULL,                      -- why it ended: see settled_cause_check
    actor_id text,
    status text,
    result jsonb,
    leader_no bigint,                           -- of a merged one: the task that ran for it
    CONSTRAINT settled_code_check CHECK (code IN ('c', 'a')),
    -- w: the worker, t: its deadline, x: its tries were used up, d: lost dependencies, s: spontaneous,
    -- c: cancelled, r: replaced, o: completed by hand, m: the task with the same key that it rode on, k: skipped,
    -- e: expired, g: a signal from outside
    CONSTRAINT settled_cause_check CHECK (cause IN ('w', 't', 'x', 'd', 's', 'c', 'r', 'o', 'm', 'k', 'e', 'g'))
);
CREATE INDEX settled_expires_idx ON taskq.settled (expires_at);                   -- tasks whose retention is over
CREATE INDEX settled_at_idx ON taskq.settled (settled_at);                        -- what has ended lately
COMMENT ON TABLE taskq.settled IS 'how tasks ended';

-- How many tasks have settled, per action, code and cause (those of which nothing is left but the end, cause r, not counted).
-- What settled before `seal.until` is summed up here, the rest is counted in `settled`: see src/store/ends.rs. Rows are
-- appended, and folded now and then.
CREATE TABLE taskq.end_tally (
    span timestamptz NOT NULL,                  -- when they settled: the beginning of a span; -infinity: long ago
    action_no integer NOT NULL,
    code "char" NOT NULL,
    cause "char" NOT NULL,
    number bigint NOT NULL,                     -- that are kept; negative: a correction, they have gone
    ended bigint NOT NULL                       -- that settled in this span, kept or not
);
CREATE INDEX end_tally_span_idx ON taskq.end_tally (span);                        -- of a span
ALTER TABLE taskq.end_tally REPLICA IDENTITY FULL;
COMMENT ON TABLE taskq.end_tally IS 'numbers of settled tasks, to be summed up';

-- One row: up to when what has settled is summed up in `end_tally`; and, if there is a mark, up to when it can be, once all
-- transactions with an id below mark_xid have ended. Neither table is dumped: what is restored is summed up anew.
CREATE TABLE taskq.seal (
    until timestamptz NOT NULL,
    mark_at timestamptz,
    mark_xid bigint,
    CONSTRAINT seal_mark_check CHECK ((mark_at IS NULL) = (mark_xid IS NULL))
) WITH (fillfactor = 10);
INSERT INTO taskq.seal VALUES ('-infinity', NULL, NULL);
ALTER TABLE taskq.seal REPLICA IDENTITY FULL;
COMMENT ON TABLE taskq.seal IS 'up to when what has settled is summed up';

-- Where claims of an action and priority begin: nothing before that position can be granted. A backend that knows
-- nothing of the action yet may begin there. Not dumped, since it is about these files.
CREATE TABLE taskq.low_mark (
    action_no integer NOT NULL,
    priority integer NOT NULL,
    position bigint NOT NULL,
    last_position bigint NOT NULL,              -- positions had come as far by then
    run_file bigint NOT NULL,                   -- the files of `run` and of the sequence of positions
    sequence_file bigint NOT NULL,
    walked_at timestamptz NOT NULL              -- when a claim has last searched that far from the beginning; good for ten minutes
);
CREATE INDEX low_mark_action_idx ON taskq.low_mark (action_no);                   -- those of an action
ALTER TABLE taskq.low_mark REPLICA IDENTITY FULL;
COMMENT ON TABLE taskq.low_mark IS 'where claims begin, for sessions that do not know yet';

-- "run_no runs after after_no". As a rule it is kept until one of the two is gone; one that a suspension has made may
-- go earlier.
--
-- A task may wait several times, for different tasks. The end of `after_no` counts for one wait only, that with this number:
-- one that is late (it is on its way while the task goes on without it, and waits for others) finds another number, and counts
-- for nothing. The wait that comes with the insertion is 0; each later one, where such a thing may be, has a new number.
CREATE TABLE taskq.dependency (
    after_no bigint NOT NULL,
    run_no bigint NOT NULL,
    wait_no integer NOT NULL,
    condition "char" NOT NULL,                  -- under which it counts; c: completed, s: settled, a: aborted
    counts "char" NOT NULL,                     -- w: for that wait; d: dropped, `run_no` has gone on without it;
                                                -- m, f, l: `after_no` has started over without `run_no`, which keeps
                                                -- what it had counted: as met, as met by an abort, as lost
    suspending boolean NOT NULL,                -- made by a suspension of the task: may go when that begins anew
    first_condition "char" NOT NULL,            -- a suspension may have another one; this is back when the task starts over
    CONSTRAINT dependency_pkey PRIMARY KEY (after_no, run_no),                    -- the dependents that a settled task signals
    CONSTRAINT dependency_condition_check CHECK (condition IN ('c', 's', 'a') AND first_condition IN ('c', 's', 'a')),
    CONSTRAINT dependency_counts_check CHECK (counts IN ('w', 'd', 'm', 'f', 'l')),
    CONSTRAINT dependency_self_check CHECK (after_no <> run_no)
);
CREATE INDEX dependency_run_idx ON taskq.dependency (run_no);                     -- what a task waits for
COMMENT ON TABLE taskq.dependency IS 'edges: which task runs after which';

-- Signals that found their counter locked by another transaction, as a rule. They are folded into `blocked` by a transaction that
-- has the counter locked, upkeep's for instance.
CREATE TABLE taskq.signal (
    run_no bigint NOT NULL,
    wait_no integer NOT NULL,                   -- for which of its waits: see `dependency`
    satisfied integer NOT NULL,                 -- dependencies that ended as they should
    failed integer NOT NULL,                    -- of both, how many aborted
    lost integer NOT NULL,                      -- dependencies that ended the wrong way
    lost_status text,                           -- where lost > 0: the status with which the task aborts, if it does
    skipped integer NOT NULL                    -- of those that are lost, how many were not needed
);
CREATE INDEX signal_run_idx ON taskq.signal (run_no);                             -- signals due to a task
ALTER TABLE taskq.signal REPLICA IDENTITY FULL;
COMMENT ON TABLE taskq.signal IS 'signals that wait to be counted because the counter was busy';

-- As a rule one row per deadline that a call gives to tasks under one base, and per thousand of these tasks; and some for tasks
-- that are to be looked at again at a time. It finds the elapsed ones without an index on `run`. The nonce of a task in it is
-- `base # task_no`. The row goes with its tasks: the end of the keeper's performance removes it, or hands it on to one
-- of the others, as a rule.
CREATE TABLE taskq.lease (
    deadline timestamptz NOT NULL,
    base bigint NOT NULL,
    keeper_no bigint NOT NULL,                  -- one of its tasks
    others bigint[]                             -- the others; NULL: none
);
CREATE INDEX lease_deadline_idx ON taskq.lease (deadline, keeper_no);             -- which are over; a task's
ALTER TABLE taskq.lease REPLICA IDENTITY FULL;
COMMENT ON TABLE taskq.lease IS 'deadlines to look after';

-- When which task is to be inserted.
CREATE TABLE taskq.schedule (
    name text COLLATE "C" PRIMARY KEY,
    cron text NOT NULL,
    timezone text NOT NULL,
    task jsonb NOT NULL,                        -- as for insert_tasks, without id
    overlap text NOT NULL,                      -- if the run before has not settled
    backfill text NOT NULL,                     -- of runs that were missed
    next_at timestamptz NOT NULL,               -- infinity: never again, or paused
    last_at timestamptz,                        -- time of the run that was inserted last
    last_task_id text COLLATE "C",
    problem text,                               -- why a run could not be inserted when some were due last
    max_backfill integer,                       -- how many missed runs are inserted at most, with 'all'; NULL: each
    paused_next_at timestamptz,                 -- what next_at was (and will be) while it is paused; NULL: it is not
    former jsonb,                               -- what it was while runs became due that are to be inserted still, oldest first: the
                                                -- columns up to then, the time until when it was so, and that from which the next is
    CONSTRAINT schedule_overlap_check CHECK (overlap IN ('skip', 'queue', 'replace')),
    CONSTRAINT schedule_backfill_check CHECK (backfill IN ('one', 'none', 'all')),
    CONSTRAINT schedule_max_backfill_check CHECK (max_backfill >= 1)
) WITH (fillfactor = 50);
CREATE INDEX schedule_next_idx ON taskq.schedule (next_at);                       -- which are due
COMMENT ON TABLE taskq.schedule IS 'tasks that come when a cron expression says so';

-- Tries that ended without settling their task, those that were revoked, and those from before their task was retried or
-- started over. How the last try of a settled task ended is in `settled`. How many of a task are kept: see src/store/attempts.rs.
CREATE TABLE taskq.attempt (
    task_no bigint NOT NULL,
    num_try integer NOT NULL,
    started_at timestamptz,
    ended_at timestamptz NOT NULL,
    outcome text NOT NULL,                      -- pending: given back; released: the same, and it does not count;
                                                -- timeout: the deadline passed; revoked: taken back by an operator;
                                                -- the others: how the task ended before it came back
    actor_id text,
    status text,
    past boolean NOT NULL DEFAULT false,        -- from before the task was retried or started over
    timeouts integer NOT NULL DEFAULT 0,        -- deadlines that passed: its own, and those of rows that are gone
    releases integer NOT NULL DEFAULT 0,        -- tries that did not count: likewise
    CONSTRAINT attempt_outcome_check
        CHECK (outcome IN ('pending', 'timeout', 'aborted', 'completed', 'cancelled', 'released', 'revoked'))
);
CREATE INDEX attempt_task_idx ON taskq.attempt (task_no);                         -- tries of a task
ALTER TABLE taskq.attempt REPLICA IDENTITY FULL;
COMMENT ON TABLE taskq.attempt IS 'the history of tries: those that did not settle their task, for instance';

-- What workers said of a task that has not completed: kept over tries, and over an abort for a retry.
CREATE TABLE taskq.progress (
    task_no bigint PRIMARY KEY,
    progress double precision,                  -- 0 to 1
    status text,
    checkpoint jsonb,                           -- handed to the next try
    CONSTRAINT progress_range_check CHECK (progress BETWEEN 0 AND 1)
) WITH (fillfactor = 70);
COMMENT ON TABLE taskq.progress IS 'what workers last reported of tasks that have not completed';

-- When tasks expire that have not been granted (signals: signalled) yet. A row may be left of one that has been granted: it is
-- looked at when its time comes.
CREATE TABLE taskq.expiry (
    task_no bigint PRIMARY KEY,
    due timestamptz NOT NULL
);
CREATE INDEX expiry_due_idx ON taskq.expiry (due);                                -- tasks whose time has come
COMMENT ON TABLE taskq.expiry IS 'when tasks expire that have not been granted, or signalled';

-- What workers have saved of durable tasks: appended, and removed with the task, by reset_group, rerun_tasks or rewind_task.
CREATE TABLE taskq.step (
    task_no bigint NOT NULL,
    position integer NOT NULL,                  -- from 1, in the order in which they were saved
    name text COLLATE "C" NOT NULL,
    num_try integer NOT NULL,
    saved_at timestamptz NOT NULL,
    result jsonb,
    CONSTRAINT step_pkey PRIMARY KEY (task_no, name)                              -- what was saved before
);
CREATE UNIQUE INDEX step_position_idx ON taskq.step (task_no, position);          -- in their order
COMMENT ON TABLE taskq.step IS 'results of the steps of durable tasks';

-- One row, which every call that could close a cycle through stored tasks updates: they run one after
-- another, and under REPEATABLE READ or SERIALIZABLE the later one fails with 40001 instead of missing one that has committed.
-- Not dumped: the install script makes the row.
CREATE TABLE taskq.graph_guard (
    version bigint NOT NULL
) WITH (fillfactor = 10);
INSERT INTO taskq.graph_guard VALUES (0);
ALTER TABLE taskq.graph_guard REPLICA IDENTITY FULL;
COMMENT ON TABLE taskq.graph_guard IS 'serialises calls that could close a cycle';

-- (REPLICA IDENTITY FULL stands above with each table that has no primary key. Without it a publication of all tables, as tools
-- for change data capture and upgrades make them, would have PostgreSQL refuse every UPDATE and DELETE of them. It costs nothing
-- unless wal_level is logical.)

-- Rows of an extension's tables are dumped only if registered; so are the values of its sequences.
SELECT pg_catalog.pg_extension_config_dump('taskq.position_seq', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.action_no_seq', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.action', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.action_setting', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.slot', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.bucket', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.task', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.run', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.blocked', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.scheduled', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.parked', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.task_group', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.group_tally', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.workgroup', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.merge_key', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.unique_key', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.settled', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.dependency', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.signal', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.lease', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.progress', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.schedule', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.attempt', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.expiry', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.step', '');
-- taskq: functions. (Those of counting, views, health and rights are in files of their own.)
--
-- Functions that grants.sql gives to roles touch tables with the rights of the extension's owner, so that roles need EXECUTE on functions
-- and nothing on tables. Some are SECURITY DEFINER. Others, above all those that have to know the calling role
-- because its part may be narrowed to some actions, switch to the owner themselves (src/rights.rs). The search path is pinned either
-- way: by the SET clause of a SECURITY DEFINER function, by a statement of the others (src/pg/search_path.rs), which have no such
-- clause. The settings of the planner are not here: they belong to the plans, see src/pg/statement.

CREATE FUNCTION taskq.insert_task(
        id text,
        action text,
        body text = NULL,
        priority integer = 0,
        max_tries integer = NULL,
        max_duration interval = NULL,
        not_before timestamptz = NULL,
        delay interval = NULL,
        depends_on text[] = NULL,
        to_signal_after text[] = NULL,
        spontaneous boolean = false,
        post_result boolean = false,
        group_id text = NULL,
        retention interval = NULL,
        metadata jsonb = NULL,
        backoff jsonb = NULL,
        workgroup text = NULL,
        merge_key text = NULL,
        seed boolean = false,
        on_conflict text = 'error',
        if_missing text = 'error',
        unique_by jsonb = NULL,
        retention_aborted interval = NULL,
        num_required integer = NULL,
        signal boolean = false,
        expires_at timestamptz = NULL,
        expires_in interval = NULL,
        max_run_time interval = NULL)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_insert_task_wrapper';
COMMENT ON FUNCTION taskq.insert_task(
        text, text, text, integer, integer, interval, timestamptz, interval, text[], text[], boolean,
        boolean, text, interval, jsonb, jsonb, text, text, boolean, text, text, jsonb, interval, integer, boolean,
        timestamptz, interval, interval) IS
    'insert one task; returns its id, or NULL where an existing one was left alone';

-- A body without a type is text: this form has no default, and PostgreSQL prefers text for what it knows nothing of.
CREATE FUNCTION taskq.insert_task(
        id text,
        action text,
        body jsonb,
        priority integer = 0,
        max_tries integer = NULL,
        max_duration interval = NULL,
        not_before timestamptz = NULL,
        delay interval = NULL,
        depends_on text[] = NULL,
        to_signal_after text[] = NULL,
        spontaneous boolean = false,
        post_result boolean = false,
        group_id text = NULL,
        retention interval = NULL,
        metadata jsonb = NULL,
        backoff jsonb = NULL,
        workgroup text = NULL,
        merge_key text = NULL,
        seed boolean = false,
        on_conflict text = 'error',
        if_missing text = 'error',
        unique_by jsonb = NULL,
        retention_aborted interval = NULL,
        num_required integer = NULL,
        signal boolean = false,
        expires_at timestamptz = NULL,
        expires_in interval = NULL,
        max_run_time interval = NULL)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_insert_task_wrapper';
COMMENT ON FUNCTION taskq.insert_task(
        text, text, jsonb, integer, integer, interval, timestamptz, interval, text[], text[], boolean,
        boolean, text, interval, jsonb, jsonb, text, text, boolean, text, text, jsonb, interval, integer, boolean,
        timestamptz, interval, interval) IS
    'the same with a body that is JSON: a string is stored as it is, null as no body, anything else as its JSON text';

CREATE FUNCTION taskq.insert_many(
        action text,
        bodies text[],
        ids text[] = NULL,
        priority integer = 0,
        max_tries integer = NULL,
        max_duration interval = NULL,
        not_before timestamptz = NULL,
        delay interval = NULL,
        depends_on text[] = NULL,
        to_signal_after text[] = NULL,
        spontaneous boolean = false,
        post_result boolean = false,
        group_id text = NULL,
        retention interval = NULL,
        metadata jsonb = NULL,
        backoff jsonb = NULL,
        workgroup text = NULL,
        merge_key text = NULL,
        seed boolean = false,
        on_conflict text = 'error',
        if_missing text = 'error',
        unique_by jsonb = NULL,
        retention_aborted interval = NULL,
        bodies_json jsonb = NULL,
        num_required integer = NULL,
        signal boolean = false,
        expires_at timestamptz = NULL,
        expires_in interval = NULL,
        max_run_time interval = NULL)
    RETURNS SETOF text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 ROWS 100
    AS 'MODULE_PATHNAME', 'taskq_insert_many_wrapper';
COMMENT ON FUNCTION taskq.insert_many IS
    'insert tasks that are alike but for id and body, or refuse them all; returns the inserted ids in the order given';

CREATE FUNCTION taskq.insert_tasks(tasks jsonb, on_conflict text = 'error', if_missing text = 'error')
    RETURNS SETOF text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 ROWS 100
    AS 'MODULE_PATHNAME', 'taskq_insert_tasks_wrapper';
COMMENT ON FUNCTION taskq.insert_tasks IS
    'insert a JSON array of tasks, or refuse them all; returns the inserted ids in the order given';

CREATE FUNCTION taskq.insert_tasks_report(tasks jsonb, on_conflict text = 'error', if_missing text = 'error')
    RETURNS TABLE (task_id text, outcome text, existing_id text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 ROWS 100
    AS 'MODULE_PATHNAME', 'taskq_insert_tasks_report_wrapper';
COMMENT ON FUNCTION taskq.insert_tasks_report IS
    'insert a JSON array of tasks, or refuse them all; tells of each element what became of it, in the order given';

CREATE FUNCTION taskq.replace_tasks(tasks jsonb, if_missing text = 'error')
    RETURNS SETOF text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000 ROWS 100
    AS 'MODULE_PATHNAME', 'taskq_replace_tasks_wrapper';
COMMENT ON FUNCTION taskq.replace_tasks IS
    'insert tasks in place of those with the same ids, which end as aborted unless they have settled before';

CREATE FUNCTION taskq.update_tasks(
        task_ids text[] = NULL,
        priority integer = NULL,
        not_before timestamptz = NULL,
        delay interval = NULL,
        max_tries integer = NULL,
        max_duration interval = NULL,
        body text = NULL,
        metadata jsonb = NULL,
        if_started text = 'error',
        groups text[] = NULL,
        actions text[] = NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_update_tasks_wrapper';
COMMENT ON FUNCTION taskq.update_tasks IS
    'change tasks that meet all the filters and are neither in progress nor settled, in place; NULL leaves as it is; returns how many they are';

CREATE FUNCTION taskq.own_tasks(
        actor_id text,
        max_tasks integer,
        actions text[],
        max_duration interval = NULL,
        wait interval = NULL,
        with_results boolean = false,
        with_steps boolean = false)
    RETURNS TABLE (
        task_id text,
        token uuid,
        action text,
        body text,
        num_tries integer,
        num_failures integer,
        action_deadline timestamptz,
        checkpoint jsonb,
        results jsonb,
        priority integer,
        metadata jsonb,
        body_json jsonb,
        steps jsonb)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_own_tasks_wrapper';
COMMENT ON FUNCTION taskq.own_tasks IS
    'grant up to max_tasks tasks of these actions to an actor: ready ones, or those whose deadline has passed; with wait, sleep until there are some or the time is up';

CREATE FUNCTION taskq.extend_tasks_ownership(
        actor_id text,
        task_ids text[],
        tokens uuid[],
        max_duration interval,
        wait interval = NULL)
    RETURNS TABLE (task_id text, owned boolean)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_extend_tasks_ownership_wrapper';
COMMENT ON FUNCTION taskq.extend_tasks_ownership IS
    'move the deadlines of tasks still held to now + max_duration, as far as max_run_time allows; tells which are held';

CREATE FUNCTION taskq.return_task(
        task_id text,
        token uuid,
        status_code text = 'completed',
        status text = NULL,
        result jsonb = NULL,
        retry_after interval = NULL,
        children jsonb = NULL,
        children_block boolean = false,
        delay_children interval = NULL,
        delay_workgroup interval = NULL,
        count_try boolean = true,
        depends_on jsonb = NULL,
        wait_at_most interval = NULL)
    RETURNS taskq.status_code
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_return_task_wrapper';
COMMENT ON FUNCTION taskq.return_task IS
    'end a performance: completed, aborted, or pending to go on later; returns the code the task really got';

CREATE FUNCTION taskq.return_tasks(
        task_ids text[],
        tokens uuid[],
        status_code text = 'completed',
        status text = NULL,
        result jsonb = NULL,
        retry_after interval = NULL,
        delay_workgroup interval = NULL,
        count_try boolean = true)
    RETURNS TABLE (task_id text, status_code taskq.status_code, sqlstate text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_return_tasks_wrapper';
COMMENT ON FUNCTION taskq.return_tasks(text[], uuid[], text, text, jsonb, interval, interval, boolean) IS
    'end many performances alike; a bad token spoils only its own row';

CREATE FUNCTION taskq.return_tasks(returns jsonb)
    RETURNS TABLE (task_id text, status_code taskq.status_code, sqlstate text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_return_tasks_json_wrapper';
COMMENT ON FUNCTION taskq.return_tasks(jsonb) IS
    'end many performances, each in its own way; a bad token spoils only its own row';

CREATE FUNCTION taskq.return_and_own_tasks(
        actor_id text,
        returns jsonb,
        max_tasks integer,
        actions text[],
        max_duration interval = NULL,
        with_results boolean = false,
        with_steps boolean = false)
    RETURNS TABLE (
        task_id text,
        token uuid,
        action text,
        body text,
        num_tries integer,
        num_failures integer,
        action_deadline timestamptz,
        checkpoint jsonb,
        results jsonb,
        priority integer,
        metadata jsonb,
        body_json jsonb,
        steps jsonb,
        sqlstate text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_return_and_own_tasks_json_wrapper';
COMMENT ON FUNCTION taskq.return_and_own_tasks(text, jsonb, integer, text[], interval, boolean, boolean) IS
    'return_tasks, then own_tasks without a wait, in one call; a row for each return that was refused comes first';

CREATE FUNCTION taskq.return_and_own_tasks(
        actor_id text,
        task_ids text[],
        tokens uuid[],
        max_tasks integer,
        actions text[],
        max_duration interval = NULL,
        with_results boolean = false,
        with_steps boolean = false)
    RETURNS TABLE (
        task_id text,
        token uuid,
        action text,
        body text,
        num_tries integer,
        num_failures integer,
        action_deadline timestamptz,
        checkpoint jsonb,
        results jsonb,
        priority integer,
        metadata jsonb,
        body_json jsonb,
        steps jsonb,
        sqlstate text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 10
    AS 'MODULE_PATHNAME', 'taskq_return_and_own_tasks_wrapper';
COMMENT ON FUNCTION taskq.return_and_own_tasks(text, text[], uuid[], integer, text[], interval, boolean, boolean) IS
    'the same for tasks that have all completed';

CREATE FUNCTION taskq.wait_for_task(task_id text, timeout interval = '10 seconds')
    RETURNS TABLE (
        task_id text,
        status_code taskq.status_code,
        status text,
        result jsonb,
        settled_at timestamptz)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 1
    AS 'MODULE_PATHNAME', 'taskq_wait_for_task_wrapper';
COMMENT ON FUNCTION taskq.wait_for_task IS
    'sleep until the task is settled and tell how it ended; no row on time-out';

-- Procedures that commit can have neither SECURITY DEFINER nor SET: they sleep, and look through the functions below,
-- which are theirs.
CREATE PROCEDURE taskq.wait_for_tasks(task_ids text[], timeout interval, INOUT num_settled integer = NULL)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'taskq_wait_for_tasks_wrapper';
COMMENT ON PROCEDURE taskq.wait_for_tasks IS
    'sleep, holding no snapshot, until all the tasks are settled or the time is up; tells how many are';

CREATE PROCEDURE taskq.wait_for_work(actions text[], timeout interval, INOUT ready boolean = NULL)
    LANGUAGE c
    AS 'MODULE_PATHNAME', 'taskq_wait_for_work_wrapper';
COMMENT ON PROCEDURE taskq.wait_for_work IS
    'sleep, holding no snapshot, until own_tasks for these actions would find something or the time is up';

CREATE FUNCTION taskq._task_channels(task_ids text[])
    RETURNS SETOF bigint
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_task_channels_wrapper';
COMMENT ON FUNCTION taskq._task_channels IS
    'internal: the look of wait_for_tasks';

CREATE FUNCTION taskq._action_channels(actions text[])
    RETURNS SETOF integer
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_action_channels_wrapper';
COMMENT ON FUNCTION taskq._action_channels IS
    'internal: the look of wait_for_work';

CREATE FUNCTION taskq._num_settled(task_nos bigint[], task_ids text[])
    RETURNS integer
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_num_settled_wrapper';
COMMENT ON FUNCTION taskq._num_settled IS
    'internal: the look of wait_for_tasks';

CREATE FUNCTION taskq._look_for_work(actions text[], keep_up boolean)
    RETURNS TABLE (ready boolean, owed boolean, due timestamptz, shared timestamptz, rest bigint)
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_look_for_work_wrapper';
COMMENT ON FUNCTION taskq._look_for_work IS
    'internal: the look of wait_for_work';

CREATE FUNCTION taskq._left_behind(actions text[], action_nos integer[])
    RETURNS SETOF integer
    LANGUAGE c VOLATILE STRICT PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_left_behind_wrapper';
COMMENT ON FUNCTION taskq._left_behind IS
    'internal: what wait_for_work leaves to other waiters';

-- Two literals or parameters without a type, '{a}' and '{b}' or $1 and $2, are the two arrays of the form below.
-- PostgreSQL would call that ambiguous if they could be an array of dependencies and "if_missing" as well; nothing
-- without a type can be an enum, so "if_missing" is given by its name here.
CREATE FUNCTION taskq.add_dependencies(
        dependencies jsonb,
        named_only anyenum = NULL::taskq.named_only,
        if_missing text = 'error')
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_add_dependencies_json_wrapper';
COMMENT ON FUNCTION taskq.add_dependencies(jsonb, anyenum, text) IS
    'make stored tasks wait for others; returns how many of the dependencies block now';

CREATE FUNCTION taskq.add_dependencies(
        after text[],
        run text[],
        condition text = 'completed',
        if_missing text = 'error')
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_add_dependencies_wrapper';
COMMENT ON FUNCTION taskq.add_dependencies(text[], text[], text, text) IS
    'make stored tasks wait for others; returns how many of the dependencies block now';

CREATE FUNCTION taskq.cancel_tasks(
        task_ids text[] = NULL,
        status text = NULL,
        actions text[] = NULL,
        groups text[] = NULL,
        status_like text = NULL,
        max_tasks integer = NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_cancel_tasks_wrapper';
COMMENT ON FUNCTION taskq.cancel_tasks IS
    'abort those of the tasks that meet all the filters and are not settled, in progress or not; returns how many';

CREATE FUNCTION taskq.release_tasks(
        task_ids text[] = NULL,
        actors text[] = NULL,
        actions text[] = NULL,
        status text = NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_release_tasks_wrapper';
COMMENT ON FUNCTION taskq.release_tasks IS
    'take tasks in progress that meet all the filters from actors that are dead: each is ready for another try, or aborts if it has none left; returns how many';

CREATE FUNCTION taskq.delete_tasks(
        task_ids text[] = NULL,
        actions text[] = NULL,
        groups text[] = NULL,
        status_like text = NULL,
        causes text[] = NULL,
        settled_since timestamptz = NULL,
        settled_until timestamptz = NULL,
        max_tasks integer = NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_delete_tasks_wrapper';
COMMENT ON FUNCTION taskq.delete_tasks IS
    'remove tasks that meet all the filters, and, as a rule, blocked ones that are left without any dependency; returns how many went';

CREATE FUNCTION taskq.report_status(
        task_id text,
        token uuid,
        status text = NULL,
        progress double precision = NULL,
        checkpoint jsonb = NULL)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_report_status_wrapper';
COMMENT ON FUNCTION taskq.report_status IS
    'say how a performance is getting on, and save a checkpoint for a next try; NULL keeps what was said before';

CREATE FUNCTION taskq.save_step(
        task_id text,
        token uuid,
        step text,
        result jsonb = NULL,
        max_duration interval = NULL)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_save_step_wrapper';
COMMENT ON FUNCTION taskq.save_step IS
    'keep the result of a step of a task in progress; returns what is kept: an earlier result, if the step was saved before';

CREATE FUNCTION taskq.complete_task(task_id text, result jsonb = NULL, status text = NULL)
    RETURNS taskq.status_code
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_complete_task_wrapper';
COMMENT ON FUNCTION taskq.complete_task IS
    'complete by hand a task that waits for no other and that no worker owns, or a signal';

CREATE FUNCTION taskq.signal(
        task_id text,
        result jsonb = NULL,
        status text = NULL,
        action text = 'signal',
        retention interval = NULL)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_signal_wrapper';
COMMENT ON FUNCTION taskq.signal IS
    'complete a signal, which may come before anything waits for it; false: it has ended before, or its time has passed';

CREATE FUNCTION taskq._chain(blocks jsonb)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_chain_wrapper';
COMMENT ON FUNCTION taskq._chain IS
    'internal: the body of taskq.chain';

CREATE FUNCTION taskq._parallel(blocks jsonb)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_parallel_wrapper';
COMMENT ON FUNCTION taskq._parallel IS
    'internal: the body of taskq.parallel';

-- The builders touch no table: they run with the caller's rights.
CREATE FUNCTION taskq.chain(VARIADIC blocks jsonb[])
    RETURNS jsonb
    LANGUAGE sql VOLATILE PARALLEL UNSAFE COST 100
    RETURN taskq._chain(pg_catalog.to_jsonb(blocks));
COMMENT ON FUNCTION taskq.chain IS
    'tasks, or arrays of tasks, one after the other; yields an array for insert_tasks';

CREATE FUNCTION taskq.parallel(VARIADIC blocks jsonb[])
    RETURNS jsonb
    LANGUAGE sql VOLATILE PARALLEL UNSAFE COST 100
    RETURN taskq._parallel(pg_catalog.to_jsonb(blocks));
COMMENT ON FUNCTION taskq.parallel IS
    'tasks, or arrays of tasks, side by side; yields an array for insert_tasks';

CREATE FUNCTION taskq.chord(header jsonb, callback jsonb)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_chord_wrapper';
COMMENT ON FUNCTION taskq.chord IS
    'the callback after all of the header; yields an array for insert_tasks';

CREATE FUNCTION taskq.map(action text, bodies jsonb)
    RETURNS jsonb
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_map_wrapper';
COMMENT ON FUNCTION taskq.map IS
    'one task of this action for each body; yields an array for insert_tasks';

CREATE FUNCTION taskq.retry_tasks(
        task_ids text[] = NULL,
        actions text[] = NULL,
        groups text[] = NULL,
        status_like text = NULL,
        causes text[] = NULL,
        settled_since timestamptz = NULL,
        settled_until timestamptz = NULL,
        max_tasks integer = NULL)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_retry_tasks_wrapper';
COMMENT ON FUNCTION taskq.retry_tasks IS
    'give aborted tasks that meet all the filters new tries, and bring back what aborted because of them; returns how many came back';

CREATE FUNCTION taskq.rerun_tasks(task_ids text[], downstream boolean = true)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_rerun_tasks_wrapper';
COMMENT ON FUNCTION taskq.rerun_tasks IS
    'start settled tasks over, completed ones too; with downstream also the settled ones that depend on them; returns how many start over';

CREATE FUNCTION taskq.rewind_task(task_id text, step text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_rewind_task_wrapper';
COMMENT ON FUNCTION taskq.rewind_task IS
    'forget a step of a task and all that were saved after it; a settled task starts over; returns how many are forgotten';

CREATE FUNCTION taskq.ancestors(task_id text, max_tasks integer = NULL)
    RETURNS TABLE (task_id text, action text, state text, depth integer)
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_ancestors_wrapper';
COMMENT ON FUNCTION taskq.ancestors IS
    'the tasks that a task runs after, directly or not, nearest first';

CREATE FUNCTION taskq.descendants(task_id text, max_tasks integer = NULL)
    RETURNS TABLE (task_id text, action text, state text, depth integer)
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_descendants_wrapper';
COMMENT ON FUNCTION taskq.descendants IS
    'the tasks that run after a task, directly or not, nearest first';

CREATE FUNCTION taskq.critical_path(task_id text)
    RETURNS TABLE (step integer, task_id text, action text, state text, duration interval)
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 10
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_critical_path_wrapper';
COMMENT ON FUNCTION taskq.critical_path IS
    'the chain of dependencies that takes longest up to a task';

CREATE FUNCTION taskq.graph(task_id text, format text = 'text', max_tasks integer = 500, skip integer = 0)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_graph_wrapper';
COMMENT ON FUNCTION taskq.graph IS
    'a task with all that it depends on and that depends on it, or the tasks of a group, max_tasks at most, as dot, mermaid or text';

-- A report, not a step of the queue: what counts is planned anew at each call, and may read whole tables that are not large.
CREATE FUNCTION taskq.metrics(kept boolean = true)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 10000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_metrics_wrapper';
COMMENT ON FUNCTION taskq.metrics IS
    'the numbers of the moment as OpenMetrics text; without kept, nothing is counted that has settled';

CREATE FUNCTION taskq.metrics_rows(kept boolean = true)
    RETURNS TABLE (name text, labels jsonb, value double precision)
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_metrics_rows_wrapper';
COMMENT ON FUNCTION taskq.metrics_rows IS
    'the numbers that metrics gives as text, one a row, for exporters that make metrics of columns';

-- Flow control ------------------------------------------------------------------------------------------

CREATE FUNCTION taskq.set_action(
        action text,
        max_tries integer = NULL,
        max_duration interval = NULL,
        backoff jsonb = NULL,
        max_concurrency integer = NULL,
        rate_limit integer = NULL,
        rate_period interval = NULL,
        retention interval = NULL,
        notify boolean = NULL,
        on_timeout text = NULL,
        max_timeouts integer = NULL,
        clear text[] = NULL,
        retention_aborted interval = NULL,
        fair boolean = NULL,
        max_per_group integer = NULL,
        expires_in interval = NULL,
        max_run_time interval = NULL)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_set_action_wrapper';
COMMENT ON FUNCTION taskq.set_action IS
    'set defaults and limits of an action; what is left out stays as it was';

CREATE FUNCTION taskq.pause_action(action text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_pause_action_wrapper';
COMMENT ON FUNCTION taskq.pause_action IS
    'let no more tasks of an action be owned; tells whether that changed anything';

CREATE FUNCTION taskq.resume_action(action text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_resume_action_wrapper';
COMMENT ON FUNCTION taskq.resume_action IS
    'let tasks of an action be owned again; tells whether that changed anything';

CREATE FUNCTION taskq.forget_action(action text)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 10000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_forget_action_wrapper';
COMMENT ON FUNCTION taskq.forget_action IS
    'forget the name of an action without tasks, and what is set for it';

CREATE FUNCTION taskq.set_group(
        group_id text,
        max_concurrency integer = NULL,
        weight integer = NULL,
        clear text[] = NULL)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_set_group_wrapper';
COMMENT ON FUNCTION taskq.set_group IS
    'set the limit and the weight of a group; what is left out stays as it was';

CREATE FUNCTION taskq.pause_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_pause_group_wrapper';
COMMENT ON FUNCTION taskq.pause_group IS
    'let no more tasks of a group be owned; returns how many of its tasks are pending, or 0 if it is paused already';

CREATE FUNCTION taskq.resume_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_resume_group_wrapper';
COMMENT ON FUNCTION taskq.resume_group IS
    'let tasks of a group be owned again; returns how many of its tasks are pending, or 0 if it is not paused';

CREATE FUNCTION taskq.cancel_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_cancel_group_wrapper';
COMMENT ON FUNCTION taskq.cancel_group IS
    'abort the tasks of a group that are not settled; returns how many';

CREATE FUNCTION taskq.delete_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_delete_group_wrapper';
COMMENT ON FUNCTION taskq.delete_group IS
    'delete the tasks of a group; returns how many tasks went';

CREATE FUNCTION taskq.retry_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_retry_group_wrapper';
COMMENT ON FUNCTION taskq.retry_group IS
    'give the aborted tasks of a group new tries; returns how many came back';

CREATE FUNCTION taskq.reset_group(group_id text)
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_reset_group_wrapper';
COMMENT ON FUNCTION taskq.reset_group IS
    'put a group back to its start, or to its seed tasks; returns how many tasks it had';

CREATE FUNCTION taskq.delay_workgroup(workgroup text, delay interval)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_delay_workgroup_wrapper';
COMMENT ON FUNCTION taskq.delay_workgroup IS
    'let no more tasks of a workgroup be owned for a while from now; returns until when';

CREATE FUNCTION taskq.schedule(
        name text,
        cron text,
        task jsonb,
        timezone text = 'UTC',
        overlap text = 'skip',
        backfill text = 'one',
        max_backfill integer = NULL)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_schedule_wrapper';
COMMENT ON FUNCTION taskq.schedule IS
    'insert a task whenever a cron expression says so; returns when that is next, or NULL while the schedule is paused';

CREATE FUNCTION taskq.unschedule(name text)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_unschedule_wrapper';
COMMENT ON FUNCTION taskq.unschedule IS
    'end a schedule; tasks that it has inserted stay';

CREATE FUNCTION taskq.pause_schedule(name text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_pause_schedule_wrapper';
COMMENT ON FUNCTION taskq.pause_schedule IS
    'insert no more runs of a schedule when they are due; tells whether that changed anything';

CREATE FUNCTION taskq.resume_schedule(name text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_resume_schedule_wrapper';
COMMENT ON FUNCTION taskq.resume_schedule IS
    'insert runs of a schedule again, missed ones as its backfill policy says; tells whether that changed anything';

CREATE FUNCTION taskq.run_schedule(name text)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 1000
    AS 'MODULE_PATHNAME', 'taskq_run_schedule_wrapper';
COMMENT ON FUNCTION taskq.run_schedule IS
    'insert a run of a schedule now, paused or not, whatever the run before does; returns its id';

CREATE FUNCTION taskq.action_channel(action text)
    RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 5
    RETURN 'taskq_action_' OPERATOR(pg_catalog.||) pg_catalog.md5(action);
COMMENT ON FUNCTION taskq.action_channel IS
    'the channel that LISTEN needs for tasks of an action that is set to notify';

CREATE FUNCTION taskq.maintain()
    RETURNS bigint
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 100
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_maintain_wrapper';
COMMENT ON FUNCTION taskq.maintain IS
    'do what time has made necessary, for times when no worker claims tasks; returns how many steps found something to do';

CREATE FUNCTION taskq.recount()
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 100
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_recount_wrapper';
COMMENT ON FUNCTION taskq.recount IS
    'throw away the tallies of what has settled per action: it is counted row by row until upkeep has made them anew';

-- Inlined where it is used. Two groups with the same number share a lane, and keep their own limits.
CREATE FUNCTION taskq._lane(group_id text)
    RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN COALESCE(NULLIF(pg_catalog.hashtextextended(group_id COLLATE pg_catalog."C", 0), 0), 1);
COMMENT ON FUNCTION taskq._lane IS 'internal: the lane of a group in taskq.run, never 0';

-- Inlined where it is used. Two keys may have the same number: what is found by it may be of another key.
CREATE FUNCTION taskq._key_hash(action text, group_id text, key text)
    RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN pg_catalog.hashtextextended(key COLLATE pg_catalog."C",
                                       pg_catalog.hashtextextended(COALESCE(group_id, '') COLLATE pg_catalog."C",
                                                                   pg_catalog.hashtextextended(action COLLATE pg_catalog."C", 0)));
COMMENT ON FUNCTION taskq._key_hash IS 'internal: what stands for an action, a group and a merge key in taskq.run';

CREATE FUNCTION taskq._body_json(body text)
    RETURNS jsonb
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'taskq_body_json_wrapper';
COMMENT ON FUNCTION taskq._body_json IS 'internal: a body as JSON, NULL if it is none';

-- A join of views by taskq.=== is by look-ups, whatever the statistics say: see src/pg/lookup.rs. The cost is for any other use.
CREATE FUNCTION taskq._same_support(internal)
    RETURNS internal
    LANGUAGE c STRICT
    AS 'MODULE_PATHNAME', 'taskq_same_support_wrapper';
COMMENT ON FUNCTION taskq._same_support IS 'internal: tells the planner how to use taskq.=== with an index';

CREATE FUNCTION taskq._same(bigint, bigint)
    RETURNS boolean
    LANGUAGE internal IMMUTABLE STRICT PARALLEL SAFE COST 10000
    SUPPORT taskq._same_support
    AS 'int8eq';
COMMENT ON FUNCTION taskq._same IS 'internal: whether two numbers are the same';

CREATE OPERATOR taskq.=== (
    FUNCTION = taskq._same, LEFTARG = bigint, RIGHTARG = bigint, COMMUTATOR = OPERATOR(taskq.===),
    RESTRICT = eqsel, JOIN = eqjoinsel);
COMMENT ON OPERATOR taskq.=== (bigint, bigint) IS 'internal: the same number, found by look-ups';

-- Inlined where it is used. src/state.rs has the same names, and others for causes that are NULL here.
CREATE FUNCTION taskq._cause(cause "char")
    RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE cause WHEN 'w' THEN 'returned' WHEN 't' THEN 'timeout' WHEN 'x' THEN 'tries' WHEN 'd' THEN 'dependency'
                      WHEN 'k' THEN 'skipped' WHEN 'c' THEN 'cancelled' WHEN 'o' THEN 'operator' WHEN 'm' THEN 'merged'
                      WHEN 'e' THEN 'expired' END;
COMMENT ON FUNCTION taskq._cause IS 'internal: why a task aborted, in a word';

-- A function that is not inlined: the planner works it out where the state is known, and would not look into a cast to a
-- domain.
CREATE FUNCTION taskq._status_code(state text)
    RETURNS taskq.status_code
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 1
    AS 'MODULE_PATHNAME', 'taskq_status_code_wrapper';
COMMENT ON FUNCTION taskq._status_code IS 'internal: the status code of a task in this state';

-- A value as it is, for one side of a join: it tells the planner that there may be many rows, whatever the statistics say,
-- so that the other side, if it is work to make, is made once and not once per row.
CREATE FUNCTION taskq._many(value text)
    RETURNS SETOF text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 1 ROWS 100
    SET search_path = pg_catalog, pg_temp
    AS $$ BEGIN RETURN NEXT value; END $$;
COMMENT ON FUNCTION taskq._many IS 'internal: a value in one row, of which the planner thinks that there are a hundred';

CREATE FUNCTION taskq._check_words(argument text, given text[], known text[])
    RETURNS void
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 10
    AS 'MODULE_PATHNAME', 'taskq_check_words_wrapper';
COMMENT ON FUNCTION taskq._check_words IS
    'internal: refuses an argument whose elements are to be some words if one of them is another';

CREATE FUNCTION taskq.clock()
    RETURNS timestamptz
    LANGUAGE c STABLE PARALLEL UNSAFE COST 1
    AS 'MODULE_PATHNAME', 'taskq_clock_wrapper';
COMMENT ON FUNCTION taskq.clock IS
    'now, by the clock of the queue (see the setting taskq.now)';

CREATE FUNCTION taskq._before_commit()
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_before_commit_wrapper';
COMMENT ON FUNCTION taskq._before_commit IS
    'internal: the last look at deferred signals; called by the queue itself before a commit';

CREATE FUNCTION taskq._tidy_before_commit()
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100
    AS 'MODULE_PATHNAME', 'taskq_tidy_before_commit_wrapper';
COMMENT ON FUNCTION taskq._tidy_before_commit IS
    'internal: what a transaction puts off to its end; called by the queue itself before a commit';

CREATE FUNCTION taskq._session()
    RETURNS TABLE (memory text, entries bigint, valid_until timestamptz, version bigint)
    LANGUAGE c VOLATILE PARALLEL UNSAFE COST 100 ROWS 20
    AS 'MODULE_PATHNAME', 'taskq_session_wrapper';
COMMENT ON FUNCTION taskq._session IS
    'internal: what this session remembers of the queue, for those who look for a mistake';

CREATE FUNCTION taskq.set_shard(n integer)
    RETURNS void
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 1000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_set_shard_wrapper';
COMMENT ON FUNCTION taskq.set_shard IS
    'which of several servers this queue is, 0 to 4095; before its first task';

CREATE FUNCTION taskq.shard()
    RETURNS integer
    LANGUAGE c STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_shard_wrapper';
COMMENT ON FUNCTION taskq.shard IS
    'the shard that this queue is; 0 where none was set';

CREATE FUNCTION taskq.shard_of(token uuid)
    RETURNS integer
    LANGUAGE c IMMUTABLE STRICT PARALLEL SAFE COST 1
    AS 'MODULE_PATHNAME', 'taskq_shard_of_wrapper';
COMMENT ON FUNCTION taskq.shard_of IS
    'the shard on which a performance token was granted; NULL for what has not the form of one';

-- A command that takes no parameter. It locks the sequence against every session that takes a number, and a rollback
-- undoes it.
CREATE FUNCTION taskq._restart_numbers(first bigint)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('ALTER SEQUENCE taskq.position_seq RESTART WITH %s', first);
END
$$;
COMMENT ON FUNCTION taskq._restart_numbers IS
    'internal: where the numbers of tasks begin, of a queue that has had none';

-- A channel name has at most 63 bytes, an id up to 1,000: so a digest stands for the id.
CREATE FUNCTION taskq.task_channel(id text)
    RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 5
    RETURN 'taskq_task_' OPERATOR(pg_catalog.||) pg_catalog.md5(id);
COMMENT ON FUNCTION taskq.task_channel IS
    'the channel that LISTEN needs for the end of a task inserted with post_result';
-- taskq: how many tasks there are. Functions and not views, since a function can bring settings of the planner along: neither those
-- of the session that asks nor statistics of an empty queue are to make another plan. Each looks with the snapshot of the query that asks.

-- The tasks of the workgroups that are held back, settled ones too, and 20,001 at most.
CREATE FUNCTION taskq._held_back()
    RETURNS SETOF bigint
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 1000
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        SELECT t.task_no
          FROM taskq.workgroup AS w
         CROSS JOIN LATERAL (SELECT t.task_no FROM taskq.task AS t WHERE t.workgroup = w.name OFFSET 0) AS t
         WHERE w.not_before > taskq.clock()
         LIMIT 20001;
    END;
COMMENT ON FUNCTION taskq._held_back IS 'internal: the tasks of workgroups that are held back, 20,001 at most';

-- What has not settled: counted in the tables that are asked for, each read once. Which of it a workgroup holds back is known from
-- the workgroups' tasks, if those are few: they are hashed. If they are many, what may be ready is looked up, task by
-- task. `first`: the lowest number of these tasks: of the one that was inserted first, as a rule.
CREATE FUNCTION taskq._live(in_run boolean = true, in_scheduled boolean = true, in_parked boolean = true, in_blocked boolean = true)
    RETURNS TABLE (action_no integer, state text, number bigint, first bigint, overdue bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 100000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = on SET enable_hashagg = on SET enable_sort = off SET work_mem = '4MB'
    BEGIN ATOMIC
        WITH held AS MATERIALIZED (SELECT h.task_no FROM taskq._held_back() AS h(task_no)),
             few AS MATERIALIZED (SELECT count(*) <= 20000 AS few FROM held)
        SELECT x.action_no, CASE x.kind WHEN 1 THEN 'in-progress' WHEN 2 THEN 'scheduled' WHEN 3 THEN 'ready' ELSE 'blocked' END,
               sum(x.number)::bigint, min(x.first), sum(x.overdue)::bigint
          FROM (SELECT r.action_no,
                       CASE WHEN r.nonce <> 0 THEN 1
                            WHEN r.gated
                                 AND CASE WHEN (SELECT f.few FROM few AS f) THEN r.task_no IN (SELECT h.task_no FROM held AS h)
                                          ELSE EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                     WHERE t.task_no = r.task_no OFFSET 0) AS t
                                                         JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                        WHERE w.not_before > taskq.clock()) END THEN 2
                            ELSE 3 END AS kind,
                       count(*) AS number,
                       min(r.task_no) AS first,
                       count(*) FILTER (WHERE r.nonce <> 0 AND r.deadline <= (SELECT taskq.clock())) AS overdue
                  FROM taskq.run AS r WHERE in_run GROUP BY 1, 2
                UNION ALL
                SELECT d.action_no,
                       CASE WHEN d.due > (SELECT taskq.clock()) THEN 2
                            WHEN CASE WHEN (SELECT f.few FROM few AS f) THEN d.task_no IN (SELECT h.task_no FROM held AS h)
                                      ELSE EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                 WHERE t.task_no = d.task_no OFFSET 0) AS t
                                                     JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                    WHERE w.not_before > taskq.clock()) END THEN 2
                            ELSE 3 END,
                       count(*), min(d.task_no), 0
                  FROM taskq.scheduled AS d WHERE in_scheduled GROUP BY 1, 2
                UNION ALL
                SELECT k.action_no,
                       CASE WHEN CASE WHEN (SELECT f.few FROM few AS f) THEN k.task_no IN (SELECT h.task_no FROM held AS h)
                                      ELSE EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                 WHERE t.task_no = k.task_no OFFSET 0) AS t
                                                     JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                    WHERE w.not_before > taskq.clock()) END THEN 2
                            ELSE 3 END,
                       count(*), min(k.task_no), 0
                  FROM taskq.parked AS k WHERE in_parked GROUP BY 1, 2
                UNION ALL
                SELECT b.action_no, 4, count(*), min(b.task_no), 0
                  FROM taskq.blocked AS b WHERE in_blocked GROUP BY 1) AS x
         GROUP BY x.action_no, x.kind;
    END;
COMMENT ON FUNCTION taskq._live IS 'internal: how many tasks have not settled, by number of the action and state';

-- What has settled: the tallies of what is sealed, and what is not, along the index: see src/store/ends.rs. (Where
-- there is no row of `seal`, nothing is sealed.) `recent`: how many of them settled in the last minute, of what is sealed to ten
-- seconds, whether they are kept or not. `ever`: how many have settled since the queue was made, restored, or counted anew.
CREATE FUNCTION taskq._ended()
    RETURNS TABLE (action_no integer, code "char", cause "char", number bigint, recent bigint, ever bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = on
    SET enable_sort = off
    BEGIN ATOMIC
        SELECT x.action_no, x.code, x.cause, sum(x.number)::bigint, sum(x.recent)::bigint, sum(x.ever)::bigint
          FROM (SELECT y.action_no, y.code, y.cause,
                       sum(y.number) FILTER (WHERE y.span < COALESCE((SELECT e.until FROM taskq.seal AS e), '-infinity')) AS number,
                       sum(y.ended) FILTER (WHERE y.span > (SELECT taskq.clock()) - interval '1 minute') AS recent,
                       sum(y.ended) AS ever
                  FROM (SELECT y.span, y.action_no, y.code, y.cause, y.number,
                               CASE WHEN y.span < COALESCE((SELECT e.until FROM taskq.seal AS e), '-infinity')
                                    THEN y.ended ELSE y.ended - y.number END AS ended
                          FROM taskq.end_tally AS y) AS y
                 GROUP BY y.action_no, y.code, y.cause
                UNION ALL
                -- What is left of a replaced task is not a task.
                SELECT s.action_no, s.code, s.cause, count(*),
                       count(*) FILTER (WHERE s.settled_at > (SELECT taskq.clock()) - interval '1 minute'), count(*)
                  FROM taskq.settled AS s
                 WHERE s.settled_at >= COALESCE((SELECT e.until FROM taskq.seal AS e), '-infinity') AND s.cause <> 'r'
                 GROUP BY s.action_no, s.code, s.cause) AS x
         GROUP BY x.action_no, x.code, x.cause
        HAVING sum(x.number) <> 0 OR sum(x.ever) <> 0;
    END;
COMMENT ON FUNCTION taskq._ended IS 'internal: how many tasks have settled, by number of the action, code and cause';
-- taskq: about how many tasks there are that have not settled, for views that are read often. A table of up to so many
-- pages is counted (taskq._live). A larger one is not: that would take seconds where there are ten million. There
--
-- * an action with few tasks in `run` or `scheduled` is counted, by index, as long as all that is counted so is not too much:
--   so it is not wrong beside a huge one;
-- * what is in progress is counted up to ten thousand, as a rule, from its leases, and from the front of the queue where it has no
--   deadline;
-- * the rest is estimated from a sample of pages, evenly spread, so that it matters little how actions lie in the table, and what
--   is gone from it.
--
-- Each number says whether it is exact. taskq.count_tasks counts, however long that takes.

-- Up to how many pages `run` is counted: some 180,000 tasks; `scheduled`, `parked` and `blocked`, up to a third of these pages each.
CREATE FUNCTION taskq._counted_pages()
    RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 6000;
COMMENT ON FUNCTION taskq._counted_pages IS 'internal: up to how many pages views that are read often count a table';

-- How many pages a sample of `run` has; one of `scheduled`, `parked` or `blocked` has a third.
CREATE FUNCTION taskq._sampled_pages()
    RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN LEAST(1500, taskq._counted_pages());
COMMENT ON FUNCTION taskq._sampled_pages IS 'internal: how many pages a sample of `run` has';

CREATE FUNCTION taskq._pages(relation regclass)
    RETURNS bigint
    LANGUAGE sql VOLATILE PARALLEL SAFE STRICT
    SET search_path = pg_catalog, pg_temp
    RETURN pg_relation_size(relation) / current_setting('block_size')::integer;
COMMENT ON FUNCTION taskq._pages IS 'internal: how many pages a table has';

-- The pages of a sample: one at a place of its own, always the same, in each of so many equal parts. Evenly spread, a sample
-- knows the size of what lies together to a part, and at places that differ it hardly falls into step with anything. Of ten
-- thousand parts at most.
CREATE FUNCTION taskq._sample(pages bigint, number integer)
    RETURNS TABLE (first tid, behind tid)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE STRICT ROWS 1000
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT ('(' || x.page || ',0)')::tid, ('(' || x.page + 1 || ',0)')::tid
          FROM (SELECT floor(pages * (i.i + (hashint4(i.i) & 1023) / 1024.0) / LEAST(number, 10000))::bigint AS page
                  FROM generate_series(0, LEAST(number, 10000) - 1) AS i(i)) AS x;
    END;
COMMENT ON FUNCTION taskq._sample IS 'internal: the pages, of so many, that are looked into to estimate the rest';

-- The front of an action's queue, lanes aside: priority by priority what is in progress in it and what is not, until a
-- hundred of the latter stand one behind the other; 10,000 tasks of a hundred priorities at most. A claim takes the first
-- that is to be had, so that what stands behind a hundred others is hardly ever in progress. `whole`: the front was
-- walked to its end.
CREATE FUNCTION taskq._front(of integer)
    RETURNS TABLE (task_no bigint, in_progress boolean, deadline timestamptz, actor_id text, whole boolean)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 1000
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_variable
DECLARE
    most CONSTANT integer := 10000;
    seen integer := 0;
    waiting integer;
    at integer;
    x record;
BEGIN
    whole := true;
    SELECT r.priority INTO at FROM taskq.run AS r
     WHERE r.action_no = of AND r.lane = 0 ORDER BY r.priority DESC LIMIT 1;
    FOR i IN 1..100 LOOP
        EXIT WHEN NOT FOUND OR seen >= most;
        waiting := 0;
        FOR x IN SELECT r.task_no, r.nonce <> 0 AS in_progress, r.deadline, r.actor_id
                   FROM taskq.run AS r WHERE r.action_no = of AND r.lane = 0 AND r.priority = at ORDER BY r.position
        LOOP
            task_no := x.task_no;
            in_progress := x.in_progress;
            deadline := x.deadline;
            actor_id := x.actor_id;
            seen := seen + 1;
            waiting := CASE WHEN in_progress THEN 0 ELSE waiting + 1 END;
            -- Behind the hundredth priority may be more.
            whole := seen < most AND i < 100;
            RETURN NEXT;
            EXIT WHEN waiting >= 100 OR seen >= most;
        END LOOP;
        SELECT r.priority INTO at FROM taskq.run AS r
         WHERE r.action_no = of AND r.lane = 0 AND r.priority < at ORDER BY r.priority DESC LIMIT 1;
    END LOOP;
END
$$;
COMMENT ON FUNCTION taskq._front IS 'internal: what is in progress at the front of the queue of an action, and what comes next';

-- What leases name as in progress: of those with the first deadlines, as far as ten thousand names go. `whole`: there are no more.
CREATE FUNCTION taskq._leased()
    RETURNS TABLE (task_no bigint, action_no integer, deadline timestamptz, actor_id text, whole boolean)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 1000
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on SET enable_hashagg = on
    BEGIN ATOMIC
        WITH named AS MATERIALIZED (
                SELECT u.task_no, l.base
                  FROM (SELECT l.base, l.keeper_no || l.others AS task_nos FROM taskq.lease AS l
                         ORDER BY l.deadline LIMIT 10001) AS l
                 CROSS JOIN LATERAL unnest(l.task_nos) AS u(task_no) LIMIT 10001)
        -- An extension has a lease of its own: a task may be named twice.
        SELECT DISTINCT r.task_no, r.action_no, r.deadline, r.actor_id, (SELECT count(*) <= 10000 FROM named)
          FROM named AS n
         CROSS JOIN LATERAL (SELECT r.task_no, r.action_no, r.deadline, r.actor_id FROM taskq.run AS r
                              WHERE r.task_no = n.task_no AND r.nonce = n.base # n.task_no AND NOT r.grantable
                                AND r.deadline < 'infinity' OFFSET 0) AS r;
    END;
COMMENT ON FUNCTION taskq._leased IS 'internal: what leases name as in progress, some ten thousand tasks at most';

-- Of `run`, with so many pages.
CREATE FUNCTION taskq._about_run(pages bigint)
    RETURNS TABLE (action_no integer, state text, number bigint, first bigint, overdue bigint, exact boolean)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 100000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on SET enable_memoize = off
    SET enable_hashagg = on
    BEGIN ATOMIC
        WITH now AS MATERIALIZED (
                SELECT taskq.clock() AS at, EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()) AS held_back),
             -- In progress in three ways: with a deadline, without one, and still under a token whose deadline has passed, at
             -- the end of the queue.
             sample AS MATERIALIZED (
                SELECT s.action_no, sum(s.ready) * pages / taskq._sampled_pages() AS ready,
                       sum(s.leased) * pages / taskq._sampled_pages() AS leased,
                       sum(s.endless) * pages / taskq._sampled_pages() AS endless,
                       sum(s.lapsed) * pages / taskq._sampled_pages() AS lapsed,
                       sum(s.overdue) * pages / taskq._sampled_pages() AS overdue
                  FROM taskq._sample(pages, taskq._sampled_pages()) AS p
                 CROSS JOIN LATERAL (
                       SELECT r.action_no, count(*) FILTER (WHERE r.nonce = 0) AS ready,
                              count(*) FILTER (WHERE r.nonce <> 0 AND NOT r.grantable AND r.deadline < 'infinity') AS leased,
                              count(*) FILTER (WHERE r.nonce <> 0 AND r.deadline = 'infinity') AS endless,
                              count(*) FILTER (WHERE r.nonce <> 0 AND r.grantable AND r.deadline < 'infinity') AS lapsed,
                              count(*) FILTER (WHERE r.nonce <> 0 AND NOT r.grantable AND r.deadline <= (SELECT n.at FROM now AS n)) AS overdue
                         FROM taskq.run AS r WHERE r.ctid >= p.first AND r.ctid < p.behind
                        GROUP BY r.action_no OFFSET 0) AS s
                 GROUP BY s.action_no),
             -- The part of what is ready that a workgroup holds back, from a tenth of the sample.
             back AS MATERIALIZED (
                SELECT r.action_no, count(*) FILTER (WHERE r.held_back)::double precision / count(*) AS part
                  FROM (SELECT p.first, p.behind FROM taskq._sample(pages, taskq._sampled_pages()) WITH ORDINALITY AS p(first, behind, i)
                         WHERE p.i % 10 = 5 AND (SELECT n.held_back FROM now AS n)) AS p
                 CROSS JOIN LATERAL (
                       SELECT r.action_no,
                              r.gated AND EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                WHERE t.task_no = r.task_no OFFSET 0) AS t
                                                    JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                   WHERE w.not_before > (SELECT n.at FROM now AS n)) AS held_back
                         FROM taskq.run AS r WHERE r.ctid >= p.first AND r.ctid < p.behind AND r.nonce = 0 OFFSET 0) AS r
                 GROUP BY r.action_no),
             -- Those that may have few tasks here, fewest first, as long as it is not too much to count them.
             few AS MATERIALIZED (
                SELECT x.action_no
                  FROM (SELECT a.action_no, e.about, sum(20 + LEAST(e.about, 10001)) OVER (ORDER BY e.about, a.action_no) AS cost
                          FROM taskq.action AS a
                          LEFT JOIN sample AS s ON s.action_no = a.action_no
                         CROSS JOIN LATERAL (SELECT COALESCE(s.ready + s.leased + s.endless + s.lapsed, 0) AS about) AS e) AS x
                 -- A few that lie together may be on a page of the sample, which then stands for very many.
                 WHERE x.about <= 8000 + 100 * pages / taskq._sampled_pages() AND x.cost <= 40000),
             counted AS MATERIALIZED (
                SELECT f.action_no, c.number, c.ready, c.back, c.in_progress, c.overdue, c.first, c.first_back
                  FROM few AS f
                 CROSS JOIN LATERAL (
                       SELECT count(*) AS number,
                              count(*) FILTER (WHERE x.nonce = 0 AND NOT x.held_back) AS ready,
                              count(*) FILTER (WHERE x.nonce = 0 AND x.held_back) AS back,
                              count(*) FILTER (WHERE x.nonce <> 0) AS in_progress,
                              count(*) FILTER (WHERE x.nonce <> 0 AND x.deadline <= (SELECT n.at FROM now AS n)) AS overdue,
                              min(x.task_no) FILTER (WHERE x.nonce = 0 AND NOT x.held_back) AS first,
                              min(x.task_no) FILTER (WHERE x.nonce = 0 AND x.held_back) AS first_back
                         FROM (SELECT r.task_no, r.nonce, r.deadline,
                                      r.nonce = 0 AND r.gated AND (SELECT n.held_back FROM now AS n)
                                      AND EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                WHERE t.task_no = r.task_no OFFSET 0) AS t
                                                    JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                   WHERE w.not_before > (SELECT n.at FROM now AS n)) AS held_back
                                 FROM ((SELECT r.task_no, r.nonce, r.deadline, r.gated FROM taskq.run AS r
                                         WHERE r.action_no = f.action_no AND r.lane = 0
                                         ORDER BY r.priority DESC, r.position LIMIT 10001)
                                       UNION ALL
                                       (SELECT r.task_no, r.nonce, r.deadline, r.gated FROM taskq.run AS r
                                         WHERE r.action_no = f.action_no AND r.lane <> 0
                                         ORDER BY r.priority DESC, r.lane, r.position LIMIT 10001)) AS r) AS x
                       OFFSET 0) AS c),
             -- The others.
             many AS MATERIALIZED (
                SELECT s.action_no, s.ready, s.leased, s.endless, s.lapsed, s.overdue, COALESCE(b.part, 0) AS back,
                       COALESCE(c.number, 0) AS least,
                       rank() OVER (ORDER BY s.ready + s.leased + s.endless + s.lapsed DESC, s.action_no) AS place
                  FROM sample AS s
                  LEFT JOIN counted AS c ON c.action_no = s.action_no
                  LEFT JOIN back AS b ON b.action_no = s.action_no
                 WHERE c.number IS NULL OR c.number > 10000),
             leased AS MATERIALIZED (SELECT l.action_no, l.deadline, l.whole FROM taskq._leased() AS l),
             leases AS MATERIALIZED (
                SELECT l.action_no, count(*) AS number, count(*) FILTER (WHERE l.deadline <= (SELECT n.at FROM now AS n)) AS overdue
                  FROM leased AS l GROUP BY l.action_no),
             front AS MATERIALIZED (
                SELECT m.action_no, f.endless, f.first, f.whole
                  FROM many AS m
                 CROSS JOIN LATERAL (
                       SELECT count(*) FILTER (WHERE f.in_progress AND f.deadline = 'infinity') AS endless,
                              min(f.task_no) FILTER (WHERE NOT f.in_progress) AS first, COALESCE(bool_and(f.whole), true) AS whole
                         FROM taskq._front(m.action_no) AS f OFFSET 0) AS f
                 WHERE m.place <= 20),
             -- And in lanes.
             lanes AS MATERIALIZED (
                SELECT m.action_no, l.first
                  FROM many AS m
                 CROSS JOIN LATERAL (
                       SELECT min(l.task_no) AS first
                         FROM (SELECT r.task_no FROM taskq.run AS r WHERE r.action_no = m.action_no AND r.lane <> 0 AND r.nonce = 0
                                ORDER BY r.priority DESC, r.lane, r.position LIMIT 100) AS l OFFSET 0) AS l
                 WHERE m.place <= 200),
             -- What was inserted first, of the first 2,000.
             oldest AS MATERIALIZED (
                SELECT o.action_no, min(o.task_no) AS first
                  FROM (SELECT r.action_no, r.task_no, r.nonce FROM taskq.run AS r ORDER BY r.task_no LIMIT 2000) AS o
                 WHERE o.nonce = 0 GROUP BY o.action_no),
             about AS MATERIALIZED (
                SELECT m.action_no, m.back, LEAST(o.first, f.first, l.first) AS first,
                       -- Of many that are in progress the sample knows more than what has been seen.
                       CASE WHEN x.whole THEN COALESCE(e.number, 0) ELSE GREATEST(m.leased, e.number, 0) END
                       + CASE WHEN f.whole AND m.endless <= 2 * f.endless + 10000 THEN f.endless ELSE GREATEST(m.endless, f.endless, 0) END
                       + m.lapsed AS in_progress,
                       CASE WHEN x.whole OR x.latest > (SELECT n.at FROM now AS n) THEN COALESCE(e.overdue, 0)
                            ELSE GREATEST(m.overdue, e.overdue, 0) END + m.lapsed AS overdue,
                       x.whole AND f.whole AND m.lapsed = 0 AND m.endless <= 2 * f.endless + 10000 AS exact,
                       GREATEST(m.ready, m.least - m.leased - m.endless - m.lapsed, 0) AS ready
                  FROM many AS m
                  LEFT JOIN leases AS e ON e.action_no = m.action_no
                  LEFT JOIN front AS f ON f.action_no = m.action_no
                  LEFT JOIN lanes AS l ON l.action_no = m.action_no
                  LEFT JOIN oldest AS o ON o.action_no = m.action_no
                 CROSS JOIN (SELECT COALESCE(bool_and(l.whole), true) AS whole, max(l.deadline) AS latest FROM leased AS l) AS x)
        SELECT c.action_no, x.state, x.number, x.first, x.overdue, true
          FROM counted AS c
         CROSS JOIN LATERAL (VALUES ('ready', c.ready, c.first, 0::bigint), ('scheduled', c.back, c.first_back, 0),
                                    ('in-progress', c.in_progress, NULL, c.overdue)) AS x(state, number, first, overdue)
         WHERE c.number <= 10000 AND x.number > 0
        UNION ALL
        SELECT a.action_no, x.state, x.number::bigint, x.first, x.overdue::bigint, x.exact
          FROM about AS a
         CROSS JOIN LATERAL (VALUES ('ready', round(a.ready * (1 - a.back)), a.first, 0::numeric, false),
                                    ('scheduled', round(a.ready * a.back), NULL, 0, false),
                                    ('in-progress', round(a.in_progress), NULL, round(a.overdue), COALESCE(a.exact, false)))
                    AS x(state, number, first, overdue, exact)
         WHERE x.number > 0;
    END;
COMMENT ON FUNCTION taskq._about_run IS 'internal: about how many tasks are ready and in progress';

-- Of the others, of which the sample is all that is known: `blocked` and `parked` have no index by action.
CREATE FUNCTION taskq._about_blocked(pages bigint)
    RETURNS TABLE (action_no integer, number bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_memoize = off
    SET enable_hashagg = on
    BEGIN ATOMIC
        SELECT s.action_no, round(sum(s.number) * pages / (taskq._sampled_pages() / 3))::bigint
          FROM taskq._sample(pages, taskq._sampled_pages() / 3) AS p
         CROSS JOIN LATERAL (SELECT b.action_no, count(*) AS number FROM taskq.blocked AS b
                              WHERE b.ctid >= p.first AND b.ctid < p.behind GROUP BY b.action_no OFFSET 0) AS s
         GROUP BY s.action_no;
    END;
COMMENT ON FUNCTION taskq._about_blocked IS 'internal: about how many tasks are blocked';

CREATE FUNCTION taskq._about_parked(pages bigint)
    RETURNS TABLE (action_no integer, held_back boolean, number bigint, first bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_memoize = off SET enable_hashagg = on SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        WITH now AS MATERIALIZED (
                SELECT taskq.clock() AS at, EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()) AS held_back),
             sample AS MATERIALIZED (
                SELECT s.action_no, sum(s.number) * pages / (taskq._sampled_pages() / 3) AS number, min(s.first) AS first
                  FROM taskq._sample(pages, taskq._sampled_pages() / 3) AS p
                 CROSS JOIN LATERAL (SELECT k.action_no, count(*) AS number, min(k.task_no) AS first FROM taskq.parked AS k
                                      WHERE k.ctid >= p.first AND k.ctid < p.behind GROUP BY k.action_no OFFSET 0) AS s
                 GROUP BY s.action_no),
             back AS MATERIALIZED (
                SELECT k.action_no, avg(k.held_back) AS part
                  FROM (SELECT p.first, p.behind FROM taskq._sample(pages, taskq._sampled_pages() / 3) WITH ORDINALITY AS p(first, behind, i)
                         WHERE p.i % 50 = 25 AND (SELECT n.held_back FROM now AS n)) AS p
                 CROSS JOIN LATERAL (
                       SELECT k.action_no,
                              CASE WHEN EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                              WHERE t.task_no = k.task_no OFFSET 0) AS t
                                                  JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                 WHERE w.not_before > (SELECT n.at FROM now AS n)) THEN 1 ELSE 0 END AS held_back
                         FROM taskq.parked AS k WHERE k.ctid >= p.first AND k.ctid < p.behind OFFSET 0) AS k
                 GROUP BY k.action_no)
        SELECT s.action_no, x.held_back, round(s.number * x.part)::bigint, s.first
          FROM sample AS s
          LEFT JOIN back AS b ON b.action_no = s.action_no
         CROSS JOIN LATERAL (VALUES (true, COALESCE(b.part, 0)), (false, 1 - COALESCE(b.part, 0))) AS x(held_back, part)
         WHERE x.part > 0;
    END;
COMMENT ON FUNCTION taskq._about_parked IS 'internal: about how many tasks are parked';

-- `scheduled` has an index by action and time: an action with few tasks in it is counted, and so is what is due, if it is few. Before
-- they are due, tasks that a workgroup holds back as well have the same state. Of tasks that are due, and counted, the workgroup
-- is looked up; they are few as long as workers claim.
CREATE FUNCTION taskq._about_scheduled(pages bigint)
    RETURNS TABLE (action_no integer, due boolean, number bigint, first bigint, exact boolean)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_memoize = off SET enable_hashagg = on SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        WITH now AS MATERIALIZED (
                SELECT taskq.clock() AS at, EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()) AS held_back),
             sample AS MATERIALIZED (
                SELECT s.action_no, sum(s.later) * pages / (taskq._sampled_pages() / 3) AS later,
                       sum(s.due) * pages / (taskq._sampled_pages() / 3) AS due
                  FROM taskq._sample(pages, taskq._sampled_pages() / 3) AS p
                 CROSS JOIN LATERAL (
                       SELECT d.action_no, count(*) FILTER (WHERE d.due > (SELECT n.at FROM now AS n)) AS later,
                              count(*) FILTER (WHERE d.due <= (SELECT n.at FROM now AS n)) AS due
                         FROM taskq.scheduled AS d
                        WHERE d.ctid >= p.first AND d.ctid < p.behind GROUP BY d.action_no OFFSET 0) AS s
                 GROUP BY s.action_no),
             -- Both kinds apart, fewest first, as long as it is not too much to count them.
             kinds AS MATERIALIZED (
                SELECT x.action_no, x.due, x.about, sum(20 + LEAST(x.about, 10001)) OVER (ORDER BY x.about, x.due DESC, x.action_no) AS cost
                  FROM (SELECT a.action_no, k.due, COALESCE(k.about, 0) AS about
                          FROM taskq.action AS a
                          LEFT JOIN sample AS s ON s.action_no = a.action_no
                         CROSS JOIN LATERAL (VALUES (true, s.due), (false, s.later)) AS k(due, about)) AS x),
             counted AS MATERIALIZED (
                SELECT k.action_no, k.due, c.number, c.back, c.first
                  FROM kinds AS k
                 CROSS JOIN LATERAL (
                       SELECT count(*) AS number, count(*) FILTER (WHERE x.held_back) AS back, min(x.task_no) AS first
                         FROM (SELECT d.task_no,
                                      k.due AND (SELECT n.held_back FROM now AS n)
                                      AND EXISTS (SELECT FROM (SELECT t.workgroup FROM taskq.task AS t
                                                                WHERE t.task_no = d.task_no OFFSET 0) AS t
                                                    JOIN taskq.workgroup AS w ON w.name = t.workgroup
                                                   WHERE w.not_before > (SELECT n.at FROM now AS n)) AS held_back
                                 FROM ((SELECT d.task_no FROM taskq.scheduled AS d
                                         WHERE k.due AND d.action_no = k.action_no AND d.due <= (SELECT n.at FROM now AS n)
                                         ORDER BY d.action_no, d.due LIMIT 10001)
                                       UNION ALL
                                       (SELECT d.task_no FROM taskq.scheduled AS d
                                         WHERE NOT k.due AND d.action_no = k.action_no AND d.due > (SELECT n.at FROM now AS n)
                                         ORDER BY d.action_no, d.due LIMIT 10001)) AS d) AS x OFFSET 0) AS c
                 WHERE k.about <= 8000 + 400 * pages / (taskq._sampled_pages() / 3) AND k.cost <= 40000)
        SELECT k.action_no, x.due, x.number::bigint, c.first, COALESCE(c.number <= 10000, false)
          FROM kinds AS k
          LEFT JOIN counted AS c ON c.action_no = k.action_no AND c.due = k.due
         CROSS JOIN LATERAL (VALUES (k.due, CASE WHEN c.number <= 10000 THEN c.number - c.back ELSE GREATEST(round(k.about), c.number) END),
                                    (false, CASE WHEN c.number <= 10000 THEN c.back ELSE 0 END)) AS x(due, number)
         WHERE x.number > 0;
    END;
COMMENT ON FUNCTION taskq._about_scheduled IS 'internal: about how many tasks wait for their time';

-- As taskq._live, except that `exact` says whether a number is; actions and states may be there several times.
CREATE FUNCTION taskq._about()
    RETURNS TABLE (action_no integer, state text, number bigint, first bigint, overdue bigint, exact boolean)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 100000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_nestloop = on
    BEGIN ATOMIC
        WITH pages AS MATERIALIZED (
                SELECT x.run, x.scheduled, x.parked, x.blocked,
                       -- Any action may have tasks in there that the sample has not.
                       x.parked <= taskq._counted_pages() / 3 AS counted
                  FROM (SELECT taskq._pages('taskq.run') AS run, taskq._pages('taskq.scheduled') AS scheduled,
                               taskq._pages('taskq.parked') AS parked, taskq._pages('taskq.blocked') AS blocked) AS x)
        SELECT l.action_no, l.state, l.number, l.first, l.overdue, p.counted OR l.state IN ('in-progress', 'blocked')
          FROM pages AS p
         CROSS JOIN LATERAL taskq._live(p.run <= taskq._counted_pages(), p.scheduled <= taskq._counted_pages() / 3,
                                        p.parked <= taskq._counted_pages() / 3, p.blocked <= taskq._counted_pages() / 3) AS l
        UNION ALL
        SELECT r.action_no, r.state, r.number, r.first, r.overdue, r.exact AND (p.counted OR r.state = 'in-progress')
          FROM pages AS p CROSS JOIN LATERAL taskq._about_run(p.run) AS r WHERE p.run > taskq._counted_pages()
        UNION ALL
        SELECT d.action_no, CASE WHEN d.due THEN 'ready' ELSE 'scheduled' END, d.number, d.first, 0, d.exact AND p.counted
          FROM pages AS p CROSS JOIN LATERAL taskq._about_scheduled(p.scheduled) AS d WHERE p.scheduled > taskq._counted_pages() / 3
        UNION ALL
        SELECT k.action_no, CASE WHEN k.held_back THEN 'scheduled' ELSE 'ready' END, k.number, k.first, 0, false
          FROM pages AS p CROSS JOIN LATERAL taskq._about_parked(p.parked) AS k WHERE p.parked > taskq._counted_pages() / 3
        UNION ALL
        SELECT b.action_no, 'blocked', b.number, NULL, 0, false
          FROM pages AS p CROSS JOIN LATERAL taskq._about_blocked(p.blocked) AS b WHERE p.blocked > taskq._counted_pages() / 3;
    END;
COMMENT ON FUNCTION taskq._about IS 'internal: about how many tasks have not settled, by number of the action and state';

-- How many actors hold tasks. Of many tasks: those that leases name, and that are seen at the fronts of 50 actions.
CREATE FUNCTION taskq._actors()
    RETURNS bigint
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = on SET enable_nestloop = on SET enable_hashagg = on
    BEGIN ATOMIC
        WITH counted AS MATERIALIZED (SELECT taskq._pages('taskq.run') <= taskq._counted_pages() AS whole)
        SELECT count(DISTINCT x.actor_id)
          FROM (SELECT r.actor_id FROM taskq.run AS r WHERE r.nonce <> 0 AND (SELECT c.whole FROM counted AS c)
                UNION ALL
                SELECT l.actor_id FROM counted AS c CROSS JOIN LATERAL taskq._leased() AS l WHERE NOT c.whole
                UNION ALL
                SELECT f.actor_id
                  FROM counted AS c
                 CROSS JOIN (SELECT a.action_no FROM taskq.action AS a ORDER BY a.action_no DESC LIMIT 50) AS a
                 CROSS JOIN LATERAL taskq._front(a.action_no) AS f
                 WHERE NOT c.whole AND f.in_progress) AS x;
    END;
COMMENT ON FUNCTION taskq._actors IS 'internal: how many actors hold tasks, at least';
-- taskq: what there is to see, readable in psql. Tokens are never shown.

-- Where tasks are, and what that means: each place once or more for each of the states that a task in it may be in, so that
-- `state` is a constant of each part. A condition on it excludes parts before anything is read; a task that is joined is looked
-- up in each of the rest. The parts are tables without a WHERE, or neither would be possible: a view that reads this one has the
-- condition itself, as taskq.tasks has. `applies`: this row is there in that state. It is written in such a way that no index can
-- be asked for it, or the planner might take the whole of that index for as cheap as a look-up (see src/pg/lookup.rs).
-- `held_back`: it is in that state if the task's workgroup is held back (true), or is not (false); NULL: that does not matter.
CREATE VIEW taskq._places AS
SELECT s.task_no, 'completed' AS state, CASE s.code WHEN 'c' THEN true ELSE false END AS applies, NULL::boolean AS held_back,
       s.tries AS num_tries, s.signals AS num_signals, s.dependencies AS total_dependencies,
       s.failures AS num_failures, s.actor_id, NULL::timestamptz AS deadline, NULL::timestamptz AS due, s.granted_at,
       s.settled_at, s.status, s.result, s.leader_no, NULL::"char" AS cause
  FROM taskq.settled AS s
UNION ALL
SELECT s.task_no, 'aborted', CASE s.code WHEN 'a' THEN true ELSE false END, NULL, s.tries, s.signals, s.dependencies, s.failures, s.actor_id,
       NULL, NULL, s.granted_at, s.settled_at, s.status, s.result, s.leader_no, s.cause
  FROM taskq.settled AS s
UNION ALL
SELECT r.task_no, 'in-progress', r.nonce <> 0, NULL, r.tries, r.dependencies, r.dependencies, r.failures,
       r.actor_id, r.deadline, NULL, r.granted_at, NULL, NULL, NULL, NULL, NULL
  FROM taskq.run AS r
UNION ALL
SELECT r.task_no, 'ready', r.nonce = 0, false, r.tries, r.dependencies, r.dependencies, r.failures, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, CASE WHEN r.aside < 0 THEN -r.aside END, NULL
  FROM taskq.run AS r
UNION ALL
SELECT r.task_no, 'scheduled',
       r.nonce = 0 AND r.gated AND EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()), true,
       r.tries, r.dependencies, r.dependencies, r.failures, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       CASE WHEN r.aside < 0 THEN -r.aside END, NULL
  FROM taskq.run AS r
UNION ALL
SELECT b.task_no, 'blocked', b.remaining > 0, NULL, b.tries, b.dependencies - b.remaining - b.spare, b.dependencies, b.failures,
       NULL, NULL, b.not_before, NULL, NULL, NULL, NULL, NULL, NULL
  FROM taskq.blocked AS b
UNION ALL
SELECT d.task_no, 'scheduled', CASE WHEN d.due > (SELECT taskq.clock()) THEN true ELSE false END, NULL, d.tries, d.dependencies, d.dependencies,
       d.failures, NULL, NULL, d.due, NULL, NULL, NULL, NULL, NULL, NULL
  FROM taskq.scheduled AS d
UNION ALL
SELECT d.task_no, 'ready', CASE WHEN d.due > (SELECT taskq.clock()) THEN false ELSE true END, false, d.tries, d.dependencies, d.dependencies,
       d.failures, NULL, NULL, d.due, NULL, NULL, NULL, NULL, NULL, NULL
  FROM taskq.scheduled AS d
UNION ALL
SELECT d.task_no, 'scheduled',
       CASE WHEN d.due > (SELECT taskq.clock()) THEN false ELSE true END
       AND EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()), true,
       d.tries, d.dependencies, d.dependencies, d.failures, NULL, NULL, d.due, NULL, NULL, NULL, NULL, NULL, NULL
  FROM taskq.scheduled AS d
UNION ALL
SELECT k.task_no, 'ready', k.tries >= 0, false, k.tries, k.dependencies, k.dependencies, k.failures, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, k.leader_no, NULL
  FROM taskq.parked AS k
UNION ALL
SELECT k.task_no, 'scheduled',
       k.tries >= 0 AND EXISTS (SELECT FROM taskq.workgroup AS w WHERE w.not_before > taskq.clock()), true, k.tries, k.dependencies, k.dependencies, k.failures, NULL, NULL, NULL, NULL, NULL, NULL, NULL, k.leader_no, NULL
  FROM taskq.parked AS k;
COMMENT ON VIEW taskq._places IS 'internal: the places of tasks, and the states that a task in them may be in';


-- `taskq.===` is `=`, and a look-up: see src/pg/lookup.rs. To count tasks by state, taskq.count_tasks reads less as a
-- rule.
CREATE VIEW taskq.tasks AS
SELECT t.id,
       a.name AS action,
       t.body,
       taskq._status_code(p.state) AS status_code,
       COALESCE(p.status, (SELECT g.status FROM taskq.progress AS g WHERE g.task_no = t.task_no)) AS status,
       p.num_tries,
       t.max_tries,
       -- Of a blocked one with the signals that are committed but not counted yet.
       CASE p.state WHEN 'blocked'
            THEN p.num_signals + (SELECT COALESCE(sum(g.satisfied + g.lost), 0)::integer
                                    FROM taskq.signal AS g WHERE g.run_no = p.task_no)
            ELSE p.num_signals END AS num_signals,
       p.total_dependencies,
       CASE p.state WHEN 'blocked'
            THEN p.num_failures + (SELECT COALESCE(sum(g.failed), 0)::integer
                                     FROM taskq.signal AS g WHERE g.run_no = p.task_no)
            ELSE p.num_failures END AS num_failures,
       p.actor_id,
       NULLIF(p.deadline, 'infinity') AS action_deadline,
       p.result,
       t.priority,
       t.max_duration,
       CASE WHEN p.state = 'blocked' THEN GREATEST(t.not_before, p.due)
            WHEN p.state IN ('scheduled', 'ready')
            THEN COALESCE((SELECT GREATEST(p.due, t.not_before, w.not_before) FROM taskq.workgroup AS w
                            WHERE w.name = t.workgroup AND w.not_before > taskq.clock()), p.due, t.not_before)
            ELSE t.not_before END AS not_before,
       t.retention,
       t.spontaneous,
       t.post_result,
       t.group_id,
       t.workgroup,
       t.merge_key,
       t.seed,
       t.backoff,
       t.metadata,
       (SELECT g.progress FROM taskq.progress AS g WHERE g.task_no = t.task_no) AS progress,
       t.inserted_at,
       p.granted_at AS owned_at,
       p.settled_at,
       p.state,
       t.unique_key,
       t.retention_aborted,
       (SELECT l.id FROM taskq.task AS l WHERE l.task_no = p.leader_no) AS merged_into,
       taskq._body_json(t.body) AS body_json,
       taskq._cause(p.cause) AS cause,
       (SELECT COALESCE(sum(h.releases), 0)::integer FROM taskq.attempt AS h
         WHERE h.task_no = t.task_no AND NOT h.past) AS num_releases,
       NULLIF(t.expires_at, 'infinity') AS expires_at,
       t.max_run_time,
       t.signal,
       t.num_required
  FROM taskq._places AS p
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) p.task_no
  JOIN taskq.action AS a ON a.action_no = t.action_no
 WHERE p.applies
   AND CASE WHEN p.held_back IS NULL THEN true
            ELSE p.held_back = (t.workgroup IS NOT NULL
                                AND EXISTS (SELECT FROM taskq.workgroup AS w
                                             WHERE w.name = t.workgroup AND w.not_before > taskq.clock())) END;
COMMENT ON VIEW taskq.tasks IS 'every task, one row';
COMMENT ON COLUMN taskq.tasks.num_releases IS 'how often it was given back with count_try => false since it was inserted, retried or started over';
COMMENT ON COLUMN taskq.tasks.expires_at IS 'when it was to expire at its insertion; without meaning once it is granted (a signal: signalled), retried or started over';
COMMENT ON COLUMN taskq.tasks.state IS 'blocked, scheduled or ready (all three pending), in-progress, completed, aborted';
COMMENT ON COLUMN taskq.tasks.cause IS 'why it aborted; NULL if it has not';

CREATE VIEW taskq.dependencies AS
SELECT after.id AS after,
       run.id AS run,
       (CASE d.condition WHEN 'c' THEN 'completed' WHEN 's' THEN 'settled' ELSE 'aborted' END)::taskq.dependency_condition
           AS condition,
       EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = d.after_no OFFSET 0) AS settled
  FROM taskq.dependency AS d
  JOIN taskq.task AS after ON after.task_no OPERATOR(taskq.===) d.after_no
  JOIN taskq.task AS run ON run.task_no OPERATOR(taskq.===) d.run_no
 -- Always so: columns that no index has. What is dropped is no dependency any more.
 WHERE d.condition IN ('c', 's', 'a') AND d.counts <> 'd' AND after.seed IN (true, false) AND run.seed IN (true, false);
COMMENT ON VIEW taskq.dependencies IS 'which task runs after which, on what condition, and whether the one waited for has settled';

-- Suspended tasks, and what each waits for: dependencies of this wait that have not ended.
CREATE VIEW taskq.waits AS
SELECT t.id AS task_id,
       (SELECT a.name FROM taskq.action AS a WHERE a.action_no = b.action_no) AS action,
       t.group_id,
       b.since,
       b.until,
       ARRAY(SELECT after.id
               FROM taskq.dependency AS d
              CROSS JOIN LATERAL (SELECT x.id FROM taskq.task AS x WHERE x.task_no = d.after_no OFFSET 0) AS after
              WHERE d.run_no = b.task_no AND d.wait_no = b.wait_no AND d.counts = 'w'
                AND NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = d.after_no OFFSET 0)
              ORDER BY after.id) AS waits_for
  FROM taskq.blocked AS b
  JOIN taskq.task AS t ON t.task_no = b.task_no
 WHERE b.since IS NOT NULL;
COMMENT ON VIEW taskq.waits IS 'suspended tasks: since when, until when at most, and for what';

-- Those that were skipped have a state of their own here.
CREATE VIEW taskq._counts AS
SELECT l.action_no, l.state, l.number, l.first, 0::bigint AS recent, l.exact
  FROM taskq._about() AS l
UNION ALL
SELECT e.action_no, CASE WHEN e.code = 'c' THEN 'completed' WHEN e.cause = 'k' THEN 'skipped' ELSE 'aborted' END,
       COALESCE(e.number, 0), NULL, COALESCE(e.recent, 0), true
  FROM taskq._ended() AS e WHERE e.number <> 0 OR e.recent <> 0;
COMMENT ON VIEW taskq._counts IS 'internal: how many tasks there are, by number of the action and state, and whether that is exact';

-- `estimates`: the states of which the number may be an estimate.
CREATE VIEW taskq._numbers AS
SELECT a.name AS action,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'blocked'), 0)::bigint AS blocked,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'scheduled'), 0)::bigint AS scheduled,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'ready'), 0)::bigint AS ready,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'in-progress'), 0)::bigint AS "in-progress",
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'completed'), 0)::bigint AS completed,
       COALESCE(sum(c.number) FILTER (WHERE c.state IN ('aborted', 'skipped')), 0)::bigint AS aborted,
       min((SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = c.first))
           FILTER (WHERE c.state = 'ready') AS oldest_ready,
       sum(c.recent)::bigint AS settled_last_minute,
       COALESCE(array_agg(c.state) FILTER (WHERE NOT c.exact), '{}') AS estimates,
       COALESCE(sum(c.number) FILTER (WHERE c.state = 'skipped'), 0)::bigint AS skipped
  FROM taskq._counts AS c
 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = c.action_no OFFSET 0) AS a
 GROUP BY a.name;
COMMENT ON VIEW taskq._numbers IS 'internal: how many tasks there are, by action';

-- Medians and 99th percentiles, in seconds, of what has been granted and is kept: of all that has settled, up to 1 MB (some 8,000
-- tasks), of more of a part of the pages.
CREATE FUNCTION taskq._percentiles()
    RETURNS TABLE (action text, waiting double precision[], running double precision[])
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 100000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        SELECT a.name,
               percentile_cont('{0.5,0.99}'::double precision[])
                   WITHIN GROUP (ORDER BY date_part('epoch', s.granted_at - t.inserted_at)),
               percentile_cont('{0.5,0.99}'::double precision[])
                   WITHIN GROUP (ORDER BY date_part('epoch', s.settled_at - s.granted_at))
          FROM taskq.settled AS s
               TABLESAMPLE SYSTEM (LEAST(100, 100 * 1e6 / GREATEST(pg_relation_size('taskq.settled'), 1))) REPEATABLE (1)
         CROSS JOIN LATERAL (SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = s.task_no OFFSET 0) AS t
         CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = s.action_no OFFSET 0) AS a
         WHERE s.granted_at IS NOT NULL
         GROUP BY a.name;
    END;
COMMENT ON FUNCTION taskq._percentiles IS 'internal: how long tasks that are kept have waited and run, by action';

-- The percentiles are worked out only if their columns are asked for.
CREATE VIEW taskq.stats AS
SELECT n.action, n.blocked, n.scheduled, n.ready, n."in-progress", n.completed, n.aborted, n.oldest_ready,
       n.settled_last_minute,
       p.waiting[1] * interval '1 second' AS waiting_p50,
       p.waiting[2] * interval '1 second' AS waiting_p99,
       p.running[1] * interval '1 second' AS running_p50,
       p.running[2] * interval '1 second' AS running_p99,
       n.skipped
  FROM taskq._numbers AS n
 CROSS JOIN LATERAL taskq._many(n.action) AS many(action)
  -- Grouped once more: a join with what has one row for each name goes where nothing of it is asked for.
  LEFT JOIN (SELECT x.action AS name, min(x.waiting) AS waiting, min(x.running) AS running
               FROM taskq._percentiles() AS x GROUP BY x.action) AS p ON p.name = n.action AND p.name = many.action;
COMMENT ON VIEW taskq.stats IS
    'per action: tasks per state (of very many an estimate), the oldest ready one, how many settled in the last minute, and how long those kept have waited and run';

CREATE VIEW taskq.actors AS
SELECT r.actor_id,
       t.id AS task_id,
       a.name AS action,
       NULLIF(r.deadline, 'infinity') AS action_deadline,
       r.deadline <= taskq.clock() AS overdue,
       r.granted_at AS owned_at,
       r.tries AS num_tries
  FROM taskq.run AS r
  -- One look-up each (OFFSET 0), whatever the statistics say.
 CROSS JOIN LATERAL (SELECT t.id, t.action_no FROM taskq.task AS t WHERE t.task_no = r.task_no OFFSET 0) AS t
  JOIN taskq.action AS a ON a.action_no = t.action_no
 WHERE r.nonce <> 0;
COMMENT ON VIEW taskq.actors IS 'which worker holds which task, until when';

-- Calls that sleep are found by what they are registered for, which are locks of a class of their own (src/pg/latch.rs): the kind
-- of what they wait for stands in the upper bits, and the number of an action in the lower ones (src/wake/channels.rs). Since when
-- a session of another role sleeps the server shows to members of pg_read_all_stats, for instance. Which actor a session sleeps
-- for, and which session an actor has, is stored nowhere: so the two are rows of their own.
CREATE VIEW taskq.workers AS
SELECT l.pid,
       s.usename::text AS role,
       s.application_name,
       NULL::text AS actor_id,
       l.actions,
       -- Between two looks of one call the sleep goes on.
       s.query_start AS asleep_since,
       NULL::bigint AS tasks_held
  FROM (SELECT k.pid,
               CASE WHEN bool_or(k.classid::bigint >> 24 = 6) THEN NULL
                    ELSE array_agg(DISTINCT a.name ORDER BY a.name) FILTER (WHERE a.name IS NOT NULL) END AS actions
          FROM pg_locks AS k
          LEFT JOIN taskq.action AS a ON k.classid::bigint = 1 << 24 AND a.action_no = k.objid::bigint
         WHERE k.locktype = 'advisory' AND k.objsubid = 29809
           AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
         GROUP BY k.pid
        -- It waits for work, or for the ends of tasks.
        HAVING bool_or(k.classid::bigint >> 24 IN (4, 7))) AS l
  LEFT JOIN pg_stat_activity AS s ON s.pid = l.pid
UNION ALL
SELECT NULL, NULL, NULL, r.actor_id, array_agg(DISTINCT a.name ORDER BY a.name), NULL, count(*)
  FROM taskq.run AS r
  JOIN taskq.action AS a ON a.action_no = r.action_no
 WHERE r.nonce <> 0
 GROUP BY r.actor_id;
COMMENT ON VIEW taskq.workers IS
    'sessions that sleep in a call of this queue, and actors that hold tasks; NULL where it cannot be known or may not be seen';

-- The same locks, for whether a call asks for an action: each waiting call, with each action that it asks for as far as that is
-- known. A call that asks for more actions than it is registered for may ask for any; an action that has had no task has no number.
CREATE VIEW taskq._asking AS
SELECT k.pid,
       CASE WHEN k.classid::bigint = 1 << 24 THEN k.objid::bigint::integer END AS action_no,
       k.classid::bigint >> 24 = 6 AS for_any
  FROM pg_locks AS k
 WHERE k.locktype = 'advisory' AND k.objsubid = 29809
   AND k.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
   AND (k.classid::bigint >> 24 IN (4, 6) OR k.classid::bigint = 1 << 24);
COMMENT ON VIEW taskq._asking IS 'internal: calls that wait for tasks, and the numbers of the actions that they ask for';

-- How much two names have in common, from 0 to 1: pairs of neighbouring characters.
CREATE FUNCTION taskq._alike(a text, b text)
    RETURNS double precision
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT 2.0 * count(*) / (length(a) + length(b) + 2)
          FROM (SELECT lower(substr(a, i, 2)) FROM generate_series(0, LEAST(length(a), 100)) AS i
                INTERSECT
                SELECT lower(substr(b, i, 2)) FROM generate_series(0, LEAST(length(b), 100)) AS i) AS x;
    END;
COMMENT ON FUNCTION taskq._alike IS 'internal: how much two names have in common';

-- Which of so many waiting calls ask for an action, in words, where `it` stands for it: how many do, how many may since they ask for very
-- many, and else the names that are most like it, of those that most calls ask for, with how many do.
CREATE FUNCTION taskq._asked_for(action text, it text, calls bigint, for_it bigint, for_any bigint, names text[], numbers bigint[])
    RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE WHEN calls = 0 THEN 'no call waits for tasks'
                    WHEN for_it > 0 THEN format('%s waiting call%s for %s', for_it, CASE for_it WHEN 1 THEN ' asks' ELSE 's ask' END, it)
                    WHEN for_any > 0 THEN format('%s waiting call%s for very many actions, "%s" perhaps among them%s',
                                                 for_any, CASE for_any WHEN 1 THEN ' asks' ELSE 's ask' END, action, '; of the others ' || o.names)
                    ELSE format('no waiting call asks for %s: of %s waiting call%s %s', it, calls, CASE calls WHEN 1 THEN '' ELSE 's' END,
                                COALESCE(o.names, 'none asks for one that has tasks'))
               END
          FROM (SELECT string_agg(format('%s ask%s for "%s"', x.number, CASE x.number WHEN 1 THEN 's' ELSE '' END, x.name), ', ' ORDER BY x.place)
                       || CASE WHEN cardinality(numbers) > 3 THEN ', and others' ELSE '' END AS names
                  FROM (SELECT n.name, n.number, row_number() OVER (ORDER BY taskq._alike(n.name, action) DESC, n.number DESC, n.name) AS place
                          FROM unnest(names, numbers[1:cardinality(names)]) AS n(name, number) WHERE calls > 0 AND for_it = 0) AS x
                 WHERE x.place <= 3) AS o;
    END;
COMMENT ON FUNCTION taskq._asked_for IS 'internal: which of so many waiting calls ask for an action, in words';

-- The same for one action, of a hundred that most calls ask for.
CREATE FUNCTION taskq._who_asks(action text)
    RETURNS text
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        WITH asking AS MATERIALIZED (SELECT s.pid, a.name, s.for_any FROM taskq._asking AS s
                                       LEFT JOIN taskq.action AS a ON a.action_no = s.action_no)
        SELECT taskq._asked_for(_who_asks.action, format('action "%s"', _who_asks.action), c.number, c.for_it, c.for_any, n.names, n.numbers)
          FROM (SELECT count(DISTINCT s.pid) AS number, count(DISTINCT s.pid) FILTER (WHERE s.for_any) AS for_any,
                       count(DISTINCT s.pid) FILTER (WHERE s.name = _who_asks.action) AS for_it FROM asking AS s) AS c
         CROSS JOIN (SELECT array_agg(x.name) AS names, array_agg(x.number) AS numbers
                       FROM (SELECT s.name, count(DISTINCT s.pid) AS number FROM asking AS s
                              WHERE s.name IS NOT NULL GROUP BY s.name ORDER BY 2 DESC, 1 LIMIT 100) AS x) AS n;
    END;
COMMENT ON FUNCTION taskq._who_asks IS 'internal: which waiting calls ask for an action, in words';

-- What has settled is read from the tally, whatever the size of the group; what is alive is counted, and only
-- if its columns are asked for. Ready is what is left.
CREATE VIEW taskq.groups AS
SELECT y.group_id,
       COALESCE((SELECT g.paused FROM taskq.task_group AS g WHERE g.group_id = y.group_id), false) AS paused,
       COALESCE(x.blocked, 0) AS blocked,
       COALESCE(x.scheduled, 0) AS scheduled,
       y.tasks - y.settled - COALESCE(x.blocked + x.scheduled + x.in_progress, 0) AS ready,
       COALESCE(x.in_progress, 0) AS "in-progress",
       y.completed,
       y.aborted,
       y.settled::double precision / y.tasks AS progress,
       y.first_at AS first_inserted_at,
       y.last_at AS last_settled_at,
       -- At the pace of the last ten minutes.
       CASE WHEN y.tasks > y.settled
            THEN taskq.clock() + GREATEST(taskq.clock() - y.since, interval '1 second')
                 * ((y.tasks - y.settled)::double precision / y.recent) END AS estimated_end,
       y.tasks,
       (SELECT g.max_concurrency FROM taskq.task_group AS g WHERE g.group_id = y.group_id) AS max_concurrency,
       (SELECT g.weight FROM taskq.task_group AS g WHERE g.group_id = y.group_id) AS weight,
       y.skipped
  FROM (SELECT g.group_id,
               sum(g.tasks)::bigint AS tasks,
               sum(g.completed)::bigint AS completed,
               sum(g.aborted)::bigint AS aborted,
               sum(g.skipped)::bigint AS skipped,
               sum(g.completed + g.aborted + g.skipped)::bigint AS settled,
               NULLIF(min(g.first_at), 'infinity') AS first_at,
               NULLIF(max(g.last_at), '-infinity') AS last_at,
               sum(g.completed + g.aborted + g.skipped) FILTER (WHERE g.span > taskq.clock() - interval '10 minutes')
                   ::double precision AS recent,
               min(g.span) FILTER (WHERE g.span > taskq.clock() - interval '10 minutes') AS since
          FROM taskq.group_tally AS g
         WHERE g.folded IN (false, true)
         GROUP BY g.group_id
        HAVING sum(g.tasks) > 0) AS y
 CROSS JOIN LATERAL taskq._many(y.group_id) AS many(group_id)
  LEFT JOIN (SELECT t.group_id,
                    count(*) FILTER (WHERE p.state = 'blocked') AS blocked,
                    count(*) FILTER (WHERE p.state = 'scheduled') AS scheduled,
                    count(*) FILTER (WHERE p.state = 'in-progress') AS in_progress
               FROM taskq._places AS p
               JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) p.task_no
              WHERE p.state IN ('blocked', 'scheduled', 'in-progress') AND p.applies
                AND CASE WHEN t.group_id IS NULL THEN false ELSE true END
                AND (p.held_back IS NULL
                     OR EXISTS (SELECT FROM taskq.workgroup AS w
                                 WHERE w.name = t.workgroup AND w.not_before > taskq.clock()))
              GROUP BY t.group_id) AS x ON x.group_id = y.group_id AND x.group_id = many.group_id;
COMMENT ON VIEW taskq.groups IS 'groups: tasks per state, the part that has settled, and when the rest will at this pace';

CREATE VIEW taskq.actions AS
SELECT n.name AS action,
       COALESCE(s.paused, false) AS paused,
       s.max_tries,
       s.max_duration,
       s.backoff,
       s.max_concurrency,
       (SELECT count(*) FROM taskq.slot AS l
         WHERE l.group_id = '' AND l.name = n.name AND l.task_no IS NOT NULL) AS slots_held,
       s.rate_limit,
       s.rate_period,
       s.retention,
       COALESCE(s.notify, false) AS notify,
       COALESCE(s.on_timeout, 'retry') AS on_timeout,
       s.max_timeouts,
       s.retention_aborted,
       COALESCE(s.fair, false) AS fair,
       s.max_per_group,
       s.expires_in,
       s.max_run_time
  FROM (SELECT a.name FROM taskq.action AS a WHERE NOT a.forgotten UNION SELECT s.name FROM taskq.action_setting AS s) AS n
  LEFT JOIN taskq.action_setting AS s ON s.name = n.name;
COMMENT ON VIEW taskq.actions IS 'actions and what is set for them; as a rule NULL where nothing is';

CREATE VIEW taskq.schedules AS
SELECT s.name, s.cron, s.timezone, s.task, s.overlap, s.backfill,
       NULLIF(s.next_at, 'infinity') AS next_at, s.last_at, s.last_task_id, s.problem, s.max_backfill,
       s.paused_next_at IS NOT NULL AS paused
  FROM taskq.schedule AS s;
COMMENT ON VIEW taskq.schedules IS 'schedules: when they run next, which run was inserted last, and why one could not be';

-- The tries of the history that are shown. A deadline that has passed makes an attempt, and more may follow under the same token: a late
-- return, another deadline, or the task is still in progress. Then the later row says more, and this one is not shown.
CREATE VIEW taskq._told_attempt AS
SELECT h.task_no, h.num_try, h.actor_id, h.started_at, h.ended_at, h.outcome, h.status
  FROM taskq.attempt AS h
 WHERE h.outcome <> 'timeout'
    OR NOT EXISTS (SELECT FROM taskq.attempt AS l
                    WHERE l.task_no = h.task_no AND l.started_at = h.started_at
                      AND (l.outcome <> 'timeout' OR l.ended_at > h.ended_at)
                   UNION ALL
                   SELECT FROM taskq.settled AS l
                    WHERE l.task_no = h.task_no AND l.granted_at = h.started_at
                   UNION ALL
                   SELECT FROM taskq.run AS l
                    WHERE l.task_no = h.task_no AND l.granted_at = h.started_at AND l.nonce <> 0 AND NOT l.grantable
                      AND l.aside IS NULL
                   OFFSET 0);
COMMENT ON VIEW taskq._told_attempt IS 'internal: tries of the history, each once';

-- Each part has the id in it, so that a condition on that gets to the tables. `seed` is always one of the two, and in no
-- index.
CREATE VIEW taskq.attempts AS
SELECT t.id AS task_id, h.num_try, h.actor_id, h.started_at, h.ended_at, h.outcome, h.status
  FROM taskq._told_attempt AS h
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) h.task_no
 WHERE t.seed IN (true, false)
UNION ALL
SELECT t.id, s.tries, s.actor_id, s.granted_at, s.settled_at,
       CASE WHEN s.code = 'c' THEN 'completed' WHEN s.cause = 't' THEN 'timeout'
            WHEN s.cause = 'c' THEN 'cancelled' ELSE 'aborted' END,
       s.status
  FROM taskq.settled AS s
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) s.task_no
 WHERE s.granted_at IS NOT NULL AND t.seed IN (true, false)
   -- A last try that was revoked is shown by its own row.
   AND NOT (s.cause = 'x' AND EXISTS (SELECT FROM taskq.attempt AS h
                                       WHERE h.task_no = s.task_no AND h.started_at = s.granted_at AND h.outcome = 'revoked'))
UNION ALL
SELECT t.id, r.tries, r.actor_id, r.granted_at, NULL, 'in-progress',
       (SELECT p.status FROM taskq.progress AS p WHERE p.task_no = r.task_no)
  FROM taskq.run AS r
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) r.task_no
 -- One that is set aside has passed its deadline.
 WHERE r.nonce <> 0 AND NOT r.grantable AND r.aside IS NULL AND t.seed IN (true, false);
COMMENT ON VIEW taskq.attempts IS 'tries of tasks, as far as they are kept: worker, from when to when, and how each ended';

CREATE VIEW taskq.steps AS
SELECT t.id AS task_id, s.position, s.name AS step, s.num_try, s.result, s.saved_at
  FROM taskq.step AS s
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) s.task_no
 WHERE t.seed IN (true, false);
COMMENT ON VIEW taskq.steps IS 'results that durable tasks have saved, step by step';

CREATE VIEW taskq.dead_ends AS
SELECT t.id AS task_id,
       a.name AS action,
       t.group_id,
       t.body,
       taskq._cause(s.cause) AS cause,
       s.status,
       s.result,
       s.tries AS num_tries,
       s.actor_id,
       t.inserted_at,
       s.settled_at,
       NULLIF(s.expires_at, 'infinity') AS kept_until,
       -- Worked out only if it is asked for.
       (SELECT COALESCE(jsonb_agg(jsonb_build_object(
                   'num_try', x.num_try, 'actor_id', x.actor_id, 'started_at', x.started_at, 'ended_at', x.ended_at,
                   'outcome', x.outcome, 'status', x.status) ORDER BY x.started_at, x.num_try), '[]')
          FROM taskq.attempts AS x WHERE x.task_id = t.id) AS attempts
  FROM taskq.settled AS s
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) s.task_no
  JOIN taskq.action AS a ON a.action_no = t.action_no
 WHERE s.code = 'a' AND s.cause <> 'k';
COMMENT ON VIEW taskq.dead_ends IS
    'tasks that have aborted, without those that were skipped: why, and what became of their tries';

CREATE VIEW taskq.workgroups AS
SELECT n.name AS workgroup,
       w.not_before,
       COALESCE(w.not_before > taskq.clock(), false) AS held_back
  FROM (SELECT w.name FROM taskq.workgroup AS w
        UNION SELECT t.workgroup FROM taskq.task AS t WHERE t.workgroup IS NOT NULL) AS n
  LEFT JOIN taskq.workgroup AS w ON w.name = n.name;
COMMENT ON VIEW taskq.workgroups IS 'workgroups and until when they are held back';

CREATE VIEW taskq.unique_keys AS
SELECT k.action,
       k.key,
       t.id AS task_id,
       p.state,
       -- A rider has begun with its leader.
       CASE WHEN p.leader_no IS NOT NULL AND p.state IN ('ready', 'scheduled') THEN 8
            ELSE CASE p.state WHEN 'blocked' THEN 1 WHEN 'scheduled' THEN 2 WHEN 'ready' THEN 4 WHEN 'in-progress' THEN 8
                              WHEN 'completed' THEN 16 ELSE 32 END END & t.unique_states <> 0
           AND (t.unique_until IS NULL OR taskq.clock() < t.unique_until) AS held,
       t.unique_until AS held_until
  FROM taskq.unique_key AS k
  JOIN taskq.task AS t ON t.task_no OPERATOR(taskq.===) k.task_no
  JOIN taskq._places AS p ON p.task_no OPERATOR(taskq.===) k.task_no
 WHERE p.applies
   AND CASE WHEN p.held_back IS NULL THEN true
            ELSE p.held_back = (t.workgroup IS NOT NULL
                                AND EXISTS (SELECT FROM taskq.workgroup AS w
                                             WHERE w.name = t.workgroup AND w.not_before > taskq.clock())) END;
COMMENT ON VIEW taskq.unique_keys IS 'keys of unique tasks: which task was inserted with one last, and whether it holds it';

CREATE FUNCTION taskq.count_tasks(
        actions text[] = NULL,
        ids text[] = NULL,
        groups text[] = NULL,
        states text[] = NULL)
    RETURNS TABLE (action text, state text, count bigint)
    LANGUAGE plpgsql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 20
    SET search_path = pg_catalog, pg_temp SET jit = off SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
    known CONSTANT text[] := '{blocked,scheduled,ready,in-progress,completed,aborted}';
BEGIN
    IF states IS NOT NULL THEN
        PERFORM taskq._check_words('states', ARRAY(SELECT u.s FROM unnest(states) AS u(s) WHERE u.s IS NOT NULL), known);
    END IF;
    IF ids IS NULL AND groups IS NULL THEN
        RETURN QUERY
        SELECT a.name, c.state, sum(c.number)::bigint
          -- Neither half is read where none of its states is asked for.
          FROM (SELECT l.action_no, l.state, l.number
                  FROM taskq._live() AS l WHERE states IS NULL OR states && '{blocked,scheduled,ready,in-progress}'
                UNION ALL
                SELECT e.action_no, CASE e.code WHEN 'c' THEN 'completed' ELSE 'aborted' END, e.number
                  FROM taskq._ended() AS e WHERE states IS NULL OR states && '{completed,aborted}') AS c
         CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = c.action_no OFFSET 0) AS a
         WHERE (actions IS NULL OR a.name = ANY (actions)) AND (states IS NULL OR c.state = ANY (states))
         GROUP BY a.name, c.state
        HAVING sum(c.number) > 0
         ORDER BY a.name, c.state;
    ELSE
        RETURN QUERY
        SELECT t.action, t.state, count(*)
          FROM taskq.tasks AS t
         WHERE (actions IS NULL OR t.action = ANY (actions))
           AND (ids IS NULL OR t.id = ANY (ids))
           AND (groups IS NULL OR t.group_id = ANY (groups))
           AND (states IS NULL OR t.state = ANY (states))
         GROUP BY t.action, t.state
         ORDER BY t.action, t.state;
    END IF;
END
$$;
COMMENT ON FUNCTION taskq.count_tasks IS
    'number of tasks per action and state; a NULL argument does not filter';

-- The reasons in words, one a row.
CREATE FUNCTION taskq.why(task_id text)
    RETURNS SETOF text
    LANGUAGE plpgsql STABLE SECURITY DEFINER COST 1000 ROWS 5
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
AS $$
#variable_conflict use_variable
DECLARE
    t taskq.tasks%ROWTYPE;
    number bigint;
    d record;
    n bigint;
    its_lane bigint;
    its_max_tries integer;
    last_grant timestamptz;
    origin bigint;
    steps integer := 0;
    is_signal boolean := false;
BEGIN
    IF task_id IS NULL THEN
        RAISE EXCEPTION 'argument "task_id" must not be NULL'
            USING ERRCODE = '22004', DETAIL = 'NULL was given for "task_id".', HINT = 'Give the id of a task.';
    END IF;
    SELECT x.* INTO t FROM taskq.tasks AS x WHERE x.id = task_id;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'task "%" does not exist', pg_catalog.left(task_id, 300)
            USING ERRCODE = 'TQ003',
                  DETAIL = 'It was never inserted, or it was deleted, or its retention is over.',
                  HINT = 'Check the id; taskq.tasks shows the tasks there are.';
    END IF;
    SELECT x.task_no INTO number FROM taskq.task AS x WHERE x.id = task_id;
    its_max_tries := COALESCE(t.max_tries, (SELECT s.max_tries FROM taskq.action_setting AS s WHERE s.name = t.action),
                              NULLIF(current_setting('taskq.max_tries', true)::integer, -1));

    IF t.state IN ('completed', 'aborted') THEN
        RETURN NEXT format('it %s at %s%s', CASE WHEN t.state = 'completed' THEN 'completed'
                                                 WHEN t.cause = 'skipped' THEN 'was aborted, as skipped,' ELSE 'was aborted' END,
                           t.settled_at, COALESCE(': ' || t.status, ''));
        IF EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = number AND s.cause = 'm') THEN
            RETURN NEXT format('it did not run itself: %s with the same merge key "%s" ran for it',
                               COALESCE('"' || t.merged_into || '"', 'a task that is gone'), t.merge_key);
        END IF;
        -- One look-up per edge (OFFSET 0): the planner is not to join all tasks first.
        FOR d IN SELECT o.id AS after, CASE e.condition WHEN 'c' THEN 'completed' ELSE 'aborted' END AS condition,
                        s.code, s.cause
                   FROM taskq.dependency AS e
                  CROSS JOIN LATERAL (SELECT s.code, s.cause FROM taskq.settled AS s WHERE s.task_no = e.after_no OFFSET 0) AS s
                  CROSS JOIN LATERAL (SELECT o.id FROM taskq.task AS o WHERE o.task_no = e.after_no OFFSET 0) AS o
                  WHERE e.run_no = number AND t.state = 'aborted' AND e.counts <> 'd'
                    AND ((e.condition = 'c' AND s.code = 'a') OR (e.condition = 'a' AND s.code = 'c'))
                  ORDER BY o.id LIMIT 20
        LOOP
            RETURN NEXT format('its dependency "%s" %s, and it runs only if that is %s', d.after,
                               CASE WHEN d.code <> 'a' THEN 'completed' WHEN d.cause = 'k' THEN 'was skipped'
                                    ELSE 'was aborted' END, d.condition);
        END LOOP;
        -- What it began with, where that lies further up: from each to the first dependency that it has lost.
        origin := number;
        WHILE steps < 1000 AND EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = origin AND s.cause IN ('d', 'k')) LOOP
            SELECT e.after_no INTO n
              FROM taskq.dependency AS e
             CROSS JOIN LATERAL (SELECT s.code FROM taskq.settled AS s WHERE s.task_no = e.after_no OFFSET 0) AS s
             WHERE e.run_no = origin AND e.counts <> 'd'
               AND ((e.condition = 'c' AND s.code = 'a') OR (e.condition = 'a' AND s.code = 'c'))
             ORDER BY e.after_no LIMIT 1;
            EXIT WHEN NOT FOUND;
            origin := n;
            steps := steps + 1;
        END LOOP;
        IF steps > 1 THEN
            RETURN NEXT (SELECT format('it began with "%s", which %s%s', o.id,
                                       CASE s.code WHEN 'a' THEN 'was aborted' ELSE 'completed' END, COALESCE(': ' || s.status, ''))
                           FROM taskq.settled AS s JOIN taskq.task AS o ON o.task_no = s.task_no WHERE s.task_no = origin);
        END IF;
        IF t.state = 'aborted' AND t.num_tries >= its_max_tries THEN
            RETURN NEXT format('no tries are left: %s of %s are used up', t.num_tries, its_max_tries);
        END IF;
        RETURN;
    END IF;

    IF t.state = 'in-progress' THEN
        RETURN NEXT format('it is in progress: actor "%s" has owned it since %s, %s', t.actor_id, t.owned_at,
                           CASE WHEN t.action_deadline IS NULL THEN 'without a deadline'
                                WHEN t.action_deadline <= taskq.clock() THEN
                                    format('and its deadline passed at %s: the next own_tasks for "%s" may take it over',
                                           t.action_deadline, t.action)
                                ELSE format('until %s', t.action_deadline) END);
        RETURN;
    END IF;

    IF t.state = 'blocked' THEN
        FOR d IN SELECT b.since, b.until, o.signal, b.remaining, o.num_required
                   FROM taskq.blocked AS b
                  CROSS JOIN LATERAL (SELECT o.signal, o.num_required FROM taskq.task AS o WHERE o.task_no = b.task_no OFFSET 0) AS o
                  WHERE b.task_no = number
        LOOP
            is_signal := d.signal;
            IF d.since IS NOT NULL THEN
                RETURN NEXT format('it is suspended since %s%s', d.since, COALESCE(', and goes on at ' || d.until || ' at the latest', ''));
            END IF;
            IF d.signal THEN
                RETURN NEXT format('it is a signal: it waits for taskq.signal(%L)', t.id);
            END IF;
            IF d.num_required IS NOT NULL AND d.since IS NULL THEN
                RETURN NEXT format(CASE WHEN d.num_required <= t.total_dependencies THEN 'it needs %s of its %s dependencies: %s more'
                                        ELSE 'it needs %s dependencies; %s are left, and others that it had are gone: %s more' END,
                                   d.num_required, t.total_dependencies, d.remaining);
            END IF;
        END LOOP;
        FOR d IN SELECT y.id AS after, y.state, y.actor_id, y.action_deadline, u.waits,
                        CASE u.condition WHEN 'c' THEN 'completed' WHEN 's' THEN 'settled' ELSE 'aborted' END AS condition
                   FROM (SELECT e.after_no, e.condition, count(*) OVER () AS waits
                           FROM taskq.dependency AS e
                          WHERE e.run_no = number AND e.counts = 'w'
                            AND NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = e.after_no OFFSET 0)
                          ORDER BY e.after_no LIMIT 20) AS u
                  CROSS JOIN LATERAL (SELECT o.id FROM taskq.task AS o WHERE o.task_no = u.after_no OFFSET 0) AS o
                  CROSS JOIN LATERAL (SELECT y.* FROM taskq.tasks AS y WHERE y.id = o.id OFFSET 0) AS y
                  ORDER BY u.after_no
        LOOP
            RETURN NEXT format('it waits for "%s" to be %s, which is %s%s', d.after, d.condition, d.state,
                               CASE WHEN d.state = 'in-progress' THEN
                                    format(' (actor "%s"%s)', d.actor_id, COALESCE(', until ' || d.action_deadline, ''))
                                    ELSE '' END);
            n := d.waits;
        END LOOP;
        IF n > 20 THEN
            RETURN NEXT format('it waits for %s more tasks; see taskq.dependencies', n - 20);
        END IF;
        IF n IS NULL AND NOT is_signal THEN
            RETURN NEXT 'its last dependencies have settled just now; the next call of the queue frees it';
        END IF;
    END IF;

    -- Of one that has been granted the row may still be there.
    IF t.num_tries = 0 AND t.num_releases = 0 THEN
        FOR d IN SELECT x.due, CASE WHEN y.signal THEN 'signalled' ELSE 'granted' END AS done
                   FROM taskq.expiry AS x JOIN taskq.task AS y ON y.task_no = x.task_no WHERE x.task_no = number
        LOOP
            RETURN NEXT CASE WHEN d.due > taskq.clock() THEN format('it expires at %s, unless it is %s before', d.due, d.done)
                             ELSE format('it expired at %s; the next call of the queue aborts it', d.due) END;
        END LOOP;
    END IF;

    FOR d IN SELECT w.name, w.not_before FROM taskq.workgroup AS w
              WHERE w.name = t.workgroup AND w.not_before > taskq.clock()
    LOOP
        RETURN NEXT format('its workgroup "%s" is held back until %s', d.name, d.not_before);
    END LOOP;

    IF t.not_before > taskq.clock() THEN
        RETURN NEXT CASE WHEN t.spontaneous THEN format('it completes by itself at %s', t.not_before)
                         ELSE format('it is not to be owned before %s', t.not_before) END;
    END IF;

    IF t.state = 'ready' THEN
        FOR d IN SELECT CASE k.kind
                        WHEN 'g' THEN format('its group "%s" is paused', k.name)
                        WHEN 'k' THEN format('a task with the same merge key "%s" runs: "%s"', k.key,
                                             (SELECT y.id FROM taskq.merge_key AS m JOIN taskq.task AS y ON y.task_no = m.holder_no
                                               WHERE m.action = k.action AND m.group_id = k.name AND m.key = k.key))
                        ELSE format('it shares the end of "%s", which has the same merge key',
                                    (SELECT y.id FROM taskq.task AS y WHERE y.task_no = k.leader_no)) END AS reason
                   FROM taskq.parked AS k WHERE k.task_no = number
                 UNION ALL
                 -- What is set aside in its place, or has not been met by a claim.
                 SELECT CASE WHEN r.aside < 0
                             THEN format('it shares the end of "%s", which has the same merge key',
                                         (SELECT y.id FROM taskq.task AS y WHERE y.task_no = -r.aside))
                             ELSE (SELECT format('a task with the same merge key "%s" runs: "%s"', m.key, y.id)
                                     FROM taskq.task AS me
                                     JOIN taskq.action AS a ON a.action_no = me.action_no
                                     JOIN taskq.merge_key AS m ON m.action = a.name AND m.key = me.merge_key
                                                              AND m.group_id = COALESCE(me.group_id, '')
                                     JOIN taskq.task AS y ON y.task_no = m.holder_no
                                    WHERE me.task_no = number) END
                   FROM taskq.run AS r
                  WHERE r.task_no = number
                    AND (r.aside < 0 OR EXISTS (SELECT FROM taskq.task AS me
                                                  JOIN taskq.action AS a ON a.action_no = me.action_no
                                                  JOIN taskq.merge_key AS m ON m.action = a.name AND m.key = me.merge_key
                                                                           AND m.group_id = COALESCE(me.group_id, '')
                                                 WHERE me.task_no = number AND m.holder_no <> number))
                 UNION ALL
                 SELECT format('its group "%s" is paused', g.group_id) FROM taskq.task_group AS g
                  WHERE g.group_id = t.group_id AND g.paused
                    AND NOT EXISTS (SELECT FROM taskq.parked AS k WHERE k.task_no = number)
                 UNION ALL
                 SELECT format('its action "%s" is paused', a.action) FROM taskq.actions AS a
                  WHERE a.action = t.action AND a.paused
                 UNION ALL
                 SELECT format('the limit of its action is full: %s of %s tasks are in progress%s',
                               a.slots_held, a.max_concurrency,
                               ', held by ' || (SELECT string_agg(DISTINCT format('"%s"', r.actor_id), ', ')
                                                  FROM taskq.slot AS l JOIN taskq.run AS r ON r.task_no = l.task_no
                                                 WHERE l.group_id = '' AND l.name = a.action))
                   FROM taskq.actions AS a
                  WHERE a.action = t.action AND a.slots_held >= a.max_concurrency
                 UNION ALL
                 -- The limits of its group: in its action, and of its own.
                 SELECT format('the limit of its group "%s"%s is full: %s of %s tasks are in progress%s',
                               t.group_id, m.what, h.held, m.most, ', held by ' || h.actors)
                   FROM (SELECT a.action AS name, ' in its action' AS what, a.max_per_group AS most
                           FROM taskq.actions AS a WHERE a.action = t.action
                         UNION ALL
                         SELECT '', '', g.max_concurrency FROM taskq.task_group AS g WHERE g.group_id = t.group_id) AS m
                  CROSS JOIN LATERAL (
                        SELECT count(*) AS held, string_agg(DISTINCT format('"%s"', r.actor_id), ', ') AS actors
                          FROM taskq.slot AS l JOIN taskq.run AS r ON r.task_no = l.task_no
                         WHERE l.group_id = t.group_id AND l.name = m.name) AS h
                  WHERE h.held >= m.most
                 UNION ALL
                 SELECT format('the rate limit of its action (%s per %s) is used up; the next may go at %s',
                               a.rate_limit, a.rate_period,
                               b.measured_at + (1 - b.level) / a.rate_limit * EXTRACT(epoch FROM a.rate_period)
                                               * interval '1 second')
                   FROM taskq.actions AS a
                   JOIN taskq.bucket AS b ON b.name = a.action
                  WHERE a.action = t.action
                    AND b.level + EXTRACT(epoch FROM taskq.clock() - b.measured_at) * a.rate_limit
                                  / EXTRACT(epoch FROM a.rate_period) < 1
        LOOP
            RETURN NEXT d.reason;
        END LOOP;
        IF t.num_tries > 0 THEN
            RETURN NEXT format('it was given back after try %s%s%s', t.num_tries,
                               COALESCE(' of ' || its_max_tries, ''), COALESCE(': ' || t.status, ''));
        END IF;
        IF t.num_releases > 0 THEN
            RETURN NEXT format('it was given back %s without the try being counted%s',
                               CASE t.num_releases WHEN 1 THEN 'once' ELSE t.num_releases || ' times' END,
                               CASE WHEN t.num_tries = 0 THEN COALESCE(': ' || t.status, '') ELSE '' END);
        END IF;
        -- What is in the lane of a group goes by the order of that lane.
        its_lane := COALESCE((SELECT r.lane FROM taskq.run AS r WHERE r.task_no = number), 0);
        SELECT count(*) INTO n
          FROM (SELECT FROM taskq.run AS me
                 CROSS JOIN LATERAL (
                       SELECT FROM taskq.run AS r
                        WHERE its_lane = 0 AND r.action_no = me.action_no AND r.lane = 0 AND r.grantable
                          AND (r.priority > me.priority OR (r.priority = me.priority AND r.position < me.position))
                       UNION ALL
                       SELECT FROM taskq.run AS r
                        WHERE its_lane <> 0 AND r.action_no = me.action_no AND r.lane = me.lane AND r.lane <> 0
                          AND r.grantable
                          AND (r.priority > me.priority OR (r.priority = me.priority AND r.position < me.position))) AS r
                 WHERE me.task_no = number
                 LIMIT 1000) AS ahead;
        -- A transaction that has changed or locked a row has its id in xmax, and holds a lock on that id, unless the id is that
        -- of a savepoint that has been released. (Where several have locked the row, xmax has another kind of number, which as a
        -- rule is no transaction's that is in progress.) A transaction that only makes another task depend on the row's has
        -- locked it, too.
        FOR d IN SELECT l.pid
                   FROM (SELECT r.xmax::text::bigint AS id FROM taskq.run AS r WHERE r.task_no = number
                         UNION ALL
                         SELECT s.xmax::text::bigint FROM taskq.scheduled AS s WHERE s.task_no = number) AS x
                  CROSS JOIN (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS latest) AS n
                  -- How far behind what has ended last; transactions that began after that are ahead.
                  CROSS JOIN LATERAL (SELECT ((n.latest - x.id + 2147483648) & 4294967295) - 2147483648 AS behind) AS b
                   LEFT JOIN pg_locks AS l ON l.locktype = 'transactionid' AND l.transactionid::text::bigint = x.id AND l.granted
                  WHERE x.id <> 0 AND l.pid IS DISTINCT FROM pg_backend_pid()
                    AND CASE WHEN b.behind > 0 AND n.latest > b.behind
                             THEN pg_xact_status((n.latest - b.behind)::text::xid8) = 'in progress'
                             ELSE b.behind > -1000000 END
        LOOP
            RETURN NEXT format('a transaction that is open has it in hand%s: it may have been granted there and not committed, or the transaction is changing it, or has another task depend on it',
                               COALESCE(' (pid ' || d.pid || ')', ''));
        END LOOP;
        RETURN NEXT format('it is ready, with %s before it among the tasks of its %s',
                           CASE WHEN n >= 1000 THEN '1000 or more' ELSE n::text END,
                           CASE its_lane WHEN 0 THEN 'action' ELSE 'group in its action' END);
        -- Among what stands first in the queue and the last thousand tasks that have settled: enough, as a rule, to
        -- see whether a worker asks for the action, without reading all that is settled.
        SELECT max(x.granted_at) INTO last_grant
          FROM (SELECT r.granted_at FROM taskq.action AS a
                 CROSS JOIN LATERAL ((SELECT r.granted_at FROM taskq.run AS r
                                       WHERE r.action_no = a.action_no AND r.lane = 0
                                       ORDER BY r.priority DESC, r.position LIMIT 1000)
                                     UNION ALL
                                     (SELECT r.granted_at FROM taskq.run AS r
                                       WHERE r.action_no = a.action_no AND r.lane <> 0
                                       ORDER BY r.priority DESC, r.lane, r.position LIMIT 1000)) AS r
                 WHERE a.name = t.action
                UNION ALL
                SELECT s.granted_at
                  FROM (SELECT s.action_no, s.granted_at FROM taskq.settled AS s
                         ORDER BY s.settled_at DESC LIMIT 1000) AS s
                  JOIN taskq.action AS a ON a.action_no = s.action_no
                 WHERE a.name = t.action) AS x;
        RETURN NEXT CASE WHEN last_grant IS NULL
                         THEN format('no recent grant of a task of action "%s" is to be seen', t.action)
                         ELSE format('the last grant of a task of action "%s" was at %s', t.action, last_grant) END;
        RETURN NEXT taskq._who_asks(t.action);
    END IF;
END
$$;
COMMENT ON FUNCTION taskq.why IS 'why a task is not running (or how it ended), one reason a row';

CREATE FUNCTION taskq.dependency_results(task_id text)
    RETURNS TABLE (task_id text, action text, status_code taskq.status_code, status text, result jsonb)
    LANGUAGE sql STABLE PARALLEL SAFE SECURITY DEFINER COST 100 ROWS 10
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT t.id, t.name, CASE s.code WHEN 'c' THEN 'completed' ELSE 'aborted' END::taskq.status_code,
               s.status, s.result
          FROM taskq.task AS me
         CROSS JOIN LATERAL (SELECT d.after_no, d.condition FROM taskq.dependency AS d
                              WHERE d.run_no OPERATOR(taskq.===) me.task_no AND d.counts <> 'd' OFFSET 0) AS d
         CROSS JOIN LATERAL (SELECT s.code, s.status, s.result FROM taskq.settled AS s
                              WHERE s.task_no = d.after_no OFFSET 0) AS s
         CROSS JOIN LATERAL (SELECT t.id, a.name FROM taskq.task AS t, taskq.action AS a
                              WHERE t.task_no = d.after_no AND a.action_no = t.action_no OFFSET 0) AS t
         WHERE me.id = dependency_results.task_id
         ORDER BY d.after_no;
    END;
COMMENT ON FUNCTION taskq.dependency_results IS
    'what the settled dependencies of a task left, in the order in which they were inserted';

CREATE FUNCTION taskq.check()
    RETURNS TABLE (problem text, task_id text, detail text)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 100000 ROWS 1
    SET search_path = pg_catalog, pg_temp
    -- It reads whole tables, and statistics may be those of an empty queue: each part reads its tables as a whole, and joins them
    -- by hash or by merge, whatever they say. So nothing in here may be looked up per row: no LATERAL to a table, no EXISTS that is
    -- not a condition by itself.
    SET enable_nestloop = off SET enable_hashjoin = on SET enable_mergejoin = on SET enable_sort = on
    SET enable_seqscan = on SET jit = off
    BEGIN ATOMIC
        -- A task is in exactly one place.
        SELECT 'task is in ' || x.places || ' places', x.id, 'run, blocked, scheduled, parked, settled'
          FROM (SELECT t.id,
                       (r.task_no IS NOT NULL)::integer + (b.task_no IS NOT NULL)::integer
                       + (d.task_no IS NOT NULL)::integer + (k.task_no IS NOT NULL)::integer
                       + (s.task_no IS NOT NULL)::integer AS places
                  FROM taskq.task AS t
                  LEFT JOIN taskq.run AS r ON r.task_no = t.task_no
                  LEFT JOIN taskq.blocked AS b ON b.task_no = t.task_no
                  LEFT JOIN taskq.scheduled AS d ON d.task_no = t.task_no
                  LEFT JOIN taskq.parked AS k ON k.task_no = t.task_no
                  LEFT JOIN taskq.settled AS s ON s.task_no = t.task_no) AS x
         WHERE x.places <> 1
        UNION ALL
        -- All numbers are of this shard.
        SELECT 'task has a number of another shard', t.id, t.task_no::text
          FROM taskq.task AS t
         WHERE t.task_no >> 48 <> (SELECT p.last_value >> 48 FROM taskq.position_seq AS p)
        UNION ALL
        -- Live rows and edges belong to tasks.
        SELECT 'row without a task', NULL, x.place || ' ' || x.task_no
          FROM (SELECT 'run' AS place, r.task_no FROM taskq.run AS r
                UNION ALL SELECT 'blocked', b.task_no FROM taskq.blocked AS b
                UNION ALL SELECT 'scheduled', d.task_no FROM taskq.scheduled AS d
                UNION ALL SELECT 'parked', k.task_no FROM taskq.parked AS k
                UNION ALL SELECT 'dependency', e.after_no FROM taskq.dependency AS e
                UNION ALL SELECT 'dependency', e.run_no FROM taskq.dependency AS e
                UNION ALL SELECT 'step', s.task_no FROM taskq.step AS s
                UNION ALL SELECT 'expiry', y.task_no FROM taskq.expiry AS y) AS x
         WHERE NOT EXISTS (SELECT FROM taskq.task AS t WHERE t.task_no = x.task_no)
        UNION ALL
        -- What has ended does not expire, and what completes by itself is known as such while it waits for its time.
        SELECT 'settled task that expires', t.id, y.due::text
          FROM taskq.expiry AS y
          JOIN taskq.settled AS s ON s.task_no = y.task_no
          JOIN taskq.task AS t ON t.task_no = y.task_no
        UNION ALL
        SELECT 'scheduled task is wrongly a timer, or none', t.id, d.due::text
          FROM taskq.scheduled AS d
          JOIN taskq.task AS t ON t.task_no = d.task_no
         WHERE d.timer <> t.spontaneous
        UNION ALL
        -- What a blocked task has left to count is what has not settled of this wait, and signals that are not counted yet.
        SELECT 'wrong count of dependencies', t.id,
               'remaining ' || b.remaining || ', to spare ' || b.spare || ', deferred ' || COALESCE(f.signals, 0)
               || ', unsettled ' || COALESCE(e.unsettled, 0)
          FROM taskq.blocked AS b
          JOIN taskq.task AS t ON t.task_no = b.task_no
          LEFT JOIN (SELECT g.run_no, g.wait_no, sum(g.satisfied + g.lost) AS signals
                       FROM taskq.signal AS g GROUP BY g.run_no, g.wait_no) AS f
            ON f.run_no = b.task_no AND f.wait_no = b.wait_no
          LEFT JOIN (SELECT e.run_no, e.wait_no, count(*) AS unsettled
                       FROM taskq.dependency AS e
                      WHERE e.counts = 'w' AND NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = e.after_no)
                      GROUP BY e.run_no, e.wait_no) AS e ON e.run_no = b.task_no AND e.wait_no = b.wait_no
         WHERE b.remaining + b.spare - COALESCE(f.signals, 0) <> COALESCE(e.unsettled, 0)
        UNION ALL
        -- What is in `run`, parked or scheduled waits for nothing.
        SELECT 'task has an unsettled dependency but is not blocked', t.id, after.id
          FROM taskq.dependency AS e
          JOIN taskq.task AS t ON t.task_no = e.run_no
          JOIN taskq.task AS after ON after.task_no = e.after_no
          JOIN (SELECT r.task_no FROM taskq.run AS r
                UNION ALL SELECT k.task_no FROM taskq.parked AS k
                UNION ALL SELECT d.task_no FROM taskq.scheduled AS d) AS x ON x.task_no = e.run_no
         WHERE NOT EXISTS (SELECT FROM taskq.settled AS s WHERE s.task_no = e.after_no)
           -- What it was suspended for may start over when it has long gone on.
           AND NOT e.suspending
           -- It keeps what it has counted of one that started over without it, or has gone on without it.
           AND e.counts = 'w'
        UNION ALL
        -- A dependency that was lost has aborted the task that waited, unless some of its dependencies suffice.
        SELECT 'task waits although a dependency is lost', t.id, after.id
          FROM taskq.dependency AS e
          JOIN taskq.settled AS s ON s.task_no = e.after_no
          JOIN taskq.task AS t ON t.task_no = e.run_no
          JOIN taskq.task AS after ON after.task_no = e.after_no
         WHERE ((e.condition = 'c' AND s.code = 'a') OR (e.condition = 'a' AND s.code = 'c'))
           AND t.num_required IS NULL
           AND e.counts = 'w'
           AND NOT EXISTS (SELECT FROM taskq.settled AS z WHERE z.task_no = e.run_no)
           AND NOT EXISTS (SELECT FROM taskq.signal AS g WHERE g.run_no = e.run_no AND g.lost > 0)
        UNION ALL
        -- A task that the queue or a signal completes is never in a worker's hands.
        SELECT CASE WHEN t.signal THEN 'signal is not blocked and not settled'
                    ELSE 'spontaneous task is ready or in progress' END, t.id, NULL
          FROM taskq.task AS t
          JOIN (SELECT r.task_no, true AS ready FROM taskq.run AS r
                UNION ALL SELECT k.task_no, true FROM taskq.parked AS k
                UNION ALL SELECT d.task_no, false FROM taskq.scheduled AS d) AS x ON x.task_no = t.task_no
         WHERE t.signal OR t.spontaneous AND x.ready
        UNION ALL
        -- What is held with a deadline has a lease, which ends the try once it has passed.
        SELECT 'deadline without a lease', t.id, r.deadline::text
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.nonce <> 0 AND NOT r.grantable AND r.aside IS NULL AND r.deadline < 'infinity'
           AND NOT EXISTS (SELECT FROM (SELECT n.task_no, l.base # n.task_no AS nonce, l.deadline, l.keeper_no
                                          FROM taskq.lease AS l
                                         CROSS JOIN LATERAL unnest(l.keeper_no || l.others) AS n(task_no)) AS l
                            WHERE l.task_no = r.task_no AND l.nonce = r.nonce
                              AND (l.deadline = r.deadline OR l.keeper_no = r.task_no AND l.deadline > r.deadline))
        UNION ALL
        SELECT 'task is neither held nor grantable', t.id, NULL
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.nonce = 0 AND NOT r.grantable AND r.aside IS NULL
        UNION ALL
        -- What is set aside is not held, and has a reason, or a lease after which it is tried again.
        SELECT 'task set aside although it is held', t.id, NULL
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.aside IS NOT NULL AND (r.grantable OR r.limited OR r.keyed)
        UNION ALL
        SELECT 'task set aside without a reason', t.id, r.aside::text
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
          JOIN taskq.action AS a ON a.action_no = t.action_no
         WHERE r.aside IS NOT NULL
           AND NOT CASE WHEN r.aside < 0
                   THEN EXISTS (SELECT FROM taskq.run AS l WHERE l.task_no = -r.aside AND l.keyed)
                   ELSE EXISTS (SELECT FROM taskq.task_group AS g WHERE g.group_id = t.group_id AND g.paused)
                     OR EXISTS (SELECT FROM taskq.merge_key AS m
                                 WHERE m.action = a.name AND m.group_id = COALESCE(t.group_id, '')
                                   AND m.key = t.merge_key AND m.holder_no IS NOT NULL) END
           AND NOT EXISTS (SELECT FROM taskq.lease AS l
                            WHERE l.keeper_no = r.task_no AND (l.base # r.task_no) = r.nonce)
        UNION ALL
        -- A rider has no token.
        SELECT 'rider with a token', t.id, NULL
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.aside < 0 AND r.nonce <> 0
        UNION ALL
        -- What is held is held by a performance.
        SELECT 'slot of a task that is not held', t.id, l.name || ' ' || l.group_id || ' ' || l.slot_no
          FROM taskq.slot AS l
          LEFT JOIN taskq.task AS t ON t.task_no = l.task_no
         WHERE l.task_no IS NOT NULL
           AND NOT EXISTS (SELECT FROM taskq.run AS r WHERE r.task_no = l.task_no AND r.limited AND NOT r.grantable)
        UNION ALL
        SELECT 'limited task without a slot', t.id, NULL
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.limited AND NOT EXISTS (SELECT FROM taskq.slot AS l WHERE l.task_no = r.task_no)
        UNION ALL
        SELECT 'slot of a limit that is not the task''s', t.id, l.name || ' ' || l.group_id || ' ' || l.slot_no
          FROM taskq.slot AS l
          JOIN taskq.task AS t ON t.task_no = l.task_no
          JOIN taskq.action AS a ON a.action_no = t.action_no
         WHERE l.name NOT IN ('', a.name) OR (l.group_id <> '' AND l.group_id IS DISTINCT FROM t.group_id)
        UNION ALL
        SELECT 'two slots of one limit', t.id, l.name || ' ' || l.group_id
          FROM taskq.slot AS l
          JOIN taskq.task AS t ON t.task_no = l.task_no
         GROUP BY t.id, l.name, l.group_id HAVING count(*) > 1
        UNION ALL
        SELECT 'two slots with one number', NULL, l.name || ' ' || l.group_id || ' ' || l.slot_no
          FROM taskq.slot AS l
         GROUP BY l.name, l.group_id, l.slot_no HAVING count(*) > 1
        UNION ALL
        -- A lane is that of a group.
        SELECT 'lane that is not of its group', t.id, r.lane::text
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE r.lane <> 0 AND r.lane IS DISTINCT FROM taskq._lane(t.group_id)
        UNION ALL
        SELECT 'merge key held by a task that is not held', t.id, m.key
          FROM taskq.merge_key AS m
          LEFT JOIN taskq.task AS t ON t.task_no = m.holder_no
         WHERE m.holder_no IS NOT NULL
           AND NOT EXISTS (SELECT FROM taskq.run AS r WHERE r.task_no = m.holder_no AND r.keyed AND NOT r.grantable)
        UNION ALL
        -- What runs with a key has it, and entries with a key are found by it.
        SELECT 'task runs without its merge key', t.id, t.merge_key
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE t.merge_key IS NOT NULL AND r.aside IS NULL AND NOT r.grantable
           AND NOT EXISTS (SELECT FROM taskq.merge_key AS m WHERE m.holder_no = r.task_no)
        UNION ALL
        SELECT 'wrong number of a merge key', t.id, t.merge_key
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
          JOIN taskq.action AS a ON a.action_no = t.action_no
         WHERE r.key_hash IS DISTINCT FROM taskq._key_hash(a.name, t.group_id, t.merge_key)
        UNION ALL
        SELECT 'merge key that has no row', t.id, t.merge_key
          FROM taskq.task AS t
          JOIN taskq.action AS a ON a.action_no = t.action_no
         WHERE t.merge_key IS NOT NULL
           AND NOT EXISTS (SELECT FROM taskq.merge_key AS m
                            WHERE m.action = a.name AND m.group_id = COALESCE(t.group_id, '') AND m.key = t.merge_key)
        UNION ALL
        -- What is parked has a reason.
        SELECT 'task parked without a reason', t.id, k.kind::text || ' ' || COALESCE(k.name, k.leader_no::text)
          FROM taskq.parked AS k
          JOIN taskq.task AS t ON t.task_no = k.task_no
          LEFT JOIN taskq.task_group AS g ON g.group_id = k.name AND g.paused
          LEFT JOIN taskq.merge_key AS m ON m.action = k.action AND m.group_id = k.name AND m.key = k.key AND m.holder_no IS NOT NULL
          LEFT JOIN taskq.run AS r ON r.task_no = k.leader_no AND r.keyed
         WHERE NOT CASE k.kind WHEN 'g' THEN g.group_id IS NOT NULL
                               WHEN 'k' THEN m.key IS NOT NULL
                               ELSE r.task_no IS NOT NULL END
        UNION ALL
        -- The tallies of what has settled add up to what there is.
        SELECT 'wrong tally of an action', NULL,
               format('%s %s%s: %s instead of %s', a.name, COALESCE(y.code, x.code), COALESCE(y.cause, x.cause),
                      COALESCE(y.number, 0), COALESCE(x.number, 0))
          FROM (SELECT e.action_no, e.code, e.cause, e.number FROM taskq._ended() AS e) AS y
          FULL JOIN (SELECT s.action_no, s.code, s.cause, count(*) AS number
                       FROM taskq.settled AS s WHERE s.cause <> 'r' GROUP BY s.action_no, s.code, s.cause) AS x
            ON x.action_no = y.action_no AND x.code = y.code AND x.cause = y.cause
          JOIN taskq.action AS a ON a.action_no = COALESCE(y.action_no, x.action_no)
         WHERE COALESCE(y.number, 0) <> COALESCE(x.number, 0)
        UNION ALL
        -- A counter knows the action of its task.
        SELECT 'counter of another action', t.id, NULL
          FROM (SELECT b.task_no, b.action_no FROM taskq.blocked AS b
                UNION ALL SELECT k.task_no, k.action_no FROM taskq.parked AS k) AS x
          JOIN taskq.task AS t ON t.task_no = x.task_no
         WHERE x.action_no <> t.action_no
        UNION ALL
        -- The tallies of groups add up to what there is.
        SELECT 'wrong tally of a group', NULL,
               COALESCE(y.group_id, x.group_id) || ': ' || COALESCE(y.numbers, 'none') || ' instead of ' || COALESCE(x.numbers, 'none')
          FROM (SELECT g.group_id, sum(g.tasks) || '/' || sum(g.completed) || '/' || sum(g.aborted) || '/' || sum(g.skipped) AS numbers
                  FROM taskq.group_tally AS g GROUP BY g.group_id
                HAVING sum(g.tasks) <> 0 OR sum(g.completed) <> 0 OR sum(g.aborted) <> 0 OR sum(g.skipped) <> 0) AS y
          FULL JOIN (SELECT t.group_id, count(*) || '/' || count(*) FILTER (WHERE s.code = 'c') || '/'
                            || count(*) FILTER (WHERE s.code = 'a' AND s.cause <> 'k') || '/'
                            || count(*) FILTER (WHERE s.cause = 'k') AS numbers
                       FROM taskq.task AS t LEFT JOIN taskq.settled AS s ON s.task_no = t.task_no
                      WHERE t.group_id IS NOT NULL GROUP BY t.group_id) AS x ON x.group_id = y.group_id
         WHERE y.numbers IS DISTINCT FROM x.numbers
        UNION ALL
        SELECT 'settled task without its group', t.id, t.group_id
          FROM taskq.settled AS s
          JOIN taskq.task AS t ON t.task_no = s.task_no
         WHERE s.grouped <> (t.group_id IS NOT NULL)
        UNION ALL
        -- A unique key points to a task that has it, or to one that is gone.
        SELECT 'unique key points to a task without it', t.id, k.action || ' ' || k.key
          FROM taskq.unique_key AS k
          JOIN taskq.task AS t ON t.task_no = k.task_no
          JOIN taskq.action AS a ON a.action_no = t.action_no
         WHERE (k.action, k.key) IS DISTINCT FROM (a.name, t.unique_key)
        UNION ALL
        -- Claiming looks at the task's own action and priority.
        SELECT 'claiming row differs from its task', t.id, NULL
          FROM taskq.run AS r
          JOIN taskq.task AS t ON t.task_no = r.task_no
         WHERE (r.action_no, r.priority) IS DISTINCT FROM (t.action_no, t.priority);
    END;
COMMENT ON FUNCTION taskq.check IS 'contradictions in the stored state; no row means that it is sound';
-- taskq: at a glance. What is wrong, and what goes on per action: by looks along indexes, at tallies and at samples, most of them bounded.

-- An interval in a word: of four characters at most, if it is shorter than a thousand years.
CREATE FUNCTION taskq._age(age interval)
    RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE WHEN s < 0.0995 THEN round(GREATEST(s, 0) * 1000) || 'ms' WHEN s < 9.95 THEN round(s, 1) || 's'
                    WHEN s < 99.5 THEN round(s) || 's'
                    WHEN s < 99.5 * 60 THEN round(s / 60) || 'm' WHEN s < 47.5 * 3600 THEN round(s / 3600) || 'h'
                    WHEN s < 999.5 * 86400 THEN round(s / 86400) || 'd' ELSE round(s / 31557600) || 'y' END
          FROM (SELECT EXTRACT(epoch FROM age) AS s) AS x;
    END;
COMMENT ON FUNCTION taskq._age IS 'internal: an interval in a word';

-- A number from 0 up in at most four characters, if it is below 999.5 thousand million.
CREATE FUNCTION taskq._short(number double precision)
    RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE WHEN number < 9.95 AND number <> round(number) THEN round(number::numeric, 1)::text
                    WHEN number < 999.5 THEN round(number)::text
                    WHEN number < 9950 THEN round((number / 1e3)::numeric, 1) || 'k'
                    WHEN number < 999500 THEN round(number / 1e3) || 'k'
                    WHEN number < 9.95e6 THEN round((number / 1e6)::numeric, 1) || 'M'
                    WHEN number < 999.5e6 THEN round(number / 1e6) || 'M'
                    ELSE round(number / 1e9) || 'G' END;
    END;
COMMENT ON FUNCTION taskq._short IS 'internal: a number in few characters';

-- The same; an estimate has a sign that says so: at most five characters with that, or four where it is to be narrow.
CREATE FUNCTION taskq._roughly(number double precision, exact boolean, narrow boolean)
    RETURNS text
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE WHEN exact THEN taskq._short(number)
                    WHEN NOT narrow OR length(taskq._short(number)) <= 3 THEN '~' || taskq._short(number)
                    WHEN number < 9950 THEN '~' || round(number / 1e3) || 'k'
                    WHEN number < 950e3 THEN '~.' || GREATEST(round(number / 1e5), 1) || 'M'
                    WHEN number < 99.5e6 OR number BETWEEN 950e6 AND 999.5e6 THEN '~' || round(number / 1e6) || 'M'
                    ELSE '~.' || GREATEST(round(number / 1e8), 1) || 'G' END;
    END;
COMMENT ON FUNCTION taskq._roughly IS 'internal: a number that may be an estimate, in at most four or five characters';

-- Tries of the history that are shown, by outcome: of very many an estimate. Each that ended with its deadline is looked up in
-- three places, so that the sample has a tenth of the pages here.
CREATE FUNCTION taskq._about_tries()
    RETURNS TABLE (outcome text, number bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 5
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_indexscan = on SET enable_nestloop = on SET enable_hashagg = on
    SET enable_memoize = off
    BEGIN ATOMIC
        WITH size AS MATERIALIZED (
                SELECT s.pages, s.pages <= taskq._sampled_pages() / 10 AS whole
                  FROM (SELECT taskq._pages('taskq.attempt') AS pages) AS s)
        SELECT a.outcome, count(*) FROM taskq._told_attempt AS a WHERE (SELECT s.whole FROM size AS s) GROUP BY a.outcome
        UNION ALL
        SELECT x.outcome, round(sum(x.number) * 10 * min(x.pages) / taskq._sampled_pages())::bigint
          FROM (SELECT h.outcome, h.number, s.pages
                  FROM size AS s
                 CROSS JOIN LATERAL taskq._sample(s.pages, taskq._sampled_pages()) WITH ORDINALITY AS p(first, behind, i)
                 CROSS JOIN LATERAL (
                       SELECT h.outcome, count(*) AS number
                         FROM taskq.attempt AS h
                        WHERE h.ctid >= p.first AND h.ctid < p.behind
                          -- As in taskq._told_attempt.
                          AND (h.outcome <> 'timeout'
                               OR NOT EXISTS (SELECT FROM taskq.attempt AS l
                                               WHERE l.task_no = h.task_no AND l.started_at = h.started_at
                                                 AND (l.outcome <> 'timeout' OR l.ended_at > h.ended_at)
                                              UNION ALL
                                              SELECT FROM taskq.settled AS l
                                               WHERE l.task_no = h.task_no AND l.granted_at = h.started_at
                                              UNION ALL
                                              SELECT FROM taskq.run AS l
                                               WHERE l.task_no = h.task_no AND l.granted_at = h.started_at
                                                 AND l.nonce <> 0 AND NOT l.grantable AND l.aside IS NULL
                                              OFFSET 0))
                        GROUP BY h.outcome OFFSET 0) AS h
                 WHERE NOT s.whole AND p.i % 10 = 5) AS x
         GROUP BY x.outcome;
    END;
COMMENT ON FUNCTION taskq._about_tries IS 'internal: about how many tries the history shows, by outcome';

-- What has ended, kept or not, in this time up to now: from the tallies, and row by row what is not sealed, 100,000 at most.
CREATE FUNCTION taskq._ends(within interval)
    RETURNS TABLE (action_no integer, code "char", cause "char", at timestamptz, number bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 1000
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    BEGIN ATOMIC
        SELECT y.action_no, y.code, y.cause, y.span, CASE WHEN y.span < e.until THEN y.ended ELSE y.ended - y.number END
          FROM taskq.end_tally AS y
         CROSS JOIN (SELECT COALESCE(min(e.until), '-infinity') AS until FROM taskq.seal AS e) AS e
         WHERE y.span > (SELECT taskq.clock()) - within
        UNION ALL
        (SELECT s.action_no, s.code, s.cause, s.settled_at, 1
           FROM taskq.settled AS s
          WHERE s.settled_at >= COALESCE((SELECT e.until FROM taskq.seal AS e), '-infinity')
            AND s.settled_at > (SELECT taskq.clock()) - within AND s.cause <> 'r'
          ORDER BY s.settled_at DESC LIMIT 100000);
    END;
COMMENT ON FUNCTION taskq._ends IS 'internal: tasks that have ended lately, in numbers';

-- Of a hundred of those that settled in this time.
CREATE FUNCTION taskq._times(since timestamptz, within interval)
    RETURNS TABLE (waiting double precision[], running double precision[])
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 1
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        SELECT percentile_cont('{0.5,0.99}'::double precision[])
                   WITHIN GROUP (ORDER BY date_part('epoch', s.granted_at - t.inserted_at)),
               percentile_cont('{0.5,0.99}'::double precision[])
                   WITHIN GROUP (ORDER BY date_part('epoch', s.settled_at - s.granted_at))
          FROM (SELECT s.task_no, s.granted_at, s.settled_at FROM taskq.settled AS s
                 WHERE s.settled_at >= since AND s.settled_at < since + within AND s.granted_at IS NOT NULL
                 ORDER BY s.settled_at LIMIT 100) AS s
         CROSS JOIN LATERAL (SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = s.task_no OFFSET 0) AS t;
    END;
COMMENT ON FUNCTION taskq._times IS
    'internal: medians and 99th percentiles, in seconds, of how long tasks that settled then had waited and run';

-- How fast tasks come and end. Those that come are the newest in `task`, 20,000 at most: where there were more in the last five
-- minutes, their pace is that of these. Waits and runs are those of the last 2,000 of the last hour that have ended after a grant.
CREATE FUNCTION taskq._pace()
    RETURNS TABLE (action_no integer, came double precision, ended double precision, ended_hour bigint, lost_hour bigint,
                   waiting double precision[], running double precision[], worked bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = on
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        WITH newest AS MATERIALIZED (
                SELECT t.action_no, t.inserted_at FROM taskq.task AS t
                 WHERE t.inserted_at > (SELECT taskq.clock()) - interval '5 minutes' ORDER BY t.inserted_at DESC LIMIT 20000),
             reach AS MATERIALIZED (
                SELECT CASE WHEN count(*) < 20000 THEN 5
                            ELSE GREATEST(EXTRACT(epoch FROM (SELECT taskq.clock()) - min(n.inserted_at)) / 60, 1.0 / 60) END
                           ::double precision AS minutes
                  FROM newest AS n),
             recent AS MATERIALIZED (
                SELECT s.task_no, s.action_no, s.settled_at, s.granted_at FROM taskq.settled AS s
                 WHERE s.settled_at > (SELECT taskq.clock()) - interval '1 hour' AND s.granted_at IS NOT NULL
                 ORDER BY s.settled_at DESC LIMIT 2000),
             ended AS MATERIALIZED (SELECT e.action_no, e.code, e.cause, e.at, e.number FROM taskq._ends('1 hour') AS e)
        SELECT x.action_no, sum(x.came), sum(x.ended), sum(x.ended_hour)::bigint, sum(x.lost_hour)::bigint,
               min(x.waiting), min(x.running), sum(x.worked)::bigint
          FROM (SELECT n.action_no, count(*) / (SELECT r.minutes FROM reach AS r) AS came, 0::double precision AS ended,
                       0::numeric AS ended_hour, 0::numeric AS lost_hour,
                       NULL::double precision[] AS waiting, NULL::double precision[] AS running, 0::numeric AS worked
                  FROM newest AS n GROUP BY n.action_no
                UNION ALL
                SELECT e.action_no, 0, COALESCE(sum(e.number) FILTER (WHERE e.at > (SELECT taskq.clock()) - interval '5 minutes'), 0) / 5.0,
                       COALESCE(sum(e.number) FILTER (WHERE e.cause <> 'k'), 0),
                       COALESCE(sum(e.number) FILTER (WHERE e.code = 'a' AND e.cause IN ('w', 't', 'x')), 0), NULL, NULL,
                       -- What expires, or is cancelled, takes no worker.
                       COALESCE(sum(e.number) FILTER (WHERE e.cause IN ('w', 't', 'x', 'm')
                                                        AND e.at > (SELECT taskq.clock()) - interval '5 minutes'), 0)
                  FROM ended AS e GROUP BY e.action_no
                UNION ALL
                SELECT r.action_no, 0, 0, 0, 0,
                       percentile_cont('{0.5,0.99}'::double precision[])
                           WITHIN GROUP (ORDER BY date_part('epoch', r.granted_at - t.inserted_at)),
                       percentile_cont('{0.5,0.99}'::double precision[])
                           WITHIN GROUP (ORDER BY date_part('epoch', r.settled_at - r.granted_at)), 0
                  FROM recent AS r
                 CROSS JOIN LATERAL (SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = r.task_no OFFSET 0) AS t
                 GROUP BY r.action_no) AS x
         GROUP BY x.action_no;
    END;
COMMENT ON FUNCTION taskq._pace IS
    'internal: tasks of an action that come and end in a minute (of the last five); that ended (but for skipped ones), and that aborted by a try, in the last hour; times; that ended in the last five minutes and had a worker, or rode on a task that had';

-- What is first in the queue of each action, and what stands before it: shows a task that comes back late, an action for
-- which no worker asks, and a task that a worker has held without a deadline for a day or longer.
CREATE FUNCTION taskq._heads()
    RETURNS TABLE (action_no integer, task_no bigint, inserted_at timestamptz, in_hand boolean, unleased bigint[], crowded boolean)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 1000 ROWS 100
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        -- Groups whose limit is used up by tasks that are in a worker's hands.
        WITH full_group AS MATERIALIZED (
                SELECT l.group_id
                  FROM taskq.slot AS l
                 CROSS JOIN LATERAL (SELECT r.deadline FROM taskq.run AS r WHERE r.task_no = l.task_no OFFSET 0) AS r
                 WHERE l.name = '' AND l.group_id <> '' AND l.task_no IS NOT NULL AND r.deadline > (SELECT taskq.clock())
                 GROUP BY l.group_id
                HAVING count(*) >= (SELECT g.max_concurrency FROM taskq.task_group AS g WHERE g.group_id = l.group_id))
        SELECT a.action_no, h.task_no, h.inserted_at, h.in_hand, h.unleased, h.crowded
          FROM taskq.action AS a
         CROSS JOIN LATERAL (
               -- The oldest of the first hundred in no lane and of a hundred in lanes (by priority, then lane after lane), but for what its
               -- group or workgroup holds back. What has been overdue for long waits as what is ready does.
               SELECT min(x.task_no) FILTER (WHERE x.inserted_at IS NOT NULL) AS task_no,
                      min(x.inserted_at) AS inserted_at,
                      -- A performance whose deadline has passed is in no worker's hands, whether its try has been
                      -- ended or not.
                      bool_or(NOT x.grantable AND x.nonce <> 0 AND x.deadline > (SELECT taskq.clock())) AS in_hand,
                      array_agg(x.task_no) FILTER (WHERE x.nonce <> 0 AND x.deadline = 'infinity'
                                                   AND x.granted_at < (SELECT taskq.clock()) - interval '1 day') AS unleased,
                      count(*) >= 100 AS crowded
                 FROM (SELECT r.task_no, r.grantable, r.nonce, r.deadline, r.granted_at,
                              (SELECT t.inserted_at FROM taskq.task AS t
                                WHERE t.task_no = r.task_no
                                  AND (r.grantable OR r.nonce <> 0 AND r.deadline <= (SELECT taskq.clock()) - interval '5 minutes')
                                  AND NOT EXISTS (SELECT FROM taskq.task_group AS g
                                                   WHERE r.gated AND g.group_id = t.group_id AND (g.paused OR g.max_concurrency = 0))
                                  AND NOT COALESCE(r.gated AND t.group_id IN (SELECT f.group_id FROM full_group AS f), false)
                                  AND NOT EXISTS (SELECT FROM taskq.workgroup AS w
                                                   WHERE r.gated AND w.name = t.workgroup AND w.not_before > (SELECT taskq.clock()))) AS inserted_at
                         FROM ((SELECT r.task_no, r.grantable, r.gated, r.nonce, r.deadline, r.granted_at FROM taskq.run AS r
                                 WHERE r.action_no = a.action_no AND r.lane = 0
                                 ORDER BY r.priority DESC, r.position LIMIT 100)
                               UNION ALL
                               (SELECT r.task_no, r.grantable, r.gated, r.nonce, r.deadline, r.granted_at FROM taskq.run AS r
                                 WHERE r.action_no = a.action_no AND r.lane <> 0
                                 ORDER BY r.priority DESC, r.lane, r.position LIMIT 100)) AS r) AS x) AS h
         WHERE h.task_no IS NOT NULL OR h.unleased IS NOT NULL;
    END;
COMMENT ON FUNCTION taskq._heads IS
    'internal: which task to be granted of an action was inserted first, of those that come next, whether some are in progress, and which for long; and whether there may be more';

CREATE FUNCTION taskq.health()
    RETURNS TABLE (severity text, problem text, advice text, kind text, subject text, since timestamptz)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 5
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on
    BEGIN ATOMIC
        WITH now AS MATERIALIZED (SELECT taskq.clock() AS at, clock_timestamp() AS wall),
             heads AS MATERIALIZED (SELECT h.action_no, h.task_no, h.inserted_at, h.in_hand, h.unleased, h.crowded FROM taskq._heads() AS h),
             -- Grouped and not joined, which would take each with each: there may be thousands of actions.
             pace AS MATERIALIZED (
                SELECT x.action_no, sum(x.came) AS came, sum(x.ended) AS ended, sum(x.ended_hour)::bigint AS ended_hour,
                       sum(x.lost_hour)::bigint AS lost_hour, min(x.task_no) AS task_no, min(x.inserted_at) AS inserted_at,
                       bool_or(x.in_hand) AS in_hand, bool_or(x.crowded) AS crowded, sum(x.worked) AS worked
                  FROM (SELECT p.action_no, p.came, p.ended, p.ended_hour, p.lost_hour, p.worked,
                               NULL::bigint AS task_no, NULL::timestamptz AS inserted_at, NULL::boolean AS in_hand, NULL::boolean AS crowded
                          FROM taskq._pace() AS p
                        UNION ALL
                        SELECT h.action_no, 0, 0, 0, 0, 0, h.task_no, h.inserted_at, h.in_hand, h.crowded FROM heads AS h) AS x
                 GROUP BY x.action_no),
             -- Of which a task has a deadline ahead, wherever in the queue it stands.
             leased AS MATERIALIZED (
                SELECT DISTINCT r.action_no
                  FROM (SELECT l.base, l.keeper_no || l.others AS task_nos FROM taskq.lease AS l
                         WHERE l.deadline > (SELECT n.at FROM now AS n)
                         ORDER BY l.deadline LIMIT 10000) AS l
                 CROSS JOIN LATERAL unnest(l.task_nos) AS u(task_no)
                 CROSS JOIN LATERAL (SELECT r.action_no FROM taskq.run AS r
                                      WHERE r.task_no = u.task_no AND r.nonce = l.base # u.task_no AND NOT r.grantable
                                        AND r.deadline > (SELECT n.at FROM now AS n) OFFSET 0) AS r),
             -- Held without a deadline for long: of what comes next in each action, and of what was inserted first of all.
             unleased AS MATERIALIZED (
                SELECT r.action_no, count(*) AS number, min(r.granted_at) AS since,
                       (array_agg(r.actor_id ORDER BY r.granted_at))[1] AS actor
                  FROM (SELECT u.task_no FROM heads AS h CROSS JOIN LATERAL unnest(h.unleased) AS u(task_no)
                        UNION
                        SELECT o.task_no
                          FROM (SELECT r.task_no, r.nonce, r.deadline, r.granted_at FROM taskq.run AS r
                                 ORDER BY r.task_no LIMIT 2000) AS o
                         WHERE o.nonce <> 0 AND o.deadline = 'infinity'
                           AND o.granted_at < (SELECT n.at FROM now AS n) - interval '1 day') AS u
                 CROSS JOIN LATERAL (SELECT r.action_no, r.granted_at, r.actor_id FROM taskq.run AS r
                                      WHERE r.task_no = u.task_no OFFSET 0) AS r
                 GROUP BY r.action_no),
             -- What goes on by itself as long as there are calls.
             late AS MATERIALIZED (
                SELECT x.what, x.number, x.since
                  FROM (SELECT 'schedules' AS what, count(*) AS number, min(s.next_at) AS since
                          FROM (SELECT s.next_at FROM taskq.schedule AS s, now AS n
                                 WHERE s.next_at <= n.at - interval '1 minute' ORDER BY s.next_at LIMIT 1000) AS s
                        UNION ALL
                        SELECT 'tasks whose retention is over', count(*), min(s.expires_at)
                          FROM (SELECT s.expires_at FROM taskq.settled AS s
                                 WHERE s.expires_at <= (SELECT n.at FROM now AS n) - interval '10 minutes'
                                 ORDER BY s.expires_at LIMIT 1000) AS s
                        UNION ALL
                        SELECT 'tasks whose time has come', count(*), min(d.due)
                          FROM taskq.action AS a
                         CROSS JOIN LATERAL (SELECT d.due FROM taskq.scheduled AS d
                                              WHERE d.action_no = a.action_no
                                                AND d.due <= (SELECT n.at FROM now AS n) - interval '1 minute'
                                              ORDER BY d.due LIMIT 100) AS d
                         WHERE NOT EXISTS (SELECT FROM taskq.action_setting AS s WHERE s.name = a.name AND s.paused)) AS x
                 WHERE x.number > 0),
             overdue AS MATERIALIZED (
                SELECT r.action_no, count(*) AS number, min(r.deadline) AS since,
                       (array_agg(r.actor_id ORDER BY r.deadline))[1] AS actor
                  FROM (SELECT l.base, l.keeper_no || l.others AS task_nos FROM taskq.lease AS l
                         WHERE l.deadline <= (SELECT n.at FROM now AS n) - interval '5 seconds'
                         ORDER BY l.deadline LIMIT 1000) AS l
                 CROSS JOIN LATERAL unnest(l.task_nos) AS u(task_no)
                 CROSS JOIN LATERAL (SELECT r.action_no, r.deadline, r.actor_id FROM taskq.run AS r
                                      WHERE r.task_no = u.task_no AND r.nonce = l.base # u.task_no AND NOT r.grantable
                                        AND r.deadline <= (SELECT n.at FROM now AS n) - interval '5 seconds' OFFSET 0) AS r
                 GROUP BY r.action_no),
             asking AS MATERIALIZED (SELECT s.pid, s.action_no, s.for_any FROM taskq._asking AS s),
             asked AS MATERIALIZED (SELECT s.action_no, count(DISTINCT s.pid) AS number FROM asking AS s
                                     WHERE s.action_no IS NOT NULL GROUP BY s.action_no),
             -- A hundred that most calls ask for.
             named AS MATERIALIZED (
                SELECT array_agg(x.name ORDER BY x.number DESC, x.name) AS names, array_agg(x.number ORDER BY x.number DESC, x.name) AS numbers
                  FROM (SELECT a.name, max(s.number) AS number FROM asked AS s
                         CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = s.action_no OFFSET 0) AS a
                         GROUP BY a.name ORDER BY 2 DESC, 1 LIMIT 100) AS x),
             waiting AS MATERIALIZED (SELECT count(DISTINCT s.pid) AS number, count(DISTINCT s.pid) FILTER (WHERE s.for_any) AS for_any
                                        FROM asking AS s)
        SELECT x.severity, x.problem, x.advice, x.kind, x.subject, x.since
          FROM (
                -- Deadlines that have passed, and no call has ended these tries.
                SELECT CASE WHEN o.since < n.at - interval '10 minutes' THEN 'critical' ELSE 'warning' END AS severity,
                       CASE WHEN o.number = 1
                            THEN format('a task of action "%s" has been past its deadline for %s (actor "%s"), and no worker has taken it over',
                                        a.name, taskq._age(n.at - o.since), o.actor)
                            ELSE format('%s tasks of action "%s" are past their deadlines, the first for %s (actor "%s"), and no worker'
                                        ' has taken them over', o.number, a.name, taskq._age(n.at - o.since), o.actor) END AS problem,
                       'No worker calls own_tasks: start workers, call taskq.maintain() every minute, or load the background worker.' AS advice,
                       'overdue' AS kind, a.name AS subject, o.since
                  FROM overdue AS o CROSS JOIN now AS n
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = o.action_no OFFSET 0) AS a
                UNION ALL
                -- Ready, and no worker asks: nothing of it is in progress, nothing has ended
                -- lately. More than three names are compared for the first twenty alone: there may be thousands of actions.
                SELECT CASE WHEN h.inserted_at < n.at - interval '1 hour' THEN 'critical' ELSE 'warning' END,
                       format('no worker claims tasks of action "%s": one has been in the queue for %s, and %s', a.name, taskq._age(n.at - h.inserted_at),
                              taskq._asked_for(a.name, 'it', w.number, COALESCE((SELECT s.number FROM asked AS s WHERE s.action_no = h.action_no), 0),
                                               w.for_any,
                                               CASE WHEN row_number() OVER (ORDER BY h.inserted_at) <= 20 THEN m.names ELSE m.names[1:3] END,
                                               m.numbers)),
                       'Start workers that ask for this action, or pause or delete what is not wanted; taskq.why(id) tells of a task.',
                       'starving', a.name, h.inserted_at
                  FROM pace AS h CROSS JOIN now AS n CROSS JOIN waiting AS w CROSS JOIN named AS m
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = h.action_no OFFSET 0) AS a
                 WHERE h.inserted_at < n.at - interval '5 minutes' AND NOT h.in_hand AND h.worked = 0
                   -- Of those that come next there were more than have been looked at.
                   AND NOT CASE WHEN h.crowded THEN h.action_no IN (SELECT l.action_no FROM leased AS l)
                                                    OR EXISTS (SELECT FROM taskq._front(h.action_no) AS f WHERE f.in_progress AND f.deadline > n.at)
                                ELSE false END
                   AND NOT EXISTS (SELECT FROM taskq.action_setting AS s WHERE s.name = a.name AND (s.paused OR s.max_concurrency = 0))
                   -- A rate that is used up: the next grant is not due yet.
                   AND NOT EXISTS (SELECT FROM taskq.action_setting AS s JOIN taskq.bucket AS b ON b.name = s.name
                                    WHERE s.name = a.name
                                      AND b.level + extract(epoch FROM n.at - b.measured_at) * s.rate_limit
                                                    / extract(epoch FROM s.rate_period) < 1)
                UNION ALL
                -- No time gives it to another worker, whatever has become of the one that has it.
                SELECT 'notice',
                       CASE u.number WHEN 1
                            THEN format('a task of action "%s" has been held without a deadline for %s (actor "%s")',
                                        a.name, taskq._age(n.at - u.since), u.actor)
                            ELSE format('%s tasks of action "%s" are held without a deadline, the first for %s (actor "%s")',
                                        u.number, a.name, taskq._age(n.at - u.since), u.actor) END,
                       format('If that actor is gone, no other worker gets it: SELECT taskq.release_tasks(actors => ARRAY[%L]) makes what it held'
                              ' ready again. With a max_duration the queue does so by itself.', u.actor),
                       'unleased', a.name, u.since
                  FROM unleased AS u CROSS JOIN now AS n
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = u.action_no OFFSET 0) AS a
                UNION ALL
                -- More comes than ends, and it waits.
                SELECT 'warning',
                       format('the queue of action "%s" grows: %s tasks come and %s in a minute, and one has waited for %s',
                              a.name, taskq._short(p.came),
                              CASE taskq._short(p.ended) WHEN '1' THEN '1 ends' ELSE taskq._short(p.ended) || ' end' END,
                              taskq._age(n.at - p.inserted_at)),
                       'Add workers, or let each take more tasks at a time; look at limits and rates in taskq.actions.',
                       'growing', a.name, p.inserted_at
                  FROM pace AS p CROSS JOIN now AS n
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = p.action_no OFFSET 0) AS a
                 WHERE p.came > 1.2 * p.ended + 10 AND p.ended > 0 AND p.inserted_at < n.at - interval '1 minute'
                UNION ALL
                SELECT CASE WHEN p.lost_hour * 2 > p.ended_hour THEN 'critical' ELSE 'warning' END,
                       format('%s of %s tasks of action "%s" that ended in the last hour have aborted',
                              p.lost_hour, p.ended_hour, a.name),
                       'taskq.dead_ends tells why; mend it, and taskq.retry_tasks brings them back.',
                       'aborting', a.name, NULL
                  FROM pace AS p
                 CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = p.action_no OFFSET 0) AS a
                 WHERE p.lost_hour >= 5 AND p.lost_hour * 10 > p.ended_hour
                UNION ALL
                SELECT 'warning', format('schedule "%s" could not insert its last run: %s', s.name, s.problem),
                       'Mend the task of the schedule with taskq.schedule(), and try taskq.run_schedule().', 'schedule', s.name, NULL
                  FROM taskq.schedule AS s WHERE s.problem IS NOT NULL
                UNION ALL
                SELECT 'warning',
                       CASE WHEN l.number = 1
                            THEN format('a %s has been due for %s and is not handled',
                                        regexp_replace(l.what, '^(task|schedule)s', '\1'), taskq._age(n.at - l.since))
                            ELSE format('%s %s are due and not handled, the first for %s',
                                        CASE WHEN l.number >= 1000 THEN '1000 and more' ELSE l.number::text END,
                                        l.what, taskq._age(n.at - l.since)) END,
                       'No worker calls own_tasks, or only in long transactions: call taskq.maintain() every minute, or load the background worker.',
                       'late', l.what, l.since
                  FROM late AS l CROSS JOIN now AS n
                UNION ALL
                -- What is due while calls sleep is done by a background process, and the server has none left.
                SELECT 'warning',
                       format('no background process is free for what is due while calls sleep: %s are there', b.number),
                       'Raise max_worker_processes (now ' || current_setting('max_worker_processes') || ') and restart the server.',
                       'no_worker', 'max_worker_processes', NULL
                  FROM (SELECT count(*) AS number FROM pg_stat_activity AS s
                         WHERE s.backend_type NOT IN ('client backend', 'walsender', 'autovacuum launcher', 'autovacuum worker',
                                                      'checkpointer', 'background writer', 'walwriter', 'walsummarizer', 'archiver',
                                                      'startup', 'walreceiver', 'slotsync worker', 'io worker', 'logger')) AS b
                 CROSS JOIN LATERAL (SELECT count(*) AS number FROM pg_locks AS l
                                      WHERE l.locktype = 'advisory' AND l.objsubid = 29811 AND l.database = 0) AS p
                 WHERE (b.number >= current_setting('max_worker_processes')::int
                        OR p.number >= LEAST(GREATEST(current_setting('max_worker_processes')::int / 4, 1), 8))
                   AND current_setting('taskq.background_worker')::boolean
                   AND (EXISTS (SELECT FROM overdue) OR EXISTS (SELECT FROM late))
                   AND NOT EXISTS (SELECT FROM pg_stat_activity AS s
                                    WHERE s.datname = current_database() AND s.backend_type = 'taskq worker')
                UNION ALL
                -- What holds others up.
                SELECT CASE WHEN s.xact_start < n.wall - interval '1 hour' THEN 'critical' ELSE 'warning' END,
                       format('%s of %s (pid %s%s) has been open for %s and %s',
                              CASE WHEN s.state LIKE 'idle in transaction%' THEN 'an idle transaction' ELSE 'a transaction' END,
                              COALESCE(quote_ident(s.usename), 'an unknown user'), s.pid,
                              CASE WHEN s.application_name <> '' THEN ', ' || s.application_name ELSE '' END,
                              taskq._age(n.wall - s.xact_start),
                              CASE WHEN s.backend_xid IS NOT NULL THEN 'has written: claims walk further, and nothing is sealed'
                                   ELSE 'holds a snapshot: vacuum removes nothing that died since' END),
                       format('End it, or SELECT pg_terminate_backend(%s); idle_in_transaction_session_timeout ends such by itself.', s.pid),
                       CASE WHEN s.backend_xid IS NOT NULL THEN 'transaction' ELSE 'snapshot' END, s.pid::text, s.xact_start
                  FROM pg_stat_activity AS s CROSS JOIN now AS n
                 WHERE s.pid <> pg_backend_pid() AND s.backend_type IN ('client backend', 'background worker', 'walsender')
                   AND (s.backend_xid IS NOT NULL AND s.xact_start < n.wall - interval '5 minutes'
                        OR s.backend_xmin IS NOT NULL AND s.xact_start < n.wall - interval '15 minutes'
                           AND s.datname IS NOT DISTINCT FROM current_database())
                UNION ALL
                SELECT CASE WHEN x.prepared < n.wall - interval '1 hour' THEN 'critical' ELSE 'warning' END,
                       format('transaction "%s" was prepared %s ago and is still open', x.gid, taskq._age(n.wall - x.prepared)),
                       'COMMIT PREPARED or ROLLBACK PREPARED it; nothing else ends it.', 'transaction', x.gid, x.prepared
                  FROM pg_prepared_xacts AS x CROSS JOIN now AS n WHERE x.prepared < n.wall - interval '5 minutes'
                UNION ALL
                SELECT 'warning', format('replication slot "%s" holds back vacuum by %s transactions', s.slot_name, x.age),
                       'See that its consumer works, or drop the slot.', 'snapshot', s.slot_name, NULL
                  FROM pg_replication_slots AS s
                 CROSS JOIN LATERAL (SELECT GREATEST(age(s.xmin), age(s.catalog_xmin)) AS age) AS x
                 WHERE x.age > 10000000
                UNION ALL
                SELECT 'warning',
                       format('table taskq.%s has %s dead rows, and of live ones %s', c.relname,
                              taskq._short(pg_stat_get_dead_tuples(c.oid)), taskq._short(pg_stat_get_live_tuples(c.oid))),
                       'See that autovacuum runs and that nothing above holds it back; then VACUUM the table.', 'bloat', c.relname, NULL
                  FROM pg_class AS c
                 WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'r'
                   AND pg_stat_get_dead_tuples(c.oid) > 100000 + 2 * pg_stat_get_live_tuples(c.oid)
                UNION ALL
                SELECT CASE WHEN x.left < 0.05 THEN 'critical' ELSE 'warning' END,
                       format('only %s percent of the numbers for tasks are left', round(x.left * 100)),
                       'Move to a new queue, in another database or of another shard, before they are used up.', 'positions', NULL, NULL
                  -- Of the 48 bits that are a shard's own, and without those that no new task gets (src/token.rs).
                  FROM (SELECT GREATEST(1 - (p.last_value & 281474976710655)::numeric / 280375465082880, 0) AS left
                          FROM taskq.position_seq AS p) AS x
                 WHERE x.left < 0.2
                UNION ALL
                SELECT CASE WHEN x.age > 1500000000 THEN 'critical' ELSE 'warning' END,
                       format('the oldest transaction id of this database is %s transactions back, and about two thousand million is the end',
                              taskq._short(x.age)),
                       'VACUUM (FREEZE) what is oldest, and see what holds vacuum back.', 'transaction ids', NULL, NULL
                  FROM (SELECT age(d.datfrozenxid) AS age FROM pg_database AS d WHERE d.datname = current_database()) AS x
                 WHERE x.age > 2 * current_setting('autovacuum_freeze_max_age')::bigint OR x.age > 1500000000
                UNION ALL
                -- Of those that wait without a limit, the first thousand by their place in the index: the oldest, as a rule.
                SELECT 'notice',
                       format('%s suspended without a limit for longer than a week, %s since %s',
                              CASE b.number WHEN 1 THEN 'a task is' WHEN 1000 THEN '1000 tasks or more are' ELSE b.number || ' tasks are' END,
                              CASE b.number WHEN 1 THEN 'that is' ELSE 'the first' END, b.since),
                       'See taskq.waits for what they wait for; signal it, cancel them, or give wait_at_most the next time.',
                       'suspended', NULL, b.since
                  FROM (SELECT count(*) AS number, min(b.since) AS since
                          FROM (SELECT b.since FROM taskq.blocked AS b
                                 WHERE b.since IS NOT NULL AND b.until IS NULL ORDER BY b.until LIMIT 1000) AS b
                         WHERE b.since < (SELECT n.at FROM now AS n) - interval '7 days') AS b
                 WHERE b.number > 0
                UNION ALL
                SELECT 'warning', format('the server''s clock was put back by %s', taskq._age(e.mark_at - n.wall)),
                       'Mend the clock; if taskq.check() tells of wrong tallies after that, SELECT taskq.recount().', 'clock', NULL, NULL
                  FROM taskq.seal AS e CROSS JOIN now AS n WHERE e.mark_at > n.wall + interval '1 second'
                UNION ALL
                SELECT 'notice', format('this session has set the queue''s clock to %s', n.at), 'RESET taskq.now, unless this is a test.',
                       'clock', NULL, NULL
                  FROM now AS n WHERE abs(EXTRACT(epoch FROM n.at - n.wall)) > 60) AS x
         ORDER BY CASE x.severity WHEN 'critical' THEN 1 WHEN 'warning' THEN 2 ELSE 3 END, x.since, x.kind, x.subject;
    END;
COMMENT ON FUNCTION taskq.health IS 'what is wrong, a problem a row, the worst first, with what to do; no row: none is found';

-- What is in progress, for a list. Where `run` is large: what leases name, and what is at the fronts of 50 actions.
CREATE FUNCTION taskq._at_work(most integer)
    RETURNS TABLE (task_no bigint, actor_id text, granted_at timestamptz, deadline timestamptz, tries integer, number bigint, actors bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 50
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = on SET enable_nestloop = on SET enable_hashagg = on
    BEGIN ATOMIC
        WITH counted AS MATERIALIZED (SELECT taskq._pages('taskq.run') <= taskq._counted_pages() AS whole),
             named AS MATERIALIZED (
                SELECT l.task_no FROM counted AS c CROSS JOIN LATERAL taskq._leased() AS l WHERE NOT c.whole
                UNION
                SELECT f.task_no
                  FROM counted AS c
                 CROSS JOIN (SELECT a.action_no FROM taskq.action AS a ORDER BY a.action_no DESC LIMIT 50) AS a
                 CROSS JOIN LATERAL taskq._front(a.action_no) AS f
                 WHERE NOT c.whole AND f.in_progress),
             held AS MATERIALIZED (
                SELECT r.task_no, r.actor_id, r.granted_at, r.deadline, r.tries FROM taskq.run AS r
                 WHERE r.nonce <> 0 AND (SELECT c.whole FROM counted AS c)
                UNION ALL
                SELECT r.task_no, r.actor_id, r.granted_at, r.deadline, r.tries
                  FROM named AS n
                 CROSS JOIN LATERAL (SELECT r.task_no, r.actor_id, r.granted_at, r.deadline, r.tries FROM taskq.run AS r
                                      WHERE r.task_no = n.task_no AND r.nonce <> 0 OFFSET 0) AS r)
        SELECT h.task_no, h.actor_id, h.granted_at, h.deadline, h.tries,
               (SELECT count(*) FROM held), (SELECT count(DISTINCT x.actor_id) FROM held AS x)
          FROM held AS h ORDER BY h.granted_at, h.task_no LIMIT most;
    END;
COMMENT ON FUNCTION taskq._at_work IS 'internal: tasks in progress, the longest first, and how many are found';

-- Tasks of which a try was given back, or has passed its deadline, and another is to come; the last first. They are looked for among
-- the tries that stand last in their table, and, as those that wait for their time, among what is due first of 500 actions.
CREATE FUNCTION taskq._failing(most integer)
    RETURNS TABLE (task_no bigint, tries integer, due timestamptz, outcome text, status text, actor_id text, ended_at timestamptz, number bigint)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 50
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_tidscan = on SET enable_indexscan = on SET enable_seqscan = off SET enable_bitmapscan = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET enable_nestloop = on SET enable_hashagg = on SET enable_memoize = off
    BEGIN ATOMIC
        WITH named AS MATERIALIZED (
                SELECT h.task_no
                  FROM taskq.attempt AS h
                 WHERE h.ctid >= format('(%s,0)', GREATEST(taskq._pages('taskq.attempt') - 500, 0))::tid
                   AND h.outcome IN ('pending', 'timeout') AND NOT h.past
                UNION
                SELECT d.task_no
                  FROM (SELECT a.action_no FROM taskq.action AS a ORDER BY a.action_no DESC LIMIT 500) AS a
                 CROSS JOIN LATERAL (SELECT d.task_no, d.tries FROM taskq.scheduled AS d
                                      WHERE d.action_no = a.action_no ORDER BY d.action_no, d.due LIMIT 100) AS d
                 WHERE d.tries > 0),
             waiting AS MATERIALIZED (
                SELECT w.task_no, w.tries, w.due
                  FROM (SELECT n.task_no FROM named AS n ORDER BY n.task_no DESC LIMIT 10000) AS n
                 CROSS JOIN LATERAL (
                       SELECT d.task_no, d.tries, d.due FROM taskq.scheduled AS d WHERE d.task_no = n.task_no
                       UNION ALL
                       SELECT r.task_no, r.tries, NULL FROM taskq.run AS r
                        WHERE r.task_no = n.task_no AND (r.nonce = 0 OR r.grantable)
                       UNION ALL
                       SELECT k.task_no, k.tries, NULL FROM taskq.parked AS k WHERE k.task_no = n.task_no
                       OFFSET 0) AS w
                 WHERE w.tries > 0),
             failed AS MATERIALIZED (
                SELECT w.task_no, w.tries, w.due, h.outcome, h.status, h.actor_id, h.ended_at
                  FROM waiting AS w
                 CROSS JOIN LATERAL (SELECT h.outcome, h.status, h.actor_id, h.ended_at FROM taskq.attempt AS h
                                      WHERE h.task_no = w.task_no AND h.outcome IN ('pending', 'timeout') AND NOT h.past
                                      ORDER BY h.ended_at DESC LIMIT 1) AS h)
        SELECT f.task_no, f.tries, f.due, f.outcome, f.status, f.actor_id, f.ended_at, (SELECT count(*) FROM failed)
          FROM failed AS f ORDER BY f.ended_at DESC, f.task_no DESC LIMIT most;
    END;
COMMENT ON FUNCTION taskq._failing IS 'internal: tasks that were given back, or passed a deadline, and are to have another try, and how many are found';

-- What keeps ready tasks from being granted, busy merge keys aside: what was stopped on purpose, and limits that are
-- full.
CREATE FUNCTION taskq._stopped(most integer)
    RETURNS TABLE (what text, name text, of text, why text, until timestamptz)
    LANGUAGE sql STABLE PARALLEL UNSAFE SECURITY DEFINER COST 10000 ROWS 10
    SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_indexscan = on SET enable_seqscan = on SET enable_hashagg = on SET enable_nestloop = on
    BEGIN ATOMIC
        WITH now AS MATERIALIZED (SELECT taskq.clock() AS at)
        SELECT x.what, x.name, x.of, x.why, x.until
          FROM (SELECT 1 AS place, 'action' AS what, s.name, NULL::text AS of, 'paused' AS why, NULL::timestamptz AS until
                  FROM taskq.action_setting AS s WHERE s.paused
                UNION ALL
                SELECT 2, 'group', g.group_id, NULL, 'paused', NULL FROM taskq.task_group AS g WHERE g.paused
                UNION ALL
                SELECT 3, 'workgroup', w.name, NULL, 'held back', w.not_before FROM taskq.workgroup AS w
                 WHERE w.not_before > (SELECT n.at FROM now AS n)
                UNION ALL
                SELECT 4, 'action', s.name, NULL, format('%s of %s in progress', l.held, s.max_concurrency), NULL
                  FROM taskq.action_setting AS s
                 CROSS JOIN LATERAL (SELECT count(*) AS held FROM taskq.slot AS l
                                      WHERE l.group_id = '' AND l.name = s.name AND l.task_no IS NOT NULL) AS l
                 WHERE l.held >= s.max_concurrency
                UNION ALL
                SELECT 5, 'action', s.name, NULL, format('%s per %s are used up', s.rate_limit, taskq._age(s.rate_period)),
                       b.measured_at + (1 - b.level) / s.rate_limit * EXTRACT(epoch FROM s.rate_period) * interval '1 second'
                  FROM taskq.action_setting AS s
                 CROSS JOIN LATERAL (SELECT b.level, b.measured_at FROM taskq.bucket AS b WHERE b.name = s.name OFFSET 0) AS b
                 WHERE b.level + EXTRACT(epoch FROM (SELECT n.at FROM now AS n) - b.measured_at) * s.rate_limit
                                 / EXTRACT(epoch FROM s.rate_period) < 1
                UNION ALL
                SELECT 6, 'group', g.group_id, NULL, format('%s of %s in progress', l.held, g.max_concurrency), NULL
                  FROM taskq.task_group AS g
                 CROSS JOIN LATERAL (SELECT count(*) AS held FROM taskq.slot AS l
                                      WHERE l.group_id = g.group_id AND l.name = '' AND l.task_no IS NOT NULL) AS l
                 WHERE l.held >= g.max_concurrency
                UNION ALL
                SELECT 7, 'group', l.group_id, s.name, format('%s of %s in progress', l.held, s.max_per_group), NULL
                  FROM taskq.action_setting AS s
                 CROSS JOIN LATERAL (SELECT l.group_id, count(*) AS held FROM taskq.slot AS l
                                      WHERE l.name = s.name AND l.group_id <> '' AND l.task_no IS NOT NULL GROUP BY l.group_id) AS l
                 WHERE l.held >= s.max_per_group) AS x
         ORDER BY x.place, x.until, x.name, x.of LIMIT most;
    END;
COMMENT ON FUNCTION taskq._stopped IS 'internal: what is paused, held back, or at its limit';

CREATE FUNCTION taskq.page(graph_of text = NULL, title text = NULL, refresh interval = NULL)
    RETURNS text
    LANGUAGE c VOLATILE PARALLEL UNSAFE SECURITY DEFINER COST 100000
    SET search_path = pg_catalog, pg_temp
    AS 'MODULE_PATHNAME', 'taskq_page_wrapper';
COMMENT ON FUNCTION taskq.page IS
    'the queue at a glance as one HTML page, which a browser may load anew, with the graph of a task or group if one is named';

-- For \watch, in 100 columns; what is stuck comes first, what was stopped on purpose last. Long names are cut in the middle:
-- many begin alike.
CREATE VIEW taskq.top AS
SELECT CASE WHEN length(x.action) > 16 THEN left(x.action, 8) || chr(8230) || right(x.action, 7) ELSE x.action END AS action,
       rpad(repeat(chr(9608), CASE WHEN x.ready = 0 THEN 0 ELSE GREATEST(1, round(4 * ln(1 + x.ready) / NULLIF(ln(1 + max(x.ready) OVER ()), 0)))::integer END), 4)
           || lpad(taskq._roughly(x.ready, NOT 'ready' = ANY (x.estimates), false), 5) AS ready,
       lpad(taskq._roughly(x.busy, NOT 'in-progress' = ANY (x.estimates), true), 4) AS busy,
       lpad(taskq._roughly(x.blocked, NOT 'blocked' = ANY (x.estimates), false), 7) AS blocked,
       lpad(taskq._roughly(x.scheduled, NOT 'scheduled' = ANY (x.estimates), false), 5) AS later,
       lpad(COALESCE(x.stopped, taskq._age(taskq.clock() - x.oldest), ''), 6) AS oldest,
       lpad(taskq._short(x.came) || '/' || taskq._short(x.ended), 9) AS "in/out",
       lpad(COALESCE(taskq._age(x.waiting[1] * interval '1 second') || '/' || taskq._age(x.waiting[2] * interval '1 second'), ''), 9) AS wait,
       lpad(COALESCE(taskq._age(x.running[1] * interval '1 second') || '/' || taskq._age(x.running[2] * interval '1 second'), ''), 9) AS run
  FROM (SELECT a.name AS action,
               COALESCE(sum(y.number) FILTER (WHERE y.state = 'ready'), 0)::double precision AS ready,
               COALESCE(sum(y.number) FILTER (WHERE y.state = 'in-progress'), 0)::double precision AS busy,
               COALESCE(sum(y.number) FILTER (WHERE y.state = 'blocked'), 0)::double precision AS blocked,
               COALESCE(sum(y.number) FILTER (WHERE y.state = 'scheduled'), 0)::double precision AS scheduled,
               min((SELECT t.inserted_at FROM taskq.task AS t WHERE t.task_no = y.first)) FILTER (WHERE y.state = 'ready') AS oldest,
               COALESCE(array_agg(y.state) FILTER (WHERE NOT y.exact), '{}')
               -- Of these an action of which the sample has none may have some.
               || CASE WHEN taskq._pages('taskq.blocked') > taskq._counted_pages() / 3 THEN '{blocked}'::text[] END AS estimates,
               COALESCE(sum(y.came), 0) AS came,
               COALESCE(sum(y.ended), 0) AS ended,
               min(y.waiting) AS waiting,
               min(y.running) AS running,
               (SELECT CASE WHEN s.paused THEN 'paused' WHEN s.max_concurrency = 0 THEN 'closed' END
                  FROM taskq.action_setting AS s WHERE s.name = a.name) AS stopped
          FROM (SELECT l.action_no, l.state, l.number, l.first, l.exact, NULL::double precision AS came, NULL::double precision AS ended,
                       NULL::double precision[] AS waiting, NULL::double precision[] AS running
                  FROM taskq._about() AS l
                UNION ALL
                SELECT p.action_no, NULL, NULL, NULL, NULL, p.came, p.ended, p.waiting, p.running FROM taskq._pace() AS p) AS y
         CROSS JOIN LATERAL (SELECT a.name FROM taskq.action AS a WHERE a.action_no = y.action_no OFFSET 0) AS a
         GROUP BY a.name) AS x
 ORDER BY x.stopped IS NULL AND x.ready > 0 AND x.busy = 0 AND x.ended = 0 DESC, x.stopped IS NOT NULL, x.oldest NULLS LAST, x.action;
COMMENT ON VIEW taskq.top IS
    'per action in a terminal of 100 columns: ready, in progress, blocked and scheduled tasks, the oldest ready one (or that no worker gets any), tasks that come and end in a minute, waiting and running (median/99th percentile); what is stuck first; ~: an estimate';
-- taskq: rights. PUBLIC has none; a role gets a part of the functions and views with one call, and no table.

REVOKE ALL ON ALL ROUTINES IN SCHEMA taskq FROM PUBLIC;

-- What each part may call and read, in one place. The views run with the owner's rights. Of what is about tasks a narrowed part
-- has only what asks for their actions (src/rights.rs): no views, and nothing that reports on all tasks.
CREATE FUNCTION taskq._rights(part text)
    RETURNS TABLE (kind text, name text)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT CASE p.prokind WHEN 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END, p.oid::regprocedure::text
          FROM pg_catalog.pg_proc AS p
         WHERE p.pronamespace = 'taskq'::regnamespace
           AND (p.proname = '_is_' OPERATOR(pg_catalog.||) part
                -- Inserting.
                OR (part IN ('inserter', 'producer', 'worker', 'narrowed_inserter', 'narrowed_producer', 'narrowed_worker')
                    AND p.proname IN ('insert_task', 'insert_many', 'insert_tasks', 'insert_tasks_report',
                                      'chain', '_chain', 'parallel', '_parallel', 'chord', 'map'))
                OR (part IN ('producer', 'worker', 'narrowed_producer', 'narrowed_worker') AND p.proname = 'replace_tasks')
                -- Changing what is there.
                OR (part IN ('producer', 'worker', 'operator', 'narrowed_producer', 'narrowed_worker')
                    AND p.proname IN ('update_tasks', 'add_dependencies', 'cancel_tasks', 'delete_tasks', 'complete_task', 'signal',
                                      'retry_tasks', 'rerun_tasks', 'rewind_task', 'pause_group', 'resume_group', 'cancel_group', 'delete_group',
                                      'retry_group', 'reset_group'))
                -- Performing.
                OR (part IN ('worker', 'narrowed_worker')
                    AND p.proname IN ('own_tasks', 'extend_tasks_ownership', 'return_task', 'return_tasks',
                                      'return_and_own_tasks', 'report_status', 'save_step', 'wait_for_work', '_action_channels',
                                      '_look_for_work', '_left_behind'))
                -- Waiting for others, and what says nothing of tasks.
                OR (part NOT IN ('inserter', 'narrowed_inserter')
                    AND p.proname IN ('clock', 'shard', 'shard_of', 'task_channel', 'action_channel', 'wait_for_task', 'wait_for_tasks',
                                      '_task_channels', '_num_settled'))
                -- Looking.
                OR (part IN ('producer', 'worker', 'operator', 'monitor')
                    AND p.proname IN ('_body_json', '_same', '_many', '_about', '_pages', '_counted_pages', '_percentiles', '_ended', '_pace', '_age', '_short', '_roughly', '_status_code', '_cause', 'count_tasks', 'why', 'graph', 'ancestors', 'descendants',
                                      'critical_path', 'dependency_results'))
                OR (part IN ('operator', 'monitor') AND p.proname IN ('check', 'metrics', 'metrics_rows', 'health', 'page'))
                -- Administering.
                OR (part IN ('worker', 'operator') AND p.proname = 'maintain')
                OR (part = 'operator'
                    AND p.proname IN ('recount', 'set_action', 'set_group', 'pause_action', 'resume_action', 'forget_action',
                                      'delay_workgroup', 'release_tasks', 'schedule', 'unschedule', 'pause_schedule', 'resume_schedule',
                                      'run_schedule', 'set_shard')))
        UNION ALL
        SELECT 'TABLE', c.oid::regclass::text
          FROM pg_catalog.pg_class AS c
         WHERE c.relnamespace = 'taskq'::regnamespace AND c.relkind = 'v'
           AND part IN ('producer', 'worker', 'operator', 'monitor');
    END;
COMMENT ON FUNCTION taskq._rights IS 'internal: the functions and views that a part of the users may use';

-- Which parts a role has: those whose marker it may call. Rights are dumped with the extension, so this
-- survives a restore.
CREATE FUNCTION taskq._is_inserter() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_inserter IS 'internal: a role that may call it has the part of an inserter';
CREATE FUNCTION taskq._is_producer() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_producer IS 'internal: a role that may call it has the part of a producer';
CREATE FUNCTION taskq._is_worker() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_worker IS 'internal: a role that may call it has the part of a worker';
CREATE FUNCTION taskq._is_operator() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_operator IS 'internal: a role that may call it has the part of an operator';
CREATE FUNCTION taskq._is_monitor() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_monitor IS 'internal: a role that may call it has the part of a monitor';
CREATE FUNCTION taskq._is_narrowed_inserter() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_narrowed_inserter IS
    'internal: a role that may call it has the part of an inserter for some actions';
CREATE FUNCTION taskq._is_narrowed_producer() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_narrowed_producer IS
    'internal: a role that may call it has the part of a producer for some actions';
CREATE FUNCTION taskq._is_narrowed_worker() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true;
COMMENT ON FUNCTION taskq._is_narrowed_worker IS
    'internal: a role that may call it has the part of a worker for some actions';

-- The actions of narrowed parts. The names of roles are dumped, as with rights; what stands here without the right on
-- the marker means nothing.
CREATE TABLE taskq.part_action (
    part text COLLATE "C" NOT NULL,
    role regrole NOT NULL,
    action text COLLATE "C" NOT NULL,
    CONSTRAINT part_action_pkey PRIMARY KEY (part, role, action),
    CONSTRAINT part_action_part_check CHECK (part IN ('inserter', 'producer', 'worker'))
);
COMMENT ON TABLE taskq.part_action IS 'to which actions the parts of roles are narrowed';
SELECT pg_catalog.pg_extension_config_dump('taskq.part_action', '');

CREATE FUNCTION taskq._has_part(part text, role regrole)
    RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    BEGIN ATOMIC
        SELECT EXISTS (SELECT FROM pg_catalog.pg_proc AS p, pg_catalog.aclexplode(p.proacl) AS x
                        WHERE p.pronamespace = 'taskq'::regnamespace AND p.proname = '_is_' || part
                          AND x.grantee = role::oid);
    END;
COMMENT ON FUNCTION taskq._has_part IS 'internal: whether a role was given a part';

CREATE FUNCTION taskq._grant(part text, role regrole, give boolean)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r record;
    other text;
BEGIN
    IF give THEN
        EXECUTE format('GRANT USAGE ON SCHEMA taskq TO %s', role);
    END IF;
    FOR r IN SELECT x.kind, x.name FROM taskq._rights(part) AS x LOOP
        EXECUTE format(CASE WHEN give THEN 'GRANT %s ON %s %s TO %s' ELSE 'REVOKE %s ON %s %s FROM %s' END,
                       CASE r.kind WHEN 'TABLE' THEN 'SELECT' ELSE 'EXECUTE' END, r.kind, r.name, role);
    END LOOP;
    IF NOT give THEN
        -- The parts overlap: what the others contain is given back.
        FOREACH other IN ARRAY ARRAY['inserter', 'producer', 'worker', 'operator', 'monitor', 'narrowed_inserter',
                                     'narrowed_producer', 'narrowed_worker'] LOOP
            IF taskq._has_part(other, role) THEN
                PERFORM taskq._grant(other, role, true);
                part := NULL;
            END IF;
        END LOOP;
        IF part IS NOT NULL THEN
            EXECUTE format('REVOKE USAGE ON SCHEMA taskq FROM %s', role);
        END IF;
    END IF;
END
$$;
COMMENT ON FUNCTION taskq._grant IS 'internal: gives or takes the rights of a part';

CREATE FUNCTION taskq._grant_part(part text, role regrole, actions text[])
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    narrowed text := 'narrowed_' || part;
BEGIN
    IF array_position(actions, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'argument "actions" must not be NULL'
            USING ERRCODE = '22004', DETAIL = 'An element of "actions" is NULL.', HINT = 'Give names of actions.';
    ELSIF cardinality(actions) = 0 OR '' = ANY (actions) THEN
        RAISE EXCEPTION 'argument "actions" is not valid'
            USING ERRCODE = '22023', DETAIL = 'It is empty, or has an empty name in it.',
                  HINT = 'Name the actions, or leave the argument out for all of them.';
    END IF;
    -- One of the two, and the other one not: what is given last holds.
    PERFORM taskq._grant(CASE WHEN actions IS NULL THEN part ELSE narrowed END, role, true);
    IF taskq._has_part(CASE WHEN actions IS NULL THEN narrowed ELSE part END, role) THEN
        PERFORM taskq._grant(CASE WHEN actions IS NULL THEN narrowed ELSE part END, role, false);
    END IF;
    DELETE FROM taskq.part_action AS x
     WHERE (x.part = part AND x.role = role)
        OR NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS o WHERE o.oid = x.role::oid);
    INSERT INTO taskq.part_action SELECT DISTINCT part, role, u.action FROM unnest(actions) AS u(action);
END
$$;
COMMENT ON FUNCTION taskq._grant_part IS 'internal: gives a part, for all actions or for some';

CREATE FUNCTION taskq._revoke_part(part text, role regrole)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
    IF part IN ('inserter', 'producer', 'worker') THEN
        PERFORM taskq._grant('narrowed_' || part, role, false);
        DELETE FROM taskq.part_action AS x WHERE x.part = part AND x.role = role;
    END IF;
    PERFORM taskq._grant(part, role, false);
END
$$;
COMMENT ON FUNCTION taskq._revoke_part IS 'internal: takes a part back';

-- Text, not regrole: that is what drivers send, and what current_user and pg_roles have. A name as it is comes first.
CREATE FUNCTION taskq._role(role text)
    RETURNS regrole
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found regrole := (SELECT x.oid FROM pg_catalog.pg_roles AS x WHERE x.rolname = role);
BEGIN
    IF role IS NULL THEN
        RAISE EXCEPTION 'argument "role" must not be NULL'
            USING ERRCODE = '22004', DETAIL = 'NULL was given for "role".', HINT = 'Give the name of a role.';
    END IF;
    IF found IS NULL THEN
        BEGIN
            found := to_regrole(role);
        EXCEPTION WHEN invalid_name OR syntax_error THEN
            NULL;                                   -- nothing that could be a name
        END;
    END IF;
    -- Some versions take a number or "-" for a regrole.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS x WHERE x.oid = found) THEN
        RAISE EXCEPTION 'role "%" does not exist', left(role, 300)
            USING ERRCODE = '42704', DETAIL = 'A part is given to, and taken from, one role of the cluster.',
                  HINT = 'Give the name of a role; pg_roles shows those there are.';
    END IF;
    RETURN found;
END
$$;
COMMENT ON FUNCTION taskq._role IS 'internal: the role with this name, as it is or as SQL has it; refuses what is none';

CREATE FUNCTION taskq.grant_inserter(role text, actions text[] = NULL) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant_part('inserter', taskq._role(role), actions) $$;
COMMENT ON FUNCTION taskq.grant_inserter IS
    'let a role insert tasks, and nothing else; with actions, only tasks of these';

CREATE FUNCTION taskq.revoke_inserter(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._revoke_part('inserter', taskq._role(role)) $$;
COMMENT ON FUNCTION taskq.revoke_inserter IS 'take back what grant_inserter gave';

CREATE FUNCTION taskq.grant_producer(role text, actions text[] = NULL) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant_part('producer', taskq._role(role), actions) $$;
COMMENT ON FUNCTION taskq.grant_producer IS
    'let a role insert, link, change, cancel, delete and wait for tasks, for instance; with actions, only with tasks of these';

CREATE FUNCTION taskq.revoke_producer(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._revoke_part('producer', taskq._role(role)) $$;
COMMENT ON FUNCTION taskq.revoke_producer IS 'take back what grant_producer gave';

CREATE FUNCTION taskq.grant_worker(role text, actions text[] = NULL) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant_part('worker', taskq._role(role), actions) $$;
COMMENT ON FUNCTION taskq.grant_worker IS
    'let a role perform tasks: own, extend and return them, for instance; and all that a producer may; with actions, only with tasks of these';

CREATE FUNCTION taskq.revoke_worker(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._revoke_part('worker', taskq._role(role)) $$;
COMMENT ON FUNCTION taskq.revoke_worker IS 'take back what grant_worker gave';

CREATE FUNCTION taskq.grant_operator(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant('operator', taskq._role(role), true) $$;
COMMENT ON FUNCTION taskq.grant_operator IS
    'let a role administer the queue: settings, groups, workgroups, schedules, upkeep, and tasks that are there';

CREATE FUNCTION taskq.revoke_operator(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._revoke_part('operator', taskq._role(role)) $$;
COMMENT ON FUNCTION taskq.revoke_operator IS 'take back what grant_operator gave';

CREATE FUNCTION taskq.grant_monitor(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._grant('monitor', taskq._role(role), true) $$;
COMMENT ON FUNCTION taskq.grant_monitor IS
    'let a role look at the views, count, check and wait';

CREATE FUNCTION taskq.revoke_monitor(role text) RETURNS void LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
    AS $$ SELECT taskq._revoke_part('monitor', taskq._role(role)) $$;
COMMENT ON FUNCTION taskq.revoke_monitor IS 'take back what grant_monitor gave';

-- What ALTER DEFAULT PRIVILEGES has given away of these kinds while this script ran is taken back, as is what PUBLIC has by itself:
-- a role that may read taskq.run can make tokens.
DO $$
DECLARE
    o record;
BEGIN
    FOR o IN
        SELECT DISTINCT x.kind, x.name, x.grantee
          FROM (SELECT 'SCHEMA' AS kind, n.oid::regnamespace::text AS name, n.nspowner AS owner, (a.acl).grantee AS grantee
                  FROM pg_catalog.pg_namespace AS n
                 CROSS JOIN LATERAL (SELECT aclexplode(COALESCE(n.nspacl, acldefault('n', n.nspowner))) AS acl) AS a
                 WHERE n.nspname = 'taskq'
                UNION ALL
                SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, c.relowner,
                       (a.acl).grantee
                  FROM pg_catalog.pg_class AS c
                 CROSS JOIN LATERAL (SELECT aclexplode(c.relacl) AS acl) AS a
                 WHERE c.relnamespace = 'taskq'::regnamespace
                UNION ALL
                SELECT 'ROUTINE', p.oid::regprocedure::text, p.proowner, (a.acl).grantee
                  FROM pg_catalog.pg_proc AS p
                 CROSS JOIN LATERAL (SELECT aclexplode(COALESCE(p.proacl, acldefault('f', p.proowner))) AS acl) AS a
                 WHERE p.pronamespace = 'taskq'::regnamespace
                UNION ALL
                SELECT 'TYPE', t.oid::regtype::text, t.typowner, (a.acl).grantee
                  FROM pg_catalog.pg_type AS t
                 CROSS JOIN LATERAL (SELECT aclexplode(COALESCE(t.typacl, acldefault('T', t.typowner))) AS acl) AS a
                 WHERE t.typnamespace = 'taskq'::regnamespace AND t.typtype IN ('d', 'e', 'r')) AS x
         WHERE x.grantee <> x.owner
    LOOP
        EXECUTE format('REVOKE ALL ON %s %s FROM %s', o.kind, o.name,
                       CASE o.grantee WHEN 0 THEN 'PUBLIC' ELSE o.grantee::regrole::text END);
    END LOOP;
END
$$;
