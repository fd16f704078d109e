SELECT count(*) FROM pgmq.q_work
