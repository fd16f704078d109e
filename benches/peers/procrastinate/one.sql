\set number :client_id + 1
<<fetch_job %(queues)s='{work}' %(worker_id)s=:number>> \gset
<<finish_job %(job_id)s=:id %(status)s='succeeded' %(delete_job)s=false>>;
