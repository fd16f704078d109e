-- A queue of some 5,000 tasks in all states, with an hour behind it: what the pictures of taskq.page() show. It is made by a
-- superuser in a database of its own, since it sets the queue's clock.
CREATE EXTENSION taskq;
SET taskq.retention = '1d';
SET TimeZone = 'UTC';

SELECT taskq.set_action('mail.send', max_tries => 5, lease => '2 minutes');
SELECT taskq.set_action('webhook.post', max_tries => 8, lease => '1 minute', backoff => '{"kind": "exponential", "initial": "12 minutes", "max": "30 minutes"}');
SELECT taskq.set_action('invoice.pdf', max_tries => 1, lease => '5 minutes');
SELECT taskq.set_action('image.resize', lease => '10 minutes', max_concurrency => 4);
SELECT taskq.set_action('sms.send', rate_limit => 5, rate_period => '1 hour');
SELECT taskq.set_action('report.part', lease => '30 minutes', max_per_group => 2);
SELECT taskq.set_group('report march', weight => 2);

CREATE FUNCTION pg_temp.trace(host text) RETURNS text LANGUAGE sql AS $$
    SELECT format(E'Traceback (most recent call last):\n  File "/srv/shop/worker.py", line 88, in perform\n    handler(task.body)\n'
                  '  File "/srv/shop/webhooks.py", line 31, in post\n    reply = client.post(url, json=event, timeout=10)\n'
                  '  File "/usr/lib/python3/dist-packages/httpx/_client.py", line 1144, in post\n    raise mapped_exc(message) from exc\n'
                  'httpx.ConnectTimeout: <%s> did not answer in 10 s & the try is over', host);
$$;

CREATE FUNCTION pg_temp.many(action text, name text, n integer, delay interval = NULL) RETURNS bigint LANGUAGE sql AS $$
    SELECT count(*) FROM taskq.insert_many(action, array_fill('{"width": 320}'::text, ARRAY[n]),
                                           ARRAY(SELECT name || ' ' || i FROM generate_series(1, n) AS i), delay => delay);
$$;

-- Inserts, owns and returns at a minute of the past: `n` tasks, of which every `bad`-th fails with `how`.
CREATE PROCEDURE pg_temp.minute(ago integer, action text, n integer, wait interval, run interval, bad integer, how text) LANGUAGE plpgsql AS $$
DECLARE
    start timestamptz := clock_timestamp() - ago * interval '1 minute';
BEGIN
    PERFORM set_config('taskq.now', start::text, false);
    PERFORM taskq.insert_many(action, array_agg(format('{"order": %s}', 7000 + i)), array_agg(format('%s %s-%s', action, 600 - ago, i)))
       FROM generate_series(1, n) AS i;
    COMMIT;
    PERFORM set_config('taskq.now', (start + wait)::text, false);
    CREATE TEMPORARY TABLE held AS SELECT * FROM taskq.own_tasks('worker-' || 1 + ago % 4, n, ARRAY[action]);
    COMMIT;
    PERFORM set_config('taskq.now', (start + wait + run)::text, false);
    PERFORM taskq.return_task(h.task_id, h.token, CASE WHEN h.i % bad = bad - 1 THEN how ELSE 'completed' END,
                              CASE WHEN h.i % bad = bad - 1 THEN pg_temp.trace('hooks.example.com:443') END)
       FROM (SELECT row_number() OVER () + ago AS i, * FROM held) AS h;
    DROP TABLE held;
    COMMIT;
END
$$;

DO $$
BEGIN
    FOR ago IN REVERSE 59..1 LOOP
        CALL pg_temp.minute(ago, 'mail.send', 44 + (17 * ago) % 11, (2 + ago % 5) * interval '0.4 s', (1 + ago % 3) * interval '0.7 s', 400, 'aborted');
        CALL pg_temp.minute(ago, 'webhook.post', 12 + (7 * ago) % 5, (1 + ago % 4) * interval '0.5 s', (2 + ago % 7) * interval '0.9 s', 23, 'pending');
        IF ago % 2 = 0 THEN
            CALL pg_temp.minute(ago, 'invoice.pdf', 9 + ago % 4, (3 + ago % 3) * interval '0.8 s', (4 + ago % 5) * interval '1.1 s', 23, 'aborted');
        END IF;
    END LOOP;
END
$$;
RESET taskq.now;

