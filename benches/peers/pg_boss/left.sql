SELECT count(*) FROM pgboss.job WHERE state IN ('created', 'active')
