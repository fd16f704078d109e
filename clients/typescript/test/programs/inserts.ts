// Inserts a task and ends, without closing anything.
import { App } from "taskq-pg";

const app = new App(process.env.DATABASE_URL as string);
await app.insert("alive", null, { id: "from a program" });
