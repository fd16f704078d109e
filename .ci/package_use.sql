-- What the tests of packages do with an extension that has just been installed, in an empty database, as a superuser. The roles web
-- and hands are there.
CREATE EXTENSION taskq;
SELECT taskq.grant_inserter('web');
SELECT taskq.grant_worker('hands');
SET ROLE web;
SELECT taskq.insert_task('build', 'make', body => 'all');
SELECT taskq.insert_task('test', 'make', depends_on => '{build}');
SET ROLE hands;
DO $$
DECLARE
    t record;
BEGIN
    FOR task IN 1..2 LOOP
        SELECT * INTO STRICT t FROM taskq.own_tasks('ann', 10, '{make}', '1 minute');
        ASSERT t.task_id = CASE task WHEN 1 THEN 'build' ELSE 'test' END, t.task_id;
        ASSERT taskq.return_task(t.task_id, t.token) = 'completed';
    END LOOP;
    ASSERT NOT EXISTS (SELECT FROM taskq.own_tasks('ann', 10, '{make}'));
END
$$;
RESET ROLE;
SELECT * FROM taskq.check();
DO $$
BEGIN
    ASSERT (SELECT count(*) FROM taskq.tasks WHERE state = 'completed') = 2;
END
$$;
