SELECT array_agg(msg_id) AS ids FROM pgmq.read('work', 300, :batch) \gset
SELECT pgmq.delete('work', :ids::bigint[]);