-- What goes on now.
SELECT set_config('taskq.now', (clock_timestamp() - interval '14 minutes')::text, false);
SELECT pg_temp.many('image.resize', 'photo', 260);
SELECT count(*) FROM taskq.insert_tasks((SELECT jsonb_agg(jsonb_build_object('id', format('march %s', i), 'action', 'report.part', 'group_id', 'report march'))
                                           FROM generate_series(1, 24) AS i));
SELECT taskq.insert_tasks('[{"id": "march total", "action": "report.total", "group_id": "report march", "depends_on": ["march 1", "march 2", "march 3", "march 4"]},
                            {"id": "march mail", "action": "mail.send", "group_id": "report march", "depends_on": ["march total"]},
                            {"id": "march alarm", "action": "mail.send", "group_id": "report march", "depends_on": [{"id": "march total", "condition": "aborted"}]}]');
CREATE TEMPORARY TABLE held AS SELECT task_id, token FROM taskq.own_tasks('report-1', 2, '{report.part}');
SELECT taskq.return_task(task_id, token) FROM held;
SELECT set_config('taskq.now', (clock_timestamp() - interval '6 minutes')::text, false);
SELECT count(*) FROM taskq.own_tasks('report-1', 2, '{report.part}');
SELECT taskq.insert_task('catalogue', 'import.rows');
SELECT taskq.report_status(task_id, token, 'reads the catalogue: 41,200 of 100,000 rows', progress => 0.41) FROM taskq.own_tasks('import-1', 1, '{import.rows}');
SELECT set_config('taskq.now', (clock_timestamp() - interval '40 seconds')::text, false);
SELECT count(*) FROM taskq.own_tasks('resize-1', 2, '{image.resize}');
SELECT count(*) FROM taskq.own_tasks('resize-2', 2, '{image.resize}');
SELECT pg_temp.many('mail.send', 'newsletter', 420);
SELECT count(*) FROM taskq.own_tasks('worker-1', 3, '{mail.send}');
SELECT count(*) FROM taskq.own_tasks('worker-2', 3, '{mail.send}');
RESET taskq.now;

-- What waits: for a day, for people, for a limit.
SELECT pg_temp.many('mail.remind', 'reminder', 180, delay => '1 day');
SELECT pg_temp.many('sms.send', 'sms', 12);
SELECT taskq.return_task(task_id, token) FROM taskq.own_tasks('worker-3', 6, '{sms.send}');
SELECT pg_temp.many('search.index', 'article', 75);
SELECT taskq.pause_action('search.index');
SELECT taskq.insert_tasks('[{"id": "crawl a", "action": "crawl", "workgroup": "shop.example.com"}, {"id": "crawl b", "action": "crawl", "workgroup": "shop.example.com"}]');
SELECT taskq.delay_workgroup('shop.example.com', '20 minutes');
SELECT set_config('taskq.now', (clock_timestamp() - interval '3 hours')::text, false);
SELECT taskq.insert_tasks('[{"id": "order 7204", "action": "order"}, {"id": "order 7207", "action": "order"}, {"id": "order 7215", "action": "order"}]');
SELECT taskq.return_task(task_id, token, 'pending', 'waits for its approval', wait_at_most => '2 days',
                         depends_on => jsonb_build_array(jsonb_build_object('id', 'approve ' || task_id, 'signal', true)))
  FROM taskq.own_tasks('worker-2', 3, '{order}');
RESET taskq.now;
SELECT taskq.schedule('nightly report', '30 2 * * *', '{"action": "report.total"}', 'Europe/Berlin');
SELECT taskq.schedule('poll the bank', '*/15 * * * *', '{"action": "bank.poll"}');
SELECT taskq.schedule('tidy up', '0 4 * * SUN', '{"action": "cleanup"}');
SELECT taskq.pause_schedule('tidy up');
SELECT taskq.maintain();
-- Tallies of what is whole.
SELECT pg_sleep(1.2);
SELECT taskq.maintain();
-- Workers that died two minutes ago, and no call has come since.
SELECT set_config('taskq.now', (clock_timestamp() - interval '7 minutes')::text, false);
SELECT taskq.insert_task('export 2', 'export.customers');
SELECT count(*) FROM taskq.own_tasks('export-1', 1, '{export.customers}', '5 minutes');
RESET taskq.now;
VACUUM ANALYZE;
