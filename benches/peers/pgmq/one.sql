SELECT * FROM pgmq.read('work', 300, 1) \gset
SELECT pgmq.delete('work', :msg_id::bigint);
