-- taskq: the stored state. The tables are here; a change needs a migration script.
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

-- It begins anew at its end: numbers are used up also by what is rolled back, and one that is taken is passed over.
CREATE SEQUENCE taskq.action_no_seq AS integer CACHE 1 CYCLE;

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
    lease interval,
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
    stopped_at timestamptz,                     -- since when it has been paused or max_concurrency been 0; NULL: it is neither
    CONSTRAINT action_setting_max_tries_check CHECK (max_tries >= 1),
    CONSTRAINT action_setting_max_concurrency_check CHECK (max_concurrency BETWEEN 0 AND 100000),
    CONSTRAINT action_setting_rate_check CHECK ((rate_limit IS NULL) = (rate_period IS NULL)
                                                AND rate_limit BETWEEN 1 AND 1000000000),
    CONSTRAINT action_setting_on_timeout_check CHECK (on_timeout IN ('retry', 'abort')),
    CONSTRAINT action_setting_max_timeouts_check CHECK (max_timeouts >= 1),
    CONSTRAINT action_setting_max_per_group_check CHECK (max_per_group BETWEEN 1 AND 100000)
);
COMMENT ON TABLE taskq.action_setting IS 'what is set for actions, such as defaults and limits';

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
    signal boolean NOT NULL,                    -- completed from outside, by taskq.signal
    post_result boolean NOT NULL,               -- NOTIFY when settled
    inserted_at timestamptz NOT NULL,
    not_before timestamptz,
    expires_at timestamptz,                     -- when it expires, as said at its insertion; see the table expiry
    lease interval,                      -- default lease
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

-- Tasks that nothing blocks: ready, in progress, or parked in place for a reason. Narrow, with room on the page for a newer and longer
-- version of each row, so that a grant can be a HOT update: nothing that a grant changes is indexed.
CREATE TABLE taskq.run (
    -- What most grants leave as it is comes first: of a new version on the same page the log mostly has only what is behind
    -- that.
    task_no bigint PRIMARY KEY,
    position bigint NOT NULL,                   -- place in the queue; new at each comeback
    lane bigint NOT NULL,                       -- stands for its group; 0: it is in no lane
    prev_nonce bigint NOT NULL,                 -- the nonce before, of a try that a deadline has ended, until its worker says something; 0: none
    action_no integer NOT NULL,
    priority integer NOT NULL,
    failures integer NOT NULL,                  -- dependencies that aborted
    dependencies integer NOT NULL,              -- dependencies in all
    gated boolean NOT NULL,                     -- it has a group, a workgroup or a merge key
    lease interval,
    max_run_time interval,
    key_hash bigint,                            -- stands for its action, group and merge key; NULL: no merge key
    aside bigint,                               -- parked in place under this reason, see store::aside; NULL: not
    tries integer NOT NULL,
    nonce bigint NOT NULL,                      -- secret part of the last token granted; 0: none is valid
    deadline timestamptz NOT NULL,              -- of the grant; infinity: it never expires, or no grant
    granted_at timestamptz,
    grantable boolean NOT NULL,                 -- false while a grant holds it, or it is parked in place
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
CREATE INDEX run_aside_idx ON taskq.run (aside) WHERE aside IS NOT NULL;          -- parked in place under a reason
COMMENT ON TABLE taskq.run IS 'tasks that nothing blocks: ready or in progress';

-- Tasks that wait for other tasks, and signals, which are completed from outside. The row is the counter of a task: it is deleted
-- when `remaining` reaches zero, or when counting brings `spare` below zero.
CREATE TABLE taskq.blocked (
    task_no bigint PRIMARY KEY,
    remaining integer NOT NULL,                 -- dependencies that have to end as they should; one more for a signal
    failures integer NOT NULL,
    dependencies integer NOT NULL,
    tries integer NOT NULL,
    not_before timestamptz,                     -- besides the task's own, such as of delay_children or retry_after
    action_no integer NOT NULL,                 -- the task's, so that counting reads this table only
    spare integer NOT NULL,                     -- dependencies of which it can do without; of a signal -1
    wait_no integer NOT NULL,                   -- names this wait of the task: see `dependency`
    since timestamptz,                          -- of a suspended task; NULL: it is none
    until timestamptz,                          -- when the wait of a suspended task is over at the latest; NULL: no such time
    CONSTRAINT blocked_remaining_check CHECK (remaining > 0 AND spare >= -1)
) WITH (fillfactor = 70);
-- Suspended tasks, by the time at which their wait is over.
CREATE INDEX blocked_until_idx ON taskq.blocked (until) WHERE since IS NOT NULL;
CREATE INDEX blocked_signal_idx ON taskq.blocked (task_no) WHERE spare < 0;          -- signals that have not come, the oldest first
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
    timer boolean NOT NULL                      -- the queue completes it when its time has come
);
CREATE INDEX scheduled_due_idx ON taskq.scheduled (action_no, due, position);     -- what is due by now
CREATE INDEX scheduled_timer_idx ON taskq.scheduled (due) WHERE timer;            -- timers, whatever their action
COMMENT ON TABLE taskq.scheduled IS 'tasks that nothing blocks but their time, or that of their workgroup';

-- Tasks that nothing blocks but a reason without a time: a paused group, a busy merge key, or another task
-- whose end they share. A claim moves them here, so that later claims do not meet them.
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
COMMENT ON TABLE taskq.parked IS 'tasks that only a paused group or a busy merge key keeps from being ready, and those that ride on another';

