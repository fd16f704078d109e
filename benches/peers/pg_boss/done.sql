-- One of them is of the run in which its statements were recorded.
SELECT count(*) - 1 FROM pgboss.job WHERE name = 'resumed' AND state = 'completed'
