SELECT count(*) FROM graphile_worker._private_jobs
