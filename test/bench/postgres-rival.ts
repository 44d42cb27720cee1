import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import postgres from 'postgres';
import { onCore } from './http-load.ts';
import type { Candidate, Missing } from './receiver-candidates.ts';
import { SECRET, type ServerProcess, startServer } from './server-process.ts';

const WHAT = 'a row for each in PostgreSQL';

/** Where Debian keeps each version's programs, which are not in the PATH. */
const VERSIONS = '/usr/lib/postgresql';

/**
 * Prepares plain-receiver.ts with one INSERT per callback into a PostgreSQL of its own, whose default settings include
 * fsync and synchronous_commit. The client postgres.js is the fastest for Node and has no dependencies.
 */
export async function openPostgresRival(): Promise<Candidate | Missing> {
  const programs = newestPrograms();
  if (!programs) return { what: WHAT, reason: 'postgresql not installed' };
  const user = unprivilegedUser();
  if (!user) return { what: WHAT, reason: 'no user postgres to run it as' };
  const home = mkdtempSync(path.join(tmpdir(), 'tillsync-bench-postgres-'));
  if (user.uid !== undefined && user.gid !== undefined) chownSync(home, user.uid, user.gid);
  const cluster = { programs, user, home };
  try {
    execFileSync(
      path.join(programs, 'initdb'),
      [
        '-D',
        path.join(home, 'data'),
        '-U',
        'bench',
        '--auth=trust',
        '--encoding=UTF8',
        '--no-locale',
        '--no-sync',
      ],
      { ...user, cwd: home, stdio: 'ignore' },
    );
  } catch (error) {
    rmSync(home, { recursive: true });
    throw error;
  }
  const version = execFileSync(path.join(programs, 'postgres'), ['--version'], { encoding: 'utf8' });
  return {
    label: 'Fastify + PostgreSQL',
    against: { what: WHAT, bound: '' },
    about: `the same Fastify and PostgreSQL ${/[\d.]+/.exec(version)?.[0]}, one row of JSON for each, a pool of 10`,
    start: () => start(cluster),
    stored: () => inPostgres(home, async (sql) => Number((await sql`SELECT count(*) FROM orders`)[0]?.count)),
    mayFail: false,
    close: () => rmSync(home, { recursive: true }),
  };
}

interface User {
  uid?: number;
  gid?: number;
}

interface Cluster {
  programs: string;
  user: User;
  /** Holds the data and the socket; only the server's user may enter. */
  home: string;
}

/** Starts the database and the receiver on one core, as on a small machine that the platform does not share. */
async function start({ programs, user, home }: Cluster): Promise<ServerProcess> {
  const args = ['-D', path.join(home, 'data'), '-k', home, '-c', 'listen_addresses='];
  const [command, words] = onCore(0, path.join(programs, 'postgres'), args);
  const database = spawn(command, words, { ...user, cwd: home, stdio: 'ignore' });
  const ended = once(database, 'exit');
  let receiver: ServerProcess | undefined;
  const stop = async () => {
    await receiver?.stop();
    // SIGINT is a fast shutdown, which ends open sessions and writes all data.
    database.kill('SIGINT');
    await ended;
  };
  try {
    await untilReady(programs, home, database);
    await inPostgres(home, async (sql) => {
      await sql`DROP TABLE IF EXISTS orders`;
      await sql`CREATE TABLE orders (order_id text PRIMARY KEY, status text, received_at timestamptz, payload jsonb)`;
    });
    receiver = await startServer('postgres-server.ts', home, SECRET);
  } catch (error) {
    await stop();
    throw error;
  }
  return { url: receiver.url, stop };
}

async function untilReady(programs: string, home: string, database: ChildProcess): Promise<void> {
  const args = ['-q', '-h', home, '-d', 'postgres', '-U', 'bench', '-t', '1'];
  for (;;) {
    const [code] = await once(spawn(path.join(programs, 'pg_isready'), args, { stdio: 'ignore' }), 'exit');
    if (code === 0) return;
    if (database.exitCode !== null) throw new Error('PostgreSQL ended before it was ready.');
  }
}

async function inPostgres<T>(home: string, action: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres({ host: home, username: 'bench', database: 'postgres', max: 1, onnotice: () => {} });
  try {
    return await action(sql);
  } finally {
    await sql.end();
  }
}

function newestPrograms(): string | undefined {
  if (!existsSync(VERSIONS)) return undefined;
  return readdirSync(VERSIONS)
    .sort((a, b) => Number(b) - Number(a))
    .map((version) => path.join(VERSIONS, version, 'bin'))
    .find((programs) => existsSync(path.join(programs, 'initdb')));
}

/**
 * Returns the user to run PostgreSQL as. If this process is root, which PostgreSQL refuses, that is `postgres`, or
 * undefined without such a user. Otherwise {}, which means this process's own user.
 */
function unprivilegedUser(): User | undefined {
  if (process.getuid?.() !== 0) return {};
  try {
    const id = (which: string) => Number(execFileSync('id', [which, 'postgres'], { encoding: 'utf8' }));
    return { uid: id('-u'), gid: id('-g') };
  } catch {
    return undefined;
  }
}
