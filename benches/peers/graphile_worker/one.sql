<<get_job $1=:worker $2=:tasks>> \gset
<<complete_job $1=:id>>;
