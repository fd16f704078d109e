-- The worst moment to plan: the queue was just analyzed, with a row or two in each table, which the planner then
-- takes for all that there is. (It does not believe in a table of no pages.) The same session goes on with these
-- plans while the queue fills up, to :size times 1,000 ready tasks, and shows them then.
\o /dev/null
SELECT taskq.insert_task('seed' || i, 'even') FROM generate_series(1, 3) AS i;
SELECT taskq.insert_task('seed4', 'even', depends_on => '{seed1,seed2}');
SELECT taskq.insert_task('seed5', 'even', delay => '1 day');
SELECT taskq.return_task(g.task_id, g.token) FROM taskq.own_tasks('bench', 1, '{even}', '1 day') AS g;
VACUUM ANALYZE;
\set n 0
\i :explain
\ir explain_fill.sql
\set n 1
\i :explain
\o
\ir explain_on.sql
\set n 2
\i :explain
