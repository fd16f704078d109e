<<get_jobs $1=:worker $2=:tasks>> \gset
<<complete_jobs $1=:ids>>;
