\set number :client_id
SELECT pgq.next_batch('work' || :number::text, 'bench') AS batch_id \gset
SELECT array_agg(ev_id) AS ids FROM pgq.get_batch_events(:batch_id) \gset
SELECT pgq.finish_batch(:batch_id);
