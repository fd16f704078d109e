SELECT count(*) FROM floor
