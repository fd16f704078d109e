//! The router of examples/sharding: what clients see through it, and what happens when a shard goes, comes, is replaced, or
//! gives a group away.
//!
//! On wrong code a refusal of a shard reaches the client as one of PL/Proxy; a call that concerns one shard waits for another
//! that is down; a worker sleeps on while a shard has work; what a shard had when it went is missing when it is back; a group
//! is found on two shards or on none after a move that stopped half-way.
//!
//! Three servers, started once and used by all tests of this program: the first one has the router's database and the one of
//! shard 0. Each test has databases of its own. PL/Proxy must be there (`.ci/router.sh`): where it is not, `make test-all` says
//! that these tests were not run.

mod calls;
mod faults;
mod moving;
mod routing;
mod storm;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use postgres::Config;
use taskq_tests::{Cluster, Session};

const TMP: &str = env!("CARGO_TARGET_TMPDIR");

/// The servers. A test that stops one has them alone.
struct Servers {
    clusters: [Cluster; 3],
    in_use: RwLock<()>,
}

static SERVERS: Mutex<Weak<Servers>> = Mutex::new(Weak::new());

impl Servers {
    /// `None` without PL/Proxy.
    fn get() -> Option<Arc<Servers>> {
        let mut known = SERVERS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(servers) = known.upgrade() {
            return Some(servers);
        }
        let cluster = |name| {
            Cluster::start(
                TMP,
                name,
                &["max_connections=80", "max_wal_senders=4", "max_prepared_transactions=4"],
            )
        };
        let front = cluster("router-front");
        let query = "SELECT count(*) FROM pg_available_extensions WHERE name IN ('plproxy', 'taskq_router')";
        if front.connect().one::<i64>(query) < 2 {
            eprintln!("NOT RUN: this server has no PL/Proxy (.ci/router.sh)");
            return None;
        }
        let clusters = [front, cluster("router-one"), cluster("router-two")];
        // To be copied: an extension is much to make.
        let template = |cluster: &Cluster, name: &str, extension: &str| {
            cluster.connect().run(&format!("CREATE DATABASE {name}"));
            cluster.connect_to(name).run(&format!("CREATE EXTENSION {extension} CASCADE"));
        };
        for cluster in &clusters {
            template(cluster, "shard", "taskq");
        }
        template(&clusters[0], "router", "taskq_router");
        let servers = Servers { clusters, in_use: RwLock::new(()) };
        let servers = Arc::new(servers);
        *known = Arc::downgrade(&servers);
        Some(servers)
    }
}

/// A router and its shards, for one test.
struct Rig<'a> {
    servers: &'a Servers,
    database: String,
    _shared: Option<RwLockReadGuard<'a, ()>>,
    _alone: Option<RwLockWriteGuard<'a, ()>>,
}

impl<'a> Rig<'a> {
    /// With so many shards known to the router; there are three.
    fn new(servers: &'a Servers, shards: usize) -> Rig<'a> {
        let shared = servers.in_use.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        Rig::made(servers, shards, Some(shared), None)
    }

    /// For a test that stops servers.
    fn alone(servers: &'a Servers, shards: usize) -> Rig<'a> {
        let alone = servers.in_use.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        Rig::made(servers, shards, None, Some(alone))
    }

    fn made(
        servers: &'a Servers,
        shards: usize,
        _shared: Option<RwLockReadGuard<'a, ()>>,
        _alone: Option<RwLockWriteGuard<'a, ()>>,
    ) -> Rig<'a> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let database = format!("q{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        for (n, cluster) in servers.clusters.iter().enumerate() {
            cluster.connect().run(&format!("CREATE DATABASE {database} TEMPLATE shard"));
            cluster.connect_to(&database).run(&format!("SELECT taskq.set_shard({n})"));
        }
        let rig = Rig { servers, database, _shared, _alone };
        servers.clusters[0]
            .connect()
            .run(&format!("CREATE DATABASE {}_router TEMPLATE router", rig.database));
        let connects: Vec<String> = (0..shards).map(|n| rig.connect_string(&servers.clusters[n])).collect();
        let added: Vec<i32> = rig
            .router()
            .query("SELECT taskq_router.add_shards(VARIADIC $1)", &[&connects])
            .unwrap()
            .iter()
            .map(|row| row.get(0))
            .collect();
        assert_eq!(added, (0..i32::try_from(shards).unwrap()).collect::<Vec<_>>());
        rig
    }

    fn connect_string(&self, cluster: &Cluster) -> String {
        format!("host={} dbname={}", cluster.host(), self.database)
    }

    /// What a client has.
    fn router(&self) -> Session {
        self.servers.clusters[0].connect_to(&format!("{}_router", self.database))
    }

    fn router_config(&self) -> Config {
        let mut config = self.servers.clusters[0].config();
        config.dbname(&format!("{}_router", self.database));
        config
    }

    /// What only a test has.
    fn shard(&self, n: usize) -> Session {
        self.servers.clusters[n].connect_to(&self.database)
    }

    fn server(&self, n: usize) -> &Cluster {
        &self.servers.clusters[n]
    }

    /// Groups that belong to this shard, for as many as are asked for.
    fn groups_of(&self, shard: usize) -> impl Iterator<Item = String> + use<> {
        let mut session = self.router();
        let shard = i32::try_from(shard).unwrap();
        (0..).map(|n| format!("group-{n}")).filter(move |group| {
            session.one::<i32>(&format!("SELECT taskq_router.shard_for('{group}')")) == shard
        })
    }

    fn group_of(&self, shard: usize) -> String {
        self.groups_of(shard).next().unwrap()
    }
}

impl Drop for Rig<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // For the tests behind it.
            if self._alone.is_some() {
                for cluster in &self.servers.clusters {
                    cluster.restart();
                    cluster.connect().run("ALTER SYSTEM RESET synchronous_standby_names");
                    cluster.connect().run("SELECT pg_reload_conf()");
                }
            }
            return;
        }
        for n in 0..3 {
            assert_eq!(self.shard(n).broken(), [""; 0], "shard {n}");
        }
        self.servers.clusters[0]
            .connect()
            .run(&format!("DROP DATABASE {}_router WITH (FORCE)", self.database));
        for cluster in &self.servers.clusters {
            cluster.connect().run(&format!("DROP DATABASE {} WITH (FORCE)", self.database));
        }
    }
}