-- Groups about which something is known besides their tasks.
CREATE TABLE taskq.task_group (
    group_id text COLLATE "C" PRIMARY KEY,
    paused boolean NOT NULL DEFAULT false,
    max_concurrency integer,                    -- how many tasks of it are in progress at most, over all actions
    weight integer,                             -- its share where groups take turns; NULL: 1
    stopped_at timestamptz,                     -- as that of an action
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

-- The latest time of a name counts. Operators have a row of their own; a return that delays a workgroup appends one, and removes those
-- of other returns that are free.
CREATE TABLE taskq.workgroup (
    name text COLLATE "C" NOT NULL,
    not_before timestamptz NOT NULL,
    returned boolean NOT NULL                   -- by a return, not an operator
);
CREATE UNIQUE INDEX workgroup_set_idx ON taskq.workgroup (name) WHERE NOT returned;  -- the operators'
CREATE INDEX workgroup_name_idx ON taskq.workgroup (name);                        -- a workgroup's
ALTER TABLE taskq.workgroup REPLICA IDENTITY FULL;
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
CREATE INDEX settled_at_idx ON taskq.settled (settled_at, task_no);               -- what has ended lately, in the order of cursors
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

-- "run_no runs after after_no". It is kept until one of the two is gone. One that a suspension has made may go earlier, and so
-- does one of which `after_no` starts over without `run_no`.
--
-- A task may wait several times, for different tasks. The end of `after_no` counts for one wait only, that with this number:
-- one that is late (it is on its way while the task goes on without it, and waits for others) finds another number, and counts
-- for nothing. The wait that comes with the insertion is 0; each later one, where such a thing may be, has a new number.
CREATE TABLE taskq.dependency (
    after_no bigint NOT NULL,
    run_no bigint NOT NULL,
    wait_no integer NOT NULL,
    condition "char" NOT NULL,                  -- under which it counts; c: completed, s: settled, a: aborted
    state "char" NOT NULL,                      -- w: it counts; d: dropped, `run_no` has gone on without it
    suspending boolean NOT NULL,                -- made by a suspension of the task: goes when that begins anew
    CONSTRAINT dependency_pkey PRIMARY KEY (after_no, run_no),                    -- the dependents that a settled task signals
    CONSTRAINT dependency_condition_check CHECK (condition IN ('c', 's', 'a')),
    CONSTRAINT dependency_state_check CHECK (state IN ('w', 'd')),
    CONSTRAINT dependency_self_check CHECK (after_no <> run_no)
);
CREATE INDEX dependency_run_idx ON taskq.dependency (run_no);                     -- what a task waits for
COMMENT ON TABLE taskq.dependency IS 'edges: which task runs after which';

-- Ends of dependencies that found the counter locked by another transaction. A transaction that has the counter locked folds
-- them into `blocked`.
CREATE TABLE taskq.countdown (
    run_no bigint NOT NULL,
    wait_no integer NOT NULL,                   -- for which of its waits: see `dependency`
    satisfied integer NOT NULL,                 -- dependencies that ended as they should
    failed integer NOT NULL,                    -- of both, how many aborted
    lost integer NOT NULL,                      -- dependencies that ended the wrong way
    lost_status text,                           -- where lost > 0: the status with which the task aborts, if it does
    skipped integer NOT NULL                    -- of those that are lost, how many were not needed
);
CREATE INDEX countdown_run_idx ON taskq.countdown (run_no);                             -- what is due to a task
ALTER TABLE taskq.countdown REPLICA IDENTITY FULL;
COMMENT ON TABLE taskq.countdown IS 'ends of dependencies that wait to be counted because the counter was busy';

-- One row per deadline that a call gives to tasks under one base, and per thousand of these tasks; and some for tasks
-- that are to be looked at again at a time. It finds the elapsed ones without an index on `run`. The nonce of a task in it is
-- `base # task_no`. The row goes with its tasks: the end of the keeper's performance removes it, or hands it on to one
-- of the others.
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
    problem text,                               -- why a run could not be inserted, or not as it should, when some were due last
    max_backfill integer,                       -- how many missed runs are inserted at most, with 'all'; NULL: each
    paused_next_at timestamptz,                 -- what next_at was (and will be) while it is paused; NULL: it is not
    paused_at timestamptz,                      -- since when it has been paused
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
CREATE INDEX attempt_timeout_idx ON taskq.attempt (ended_at) WHERE outcome = 'timeout';  -- deadlines that have passed lately
ALTER TABLE taskq.attempt REPLICA IDENTITY FULL;
COMMENT ON TABLE taskq.attempt IS 'the history of tries: those that did not settle their task, and those before a retry';

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

-- The actions of narrowed parts. The names of roles are dumped, as with rights; what stands here without the right on
-- the marker (see grants.sql) means nothing. Of a role that is gone only a number is left: in another cluster, after a restore, that would be the number of
-- another role. So such rows are not dumped.
CREATE TABLE taskq.part_action (
    part text COLLATE "C" NOT NULL,
    role regrole NOT NULL,
    action text COLLATE "C" NOT NULL,
    CONSTRAINT part_action_pkey PRIMARY KEY (part, role, action),
    CONSTRAINT part_action_part_check CHECK (part IN ('inserter', 'producer', 'worker'))
);
COMMENT ON TABLE taskq.part_action IS 'to which actions the parts of roles are narrowed';

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
SELECT pg_catalog.pg_extension_config_dump('taskq.countdown', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.lease', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.progress', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.schedule', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.attempt', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.expiry', '');
SELECT pg_catalog.pg_extension_config_dump('taskq.step', '');
SELECT pg_catalog.pg_extension_config_dump(
    'taskq.part_action', 'WHERE role::pg_catalog.oid IN (SELECT r.oid FROM pg_catalog.pg_roles AS r)');
