-- Holds the workers of graph_work.sql back until all :clients of them are there.
SET bench.clients = :clients;
DO $$
BEGIN
    PERFORM pg_advisory_lock(7);
    FOR _ IN 1 .. 3000 LOOP
        IF (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted) = current_setting('bench.clients')::integer THEN
            RETURN;
        END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RAISE 'the workers did not come';
END
$$;
