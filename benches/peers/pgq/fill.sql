-- Ticks tell transactions apart, so each hundred events is one.
CREATE OR REPLACE PROCEDURE pg_temp.fill(n bigint) LANGUAGE plpgsql AS $$
BEGIN
    FOR hundred IN 1 .. n / 400 LOOP
        FOR queue IN 0 .. 3 LOOP
            PERFORM pgq.insert_event('work' || queue, 'work', repeat('x', 100)) FROM generate_series(1, 100);
            COMMIT;
            PERFORM pgq.ticker('work' || queue);
            COMMIT;
        END LOOP;
    END LOOP;
END
$$;
CALL pg_temp.fill(:n);
