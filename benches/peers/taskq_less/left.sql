SELECT count(*) FROM taskq.run
