-- A consumer of PgQ takes the events of a queue batch by batch, in order, and alone: so each client has a queue. A
-- batch is what came between two ticks; we tick every hundred events.
SELECT pgq.create_queue('work' || i), pgq.register_consumer('work' || i, 'bench'),
       pgq.set_queue_config('work' || i, 'ticker_max_count', '100')
  FROM generate_series(0, 3) AS i;
