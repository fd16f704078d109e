\set number :client_id
SELECT coalesce(pgq.next_batch('work' || :number::text, 'bench'), 0) AS batch_id \gset
\if :batch_id > 0
SELECT array_agg(ev_id) AS ids FROM pgq.get_batch_events(:batch_id) \gset
SELECT pgq.finish_batch(:batch_id);
\endif
