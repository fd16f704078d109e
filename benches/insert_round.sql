TRUNCATE taskq.task, taskq.run;
CHECKPOINT;
SELECT clock_timestamp() AS start \gset
SELECT count(*) FROM taskq.insert_many('work', (SELECT bodies::text[] FROM document), (SELECT ids::text[] FROM document)) \g /dev/null
SELECT extract(epoch FROM clock_timestamp() - :'start') * 1000 AS bodies \gset

TRUNCATE taskq.task, taskq.run;
CHECKPOINT;
SELECT clock_timestamp() AS start \gset
SELECT count(*) FROM taskq.insert_tasks((SELECT tasks::jsonb FROM document)) \g /dev/null
SELECT extract(epoch FROM clock_timestamp() - :'start') * 1000 AS inserted \gset

COPY taskq.task TO :'task';
COPY taskq.run TO :'run';
TRUNCATE taskq.task, taskq.run;
CHECKPOINT;
SELECT clock_timestamp() AS start \gset
BEGIN;
COPY taskq.task FROM :'task';
COPY taskq.run FROM :'run';
COMMIT;
SELECT extract(epoch FROM clock_timestamp() - :'start') * 1000 AS copied \gset
SELECT round(:inserted, 1), round(:bodies, 1), round(:copied, 1);
