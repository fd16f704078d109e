-- Events that came after the last batch that was finished.
SELECT sum(pgq.seq_getval(q.queue_event_seq) - t.tick_event_seq)
  FROM pgq.subscription AS s
  JOIN pgq.queue AS q ON q.queue_id = s.sub_queue
  JOIN pgq.tick AS t ON t.tick_queue = s.sub_queue AND t.tick_id = s.sub_last_tick
