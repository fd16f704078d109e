SELECT pgmq.send('work', :json::jsonb);
