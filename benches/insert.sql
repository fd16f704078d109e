-- 100,000 tasks in one call, of insert_tasks and of insert_many, beside COPY of the very rows that the first made. One
-- line a round: milliseconds of each. The JSON is read as text, as a client sends it, and so is the array of bodies.
SET client_min_messages = warning;
SELECT setting || '/bench' AS file FROM pg_settings WHERE name = 'data_directory' \gset
\set task :file '.task'
\set run :file '.run'

CREATE TABLE document (tasks text, ids text, bodies text);
ALTER TABLE document ALTER COLUMN tasks SET STORAGE EXTERNAL, ALTER COLUMN ids SET STORAGE EXTERNAL, ALTER COLUMN bodies SET STORAGE EXTERNAL;
INSERT INTO document
SELECT jsonb_agg(jsonb_build_object('id', 'task-' || i, 'action', 'work', 'body', repeat('x', 100)))::text,
       array_agg('task-' || i)::text, array_agg(repeat('x', 100))::text
  FROM generate_series(1, 100000) AS i;

-- The name of the action and the plans are there before the first round.
SELECT taskq.insert_task('first', 'work') \g /dev/null

\ir insert_round.sql
\ir insert_round.sql
\ir insert_round.sql
\ir insert_round.sql
\ir insert_round.sql
